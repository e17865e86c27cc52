/* bitsandbytes' folders: values are those of its own code, and codes are kept where packed storage has the same; mistakes
 * are named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/bytes.h"
#include "tests/ckpt/bnb_folder.h"
#include "tests/ckpt/folder.h"

/* A tensor "a…" and where its elements are. */
struct tensor {
    struct bytes bytes;
    const char *name; /* NULL: none */
    int64_t n, cols;  /* cols 0: one dimension */
};
static enum ax_status open_tensors(struct ax_hf *hf, const char *config, int n,
                                   const struct tensor *tensors) {
    struct ax_st_output t[8];
    char text[256];
    int count = 0;
    for (int i = 0; i < n; i++)
        if (tensors[i].name)
            t[count++] = (struct ax_st_output){
                .name = tensors[i].name,
                .dtype = tensors[i].bytes.dtype,
                .ndim = tensors[i].cols ? 2 : 1,
                .shape = {tensors[i].cols ? tensors[i].n / tensors[i].cols : tensors[i].n,
                          tensors[i].cols},
                .fill = copy_bytes,
                .ctx = (void *)(uintptr_t)&tensors[i]};
    snprintf(text, sizeof text, "{\"quantization_config\": {%s}}", config);
    put_text("config.json", text);
    assert_int_equal(ax_safetensors_write(in_dir("model.safetensors"), count, t), AX_OK);
    return ax_hf_open(hf, dir);
}

static void check_values(const struct ax_st_entry *e, int64_t rows, int64_t cols,
                         const float *values) {
    float v[512], part[45];
    assert_non_null(e);
    assert_true(e->quantized && e->shape[0] == rows && e->shape[1] == cols);
    assert_int_equal(ax_st_read(e, 0, e->numel, AX_F32, v), AX_OK);
    for (int64_t i = 0; i < rows * cols; i++)
        if (v[i] != values[i])
            fail_msg("element %d is %.9g, not %.9g", (int)i, (double)v[i], (double)values[i]);
    assert_int_equal(ax_st_read(e, 3, 45, AX_F32, part), AX_OK);
    assert_memory_equal(part, v + 3, sizeof part);
}

static void check_codes(const struct ax_st_entry *e, const unsigned char *codes, int block) {
    unsigned char c[512];
    float scales[16], v[512];
    assert_int_equal(ax_st_read(e, 0, e->numel, AX_F32, v), AX_OK);
    assert_int_equal(e->codes->quant, AX_QUANT_NF4);
    assert_int_equal(e->codes->block, block);
    assert_int_equal(e->codes->read(e->ctx, block, e->numel - block, c, scales), AX_OK);
    for (int64_t i = 0; i < e->numel - block; i++) {
        const int64_t at = block + i;
        assert_int_equal(c[i], at % 2 ? codes[at / 2] & 15 : codes[at / 2] >> 4);
        assert_true(ax_f16_to_f32(ax_f32_to_f16(nf4_map[c[i]] * scales[i / block])) == v[at]);
    }
}

/* ---- 4 bits ---- */

#define STATE "a.weight.quant_state.bitsandbytes__"
#define NF4                                                                                        \
    "\"quant_method\": \"bitsandbytes\", \"load_in_4bit\": true, \"bnb_4bit_quant_type\": \"nf4\""
#define LENGTH(a) ((int64_t)(sizeof(a) / sizeof *(a)))

enum { CODES, ABSMAX, MAP, STATES, NESTED_ABSMAX, NESTED_MAP, N_TENSORS };

