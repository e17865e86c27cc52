/* `axtrain tokenize` from stdin to stdout. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <fcntl.h>
#include <unistd.h>

#include "cmd/commands.h"
#include "tests/cmd/command_case.h"
#include "tests/data/tokenizer_case.h"

static char dir[64], vocab[96], output[4096];

static const char model[] =
    "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"Ġ\":3,\"Ã\":4,\"©\":5,\"<s>"
    "\":6,"
    "\"Ċ\":7},\"merges\":[\"a b\"]},\"added_tokens\":[{\"content\":\"<s>\",\"special\":true}],"
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"decoder\":{\"type\":"
    "\"ByteLevel\"},\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{"
    "\"SpecialToken\":"
    "{\"id\":\"<s>\"}},{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{\"<s>\":{\"ids\":[6]}}}}";

/* Runs the command on `input`; what it prints is in `output` after it. */
static enum ax_status run(const char *input, size_t len, int argc, char **argv) {
    char in[96], out[96];
    snprintf(in, sizeof in, "%s/in", dir);
    snprintf(out, sizeof out, "%s/out", dir);
    MUST(ax_write_file_atomic(in, input, len));
    return run_command(ax_cmd_tokenize, argc, argv, in, out, output, sizeof output);
}

#define RUN(input, ...)                                                                            \
    run((input), sizeof(input) - 1, sizeof((char *[]){"tokenize", __VA_ARGS__}) / sizeof(char *),  \
        (char *[]){"tokenize", __VA_ARGS__})

static void text_to_ids(void **state) {
    (void)state;
    MUST(RUN("ab \xc3\xa9\n", "--vocab", vocab));
    assert_string_equal(output, "[2, 3, 4, 5, 7]\n");
    MUST(RUN("", "--model", dir));
    assert_string_equal(output, "[]\n");
    MUST(RUN("a<s>", "--model", dir, "--add-special-tokens"));
    assert_string_equal(output, "[6, 0, 6]\n");
    MUST_FAIL(RUN("ab\xff", "--vocab", vocab), AX_ERR_DATA, "standard input: text is not UTF-8");
    assert_string_equal(output, "");
}

static void ids_to_text(void **state) {
    (void)state;
    MUST(RUN("[6, 2,\n 3, 4, 5]", "--vocab", vocab, "--decode"));
    assert_string_equal(output, "<s>ab \xc3\xa9");
    MUST(RUN("[6,2,4]", "--vocab", vocab, "--decode", "--skip-special-tokens"));
    assert_string_equal(output, "ab\xef\xbf\xbd");
    MUST(RUN("[]", "--vocab", vocab, "--decode"));
    assert_string_equal(output, "");
    MUST(RUN("[900]", "--vocab", vocab, "--decode")); /* no such token */
    assert_string_equal(output, "");
    MUST_FAIL(RUN("[1, -1]", "--vocab", vocab, "--decode"), AX_ERR_DATA, "standard input: [1]");
    MUST_FAIL(RUN("{}", "--vocab", vocab, "--decode"), AX_ERR_DATA, "expected a list of ids");
    MUST_FAIL(RUN("[1", "--vocab", vocab, "--decode"), AX_ERR_DATA, "standard input:1:");
}

static void usage(void **state) {
    (void)state;
    MUST_FAIL(RUN("", "--decode"), AX_ERR_CONFIG, "either --model DIR or --vocab FILE");
    MUST_FAIL(RUN("", "--model", dir, "--vocab", vocab), AX_ERR_CONFIG, "either --model DIR");
    MUST_FAIL(RUN("", "--vocab", vocab, "--skip-special-tokens"), AX_ERR_CONFIG, "needs --decode");
    MUST_FAIL(RUN("", "--vocab", vocab, "--decode", "--add-special-tokens"), AX_ERR_CONFIG,
              "cannot be combined");
    MUST_FAIL(RUN("", "--vocab", vocab, "text"), AX_ERR_CONFIG, "not \"text\" as well");
    MUST_FAIL(RUN("", "--vocab", "/nonexistent"), AX_ERR_IO, "/nonexistent");
}

static int make_dir(void **state) {
    (void)state;
    snprintf(dir, sizeof dir, "%s/axtrain-tok-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (mkdtemp(dir) == NULL)
        return -1;
    snprintf(vocab, sizeof vocab, "%s/tokenizer.json", dir);
    return ax_write_file_atomic(vocab, model, strlen(model)) == AX_OK ? 0 : -1;
}

static int remove_dir(void **state) {
    (void)state;
    return ax_remove_tree(dir) == AX_OK ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_to_ids),
        cmocka_unit_test(ids_to_text),
        cmocka_unit_test(usage),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
