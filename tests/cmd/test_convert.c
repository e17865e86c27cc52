/* `axtrain convert`: the values, names and row order of every tensor, the converted config, and
 * what is refused. Tokenizers: test_convert_tokenizer.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "base/text/json.h"
#include "ckpt/hf/hf.h"
#include "cmd/commands.h"
#include "model/convert/from_gguf.h"
#include "model/arch/arch.h"
#include "tests/ckpt/folder.h"
#include "tests/cmd/gguf_tiny.h"

#define SHAPE(...)                                                                                 \
    (const int64_t[]) {                                                                            \
        __VA_ARGS__                                                                                \
    }

static const struct tiny llama = {
    .arch = "llama", .permuted = true, .untied = true, .matrix_type = TYPE_Q8_0};
static const struct tiny qwen2 = {.arch = "qwen2", .qkv_bias = true, .matrix_type = TYPE_F16};
static const struct tiny qwen3 = {.arch = "qwen3", .qk_norm = true, .matrix_type = TYPE_BF16};

/* Writes the file and forgets what was built. */
static void put_gguf(const char *name, struct gguf_out *o) {
    gguf_out_finish(o);
    put_file(name, o->file.data, o->file.len);
    gguf_out_free(o);
}

static void build(struct gguf_out *o, const struct tiny *t) {
    tiny_sizes(o, t);
    tiny_vocab(o, t);
    tiny_tensors(o, t);
}

static enum ax_status convert(const char *dst, const char *dtype) {
    struct ax_convert c = {.src = in_dir("m.gguf"), .dst = in_dir(dst), .dtype = dtype};
    return ax_convert_gguf_to_hf(&c);
}

static void converted(struct gguf_out *o, const char *dst, const char *dtype) {
    put_gguf("m.gguf", o);
    if (convert(dst, dtype) != AX_OK)
        fail_msg("%s", ax_error_text());
}

/* The file that o makes is refused, and no folder appears. */
static void refused(struct gguf_out *o, enum ax_status st, const char *part) {
    put_gguf("m.gguf", o);
    const uint64_t live = ax_mem_live_blocks();
    assert_int_equal(convert("no", NULL), st);
    assert_mentions("m.gguf: ");
    assert_mentions(part);
    assert_false(ax_path_exists(in_dir("no")));
    assert_int_equal(ax_mem_live_blocks(), live);
}

/* --- tensors --- */

static void check_tensor(const struct ax_hf *hf, const char *name, enum ax_dtype dtype) {
    const struct ax_st_entry *e = ax_hf_find(hf, name);
    if (!e)
        fail_msg("%s is not there", name);
    assert_int_equal(e->dtype, dtype);
    const int64_t cols = e->ndim == 2 ? e->shape[1] : 1;
    for (int64_t i = 0; i < e->numel; i++) {
        char element[8];
        const size_t size = ax_dtype_size(dtype);
        memcpy(element, (const char *)e->data + (size_t)i * size, size);
        const double got = ax_load(dtype, element, 0);
        const double want = (double)tiny_value(name, i / cols, i % cols);
        if (got != want)
            fail_msg("%s[%lld][%lld] is %g, not %g", name, (long long)(i / cols),
                     (long long)(i % cols), got, want);
    }
}

/* Every tensor of the model by its HF name, and no other. */
static void check_weights(const char *folder, const struct tiny *t, enum ax_dtype dtype) {
    static const char *const always[] = {
        "input_layernorm.weight",  "self_attn.q_proj.weight", "self_attn.k_proj.weight",
        "self_attn.v_proj.weight", "self_attn.o_proj.weight", "post_attention_layernorm.weight",
        "mlp.gate_proj.weight",    "mlp.up_proj.weight",      "mlp.down_proj.weight"};
    static const char *const bias[] = {"self_attn.q_proj.bias", "self_attn.k_proj.bias",
                                       "self_attn.v_proj.bias"};
    static const char *const norm[] = {"self_attn.q_norm.weight", "self_attn.k_norm.weight"};
    struct ax_hf hf;
    char name[96];
    int n = 2;
    assert_int_equal(ax_hf_open(&hf, in_dir(folder)), AX_OK);
    check_tensor(&hf, "model.embed_tokens.weight", dtype);
    check_tensor(&hf, "model.norm.weight", dtype);
    if (t->untied && ++n)
        check_tensor(&hf, "lm_head.weight", dtype);
    for (int layer = 0; layer < LAYERS; layer++) {
        const struct {
            bool there;
            int n;
            const char *const *names;
        } sets[] = {{true, 9, always}, {t->qkv_bias, 3, bias}, {t->qk_norm, 2, norm}};
        for (int s = 0; s < 3; s++) {
            for (int i = 0; sets[s].there && i < sets[s].n; i++, n++) {
                snprintf(name, sizeof name, "model.layers.%d.%s", layer, sets[s].names[i]);
                check_tensor(&hf, name, dtype);
            }
        }
    }
    assert_int_equal(ax_hf_count(&hf), n);
    ax_hf_close(&hf);
}

