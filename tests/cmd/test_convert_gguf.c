/* `axtrain convert --to gguf`: a folder that becomes a file and a folder again is the same to the
 * bit, for every kind of model; what cannot be stated is refused and leaves nothing behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <math.h>
#include <unistd.h>

#include "base/text/json.h"
#include "cmd/commands.h"
#include "model/convert/from_gguf.h"
#include "cmd/to_gguf.h"
#include "model/convert/merge.h"
#include "data/text/tokenizer/tokenizer.h"
#include "model/arch/arch.h"
#include "tests/ckpt/folder.h"
#include "tests/cmd/gguf_tiny.h"
#include "tests/golden_files.h"

static void ok(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

/* The folder NAME from a tiny file. */
static void put_folder(const struct tiny *t, const char *name) {
    struct gguf_out o = {0};
    tiny_sizes(&o, t);
    tiny_vocab(&o, t);
    key_text(&o, "tokenizer.chat_template", "{{ messages }}\xc3\xa4");
    key_text(&o, "tokenizer.chat_template.tool_use", "{{ tools }}");
    tiny_tensors(&o, t);
    gguf_out_finish(&o);
    put_file("source.gguf", o.file.data, o.file.len);
    gguf_out_free(&o);
    struct ax_convert c = {.src = in_dir("source.gguf"), .dst = in_dir(name)};
    ok(ax_convert_gguf_to_hf(&c));
}

static enum ax_status to_gguf(const char *src, const char *dst, const char *quant) {
    struct ax_to_gguf c = {.src = src, .dst = in_dir(dst), .threads = 2};
    ok(ax_to_gguf_quant(&c.quant, quant));
    return ax_convert_to_gguf(&c);
}

static void to_hf(const char *src, const char *dst) {
    struct ax_convert c = {.src = in_dir(src), .dst = in_dir(dst)};
    ok(ax_convert_gguf_to_hf(&c));
}

/* --- and back --- */

static void same_files(const char *a, const char *b, const char *name) {
    char paths[2][128];
    snprintf(paths[0], sizeof paths[0], "%s/%s", a, name);
    snprintf(paths[1], sizeof paths[1], "%s/%s", b, name);
    char *x = get_text(paths[0]), *y = get_text(paths[1]);
    if (strcmp(x, y) != 0)
        fail_msg("%s differs:\n%s\n%s", name, x, y);
    ax_free(x);
    ax_free(y);
}

/* What a file of Gemma's has of a value: norms + 1, and q or its norm with what the softmax scale
 * lacks. Both are rounded. */
static double stored(const char *name, double x, const char *scaled, double factor) {
    const bool norm = strstr(name, "norm") != NULL;
    return (x + norm) * (scaled && strstr(name, scaled) ? factor : 1) - norm;
}

/* Every tensor of `folder` is in `again` with the same numbers, and no other; of Gemma's (`scaled` is
 * not NULL) within rounding. Layers for multi-token prediction are left out. */
static void same_weights_of(const char *folder, const char *again, const char *scaled,
                            double factor, int64_t layers) {
    struct ax_hf a, b;
    ok(ax_hf_open(&a, folder));
    ok(ax_hf_open(&b, again));
    int left_out = 0;
    for (int i = 0; i < ax_hf_count(&a); i++) {
        const struct ax_st_entry *x = ax_hf_at(&a, i), *y = ax_hf_find(&b, x->name);
        const bool unused =
            strncmp(x->name, "model.layers.", 13) == 0 && strtoll(x->name + 13, NULL, 10) >= layers;
        if (!y && (unused || strcmp(x->name, "lm_head.weight") == 0) && ++left_out)
            continue;
        if (!y) {
            fail_msg("%s is not there", x->name);
            continue;
        }
        assert_int_equal(x->numel, y->numel);
        for (int64_t k = 0; k < x->numel; k++) {
            const double got = ax_load(y->dtype, y->data, k), v = ax_load(x->dtype, x->data, k);
            const double want = scaled ? stored(x->name, v, scaled, factor) : v;
            /* half a place of 1 + v each time that it is rounded */
            const double place = 0x1p-24 * (1 + fabs(v));
            if (!(fabs(got - want) <= (scaled && want != v ? 4 * place : scaled ? place : 0)))
                fail_msg("%s[%lld] is %.9g, not %.9g", x->name, (long long)k, got, want);
        }
    }
    assert_int_equal(ax_hf_count(&a) - left_out, ax_hf_count(&b));
    ax_hf_close(&a);
    ax_hf_close(&b);
}

