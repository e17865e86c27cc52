/* Layouts of the files of Falcon-H1, Nemotron-H, Ministral 3 and models with indexers, by the formulas of llama.cpp's
 * converter. */
#include "tests/cmd/gguf_folders.h"

static const struct tiny small = {.arch = "llama", .permuted = true, .matrix_type = TYPE_BF16};

/* NAME: the golden model with a tokenizer of `ids` ids; NAME.gguf: its file; NAME-again: a folder of that. */
static void convert_golden(const char *name, int64_t ids) {
    static const char *const files[] = {"config.json", "generation_config.json",
                                        "model.safetensors"};
    char rest[64], file[64], again[64];
    snprintf(rest, sizeof rest, "models/%s", name);
    snprintf(file, sizeof file, "%s.gguf", name);
    snprintf(again, sizeof again, "%s-again", name);
    const char *from = golden_path(rest);
    ok(ax_mkdir(in_dir(name)));
    for (size_t i = 0; i < 3; i++)
        copy_file(from, name, files[i]);
    copy_file(in_dir("small"), name, "tokenizer.json");
    if (ids < VOCAB)
        cut_tokens(name, ids);
    ok(to_gguf(in_dir(name), file, NULL));
    to_hf(file, again);
}

static void refuses(const char *folder, const char *what) {
    assert_int_equal(to_gguf(in_dir(folder), "no.gguf", NULL), AX_ERR_UNSUPPORTED);
    if (!strstr(ax_error_text(), what))
        fail_msg("%s", ax_error_text());
    ax_error_clear();
}

static void number_is(const struct ax_gguf *g, const char *key, double want) {
    double v;
    ok(ax_gguf_f64(g, key, &v));
    if (!(fabs(v - want) <= 1e-7 * (1 + fabs(want))))
        fail_msg("%s is %.9g, not %.9g", key, v, want);
}

static void list_is(const struct ax_gguf *g, const char *key, size_t n, const int32_t *want) {
    int32_t *list;
    size_t got;
    ok(ax_gguf_i32s(g, key, &list, &got));
    assert_int_equal(got, n);
    assert_memory_equal(list, want, n * sizeof *want);
    ax_free(list);
}

static void shape_is(const struct ax_gguf *g, const char *name, int ndim, const int64_t *want) {
    const struct ax_gguf_tensor *t = ax_gguf_tensor(g, name);
    assert_non_null(t);
    assert_int_equal(t->ndim, ndim);
    assert_memory_equal(t->shape, want, (size_t)ndim * sizeof *want);
}
#define SHAPE(g, name, n, ...) shape_is(g, name, n, (const int64_t[]){__VA_ARGS__})