static void every_kind_keeps_its_values(void **state) {
    (void)state;
    static const struct {
        const struct tiny *t;
        const char *name;
    } kinds[] = {{&llama, "llama"}, {&qwen2, "qwen2"}, {&qwen3, "qwen3"}};
    for (int i = 0; i < 3; i++) {
        struct gguf_out o = {0};
        build(&o, kinds[i].t);
        converted(&o, kinds[i].name, "float32");
        check_weights(kinds[i].name, kinds[i].t, AX_F32);
    }
}

/* Biases of q and k move with their rows. */
static void biases_of_llama_are_reordered_too(void **state) {
    (void)state;
    struct tiny t = llama;
    struct gguf_out o = {0};
    float zero[HIDDEN] = {0};
    struct ax_hf hf;
    t.qkv_bias = true;
    t.untied = false;
    build(&o, &t);
    tensor(&o, "blk.0.attn_output.bias", 0, 1, SHAPE(HIDDEN), zero, sizeof zero);
    tensor(&o, "blk.1.attn_output.bias", 0, 1, SHAPE(HIDDEN), zero, sizeof zero);
    converted(&o, "bias", "float32");
    assert_int_equal(ax_hf_open(&hf, in_dir("bias")), AX_OK);
    check_tensor(&hf, "model.layers.1.self_attn.q_proj.bias", AX_F32);
    check_tensor(&hf, "model.layers.1.self_attn.k_proj.bias", AX_F32);
    check_tensor(&hf, "model.layers.1.self_attn.v_proj.bias", AX_F32);
    check_tensor(&hf, "model.layers.1.self_attn.q_proj.weight", AX_F32);
    ax_hf_close(&hf);
}

static void the_dtype_is_the_smallest_that_is_exact(void **state) {
    (void)state;
    static const struct {
        uint32_t matrices, value;
        enum ax_dtype dtype;
    } cases[] = {{TYPE_F16, TYPE_F16, AX_F16},  {TYPE_BF16, TYPE_BF16, AX_BF16},
                 {TYPE_F32, TYPE_F32, AX_F32},  {TYPE_Q8_0, TYPE_Q8_0, AX_F32},
                 {TYPE_F16, TYPE_BF16, AX_F32}, {TYPE_BF16, TYPE_Q8_0, AX_F32}};
    for (int i = 0; i < 6; i++) {
        struct tiny t = llama;
        struct gguf_out o = {0};
        char name[16];
        t.matrix_type = cases[i].matrices;
        t.value_type = cases[i].value;
        t.mixed = true;
        snprintf(name, sizeof name, "dtype%d", i);
        build(&o, &t);
        converted(&o, name, NULL);
        check_weights(name, &t, cases[i].dtype);
    }
    assert_int_equal(convert("bf16", "bfloat16"), AX_OK);
    check_weights("bf16", &llama, AX_BF16);
    assert_int_equal(convert("f16", "fp16"), AX_OK);
    check_weights("f16", &llama, AX_F16);
    assert_int_equal(convert("no", "int8"), AX_ERR_CONFIG);
    assert_string_equal(ax_error_text(),
                        "--dtype: expected float32, bfloat16 or float16, got \"int8\"");
}

static void weights_that_are_no_numbers_are_named(void **state) {
    (void)state;
    struct tiny t = llama;
    struct gguf_out o = {0};
    t.matrix_type = TYPE_F32;
    t.spoil = "model.layers.1.self_attn.k_proj.weight";
    t.spoiled = NAN;
    build(&o, &t);
    refused(&o, AX_ERR_DATA, "tensor blk.1.attn_k.weight contains nan");
    t.spoiled = 70000;
    build(&o, &t);
    put_gguf("m.gguf", &o);
    assert_int_equal(convert("no", "float16"), AX_ERR_DATA);
    assert_mentions("tensor blk.1.attn_k.weight contains 70000, which is too large for float16");
    assert_int_equal(convert("large", "bfloat16"), AX_OK);
}

