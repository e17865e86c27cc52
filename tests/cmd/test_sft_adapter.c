/* `axtrain sft` with adapters: LoRA, QLoRA and DoRA learn, what they write is a PEFT folder, and a
 * killed run goes on to the same bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "base/hash/hash.h"
#include "ckpt/hf/hf.h"
#include "ckpt/hf/peft.h"
#include "model/convert/merge.h"
#include "tests/cmd/sft_case.h"
#include "tests/cmd/tiny_base.h"

static const char rows[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"one and one\"}, {\"role\": \"assistant\", "
    "\"content\": \"two\"}]}\n"
    "{\"messages\": [{\"role\": \"user\", \"content\": \"two and two\"}, {\"role\": \"assistant\", "
    "\"content\": \"four of them\"}]}\n"
    "{\"messages\": [{\"role\": \"user\", \"content\": \"say yes\"}, {\"role\": \"assistant\", "
    "\"content\": \"yes\"}]}\n"
    "{\"messages\": [{\"role\": \"user\", \"content\": \"say no\"}, {\"role\": \"assistant\", "
    "\"content\": \"no, no, no\"}]}\n";

/* All four rows make one step, so that losses can be compared. */
static const char *config(const char *more) {
    static char path[128];
    struct ax_buf b = {0};
    need_binary();
    put_bytes("rows.jsonl", rows, sizeof rows - 1);
    assert_int_equal(
        ax_buf_printf(&b,
                      "base_model: %s\noutput_dir: %s/out\ndataset_prepared_path: %s/cache\n"
                      "datasets:\n  - path: %s/rows.jsonl\n    type: chat_template\n"
                      "chat_template: llama3\nsequence_len: 64\nlearning_rate: 5e-3\n"
                      "micro_batch_size: 2\ngradient_accumulation_steps: 2\nlogging_steps: 1\n"
                      "lr_scheduler: constant\nnum_epochs: 40\nmax_steps: 3\n%s",
                      golden_llama(), scratch, scratch, scratch, more),
        AX_OK);
    snprintf(path, sizeof path, "%s", put_bytes("c.yaml", b.data, b.len));
    ax_buf_free(&b);
    return path;
}

#define LORA "adapter: lora\nlora_r: 4\nlora_alpha: 8\nlora_target_linear: true\n"
#define QLORA                                                                                      \
    "adapter: qlora\nload_in_4bit: true\nlora_r: 4\nlora_alpha: 8\nlora_dropout: 0.1\n"            \
    "lora_target_modules: [q_proj, down_proj]\n"
#define DORA LORA "peft_use_dora: true\n"

/* Where not all tensors have rank 4. */
#define NARROW     "layers.1.self_attn.q_proj"
#define OTHER_RANK "lora_rank_pattern: {" NARROW ": 2, 'layers.2.*up_proj': 3}\n"

static bool other_ranks;

static int64_t rank_of(const char *tensor) {
    if (other_ranks && strstr(tensor, NARROW))
        return 2;
    return other_ranks && strstr(tensor, "layers.2.") && strstr(tensor, "up_proj") ? 3 : 4;
}

static void clear(void) {
    assert_int_equal(ax_remove_tree(in_scratch("out")), AX_OK);
}

/* What PEFT would look for, and nothing of a whole model's. */
static void check_folder(const char *name, int tensors, bool dora) {
    static const char *const side[] = {"tokenizer.json", "tokenizer_config.json",
                                       "chat_template.jinja"};
    struct ax_peft p;
    char path[256];
    assert_ok(ax_peft_open(&p, in_scratch(name)));
    assert_string_equal(p.config.base, golden_llama());
    assert_int_equal(p.config.r, 4);
    assert_true(p.config.dora == dora);
    assert_int_equal(p.weights.n, tensors);
    for (int i = 0; i < p.weights.n; i++) {
        assert_int_equal(strncmp(p.weights.entries[i].name, "base_model.model.model.layers.", 30),
                         0);
        assert_int_equal(p.weights.entries[i].dtype, AX_F32);
        const struct ax_st_entry *e = &p.weights.entries[i];
        if (e->ndim == 2)
            assert_int_equal(e->shape[strstr(e->name, "lora_A") ? 0 : 1], rank_of(e->name));
    }
    ax_peft_close(&p);
    for (size_t i = 0; i < sizeof side / sizeof *side; i++) {
        snprintf(path, sizeof path, "%s/%s", in_scratch(name), side[i]);
        assert_true(ax_path_exists(path));
    }
    snprintf(path, sizeof path, "%s/config.json", in_scratch(name));
    assert_false(ax_path_exists(path));
}

