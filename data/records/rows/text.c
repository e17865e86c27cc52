/* Common parts of the readers, and records that are lines. */
#include <string.h>

#include "data/records/rows/rows.h"
#include "data/records/rows/reader.h"

enum ax_status ax_reader_open(struct ax_reader *r, const char *path) {
    *r = (struct ax_reader){.path = path, .line = 1};
    return ax_bytes_open(&r->bytes, path);
}

void ax_reader_close(struct ax_reader *r) {
    ax_bytes_close(r->bytes);
    ax_buf_free(&r->kept);
    *r = (struct ax_reader){0};
}

enum ax_status ax_reader_more(struct ax_reader *r, bool *any) {
    if (r->at == r->n) {
        r->at = 0;
        r->n = 0;
        const enum ax_status st = ax_bytes_next(r->bytes, &r->piece, &r->n);
        if (st == AX_ERR_DATA)
            return ax_error_prefix(st, "%s:%llu", r->path, (unsigned long long)r->line);
        AX_TRY(st);
    }
    *any = r->n > 0;
    return AX_OK;
}

enum ax_status ax_reader_keep(struct ax_reader *r, size_t n) {
    if (r->kept.len + n > AX_ROWS_MAX_BYTES)
        r->too_long = true;
    if (!r->too_long)
        AX_TRY(ax_buf_append(&r->kept, r->piece + r->at, n));
    r->at += n;
    return AX_OK;
}

void ax_reader_give(struct ax_reader *r, uint64_t line, struct ax_row_cut *cut) {
    *cut = (struct ax_row_cut){.text = r->kept.data, .len = r->kept.len, .line = line};
    if (r->too_long)
        *cut = (struct ax_row_cut){.line = line, .problem = "a record of more than 16 MiB"};
    r->kept.len = 0;
    r->too_long = false;
}

/* One line, with or without a line end, blank or not. */
static enum ax_status any_line(struct ax_reader *r, struct ax_row_cut *cut, bool *got) {
    const uint64_t line = r->line;
    for (bool found = false; !found;) {
        bool any = false;
        AX_TRY(ax_reader_more(r, &any));
        *got = any || r->kept.len > 0 || r->too_long;
        if (!any)
            break;
        const char *here = r->piece + r->at;
        const char *end = memchr(here, '\n', r->n - r->at);
        const size_t n = end ? (size_t)(end - here) : r->n - r->at;
        found = end != NULL;
        r->line += found;
        if (found && r->kept.len == 0 && !r->too_long && n <= AX_ROWS_MAX_BYTES) {
            *cut = (struct ax_row_cut){.text = here, .len = n, .line = line};
            r->at += n + 1;
            return AX_OK;
        }
        AX_TRY(ax_reader_keep(r, n));
        r->at += found;
    }
    ax_reader_give(r, line, cut);
    return AX_OK;
}

static bool is_blank(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (s[i] != ' ' && s[i] != '\t' && s[i] != '\r')
            return false;
    return true;
}

enum ax_status ax_cut_line(struct ax_reader *r, struct ax_row_cut *cut, bool *got) {
    do {
        AX_TRY(any_line(r, cut, got));
        if (cut->line == 1 && cut->len >= 3 && memcmp(cut->text, "\xEF\xBB\xBF", 3) == 0) {
            cut->text += 3; /* byte order mark */
            cut->len -= 3;
        }
        if (cut->len > 0 && cut->text[cut->len - 1] == '\r')
            cut->len--;
    } while (*got && !cut->problem && is_blank(cut->text, cut->len));
    return AX_OK;
}

enum ax_status ax_parse_line(const char *text, size_t len, json_t **out) {
    json_t *s = json_stringn(text, len);
    if (!s)
        return ax_error(AX_ERR_DATA, "not UTF-8 text");
    *out = json_pack("{s:o}", "text", s);
    return *out ? AX_OK : ax_error(AX_ERR_NOMEM, "out of memory for a record of %zu bytes", len);
}