/* --- config.json --- */

static void load_config(struct ax_json_doc *doc, const char *folder) {
    char *path;
    assert_int_equal(ax_path_join(&path, in_dir(folder), "config.json"), AX_OK);
    assert_int_equal(ax_json_load(doc, path, 1 << 20), AX_OK);
    ax_free(path);
}

/* The value of a key as compact JSON. */
static const char *shown(const struct ax_json_doc *doc, const char *key) {
    static char texts[4][256];
    static unsigned turn;
    char *text = texts[turn++ % 4];
    char *dump = json_dumps(json_object_get(doc->root, key), JSON_ENCODE_ANY | JSON_COMPACT);
    snprintf(text, sizeof texts[0], "%s", dump ? dump : "absent");
    ax_free_hook(dump);
    return text;
}

static void check_arch(const char *folder, struct ax_arch *arch) {
    if (ax_arch_load(arch, in_dir(folder)) != AX_OK)
        fail_msg("%s", ax_error_text());
    assert_true(arch->vocab_size == VOCAB && arch->hidden_size == HIDDEN &&
                arch->n_layers == LAYERS);
    assert_true(arch->n_heads == HEADS && arch->n_kv_heads == KV_HEADS && arch->head_dim == HEAD);
    assert_true(arch->intermediate_size == FFN && arch->max_positions == 2048);
    assert_true(arch->norm_eps == 1e-5);
}