static void check_merge(void) {
    struct ax_merge m = {
        .base = golden_llama(), .adapter = in_scratch("out"), .dst = in_scratch("m"), .threads = 1};
    char template[256];
    assert_ok(ax_merge_run(&m));
    assert_true(m.changed > 0 && m.error < 1e-3 * m.largest);
    snprintf(template, sizeof template, "%s/chat_template.jinja", m.dst);
    assert_true(ax_path_exists(template)); /* of the training */
    assert_int_equal(ax_remove_tree(m.dst), AX_OK);
}

/* Each expert's matrices get their part of the stacked tensors, and the merged model answers as the
 * adapter does. */
static void merge_experts(const char *model, const char *experts, int matrices) {
    char text[512], name[64], base[640], tokenizer[640];
    snprintf(text, sizeof text,
             "adapter: lora\nlora_r: 2\nlora_alpha: 8\nfloat32: true\n"
             "lora_modules_to_save: [embed_tokens, lm_head]\n"
             "lora_target_modules: [q_proj]\nlora_target_parameters: "
             "[%s.gate_up_proj, %s.down_proj]\n",
             experts, experts);
    const char *path = config(text);
    snprintf(name, sizeof name, "models/%s", model);
    const char *folder = golden_path(name);
    snprintf(base, sizeof base, "base_model=%s", folder);
    snprintf(tokenizer, sizeof tokenizer, "tokenizer_config=%s", golden_llama());
    EXPECT(0, "trained 3 of 3", path, base, tokenizer);
    struct ax_merge m = {
        .base = folder, .adapter = in_scratch("out"), .dst = in_scratch("m"), .threads = 1};
    assert_ok(ax_merge_run(&m));
    assert_int_equal(m.matrices, matrices);
    assert_true(m.error < 1e-5 * m.largest && m.effect > 100 * m.error);
    assert_int_equal(ax_remove_tree(m.dst), AX_OK);
    clear();
}

static void test_experts_are_merged(void **state) {
    (void)state;
    merge_experts("mixtral", "mlp.experts", 2 + 2 * (1 + 3 * 8));
    merge_experts("gpt_oss", "mlp.experts", 2 + 2 * (1 + 2)); /* two tensors for all experts */
    merge_experts("granite4", "block_sparse_moe.experts",
                  2 + 1 + 2 * 2);                            /* the same, of transposed matrices */
    merge_experts("gemma4_moe", "experts", 2 + 3 * (1 + 2)); /* right below a layer */
    merge_experts("llama4", "feed_forward.experts", 2 + 4 + 2 * 2);
    merge_experts("lfm2_moe", "feed_forward.experts", 2 + 1 + 2 * 3 * 6);
}

static enum ax_status read_entry(void *ctx, int64_t first, int64_t n, void *out) {
    const struct ax_st_entry *e = ctx;
    return ax_st_read(e, first, n, e->dtype, out);
}

/* The same adapter with the names that a folder of the model has, as programs write that load its own code. */
static void rename_modules(const char *to) {
    static struct ax_st_output tensors[64];
    struct ax_peft p;
    assert_ok(ax_peft_open(&p, in_scratch("out")));
    assert_false(p.config.folder_words);
    p.config.folder_words = true;
    for (int i = 0; i < p.weights.n; i++) {
        struct ax_st_entry *e = &p.weights.entries[i];
        tensors[i] = (struct ax_st_output){
            .name = e->name, .dtype = e->dtype, .ndim = e->ndim, .fill = read_entry, .ctx = e};
        memcpy(tensors[i].shape, e->shape, sizeof e->shape);
    }
    assert_ok(ax_hf_write(&(struct ax_hf_save){
        .dir = to, .adapter = &p.config, .n = p.weights.n, .tensors = tensors}));
    ax_peft_close(&p);
}

