/* What completions.jsonl has of a completion. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "model/text/turns.h"
#include "optim/rollout/rollout.h"

static json_t *rewards_json(const struct ax_rollout *r, int64_t i) {
    const int n = ax_rewards_count(r->o->rewards);
    json_t *all = json_object();
    for (int k = 0; all && k < n; k++)
        if (json_object_set_new(all, ax_rewards_name(r->o->rewards, k),
                                ax_json_number(r->rewards[i * n + k])) != 0) {
            json_decref(all);
            return NULL;
        }
    return all;
}

static json_t *line_json(const struct ax_rollout *r, int64_t i, const struct ax_buf *prompt,
                         const struct ax_buf *completion) {
    const struct ax_completion *c = &r->list[i];
    const struct ax_rollout_origin *from = &r->origins[i / r->o->group];
    return json_pack("{so sI ss% ss% sI sb}", "file", ax_json_repaired(from->file), "line",
                     (json_int_t)from->line, "prompt", prompt->data, prompt->len, "completion",
                     completion->data, completion->len, "tokens", (json_int_t)c->sampled,
                     "truncated", c->truncated);
}

/* Where answers may be the model's or the record's, whose it is. */
static bool put_source(const struct ax_rollout *r, int64_t i, json_t *v) {
    return r->o->own_share == 0 ||
           json_object_set_new(v, "on_policy", json_boolean(!r->list[i].given)) == 0;
}

static bool put_rewards(const struct ax_rollout *r, int64_t i, json_t *v) {
    return !r->o->rewards ||
           (json_object_set_new(v, "rewards", rewards_json(r, i)) == 0 &&
            json_object_set_new(v, "advantage", ax_json_number((double)r->list[i].advantage)) == 0);
}

static bool put_logged(const struct ax_rollout *r, int64_t i, json_t *v) {
    json_t *extra = r->logged.extra[i];
    return !extra || json_object_set(v, "extra", extra) == 0;
}

static bool put_taught(const struct ax_rollout *r, int64_t i, json_t *v) {
    return !r->teacher ||
           json_object_set_new(v, "kd_loss", ax_json_number((double)r->list[i].taught_kl)) == 0;
}

/* Of a teacher with another tokenizer, whose spans are seen by their tokens' advantages. */
static bool put_spans(const struct ax_rollout *r, int64_t i, json_t *v) {
    const struct ax_completion *c = &r->list[i];
    if (!r->o->reader)
        return true;
    json_t *ids = json_array(), *advantages = json_array();
    bool ok = ids && advantages;
    for (int64_t at = c->start + c->n_prompt; ok && at < c->start + c->n; at++) {
        const double advantage = (double)r->teacher[at] - (double)r->logprobs[at];
        ok = json_array_append_new(ids, json_integer(r->ids[at])) == 0 &&
             json_array_append_new(advantages, ax_json_number(advantage)) == 0;
    }
    ok = json_object_set_new(v, "completion_ids", ids) == 0 && ok;
    return json_object_set_new(v, "kd_advantages", advantages) == 0 && ok;
}

/* Of an environment: what its answers gave, and whether it failed. */
static bool put_environment(const struct ax_rollout *r, int64_t i, json_t *v) {
    if (!r->o->tools || ax_tools_environments(r->o->tools) == 0)
        return true;
    return json_object_set(v, "turn_rewards", r->turn_rewards[i]) == 0 &&
           json_object_set_new(v, "lost", json_boolean(r->list[i].lost)) == 0;
}

static bool put_turns(const struct ax_rollout *r, int64_t i, json_t *v) {
    const struct ax_completion *c = &r->list[i];
    return !r->messages ||
           ax_turns_put_json(
               v, &(struct ax_turns_record){.ids = r->ids + c->start,
                                            .inserted = r->inserted + c->start + c->n_prompt,
                                            .n_prompt = c->n_prompt,
                                            .n = c->n - c->n_prompt,
                                            .messages = r->messages[i],
                                            .calls = r->calls[i]});
}

/* Where it may not be the step's number less 1. */
static bool put_version(const struct ax_rollout *r, json_t *v) {
    return r->o->staleness == 0 ||
           json_object_set_new(v, "weights", json_integer((json_int_t)r->version)) == 0;
}

/* Samples shown of the first generation even if fewer were requested, so that a person soon sees
 * what answers are worth. */
#define FIRST 3

int64_t ax_rollout_shown(const struct ax_rollout *r) {
    const int64_t shown = r->generation == 1 && r->o->shown < FIRST ? FIRST : r->o->shown;
    return shown < r->n ? shown : r->n;
}

/* The step comes first, as in metrics.jsonl. */
enum ax_status ax_rollout_line(const struct ax_rollout *r, int64_t i, int64_t step,
                               struct ax_buf *out) {
    struct ax_buf prompt = {0}, completion = {0};
    enum ax_status st = ax_rollout_text(r, &r->list[i], &prompt, &completion);
    json_t *v = st == AX_OK ? line_json(r, i, &prompt, &completion) : NULL;
    char *text = v && put_source(r, i, v) && put_rewards(r, i, v) && put_logged(r, i, v) &&
                         put_taught(r, i, v) && put_spans(r, i, v) && put_turns(r, i, v) &&
                         put_environment(r, i, v) && put_version(r, v)
                     ? json_dumps(v, JSON_REAL_PRECISION(9))
                     : NULL;
    if (st == AX_OK && !text)
        st = ax_error(AX_ERR_NOMEM, "out of memory for a completion");
    if (text)
        st = ax_buf_printf(out, "{\"step\": %lld, %s\n", (long long)step, text + 1);
    json_decref(v);
    ax_free(text);
    ax_buf_free(&prompt);
    ax_buf_free(&completion);
    return st;
}

enum ax_status ax_rollout_worth(const struct ax_rollout *r, int64_t i, struct ax_buf *out) {
    const int n = r->o->rewards ? ax_rewards_count(r->o->rewards) : 0;
    if (n == 0)
        return ax_buf_printf(out, "%lld tokens", (long long)r->list[i].sampled);
    for (int k = 0; k < n; k++) {
        const double reward = r->rewards[i * n + k];
        AX_TRY(ax_buf_printf(out, "%s%s ", k ? ", " : "", ax_rewards_name(r->o->rewards, k)));
        AX_TRY(isfinite(reward) ? ax_buf_printf(out, "%.3g", reward) : ax_buf_puts(out, "none"));
    }
    return AX_OK;
}
