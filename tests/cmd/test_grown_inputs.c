/* New tokens for a model with inputs of each layer (Gemma 4 E2B): their table gets rows with the embedding's, on every
 * mesh, and config.json says so; an adapter has the table, too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "base/hash/hash.h"
#include "base/rng.h"
#include "base/text/json.h"
#include "ckpt/hf/hf.h"
#include "tests/cmd/program_case.h"
#include "tests/cmd/tiny_base.h"

#define TABLE  "model.embed_tokens_per_layer.weight"
#define SAVED  "embed_tokens, lm_head"
#define STORED 576 /* rows of a tiny base */
#define TOKENS 70  /* that are added to the 512 of the tokenizer */
#define ROWS   582

#define E2B                                                                                        \
    "\"model_type\": \"gemma4_text\", \"architectures\": [\"Gemma4ForCausalLM\"], \"head_dim\": "  \
    "16, \"global_head_dim\": 32, \"sliding_window\": 32, \"num_kv_shared_layers\": 1, "           \
    "\"layer_types\": [\"sliding_attention\", \"full_attention\", \"full_attention\"], "           \
    "\"hidden_size_per_layer_input\": 8, \"vocab_size_per_layer_input\": "
static const struct tiny_family exact = {"exact", "llama", E2B "576"},
                                ample = {"ample", "llama", E2B "600"};

static char out[1 << 16];

/* Runs a command, which must say `part`. */
#define RUN(code, part, ...)                                                                       \
    do {                                                                                           \
        const int got_ = run(out, sizeof out, __VA_ARGS__);                                        \
        if (got_ != (code) || !strstr(out, part))                                                  \
            fail_msg("exit %d, wanted %d and \"%s\" in: %s", got_, code, part, out);               \
    } while (0)

/* With TOKENS tokens more than the tokenizer has. */
static void put_config(void) {
    struct ax_buf b = {0};
    put_text("rows.jsonl",
             "{\"text\": \"one <new_0> and <new_69>\"}\n{\"text\": \"two <new_68>\"}\n");
    assert_ok(ax_buf_printf(&b,
                            "dataset_prepared_path: %s/cache\ndatasets:\n  - path: %s/rows.jsonl\n"
                            "    type: completion\nsequence_len: 64\nmicro_batch_size: 1\n"
                            "gradient_accumulation_steps: 2\nfloat32: true\nmax_steps: 2\n"
                            "num_epochs: 9\nlogging_steps: 1\nlearning_rate: 1e-12\ntokens: [",
                            scratch, scratch));
    for (int i = 0; i < TOKENS; i++)
        assert_ok(ax_buf_printf(&b, "%s<new_%d>", i ? ", " : "", i));
    assert_ok(ax_buf_puts(&b, "]\n"));
    put_bytes("c.yaml", b.data, b.len);
    ax_buf_free(&b);
}

/* SCRATCH/<name>-base: random weights. */
static void make_base(const struct tiny_family *f) {
    tiny_base(f);
    RUN(0, "trained 1 of 1",
        "sft '%s/c.yaml' base_model='%s/%s' output_dir='%s/%s-base' tokens=null max_steps=1 "
        "reinit_weights=true",
        scratch, scratch, f->prefix, scratch, f->prefix);
}

static int make_files(void **state) {
    scratch_make(state);
    put_config();
    make_base(&exact);
    make_base(&ample);
    return 0;
}

static void check_config(const char *folder, int vocab, int table) {
    struct ax_json_doc doc;
    char path[64];
    snprintf(path, sizeof path, "%s/config.json", folder);
    assert_ok(ax_json_load(&doc, in_scratch(path), 1 << 20));
    assert_int_equal(json_integer_value(json_object_get(doc.root, "vocab_size")), vocab);
    assert_int_equal(json_integer_value(json_object_get(doc.root, "vocab_size_per_layer_input")),
                     table);
    ax_json_free(&doc);
}

