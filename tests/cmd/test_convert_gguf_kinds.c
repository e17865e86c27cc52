/* Every kind of model of the goldens as a GGUF file and back, and the names that readers know. */
#include "tests/cmd/gguf_folders.h"

#include "base/hash/hash.h"
#include "tests/record.h"

#define RECORD "tests/cmd/gguf_record.txt"

/* A file's size and digest: of its metadata, too. */
static void put_digest(struct ax_buf *out, const char *name, const char *file) {
    char path[200], *bytes;
    size_t n;
    snprintf(path, sizeof path, "%s/%s", name, file);
    ok(ax_read_file(in_dir(*file ? path : name), 1 << 26, &bytes, &n));
    record_put(out, "  %-36s %8zu %016llx\n", *file ? path : name, n,
               (unsigned long long)ax_hash64(bytes, n, 0));
    ax_free(bytes);
}

/* The golden models, which differ in what a config can say, with a record of all bytes; those without a tokenizer get the tiny
 * one, which has fewer ids than they have embeddings. */
static void golden_models_come_back(void **state) {
    (void)state;
    static const struct {
        const char *name, *type;
        const char *scaled; /* takes part of the softmax scale */
    } models[] = {{"llama", "llama", NULL},
                  {"llama_bias", "llama", NULL},
                  {"qwen3", "qwen3", NULL},
                  {"mixtral", "mixtral", NULL},
                  {"qwen3_moe", "qwen3_moe", NULL},
                  {"qwen2_moe", "qwen2_moe", NULL},
                  {"gemma2", "gemma2", "q_proj"},
                  {"gemma3_text", "gemma3_text", "q_norm"},
                  {"granite", "granite", NULL},
                  {"olmo2", "olmo2", NULL},
                  {"glm4", "glm4", NULL},
                  {"glm4_moe", "glm4_moe", NULL},
                  {"deepseek_v3", "deepseek_v3", NULL},
                  {"deepseek_v3_mtp", "deepseek_v3", NULL},
                  {"deepseek_v2", "deepseek_v2", NULL},
                  {"deepseek_v2_group", "deepseek_v2", NULL},
                  {"gpt_oss", "gpt_oss", NULL},
                  {"phi3", "phi3", NULL},
                  {"cohere", "cohere", NULL},
                  {"cohere2", "cohere2", NULL},
                  {"seed_oss", "seed_oss", NULL},
                  {"ernie4_5_moe", "ernie4_5_moe", NULL},
                  {"exaone4", "exaone4", NULL},
                  {"hunyuan_v1_dense", "hunyuan_v1_dense", NULL},
                  {"minimax_m2", "minimax_m2", NULL},
                  {"lfm2", "lfm2", NULL},
                  {"lfm2_moe", "lfm2_moe", NULL},
                  {"qwen3_5", "qwen3_5_text", "A_log"},
                  {"qwen3_5_moe", "qwen3_5_moe_text", "A_log"},
                  {"granite4_dense", "granitemoehybrid", "A_log"},
                  {"granite4", "granitemoehybrid", "A_log"},
                  {"llama4", "llama4_text", NULL},
                  {"kimi_linear", "kimi_linear", "A_log"},
                  {"gemma4", "gemma4_text", NULL},
                  {"gemma4_moe", "gemma4_text", NULL},
                  {"mimo_v2_flash", "mimo_v2_flash", NULL},
                  {"ministral3", "ministral3", NULL},
                  {"nemotron_h", "nemotron_h", "A_log"},
                  {"nemotron_h_moe", "nemotron_h", "A_log"},
                  {"deepseek_v32", "deepseek_v32", NULL},
                  {"glm_moe_dsa", "glm_moe_dsa", NULL},
                  {"arcee", "arcee", NULL},
                  {"dots1", "dots1", NULL},
                  {"gemma", "gemma", NULL},
                  {"olmoe", "olmoe", NULL},
                  {"smollm3", "smollm3", NULL}};
    static const struct tiny small = {.arch = "llama", .permuted = true, .matrix_type = TYPE_BF16};
    struct ax_buf now = {0};
    put_folder(&small, "small");
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char rest[64], file[64], again[64];
        struct ax_arch arch[2];
        snprintf(rest, sizeof rest, "tests/cmd/models/%s", models[i].name);
        const bool here = ax_path_exists(rest);
        snprintf(file, sizeof file, "%s.gguf", models[i].name);
        snprintf(again, sizeof again, "%s-again", models[i].name);
        const char *from = here ? rest : golden_path(rest + strlen("tests/cmd/"));
        ok(ax_mkdir(in_dir(models[i].name)));
        copy_file(in_dir("small"), models[i].name, "tokenizer.json");
        for (int k = 0; k < 5; k++) {
            static const char *const names[] = {"config.json", "generation_config.json",
                                                "model.safetensors", "tokenizer.json",
                                                "tokenizer_config.json"};
            copy_file(from, models[i].name, names[k]);
        }
        if (strcmp(models[i].name, "smollm3") == 0) /* rope as in published models */
            set_member("smollm3", "config.json", "no_rope_layers", "{\"v\": [1, 1, 1]}");
        if (strcmp(models[i].name, "llama4") == 0) {
            set_member("llama4", "config.json", "attention_chunk_size", "{\"v\": 8192}");
            assert_int_equal(to_gguf(in_dir("llama4"), file, NULL), AX_ERR_UNSUPPORTED);
            assert_non_null(strstr(ax_error_text(), "attn_temperature_tuning, floor_scale or"));
            ax_error_clear();
            set_member("llama4", "config.json", "floor_scale", "{\"v\": 8192}");
        }
        if (strcmp(models[i].name, "deepseek_v2_group") == 0) {
            set_member(models[i].name, "config.json", "rope_parameters/mscale", "{\"v\": 0.707}");
            set_member(models[i].name, "config.json", "rope_parameters/mscale_all_dim",
                       "{\"v\": 0.707}");
        }
        if (strcmp(models[i].name, "granite4_dense") == 0) /* as published hybrids */
            set_member(models[i].name, "config.json", "position_embedding_type",
                       "{\"v\": \"nope\"}");
        if (strncmp(models[i].name, "lfm2", 4) == 0 || strncmp(models[i].name, "qwen3_5", 7) == 0 ||
            strncmp(models[i].name, "granite4", 8) == 0 || strcmp(models[i].name, "llama4") == 0 ||
            strcmp(models[i].name, "kimi_linear") == 0 ||
            strncmp(models[i].name, "gemma4", 6) == 0 ||
            strncmp(models[i].name, "nemotron_h", 10) == 0 ||
            strcmp(models[i].name, "deepseek_v32") == 0 ||
            strcmp(models[i].name, "glm_moe_dsa") == 0 || strncmp(models[i].name, "mimo", 4) == 0)
            cut_tokens(models[i].name, 128);
        if (here)
            cut_tokens(models[i].name, 128);
        ok(to_gguf(in_dir(models[i].name), file, NULL));
        to_hf(file, again);
        record_put(&now, "%s\n", models[i].name);
        put_digest(&now, file, "");
        put_digest(&now, again, "config.json");
        put_digest(&now, again, "model.safetensors");
        ok(ax_arch_load(&arch[0], in_dir(models[i].name)));
        ok(ax_arch_load(&arch[1], in_dir(again)));
        same_weights_of(in_dir(models[i].name), in_dir(again), models[i].scaled,
                        arch[0].softmax_scale / arch[1].softmax_scale, arch[0].n_layers);
        same_models(&arch[0], &arch[1], models[i].scaled != NULL);
        assert_string_equal(arch[1].family->model_type, models[i].type);
        ax_arch_free(&arch[0]);
        ax_arch_free(&arch[1]);
    }
    record_compare(RECORD, &now);
}

