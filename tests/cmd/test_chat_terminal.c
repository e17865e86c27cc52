/* `axtrain chat` on a pseudo terminal: editing, several lines, history, Ctrl-C and Ctrl-D. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>

#include "tests/cmd/chat_case.h"
#include "tests/cmd/program_case.h"

#define PROMPT "\x1b[J> \r\x1b[2C" /* drawn: the next text can be typed */

static void open_chat(struct chat *c, char **argv) {
    const struct winsize size = {.ws_row = 24, .ws_col = 80};
    memset(c, 0, sizeof *c);
    c->pid = forkpty(&c->out, NULL, NULL, &size);
    assert_true(c->pid >= 0);
    if (c->pid == 0) {
        setenv("TERM", "xterm", 1);
        setenv("XDG_STATE_HOME", in_scratch("state"), 1);
        execv(getenv("AX_TEST_BIN"), argv);
        _exit(127);
    }
    c->in = c->out;
}

#define OPEN(c, m, ...)                                                                            \
    open_chat(c, (char *[]){"axtrain", "chat", "--model", m, "--dtype", "float32",                 \
                            "--temperature", "0", __VA_ARGS__, NULL})

/* Reads until `what` has come, and forgets what came up to it. */
static void expect(struct chat *c, const char *what) {
    if (!hear(c, what))
        fail_msg("no \"%s\" in: %s", what, c->text);
    const char *rest = strstr(c->text, what) + strlen(what);
    c->len = strlen(rest);
    memmove(c->text, rest, c->len + 1);
}

