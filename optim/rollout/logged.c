/* What reward functions log by TRL's log_metric and log_extra: figures that are means of the values of all calls, on all
 * ranks, and columns of completions.jsonl. */
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "optim/metrics/metrics.h"
#include "optim/rollout/rollout.h"
#include "parallel/texts.h"

static enum ax_status no_memory(void) {
    return ax_error(AX_ERR_NOMEM, "out of memory for what reward functions log");
}

static void forget_columns(struct ax_rollout *r, int64_t i) {
    json_decref(r->logged.extra[i]);
    r->logged.extra[i] = NULL;
}

void ax_rollout_forget_logged(struct ax_rollout *r) {
    json_decref(r->logged.metrics);
    r->logged.metrics = NULL;
    for (int64_t i = 0; r->logged.extra && i < r->n; i++)
        forget_columns(r, i);
}

void ax_rollout_free_logged(struct ax_rollout *r) {
    ax_rollout_forget_logged(r);
    json_decref(r->logged.names);
    ax_free(r->logged.extra);
}

/* ---- metrics ---- */

static bool is_measure(const char *name) {
    for (int i = 0; ax_policy_measures[i]; i++)
        if (strcmp(ax_policy_measures[i], name) == 0)
            return true;
    return false;
}

#define TAKEN "the run reports another figure of this name"

/* Says once why a metric is left out. */
static void leave_out(struct ax_rollout *r, const char *name, const char *function,
                      const char *why) {
    if (!r->logged.told)
        ax_log_warn("rewards: %s: log_metric(\"%s\"): %s; it is left out (this is said only once)",
                    function, name, why);
    r->logged.told = true;
}

/* The figures of this generation are not there yet. */
static bool has_room(struct ax_rollout *r, const char *name, const char *function) {
    if (json_object_get(r->logged.names, name))
        return true;
    const bool taken = ax_metrics_is_own(name) || is_measure(name);
    if (!taken && json_object_size(r->logged.names) < AX_FIGURES_LOGGED)
        return true;
    leave_out(r, name, function, taken ? TAKEN : "a run has room for 64 names");
    return false;
}

static double number_or_nan(const json_t *v) {
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

static enum ax_status add_metric(struct ax_rollout *r, const char *name, const char *function,
                                 const json_t *v) {
    const json_t *before = json_object_get(r->logged.metrics, name);
    const double sum = number_or_nan(json_array_get(v, 0)) +
                       (before ? number_or_nan(json_array_get(before, 0)) : 0);
    const json_int_t n =
        json_integer_value(json_array_get(v, 1)) + json_integer_value(json_array_get(before, 1));
    if (json_object_set_new(r->logged.names, name, json_string(function)) != 0 ||
        json_object_set_new(r->logged.metrics, name, json_pack("[o, I]", ax_json_number(sum), n)) !=
            0)
        return no_memory();
    return AX_OK;
}

static enum ax_status add_metrics(struct ax_rollout *r, json_t *metrics, const char *function) {
    const char *name;
    json_t *v;
    json_object_foreach(metrics, name, v) {
        if (has_room(r, name, function))
            AX_TRY(add_metric(r, name, function, v));
    }
    return AX_OK;
}

void ax_rollout_put_logged(struct ax_rollout *r) {
    const char *name;
    json_t *v;
    json_object_foreach(r->logged.metrics, name, v) {
        if (ax_figures_has(&r->figures, name)) {
            leave_out(r, name, json_string_value(json_object_get(r->logged.names, name)), TAKEN);
            continue;
        }
        ax_figures_add(&r->figures, name,
                       number_or_nan(json_array_get(v, 0)) /
                           (double)json_integer_value(json_array_get(v, 1)));
    }
}

/* ---- columns ---- */

/* A column that several functions log is the last one's, as in TRL. */
static enum ax_status set_column(struct ax_rollout *r, int64_t first, const char *name,
                                 const json_t *values) {
    for (size_t i = 0; i < json_array_size(values); i++) {
        json_t **extra = &r->logged.extra[ax_rollout_todo(r, first + (int64_t)i) - r->list];
        *extra = *extra ? *extra : json_object();
        if (json_object_set(*extra, name, json_array_get(values, i)) != 0)
            return no_memory();
    }
    return AX_OK;
}

/* ---- between ranks ---- */

static enum ax_status add_call(struct ax_rollout *r, int64_t first, const json_t *call) {
    const char *name;
    json_t *v;
    AX_TRY(add_metrics(r, json_object_get(call, "metrics"),
                       json_string_value(json_object_get(call, "function"))));
    json_object_foreach(json_object_get(call, "extra"), name, v) {
        AX_TRY(set_column(r, first, name, v));
    }
    return AX_OK;
}

/* What a rank tells: [its first completion, its calls]. */
static enum ax_status add_text(struct ax_rollout *r, const struct ax_buf *text) {
    enum ax_status st = AX_OK;
    json_t *v = text->len > 0 ? json_loadb(text->data, text->len, JSON_ALLOW_NUL, NULL) : NULL;
    const json_t *calls = json_array_get(v, 1);
    if (text->len > 0 && !v)
        return no_memory();
    for (size_t i = 0; i < json_array_size(calls) && st == AX_OK; i++)
        st = add_call(r, json_integer_value(json_array_get(v, 0)), json_array_get(calls, i));
    json_decref(v);
    return st;
}

static enum ax_status own_text(const struct ax_rollout *r, int64_t first, char **out) {
    json_t *calls = ax_rewards_take_logged(r->o->rewards);
    *out = NULL;
    if (!calls)
        return AX_OK;
    json_t *v = json_pack("[I, o]", (json_int_t)first, calls);
    *out = v ? json_dumps(v, JSON_COMPACT) : NULL;
    json_decref(v);
    return *out ? AX_OK : no_memory();
}

static enum ax_status make_room(struct ax_rollout_logged *l) {
    l->metrics = l->metrics ? l->metrics : json_object();
    l->names = l->names ? l->names : json_object();
    return l->metrics && l->names ? AX_OK : no_memory();
}

enum ax_status ax_rollout_share_logged(struct ax_rollout *r, struct ax_runtime *rt, int64_t first) {
    const int world = rt->mesh.world;
    struct ax_buf *all;
    char *text;
    AX_TRY(make_room(&r->logged));
    for (int64_t i = 0; i < r->n_todo * r->o->group; i++)
        forget_columns(r, ax_rollout_todo(r, i) - r->list);
    AX_TRY(own_text(r, first, &text));
    enum ax_status st = ax_alloc(&all, (size_t)world, sizeof *all);
    if (st == AX_OK)
        st = ax_texts_gather(rt, text ? text : "", text ? strlen(text) : 0, all);
    for (int i = 0; i < world && st == AX_OK; i++)
        st = add_text(r, &all[i]);
    for (int i = 0; i < world && all; i++)
        ax_buf_free(&all[i]);
    ax_free(all);
    ax_free_hook(text);
    return st;
}
