#include "base/line/line_history.h"

#include <jansson.h>
#include <string.h>

#include "base/io.h"
#include "base/io_path.h"

/* Adds `text`, and takes ownership of it. */
static enum ax_status keep(struct ax_line_history *h, char *text) {
    if (h->n == AX_LINE_HISTORY_TEXTS) {
        ax_free(h->texts[0]);
        memmove(h->texts, h->texts + 1, --h->n * sizeof *h->texts);
    } else if ((h->n & (h->n - 1)) == 0) {
        const enum ax_status st = ax_regrow(&h->texts, h->n, h->n ? 2 * h->n : 1, sizeof *h->texts);
        if (st != AX_OK) {
            ax_free(text);
            return st;
        }
    }
    h->texts[h->n++] = text;
    return AX_OK;
}

static enum ax_status keep_line(struct ax_line_history *h, const char *line, size_t len) {
    json_t *v = json_loadb(line, len, JSON_DECODE_ANY, NULL);
    const char *text = json_string_value(v);
    enum ax_status st = AX_OK;
    char *copy;
    if (text && *text && strlen(text) <= AX_LINE_HISTORY_TEXT &&
        (st = ax_strdup(&copy, text)) == AX_OK)
        st = keep(h, copy);
    json_decref(v);
    return st;
}

/* Reads the file or, if that is too long, its last part. */
static enum ax_status load(struct ax_line_history *h, struct ax_file *f) {
    uint64_t size;
    char *data = NULL;
    enum ax_status st;
    AX_TRY(ax_file_size(f, &size));
    const bool too_long = size > AX_LINE_HISTORY_FILE;
    const size_t n = too_long ? AX_LINE_HISTORY_FILE / 2 : (size_t)size;
    AX_TRY(ax_alloc(&data, n + 1, 1));
    AX_TRY_GOTO(ax_file_pread(f, data, n, size - n), st, done);
    const char *line = data, *end;
    if (too_long) /* the first line is probably incomplete */
        line = (end = memchr(data, '\n', n)) ? end + 1 : data + n;
    const char *from = line;
    for (; (end = memchr(line, '\n', (size_t)(data + n - line))); line = end + 1)
        AX_TRY_GOTO(keep_line(h, line, (size_t)(end - line)), st, done);
    if (too_long) {
        AX_TRY_GOTO(ax_file_truncate(f, 0), st, done);
        AX_TRY_GOTO(ax_file_write(f, from, (size_t)(line - from)), st, done);
    }
done:
    ax_free(data);
    return st;
}

static void forget_file(struct ax_line_history *h) {
    ax_free(h->path);
    h->path = NULL;
}

enum ax_status ax_line_history_open(struct ax_line_history *h, const char *path) {
    struct ax_file f;
    *h = (struct ax_line_history){0};
    if (!path)
        return AX_OK;
    AX_TRY(ax_strdup(&h->path, path));
    if (!ax_path_exists(path))
        return AX_OK;
    enum ax_status st = ax_file_open_append_private(&f, path);
    if (st == AX_OK)
        st = ax_file_end(&f, load(h, &f));
    if (st != AX_OK)
        ax_line_history_close(h);
    return st;
}

/* Ends a line that a crash or a full disk has cut, so that the next one is a line of its own. */
static enum ax_status end_line(struct ax_file *f) {
    uint64_t size;
    char last = '\n';
    AX_TRY(ax_file_size(f, &size));
    if (size > 0)
        AX_TRY(ax_file_pread(f, &last, 1, size - 1));
    return last == '\n' ? AX_OK : ax_file_write(f, "\n", 1);
}

static enum ax_status append(const char *path, const char *text) {
    json_t *v = json_string(text);
    char *dir = NULL, *line = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    struct ax_file f;
    struct ax_buf b = {0};
    enum ax_status st = AX_OK;
    json_decref(v);
    if (!line) /* not UTF-8: only kept in memory */
        return AX_OK;
    AX_TRY_GOTO(ax_buf_printf(&b, "%s\n", line), st, done); /* a single write keeps lines intact */
    AX_TRY_GOTO(ax_path_parent(&dir, path), st, done);
    AX_TRY_GOTO(ax_mkdir_parents_private(dir), st, done);
    AX_TRY_GOTO(ax_file_open_append_private(&f, path), st, done);
    st = end_line(&f);
    if (st == AX_OK)
        st = ax_file_write(&f, b.data, b.len);
    st = ax_file_end(&f, st);
done:
    ax_buf_free(&b);
    ax_free(dir);
    ax_free_hook(line);
    return st;
}

enum ax_status ax_line_history_add(struct ax_line_history *h, const char *text) {
    char *copy;
    if (!*text || strlen(text) > AX_LINE_HISTORY_TEXT ||
        (h->n > 0 && strcmp(h->texts[h->n - 1], text) == 0))
        return AX_OK;
    AX_TRY(ax_strdup(&copy, text));
    AX_TRY(keep(h, copy));
    if (!h->path)
        return AX_OK;
    const enum ax_status st = append(h->path, text);
    if (st != AX_OK)
        forget_file(h);
    return st;
}

void ax_line_history_close(struct ax_line_history *h) {
    for (size_t i = 0; i < h->n; i++)
        ax_free(h->texts[i]);
    ax_free(h->texts);
    forget_file(h);
    *h = (struct ax_line_history){0};
}
