/* A GPTQ folder as a model and as the base of an adapter: it is what the compressed-tensors folder with its codes is,
 * also where an adapter keeps the codes in memory; and keys that say what the folder is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/cmd/quantized_base_case.h"

enum { GROUP = 32, PER = 8, MATRICES = 21, PARTS = 4 };

struct part {
    struct bytes bytes;
    void *data; /* the same */
    char name[96];
};

static struct ax_st_output output(struct part *p, const char *stem, const char *end,
                                  enum ax_dtype dtype, int64_t rows, int64_t cols) {
    snprintf(p->name, sizeof p->name, "%s%s", stem, end);
    assert_int_equal(ax_alloc(&p->data, (size_t)(rows * cols), ax_dtype_size(dtype)), AX_OK);
    p->bytes = (struct bytes){p->data, dtype};
    memset(p->data, 0, (size_t)(rows * cols) * ax_dtype_size(dtype));
    return (struct ax_st_output){.name = p->name,
                                 .dtype = dtype,
                                 .ndim = rows > 1 ? 2 : 1,
                                 .shape = {rows > 1 ? rows : cols, cols},
                                 .fill = copy_bytes,
                                 .ctx = &p->bytes};
}

/* The codes of a matrix as GPTQ packs them, with the bias of zeros that AutoGPTQ writes. */
static void repack(const struct ax_st_entry *e, struct part *p, struct ax_st_output *t) {
    const int64_t out = e->shape[0], in = e->shape[1], groups = in / GROUP;
    unsigned char *codes;
    float *scales;
    char stem[96];
    snprintf(stem, sizeof stem, "%.*s", (int)(strlen(e->name) - strlen(".weight")), e->name);
    t[0] = output(&p[0], stem, ".qweight", AX_I32, in / PER, out);
    t[1] = output(&p[1], stem, ".qzeros", AX_I32, groups, out / PER);
    t[2] = output(&p[2], stem, ".scales", AX_F32, groups, out);
    t[3] = output(&p[3], stem, ".bias", AX_F16, 1, out);
    memset(p[1].data, 0x77, (size_t)(groups * out / PER) * 4);
    assert_int_equal(ax_alloc(&codes, (size_t)e->numel, 1), AX_OK);
    assert_int_equal(ax_alloc(&scales, (size_t)(e->numel / GROUP), sizeof *scales), AX_OK);
    assert_int_equal(e->codes->read(e->ctx, 0, e->numel, codes, scales), AX_OK);
    for (int64_t i = 0; i < e->numel; i++) {
        const int64_t row = i / in, col = i % in;
        const uint32_t code = (uint32_t)((signed char)codes[i] + 8);
        ((uint32_t *)p[0].data)[col / PER * out + row] |= code << (4 * (col % PER));
        ((float *)p[2].data)[col / GROUP * out + row] = scales[i / GROUP];
    }
    ax_free(codes);
    ax_free(scales);
}

#define GPTQ                                                                                       \
    "{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 32, \"desc_act\": false, \"sym\": " \
    "true}"

/* The n tensors, without the PARTS of a matrix from `at` on, which is as the golden llama has it. */
static void put_partly(int n, struct ax_st_output *t, int at) {
    char name[96];
    struct ax_hf hf;
    snprintf(name, sizeof name, "%.*s.weight", (int)(strlen(t[at].name) - strlen(".qweight")),
             t[at].name);
    assert_int_equal(ax_hf_open(&hf, golden_llama()), AX_OK);
    const struct ax_st_entry *e = ax_hf_find(&hf, name);
    assert_non_null(e);
    struct bytes whole = {e->data, e->dtype};
    t[at] = (struct ax_st_output){.name = name,
                                  .dtype = e->dtype,
                                  .ndim = 2,
                                  .shape = {e->shape[0], e->shape[1]},
                                  .fill = copy_bytes,
                                  .ctx = &whole};
    memmove(&t[at + 1], &t[at + PARTS], (size_t)(n - at - PARTS) * sizeof *t);
    put_folder("partly", GPTQ, n - PARTS + 1, t);
    ax_hf_close(&hf);
}

/* SCRATCH/int4, the golden llama as `axtrain quantize` writes it, SCRATCH/gptq with its codes, and SCRATCH/partly with
 * one matrix that is not quantized. */
