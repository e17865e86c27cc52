/* Packed numbers against the reference implementations' files: equal codes and scales, values
 * within 1e-6; and the codes against their definition for numbers around every boundary. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "ckpt/hf/safetensors.h"
#include "kernels/quant/quant_block.h"
#include "kernels/quant/scheme.h"
#include "tests/golden_files.h"
#include "tests/kernels/machines.h"
#include "tests/kernels/range_case.h"
#include "tests/skip.h"

static void open_file(struct ax_safetensors *st, const char *name) {
    char path[64];
    snprintf(path, sizeof path, "quant/%s", name);
    assert_int_equal(ax_safetensors_open(st, golden_path(path)), AX_OK);
}

/* A tensor of the file in memory of its own, aligned. */
static struct ax_tensor take(const struct ax_safetensors *st, const char *name) {
    const struct ax_st_entry *e = ax_safetensors_find(st, name);
    if (!e)
        fail_msg("%s: no tensor %s", st->path, name);
    struct ax_tensor t = ax_tensor_1d(e->dtype, NULL, e->numel);
    assert_int_equal(ax_alloc(&t.data, e->bytes, 1), AX_OK);
    memcpy(t.data, e->data, e->bytes);
    return t;
}

static struct ax_tensor make(enum ax_dtype dtype, int64_t n) {
    struct ax_tensor t = ax_tensor_1d(dtype, NULL, n);
    assert_int_equal(ax_alloc(&t.data, ax_tensor_bytes(&t), 1), AX_OK);
    memset(t.data, 0xff, ax_tensor_bytes(&t));
    return t;
}

static void same(const char *what, const struct ax_tensor *got, const struct ax_tensor *want,
                 double relative) {
    assert_int_equal(ax_tensor_numel(got), ax_tensor_numel(want));
    for (int64_t i = 0; i < ax_tensor_numel(got); i++) {
        const double g = element(got, i), w = element(want, i);
        if (!(fabs(g - w) <= relative * fabs(w)))
            fail_msg("%s[%lld]: %.9g, expected %.9g", what, (long long)i, g, w);
    }
}

/* Codes one to a byte, as the files have them. */
static struct ax_tensor apart(const struct ax_tensor *packed, enum ax_dtype dtype, int64_t n) {
    struct ax_tensor t = make(dtype, n);
    for (int64_t i = 0; i < n; i++) {
        const unsigned char byte = ((const unsigned char *)packed->data)[i / 2];
        const int code = i % 2 ? byte & 15 : byte >> 4;
        ((unsigned char *)t.data)[i] = (unsigned char)(dtype == AX_I8 ? (code ^ 8) - 8 : code);
    }
    return t;
}

struct scheme {
    const char *scale;
    enum ax_quant kind;
    int64_t block;
};

static void check(struct machine *m, const struct scheme *s, const struct ax_tensor *x,
                  const struct ax_tensor *codes, const struct ax_tensor *scale,
                  const struct ax_tensor *value, const char *what) {
    const int64_t n = ax_tensor_numel(x), blocks = (n + s->block - 1) / s->block;
    const bool halves = ax_quant_info(s->kind)->values;
    struct ax_quantize a = {.x = *x, .block = s->block, .kind = s->kind};
    a.codes = make(ax_quant_info(s->kind)->codes, ax_quant_code_bytes(s->kind, n));
    a.scale = make(AX_F32, blocks);
    assert_int_equal(ax_run_quantize(m->q, &a), AX_OK);
    struct ax_tensor single = halves ? apart(&a.codes, codes->dtype, n) : a.codes;
    same(what, &single, codes, 0);
    same(what, &a.scale, scale, 0);
    struct ax_dequantize d = {.out = make(AX_F32, n),
                              .codes = a.codes,
                              .scale = a.scale,
                              .block = s->block,
                              .kind = s->kind};
    assert_int_equal(ax_run_dequantize(m->q, &d), AX_OK);
    same(what, &d.out, value, 1e-6);
    ax_free(d.out.data);
    ax_free(a.scale.data);
    if (halves)
        ax_free(single.data);
    ax_free(a.codes.data);
}

