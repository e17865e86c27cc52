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
    const void *codes, *zeros, *scales;
    const float *values;
    enum ax_dtype dtype; /* of the codes */
    int bits;            /* of a code as it is stored */
    int64_t cols;
    int64_t groups; /* of a row; 0: one scale of all */
};
static const struct golden goldens[] = {
    {"packed4", "pack-quantized",
     "\"num_bits\": 4, \"symmetric\": false, \"strategy\": \"group\", \"group_size\": 8",
     packed4_codes, packed4_zeros, packed4_scales, packed4_values, AX_I32, 4, 16, 2},
    {"packed8", "pack-quantized",
     "\"num_bits\": 8, \"symmetric\": false, \"strategy\": \"channel\"", packed8_codes,
     packed8_zeros, packed8_scales, packed8_values, AX_I32, 8, 16, 1},
    {"int4", "int-quantized", "\"num_bits\": 4, \"strategy\": \"group\", \"group_size\": 8",
     int4_codes, NULL, int4_scales, int4_values, AX_I8, 8, 16, 2},
    {"int8", "int-quantized",
     "\"num_bits\": 8, \"symmetric\": false, \"strategy\": \"group\", \"group_size\": 8",
     int8_codes, int8_zeros, int8_scales, int8_values, AX_I8, 8, 16, 2},
    {"naive_int", "naive-quantized", "\"num_bits\": 8, \"strategy\": \"channel\"", naive_int_codes,
     NULL, naive_int_scales, naive_int_values, AX_I8, 8, 16, 1},
    {"naive_float", "naive-quantized",
     "\"num_bits\": 8, \"type\": \"float\", \"strategy\": \"tensor\"", naive_float_codes, NULL,
     naive_float_scales, naive_float_values, AX_U8, 8, 16, 0},
    {"padded4", "pack-quantized", "\"num_bits\": 4, \"strategy\": \"channel\"", padded4_codes, NULL,
     padded4_scales, padded4_values, AX_I32, 4, 13, 1},
    {"padded8", "pack-quantized", "\"num_bits\": 8, \"strategy\": \"channel\"", padded8_codes, NULL,
     padded8_scales, padded8_values, AX_I32, 8, 14, 1},
    {"mxfp4", "mxfp4-pack-quantized",
     "\"num_bits\": 4, \"type\": \"float\", \"strategy\": \"group\", \"group_size\": 16",
     mxfp4_codes, NULL, mxfp4_scales, mxfp4_values, AX_U8, 4, 32, 2},
    {"mxfp8", "mxfp8-quantized",
     "\"num_bits\": 8, \"type\": \"float\", \"strategy\": \"group\", \"group_size\": 16",
     mxfp8_codes, NULL, mxfp8_scales, mxfp8_values, AX_U8, 8, 32, 2},
};
#define N_GOLDENS (sizeof goldens / sizeof *goldens)

/* The tensors of a matrix in a file. */
struct tensors {
    struct bytes bytes[4];
    char names[4][40];
    struct ax_st_output out[4];
    int64_t shape[2];
    int n;
};

/* Zeros are `zero_rows` rows (0: as they have to be; −1: missing). */
static void set_tensors(struct tensors *t, const struct golden *g, const char *name,
                        int64_t zero_rows) {
    static const char *const ends[] = {"scale", "shape", "zero_point"};
    const bool packed = g->dtype == AX_I32, mx = strncmp(g->format, "mx", 2) == 0;
    const int64_t per = (int64_t)ax_dtype_size(g->dtype) * 8 / g->bits;
    t->shape[0] = FORM_ROWS;
    t->shape[1] = g->cols;
    const struct bytes bytes[] = {{g->codes, g->dtype},
                                  {g->scales, mx ? AX_U8 : AX_F32},
                                  {t->shape, AX_I64},
                                  {g->zeros, g->dtype}};
    const struct ax_st_output out[] = {
        {.e4m3 = g->dtype == AX_U8 && g->bits == 8,
         .ndim = 2,
         .shape = {FORM_ROWS, (g->cols + per - 1) / per}},
        {.ndim = g->groups > 0 ? 2 : 1, .shape = {g->groups > 0 ? FORM_ROWS : 1, g->groups}},
        {.ndim = 1, .shape = {2}},
        {.ndim = 2, .shape = {zero_rows > 0 ? zero_rows : (FORM_ROWS + per - 1) / per, g->groups}}};
    t->n = 0;
    for (int i = 0; i < 4; i++) {
        if ((i == 2 && !packed) || (i == 3 && (!g->zeros || zero_rows < 0)))
            continue;
        if (i == 0)
            snprintf(t->names[0], sizeof t->names[0], "%s.weight%s", name,
                     packed || g->bits == 4 ? "_packed" : "");
        else
            snprintf(t->names[t->n], sizeof t->names[0], "%s.weight_%s", name, ends[i - 1]);
        t->bytes[t->n] = bytes[i];
        t->out[t->n] = out[i];
        t->out[t->n].name = t->names[t->n];
        t->out[t->n].dtype = bytes[i].dtype;
        t->out[t->n].fill = copy_bytes;
        t->out[t->n].ctx = &t->bytes[t->n];
        t->n++;
    }
}

