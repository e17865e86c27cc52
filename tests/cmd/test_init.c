/* `axtrain init`: what it makes of rows, lengths and memory, and that what it writes trains. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <math.h>

#include "cmd/commands.h"
#include "cmd/init/init.h"
#include "tests/cmd/sft_case.h"
#include "tests/golden_files.h"

static const char *model(const char *family) {
    char name[64];
    snprintf(name, sizeof name, "models/%s", family);
    return golden_path(name);
}

/* ---- rows ---- */

static void kinds_of_rows(void **state) {
    (void)state;
    static const struct {
        const char *row;
        enum ax_record_kind kind;
        const char *a, *b, *c;
    } all[] = {
        {"{\"id\": 1, \"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}", AX_RECORD_CHAT,
         "messages", "role", "content"},
        {"{\"messages\": [{\"role\": \"assistant\", \"content\": null, \"tool_calls\": []}]}",
         AX_RECORD_CHAT, "messages", "role", "content"},
        {"{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}]}", AX_RECORD_CHAT,
         "conversations", "from", "value"},
        {"{\"instruction\": \"a\", \"input\": \"\", \"output\": \"b\"}", AX_RECORD_ALPACA,
         "instruction", "output", NULL},
        {"{\"question\": \"a\", \"answer\": \"b #### 2\"}", AX_RECORD_PAIR, "question", "answer",
         NULL},
        {"{\"prompt\": \"a\", \"completion\": \"b\"}", AX_RECORD_PAIR, "prompt", "completion",
         NULL},
        {"{\"prompt\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
         "\"content\": \"b\"}, {\"role\": \"user\", \"content\": \"c\"}], \"completion\": "
         "[{\"role\": \"assistant\", \"content\": \"d\"}]}",
         AX_RECORD_COMPLETION, "", "", NULL},
        {"{\"text\": \"a\"}", AX_RECORD_TEXT, NULL, NULL, "text"},
        {"{\"body\": \"a\"}", AX_RECORD_TEXT, NULL, NULL, "body"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct ax_init_data d;
        assert_ok(ax_init_data_read(&d, put_text("rows.jsonl", all[i].row)));
        assert_int_equal(d.is.kind, all[i].kind);
        assert_int_equal(d.rows, 1);
        if (d.is.kind == AX_RECORD_CHAT) {
            assert_string_equal(d.is.messages, all[i].a);
            assert_string_equal(d.is.role, all[i].b);
            assert_string_equal(d.is.content, all[i].c);
        } else if (d.is.kind == AX_RECORD_TEXT) {
            assert_string_equal(d.is.text, all[i].c);
        } else {
            assert_string_equal(d.is.prompt, all[i].a);
            assert_string_equal(d.is.answer, all[i].b);
        }
        ax_init_data_free(&d);
    }
}

static void rows_that_do_not_do(void **state) {
    (void)state;
    struct ax_init_data d;
    static const struct {
        const char *rows, *said;
    } all[] = {
        {"", "it has no records"},
        {"{\"prompt\": \"a\", \"chosen\": \"b\", \"more\": \"c\"}",
         "the columns (\"prompt\", \"chosen\", \"more\") do not match a known record type"},
        {"{\"prompt\": \"a\", \"rejected\": \"b\", \"more\": \"c\"}",
         "the columns (\"prompt\", \"rejected\", \"more\") do not match a known record type"},
        {"{\"a\": 1, \"b\": 2}", "the columns (\"a\", \"b\") do not match a known record type"},
        {"{\"question\": \"a\", \"answer\": \"b\"}\n{\"question\": \"a\", \"reply\": \"b\"}",
         "the columns (\"question\", \"answer\") do not match a known record type"},
        {"{\"messages\": []}", "the columns (\"messages\")"},
        {"{\"messages\": [\"a\"]}", "the columns (\"messages\")"},
        {"{", "rows.jsonl:1"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        assert_error(ax_init_data_read(&d, put_text("rows.jsonl", all[i].rows)), AX_ERR_DATA,
                     all[i].said);
        ax_init_data_free(&d);
    }
    assert_int_equal(ax_init_data_read(&d, in_scratch("none.jsonl")), AX_ERR_DATA);
    ax_init_data_free(&d);
}

/* ---- lengths ---- */

static void lengths_choose_rows(void **state) {
    (void)state;
    struct ax_init_shape s;
    uint32_t n[1000];
    for (int i = 0; i < 1000; i++)
        n[i] = (uint32_t)(i / 2 + 1); /* 1 to 500, evenly */
    ax_init_shape_choose(&s, n, 1000, 0, false);
    assert_int_equal(s.sequence_len, 512); /* the longest, since it is near the 99th */
    assert_int_equal(s.too_long, 0);
    assert_true(s.packing);
    n[999] = 9000;
    ax_init_shape_choose(&s, n, 1000, 0, false);
    assert_int_equal(s.p99, 495);
    assert_int_equal(s.sequence_len, 512);
    assert_int_equal(s.too_long, 1);
    assert_false(s.cut);
    ax_init_shape_choose(&s, n, 1000, 256, false); /* the model's own limit */
    assert_int_equal(s.sequence_len, 256);
    assert_true(s.cut);
    for (int i = 0; i < 1000; i++)
        n[i] = 1000;
    ax_init_shape_choose(&s, n, 1000, 0, false);
    assert_int_equal(s.sequence_len, 1024);
    assert_false(s.packing);
    for (int i = 0; i < 1000; i++)
        n[i] = 100000;
    ax_init_shape_choose(&s, n, 1000, 0, true); /* plain text is cut */
    assert_int_equal(s.sequence_len, 2048);
    ax_init_shape_choose(&s, n, 1, 0, false); /* one row */
    assert_int_equal(s.rows, 1);
    const uint32_t three[] = {3, 6, 90};
    ax_init_shape_choose(&s, three, 3, 0, false);
    assert_int_equal(s.median, 6);
    assert_int_equal(s.p99, 90);
    assert_int_equal(s.longest, 90);
    assert_true(s.mean == 33);
}

/* ---- memory ---- */

static void eight_billion(struct ax_arch *arch) {
    static const char text[] =
        "{\"model_type\": \"llama\", \"hidden_size\": 4096, \"intermediate_size\": 14336, "
        "\"num_hidden_layers\": 32, \"num_attention_heads\": 32, \"num_key_value_heads\": 8, "
        "\"vocab_size\": 128256, \"max_position_embeddings\": 8192}";
    struct ax_json_doc doc;
    assert_ok(ax_json_parse(&doc, "llama", text, strlen(text)));
    assert_ok(ax_arch_parse(arch, ax_json_root(&doc)));
    ax_json_free(&doc);
}

static enum ax_status fit(struct ax_init_fit *f, const struct ax_arch *arch,
                          const struct ax_init_shape *s, int64_t rows_per_step,
                          uint64_t available) {
    const struct ax_init_problem p = {arch, &ax_objective_sft, s, rows_per_step, available};
    return ax_init_fit_choose(f, &p);
}

/* Pairs are twice the tokens of a sequence, so they need more. */
static void pairs_need_more(void **state) {
    (void)state;
    const struct ax_init_shape one = {.sequence_len = 512},
                               two = {.sequence_len = 512, .pairs = true};
    struct ax_arch arch;
    struct ax_init_fit a, b;
    eight_billion(&arch);
    assert_ok(fit(&a, &arch, &one, 1, 0));
    assert_ok(fit(&b, &arch, &two, 1, 0));
    assert_true(b.chosen > a.chosen);
    ax_arch_free(&arch);
}

static void memory_chooses_the_method(void **state) {
    (void)state;
    const struct ax_init_shape s = {.sequence_len = 2048, .packing = true};
    const uint64_t gib = (uint64_t)1 << 30;
    struct ax_arch arch;
    struct ax_init_fit f;
    eight_billion(&arch);
    assert_ok(fit(&f, &arch, &s, 4, 400 * gib));
    assert_int_equal(f.method, AX_INIT_FULL);
    assert_int_equal(f.recompute, AX_RECOMPUTE_OFF);
    assert_int_equal(f.micro * f.accumulate, 4);
    assert_true(f.chosen <= f.available);
    assert_ok(fit(&f, &arch, &s, 4, 80 * gib));
    assert_int_equal(f.method, AX_INIT_LORA);
    assert_true(f.need[AX_INIT_FULL] > 100 * gib);
    assert_ok(fit(&f, &arch, &s, 4, 14 * gib));
    assert_int_equal(f.method, AX_INIT_QLORA);
    assert_true(f.chosen <= 14 * gib && f.chosen > 4 * gib);
    assert_true(f.need[AX_INIT_LORA] > 14 * gib);
    assert_error(fit(&f, &arch, &s, 4, 2 * gib), AX_ERR_NOMEM,
                 "even QLoRA with sequences of 2048 tokens needs");
    /* what a method needs is the least that was tried: nothing smaller fits, and as much does */
    const uint64_t least = f.need[AX_INIT_QLORA];
    assert_int_not_equal(fit(&f, &arch, &s, 4, least), AX_OK);
    assert_ok(fit(&f, &arch, &s, 4, least + least / 19));
    assert_int_equal(f.method, AX_INIT_QLORA);
    assert_true(f.chosen == least && f.micro == 1 && f.recompute == AX_RECOMPUTE_ON);
    assert_ok(fit(&f, &arch, &s, 4, 0)); /* not known */
    assert_int_equal(f.method, AX_INIT_FULL);
    ax_arch_free(&arch);
}

/* Less and less memory: the choices come in the order of preference, each needs what it says and
 * 5 % more, and small micro-batches are tried only with recompute. */
static void less_memory_goes_through_all_options(void **state) {
    (void)state;
    static const enum ax_recompute modes[] = {AX_RECOMPUTE_OFF, AX_RECOMPUTE_SELECTIVE,
                                              AX_RECOMPUTE_ON};
    const struct ax_init_shape s = {.sequence_len = 256, .packing = true};
    struct ax_arch arch;
    struct ax_init_fit f;
    uint64_t available = 0;
    int last = -100, reached = 0;
    eight_billion(&arch);
    arch.n_layers = 2;
    while (fit(&f, &arch, &s, 32, available) == AX_OK) {
        int mode = 0;
        while (modes[mode] != f.recompute)
            mode++;
        const int place = (3 * (int)f.method + mode) * 100 - (int)f.micro;
        assert_true(place > last);
        last = place;
        assert_int_equal(f.micro * f.accumulate, 32);
        assert_true(f.micro <= 16); /* 4,096 tokens */
        assert_true(f.micro >= (f.recompute == AX_RECOMPUTE_ON ? 1 : 2));
        reached |= 1 << (3 * (int)f.method + mode);
        if (available > 0) {
            const double spare = (double)available / (double)f.chosen;
            assert_true(spare >= 1.05);
            struct ax_init_fit again;
            assert_ok(fit(&again, &arch, &s, 32, (uint64_t)ceil((double)f.chosen * 1.05)));
            assert_true(again.chosen == f.chosen && again.micro == f.micro);
        } else {
            assert_int_equal(f.micro, 16);
            assert_int_equal(f.recompute, AX_RECOMPUTE_OFF);
        }
        available = (uint64_t)ceil((double)f.chosen * 1.05) - 1;
    }
    assert_int_equal(reached, 0x1ff); /* every method with every recompute */
    assert_int_equal(last, 8 * 100 - 1);
    assert_ok(fit(&f, &arch, &s, 3, 0)); /* a step of few rows */
    assert_true(f.micro == 3 && f.accumulate == 1);
    ax_arch_free(&arch);
}

/* ---- the whole ---- */

/* Runs a command of axtrain, as tests/cmd/sft_case.h runs sft. */
static int axtrain(char *said, size_t size, const char *const *args) {
    const char *path = in_scratch("said");
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char *argv[SFT_ARGS] = {(char *)(uintptr_t)getenv("AX_TEST_BIN")};
        for (int i = 0; args[i]; i++)
            argv[i + 1] = (char *)(uintptr_t)args[i];
        setenv("OMP_NUM_THREADS", "1", 0);
        const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        dup2(fd, STDERR_FILENO);
        dup2(fd, STDOUT_FILENO);
        execv(argv[0], argv);
        _exit(126);
    }
    int status;
    char *text;
    size_t len;
    waitpid(child, &status, 0);
    assert_ok(ax_read_file(path, 1 << 20, &text, &len));
    snprintf(said, size, "%s", text);
    ax_free(text);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static const char *rows_of(enum ax_record_kind kind, bool sharegpt) {
    struct ax_buf b = {0};
    for (int i = 0; i < 40; i++)
        if (kind == AX_RECORD_CHAT && sharegpt)
            assert_ok(ax_buf_printf(&b,
                                    "{\"conversations\": [{\"from\": \"human\", \"value\": \"say "
                                    "%d\"}, {\"from\": \"gpt\", \"value\": \"it is %d\"}]}\n",
                                    i, i));
        else if (kind == AX_RECORD_CHAT)
            assert_ok(ax_buf_printf(&b,
                                    "{\"messages\": [{\"role\": \"user\", \"content\": \"say "
                                    "%d\"}, {\"role\": \"assistant\", \"content\": \"it is "
                                    "%d\"}]}\n",
                                    i, i));
        else if (kind == AX_RECORD_COMPLETION)
            assert_ok(ax_buf_printf(&b,
                                    "{\"prompt\": [{\"role\": \"user\", \"content\": \"say "
                                    "%d\"}], \"completion\": [{\"role\": \"assistant\", "
                                    "\"content\": \"it is %d\"}]}\n",
                                    i, i));
        else if (kind == AX_RECORD_ALPACA)
            assert_ok(ax_buf_printf(&b,
                                    "{\"instruction\": \"say %d\", \"input\": \"\", \"output\": "
                                    "\"it is %d\"}\n",
                                    i, i));
        else if (kind == AX_RECORD_PAIR)
            assert_ok(
                ax_buf_printf(&b, "{\"question\": \"say %d\", \"answer\": \"#### %d\"}\n", i, i));
        else if (kind == AX_RECORD_PREFERENCES && sharegpt) /* messages */
            assert_ok(ax_buf_printf(
                &b,
                "{\"prompt\": [{\"role\": \"user\", \"content\": \"say %d\"}], \"chosen\": "
                "[{\"role\": \"assistant\", \"content\": \"it is %d\"}], \"rejected\": "
                "[{\"role\": \"assistant\", \"content\": \"no\"}]}\n",
                i, i));
        else if (kind == AX_RECORD_PREFERENCES)
            assert_ok(ax_buf_printf(
                &b, "{\"prompt\": \"say %d\", \"chosen\": \" %d\", \"rejected\": \" no\"}\n", i,
                i));
        else if (kind == AX_RECORD_UNPAIRED)
            assert_ok(ax_buf_printf(
                &b, "{\"prompt\": \"say %d\", \"completion\": \" %d\", \"label\": %d}\n", i, i,
                i % 2));
        else if (kind == AX_RECORD_STEPS)
            assert_ok(ax_buf_printf(&b,
                                    "{\"prompt\": \"say %d\", \"completions\": [\"one\", \"%d\"], "
                                    "\"labels\": [1, %d]}\n",
                                    i, i, i % 2));
        else
            assert_ok(ax_buf_printf(&b, "{\"body\": \"line %d of a text that goes on\"}\n", i));
    const char *path = put_bytes("data set.jsonl", b.data, b.len);
    ax_buf_free(&b);
    return path;
}

static void expect_in_file(const char *path, const char *part) {
    char *text;
    size_t len;
    assert_ok(ax_read_file(path, 1 << 20, &text, &len));
    if (!strstr(text, part))
        fail_msg("no \"%s\" in %s", part, text);
    ax_free(text);
}

/* Rows without a word of the assistant, and rows that are all too long to be cut: refused here. */
static void rows_that_train_nothing(void **state) {
    (void)state;
    need_binary();
    char said[8192], base[512];
    snprintf(base, sizeof base, "%s", model("qwen3"));
    const char *rows =
        put_text("silent.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n"
                                 "{\"messages\": [{\"role\": \"user\", \"content\": \"b\"}]}\n");
    const char *const init[] = {
        "init", "--model", base, "--data", rows, "-o", in_scratch("silent.yaml"), NULL};
    if (axtrain(said, sizeof said, init) != 3 ||
        !strstr(said, "none of the tokens in the first 2 records would be trained on"))
        fail_msg("%s", said);
    assert_false(ax_path_exists(in_scratch("silent.yaml")));
}

/* What a run is written into is named after the model and the data, without what they end in. */
static void folders_are_named(void **state) {
    (void)state;
    need_binary();
    static const char *const names[][2] = {{"v1.5-rows.jsonl", "v1.5-rows"},
                                           {"rows.json", "rows"},
                                           {"a b_c!.jsonl.jsonl", "a-b_c-"},
                                           {"rows.part", "rows.part"}};
    char said[8192], base[512], data[256], want[64];
    snprintf(base, sizeof base, "%s", model("qwen3"));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(data, sizeof data, "%s",
                 put_text(names[i][0], "{\"question\": \"say 1\", \"answer\": \"1\"}\n"));
        const char *const init[] = {
            "init", "--model", base, "--data", data, "-o", in_scratch("named.yaml"), NULL};
        unlink(in_scratch("named.yaml"));
        if (axtrain(said, sizeof said, init) != 0)
            fail_msg("%s", said);
        snprintf(want, sizeof want, "\noutput_dir: out/qwen3-%s\n", names[i][1]);
        expect_in_file(in_scratch("named.yaml"), want);
    }
}

/* init, then sft for two steps with what it wrote and nothing else. */
static void must_train(const char *family, enum ax_record_kind kind, bool sharegpt) {
    char said[8192], file[256], base[512], out[256];
    snprintf(file, sizeof file, "%s", in_scratch("c.yaml"));
    snprintf(base, sizeof base, "%s", model(family));
    snprintf(out, sizeof out, "output_dir=%s", in_scratch("out"));
    unlink(file);
    assert_ok(ax_remove_tree(in_scratch("out")));
    const char *const init[] = {"init", "--model", base, "--data", rows_of(kind, sharegpt),
                                "-o",   file,      NULL};
    if (axtrain(said, sizeof said, init) != 0)
        fail_msg("%s", said);
    expect_in_file(file, "\nmicro_batch_size: 1\ngradient_accumulation_steps: 1\n"); /* few rows */
    const char *command = kind == AX_RECORD_PREFERENCES || kind == AX_RECORD_UNPAIRED ? "dpo"
                          : kind == AX_RECORD_STEPS                                   ? "prm"
                                                                                      : "sft";
    const char *const train[] = {command, file, "max_steps=2", out, NULL};
    if (axtrain(said, sizeof said, train) != 0 || !strstr(said, "trained 2 of 2 steps"))
        fail_msg("%s", said);
    if (!strstr(said, "evaluation loss") || strstr(said, "warn datasets"))
        fail_msg("%s", said);
}

static void what_is_written_trains(void **state) {
    (void)state;
    need_binary();
    for (int kind = AX_RECORD_CHAT; kind <= AX_RECORD_TEXT; kind++)
        must_train("qwen3", (enum ax_record_kind)kind, false);
    must_train("qwen3", AX_RECORD_PREFERENCES, false);
    must_train("llama", AX_RECORD_PREFERENCES, true);
    must_train("qwen3", AX_RECORD_STEPS, false);
    must_train("llama", AX_RECORD_UNPAIRED, false);
    must_train("llama", AX_RECORD_CHAT, true);
    must_train("qwen3", AX_RECORD_COMPLETION, false);
    must_train("llama", AX_RECORD_PAIR, false); /* its tokenizer adds BOS: not twice */
}

#define DEFINED                                                                                    \
    ", \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"description\": "     \
    "\"d\", "                                                                                      \
    "\"parameters\": {\"type\": \"object\", \"properties\": {}}}}]}\n"
#define CALL                                                                                       \
    "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"type\": \"function\", "      \
    "\"function\": {\"name\": \"f\", \"arguments\": {}}}]}"
#define ASKED "{\"role\": \"user\", \"content\": \"q\"}"
#define TOLD  "{\"role\": \"assistant\", \"content\": \"a\"}"

/* The golden Qwen3 without its template, in the folder "bare". */
static void bare_model(void) {
    static const char *const files[] = {"config.json", "tokenizer.json", "tokenizer_config.json",
                                        "weights.json"};
    make_folder("bare");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char from[512], to[512];
        snprintf(from, sizeof from, "%s/%s", model("qwen3"), files[i]);
        snprintf(to, sizeof to, "%s/bare/%s", scratch, files[i]);
        assert_int_equal(symlink(from, to), 0);
    }
}

