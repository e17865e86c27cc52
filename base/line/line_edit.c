/* In order: changes to the text and positions in it, drawing, bytes from the terminal, what keys do. */
#include "base/line/line_edit.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <utf8proc.h>

#include "base/io_sys.h"
#include "base/line/term_input.h"
#include "base/term.h"
#include "base/text/unicode.h"

#define TAB         4 /* columns */
#define CTRL(c)     ((c)&31)
#define ESCAPE      0x1b
#define ESCAPE_MS   50 /* a later byte does not belong to the same key */
#define NO_BYTE     (-1)
#define PASTE_END   "\x1b[201~"
#define N_PASTE_END (sizeof PASTE_END - 1)

/* ---- the text ---- */

/* Inserts at the cursor and moves it; rejects a text that would exceed AX_LINE_MAX, with a bell. */
static enum ax_status insert_text(struct ax_line_edit *e, const char *s, size_t n) {
    if (n > AX_LINE_MAX - e->text.len) {
        fputs("\a", stdout);
        return AX_OK;
    }
    AX_TRY(ax_buf_append(&e->text, s, n)); /* only makes space, at the end */
    char *at = e->text.data + e->cursor;
    memmove(at + n, at, e->text.len - n - e->cursor);
    memcpy(at, s, n);
    e->cursor += n;
    return AX_OK;
}

static enum ax_status set_text(struct ax_line_edit *e, const char *text) {
    e->text.len = e->cursor = 0;
    AX_TRY(ax_buf_append(&e->text, text, strlen(text)));
    e->cursor = e->text.len;
    return AX_OK;
}

/* Removes [from, to). */
static enum ax_status cut_text(struct ax_line_edit *e, size_t from, size_t to) {
    memmove(e->text.data + from, e->text.data + to, e->text.len - to);
    e->text.len -= to - from;
    e->text.data[e->text.len] = '\0';
    e->cursor = from;
    return AX_OK;
}

/* Start and end of the line that contains byte `at`; of the word before and after the cursor. */
static size_t line_start(const struct ax_line_edit *e, size_t at) {
    while (at > 0 && e->text.data[at - 1] != '\n')
        at--;
    return at;
}

static size_t line_end(const struct ax_line_edit *e, size_t at) {
    while (at < e->text.len && e->text.data[at] != '\n')
        at++;
    return at;
}

static int columns_of(uint32_t cp) {
    return cp == '\t' ? TAB : utf8proc_charwidth((utf8proc_int32_t)cp);
}

/* Start of the next or previous character (with its combining marks). */
static size_t next_character(const struct ax_line_edit *e, size_t at) {
    const unsigned char *s = (const unsigned char *)e->text.data;
    const bool newline = at < e->text.len && s[at] == '\n';
    for (size_t len; at < e->text.len;) {
        (void)ax_utf8_decode(s + at, &len);
        at += len;
        if (newline || at == e->text.len || s[at] == '\n' || s[at] == '\t' ||
            columns_of(ax_utf8_decode(s + at, &len)) > 0)
            break;
    }
    return at;
}

static size_t previous_character(const struct ax_line_edit *e, size_t at) {
    const unsigned char *s = (const unsigned char *)e->text.data;
    for (size_t len; at > 0;) {
        const uint32_t cp = ax_utf8_decode_before(s + at, &len);
        at -= len;
        if (cp == '\n' || columns_of(cp) > 0)
            break;
    }
    return at;
}

static bool in_word(const struct ax_line_edit *e, size_t at) {
    size_t len;
    return ax_unicode_is_word(ax_utf8_decode((const unsigned char *)e->text.data + at, &len));
}

static size_t word_start(const struct ax_line_edit *e) {
    size_t at = e->cursor;
    while (at > 0 && !in_word(e, previous_character(e, at)))
        at = previous_character(e, at);
    while (at > 0 && in_word(e, previous_character(e, at)))
        at = previous_character(e, at);
    return at;
}

static size_t word_end(const struct ax_line_edit *e) {
    size_t at = e->cursor;
    while (at < e->text.len && !in_word(e, at))
        at = next_character(e, at);
    while (at < e->text.len && in_word(e, at))
        at = next_character(e, at);
    return at;
}

/* ---- drawing ---- */

/* Lines wider than the screen are wrapped; if the text is higher than the screen, only the rows around
 * the cursor are drawn. */

struct place {
    int row, column;
};

