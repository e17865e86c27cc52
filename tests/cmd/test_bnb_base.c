/* bitsandbytes folders as models and as bases of adapters: they are what a folder of their values is, also where an
 * adapter keeps their codes in memory, and what is merged is not quantized. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/quant/quant_codes.h"
#include "tests/cmd/quantized_base_case.h"

enum { BLOCK = 64, NESTED = 256, MOST = 256 };

/* A folder while it is made: tensors, and what they are filled from. */
struct part {
    struct bytes bytes;
    void *data; /* the same */
    char name[128];
};
static struct part parts[MOST];
static struct ax_st_output tensors[MOST];
static int n_tensors;

/* Adds STEM + `end` and returns its n elements. */
static void *add(const char *stem, const char *end, enum ax_dtype dtype, int64_t n, int64_t cols) {
    struct part *p = &parts[n_tensors];
    snprintf(p->name, sizeof p->name, "%s%s", stem, end);
    assert_int_equal(ax_alloc(&p->data, (size_t)n, ax_dtype_size(dtype)), AX_OK);
    p->bytes = (struct bytes){p->data, dtype};
    assert_true(n_tensors < MOST);
    tensors[n_tensors++] = (struct ax_st_output){.name = p->name,
                                                 .dtype = dtype,
                                                 .ndim = cols > 0 ? 2 : 1,
                                                 .shape = {cols > 0 ? n / cols : n, cols},
                                                 .fill = copy_bytes,
                                                 .ctx = &p->bytes};
    return p->data;
}

static const float fp4[16] = {
    0, 0x1.555556p-8F,  0x1.555556p-1F,  1,  0x1.555556p-2F,  0.5F,  0x1.555556p-3F,  0.25F,
    0, -0x1.555556p-8F, -0x1.555556p-1F, -1, -0x1.555556p-2F, -0.5F, -0x1.555556p-3F, -0.25F};

static unsigned nearest(const float *values, float x) {
    unsigned best = 0;
    for (unsigned k = 1; k < 16; k++)
        if (fabsf(values[k] - x) < fabsf(values[best] - x))
            best = k;
    return best;
}

/* The matrix in 4 bits, with nested scales that are larger than the largest number of a block, so that to quantize it
 * again would make other codes. */
static void add_four(const struct ax_st_entry *e, const char *type, float *x) {
    const float *values = strcmp(type, "nf4") == 0 ? ax_nf4_values : fp4;
    const int64_t blocks = e->numel / BLOCK, groups = (blocks + NESTED - 1) / NESTED;
    char state[256], end[64];
    assert_int_equal(e->numel % BLOCK, 0);
    unsigned char *codes = add(e->name, "", AX_U8, e->numel / 2, 1);
    unsigned char *absmax = add(e->name, ".absmax", AX_U8, blocks, 0);
    float *outer = add(e->name, ".nested_absmax", AX_F32, groups, 0);
    float *map = add(e->name, ".nested_quant_map", AX_F32, 256, 0);
    memcpy(add(e->name, ".quant_map", AX_F32, 16, 0), values, 16 * sizeof *values);
    snprintf(
        state, sizeof state,
        "{\"quant_type\": \"%s\", \"blocksize\": 64, \"dtype\": \"float32\", \"shape\": [%d, %d], "
        "\"nested_blocksize\": 256, \"nested_dtype\": \"float32\", \"nested_offset\": 0.03125}",
        type, (int)e->shape[0], (int)e->shape[1]);
    snprintf(end, sizeof end, ".quant_state.bitsandbytes__%s", type);
    memcpy(add(e->name, end, AX_U8, (int64_t)strlen(state), 0), state, strlen(state));
    for (int i = 0; i < 256; i++)
        map[i] = (float)i / 255;
    for (int64_t i = 0; i < groups; i++)
        outer[i] = 1.5F;
    memset(codes, 0, (size_t)e->numel / 2);
    for (int64_t b = 0; b < blocks; b++) {
        float most = 0;
        for (int64_t i = b * BLOCK; i < (b + 1) * BLOCK; i++)
            most = fmaxf(most, fabsf(x[i]));
        absmax[b] = (unsigned char)fminf(255, ceilf(fmaxf(1.4F * most - 0.03125F, 0) / 1.5F * 255));
        const float scale = map[absmax[b]] * 1.5F + 0.03125F;
        for (int64_t i = b * BLOCK; i < (b + 1) * BLOCK; i++) {
            const unsigned code = nearest(values, x[i] / scale);
            codes[i / 2] |= (unsigned char)(i % 2 ? code : code << 4);
            x[i] = values[code] * scale;
        }
    }
}

