/* Records of JSON files: one per line, or the elements of one list. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/json.h"
#include "data/records/rows/reader.h"

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Skips white space, counting lines. *c = the next byte, or 0 at the end. */
static enum ax_status skip_space(struct ax_reader *r, char *c) {
    for (;;) {
        bool any;
        AX_TRY(ax_reader_more(r, &any));
        *c = any ? r->piece[r->at] : '\0';
        if (!any || !is_space(*c))
            return AX_OK;
        r->line += *c == '\n';
        r->at++;
    }
}

/* The state of scanning an element of a list. */
struct nesting {
    int depth;
    bool string, escape, scalar, done;
};

/* Processes one byte; sets done after the element's last one. False if the byte is not part of
 * the element. */
static bool step(struct nesting *s, char c) {
    if (s->string) {
        if (s->escape)
            s->escape = false;
        else if (c == '\\')
            s->escape = true;
        else if (c == '"')
            s->string = false;
        s->done = !s->string && s->depth == 0;
        return true;
    }
    if (s->scalar && (c == ',' || c == ']' || c == '}' || is_space(c))) {
        s->done = true;
        return false;
    }
    if (c == '"')
        s->string = true;
    else if (c == '{' || c == '[')
        s->depth++;
    else if (c == '}' || c == ']')
        s->done = --s->depth == 0;
    else
        s->scalar = s->depth == 0;
    return true;
}

static enum ax_status cut_element(struct ax_reader *r, struct ax_row_cut *cut) {
    const uint64_t line = r->line;
    struct nesting s = {0};
    while (!s.done) {
        bool any;
        AX_TRY(ax_reader_more(r, &any));
        if (!any)
            return ax_error(AX_ERR_DATA, "%s:%llu: the file ends inside this record", r->path,
                            (unsigned long long)line);
        size_t n = 0;
        while (!s.done && r->at + n < r->n) {
            const char c = r->piece[r->at + n];
            if (!step(&s, c))
                break;
            r->line += c == '\n';
            n++;
        }
        AX_TRY(ax_reader_keep(r, n));
    }
    ax_reader_give(r, line, cut);
    return AX_OK;
}

static enum ax_status bad_list(const struct ax_reader *r, const char *expected, char c) {
    if (c == '\0')
        return ax_error(AX_ERR_DATA, "%s:%llu: the file ends before the list's \"]\"", r->path,
                        (unsigned long long)r->line);
    return ax_error(AX_ERR_DATA, "%s:%llu: expected %s in the list of records, got \"%c\"", r->path,
                    (unsigned long long)r->line, expected, c);
}

static enum ax_status next_element(struct ax_reader *r, struct ax_row_cut *cut, bool *got) {
    char c;
    AX_TRY(skip_space(r, &c));
    bool comma = false;
    if (r->state == AX_READ_LIST_NEXT && c == ',') {
        comma = true;
        r->at++;
        AX_TRY(skip_space(r, &c));
    }
    if (c == ']' && !comma) {
        r->at++;
        r->state = AX_READ_DONE;
        AX_TRY(skip_space(r, &c));
        return c == '\0' ? AX_OK
                         : ax_error(AX_ERR_DATA, "%s:%llu: text after the list of records", r->path,
                                    (unsigned long long)r->line);
    }
    if (c == '\0' || c == ',' || c == ']' || c == '}')
        return bad_list(r, comma ? "a record" : "\",\" or \"]\"", c);
    if (r->state == AX_READ_LIST_NEXT && !comma)
        return bad_list(r, "\",\" or \"]\"", c);
    r->state = AX_READ_LIST_NEXT;
    *got = true;
    return cut_element(r, cut);
}

static enum ax_status start(struct ax_reader *r) {
    char c;
    AX_TRY(skip_space(r, &c));
    for (int i = 0; i < 3 && c == "\xEF\xBB\xBF"[i]; i++) { /* byte order mark */
        r->at++;
        AX_TRY(skip_space(r, &c));
    }
    r->state = c == '[' ? AX_READ_LIST : AX_READ_LINES;
    r->at += c == '[';
    return AX_OK;
}

enum ax_status ax_cut_json(struct ax_reader *r, struct ax_row_cut *cut, bool *got) {
    *got = false;
    if (r->state == AX_READ_START)
        AX_TRY(start(r));
    if (r->state == AX_READ_LINES)
        return ax_cut_line(r, cut, got);
    if (r->state == AX_READ_DONE)
        return AX_OK;
    return next_element(r, cut, got);
}

/* "row:LINE:COLUMN: why" → the position and why. */
static enum ax_status place_error(enum ax_status st, struct ax_row_place *place) {
    unsigned long long line;
    unsigned long long column;
    int n = 0;
    char why[256];
    const char *text = ax_error_text();
    if (st != AX_ERR_DATA || sscanf(text, "row:%llu:%llu: %n", &line, &column, &n) < 2 || n == 0)
        return st;
    snprintf(why, sizeof why, "%s", text + n);
    *place = (struct ax_row_place){.line = line - 1, .column = column};
    return ax_error(AX_ERR_DATA, "%s", why);
}

enum ax_status ax_parse_json(const char *text, size_t len, json_t **out,
                             struct ax_row_place *place) {
    struct ax_json_doc doc;
    enum ax_status st = ax_json_parse(&doc, "row", text, len);
    if (st != AX_OK)
        return place_error(st, place);
    *out = doc.root;
    doc.root = NULL;
    ax_json_free(&doc);
    if (json_is_object(*out))
        return AX_OK;
    json_decref(*out);
    *out = NULL;
    return ax_error(AX_ERR_DATA, "expected an object, {\"column\": value, …}");
}
