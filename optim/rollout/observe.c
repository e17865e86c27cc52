/* Prompts that are rendered again from their records: an environment adds to them, or a teacher has another template. */
#include <string.h>

#include "base/log.h"
#include "data/records/format/format.h"
#include "optim/rollout/rollout.h"

enum ax_status ax_rollout_render(const struct ax_rollout *r, const struct ax_format *format,
                                 int64_t group, const char *text, struct ax_example_list *out) {
    struct ax_format_work w = {.observation = text};
    const struct ax_rollout_origin *from = &r->origins[group];
    json_t *record = json_loads(r->records[group], JSON_ALLOW_NUL, NULL);
    enum ax_status st = AX_ERR_NOMEM;
    if (record)
        st = ax_format_record(format, &w, record, (struct ax_origin){0}, out);
    else
        (void)ax_error(st, "out of memory for a prompt's record");
    json_decref(record);
    ax_format_work_free(&w);
    return st == AX_OK ? AX_OK
                       : ax_error_prefix(st, "%s:%llu", from->file, (unsigned long long)from->line);
}

static enum ax_status take(struct ax_rollout *r, struct ax_completion *c, const char *text,
                           const struct ax_example_list *list) {
    memcpy(r->ids + c->start, list->tokens, list->n_tokens * sizeof *list->tokens);
    c->n_prompt = (int64_t)list->n_tokens;
    return ax_strdup(&r->observations[c - r->list], text);
}

enum ax_status ax_rollout_observe(struct ax_rollout *r, struct ax_completion *c, const char *text,
                                  bool *fits) {
    struct ax_example_list list = {0};
    enum ax_status st =
        ax_rollout_render(r, r->o->format, (c - r->list) / r->o->group, text, &list);
    const int64_t n = (int64_t)list.n_tokens;
    *fits = st == AX_OK && n <= r->o->max_prompt;
    if (*fits) {
        st = take(r, c, text, &list);
    } else if (st == AX_OK) {
        ax_log_warn("environment: a prompt has %lld tokens with what the environment begins with, "
                    "and may have %lld: raise sequence_len. The answer has no reward",
                    (long long)n, (long long)r->o->max_prompt);
    }
    ax_example_list_free(&list);
    return st;
}
