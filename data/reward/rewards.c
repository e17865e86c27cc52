#include "data/reward/rewards.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text/words.h"
#include "data/reward/function.h"
#include "data/reward/sandbox/sandbox.h"

struct ax_rewards {
    struct ax_reward_fn *functions; /* [n] */
    int n;
    struct ax_reward_shared shared;
    struct ax_reward_watch *watch; /* borrowed, or NULL */
    struct ax_buf request;         /* see struct ax_reward_call */
    double *scores;                /* [scores_cap] of one function */
    size_t scores_cap;
    struct ax_reward_progress progress;
    json_t *logged; /* see ax_rewards_take_logged */
};

/* ---- which kind a name is ---- */

/* "module.function", "package.module.function" */
static bool is_python_name(const char *s) {
    int dots = 0;
    for (bool start = true; *s; s++) {
        const unsigned char c = (unsigned char)*s;
        if (c == '.' && !start) {
            dots++;
            start = true;
        } else if (c == '_' || c >= 0x80 || (start ? isalpha(c) : isalnum(c))) {
            start = false;
        } else {
            return false;
        }
        if (!s[1])
            return dots > 0 && !start;
    }
    return false;
}

static enum ax_status unknown(const char *name) {
    char known[256] = "", word[64];
    const char *builtin, *usage;
    struct ax_nearest nearest = {.given = word, .within = 4};
    (void)snprintf(word, sizeof word, "%.*s", (int)strcspn(name, ":"), name);
    for (int i = 0; (builtin = ax_reward_builtin_name(i, &usage)) != NULL; i++) {
        const size_t n = strlen(known);
        (void)snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", usage);
        ax_nearest_try(&nearest, builtin);
    }
    return ax_error(AX_ERR_CONFIG,
                    "reward function \"%s\": there is no such function%s%s%s. Expected one of %s; "
                    "module.function in Python; the path of a program or a reward model, with a "
                    "slash; or the URL of a judge's server",
                    name, nearest.name ? "; did you mean \"" : "", nearest.name ? nearest.name : "",
                    nearest.name ? "\"?" : "", known);
}

static enum ax_status choose_path(const char *path, const struct ax_reward_kind **kind) {
    if (!ax_path_exists(path))
        return ax_error(AX_ERR_CONFIG, "reward function \"%s\": there is no such file", path);
    if (ax_path_is_dir(path))
        return ax_error(AX_ERR_CONFIG,
                        "reward function \"%s\": a folder is no program, and this one is no reward "
                        "model: it has neither config.json nor adapter_config.json",
                        path);
    if (access(path, X_OK) != 0)
        return ax_error(AX_ERR_CONFIG,
                        "reward function \"%s\": it cannot be executed (chmod +x %s)", path, path);
    *kind = &ax_reward_program;
    return AX_OK;
}

bool ax_rewards_is_builtin(const char *name) {
    return ax_reward_builtin(name, strcspn(name, ":")) != NULL;
}

static enum ax_status choose(const char *name, const struct ax_reward_kind **kind) {
    *kind = ax_reward_builtin(name, strcspn(name, ":"));
    if (*kind)
        return AX_OK;
    if (ax_endpoint_is_url(name)) {
        *kind = &ax_reward_judge;
        return AX_OK;
    }
    if (strchr(name, '/'))
        return choose_path(name, kind);
    if (!is_python_name(name))
        return unknown(name);
    *kind = &ax_reward_python;
    return AX_OK;
}

/* ---- functions of the caller's ---- */

static enum ax_status open_own(struct ax_reward_fn *f, const struct ax_rewards_options *o) {
    (void)f;
    (void)o;
    return AX_OK;
}

static enum ax_status score_own(struct ax_reward_fn *f, const struct ax_reward_call *call,
                                double *out, struct ax_reward_outcome *outcome) {
    (void)outcome;
    return f->own.score(f->own.ctx, call->n, call->items, out);
}

static void close_own(struct ax_reward_fn *f) {
    (void)f;
}

static const struct ax_reward_kind own_kind = {open_own, score_own, close_own};

/* ---- opening and closing ---- */

static enum ax_status open_function(struct ax_rewards *r, const struct ax_rewards_options *o,
                                    int i) {
    struct ax_reward_fn *f = &r->functions[i];
    const struct ax_reward_kind *kind = &own_kind;
    f->own = o->functions[i];
    if (!f->own.score)
        AX_TRY(choose(o->functions[i].name, &kind));
    AX_TRY(ax_strdup(&f->name, o->functions[i].name));
    const char *colon = strchr(f->name, ':');
    f->kind = kind;
    f->argument = colon ? colon + 1 : NULL;
    f->weight = o->functions[i].weight;
    f->most = 1;
    f->shared = &r->shared;
    return kind->open(f, o);
}

enum ax_status ax_rewards_open(struct ax_rewards **out, const struct ax_rewards_options *o) {
    struct ax_rewards *r;
    AX_TRY(ax_alloc(&r, 1, sizeof *r));
    enum ax_status st = ax_alloc(&r->functions, (size_t)o->n, sizeof *r->functions);
    for (int i = 0; i < o->n && st == AX_OK; i++) {
        r->n = i + 1;
        st = open_function(r, o, i);
    }
    if (st == AX_OK)
        *out = r;
    else
        ax_rewards_close(r);
    return st;
}