/* Llama's tensors under another model_type, where a golden has what a file cannot express. */
static void ernie_comes_back_without_biases(void **state) {
    (void)state;
    static const struct tiny small = {.arch = "llama", .permuted = true, .matrix_type = TYPE_BF16};
    struct ax_arch arch;
    put_folder(&small, "ernie");
    set_member("ernie", "config.json", "model_type", "{\"v\": \"ernie4_5\"}");
    ok(to_gguf(in_dir("ernie"), "ernie.gguf", NULL));
    to_hf("ernie.gguf", "ernie-again");
    same_weights(in_dir("ernie"), in_dir("ernie-again"));
    ok(ax_arch_load(&arch, in_dir("ernie-again")));
    assert_string_equal(arch.family->model_type, "ernie4_5");
    ax_arch_free(&arch);
    set_member("ernie", "config.json", "use_bias", "{\"v\": true}");
    assert_int_equal(to_gguf(in_dir("ernie"), "no.gguf", NULL), AX_ERR_UNSUPPORTED);
    assert_non_null(strstr(ax_error_text(), "use_bias is true for this model_type"));
    ax_error_clear();
}

/* By the names that gguf 0.19's constants give, and llama.cpp's loaders read. */
static void keys_of_further_kinds(void **state) {
    (void)state;
    static const struct {
        const char *file, *key;
        double value;
        const char *tensor;
        int64_t elements;
    } all[] = {
        {"ernie4_5_moe", "ernie4_5-moe.interleave_moe_layer_step", 1, "blk.1.exp_probs_b.bias", 6},
        {"ernie4_5_moe", "ernie4_5-moe.leading_dense_block_count", 1, "blk.0.ffn_up.weight", 4608},
        {"ernie4_5_moe", "ernie4_5-moe.expert_shared_count", 2, "blk.1.ffn_up_shexp.weight", 1152},
        {"exaone4", "exaone4.attention.sliding_window", 10, "blk.3.post_ffw_norm.weight", 48},
        {"hunyuan_v1_dense", "hunyuan-dense.attention.key_length", 16, "blk.1.attn_k_norm.weight",
         16},
        {"minimax_m2", "minimax-m2.rope.dimension_count", 8, "blk.0.attn_q_norm.weight", 64},
        {"minimax_m2", "minimax-m2.expert_gating_func", 2, "blk.1.exp_probs_b.bias", 6},
        {"lfm2", "lfm2.shortconv.l_cache", 3, "blk.1.shortconv.conv.weight", 3 * 48},
        {"lfm2", "lfm2.feed_forward_length", 64, "blk.2.attn_q_norm.weight", 12},
        {"lfm2_moe", "lfm2moe.leading_dense_block_count", 1, "token_embd_norm.weight", 48},
        {"lfm2_moe", "lfm2moe.expert_gating_func", 2, "blk.1.exp_probs_b.bias", 6},
        {"qwen3_5", "qwen35.full_attention_interval", 2, "blk.0.ssm_conv1d.weight", 96 * 3},
        {"qwen3_5", "qwen35.ssm.time_step_rank", 6, "blk.2.ssm_dt.bias", 6},
        {"qwen3_5", "qwen35.ssm.inner_size", 48, "blk.2.ssm_alpha.weight", 6 * 40},
        {"qwen3_5", "qwen35.rope.dimension_count", 8, "blk.1.attn_q.weight", 2 * 64 * 40},
        {"qwen3_5_moe", "qwen35moe.ssm.state_size", 8, "blk.1.post_attention_norm.weight", 36},
        {"qwen3_5_moe", "qwen35moe.ssm.group_count", 3, "blk.0.ssm_beta.weight", 3 * 36},
        {"qwen3_5_moe", "qwen35moe.expert_shared_feed_forward_length", 12,
         "blk.1.ffn_gate_inp_shexp.weight", 36},
        {"granite4", "granitehybrid.ssm.time_step_rank", 6, "blk.0.ssm_a", 6},
        {"granite4", "granitehybrid.ssm.inner_size", 72, "blk.0.ffn_gate_exps.weight", 4 * 10 * 36},
        {"granite4", "granitehybrid.feed_forward_length", 10, "blk.0.ffn_up_shexp.weight", 16 * 36},
        {"granite4_dense", "granitehybrid.ssm.group_count", 2, "blk.0.ssm_norm.weight", 80},
        {"granite4_dense", "granitehybrid.ssm.state_size", 12, "blk.1.ffn_gate.weight", 48 * 40},
        {"kimi_linear", "kimi-linear.kda.head_dim", 10, "blk.0.ssm_conv1d_k.weight", 4 * 40},
        {"kimi_linear", "kimi-linear.ssm.conv_kernel", 4, "blk.2.ssm_f_b.weight", 40 * 10},
        {"kimi_linear", "kimi-linear.attention.key_length_mla", 16, "blk.1.attn_k_b.weight", 480},
        {"kimi_linear", "kimi-linear.rope.dimension_count", 6, "blk.1.attn_q.weight", 4 * 16 * 36},
        {"kimi_linear", "kimi-linear.leading_dense_block_count", 2, "blk.2.exp_probs_b.bias", 6},
        {"kimi_linear", "kimi-linear.expert_gating_func", 2, "blk.2.ffn_up_shexp.weight", 8 * 36},
        {"gemma4", "gemma4.attention.shared_kv_layers", 2, "blk.3.layer_output_scale.weight", 1},
        {"gemma4", "gemma4.attention.key_length", 16, "rope_freqs.weight", 8},
        {"gemma4", "gemma4.attention.key_length_swa", 12, "blk.0.attn_k_norm.weight", 12},
        {"gemma4", "gemma4.rope.dimension_count_swa", 12, "blk.3.ffn_gate.weight", 64 * 40},
        {"gemma4", "gemma4.rope.freq_base_swa", 10000, "per_layer_model_proj.weight", 24 * 40},
        {"gemma4", "gemma4.embedding_length_per_layer_input", 6, "per_layer_token_embd.weight",
         128 * 24},
        {"gemma4", "gemma4.final_logit_softcapping", 6, "blk.2.inp_gate.weight", 6 * 40},
        {"gemma4_moe", "gemma4.expert_feed_forward_length", 10, "blk.0.ffn_gate_up_exps.weight",
         4 * 20 * 36},
        {"gemma4_moe", "gemma4.feed_forward_length", 24, "blk.1.ffn_down_exps.scale", 4},
        {"gemma4_moe", "gemma4.attention.sliding_window", 10, "blk.2.ffn_gate_inp.scale", 36},
        {"seed_oss", "seed_oss.block_count", 2, "blk.1.post_attention_norm.weight", 48},
        {"llama4", "llama4.interleave_moe_layer_step", 2, "blk.0.ffn_gate.weight", 48 * 40},
        {"llama4", "llama4.expert_feed_forward_length", 16, "blk.1.ffn_up_exps.weight",
         4 * 16 * 40},
        {"llama4", "llama4.feed_forward_length", 48, "blk.3.ffn_gate_shexp.weight", 16 * 40},
        {"mimo_v2_flash", "mimo2.attention.sliding_window", 10, "blk.1.attn_sinks.weight", 4},
        {"mimo_v2_flash", "mimo2.attention.value_length", 12, "blk.1.attn_v.weight", 2 * 12 * 36},
        {"mimo_v2_flash", "mimo2.rope.dimension_count", 6, "blk.5.attn_v.weight", 12 * 36},
        {"mimo_v2_flash", "mimo2.rope.freq_base_swa", 10000, "blk.5.exp_probs_b.bias", 4},
        {"arcee", "arcee.feed_forward_length", 24, "blk.1.ffn_up.weight", 24 * 16},
        {"dots1", "dots1.expert_gating_func", 2, "blk.0.exp_probs_b.bias", 6},
        {"dots1", "dots1.expert_shared_count", 2, "blk.1.ffn_up_shexp.weight", 24 * 16},
        {"gemma", "gemma.attention.key_length", 16, "blk.1.ffn_norm.weight", 16},
        {"olmoe", "olmoe.expert_used_count", 2, "blk.1.attn_k_norm.weight", 16},
        {"cohere", "command-r.logit_scale", 0.25, "blk.1.attn_norm.weight", 48},
        {"cohere2", "cohere2.attention.layer_norm_epsilon", 1e-5, "blk.3.attn_q.weight", 3072},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char file[64];
        struct ax_gguf g;
        double v;
        snprintf(file, sizeof file, "%s.gguf", all[i].file); /* golden_models_come_back wrote it */
        ok(ax_gguf_open(&g, in_dir(file)));
        ok(ax_gguf_f64(&g, all[i].key, &v));
        assert_true(fabs(v - all[i].value) < 1e-10);
        const struct ax_gguf_tensor *t = ax_gguf_tensor(&g, all[i].tensor);
        assert_non_null(t);
        assert_int_equal(t->numel, all[i].elements);
        ax_gguf_close(&g);
    }
}

