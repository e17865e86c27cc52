#include "data/text_side.h"

#include <string.h>

#include "base/io.h"
#include "base/mem.h"
#include "data/records/format/tools.h"

#define MAX_FILE ((size_t)1 << 30)

static enum ax_status open_all(struct ax_text_side *s, const char *model) {
    AX_TRY(ax_tokenizer_load(&s->tokenizer, s->folder));
    AX_TRY(ax_template_folder_tokens(&s->tokens, s->folder));
    if (ax_template_from_folder(&s->template, s->folder, NULL, false) != AX_OK)
        ax_error_clear(); /* reported when a conversation is rendered */
    if (ax_template_tool_use(&s->tool_use, s->folder) != AX_OK)
        ax_error_clear();
    AX_TRY(ax_stop_tokens_read(&s->stop, model, ax_tokenizer_special_id(s->tokenizer, AX_EOS)));
    return ax_stop_tokens_add_folder(&s->stop, s->folder); /* an adapter's own */
}

enum ax_status ax_text_side_open(struct ax_text_side *s, const char *folder, const char *model) {
    *s = (struct ax_text_side){0};
    AX_TRY(ax_strdup(&s->folder, folder));
    const enum ax_status st = open_all(s, model);
    if (st != AX_OK)
        ax_text_side_close(s);
    return st;
}

void ax_text_side_close(struct ax_text_side *s) {
    ax_template_free(s->template);
    ax_template_free(s->tool_use);
    json_decref(s->tokens);
    ax_tokenizer_free(s->tokenizer);
    ax_free(s->folder);
    *s = (struct ax_text_side){0};
}

bool ax_text_side_is_in(const char *folder) {
    return ax_tokenizer_is_in(folder);
}

/* *text: NULL where the folder has no such file. */
static enum ax_status read_file(const char *folder, const char *name, char **text, size_t *len) {
    char *path;
    AX_TRY(ax_path_join(&path, folder, name));
    const enum ax_status st =
        ax_path_exists(path) ? ax_read_file(path, MAX_FILE, text, len) : AX_OK;
    ax_free(path);
    return st;
}

enum ax_status ax_text_side_same(const char *a, const char *b, bool *same) {
    static const char *const files[] = {"tokenizer.json", "tokenizer.model",
                                        "tokenizer_config.json", "chat_template.jinja"};
    *same = true;
    for (size_t i = 0; *same && i < sizeof files / sizeof *files; i++) {
        char *text[2] = {NULL, NULL};
        size_t len[2] = {0, 0};
        enum ax_status st = read_file(a, files[i], &text[0], &len[0]);
        if (st == AX_OK)
            st = read_file(b, files[i], &text[1], &len[1]);
        *same = st == AX_OK && !text[0] == !text[1] && len[0] == len[1] &&
                (!text[0] || memcmp(text[0], text[1], len[0]) == 0);
        ax_free(text[0]);
        ax_free(text[1]);
        AX_TRY(st);
    }
    return AX_OK;
}

enum ax_status ax_text_side_encode(const struct ax_text_side *s, const char *text, size_t len,
                                   struct ax_encoding *out) {
    const struct ax_encode_options o = {.add_special_tokens = true};
    return ax_tokenizer_encode(s->tokenizer, text, len, &o, out);
}

const struct ax_template *ax_text_side_template(const struct ax_text_side *s, const json_t *tools) {
    return json_array_size(tools) > 0 && s->tool_use ? s->tool_use : s->template;
}

enum ax_status ax_text_side_need_template(const struct ax_text_side *s) {
    struct ax_template *again = NULL;
    if (s->template)
        return AX_OK;
    const enum ax_status why = ax_template_from_folder(&again, s->folder, NULL, false);
    ax_template_free(again);
    return why != AX_OK ? why : AX_ERR_DATA;
}

/* ---- contents of parts ---- */

static enum ax_status no_memory(void) {
    return ax_error(AX_ERR_NOMEM, "out of memory for a conversation");
}

/* The text of a part; NULL: it is of another type. */
static const json_t *text_of(const json_t *part) {
    const char *type = json_string_value(json_object_get(part, "type"));
    const json_t *text = json_object_get(part, "text");
    return type && strcmp(type, "text") == 0 && json_is_string(text) ? text : NULL;
}

