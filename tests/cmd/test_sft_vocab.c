/* `axtrain sft` with tokens the base does not have, and with frozen parameters: the saved model and
 * its tokenizer agree, new rows begin as asked for, and what is frozen stays as it was. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "base/hash/hash.h"
#include "base/rng.h"
#include "ckpt/hf/hf.h"
#include "ckpt/hf/peft.h"
#include "model/convert/merge.h"
#include "data/text/tokenizer/tokenizer.h"
#include "model/arch/arch.h"
#include "tests/cmd/sft_case.h"

static const char rows[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"one <new_0>\"}, {\"role\": \"assistant\", "
    "\"content\": \"<new_11> two\"}]}\n"
    "{\"messages\": [{\"role\": \"user\", \"content\": \"say yes\"}, {\"role\": \"assistant\", "
    "\"content\": \"yes <new_3>\"}]}\n";

/* With a rate of nothing unless `more` says otherwise. */
static const char *config(const char *more) {
    static char path[128];
    struct ax_buf b = {0};
    need_binary();
    put_bytes("rows.jsonl", rows, sizeof rows - 1);
    assert_ok(ax_buf_printf(&b,
                            "base_model: %s\noutput_dir: %s/out\ndataset_prepared_path: %s/cache\n"
                            "datasets:\n  - path: %s/rows.jsonl\n    type: chat_template\n"
                            "chat_template: llama3\nsequence_len: 64\nmicro_batch_size: 2\n"
                            "logging_steps: 1\nfloat32: true\nnum_epochs: 9\nmax_steps: 2\n%s",
                            golden_llama(), scratch, scratch, scratch, more));
    snprintf(path, sizeof path, "%s", put_bytes("c.yaml", b.data, b.len));
    ax_buf_free(&b);
    return path;
}

/* The golden model has 512 embeddings, one for each id. */
#define TWELVE                                                                                     \
    "tokens: [<new_0>, <new_1>, <new_2>, <new_3>, <new_4>, <new_5>, <new_6>, <new_7>, <new_8>, "   \
    "<new_9>, <new_10>]\nspecial_tokens:\n  additional_special_tokens: [<new_11>]\n"

static void clear(void) {
    assert_ok(ax_remove_tree(in_scratch("out")));
}

static const struct ax_st_entry *tensor(const struct ax_hf *hf, const char *name) {
    const struct ax_st_entry *e = ax_hf_find(hf, name);
    assert_non_null(e);
    return e;
}

/* config.json, weights and tokenizer of a folder say the same. */
static void check_folder(const char *dir, int64_t vocab, size_t ids) {
    struct ax_arch arch;
    struct ax_hf hf;
    struct ax_tokenizer *t;
    struct ax_encoding e = {0};
    assert_ok(ax_arch_load(&arch, dir));
    assert_int_equal(arch.vocab_size, vocab);
    assert_ok(ax_hf_open(&hf, dir));
    assert_int_equal(tensor(&hf, "model.embed_tokens.weight")->shape[0], vocab);
    assert_int_equal(tensor(&hf, "lm_head.weight")->shape[0], vocab);
    assert_ok(ax_tokenizer_load(&t, dir));
    assert_int_equal(ax_tokenizer_size(t), ids);
    assert_ok(ax_tokenizer_encode(t, "<new_3><new_11>", 15, &(struct ax_encode_options){0}, &e));
    assert_int_equal(e.n, 2);
    assert_true(e.ids[0] > 511 && e.ids[1] > 511 && e.ids[0] != e.ids[1]);
    assert_false(ax_tokenizer_is_special(t, e.ids[0]));
    assert_true(ax_tokenizer_is_special(t, e.ids[1]));
    ax_encoding_free(&e);
    ax_tokenizer_free(t);
    ax_hf_close(&hf);
    ax_arch_free(&arch);
}