static void expect_names(const char *dir, const char *begin) {
    struct ax_safetensors st;
    char path[300];
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", dir);
    assert_ok(ax_safetensors_open(&st, path));
    for (int i = 0; i < st.n; i++)
        if (!strstr(st.entries[i].name, "lm_head") &&
            strncmp(st.entries[i].name, begin, strlen(begin)) != 0)
            fail_msg("%s: expected %s…", st.entries[i].name, begin);
    ax_safetensors_close(&st);
}

/* Modules of transformers begin with "model.", though folders of Nemotron-H have another word. */
static void test_names_of_modules(void **state) {
    (void)state;
    const char *path =
        config("adapter: lora\nlora_r: 2\nlora_alpha: 8\nfloat32: true\nlora_target_modules: "
               "[in_proj, up_proj, down_proj, o_proj, fc1_latent_proj]\n"
               "lora_modules_to_save: [embeddings, lm_head]\n");
    char base[640], tokenizer[640], other[300];
    const char *folder = golden_path("models/nemotron_h_moe");
    snprintf(base, sizeof base, "base_model=%s", folder);
    snprintf(tokenizer, sizeof tokenizer, "tokenizer_config=%s", golden_llama());
    EXPECT(0, "trained 3 of 3", path, base, tokenizer);
    expect_names(in_scratch("out"), "base_model.model.model.");
    snprintf(other, sizeof other, "%s", in_scratch("other"));
    rename_modules(other);
    expect_names(other, "base_model.model.backbone.");
    for (int i = 0; i < 2; i++) {
        struct ax_merge m = {.base = folder,
                             .adapter = i ? other : in_scratch("out"),
                             .dst = in_scratch("m"),
                             .threads = 1};
        assert_ok(ax_merge_run(&m));
        /* in_proj, o_proj, two times fc1 and the shared expert; embedding and head */
        assert_int_equal(m.matrices, 1 + 1 + 2 * (1 + 2) + 2);
        assert_true(m.error < 1e-5 * m.largest && m.effect > 100 * m.error);
        assert_int_equal(ax_remove_tree(m.dst), AX_OK);
    }
    assert_int_equal(ax_remove_tree(other), AX_OK);
    clear();
}

/* Experts without gates, in a latent, by the names and shapes that PEFT has for transformers' module: A [E·r][in],
 * B [out][r·E], of the first weight below base_layer. */
