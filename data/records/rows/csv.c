/* CSV as in RFC 4180: the names in the header, and a record's fields. Without a delimiter, the header says
 * which of a few it is. */
#include <string.h>

#include "base/text/unicode.h"
#include "data/records/rows/reader.h"

#define MAX_COLUMNS 10000
#define CANDIDATES  ",\t;|"

static bool separates(char c, char sep) {
    return sep ? c == sep : c != '\0' && strchr(CANDIDATES, c) != NULL;
}

enum ax_csv_place ax_csv_next_place(enum ax_csv_place at, char c, char sep) {
    if (at == AX_CSV_QUOTED)
        return c == '"' ? AX_CSV_QUOTE_SEEN : AX_CSV_QUOTED;
    if (separates(c, sep))
        return AX_CSV_START;
    if (c == '"' && (at == AX_CSV_START || at == AX_CSV_QUOTE_SEEN))
        return AX_CSV_QUOTED;
    return AX_CSV_UNQUOTED;
}

/* Reads the next field of [*at, end) into `field` and moves *at past it. *more = true if a
 * sep follows. */
static enum ax_status take_field(const char **at, const char *end, char sep, struct ax_buf *field,
                                 bool *more) {
    enum ax_csv_place place = AX_CSV_START;
    const char *s = *at;
    field->len = 0;
    for (; s < end && (place == AX_CSV_QUOTED || *s != sep); s++) {
        const bool doubled = *s == '"' && place == AX_CSV_QUOTE_SEEN;
        const bool opens = *s == '"' && place == AX_CSV_START;
        place = ax_csv_next_place(place, *s, sep);
        if ((place == AX_CSV_UNQUOTED || place == AX_CSV_QUOTED || doubled) && !opens)
            AX_TRY(ax_buf_append(field, s, 1));
    }
    *more = s < end;
    *at = s + *more;
    return AX_OK;
}

/* True if a JSON key can have this text. */
static bool is_name(const struct ax_buf *field) {
    return field->len == 0 || (ax_utf8_check(field->data, field->len) == field->len &&
                               memchr(field->data, '\0', field->len) == NULL);
}

/* The first candidate, in the order of the kind, that occurs outside of quotes, and another that does. */
static void guess_delimiter(struct ax_csv_header *h, enum ax_rows_kind kind, const char *text,
                            size_t len) {
    const char *order = kind == AX_ROWS_TSV ? "\t,;|" : CANDIDATES;
    bool found[sizeof CANDIDATES] = {false};
    enum ax_csv_place at = AX_CSV_START;
    for (size_t i = 0; i < len; i++) {
        if (at != AX_CSV_QUOTED && separates(text[i], '\0'))
            found[strchr(order, text[i]) - order] = true;
        at = ax_csv_next_place(at, text[i], '\0');
    }
    for (size_t i = sizeof CANDIDATES - 1; i-- > 0;) {
        if (!found[i])
            continue;
        h->other = h->delimiter;
        h->delimiter = order[i];
    }
    if (!h->delimiter)
        h->delimiter = order[0];
}

/* Whether a header has a carriage return outside of quotes. */
static bool ends_in_returns(const char *text, size_t len) {
    enum ax_csv_place at = AX_CSV_START;
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '\r' && at != AX_CSV_QUOTED)
            return true;
        at = ax_csv_next_place(at, text[i], '\0');
    }
    return false;
}

enum ax_status ax_csv_header_parse(struct ax_csv_header *h, enum ax_rows_kind kind,
                                   const char *path, const struct ax_row_cut *cut) {
    if (!h->delimiter)
        guess_delimiter(h, kind, cut->text, cut->len);
    if (ends_in_returns(cut->text, cut->len))
        return ax_error(
            AX_ERR_DATA,
            "%s:%llu: the header has a carriage return without a line feed: if that is how "
            "lines end, convert the file, for example with `tr '\\r' '\\n'`; else put the "
            "name in quotes",
            path, (unsigned long long)cut->line);
    const char *at = cut->text;
    struct ax_buf field = {0};
    enum ax_status st = AX_OK;
    for (bool more = true; more && st == AX_OK;) {
        AX_TRY_GOTO(take_field(&at, cut->text + cut->len, h->delimiter, &field, &more), st, done);
        for (size_t i = 0; i < h->n && st == AX_OK; i++)
            if (strcmp(h->names[i], field.len ? field.data : "") == 0)
                st = ax_error(AX_ERR_DATA, "%s:%llu: two columns are named \"%s\"", path,
                              (unsigned long long)cut->line, h->names[i]);
        if (st == AX_OK && h->n == MAX_COLUMNS)
            st = ax_error(AX_ERR_DATA, "%s:%llu: more than %d columns", path,
                          (unsigned long long)cut->line, MAX_COLUMNS);
        if (st == AX_OK && !is_name(&field))
            st = ax_error(AX_ERR_DATA, "%s:%llu: the header is not UTF-8 text: is this a CSV file?",
                          path, (unsigned long long)cut->line);
        if (st == AX_OK)
            st = ax_regrow(&h->names, h->n, h->n + 1, sizeof *h->names);
        if (st == AX_OK)
            st = ax_strndup(&h->names[h->n++], field.len ? field.data : "", field.len);
    }
done:
    ax_buf_free(&field);
    if (st != AX_OK)
        ax_csv_header_free(h);
    return st;
}

void ax_csv_header_free(struct ax_csv_header *h) {
    for (size_t i = 0; i < h->n; i++)
        ax_free(h->names[i]);
    ax_free(h->names);
    *h = (struct ax_csv_header){0};
}

enum ax_status ax_row_text(json_t **out, const char *text, size_t len) {
    if (ax_utf8_check(text, len) != len)
        return ax_error(AX_ERR_DATA, "not UTF-8 text");
    *out = json_stringn(text, len);
    return *out ? AX_OK : ax_error(AX_ERR_NOMEM, "out of memory for a text of %zu bytes", len);
}

static enum ax_status put_field(json_t *row, const char *name, const struct ax_buf *field) {
    json_t *value;
    const enum ax_status st = ax_row_text(&value, field->len ? field->data : "", field->len);
    if (st != AX_OK)
        return ax_error_prefix(st, "column \"%s\"", name);
    return json_object_set_new(row, name, value) == 0
               ? AX_OK
               : ax_error(AX_ERR_NOMEM, "out of memory for a record");
}

enum ax_status ax_csv_parse(const struct ax_csv_header *h, const char *text, size_t len,
                            json_t **out) {
    const char *at = text;
    size_t n = 0;
    struct ax_buf field = {0};
    enum ax_status st = AX_OK;
    json_t *row = json_object();
    if (!row)
        return ax_error(AX_ERR_NOMEM, "out of memory for a record of %zu bytes", len);
    for (bool more = true; more; n++) {
        AX_TRY_GOTO(take_field(&at, text + len, h->delimiter, &field, &more), st, done);
        if (n < h->n)
            AX_TRY_GOTO(put_field(row, h->names[n], &field), st, done);
    }
    if (n != h->n)
        st = ax_error(AX_ERR_DATA, "%zu fields, but the header names %zu columns", n, h->n);
done:
    ax_buf_free(&field);
    if (st == AX_OK)
        *out = row;
    else
        json_decref(row);
    return st;
}