static int closed(struct chat *c) {
    int status;
    assert_false(hear(c, "\x01never"));
    assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
    close(c->out);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static const char *message(const json_t *row, size_t i) {
    const json_t *m = json_array_get(json_object_get(row, "messages"), i);
    return json_string_value(json_object_get(m, "content"));
}

static void messages_of_several_lines(void **state) {
    (void)state;
    static struct chat c;
    char line[1024], path[256], out[8192];
    snprintf(path, sizeof path, "%s", in_scratch("saved.jsonl"));
    OPEN(&c, model, "--max-new-tokens", "4");
    expect(&c, PROMPT);
    say(&c, "one\\\rtwX\x7fo\r");
    expect(&c, PROMPT);
    say(&c, "\"\"\"\r/three\rfour\\\r\"\"\"\r");
    expect(&c, PROMPT);
    say(&c, "\x1b[200~five\nsix\n\x1b[201~\r");
    expect(&c, PROMPT);
    snprintf(line, sizeof line, "/save %s\r", path);
    say(&c, line);
    expect(&c, "saved to ");
    expect(&c, PROMPT);
    say(&c, "/systm x\r");
    expect(&c, "unknown command /systm; did you mean /system?");
    expect(&c, PROMPT);
    say(&c, "/help\r");
    expect(&c, "Ctrl-D         quit");
    expect(&c, PROMPT);
    say(&c, "\x04");
    assert_int_equal(closed(&c), 0);
    json_t *row = saved(path);
    assert_string_equal(message(row, 0), "one\ntwo");
    assert_string_equal(message(row, 2), "/three\nfour\\");
    assert_string_equal(message(row, 4), "five\nsix");
    assert_int_equal(json_array_size(json_object_get(row, "messages")), 6);
    json_decref(row);

    /* it is a record of messages that training reads */
    snprintf(line, sizeof line,
             "base_model: %s\ndatasets:\n  - path: %s\n    type: chat_template\n"
             "output_dir: %s\nsequence_len: 512\n",
             model, path, in_scratch("unused"));
    put_text("sft.yaml", line);
    assert_int_equal(run(out, sizeof out, "preview '%s'", in_scratch("sft.yaml")), 0);
    assert_non_null(strstr(out, "five\nsix<"));
}

static void nothing_typed_is_echoed_into_a_reply(void **state) {
    (void)state;
    static struct chat c;
    make_long_model();
    OPEN(&c, long_model, "--max-new-tokens", "60000", "--context", "70000");
    expect(&c, PROMPT);
    say(&c, "chat\r");
    expect(&c, "chat\r\x1b[6C\r\n\x1b[?2004l"); /* the terminal is quiet from here on */
    say(&c, "#ahead#");
    struct pollfd p = {.fd = c.out, .events = POLLIN};
    for (size_t until = c.len + 400; c.len < until && poll(&p, 1, 10000) > 0;) {
        const ssize_t n = read(c.out, c.text + c.len, sizeof c.text - 1 - c.len);
        assert_true(n > 0);
        c.len += (size_t)n;
    }
    c.text[c.len] = '\0';
    assert_null(strstr(c.text, "#ahead#"));
    say(&c, "\x03");
    expect(&c, "[stopped; Ctrl-C again quits]");
    expect(&c, PROMPT);
    say(&c, "x\x03");
    expect(&c, "(Ctrl-C again or Ctrl-D quits)");
    expect(&c, PROMPT);
    say(&c, "\x03");
    assert_int_equal(closed(&c), 0);
}

/* What is typed during a reply is the beginning of the next message. */
static void typed_ahead(void **state) {
    (void)state;
    static struct chat c;
    OPEN(&c, model, "--max-new-tokens", "60", "--context", "500");
    expect(&c, PROMPT);
    say(&c, "hello\rnext one");
    expect(&c, "> next one");
    say(&c, "\x15\x04");
    assert_int_equal(closed(&c), 0);
}

static void history_comes_back(void **state) {
    (void)state;
    static struct chat c;
    struct stat info;
    OPEN(&c, model, "--max-new-tokens", "4");
    expect(&c, PROMPT);
    say(&c, "remember this\r");
    expect(&c, PROMPT);
    say(&c, "\x04");
    assert_int_equal(closed(&c), 0);
    assert_int_equal(stat(in_scratch("state/axtrain/chat_history"), &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    OPEN(&c, model, "--max-new-tokens", "4");
    expect(&c, PROMPT);
    say(&c, "\x1b[A");
    expect(&c, "> remember this");
    assert_int_equal(kill(c.pid, SIGTERM), 0); /* the terminal is restored first */
    expect(&c, "\x1b[?2004l");
    assert_int_equal(closed(&c), 128 + SIGTERM);
}

/* Under the launcher rank 0 has the terminal. Ctrl-C there reaches all ranks, once. */
static void ranks_chat_on_a_terminal(void **state) {
    (void)state;
    static struct chat c;
    make_long_model();
    open_chat(&c, (char *[]){"axtrain", "launch", "-n", "2", "--", "chat", "--model", long_model,
                             "--dtype", "float32", "--max-new-tokens", "60000", "--context",
                             "70000", "--threads", "1", "--temperature", "0", NULL});
    expect(&c, PROMPT);
    for (int turn = 0; turn < 2; turn++) {
        say(&c, "chat\r");
        expect(&c, "chat\r\x1b[6C\r\n\x1b[?2004l");
        for (size_t until = c.len + 40; c.len < until;) {
            const ssize_t n = read(c.out, c.text + c.len, sizeof c.text - 1 - c.len);
            assert_true(n > 0);
            c.len += (size_t)n;
        }
        say(&c, "\x03");
        expect(&c, "[stopped; Ctrl-C again quits]");
        expect(&c, PROMPT);
    }
    say(&c, "\x04");
    assert_int_equal(closed(&c), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_of_several_lines),
        cmocka_unit_test(nothing_typed_is_echoed_into_a_reply),
        cmocka_unit_test(typed_ahead),
        cmocka_unit_test(history_comes_back),
        cmocka_unit_test(ranks_chat_on_a_terminal),
    };
    return cmocka_run_group_tests(tests, setup, scratch_remove);
}
