/* What is trained is what is written: of every scheme with a file form, trained in full and as an adapter,
 * `axtrain quantize` writes the values that the last forward pass had, and evaluation of the folder is the
 * training's last one. An adapter beside a quantized base is another model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "ckpt/hf/hf.h"
#include "kernels/quant/scheme.h"
#include "tests/cmd/chats_case.h"
#include "tests/cmd/program_case.h"
#include "tests/kernels/harness.h"

#define MIXTURE_MATRICES (2 * (4 + 3 * 8 + 3)) /* attention, 8 experts, the shared one */

static const char *const trained[] = {
    "", "adapter: lora\nlora_r: 4\nlora_alpha: 8\nlora_target_linear: true\nmerge_lora: true\n",
    "adapter: lora\nlora_r: 4\nlora_alpha: 8\nlora_target_linear: true\nmerge_lora: true\n"
    "peft_use_dora: true\n"};

/* Of schemes with groups: those of int4-fp8 do not divide the golden llama's matrices, 32 does. Of the
 * mixture 16. */
static int group_size;

static const char *config(const struct ax_scheme *s, const char *more) {
    char all[1024];
    snprintf(all, sizeof all,
             "max_steps: 3\nsave_only_model: true\nfloat32: true\nqat:\n  scheme: %s\n%s%s",
             s->name, s->groups ? "  group_size: 32\n" : "", more);
    group_size = 32;
    return chats_config(all);
}

/* SCRATCH/golden: a golden model, and rows of its vocabulary. */
static const char *golden_config(const char *golden, const struct ax_scheme *s, int group,
                                 const char *more) {
    static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json",
                                        "tokenizer_config.json"};
    static char path[128];
    struct ax_buf rows = {0}, b = {0};
    assert_int_equal(ax_mkdir_parents(in_scratch("golden")), AX_OK);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char from[64], to[64], *text;
        size_t n;
        snprintf(from, sizeof from, "models/%s/%s", i < 2 ? golden : "llama", files[i]);
        snprintf(to, sizeof to, "golden/%s", files[i]);
        assert_int_equal(ax_read_file(golden_path(from), 1 << 24, &text, &n), AX_OK);
        put_bytes(to, text, n);
        ax_free(text);
    }
    for (int row = 0; row < 3; row++) {
        struct ax_buf ids = {0};
        for (int i = 0; i < 40; i++)
            assert_int_equal(ax_buf_printf(&ids, "%s%d", i ? ", " : "",
                                           (7 * i * i + 3 * i + 11 * row) % 300 + 1),
                             AX_OK);
        assert_int_equal(
            ax_buf_printf(&rows, "{\"input_ids\": [%s], \"labels\": [%s]}\n", ids.data, ids.data),
            AX_OK);
        ax_buf_free(&ids);
    }
    put_bytes("ids.jsonl", rows.data, rows.len);
    assert_int_equal(
        ax_buf_printf(
            &b,
            "base_model: %s/golden\noutput_dir: %s/out\ndatasets:\n  - path: %s/ids.jsonl\n"
            "    type:\ntest_datasets:\n  - path: %s/ids.jsonl\n    type:\n"
            "sequence_len: 64\nlearning_rate: 5e-3\nlr_scheduler: constant\n"
            "micro_batch_size: 3\ngradient_accumulation_steps: 1\nnum_epochs: 9\n"
            "max_steps: 3\neval_steps: 3\nlogging_steps: 1\nsave_only_model: true\n"
            "float32: true\nqat:\n  scheme: %s\n",
            scratch, scratch, scratch, scratch, s->name),
        AX_OK);
    if (s->groups)
        assert_int_equal(ax_buf_printf(&b, "  group_size: %d\n", group), AX_OK);
    assert_int_equal(ax_buf_printf(&b, "%s", more), AX_OK);
    group_size = group;
    snprintf(path, sizeof path, "%s", put_bytes("golden.yaml", b.data, b.len));
    ax_buf_free(&rows);
    ax_buf_free(&b);
    return path;
}