/* Readers of Falcon-H1 know no factors: weights have them. In a folder of the file they are 1. */
static void factors_are_in_the_weights(void **state) {
    (void)state;
    enum { D = 40, FFN_SIZE = 48, INNER = 48, BC = 2 * 10, SSD_HEADS = 6 };
    static const struct {
        const char *gguf, *hf;
        double factor;
    } all[] = {
        {"token_embd.weight", "model.embed_tokens.weight", 3.5},
        {"output.weight", "lm_head.weight", 0.4},
        {"blk.1.attn_q.weight", "model.layers.1.self_attn.q_proj.weight", 0.9},
        {"blk.1.attn_k.weight", "model.layers.1.self_attn.k_proj.weight", 0.6 * 0.9},
        {"blk.1.attn_v.weight", "model.layers.1.self_attn.v_proj.weight", 0.9},
        {"blk.1.attn_output.weight", "model.layers.1.self_attn.o_proj.weight", 1.2},
        {"blk.0.ssm_out.weight", "model.layers.0.mamba.out_proj.weight", 0.8},
        {"blk.0.ffn_gate.weight", "model.layers.0.feed_forward.gate_proj.weight", 0.9},
        {"blk.0.ffn_up.weight", "model.layers.0.feed_forward.up_proj.weight", 1},
        {"blk.0.ffn_down.weight", "model.layers.0.feed_forward.down_proj.weight", 0.7},
        {"blk.0.ffn_norm", "model.layers.0.pre_ff_layernorm.weight", 1}, /* without ".weight" */
        {"blk.1.attn_norm.weight", "model.layers.1.input_layernorm.weight", 1},
        {"output_norm.weight", "model.final_layernorm.weight", 1},
    };
    static const double of_rows[] = {0.9, 1.1, 0.8, 1.2, 0.7}; /* ssm_multipliers: z, x, B, C, dt */
    static const int64_t rows[] = {INNER, INNER, BC, BC, SSD_HEADS};
    struct ax_gguf g;
    struct ax_hf hf, again;
    struct ax_arch arch;
    int64_t at = 0;
    convert_golden("falcon_h1", 128);
    ok(ax_gguf_open(&g, in_dir("falcon_h1.gguf")));
    ok(ax_hf_open(&hf, golden_path("models/falcon_h1")));
    ok(ax_hf_open(&again, in_dir("falcon_h1-again")));
    assert_int_equal(ax_hf_count(&hf), ax_hf_count(&again));
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const struct ax_gguf_tensor *t = ax_gguf_tensor(&g, all[i].gguf);
        assert_non_null(t);
        for (int64_t k = 0; k < t->numel; k++) {
            expect(&g, all[i].gguf, k, all[i].factor * value(&hf, all[i].hf, k));
            assert_true(value(&again, all[i].hf, k) == ax_load(AX_F32, t->data, k));
        }
    }
    for (int part = 0; part < 5; part++)
        for (int64_t r = 0; r < rows[part]; r++, at += D)
            for (int64_t c = 0; c < D; c++)
                expect(&g, "blk.1.ssm_in.weight", at + c,
                       0.6 * of_rows[part] *
                           value(&hf, "model.layers.1.mamba.in_proj.weight", at + c));
    for (int64_t i = 0; i < SSD_HEADS; i++)
        expect(&g, "blk.1.ssm_a", i, -exp(value(&hf, "model.layers.1.mamba.A_log", i)));
    assert_null(ax_gguf_tensor(&g, "blk.0.ssm_norm.weight"));
    number_is(&g, "falcon-h1.ssm.inner_size", INNER);
    number_is(&g, "falcon-h1.ssm.time_step_rank", SSD_HEADS);
    number_is(&g, "falcon-h1.ssm.group_count", 2);
    number_is(&g, "falcon-h1.feed_forward_length", FFN_SIZE);
    number_is(&g, "falcon-h1.attention.key_length", 12);
    ok(ax_arch_load(&arch, in_dir("falcon_h1-again")));
    assert_true(arch.embedding_scale == 1 && arch.logit_scale == 1 &&
                arch.beside_attention.in == 1 && arch.ssd.scale[4] == 1 && arch.mlp_scale[1] == 1);
    assert_true(fabs(arch.softmax_scale * sqrt(12) - 1) < 1e-12);
    ax_arch_free(&arch);
    ax_hf_close(&again);
    ax_hf_close(&hf);
    ax_gguf_close(&g);
    set_member("falcon_h1", "config.json", "attention_bias", "{\"v\": true}");
    refuses("falcon_h1", "attention_bias or use_bias is true");
}

/* A tied head has another factor than the embedding, so the file has both, and so has a folder of it. */
static void a_tied_head_of_falcon_is_stored(void **state) {
    (void)state;
    struct ax_gguf g;
    struct ax_hf hf, again;
    set_member("falcon_h1", "config.json", "attention_bias", "{\"v\": false}");
    set_member("falcon_h1", "config.json", "tie_word_embeddings", "{\"v\": true}");
    tie_weights("falcon_h1");
    ok(to_gguf(in_dir("falcon_h1"), "tied.gguf", NULL));
    to_hf("tied.gguf", "tied-again");
    ok(ax_gguf_open(&g, in_dir("tied.gguf")));
    ok(ax_hf_open(&hf, in_dir("falcon_h1")));
    ok(ax_hf_open(&again, in_dir("tied-again")));
    for (int64_t k = 0; k < 40; k++) {
        const double x = value(&hf, "model.embed_tokens.weight", k);
        expect(&g, "token_embd.weight", k, 3.5 * x);
        expect(&g, "output.weight", k, 0.4 * x);
        assert_true(fabs(value(&again, "lm_head.weight", k) - 0.4 * x) < 1e-6);
    }
    ax_hf_close(&again);
    ax_hf_close(&hf);
    ax_gguf_close(&g);
}