static void check_scheme(const char *file, const struct scheme *s) {
    static const char *const keys[] = {"random", "edge", "extreme"};
    struct ax_safetensors inputs, want;
    open_file(&inputs, "inputs.safetensors");
    open_file(&want, file);
    for (size_t k = 0; k < 3; k++) {
        char name[64], what[96];
        struct ax_tensor x = take(&inputs, keys[k]);
        snprintf(name, sizeof name, "%s.codes", keys[k]);
        struct ax_tensor codes = take(&want, name);
        snprintf(name, sizeof name, "%s.%s", keys[k], s->scale);
        struct ax_tensor scale = take(&want, name);
        snprintf(name, sizeof name, "%s.dequant", keys[k]);
        struct ax_tensor value = take(&want, name);
        snprintf(what, sizeof what, "%s %s", file, keys[k]);
        check(&ref, s, &x, &codes, &scale, &value, what);
        if (have_cpu())
            check(&cpu, s, &x, &codes, &scale, &value, what);
        ax_free(x.data);
        ax_free(codes.data);
        ax_free(scale.data);
        ax_free(value.data);
    }
    ax_safetensors_close(&inputs);
    ax_safetensors_close(&want);
}

static void nf4_equals_the_file(void **state) {
    (void)state;
    check_scheme("nf4.safetensors", &(struct scheme){"absmax", AX_QUANT_NF4, 64});
}

static void int4_pairs_equal_the_file(void **state) {
    (void)state;
    check_scheme("int4_g32_sym.safetensors", &(struct scheme){"scale", AX_QUANT_INT4X2, 32});
}

static void int8_rows_equal_the_file(void **state) {
    (void)state;
    check_scheme("int8_row_sym.safetensors", &(struct scheme){"scale", AX_QUANT_INT8, 256});
}

static void fp8_rows_equal_the_file(void **state) {
    (void)state;
    check_scheme("fp8_row.safetensors", &(struct scheme){"scale", AX_QUANT_FP8, 256});
}

static void check_double(struct machine *m, const struct ax_safetensors *want) {
    struct ax_tensor x = take(want, "input"), absmax = take(want, "double.absmax");
    struct ax_tensor codes = take(want, "double.codes"), value = take(want, "double.dequant");
    struct ax_tensor absmax_codes = take(want, "double.absmax_codes");
    struct ax_tensor absmax_value = take(want, "double.absmax_dequant");
    struct ax_tensor nested = take(want, "double.nested_absmax");
    struct ax_tensor mean = take(want, "double.absmax_offset"),
                     map = take(want, "double.absmax_map");
    const int64_t n = ax_tensor_numel(&x), blocks = n / 64, groups = (blocks + 255) / 256;
    same("map",
         &(struct ax_tensor){.dtype = AX_F32,
                             .ndim = 1,
                             .shape = {256},
                             .row_stride = 1,
                             .data = (void *)(uintptr_t)ax_map8_values},
         &map, 0);
    struct ax_quantize first = {.x = x, .block = 64, .kind = AX_QUANT_NF4};
    first.codes = make(AX_U8, n / 2);
    first.scale = make(AX_F32, blocks);
    assert_int_equal(ax_run_quantize(m->q, &first), AX_OK);
    struct ax_tensor single = apart(&first.codes, AX_U8, n);
    same("codes", &single, &codes, 0);
    same("absmax", &first.scale, &absmax, 0);
    struct ax_quantize second = {.x = first.scale, .block = 256, .kind = AX_QUANT_MAP8};
    second.codes = make(AX_U8, blocks);
    second.scale = make(AX_F32, groups);
    second.offset = make(AX_F32, groups);
    for (int64_t i = 0; i < groups; i++)
        ((float *)second.offset.data)[i] = ((const float *)mean.data)[0];
    assert_int_equal(ax_run_quantize(m->q, &second), AX_OK);
    same("absmax codes", &second.codes, &absmax_codes, 0);
    same("nested absmax", &second.scale, &nested, 0);
    struct ax_dequantize back = {.out = make(AX_F32, blocks),
                                 .codes = second.codes,
                                 .scale = second.scale,
                                 .offset = second.offset,
                                 .block = 256,
                                 .kind = AX_QUANT_MAP8};
    assert_int_equal(ax_run_dequantize(m->q, &back), AX_OK);
    same("absmax again", &back.out, &absmax_value, 1e-6);
    struct ax_dequantize whole = {.out = make(AX_F32, n),
                                  .codes = first.codes,
                                  .scale = back.out,
                                  .block = 64,
                                  .kind = AX_QUANT_NF4};
    assert_int_equal(ax_run_dequantize(m->q, &whole), AX_OK);
    same("values", &whole.out, &value, 1e-6);
    void *all[] = {x.data,
                   absmax.data,
                   codes.data,
                   value.data,
                   nested.data,
                   mean.data,
                   map.data,
                   absmax_codes.data,
                   single.data,
                   first.codes.data,
                   first.scale.data,
                   second.codes.data,
                   second.scale.data,
                   second.offset.data,
                   back.out.data,
                   whole.out.data,
                   absmax_value.data};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        ax_free(all[i]);
}