/* The values that the forward pass computes from a matrix. */
static void fake(struct machine *m, const struct ax_scheme *s, const struct ax_st_entry *e,
                 float *y) {
    float *x, *range;
    const int64_t rows = e->shape[0], cols = e->shape[1];
    const int64_t outer = ax_quant_info(s->weight.kind)->outer;
    assert_int_equal(ax_alloc(&x, (size_t)e->numel, sizeof *x), AX_OK);
    assert_int_equal(ax_alloc(&range, (size_t)rows, 2 * sizeof *range), AX_OK);
    assert_int_equal(ax_st_read(e, 0, e->numel, AX_F32, x), AX_OK);
    struct ax_fake_quantize f = {.x = ax_tensor_2d(AX_F32, x, rows, cols),
                                 .y = ax_tensor_2d(AX_F32, y, rows, cols),
                                 .block = s->groups             ? group_size
                                          : s->weight.block > 0 ? s->weight.block
                                                                : cols,
                                 .kind = s->weight.kind};
    if (outer != 1 || s->weight.block == AX_BLOCK_TENSOR) {
        f.range = ax_tensor_2d(AX_F32, range, outer == AX_BLOCK_ROW ? rows : 1, 2);
        assert_int_equal(
            ax_run_quant_range(m->q, &(struct ax_quant_range){.x = f.x, .range = f.range}), AX_OK);
    }
    assert_int_equal(ax_run_fake_quantize(m->q, &f), AX_OK);
    ax_free(range);
    ax_free(x);
}

/* Layers' matrices, or with `ends` those of the embedding and the head as well. */
static bool is_quantized(const char *name, bool with_ends) {
    return strstr(name, "_proj.weight") ||
           (with_ends && (strstr(name, "embed_tokens.weight") || strstr(name, "lm_head.weight")));
}

/* Matrices of out/quantized against those of `model`. */
static bool ends;
static void same_values(struct machine *m, const struct ax_scheme *s, const char *model_dir,
                        int n_matrices) {
    struct ax_hf model, quantized;
    int matrices = 0;
    assert_int_equal(ax_hf_open(&model, in_scratch(model_dir)), AX_OK);
    assert_int_equal(ax_hf_open(&quantized, in_scratch("out/quantized")), AX_OK);
    const bool twice = ends && !ax_hf_find(&model, "lm_head.weight"); /* a tied matrix */
    assert_int_equal(ax_hf_count(&model) + twice, ax_hf_count(&quantized));
    for (int i = 0; i < ax_hf_count(&quantized); i++) {
        const struct ax_st_entry *q = ax_hf_at(&quantized, i), *e = ax_hf_find(&model, q->name);
        if (!e && twice && strcmp(q->name, "lm_head.weight") == 0)
            e = ax_hf_find(&model, "model.embed_tokens.weight");
        assert_non_null(e);
        float *want, *got;
        assert_int_equal(ax_alloc(&want, (size_t)e->numel, sizeof *want), AX_OK);
        assert_int_equal(ax_alloc(&got, (size_t)e->numel, sizeof *got), AX_OK);
        if (is_quantized(e->name, ends))
            fake(m, s, e, want);
        else
            assert_int_equal(ax_st_read(e, 0, e->numel, AX_F32, want), AX_OK);
        matrices += is_quantized(e->name, ends);
        assert_int_equal(ax_st_read(q, 0, e->numel, AX_F32, got), AX_OK);
        for (int64_t k = 0; k < e->numel; k++)
            if (got[k] != want[k])
                fail_msg("%s: %s[%d] is %.9g, the forward pass has %.9g", s->name, e->name, (int)k,
                         (double)got[k], (double)want[k]);
        ax_free(want);
        ax_free(got);
    }
    assert_int_equal(matrices, n_matrices);
    ax_hf_close(&model);
    ax_hf_close(&quantized);
}

/* The mean nll of the configuration's evaluation rows. */
static double evaluate(const char *model, const char *config_path) {
    char said[8192];
    if (run(said, sizeof said, "eval --model %s --config %s --json", in_scratch(model),
            config_path) != 0)
        fail_msg("%s", said);
    json_t *v = json_loads(said, JSON_DISABLE_EOF_CHECK, NULL);
    const double nll = json_number_value(json_object_get(v, "mean_nll"));
    assert_non_null(v);
    json_decref(v);
    assert_true(nll > 0);
    return nll;
}