static int make_folders(void **state) {
    static struct part parts[PARTS * MATRICES];
    static struct bytes plain[64];
    struct ax_st_output t[PARTS * MATRICES + 64];
    char from[200];
    struct ax_hf hf;
    int n = 0, matrices = 0, last = 0;
    if (scratch_make(state) != 0 || !getenv("AX_TEST_BIN"))
        return 0;
    snprintf(from, sizeof from, "%s", in_scratch("int4"));
    sft_command = "quantize";
    EXPECT(0, "21 matrices as int4", golden_llama(), from, "--scheme", "int4");
    assert_int_equal(ax_hf_open(&hf, from), AX_OK);
    for (int i = 0; i < ax_hf_count(&hf); i++) {
        const struct ax_st_entry *e = ax_hf_at(&hf, i);
        if (e->codes) {
            repack(e, &parts[PARTS * matrices++], &t[n]);
            last = n;
            n += PARTS;
            continue;
        }
        plain[i] = (struct bytes){e->data, e->dtype};
        t[n] = (struct ax_st_output){.name = e->name,
                                     .dtype = e->dtype,
                                     .ndim = e->ndim,
                                     .shape = {e->shape[0], e->shape[1]},
                                     .fill = copy_bytes,
                                     .ctx = &plain[i]};
        n++;
    }
    assert_int_equal(matrices, MATRICES);
    put_folder("gptq", GPTQ, n, t);
    put_partly(n, t, last);
    ax_hf_close(&hf);
    for (int i = 0; i < PARTS * MATRICES; i++)
        ax_free(parts[i].data);
    return 0;
}

static void it_is_the_model_of_its_codes(void **state) {
    (void)state;
    chats_config(lora);
    assert_true(evaluate("gptq", "") == evaluate("int4", ""));
    assert_true(evaluate("gptq", "--base int4") == evaluate("int4", "--base int4"));
}

static void adapters_are_trained_beside_its_codes(void **state) {
    (void)state;
    char config[160];
    snprintf(config, sizeof config, "%s", chats_config(lora));
    sft_command = "sft";
    EXPECT(0, "base stored as plain", config, base("int4"), out("plain"));
    EXPECT(0, "base stored as int4", config, base("gptq"), "gptq=true", out("packed"));
    EXPECT(0, "base stored as int8", config, base("gptq"), "gptq=true", "load_in_8bit=true",
           "max_steps=1", out("bytes"));
    assert_true(metric_of("plain", "eval_loss", 3) == metric_of("packed", "eval_loss", 3));
    assert_true(evaluate("plain/merged", "") == evaluate("packed/merged", ""));
    sft_command = "plan";
    EXPECT(0, "int4", config, base("gptq"), "gptq=true", out("planned"));
}

/* Peers refuse to train the weights of such folders, or to round them again. */
static void dequantizing_is_said(void **state) {
    (void)state;
    char config[160];
    snprintf(config, sizeof config, "%s", chats_config("max_steps: 1\nsave_only_model: true\n"));
    sft_command = "sft";
    EXPECT(0, "info the base is quantized (gptq): training begins with its dequantized weights",
           config, base("gptq"), out("full"));
    snprintf(config, sizeof config, "%s", chats_config(lora));
    EXPECT(0, "base stored as plain (dequantized from gptq)", config, base("gptq"), "max_steps=1",
           out("dequantized"));
    EXPECT(0, "base stored as nf4-double (dequantized from gptq, and rounded again)", config,
           base("gptq"), "max_steps=1", "adapter=qlora", "load_in_4bit=true", out("again"));
}