static void double_quantization_equals_the_file(void **state) {
    (void)state;
    struct ax_safetensors want;
    open_file(&want, "nf4_double.safetensors");
    check_double(&ref, &want);
    if (have_cpu())
        check_double(&cpu, &want);
    ax_safetensors_close(&want);
}

/* The nearest value, the first of equals, by looking at all of them. */
static uint32_t nearest_nf4(float v) {
    uint32_t best = 0;
    for (uint32_t k = 1; k < 16; k++)
        if (fabsf(v - ax_nf4_values[k]) < fabsf(v - ax_nf4_values[best]))
            best = k;
    return best;
}

static void nf4_codes_are_the_nearest(void **state) {
    (void)state;
    for (int k = 0; k < 15; k++) {
        float v = (ax_nf4_values[k] + ax_nf4_values[k + 1]) / 2;
        for (int i = 0; i < 50; i++)
            v = nextafterf(v, -2);
        for (int i = 0; i < 100; i++, v = nextafterf(v, 2))
            assert_int_equal(ax_nf4_code(v), nearest_nf4(v));
    }
    for (int i = -1000; i <= 1000; i++)
        assert_int_equal(ax_nf4_code((float)i / 1000), nearest_nf4((float)i / 1000));
}

/* Every e4m3 number is its own code; half way between two goes to the even code, a hair beside it
 * to the nearer one. */
static void e4m3_rounds_half_to_even(void **state) {
    (void)state;
    for (uint32_t code = 0; code < 126; code++) {
        const float low = ax_e4m3_value(code), high = ax_e4m3_value(code + 1);
        const float middle = (low + high) / 2;
        assert_true(low < high);
        assert_int_equal(ax_e4m3_code(low), code);
        assert_int_equal(ax_e4m3_code(middle), code + (code & 1));
        assert_int_equal(ax_e4m3_code(nextafterf(middle, 0)), code);
        assert_int_equal(ax_e4m3_code(nextafterf(middle, 500)), code + 1);
        assert_int_equal(ax_e4m3_code(-nextafterf(middle, 500)), (code + 1) | 128);
    }
    assert_true(ax_e4m3_value(126) == 448 && ax_e4m3_value(1) == 0x1p-9F);
}

/* Both machines leave the same bytes in every operand of the case. */
static void same_bytes(enum ax_op op, const struct ax_shape *shape, enum ax_dtype dtype) {
    struct ax_case got, want;
    case_open(&got, op, shape, dtype, &ref);
    case_open(&want, op, shape, dtype, &ref);
    case_run(&got, &cpu);
    case_run(&want, &ref);
    if (memcmp(got.memory, want.memory, want.bytes) != 0)
        fail_msg("%s \"%s\": cpu and ref differ", ax_op_name(op), shape->name);
    ax_case_free(&got);
    ax_case_free(&want);
}

static void formats_have_the_same_bits_everywhere(void **state) {
    (void)state;
    static const enum ax_op ops[] = {AX_OP_quantize, AX_OP_dequantize, AX_OP_quant_range,
                                     AX_OP_fake_quantize, AX_OP_fake_quantize_backward};
    if (!have_cpu())
        skip_because("hardware, AVX2");
    for (size_t k = 0; k < sizeof ops / sizeof *ops; k++) {
        int n;
        const struct ax_shape *shapes = ax_op_shapes(ops[k], &n);
        for (int i = 0; i < n; i++) {
            if (shapes[i].big || (shapes[i].flags & AX_SHAPE_ACCUMULATE))
                continue; /* a sum is rounded once more */
            same_bytes(ops[k], &shapes[i], AX_F32);
            same_bytes(ops[k], &shapes[i], AX_BF16);
        }
    }
}