/* The tensors of a golden. */
#define FOUR(name, type)                                                                           \
    {                                                                                              \
        [CODES] = {{name##_codes, AX_U8}, "a.weight", LENGTH(name##_codes), 1},                    \
        [ABSMAX] = {{name##_absmax, sizeof *name##_absmax == 1 ? AX_U8 : AX_F32},                  \
                    "a.weight.absmax",                                                             \
                    LENGTH(name##_absmax),                                                         \
                    0},                                                                            \
        [MAP] = {{type##_map, AX_F32}, "a.weight.quant_map", 16, 0},                               \
        [STATES] = {{name##_state, AX_U8}, STATE #type, LENGTH(name##_state) - 1, 0},              \
    }
#define NESTED(t, name)                                                                            \
    (t)[NESTED_ABSMAX] = (struct tensor){{name##_nested_absmax, AX_F32},                           \
                                         "a.weight.nested_absmax",                                 \
                                         LENGTH(name##_nested_absmax),                             \
                                         0};                                                       \
    (t)[NESTED_MAP] = (struct tensor) {                                                            \
        {nested_map, AX_F32}, "a.weight.nested_quant_map", 256, 0                                  \
    }

static void values_are_those_of_bitsandbytes(void **state) {
    (void)state;
    struct tensor plain[N_TENSORS] = FOUR(nf4, nf4), nested[N_TENSORS] = FOUR(nested, nf4);
    struct tensor fp4[N_TENSORS] = FOUR(fp4, fp4), fp4_twice[N_TENSORS] = FOUR(fp4_nested, fp4);
    NESTED(nested, nested);
    NESTED(fp4_twice, fp4_nested);
    const struct {
        const struct tensor *tensors;
        enum ax_dtype dtype;
        int64_t rows, cols;
        const float *values;
    } goldens[] = {{plain, AX_BF16, 5, 48, nf4_values},
                   {nested, AX_F16, 5, 64, nested_values},
                   {fp4, AX_F32, 4, 32, fp4_values},
                   {fp4_twice, AX_BF16, 3, 43, fp4_nested_values}};
    for (size_t i = 0; i < sizeof goldens / sizeof *goldens; i++) {
        struct ax_hf hf;
        if (open_tensors(&hf, "\"load_in_4bit\": true", N_TENSORS, goldens[i].tensors) != AX_OK)
            fail_msg("%s", ax_error_text());
        assert_int_equal(ax_hf_count(&hf), 1);
        const struct ax_st_entry *e = ax_hf_find(&hf, "a.weight");
        check_values(e, goldens[i].rows, goldens[i].cols, goldens[i].values);
        assert_int_equal(e->dtype, goldens[i].dtype);
        assert_int_equal(e->codes != NULL, goldens[i].tensors == nested);
        if (e->codes)
            check_codes(e, nested_codes, 32);
        ax_hf_close(&hf);
    }
}

/* bnb_4bit_quant_storage has the same bytes under another name; a matrix without quant_state is not quantized. */
static void codes_may_have_any_type(void **state) {
    (void)state;
    struct ax_hf hf;
    struct tensor t[N_TENSORS] = FOUR(nested, nf4);
    NESTED(t, nested);
    t[CODES].bytes.dtype = AX_BF16;
    t[CODES].n /= 2;
    assert_int_equal(open_tensors(&hf, NF4, N_TENSORS, t), AX_OK);
    check_values(ax_hf_find(&hf, "a.weight"), 5, 64, nested_values);
    ax_hf_close(&hf);
    for (int i = ABSMAX; i < N_TENSORS; i++)
        t[i].name = NULL;
    assert_int_equal(open_tensors(&hf, NF4, N_TENSORS, t), AX_OK);
    assert_false(ax_hf_find(&hf, "a.weight")->quantized);
    ax_hf_close(&hf);
}

static void mistakes_are_named(void **state) {
    (void)state;
    static const struct {
        int at;
        struct tensor t; /* in the place of the golden's; its name NULL: none */
        const char *says;
    } bad[] = {
        {ABSMAX, {.name = NULL}, "a.weight has no weight.absmax; quantize"},
        {MAP, {.name = NULL}, "a.weight has no weight.quant_map"},
        {STATES, {.name = NULL}, "a.weight has no quant_state of nf4 or fp4"},
        {NESTED_ABSMAX, {.name = NULL}, "a.weight has no weight.nested_absmax"},
        {NESTED_MAP, {.name = NULL}, "a.weight has no weight.nested_quant_map"},
        {CODES, {{nested_codes, AX_U8}, "a.weight", 159, 1}, "another number of codes"},
        {ABSMAX, {{nested_absmax, AX_U8}, "a.weight.absmax", 9, 0}, "absmax has another number"},
        {ABSMAX, {{nf4_values, AX_F32}, "a.weight.absmax", 10, 0}, "absmax has another number"},
        {NESTED_ABSMAX,
         {{nf4_absmax, AX_F32}, "a.weight.nested_absmax", 2, 0},
         "nested_absmax has another number"},
        {NESTED_MAP,
         {{nested_map, AX_F32}, "a.weight.nested_quant_map", 255, 0},
         "nested_quant_map has not 256 numbers"},
        {MAP, {{fp4_map, AX_F32}, "a.weight.quant_map", 16, 0}, "quant_map has other values"},
        {MAP, {{nf4_map, AX_F32}, "a.weight.quant_map", 15, 0}, "quant_map has other values"},
        {STATES, {{nf4_map, AX_F32}, STATE "nf4", 16, 0}, "__nf4 is no JSON"},
        {STATES,
         {{nested_state, AX_U8}, STATE "fp4", LENGTH(nested_state) - 1, 0},
         "quant_type: expected fp4, got \"nf4\""},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ax_hf hf;
        struct tensor t[N_TENSORS] = FOUR(nested, nf4);
        NESTED(t, nested);
        t[bad[i].at] = bad[i].t;
        const enum ax_status st = open_tensors(&hf, NF4, N_TENSORS, t);
        if (st != AX_ERR_DATA || !strstr(ax_error_text(), bad[i].says))
            fail_msg("case %d: %d, %s", (int)i, (int)st, ax_error_text());
    }
}

#define START "{\"quant_type\": \"nf4\", "
#define BLOCK START "\"blocksize\": 32, "
#define TYPE  BLOCK "\"dtype\": \"float16\", "
#define SHAPE TYPE "\"shape\": [5, 64], "
#define REST  "\"nested_blocksize\": 4, \"nested_offset\": 0.1, \"nested_dtype\": \"float32\""

static void hostile_states_are_refused(void **state) {
    (void)state;
    static const char *const bad[][2] = {
        {"", "nf4"},
        {"[1]", "quant_type"},
        {"{\"quant_type\": 4}", "quant_type"},
        {START "\"blocksize\": 48}", "blocksize: expected a power of two"},
        {START "\"blocksize\": 0}", "blocksize"},
        {START "\"blocksize\": 9223372036854775807}", "blocksize"},
        {BLOCK "\"dtype\": \"uint8\"}", "dtype: expected float32, bfloat16 or float16, got"},
        {BLOCK "\"dtype\": \"nonsense\"}", "dtype: expected float32"},
        {TYPE "\"shape\": null}", "expected [outputs, inputs]"},
        {TYPE "\"shape\": [320]}", "shape: expected [outputs, inputs]"},
        {TYPE "\"shape\": [0, 64]}", "shape"},
        {TYPE "\"shape\": [2147483648, 2147483648], " REST "}", "another number of codes"},
        {SHAPE "\"nested_blocksize\": 0}", "nested_blocksize"},
        {SHAPE "\"nested_blocksize\": 4}", "nested_offset"},
        {SHAPE "\"nested_blocksize\": 4, \"nested_offset\": 0.1, \"nested_dtype\": \"float16\"}",
         "nested_dtype: expected float32"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ax_hf hf;
        struct tensor t[N_TENSORS] = FOUR(nested, nf4);
        NESTED(t, nested);
        t[STATES].bytes.data = bad[i][0];
        t[STATES].n = (int64_t)strlen(bad[i][0]);
        const enum ax_status st = open_tensors(&hf, NF4, N_TENSORS, t);
        if (st != AX_ERR_DATA || !strstr(ax_error_text(), bad[i][1]))
            fail_msg("case %d: %d, %s", (int)i, (int)st, ax_error_text());
    }
}

/* ---- 8 bits ---- */

#define INT8 "\"quant_method\": \"bitsandbytes\", \"load_in_8bit\": true"

static const struct tensor eight[] = {{{int8_codes, AX_I8}, "a.weight", 48, 12},
                                      {{int8_scales, AX_F32}, "a.SCB", 4, 0},
                                      {{"\0", AX_U8}, "a.weight_format", 1, 0}};

static void rows_of_int8_are_those_of_bitsandbytes(void **state) {
    (void)state;
    struct ax_hf hf;
    unsigned char codes[24];
    float scales[2];
    assert_int_equal(open_tensors(&hf, INT8, 3, eight), AX_OK);
    assert_int_equal(ax_hf_count(&hf), 1);
    const struct ax_st_entry *e = ax_hf_find(&hf, "a.weight");
    check_values(e, 4, 12, int8_values);
    assert_true(e->codes->quant == AX_QUANT_INT8 && e->codes->block == 12);
    assert_int_equal(e->codes->read(e->ctx, 12, 24, codes, scales), AX_OK);
    assert_memory_equal(codes, int8_codes + 12, 24);
    for (int i = 0; i < 24; i++)
        assert_float_equal((float)(signed char)codes[i] * scales[i / 12], int8_values[12 + i],
                           1e-7);
    ax_hf_close(&hf);
}

static void mistakes_of_int8_are_named(void **state) {
    (void)state;
    static const struct {
        int at;
        struct tensor t;
        enum ax_status st;
        const char *says;
    } bad[] = {
        {1, {.name = NULL}, AX_ERR_DATA, "a.weight has no SCB"},
        {1, {{int8_scales, AX_F32}, "a.SCB", 3, 0}, AX_ERR_DATA, "a.SCB has not one scale"},
        {0, {{int8_codes, AX_I8}, "a.weight", 48, 0}, AX_ERR_DATA, "a.weight is no matrix"},
        {2,
         {{"\2", AX_U8}, "a.weight_format", 1, 0},
         AX_ERR_UNSUPPORTED,
         "order of old GPU kernels"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ax_hf hf;
        struct tensor t[3];
        memcpy(t, eight, sizeof t);
        t[bad[i].at] = bad[i].t;
        const enum ax_status st = open_tensors(&hf, INT8, 3, t);
        if (st != bad[i].st || !strstr(ax_error_text(), bad[i].says))
            fail_msg("case %d: %d, %s", (int)i, (int)st, ax_error_text());
    }
    struct ax_hf hf;
    assert_int_equal(open_tensors(&hf, "\"quant_method\": \"bitsandbytes\"", 3, eight),
                     AX_ERR_DATA);
    assert_non_null(strstr(ax_error_text(), "expected one of load_in_4bit and load_in_8bit"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_those_of_bitsandbytes),
        cmocka_unit_test(codes_may_have_any_type),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(hostile_states_are_refused),
        cmocka_unit_test(rows_of_int8_are_those_of_bitsandbytes),
        cmocka_unit_test(mistakes_of_int8_are_named),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