/* No file has a template that ignores the tools of the data, unless none fits the model; that is said in
 * it and on the terminal. */
static void tools_are_written(void **state) {
    (void)state;
    need_binary();
    bare_model();
    static const struct {
        const char *family, *row, *in_file, *said;
    } cases[] = {
        /* its own template writes roles and contents */
        {"llama", "{\"messages\": [" ASKED ", " TOLD "]" DEFINED,
         "\nchat_template: llama3_2_vision # the model's own leaves out tools of the data\n",
         "leaves out the tool definitions of 40 conversations (the first is "},
        {"llama", "{\"messages\": [" ASKED ", " CALL "]" DEFINED,
         "\nchat_template: llama3_2_vision # the model's own leaves out tools of the data\n",
         "leaves out the tool calls of 40 conversations (the first is "},
        {"llama",
         "{\"prompt\": [" ASKED "], \"chosen\": [" TOLD "], \"rejected\": [" CALL "]" DEFINED,
         "\nchat_template: llama3_2_vision # the model's own leaves out tools of the data\n",
         "chat_template: llama3_2_vision writes them"},
        {"llama", "{\"messages\": [" ASKED ", " TOLD "]}\n", "\ndatasets:", NULL},
        {"mistral", "{\"messages\": [" ASKED ", " TOLD "]" DEFINED,
         "\n# The chat template leaves out tools of the data: set chat_template or "
         "chat_template_jinja to\n# one that writes them.\n",
         "set chat_template to one that writes them, such as qwen3 or llama4, or "
         "chat_template_jinja"},
        {"mistral", "{\"messages\": [" ASKED ", " TOLD "]}\n", "\ndatasets:", NULL},
        {"qwen3", "{\"messages\": [" ASKED ", " TOLD "]" DEFINED,
         "\nchat_template: qwen3 # the model's own leaves out tools of the data\n",
         "chat_template: qwen3 writes them"},
        /* it has none */
        {NULL, "{\"messages\": [" ASKED ", " TOLD "]" DEFINED,
         "\nchat_template: qwen3 # the model has none\n", NULL},
        {NULL, "{\"messages\": [" ASKED ", " TOLD "]}\n",
         "\nchat_template: alpaca # the model has none\n", NULL},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        char said[8192], file[256], base[512];
        struct ax_buf rows = {0};
        for (int i = 0; i < 40; i++)
            assert_ok(ax_buf_puts(&rows, cases[c].row));
        snprintf(file, sizeof file, "%s", in_scratch("tools.yaml"));
        snprintf(base, sizeof base, "%s",
                 cases[c].family ? model(cases[c].family) : in_scratch("bare"));
        unlink(file);
        const char *const init[] = {
            "init", "--model", base, "--data", put_bytes("tools.jsonl", rows.data, rows.len),
            "-o",   file,      NULL};
        ax_buf_free(&rows);
        if (axtrain(said, sizeof said, init) != 0)
            fail_msg("%s", said);
        expect_in_file(file, cases[c].in_file);
        if (cases[c].said ? !strstr(said, cases[c].said) : strstr(said, "leaves out") != NULL)
            fail_msg("%s: %s", base, said);
        const bool kept = strstr(cases[c].in_file, "# The chat") != NULL;
        const char *const shown[] = {"preview", file, "val_set_size=0", NULL};
        (void)axtrain(said, sizeof said, shown);
        if (!strstr(said, "training: ") || (strstr(said, "leaves out") != NULL) != kept)
            fail_msg("%s: %s", base, said);
    }
}

