/* What options of commands that answer become: of the model, of tools, of the best of several answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cmd/args/text_args.h"
#include "optim/evaluate/score/best_of.h"

/* Words, apart by blanks. */
static enum ax_status parse(const char *words, int n_args, const struct ax_arg *args) {
    static char text[512];
    char *argv[48] = {(char[]){"test"}}, *rest = text;
    int argc = 1, n = 0;
    snprintf(text, sizeof text, "%s", words);
    for (char *word; (word = strsep(&rest, " ")) != NULL;)
        argv[argc++] = word;
    return ax_args_parse(argc, argv, n_args, args, 0, 0, NULL, &n);
}

static enum ax_status read_tools(const char *words, struct ax_text_tools_options *o) {
    static struct ax_tool_args a;
    struct ax_arg args[AX_TOOL_ARGS_COUNT];
    ax_tool_args_table(&a, args);
    assert_int_equal(parse(words, AX_TOOL_ARGS_COUNT, args), AX_OK);
    return ax_tool_args_read(&a, o);
}

static void options_of_tools(void **state) {
    (void)state;
    struct ax_text_tools_options o;
    assert_int_equal(read_tools("--tools python --tools m.f", &o), AX_OK);
    assert_int_equal(o.tools.n, 2);
    assert_string_equal(o.tools.names[0], "python");
    assert_string_equal(o.tools.names[1], "m.f");
    assert_true(!o.rules.ends && !o.rules.keeps && !o.tools.keeps && !o.format);
    assert_true(o.rules.max_rounds < 0 && o.rules.max_seconds == 0);
    assert_true(o.tools.timeout == 0 && o.tools.workers == 0);
    assert_int_equal(read_tools("--tools python --python-state kept --tool-timeout 0.5", &o),
                     AX_OK);
    assert_true(o.rules.keeps && o.tools.keeps && !o.rules.ends);
    assert_true(o.tools.timeout == 0.5 && o.rules.max_seconds == 0);
    assert_int_equal(read_tools("--tools python --python-state fresh --tool-parse-error end "
                                "--rollout-timeout 9 --tool-workers 64",
                                &o),
                     AX_OK);
    assert_true(!o.rules.keeps && !o.tools.keeps && o.rules.ends);
    assert_true(o.tools.timeout == 0 && o.rules.max_seconds == 9 && o.tools.workers == 64);
    assert_int_equal(read_tools("--tools python --tool-parse-error answer --tool-call-format "
                                "hermes --max-tool-calling-iterations 1",
                                &o),
                     AX_OK);
    assert_true(!o.rules.ends && o.rules.max_rounds == 1);
    assert_string_equal(o.format, "hermes");
    assert_int_equal(read_tools("--max-tool-calling-iterations=3 --tools t", &o), AX_OK);
    assert_int_equal(o.rules.max_rounds, 3);
}