static enum ax_status fill_bf16(void *ctx, int64_t first, int64_t n, void *out) {
    return ax_st_read(ctx, first, n, AX_BF16, out);
}

/* NAME-bf16: the golden model as it would be published. */
static void round_folder(const char *name, const char *to) {
    struct ax_st_output tensors[160];
    struct ax_hf hf;
    char rest[64];
    snprintf(rest, sizeof rest, "models/%s", name);
    const char *from = golden_path(rest);
    ok(ax_hf_open(&hf, from));
    const int n = ax_hf_count(&hf);
    assert_in_range(n, 1, 160);
    for (int i = 0; i < n; i++) {
        const struct ax_st_entry *e = ax_hf_at(&hf, i);
        tensors[i] = (struct ax_st_output){.name = e->name,
                                           .dtype = AX_BF16,
                                           .ndim = e->ndim,
                                           .fill = fill_bf16,
                                           .ctx = (void *)(uintptr_t)e};
        memcpy(tensors[i].shape, e->shape, sizeof e->shape);
    }
    const struct ax_hf_save save = {
        .dir = in_dir(to), .base_dir = from, .dtype = AX_BF16, .n = n, .tensors = tensors};
    ok(ax_hf_write(&save));
    ax_hf_close(&hf);
    copy_file(in_dir("small"), to, "tokenizer.json");
}