/* However few or many rows, and whatever the file is called: what is written is accepted, and the
 * commands that are shown can be copied to a shell. */
static void any_number_of_rows(void **state) {
    (void)state;
    need_binary();
    static const int counts[] = {1, 2, 19, 20, 21, 39, 40, 41, 59, 60, 2000, 2001, 20000, 20001};
    char base[512], said[8192], file[256];
    snprintf(base, sizeof base, "%s", model("qwen3"));
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        struct ax_buf rows = {0};
        struct ax_config cfg;
        for (int i = 0; i < counts[c]; i++)
            assert_ok(ax_buf_printf(&rows, "{\"text\": \"row %d\"}\n", i));
        snprintf(file, sizeof file, "%s/it's %d rows.yaml", scratch, counts[c]);
        const char *const init[] = {
            "init", "--model", base, "--data", put_bytes("n.jsonl", rows.data, rows.len),
            "-o",   file,      NULL};
        ax_buf_free(&rows);
        if (axtrain(said, sizeof said, init) != 0)
            fail_msg("%d rows: %s", counts[c], said);
        assert_non_null(strstr(said, "axtrain sft '"));
        assert_non_null(strstr(said, "/it'\\''s "));
        assert_ok(ax_config_load(&cfg, file, 0, NULL));
        const double held = ax_config_f64(&cfg, "val_set_size");
        const double expected = counts[c] < 20 ? 0 : counts[c] < 60 ? 2 : counts[c] / 20;
        assert_true(held == (expected < 200 ? expected : 200));
        const int epochs = counts[c] <= 2000 ? 3 : counts[c] <= 20000 ? 2 : 1;
        assert_true(ax_config_f64(&cfg, "num_epochs") == epochs);
        ax_config_free(&cfg);
    }
}