static void test_experts_without_gates(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int64_t rows, cols;
    } all[] = {{"base_layer.lora_A.weight", 6 * 2, 16},
               {"base_layer.lora_B.weight", 12, 6 * 2},
               {"lora_A.weight", 6 * 2, 12},
               {"lora_B.weight", 16, 6 * 2}};
    const char *path = config("adapter: lora\nlora_r: 2\nlora_alpha: 8\nfloat32: true\n"
                              "lora_target_modules: [o_proj]\nlora_target_parameters: "
                              "[mixer.experts.up_proj, mixer.experts.down_proj]\n"
                              "lora_modules_to_save: [embeddings, lm_head]\n");
    char base[640], tokenizer[640], start[300];
    struct ax_safetensors st;
    const char *folder = golden_path("models/nemotron_h_moe");
    snprintf(base, sizeof base, "base_model=%s", folder);
    snprintf(tokenizer, sizeof tokenizer, "tokenizer_config=%s", golden_llama());
    snprintf(start, sizeof start, "lora_model_dir=%s/first", scratch);
    EXPECT(0, "trained 3 of 3", path, base, tokenizer);
    assert_ok(ax_rename(in_scratch("out"), in_scratch("first")));
    EXPECT(0, "trained 3 of 3", path, base, tokenizer, start);
    expect_names(in_scratch("out"), "base_model.model.model.");
    snprintf(base, sizeof base, "%s/adapter_model.safetensors", in_scratch("out"));
    assert_ok(ax_safetensors_open(&st, base));
    assert_int_equal(st.n, 2 + 2 * 4 + 2); /* of one o_proj, and two mixtures; embedding and head */
    for (size_t i = 0; i < 4; i++) {
        char name[128];
        snprintf(name, sizeof name, "base_model.model.model.layers.3.mixer.experts.%s",
                 all[i].name);
        const struct ax_st_entry *e = ax_safetensors_find(&st, name);
        assert_non_null(e);
        assert_true(e->ndim == 2 && e->shape[0] == all[i].rows && e->shape[1] == all[i].cols);
    }
    ax_safetensors_close(&st);
    struct ax_merge m = {
        .base = folder, .adapter = in_scratch("out"), .dst = in_scratch("m"), .threads = 1};
    assert_ok(ax_merge_run(&m));
    assert_int_equal(m.matrices, 1 + 2 * 2 * 6 + 2);
    assert_true(m.error < 1e-5 * m.largest && m.effect > 100 * m.error);
    assert_int_equal(ax_remove_tree(m.dst), AX_OK);
    assert_int_equal(ax_remove_tree(in_scratch("first")), AX_OK);
    clear();
}

static bool lists(const struct ax_peft_names *list, const char *name) {
    bool found = false;
    for (int i = 0; i < list->n; i++)
        found = found || strcmp(list->names[i], name) == 0;
    return found;
}

/* PEFT does not load "all-linear" beside layers: the folder lists names. */
static void test_all_linears_of_a_layer(void **state) {
    (void)state;
    struct ax_peft peft;
    EXPECT(0, "trained 3 of 3",
           config("adapter: lora\nlora_r: 2\nlora_alpha: 8\nfloat32: true\n"
                  "lora_target_modules: all-linear\npeft_layers_to_transform: [1]\n"));
    assert_ok(ax_peft_open(&peft, in_scratch("out")));
    assert_false(peft.config.all_linear);
    assert_int_equal(peft.config.targets.n, 7);
    assert_int_equal(peft.config.n_layers, 1);
    assert_int_equal(peft.weights.n, 7 * 2);
    ax_peft_close(&peft);
    clear();
}

/* A mixture's shared expert is named by its weights, which PEFT does not take for the other experts'. What
 * is merged and trained further are the same adapters. */
static void test_targets_of_a_mixture(void **state) {
    (void)state;
    const char *path = config("adapter: lora\nlora_r: 2\nlora_alpha: 8\nfloat32: true\n"
                              "lora_target_linear: true\nlora_dropout: 0.1\n"
                              "lora_modules_to_save: [embed_tokens, lm_head]\n");
    const char *folder = golden_path("models/qwen2_moe");
    char base[640], tokenizer[640], start[300];
    snprintf(base, sizeof base, "base_model=%s", folder);
    snprintf(tokenizer, sizeof tokenizer, "tokenizer_config=%s", golden_llama());
    snprintf(start, sizeof start, "lora_model_dir=%s/first", scratch);
    for (int times = 0; times < 2; times++) {
        struct ax_peft p;
        EXPECT(0, "trained 3 of 3", path, base, tokenizer, times == 0 ? "seed=1" : start);
        assert_ok(ax_peft_open(&p, in_scratch("out")));
        assert_int_equal(p.weights.n, 2 + 2 * 2 * 8);
        assert_int_equal(p.config.targets.n, 5);
        assert_true(lists(&p.config.targets, "shared_expert_gate"));
        assert_int_equal(p.config.parameters.n, 3);
        assert_true(lists(&p.config.parameters, "mlp.shared_expert.gate_proj.weight"));
        assert_true(p.config.dropout == 0);
        ax_peft_close(&p);
        if (times == 0)
            assert_ok(ax_rename(in_scratch("out"), in_scratch("first")));
    }
    struct ax_merge m = {
        .base = folder, .adapter = in_scratch("out"), .dst = in_scratch("m"), .threads = 1};
    assert_ok(ax_merge_run(&m));
    assert_int_equal(m.matrices, 2 + 2 * 8);
    assert_true(m.error < 1e-5 * m.largest && m.effect > 100 * m.error);
    assert_int_equal(ax_remove_tree(m.dst), AX_OK);
    assert_int_equal(ax_remove_tree(in_scratch("first")), AX_OK);
    clear();
}

