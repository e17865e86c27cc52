#include "optim/metrics/progress.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

#define MIN_BAR 10
#define MAX_BAR 40

/* ---- the bar ---- */

/* Parts in display order, and how early each is dropped when space is short. */
enum part { PERCENT, STEPS, DOING, LOSS, LR, NORM, SPEED, MFU, MEMORY, ETA, PART_COUNT };
static const enum part by_weight[PART_COUNT] = {STEPS,   LOSS, ETA, SPEED,  DOING,
                                                PERCENT, LR,   MFU, MEMORY, NORM};

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
    if (v->doing && v->of > 0)
        snprintf(p->text[DOING], 64, "%.24s %lld/%lld", v->doing, (long long)v->done,
                 (long long)v->of);
    else if (v->doing)
        snprintf(p->text[DOING], 64, "%.24s", v->doing);
    if (v->step == 0)
        return;
    snprintf(p->text[LOSS], 64, "loss %.4g", v->loss);
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
        const enum part k = by_weight[i];
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
    AX_TRY(ax_buf_printf(out, " epoch=%.4g loss=%.5g grad_norm=%.4g learning_rate=%.4g", v->epoch,
                         v->loss, v->grad_norm, v->learning_rate));
    AX_TRY(ax_buf_printf(out, " tokens_per_second=%.0f", v->tokens_per_second));
    if (v->devices > 1)
        AX_TRY(ax_buf_printf(out, " tokens_per_second_per_device=%.0f",
                             v->tokens_per_second / v->devices));
    if (v->eta >= 0)
        AX_TRY(ax_buf_printf(out, " eta_s=%.0f", v->eta));
    return ax_buf_puts(out, "\n");
}
