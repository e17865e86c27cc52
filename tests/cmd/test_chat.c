/* `axtrain chat` through pipes: turns, commands, Ctrl-C, the end of input. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include "tests/cmd/chat_case.h"

extern char **environ;

static void start(struct chat *c, char **argv) {
    int in[2], out[2];
    posix_spawn_file_actions_t actions;
    memset(c, 0, sizeof *c);
    assert_int_equal(pipe2(in, O_CLOEXEC) | pipe2(out, O_CLOEXEC), 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDERR_FILENO);
    assert_int_equal(posix_spawn(&c->pid, getenv("AX_TEST_BIN"), &actions, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    c->in = in[1];
    c->out = out[0];
}

/* End of input; the exit code. */
static int leave(struct chat *c) {
    int status;
    close(c->in);
    hear(c, "\x01never");
    close(c->out);
    assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#define START(c, m, ...)                                                                           \
    start(c, (char *[]){"axtrain", "chat", "--model", m, "--dtype", "float32", "--temperature",    \
                        "0", __VA_ARGS__, NULL})

/* A NUL is a character of its line. */
static void lines_with_nul(void **state) {
    (void)state;
    static const char lines[] = "a\0b\nhello\n";
    static struct chat c;
    char line[512], path[128];
    START(&c, model, "--max-new-tokens", "2");
    assert_int_equal(write(c.in, lines, sizeof lines - 1), sizeof lines - 1);
    snprintf(path, sizeof path, "%s", in_scratch("nul.json"));
    snprintf(line, sizeof line, "/save %s\n", path);
    say(&c, line);
    assert_int_equal(leave(&c), 0);
    json_t *row = json_load_file(path, JSON_ALLOW_NUL, NULL);
    const json_t *m = json_object_get(row, "messages");
    assert_int_equal(json_array_size(m), 4);
    const json_t *said = json_object_get(json_array_get(m, 0), "content");
    assert_int_equal(json_string_length(said), 3);
    assert_memory_equal(json_string_value(said), lines, 3);
    json_decref(row);
}

static void turns_and_commands(void **state) {
    (void)state;
    static struct chat c, again;
    char line[512], first[128], second[128];
    snprintf(first, sizeof first, "%s", in_scratch("first.json"));
    snprintf(second, sizeof second, "%s", in_scratch("second.json"));
    START(&c, model, "--max-new-tokens", "8", "--system", "Be brief.");
    say(&c, "hello\n\nand more\n");
    snprintf(line, sizeof line, "/save %s\n", first);
    say(&c, line);
    say(&c, "/reset\nhello\n/system\n/save\n/nonsense\n/rest\n");
    snprintf(line, sizeof line, "/save /no/such/folder/x\n/save %s\n/help", second);
    say(&c, line); /* no newline at the end: still a line */
    assert_int_equal(leave(&c), 0);
    json_t *row = saved(first);
    const json_t *m = json_object_get(row, "messages");
    assert_int_equal(json_array_size(m), 5);
    assert_string_equal(role(m, 0), "system");
    assert_string_equal(role(m, 1), "user");
    assert_string_equal(role(m, 4), "assistant");
    const json_t *said = json_object_get(json_array_get(m, 3), "content");
    assert_string_equal(json_string_value(said), "and more"); /* nothing of the empty line */
    const char *answer = json_string_value(json_object_get(json_array_get(m, 2), "content"));
    assert_non_null(strstr(c.text, answer));
    json_decref(row);
    row = saved(second);
    assert_int_equal(json_array_size(json_object_get(row, "messages")), 0);
    json_decref(row);
    assert_non_null(strstr(c.text, "unknown command /nonsense; /help lists the commands"));
    assert_non_null(strstr(c.text, "unknown command /rest; did you mean /reset?"));
    assert_non_null(strstr(c.text, "/save needs a file name"));
    assert_non_null(strstr(c.text, "/no/such/folder/x"));
    assert_non_null(strstr(c.text, "Ctrl-C"));

    /* the same turns again, from a file of Windows: the same words, although another thread count did them */
    START(&again, model, "--max-new-tokens", "8", "--system", "Be brief.", "--threads", "1");
    say(&again, "hello\r\n\r\nand more\r\n");
    assert_int_equal(leave(&again), 0);
    assert_memory_equal(again.text, c.text, again.len);
}

/* The reply to a line, after what has been said before. */
static json_t *reply(const char *temperature, const char *before) {
    static struct chat c;
    char path[128], line[256];
    start(&c, (char *[]){"axtrain", "chat", "--model", model, "--dtype", "float32", "--seed", "4",
                         "--max-new-tokens", "12", "--temperature", (char *)(uintptr_t)temperature,
                         NULL});
    snprintf(path, sizeof path, "%s", in_scratch("reply.json"));
    snprintf(line, sizeof line, "%shello\n/save %s\n", before, path);
    say(&c, line);
    assert_int_equal(leave(&c), 0);
    json_t *row = json_load_file(path, JSON_ALLOW_NUL, NULL);
    assert_int_equal(unlink(path), 0);
    json_t *said = json_incref(json_array_get(json_object_get(row, "messages"), 1));
    json_decref(row);
    assert_string_equal(json_string_value(json_object_get(said, "role")), "assistant");
    return said;
}

static void the_temperature_is_that_of_the_next_reply(void **state) {
    (void)state;
    json_t *greedy = reply("0", ""), *warm = reply("2", ""),
           *cooled = reply("2", "/temperature 0\n"), *warmed = reply("0", "/temperature 2\n"),
           *later = reply("2", "\n/temperature 0\n/temperature 2\n");
    assert_true(json_equal(cooled, greedy));
    assert_true(json_equal(warmed, warm));
    assert_true(json_equal(later, warm));
    assert_false(json_equal(greedy, warm));
    json_decref(greedy);
    json_decref(warm);
    json_decref(cooled);
    json_decref(warmed);
    json_decref(later);
}

static void an_interrupt_stops_a_reply(void **state) {
    (void)state;
    static struct chat c;
    make_long_model();
    START(&c, long_model, "--max-new-tokens", "60000", "--context", "70000");
    say(&c, "chat\n");
    while (c.len == 0)
        assert_true(read(c.out, c.text, 1) == 1 && ++c.len == 1);
    assert_int_equal(kill(c.pid, SIGINT), 0);
    assert_true(hear(&c, "[stopped]"));
    assert_int_equal(kill(c.pid, SIGINT), 0); /* at the prompt: nothing to stop */
    say(&c, "/help\n");
    assert_true(hear(&c, "Ctrl-D         quit"));
    /* nor does it stop the next reply; only in a new conversation is that one without an end too */
    say(&c, "/reset\n");
    assert_true(hear(&c, "a new conversation\n"));
    c.len = 0;
    c.text[0] = '\0';
    say(&c, "chat\n");
    while (c.len < 200 && !strstr(c.text, "[stopped]")) {
        const ssize_t n = read(c.out, c.text + c.len, sizeof c.text - 1 - c.len);
        assert_true(n > 0);
        c.len += (size_t)n;
        c.text[c.len] = '\0';
    }
    assert_null(strstr(c.text, "[stopped]"));
    assert_int_equal(kill(c.pid, SIGINT), 0);
    assert_true(hear(&c, "[stopped]"));
    assert_int_equal(leave(&c), 0);
}

/* Another adapter goes on with the conversation as if it had been there from the start. */
static void adapters_take_turns(void **state) {
    (void)state;
    static struct chat c, fresh;
    char lora[600], dora[640], *reply;
    snprintf(lora, sizeof lora, "%.*s/lora/llama_r4", (int)(strstr(model, "/models/") - model),
             model);
    snprintf(dora, sizeof dora, "other=%s_dora", lora);
    START(&c, model, "--max-new-tokens", "8", "--adapter", lora, "--adapter", dora);
    say(&c, "hello\n/adapter nobody\n/adapter other \r\n/reset\r\nhello\n/adapter base\n");
    assert_int_equal(leave(&c), 0);
    assert_non_null(strstr(c.text, "no adapter is named \"nobody\"; available: base, llama_r4, "));
    assert_non_null(strstr(c.text, "base, llama_r4, other; in use: base"));
    assert_non_null(reply = strstr(c.text, "a new conversation\n"));
    reply += strlen("a new conversation\n");
    START(&fresh, model, "--max-new-tokens", "8", "--adapter", dora);
    say(&fresh, "hello\n");
    assert_int_equal(leave(&fresh), 0);
    assert_memory_equal(reply, fresh.text, fresh.len);
    assert_memory_not_equal(c.text, fresh.text, fresh.len);
}

static void a_full_context(void **state) {
    (void)state;
    static struct chat c;
    START(&c, model, "--context", "40", "--max-new-tokens", "8");
    say(&c, "one two three four five six seven eight nine ten eleven twelve thirteen fourteen\n");
    say(&c, "hi\n");
    assert_int_equal(leave(&c), 0);
    assert_non_null(strstr(c.text, "/reset starts a new one"));
    /* a reply fills what is left, and not more */
    static struct chat longer;
    make_long_model();
    START(&c, long_model, "--context", "40", "--max-new-tokens", "39");
    say(&c, "hello\n");
    assert_int_equal(leave(&c), 0);
    START(&longer, long_model, "--context", "80", "--max-new-tokens", "39");
    say(&longer, "hello\n");
    assert_int_equal(leave(&longer), 0);
    assert_true(c.len > 1 && c.len < longer.len); /* the last is a new line */
    assert_memory_equal(c.text, longer.text, c.len - 1);
}

static void errors(void **state) {
    (void)state;
    static struct chat c;
    START(&c, "/no/such/model", "--seed", "1");
    assert_int_equal(leave(&c), 2);
    assert_non_null(strstr(c.text, "/no/such/model: no such folder or file"));
    start(&c, (char *[]){"axtrain", "chat", NULL});
    assert_int_equal(leave(&c), 2);
    assert_non_null(strstr(c.text, "--model is missing"));
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_with_nul),
        cmocka_unit_test(turns_and_commands),
        cmocka_unit_test(the_temperature_is_that_of_the_next_reply),
        cmocka_unit_test(an_interrupt_stops_a_reply),
        cmocka_unit_test(adapters_take_turns),
        cmocka_unit_test(a_full_context),
        cmocka_unit_test(errors),
    };
    return cmocka_run_group_tests(tests, setup, scratch_remove);
}