static void train_and_look(const char *more, const char *plan, int tensors, bool dora) {
    const char *path = config(more);
    EXPECT(0, plan, path, "save_steps=2", "val_set_size=0");
    assert_true(metric_of("out", "loss", 3) < metric_of("out", "loss", 1) - 0.1);
    check_folder("out", tensors, dora);
    check_folder("out/checkpoint-2", tensors, dora);
    check_merge();
    EXPECT(2, "contains the checkpoints of another run", path);
    clear();
}

/* 3 layers of 7 linears: A and B, with DoRA also magnitudes. */
static void test_lora(void **state) {
    (void)state;
    train_and_look(LORA, "frozen weights ", 3 * 7 * 2, false);
    other_ranks = true;
    train_and_look(LORA OTHER_RANK, "frozen weights ", 3 * 7 * 2, false);
    other_ranks = false;
}
static void test_qlora(void **state) {
    (void)state;
    train_and_look(QLORA, "packed weights ", 3 * 2 * 2, false);
}
static void test_dora(void **state) {
    (void)state;
    train_and_look(DORA, "frozen weights ", 3 * 7 * 3, true);
}

static void test_evaluation_and_best(void **state) {
    (void)state;
    const char *path = config(QLORA "val_set_size: 0.25\neval_steps: 1\nsave_steps: 1\n"
                                    "load_best_model_at_end: true\nmetric_for_best_model: loss\n"
                                    "merge_lora: true\n");
    EXPECT(0, "merged model: ", path);
    check_folder("out", 3 * 2 * 2, false);
    assert_true(ax_path_exists(in_scratch("out/merged/model.safetensors")));
    EXPECT(0, "merged model: ", path, "resume_from_checkpoint=auto"); /* done already: again */
    clear();
}

/* ---- resuming ---- */

static uint64_t hash(const char *name) {
    char *text;
    size_t len;
    assert_int_equal(ax_read_file(in_scratch(name), 1 << 24, &text, &len), AX_OK);
    const uint64_t h = ax_hash64(text, len, 0);
    ax_free(text);
    return h;
}

/* 20 steps in one run, and 7 + kill −9 + 13: the kill comes while the save after step 14 is
 * written. `base`: base_model=DIR; the usual rows have up to `len` tokens (sequence_len=N)
 * there. */
static void resume_on(const char *base, const char *len, const char *more) {
    static const char last[] = "out/checkpoint-20/state/rank-00000.safetensors";
    const char *path = config(more);
    char said[8192];
    EXPECT(0, "trained 20 of 20", path, "max_steps=20", "save_steps=7", base, len);
    const uint64_t adapter = hash("out/adapter_model.safetensors"), held = hash(last);
    clear();
    setenv("AX_FAULT", "fsync:16:kill", 1);
    const char *const args[] = {path, "max_steps=20", "save_steps=7", base, len};
    assert_int_equal(sft(said, sizeof said, 5, args), -1);
    unsetenv("AX_FAULT");
    assert_true(ax_path_exists(in_scratch("out/checkpoint-7")));
    assert_false(ax_path_exists(in_scratch("out/checkpoint-14")));
    EXPECT(0, "resumed: ", path, "max_steps=20", "save_steps=7", "resume_from_checkpoint=auto",
           base, len);
    assert_true(hash("out/adapter_model.safetensors") == adapter);
    assert_true(hash(last) == held);
    clear();
}

static void resume(const char *more) {
    char base[600];
    snprintf(base, sizeof base, "base_model=%s", golden_llama());
    resume_on(base, "sequence_len=64", more);
}

