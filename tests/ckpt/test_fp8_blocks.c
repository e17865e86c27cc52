/* Matrices in e4m3 by blocks of rows and columns, as DeepSeek publishes them: element by element by the
 * formula, blocks at the edges too; mistakes are named. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "kernels/quant/quant_codes.h"
#include "tests/ckpt/folder.h"

enum { ROWS = 5, COLS = 7, HIGH = 2, WIDE = 4, DOWN = 3, ACROSS = 2 };

#define OTHER 7             /* the element that has … */
static int other_code = -1; /* … another code */

static unsigned char code_of(int64_t i) {
    if (i == OTHER && other_code >= 0)
        return (unsigned char)other_code;
    return (unsigned char)(i * 37 % 127 + i % 2 * 128); /* 127 and 255 are no numbers */
}

static enum ax_status codes(void *ctx, int64_t first, int64_t n, void *out) {
    (void)ctx;
    for (int64_t i = 0; i < n; i++)
        ((unsigned char *)out)[i] = code_of(first + i);
    return AX_OK;
}

static float scale_of(int64_t i) {
    return 0.125F * (float)(i + 3);
}

static enum ax_status scales(void *ctx, int64_t first, int64_t n, void *out) {
    (void)ctx;
    for (int64_t i = 0; i < n; i++)
        ((float *)out)[i] = scale_of(first + i);
    return AX_OK;
}

static const struct ax_st_output matrix = {.name = "a.weight",
                                           .dtype = AX_U8,
                                           .e4m3 = true,
                                           .ndim = 2,
                                           .shape = {ROWS, COLS},
                                           .fill = codes};

/* A folder with one matrix and a vector; `across` scales in a row of scales, named `name`. */
static enum ax_status open_made(struct ax_hf *hf, const char *config, const char *name,
                                int64_t across) {
    const struct ax_st_output t[] = {
        matrix,
        {.name = name, .dtype = AX_F32, .ndim = 2, .shape = {DOWN, across}, .fill = scales},
        {.name = "norm.weight", .dtype = AX_F32, .ndim = 1, .shape = {4}, .fill = scales}};
    put_text("config.json", config);
    assert_int_equal(ax_safetensors_write(in_dir("model.safetensors"), 3, t), AX_OK);
    return ax_hf_open(hf, dir);
}

#define CONFIG(fields)                                                                             \
    "{\"quantization_config\": {\"quant_method\": \"fp8\", \"fmt\": \"e4m3\", " fields "}}"
#define BLOCKS CONFIG("\"weight_block_size\": [2, 4]")

static void values_are_codes_times_scales(void **state) {
    (void)state;
    struct ax_hf hf;
    float v[ROWS * COLS], part[3];
    assert_int_equal(open_made(&hf, BLOCKS, "a.weight_scale_inv", ACROSS), AX_OK);
    assert_int_equal(ax_hf_count(&hf), 2);
    const struct ax_st_entry *e = ax_hf_find(&hf, "a.weight");
    assert_non_null(e);
    assert_int_equal(e->numel, ROWS * COLS);
    assert_int_equal(ax_st_read(e, 0, e->numel, AX_F32, v), AX_OK);
    for (int64_t i = 0; i < ROWS * COLS; i++) {
        const int64_t scale = i / COLS / HIGH * ACROSS + i % COLS / WIDE;
        assert_true(v[i] == ax_e4m3_value(code_of(i)) * scale_of(scale));
    }
    assert_int_equal(ax_st_read(e, 9, 3, AX_F32, part), AX_OK);
    assert_memory_equal(part, v + 9, sizeof part);
    ax_hf_close(&hf);
}

static enum ax_status powers(void *ctx, int64_t first, int64_t n, void *out) {
    (void)ctx;
    for (int64_t i = 0; i < n; i++)
        ((unsigned char *)out)[i] = (unsigned char)(first + i == 0 ? 255 : 126 + first + i);
    return AX_OK;
}

static int zero_point; /* the last one; the others are 0 */

static enum ax_status zeros(void *ctx, int64_t first, int64_t n, void *out) {
    (void)ctx;
    for (int64_t i = 0; i < n; i++)
        ((unsigned char *)out)[i] = (unsigned char)(first + i == ROWS - 1 ? zero_point : 0);
    return AX_OK;
}

#define COMPRESSED(weights)                                                                        \
    "{\"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"format\": "            \
    "\"float-quantized\", \"config_groups\": {\"g\": {\"targets\": [\"Linear\"], \"weights\": "    \
    "{\"num_bits\": 8, \"type\": \"float\", " weights "}}}}}"