/* A layer is what the lists leave: Mamba-2, attention, or an MLP. */
static void layers_have_one_part(void **state) {
    (void)state;
    struct ax_gguf g;
    struct ax_hf hf;
    convert_golden("nemotron_h", 128);
    convert_golden("nemotron_h_moe", 128);
    ok(ax_gguf_open(&g, in_dir("nemotron_h_moe.gguf")));
    ok(ax_hf_open(&hf, golden_path("models/nemotron_h_moe")));
    list_is(&g, "nemotron_h_moe.attention.head_count_kv", 4, (const int32_t[]){0, 0, 2, 0});
    list_is(&g, "nemotron_h_moe.feed_forward_length", 4, (const int32_t[]){0, 12, 0, 12});
    number_is(&g, "nemotron_h_moe.expert_shared_feed_forward_length", 20);
    number_is(&g, "nemotron_h_moe.expert_shared_count", 1);
    number_is(&g, "nemotron_h_moe.expert_feed_forward_length", 12);
    number_is(&g, "nemotron_h_moe.expert_count", 6);
    number_is(&g, "nemotron_h_moe.expert_used_count", 2);
    number_is(&g, "nemotron_h_moe.expert_weights_scale", 2.5);
    number_is(&g, "nemotron_h_moe.moe_latent_size", 16);
    number_is(&g, "nemotron_h_moe.attention.layer_norm_epsilon", 1e-5);
    number_is(&g, "nemotron_h_moe.attention.layer_norm_rms_epsilon", 1e-5);
    SHAPE(&g, "blk.1.ffn_latent_down.weight", 2, 16, 36);
    SHAPE(&g, "blk.1.ffn_latent_up.weight", 2, 36, 16);
    SHAPE(&g, "blk.3.ffn_up_exps.weight", 3, 6, 12, 16);
    SHAPE(&g, "blk.3.ffn_down_exps.weight", 3, 6, 16, 12);
    SHAPE(&g, "blk.3.ffn_up_shexp.weight", 2, 20, 36);
    SHAPE(&g, "blk.1.exp_probs_b.bias", 1, 6);
    SHAPE(&g, "blk.0.ssm_norm.weight", 2, 1, 40);
    SHAPE(&g, "blk.0.ssm_d", 2, 4, 1);
    SHAPE(&g, "blk.2.attn_norm.weight", 1, 36);
    assert_null(ax_gguf_tensor(&g, "blk.1.ffn_gate_exps.weight"));
    assert_null(ax_gguf_tensor(&g, "blk.2.ffn_norm.weight"));
    for (int64_t i = 0; i < 4; i++)
        expect(&g, "blk.0.ssm_a", i, -exp(value(&hf, "backbone.layers.0.mixer.A_log", i)));
    for (int64_t i = 0; i < 12 * 16; i++)
        expect(&g, "blk.3.ffn_up_exps.weight", 5 * 12 * 16 + i,
               value(&hf, "backbone.layers.3.mixer.experts.5.up_proj.weight", i));
    ax_hf_close(&hf);
    ax_gguf_close(&g);
    ok(ax_gguf_open(&g, in_dir("nemotron_h.gguf")));
    assert_null(ax_gguf_key(&g, "nemotron_h.expert_count"));
    assert_null(ax_gguf_key(&g, "nemotron_h.expert_shared_count"));
    ax_gguf_close(&g);
}

/* Reading FILE with byte `at` of a key's value set fails so. */
static void changed(const char *file, const char *key, size_t at, unsigned char byte,
                    enum ax_status want, const char *what) {
    struct ax_gguf g;
    struct ax_gguf_model m;
    char *bytes;
    size_t len;
    ok(ax_read_file(in_dir(file), 1 << 22, &bytes, &len));
    ok(ax_gguf_parse(&g, file, bytes, len));
    const struct ax_gguf_key *k = ax_gguf_key(&g, key);
    assert_non_null(k);
    bytes[(const char *)k->value + at - bytes] = (char)byte;
    assert_int_equal(ax_gguf_model_read(&m, &g), want);
    if (!strstr(ax_error_text(), what))
        fail_msg("%s", ax_error_text());
    ax_error_clear();
    ax_gguf_close(&g);
    ax_free(bytes);
}

static void lists_that_contradict(void **state) {
    static const char heads[] = "nemotron_h_moe.attention.head_count_kv";
    (void)state;
    changed("nemotron_h_moe.gguf", heads, 4, 2, AX_ERR_UNSUPPORTED, /* layer 1 has experts */
            "layer 1 has attention and an MLP");
    changed("nemotron_h_moe.gguf", heads, 0, 1, AX_ERR_UNSUPPORTED, /* layer 2 has 2 */
            "2 in layer 2, 1 in an earlier one");
    changed("glm_moe_dsa.gguf", "glm-dsa.attention.indexer.types", 0, 0, AX_ERR_DATA,
            "the first layer has no indexer");
}