static void the_config_says_what_the_file_says(void **state) {
    (void)state;
    struct gguf_out o = {0};
    struct ax_json_doc doc;
    struct ax_arch arch;
    build(&o, &llama);
    key_f32(&o, "llama.rope.freq_base", 500000);
    key_u32(&o, "llama.rope.dimension_count", HEAD);
    key_u32(&o, "tokenizer.ggml.padding_token_id", 2);
    converted(&o, "config", "bfloat16");
    load_config(&doc, "config");
    static const char *const expected[][2] = {
        {"architectures", "[\"LlamaForCausalLM\"]"},
        {"model_type", "\"llama\""},
        {"bos_token_id", "1"},
        {"eos_token_id", "0"},
        {"pad_token_id", "2"},
        {"tie_word_embeddings", "false"},
        {"attention_bias", "false"},
        {"mlp_bias", "false"},
        {"head_dim", "16"},
        {"rope_scaling", "null"},
        {"rope_parameters", "absent"},
        {"torch_dtype", "\"bfloat16\""},
        {"dtype", "absent"},
        {"hidden_act", "\"silu\""},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        assert_string_equal(shown(&doc, expected[i][0]), expected[i][1]);
    ax_json_free(&doc);
    check_arch("config", &arch);
    assert_true(!arch.tied && arch.pad_token == 2 && arch.dtype == AX_BF16);
    assert_true(arch.rope.theta == 500000 && arch.rope.kind == AX_ROPE_DEFAULT);
    ax_arch_free(&arch);
}

static void qwen_configs(void **state) {
    (void)state;
    struct gguf_out o = {0};
    struct ax_json_doc doc;
    struct ax_arch arch;
    build(&o, &qwen2);
    key_u32(&o, "qwen2.attention.sliding_window", 2048); /* as long as the context: none */
    converted(&o, "q2", NULL);
    load_config(&doc, "q2");
    assert_string_equal(shown(&doc, "architectures"), "[\"Qwen2ForCausalLM\"]");
    assert_string_equal(shown(&doc, "use_sliding_window"), "false");
    assert_string_equal(shown(&doc, "pad_token_id"), "null");
    assert_string_equal(shown(&doc, "tie_word_embeddings"), "true");
    ax_json_free(&doc);
    check_arch("q2", &arch);
    assert_true(arch.qkv_bias && arch.tied && arch.layers[1].window == 0 && arch.pad_token == -1);
    ax_arch_free(&arch);

    build(&o, &qwen3);
    key_u32(&o, "qwen3.attention.key_length", HEAD);
    key_u32(&o, "qwen3.attention.value_length", HEAD);
    converted(&o, "q3", NULL);
    check_arch("q3", &arch);
    assert_true(arch.qk_norm && !arch.qkv_bias && arch.tied);
    ax_arch_free(&arch);
}

/* The divisors that the writer of Llama 3 files works out. */
static void put_divisors(struct gguf_out *o, double factor, double context, double theta) {
    struct ax_buf bytes = {0};
    for (int i = 0; i < HEAD / 2; i++) {
        const double wave = 2 * acos(-1) * pow(theta, 2.0 * i / HEAD);
        const double smooth = (context / wave - 1) / 3;
        const double f = wave < context / 4 ? 1
                         : wave > context   ? factor
                                            : 1 / ((1 - smooth) / factor + smooth);
        put_f32(&bytes, (float)f);
    }
    tensor(o, "rope_freqs.weight", 0, 1, SHAPE(HEAD / 2), bytes.data, bytes.len);
    ax_buf_free(&bytes);
    key_f32(o, "llama.rope.freq_base", (float)theta);
}

static void llama3_scaling_is_found_in_its_divisors(void **state) {
    (void)state;
    static const struct {
        double factor, context, theta;
        const char *json;
    } cases[] = {
        {8, 8192, 500000,
         "llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
         "\"original_max_position_embeddings\":8192}"},
        {32, 8192, 500000, "\"factor\":32.0"},
        {4, 512, 10000, "\"original_max_position_embeddings\":512}"},
        {8, 32, 10000,
         "\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
         "\"original_max_position_embeddings\":32}"},
        {8, 6000, 500000, "\"original_max_position_embeddings\":6000}"},
        {1, 8192, 10000, "null"},
    };
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        struct gguf_out o = {0};
        struct ax_json_doc doc;
        struct ax_arch arch;
        char name[16];
        float inv_freq[HEAD / 2];
        double scaling;
        snprintf(name, sizeof name, "rope%d", i);
        build(&o, &llama);
        put_divisors(&o, cases[i].factor, cases[i].context, cases[i].theta);
        converted(&o, name, NULL);
        load_config(&doc, name);
        if (!strstr(shown(&doc, "rope_scaling"), cases[i].json))
            fail_msg("%s instead of %s", shown(&doc, "rope_scaling"), cases[i].json);
        ax_json_free(&doc);
        check_arch(name, &arch);
        ax_rope_frequencies(&arch.rope, 0, inv_freq, &scaling);
        assert_true(scaling == 1);
        const double last = pow(cases[i].theta, -2.0 * (HEAD / 2 - 1) / HEAD) / cases[i].factor;
        assert_true(fabs((double)inv_freq[HEAD / 2 - 1] / last - 1) < 1e-5);
        ax_arch_free(&arch);
    }
    struct gguf_out o = {0};
    const float odd[HEAD / 2] = {1, 2, 1, 2, 1, 2, 1, 2};
    build(&o, &llama);
    tensor(&o, "rope_freqs.weight", 0, 1, SHAPE(HEAD / 2), odd, sizeof odd);
    refused(&o, AX_ERR_UNSUPPORTED, "tensor rope_freqs.weight is not a Llama 3 scaling");
    build(&o, &llama);
    tensor(&o, "rope_freqs.weight", 0, 1, SHAPE(3), odd, 12);
    refused(&o, AX_ERR_DATA, "expected 8 floats");
}

static void scalings_in_keys(void **state) {
    (void)state;
    static const struct {
        const char *type;
        const char *json;
    } cases[] = {{"linear", "{\"rope_type\":\"linear\",\"factor\":4.0}"},
                 {"yarn", "{\"rope_type\":\"yarn\",\"factor\":4.0,"
                          "\"original_max_position_embeddings\":512,\"beta_slow\":2.0}"},
                 {"none", "null"}};
    for (int i = 0; i < 3; i++) {
        struct gguf_out o = {0};
        struct ax_json_doc doc;
        struct ax_arch arch;
        build(&o, &qwen2);
        key_text(&o, "qwen2.rope.scaling.type", cases[i].type);
        key_f32(&o, "qwen2.rope.scaling.factor", 4);
        key_u32(&o, "qwen2.rope.scaling.original_context_length", 512);
        key_f32(&o, "qwen2.rope.scaling.yarn_beta_slow", 2);
        converted(&o, cases[i].type, NULL);
        load_config(&doc, cases[i].type);
        assert_string_equal(shown(&doc, "rope_scaling"), cases[i].json);
        ax_json_free(&doc);
        check_arch(cases[i].type, &arch);
        ax_arch_free(&arch);
    }
    struct gguf_out o = {0};
    build(&o, &qwen2);
    key_text(&o, "qwen2.rope.scaling.type", "longrope");
    refused(&o, AX_ERR_UNSUPPORTED, "scaling \"longrope\" is not supported");
    build(&o, &qwen2);
    key_text(&o, "qwen2.rope.scaling.type", "yarn");
    key_f32(&o, "qwen2.rope.scaling.factor", 4);
    refused(&o, AX_ERR_DATA, "qwen2.rope.scaling.original_context_length is missing");
    build(&o, &qwen2);
    key_text(&o, "qwen2.rope.scaling.type", "linear");
    key_f32(&o, "qwen2.rope.scaling.factor", 0.5f);
    refused(&o, AX_ERR_DATA, "qwen2.rope.scaling.factor: 0.5 is below 1");
    static const char *const factors[] = {"attn_factor", "yarn_attn_factor", "yarn_ext_factor"};
    for (size_t i = 0; i < 3; i++) {
        char key[64], says[96];
        snprintf(key, sizeof key, "qwen2.rope.scaling.%s", factors[i]);
        snprintf(says, sizeof says, "%s: 1.5; factors of rope other than 1", key);
        build(&o, &qwen2);
        if (i > 0)
            key_text(&o, "qwen2.rope.scaling.type", "yarn");
        key_f32(&o, key, 1.5F);
        refused(&o, AX_ERR_UNSUPPORTED, says);
    }
}