static void test_resume_is_bitwise(void **state) {
    (void)state;
    resume(LORA "lora_dropout: 0.1\nfloat32: true\n");
    resume(QLORA "peft_use_dora: true\nbf16: true\nlora_modules_to_save: [norm]\n");
    resume(DORA "lora_dropout: 0.1\nbf16: true\n");
}

/* Embedding, head and experts as targets. */
static void test_resume_of_other_targets(void **state) {
    (void)state;
    char base[600];
    resume("adapter: lora\nlora_r: 4\nlora_alpha: 8\nlora_dropout: 0.1\nbf16: true\n"
           "lora_target_modules: [embed_tokens, lm_head, v_proj]\n");
    snprintf(base, sizeof base, "base_model=%s", tiny_base(tiny_family("mistralai/Mixtral-8x7B")));
    resume_on(base, "sequence_len=256",
              "reinit_weights: true\nadapter: qlora\nload_in_4bit: true\nlora_r: 2\nlora_alpha: 8\n"
              "lora_target_modules: [q_proj]\nlora_target_parameters: "
              "[mlp.experts.gate_up_proj, mlp.experts.down_proj]\nbf16: true\n");
    snprintf(base, sizeof base, "base_model=%s", tiny_base(tiny_family("zai-org/GLM-4.5-Air")));
    resume_on(base, "sequence_len=256",
              "reinit_weights: true\nadapter: qlora\nload_in_4bit: true\nlora_r: 2\nlora_alpha: 8\n"
              "lora_target_modules: [down_proj]\nlora_dropout: 0.1\nbf16: true\n");
}

/* A PiSSA adapter starts with the base's outputs. Its folder has twice the rank and applies to
 * the unchanged base. */
static void test_pissa(void **state) {
    (void)state;
    const char *path = config(LORA "float32: true\n");
    EXPECT(0, "trained 1 of 1", path, "max_steps=1");
    const double plain = metric_of("out", "loss", 1);
    clear();
    resume(LORA "peft_init_lora_weights: pissa\nfloat32: true\n");
    resume(QLORA "peft_init_lora_weights: pissa_niter_3\nbf16: true\n");
    path = config(LORA "peft_init_lora_weights: pissa\nfloat32: true\nval_set_size: 0.25\n"
                       "eval_steps: 1\nsave_steps: 1\nload_best_model_at_end: true\n");
    EXPECT(0, "trained 3 of 3", path, "val_set_size=0", "eval_steps=null",
           "load_best_model_at_end=false");
    assert_true(fabs(metric_of("out", "loss", 1) - plain) < 1e-5);
    struct ax_peft p;
    assert_ok(ax_peft_open(&p, in_scratch("out")));
    assert_int_equal(p.config.r, 8);
    assert_true(p.config.alpha == 16);
    ax_peft_close(&p);
    check_merge();
    clear();
    EXPECT(0, "trained 3 of 3", path); /* the best one is read from its folder */
    int best = 1;
    for (int step = 2; step <= 3; step++)
        best =
            metric_of("out", "eval_loss", step) < metric_of("out", "eval_loss", best) ? step : best;
    char name[64];
    snprintf(name, sizeof name, "out/checkpoint-%d/adapter_model.safetensors", best);
    assert_true(hash("out/adapter_model.safetensors") == hash(name));
    clear();
    /* the embedding's adapter has no singular values, but the rank that the folder names */
    path = config(LORA "peft_init_lora_weights: pissa\nfloat32: true\n");
    EXPECT(0, "trained 3 of 3", path, "lora_target_modules=[q_proj, embed_tokens]");
    check_merge();
    clear();
}

static void test_loraplus(void **state) {
    (void)state;
    const char *path = config(LORA "float32: true\n");
    EXPECT(0, "trained 3 of 3", path);
    const double plain = metric_of("out", "loss", 3);
    clear();
    EXPECT(0, "trained 3 of 3", path, "loraplus_lr_ratio=4");
    assert_true(metric_of("out", "loss", 3) < plain - 0.1); /* B has moved further */
    const double moved = metric_of("out", "loss", 3);
    clear();
    EXPECT(0, "weight_decay: only has an effect with no adapter or no loraplus_lr_ratio", path,
           "loraplus_lr_ratio=4", "weight_decay=20");
    assert_true(metric_of("out", "loss", 3) == moved);
    clear();
}

