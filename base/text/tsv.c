#include "base/text/tsv.h"

#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/mem.h"

#define MOST_BYTES ((size_t)16 << 20)

/* Ends the cell at `at` and returns where the next one of its line begins; NULL: it was the last. */
static char *end_cell(char *at) {
    at += strcspn(at, "\t\r\n");
    const bool more = *at == '\t';
    *at = '\0';
    return more ? at + 1 : NULL;
}

static int count(const char *text, char c) {
    int n = 0;
    for (; *text; text++)
        n += *text == c;
    return n;
}

static enum ax_status read_line(struct ax_tsv *t, char *line, int row) {
    char *at = line;
    int n = 0;
    while (at) {
        char *next = end_cell(at);
        if (n < t->n_columns)
            t->cells[row * t->n_columns + n] = at;
        n++;
        at = next;
    }
    if (n == t->n_columns)
        return AX_OK;
    return ax_error(AX_ERR_CONFIG, "%s:%d: expected %d columns, as in the first line, got %d",
                    t->path, row + 1, t->n_columns, n);
}

static enum ax_status parse(struct ax_tsv *t) {
    char *line = t->text;
    const size_t header = strcspn(line, "\n");
    if (*line == '\0')
        return ax_error(AX_ERR_CONFIG, "%s: the file is empty; its first line names the columns",
                        t->path);
    for (size_t i = 0; i < header; i++)
        t->n_columns += line[i] == '\t';
    t->n_columns++;
    const int lines = count(line, '\n') + 1;
    AX_TRY(ax_alloc(&t->cells, (size_t)lines * (size_t)t->n_columns, sizeof *t->cells));
    int row = 0;
    while (line && *line) {
        char *next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        AX_TRY(read_line(t, line, row++));
        line = next;
    }
    t->n_rows = row > 0 ? row - 1 : 0;
    return AX_OK;
}

enum ax_status ax_tsv_read(struct ax_tsv *t, const char *path) {
    size_t len;
    *t = (struct ax_tsv){0};
    AX_TRY(ax_strdup(&t->path, path));
    enum ax_status st = ax_read_file(path, MOST_BYTES, &t->text, &len);
    if (st == AX_OK && strlen(t->text) != len)
        st = ax_error(AX_ERR_CONFIG, "%s: expected text, got a zero byte", path);
    if (st == AX_OK)
        st = parse(t);
    if (st != AX_OK)
        ax_tsv_free(t);
    return st;
}

void ax_tsv_free(struct ax_tsv *t) {
    ax_free(t->cells);
    ax_free(t->text);
    ax_free(t->path);
    *t = (struct ax_tsv){0};
}

int ax_tsv_column(const struct ax_tsv *t, const char *name) {
    for (int c = 0; c < t->n_columns; c++)
        if (strcmp(t->cells[c], name) == 0)
            return c;
    return -1;
}

const char *ax_tsv_cell(const struct ax_tsv *t, int row, int column) {
    return column < 0 ? "" : t->cells[(row + 1) * t->n_columns + column];
}

int ax_tsv_line(int row) {
    return row + 2;
}

enum ax_status ax_tsv_number(const struct ax_tsv *t, int row, int column, double *out,
                             bool *inferred) {
    const char *text = ax_tsv_cell(t, row, column);
    char *end;
    *out = strtod(text, &end);
    const bool question = end != text && *end == '?';
    if (inferred)
        *inferred = question;
    if (end != text && *(end + question) == '\0' && *out >= 0)
        return AX_OK;
    return ax_error(AX_ERR_CONFIG, "%s:%d: expected a number in column %s, got \"%.40s\"", t->path,
                    ax_tsv_line(row), column < 0 ? "?" : t->cells[column], text);
}