static void the_adapter_files_train(void **state) {
    (void)state;
    need_binary();
    static const enum ax_init_method methods[] = {AX_INIT_LORA, AX_INIT_QLORA};
    char said[8192], file[256], out[256];
    for (size_t m = 0; m < 2; m++) {
        struct ax_init i = {.model = model("llama"),
                            .parameters = 195000,
                            .rows_per_epoch = 40,
                            .rows_per_step = 2,
                            .eval_rows = 4,
                            .epochs = 1,
                            .learning_rate = 2e-4,
                            .fit = {.method = methods[m],
                                    .micro = 1,
                                    .accumulate = 2,
                                    .available = 1 << 30,
                                    .need = {3 << 29, 3 << 28, 0},
                                    .chosen = 1 << 28},
                            .shape = {.rows = 40,
                                      .median = 20,
                                      .p99 = 30,
                                      .longest = 30,
                                      .sequence_len = 64,
                                      .packing = true}};
        struct ax_buf text = {0};
        assert_ok(ax_init_data_read(&i.data, rows_of(AX_RECORD_CHAT, false)));
        i.data.template = "llama3";
        snprintf(out, sizeof out, "%s", in_scratch("out"));
        i.output_dir = out;
        assert_ok(ax_remove_tree(out));
        assert_ok(ax_init_put(&text, &i));
        assert_non_null(strstr(text.data, "Full fine-tuning would need 1.50 GiB."));
        assert_non_null(
            strstr(text.data, "num_epochs: 1 # about 20 steps each\n")); /* 40 / (1·2) */
        snprintf(file, sizeof file, "%s", put_bytes("a.yaml", text.data, text.len));
        ax_buf_free(&text);
        ax_init_data_free(&i.data);
        const char *const train[] = {"sft", file, "max_steps=2", NULL};
        if (axtrain(said, sizeof said, train) != 0 || !strstr(said, "trained 2 of 2 steps"))
            fail_msg("%s", said);
        assert_true(ax_path_exists(in_scratch("out/adapter_config.json")));
    }
}