void ax_rewards_close(struct ax_rewards *r) {
    if (!r)
        return;
    for (int i = 0; i < r->n; i++) {
        struct ax_reward_fn *f = &r->functions[i];
        if (f->kind)
            f->kind->close(f);
        ax_free(f->name);
    }
    ax_reward_shared_free(&r->shared);
    ax_sandbox_close(r->shared.sandbox);
    ax_buf_free(&r->request);
    json_decref(r->logged);
    ax_free(r->scores);
    ax_free(r->functions);
    ax_free(r);
}

int ax_rewards_count(const struct ax_rewards *r) {
    return r->n;
}

const char *ax_rewards_name(const struct ax_rewards *r, int i) {
    return r->functions[i].name;
}

double ax_rewards_weight(const struct ax_rewards *r, int i) {
    return r->functions[i].weight;
}

double ax_rewards_most(const struct ax_rewards *r, int i) {
    return r->functions[i].most;
}

const struct ax_reward_counters *ax_rewards_counters(const struct ax_rewards *r, int i) {
    return &r->functions[i].counters;
}

/* ---- what functions log ---- */

/* Takes the reference. */
static enum ax_status keep_logged(struct ax_rewards *r, const struct ax_reward_fn *f,
                                  json_t *logged) {
    r->logged = r->logged ? r->logged : json_array();
    const bool named = json_object_set_new(logged, "function", json_string(f->name)) == 0;
    if (json_array_append_new(r->logged, logged) == 0 && named)
        return AX_OK;
    return ax_error(AX_ERR_NOMEM, "out of memory for what reward functions log");
}

json_t *ax_rewards_take_logged(struct ax_rewards *r) {
    json_t *logged = r->logged;
    r->logged = NULL;
    return logged;
}

/* ---- scoring ---- */

/* Counts a failed call; the last of several in a row is an error. */
static enum ax_status strike(struct ax_reward_fn *f, const struct ax_reward_outcome *outcome) {
    const char *what = ax_reward_failure_names[outcome->failure];
    f->counters.failures++;
    f->counters.timeouts += outcome->failure == AX_REWARD_TIMEOUT;
    f->in_a_row++;
    ax_log_warn("rewards: %s: %s: %s. No rewards from this call (failure %d in a row)", f->name,
                what, outcome->text, f->in_a_row);
    if (f->in_a_row < AX_REWARDS_STRIKES)
        return AX_OK;
    return ax_error(AX_ERR_DATA,
                    "reward function \"%s\" failed %d times in a row; the last: %s: %s", f->name,
                    f->in_a_row, what, outcome->text);
}

static enum ax_status score_one(struct ax_rewards *r, struct ax_reward_fn *f,
                                const struct ax_reward_call *call) {
    struct ax_reward_outcome outcome = {0};
    double *scores = r->scores;
    const double start = ax_clock_now();
    for (size_t i = 0; i < call->n; i++)
        scores[i] = NAN;
    const enum ax_status st = f->kind->score(f, call, scores, &outcome);
    f->counters.calls++;
    f->counters.seconds += ax_clock_now() - start;
    for (size_t i = 0; i < call->n; i++)
        f->counters.nones += isnan(scores[i]) ? 1 : 0;
    AX_TRY(st);
    if (outcome.failure != AX_REWARD_FINE)
        return strike(f, &outcome);
    f->in_a_row = 0;
    return outcome.logged ? keep_logged(r, f, outcome.logged) : AX_OK;
}

static enum ax_status make_room(struct ax_rewards *r, size_t n) {
    if (n > r->scores_cap) {
        AX_TRY(ax_regrow(&r->scores, r->scores_cap, n, sizeof *r->scores));
        r->scores_cap = n;
    }
    return AX_OK;
}

void ax_rewards_watch(struct ax_rewards *r, struct ax_reward_watch *watch) {
    r->watch = watch;
    r->shared.watch = watch ? &watch->watch : NULL;
}

/* The functions that all ranks call together, or the others. */
static enum ax_status score_kind(struct ax_rewards *r, const struct ax_reward_call *call,
                                 bool joint, double *out) {
    for (int i = 0; i < r->n; i++) {
        if ((r->functions[i].kind == &own_kind) != joint)
            continue;
        AX_TRY(score_one(r, &r->functions[i], call));
        for (size_t k = 0; k < call->n; k++)
            out[k * (size_t)r->n + (size_t)i] = r->scores[k];
    }
    return AX_OK;
}

enum ax_status ax_rewards_score(struct ax_rewards *r, size_t n, const struct ax_reward_item *items,
                                double *out) {
    const struct ax_reward_call call = {
        .n = n, .items = items, .request = &r->request, .progress = r->progress};
    r->request.len = 0;
    AX_TRY(make_room(r, n));
    AX_TRY(score_kind(r, &call, false, out));
    if (r->watch)
        AX_TRY(r->watch->settle(r->watch->watch.ctx));
    return score_kind(r, &call, true, out);
}

void ax_rewards_set_progress(struct ax_rewards *r, struct ax_reward_progress progress) {
    r->progress = progress;
}

bool ax_rewards_are_joint(const struct ax_rewards *r) {
    for (int i = 0; i < r->n; i++)
        if (r->functions[i].kind == &own_kind)
            return true;
    return false;
}

enum ax_status ax_rewards_join(struct ax_rewards *r, size_t n, const struct ax_reward_item *items) {
    AX_TRY(make_room(r, n));
    for (int i = 0; i < r->n; i++)
        if (r->functions[i].kind == &own_kind)
            AX_TRY(r->functions[i].own.score(r->functions[i].own.ctx, n, items, r->scores));
    return AX_OK;
}