/* convert writes what is read. */
static void it_can_be_dequantized(void **state) {
    (void)state;
    char from[200], to[200];
    struct ax_hf gptq, dense;
    snprintf(from, sizeof from, "%s", in_scratch("gptq"));
    snprintf(to, sizeof to, "%s", in_scratch("dense"));
    sft_command = "convert";
    EXPECT(0, "weights, float32", from, to, "--to", "hf");
    EXPECT(0, "weights, bfloat16", from, in_scratch("half"), "--to", "hf", "--dtype", "bfloat16");
    EXPECT(2, "is an adapter. `axtrain merge BASE", in_scratch("plain"), "no", "--to", "hf");
    assert_int_equal(ax_hf_open(&gptq, from), AX_OK);
    assert_int_equal(ax_hf_open(&dense, to), AX_OK);
    assert_int_equal(ax_hf_count(&gptq), ax_hf_count(&dense));
    for (int i = 0; i < ax_hf_count(&gptq); i++) {
        const struct ax_st_entry *x = ax_hf_at(&gptq, i), *y = ax_hf_find(&dense, x->name);
        float *values;
        assert_true(y && !y->quantized && y->dtype == AX_F32 && y->numel == x->numel);
        assert_int_equal(ax_alloc(&values, (size_t)x->numel, sizeof *values), AX_OK);
        assert_int_equal(ax_st_read(x, 0, x->numel, AX_F32, values), AX_OK);
        assert_memory_equal(values, y->data, (size_t)x->numel * sizeof *values);
        ax_free(values);
    }
    ax_hf_close(&gptq);
    ax_hf_close(&dense);
}

/* Packed storage would round a matrix that has no codes; the others keep theirs. */
static void other_matrices_are_not_rounded(void **state) {
    (void)state;
    char config[160];
    snprintf(config, sizeof config, "%s", chats_config(lora));
    sft_command = "sft";
    EXPECT(0, "base stored as plain", config, base("partly"), out("whole"));
    EXPECT(0, "base stored as int4 (20 matrices, with the folder's codes; others are plain)",
           config, base("partly"), "gptq=true", out("partly-kept"));
    /* q, k and v are two products instead of one */
    assert_float_equal(metric_of("whole", "eval_loss", 3), metric_of("partly-kept", "eval_loss", 3),
                       1e-6);
    assert_true(metric_of("whole", "eval_loss", 3) != metric_of("plain", "eval_loss", 3));
}

static void keys_have_to_agree_with_the_folder(void **state) {
    (void)state;
    char config[160];
    snprintf(config, sizeof config, "%s", chats_config(lora));
    sft_command = "sft";
    EXPECT(2, "gptq: needs a base whose config.json says quant_method: gptq; remove the key",
           config, base("int4"), "gptq=true", out("not"));
    EXPECT(2,
           "model_quantization_config: Mxfp4Config needs a base whose config.json says "
           "quant_method: mxfp4",
           config, base("gptq"), "model_quantization_config=Mxfp4Config", out("not"));
    EXPECT(2, "FineGrainedFP8Config needs a base whose config.json says quant_method: fp8", config,
           base("int4"), "model_quantization_config=FineGrainedFP8Config", out("not"));
    EXPECT(2, "qat quantizes the weights itself", config, base("gptq"), "gptq=true",
           "qat.scheme=int4", out("not"));
}

static void keys_that_agree_are_accepted(void **state) {
    (void)state;
    char config[160], mxfp4[600], tokenizer[600];
    snprintf(config, sizeof config, "%s", chats_config("max_steps: 1\n"));
    snprintf(mxfp4, sizeof mxfp4, "base_model=%s", golden_path("models/gpt_oss/mxfp4"));
    snprintf(tokenizer, sizeof tokenizer, "tokenizer_config=%s", golden_llama());
    sft_command = "sft";
    EXPECT(0, "saved: ", config, mxfp4, tokenizer, "model_quantization_config=Mxfp4Config",
           "model_quantization_config_kwargs={dequantize: true}", out("mxfp4"));
    EXPECT(2, "model_quantization_config_kwargs: fmt is not supported; config.json of the base",
           config, mxfp4, tokenizer, "model_quantization_config=Mxfp4Config",
           "model_quantization_config_kwargs={fmt: e4m3}", out("not"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_the_model_of_its_codes),
        cmocka_unit_test(adapters_are_trained_beside_its_codes),
        cmocka_unit_test(dequantizing_is_said),
        cmocka_unit_test(it_can_be_dequantized),
        cmocka_unit_test(other_matrices_are_not_rounded),
        cmocka_unit_test(keys_have_to_agree_with_the_folder),
        cmocka_unit_test(keys_that_agree_are_accepted),
    };
    return cmocka_run_group_tests(tests, make_folders, scratch_remove);
}