/* A prompt of lines stands as lines, anything else in quotes: the text is the same to the byte. */
static void prompts_are_kept(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool lines;
    } all[] = {{"<|im_start|>user\n{instruction}<|im_end|>\n<|im_start|>assistant\n", true},
               {"# a: - {instruction}\n\n  'x'\nA:\n", false}, /* an indented line */
               {"# a: - {instruction}\n\n'x': \"y\"\n", true},
               {"[INST] {instruction} [/INST]", false},
               {"Q: {instruction} \nA:\n", false},
               {"{instruction}\n\n", false},
               {"\n{instruction}\n", false},
               {"\t{instruction}\n", false},
               {"\x7f{instruction}\n", false},
               {" {instruction}\n", false},
               {"~{instruction}\n", true},
               {"a\n", true},
               {"é {instruction}\n", false},
               {"\n", false}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char prompt[128];
        snprintf(prompt, sizeof prompt, "%s", all[i].text);
        const struct ax_init_data d = {.path = "rows.jsonl",
                                       .is.kind = AX_RECORD_PAIR,
                                       .is.prompt = "question",
                                       .is.answer = "answer",
                                       .prompt_format = prompt};
        struct ax_buf text = {0};
        struct ax_config cfg;
        assert_ok(ax_init_put_entry(&text, &d));
        assert_true((strstr(text.data, "format: |\n") != NULL) == all[i].lines);
        assert_ok(ax_config_parse(&cfg, "c.yaml", text.data, text.len, 0, NULL));
        assert_string_equal(ax_config_str(&cfg, "datasets.0.type.no_input_format"), prompt);
        assert_string_equal(ax_config_str(&cfg, "datasets.0.type.field_output"), "answer");
        ax_config_free(&cfg);
        ax_buf_free(&text);
    }
}

