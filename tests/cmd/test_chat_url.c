/* `axtrain chat --url`: a conversation with a model that is served is the one with the model itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/cmd/program_case.h"
#include "tests/cmd/serve_case.h"

static struct server server;
static char key[600];

static int open_server(void **state) {
    if (setup(state) != 0)
        return -1;
    char words[2000];
    snprintf(key, sizeof key, "%s", put_text("key", "sesame\n"));
    snprintf(words, sizeof words, "--api-key-file %s --adapter tuned=%s", key,
             golden_path("lora/llama_r4"));
    serve_open(&server, model, words);
    return 0;
}

static int close_server(void **state) {
    serve_close(&server);
    return scratch_remove(state);
}

static char said[1 << 15];

/* What a chat with these options prints for lines of input. */
static int chat(const char *options, const char *input) {
    char file[300];
    snprintf(file, sizeof file, "%s", put_text("input", input));
    return run(said, sizeof said, "chat %s < %s", options, file);
}

static const char *url(const char *more) {
    static char options[1200];
    snprintf(options, sizeof options, "--url http://127.0.0.1:%d/v1/ --api-key-file %s %s",
             server.port, key, more);
    return options;
}

static void as_here(void **state) {
    (void)state;
    static const char input[] = "hello\n/retry\nwhat is it\n/undo\n/temperature\nand now\n";
    static const char *const samplings[] = {
        "--temperature 0 --max-new-tokens 12",
        "--temperature 0 --max-new-tokens 30 --repetition-penalty 1.3 --system terse --stop e"};
    for (size_t i = 0; i < 2; i++) {
        char here[1 << 12], options[1200];
        snprintf(options, sizeof options, "%s --dtype float32 %s", model, samplings[i]);
        assert_int_equal(chat(options, input), 0);
        snprintf(here, sizeof here, "%s", said);
        assert_int_equal(chat(url(samplings[i]), input), 0);
        assert_string_equal(said, here);
    }
}

/* Seeded: the same conversation, in which another reply is another one. */
static void seeds(void **state) {
    (void)state;
    char first[1 << 12];
    assert_int_equal(chat(url("--temperature 1 --seed 4 --max-new-tokens 12"), "hello\n/retry\n"),
                     0);
    snprintf(first, sizeof first, "%s", said);
    const size_t half = strcspn(first, "\n");
    assert_false(strlen(first) == 2 * half + 2 && memcmp(first, first + half + 1, half) == 0);
    assert_int_equal(chat(url("--temperature 1 --seed 4 --max-new-tokens 12"), "hello\n/retry\n"),
                     0);
    assert_string_equal(said, first);
    /* the next reply is of the next seed */
    assert_int_equal(chat(url("--temperature 1 --seed 5 --max-new-tokens 12"), "hello\n"), 0);
    assert_string_equal(said, first + half + 1);
}

/* Adapters are models. */
static void other_models(void **state) {
    (void)state;
    char base[1 << 12];
    static const char *const sampling = "--temperature 0 --max-new-tokens 12";
    assert_int_equal(chat(url(sampling), "hello\n"), 0);
    snprintf(base, sizeof base, "%s", said);
    assert_int_equal(chat(url("--temperature 0 --max-new-tokens 12 --model tuned"), "hello\n"), 0);
    assert_string_not_equal(said, base);
    char tuned[1 << 12];
    snprintf(tuned, sizeof tuned, "model tuned\n%s", said);
    assert_int_equal(chat(url(sampling), "/adapter tuned\nhello\n"), 0);
    assert_string_equal(said, tuned);
    /* one that is not there: the conversation goes on without the message */
    assert_int_equal(chat(url(sampling), "/adapter none\nhello\n/adapter llama\nhello\n"), 0);
    assert_non_null(strstr(said, "there is no model \"none\"; available: llama, tuned"));
    assert_non_null(strstr(said, strndupa(base, strlen(base) - 1)));
}

