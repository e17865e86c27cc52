#include <stdio.h>

#include "base/io.h"
#include "cmd/sandbox/sandbox.h"
#include "model/convert/base_model.h"

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
