#include "cmd/generate/prompts.h"

#include <stdio.h>
#include <string.h>

#include "base/io.h"

#define MAX_INPUT ((size_t)1 << 30)

static enum ax_status no_memory(void) {
    return ax_error(AX_ERR_NOMEM, "out of memory for a prompt");
}

/* The model side that a record is encoded for. */
struct to {
    const struct ax_prompts_source *s;
    const struct ax_text_side *side;
    int adapter;
};

/* Makes a prompt of what was appended to p->ids since `first`. */
static enum ax_status end_prompt(struct ax_prompts *p, const struct to *to, size_t first) {
    const int64_t n = (int64_t)(p->ids.n - first);
    if (n == 0)
        return ax_error(AX_ERR_DATA, "the prompt is empty");
    AX_TRY(ax_regrow(&p->list, (size_t)p->n, (size_t)p->n + 1, sizeof *p->list));
    p->list[p->n++] = (struct ax_prompt){(int64_t)first, n, p->rows, to->adapter, NULL};
    p->longest = n > p->longest ? n : p->longest;
    return AX_OK;
}

/* Adds a conversation, preceded by the system message if it has none. */
static enum ax_status add_chat(struct ax_prompts *p, const struct to *to, const json_t *messages) {
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
    enum ax_status st = ax_text_side_encode_chat(to->side, all, &p->ids);
    if (st == AX_OK)
        st = end_prompt(p, to, first);
    if (st == AX_OK && to->s->keep)
        p->list[p->n - 1].asked = json_incref(all);
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
                               size_t len) {
    if (!to->s->chat) {
        const size_t first = p->ids.n;
        AX_TRY(ax_text_side_encode(to->side, text, len, &p->ids));
        AX_TRY(end_prompt(p, to, first));
        return to->s->keep ? keep_text(p, text, len) : AX_OK;
    }
    json_t *messages = json_pack("[{ss ss%}]", "role", "user", "content", text, len);
    if (!messages)
        return not_utf8();
    const enum ax_status st = add_chat(p, to, messages);
    json_decref(messages);
    return st;
}

/* A text, or a record. */
struct input {
    const char *text;
    size_t len;
    struct ax_json row;
};

static enum ax_status add_row(struct ax_prompts *p, const struct to *to, struct ax_json row) {
    const struct ax_json messages = ax_json_get(row, "messages");
    const struct ax_json prompt = ax_json_get(row, "prompt");
    const char *text;
    if (json_is_array(messages.v))
        return add_chat(p, to, messages.v);
    if (!prompt.v)
        return ax_json_error(row, "expected {\"prompt\": \"…\"} or {\"messages\": […]}");
    AX_TRY(ax_json_str(prompt, &text));
    return add_text(p, to, text, strlen(text));
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

/* Adds the input once, or for the base and each adapter. */
static enum ax_status add(struct ax_prompts *p, const struct ax_text_model *t,
                          const struct ax_prompts_source *s, const struct input *in) {
    int first, last;
    AX_TRY(find_adapter(t, s, ax_json_get(in->row, "adapter"), &first));
    last = first;
    if (s->each) {
        AX_TRY(ax_adapters_find(&t->adapters, AX_BASE_NAME, &first));
        last = t->adapters.n - 1;
    }
    for (int i = first; i <= last; i++) {
        const struct to to = {s, ax_text_model_side(t, i), i};
        AX_TRY(in->text ? add_text(p, &to, in->text, in->len) : add_row(p, &to, in->row));
    }
    p->rows++;
    return AX_OK;
}

/* ---- JSONL ---- */

static enum ax_status add_line(struct ax_prompts *p, const struct ax_text_model *t,
                               const struct ax_prompts_source *s, const char *name,
                               const char *line, size_t len) {
    struct ax_json_doc doc = {0};
    if (strspn(line, " \t\r") >= len)
        return AX_OK;
    enum ax_status st = ax_json_parse(&doc, name, line, len);
    if (st == AX_OK)
        st = add(p, t, s, &(struct input){.row = ax_json_root(&doc)});
    ax_json_free(&doc);
    return st;
}

static enum ax_status add_file(struct ax_prompts *p, const struct ax_text_model *t,
                               const struct ax_prompts_source *s) {
    char *data, name[4200];
    size_t len;
    enum ax_status st = AX_OK;
    AX_TRY(ax_read_file(s->file, MAX_INPUT, &data, &len));
    long line = 0;
    for (size_t at = 0; at < len && st == AX_OK;) {
        const size_t n = strcspn(data + at, "\n");
        snprintf(name, sizeof name, "%s:%ld", s->file, ++line);
        st = add_line(p, t, s, name, data + at, n);
        if (st != AX_OK && !strstr(ax_error_text(), name))
            st = ax_error_prefix(st, "%s", name);
        at += n + 1;
    }
    ax_free(data);
    AX_TRY(st);
    return p->n > 0 ? AX_OK : ax_error(AX_ERR_DATA, "%s: the file has no records", s->file);
}

enum ax_status ax_prompts_read_input(struct ax_buf *text) {
    char *data;
    size_t len;
    AX_TRY(ax_read_file("/dev/stdin", MAX_INPUT, &data, &len));
    const enum ax_status st =
        ax_buf_append(text, data, len > 0 && data[len - 1] == '\n' ? len - 1 : len);
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
    for (int64_t i = 0; i < p->n; i++)
        json_decref(p->list[i].asked);
    ax_free(p->list);
    *p = (struct ax_prompts){0};
}