/* Rows from 512 on: each the mean of the old ones, or of init_range's spread. */
static void check_rows(const char *name, bool mean) {
    struct ax_hf base, hf;
    assert_ok(ax_hf_open(&base, golden_llama()));
    assert_ok(ax_hf_open(&hf, in_scratch("out")));
    const struct ax_st_entry *was = tensor(&base, name), *is = tensor(&hf, name);
    const int64_t cols = is->shape[1];
    double squares = 0;
    for (int64_t k = 0; k < cols; k++) {
        double sum = 0;
        for (int64_t i = 0; i < 512; i++) {
            const double v = ax_load(was->dtype, was->data, i * cols + k);
            assert_true(fabs(ax_load(is->dtype, is->data, i * cols + k) - v) < 1e-6);
            sum += v;
        }
        for (int64_t i = 512; i < is->shape[0]; i++) {
            const double v = ax_load(is->dtype, is->data, i * cols + k);
            /* a draw belongs to its row and column, however many rows are added */
            const struct ax_rng_key key = {0, 0, ax_hash32(name)};
            const double drawn = (double)ax_rng_normal(key, (uint64_t)(i * cols + k)) * 0.02;
            assert_true(fabs(v - (mean ? sum / 512 : drawn)) < 1e-6);
            squares += v * v;
        }
    }
    const double spread = sqrt(squares / (double)((is->shape[0] - 512) * cols));
    if (!mean)
        assert_true(fabs(spread / 0.02 - 1) < 0.15);
    ax_hf_close(&base);
    ax_hf_close(&hf);
}

static void test_tokens_grow_the_model(void **state) {
    (void)state;
    const char *path = config(TWELVE);
    EXPECT(0, "trained 2 of 2", path, "learning_rate=1e-12", "save_steps=1");
    check_folder(in_scratch("out"), 524, 524);
    check_folder(in_scratch("out/checkpoint-1"), 524, 524);
    check_rows("model.embed_tokens.weight", false);
    check_rows("lm_head.weight", false);
    EXPECT(0, "trained 3 of 3", path, "learning_rate=1e-12", "save_steps=1", "max_steps=3",
           "resume_from_checkpoint=auto");
    /* 524 rows are enough for 524 ids: an adapter adds none to round them up */
    char grown[160], out[160];
    snprintf(grown, sizeof grown, "base_model=%s", in_scratch("out"));
    snprintf(out, sizeof out, "output_dir=%s", in_scratch("adapted"));
    EXPECT(0, "trained 2 of 2", path, grown, out, "learning_rate=1e-3", "adapter=lora", "lora_r=4",
           "lora_alpha=8", "lora_target_modules=[q_proj]", "resize_token_embeddings_to_32x=true");
    assert_ok(ax_remove_tree(in_scratch("adapted")));
    /* with a tokenizer that lacks them they are new, and an adapter does not train their rows */
    char older[160];
    snprintf(older, sizeof older, "tokenizer_config=%s", golden_llama());
    EXPECT(2,
           "12 of tokens and special_tokens are new, and the rows of such tokens are only trained "
           "with lora_modules_to_save: [embed_tokens, lm_head]",
           path, grown, older, out, "learning_rate=1e-3", "adapter=lora", "lora_r=4",
           "lora_alpha=8", "lora_target_modules=[q_proj]");
    EXPECT(0, "trained 2 of 2", path, grown, older, out, "learning_rate=1e-3", "tokens=null",
           "special_tokens={pad_token: <new_11>}", "adapter=lora", "lora_r=4", "lora_alpha=8",
           "lora_target_modules=[q_proj]");
    assert_ok(ax_remove_tree(in_scratch("adapted")));
    clear();
    EXPECT(0, "trained 2 of 2", path, "learning_rate=1e-12", "mean_resizing_embeddings=true",
           "resize_token_embeddings_to_32x=true");
    check_folder(in_scratch("out"), 544, 524);
    check_rows("model.embed_tokens.weight", true);
    check_rows("lm_head.weight", true);
    clear();
}

static void test_tokens_with_an_adapter(void **state) {
    (void)state;
    const char *path = config(TWELVE "adapter: lora\nlora_r: 4\nlora_alpha: 8\n"
                                     "lora_target_modules: [q_proj]\nlearning_rate: 1e-3\n");
    EXPECT(2,
           "the tokenizer's ids reach 523, but the model has 512 embeddings: rows are only added "
           "and trained with lora_modules_to_save: [embed_tokens, lm_head]",
           path);
    EXPECT(0, "trained 2 of 2", path, "lora_modules_to_save=[embed_tokens, lm_head]");
    struct ax_merge m = {
        .base = golden_llama(), .adapter = in_scratch("out"), .dst = in_scratch("m"), .threads = 1};
    assert_ok(ax_merge_run(&m));
    check_folder(in_scratch("m"), 524, 524);
    assert_ok(ax_remove_tree(in_scratch("m")));
    clear();
}