/* A folder with one matrix, whose scales are [down][across], and what other writers put beside them. */
static enum ax_status open_other(struct ax_hf *hf, const char *config, const char *name, bool e8m0,
                                 int64_t down, int64_t across) {
    const struct ax_st_output t[] = {
        matrix,
        {.name = name,
         .dtype = e8m0 ? AX_U8 : AX_F32,
         .e8m0 = e8m0,
         .ndim = down > 0 ? 2 : 0,
         .shape = {down, across},
         .fill = e8m0 ? powers : scales},
        {.name = "a.weight_zero_point",
         .dtype = AX_U8,
         .e4m3 = true,
         .ndim = 2,
         .shape = {ROWS, 1},
         .fill = zeros},
        {.name = "a.activation_scale", .dtype = AX_F32, .fill = scales},
        {.name = "a.input_scale", .dtype = AX_F32, .ndim = 1, .shape = {1}, .fill = scales},
        {.name = "attn.k_scale", .dtype = AX_F32, .ndim = 1, .shape = {1}, .fill = scales},
        {.name = "attn.v_scale", .dtype = AX_F32, .ndim = 1, .shape = {1}, .fill = scales}};
    put_text("config.json", config);
    assert_int_equal(
        ax_safetensors_write(in_dir("model.safetensors"), (int)(sizeof t / sizeof *t), t), AX_OK);
    return ax_hf_open(hf, dir);
}

/* GPTQModel's FP8: values are divided by the scales. */
#define INVERSE(method)                                                                            \
    "\"weight_scale_method\": \"" method "\", \"weight_scale_semantics\": \"inverse\""

/* One scale (Mistral's), scales that are powers of two, compressed-tensors' blocks, and GPTQModel's. */
static void forms_of_other_writers(void **state) {
    (void)state;
    static const struct {
        const char *config, *name;
        bool e8m0;
        int64_t down, across, high, wide;
        bool divides;
    } forms[] = {
        {CONFIG("\"weight_block_size\": null, \"activation_scheme\": \"static\""),
         "a.weight_scale_inv", false, 0, 0, ROWS, COLS, false},
        {BLOCKS, "a.weight_scale_inv", true, DOWN, ACROSS, HIGH, WIDE, false},
        {COMPRESSED("\"strategy\": \"block\", \"block_structure\": [2, 4]"), "a.weight_scale",
         false, DOWN, ACROSS, HIGH, WIDE, false},
        {COMPRESSED("\"strategy\": \"channel\""), "a.weight_scale", false, ROWS, 1, 1, COLS, false},
        /* AutoFP8's */
        {CONFIG("\"activation_scheme\": \"static\""), "a.weight_scale", false, 0, 0, ROWS, COLS,
         false},
        {CONFIG("\"weight_block_size\": [2, 4], " INVERSE("block")), "a.weight_scale_inv", false,
         DOWN, ACROSS, HIGH, WIDE, true},
        {CONFIG(INVERSE("row")), "a.weight_scale_inv", false, ROWS, 1, 1, COLS, true},
        {CONFIG(INVERSE("tensor")), "a.weight_scale_inv", false, 0, 0, ROWS, COLS, true}};
    struct ax_hf hf;
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        float v[ROWS * COLS];
        const enum ax_status st = open_other(&hf, forms[f].config, forms[f].name, forms[f].e8m0,
                                             forms[f].down, forms[f].across);
        if (st != AX_OK)
            fail_msg("form %d: %s", (int)f, ax_error_text());
        assert_int_equal(ax_hf_count(&hf), 1);
        const struct ax_st_entry *e = ax_hf_find(&hf, "a.weight");
        const int64_t first =
            forms[f].e8m0 ? (int64_t)HIGH * COLS : 0; /* the first scale is no number */
        assert_int_equal(ax_st_read(e, first, e->numel - first, AX_F32, v + first), AX_OK);
        for (int64_t i = first; i < ROWS * COLS; i++) {
            const int64_t at =
                i / COLS / forms[f].high * forms[f].across + i % COLS / forms[f].wide;
            const float scale = forms[f].e8m0 ? ldexpf(1, (int)at - 1) : scale_of(at);
            const float code = ax_e4m3_value(code_of(i));
            assert_true(v[i] == (forms[f].divides ? code / scale : code * scale));
        }
        assert_true(!e->codes || !forms[f].divides);
        if (first > 0)
            assert_int_equal(ax_st_read(e, 0, 1, AX_F32, v), AX_ERR_DATA);
        ax_hf_close(&hf);
    }
    /* as many scales as there are blocks, in another shape */
    assert_int_equal(open_other(&hf, BLOCKS, "a.weight_scale_inv", false, DOWN * ACROSS, 1),
                     AX_ERR_DATA);
    assert_mentions("a.weight_scale_inv has its scales in another shape");
    zero_point = 1;
    assert_int_equal(open_other(&hf, forms[3].config, "a.weight_scale", false, ROWS, 1),
                     AX_ERR_DATA);
    assert_mentions("a.weight_zero_point has other zero points than 0");
    zero_point = 0;
}