static void what_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *options, *why;
    } wrong[] = {
        {"--url http://127.0.0.1:1/v1", "http://127.0.0.1:1/v1/models: "},
        {"--url nonsense", "not a URL"},
        {"--url http://localhost/v1 --dtype float32", "--dtype is the server's to choose"},
        {"--url http://localhost/v1 --adapter x=y", "--adapter is the server's to choose"},
        {"--api-key-file /dev/null m", "--api-key-file needs --url"},
        {"--url http://localhost/v1 --api-key-file /dev/null", "expected one line with a key"},
    };
    char without[100];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (chat(wrong[i].options, "") == 0 || !strstr(said, wrong[i].why))
            fail_msg("%s: %s", wrong[i].options, said);
    snprintf(without, sizeof without, "--url http://127.0.0.1:%d/v1", server.port);
    assert_int_not_equal(chat(without, ""), 0);
    assert_non_null(strstr(said, "status 401"));
    setenv("AXTRAIN_API_KEY", "wrong-and-secret", 1);
    assert_int_not_equal(chat(without, ""), 0);
    assert_non_null(strstr(said, "status 401"));
    assert_null(strstr(said, "secret"));
    setenv("AXTRAIN_API_KEY", "sesame", 1);
    assert_int_equal(chat(without, ""), 0);
    unsetenv("AXTRAIN_API_KEY");
}

/* Ctrl-C ends a reply here and there; a server that goes ends a reply, not the chat. */
static void broken_off(void **state) {
    (void)state;
    struct server s;
    char command[600], line[4096] = "";
    int to[2], from[2];
    make_long_model();
    serve_open(&s, long_model, "--context 100000 --cache-tokens 100000 --parallel 1");
    snprintf(command, sizeof command, "http://127.0.0.1:%d/v1", s.port);
    assert_int_equal(pipe2(to, O_CLOEXEC) | pipe2(from, O_CLOEXEC), 0);
    char *const argv[] = {"axtrain", "chat", "--url", command, "--temperature", "0", NULL};
    posix_spawn_file_actions_t files;
    pid_t pid;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, to[0], 0);
    posix_spawn_file_actions_adddup2(&files, from[1], 1);
    posix_spawn_file_actions_adddup2(&files, from[1], 2);
    assert_int_equal(posix_spawn(&pid, test_program(), &files, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&files);
    close(from[1]);
    close(to[0]);
    size_t n = 0;
    assert_int_equal(write(to[1], "chat\n", 5), 5);
    assert_int_equal(read(from[0], line, 1), 1); /* the reply has begun */
    assert_int_equal(kill(pid, SIGINT), 0);
    while (!strstr(line, "[stopped]")) {
        n = n > sizeof line / 2 ? 0 : n; /* of a long reply only the end matters */
        const ssize_t k = read(from[0], line + n, sizeof line - 1 - n);
        assert_true(k > 0);
        n += (size_t)k;
        line[n] = '\0';
    }
    for (const double until = ax_clock_now() + 20; metric(&s, "sequences_pending") > 0; nap(0.01))
        assert_true(ax_clock_now() < until);
    assert_int_equal(kill(s.pid, SIGKILL), 0);
    waitpid(s.pid, NULL, 0);
    assert_int_equal(write(to[1], "chat\n/help\n", 11), 11);
    close(to[1]);
    n = 0;
    for (ssize_t k; (k = read(from[0], line + n, sizeof line - 1 - n)) > 0;)
        n += (size_t)k;
    line[n] = '\0';
    assert_non_null(strstr(line, "/v1/chat/completions: "));
    assert_non_null(strstr(line, "Ctrl-D         quit"));
    int status;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    close(from[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_here),      cmocka_unit_test(seeds),
        cmocka_unit_test(other_models), cmocka_unit_test(what_is_refused),
        cmocka_unit_test(broken_off),
    };
    return cmocka_run_group_tests(tests, open_server, close_server);
}