/* What the tokenizer's two files say of a folder: of the pad token, and where `key` is set. */
static void check_pad(const char *name, bool has_pad) {
    struct ax_json_doc doc;
    char path[64];
    snprintf(path, sizeof path, "out/%s", name);
    assert_ok(ax_json_load(&doc, in_scratch(path), 16 << 20));
    const char *pad = json_string_value(json_object_get(doc.root, "pad_token"));
    if (has_pad)
        assert_string_equal(pad, "<new_11>");
    else
        assert_null(json_object_get(doc.root, "pad_token"));
    assert_null(json_object_get(doc.root, "unk_token"));
    ax_json_free(&doc);
}

/* The ids of config.json and generation_config.json, which transformers' Trainer aligns with the
 * tokenizer. */
static void check_ids(int bos, int pad) {
    static const char *const files[] = {"out/config.json", "out/generation_config.json"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        json_t *v = json_load_file(in_scratch(files[i]), 0, NULL);
        assert_int_equal(json_integer_value(json_object_get(v, "bos_token_id")), bos);
        assert_int_equal(json_integer_value(json_object_get(v, "pad_token_id")), pad);
        json_decref(v);
    }
}

/* Roles of tokens are named in tokenizer_config.json; tokenizer.json has the tokens alone. */
static void test_roles_of_tokens(void **state) {
    (void)state;
    const char *path = config(TWELVE "  pad_token: <new_11>\n");
    struct ax_tokenizer *t;
    EXPECT(0, "trained 1 of 1", path, "learning_rate=1e-12", "max_steps=1");
    check_folder(in_scratch("out"), 524, 524);
    check_pad("tokenizer_config.json", true);
    check_pad("tokenizer.json", false);
    assert_ok(ax_tokenizer_load(&t, in_scratch("out")));
    check_ids(500, ax_tokenizer_special_id(t, AX_PAD));
    ax_tokenizer_free(t);
    clear();
    EXPECT(0, "trained 1 of 1", config("special_tokens: {bos_token: <|reserved_0|>}\n"),
           "learning_rate=1e-12", "max_steps=1");
    check_ids(508, 507);
    clear();
}

/* Files that not every tokenizer has say the same, and what else they say stays. */
static void test_roles_in_other_files(void **state) {
    (void)state;
    static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json",
                                        "tokenizer_config.json", "generation_config.json"};
    static const char roles[] =
        "{\"pad_token\": {\"content\": \"<|reserved_0|>\", \"lstrip\": true}, \"eos_token\": "
        "\"<|eot_id|>\", \"more\": [1]}";
    char path[64], own[160];
    make_folder("own");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "own/%s", files[i]);
        char *from = realpath(golden_path("models/llama"), NULL), to[600];
        snprintf(to, sizeof to, "%s/%s", from, files[i]);
        free(from);
        assert_int_equal(symlink(to, in_scratch(path)), 0);
    }
    put_text("own/special_tokens_map.json", roles);
    snprintf(own, sizeof own, "base_model=%s/own", scratch);
    EXPECT(0, "trained 1 of 1", config(TWELVE "  pad_token: <new_11>\n"), own,
           "learning_rate=1e-12", "max_steps=1");
    json_t *v = json_load_file(in_scratch("out/special_tokens_map.json"), 0, NULL);
    json_t *want = json_loads(roles, 0, NULL);
    assert_true(v && want);
    json_object_set_new(json_object_get(want, "pad_token"), "content", json_string("<new_11>"));
    assert_true(json_equal(v, want));
    json_decref(v);
    json_decref(want);
    assert_ok(ax_remove_tree(in_scratch("own")));
    clear();
}

/* Reserved ids get other texts, each its own. */
static void test_new_texts_of_tokens(void **state) {
    (void)state;
    const char *path = config("added_tokens_overrides: {508: <tool>, 509: <result>}\n");
    struct ax_tokenizer *t;
    struct ax_encoding e = {0};
    static const char text[] = "<result><tool><|reserved_0|>";
    EXPECT(0, "trained 1 of 1", path, "learning_rate=1e-12", "max_steps=1");
    assert_ok(ax_tokenizer_load(&t, in_scratch("out")));
    assert_ok(ax_tokenizer_encode(t, text, strlen(text), &(struct ax_encode_options){0}, &e));
    assert_true(e.n > 3 && e.ids[0] == 509 && e.ids[1] == 508);
    ax_encoding_free(&e);
    ax_tokenizer_free(t);
    clear();
}

/* ---- longer records than the base's ---- */

static int64_t positions_of(const char *dir) {
    struct ax_arch arch;
    assert_ok(ax_arch_load(&arch, in_scratch(dir)));
    const int64_t n = arch.max_positions;
    ax_arch_free(&arch);
    return n;
}