/* The type is that of the weights, and what a file states, it has to the bit. */
static void bfloat16_comes_back(void **state) {
    (void)state;
    static const char *const models[] = {"granite",     "olmo2",       "glm4",    "glm4_moe",
                                         "deepseek_v3", "deepseek_v2", "gpt_oss", "phi3",
                                         "qwen2_moe",   "llama_bias"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char names[3][64];
        struct ax_gguf g;
        snprintf(names[0], sizeof names[0], "%s-bf16", models[i]);
        snprintf(names[1], sizeof names[1], "%s-bf16.gguf", models[i]);
        snprintf(names[2], sizeof names[2], "%s-bf16-again", models[i]);
        round_folder(models[i], names[0]);
        ok(to_gguf(in_dir(names[0]), names[1], NULL));
        ok(ax_gguf_open(&g, in_dir(names[1])));
        const struct ax_gguf_tensor *t = ax_gguf_tensor(&g, "blk.1.attn_output.weight");
        assert_non_null(t);
        assert_string_equal(t->type->name, "BF16");
        ax_gguf_close(&g);
        to_hf(names[1], names[2]);
        same_weights(in_dir(names[0]), in_dir(names[2]));
    }
}

/* What llama.cpp expects of gpt-oss, by the layout that its converter has: rows of gate and up are the even
 * and odd columns, and down is turned. */
static void experts_of_one_tensor_are_turned(void **state) {
    (void)state;
    struct ax_gguf g;
    struct ax_hf hf;
    enum { E = 6, IN = 64, F = 32 };
    static const struct {
        const char *gguf, *hf;
        int64_t from, every, cols; /* of HF's rows */
    } parts[] = {
        {"blk.1.ffn_gate_exps.weight", "model.layers.1.mlp.experts.gate_up_proj", 0, 2, 2 * F},
        {"blk.1.ffn_up_exps.weight", "model.layers.1.mlp.experts.gate_up_proj", 1, 2, 2 * F},
        {"blk.1.ffn_down_exps.weight", "model.layers.1.mlp.experts.down_proj", 0, 1, IN},
    };
    ok(ax_gguf_open(&g, in_dir("gpt_oss.gguf"))); /* golden_models_come_back wrote it */
    ok(ax_hf_open(&hf, golden_path("models/gpt_oss")));
    for (size_t i = 0; i < 3; i++) {
        const struct ax_gguf_tensor *t = ax_gguf_tensor(&g, parts[i].gguf);
        const struct ax_st_entry *e = ax_hf_find(&hf, parts[i].hf);
        const int64_t in = e->shape[1], out = parts[i].cols / parts[i].every;
        assert_true(t->ndim == 3 && t->shape[0] == E && t->shape[1] == out && t->shape[2] == in);
        assert_true(t->bytes == (size_t)t->numel * ax_dtype_size(e->dtype));
        for (int64_t k = 0; k < t->numel; k++) {
            const int64_t x = k / (in * out), r = k / in % out, c = k % in;
            const double want =
                ax_load(e->dtype, e->data,
                        (x * in + c) * parts[i].cols + parts[i].from + parts[i].every * r);
            assert_true(ax_load(e->dtype, t->data, k) == want);
        }
    }
    const struct ax_gguf_tensor *bias = ax_gguf_tensor(&g, "blk.0.ffn_up_exps.bias");
    const struct ax_st_entry *b = ax_hf_find(&hf, "model.layers.0.mlp.experts.gate_up_proj_bias");
    assert_true(bias->ndim == 2 && bias->shape[0] == E && bias->shape[1] == F);
    for (int64_t k = 0; k < bias->numel; k++)
        assert_true(ax_load(AX_F32, bias->data, k) == ax_load(b->dtype, b->data, 2 * k + 1));
    assert_non_null(ax_gguf_tensor(&g, "blk.0.attn_sinks.weight"));
    ax_hf_close(&hf);
    ax_gguf_close(&g);
    /* what a file of this family cannot say is as in published models */
    set_member("gpt_oss", "config.json", "rope_parameters/truncate", "{\"v\": true}");
    assert_int_equal(to_gguf(in_dir("gpt_oss"), "no.gguf", NULL), AX_ERR_UNSUPPORTED);
    assert_non_null(strstr(ax_error_text(), "rope type yarn is without truncate: false"));
    ax_error_clear();
}