/* An adapter beside the quantized base, as other programs train one; `*base` is rounded to nearest. */
static double beside_quantized_base(const struct ax_scheme *s, const char *config_path) {
    char base[200];
    snprintf(base, sizeof base, "%s", in_scratch("base"));
    sft_command = "quantize";
    if (s->groups)
        EXPECT(0, "matrices as", golden_llama(), base, "--scheme", s->name, "--group", "32");
    else
        EXPECT(0, "matrices as", golden_llama(), base, "--scheme", s->name);
    char said[8192];
    if (run(said, sizeof said, "eval --model %s --adapter %s/out --config %s --json", base, scratch,
            config_path) != 0)
        fail_msg("%s", said);
    json_t *v = json_loads(said, JSON_DISABLE_EOF_CHECK, NULL);
    const double nll = json_number_value(json_object_get(v, "mean_nll"));
    json_decref(v);
    return nll;
}

/* Trains, quantizes, evaluates; returns the last evaluation of training. */
static double check(struct machine *m, const struct ax_scheme *s, const char *config_path,
                    const char *model, int n_matrices) {
    assert_int_equal(ax_remove_tree(in_scratch("out")), AX_OK);
    sft_command = "qat";
    EXPECT(0, ": ", config_path);
    sft_command = "quantize";
    EXPECT(0, "layer 1: relative error 0.", config_path);
    same_values(m, s, model, n_matrices);
    const double want = metric_of("out", "eval_loss", 3),
                 got = evaluate("out/quantized", config_path);
    if (!(fabs(got - want) <= 1e-6))
        fail_msg("%s, %s: %.9f, the last evaluation was %.9f", s->name, model, got, want);
    return want;
}

static void check_llama(struct machine *m, const struct ax_scheme *s, size_t how) {
    char path[200];
    assert_int_equal(ax_remove_tree(in_scratch("base")), AX_OK);
    snprintf(path, sizeof path, "%s", config(s, trained[how]));
    const double want = check(m, s, path, how ? "out/merged" : "out", 21);
    if (how == 0)
        return;
    const double naive = beside_quantized_base(s, path);
    if (!(fabs(naive - want) > 1e-5))
        fail_msg("%s, %zu: %.9f is no different from %.9f", s->name, how, naive, want);
}

/* Its router and the gate of its shared expert stay as they are, and config.json says so. */
static void check_mixture(struct machine *m, const struct ax_scheme *s) {
    char path[200], *text;
    size_t n;
    snprintf(path, sizeof path, "%s", golden_config("qwen2_moe", s, 16, ""));
    check(m, s, path, "out", MIXTURE_MATRICES);
    assert_int_equal(ax_read_file(in_scratch("out/quantized/config.json"), 1 << 20, &text, &n),
                     AX_OK);
    assert_non_null(strstr(text, "\"model.layers.0.mlp.gate\""));
    assert_non_null(strstr(text, "\"model.layers.1.mlp.shared_expert_gate\""));
    assert_null(strstr(text, "_proj\""));
    ax_free(text);
}

/* The embedding and the head, which are one matrix of qwen3: trained in full, and frozen beside an adapter. */
static void check_ends(struct machine *m, const struct ax_scheme *s) {
    static const char both[] = "  quantize_embedding: true\n  quantize_head: true\n";
    char more[300], path[200];
    ends = true;
    for (size_t how = 0; how < 2; how++) {
        const char *model = how ? "out/merged" : "out";
        snprintf(more, sizeof more, "%s%s", both, trained[how]);
        snprintf(path, sizeof path, "%s", golden_config("llama", s, 32, more));
        check(m, s, path, model, 23);
        snprintf(more, sizeof more, "  quantize_head: true\n%s", trained[how]);
        snprintf(path, sizeof path, "%s", golden_config("qwen3", s, 32, more));
        check(m, s, path, model, 23);
    }
    ends = false;
}

enum { FULL, LORA, DORA, MIXTURE, ENDS };

static void every_scheme(size_t how) {
    struct machine m;
    int n = 0;
    need_binary();
    machine_open(&m, have_cpu() ? "cpu" : "ref", 1);
    for (const struct ax_scheme *s = ax_schemes; s->name; s++)
        if (ax_file_form_name(s->form)) {
            how == MIXTURE ? check_mixture(&m, s)
            : how == ENDS  ? check_ends(&m, s)
                           : check_llama(&m, s, how);
            n++;
        }
    assert_true(n >= 8);
    machine_close(&m);
}