/* The golden model has 256 positions. */
static void test_models_read_what_they_were_trained_on(void **state) {
    (void)state;
    char text[1200] = "{\"text\": \"", data[200];
    for (int i = 0; i < 300; i++)
        strcat(text, "one");
    strcat(text, "\"}\n");
    const char *path = config("learning_rate: 1e-4\n");
    snprintf(data, sizeof data, "datasets=[{path: %s, type: completion}]",
             put_bytes("long.jsonl", text, strlen(text)));
    EXPECT(0, "but the model has 256 positions: saved models have max_position_embeddings: 1000",
           path, data, "sequence_len=1000", "max_steps=1");
    assert_int_equal(positions_of("out"), 1000);
    assert_int_equal(positions_of("out/checkpoint-1"), 1000);
    clear();
    EXPECT(0, "\nmodel: ", path, "sequence_len=1000", "max_steps=1");
    assert_int_equal(positions_of("out"), 256); /* no record is longer */
    clear();
    EXPECT(0, "but max_position_embeddings of the base is 256: generation and servers stop there",
           path, data, "sequence_len=1000", "max_steps=1", "adapter=lora", "lora_r=2",
           "lora_alpha=2", "lora_target_linear=true");
    clear();
    EXPECT(0, "but max_position_embeddings of saved models is 256: generation and servers stop",
           path, data, "sequence_len=1000", "max_steps=1",
           "model_config={rope_scaling: {rope_type: dynamic, factor: 2.0}}");
    assert_int_equal(positions_of("out"), 256);
    clear();
}

/* ---- unfrozen_parameters ---- */

static bool same(const struct ax_st_entry *a, const struct ax_st_entry *b) {
    return a->bytes == b->bytes && memcmp(a->data, b->data, a->bytes) == 0;
}

static void test_frozen_parameters_stay(void **state) {
    (void)state;
    struct ax_hf base, hf;
    const char *path = config("learning_rate: 1e-2\nsave_steps: 1\nunfrozen_parameters:\n"
                              "  - ^lm_head.weight$\n  - model.layers.[12].mlp\n");
    EXPECT(0, "frozen weights ", path);
    EXPECT(0, "trained 3 of 3", path, "max_steps=3", "resume_from_checkpoint=auto");
    assert_ok(ax_hf_open(&base, golden_llama()));
    assert_ok(ax_hf_open(&hf, in_scratch("out")));
    assert_int_equal(ax_hf_count(&hf), ax_hf_count(&base));
    for (int i = 0; i < ax_hf_count(&base); i++) {
        const struct ax_st_entry *e = ax_hf_at(&base, i);
        const bool trains = strcmp(e->name, "lm_head.weight") == 0 ||
                            strstr(e->name, "layers.1.mlp") || strstr(e->name, "layers.2.mlp");
        if (same(e, tensor(&hf, e->name)) == trains)
            fail_msg("%s %s", e->name, trains ? "stayed" : "changed");
    }
    ax_hf_close(&base);
    ax_hf_close(&hf);
    clear();
    EXPECT(2, "matches no parameter of this llama model", path, "unfrozen_parameters=[layers]");
    EXPECT(2, "training only some rows is not implemented", path,
           "unfrozen_parameters=['model.embed_tokens.weight[:100]']");
    EXPECT(2, "the rows of such tokens are only trained if model.embed_tokens.weight is among them",
           path, "tokens=[<new_0>]");
    EXPECT(2, "are only trained if lm_head.weight is among them", path, "tokens=[<new_0>]",
           "unfrozen_parameters=[model.embed_tokens.weight]");
    EXPECT(0, "trained 1 of 1", path, "max_steps=1", "tokens=[<new_0>]",
           "unfrozen_parameters=[model.embed_tokens.weight, lm_head]");
    clear();
    EXPECT(2, "cannot be combined with an adapter", path, "adapter=lora", "lora_r=4",
           "lora_alpha=8", "lora_target_linear=true");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens_grow_the_model),
        cmocka_unit_test(test_tokens_with_an_adapter),
        cmocka_unit_test(test_roles_of_tokens),
        cmocka_unit_test(test_roles_in_other_files),
        cmocka_unit_test(test_new_texts_of_tokens),
        cmocka_unit_test(test_frozen_parameters_stay),
        cmocka_unit_test(test_models_read_what_they_were_trained_on),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
