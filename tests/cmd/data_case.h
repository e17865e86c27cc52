/* Commands over data sets: configs over a tokenizer whose ids can be read, and what the command
 * wrote. Include after cmocka.h. */
#ifndef AX_TESTS_CMD_DATA_CASE_H
#define AX_TESTS_CMD_DATA_CASE_H

#include <fcntl.h>

#include "cmd/commands.h"
#include "tests/data/scratch.h"
#include "tests/data/format_case.h"

#define MAX_ARGS 12

/* Runs a command and gives what it wrote to stdout; the status is the command's. */
static inline enum ax_status run(enum ax_status (*command)(int, char **), char **out, int n,
                                 const char *const *args) {
    char *argv[MAX_ARGS + 2] = {(char *)(uintptr_t) "preview"};
    for (int i = 0; i < n; i++)
        argv[i + 1] = (char *)(uintptr_t)args[i];
    const char *path = in_scratch("stdout");
    fflush(stdout);
    const int saved = dup(STDOUT_FILENO);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(fd, STDOUT_FILENO);
    close(fd);
    const enum ax_status st = command(n + 1, argv);
    fflush(stdout);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    size_t len;
    assert_int_equal(ax_read_file(path, 1 << 24, out, &len), AX_OK);
    return st;
}

static inline char *preview(int n, const char *const *args) {
    char *out;
    if (run(ax_cmd_preview, &out, n, args) != AX_OK)
        fail_msg("%s (%s)", ax_error_text(), ax_error_trace());
    return out;
}

static inline json_t *preview_json(int n, const char *const *args) {
    char *out = preview(n, args);
    json_t *v = json_loads(out, 0, NULL);
    if (!v)
        fail_msg("no JSON: %s", out);
    ax_free(out);
    return v;
}

/* A config over the tokenizer without BOS; `more` is YAML behind the data set's path. */
static inline const char *put_config(const char *name, const char *rows, const char *more) {
    struct ax_buf b = {0};
    assert_ok(ax_buf_printf(&b,
                            "base_model: %s\nsequence_len: 64\nlearning_rate: 1e-4\n"
                            "micro_batch_size: 1\ngradient_accumulation_steps: 1\n"
                            "datasets:\n  - path: %s\n%s",
                            in_scratch("bare"), rows, more));
    const char *path = put_bytes(name, b.data, b.len);
    ax_buf_free(&b);
    return path;
}

#endif
