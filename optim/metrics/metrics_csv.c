#include "optim/metrics/metrics_csv.h"

#include <math.h>
#include <string.h>

#define MAX_CSV ((size_t)1 << 30)

/* ---- the header ---- */

/* A name as a column: without what would need quotes. */
static void column_name(char *out, size_t size, const char *name) {
    (void)snprintf(out, size, "%s", name);
    for (char *c = out; *c; c++)
        if (*c == ',' || *c == '"' || (unsigned char)*c < ' ')
            *c = '_';
}

static bool has_column(const struct ax_buf *header, const char *name) {
    const size_t n = strlen(name);
    for (const char *at = header->data; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, n) == 0 && (at[n] == ',' || at[n] == '\0'))
            return true;
    }
    return false;
}

enum ax_status ax_metrics_csv_begin(struct ax_metrics_csv *m) {
    char *text;
    size_t n;
    if (m->file.end == 0) {
        AX_TRY(ax_buf_puts(&m->header, AX_METRICS_CSV_FIXED));
        ax_metrics_file_append(&m->file, AX_METRICS_CSV_FIXED "\n",
                               strlen(AX_METRICS_CSV_FIXED) + 1);
        return AX_OK;
    }
    AX_TRY(ax_read_file(m->file.f.path, MAX_CSV, &text, &n));
    const enum ax_status st = ax_buf_append(&m->header, text, strcspn(text, "\n"));
    ax_free(text);
    return st;
}

void ax_metrics_csv_close(struct ax_metrics_csv *m) {
    ax_metrics_file_close(&m->file);
    ax_buf_free(&m->header);
}

/* ---- columns that come later ---- */

/* Each line of the file with `more` at its end, the first with `names`. */
static enum ax_status widen_lines(struct ax_buf *out, const char *text, size_t n, const char *names,
                                  const char *more) {
    const char *add = names;
    for (size_t at = 0; at < n; add = more) {
        const char *newline = memchr(text + at, '\n', n - at);
        const size_t len = newline ? (size_t)(newline - text) - at : n - at;
        AX_TRY(ax_buf_append(out, text + at, len));
        AX_TRY(ax_buf_puts(out, add));
        AX_TRY(ax_buf_puts(out, "\n"));
        at += len + 1;
    }
    return AX_OK;
}

/* Adds columns to the whole file. If that fails (full disk), it stays as it was. */
static enum ax_status widen(struct ax_metrics_csv *m, const char *names, const char *more) {
    struct ax_buf wide = {0};
    char *text;
    size_t n;
    if (!m->file.f.path)
        return AX_OK;
    AX_TRY(ax_read_file(m->file.f.path, MAX_CSV, &text, &n));
    n = n < m->file.end ? n : (size_t)m->file.end;
    enum ax_status st = widen_lines(&wide, text, n, names, more);
    if (st == AX_OK && ax_metrics_file_replace(&m->file, wide.data, wide.len, text, n))
        st = ax_buf_puts(&m->header, names);
    ax_free(text);
    ax_buf_free(&wide);
    return st;
}

/* ---- a step ---- */

/* Names and values of what the method has beside the fixed columns. */
struct own {
    int n;
    char names[AX_MEASURES + AX_FIGURES_MAX][AX_FIGURES_NAME];
    double values[AX_MEASURES + AX_FIGURES_MAX];
};

static void add_own(struct own *o, const char *name, double value) {
    if (isnan(value))
        return;
    column_name(o->names[o->n], sizeof o->names[0], name);
    o->values[o->n++] = value;
}

static enum ax_status widen_for(struct ax_metrics_csv *m, const struct own *o) {
    struct ax_buf names = {0}, more = {0};
    enum ax_status st = AX_OK;
    for (int i = 0; i < o->n && st == AX_OK; i++)
        if (!has_column(&m->header, o->names[i])) {
            st = ax_buf_printf(&names, ",%s", o->names[i]);
            if (st == AX_OK)
                st = ax_buf_puts(&more, ",");
        }
    if (st == AX_OK && names.len > 0)
        st = widen(m, names.data, more.data);
    ax_buf_free(&names);
    ax_buf_free(&more);
    return st;
}

static enum ax_status put_number(struct ax_buf *out, double v) {
    return isfinite(v) ? ax_buf_printf(out, ",%.10g", v) : ax_buf_puts(out, ",");
}

/* The value of each column after the fixed ones. */
static enum ax_status put_own(struct ax_buf *out, const struct ax_buf *header,
                              const struct own *o) {
    const char *at = header->data + strlen(AX_METRICS_CSV_FIXED);
    while (*at == ',') {
        const size_t n = strcspn(++at, ",");
        double value = NAN;
        for (int i = 0; i < o->n; i++)
            if (strlen(o->names[i]) == n && strncmp(o->names[i], at, n) == 0)
                value = o->values[i];
        AX_TRY(put_number(out, value));
        at += n;
    }
    return ax_buf_puts(out, "\n");
}

static enum ax_status put_line(struct ax_buf *out, const struct ax_metrics_csv *m,
                               const struct ax_step_figures *f, struct ax_utilization u,
                               const struct own *o) {
    double values[AX_METRICS_FIGURES + 1] = {[AX_METRICS_FIGURES] = f->skipped};
    ax_metrics_figures(values, f, u);
    AX_TRY(ax_buf_printf(out, "%lld", (long long)f->step));
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        AX_TRY(put_number(out, values[i]));
    return put_own(out, &m->header, o);
}

enum ax_status ax_metrics_csv_add(struct ax_metrics_csv *m, const struct ax_step_figures *f,
                                  struct ax_utilization u, const char *const *measures) {
    struct own o;
    struct ax_buf line = {0};
    o.n = 0;
    for (int i = 0; measures && measures[i]; i++)
        add_own(&o, measures[i], f->measures[i]);
    for (int i = 0; f->figures && i < f->figures->n; i++)
        add_own(&o, f->figures->names[i], f->figures->values[i]);
    enum ax_status st = widen_for(m, &o);
    if (st == AX_OK)
        st = put_line(&line, m, f, u, &o);
    if (st == AX_OK)
        ax_metrics_file_append(&m->file, line.data, line.len);
    ax_buf_free(&line);
    return st;
}
