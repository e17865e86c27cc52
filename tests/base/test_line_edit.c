/* The line editor on a pseudo terminal, whose screen a small emulator keeps. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "base/line/line_edit.h"
#include "base/line/term_input.h"
#include "tests/data/scratch.h"

#define COLUMNS 20
#define ROWS    6

static int terminal, slave, keep_in, keep_out;
static struct termios as_found;

/* ---- the screen ---- */

static struct {
    char rows[ROWS][COLUMNS + 1];
    int row, column;
    bool pasted_is_marked; /* while keys are read */
    atomic_int begun;      /* how often that began */
} screen;

static void screen_clear(int row, int column) {
    for (int r = row; r < ROWS; r++)
        for (int c = r == row ? column : 0; c < COLUMNS; c++)
            screen.rows[r][c] = ' ';
}

static void screen_feed(void) {
    if (++screen.row < ROWS)
        return;
    screen.row = ROWS - 1;
    memmove(screen.rows[0], screen.rows[1], sizeof screen.rows - sizeof screen.rows[0]);
    screen_clear(ROWS - 1, 0);
}

/* One byte as a terminal obeys it; a character of several bytes is shown as its first, '?'. */
static void screen_put(unsigned char c) {
    static char sequence[16];
    static size_t n;
    if (n > 0) {
        assert_true(n < sizeof sequence - 1);
        sequence[n++] = (char)c;
        if (n == 2 || c < '@' || c > '~')
            return;
        sequence[n] = '\0';
        n = 0;
        const int by = atoi(sequence + 2) > 0 ? atoi(sequence + 2) : 1;
        if (c == 'A')
            screen.row = screen.row > by ? screen.row - by : 0;
        else if (c == 'C')
            screen.column += by;
        else if (c == 'J')
            screen_clear(strcmp(sequence, "\x1b[2J") ? screen.row : 0,
                         strcmp(sequence, "\x1b[2J") ? screen.column : 0);
        else if (c == 'H')
            screen.row = screen.column = 0;
        else
            screen.begun += screen.pasted_is_marked = c == 'h';
    } else if (c == 0x1b) {
        sequence[n++] = (char)c;
    } else if (c == '\r') {
        screen.column = 0;
    } else if (c == '\n') {
        screen_feed();
    } else if (c >= ' ' && (c & 0xc0) != 0x80) {
        assert_in_range(screen.column, 0, COLUMNS - 2); /* the last column stays empty */
        screen.rows[screen.row][screen.column++] = c < 0x80 ? (char)c : '?';
    }
}

static pthread_t reader;

static void *read_screen(void *unused) {
    unsigned char c;
    (void)unused;
    while (read(terminal, &c, 1) == 1 && c != 0) /* 0: the test has finished with it */
        screen_put(c);
    return NULL;
}

static void expect_row(int row, const char *text) {
    char want[COLUMNS + 1];
    snprintf(want, sizeof want, "%-*s", COLUMNS, text);
    assert_string_equal(screen.rows[row], want);
}

/* ---- typing ---- */

static struct ax_line_edit edit;
static enum ax_line_end ended;

/* From begin to finish, the terminal is the standard input and output. */
static void begin(void) {
    fflush(stdout);
    dup2(slave, STDIN_FILENO);
    dup2(slave, STDOUT_FILENO);
    memset(&screen, 0, sizeof screen);
    screen_clear(0, 0);
    assert_int_equal(pthread_create(&reader, NULL, read_screen, NULL), 0);
}

static void finish(void) {
    fflush(stdout);
    assert_int_equal(write(STDOUT_FILENO, "", 1), 1);
    assert_int_equal(pthread_join(reader, NULL), 0);
    dup2(keep_in, STDIN_FILENO);
    dup2(keep_out, STDOUT_FILENO);
}

/* Types all keys in one write, once the editor reads keys or has read some. */
static void *type(void *keys) {
    while (screen.begun == 0)
        usleep(1000);
    assert_int_equal(write(terminal, keys, strlen(keys)), strlen(keys));
    return NULL;
}

