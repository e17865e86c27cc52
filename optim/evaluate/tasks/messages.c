/* Messages as plain text, or through a chat template. */
#include <string.h>

#include "base/mem.h"
#include "optim/evaluate/tasks/prompt.h"

enum ax_status ax_task_messages_add(struct ax_task_messages *m, const char *role, const char *text,
                                    size_t len, const char *delimiter) {
    if (m->n == m->cap) {
        const size_t cap = m->cap > 0 ? 2 * m->cap : 16;
        AX_TRY(ax_regrow(&m->list, m->cap, cap, sizeof *m->list));
        m->cap = cap;
    }
    struct ax_task_message *new = &m->list[m->n++];
    *new = (struct ax_task_message){.role = role, .delimiter = delimiter};
    return ax_buf_append(&new->text, text ? text : "", text ? len : 0);
}

void ax_task_messages_cut(struct ax_task_messages *m, size_t n) {
    while (m->n > n)
        ax_buf_free(&m->list[--m->n].text);
}

void ax_task_messages_free(struct ax_task_messages *m) {
    ax_task_messages_cut(m, 0);
    ax_free(m->list);
    *m = (struct ax_task_messages){0};
}

/* Joins messages [from, to), each followed by its delimiter, the last one only if `all`. */
static enum ax_status join(const struct ax_task_messages *m, size_t from, size_t to, bool all,
                           struct ax_buf *out) {
    for (size_t i = from; i < to; i++) {
        AX_TRY(ax_buf_append(out, m->list[i].text.data, m->list[i].text.len));
        if (all || i + 1 < to)
            AX_TRY(ax_buf_puts(out, m->list[i].delimiter));
    }
    return ax_buf_append(out, "", 0);
}

static bool is_role(const struct ax_task_message *m, const char *role) {
    return strcmp(m->role, role) == 0;
}

static bool begun(const struct ax_task_messages *m) {
    return is_role(&m->list[m->n - 1], "assistant");
}

static enum ax_status append(json_t *list, const char *role, const struct ax_buf *text) {
    json_t *v = json_pack("{ss ss%}", "role", role, "content", text->data, text->len);
    return json_array_append_new(list, v) == 0
               ? AX_OK
               : ax_error(AX_ERR_DATA, "a prompt is not UTF-8, or out of memory");
}

/* One turn per message; if `single`, one user turn for all between the system message and the begun
 * answer. */
static enum ax_status turns(const struct ax_task_messages *m, bool single, json_t *list) {
    const size_t first = single && is_role(&m->list[0], "system"),
                 end = m->n - (single && begun(m));
    struct ax_buf text = {0};
    for (size_t i = 0; i < (single ? first : m->n); i++)
        AX_TRY(append(list, m->list[i].role, &m->list[i].text));
    if (!single)
        return AX_OK;
    enum ax_status st = join(m, first, end, false, &text);
    if (st == AX_OK)
        st = append(list, "user", &text);
    ax_buf_free(&text);
    if (st == AX_OK && end < m->n)
        st = append(list, "assistant", &m->list[end].text);
    return st;
}

/* Some templates reject a system message: then it is omitted. */
static enum ax_status render(const struct ax_text_side *side, json_t *vars,
                             struct ax_template_output *out) {
    const struct ax_template_options o = {.chat = true, .defaults = side->tokens};
    json_t *list = json_object_get(vars, "messages");
    const char *role = json_string_value(json_object_get(json_array_get(list, 0), "role"));
    const enum ax_status st = ax_template_render(side->template, vars, &o, out);
    if (st != AX_ERR_DATA || !role || strcmp(role, "system") != 0 || json_array_size(list) < 2)
        return st;
    json_array_remove(list, 0);
    return ax_template_render(side->template, vars, &o, out);
}

/* Ends the conversation after the last occurrence of the begun answer, for the model to continue
 * it. */
static enum ax_status leave_open(const struct ax_buf *begun_text, struct ax_template_output *text) {
    const char *s = begun_text->data;
    size_t n = begun_text->len, at = text->len;
    ax_python_strip(&s, &n);
    while (at > 0 && (text->len - at < n || memcmp(text->text + at, s, n) != 0))
        at--;
    if (text->len - at < n || memcmp(text->text + at, s, n) != 0)
        return ax_error(AX_ERR_DATA, "the chat template does not show gen_prefix as it is");
    const size_t with_spaces = begun_text->len - (size_t)(s - begun_text->data);
    const bool kept = text->len - at >= with_spaces && memcmp(text->text + at, s, with_spaces) == 0;
    text->len = at + (kept ? with_spaces : n);
    return AX_OK;
}

static enum ax_status chat_text(const struct ax_task_messages *m, const struct ax_text_side *side,
                                bool single, struct ax_buf *out) {
    struct ax_template_output text = {0};
    json_t *list = json_array();
    json_t *vars = json_pack("{so sb}", "messages", list, "add_generation_prompt", !begun(m));
    if (!vars)
        return ax_error(AX_ERR_NOMEM, "out of memory for a conversation");
    enum ax_status st = turns(m, single, list);
    if (st == AX_OK)
        st = render(side, vars, &text);
    if (st == AX_OK && begun(m))
        st = leave_open(&m->list[m->n - 1].text, &text);
    if (st == AX_OK)
        st = ax_buf_append(out, text.text, text.len);
    ax_template_output_free(&text);
    json_decref(vars);
    return st;
}

enum ax_status ax_task_messages_text(const struct ax_task_messages *m,
                                     const struct ax_text_side *chat, bool single_turn,
                                     struct ax_buf *out) {
    return chat ? chat_text(m, chat, single_turn, out) : join(m, 0, m->n, true, out);
}
