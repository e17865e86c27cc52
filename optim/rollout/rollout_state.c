/* What a checkpoint has of rollouts: what is still to be trained on. */
#include <math.h>
#include <string.h>

#include "base/text/json.h"
#include "base/mem.h"
#include "optim/rollout/rollout.h"

/* ---- writing ---- */

static json_t *ids_json(const int32_t *ids, int64_t n) {
    json_t *list = json_array();
    for (int64_t i = 0; list && i < n; i++)
        if (json_array_append_new(list, json_integer(ids[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

/* Numbers that are not finite are null: JSON has none. */
static json_t *floats_json(const float *values, int64_t n) {
    json_t *list = json_array();
    for (int64_t i = 0; list && i < n; i++)
        if (json_array_append_new(list, ax_json_number((double)values[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

/* What only some runs have: of a completion's tokens, or of the span of its places. */
enum { REFERENCE, ENTROPIES, ADVANTAGES, VALUES, RETURNS, MORE };
static const char *const more_names[MORE] = {"reference", "entropies", "advantages", "values",
                                             "returns"};

/* NULL: not this run. Else values [first, first + n) are the completion's. */
static float *more(const struct ax_rollout *r, const struct ax_completion *c, int i, int64_t *first,
                   int64_t *n) {
    float *const all[MORE] = {r->reference, r->entropies, r->advantages, r->values, r->returns};
    const bool places = i == VALUES || i == RETURNS;
    *first = c->start + c->n_prompt - places;
    *n = places ? ax_rollout_span(r, c) : c->n - c->n_prompt;
    return all[i];
}

/* Tokens that the model has not sampled: [first, end) of each stretch in the completion. */
static json_t *inserted_json(const struct ax_rollout *r, const struct ax_completion *c) {
    const bool *inserted = r->inserted + c->start + c->n_prompt;
    json_t *list = json_array();
    const int64_t n = c->n - c->n_prompt;
    for (int64_t i = 0, first; i < n; i++) {
        if (!inserted[i])
            continue;
        for (first = i; i < n && inserted[i];)
            i++;
        if (json_array_append_new(list, json_pack("[I, I]", (json_int_t)first, (json_int_t)i))) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *completion_json(const struct ax_rollout *r, const struct ax_completion *c) {
    const int32_t *ids = r->ids + c->start;
    const float *logprobs = r->logprobs + c->start;
    json_t *v =
        json_pack("{so so so so sb sb}", "prompt", ids_json(ids, c->n_prompt), "completion",
                  ids_json(ids + c->n_prompt, c->n - c->n_prompt), "logprobs",
                  floats_json(logprobs + c->n_prompt, c->n - c->n_prompt), "advantage",
                  ax_json_number((double)c->advantage), "truncated", c->truncated, "lost", c->lost);
    if (v && r->inserted && json_object_set_new(v, "inserted", inserted_json(r, c))) {
        json_decref(v);
        return NULL;
    }
    for (int i = 0; v && i < MORE; i++) {
        int64_t first, n;
        const float *values = more(r, c, i, &first, &n);
        if (values && json_object_set_new(v, more_names[i], floats_json(values + first, n))) {
            json_decref(v);
            return NULL;
        }
    }
    return v;
}

static json_t *origin_json(const struct ax_rollout_origin *o) {
    return json_pack("{so sI}", "file", ax_json_repaired(o->file), "line", (json_int_t)o->line);
}

static bool append(json_t *list, json_t *item) {
    return item && json_array_append_new(list, item) == 0;
}

enum ax_status ax_rollout_to_json(const struct ax_rollout *r, json_t **out) {
    json_t *list = json_array(), *origins = json_array(), *order = json_array();
    const bool used = ax_rollout_is_used_up(r);
    bool ok = list && origins && order;
    for (int64_t i = 0; ok && !used && i < r->n; i++)
        ok = append(list, completion_json(r, &r->list[i])) &&
             append(order, json_integer(r->order[i]));
    for (int64_t i = 0; ok && !used && i < r->o->prompts; i++)
        ok = append(origins, origin_json(&r->origins[i]));
    *out = json_pack("{sI si sI sI sI so so so}", "generation", (json_int_t)r->generation, "turn",
                     r->turn, "epoch", (json_int_t)r->epoch, "index", (json_int_t)r->index, "read",
                     (json_int_t)r->read, "completions", list, "order", order, "origins", origins);
    if (ok && *out)
        return AX_OK;
    json_decref(*out);
    *out = NULL;
    return ax_error(AX_ERR_NOMEM, "out of memory for the completions of a checkpoint");
}

/* ---- reading ---- */

static enum ax_status read_ids(struct ax_json v, int64_t most, int32_t *out, int64_t *n) {
    *n = (int64_t)ax_json_size(v);
    if (*n < 1 || *n > most)
        return ax_json_error(v, "expected 1 to %lld tokens", (long long)most);
    for (int64_t i = 0; i < *n; i++) {
        int64_t id;
        AX_TRY(ax_json_i64(ax_json_at(v, (size_t)i), 0, INT32_MAX, &id));
        out[i] = (int32_t)id;
    }
    return AX_OK;
}

static enum ax_status read_floats(struct ax_json v, int64_t n, float *out) {
    if ((int64_t)ax_json_size(v) != n)
        return ax_json_error(v, "expected %lld numbers", (long long)n);
    for (int64_t i = 0; i < n; i++) {
        double value;
        AX_TRY(ax_json_f64_or(ax_json_at(v, (size_t)i), (double)NAN, &value));
        out[i] = (float)value;
    }
    return AX_OK;
}

static enum ax_status read_inserted(struct ax_rollout *r, struct ax_json v,
                                    struct ax_completion *c) {
    const int64_t n = c->n - c->n_prompt;
    bool *inserted = r->inserted + c->start + c->n_prompt;
    memset(inserted, 0, (size_t)n * sizeof *inserted);
    for (size_t i = 0; i < ax_json_size(v); i++) {
        const struct ax_json stretch = ax_json_at(v, i);
        int64_t first, end;
        AX_TRY(ax_json_i64(ax_json_at(stretch, 0), 0, n - 1, &first));
        AX_TRY(ax_json_i64(ax_json_at(stretch, 1), first + 1, n, &end));
        memset(inserted + first, 1, (size_t)(end - first) * sizeof *inserted);
        c->sampled -= end - first;
    }
    return AX_OK;
}

static enum ax_status read_completion(struct ax_rollout *r, struct ax_json v,
                                      struct ax_completion *c) {
    int64_t n;
    double advantage;
    *c = (struct ax_completion){.start = (c - r->list) * (r->o->max_prompt + r->o->max_new)};
    AX_TRY(read_ids(ax_json_get(v, "prompt"), r->o->max_prompt, r->ids + c->start, &c->n_prompt));
    AX_TRY(
        read_ids(ax_json_get(v, "completion"), r->o->max_new, r->ids + c->start + c->n_prompt, &n));
    const int64_t first = c->start + c->n_prompt;
    c->n = c->n_prompt + n;
    c->sampled = n;
    if (r->inserted)
        AX_TRY(read_inserted(r, ax_json_get(v, "inserted"), c));
    AX_TRY(read_floats(ax_json_get(v, "logprobs"), n, r->logprobs + first));
    for (int i = 0; i < MORE; i++) {
        int64_t from, count;
        float *values = more(r, c, i, &from, &count);
        if (values)
            AX_TRY(read_floats(ax_json_get(v, more_names[i]), count, values + from));
    }
    AX_TRY(ax_json_f64_or(ax_json_get(v, "advantage"), (double)NAN, &advantage));
    c->advantage = (float)advantage;
    AX_TRY(ax_json_bool(ax_json_get(v, "truncated"), &c->truncated));
    /* older checkpoints do not say */
    return ax_json_bool_or(ax_json_get(v, "lost"), false, &c->lost);
}

static enum ax_status read_origin(struct ax_json v, struct ax_rollout_origin *o) {
    const char *file;
    int64_t line;
    AX_TRY(ax_json_str(ax_json_get(v, "file"), &file));
    AX_TRY(ax_json_i64(ax_json_get(v, "line"), 0, INT64_MAX, &line));
    o->line = (uint64_t)line;
    ax_free(o->file);
    o->file = NULL;
    return ax_strdup(&o->file, file);
}

static enum ax_status read_generation(struct ax_rollout *r, struct ax_json v) {
    const struct ax_json list = ax_json_get(v, "completions"), order = ax_json_get(v, "order"),
                         origins = ax_json_get(v, "origins");
    if ((int64_t)ax_json_size(list) != r->n || (int64_t)ax_json_size(order) != r->n ||
        (int64_t)ax_json_size(origins) != r->o->prompts)
        return ax_json_error(
            list,
            "this checkpoint is in the middle of a generation of other size; resume it with its "
            "num_generations, micro_batch_size, gradient_accumulation_steps and ranks");
    for (int64_t i = 0; i < r->n; i++) {
        AX_TRY(read_completion(r, ax_json_at(list, (size_t)i), &r->list[i]));
        AX_TRY(ax_json_i64(ax_json_at(order, (size_t)i), 0, r->n - 1, &r->order[i]));
    }
    for (int64_t i = 0; i < r->o->prompts; i++)
        AX_TRY(read_origin(ax_json_at(origins, (size_t)i), &r->origins[i]));
    return AX_OK;
}

enum ax_status ax_rollout_from_json(struct ax_rollout *r, struct ax_json v) {
    int64_t turn;
    const struct ax_json list = ax_json_get(v, "completions");
    AX_TRY(ax_json_i64(ax_json_get(v, "generation"), 0, INT32_MAX, &r->generation));
    AX_TRY(ax_json_i64(ax_json_get(v, "turn"), 0, INT32_MAX, &turn));
    AX_TRY(ax_json_i64(ax_json_get(v, "epoch"), 0, INT64_MAX, &r->epoch));
    AX_TRY(ax_json_i64(ax_json_get(v, "index"), 0, INT64_MAX, &r->index));
    AX_TRY(ax_json_i64(ax_json_get(v, "read"), 0, INT64_MAX, &r->read));
    r->turn = 0;
    r->filled = false;
    if (ax_json_size(list) == 0)
        return AX_OK;
    AX_TRY(read_generation(r, v));
    if (turn >= (int64_t)r->o->steps * r->o->iterations)
        return ax_json_error(ax_json_get(v, "turn"), "expected a turn that is left");
    r->turn = (int)turn;
    r->filled = true;
    return AX_OK;
}
