/* `--adapter [NAME=]DIR`: names, what cannot be together, and `axtrain generate` with several. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>

#include "model/adapter/adapters.h"
#include "cmd/commands.h"
#include "tests/cmd/command_case.h"
#include "tests/data/scratch.h"
#include "tests/golden_files.h"

static char *q_proj[] = {"q_proj"}, *embed[] = {"embed_tokens"};

static enum ax_status zeros(void *ctx, int64_t first, int64_t n, void *out) {
    (void)ctx;
    (void)first;
    memset(out, 0, (size_t)n * sizeof(float));
    return AX_OK;
}

/* Makes an adapter folder that opens; with `vocab` > 0 it saves an embedding of `vocab` tokens. */
static void make_adapter(const char *name, int64_t vocab) {
    const struct ax_peft_config c = {
        .r = 1, .alpha = 1, .targets = {1, q_proj}, .save = {vocab > 0, embed}};
    const struct ax_st_output t = {.name = AX_PEFT_PREFIX "model.embed_tokens.weight",
                                   .dtype = AX_F32,
                                   .ndim = 2,
                                   .shape = {vocab > 0 ? vocab : 1, 4},
                                   .fill = zeros};
    make_folder(name);
    assert_int_equal(ax_remove_tree(in_scratch(name)), AX_OK);
    assert_int_equal(ax_peft_write(in_scratch(name), &c, 1, &t), AX_OK);
}

/* One of a single matrix, by its tensor's name. */
static void make_one_of(const char *name, const char *tensor, int64_t columns) {
    const struct ax_peft_config c = {.r = 1, .alpha = 1, .targets = {1, q_proj}};
    const struct ax_st_output t = {
        .name = tensor, .dtype = AX_F32, .ndim = 2, .shape = {1, columns}, .fill = zeros};
    make_folder(name);
    assert_int_equal(ax_remove_tree(in_scratch(name)), AX_OK);
    assert_int_equal(ax_peft_write(in_scratch(name), &c, 1, &t), AX_OK);
}

/* Arguments with '@' for the scratch folder. */
static enum ax_status open_them(struct ax_adapters *a, struct ax_arch *arch, int n,
                                const char *const *args) {
    static char text[AX_ARG_LIST_MAX][256];
    struct ax_arg_list list = {.n = n};
    *arch = (struct ax_arch){.vocab_size = 100};
    for (int i = 0; i < n; i++) {
        const char *at = strchr(args[i], '@');
        snprintf(text[i], sizeof text[i], "%.*s%s%s", (int)(at - args[i]), args[i], scratch,
                 at + 1);
        list.text[i] = text[i];
    }
    return ax_adapters_open(a, &list, scratch, arch);
}
#define OPEN(a, arch, ...)                                                                         \
    open_them(a, arch, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *),                     \
              (const char *[]){__VA_ARGS__})

static void names(void **state) {
    (void)state;
    struct ax_adapters a;
    struct ax_arch arch;
    struct ax_buf list = {0};
    int which = 5;
    make_adapter("x/math", 0);
    make_adapter("y/math", 0);
    make_adapter("a=b", 0);
    assert_int_equal(OPEN(&a, &arch, "@/x/math//", "other=@/y/math", "@/a=b"), AX_OK);
    assert_int_equal(ax_adapters_list(&a, &list), AX_OK);
    assert_string_equal(list.data, "base, math, other, a=b");
    ax_buf_free(&list);
    assert_int_equal(ax_adapters_find(&a, "other", &which), AX_OK);
    assert_int_equal(which, 1);
    assert_int_equal(ax_adapters_find(&a, "base", &which), AX_OK);
    assert_int_equal(which, AX_ADAPTER_NONE);
    assert_error(ax_adapters_find(&a, "Math", &which), AX_ERR_CONFIG,
                 "no adapter is named \"Math\"; available: base, math, other, a=b");
    ax_adapters_close(&a);
    assert_int_equal(ax_adapters_find(&a, "base", &which), AX_OK);
    assert_error(ax_adapters_find(&a, "x", &which), AX_ERR_CONFIG,
                 "add adapters with --adapter NAME=DIR");

    const uint64_t live = ax_mem_live_blocks();
    assert_error(OPEN(&a, &arch, "@/x/math", "@/y/math"), AX_ERR_CONFIG,
                 "/x/math is also named \"math\"; rename one of them");
    assert_error(OPEN(&a, &arch, "base=@/x/math"), AX_ERR_CONFIG,
                 "\"base\" means the model itself");
    assert_error(OPEN(&a, &arch, "=@/x/math"), AX_ERR_CONFIG, "expected DIR or NAME=DIR");
    assert_error(OPEN(&a, &arch, "@/x/math", "@/nowhere"), AX_ERR_DATA,
                 "/nowhere: no adapter: adapter_config.json is missing. Give a folder");
    assert_error(OPEN(&a, &arch, "@/x"), AX_ERR_DATA,
                 "/x: no adapter: adapter_config.json is missing, but ");
    assert_error(OPEN(&a, &arch, "@/x"), AX_ERR_DATA, "/x/math has one: give that");
    assert_int_equal(ax_mem_live_blocks(), live);
}