/* --- what is refused --- */

static void keys_that_do_not_fit(void **state) {
    (void)state;
    static const struct {
        const char *key;
        double value;
        enum ax_status st;
        const char *says;
    } cases[] = {
        {"llama.expert_count", 8, AX_ERR_DATA, "llama.expert_used_count is missing"},
        {"llama.expert_shared_count", 2, AX_ERR_UNSUPPORTED,
         "llama.expert_shared_count: 2 cannot be expressed"},
        {"llama.logit_scale", 2, AX_ERR_UNSUPPORTED, "llama.logit_scale: 2 cannot be expressed"},
        {"llama.attention.sliding_window", 512, AX_ERR_UNSUPPORTED, "a window of 512 tokens"},
        {"llama.rope.dimension_count", 8, AX_ERR_UNSUPPORTED, "rotating 8 of the 16 elements"},
        {"llama.attention.value_length", 8, AX_ERR_UNSUPPORTED, "values of 8 and keys of 16"},
        {"llama.attention.key_length", 15, AX_ERR_DATA, "no even head size"},
        {"split.count", 2, AX_ERR_UNSUPPORTED, "one of 2 parts"},
        {"tokenizer.ggml.padding_token_id", 320, AX_ERR_DATA, "320 is not between 0 and 319"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gguf_out o = {0};
        build(&o, &llama);
        if (strstr(cases[i].key, "scale"))
            key_f32(&o, cases[i].key, (float)cases[i].value);
        else
            key_u32(&o, cases[i].key, (uint32_t)cases[i].value);
        refused(&o, cases[i].st, cases[i].says);
    }
    struct gguf_out o = {0};
    build(&o, &llama);
    key_bool(&o, "llama.attention.causal", false);
    refused(&o, AX_ERR_UNSUPPORTED, "llama.attention.causal: false, with which tokens attend");
    key_text(&o, "general.architecture", "mamba");
    refused(&o, AX_ERR_UNSUPPORTED,
            "\"mamba\" is not supported (llama, qwen2, qwen3, qwen3moe, qwen2moe, gemma2, gemma3, "
            "gemma3n, gemma4, mistral3, "
            "granite, smollm3, olmo2, phi3, glm4, glm4moe, deepseek2, ");
    tiny_tensors(&o, &llama);
    refused(&o, AX_ERR_DATA, "key general.architecture is missing");
}

static void tensors_that_do_not_fit(void **state) {
    (void)state;
    static const struct {
        const char *skip, *extra;
        enum ax_status st;
        const char *says;
    } cases[] = {
        {"model.layers.1.mlp.up_proj.weight", NULL, AX_ERR_DATA, "blk.1.ffn_up.weight is missing"},
        {"model.norm.weight", NULL, AX_ERR_DATA, "tensor output_norm.weight is missing"},
        {"model.embed_tokens.weight", NULL, AX_ERR_DATA,
         "token_embd.weight is missing or not a matrix"},
        {NULL, "blk.2.attn_norm.weight", AX_ERR_UNSUPPORTED,
         "unexpected tensor blk.2.attn_norm.weight in a llama model of 2 layers"},
        {NULL, "blk.0.attn_q_norm.weight", AX_ERR_UNSUPPORTED,
         "unexpected tensor blk.0.attn_q_norm.weight"},
        {NULL, "blk.0.attn_output.bias", AX_ERR_UNSUPPORTED, "biases on output only"},
        {"model.norm.weight", "output_norm.weight", AX_ERR_DATA,
         "output_norm.weight: 1 × 1 elements, but the keys ask for 64 × 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tiny t = llama;
        struct gguf_out o = {0};
        t.skip = cases[i].skip;
        build(&o, &t);
        if (cases[i].extra)
            tensor(&o, cases[i].extra, 0, 1, SHAPE(1), "abcd", 4);
        refused(&o, cases[i].st, cases[i].says);
    }
    struct tiny t = llama;
    struct gguf_out o = {0};
    t.skip = "model.layers.0.self_attn.v_proj.weight";
    build(&o, &t);
    tensor(&o, "blk.0.attn_v.weight", 16, 2, SHAPE(KV_HEADS * HEAD, HIDDEN), "", 0);
    refused(&o, AX_ERR_UNSUPPORTED,
            "blk.0.attn_v.weight has type IQ2_XXS, which is not supported (F32,");
    t = qwen2;
    t.qkv_bias = false;
    build(&o, &t);
    refused(&o, AX_ERR_DATA, "blk.0.attn_q.bias is missing");
}

static void the_destination_must_be_free(void **state) {
    (void)state;
    struct gguf_out o = {0};
    build(&o, &llama);
    put_gguf("m.gguf", &o);
    assert_int_equal(ax_mkdir(in_dir("mine")), AX_OK);
    assert_int_equal(convert("mine", NULL), AX_OK); /* an empty folder */
    assert_int_equal(convert("mine", NULL), AX_ERR_CONFIG);
    assert_mentions("mine: the folder is not empty. Choose one that does not exist yet.");
    check_weights("mine", &llama, AX_F32);
    assert_int_equal(convert("m.gguf", NULL), AX_ERR_IO);
    assert_mentions("a file with this name exists");
    assert_int_equal(convert("no/such/folder", NULL), AX_ERR_IO);
}

static enum ax_status command(int argc, const char *const *words) {
    char *argv[8];
    for (int i = 0; i < argc; i++)
        argv[i] = (char *)(uintptr_t)words[i];
    argv[argc] = NULL;
    return ax_cmd_convert(argc, argv);
}

static void the_command_line(void **state) {
    (void)state;
    struct gguf_out o = {0};
    build(&o, &llama);
    put_gguf("m.gguf", &o);
    const char *const src = in_dir("m.gguf"), *const dst = in_dir("by-command");
    /* the ending of one of the two says it */
    assert_int_equal(command(3, (const char *const[]){"convert", src, dst}), AX_OK);
    assert_true(ax_path_exists(in_dir("by-command/config.json")));
    assert_int_equal(ax_remove_tree(dst), AX_OK);
    assert_int_equal(command(3, (const char *const[]){"convert", in_dir("m"), dst}), AX_ERR_CONFIG);
    assert_string_equal(ax_error_text(), "convert: --to: expected hf or gguf, got nothing");
    assert_int_equal(command(5, (const char *const[]){"convert", src, dst, "--to", "onnx"}),
                     AX_ERR_CONFIG);
    assert_mentions("got \"onnx\"");
    assert_int_equal(command(4, (const char *const[]){"convert", src, "--to", "hf"}),
                     AX_ERR_CONFIG);
    assert_false(ax_path_exists(dst));
    assert_int_equal(
        command(6, (const char *const[]){"convert", "--to=hf", src, dst, "--dtype", "bfloat16"}),
        AX_OK);
    check_weights("by-command", &llama, AX_BF16);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_keeps_its_values),
        cmocka_unit_test(biases_of_llama_are_reordered_too),
        cmocka_unit_test(the_dtype_is_the_smallest_that_is_exact),
        cmocka_unit_test(weights_that_are_no_numbers_are_named),
        cmocka_unit_test(the_config_says_what_the_file_says),
        cmocka_unit_test(qwen_configs),
        cmocka_unit_test(llama3_scaling_is_found_in_its_divisors),
        cmocka_unit_test(scalings_in_keys),
        cmocka_unit_test(keys_that_do_not_fit),
        cmocka_unit_test(tensors_that_do_not_fit),
        cmocka_unit_test(the_destination_must_be_free),
        cmocka_unit_test(the_command_line),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