/* A number of a random matrix whose rows differ in size. */
static float element_of_rows(int64_t i, int64_t cols) {
    return sinf((float)(7 * i + 1)) * (float)(1 + i / cols) - 0.25F;
}

/* The range of a row, given, is what the op finds without; and nothing but the codes' values comes
 * of fake quantization. */
static void ranges_of_rows_change_nothing(struct machine *m, enum ax_quant kind) {
    enum { ROWS = 7, COLS = 96, N = ROWS * COLS };
    float x[N], range[2 * ROWS], y[2][N];
    for (int64_t i = 0; i < N; i++)
        x[i] = element_of_rows(i, COLS);
    struct ax_fake_quantize f = {.x = ax_tensor_2d(AX_F32, x, ROWS, COLS),
                                 .y = ax_tensor_2d(AX_F32, y[0], ROWS, COLS),
                                 .block = COLS,
                                 .kind = kind};
    assert_int_equal(ax_run_fake_quantize(m->q, &f), AX_OK);
    f.range = ax_tensor_2d(AX_F32, range, ROWS, 2);
    f.y.data = y[1];
    assert_int_equal(ax_run_quant_range(m->q, &(struct ax_quant_range){.x = f.x, .range = f.range}),
                     AX_OK);
    assert_int_equal(ax_run_fake_quantize(m->q, &f), AX_OK);
    assert_memory_equal(y[0], y[1], sizeof y[0]);
    assert_memory_not_equal(y[0], x, sizeof x);
}

static void a_given_range_is_the_blocks(void **state) {
    (void)state;
    static const enum ax_quant kinds[] = {AX_QUANT_INT8, AX_QUANT_INT8_ASYM, AX_QUANT_FP8,
                                          AX_QUANT_E5M2, AX_QUANT_MXFP8};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        ranges_of_rows_change_nothing(&ref, kinds[i]);
        if (have_cpu())
            ranges_of_rows_change_nothing(&cpu, kinds[i]);
    }
}

static void run_here(struct ax_case *c, struct machine *m) {
    case_run(c, m);
}

/* What ops leave of their results is what quant_range finds there, which knows no NaN, and no row of padding. */
static void ops_leave_ranges(void **state) {
    (void)state;
    check_ranges(&ref, &ref, run_here);
    if (have_cpu())
        check_ranges(&ref, &cpu, run_here);
}

/* Of no rows it is 0. */
static void nothing_has_no_range(void **state) {
    (void)state;
    float x[6] = {1, -2, 3, 4, 5, 6}, y[3], range[2];
    for (int i = 0; i < (have_cpu() ? 2 : 1); i++) {
        const struct ax_swiglu_forward a = {.gate_up = ax_tensor_2d(AX_F32, x, 1, 6),
                                            .y = ax_tensor_2d(AX_F32, y, 1, 3),
                                            .range = {ax_tensor_2d(AX_F32, range, 1, 2), 0}};
        range[0] = range[1] = 7;
        assert_int_equal(ax_run_swiglu_forward(i == 0 ? ref.q : cpu.q, &a), AX_OK);
        assert_true(range[0] == 0 && range[1] == 0);
    }
}

/* fp8_codes and fake_quantize, of the same numbers and range: codes times their scale are the values, and columns are
 * rows transposed, with zeros after the last row. */
static void codes_mean_the_values(struct machine *m, enum ax_quant kind) {
    enum { ROWS = 7, COLS = 96, N = ROWS * COLS, LONG = 16 };
    float x[N], y[N], range[2] = {1.5F, 2}, scale = 0;
    unsigned char rows[N], columns[COLS * LONG];
    for (int64_t i = 0; i < N; i++)
        x[i] = ldexpf(element_of_rows(i, COLS), -(int)(i % 40));
    x[5] = NAN;
    const struct ax_fake_quantize f = {.x = ax_tensor_2d(AX_F32, x, ROWS, COLS),
                                       .y = ax_tensor_2d(AX_F32, y, ROWS, COLS),
                                       .range = ax_tensor_2d(AX_F32, range, 1, 2),
                                       .block = COLS,
                                       .kind = kind};
    const struct ax_fp8_codes c = {.x = f.x,
                                   .range = f.range,
                                   .rows = ax_tensor_2d(AX_U8, rows, ROWS, COLS),
                                   .columns = ax_tensor_2d(AX_U8, columns, COLS, LONG),
                                   .scale = ax_tensor_1d(AX_F32, &scale, 1),
                                   .kind = kind};
    assert_int_equal(ax_run_fake_quantize(m->q, &f), AX_OK);
    assert_int_equal(ax_run_fp8_codes(m->q, &c), AX_OK);
    for (int64_t i = 0; i < N; i++) {
        const float value = ax_fp8_value(kind, rows[i]) * scale;
        assert_int_equal(columns[i % COLS * LONG + i / COLS], rows[i]);
        assert_true(i == 5 ? isnan(value) && isnan(y[i])
                           : memcmp(&value, &y[i], sizeof value) == 0);
    }
    for (int64_t i = 0; i < COLS * LONG; i++)
        assert_true(i % LONG < ROWS || columns[i] == 0);
}

