/* The command lines, and the configurations side by side, with the origin of each value. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/report/html.h"
#include "cmd/report/report.h"

/* Categories in which the page shows keys, in this order. */
enum kind { DIFFERS, SET, DEFAULT, KIND_COUNT };

static const struct {
    const char *one, *several; /* title for one run; for several */
    bool open;
} kinds[KIND_COUNT] = {
    [DIFFERS] = {"", "Different between the runs", true},
    [SET] = {"Set", "Same in all runs", true},
    [DEFAULT] = {"Defaults", "Defaults", false},
};

/* The value at a key path: names of maps and indices of lists, separated by dots. */
static const json_t *value_at(const json_t *v, const char *path) {
    while (v && *path) {
        char part[256];
        if (json_is_object(v) && json_object_get(v, path)) /* the name contains dots */
            return json_object_get(v, path);
        const size_t n = strcspn(path, ".");
        if (n >= sizeof part)
            return NULL;
        memcpy(part, path, n);
        part[n] = '\0';
        v = json_is_array(v) ? json_array_get(v, (size_t)strtoul(part, NULL, 10))
                             : json_object_get(v, part);
        path += n + (path[n] == '.');
    }
    return v;
}

static const json_t *config_of(const struct ax_report_run *run) {
    return ax_report_about(run, "config");
}

static json_t *origins_of(const struct ax_report_run *run) {
    return json_object_get(run->about.root, "origins");
}

static const char *origin(const struct ax_report_run *run, const char *key) {
    return json_string_value(json_object_get(origins_of(run), key));
}

static enum kind kind_of(const struct ax_report *r, const char *key) {
    enum kind kind = DEFAULT;
    for (int i = 0; i < r->n; i++) {
        const char *from = origin(&r->runs[i], key);
        if (i > 0 &&
            !json_equal(value_at(config_of(&r->runs[0]), key),
                        value_at(config_of(&r->runs[i]), key)) &&
            (value_at(config_of(&r->runs[0]), key) || value_at(config_of(&r->runs[i]), key)))
            return DIFFERS;
        if (from && strcmp(from, "default") != 0)
            kind = SET;
    }
    return kind;
}

static enum ax_status put_value(struct ax_buf *out, const struct ax_report_run *run,
                                const char *key) {
    const json_t *v = value_at(config_of(run), key);
    if (!v)
        return ax_html_put(out, "<td class=\"dim\">%</td>", NULL);
    char *text =
        json_is_string(v) ? NULL : json_dumps(v, JSON_ENCODE_ANY | JSON_REAL_PRECISION(10));
    const enum ax_status st =
        ax_html_put(out, "<td><code>%</code> <small>%</small></td>",
                    json_is_string(v) ? json_string_value(v) : text, origin(run, key));
    ax_free(text);
    return st;
}

static enum ax_status put_row(struct ax_buf *out, const struct ax_report *r, const char *key) {
    AX_TRY(ax_html_put(out, "<tr><th scope=\"row\">%</th>", key));
    for (int i = 0; i < r->n; i++)
        AX_TRY(put_value(out, &r->runs[i], key));
    return ax_buf_puts(out, "</tr>\n");
}

/* The keys of one kind: those of all runs, each listed once. */
static enum ax_status put_rows(struct ax_buf *out, const struct ax_report *r, enum kind kind,
                               size_t *n) {
    for (int i = 0; i < r->n; i++) {
        const char *key;
        json_t *value;
        json_object_foreach(origins_of(&r->runs[i]), key, value) {
            bool seen = false;
            for (int k = 0; k < i; k++)
                seen = seen || origin(&r->runs[k], key);
            if (seen || kind_of(r, key) != kind)
                continue;
            AX_TRY(put_row(out, r, key));
            (*n)++;
        }
    }
    return AX_OK;
}

static enum ax_status put_kind(struct ax_buf *out, const struct ax_report *r, enum kind kind) {
    struct ax_buf rows = {0};
    size_t n = 0;
    char count[32];
    enum ax_status st;
    AX_TRY_GOTO(put_rows(&rows, r, kind, &n), st, done);
    if (n == 0)
        goto done;
    snprintf(count, sizeof count, "%zu", n);
    AX_TRY_GOTO(ax_buf_puts(out, kinds[kind].open ? "<details open>" : "<details>"), st, done);
    AX_TRY_GOTO(ax_html_put(out,
                            "<summary>% <small>%</small></summary><div class=\"scroll\"><table>\n",
                            r->n == 1 ? kinds[kind].one : kinds[kind].several, count),
                st, done);
    if (r->n > 1)
        AX_TRY_GOTO(ax_report_put_head(out, r, "key"), st, done);
    AX_TRY_GOTO(ax_buf_append(out, rows.data, rows.len), st, done);
    st = ax_buf_puts(out, "</table></div></details>\n");
done:
    ax_buf_free(&rows);
    return st;
}

/* Appends a word, quoted for a shell if needed. */
static enum ax_status put_word(struct ax_buf *line, const char *word) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "-_./=:,+@%";
    AX_TRY(ax_buf_puts(line, line->len > 0 ? " " : ""));
    if (*word && word[strspn(word, plain)] == '\0')
        return ax_buf_puts(line, word);
    AX_TRY(ax_buf_puts(line, "'"));
    for (; *word; word++)
        AX_TRY(*word == '\'' ? ax_buf_puts(line, "'\\''") : ax_buf_append(line, word, 1));
    return ax_buf_puts(line, "'");
}

static enum ax_status put_command(struct ax_buf *out, const struct ax_report_run *run) {
    const json_t *words = ax_report_about(run, "command");
    struct ax_buf line = {0};
    enum ax_status st = AX_OK;
    for (size_t i = 0; i < json_array_size(words) && st == AX_OK; i++) {
        const char *word = json_string_value(json_array_get(words, i));
        st = put_word(&line, word ? word : "");
    }
    if (st == AX_OK && line.len > 0)
        st = ax_html_put(out, "<p><span class=\"dim\">%</span> <code>%</code></p>\n", run->name,
                         line.data);
    ax_buf_free(&line);
    return st;
}

static enum ax_status put_notes(struct ax_buf *out, const struct ax_report *r) {
    for (int i = 0; i < r->n; i++) {
        const json_t *notes = ax_report_about(&r->runs[i], "notes");
        for (size_t k = 0; k < json_array_size(notes); k++) {
            const json_t *note = json_array_get(notes, k);
            AX_TRY(ax_html_put(out, "<p class=\"dim\">% % (%): %</p>\n", r->runs[i].name,
                               json_string_value(json_object_get(note, "key")),
                               json_string_value(json_object_get(note, "where")),
                               json_string_value(json_object_get(note, "text"))));
        }
    }
    return AX_OK;
}

enum ax_status ax_report_put_config(struct ax_buf *out, const struct ax_report *r) {
    bool any = false;
    for (int i = 0; i < r->n; i++)
        any = any || config_of(&r->runs[i]);
    if (!any)
        return AX_OK;
    AX_TRY(ax_buf_puts(out, "<section class=\"card\"><h2>Configuration</h2>\n"));
    for (int i = 0; i < r->n; i++)
        AX_TRY(put_command(out, &r->runs[i]));
    for (int kind = 0; kind < KIND_COUNT; kind++)
        AX_TRY(put_kind(out, r, (enum kind)kind));
    AX_TRY(put_notes(out, r));
    return ax_buf_puts(out, "</section>\n");
}