static void test_other_settings_are_another_run(void **state) {
    (void)state;
    const char *path = config(LORA "save_steps: 2\n");
    EXPECT(0, "trained 3 of 3", path);
    EXPECT(2, "lora_alpha was 8", path, "lora_alpha=16", "resume_from_checkpoint=auto");
    EXPECT(2, "model_config was ", path, "model_config={rms_norm_eps: 0.5}",
           "resume_from_checkpoint=auto");
    clear();
}

static void test_going_on_from_a_folder(void **state) {
    (void)state;
    char start[256], dir[300];
    const char *path = config(LORA);
    EXPECT(0, "trained 3 of 3", path);
    const double before = metric_of("out", "loss", 3);
    snprintf(start, sizeof start, "%s/first", scratch);
    assert_int_equal(ax_rename(in_scratch("out"), start), AX_OK);
    snprintf(dir, sizeof dir, "lora_model_dir=%s", start);
    EXPECT(0, "lora_r: 32 is not used", path, dir, "lora_r=32");
    assert_true(metric_of("out", "loss", 1) < before); /* no step was lost */
    check_folder("out", 3 * 7 * 2, false);
    assert_int_equal(ax_remove_tree(start), AX_OK);
    clear();
    EXPECT(2, "lora_model_dir (command line): ", path, dir);
}

/* ---- errors ---- */

static void test_errors(void **state) {
    (void)state;
    const char *path = config(LORA);
    EXPECT(2, "\"wq_proj\" matches no module of this llama model", path,
           "lora_target_modules=[wq_proj]", "lora_target_linear=false");
    EXPECT(2, "no module of this llama model is selected by the expression", path,
           "lora_target_modules=nothing", "lora_target_linear=false");
    EXPECT(2, "modules_to_save: \"wte\" matches no module", path, "lora_modules_to_save=[wte]");
    EXPECT(2, "there is no layer 3: the model has 0 to 2", path, "peft_layers_to_transform=[0, 3]");
    EXPECT(2, "cannot be combined with lora_target_modules as one expression", path,
           "lora_target_modules=.*q_proj", "lora_target_linear=false",
           "peft_layers_to_transform=1");
    EXPECT(2, "load_in_4bit: a quantized base cannot be trained", path, "adapter=null",
           "load_in_4bit=true");
    EXPECT(2, "qlora needs load_in_4bit: true", path, "adapter=qlora");
    EXPECT(2, "set lora_r, its rank", path, "lora_r=null");
    EXPECT(2, "set lora_alpha", path, "lora_alpha=null");
    EXPECT(2, "set lora_target_linear: true", path, "lora_target_linear=null");
    EXPECT(2, "bnb_4bit_quant_type: fp4 is not supported", path, "adapter=qlora",
           "load_in_4bit=true", "bnb_config_kwargs.bnb_4bit_quant_type=fp4");
    EXPECT(2, "lora_model_dir (command line): ", path, "lora_model_dir=nowhere");
    EXPECT(2, "there is no base to merge into", path, "merge_lora=true", "reinit_weights=true");
    /* not done yet, and said so */
    EXPECT(2, "adapter-variants: peft_init_lora_weights", path, "peft_init_lora_weights=eva");
    EXPECT(2, "pissa_niter_N with N from 1 to 1000", path, "peft_init_lora_weights=pissa_niter_x");
    EXPECT(2, "there are no weights to start from", path, "peft_init_lora_weights=pissa",
           "reinit_weights=true");
    EXPECT(2, "matches no stacked expert weight of this llama model, which has no experts", path,
           "lora_target_parameters=[mlp.experts.down_proj]");
    assert_false(ax_path_exists(in_scratch("out")));
}

/* ---- mixtures of experts ---- */

