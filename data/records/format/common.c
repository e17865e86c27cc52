/* Columns as text, text as tokens, and examples from a prompt and a response. */
#include <stdio.h>
#include <string.h>

#include "base/text/json.h"
#include "base/text/unicode.h"
#include "data/records/format/impl.h"
#include "data/records/format/recognize.h"
#include "data/text/jinja/unicode.h"

const char *ax_json_kind(const json_t *v) {
    static const char *const kinds[] = {
        [JSON_OBJECT] = "an object", [JSON_ARRAY] = "a list",  [JSON_STRING] = "text",
        [JSON_INTEGER] = "a number", [JSON_REAL] = "a number", [JSON_TRUE] = "true",
        [JSON_FALSE] = "false",      [JSON_NULL] = "null",
    };
    return v ? kinds[json_typeof(v)] : "nothing";
}

enum ax_status ax_record_bad_text(const json_t *record, const char *column, const json_t *v) {
    char columns[300];
    if (v)
        return ax_error(AX_ERR_DATA, "%s: expected text, got %s", column, ax_json_kind(v));
    return ax_error(AX_ERR_DATA, "column \"%s\" is missing or null; the record has %s", column,
                    ax_record_columns(record, columns, sizeof columns));
}

enum ax_status ax_record_text(const json_t *record, const char *column, struct ax_text *out) {
    const json_t *v = json_object_get(record, column);
    if (!json_is_string(v))
        return ax_record_bad_text(record, column, v);
    *out = (struct ax_text){json_string_value(v), json_string_length(v)};
    return AX_OK;
}

enum ax_status ax_record_text_or_empty(const json_t *record, const char *column,
                                       struct ax_text *out) {
    const json_t *v = json_object_get(record, column);
    *out = (struct ax_text){"", 0};
    return !v || json_is_null(v) ? AX_OK : ax_record_text(record, column, out);
}

bool ax_text_is_blank(const char *text, size_t len) {
    for (size_t i = 0, n; i < len; i += n)
        if (!ax_python_is_space(ax_utf8_decode((const unsigned char *)text + i, &n)))
            return false;
    return true;
}

enum ax_status ax_record_not_blank(const char *column, const char *what, struct ax_text t) {
    return ax_text_is_blank(t.s, t.n) ? ax_error(AX_ERR_EMPTY, "%s: the %s is empty", column, what)
                                      : AX_OK;
}

void ax_record_drop_nulls(json_t *v) {
    if (json_is_array(v)) {
        for (size_t i = 0; i < json_array_size(v); i++)
            ax_record_drop_nulls(json_array_get(v, i));
    } else if (json_is_object(v)) {
        const char *key;
        json_t *member;
        void *next;
        json_object_foreach_safe(v, next, key, member) {
            if (json_is_null(member))
                json_object_del(v, key);
            else
                ax_record_drop_nulls(member);
        }
    }
}

enum ax_status ax_record_parse_inner(json_t *object, const char *key) {
    const json_t *v = json_object_get(object, key);
    if (!json_is_string(v))
        return AX_OK;
    struct ax_json_doc doc;
    enum ax_status st = ax_json_parse(&doc, "text", json_string_value(v), json_string_length(v));
    if (st == AX_ERR_DATA)
        return ax_error(st, "%s: expected JSON text (%s)", key, ax_error_text());
    AX_TRY(st);
    if (json_object_set(object, key, doc.root) != 0)
        st = ax_error(AX_ERR_NOMEM, "out of memory for a message");
    ax_json_free(&doc);
    return st;
}

int ax_format_find_column(const struct ax_format *f, const char *name) {
    for (int c = 0; c < ax_columns_count(f->o.columns); c++)
        if (strcmp(f->o.columns->list[c].name, name) == 0)
            return c;
    return -1;
}

enum ax_status ax_text_fill(struct ax_buf *b, const char *key, const char *format,
                            const struct ax_fill_value *values, size_t n) {
    for (const char *s = format; *s;) {
        const bool brace = *s == '{' || *s == '}';
        const size_t plain = brace && s[1] == *s ? 1 : strcspn(s, "{}");
        if (plain > 0) {
            if (b)
                AX_TRY(ax_buf_append(b, s, plain));
            s += plain + brace;
            continue;
        }
        const size_t len = *s == '{' ? strcspn(s + 1, "{}") : 0;
        size_t v = 0;
        while (v < n && (strlen(values[v].name) != len || memcmp(values[v].name, s + 1, len) != 0))
            v++;
        if (v == n || s[len + 1] != '}')
            return ax_error(AX_ERR_CONFIG,
                            "type.%s: \"%s\": syntax error at \"%s\"; write {%s}%s%s%s, and {{ or "
                            "}} for a brace",
                            key, format, s, values[0].name, n > 1 ? " and {" : "",
                            n > 1 ? values[1].name : "", n > 1 ? "}" : "");
        if (b)
            AX_TRY(ax_text_put(b, values[v].text));
        s += len + 2;
    }
    return AX_OK;
}

bool ax_template_has(const struct ax_template *t, const char *text) {
    size_t n;
    const char *source = ax_template_source(t, &n);
    return memmem(source, n, text, strlen(text)) != NULL;
}

enum ax_status ax_format_encode(const struct ax_format *f, struct ax_text text, bool add_special,
                                struct ax_encoding *e) {
    const struct ax_encode_options o = {.add_special_tokens = add_special};
    e->n = 0;
    return text.n ? ax_tokenizer_encode(f->tok, text.s, text.n, &o, e) : AX_OK;
}

void ax_format_cut(const struct ax_format *f, struct ax_encoding *e, int64_t max) {
    const size_t n = (size_t)max;
    if (e->n <= n)
        return;
    const size_t after = f->n_after < n ? f->n_after : n;
    memmove(e->ids + n - after, e->ids + e->n - after, after * sizeof *e->ids);
    e->n = n;
}

enum ax_status ax_format_pair(const struct ax_format *f, struct ax_format_work *w,
                              struct ax_text prompt, struct ax_text response,
                              struct ax_origin origin, struct ax_example_list *out) {
    const int64_t max = f->o.sequence_len;
    AX_TRY(ax_format_encode(f, prompt, true, &w->full));
    ax_format_cut(f, &w->full, max);
    AX_TRY(ax_example_list_add(out, w->full.ids, NULL, w->full.n, f->o.train_on_inputs));
    AX_TRY(ax_format_encode(f, response, true, &w->part));
    ax_format_cut(f, &w->part, max);
    const size_t n = w->part.n;
    if (n == 0)
        return ax_example_list_end(out, origin); /* an empty response gets no EOS either */
    const size_t skip = f->bos != AX_NO_TOKEN && w->part.ids[0] == f->bos;
    const bool close = w->part.ids[n - 1] != f->eos && (int64_t)n < max;
    AX_TRY(ax_example_list_add(out, w->part.ids + skip, NULL, n - skip, true));
    if (close)
        AX_TRY(ax_example_list_add(out, &f->eos, NULL, 1, true));
    return ax_example_list_end(out, origin);
}

bool ax_format_is_end(const struct ax_format *f, int32_t id) {
    for (size_t i = 0; i < f->n_ends; i++)
        if (f->ends[i] == id)
            return true;
    return false;
}