static void wrong_options_of_tools(void **state) {
    (void)state;
    static const struct {
        const char *words, *said;
    } all[] = {
        {"--tools t --python-state kep", "--python-state: expected fresh or kept, got \"kep\""},
        {"--tools t --tool-parse-error en",
         "--tool-parse-error: expected answer or end, got \"en\""},
        {"--tools t --tool-timeout 0", "--tool-timeout: expected seconds above 0, got 0"},
        {"--tools t --rollout-timeout -1", "--rollout-timeout: expected seconds above 0, got -1"},
        {"--tools t --tool-call-format x", "--tool-call-format: expected one of hermes, "},
        /* each of them alone */
        {"--tool-call-format hermes", "need --tools"},
        {"--tool-parse-error end", "need --tools"},
        {"--python-state kept", "need --tools"},
        {"--max-tool-calling-iterations 1", "need --tools"},
        {"--tool-timeout 1", "need --tools"},
        {"--tool-workers 1", "need --tools"},
        {"--rollout-timeout 1", "need --tools"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct ax_text_tools_options o;
        if (read_tools(all[i].words, &o) != AX_ERR_CONFIG || !strstr(ax_error_text(), all[i].said))
            fail_msg("%s: %s", all[i].words, ax_error_text());
    }
    struct ax_tool_args a;
    struct ax_arg args[AX_TOOL_ARGS_COUNT];
    struct ax_text_tools_options o;
    ax_tool_args_table(&a, args);
    assert_int_equal(ax_tool_args_read(&a, &o), AX_OK);
    assert_int_equal(o.tools.n, 0);
    static const char *const outside[] = {"--max-tool-calling-iterations 0", "--tool-workers 0",
                                          "--tool-workers 65"};
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
        assert_int_equal(parse(outside[i], AX_TOOL_ARGS_COUNT, args), AX_ERR_CONFIG);
}

static void options_of_answers(void **state) {
    (void)state;
    struct ax_text_args a;
    struct ax_arg args[AX_TEXT_ARGS_COUNT];
    ax_text_args_table(&a, args);
    assert_int_equal(parse("--model m", AX_TEXT_ARGS_COUNT, args), AX_OK);
    /* not given, so that generation_config.json decides */
    assert_true(a.o.max_new_tokens == -1 && a.o.top_k == -1 && a.o.seed == 0);
    assert_true(isnan(a.o.temperature) && isnan(a.o.top_p) && isnan(a.o.min_p) &&
                isnan(a.o.repetition_penalty));
    assert_true(!a.dtype && !a.mesh && !a.device && a.threads == 0 && !a.o.base);
    ax_text_args_table(&a, args);
    assert_int_equal(parse("--model m --adapter a --adapter b --base c --dtype float32 "
                           "--max-new-tokens 1 --temperature 0 --top-k 0 --top-p 0.5 --min-p 0.1 "
                           "--repetition-penalty 1.5 --seed 7 --stop x --threads 1 --mesh tp=2 "
                           "--device cpu",
                           AX_TEXT_ARGS_COUNT, args),
                     AX_OK);
    assert_string_equal(a.o.model, "m");
    assert_string_equal(a.o.base, "c");
    assert_string_equal(a.dtype, "float32");
    assert_string_equal(a.mesh, "tp=2");
    assert_string_equal(a.device, "cpu");
    assert_true(a.o.adapters.n == 2 && a.o.stop.n == 1 && a.threads == 1);
    assert_string_equal(a.o.adapters.text[1], "b");
    assert_string_equal(a.o.stop.text[0], "x");
    assert_true(a.o.max_new_tokens == 1 && a.o.temperature == 0 && a.o.top_k == 0);
    assert_true(a.o.top_p == 0.5 && a.o.min_p == 0.1 && a.o.repetition_penalty == 1.5);
    assert_int_equal(a.o.seed, 7);
    static const char *const outside[] = {"--max-new-tokens 0", "--top-k -1",
                                          "--threads 0",        "--max-new-tokens 16777217",
                                          "--seed -1",          "--threads 1025"};
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
        assert_int_equal(parse(outside[i], AX_TEXT_ARGS_COUNT, args), AX_ERR_CONFIG);
}

static void the_best_of_several(void **state) {
    (void)state;
    static const struct {
        struct ax_best_of_args a;
        const char *said;
    } all[] = {{{0}, NULL},
               {{.scorer = "s"}, "eval: --scorer and --score-by need --best-of N"},
               {{.by = "min"}, "eval: --scorer and --score-by need --best-of N"},
               {{.n = 2}, "eval: --best-of needs --scorer DIR"},
               {{.n = 2, .by = "min"}, "eval: --best-of needs --scorer DIR"},
               {{.n = 2, .scorer = "s"}, NULL},
               {{.n = 2, .scorer = "s", .by = "min"}, NULL},
               {{.n = 2, .scorer = "s", .by = "mim"}, "--score-by: "}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const enum ax_status st = ax_best_of_args_check(&all[i].a, "eval");
        assert_int_equal(st, all[i].said ? AX_ERR_CONFIG : AX_OK);
        if (all[i].said && !strstr(ax_error_text(), all[i].said))
            fail_msg("%zu: %s", i, ax_error_text());
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_of_tools),
        cmocka_unit_test(wrong_options_of_tools),
        cmocka_unit_test(options_of_answers),
        cmocka_unit_test(the_best_of_several),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