static void test_full(void **state) {
    (void)state;
    every_scheme(FULL);
}
static void test_lora(void **state) {
    (void)state;
    every_scheme(LORA);
}
static void test_dora(void **state) {
    (void)state;
    every_scheme(DORA);
}

static void test_mixture(void **state) {
    (void)state;
    every_scheme(MIXTURE);
}

/* What one step of SGD took from a matrix: learning rate · gradient. */
static void read_change(const struct ax_hf *before, const struct ax_hf *after, int i, float **out) {
    const struct ax_st_entry *e = ax_hf_at(after, i);
    float *was;
    assert_int_equal(ax_alloc(&was, (size_t)e->numel, sizeof *was), AX_OK);
    assert_int_equal(ax_alloc(out, (size_t)e->numel, sizeof **out), AX_OK);
    assert_int_equal(ax_st_read(ax_hf_find(before, e->name), 0, e->numel, AX_F32, was), AX_OK);
    assert_int_equal(ax_st_read(e, 0, e->numel, AX_F32, *out), AX_OK);
    for (int64_t k = 0; k < e->numel; k++)
        (*out)[k] -= was[k];
    ax_free(was);
}

/* Eight bits lose little: gradients of all matrices are near those without. */
static void test_gradients_of_a_mixture(void **state) {
    (void)state;
    struct ax_hf base, with, without;
    int matrices = 0;
    char path[200];
    struct ax_scheme scheme;
    assert_int_equal(ax_scheme_find("scheme", "int8", &scheme), AX_OK);
    snprintf(path, sizeof path, "%s", golden_config("qwen2_moe", &scheme, 16, "optimizer: sgd\n"));
    for (int qat = 0; qat < 2; qat++) {
        sft_command = qat ? "qat" : "sft";
        assert_int_equal(ax_remove_tree(in_scratch(qat ? "with" : "without")), AX_OK);
        EXPECT(0, ": ", path, out(qat ? "with" : "without"), "max_steps=1", "max_grad_norm=0",
               "weight_decay=0", qat ? "logging_steps=1" : "qat=null");
    }
    assert_int_equal(ax_hf_open(&base, in_scratch("golden")), AX_OK);
    assert_int_equal(ax_hf_open(&with, in_scratch("with")), AX_OK);
    assert_int_equal(ax_hf_open(&without, in_scratch("without")), AX_OK);
    for (int i = 0; i < ax_hf_count(&with); i++) {
        const struct ax_st_entry *e = ax_hf_at(&with, i);
        float *got, *want;
        double off = 0, size = 0;
        if (!is_quantized(e->name, false))
            continue;
        read_change(&base, &with, i, &got);
        read_change(&base, &without, i, &want);
        for (int64_t k = 0; k < e->numel; k++) {
            off += pow((double)got[k] - (double)want[k], 2);
            size += pow((double)want[k], 2);
        }
        if (!(off <= 0.1 * size))
            fail_msg("%s: %g of %g", e->name, sqrt(off), sqrt(size));
        matrices += size > 0;
        ax_free(got);
        ax_free(want);
    }
    assert_int_equal(matrices, MIXTURE_MATRICES);
    ax_hf_close(&base);
    ax_hf_close(&with);
    ax_hf_close(&without);
}

static void test_ends(void **state) {
    (void)state;
    every_scheme(ENDS);
}

/* Adapters of what is quantized with its values looked up. */
static void test_adapters_of_ends(void **state) {
    (void)state;
    assert_int_equal(ax_remove_tree(in_scratch("out")), AX_OK);
    sft_command = "qat";
    EXPECT(2, "qat.quantize_embedding: its adapter is not supported",
           golden_config("llama", &ax_schemes[0], 32,
                         "  quantize_embedding: true\nadapter: lora\nlora_r: 4\nlora_alpha: 8\n"
                         "lora_target_modules: [embed_tokens, q_proj]\n"));
    EXPECT(2, "qat.quantize_head: its adapter is not supported",
           golden_config("llama", &ax_schemes[0], 32,
                         "  quantize_head: true\nadapter: lora\nlora_r: 4\nlora_alpha: 8\n"
                         "lora_target_modules: [lm_head, q_proj]\n"));
}

