/* The values of doc_to_text, doc_to_target, doc_to_choice, description and gen_prefix. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "optim/evaluate/tasks/task.h"
#include "data/text/jinja/literal.h"

bool ax_task_field_given(const struct ax_task_field *f) {
    return f->text || f->constant;
}

void ax_task_field_free(struct ax_task_field *f) {
    ax_template_free(f->template);
    json_decref(f->constant);
    *f = (struct ax_task_field){0};
}

/* ---- reading ---- */

static enum ax_status compile(struct ax_task_field *f, struct ax_task_key k) {
    char name[640];
    snprintf(name, sizeof name, "%.500s:%d: %.100s", k.doc->name, k.node->line, k.name);
    return ax_template_compile_task(&f->template, name, f->text, strlen(f->text));
}

static enum ax_status read_list(struct ax_task_field *f, struct ax_task_key k) {
    f->constant = json_array();
    for (size_t i = 0; i < k.node->n; i++) {
        const struct ax_task_key item = ax_task_key_at(k, i);
        const char *text = NULL;
        AX_TRY(ax_task_key_text(item, &text));
        if (json_array_append_new(f->constant, json_string(text)) != 0)
            return ax_error(AX_ERR_NOMEM, "out of memory for %s", k.name);
    }
    return AX_OK;
}

enum ax_status ax_task_field_read(struct ax_task_field *f, struct ax_task_key k) {
    *f = (struct ax_task_field){0};
    if (!k.node)
        return AX_OK;
    switch (k.node->kind) {
    case AX_YAML_STRING:
        f->text = k.node->text;
        return compile(f, k);
    case AX_YAML_INT:
        f->constant = json_integer(k.node->integer);
        return AX_OK;
    case AX_YAML_LIST:
    case AX_YAML_MAP: /* the map's values, in order */
        return read_list(f, k);
    default:
        return ax_task_key_error(k, AX_ERR_CONFIG,
                                 "expected a template, a column, an integer or a list, got \"%s\"; "
                                 "put text in quotes",
                                 k.node->text ? k.node->text : "");
    }
}

/* ---- values ---- */

enum ax_status ax_task_field_value(const struct ax_task_field *f, const json_t *doc, json_t **out) {
    struct ax_template_output text = {0};
    *out = NULL;
    json_t *column = f->text ? json_object_get(doc, f->text) : f->constant;
    if (column || !f->text) {
        *out = json_incref(column);
        return AX_OK;
    }
    AX_TRY(ax_template_render(f->template, doc, NULL, &text));
    *out = json_stringn(text.text, text.len);
    ax_template_output_free(&text);
    return *out ? AX_OK : ax_error(AX_ERR_NOMEM, "out of memory for a text");
}

static bool is_template(const struct ax_task_field *f, const json_t *doc) {
    return f->text && !json_object_get(doc, f->text);
}

/* The integer that a text of digits denotes, else NULL. */
static json_t *integer_of(const json_t *text) {
    const char *s = json_string_value(text);
    const size_t n = json_string_length(text);
    json_t *v = NULL;
    if (n > 0 && n < 18 && strspn(s, "0123456789") == n && ax_jinja_literal(s, n, &v) != AX_OK)
        ax_error_clear();
    return v;
}

static void replace(json_t **v, json_t *with) {
    if (with) {
        json_decref(*v);
        *v = with;
    }
}

enum ax_status ax_task_text_value(const struct ax_task *t, const struct ax_task_field *f,
                                  const json_t *doc, json_t **out) {
    AX_TRY(ax_task_field_value(f, doc, out));
    if (is_template(f, doc) && ax_task_field_given(&t->choice))
        replace(out, integer_of(*out));
    if (json_is_string(*out) || json_is_integer(*out))
        return AX_OK;
    json_decref(*out);
    *out = NULL;
    return ax_error(AX_ERR_DATA, "doc_to_text: expected text in column %s",
                    f->text ? f->text : "(none)");
}

enum ax_status ax_task_target_value(const struct ax_task *t, const struct ax_task_field *f,
                                    const json_t *doc, json_t **out) {
    AX_TRY(ax_task_field_value(f, doc, out));
    if (!is_template(f, doc))
        return AX_OK;
    const char *s = json_string_value(*out);
    const size_t n = json_string_length(*out);
    json_t *list = NULL;
    if (ax_task_field_given(&t->choice))
        replace(out, integer_of(*out));
    if (json_is_string(*out) && n >= 2 && s[0] == '[' && s[n - 1] == ']')
        AX_TRY(ax_jinja_literal(s, n, &list));
    replace(out, list);
    return AX_OK;
}

static bool is_texts(const json_t *v) {
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!json_is_string(json_array_get(v, i)))
            return false;
    return json_array_size(v) > 0;
}

enum ax_status ax_task_choices_value(const struct ax_task *t, const struct ax_task_field *f,
                                     const json_t *doc, json_t **out) {
    (void)t;
    json_t *list = NULL;
    AX_TRY(ax_task_field_value(f, doc, out));
    if (is_template(f, doc)) {
        const enum ax_status st =
            ax_jinja_literal(json_string_value(*out), json_string_length(*out), &list);
        if (st != AX_OK) {
            json_decref(*out);
            *out = NULL;
            return st;
        }
        replace(out, list);
    }
    if (is_texts(*out))
        return AX_OK;
    char shown[80] = "";
    snprintf(shown, sizeof shown, "%s", json_is_string(*out) ? json_string_value(*out) : "no text");
    json_decref(*out);
    *out = NULL;
    return ax_error(AX_ERR_DATA, "doc_to_choice: expected a list of texts, got %s", shown);
}
