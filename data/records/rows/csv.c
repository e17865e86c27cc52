/* CSV as in RFC 4180: quoted fields may contain separators, line ends and doubled quotes. */
#include <string.h>

#include "data/records/rows/reader.h"

#define MAX_COLUMNS 10000

enum place { FIELD_START, PLAIN, QUOTED, QUOTE_SEEN };

static enum place next_place(enum place at, char c, char separator) {
    if (at == QUOTED)
        return c == '"' ? QUOTE_SEEN : QUOTED;
    if (c == separator)
        return FIELD_START;
    if (c == '"' && (at == FIELD_START || at == QUOTE_SEEN))
        return QUOTED;
    return PLAIN;
}

/* Cuts one record, which ends at the first line end outside of quotes. */
static enum ax_status cut_record(struct ax_reader *r, char separator, struct ax_row_cut *cut,
                                 bool *got) {
    const uint64_t line = r->line;
    enum place at = FIELD_START;
    *got = false;
    for (bool found = false; !found;) {
        bool any;
        AX_TRY(ax_reader_more(r, &any));
        if (!any) {
            if (at == QUOTED)
                return ax_error(AX_ERR_DATA, "%s:%llu: a quote opened in this row is never closed",
                                r->path, (unsigned long long)line);
            break;
        }
        *got = true;
        size_t n = 0;
        for (; r->at + n < r->n && !found; n += !found) {
            const char c = r->piece[r->at + n];
            found = c == '\n' && at != QUOTED;
            r->line += c == '\n';
            at = next_place(at, c, separator);
        }
        AX_TRY(ax_reader_keep(r, n));
        r->at += found;
    }
    ax_reader_give(r, line, cut);
    if (cut->len > 0 && cut->text[cut->len - 1] == '\r')
        cut->len--;
    return AX_OK;
}

enum ax_status ax_cut_csv(struct ax_reader *r, char separator, struct ax_row_cut *cut, bool *got) {
    do
        AX_TRY(cut_record(r, separator, cut, got));
    while (*got && !cut->problem && cut->len == 0);
    if (*got && cut->line == 1 && cut->len >= 3 && memcmp(cut->text, "\xEF\xBB\xBF", 3) == 0) {
        cut->text += 3; /* byte order mark */
        cut->len -= 3;
    }
    return AX_OK;
}

/* Reads the next field of [*at, end) into `field` and moves *at past it. *more = true if a
 * separator follows. */
static enum ax_status take_field(const char **at, const char *end, char separator,
                                 struct ax_buf *field, bool *more) {
    enum place place = FIELD_START;
    const char *s = *at;
    field->len = 0;
    for (; s < end && (place == QUOTED || *s != separator); s++) {
        const bool doubled = *s == '"' && place == QUOTE_SEEN;
        const bool opens = *s == '"' && place == FIELD_START;
        place = next_place(place, *s, separator);
        if ((place == PLAIN || place == QUOTED || doubled) && !opens)
            AX_TRY(ax_buf_append(field, s, 1));
    }
    *more = s < end;
    *at = s + *more;
    return AX_OK;
}

/* True if a JSON key can have this text. */
static bool is_name(const struct ax_buf *field) {
    json_t *v = json_stringn(field->len ? field->data : "", field->len);
    const bool ok = v && memchr(json_string_value(v), '\0', field->len) == NULL;
    json_decref(v);
    return ok;
}

enum ax_status ax_csv_header_parse(struct ax_csv_header *h, char separator, const char *path,
                                   const struct ax_row_cut *cut) {
    const char *at = cut->text;
    struct ax_buf field = {0};
    enum ax_status st = AX_OK;
    for (bool more = true; more && st == AX_OK;) {
        AX_TRY_GOTO(take_field(&at, cut->text + cut->len, separator, &field, &more), st, done);
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

static enum ax_status put_field(json_t *row, const char *name, const struct ax_buf *field) {
    json_t *value = json_stringn(field->len ? field->data : "", field->len);
    if (!value)
        return ax_error(AX_ERR_DATA, "column \"%s\": not UTF-8 text", name);
    return json_object_set_new(row, name, value) == 0
               ? AX_OK
               : ax_error(AX_ERR_NOMEM, "out of memory for a record");
}

enum ax_status ax_parse_csv(const struct ax_csv_header *h, char separator, const char *text,
                            size_t len, json_t **out) {
    const char *at = text;
    size_t n = 0;
    struct ax_buf field = {0};
    enum ax_status st = AX_OK;
    json_t *row = json_object();
    if (!row)
        return ax_error(AX_ERR_NOMEM, "out of memory for a record of %zu bytes", len);
    for (bool more = true; more; n++) {
        AX_TRY_GOTO(take_field(&at, text + len, separator, &field, &more), st, done);
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
