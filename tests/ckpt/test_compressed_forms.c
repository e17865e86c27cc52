/* Forms of compressed-tensors that axtrain reads and does not write: values are those that compressed-tensors makes of what
 * it has written; mistakes are named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/bytes.h"
#include "tests/ckpt/compressed_folder.h"
#include "tests/ckpt/folder.h"

struct golden {
    const char *name, *format, *weights; /* of config.json */
    const void *codes, *zeros;
    const float *scales, *values;
    enum ax_dtype dtype; /* of the codes */
    int bits;            /* of a code as it is stored */
    int64_t groups;      /* of a row; 0: one scale of all */
};
static const struct golden goldens[] = {
    {"packed4", "pack-quantized",
     "\"num_bits\": 4, \"symmetric\": false, \"strategy\": \"group\", \"group_size\": 8",
     packed4_codes, packed4_zeros, packed4_scales, packed4_values, AX_I32, 4, 2},
    {"packed8", "pack-quantized",
     "\"num_bits\": 8, \"symmetric\": false, \"strategy\": \"channel\"", packed8_codes,
     packed8_zeros, packed8_scales, packed8_values, AX_I32, 8, 1},
    {"int4", "int-quantized", "\"num_bits\": 4, \"strategy\": \"group\", \"group_size\": 8",
     int4_codes, NULL, int4_scales, int4_values, AX_I8, 8, 2},
    {"int8", "int-quantized",
     "\"num_bits\": 8, \"symmetric\": false, \"strategy\": \"group\", \"group_size\": 8",
     int8_codes, int8_zeros, int8_scales, int8_values, AX_I8, 8, 2},
    {"naive_int", "naive-quantized", "\"num_bits\": 8, \"strategy\": \"channel\"", naive_int_codes,
     NULL, naive_int_scales, naive_int_values, AX_I8, 8, 1},
    {"naive_float", "naive-quantized",
     "\"num_bits\": 8, \"type\": \"float\", \"strategy\": \"tensor\"", naive_float_codes, NULL,
     naive_float_scales, naive_float_values, AX_U8, 8, 0},
};
#define N_GOLDENS (sizeof goldens / sizeof *goldens)

/* The folder of a golden, whose zeros are `zero_rows` rows (0: as they have to be; −1: missing). */
static enum ax_status open_golden(struct ax_hf *hf, const struct golden *g, int64_t zero_rows) {
    const bool packed = g->dtype == AX_I32;
    const int64_t per = packed ? 32 / g->bits : 1;
    struct bytes b[] = {{g->codes, g->dtype}, {g->scales, AX_F32}, {g->zeros, g->dtype}};
    struct ax_st_output t[] = {
        {.name = packed ? "a.weight_packed" : "a.weight",
         .e4m3 = g->dtype == AX_U8,
         .ndim = 2,
         .shape = {FORM_ROWS, FORM_COLS / per}},
        {.name = "a.weight_scale",
         .ndim = g->groups > 0 ? 2 : 1,
         .shape = {g->groups > 0 ? FORM_ROWS : 1, g->groups}},
        {.name = "a.weight_zero_point",
         .ndim = 2,
         .shape = {zero_rows > 0 ? zero_rows : (FORM_ROWS + per - 1) / per, g->groups}}};
    char text[512];
    for (int i = 0; i < 3; i++) {
        t[i].dtype = b[i].dtype;
        t[i].fill = copy_bytes;
        t[i].ctx = &b[i];
    }
    snprintf(text, sizeof text,
             "{\"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"format\": "
             "\"%s\", \"config_groups\": {\"g\": {\"targets\": [\"Linear\"], \"weights\": {%s}}}}}",
             g->format, g->weights);
    put_text("config.json", text);
    assert_int_equal(
        ax_safetensors_write(in_dir("model.safetensors"), g->zeros && zero_rows >= 0 ? 3 : 2, t),
        AX_OK);
    return ax_hf_open(hf, dir);
}

static void values_are_those_of_the_writer(void **state) {
    (void)state;
    for (size_t i = 0; i < N_GOLDENS; i++) {
        struct ax_hf hf;
        float v[FORM_ROWS * FORM_COLS];
        if (open_golden(&hf, &goldens[i], 0) != AX_OK)
            fail_msg("%s: %s", goldens[i].name, ax_error_text());
        const struct ax_st_entry *e = ax_hf_find(&hf, "a.weight");
        assert_true(ax_hf_count(&hf) == 1 && e && e->numel == FORM_ROWS * FORM_COLS);
        assert_int_equal(ax_st_read(e, 0, e->numel, AX_F32, v), AX_OK);
        for (int64_t k = 0; k < e->numel; k++)
            if (v[k] != goldens[i].values[k])
                fail_msg("%s: element %d is %g, of the writer %g", goldens[i].name, (int)k, v[k],
                         goldens[i].values[k]);
        assert_int_equal(e->codes != NULL, goldens[i].zeros == NULL);
        ax_hf_close(&hf);
    }
}

static void zeros_are_checked(void **state) {
    (void)state;
    struct ax_hf hf;
    assert_int_equal(open_golden(&hf, &goldens[0], -1), AX_ERR_DATA);
    assert_non_null(strstr(ax_error_text(), "a.weight_packed has no weight_zero_point"));
    assert_int_equal(open_golden(&hf, &goldens[0], 1), AX_ERR_DATA);
    assert_non_null(strstr(ax_error_text(), "a.weight_zero_point has no zero for each scale"));
}

/* Zeros beside one scale of all, or beside floats, are no form of any writer. */
static void other_forms_are_refused(void **state) {
    (void)state;
    static const char *const others[][2] = {
        {"int-quantized", "\"num_bits\": 8, \"symmetric\": false, \"strategy\": \"tensor\""},
        {"float-quantized",
         "\"num_bits\": 8, \"type\": \"float\", \"symmetric\": false, \"strategy\": \"channel\""},
        {"naive-quantized", "\"num_bits\": 4, \"type\": \"float\", \"strategy\": \"channel\""}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct golden g = goldens[2];
        struct ax_hf hf;
        g.format = others[i][0];
        g.weights = others[i][1];
        assert_int_equal(open_golden(&hf, &g, 0), AX_ERR_UNSUPPORTED);
        assert_non_null(strstr(ax_error_text(), "g.weights: this format of weights is not"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_those_of_the_writer),
        cmocka_unit_test(zeros_are_checked),
        cmocka_unit_test(other_forms_are_refused),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