/* A place takes an adapter of the same matrices, whatever PEFT has stored beside them of the base. */
static void places_have_a_shape(void **state) {
    (void)state;
    static const char q[] = AX_PEFT_PREFIX "model.layers.0.self_attn.q_proj.lora_A.weight",
                      v[] = AX_PEFT_PREFIX "model.layers.0.self_attn.v_proj.lora_A.weight",
                      base[] = AX_PEFT_PREFIX "lm_head.base_layer.weight";
    static const struct {
        const char *tensor;
        int64_t columns;
        const char *why;
    } rows[] = {{q, 4, NULL},
                {q, 8, "q_proj.lora_A.weight is not that of"},
                {v, 4, "v_proj"},
                {base, 4, "q_proj"}};
    struct ax_adapters a;
    struct ax_arch arch;
    make_one_of("first", q, 4);
    assert_int_equal(OPEN(&a, &arch, "@/first"), AX_OK);
    assert_int_equal(ax_adapters_add_slots(&a, 1), AX_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ax_peft other;
        make_one_of("second", rows[i].tensor, rows[i].columns);
        assert_int_equal(ax_peft_open(&other, in_scratch("second")), AX_OK);
        if (rows[i].why)
            assert_error(ax_adapters_match(&a, 1, &other), AX_ERR_CONFIG, rows[i].why);
        else
            assert_int_equal(ax_adapters_match(&a, 1, &other), AX_OK);
        ax_peft_close(&other);
    }
    ax_adapters_close(&a);
}

static void another_vocabulary_is_alone(void **state) {
    (void)state;
    struct ax_adapters a;
    struct ax_arch arch;
    int which;
    make_adapter("plain", 0);
    make_adapter("grown", 107);
    make_adapter("same", 100);
    assert_int_equal(OPEN(&a, &arch, "@/plain", "@/same"), AX_OK);
    assert_int_equal(arch.vocab_size, 100);
    ax_adapters_close(&a);
    assert_int_equal(OPEN(&a, &arch, "@/grown"), AX_OK);
    assert_int_equal(arch.vocab_size, 107);
    assert_int_equal(ax_adapters_find(&a, "grown", &which), AX_OK);
    assert_error(ax_adapters_find(&a, "base", &which), AX_ERR_UNSUPPORTED,
                 "grown was trained with a larger vocabulary than its base");
    ax_adapters_close(&a);
    assert_error(
        OPEN(&a, &arch, "@/plain", "@/grown"), AX_ERR_UNSUPPORTED,
        "/grown: the adapter was trained with a vocabulary of 107 tokens, but its base has 100");
}

/* ---- axtrain generate ---- */

static char model[512], lora[512], dora[512], output[1 << 16];

static void find_models(void) {
    snprintf(model, sizeof model, "%s", golden_path("models/llama"));
    snprintf(lora, sizeof lora, "%s", golden_path("lora/llama_r4_rslora"));
    snprintf(dora, sizeof dora, "dora=%s", golden_path("lora/llama_r4_dora"));
}

/* What it prints is in `output` after it. */
static enum ax_status generate(int n, char **more) {
    char *argv[40] = {"generate",         "--model", model,           "--dtype",
                      "float32",          "--json",  "--temperature", "1",
                      "--max-new-tokens", "9",       "--adapter",     lora};
    const char *out = in_scratch("out");
    for (int i = 0; i < n; i++)
        argv[12 + i] = more[i];
    return run_command(ax_cmd_generate, 12 + n, argv, NULL, out, output, sizeof output);
}
#define GENERATE(...)                                                                              \
    generate(sizeof((char *[]){__VA_ARGS__}) / sizeof(char *), (char *[]){__VA_ARGS__})

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

/* Answers by their number, without the adapter's name, which `who` gets. */
static json_t *answer(int i, const char **who, json_t *keep) {
    const char *at = output;
    while (i-- > 0 && (at = strchr(at, '\n')) != NULL)
        at++;
    assert_non_null(at);
    json_t *row = json_loadb(at, strcspn(at, "\n"), 0, NULL);
    json_t *name = json_object_get(row, "adapter");
    assert_true(json_is_string(name));
    json_array_append(keep, name);
    *who = json_string_value(name);
    json_object_del(row, "adapter");
    json_array_append_new(keep, row);
    return row;
}