/* A group of config_groups. */
static void put_group(char *to, size_t size, const struct golden *g, bool own) {
    const size_t n = strlen(to);
    snprintf(to + n, size - n, "%s\"%s\": {\"targets\": [\"Linear\"], %s%s%s \"weights\": {%s}}",
             n > 0 ? ", " : "", g->name, own ? "\"format\": \"" : "", own ? g->format : "",
             own ? "\"," : "", g->weights);
}

static void put_formats(const char *format, const char *groups) {
    char text[1024];
    snprintf(text, sizeof text,
             "{\"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"format\": "
             "\"%s\", \"config_groups\": {%s}}}",
             format, groups);
    put_text("config.json", text);
}

/* The folder of a golden. */
static enum ax_status open_golden(struct ax_hf *hf, const struct golden *g, int64_t zero_rows) {
    struct tensors t;
    char groups[512] = "";
    set_tensors(&t, g, "a", zero_rows);
    put_group(groups, sizeof groups, g, false);
    put_formats(g->format, groups);
    assert_int_equal(ax_safetensors_write(in_dir("model.safetensors"), t.n, t.out), AX_OK);
    return ax_hf_open(hf, dir);
}

/* The matrix `name` has the values of a golden. */
static void check_values(const struct ax_hf *hf, const struct golden *g, const char *name) {
    float v[FORM_ROWS * 32];
    const struct ax_st_entry *e = ax_hf_find(hf, name);
    assert_true(e && e->numel == FORM_ROWS * g->cols && e->shape[1] == g->cols);
    assert_int_equal(ax_st_read(e, 0, e->numel, AX_F32, v), AX_OK);
    for (int64_t k = 0; k < e->numel; k++)
        if (v[k] != g->values[k])
            fail_msg("%s: element %d is %g, of the writer %g", g->name, (int)k, v[k], g->values[k]);
}

static void values_are_those_of_the_writer(void **state) {
    (void)state;
    for (size_t i = 0; i < N_GOLDENS; i++) {
        const bool kept = !goldens[i].zeros && strncmp(goldens[i].name, "mx", 2) != 0;
        struct ax_hf hf;
        if (open_golden(&hf, &goldens[i], 0) != AX_OK)
            fail_msg("%s: %s", goldens[i].name, ax_error_text());
        assert_int_equal(ax_hf_count(&hf), 1);
        check_values(&hf, &goldens[i], "a.weight");
        assert_int_equal(ax_hf_find(&hf, "a.weight")->codes != NULL, kept);
        ax_hf_close(&hf);
    }
}

/* Two matrices of any two formats, whose groups follow in either order. */
static void formats_may_be_mixed(void **state) {
    (void)state;
    for (size_t i = 0; i < N_GOLDENS * N_GOLDENS; i++) {
        const struct golden *a = &goldens[i / N_GOLDENS], *b = &goldens[i % N_GOLDENS];
        struct tensors t, u;
        struct ax_st_output all[8];
        struct ax_hf hf;
        char groups[512] = "";
        set_tensors(&t, a, "a", 0);
        set_tensors(&u, b, "b", 0);
        put_group(groups, sizeof groups, a, true);
        if (a != b)
            put_group(groups, sizeof groups, b, true);
        put_formats("mixed-precision", groups);
        memcpy(all, t.out, (size_t)t.n * sizeof *all);
        memcpy(all + t.n, u.out, (size_t)u.n * sizeof *all);
        assert_int_equal(ax_safetensors_write(in_dir("model.safetensors"), t.n + u.n, all), AX_OK);
        if (ax_hf_open(&hf, dir) != AX_OK)
            fail_msg("%s and %s: %s", a->name, b->name, ax_error_text());
        assert_int_equal(ax_hf_count(&hf), 2);
        check_values(&hf, a, "a.weight");
        check_values(&hf, b, "b.weight");
        ax_hf_close(&hf);
    }
}

static void shapes_of_packed_rows_are_checked(void **state) {
    (void)state;
    struct golden g = goldens[6];
    struct ax_hf hf;
    struct tensors t;
    assert_string_equal(g.name, "padded4");
    set_tensors(&t, &g, "a", 0);
    t.shape[1] = 8;                                   /* a word */
    assert_int_equal(open_golden(&hf, &g, 0), AX_OK); /* for its config.json */
    ax_hf_close(&hf);
    assert_int_equal(ax_safetensors_write(in_dir("model.safetensors"), t.n, t.out), AX_OK);
    assert_int_equal(ax_hf_open(&hf, dir), AX_ERR_DATA);
    assert_non_null(strstr(ax_error_text(), "a.weight_packed has another number of codes than its "
                                            "weight_shape says"));
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
        assert_non_null(strstr(ax_error_text(), "int4.weights: this format of weights is not"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_those_of_the_writer),    cmocka_unit_test(formats_may_be_mixed),
        cmocka_unit_test(shapes_of_packed_rows_are_checked), cmocka_unit_test(zeros_are_checked),
        cmocka_unit_test(other_forms_are_refused),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