/* The same where each row, or column, has a scale: of its own range, or of one that is given. */
static void scales_of_rows_mean_the_values(struct machine *m, enum ax_quant kind) {
    enum { ROWS = 7, COLS = 96, N = ROWS * COLS, LONG = 16 };
    float x[N], y[N], range[2 * COLS], scale[COLS];
    unsigned char codes[COLS * LONG];
    for (int64_t i = 0; i < N; i++)
        x[i] = ldexpf(element_of_rows(i, COLS), -(int)(i % 40));
    for (int ranges = 0; ranges < 3;
         ranges++) { /* own ones of rows; given ones of rows, and columns */
        const bool columns = ranges == 2;
        const int64_t n = columns ? COLS : ROWS;
        struct ax_fake_quantize f = {.x = ax_tensor_2d(AX_F32, x, ROWS, COLS),
                                     .y = ax_tensor_2d(AX_F32, y, ROWS, COLS),
                                     .block = COLS,
                                     .kind = kind,
                                     .columns = columns};
        struct ax_fp8_codes c = {.x = f.x, .scale = ax_tensor_1d(AX_F32, scale, n), .kind = kind};
        if (columns)
            c.columns = ax_tensor_2d(AX_U8, codes, COLS, LONG);
        else
            c.rows = ax_tensor_2d(AX_U8, codes, ROWS, COLS);
        if (ranges > 0) {
            c.range = f.range = ax_tensor_2d(AX_F32, range, n, 2);
            const struct ax_quant_range r = {.x = f.x, .range = f.range, .columns = columns};
            assert_int_equal(ax_run_quant_range(m->q, &r), AX_OK);
        }
        assert_int_equal(ax_run_fake_quantize(m->q, &f), AX_OK);
        assert_int_equal(ax_run_fp8_codes(m->q, &c), AX_OK);
        for (int64_t i = 0; i < N; i++) {
            const int64_t row = i / COLS, col = i % COLS;
            const float value = columns ? ax_fp8_value(kind, codes[col * LONG + row]) * scale[col]
                                        : ax_fp8_value(kind, codes[i]) * scale[row];
            assert_memory_equal(&value, &y[i], sizeof value);
        }
        for (int64_t i = 0; columns && i < COLS * LONG; i++)
            assert_true(i % LONG < ROWS || codes[i] == 0);
    }
}

static void codes_of_products_mean_the_values(void **state) {
    (void)state;
    static const enum ax_quant kinds[] = {AX_QUANT_FP8, AX_QUANT_E5M2};
    for (int i = 0; i < 2; i++) {
        codes_mean_the_values(&ref, kinds[i]);
        scales_of_rows_mean_the_values(&ref, kinds[i]);
        if (have_cpu()) {
            codes_mean_the_values(&cpu, kinds[i]);
            scales_of_rows_mean_the_values(&cpu, kinds[i]);
        }
    }
}

/* Every code of a float is that of its value; every value but NaN has one. */
static void codes_of_floats_are_their_values(void **state) {
    (void)state;
    for (uint32_t code = 0; code < 256; code++) {
        if ((code & 127) < 124)
            assert_int_equal(ax_quant_code(AX_QUANT_E5M2, ax_quant_of_code(AX_QUANT_E5M2, code)),
                             code);
        assert_int_equal(ax_quant_code(AX_QUANT_MXFP4, ax_quant_of_code(AX_QUANT_MXFP4, code & 15)),
                         code & 15);
        assert_int_equal(ax_quant_code(AX_QUANT_INT8, ax_quant_of_code(AX_QUANT_INT8, code)), code);
    }
    assert_true(ax_quant_of_code(AX_QUANT_E5M2, 123) == 57344);
    assert_true(ax_quant_of_code(AX_QUANT_MXFP4, 15) == -6);
}