/* … or one by one, so that each is drawn. */
static void *type_slowly(void *keys) {
    for (const char *k = keys; *k; k++) {
        usleep(20000);
        assert_int_equal(write(terminal, k, 1), 1);
    }
    return NULL;
}

/* … after another program has written a line. */
static void *type_below_a_line(void *keys) {
    while (screen.begun == 0)
        usleep(1000);
    usleep(20000);
    assert_int_equal(write(slave, "above\r\n", 7), 7);
    return type_slowly(keys);
}

/* The text that these keys make. */
static const char *keyed_by(void *(*typist)(void *keys), const char *keys) {
    char *copy = strdup(keys);
    pthread_t thread;
    begin();
    assert_int_equal(pthread_create(&thread, NULL, typist, copy), 0);
    assert_ok(ax_line_edit_read(&edit, &ended));
    assert_int_equal(pthread_join(thread, NULL), 0);
    finish();
    free(copy);
    return edit.text.data;
}

static const char *keyed(const char *keys) {
    return keyed_by(type, keys);
}

static int setup(void **state) {
    const struct winsize size = {.ws_row = ROWS, .ws_col = COLUMNS};
    if (scratch_make(state) != 0)
        return -1;
    terminal = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
    slave = open(ptsname(terminal), O_RDWR | O_NOCTTY);
    assert_true(slave >= 0 && ioctl(slave, TIOCSWINSZ, &size) == 0);
    assert_int_equal(tcgetattr(slave, &as_found), 0);
    keep_in = dup(STDIN_FILENO);
    keep_out = dup(STDOUT_FILENO);
    edit = (struct ax_line_edit){.prompt = "> "};
    begin(); /* an unset terminal would echo the first keys */
    assert_ok(ax_term_set_input(AX_TERM_QUIET));
    finish();
    return 0;
}

static int teardown(void **state) {
    begin();
    ax_line_edit_free(&edit);
    finish();
    struct termios now;
    assert_int_equal(tcgetattr(slave, &now), 0);
    assert_int_equal(now.c_lflag, as_found.c_lflag);
    assert_int_equal(now.c_iflag, as_found.c_iflag);
    close(keep_in);
    close(keep_out);
    close(slave);
    close(terminal);
    return scratch_remove(state);
}

#define LEFT  "\x1b[D"
#define RIGHT "\x1b[C"
#define UP    "\x1b[A"
#define DOWN  "\x1b[B"

static void keys_edit(void **state) {
    static const struct {
        const char *keys, *text;
    } cases[] = {
        {"hello\r", "hello"},
        {"hello\n", "hello"},
        {"hllo" LEFT LEFT LEFT "e\r", "hello"},
        {"ello\x01h\x05!\r", "hello!"},
        {"hellox\x7f\r", "hello"},
        {"xhello\x1b[H\x1b[3~\r", "hello"},
        {"xhello\x01\x04\r", "hello"},
        {"one two\x17three\r", "one three"},
        {"one, two  \x17three\r", "one, three"},
        {"a\x17x\r", "x"},
        {" \x17x\r", "x"},
        {" \x01\x1b"
         "d\r",
         ""},
        {"one two\x01\x0b\r", ""},
        {"one two\x15three \x19\r", "three "}, /* Ctrl-Y is no key */
        {"one two\x1b"
         "bbig \r",
         "one big two"},
        {"one two\x1b[1;5D\x1b[1;5D\x1b[1;5C!\r", "one! two"},
        {"one two\x01\x1b"
         "d1\r",
         "1 two"},
        {"\xc3\xa4\xe2\x82\xac\x7f!\r", "\xc3\xa4!"},
        {"e\xcc\x81x\x02\x7f\r", "x"},            /* e with a combining accent is one character */
        {"a\x1b[99;99Zb\x1bOZc\x1b[5~\r", "abc"}, /* unknown keys do nothing */
        {"a\x1b\rb\r", "a\nb"},
        {"ab\x1b\rcd" UP "!\r", "ab!\ncd"},
        {"abcd\x1b\rx" UP DOWN "!\r", "abcd\nx!"},
        {"ab\x1b\rcd" UP "\x05\x0b\r", "abcd"}, /* joins the next line */
        /* columns are those of the screen */
        {"\xc3\xa4\xc3\xa4\xc3\xa4\x1b\rabc" UP "!\r", "\xc3\xa4\xc3\xa4\xc3\xa4!\nabc"},
        {"\xe4\xb8\xad\xe4\xb8\xad\x02\x1b\rabcd" UP "\x01\x06" DOWN "!\r",
         "\xe4\xb8\xad\nab!cd\xe4\xb8\xad"},
        {"a\xe4\r", "a"}, /* Latin-1 */
        {"\x02\x06\x7f\x04\r", ""},
    };
    (void)state;
    for (size_t i = 0; i + 1 < sizeof cases / sizeof *cases; i++) {
        assert_string_equal(keyed(cases[i].keys), cases[i].text);
        assert_int_equal(ended, AX_LINE_TEXT);
    }
    keyed("\x02\x06\x7f\x04"); /* all of them on an empty text; then Ctrl-D ends */
    assert_int_equal(ended, AX_LINE_EOF);
    assert_string_equal(keyed("abc\x03"), "abc");
    assert_int_equal(ended, AX_LINE_INTERRUPT);
}