/* As llama.cpp's converter orders the heads of Qwen3.5's delta rule: all key heads' first value heads, then all
 * second ones. Norms are stored + 1, except the rule's own, and A_log as the rate that it stands for. */
static void value_heads_are_tiled(void **state) {
    (void)state;
    enum { KEYS = 2, EACH = 3, DK = 12, DV = 8, D = 40, TAPS = 3, Q_K = 2 * KEYS * DK };
    struct ax_gguf g;
    struct ax_hf hf;
#define OF(name)   "model.layers.0." name
#define RULE(name) OF("linear_attn." name)
    ok(ax_gguf_open(&g, in_dir("qwen3_5.gguf"))); /* golden_models_come_back wrote it */
    ok(ax_hf_open(&hf, golden_path("models/qwen3_5")));
    for (int64_t r = 0; r < Q_K + KEYS * EACH * DV; r++) {
        const int64_t v = r - Q_K,
                      head = v / DV; /* of the file: round head / KEYS of key head head % KEYS */
        const int64_t from = r < Q_K ? r : Q_K + (head % KEYS * EACH + head / KEYS) * DV + v % DV;
        for (int64_t c = 0; c < D; c++) {
            expect(&g, "blk.0.attn_qkv.weight", r * D + c,
                   value(&hf, RULE("in_proj_qkv.weight"), from * D + c));
            if (r >= Q_K)
                expect(&g, "blk.0.attn_gate.weight", v * D + c,
                       value(&hf, RULE("in_proj_z.weight"), (from - Q_K) * D + c));
            if (r >= Q_K)
                expect(&g, "blk.0.ssm_out.weight", c * KEYS * EACH * DV + v,
                       value(&hf, RULE("out_proj.weight"), c * KEYS * EACH * DV + from - Q_K));
        }
        for (int64_t k = 0; k < TAPS; k++)
            expect(&g, "blk.0.ssm_conv1d.weight", r * TAPS + k,
                   value(&hf, RULE("conv1d.weight"), from * TAPS + k));
    }
    for (int64_t head = 0; head < KEYS * EACH; head++) {
        const int64_t from = head % KEYS * EACH + head / KEYS;
        expect(&g, "blk.0.ssm_a", head, -exp(value(&hf, RULE("A_log"), from)));
        expect(&g, "blk.0.ssm_dt.bias", head, value(&hf, RULE("dt_bias"), from));
        expect(&g, "blk.0.ssm_beta.weight", head * D + 7,
               value(&hf, RULE("in_proj_b.weight"), from * D + 7));
        expect(&g, "blk.0.ssm_alpha.weight", head * D + 9,
               value(&hf, RULE("in_proj_a.weight"), from * D + 9));
    }
    expect(&g, "blk.0.ssm_norm.weight", 5, value(&hf, RULE("norm.weight"), 5));
    expect(&g, "blk.0.attn_norm.weight", 5, 1 + value(&hf, OF("input_layernorm.weight"), 5));
    ax_hf_close(&hf);
    ax_gguf_close(&g);
}

/* What readers compute decays from, the norm's groups, and the halves of a matrix. */
static void mamba_is_as_readers_have_it(void **state) {
    (void)state;
    struct ax_gguf g;
    struct ax_hf hf;
    bool rotates;
    int32_t *heads;
    size_t n;
    ok(ax_gguf_open(&g, in_dir("granite4_dense.gguf"))); /* golden_models_come_back wrote it */
    ok(ax_hf_open(&hf, in_dir("granite4_dense")));
    ok(ax_gguf_bool_or(&g, "granitehybrid.rope.scaling.finetuned", true, &rotates));
    assert_false(rotates);
    ok(ax_gguf_i32s(&g, "granitehybrid.attention.head_count_kv", &heads, &n));
    assert_int_equal(n, 3);
    assert_true(heads[0] == 0 && heads[1] == 2 && heads[2] == 0);
    ax_free(heads);
    const struct ax_gguf_tensor *a = ax_gguf_tensor(&g, "blk.2.ssm_a"),
                                *norm = ax_gguf_tensor(&g, "blk.2.ssm_norm.weight");
    assert_true(a->ndim == 2 && a->shape[0] == 10 && a->shape[1] == 1);
    assert_true(norm->ndim == 2 && norm->shape[0] == 2 && norm->shape[1] == 40);
    for (int64_t i = 0; i < 10; i++) {
        expect(&g, "blk.2.ssm_a", i, -exp(value(&hf, "model.layers.2.mamba.A_log", i)));
        expect(&g, "blk.2.ssm_d", i, value(&hf, "model.layers.2.mamba.D", i));
    }
    for (int64_t i = 0; i < 48 * 40; i++) {
        const char *both = "model.layers.2.shared_mlp.input_linear.weight";
        expect(&g, "blk.2.ffn_gate.weight", i, value(&hf, both, i));
        expect(&g, "blk.2.ffn_up.weight", i, value(&hf, both, 48 * 40 + i));
    }
    ax_hf_close(&hf);
    ax_gguf_close(&g);
}