static void wrong_schemes_name_the_nearest(void **state) {
    (void)state;
    struct ax_scheme s;
    assert_int_equal(ax_scheme_find("qat.scheme", "nvfp4", &s), AX_OK);
    assert_int_equal(s.weight.kind, AX_QUANT_NVFP4);
    assert_int_equal(ax_scheme_find("qat.scheme", "int4_int8", &s), AX_ERR_CONFIG);
    assert_non_null(strstr(ax_error_text(), "Nearest: int4-int8."));
    assert_int_equal(
        ax_scheme_find("qat.scheme", "a name that is longer than every name of the table", &s),
        AX_ERR_CONFIG);
    static const char *const nearest[][2] = {
        {"NVFP4", "Nearest: nvfp4."},    {"FP8", "Nearest: fp8."},     {"W4A16", "Nearest: int4."},
        {"W8A8", "Nearest: int8-int8."}, {"Q4_K_M", "Nearest: q4_k."}, {"Q8_0", "Nearest: q8_0."}};
    for (size_t i = 0; i < sizeof nearest / sizeof *nearest; i++) {
        assert_int_equal(ax_scheme_find("--scheme", nearest[i][0], &s), AX_ERR_CONFIG);
        assert_non_null(strstr(ax_error_text(), nearest[i][1]));
    }
    assert_int_equal(ax_scheme_find("--scheme", "q4_k", &s), AX_OK);
    assert_string_equal(s.gguf, "q4_k_m");
    assert_int_equal(ax_scheme_find_trained("--qat", "nf4", &s), AX_ERR_CONFIG);
    assert_int_equal(ax_scheme_find_trained("--qat", "int4", &s), AX_OK);
}

/* A head that is the embedding is quantized if one of them is asked for. */
static void tied_matrices_are_one(void **state) {
    (void)state;
    for (int i = 0; i < 8; i++) {
        const struct ax_scheme s = {.embedding = i & 1, .head = i & 2, .trains = i & 4};
        const struct ax_scheme own = ax_scheme_of_model(&s, false),
                               tied = ax_scheme_of_model(&s, true);
        assert_true(own.embedding == s.embedding && own.head == s.head);
        assert_true(tied.embedding == (s.embedding || s.head) && tied.head == tied.embedding);
    }
}

/* What is not written names a scheme that is. */
static void unwritten_schemes_have_a_nearest(void **state) {
    (void)state;
    for (const struct ax_scheme *s = ax_schemes; s->name; s++) {
        struct ax_scheme near;
        assert_true((s->form == AX_FORM_NONE) == (s->nearest != NULL));
        assert_true((s->form == AX_FORM_GGUF) == (s->gguf != NULL));
        assert_true(s->trains || s->form == AX_FORM_GGUF || s->weight.kind == AX_QUANT_NF4);
        if (!s->nearest)
            continue;
        assert_int_equal(ax_scheme_find("scheme", s->nearest, &near), AX_OK);
        assert_true(near.form != AX_FORM_NONE);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nf4_equals_the_file),
        cmocka_unit_test(int4_pairs_equal_the_file),
        cmocka_unit_test(int8_rows_equal_the_file),
        cmocka_unit_test(fp8_rows_equal_the_file),
        cmocka_unit_test(double_quantization_equals_the_file),
        cmocka_unit_test(nf4_codes_are_the_nearest),
        cmocka_unit_test(e4m3_rounds_half_to_even),
        cmocka_unit_test(formats_have_the_same_bits_everywhere),
        cmocka_unit_test(a_given_range_is_the_blocks),
        cmocka_unit_test(ops_leave_ranges),
        cmocka_unit_test(nothing_has_no_range),
        cmocka_unit_test(codes_of_products_mean_the_values),
        cmocka_unit_test(codes_of_floats_are_their_values),
        cmocka_unit_test(wrong_schemes_name_the_nearest),
        cmocka_unit_test(tied_matrices_are_one),
        cmocka_unit_test(unwritten_schemes_have_a_nearest),
    };
    return cmocka_run_group_tests(tests, open_machines, close_machines);
}
