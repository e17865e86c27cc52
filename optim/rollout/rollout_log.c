/* What completions.jsonl has of a completion. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
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
    return json_pack("{ss sI ss% ss% sI sb so sf}", "file", from->file, "line",
                     (json_int_t)from->line, "prompt", prompt->data, prompt->len, "completion",
                     completion->data, completion->len, "tokens", (json_int_t)(c->n - c->n_prompt),
                     "truncated", c->truncated, "rewards", rewards_json(r, i), "advantage",
                     (double)c->advantage);
}

/* The step comes first, as in metrics.jsonl. */
enum ax_status ax_rollout_line(const struct ax_rollout *r, int64_t i, int64_t step,
                               struct ax_buf *out) {
    struct ax_buf prompt = {0}, completion = {0};
    enum ax_status st = ax_rollout_text(r, &r->list[i], &prompt, &completion);
    json_t *v = st == AX_OK ? line_json(r, i, &prompt, &completion) : NULL;
    char *text = v ? json_dumps(v, JSON_REAL_PRECISION(9)) : NULL;
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
    const int n = ax_rewards_count(r->o->rewards);
    for (int k = 0; k < n; k++) {
        const double reward = r->rewards[i * n + k];
        AX_TRY(ax_buf_printf(out, "%s%s ", k ? ", " : "", ax_rewards_name(r->o->rewards, k)));
        AX_TRY(isfinite(reward) ? ax_buf_printf(out, "%.3g", reward) : ax_buf_puts(out, "none"));
    }
    return AX_OK;
}