static void plans_and_prepares(void **state) {
    (void)state;
    need_binary();
    char said[8192], file[256], base[512];
    snprintf(file, sizeof file, "%s", in_scratch("p.yaml"));
    snprintf(base, sizeof base, "%s", model("qwen3"));
    const char *const init[] = {"init", "--model", base, "--data", rows_of(AX_RECORD_PAIR, false),
                                "-o",   file,      NULL};
    if (axtrain(said, sizeof said, init) != 0)
        fail_msg("%s", said);
    setenv("WORLD_SIZE", "2", 1); /* what a launcher sets keeps nobody from planning */
    const char *const plan[] = {"plan", file, "micro_batch_size=3", NULL};
    if (axtrain(said, sizeof said, plan) != 0 || !strstr(said, "of 3 × ") ||
        !strstr(said, ", selective ") || !strstr(said, "auto chooses the first"))
        fail_msg("%s", said);
    const char *const one[] = {"plan", "--json", file, "gradient_checkpointing=true", NULL};
    if (axtrain(said, sizeof said, one) != 0 || strstr(said, "\"selective\"") ||
        !strstr(said, "\"on\""))
        fail_msg("%s", said);
    unsetenv("WORLD_SIZE");
    const char *const prepare[] = {"preprocess", file, NULL};
    if (axtrain(said, sizeof said, prepare) != 2 ||
        !strstr(said, "p.yaml: dataset_prepared_path: last_run_prepared"))
        fail_msg("%s", said);
}