static void same_weights(const char *folder, const char *again) {
    same_weights_of(folder, again, NULL, 1, INT64_MAX);
}

static void folders_come_back_as_they_were(void **state) {
    (void)state;
    static const struct tiny models[] = {
        {.arch = "llama", .permuted = true, .untied = true, .matrix_type = TYPE_F32},
        {.arch = "llama", .permuted = true, .matrix_type = TYPE_BF16, .pre = "llama-bpe"},
        {.arch = "llama", .permuted = true, .matrix_type = TYPE_F16, .kind = "llama"},
        {.arch = "qwen2", .qkv_bias = true, .matrix_type = TYPE_BF16, .pre = "qwen2"},
        {.arch = "qwen3", .qk_norm = true, .matrix_type = TYPE_F32, .pre = "deepseek-coder"},
    };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char names[3][32];
        snprintf(names[0], sizeof names[0], "a%zu", i);
        snprintf(names[1], sizeof names[1], "b%zu.gguf", i);
        snprintf(names[2], sizeof names[2], "c%zu", i);
        put_folder(&models[i], names[0]);
        ok(to_gguf(in_dir(names[0]), names[1], NULL));
        to_hf(names[1], names[2]);
        same_files(names[0], names[2], "config.json");
        same_files(names[0], names[2], "generation_config.json");
        same_files(names[0], names[2], "tokenizer.json");
        same_files(names[0], names[2], "tokenizer_config.json");
        same_weights(in_dir(names[0]), in_dir(names[2]));
    }
}

/* A folder of the scratch folder with files of others, and `tokens` ids for the tokenizer. */
static void copy_file(const char *from_dir, const char *to, const char *name) {
    char *path, *text, *copy;
    size_t len;
    ok(ax_path_join(&path, from_dir, name));
    ok(ax_path_join(&copy, in_dir(to), name));
    if (ax_path_exists(path)) {
        ok(ax_read_file(path, 64 << 20, &text, &len));
        ok(ax_write_file_atomic(copy, text, len));
        ax_free(text);
    }
    ax_free(path);
    ax_free(copy);
}

/* Two configs say the same. */
static void same_models(const struct ax_arch *a, const struct ax_arch *b, bool scaled) {
    const struct ax_routing *r = &a->moe.routing, *s = &b->moe.routing;
    assert_int_equal(a->moe.n_experts, b->moe.n_experts);
    assert_int_equal(a->moe.n_active, b->moe.n_active);
    assert_int_equal(a->moe.width, b->moe.width);
    assert_int_equal(a->moe.shared_width, b->moe.shared_width);
    assert_true(a->norm_eps == b->norm_eps && /* a file has single precision */
                (float)a->rope.theta == (float)b->rope.theta &&
                a->rope_local.theta == b->rope_local.theta && a->tied == b->tied);
    assert_true(a->rope.kind == b->rope.kind && a->rope.dim == b->rope.dim &&
                a->rope.interleaved == b->rope.interleaved);
    assert_memory_equal(a->rope.short_factor, b->rope.short_factor, sizeof a->rope.short_factor);
    assert_memory_equal(a->rope.long_factor, b->rope.long_factor, sizeof a->rope.long_factor);
    assert_true(a->rope.kind == AX_ROPE_DEFAULT || /* then it is not used */
                a->rope.original_max_positions == b->rope.original_max_positions);
    assert_true(a->gating.gate == b->gating.gate && a->gating.limit == b->gating.limit);
    assert_true(r->sigmoid == s->sigmoid && r->renormalize == s->renormalize &&
                r->groups == s->groups && r->groups_kept == s->groups_kept && r->scale == s->scale);
    assert_true(scaled || fabs(a->softmax_scale / b->softmax_scale - 1) < 1e-7);
    assert_true(a->score_softcap == b->score_softcap && a->logit_softcap == b->logit_softcap);
    assert_true(fabs(a->logit_scale / b->logit_scale - 1) < 1e-7 &&
                a->embedding_scale == b->embedding_scale && a->residual_scale == b->residual_scale);
    for (int64_t i = 0; i < a->n_layers; i++)
        assert_true(a->layers[i].ffn == b->layers[i].ffn &&
                    a->layers[i].window == b->layers[i].window &&
                    a->layers[i].rope == b->layers[i].rope);
}