/* True if the file's tensors have the shapes that its keys ask for. */
static bool shapes_fit(const struct ax_gguf *g) {
    struct ax_gguf_model m;
    struct ax_gguf_weights w;
    ok(ax_gguf_model_read(&m, g));
    const enum ax_status st = ax_gguf_weights_create(&w, &m, AX_F32);
    ax_gguf_weights_free(&w);
    ax_error_clear();
    return st == AX_OK;
}

/* Layers are told apart by KV heads. llama.cpp's converter writes rates and taps with four dimensions, the first of
 * which are 1. */
static void kda_is_as_readers_have_it(void **state) {
    (void)state;
    struct ax_gguf g;
    struct ax_hf hf;
    int32_t *heads;
    size_t n;
    ok(ax_gguf_open(&g, in_dir("kimi_linear.gguf"))); /* golden_models_come_back wrote it */
    ok(ax_hf_open(&hf, golden_path("models/kimi_linear")));
    ok(ax_gguf_i32s(&g, "kimi-linear.attention.head_count_kv", &heads, &n));
    assert_int_equal(n, 3);
    assert_true(heads[0] == 0 && heads[1] == 1 && heads[2] == 0);
    ax_free(heads);
    const struct ax_gguf_tensor *a = ax_gguf_tensor(&g, "blk.2.ssm_a"),
                                *taps = ax_gguf_tensor(&g, "blk.2.ssm_conv1d_q.weight");
    assert_true(a->ndim == 2 && a->shape[0] == 4 && a->shape[1] == 1);
    assert_true(taps->ndim == 3 && taps->shape[0] == 40 && taps->shape[1] == 1 &&
                taps->shape[2] == 4);
    for (int64_t i = 0; i < 4; i++)
        expect(&g, "blk.2.ssm_a", i, -exp(value(&hf, "model.layers.2.self_attn.A_log", i)));
    for (int64_t i = 0; i < 4 * 40; i++)
        expect(&g, "blk.2.ssm_conv1d_q.weight", i,
               value(&hf, "model.layers.2.self_attn.q_conv1d.weight", i));
    struct ax_gguf_tensor *rates = (struct ax_gguf_tensor *)(uintptr_t)a,
                          *four = (struct ax_gguf_tensor *)(uintptr_t)taps;
    memcpy(rates->shape, (const int64_t[]){1, 1, 4, 1}, 4 * sizeof(int64_t));
    memcpy(four->shape, (const int64_t[]){1, 40, 1, 4}, 4 * sizeof(int64_t));
    rates->ndim = four->ndim = 4;
    assert_true(shapes_fit(&g));
    four->shape[0] = 2;
    assert_false(shapes_fit(&g));
    ax_hf_close(&hf);
    ax_gguf_close(&g);
    set_member("kimi_linear", "config.json", "linear_num_heads", "{\"v\": 2}");
    assert_int_equal(to_gguf(in_dir("kimi_linear"), "no.gguf", NULL), AX_ERR_UNSUPPORTED);
    assert_non_null(strstr(ax_error_text(), "heads of the delta rule are others than those of"));
    ax_error_clear();
}

static enum ax_status fill_made(void *ctx, int64_t first, int64_t n, void *out) {
    for (int64_t i = 0; i < n; i++)
        ((float *)out)[i] = tiny_value(ctx, first + i, 0) / 64;
    return AX_OK;
}

