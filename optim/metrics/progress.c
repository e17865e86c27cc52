#include "optim/metrics/progress.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

#define MIN_BAR 10
#define MAX_BAR 40

/* ---- watched figures ---- */

#define REWARD_BEFORE "rewards/"
#define REWARD_AFTER  "/mean"

/* In the order of display. */
static const struct {
    const char *name, *label;
    bool share;
} watchable[] = {
    {"reward", "reward", false},
    {NULL, NULL, false}, /* the mean of each reward function */
    {"completions/mean_length", "length", false},
    {"completions/clipped_ratio", "cut", true},
    {"rewards/accuracies", "accuracy", true},
    {"rewards/margins", "margin", false},
    {"accuracy", "accuracy", true},
    {"margin", "margin", false},
    {"rewards/chosen", "chosen", false},
    {"rewards/rejected", "rejected", false},
    {"objective/kl", "KL", false},
    {"kl", "KL", false},
    {"kd_loss", "divergence", false},
};

/* The length of a reward function's name in that of its mean; 0: this is another figure. */
static size_t function_length(const char *name) {
    const size_t n = strlen(name), before = strlen(REWARD_BEFORE), after = strlen(REWARD_AFTER);
    const bool is = n > before + after && strncmp(name, REWARD_BEFORE, before) == 0 &&
                    strcmp(name + n - after, REWARD_AFTER) == 0;
    return is ? n - before - after : 0;
}

/* A figure's place in the table; −1: it is not watched. */
static int rank_of(const char *name) {
    for (size_t i = 0; i < sizeof watchable / sizeof *watchable; i++)
        if (watchable[i].name ? strcmp(watchable[i].name, name) == 0 : function_length(name) > 0)
            return (int)i;
    return -1;
}

static void watch(struct ax_progress_view *v, const char *name, double value) {
    const int rank = rank_of(name);
    int at = 0;
    if (rank < 0 || isnan(value))
        return;
    while (at < v->n_watched && v->watched[at].rank <= rank &&
           strcmp(v->watched[at].name, name) != 0)
        at++;
    if (at == v->n_watched || strcmp(v->watched[at].name, name) != 0) {
        if (v->n_watched == AX_PROGRESS_WATCHED)
            return;
        memmove(v->watched + at + 1, v->watched + at,
                (size_t)(v->n_watched - at) * sizeof *v->watched);
        v->n_watched++;
        v->watched[at] = (struct ax_progress_watch){
            .rank = rank, .label = watchable[rank].label, .share = watchable[rank].share};
        (void)snprintf(v->watched[at].name, sizeof v->watched[at].name, "%s", name);
    }
    v->watched[at].now = true;
    v->watched[at].value = value;
}

/* The mean of a single function is the reward already. */
static bool has_parts(const struct ax_figures *f) {
    int n = 0;
    for (int i = 0; i < f->n; i++)
        n += function_length(f->names[i]) > 0;
    return n > 1;
}

static bool is_among(const char *name, const char *const *measures) {
    for (int i = 0; measures && measures[i]; i++)
        if (strcmp(name, measures[i]) == 0)
            return true;
    return false;
}

void ax_progress_watch(struct ax_progress_view *v, const struct ax_step_figures *f,
                       const char *const *measures) {
    /* with lengths come new completions */
    const bool sampled =
        f->figures && !isnan(ax_figures_get(f->figures, "completions/mean_length"));
    for (int i = 0; i < v->n_watched; i++)
        v->watched[i].now &= !sampled && !is_among(v->watched[i].name, measures);
    for (int i = 0; measures && measures[i]; i++)
        watch(v, measures[i], f->measures[i]);
    for (int i = 0; f->figures && i < f->figures->n; i++)
        if (function_length(f->figures->names[i]) == 0 || has_parts(f->figures))
            watch(v, f->figures->names[i], f->figures->values[i]);
}

/* ---- the bar ---- */

/* Parts in display order, and by_weight: the last ones are dropped first when space is short. */
enum part {
    PERCENT,
    STEPS,
    DOING,
    LOSS,
    WATCHED,
    LR = WATCHED + AX_PROGRESS_WATCHED,
    NORM,
    SPEED,
    MFU,
    MEMORY,
    ETA,
    PART_COUNT
};
static const int by_weight[PART_COUNT] = {
    STEPS,       LOSS,         WATCHED,      ETA,         WATCHED + 1, SPEED,
    WATCHED + 2, DOING,        WATCHED + 3,  PERCENT,     WATCHED + 4, WATCHED + 5,
    LR,          MFU,          MEMORY,       WATCHED + 6, WATCHED + 7, WATCHED + 8,
    WATCHED + 9, WATCHED + 10, WATCHED + 11, NORM};

struct parts {
    char text[PART_COUNT][64];
    bool shown[PART_COUNT];
};

static void write_speed(char *out, size_t size, const struct ax_progress_view *v) {
    char all[24], each[24];
    ax_format_count(all, sizeof all, v->tokens_per_second);
    if (v->devices > 1)
        snprintf(out, size, "%s tok/s (%s each)", all,
                 ax_format_count(each, sizeof each, v->tokens_per_second / v->devices));
    else
        snprintf(out, size, "%s tok/s", all);
}