/* Makes texts of parts the lines of one, as vLLM and llama.cpp do; a list with other parts stays. */
static enum ax_status join_parts(json_t *message) {
    const json_t *list = json_object_get(message, "content");
    struct ax_buf text = {0};
    enum ax_status st = AX_OK;
    bool all = json_is_array(list);
    for (size_t i = 0; all && i < json_array_size(list) && st == AX_OK; i++) {
        const json_t *piece = text_of(json_array_get(list, i));
        all = piece != NULL;
        if (all && text.len > 0)
            st = ax_buf_append(&text, "\n", 1);
        if (all && st == AX_OK)
            st = ax_buf_append(&text, json_string_value(piece), json_string_length(piece));
    }
    if (st == AX_OK && all &&
        json_object_set_new(message, "content",
                            json_stringn(text.data ? text.data : "", text.len)) != 0)
        st = no_memory();
    ax_buf_free(&text);
    return st;
}

/* The messages as the template reads them: a new reference. */
static enum ax_status messages_for(const struct ax_template *t, const json_t *messages,
                                   json_t **out) {
    if (ax_template_takes_parts(t)) {
        *out = json_incref((json_t *)(uintptr_t)messages);
        return AX_OK;
    }
    json_t *list = json_array();
    enum ax_status st = list ? AX_OK : no_memory();
    for (size_t i = 0; st == AX_OK && i < json_array_size(messages); i++) {
        json_t *message = json_copy(json_array_get(messages, i));
        const bool ok = message && json_array_append_new(list, message) == 0;
        st = ok ? join_parts(message) : no_memory();
    }
    if (st == AX_OK)
        *out = list;
    else
        json_decref(list);
    return st;
}

/* ---- rendering ---- */

static json_t *variables_of(const struct ax_chat_prompt *p, json_t *messages) {
    json_t *vars = p->variables ? json_copy((json_t *)(uintptr_t)p->variables) : json_object();
    json_t *own = json_pack("{sO sO* sb}", "messages", messages, "tools",
                            json_array_size(p->tools) > 0 ? p->tools : NULL,
                            "add_generation_prompt", !p->bare && !p->continues);
    const bool ok = vars && own && json_object_update(vars, own) == 0;
    json_decref(own);
    if (ok)
        return vars;
    json_decref(vars);
    return NULL;
}

/* Ends the rendered text with the content of the last message, as in transformers' apply_chat_template
 * (continue_final_message): without what the template strips of it. */
static enum ax_status cut_behind_content(const json_t *messages, struct ax_template_output *text) {
    static const char blanks[] = " \t\r\n\v\f";
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const json_t *all = json_object_get(last, "content");
    const json_t *end = json_array_get(all, json_array_size(all) - 1);
    const char *content = json_string_value(end ? text_of(end) : all), *at = NULL;
    content = content ? content + strspn(content, blanks) : "";
    size_t n = strlen(content), full = n;
    while (n > 0 && strchr(blanks, content[n - 1]))
        n--;
    for (const char *next = text->text;
         n > 0 &&
         (next = memmem(next, text->len - (size_t)(next - text->text), content, n)) != NULL;
         next++)
        at = next;
    if (!at)
        return ax_error(AX_ERR_DATA, "the chat template does not write the last message's content, "
                                     "or there is none, so it cannot be continued");
    if (strncmp(at, content, full) == 0)
        n = full;
    text->len = (size_t)(at - text->text) + n;
    return AX_OK;
}

enum ax_status ax_text_side_render_chat(const struct ax_text_side *s,
                                        const struct ax_chat_prompt *p,
                                        struct ax_template_output *text) {
    const struct ax_template *template = ax_text_side_template(s, p->tools);
    if (!template)
        AX_TRY(ax_text_side_need_template(s));
    const struct ax_template_options o = {.chat = true, .defaults = s->tokens};
    json_t *messages = NULL;
    AX_TRY(messages_for(template, p->messages, &messages));
    json_t *vars = variables_of(p, messages);
    enum ax_status st = vars ? AX_OK : no_memory();
    if (st == AX_OK)
        st = ax_template_render(template, vars, &o, text);
    if (st == AX_OK && p->lost)
        st = ax_tools_find_lost(template, vars, &o, text, p->lost);
    if (st == AX_OK && p->continues)
        st = cut_behind_content(messages, text);
    json_decref(vars);
    json_decref(messages);
    return st;
}

enum ax_status ax_text_side_encode_chat(const struct ax_text_side *s,
                                        const struct ax_chat_prompt *p, struct ax_encoding *out) {
    const struct ax_encode_options plain = {0};
    struct ax_template_output text = {0};
    enum ax_status st = ax_text_side_render_chat(s, p, &text);
    if (st == AX_OK)
        st = ax_tokenizer_encode(s->tokenizer, text.text, text.len, &plain, out);
    ax_template_output_free(&text);
    return st;
}