static void what_comes_together_stays_for_the_next_text(void **state) {
    (void)state;
    assert_string_equal(keyed("one\rtwo\rthr"), "one");
    assert_string_equal(keyed("ee\r"), "two");
    assert_string_equal(keyed(""), "three");
}

static void pasted_text_is_not_obeyed(void **state) {
    (void)state;
    assert_string_equal(keyed("a \x1b[200~x\r\ny\rz\n\ttab\x03\x04\x1b[A\x01\x1b[20\x1b[201~ b\r"),
                        "a x\ny\nz\n\ttab[A[20 b");
    assert_int_equal(ended, AX_LINE_TEXT);
    assert_string_equal(keyed("\x1b[200~\xff\xc2\x9b"
                              "A\xc3\xa4\x1b[201~\r"),
                        "A\xc3\xa4");
}

/* A text of n bytes, pasted. */
static char *pasted(size_t n) {
    char *keys = malloc(n + 32);
    assert_non_null(keys);
    size_t at = (size_t)snprintf(keys, 32, "\x1b[200~");
    memset(keys + at, 'x', n);
    snprintf(keys + at + n, 16, "\x1b[201~\r");
    return keys;
}

/* None of a text is inserted where all of it does not fit. */
static void a_long_text_is_pasted_or_rejected(void **state) {
    (void)state;
    char *fits = pasted(AX_LINE_MAX), *long_one = pasted(AX_LINE_MAX + 1);
    assert_int_equal(strlen(keyed(fits)), AX_LINE_MAX);
    assert_string_equal(keyed(long_one), "");
    free(fits);
    free(long_one);
}

static int more(const char *text, size_t len) {
    return len > 0 && text[len - 1] == '\\' ? 1 : -1;
}

static void enter_may_continue_a_text(void **state) {
    (void)state;
    edit.more = more;
    assert_string_equal(keyed("one\\\rtwo" LEFT "\\\r"), "one\ntw\\o");
    edit.more = NULL;
}

static void the_screen_shows_the_text(void **state) {
    (void)state;
    assert_string_equal(keyed("hello\r"), "hello");
    expect_row(0, "> hello");
    expect_row(1, "");
    assert_false(screen.pasted_is_marked);
    keyed("0123456789abcdefghij\r"); /* broken before the last column */
    expect_row(0, "> 0123456789abcdefg");
    expect_row(1, "hij");
    assert_int_equal(screen.row, 2);
    keyed("0123456789abcdefg\r"); /* exactly one row: the cursor is on the next */
    expect_row(0, "> 0123456789abcdefg");
    expect_row(1, "");
    assert_int_equal(screen.row, 2);
    keyed("ab\x1b\rc\x1b[200~\t\x1b[201~d\r");
    expect_row(0, "> ab");
    expect_row(1, "| c    d");
    keyed("\xc3\xa4\xe4\xb8\xad\xe6\x96\x87!\r"); /* wide characters count twice */
    assert_int_equal(screen.rows[0][2], '?');
    assert_int_equal(screen.rows[0][3], '?');
    assert_int_equal(screen.row, 1);
    keyed("1\x1b\r2\x1b\r3\x1b\r4\x1b\r5\x1b\r6\x1b\r7\x1b\r8\r"); /* more than the screen has */
    expect_row(ROWS - 2, "| 8");
    expect_row(ROWS - 3, "| 7");
    expect_row(0, "| 4");
}

