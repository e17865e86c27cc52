/* `axtrain sandbox`: a program in the sandbox; and the worker, which is this program, too. */
#include "cmd/sandbox.h"

#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "cmd/commands.h"
#include "model/convert/base_model.h"

#define MAX_PROGRAM ((size_t)16 << 20)

static enum ax_status cache_folder(char **out) {
    char *base;
    AX_TRY(ax_base_model_cache(&base));
    const enum ax_status st = ax_path_join(out, base, "sandbox");
    ax_free(base);
    return st;
}

enum ax_status ax_sandbox_command_open(struct ax_sandbox_command *c) {
    AX_TRY(ax_sandbox_find(&c->parts, c->wasmtime, c->python));
    AX_TRY(cache_folder(&c->cache));
    const struct ax_sandbox_options options = {
        .program = c->program,
        .wasmtime = c->parts.wasmtime,
        .python = {c->parts.python, c->parts.library},
        .cache = c->cache,
        .threads = (int)c->threads,
        .seconds = AX_SANDBOX_SECONDS,
    };
    return ax_sandbox_open(&c->sandbox, &options);
}

void ax_sandbox_command_close(struct ax_sandbox_command *c) {
    ax_sandbox_close(c->sandbox);
    ax_sandbox_parts_free(&c->parts);
    ax_free(c->cache);
}

const char *ax_sandbox_verdict_text(const struct ax_sandbox_result *r, char text[32]) {
    if (r->verdict == AX_VERDICT_EXIT)
        (void)snprintf(text, 32, "exit %d", r->exit_code);
    else
        (void)snprintf(text, 32, "%s", ax_verdict_names[r->verdict]);
    return text;
}

/* ---- run ---- */

static enum ax_status print_result(const struct ax_sandbox_result *r) {
    if (r->out.len > 0)
        (void)fwrite(r->out.data, 1, r->out.len, stdout);
    if (r->err.len > 0)
        (void)fwrite(r->err.data, 1, r->err.len, stderr);
    char verdict[32];
    (void)fflush(stdout);
    fprintf(stderr, "verdict=%s fuel=%llu time_ms=%.3f\n", ax_sandbox_verdict_text(r, verdict),
            (unsigned long long)r->fuel, r->seconds * 1e3);
    return r->verdict == AX_VERDICT_EXIT && r->exit_code == 0 ? AX_OK : AX_ERR_FAILED;
}

static enum ax_status read_input(const char *path, char **data, size_t *len) {
    if (path)
        return ax_read_file(path, MAX_PROGRAM, data, len);
    *len = 0;
    return ax_strdup(data, "");
}

static enum ax_status run_file(int argc, char **argv) {
    struct ax_sandbox_command c = {.threads = 1};
    const char *path, *input = NULL;
    struct ax_sandbox_result result = {0};
    char *source = NULL, *data = NULL;
    size_t source_len, data_len;
    int64_t fuel = (int64_t)AX_SANDBOX_FUEL, memory = AX_SANDBOX_MEMORY >> 20;
    int n;
    const struct ax_arg args[] = {
        AX_SANDBOX_ARGS(&c),
        {"--stdin", AX_ARG_STRING, &input, 0, 0},
        {"--fuel", AX_ARG_INT, &fuel, 1, INT64_MAX},
        {"--memory", AX_ARG_INT, &memory, 64, AX_SANDBOX_MEMORY >> 20},
    };
    AX_TRY(ax_args_parse(argc, argv, sizeof args / sizeof *args, args, 1, 1, &path, &n));
    enum ax_status st = ax_read_file(path, MAX_PROGRAM, &source, &source_len);
    if (st == AX_OK)
        st = read_input(input, &data, &data_len);
    if (st == AX_OK)
        st = ax_sandbox_command_open(&c);
    if (st == AX_OK) {
        const struct ax_bytes parts[] = {{source, source_len}, {data, data_len}};
        struct ax_sandbox_job job = {
            .kind = AX_SANDBOX_PROGRAM, .parts = parts, .n_parts = 2, .limits = AX_SANDBOX_LIMITS};
        job.limits.fuel = (uint64_t)fuel;
        job.limits.memory = (uint64_t)memory << 20;
        st = ax_sandbox_run(c.sandbox, &job, 1, &result);
    }
    if (st == AX_OK)
        st = print_result(&result);
    ax_sandbox_result_free(&result);
    ax_sandbox_command_close(&c);
    ax_free(source);
    ax_free(data);
    return st;
}

/* Forms that only we use are a program of the source. */
static enum ax_status moved(int argc, char **argv) {
    (void)argc;
    return ax_error(AX_ERR_CONFIG,
                    "%s: a program of the source does this now: "
                    "build/tests/bench/sandbox %s",
                    argv[0], strchr(argv[0], ' ') + 1);
}

static const struct {
    const char *name, *command; /* used in messages */
    enum ax_status (*run)(int argc, char **argv);
} forms[] = {
    {"run", "sandbox run", run_file},
    {"attack", "sandbox attack", moved},
    {"bench", "sandbox bench", moved},
    {"worker", "sandbox worker", ax_sandbox_worker}, /* hidden */
};

enum ax_status ax_cmd_sandbox(int argc, char **argv) {
    for (size_t i = 0; argc > 1 && i < sizeof forms / sizeof *forms; i++)
        if (strcmp(argv[1], forms[i].name) == 0) {
            argv[1] = (char *)(uintptr_t)forms[i].command;
            return forms[i].run(argc - 1, argv + 1);
        }
    return ax_error(AX_ERR_CONFIG, "sandbox: expected run%s%s%s", argc > 1 ? ", got \"" : "",
                    argc > 1 ? argv[1] : "", argc > 1 ? "\"" : "");
}