/* True if a character does not fit into the rest of the row. The last column stays empty, since
 * terminals differ in where the cursor is after writing to it. */
static bool wraps(struct place p, int columns, int width) {
    return p.column + columns >= width;
}

static struct place place_below(struct place p, const struct ax_line_edit *e) {
    return (struct place){p.row + 1, (int)strlen(e->prompt)};
}

/* The place of the character at byte `at`. */
static struct place place_at(const struct ax_line_edit *e, size_t at, int width) {
    const unsigned char *s = (const unsigned char *)e->text.data;
    struct place p = {0, (int)strlen(e->prompt)};
    for (size_t i = 0, len; i < e->text.len; i += len) {
        const uint32_t cp = ax_utf8_decode(s + i, &len);
        const int columns = columns_of(cp);
        if (cp != '\n' && wraps(p, columns, width))
            p = (struct place){p.row + 1, 0};
        if (i >= at)
            return p;
        if (cp == '\n')
            p = place_below(p, e);
        else
            p.column += columns;
    }
    return wraps(p, 1, width) ? (struct place){p.row + 1, 0} : p;
}

/* Appends rows [first, first + height) to b; *last is the place after the last one drawn. */
static enum ax_status put_rows(const struct ax_line_edit *e, int width, int first, int height,
                               struct ax_buf *b, struct place *last) {
    const unsigned char *s = (const unsigned char *)e->text.data;
    const int indent = (int)strlen(e->prompt);
    struct place p = {0, indent};
    if (first == 0)
        AX_TRY(ax_buf_puts(b, e->prompt));
    for (size_t i = 0, len = 0; i <= e->text.len; i += len) {
        const bool end = i == e->text.len;
        const uint32_t cp = end ? ' ' : ax_utf8_decode(s + i, &len);
        const bool broken = cp != '\n' && wraps(p, columns_of(cp), width);
        struct place next = cp == '\n' ? place_below(p, e) : (struct place){p.row + broken, 0};
        if (next.row >= first + height)
            break;
        if (next.row > p.row && next.row > first)
            AX_TRY(ax_buf_puts(b, "\r\n"));
        if (next.row > p.row && next.row >= first && cp == '\n')
            AX_TRY(ax_buf_printf(b, "%*s", indent, indent > 1 ? "| " : ""));
        if (cp != '\n') {
            next.column = (broken ? 0 : p.column) + (end ? 0 : columns_of(cp));
            if (!end && next.row >= first && cp == '\t')
                AX_TRY(ax_buf_printf(b, "%*s", TAB, ""));
            else if (!end && next.row >= first)
                AX_TRY(ax_buf_append(b, s + i, len));
        }
        p = next;
        if (end)
            break;
    }
    *last = p;
    return AX_OK;
}

/* Draws the text over the previous drawing. */
static enum ax_status draw(struct ax_line_edit *e) {
    const int width = ax_term_width(STDOUT_FILENO) < 8 ? 8 : ax_term_width(STDOUT_FILENO);
    const int height = ax_term_height(STDOUT_FILENO) < 2 ? 2 : ax_term_height(STDOUT_FILENO);
    const struct place cursor = place_at(e, e->cursor, width);
    const int first = cursor.row < height ? 0 : cursor.row - height + 1;
    struct place last;
    struct ax_buf b = {0};
    enum ax_status st = ax_buf_puts(&b, "\r");
    if (st == AX_OK && e->row > 0)
        st = ax_buf_printf(&b, "\x1b[%dA", e->row);
    if (st == AX_OK)
        st = ax_buf_puts(&b, "\x1b[J");
    if (st == AX_OK)
        st = put_rows(e, width, first, height, &b, &last);
    if (st == AX_OK && last.row > cursor.row)
        st = ax_buf_printf(&b, "\x1b[%dA", last.row - cursor.row);
    if (st == AX_OK)
        st = ax_buf_puts(&b, "\r");
    if (st == AX_OK && cursor.column > 0)
        st = ax_buf_printf(&b, "\x1b[%dC", cursor.column);
    if (st == AX_OK && (fwrite(b.data, 1, b.len, stdout) != b.len || fflush(stdout) != 0))
        st = ax_error(AX_ERR_IO, "standard output: %m");
    e->row = cursor.row - first;
    ax_buf_free(&b);
    return st;
}

/* ---- bytes ---- */

static bool waiting(const struct ax_line_edit *e, int ms) {
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    return e->used < e->n_in || poll(&p, 1, ms) > 0;
}