static void usage(void **state) {
    (void)state;
    char *none[] = {(char[]){"init"}};
    char *one[] = {(char[]){"init"}, (char[]){"--model"}, (char[]){"m"}};
    char file[256];
    assert_error(ax_cmd_init(1, none), AX_ERR_CONFIG, "--model and --data are missing");
    assert_error(ax_cmd_init(3, one), AX_ERR_CONFIG, "--data is missing");
    snprintf(file, sizeof file, "%s", put_text("there.yaml", "mine"));
    char *there[] = {(char[]){"init"}, (char[]){"--model"}, (char[]){"m"}, (char[]){"--data"},
                     (char[]){"d"},    (char[]){"-o"},      file};
    assert_error(ax_cmd_init(7, there), AX_ERR_CONFIG, "already exists");
    char *text;
    size_t len;
    assert_ok(ax_read_file(file, 100, &text, &len));
    assert_string_equal(text, "mine");
    ax_free(text);
    there[6] = (char[]){"new.yaml"};
    assert_error(ax_cmd_init(7, there), AX_ERR_CONFIG, "--model");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_of_rows),
        cmocka_unit_test(rows_that_do_not_do),
        cmocka_unit_test(lengths_choose_rows),
        cmocka_unit_test(pairs_need_more),
        cmocka_unit_test(memory_chooses_the_method),
        cmocka_unit_test(less_memory_goes_through_all_options),
        cmocka_unit_test(folders_are_named),
        cmocka_unit_test(what_is_written_trains),
        cmocka_unit_test(tools_are_written),
        cmocka_unit_test(any_number_of_rows),
        cmocka_unit_test(rows_that_train_nothing),
        cmocka_unit_test(the_adapter_files_train),
        cmocka_unit_test(prompts_are_kept),
        cmocka_unit_test(plans_and_prepares),
        cmocka_unit_test(usage),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