/* A run of the golden mixtral. */
static void run_experts(int code, const char *part, const char *more, const char *last) {
    const char *path = config(more);
    char base[640], tokenizer[640];
    snprintf(base, sizeof base, "base_model=%s", golden_path("models/mixtral"));
    snprintf(tokenizer, sizeof tokenizer, "tokenizer_config=%s", golden_llama());
    EXPECT(code, part, path, base, tokenizer, last);
}

/* Losses of its first and its last step. */
static void train_experts(const char *more, double losses[2]) {
    run_experts(0, "trained 3 of 3", more, "seed=42");
    losses[0] = metric_of("out", "loss", 1);
    losses[1] = metric_of("out", "loss", 3);
}

static bool near(double a, double b) {
    return fabs(a - b) < 1e-9;
}

#define MOE_QLORA                                                                                  \
    "adapter: qlora\nload_in_4bit: true\nlora_r: 4\nlora_alpha: 8\nfloat32: true\n"                \
    "lora_target_modules: [q_proj]\nlora_modules_to_save: [embed_tokens, lm_head]\n"

/* quantize_moe_experts packs what load_in_4bit leaves: other losses from the first step on. */
static void test_packed_experts(void **state) {
    (void)state;
    double plain[2], packed[2];
    train_experts(MOE_QLORA, plain);
    clear();
    train_experts(MOE_QLORA "quantize_moe_experts: true\n", packed);
    run_experts(2, "quantize_moe_experts was true", MOE_QLORA "resume_from_checkpoint: auto\n",
                "quantize_moe_experts=false");
    clear();
    assert_false(near(plain[0], packed[0]));
    assert_true(fabs(plain[0] - packed[0]) < 0.1);
    assert_true(packed[1] < packed[0]);
}

/* model_config's fields count as config.json's, and are saved in it: with the routers' logits the
 * balancing loss is trained too, so the losses differ after the first step. */
static void test_model_config(void **state) {
    (void)state;
    double plain[2], balanced[2];
    char *saved;
    size_t n;
    train_experts("float32: true\n", plain);
    clear();
    train_experts("float32: true\nmodel_config: {output_router_logits: true, "
                  "router_aux_loss_coef: 5}\n",
                  balanced);
    assert_int_equal(ax_read_file(in_scratch("out/config.json"), 1 << 20, &saved, &n), AX_OK);
    assert_non_null(strstr(saved, "\"output_router_logits\": true"));
    assert_non_null(strstr(saved, "\"num_local_experts\": 8"));
    ax_free(saved);
    clear();
    assert_true(near(plain[0], balanced[0]));
    assert_false(near(plain[1], balanced[1]));
    EXPECT(2, "hiden_size: no such field in", config("model_config: {hiden_size: 5}\n"));
}

/* A module's name of an expert's matrix: the error says where experts are named. */
static void test_targets_of_experts(void **state) {
    (void)state;
    run_experts(2, "named in lora_target_parameters: mlp.experts.gate_up_proj, mlp.experts.down",
                "adapter: lora\nlora_r: 4\nlora_alpha: 8\n", "lora_target_modules=[w1]");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lora),
        cmocka_unit_test(test_qlora),
        cmocka_unit_test(test_dora),
        cmocka_unit_test(test_experts_are_merged),
        cmocka_unit_test(test_names_of_modules),
        cmocka_unit_test(test_experts_without_gates),
        cmocka_unit_test(test_all_linears_of_a_layer),
        cmocka_unit_test(test_targets_of_a_mixture),
        cmocka_unit_test(test_packed_experts),
        cmocka_unit_test(test_model_config),
        cmocka_unit_test(test_targets_of_experts),
        cmocka_unit_test(test_evaluation_and_best),
        cmocka_unit_test(test_resume_is_bitwise),
        cmocka_unit_test(test_resume_of_other_targets),
        cmocka_unit_test(test_pissa),
        cmocka_unit_test(test_loraplus),
        cmocka_unit_test(test_other_settings_are_another_run),
        cmocka_unit_test(test_going_on_from_a_folder),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
