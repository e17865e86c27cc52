/* Results of loading: problems, in file order, and notes. */
#include "cmd/config/build.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fit.h"

#define MAX_PROBLEMS 64

const char *ax_config_place(const struct ax_config *cfg, int line, int column, char *buf,
                            size_t size) {
    if (line == 0)
        snprintf(buf, size, "command line");
    else
        ax_fit(buf, size, "%s:%d:%d", cfg->doc.name, line, column);
    return buf;
}

enum ax_status ax_config_problem(struct ax_config_build *b, int line, int column, const char *tail,
                                 const char *fmt, ...) {
    if (b->n_problems == MAX_PROBLEMS) {
        b->n_more++;
        return AX_OK;
    }
    if (b->problems == NULL)
        AX_TRY(ax_alloc(&b->problems, MAX_PROBLEMS, sizeof *b->problems));
    char text[512];
    char place[512];
    va_list ap;
    va_start(ap, fmt);
    ax_vfit(text, sizeof text, fmt, ap);
    va_end(ap);
    for (char *c = text; *c != '\0'; c++) /* text from a file must not control a terminal */
        *c = (unsigned char)*c < 0x20 || *c == 0x7f ? '?' : *c;
    struct ax_config_problem *p = &b->problems[b->n_problems];
    AX_TRY(ax_sprintf(&p->text, "%s (%s)%s", text,
                      ax_config_place(b->cfg, line, column, place, sizeof place), tail));
    p->line = line;
    p->column = column;
    b->n_problems++;
    return AX_OK;
}

static int by_place(const void *x, const void *y) {
    const struct ax_config_problem *a = x;
    const struct ax_config_problem *b = y;
    if (a->line != b->line)
        return a->line < b->line ? -1 : 1;
    return (a->column > b->column) - (a->column < b->column);
}

/* An error text has at most 2,047 bytes; problems that do not fit are only counted. */
enum ax_status ax_config_problems_error(struct ax_config_build *b) {
    if (b->n_problems == 0)
        return AX_OK;
    if (b->n_problems == 1)
        return ax_error(AX_ERR_CONFIG, "%s", b->problems[0].text);
    qsort(b->problems, b->n_problems, sizeof *b->problems, by_place);
    const size_t room = 1900;
    struct ax_buf lines = {0};
    size_t shown = 0;
    enum ax_status st = AX_OK;
    while (st == AX_OK && shown < b->n_problems &&
           lines.len + strlen(b->problems[shown].text) + 3 < room) {
        st = ax_buf_printf(&lines, "\n  %s", b->problems[shown++].text);
    }
    size_t total = b->n_problems + b->n_more;
    if (st == AX_OK && shown < total)
        st = ax_buf_printf(&lines, "\n  … and %zu more", total - shown);
    if (st == AX_OK)
        st = ax_error(AX_ERR_CONFIG, "%s: %zu problems%s", b->cfg->doc.name, total, lines.data);
    ax_buf_free(&lines);
    return st;
}

void ax_config_problems_free(struct ax_config_build *b) {
    for (size_t i = 0; i < b->n_problems; i++)
        ax_free(b->problems[i].text);
    ax_free(b->problems);
    *b = (struct ax_config_build){0};
}

enum ax_status ax_config_add_note(struct ax_config *cfg, enum ax_config_note_kind kind,
                                  bool text_side, const char *path, const char *text, int line,
                                  int column) {
    AX_TRY(ax_regrow(&cfg->notes, cfg->n_notes, cfg->n_notes + 1, sizeof *cfg->notes));
    struct ax_config_note *note = &cfg->notes[cfg->n_notes++]; /* from here on freed with cfg */
    char place[512];
    note->kind = kind;
    note->text_side = text_side;
    AX_TRY(ax_strdup(&note->path, path));
    AX_TRY(ax_strdup(&note->text, text));
    return ax_strdup(&note->where, ax_config_place(cfg, line, column, place, sizeof place));
}