static void indexers_are_beside_attention(void **state) {
    (void)state;
    struct ax_gguf g;
    convert_golden("deepseek_v32", 128);
    convert_golden("glm_moe_dsa", 128);
    ok(ax_gguf_open(&g, in_dir("deepseek_v32.gguf")));
    number_is(&g, "deepseek32.attention.indexer.head_count", 8);
    number_is(&g, "deepseek32.attention.indexer.key_length", 16);
    number_is(&g, "deepseek32.attention.indexer.top_k", 8);
    number_is(&g, "deepseek32.attention.head_count_kv", 1);
    number_is(&g, "deepseek32.rope.scaling.yarn_log_multiplier", 0.1);
    assert_null(ax_gguf_key(&g, "deepseek32.attention.indexer.types"));
    SHAPE(&g, "blk.2.indexer.attn_q_b.weight", 2, 8 * 16, 20);
    SHAPE(&g, "blk.2.indexer.attn_k.weight", 2, 16, 40);
    SHAPE(&g, "blk.0.indexer.proj.weight", 2, 8, 40);
    SHAPE(&g, "blk.0.indexer.k_norm.bias", 1, 16);
    ax_gguf_close(&g);
    ok(ax_gguf_open(&g, in_dir("glm_moe_dsa.gguf")));
    list_is(&g, "glm-dsa.attention.indexer.types", 4, (const int32_t[]){1, 1, 0, 1});
    assert_null(ax_gguf_tensor(&g, "blk.2.indexer.k_norm.weight"));
    SHAPE(&g, "blk.3.indexer.k_norm.weight", 1, 12);
    struct ax_gguf_model m;
    ok(ax_gguf_model_read(&m, &g));
    assert_true(ax_gguf_shares_choice(&m, 2) && !ax_gguf_shares_choice(&m, 3));
    ax_gguf_close(&g);
}

/* Rows of q and k in rotary pairs; readers assume mscale 1 and the original context as the period of growth. */
static void queries_grow_by_keys(void **state) {
    (void)state;
    enum { HEAD_SIZE = 12, D = 48 };
    struct ax_gguf g;
    struct ax_hf hf;
    struct ax_arch arch;
    convert_golden("ministral3", VOCAB);
    ok(ax_gguf_open(&g, in_dir("ministral3.gguf")));
    ok(ax_hf_open(&hf, golden_path("models/ministral3")));
    number_is(&g, "mistral3.attention.temperature_scale", 0.1);
    number_is(&g, "mistral3.rope.scaling.yarn_log_multiplier", 1);
    number_is(&g, "mistral3.rope.scaling.factor", 16);
    number_is(&g, "mistral3.rope.scaling.original_context_length", 8);
    for (int64_t head = 0; head < 4; head++)
        for (int64_t i = 0; i < HEAD_SIZE / 2; i++)
            for (int64_t j = 0; j < 2; j++)
                expect(&g, "blk.1.attn_q.weight", (head * HEAD_SIZE + 2 * i + j) * D + 5,
                       value(&hf, "model.layers.1.self_attn.q_proj.weight",
                             (head * HEAD_SIZE + j * HEAD_SIZE / 2 + i) * D + 5));
    ax_hf_close(&hf);
    ax_gguf_close(&g);
    ok(ax_arch_load(&arch, in_dir("ministral3-again")));
    assert_true(arch.rope_queries.growth == 0.1 && arch.rope_queries.period == 8);
    assert_true(arch.rope.mscale == 1 && arch.rope.mscale_all_dim == 1);
    ax_arch_free(&arch);
    set_member("ministral3", "config.json", "rope_parameters/mscale", "{\"v\": 0.7}");
    refuses("ministral3", "rope type yarn has its own attention factor");
    set_member("ministral3", "config.json", "rope_parameters/rope_type", "{\"v\": \"default\"}");
    refuses("ministral3", "llama_4_scaling_beta without rope type yarn");
}

static int make_all(void **state) {
    const int rc = make_dir(state);
    put_folder(&small, "small");
    return rc;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(factors_are_in_the_weights),
        cmocka_unit_test(a_tied_head_of_falcon_is_stored),
        cmocka_unit_test(layers_have_one_part),
        cmocka_unit_test(indexers_are_beside_attention),
        cmocka_unit_test(lists_that_contradict),
        cmocka_unit_test(queries_grow_by_keys),
    };
    return cmocka_run_group_tests(tests, make_all, remove_dir);
}