static void the_cursor_is_where_the_next_character_goes(void **state) {
    (void)state;
    assert_string_equal(keyed_by(type_slowly, "0123456789abcdefghij\x02\x02\x02\x02X\x01Y\r"),
                        "Y0123456789abcdefXghij");
    expect_row(0, "> Y0123456789abcdef");
    expect_row(1, "Xghij");
    expect_row(2, "");
    keyed_by(type_slowly, "0123456789abcdefghij\x01\x03"); /* what follows comes after all of it */
    expect_row(0, "> 0123456789abcdefg");
    expect_row(1, "hij^C");
    assert_int_equal(screen.row, 2);
}

static void what_is_above_stays(void **state) {
    (void)state;
    keyed_by(type_below_a_line, "0123456789abcdefghij\r"); /* past a full row */
    assert_non_null(strstr(screen.rows[0], "above"));
    expect_row(1, "> 0123456789abcdefg");
    expect_row(2, "hij");
}

/* Ctrl-L begins at the top; after Ctrl-Z, which is ignored here, the text is shown again below. */
static void keys_draw_again(void **state) {
    (void)state;
    keyed_by(type_below_a_line, "ab\014c\r");
    expect_row(0, "> abc");
    expect_row(1, "");
    void (*before)(int) = signal(SIGTSTP, SIG_IGN);
    assert_string_equal(keyed_by(type_slowly, "0123456789abcdefghi\032j\r"),
                        "0123456789abcdefghij");
    expect_row(1, "hi");
    expect_row(2, "> 0123456789abcdefg");
    expect_row(3, "hij");
    assert_int_equal(screen.row, 4);
    signal(SIGTSTP, before);
}

static void nothing_is_echoed_between_texts(void **state) {
    (void)state;
    keyed("one\r");
    begin();
    assert_int_equal(write(terminal, "typed ahead\r", 12), 12);
    usleep(50000);
    finish();
    expect_row(0, "");
    assert_string_equal(keyed(""), "typed ahead");
}

static void history_is_kept(void **state) {
    struct stat info;
    char path[256];
    (void)state;
    snprintf(path, sizeof path, "%s", in_scratch("state/axtrain/history"));
    assert_ok(ax_line_history_open(&edit.history, path));
    assert_ok(ax_line_history_add(&edit.history, "first"));
    assert_ok(ax_line_history_add(&edit.history, "two\nlines \"here\""));
    assert_ok(ax_line_history_add(&edit.history, "two\nlines \"here\"")); /* not twice */
    assert_ok(ax_line_history_add(&edit.history, ""));
    assert_int_equal(edit.history.n, 2);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    ax_line_history_close(&edit.history);

    assert_ok(ax_line_history_open(&edit.history, path));
    assert_int_equal(edit.history.n, 2);
    assert_string_equal(keyed("\x10\r"), "two\nlines \"here\"");
    assert_string_equal(keyed(UP UP UP "!\r"), "first!"); /* the second goes to the first line */
    assert_string_equal(keyed("new" UP UP UP DOWN DOWN DOWN "er\r"), "newer");
    assert_string_equal(edit.history.texts[0], "first");
    ax_line_history_close(&edit.history);
}