/* Qwen3-Next has q, k, v and z of a key head together; the file has them apart. */
static void groups_are_taken_apart(void **state) {
    (void)state;
    enum {
        KEYS = 2,
        EACH = 2,
        DK = 4,
        DV = 6,
        D = 16,
        V = EACH * DV,
        GROUP = 2 * (DK + V),
        N = 45
    };
#define LAYER(i, name) "model.layers." i "." name
#define SPARSE(i)                                                                                  \
    {LAYER(i, "input_layernorm.weight"), 1, {D}},                                                  \
        {LAYER(i, "post_attention_layernorm.weight"), 1, {D}},                                     \
        {LAYER(i, "mlp.gate.weight"), 2, {2, D}},                                                  \
        {LAYER(i, "mlp.shared_expert_gate.weight"), 2, {1, D}},                                    \
        {LAYER(i, "mlp.shared_expert.gate_proj.weight"), 2, {8, D}},                               \
        {LAYER(i, "mlp.shared_expert.up_proj.weight"), 2, {8, D}},                                 \
        {LAYER(i, "mlp.shared_expert.down_proj.weight"), 2, {D, 8}},                               \
        {LAYER(i, "mlp.experts.0.gate_proj.weight"), 2, {8, D}},                                   \
        {LAYER(i, "mlp.experts.0.up_proj.weight"), 2, {8, D}},                                     \
        {LAYER(i, "mlp.experts.0.down_proj.weight"), 2, {D, 8}},                                   \
        {LAYER(i, "mlp.experts.1.gate_proj.weight"), 2, {8, D}},                                   \
        {LAYER(i, "mlp.experts.1.up_proj.weight"), 2, {8, D}}, {                                   \
        LAYER(i, "mlp.experts.1.down_proj.weight"), 2, {                                           \
            D, 8                                                                                   \
        }                                                                                          \
    }
    static const struct {
        const char *name;
        int ndim;
        int64_t shape[3];
    } list[] = {{"model.embed_tokens.weight", 2, {VOCAB, D}},
                {"lm_head.weight", 2, {VOCAB, D}},
                {"model.norm.weight", 1, {D}},
                SPARSE("0"),
                SPARSE("1"),
                {RULE("in_proj_qkvz.weight"), 2, {KEYS * GROUP, D}},
                {RULE("in_proj_ba.weight"), 2, {2 * KEYS * EACH, D}},
                {RULE("conv1d.weight"), 3, {KEYS * (2 * DK + V), 1, 4}},
                {RULE("A_log"), 1, {KEYS * EACH}},
                {RULE("dt_bias"), 1, {KEYS * EACH}},
                {RULE("norm.weight"), 1, {DV}},
                {RULE("out_proj.weight"), 2, {D, KEYS * V}},
                {LAYER("1", "self_attn.q_proj.weight"), 2, {2 * 2 * 8, D}},
                {LAYER("1", "self_attn.k_proj.weight"), 2, {8, D}},
                {LAYER("1", "self_attn.v_proj.weight"), 2, {8, D}},
                {LAYER("1", "self_attn.o_proj.weight"), 2, {D, 16}},
                {LAYER("1", "self_attn.q_norm.weight"), 1, {8}},
                {LAYER("1", "self_attn.k_norm.weight"), 1, {8}}};
    struct ax_st_output tensors[N];
    const int n = (int)(sizeof list / sizeof *list);
    assert_in_range(n, 1, N);
    for (int i = 0; i < n; i++) {
        tensors[i] = (struct ax_st_output){.name = list[i].name,
                                           .dtype = AX_F32,
                                           .ndim = list[i].ndim,
                                           .fill = fill_made,
                                           .ctx = (void *)(uintptr_t)list[i].name};
        memcpy(tensors[i].shape, list[i].shape, sizeof list[i].shape);
    }
    const struct ax_hf_save save = {.dir = in_dir("next"), .n = n, .tensors = tensors};
    ok(ax_hf_write(&save));
    put_text(
        "next/config.json",
        "{\"model_type\": \"qwen3_next\", \"architectures\": [\"Qwen3NextForCausalLM\"], "
        "\"vocab_size\": 320, \"hidden_size\": 16, \"intermediate_size\": 8, "
        "\"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, "
        "\"head_dim\": 8, \"full_attention_interval\": 2, \"linear_num_key_heads\": 2, "
        "\"linear_num_value_heads\": 4, \"linear_key_head_dim\": 4, \"linear_value_head_dim\": 6, "
        "\"num_experts\": 2, \"num_experts_per_tok\": 1, \"moe_intermediate_size\": 8, "
        "\"shared_expert_intermediate_size\": 8, \"max_position_embeddings\": 64}");
    copy_file(in_dir("small"), "next", "tokenizer.json");
    ok(to_gguf(in_dir("next"), "next.gguf", NULL));
    to_hf("next.gguf", "next-again");
    same_weights_of(in_dir("next"), in_dir("next-again"), "A_log", 1, 2);
    struct ax_gguf g;
    struct ax_hf hf;
    ok(ax_gguf_open(&g, in_dir("next.gguf")));
    ok(ax_hf_open(&hf, in_dir("next")));
    for (int64_t key = 0; key < KEYS; key++)
        for (int64_t i = 0; i < GROUP * D; i++) {
            const double want = value(&hf, RULE("in_proj_qkvz.weight"), key * GROUP * D + i);
            const int64_t t = i / D, c = i % D, z = t - 2 * DK - V;
            const int64_t row = t < DK       ? key * DK + t
                                : t < 2 * DK ? KEYS * DK + key * DK + t - DK
                                             : 2 * KEYS * DK + key * V + t - 2 * DK;
            if (z < 0)
                expect(&g, "blk.0.attn_qkv.weight", row * D + c, want);
            else
                expect(&g, "blk.0.attn_gate.weight", (key * V + z) * D + c, want);
        }
    expect(&g, "blk.0.ssm_ba.weight", 3, value(&hf, RULE("in_proj_ba.weight"), 3));
    expect(&g, "blk.0.ssm_a", 1, -exp(value(&hf, RULE("A_log"), 1)));
    ax_hf_close(&hf);
    ax_gguf_close(&g);
    set_member("next", "config.json", "mlp_only_layers", "{\"v\": [0]}");
    assert_int_equal(to_gguf(in_dir("next"), "no.gguf", NULL), AX_ERR_UNSUPPORTED);
    assert_non_null(strstr(ax_error_text(), "only some layers have experts"));
    ax_error_clear();
}

/* Readers of olmo2 know no tied heads: the file has a copy, and a folder made of it is tied again. */
static void a_tied_head_is_copied_where_it_must_be(void **state) {
    (void)state;
    struct ax_gguf g;
    struct ax_arch arch;
    set_member("olmo2", "config.json", "tie_word_embeddings", "{\"v\": true}");
    tie_weights("olmo2");
    ok(to_gguf(in_dir("olmo2"), "olmo2-tied.gguf", NULL));
    to_hf("olmo2-tied.gguf", "olmo2-tied");
    ok(ax_gguf_open(&g, in_dir("olmo2-tied.gguf")));
    const struct ax_gguf_tensor *head = ax_gguf_tensor(&g, "output.weight");
    const struct ax_gguf_tensor *embed = ax_gguf_tensor(&g, "token_embd.weight");
    assert_true(head && embed && head->bytes == embed->bytes);
    assert_memory_equal(head->data, embed->data, head->bytes);
    ax_gguf_close(&g);
    ok(ax_arch_load(&arch, in_dir("olmo2-tied")));
    assert_true(arch.tied);
    same_weights(in_dir("olmo2"), in_dir("olmo2-tied"));
    ax_arch_free(&arch);
}