/* Replaces one member, or one of a member ("model/merges"), of a JSON file in a folder. */
static void set_member(const char *folder, const char *file, const char *key, const char *json) {
    struct ax_json_doc doc, value;
    char path[128], *text;
    size_t len;
    snprintf(path, sizeof path, "%s/%s", folder, file);
    ok(ax_json_load(&doc, in_dir(path), 1 << 22));
    ok(ax_json_parse(&value, "value", json, strlen(json)));
    const char *slash = strchr(key, '/');
    json_t *object = slash ? json_object_getn(doc.root, key, (size_t)(slash - key)) : doc.root;
    assert_int_equal(
        json_object_set(object, slash ? slash + 1 : key, json_object_get(value.root, "v")), 0);
    ok(ax_json_dump(doc.root, &text, &len));
    put_file(path, text, len);
    ax_free(text);
    ax_json_free(&value);
    ax_json_free(&doc);
}

/* The golden models, which differ in what a config can say; those without a tokenizer get the tiny
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
                  {"smollm3", "smollm3", NULL}};
    static const struct tiny small = {.arch = "llama", .permuted = true, .matrix_type = TYPE_BF16};
    put_folder(&small, "small");
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char rest[64], file[64], again[64];
        struct ax_arch arch[2];
        snprintf(rest, sizeof rest, "models/%s", models[i].name);
        snprintf(file, sizeof file, "%s.gguf", models[i].name);
        snprintf(again, sizeof again, "%s-again", models[i].name);
        const char *from = golden_path(rest);
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
        if (strcmp(models[i].name, "deepseek_v2_group") == 0) {
            set_member(models[i].name, "config.json", "rope_parameters/mscale", "{\"v\": 0.707}");
            set_member(models[i].name, "config.json", "rope_parameters/mscale_all_dim",
                       "{\"v\": 0.707}");
        }
        ok(to_gguf(in_dir(models[i].name), file, NULL));
        to_hf(file, again);
        ok(ax_arch_load(&arch[0], in_dir(models[i].name)));
        ok(ax_arch_load(&arch[1], in_dir(again)));
        same_weights_of(in_dir(models[i].name), in_dir(again), models[i].scaled,
                        arch[0].softmax_scale / arch[1].softmax_scale, arch[0].n_layers);
        same_models(&arch[0], &arch[1], models[i].scaled != NULL);
        assert_string_equal(arch[1].family->model_type, models[i].type);
        ax_arch_free(&arch[0]);
        ax_arch_free(&arch[1]);
    }
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
        {"seed_oss", "seed_oss.block_count", 2, "blk.1.post_attention_norm.weight", 48},
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
}

/* --- what the file says --- */

static bool key_is(const struct ax_gguf *g, const char *key, const char *want) {
    struct ax_gguf_text t;
    ok(ax_gguf_string_or_null(g, key, &t));
    return t.s && t.len == strlen(want) && memcmp(t.s, want, t.len) == 0;
}

static const struct tiny llama = {
    .arch = "llama", .permuted = true, .untied = true, .matrix_type = TYPE_BF16};