static void add_eight(const struct ax_st_entry *e, float *x) {
    const int64_t cols = e->shape[1];
    char stem[128];
    snprintf(stem, sizeof stem, "%.*s", (int)(strlen(e->name) - strlen(".weight")), e->name);
    signed char *codes = add(e->name, "", AX_I8, e->numel, cols);
    float *scales = add(stem, ".SCB", AX_F32, e->shape[0], 0);
    *(unsigned char *)add(stem, ".weight_format", AX_U8, 1, 0) = 0;
    for (int64_t r = 0; r < e->shape[0]; r++) {
        scales[r] = 0;
        for (int64_t i = 0; i < cols; i++)
            scales[r] = fmaxf(scales[r], fabsf(x[r * cols + i]));
        for (int64_t i = r * cols; i < (r + 1) * cols; i++) {
            codes[i] = (signed char)lrintf(x[i] / scales[r] * 127);
            x[i] = (float)codes[i] * scales[r] * 7.874015718698502e-3F;
        }
    }
}

static bool is_linear(const char *name) {
    return strstr(name, "_proj.weight") != NULL;
}

/* Writes the golden llama to SCRATCH/NAME with its linears as `type` (nf4, fp4, int8; or NULL: with the values that nf4
 * has), but for those whose names contain `skipped`. */
static void make(const char *name, const char *type, const char *skipped) {
    struct ax_hf hf;
    n_tensors = 0;
    assert_int_equal(ax_hf_open(&hf, golden_llama()), AX_OK);
    for (int i = 0; i < ax_hf_count(&hf); i++) {
        const struct ax_st_entry *e = ax_hf_at(&hf, i);
        float *x;
        assert_int_equal(ax_alloc(&x, (size_t)e->numel, sizeof *x), AX_OK);
        assert_int_equal(ax_st_read(e, 0, e->numel, AX_F32, x), AX_OK);
        const bool quantizes = is_linear(e->name) && !(skipped && strstr(e->name, skipped));
        const int before = n_tensors;
        if (quantizes && type && strcmp(type, "int8") == 0)
            add_eight(e, x);
        else if (quantizes)
            add_four(e, type ? type : "nf4", x);
        if (!type) /* the values alone */
            while (n_tensors > before)
                ax_free(parts[--n_tensors].data);
        if (!type || !quantizes)
            memcpy(add(e->name, "", AX_F32, e->numel, e->ndim > 1 ? e->shape[1] : 0), x,
                   (size_t)e->numel * sizeof *x);
        ax_free(x);
    }
    ax_hf_close(&hf);
    put_folder(
        name,
        !type                       ? NULL
        : strcmp(type, "int8") == 0 ? "{\"quant_method\": \"bitsandbytes\", \"load_in_8bit\": true}"
        : strcmp(type, "nf4") == 0  ? "{\"load_in_4bit\": true, \"bnb_4bit_quant_type\": \"nf4\"}"
                                   : "{\"quant_method\": \"bitsandbytes\", \"load_in_4bit\": true}",
        n_tensors, tensors);
    while (n_tensors > 0)
        ax_free(parts[--n_tensors].data);
}