/* The next byte; NO_BYTE if the terminal is gone. */
static int next_byte(struct ax_line_edit *e) {
    if (e->used == e->n_in) {
        const ssize_t n = ax_sys_read(STDIN_FILENO, e->in, sizeof e->in);
        if (n <= 0)
            return NO_BYTE;
        e->n_in = (size_t)n;
        e->used = 0;
    }
    return e->in[e->used++];
}

/* ---- actions of keys ---- */

static enum ax_status go_left(struct ax_line_edit *e) {
    e->cursor = previous_character(e, e->cursor);
    return AX_OK;
}

static enum ax_status go_right(struct ax_line_edit *e) {
    e->cursor = next_character(e, e->cursor);
    return AX_OK;
}

static enum ax_status go_start(struct ax_line_edit *e) {
    e->cursor = line_start(e, e->cursor);
    return AX_OK;
}

static enum ax_status go_end(struct ax_line_edit *e) {
    e->cursor = line_end(e, e->cursor);
    return AX_OK;
}

static enum ax_status go_word_left(struct ax_line_edit *e) {
    e->cursor = word_start(e);
    return AX_OK;
}

static enum ax_status go_word_right(struct ax_line_edit *e) {
    e->cursor = word_end(e);
    return AX_OK;
}

static enum ax_status rub_out(struct ax_line_edit *e) {
    return cut_text(e, previous_character(e, e->cursor), e->cursor);
}

static enum ax_status delete_right(struct ax_line_edit *e) {
    return cut_text(e, e->cursor, next_character(e, e->cursor));
}

static enum ax_status cut_word_left(struct ax_line_edit *e) {
    return cut_text(e, word_start(e), e->cursor);
}

static enum ax_status cut_word_right(struct ax_line_edit *e) {
    return cut_text(e, e->cursor, word_end(e));
}

static enum ax_status cut_to_start(struct ax_line_edit *e) {
    return cut_text(e, line_start(e, e->cursor), e->cursor);
}

/* Cuts the rest of the line; at its end, the line break. */
static enum ax_status cut_to_end(struct ax_line_edit *e) {
    const size_t end = line_end(e, e->cursor);
    return cut_text(e, e->cursor, end == e->cursor ? next_character(e, end) : end);
}

static enum ax_status break_line(struct ax_line_edit *e) {
    return insert_text(e, "\n", 1);
}

static enum ax_status clear_screen(struct ax_line_edit *e) {
    fputs("\x1b[H\x1b[2J", stdout);
    e->row = 0;
    return AX_OK;
}

static enum ax_status suspend(struct ax_line_edit *e) {
    fputs("\n", stdout);
    fflush(stdout);
    raise(SIGTSTP);
    e->row = 0;
    return AX_OK;
}

/* Shows an entry of the history; history.n is the new text as it was left. */
static enum ax_status show_entry(struct ax_line_edit *e, size_t entry) {
    if (e->entry == e->history.n) {
        e->draft.len = 0;
        AX_TRY(ax_buf_append(&e->draft, e->text.data, e->text.len));
    }
    e->entry = entry;
    return set_text(e, entry < e->history.n ? e->history.texts[entry] : e->draft.data);
}

/* Columns of the bytes [from, to) of a line. */
static int columns_between(const struct ax_line_edit *e, size_t from, size_t to) {
    const unsigned char *s = (const unsigned char *)e->text.data;
    int columns = 0;
    for (size_t i = from, len; i < to; i += len)
        columns += columns_of(ax_utf8_decode(s + i, &len));
    return columns;
}

/* Moves to a column of the line that starts at byte `start`, or to its end. */
static void go_to_column(struct ax_line_edit *e, size_t start, int column) {
    const size_t end = line_end(e, start);
    e->cursor = start;
    for (int at = 0; e->cursor < end && at < column;) {
        const size_t next = next_character(e, e->cursor);
        at += columns_between(e, e->cursor, next);
        e->cursor = next;
    }
}

/* Moves to the same column of the line above; from the first line, shows an older text. */
static enum ax_status go_up(struct ax_line_edit *e) {
    const size_t start = line_start(e, e->cursor);
    if (start == 0)
        return e->entry > 0 ? show_entry(e, e->entry - 1) : AX_OK;
    go_to_column(e, line_start(e, start - 1), columns_between(e, start, e->cursor));
    return AX_OK;
}

