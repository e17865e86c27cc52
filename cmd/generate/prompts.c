#include "cmd/generate/prompts.h"

#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "data/records/format/chat_turns.h"
#include "data/records/format/tools.h"

#define MAX_INPUT ((size_t)1 << 30)

static enum ax_status no_memory(void) {
    return ax_error(AX_ERR_NOMEM, "out of memory for a prompt");
}

/* The model side that a record is encoded for. */
struct to {
    const struct ax_prompts_source *s;
    const struct ax_text_side *side;
    int adapter;
    unsigned *lost; /* gets the bits of what the template leaves out */
};

/* Makes a prompt of what was appended to p->ids since `first`. */
static enum ax_status end_prompt(struct ax_prompts *p, const struct to *to, size_t first) {
    const int64_t n = (int64_t)(p->ids.n - first);
    if (n == 0)
        return ax_error(AX_ERR_DATA, "the prompt is empty");
    AX_TRY(ax_regrow(&p->list, (size_t)p->n, (size_t)p->n + 1, sizeof *p->list));
    p->list[p->n++] =
        (struct ax_prompt){.first = (int64_t)first, .n = n, .row = p->rows, .adapter = to->adapter};
    p->longest = n > p->longest ? n : p->longest;
    return AX_OK;
}

/* What a conversation has for the template beside its messages; NULL: nothing. */
struct beside {
    json_t *tools, *variables;
};

/* Adds a conversation, preceded by the system message if it has none. */
static enum ax_status add_chat(struct ax_prompts *p, const struct to *to, const json_t *messages,
                               const struct beside *b) {
    const size_t first = p->ids.n;
    const char *system = to->s->system;
    json_t *all = json_copy((json_t *)(uintptr_t)messages);
    const json_t *role = json_object_get(json_array_get(all, 0), "role");
    const bool has_system = json_is_string(role) && strcmp(json_string_value(role), "system") == 0;
    if (!all)
        return no_memory();
    if (system && !has_system &&
        json_array_insert_new(all, 0, json_pack("{ss ss}", "role", "system", "content", system)) !=
            0) {
        json_decref(all);
        return ax_error(AX_ERR_DATA, "--system: expected UTF-8 text");
    }
    unsigned lost = 0;
    const struct ax_chat_prompt prompt = {
        .messages = all, .tools = b->tools, .variables = b->variables, .lost = &lost};
    enum ax_status st = ax_text_side_encode_chat(to->side, &prompt, &p->ids);
    if (lost != 0) {
        *to->lost |= lost;
        p->loser = to->side;
        p->losing = ax_text_side_template(to->side, b->tools);
    }
    if (st == AX_OK)
        st = end_prompt(p, to, first);
    if (st == AX_OK && to->s->keep) {
        p->list[p->n - 1].asked = json_incref(all);
        p->list[p->n - 1].messages = json_incref(all);
        p->list[p->n - 1].tools = json_incref(b->tools);
    }
    json_decref(all);
    return st;
}

static enum ax_status not_utf8(void) {
    return ax_error(AX_ERR_DATA, "the prompt is not UTF-8");
}

static enum ax_status keep_text(struct ax_prompts *p, const char *text, size_t len) {
    json_t *asked = json_stringn(text, len);
    p->list[p->n - 1].asked = asked;
    return asked ? AX_OK : not_utf8();
}

static enum ax_status add_text(struct ax_prompts *p, const struct to *to, const char *text,
                               size_t len, const struct beside *b) {
    if (!to->s->chat) {
        const size_t first = p->ids.n;
        AX_TRY(ax_text_side_encode(to->side, text, len, &p->ids));
        AX_TRY(end_prompt(p, to, first));
        return to->s->keep ? keep_text(p, text, len) : AX_OK;
    }
    json_t *messages = json_pack("[{ss ss%}]", "role", "user", "content", text, len);
    if (!messages)
        return not_utf8();
    const enum ax_status st = add_chat(p, to, messages, b);
    json_decref(messages);
    return st;
}

/* A text, or a record. */
struct input {
    const char *text;
    size_t len;
    struct ax_json row;
    long line; /* its number in the file */
};

static enum ax_status add_row(struct ax_prompts *p, const struct to *to, struct ax_json row) {
    const struct ax_json prompt = ax_json_get(row, "prompt");
    struct ax_json messages = ax_json_get(row, "messages");
    if (!json_is_array(messages.v) && json_is_array(prompt.v))
        messages = prompt;
    const bool chat = json_is_array(messages.v);
    json_t *record = (json_t *)(uintptr_t)row.v; /* texts of JSON in it are parsed in place */
    const char *text = NULL;
    struct beside b = {0};
    if (!chat && !prompt.v)
        return ax_json_error(row, "expected {\"prompt\": \"…\"} or {\"messages\": […]}");
    if (!chat)
        AX_TRY(ax_json_str(prompt, &text));
    if (to->s->tools)
        b.tools = json_incref(to->s->tools);
    else if (chat || to->s->chat)
        AX_TRY(ax_tools_read(record, "tools", &b.tools));
    enum ax_status st = ax_conversation_variables(record, &b.variables);
    if (st == AX_OK)
        st = chat ? add_chat(p, to, messages.v, &b) : add_text(p, to, text, strlen(text), &b);
    json_decref(b.tools);
    json_decref(b.variables);
    return st;
}