/* ROPE is the config's object; the one that comes back describes the same rotation. */
static void scalings_are_stated(void **state) {
    (void)state;
    static const char *const scalings[] = {
        "{\"v\": {\"rope_type\": \"linear\", \"factor\": 4.0}}",
        "{\"v\": {\"rope_type\": \"yarn\", \"factor\": 4.0, "
        "\"original_max_position_embeddings\": 512, \"beta_slow\": 2.0}}",
        "{\"v\": {\"rope_type\": \"yarn\", \"factor\": 4.0, "
        "\"original_max_position_embeddings\": 512, \"beta_fast\": 16.0}}",
        "{\"v\": {\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, "
        "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 512}}"};
    put_folder(&llama, "scaled");
    for (int i = 0; i < 4; i++) {
        struct ax_arch arch[2];
        float freqs[2][HEAD / 2];
        double scale[2];
        char again[16];
        snprintf(again, sizeof again, "scaled%d", i);
        set_member("scaled", "config.json", "rope_scaling", scalings[i]);
        ok(to_gguf(in_dir("scaled"), "scaled.gguf", NULL));
        to_hf("scaled.gguf", again);
        ok(ax_arch_load(&arch[0], in_dir("scaled")));
        ok(ax_arch_load(&arch[1], in_dir(again)));
        assert_true(arch[0].rope.kind != AX_ROPE_DEFAULT && arch[0].rope.kind == arch[1].rope.kind);
        for (int k = 0; k < 2; k++)
            ax_rope_frequencies(&arch[k].rope, 0, freqs[k], &scale[k]);
        for (int k = 0; k < HEAD / 2; k++)
            assert_true(fabsf(freqs[0][k] - freqs[1][k]) <= 1e-6f * freqs[0][k]);
        assert_true(fabs(scale[0] - scale[1]) < 1e-6);
        struct ax_gguf g;
        ok(ax_gguf_open(&g, in_dir("scaled.gguf"))); /* only what differs from the defaults */
        assert_true(!ax_gguf_key(&g, "llama.rope.scaling.yarn_beta_slow") == (i != 1));
        assert_true(!ax_gguf_key(&g, "llama.rope.scaling.yarn_beta_fast") == (i != 2));
        ax_gguf_close(&g);
        ax_arch_free(&arch[0]);
        ax_arch_free(&arch[1]);
    }
}