/* The base's rows and then new ones: their mean, or a draw that belongs to a row and column. */
static void check_table(const char *folder, bool mean) {
    struct ax_hf base, hf;
    assert_ok(ax_hf_open(&base, in_scratch("exact-base")));
    assert_ok(ax_hf_open(&hf, in_scratch(folder)));
    const struct ax_st_entry *was = ax_hf_find(&base, TABLE), *is = ax_hf_find(&hf, TABLE);
    const struct ax_rng_key key = {0, 0, ax_hash32(TABLE)};
    assert_true(was && is && was->shape[0] == STORED && is->shape[0] == ROWS);
    const int64_t cols = is->shape[1];
    for (int64_t k = 0; k < cols; k++) {
        double sum = 0;
        for (int64_t i = 0; i < ROWS; i++) {
            const double v = ax_load(is->dtype, is->data, i * cols + k);
            const double drawn = (double)ax_rng_normal(key, (uint64_t)(i * cols + k)) * 0.02;
            if (i < STORED)
                sum += ax_load(was->dtype, was->data, i * cols + k);
            const double expected = i < STORED ? ax_load(was->dtype, was->data, i * cols + k)
                                    : mean     ? sum / STORED
                                               : drawn;
            assert_true(fabs(v - expected) < 1e-6);
        }
    }
    ax_hf_close(&base);
    ax_hf_close(&hf);
}

static void test_the_table_grows(void **state) {
    (void)state;
    static const struct {
        const char *name, *launch, *words;
        bool mean;
    } runs[] = {
        {"one", "", "", false},
        {"mean", "", "mean_resizing_embeddings=true", true},
        {"tp", "launch -n 2 -- ", "tensor_parallel_size=2", false},
        {"fsdp", "launch -n 2 -- ", "dp_shard_size=2", false},
        {"pp", "launch -n 2 -- ", "pipeline_parallel_size=2", false},
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        const int accumulate = strstr(runs[i].words, "dp_shard") ? 1 : 2;
        RUN(0, "trained 2 of 2",
            "%ssft '%s/c.yaml' base_model='%s/exact-base' output_dir='%s/%s' "
            "gradient_accumulation_steps=%d %s",
            runs[i].launch, scratch, scratch, scratch, runs[i].name, accumulate, runs[i].words);
        check_config(runs[i].name, ROWS, ROWS);
        check_table(runs[i].name, runs[i].mean);
    }
    /* a table that has rows enough stays */
    RUN(0, "trained 2 of 2", "sft '%s/c.yaml' base_model='%s/ample-base' output_dir='%s/enough'",
        scratch, scratch, scratch);
    check_config("enough", ROWS, 600);
}

#define LORA                                                                                       \
    "adapter=lora lora_r=4 lora_alpha=8 lora_target_modules='[q_proj]' learning_rate=1e-3 "        \
    "lora_modules_to_save="

static void test_adapters_have_the_table(void **state) {
    (void)state;
    RUN(2,
        "the tokenizer's ids reach 581, but the model has 576 embeddings: rows are only added and "
        "trained with lora_modules_to_save: [" SAVED ", embed_tokens_per_layer]",
        "sft '%s/c.yaml' base_model='%s/exact-base' output_dir='%s/a' " LORA "'[" SAVED "]'",
        scratch, scratch, scratch);
    RUN(0, "trained 2 of 2",
        "sft '%s/c.yaml' base_model='%s/exact-base' output_dir='%s/a' " LORA "'[" SAVED
        ", embed_tokens_per_layer]'",
        scratch, scratch, scratch);
    RUN(0, "perplexity",
        "eval '%s/exact-base' --adapter '%s/a' --data '%s/rows.jsonl' --type "
        "completion",
        scratch, scratch, scratch);
    const double adapted = strtod(strstr(out, "perplexity") + 10, NULL);
    RUN(0, "", "merge '%s/exact-base' '%s/a' '%s/merged'", scratch, scratch, scratch);
    check_config("merged", ROWS, ROWS);
    RUN(0, "perplexity", "eval '%s/merged' --data '%s/rows.jsonl' --type completion", scratch,
        scratch);
    assert_true(fabs(strtod(strstr(out, "perplexity") + 10, NULL) / adapted - 1) < 1e-4);
    /* one that had rows enough where it was trained */
    RUN(0, "trained 2 of 2",
        "sft '%s/c.yaml' base_model='%s/ample-base' output_dir='%s/b' " LORA "'[" SAVED "]'",
        scratch, scratch, scratch);
    RUN(3,
        "the adapter was trained with a vocabulary of 582 tokens, and lacks the per-layer inputs "
        "of "
        "those after 576. Train it with modules_to_save: [" SAVED ", embed_tokens_per_layer].",
        "eval '%s/exact-base' --adapter '%s/b' --data '%s/rows.jsonl' --type completion", scratch,
        scratch, scratch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_table_grows),
        cmocka_unit_test(test_adapters_have_the_table),
    };
    return cmocka_run_group_tests(tests, make_files, scratch_remove);
}