/* Of a latent as one head that all heads share, as llama.cpp's own converter states it. */
static void keys_of_latent_attention(void **state) {
    (void)state;
    static const struct {
        const char *key;
        int64_t value;
    } sizes[] = {
        {"deepseek2.attention.head_count", 4},       {"deepseek2.attention.head_count_kv", 1},
        {"deepseek2.attention.key_length", 16 + 16}, {"deepseek2.attention.value_length", 16},
        {"deepseek2.attention.key_length_mla", 32},  {"deepseek2.attention.value_length_mla", 24},
        {"deepseek2.attention.q_lora_rank", 24},     {"deepseek2.attention.kv_lora_rank", 16},
        {"deepseek2.rope.dimension_count", 16},      {"deepseek2.leading_dense_block_count", 1},
        {"deepseek2.expert_shared_count", 1},        {"deepseek2.expert_gating_func", 2},
        {"deepseek2.expert_group_count", 4},         {"deepseek2.expert_group_used_count", 2},
        {"deepseek2.expert_feed_forward_length", 32}};
    static const int64_t keys[] = {4, 16, 16}, values[] = {4, 24, 16};
    struct ax_gguf g;
    int64_t v;
    double x;
    bool on;
    ok(ax_gguf_open(&g, in_dir("deepseek_v3.gguf"))); /* of golden_models_come_back */
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        ok(ax_gguf_i64(&g, sizes[i].key, 0, INT32_MAX, &v));
        assert_int_equal(v, sizes[i].value);
    }
    ok(ax_gguf_f64(&g, "deepseek2.expert_weights_scale", &x));
    assert_true(x == 2.5);
    ok(ax_gguf_f64(&g, "deepseek2.rope.scaling.yarn_log_multiplier", &x));
    assert_true(fabs(x - 0.1) < 1e-7);
    ok(ax_gguf_bool_or(&g, "deepseek2.expert_weights_norm", false, &on));
    assert_true(on);
    const struct ax_gguf_tensor *k = ax_gguf_tensor(&g, "blk.1.attn_k_b.weight");
    const struct ax_gguf_tensor *w = ax_gguf_tensor(&g, "blk.1.attn_v_b.weight");
    assert_true(k && w && k->ndim == 3 && w->ndim == 3);
    assert_memory_equal(k->shape, keys, sizeof keys);
    assert_memory_equal(w->shape, values, sizeof values);
    assert_non_null(ax_gguf_tensor(&g, "blk.1.exp_probs_b.bias"));
    assert_null(ax_gguf_tensor(&g, "blk.0.exp_probs_b.bias"));
    ax_gguf_close(&g);
}

/* What a file of the family has no key or no tensor for. */
static void settings_without_a_key_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *folder, *key, *value, *back, *why;
    } all[] = {
        {"gemma2", "attn_logit_softcapping", "null", "50.0", "attn_logit_softcapping is null or 0"},
        {"gemma2", "final_logit_softcapping", "null", "30.0",
         "final_logit_softcapping is null or 0"},
        {"cohere2", "sliding_window", "null", "10", "sliding_window is null or 0"},
        {"gemma2", "attention_bias", "true", "false", "attention_bias is true for this model_type"},
        {"gemma3_text", "attention_bias", "true", "false",
         "attention_bias is true for this model_type"},
        {"olmo2", "attention_bias", "true", "false", "attention_bias is true for this model_type"},
        {"granite4_dense", "attention_bias", "true", "false",
         "attention_bias is true for this model_type"},
        {"lfm2_moe", "use_expert_bias", "false", "true",
         "use_expert_bias is another than the family's"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char text[96];
        snprintf(text, sizeof text, "{\"v\": %s}", all[i].value);
        set_member(all[i].folder, "config.json", all[i].key, text);
        assert_int_equal(to_gguf(in_dir(all[i].folder), "no.gguf", NULL), AX_ERR_UNSUPPORTED);
        snprintf(text, sizeof text, "%s: config.json: %s", all[i].folder, all[i].why);
        assert_non_null(strstr(ax_error_text(), text));
        ax_error_clear();
        snprintf(text, sizeof text, "{\"v\": %s}", all[i].back);
        set_member(all[i].folder, "config.json", all[i].key, text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_models_come_back),
        cmocka_unit_test(ernie_comes_back_without_biases),
        cmocka_unit_test(keys_of_further_kinds),
        cmocka_unit_test(bfloat16_comes_back),
        cmocka_unit_test(experts_of_one_tensor_are_turned),
        cmocka_unit_test(value_heads_are_tiled),
        cmocka_unit_test(mamba_is_as_readers_have_it),
        cmocka_unit_test(kda_is_as_readers_have_it),
        cmocka_unit_test(groups_are_taken_apart),
        cmocka_unit_test(a_tied_head_is_copied_where_it_must_be),
        cmocka_unit_test(keys_of_latent_attention),
        cmocka_unit_test(settings_without_a_key_are_refused),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