static void history_is_bounded(void **state) {
    struct ax_line_history h;
    char text[128], path[256];
    char *long_text = calloc(1, AX_LINE_HISTORY_TEXT + 2);
    struct stat info;
    (void)state;
    snprintf(path, sizeof path, "%s", in_scratch("bounded"));
    put_text("bounded", "not json\n\"good\"\n{\"a\": 1}\n\"\"\n\"unfinished");
    assert_ok(ax_line_history_open(&h, path));
    assert_int_equal(h.n, 1);
    assert_string_equal(h.texts[0], "good");
    memset(long_text, 'x', AX_LINE_HISTORY_TEXT + 1);
    assert_ok(ax_line_history_add(&h, long_text));
    assert_int_equal(h.n, 1);
    long_text[AX_LINE_HISTORY_TEXT] = '\0';
    for (int i = 0; i < 17; i++) { /* each another text of 64 KiB */
        long_text[0] = (char)('a' + i);
        assert_ok(ax_line_history_add(&h, long_text));
    }
    for (size_t i = 0; i < AX_LINE_HISTORY_TEXTS; i++) {
        snprintf(text, sizeof text, "text %zu", i);
        assert_ok(ax_line_history_add(&h, text));
    }
    assert_int_equal(h.n, AX_LINE_HISTORY_TEXTS);
    assert_string_equal(h.texts[0], "text 0");
    ax_line_history_close(&h);
    assert_int_equal(stat(path, &info), 0);
    assert_true(info.st_size > (off_t)AX_LINE_HISTORY_FILE);
    assert_ok(ax_line_history_open(&h, path)); /* cut to the newest half */
    assert_int_equal(stat(path, &info), 0);
    assert_true(info.st_size > 0 && info.st_size <= (off_t)AX_LINE_HISTORY_FILE / 2);
    assert_int_equal(h.n, AX_LINE_HISTORY_TEXTS);
    snprintf(text, sizeof text, "text %zu", AX_LINE_HISTORY_TEXTS - 1);
    assert_string_equal(h.texts[h.n - 1], text);
    ax_line_history_close(&h);
    free(long_text);

    assert_ok(ax_line_history_open(&h, in_scratch("bounded/no-folder"))); /* cannot be one */
    assert_int_not_equal(ax_line_history_add(&h, "kept"), AX_OK);
    assert_int_equal(h.n, 1);
    assert_ok(ax_line_history_add(&h, "and more")); /* from now on in memory */
    assert_int_equal(h.n, 2);
    ax_line_history_close(&h);
}

static void a_cut_line_costs_no_other(void **state) {
    struct ax_line_history h;
    char path[256];
    (void)state;
    snprintf(path, sizeof path, "%s", in_scratch("cut"));
    put_text("cut", "\"good\"\n\"unfinis");
    assert_ok(ax_line_history_open(&h, path));
    assert_ok(ax_line_history_add(&h, "next"));
    assert_ok(ax_line_history_add(&h, "last"));
    ax_line_history_close(&h);
    assert_ok(ax_line_history_open(&h, path));
    assert_int_equal(h.n, 3);
    assert_string_equal(h.texts[0], "good");
    assert_string_equal(h.texts[1], "next");
    assert_string_equal(h.texts[2], "last");
    assert_ok(ax_line_history_add(&h, "end"));
    ax_line_history_close(&h);
    char *file;
    size_t len;
    assert_ok(ax_read_file(path, 1 << 20, &file, &len));
    assert_string_equal(file, "\"good\"\n\"unfinis\n\"next\"\n\"last\"\n\"end\"\n");
    ax_free(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_edit),
        cmocka_unit_test(what_comes_together_stays_for_the_next_text),
        cmocka_unit_test(pasted_text_is_not_obeyed),
        cmocka_unit_test(a_long_text_is_pasted_or_rejected),
        cmocka_unit_test(enter_may_continue_a_text),
        cmocka_unit_test(the_screen_shows_the_text),
        cmocka_unit_test(the_cursor_is_where_the_next_character_goes),
        cmocka_unit_test(what_is_above_stays),
        cmocka_unit_test(keys_draw_again),
        cmocka_unit_test(nothing_is_echoed_between_texts),
        cmocka_unit_test(history_is_kept),
        cmocka_unit_test(history_is_bounded),
        cmocka_unit_test(a_cut_line_costs_no_other),
    };
    setenv("TERM", "xterm", 1);
    return cmocka_run_group_tests(tests, setup, teardown);
}