static enum ax_status go_down(struct ax_line_edit *e) {
    const size_t start = line_start(e, e->cursor), end = line_end(e, e->cursor);
    if (end == e->text.len)
        return e->entry < e->history.n ? show_entry(e, e->entry + 1) : AX_OK;
    go_to_column(e, end + 1, columns_between(e, start, e->cursor));
    return AX_OK;
}

/* Inserts without control characters, which a terminal would execute, and invalid bytes; line ends
 * become \n. */
static enum ax_status insert_clean(struct ax_line_edit *e, const unsigned char *s, size_t n) {
    struct ax_buf clean = {0};
    enum ax_status st = AX_OK;
    for (size_t i = 0, len; st == AX_OK && i < n; i += len) {
        if (ax_utf8_next(s + i, n - i, &len) != AX_UTF8_VALID)
            continue;
        const uint32_t cp = ax_utf8_decode(s + i, &len);
        if (cp == '\n' || cp == '\t' || (cp >= ' ' && cp < 0x7f) || cp > 0x9f)
            st = ax_buf_append(&clean, s + i, len);
        else if (cp == '\r' && (i + 1 == n || s[i + 1] != '\n'))
            st = ax_buf_append(&clean, "\n", 1);
    }
    if (st == AX_OK && clean.len > 0)
        st = insert_text(e, clean.data, clean.len);
    ax_buf_free(&clean);
    return st;
}

static enum ax_status paste(struct ax_line_edit *e) {
    struct ax_buf raw = {0};
    enum ax_status st = AX_OK;
    size_t matched = 0; /* bytes of PASTE_END at the end of `raw` */
    for (int c; st == AX_OK && matched < N_PASTE_END && (c = next_byte(e)) != NO_BYTE;) {
        const char byte = (char)c;
        matched = byte == PASTE_END[matched] ? matched + 1 : byte == PASTE_END[0];
        if (raw.len <= AX_LINE_MAX + N_PASTE_END) /* one more than fits shows that it is too long */
            st = ax_buf_append(&raw, &byte, 1);
    }
    if (st == AX_OK && raw.len > AX_LINE_MAX + N_PASTE_END)
        fputs("\a", stdout);
    else if (st == AX_OK && raw.data)
        st = insert_clean(e, (const unsigned char *)raw.data, raw.len - matched);
    ax_buf_free(&raw);
    return st;
}

/* ---- keys ---- */

enum outcome { EDITING, ENTERED, INTERRUPTED, ENDED };

static const struct {
    const char *bytes; /* after Escape; or one control character */
    enum ax_status (*run)(struct ax_line_edit *e);
} keys[] = {
    {"\x01", go_start},      /* Ctrl-A */
    {"\x02", go_left},       /* Ctrl-B */
    {"\x04", delete_right},  /* Ctrl-D, unless the text is empty */
    {"\x05", go_end},        /* Ctrl-E */
    {"\x06", go_right},      /* Ctrl-F */
    {"\x08", rub_out},       /* Ctrl-H */
    {"\x0b", cut_to_end},    /* Ctrl-K */
    {"\x0c", clear_screen},  /* Ctrl-L */
    {"\x0e", go_down},       /* Ctrl-N */
    {"\x10", go_up},         /* Ctrl-P */
    {"\x15", cut_to_start},  /* Ctrl-U */
    {"\x17", cut_word_left}, /* Ctrl-W */
    {"\x1a", suspend},       /* Ctrl-Z */
    {"\x7f", rub_out},       /* Backspace */
    {"[A", go_up},
    {"OA", go_up},
    {"[B", go_down},
    {"OB", go_down},
    {"[C", go_right},
    {"OC", go_right},
    {"[D", go_left},
    {"OD", go_left},
    {"[H", go_start},
    {"OH", go_start},
    {"[1~", go_start},
    {"[7~", go_start},
    {"[F", go_end},
    {"OF", go_end},
    {"[4~", go_end},
    {"[8~", go_end},
    {"[3~", delete_right},
    {"[200~", paste},
    {"[1;5C", go_word_right},
    {"[1;3C", go_word_right}, /* Ctrl- and Alt-Right */
    {"[1;5D", go_word_left},
    {"[1;3D", go_word_left},
    {"f", go_word_right},
    {"b", go_word_left}, /* Alt-F, Alt-B */
    {"d", cut_word_right},
    {"\x7f", cut_word_left},
    {"\r", break_line}, /* Alt-Enter */
};
#define CONTROLS 14 /* number of control characters, which come first */

