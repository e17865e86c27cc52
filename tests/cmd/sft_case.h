/* `axtrain sft` as a command: run by itself, and what it said. Include after cmocka.h. */
#ifndef AX_TESTS_CMD_SFT_CASE_H
#define AX_TESTS_CMD_SFT_CASE_H

#include <fcntl.h>
#include <math.h>
#include <sys/wait.h>

#include "base/text/json.h"
#include "tests/data/scratch.h"
#include "tests/golden_files.h"

#define SFT_ARGS 24

static const char *sft_command = "sft"; /* what runs: another command fits too */

/* In a child, so that its threads are its own: the exit code, and what it said on stderr. */
static inline int sft(char *said, size_t size, int n, const char *const *args) {
    char *argv[SFT_ARGS] = {(char *)(uintptr_t)sft_command};
    assert_true(n < SFT_ARGS - 1);
    for (int i = 0; i < n; i++)
        argv[i + 1] = (char *)(uintptr_t)args[i];
    const char *bin = getenv("AX_TEST_BIN");
    char path[128];
    snprintf(path, sizeof path, "%s", in_scratch("stderr"));
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setenv("OMP_NUM_THREADS", "1", 0); /* tiny models: more threads only wait for each other */
        const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        dup2(fd, STDERR_FILENO);
        dup2(fd, STDOUT_FILENO);
        if (bin) {
            char *full[SFT_ARGS + 2] = {(char *)(uintptr_t)bin};
            memcpy(full + 1, argv, sizeof argv);
            execv(bin, full);
        }
        _exit(126);
    }
    int status;
    waitpid(child, &status, 0);
    char *text;
    size_t len;
    assert_int_equal(ax_read_file(path, 1 << 20, &text, &len), AX_OK);
    snprintf(said, size, "%s", text);
    ax_free(text);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* A number of a step in DIR/metrics.jsonl, DIR in the scratch folder. */
static inline double metric_of(const char *dir, const char *key, int step) {
    char path[256], *text;
    size_t len;
    double value = NAN;
    snprintf(path, sizeof path, "%s/%s/metrics.jsonl", scratch, dir);
    assert_int_equal(ax_read_file(path, 1 << 20, &text, &len), AX_OK);
    char *rest = text;
    for (char *line = strsep(&rest, "\n"); line; line = strsep(&rest, "\n")) {
        json_t *v = json_loads(line, 0, NULL);
        const json_t *s = json_object_get(v, "step"), *x = json_object_get(v, key);
        if (x && json_integer_value(s) == step)
            value = json_number_value(x);
        json_decref(v);
    }
    ax_free(text);
    assert_true(isfinite(value));
    return value;
}

static inline void need_binary(void) {
    if (!getenv("AX_TEST_BIN"))
        fail_msg("AX_TEST_BIN names no axtrain");
}

/* The golden llama's folder. */
static inline const char *golden_llama(void) {
    return golden_path("models/llama");
}

static inline void expect(int code, const char *part, int n, const char *const *args) {
    char said[8192];
    const int got = sft(said, sizeof said, n, args);
    if (got != code || !strstr(said, part))
        fail_msg("exit %d, wanted %d and \"%s\" in: %s", got, code, part, said);
}
#define EXPECT(code, part, ...)                                                                    \
    do {                                                                                           \
        const char *const args_[] = {__VA_ARGS__};                                                 \
        expect(code, part, (int)(sizeof args_ / sizeof *args_), args_);                            \
    } while (0)

#endif
