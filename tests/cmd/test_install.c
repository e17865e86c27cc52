/* An installation, in a folder with spaces and letters of other languages: what is in it, that it
 * trains there, which libraries it needs, and what is said where one is missing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/wait.h>

#include "tests/data/scratch.h"

static char said[1 << 16];

/* Runs it with bash, $P being the prefix and $BUILD the build folder; the exit code. */
static int sh(const char *command) {
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    const size_t n = fread(said, 1, sizeof said - 1, pipe);
    said[n] = '\0';
    for (char rest[4096]; fread(rest, 1, sizeof rest, pipe) > 0;) /* or the command cannot end */
        ;
    const int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void expect(int code, const char *part, const char *command) {
    const int got = sh(command);
    if (got != code || !strstr(said, part))
        fail_msg("%s\nexit %d, wanted %d and \"%s\" in: %s", command, got, code, part, said);
}

static bool has_gloo(void) {
    return sh("test -e \"$BUILD/libaxtrain-gloo.so\"") == 0;
}

static void a_prefix_has_every_part(void **state) {
    (void)state;
    expect(0, "", "tools/stage \"$AX_TEST_BIN\" \"$P\" 2>&1");
    expect(0, "axtrain " AX_VERSION " (commit ", "\"$P/bin/axtrain\" --version");
    expect(2, "-n is missing", "\"$P/bin/axlaunch\" -- env 2>&1");
    expect(0, "no symbols", "nm \"$P/bin/axtrain\" 2>&1"); /* stripped */
    expect(0, "", "cmp docs/axtrain.1 \"$P/share/man/man1/axtrain.1\" 2>&1");
    expect(0, "complete -", "cat \"$P/share/bash-completion/completions/axtrain\"");
    expect(0, "#compdef axtrain", "cat \"$P/share/zsh/site-functions/_axtrain\"");
    expect(0, "complete -c axtrain",
           "grep -m 1 \"complete -c axtrain\" \"$P/share/fish/vendor_completions.d/axtrain.fish\"");
    expect(0, "", "diff -r configs \"$P/share/axtrain/configs\" 2>&1");
    expect(0, "", "cmp LICENSE \"$P/share/doc/axtrain/LICENSE\" 2>&1");
}

static void it_trains_where_paths_are_odd(void **state) {
    (void)state;
    expect(0, "",
           "cd \"$P\" && bin/axtrain problems --rows 8 -o 'tr\xC3\xA4in data.jsonl' 2>&1 && "
           "bin/axtrain bench step --model \"$SOURCE/tools/demo-model\" --write-random 'm\xC3\xB6"
           "del one' 2>&1");
    expect(0, "model: \xE6\xA8\xA1 out",
           "cd \"$P\" && cat >'s f\xC3\xBCt.yaml' <<'YAML'\n"
           "base_model: m\xC3\xB6"
           "del one\n"
           "datasets:\n  - path: tr\xC3\xA4in data.jsonl\n    type: chat_template\n"
           "special_tokens:\n  pad_token: \"<|endoftext|>\"\n"
           "output_dir: \xE6\xA8\xA1 out\nsequence_len: 256\nmax_steps: 1\n"
           "learning_rate: 1e-3\n"
           "YAML\n"
           "bin/axtrain sft 's f\xC3\xBCt.yaml' 2>&1");
    expect(0, "",
           "cd \"$P\" && bin/axtrain generate --model '\xE6\xA8\xA1 out' --prompt 1 "
           "--max-new-tokens 2 2>&1");
    expect(0, "report.html",
           "cd \"$P\" && bin/axtrain report '\xE6\xA8\xA1 out' 2>&1; find . -name 'report.html'");
}

/* Those of Gloo, C++ and downloads are opened when they are asked for. */
static void a_process_alone_needs_few_libraries(void **state) {
    (void)state;
    static const char *const opened[] = {"libgloo", "libcurl", "libduckdb", "axtrain-gloo"};
    expect(0, "libjansson", "LD_TRACE_LOADED_OBJECTS=1 \"$AX_TEST_BIN\"");
    for (size_t i = 0; i < sizeof opened / sizeof *opened; i++)
        if (strstr(said, opened[i]))
            fail_msg("%s is loaded at the start:\n%s", opened[i], said);
}

static void a_missing_library_is_named_with_its_remedy(void **state) {
    (void)state;
    expect(0, "", "mkdir -p \"$P/alone/bin\" && cp \"$AX_TEST_BIN\" \"$P/alone/bin/axtrain\" 2>&1");
    expect(2, "libaxtrain-gloo.so: cannot open shared object file",
           "\"$P/alone/bin/axtrain\" check mesh tools/demo-model/config.json tp=2 --gloo 2>&1");
    assert_non_null(strstr(said, "`apt-get install libgloo0`"));
    assert_non_null(strstr(said, "install g++ and libgloo-dev, and run `make` again"));
    expect(0, "", "cp \"$BUILD/tests/cmd/stub_gloo.so\" \"$P/alone/bin/libaxtrain-gloo.so\" 2>&1");
    expect(2, "libaxtrain-gloo.so is of axtrain 0.0.1, and this is axtrain " AX_VERSION,
           "\"$P/alone/bin/axtrain\" check mesh tools/demo-model/config.json tp=2 --gloo 2>&1");
}

static void gloo_is_found_in_the_prefix(void **state) {
    (void)state;
    assert_true(has_gloo());
    expect(0, " 0 failed",
           "\"$P/bin/axtrain\" check mesh tools/demo-model/config.json dp_shard=2 --gloo "
           "--micro-batches 2 --tokens 32 2>&1");
}

static void a_newer_glibc_is_noticed(void **state) {
    (void)state;
    expect(0, "needs glibc 2.", "tools/check-glibc 2.99 \"$AX_TEST_BIN\"");
    expect(1, "the limit is 2.5. Symbols:", "tools/check-glibc 2.5 \"$AX_TEST_BIN\"");
    assert_non_null(strstr(said, " (2.")); /* which symbols */
}

/* On a system without apt-get that has a compiler and the libraries, but no clang 16. */
static void a_set_that_is_missing_leaves_the_others(void **state) {
    (void)state;
    expect(0, "",
           "mkdir -p \"$P/few\" && for c in bash dirname env gcc grep id make; do "
           "ln -sf \"$(command -v $c)\" \"$P/few/$c\"; done");
    expect(1, "bootstrap: build: all packages are installed",
           "CC=gcc PATH=\"$P/few\" tools/bootstrap lint build");
    assert_non_null(strstr(said, "not a Debian system; `lint` needs the equivalents of:"));
    assert_non_null(strstr(said, "\n  clang-tidy-16=1:"));
    assert_null(strstr(said, "libjansson"));
    expect(2, "\"lynt\" is not a set; expected build,", "tools/bootstrap lynt");
}

static void uninstalling_leaves_what_is_not_ours(void **state) {
    (void)state;
    expect(0, "", "touch \"$P/bin/other\" && tools/stage --remove \"$P\" 2>&1");
    expect(0, "", "find \"$P/bin\" \"$P/share\" \"$P/lib\" -type f ! -name other 2>/dev/null");
    assert_string_equal(said, "");
    expect(0, "", "test -e \"$P/bin/other\"");
}

static int start(void **state) {
    char text[512];
    const char *bin = getenv("AX_TEST_BIN");
    if (!bin || scratch_make(state) != 0 || !realpath(bin, text) || setenv("AX_TEST_BIN", text, 1))
        return -1;
    *strrchr(text, '/') = '\0';
    setenv("BUILD", text, 1);
    setenv("P", in_scratch("a prefix \xE2\x98\x83 h\xC3\xA9"), 1);
    return getcwd(text, sizeof text) ? setenv("SOURCE", text, 1) : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prefix_has_every_part),
        cmocka_unit_test(it_trains_where_paths_are_odd),
        cmocka_unit_test(a_process_alone_needs_few_libraries),
        cmocka_unit_test(a_missing_library_is_named_with_its_remedy),
        cmocka_unit_test(gloo_is_found_in_the_prefix),
        cmocka_unit_test(a_newer_glibc_is_noticed),
        cmocka_unit_test(a_set_that_is_missing_leaves_the_others),
        cmocka_unit_test(uninstalling_leaves_what_is_not_ours),
    };
    return cmocka_run_group_tests(tests, start, scratch_remove);
}