static int make_folders(void **state) {
    if (scratch_make(state) != 0 || !getenv("AX_TEST_BIN"))
        return 0;
    make("nf4", "nf4", NULL);
    make("values", NULL, NULL);
    make("fp4", "fp4", NULL);
    make("int8", "int8", NULL);
    make("partly", "nf4", "layers.1.self_attn.q_proj");
    return 0;
}

#define QLORA "adapter=qlora", "load_in_4bit=true"

static void it_is_the_model_of_its_values(void **state) {
    (void)state;
    chats_config(lora);
    assert_true(evaluate("nf4", "") == evaluate("values", ""));
    assert_true(evaluate("nf4", "--base nf4") == evaluate("values", ""));
    assert_true(evaluate("values", "--base nf4") != evaluate("values", ""));
    assert_true(evaluate("int8", "--base int8") > 0);
}

static bool is_quantized(const char *folder) {
    struct ax_json_doc doc;
    char path[300];
    snprintf(path, sizeof path, "%s/config.json", in_scratch(folder));
    assert_int_equal(ax_json_load(&doc, path, 1 << 20), AX_OK);
    const bool yes = json_object_get(doc.root, "quantization_config") != NULL;
    ax_json_free(&doc);
    return yes;
}

static void qlora_keeps_its_codes(void **state) {
    (void)state;
    char config[160];
    snprintf(config, sizeof config, "%s", chats_config(lora));
    sft_command = "sft";
    EXPECT(0, "base stored as plain", config, base("values"), out("plain"));
    EXPECT(0, "base stored as nf4 (21 matrices, with the folder's codes", config, base("nf4"),
           QLORA, out("codes"));
    assert_true(metric_of("plain", "eval_loss", 3) == metric_of("codes", "eval_loss", 3));
    assert_true(evaluate("plain/merged", "") == evaluate("codes/merged", ""));
    assert_true(is_quantized("nf4") && !is_quantized("codes/merged"));
    sft_command = "plan";
    EXPECT(0, "nf4", config, base("nf4"), QLORA, out("planned"));
}

/* As llm_int8_skip_modules leaves it, and Unsloth's dynamic folders. */
static void what_is_not_quantized_stays_plain(void **state) {
    (void)state;
    char config[160];
    snprintf(config, sizeof config, "%s", chats_config(lora));
    sft_command = "sft";
    EXPECT(0, "base stored as plain", config, base("partly"), out("whole"));
    EXPECT(0, "base stored as nf4 (20 matrices, with the folder's codes; others are plain)", config,
           base("partly"), QLORA, out("partly-kept"));
    /* q, k and v are three products instead of one */
    assert_float_equal(metric_of("whole", "eval_loss", 3), metric_of("partly-kept", "eval_loss", 3),
                       1e-6);
    assert_true(fabs(metric_of("whole", "eval_loss", 3) - metric_of("plain", "eval_loss", 3)) >
                1e-4);
}

static void the_folder_decides(void **state) {
    (void)state;
    char config[160];
    snprintf(config, sizeof config, "%s", chats_config(lora));
    sft_command = "sft";
    EXPECT(0, "the base is dequantized: it has bitsandbytes' fp4", config, base("fp4"), QLORA,
           out("fp4-out"));
    EXPECT(0, "the base stays in int8, as its folder has it, and not in nf4-double", config,
           base("int8"), QLORA, out("int8-out"));
    EXPECT(0, "the base stays in nf4, as its folder has it, and not in int8", config, base("nf4"),
           "load_in_8bit=true", out("nf4-out"));
    assert_true(metric_of("nf4-out", "eval_loss", 3) == metric_of("codes", "eval_loss", 3));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_the_model_of_its_values),
        cmocka_unit_test(qlora_keeps_its_codes),
        cmocka_unit_test(what_is_not_quantized_stays_plain),
        cmocka_unit_test(the_folder_decides),
    };
    return cmocka_run_group_tests(tests, make_folders, scratch_remove);
}