static void keys_and_types_of_a_quantized_file(void **state) {
    (void)state;
    struct ax_gguf g;
    int64_t v;
    put_folder(&llama, "quant");
    ok(to_gguf(in_dir("quant"), "my.model.gguf", "Q4_K_M"));
    ok(ax_gguf_open(&g, in_dir("my.model.gguf")));
    assert_true(key_is(&g, "general.architecture", "llama"));
    assert_true(key_is(&g, "general.name", "my.model"));
    assert_true(key_is(&g, "tokenizer.ggml.pre", "smollm"));
    assert_true(key_is(&g, "tokenizer.chat_template", "{{ messages }}\xc3\xa4"));
    assert_true(key_is(&g, "tokenizer.chat_template.tool_use", "{{ tools }}"));
    ok(ax_gguf_i64(&g, "general.file_type", 0, 99, &v));
    assert_int_equal(v, 15);
    static const struct {
        const char *key;
        int64_t value;
    } sizes[] = {{"llama.vocab_size", VOCAB},           {"llama.embedding_length", HIDDEN},
                 {"llama.block_count", LAYERS},         {"llama.feed_forward_length", FFN},
                 {"llama.attention.head_count", HEADS}, {"llama.attention.head_count_kv", KV_HEADS},
                 {"llama.attention.key_length", HEAD},  {"llama.attention.value_length", HEAD}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        ok(ax_gguf_i64(&g, sizes[i].key, 0, INT32_MAX, &v));
        assert_int_equal(v, sizes[i].value);
    }
    /* rows of 64 and 96 are no whole blocks of 256 */
    static const char *const types[][2] = {{"token_embd.weight", "Q5_0"},
                                           {"output.weight", "Q8_0"},
                                           {"blk.0.attn_q.weight", "Q5_0"},
                                           {"blk.1.ffn_down.weight", "Q8_0"},
                                           {"blk.0.attn_norm.weight", "F32"}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        assert_string_equal(ax_gguf_tensor(&g, types[i][0])->type->name, types[i][1]);
    ax_gguf_close(&g);
}

/* Gives a folder's head the values of its embedding, as a tied model's has them. */
static void tie_weights(const char *folder) {
    struct ax_safetensors st;
    char path[512];
    snprintf(path, sizeof path, "%s/model.safetensors", in_dir(folder));
    ok(ax_safetensors_open(&st, path));
    const struct ax_st_entry *head = ax_safetensors_find(&st, "lm_head.weight");
    const struct ax_st_entry *embed = ax_safetensors_find(&st, "model.embed_tokens.weight");
    assert_true(head && embed && head->numel == embed->numel);
    const long at = (long)((const char *)head->data - (const char *)st.map.data);
    const size_t n = (size_t)embed->numel * sizeof(float);
    char *bytes;
    ok(ax_alloc(&bytes, n, 1));
    memcpy(bytes, embed->data, n);
    ax_safetensors_close(&st);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
    ax_free(bytes);
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

static void merged_straight_to_a_file(void **state) {
    (void)state;
    struct ax_merge folder = {.base = golden_path("models/llama"),
                              .adapter = golden_path("lora/llama_r4"),
                              .dst = in_dir("merged"),
                              .threads = 1};
    struct ax_merge file = folder;
    file.to_gguf = true;
    file.dst = in_dir("merged.gguf");
    ok(ax_merge_run(&folder));
    ok(ax_merge_run(&file));
    assert_true(file.changed == folder.changed && file.error == folder.error);
    to_hf("merged.gguf", "merged-again");
    same_weights(in_dir("merged"), in_dir("merged-again"));
    assert_false(ax_path_exists(in_dir("merged.gguf.merged")));
}

/* What `to_gguf` says on stderr about a folder. */
static char *warnings(const char *folder) {
    fflush(stderr);
    const int saved = dup(STDERR_FILENO);
    const int file = open(in_dir("warnings"), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    assert_true(saved >= 0 && file >= 0 && dup2(file, STDERR_FILENO) >= 0);
    ax_log_set_level(AX_LOG_WARN);
    const enum ax_status st = to_gguf(in_dir(folder), "windows.gguf", NULL);
    ax_log_set_level(AX_LOG_ERROR);
    assert_int_equal(dup2(saved, STDERR_FILENO), STDERR_FILENO);
    close(saved);
    close(file);
    ok(st);
    ok(ax_remove_tree(in_dir("windows.gguf")));
    return get_text("warnings");
}

static void a_window_that_would_be_lost_is_named(void **state) {
    (void)state;
    static const struct {
        const char *window;
        bool lost;
    } cases[] = {{"{\"v\": null}", false}, {"{\"v\": 4096}", false}, {"{\"v\": 8}", true}};
    put_folder(&llama, "windows");
    set_member("windows", "config.json", "model_type", "{\"v\": \"mistral\"}");
    set_member("windows", "config.json", "architectures", "{\"v\": [\"MistralForCausalLM\"]}");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        set_member("windows", "config.json", "sliding_window", cases[i].window);
        char *said = warnings("windows");
        assert_int_equal(strstr(said, "sliding_window: 8 tokens") != NULL, cases[i].lost);
        assert_int_equal(strstr(said, "sliding_window") != NULL, cases[i].lost);
        ax_free(said);
    }
}

/* --- what is refused --- */

static void refused(const char *folder, enum ax_status want, const char *mention) {
    const uint64_t live = ax_mem_live_blocks();
    assert_int_equal(to_gguf(in_dir(folder), "no.gguf", NULL), want);
    assert_mentions(mention);
    assert_false(ax_path_exists(in_dir("no.gguf")));
    assert_int_equal(ax_mem_live_blocks(), live);
}

static void what_a_file_cannot_state_is_refused(void **state) {
    (void)state;
    static const struct tiny scored = {
        .arch = "llama", .permuted = true, .matrix_type = TYPE_BF16, .kind = "llama"};
    put_folder(&llama, "bad");
    set_member("bad", "config.json", "rope_scaling",
               "{\"v\": {\"rope_type\": \"dynamic\", \"factor\": 2.0}}");
    refused("bad", AX_ERR_UNSUPPORTED, "config.json: rope type dynamic");
    set_member("bad", "config.json", "rope_scaling", "{\"v\": null}");
    set_member("bad", "config.json", "intermediate_size", "{\"v\": 97}");
    refused("bad", AX_ERR_DATA, "mlp.gate_proj.weight is bfloat16 [96, 64]");
    set_member("bad", "config.json", "intermediate_size", "{\"v\": 96}");
    set_member("bad", "config.json", "num_hidden_layers", "{\"v\": 1}");
    refused("bad", AX_ERR_DATA, "unexpected tensor model.layers.1.input_layernorm.weight");
    set_member("bad", "config.json", "num_hidden_layers", "{\"v\": 2}");
    set_member("bad", "config.json", "tie_word_embeddings", "{\"v\": true}");
    ok(to_gguf(in_dir("bad"), "tied.gguf", NULL)); /* the head is a copy */
    set_member("bad", "config.json", "num_hidden_layers", "{\"v\": 1}");
    refused("bad", AX_ERR_DATA, "unexpected tensor model.layers.1.input_layernorm.weight");
    set_member("bad", "config.json", "num_hidden_layers", "{\"v\": 2}");
    set_member("bad", "config.json", "tie_word_embeddings", "{\"v\": false}");
    set_member("bad", "config.json", "vocab_size", "{\"v\": 300}");
    refused("bad", AX_ERR_DATA, "ids up to 319, but the model has 300 embeddings");
    set_member("bad", "config.json", "vocab_size", "{\"v\": 320}");
    set_member("bad", "tokenizer.json", "pre_tokenizer",
               "{\"v\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", "
               "\"pattern\": {\"Regex\": \"\\\\d{7}\"}, \"behavior\": \"Isolated\", \"invert\": "
               "false}, {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": "
               "false}]}}");
    refused("bad", AX_ERR_UNSUPPORTED, "splits text by \\d{7}");
    put_folder(&scored, "order");
    set_member("order", "tokenizer.json", "model/merges", "{\"v\": [[\"t\", \"h\"]]}");
    refused("order", AX_ERR_UNSUPPORTED, "the order of model.merges cannot be expressed");
}

/* Leaves only tokens that merges lead to. */
static void drop_unused_tokens(const char *folder) {
    struct ax_json_doc doc;
    char path[128], *text;
    size_t len;
    const char *token;
    json_t *id;
    void *next;
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    ok(ax_json_load(&doc, in_dir(path), 1 << 22));
    json_t *vocab = json_object_get(json_object_get(doc.root, "model"), "vocab");
    json_object_foreach_safe(vocab, next, token, id) if (strncmp(token, "[unused", 7) == 0)
        json_object_del(vocab, token);
    ok(ax_json_dump(doc.root, &text, &len));
    put_file(path, text, len);
    ax_free(text);
    ax_json_free(&doc);
}

/* In GGUF, the kind of splitting also decides whether pieces that are tokens are merged. Another
 * choice makes no difference only if merges lead to every token. */
static void whole_pieces_follow_the_splitting(void **state) {
    (void)state;
    static const struct {
        const char *pre, *choice, *error;
    } kinds[] = {{"smollm", "{\"v\": true}", "by \"smollm\", but ignore_merges is true"},
                 {"llama-bpe", "{\"v\": false}", "by \"llama-bpe\", but ignore_merges is false"}};
    for (int i = 0; i < 2; i++) {
        struct tiny model = llama;
        struct ax_gguf g;
        model.pre = kinds[i].pre;
        put_folder(&model, model.pre);
        set_member(model.pre, "tokenizer.json", "model/ignore_merges", kinds[i].choice);
        refused(model.pre, AX_ERR_UNSUPPORTED, kinds[i].error);
        drop_unused_tokens(model.pre);
        ok(to_gguf(in_dir(model.pre), "whole.gguf", NULL));
        ok(ax_gguf_open(&g, in_dir("whole.gguf")));
        assert_true(key_is(&g, "tokenizer.ggml.pre", model.pre));
        ax_gguf_close(&g);
        set_member(model.pre, "tokenizer.json", "model/merges", "{\"v\": [[\"t\", \"h\"]]}");
        refused(model.pre, AX_ERR_UNSUPPORTED, kinds[i].error);
    }
}

static enum ax_status command(const char *const *words) {
    char *argv[12];
    int n = 0;
    while (words[n]) {
        argv[n] = (char *)(uintptr_t)words[n];
        n++;
    }
    return ax_cmd_convert(n, argv);
}
#define RUN(...) command((const char *const[]){"convert", __VA_ARGS__, NULL})

static void families_without_a_gguf(void **state) {
    (void)state;
    static const struct {
        const char *model, *says;
    } cases[] = {{"models/deepseek_v2_group", "rope type yarn has its own attention factor"},
                 {"models/smollm3", "no_rope_layers, or layer_types, is another list"},
                 {"models/qwen3_moe_nonorm", "norm_topk_prob is false"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = golden_path(cases[i].model);
        assert_int_equal(RUN(path, in_dir("no.gguf"), "--to", "gguf"), AX_ERR_UNSUPPORTED);
        assert_mentions(cases[i].says);
    }
}

static void the_command_line(void **state) {
    (void)state;
    put_folder(&llama, "line");
    const char *src = in_dir("line"), *dst = in_dir("line.gguf");
    assert_int_equal(RUN(src, dst, "--to", "gguf", "--quant", "q4_km"), AX_ERR_CONFIG);
    assert_mentions("did you mean q4_k_m?");
    assert_int_equal(RUN(src, dst, "--to", "gguf", "--dtype", "float32"), AX_ERR_CONFIG);
    assert_mentions("--dtype needs --to hf");
    assert_int_equal(RUN(src, dst, "--to", "hf", "--quant", "f16"), AX_ERR_CONFIG);
    assert_mentions("--quant needs --to gguf");
    assert_int_equal(RUN(src, dst, "--to", "onnx"), AX_ERR_CONFIG);
    assert_mentions("expected hf or gguf, got \"onnx\"");
    assert_int_equal(RUN(src, src, "--to", "gguf"), AX_ERR_CONFIG);
    assert_mentions("a folder. --to gguf writes one file");
    ok(RUN(src, dst, "--to", "gguf", "--quant", "f16"));
    assert_int_equal(RUN(src, dst, "--to", "gguf"), AX_ERR_CONFIG);
    assert_mentions("replace it with --overwrite");
    ok(RUN(src, dst, "--to", "gguf", "--overwrite"));
    assert_int_equal(RUN(dst, in_dir("x.gguf"), "--to", "gguf"), AX_ERR_CONFIG);
    assert_mentions("already a GGUF file. Give the type");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folders_come_back_as_they_were),
        cmocka_unit_test(golden_models_come_back),
        cmocka_unit_test(ernie_comes_back_without_biases),
        cmocka_unit_test(keys_of_further_kinds),
        cmocka_unit_test(bfloat16_comes_back),
        cmocka_unit_test(experts_of_one_tensor_are_turned),
        cmocka_unit_test(a_tied_head_is_copied_where_it_must_be),
        cmocka_unit_test(keys_of_latent_attention),
        cmocka_unit_test(scalings_are_stated),
        cmocka_unit_test(keys_and_types_of_a_quantized_file),
        cmocka_unit_test(merged_straight_to_a_file),
        cmocka_unit_test(a_window_that_would_be_lost_is_named),
        cmocka_unit_test(what_a_file_cannot_state_is_refused),
        cmocka_unit_test(whole_pieces_follow_the_splitting),
        cmocka_unit_test(families_without_a_gguf),
        cmocka_unit_test(the_command_line),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