static enum ax_status run_key(struct ax_line_edit *e, bool escaped, const char *bytes) {
    const size_t n = sizeof keys / sizeof *keys;
    for (size_t i = escaped ? CONTROLS : 0; i < (escaped ? n : CONTROLS); i++)
        if (strcmp(keys[i].bytes, bytes) == 0)
            return keys[i].run(e);
    return AX_OK;
}

/* Reads the rest of a key after Escape: a letter, or "[" or "O", parameters and a final
 * character. */
static enum ax_status escape(struct ax_line_edit *e) {
    char bytes[16];
    size_t n = 0;
    for (int c; n < sizeof bytes - 1 && waiting(e, ESCAPE_MS) && (c = next_byte(e)) != NO_BYTE;) {
        bytes[n++] = (char)c;
        if (n == 1 ? c != '[' && c != 'O' : c >= '@' && c <= '~')
            break;
    }
    bytes[n] = '\0';
    return n > 0 ? run_key(e, true, bytes) : AX_OK;
}

/* Reads the rest of the character whose first byte is c, and inserts it. A key that comes instead, as
 * in a terminal that is not in UTF-8, is left to be taken. */
static enum ax_status type(struct ax_line_edit *e, int c) {
    unsigned char s[4] = {(unsigned char)c};
    size_t n = 1, len;
    while (ax_utf8_next(s, n, &len) == AX_UTF8_CUT && (c = next_byte(e)) != NO_BYTE) {
        if ((c & 0xc0) != 0x80) {
            e->used--;
            break;
        }
        s[n++] = (unsigned char)c;
    }
    return insert_clean(e, s, n);
}

static enum ax_status enter(struct ax_line_edit *e, enum outcome *outcome) {
    const int drop = e->more ? e->more(e->text.data, e->text.len) : -1;
    *outcome = drop < 0 ? ENTERED : EDITING;
    e->cursor = e->text.len;
    if (drop < 0)
        return AX_OK;
    AX_TRY(cut_text(e, e->text.len - (size_t)drop, e->text.len));
    return break_line(e);
}

static enum ax_status take_key(struct ax_line_edit *e, enum outcome *outcome) {
    const int c = next_byte(e);
    if (c == NO_BYTE || (c == CTRL('D') && e->text.len == 0))
        *outcome = ENDED;
    else if (c == CTRL('C'))
        *outcome = INTERRUPTED;
    else if (c == '\r' || c == '\n')
        return enter(e, outcome);
    else if (c == ESCAPE)
        return escape(e);
    else if (c < ' ' || c == 0x7f)
        return run_key(e, false, (const char[]){(char)c, '\0'});
    else
        return type(e, c);
    return AX_OK;
}

static enum ax_status edit(struct ax_line_edit *e, enum outcome *outcome) {
    AX_TRY(set_text(e, ""));
    e->entry = e->history.n;
    e->row = 0;
    AX_TRY(draw(e));
    while (*outcome == EDITING) {
        AX_TRY(take_key(e, outcome));
        if (*outcome == EDITING && !waiting(e, 0)) /* draws once for bytes that arrive together */
            AX_TRY(draw(e));
    }
    e->cursor = e->text.len;
    AX_TRY(draw(e));
    fputs(*outcome == INTERRUPTED ? "^C\n" : "\n", stdout);
    fflush(stdout);
    return AX_OK;
}

enum ax_status ax_line_edit_read(struct ax_line_edit *e, enum ax_line_end *end) {
    static const enum ax_line_end ends[] = {
        [ENTERED] = AX_LINE_TEXT, [INTERRUPTED] = AX_LINE_INTERRUPT, [ENDED] = AX_LINE_EOF};
    enum outcome outcome = EDITING;
    AX_TRY(ax_term_set_input(AX_TERM_KEYS));
    const enum ax_status st = edit(e, &outcome);
    const enum ax_status quiet = ax_term_set_input(AX_TERM_QUIET);
    *end = ends[outcome];
    if (st != AX_OK || outcome == ENDED) /* a terminal that is gone has no settings */
        return st;
    return quiet;
}

void ax_line_edit_free(struct ax_line_edit *e) {
    if (ax_term_set_input(AX_TERM_AS_FOUND) != AX_OK)
        ax_error_clear();
    ax_buf_free(&e->text);
    ax_buf_free(&e->draft);
    ax_line_history_close(&e->history);
}