static enum ax_status find_adapter(const struct ax_text_model *t, const struct ax_prompts_source *s,
                                   struct ax_json name, int *out) {
    const char *text;
    *out = t->adapters.n > 0 ? 0 : AX_ADAPTER_NONE;
    if (!name.v)
        return AX_OK;
    if (s->each)
        return ax_json_error(name, "a record cannot name an adapter together with --each-adapter");
    AX_TRY(ax_json_str(name, &text));
    return ax_adapters_find(&t->adapters, text, out);
}

/* A text that is not UTF-8 is left out: JSON cannot have it. */
static enum ax_status keep_given(struct ax_prompt *p, const struct input *in) {
    static const char *const keys[] = {"id", "prompt", "messages"};
    json_t *given = json_object();
    if (!given)
        return no_memory();
    p->given = given;
    if (in->text)
        json_object_set_new(given, "prompt", json_stringn(in->text, in->len));
    for (size_t i = 0; !in->text && i < sizeof keys / sizeof *keys; i++) {
        json_t *v = json_object_get(in->row.v, keys[i]);
        if (v && json_object_set(given, keys[i], v) != 0)
            return no_memory();
    }
    return AX_OK;
}

/* Adds the input once, or for the base and each adapter. */
static enum ax_status add(struct ax_prompts *p, const struct ax_text_model *t,
                          const struct ax_prompts_source *s, const struct input *in) {
    unsigned lost = 0;
    int first, last;
    AX_TRY(find_adapter(t, s, ax_json_get(in->row, "adapter"), &first));
    last = first;
    if (s->each) {
        AX_TRY(ax_adapters_find(&t->adapters, AX_BASE_NAME, &first));
        last = t->adapters.n - 1;
    }
    for (int i = first; i <= last; i++) {
        const struct to to = {s, ax_text_model_side(t, i), i, &lost};
        AX_TRY(in->text ? add_text(p, &to, in->text, in->len, &(struct beside){.tools = s->tools})
                        : add_row(p, &to, in->row));
        AX_ASSERT(p->list); /* it was added */
        AX_TRY(keep_given(&p->list[p->n - 1], in));
    }
    p->rows++;
    ax_oddities_count(p->lost, lost, &(struct ax_origin){.line = (uint64_t)in->line});
    return AX_OK;
}

/* ---- JSONL ---- */

/* A line of the file, with its number. */
static enum ax_status add_line(struct ax_prompts *p, const struct ax_text_model *t,
                               const struct ax_prompts_source *s, const struct input *line) {
    struct ax_json_doc doc = {0};
    char name[4200];
    if (strspn(line->text, " \t\r") >= line->len)
        return AX_OK;
    snprintf(name, sizeof name, "%s:%ld", s->file, line->line);
    enum ax_status st = ax_json_parse(&doc, name, line->text, line->len);
    if (st == AX_OK)
        st = add(p, t, s, &(struct input){.row = ax_json_root(&doc), .line = line->line});
    ax_json_free(&doc);
    return st != AX_OK && !strstr(ax_error_text(), name) ? ax_error_prefix(st, "%s", name) : st;
}

static enum ax_status warn_of_lost(const struct ax_prompts *p, const char *file) {
    char *files[] = {(char *)(uintptr_t)file};
    struct ax_buf text = {0};
    enum ax_status st = AX_OK;
    if (p->losing)
        st = ax_tools_put_lost(&text, p->losing, p->lost, files, 1);
    if (st == AX_OK && text.len > 0)
        ax_log_warn("%s; one that writes them can be saved as %s/chat_template.jinja", text.data,
                    p->loser->folder);
    ax_buf_free(&text);
    return st;
}

static enum ax_status add_file(struct ax_prompts *p, const struct ax_text_model *t,
                               const struct ax_prompts_source *s) {
    struct input line = {.line = 0};
    char *data = NULL;
    size_t len = s->len;
    enum ax_status st = AX_OK;
    if (!s->text)
        AX_TRY(ax_read_file(s->file, MAX_INPUT, &data, &len));
    const char *text = s->text ? s->text : data;
    for (size_t at = 0; at < len && st == AX_OK; at += line.len + 1) {
        line = (struct input){
            .text = text + at, .len = strcspn(text + at, "\n"), .line = line.line + 1};
        st = add_line(p, t, s, &line);
    }
    ax_free(data);
    AX_TRY(st);
    AX_TRY(warn_of_lost(p, s->file));
    return p->n > 0 ? AX_OK : ax_error(AX_ERR_DATA, "%s: the file has no records", s->file);
}

enum ax_status ax_prompts_read_input(struct ax_buf *text) {
    char *data;
    size_t len;
    AX_TRY(ax_read_file("/dev/stdin", MAX_INPUT, &data, &len));
    if (len > 0 && data[len - 1] == '\n')
        len -= len > 1 && data[len - 2] == '\r' ? 2 : 1;
    const enum ax_status st = ax_buf_append(text, data, len);
    ax_free(data);
    return st;
}

enum ax_status ax_prompts_read(struct ax_prompts *p, const struct ax_text_model *t,
                               const struct ax_prompts_source *s) {
    *p = (struct ax_prompts){0};
    const enum ax_status st =
        s->file ? add_file(p, t, s) : add(p, t, s, &(struct input){.text = s->text, .len = s->len});
    if (st != AX_OK)
        ax_prompts_free(p);
    return st;
}

void ax_prompts_free(struct ax_prompts *p) {
    ax_encoding_free(&p->ids);
    for (int64_t i = 0; i < p->n; i++) {
        json_decref(p->list[i].given);
        json_decref(p->list[i].asked);
        json_decref(p->list[i].messages);
        json_decref(p->list[i].tools);
    }
    ax_free(p->list);
    *p = (struct ax_prompts){0};
}
