#include "cmd/generate/turns.h"

#include <string.h>

#include "base/mem.h"

/* ---- answers ---- */

enum ax_status ax_generate_turns_create(struct ax_generate_turns *t, int64_t n, int64_t longest,
                                        int64_t max_new, bool logprobs) {
    size_t all;
    if (ax_mul_overflow((size_t)n, (size_t)(longest + max_new), &all))
        return ax_error(AX_ERR_CONFIG, "too many answers: %lld", (long long)n);
    AX_TRY(ax_alloc(&t->list, (size_t)n, sizeof *t->list));
    t->n = n;
    AX_TRY(ax_alloc(&t->ids, all, sizeof *t->ids));
    AX_TRY(ax_alloc(&t->inserted, (size_t)(n * max_new), sizeof *t->inserted));
    if (logprobs)
        AX_TRY(ax_alloc(&t->logprobs, (size_t)(n * max_new), sizeof *t->logprobs));
    for (int64_t k = 0; k < n; k++)
        t->list[k] =
            (struct ax_turns_answer){.cap = max_new,
                                     .ids = t->ids + k * (longest + max_new),
                                     .inserted = t->inserted + k * max_new,
                                     .logprobs = t->logprobs ? t->logprobs + k * max_new : NULL};
    return AX_OK;
}

void ax_generate_turns_ask(struct ax_generate_turns *t, int64_t k, const struct ax_text_model *m,
                           const struct ax_prompts *prompts, const struct ax_prompt *p,
                           int64_t number) {
    struct ax_turns_answer *a = &t->list[k];
    a->rules = ax_text_tools_rules(&t->tools, m, p->adapter);
    a->n_prompt = p->n;
    if (a->cap > m->arch.max_positions - p->n)
        a->cap = m->arch.max_positions - p->n;
    memcpy(a->ids, prompts->ids.ids + p->first, (size_t)p->n * sizeof *a->ids);
    a->number = number;
    a->stream = (uint64_t)number;
}

void ax_generate_turns_close(struct ax_generate_turns *t) {
    ax_turns_free(t->list, t->n);
    ax_free(t->list);
    ax_free(t->ids);
    ax_free(t->inserted);
    ax_free(t->logprobs);
    ax_text_tools_close(&t->tools);
    *t = (struct ax_generate_turns){0};
}

/* ---- what comes out ---- */

const char *ax_generate_turns_finish(const struct ax_turns_answer *a) {
    return a->episode.late        ? "timeout"
           : a->episode.truncated ? ax_finish_name(AX_FINISH_LENGTH)
                                  : ax_finish_name(AX_FINISH_STOP);
}

static const char *text_of(const json_t *message, const char *key) {
    const char *s = json_string_value(json_object_get(message, key));
    return s ? s : "";
}

/* A text after a mark, its other lines below its first. */
static enum ax_status put_marked(struct ax_buf *out, const char *mark, const char *text) {
    AX_TRY(ax_buf_puts(out, mark));
    for (const char *s = text; *s;) {
        const size_t n = strcspn(s, "\n");
        AX_TRY(ax_buf_printf(out, "%s%.*s\n", s > text ? "  " : "", (int)n, s));
        s += n + (s[n] == '\n');
    }
    return *text ? AX_OK : ax_buf_puts(out, "\n");
}

/* "→ multiply {"a": 2, "b": 3}" */
static enum ax_status put_calls(struct ax_buf *out, const json_t *calls) {
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *f = json_object_get(json_array_get(calls, i), "function");
        char *arguments = json_dumps(json_object_get(f, "arguments"), JSON_ENCODE_ANY);
        if (!arguments)
            return ax_error(AX_ERR_NOMEM, "out of memory for a call");
        enum ax_status st = ax_buf_printf(out, "→ %s ", text_of(f, "name"));
        if (st == AX_OK)
            st = put_marked(out, "", arguments);
        ax_free_hook(arguments);
        AX_TRY(st);
    }
    return AX_OK;
}

static enum ax_status put_message(struct ax_buf *out, const json_t *m) {
    const char *content = text_of(m, "content");
    if (strcmp(text_of(m, "role"), "tool") == 0)
        return put_marked(out, "← ", content);
    const char *thought = ax_tool_thought(m);
    if (*thought)
        AX_TRY(put_marked(out, "… ", thought));
    if (*content)
        AX_TRY(ax_buf_printf(out, "%s\n", content));
    return put_calls(out, json_object_get(m, "tool_calls"));
}

enum ax_status ax_generate_turns_show(struct ax_buf *out, const json_t *messages) {
    for (size_t i = 0; i < json_array_size(messages); i++)
        AX_TRY(put_message(out, json_array_get(messages, i)));
    return AX_OK;
}

bool ax_generate_turns_put_json(json_t *row, const struct ax_generate_turns *t,
                                const struct ax_turns_answer *a, const struct ax_prompt *p) {
    json_t *all = json_copy(p->messages);
    const json_t *tools = ax_tools_definitions(t->tools.tools);
    const struct ax_turns_record record = {.ids = a->ids,
                                           .inserted = a->inserted,
                                           .n_prompt = a->n_prompt,
                                           .n = a->episode.n,
                                           .messages = all,
                                           .calls = a->episode.log};
    const bool ok = all && json_array_extend(all, a->episode.messages) == 0 &&
                    json_object_set(row, "tools", (json_t *)(uintptr_t)tools) == 0 &&
                    ax_turns_put_json(row, &record);
    json_decref(all);
    return ok;
}