/* Numbers that are rounded while the model runs, by scales that are in the folder. */
static void scales_of_numbers_are_refused(void **state) {
    (void)state;
    struct ax_hf hf;
    const struct ax_st_output t[] = {
        matrix,
        {.name = "a.weight_scale", .dtype = AX_F32, .ndim = 2, .shape = {ROWS, 1}, .fill = scales},
        {.name = "b.weight", .dtype = AX_F32, .ndim = 2, .shape = {3, 2}, .fill = scales},
        {.name = "b.weight_scale", .dtype = AX_F32, .ndim = 2, .shape = {3, 1}, .fill = scales}};
    put_text("config.json", COMPRESSED("\"strategy\": \"channel\""));
    for (int n = 3; n <= 4; n++) {
        assert_int_equal(ax_safetensors_write(in_dir("model.safetensors"), n, t), AX_OK);
        const enum ax_status st = ax_hf_open(&hf, dir);
        assert_int_equal(st, n == 3 ? AX_OK : AX_ERR_UNSUPPORTED);
        if (st == AX_OK)
            ax_hf_close(&hf);
    }
    assert_mentions("b.weight has scales, but its numbers are not quantized");
}

/* 0x7f and 0xff are no numbers. */
static void codes_without_a_value_are_refused(void **state) {
    (void)state;
    struct ax_hf hf;
    float v[ROWS * COLS];
    for (int k = 0; k < 2; k++) {
        other_code = k ? 0xff : 0x7f;
        assert_int_equal(open_made(&hf, BLOCKS, "a.weight_scale_inv", ACROSS), AX_OK);
        other_code = -1;
        const struct ax_st_entry *e = ax_hf_find(&hf, "a.weight");
        assert_int_equal(ax_st_read(e, 0, OTHER, AX_F32, v), AX_OK);
        assert_int_equal(ax_st_read(e, 0, e->numel, AX_F32, v), AX_ERR_DATA);
        assert_mentions("model.safetensors: tensor a.weight: element 7 is nan");
        ax_hf_close(&hf);
    }
}

static void mistakes_are_named(void **state) {
    (void)state;
    static const struct {
        const char *config, *name;
        int64_t across;
        enum ax_status st;
        const char *says;
    } bad[] = {{BLOCKS, "a.weight_scale", 2, AX_ERR_DATA, "a.weight has no weight_scale_inv"},
               {BLOCKS, "a.weight_scale_inv", 1, AX_ERR_DATA, "another number of scales"},
               {CONFIG("\"weight_block_size\": [2]"), "a.weight_scale_inv", 2, AX_ERR_DATA,
                "weight_block_size: expected [rows, columns]"},
               {CONFIG("\"weight_block_size\": [2, 0]"), "a.weight_scale_inv", 2, AX_ERR_DATA,
                "weight_block_size"},
               {CONFIG("\"activation_scheme\": \"static\""), "a.weight_scale_inv", 2, AX_ERR_DATA,
                "another number of scales"}, /* by 128 */
               {"{\"quantization_config\": {\"quant_method\": \"fp8\", \"fmt\": \"e5m2\"}}",
                "a.weight_scale_inv", 2, AX_ERR_UNSUPPORTED,
                "fmt: this format of fp8 is not supported"},
               {CONFIG("\"weight_scale_semantics\": \"direct\""), "a.weight_scale_inv", 2,
                AX_ERR_UNSUPPORTED, "weight_scale_semantics: this meaning of scales"},
               {"{\"compression_config\": {}}", "a.weight_scale", 2, AX_ERR_UNSUPPORTED,
                "compression_config: the old name of quantization_config; rename it"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ax_hf hf;
        const enum ax_status st = open_made(&hf, bad[i].config, bad[i].name, bad[i].across);
        if (st != bad[i].st || !strstr(ax_error_text(), bad[i].says))
            fail_msg("case %d: %d, %s", (int)i, (int)st, ax_error_text());
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_codes_times_scales),
        cmocka_unit_test(forms_of_other_writers),
        cmocka_unit_test(scales_of_numbers_are_refused),
        cmocka_unit_test(codes_without_a_value_are_refused),
        cmocka_unit_test(mistakes_are_named),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