/* Packed storage of the folder's format has its codes: the values, to the bit. */
static void test_codes_are_kept(void **state) {
    (void)state;
    static const struct {
        const char *scheme, *base, *group;
    } kinds[] = {{"int8", "int8", NULL}, {"int8-int8", "int8", NULL},
                 {"fp8", "fp8", NULL},   {"fp8-tensor", "fp8", NULL},
                 {"int4", "int4", "32"}, {"int4-int8", "int4", "32"}};
    char path[200], dst[200], said[8192];
    need_binary();
    snprintf(path, sizeof path, "%s", config(&ax_schemes[0], ""));
    snprintf(dst, sizeof dst, "%s", in_scratch("codes"));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        double nll[2];
        assert_int_equal(ax_remove_tree(dst), AX_OK);
        sft_command = "quantize";
        if (kinds[i].group)
            EXPECT(0, "matrices as", golden_llama(), dst, "--scheme", kinds[i].scheme, "--group",
                   kinds[i].group);
        else
            EXPECT(0, "matrices as", golden_llama(), dst, "--scheme", kinds[i].scheme);
        for (int packed = 0; packed < 2; packed++) {
            if (run(said, sizeof said,
                    "eval --model %s --config %s --dtype float32 --base %s --json", dst, path,
                    packed ? kinds[i].base : "plain") != 0)
                fail_msg("%s", said);
            json_t *v = json_loads(said, JSON_DISABLE_EOF_CHECK, NULL);
            nll[packed] = json_number_value(json_object_get(v, "mean_nll"));
            json_decref(v);
        }
        if (!(nll[0] > 0 && nll[0] == nll[1]))
            fail_msg("%s: %.17g, packed %.17g", kinds[i].scheme, nll[0], nll[1]);
    }
}

/* ---- folders that others wrote, with matrices that are not quantized ---- */

static enum ax_status as_stored(void *ctx, int64_t first, int64_t n, void *out) {
    const struct ax_st_entry *e = ctx;
    const size_t size = ax_dtype_size(e->dtype);
    memcpy(out, (const char *)e->data + (size_t)first * size, (size_t)n * size);
    return AX_OK;
}

static void add_stored(struct ax_st_output *out, int *n, const struct ax_hf *hf, const char *what,
                       bool with) {
    for (int i = 0; i < hf->files[0].n; i++) {
        struct ax_st_entry *e = &hf->files[0].entries[i];
        if ((strstr(e->name, what) != NULL) != with)
            continue;
        out[*n] = (struct ax_st_output){.name = e->name,
                                        .dtype = e->dtype,
                                        .e4m3 = e->e4m3,
                                        .ndim = e->ndim,
                                        .fill = as_stored,
                                        .ctx = e};
        memcpy(out[(*n)++].shape, e->shape, sizeof e->shape);
    }
}

/* The weights of the folder `dir`, those whose names contain `plain` as the golden llama has them. */
static void unquantize(const char *dir, const char *plain) {
    struct ax_hf model, quantized;
    struct ax_st_output out[128];
    char path[200], copy[200];
    int n = 0;
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    snprintf(copy, sizeof copy, "%s/copy", dir);
    assert_int_equal(ax_hf_open(&model, golden_llama()), AX_OK);
    assert_int_equal(ax_hf_open(&quantized, dir), AX_OK);
    assert_true(model.files[0].n + quantized.files[0].n <= 128);
    add_stored(out, &n, &quantized, plain, false);
    add_stored(out, &n, &model, plain, true);
    assert_int_equal(ax_safetensors_write(copy, n, out), AX_OK);
    ax_hf_close(&quantized);
    ax_hf_close(&model);
    assert_int_equal(rename(copy, path), 0);
}

static double nll_of(const char *model, const char *rows) {
    char said[8192];
    if (run(said, sizeof said, "eval --model %s --config %s --dtype float32 --json", model, rows) !=
        0)
        fail_msg("%s", said);
    json_t *v = json_loads(said, JSON_DISABLE_EOF_CHECK, NULL);
    const double nll = json_number_value(json_object_get(v, "mean_nll"));
    json_decref(v);
    return nll;
}

/* Linears whose weights are as they were have inputs as they are: with all of them so, the model is the original one. The
 * head has a weight that is not quantized though `ignore` does not name it. */