/* Sampled answers of each: those that it gives alone. */
static void each_is_what_it_is_alone(void **state) {
    (void)state;
    find_models();
    json_t *keep = json_array();
    const char *rows = put_text("rows.jsonl", "{\"prompt\": \"The train\"}\n{\"messages\": "
                                              "[{\"role\": \"user\", \"content\": \"hi\"}]}\n");
    char *input = (char *)(uintptr_t)rows;
    must(GENERATE("--adapter", dora, "--input", input, "--n", "2", "--each-adapter"));
    static const char *const order[] = {"base", "llama_r4_rslora", "dora"};
    json_t *together[3][4];
    const char *who;
    for (int i = 0; i < 12; i++) {
        together[i / 2 % 3][i / 6 * 2 + i % 2] = answer(i, &who, keep);
        assert_string_equal(who, order[i / 2 % 3]);
    }
    assert_false(json_equal(together[0][0], together[1][0]));
    assert_false(json_equal(together[1][0], together[2][0]));
    must(GENERATE("--input", input, "--n", "2")); /* the first one is meant */
    for (int i = 0; i < 4; i++)
        assert_true(json_equal(answer(i, &who, keep), together[1][i]));
    const char *own = put_text("own.jsonl", "{\"prompt\": \"The train\", \"adapter\": \"dora\"}\n"
                                            "{\"messages\": [{\"role\": \"user\", \"content\": "
                                            "\"hi\"}], \"adapter\": \"base\"}\n");
    must(
        GENERATE("--adapter", dora, "--input", (char *)(uintptr_t)own, "--n", "2", "--batch", "1"));
    for (int i = 0; i < 4; i++)
        assert_true(json_equal(answer(i, &who, keep), together[i < 2 ? 2 : 0][i]));
    must(GENERATE("--adapter", dora, "--input", input, "--base", "nf4"));
    assert_false(json_equal(answer(0, &who, keep), together[1][0]));
    json_decref(keep);
}

/* Training puts tokenizer and template beside the weights: they are the adapter's. */
static void its_own_template(void **state) {
    (void)state;
    static const char *const files[] = {"tokenizer.json", "tokenizer_config.json"};
    find_models();
    char from[600], name[64], own[300], *text;
    size_t len;
    make_folder("own");
    for (int i = 0; i < 4; i++) {
        const char *file = i < 2 ? files[i] : i == 2 ? AX_PEFT_CONFIG : AX_PEFT_WEIGHTS;
        snprintf(from, sizeof from, "%s/%s", i < 2 ? model : lora, file);
        snprintf(name, sizeof name, "own/%s", file);
        assert_int_equal(ax_read_file(from, 1 << 24, &text, &len), AX_OK);
        put_bytes(name, text, len);
        ax_free(text);
    }
    put_text("own/chat_template.jinja", "{{ messages[0]['content'] }}");
    snprintf(own, sizeof own, "%s", in_scratch("own"));
    json_t *keep = json_array();
    const char *who;
    must(GENERATE("--adapter", own, "--prompt", "hi", "--chat", "--each-adapter"));
    const json_t *tokens[3];
    for (int i = 0; i < 3; i++)
        tokens[i] = json_object_get(answer(i, &who, keep), "prompt_tokens");
    assert_true(json_equal(tokens[0], tokens[1]));
    assert_in_range(json_integer_value(tokens[2]), 1, 2);
    json_decref(keep);
}

static void mistakes(void **state) {
    (void)state;
    find_models();
    const char *rows = put_text("wrong.jsonl", "{\"prompt\": \"a\"}\n"
                                               "{\"prompt\": \"a\", \"adapter\": \"doro\"}\n");
    assert_error(GENERATE("--adapter", dora, "--input", (char *)(uintptr_t)rows), AX_ERR_CONFIG,
                 "wrong.jsonl:2: no adapter is named \"doro\"; available: base, llama_r4_rslora, "
                 "dora");
    assert_error(GENERATE("--adapter", dora, "--input", (char *)(uintptr_t)rows, "--each-adapter"),
                 AX_ERR_DATA, "wrong.jsonl:2");
    assert_error(GENERATE("--prompt", "a", "--base", "nf5"), AX_ERR_CONFIG, "nf5");
    char *none[] = {"generate", "--model", model, "--prompt", "a", "--each-adapter"};
    assert_error(ax_cmd_generate(6, none), AX_ERR_CONFIG, "--each-adapter needs --adapter");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(places_have_a_shape),
        cmocka_unit_test(another_vocabulary_is_alone),
        cmocka_unit_test(each_is_what_it_is_alone),
        cmocka_unit_test(its_own_template),
        cmocka_unit_test(mistakes),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
