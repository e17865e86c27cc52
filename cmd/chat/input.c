#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "cmd/chat/chat.h"

#define MAX_LINE ((size_t)1 << 20)
#define QUOTE    "\"\"\""

/* ---- a terminal ---- */

static bool starts_quoted(const char *text, size_t len) {
    return len >= 3 && memcmp(text, QUOTE, 3) == 0;
}

static bool is_quoted(const char *text, size_t len) {
    return starts_quoted(text, len) && len >= 6 && memcmp(text + len - 3, QUOTE, 3) == 0;
}

/* Whether a text continues after Enter (see ax_line_more): if it ends in a backslash, or begins
 * with """ and does not end with """. */
static int continues(const char *text, size_t len) {
    if (starts_quoted(text, len))
        return is_quoted(text, len) ? -1 : 0;
    return len > 0 && text[len - 1] == '\\' ? 1 : -1;
}

/* The path in XDG_STATE_HOME or ~/.local/state; NULL if there is no home. */
static enum ax_status history_path(char **out) {
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    *out = NULL;
    if (state && *state == '/')
        return ax_path_join(out, state, "axtrain/chat_history");
    return home && *home ? ax_path_join(out, home, ".local/state/axtrain/chat_history") : AX_OK;
}

/* Only warns, because chatting does not need a history. */
static void warn_history(enum ax_status st) {
    if (st == AX_OK)
        return;
    ax_log_warn("what you type is not kept for later: %s", ax_error_text());
    ax_error_clear();
}

enum ax_status ax_chat_open_input(struct ax_chat *c) {
    char *path;
    c->edit.prompt = "> ";
    c->edit.more = continues;
    if (!c->edits)
        return AX_OK;
    AX_TRY(history_path(&path));
    warn_history(ax_line_history_open(&c->edit.history, path));
    ax_free(path);
    return AX_OK;
}

/* Copies the text without its quotes, or without empty lines at its end. */
static enum ax_status take(struct ax_chat *c) {
    const char *text = c->edit.text.data;
    size_t len = c->edit.text.len;
    c->is_text = is_quoted(text, len);
    if (c->is_text) {
        text += 3, len -= 6;
        if (len > 0 && *text == '\n')
            text++, len--;
    }
    while (len > 0 && text[len - 1] == '\n')
        len--;
    c->line.len = 0;
    return ax_buf_append(&c->line, text, len);
}

/* Ctrl-C twice with no input between ends the conversation, as Ctrl-D does. */
static enum ax_status read_terminal(struct ax_chat *c, bool *more) {
    for (;;) {
        enum ax_line_end end;
        AX_TRY(ax_line_edit_read(&c->edit, &end));
        const bool twice = end == AX_LINE_INTERRUPT && c->edit.text.len == 0 && c->was_stopped;
        *more = end != AX_LINE_EOF && !twice;
        if (!*more)
            return AX_OK;
        c->was_stopped = end == AX_LINE_INTERRUPT;
        if (end == AX_LINE_TEXT)
            break;
        puts("(Ctrl-C again or Ctrl-D quits)");
    }
    warn_history(ax_line_history_add(&c->edit.history, c->edit.text.data));
    return take(c);
}

/* ---- a pipe, or a terminal without a cursor ---- */

/* Reads a line; Ctrl-C discards what was typed. */
static enum ax_status read_line(struct ax_chat *c, bool *more) {
    char piece[4096];
    c->line.len = 0;
    *more = true;
    if (c->is_terminal)
        fputs("> ", stdout);
    fflush(stdout);
    for (;;) {
        errno = 0;
        memset(piece, '\n', sizeof piece); /* the last NUL is then the end, and others are text */
        if (!fgets(piece, sizeof piece, stdin)) {
            const bool again = ferror(stdin) && errno == EINTR;
            clearerr(stdin);
            if (!again) {
                *more = c->line.len > 0;
                return AX_OK;
            }
            c->line.len = 0;
            if (c->is_terminal)
                fputs("\n(Ctrl-D quits)\n> ", stdout);
            fflush(stdout);
            continue;
        }
        const size_t n = (size_t)((char *)memrchr(piece, '\0', sizeof piece) - piece);
        const bool whole = n > 0 && piece[n - 1] == '\n';
        AX_TRY(ax_buf_append(&c->line, piece, whole ? n - 1 : n));
        if (whole) {
            c->line.len -= c->line.len > 0 && c->line.data[c->line.len - 1] == '\r';
            return AX_OK;
        }
        if (c->line.len > MAX_LINE)
            return ax_error(AX_ERR_DATA, "a line is longer than %zu bytes", MAX_LINE);
    }
}

static enum ax_status read_user(struct ax_chat *c, bool *more) {
    return c->edits ? read_terminal(c, more) : read_line(c, more);
}

enum ax_status ax_chat_read(struct ax_chat *c, bool *more) {
    bool what[2] = {false};
    if (ax_ranks_lead(&c->ranks))
        AX_TRY(read_user(c, &what[0]));
    what[1] = c->is_text;
    AX_TRY(ax_team_share(&c->ranks.team, what, sizeof what));
    *more = what[0];
    c->is_text = what[1];
    return *more ? ax_ranks_share(&c->ranks, &c->line) : AX_OK;
}