static void test_inputs_of_plain_weights(void **state) {
    (void)state;
    char rows[200], dst[200], ignores[200], *text;
    size_t n;
    need_binary();
    snprintf(rows, sizeof rows, "%s", config(&ax_schemes[0], ""));
    snprintf(dst, sizeof dst, "%s", in_scratch("plain"));
    const double original = nll_of(golden_llama(), rows);
    double all = 0;
    static const char *const plain[] = {"no such name", ".self_attn.", "_proj."};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        assert_int_equal(ax_remove_tree(dst), AX_OK);
        sft_command = "quantize";
        EXPECT(0, "matrices as", golden_llama(), dst, "--scheme", "fp8");
        snprintf(ignores, sizeof ignores, "%s/config.json", dst);
        assert_int_equal(ax_read_file(ignores, 1 << 20, &text, &n), AX_OK);
        char *head = strstr(text, "\"lm_head\"");
        assert_non_null(head);
        memcpy(head, "\"no_head\"", 9);
        assert_int_equal(ax_write_file_atomic(ignores, text, n), AX_OK);
        ax_free(text);
        unquantize(dst, plain[i]);
        const double nll = nll_of(dst, rows);
        all = i == 0 ? nll : all;
        assert_true((nll == original) == (i == 2));
        assert_true(i == 0 || nll != all);
    }
    /* the inputs of q, k and v are the same ones */
    assert_int_equal(ax_remove_tree(dst), AX_OK);
    sft_command = "quantize";
    EXPECT(0, "matrices as", golden_llama(), dst, "--scheme", "fp8");
    unquantize(dst, "layers.0.self_attn.q_proj.");
    sft_command = "eval";
    EXPECT(2,
           "layers.0.self_attn.q_proj.weight is not, but they read the same inputs, which "
           "input_activations of config.json rounds for the first one alone",
           dst, "--config", rows);
}

/* Another format of the inputs than by token, one of some linears alone, and the KV cache's: the weights are those of the folder, and a warning says so. */
static void test_inputs_that_are_not_followed(void **state) {
    (void)state;
    static const char *const edits[][3] = {
        {"\"token\"", "\"group\"", "quantization_config: input_activations is not followed"},
        {"\"output_activations\": null",
         "\"output_activations\": null}, \"group_1\": {\"targets\": [\"re:.*mlp.*\"], "
         "\"weights\": {\"num_bits\": 8, \"type\": \"float\", \"strategy\": \"channel\"}",
         "quantization_config: input_activations is not followed"},
        {"\"ignore\":", "\"kv_cache_scheme\": {}, \"ignore\":", "kv_cache_scheme is not followed"}};
    char rows[200], dst[200], path[240], *text;
    size_t n;
    need_binary();
    snprintf(rows, sizeof rows, "%s", config(&ax_schemes[0], ""));
    snprintf(dst, sizeof dst, "%s", in_scratch("other"));
    snprintf(path, sizeof path, "%s/config.json", dst);
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        assert_int_equal(ax_remove_tree(dst), AX_OK);
        sft_command = "quantize";
        EXPECT(0, "matrices as", golden_llama(), dst, "--scheme", "fp8");
        assert_int_equal(ax_read_file(path, 1 << 20, &text, &n), AX_OK);
        char *at = strstr(text, edits[i][0]);
        assert_non_null(at);
        struct ax_buf edited = {0};
        assert_int_equal(ax_buf_printf(&edited, "%.*s%s%s", (int)(at - text), text, edits[i][1],
                                       at + strlen(edits[i][0])),
                         AX_OK);
        assert_int_equal(ax_write_file_atomic(path, edited.data, edited.len), AX_OK);
        ax_buf_free(&edited);
        ax_free(text);
        sft_command = "eval";
        EXPECT(0, edits[i][2], dst, "--config", rows);
    }
}

/* A configuration with an adapter that was not merged. */
static void test_unmerged(void **state) {
    (void)state;
    assert_int_equal(ax_remove_tree(in_scratch("out")), AX_OK);
    const char *path = config(&ax_schemes[0], trained[1]);
    sft_command = "quantize";
    EXPECT(2, "out/merged is missing", path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_lora),
        cmocka_unit_test(test_dora),
        cmocka_unit_test(test_mixture),
        cmocka_unit_test(test_gradients_of_a_mixture),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_adapters_of_ends),
        cmocka_unit_test(test_codes_are_kept),
        cmocka_unit_test(test_inputs_of_plain_weights),
        cmocka_unit_test(test_inputs_that_are_not_followed),
        cmocka_unit_test(test_unmerged),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