static void write_watched(char *out, size_t size, const struct ax_progress_watch *w) {
    const double value = w->share ? 100 * w->value : w->value;
    const char *function = w->name + strlen(REWARD_BEFORE);
    const int n = w->label ? (int)strlen(w->label) : (int)function_length(w->name);
    snprintf(out, size, w->share ? "%.*s %.0f %%" : "%.*s %.4g", n < 24 ? n : 24,
             w->label ? w->label : function, value);
}

static void write_parts(struct parts *p, const struct ax_progress_view *v) {
    char text[32];
    memset(p, 0, sizeof *p);
    if (v->total_steps > 0) {
        snprintf(p->text[PERCENT], 64, "%3.0f %%",
                 100.0 * (double)v->step / (double)v->total_steps);
        snprintf(p->text[STEPS], 64, "%lld/%lld", (long long)v->step, (long long)v->total_steps);
    } else {
        snprintf(p->text[STEPS], 64, "step %lld", (long long)v->step);
    }
    if (v->doing && v->of > 0 && v->doing_eta > 0)
        snprintf(p->text[DOING], 64, "%.24s %lld/%lld, %s left", v->doing, (long long)v->done,
                 (long long)v->of, ax_format_seconds(text, sizeof text, v->doing_eta));
    else if (v->doing && v->of > 0)
        snprintf(p->text[DOING], 64, "%.24s %lld/%lld", v->doing, (long long)v->done,
                 (long long)v->of);
    else if (v->doing)
        snprintf(p->text[DOING], 64, "%.24s", v->doing);
    if (v->step == 0)
        return;
    snprintf(p->text[LOSS], 64, "loss %.4g", v->loss);
    for (int i = 0; i < v->n_watched; i++)
        write_watched(p->text[WATCHED + i], 64, &v->watched[i]);
    snprintf(p->text[LR], 64, "lr %.3g", v->learning_rate);
    snprintf(p->text[NORM], 64, "norm %.3g", v->grad_norm);
    write_speed(p->text[SPEED], 64, v);
    if (v->mfu >= 0)
        snprintf(p->text[MFU], 64, "MFU %.0f %%", 100 * v->mfu);
    if (v->memory > 0)
        snprintf(p->text[MEMORY], 64, "%s", ax_format_bytes(text, sizeof text, v->memory));
    if (v->eta >= 0)
        snprintf(p->text[ETA], 64, "ETA %s", ax_format_seconds(text, sizeof text, v->eta));
}

static int choose_parts(struct parts *p, int width) {
    int used = 0;
    for (int i = 0; i < PART_COUNT; i++) {
        const int k = by_weight[i];
        const int n = (int)strlen(p->text[k]);
        const int wanted = used == 0 ? n : used + 2 + n;
        p->shown[k] = n > 0 && wanted <= width;
        if (p->shown[k])
            used = wanted;
    }
    return used;
}

static enum ax_status put_bar(struct ax_buf *out, double share, int cells, bool color) {
    const int full = (int)lround(share * cells);
    AX_TRY(ax_buf_puts(out, color ? "[\x1b[32m" : "["));
    for (int i = 0; i < cells; i++) {
        if (i == full && color)
            AX_TRY(ax_buf_puts(out, "\x1b[0m"));
        AX_TRY(ax_buf_puts(out, i < full ? "#" : "."));
    }
    return ax_buf_puts(out, color ? "\x1b[0m]" : "]");
}

enum ax_status ax_progress_bar(struct ax_buf *out, const struct ax_progress_view *v, int width,
                               bool color) {
    struct parts p;
    write_parts(&p, v);
    const int room = width - choose_parts(&p, width) - 3; /* two brackets and a space */
    const double share =
        v->total_steps > 0 ? fmin(1, (double)v->step / (double)v->total_steps) : -1;
    const char *gap = "";
    for (int k = 0; k < PART_COUNT; k++) {
        if (!p.shown[k])
            continue;
        AX_TRY(ax_buf_printf(out, "%s%s", gap, p.text[k]));
        gap = "  ";
        if (k == PERCENT && share >= 0 && room >= MIN_BAR) {
            AX_TRY(ax_buf_puts(out, " "));
            AX_TRY(put_bar(out, share, room < MAX_BAR ? room : MAX_BAR, color));
        }
    }
    return AX_OK;
}

/* ---- lines ---- */

enum ax_status ax_progress_line(struct ax_buf *out, const struct ax_progress_view *v) {
    AX_TRY(ax_buf_printf(out, "step=%lld", (long long)v->step));
    if (v->total_steps > 0)
        AX_TRY(ax_buf_printf(out, "/%lld", (long long)v->total_steps));
    AX_TRY(ax_buf_printf(out, " epoch=%.4g loss=%.5g", v->epoch, v->loss));
    for (int i = 0; i < v->n_watched; i++)
        if (v->watched[i].now)
            AX_TRY(ax_buf_printf(out, " %s=%.4g", v->watched[i].name, v->watched[i].value));
    AX_TRY(
        ax_buf_printf(out, " grad_norm=%.4g learning_rate=%.4g", v->grad_norm, v->learning_rate));
    AX_TRY(ax_buf_printf(out, " tokens_per_second=%.0f", v->tokens_per_second));
    if (v->devices > 1)
        AX_TRY(ax_buf_printf(out, " tokens_per_second_per_device=%.0f",
                             v->tokens_per_second / v->devices));
    if (v->eta >= 0)
        AX_TRY(ax_buf_printf(out, " eta_s=%.0f", v->eta));
    return ax_buf_puts(out, "\n");
}
