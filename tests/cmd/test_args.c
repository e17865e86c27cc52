/* The option parser, and what a person sees who types something wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "cmd/args/args.h"
#include "cmd/commands.h"

struct options {
    bool json;
    const char *model;
    int64_t batch;
    double rate;
};

static enum ax_status parse(struct options *o, int argc, const char *const *words,
                            const char **positional, int *n) {
    char *argv[16];
    const struct ax_arg args[] = {
        {"--json", AX_ARG_FLAG, &o->json, 0, 0},
        {"--model", AX_ARG_STRING, &o->model, 0, 0},
        {"--batch", AX_ARG_INT, &o->batch, 1, 64},
        {"--rate", AX_ARG_FLOAT, &o->rate, 0, 0},
    };
    for (int i = 0; i < argc; i++)
        argv[i] = (char *)(uintptr_t)words[i];
    return ax_args_parse(argc, argv, 4, args, 0, 2, positional, n);
}

#define PARSE(o, ...)                                                                              \
    parse(&(o), (int)(sizeof((const char *[]){"test", __VA_ARGS__}) / sizeof(char *)),             \
          (const char *[]){"test", __VA_ARGS__}, positional, &n)

static void good_lines(void **state) {
    (void)state;
    const char *positional[2];
    int n;
    struct options o = {.batch = 7};
    assert_int_equal(PARSE(o, "a", "--json", "--model", "dir", "--batch=12", "--rate", "1e-3", "b"),
                     AX_OK);
    assert_true(o.json && o.batch == 12 && o.rate == 1e-3 && strcmp(o.model, "dir") == 0);
    assert_int_equal(n, 2);
    assert_string_equal(positional[1], "b");
    o = (struct options){.batch = 7};
    assert_int_equal(PARSE(o, "--", "--json"), AX_OK);
    assert_true(!o.json && o.batch == 7 && n == 1);
    assert_string_equal(positional[0], "--json");
}

static void bad_lines_say_what_and_what_to_do(void **state) {
    (void)state;
    const char *positional[2];
    int n;
    struct options o = {0};
    assert_int_equal(PARSE(o, "--modle", "x"), AX_ERR_CONFIG);
    assert_string_equal(ax_error_text(), "test: unknown option --modle; did you mean --model?");
    assert_int_equal(PARSE(o, "--verbosity"), AX_ERR_CONFIG);
    assert_non_null(strstr(ax_error_text(), "--help"));
    static const char *const wrong[] = {"0", "65", "2k", "", "1e3", "99999999999999999999"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(PARSE(o, "--batch", wrong[i]), AX_ERR_CONFIG);
        assert_non_null(strstr(ax_error_text(), "from 1 to 64"));
    }
    assert_int_equal(PARSE(o, "--batch"), AX_ERR_CONFIG);
    assert_string_equal(ax_error_text(), "test: --batch needs a value");
    static const char *const none[] = {"", "x", "1x", "nan", "-NaN", "1e999"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        assert_int_equal(PARSE(o, "--rate", none[i]), AX_ERR_CONFIG);
        assert_non_null(strstr(ax_error_text(), "expected a number"));
    }
    assert_int_equal(PARSE(o, "--json=1"), AX_ERR_CONFIG);
    assert_int_equal(PARSE(o, "a", "b", "c"), AX_ERR_CONFIG);
    assert_non_null(strstr(ax_error_text(), "unexpected argument \"c\""));
}

/* A model is the one positional argument, or what --model says, never both. */
static void a_model_by_place_or_name(void **state) {
    (void)state;
    static const struct {
        const char *words[3];
        int n;
        const char *model, *error;
    } all[] = {{{"m"}, 1, "m", NULL},
               {{"--model", "m"}, 2, "m", NULL},
               {{"--model=m"}, 1, "m", NULL},
               {{0}, 0, NULL, NULL},
               {{"a", "b"}, 2, NULL, "unexpected argument \"b\""},
               {{"a", "--model", "m"}, 3, NULL, "test: two models are given, \"a\" and --model m"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const char *model = NULL;
        const struct ax_arg args[] = {{"--model", AX_ARG_STRING, &model, 0, 0}};
        char *argv[4] = {(char[]){"test"}};
        for (int k = 0; k < all[i].n; k++)
            argv[k + 1] = (char *)(uintptr_t)all[i].words[k];
        const enum ax_status st = ax_args_parse_model(all[i].n + 1, argv, 1, args, &model);
        assert_int_equal(st, all[i].error ? AX_ERR_CONFIG : AX_OK);
        if (all[i].error)
            assert_non_null(strstr(ax_error_text(), all[i].error));
        else if (all[i].model)
            assert_string_equal(model, all[i].model);
        else
            assert_null(model);
    }
}

static void distances(void **state) {
    (void)state;
    assert_int_equal(ax_edit_distance("plan", "plan"), 0);
    assert_int_equal(ax_edit_distance("plna", "plan"), 1);
    assert_int_equal(ax_edit_distance("pan", "plan"), 1);
    assert_int_equal(ax_edit_distance("plain", "plan"), 1);
    assert_int_equal(ax_edit_distance("xxab", "ab"), 2);
    assert_int_equal(ax_edit_distance("kitten", "sitting"), 3);
    assert_int_equal(ax_edit_distance("", "abcdefghijk"), 8);
}

static void commands_are_found_and_guessed(void **state) {
    (void)state;
    assert_non_null(ax_command_find(ax_commands, "plan"));
    assert_null(ax_command_find(ax_commands, "pla"));
    assert_string_equal(ax_command_nearest(ax_commands, "plna"), "plan");
    assert_null(ax_command_nearest(ax_commands, "xylophone"));
    for (const struct ax_command *c = ax_commands; c->name; c++) {
        assert_true(c->summary && c->usage && c->details && c->example && !c->run != !c->run_among);
        assert_int_equal(strncmp(c->example, "axtrain ", 8), 0);
        assert_int_equal(c->details[strlen(c->details) - 1], '\n');
        /* in alphabetical order, so that the overview is */
        assert_true(!c[1].name || strcmp(c->name, c[1].name) < 0);
    }
}

/* A line that is an error. */
static void run_line(const char *words, const struct ax_command **c) {
    char text[128], *argv[16], *rest = text;
    int argc = 0;
    snprintf(text, sizeof text, "%s", words);
    for (char *word; (word = strsep(&rest, " ")) != NULL;)
        argv[argc++] = word;
    *c = ax_command_find(ax_commands, argv[0]);
    assert_int_equal(ax_command_run(*c, argc, argv), AX_ERR_CONFIG);
}

/* Words that exclude each other, or need others: told before a model is looked for. */
static void contradictions_are_told_first(void **state) {
    (void)state;
    static const struct {
        const char *words, *said;
    } cases[] = {
        {"chat --json", "chat: unknown option"},
        {"check flight .", "contains no flight records (rank-N.tsv)"},
        {"config show c.yaml -o", "-o: expected a file name"},
        {"env --json=1", "env: --json takes no value"},
        {"eval m --config c.yaml --type alpaca", "eval: --type needs --data"},
        {"eval m --task reward", "eval: --task reward needs --data FILE"},
        {"eval m --task final-answer --data f --samples 2 --best-of 4 --scorer s",
         "eval: --best-of N samples N answers: remove --samples"},
        {"eval m --task final-answer --data f --samples 2 --temperature 0",
         "--temperature: at 0 all samples of a record equal its greedy answer"},
        {"eval m --task final-answer --data f --samples 9 --pass-at 1,2,3,4,5,6,7,8,9",
         "--pass-at: more than 8 numbers"},
        {"generate m --best-of 4 --scorer s --n 2",
         "generate: --best-of N samples N answers: remove --n"},
        {"generate m --scorer s", "generate: --scorer and --score-by need --best-of N"},
        {"launch -n 2 --nnodes 2 --node-rank 2 -- sft c.yaml",
         "launch: --node-rank is 2, but --nnodes is 2: hosts count from 0"},
        {"launch -n 2 --nnodes 2 -- sft c.yaml", "launch: --nnodes 2 needs --master-addr"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct ax_command *c;
        run_line(cases[i].words, &c);
        if (strstr(ax_error_text(), cases[i].said) == NULL)
            fail_msg("%s: %s", cases[i].words, ax_error_text());
    }
}

/* Of each line of other programs the error names what it is here, and that is an option of the command. */
static void options_of_other_programs(void **state) {
    (void)state;
    static const struct {
        const char *words, *said, *option;
    } cases[] = {
        {"convert m o.gguf --outtype f16", "here it is --quant with --to gguf", "--quant"},
        {"convert m o --to hf --outtype=f16", "and --dtype with --to hf", "--dtype"},
        {"convert m --outfile o.gguf", "here it is DST, the second argument", NULL},
        {"quantize m o.gguf Q4_K_M", "--quant of `axtrain convert MODEL OUT --to gguf`", NULL},
        {"quantize m o.gguf --leave-output-tensor", "leave it out: the head", "--head"},
        {"merge b --lora-model-dir=a o", "here it is ADAPTER, the second argument", NULL},
        {"merge b a o --out_dtype f16", "here it is --dtype", "--dtype"},
        {"serve m --max-model-len 9", "here it is --context", "--context"},
        {"serve m -np 2", "here it is --parallel", "--parallel"},
        {"serve m --served-model-name n", "here it is --name", "--name"},
        {"serve m --lora-modules a=b", "here it is --adapter NAME=DIR", "--adapter"},
        {"serve m --api-key k", "here it is --api-key-file", "--api-key-file"},
        {"serve m --seed 1", "leave it out: requests have it", NULL},
        {"serve m --tensor-parallel-size 2", "here it is --mesh tp=N", "--mesh"},
        {"generate -m m", "unknown option -m; here it is --model", "--model"},
        {"generate m --temp 0", "here it is --temperature", "--temperature"},
        {"generate m --n_predict 9", "here it is --max-new-tokens", "--max-new-tokens"},
        {"generate m --output f", "here it is -o", "-o"},
        {"chat m -ngl 9", "leave it out: --device", "--device"},
        {"eval m --limit=9", "here it is --rows", "--rows"},
        {"eval m --batch_size 9", "here it is --batch", "--batch"},
        {"launch --nproc_per_node=2 sft c.yaml", "here it is -n", "-n"},
        {"launch --num_machines 2 sft c.yaml", "here it is --nnodes", "--nnodes"},
        {"launch --max-restarts 3 sft c.yaml", "here it is --restarts", "--restarts"},
        {"sft c.yaml --num_processes 2", "here it is `axtrain launch -n N`", NULL},
        {"fetch c.yaml --token t", "here it is the variable HF_TOKEN", NULL},
        /* short names are no misspelling of every other one */
        {"tokenize --file f", "see `axtrain tokenize --help`", NULL},
        {"tokenize --decod=1", "did you mean --decode?", "--decode"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct ax_command *c;
        run_line(cases[i].words, &c);
        if (strstr(ax_error_text(), cases[i].said) == NULL)
            fail_msg("%s: %s", cases[i].words, ax_error_text());
        if (cases[i].option && !strstr(c->details, cases[i].option) &&
            !strstr(c->usage, cases[i].option))
            fail_msg("%s: %s", cases[i].words, cases[i].option);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_lines),
        cmocka_unit_test(bad_lines_say_what_and_what_to_do),
        cmocka_unit_test(a_model_by_place_or_name),
        cmocka_unit_test(distances),
        cmocka_unit_test(commands_are_found_and_guessed),
        cmocka_unit_test(contradictions_are_told_first),
        cmocka_unit_test(options_of_other_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
