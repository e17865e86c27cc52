/* Forms of compressed-tensors and of NVIDIA's Model Optimizer that axtrain reads and does not write: values are those that the
 * writer makes of what it has written; mistakes are named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "ckpt/hf/compressed.h"
#include "tests/bytes.h"
#include "tests/ckpt/compressed_folder.h"
#include "tests/ckpt/folder.h"
#include "tests/ckpt/modelopt_folder.h"

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

/* Of either order: that of a golden, or none (−1 for each column, or groups that follow one another). */
static void columns_may_be_in_any_group(void **state) {
    (void)state;
    static const struct golden g = {"int4",
                                    "pack-quantized",
                                    "\"num_bits\": 4, \"strategy\": \"group\", \"group_size\": 8, "
                                    "\"actorder\": \"group\"",
                                    ordered_codes,
                                    NULL,
                                    ordered_scales,
                                    ordered_values,
                                    AX_I32,
                                    4,
                                    16,
                                    2};
    int32_t unset[16], far[16];
    for (int i = 0; i < 16; i++) {
        unset[i] = -1;
        far[i] = 2 - i % 3;
    }
    const struct {
        const int32_t *groups;
        enum ax_status st;
        bool ordered;
    } cases[] = {{ordered_groups, AX_OK, true}, {unset, AX_OK, false}, {far, AX_ERR_DATA, false}};
    struct ax_hf hf;
    assert_int_equal(open_golden(&hf, &g, 0), AX_OK); /* for its config.json */
    ax_hf_close(&hf);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct bytes b = {cases[i].groups, AX_I32};
        struct tensors t;
        set_tensors(&t, &g, "a", 0);
        t.out[t.n] = (struct ax_st_output){.name = "a.weight_g_idx",
                                           .dtype = AX_I32,
                                           .ndim = 1,
                                           .shape = {16},
                                           .fill = copy_bytes,
                                           .ctx = &b};
        assert_int_equal(ax_safetensors_write(in_dir("model.safetensors"), t.n + 1, t.out), AX_OK);
        assert_int_equal(ax_hf_open(&hf, dir), cases[i].st);
        if (cases[i].st != AX_OK) {
            assert_non_null(strstr(ax_error_text(), "a.weight_g_idx names a group that has no"));
            continue;
        }
        assert_int_equal(ax_hf_count(&hf), 1);
        assert_int_equal(ax_hf_find(&hf, "a.weight")->codes == NULL, cases[i].ordered);
        if (cases[i].ordered)
            check_values(&hf, &g, "a.weight");
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

/* ---- Model Optimizer ---- */

struct modelopt {
    const char *algorithm;
    const unsigned char *codes;
    const void *scales;
    const float *outer, *values;
    int64_t width, groups; /* bytes of a row; 0 groups: one scale of all */
    enum ax_dtype dtype;   /* of the scales */
};
static const struct modelopt optimized[] = {
    {"NVFP4", modelopt_nvfp4_codes, modelopt_nvfp4_scales, modelopt_nvfp4_outer,
     modelopt_nvfp4_values, 16, 2, AX_U8},
    {"FP8", modelopt_fp8_codes, modelopt_fp8_scales, NULL, modelopt_fp8_values, 32, 0, AX_F32},
    {"MXFP8", modelopt_mxfp8_codes, modelopt_mxfp8_scales, NULL, modelopt_mxfp8_values, 32, 1,
     AX_U8},
    {"W4A8_MXFP4_FP8", modelopt_mxfp4_codes, modelopt_mxfp4_scales, NULL, modelopt_mxfp4_values, 16,
     1, AX_U8},
};
#define N_OPTIMIZED ((int)(sizeof optimized / sizeof *optimized))

/* Where a folder has its settings: in config.json, or as older ones in hf_quant_config.json alone. */
static bool own_file;

static void put_settings(const char *algorithm, const char *layers) {
    char settings[800], text[1024];
    snprintf(settings, sizeof settings, "\"quant_algo\": \"%s\", \"quantized_layers\": {%s}",
             algorithm, layers);
    snprintf(text, sizeof text,
             own_file ? "{\"producer\": {\"name\": \"modelopt\", \"version\": \"0.29.0\"}, "
                        "\"quantization\": {%s, \"kv_cache_quant_algo\": null, "
                        "\"exclude_modules\": [\"lm_head\"]}}"
                      : "{\"quantization_config\": {\"quant_method\": \"modelopt\", %s}}",
             settings);
    put_text("config.json", own_file ? "{}" : text);
    put_text("hf_quant_config.json",
             own_file ? text : "{\"quantization\": {\"quant_algo\": \"X\"}}");
}

/* All matrices in one folder, matrix 0 first, under the names a, b …; `algorithm` is the folder's. */
static enum ax_status open_optimized(struct ax_hf *hf, const char *algorithm, int first, int n) {
    static const char *const names[][3] = {{"a.weight", "a.weight_scale", "a.weight_scale_2"},
                                           {"b.weight", "b.weight_scale", "b.weight_scale_2"},
                                           {"c.weight", "c.weight_scale", "c.weight_scale_2"},
                                           {"d.weight", "d.weight_scale", "d.weight_scale_2"}};
    struct bytes b[3 * N_OPTIMIZED];
    struct ax_st_output t[3 * N_OPTIMIZED];
    char layers[512] = "";
    int k = 0;
    for (int i = 0; i < n; i++) {
        const struct modelopt *m = &optimized[first + i];
        b[k] = (struct bytes){m->codes, AX_U8};
        t[k] = (struct ax_st_output){
            .e4m3 = m->width == 32, .ndim = 2, .shape = {FORM_ROWS, m->width}};
        b[k + 1] = (struct bytes){m->scales, m->dtype};
        t[k + 1] = (struct ax_st_output){.e4m3 = m->outer != NULL,
                                         .ndim = m->groups > 0 ? 2 : 0,
                                         .shape = {FORM_ROWS, m->groups}};
        b[k + 2] = (struct bytes){m->outer, AX_F32};
        t[k + 2] = (struct ax_st_output){.ndim = 0};
        for (int j = 0; j < (m->outer ? 3 : 2); j++, k++) {
            t[k].name = names[i][j];
            t[k].dtype = b[k].dtype;
            t[k].fill = copy_bytes;
            t[k].ctx = &b[k];
        }
        snprintf(layers + strlen(layers), sizeof layers - strlen(layers),
                 "%s\"%.1s\": {\"quant_algo\": \"%s\"}", i > 0 ? ", " : "", names[i][0],
                 m->algorithm);
    }
    put_settings(algorithm, layers);
    assert_int_equal(ax_safetensors_write(in_dir("model.safetensors"), k, t), AX_OK);
    return ax_hf_open(hf, dir);
}

static void check_optimized(const struct ax_hf *hf, const char *name, const struct modelopt *m) {
    const struct golden g = {.name = m->algorithm, .values = m->values, .cols = 32};
    check_values(hf, &g, name);
}

static void check_all_optimized(void) {
    struct ax_hf hf;
    for (int i = 0; i < N_OPTIMIZED; i++) {
        if (open_optimized(&hf, optimized[i].algorithm, i, 1) != AX_OK)
            fail_msg("%s: %s", optimized[i].algorithm, ax_error_text());
        check_optimized(&hf, "a.weight", &optimized[i]);
        ax_hf_close(&hf);
    }
    if (open_optimized(&hf, "MIXED_PRECISION", 0, N_OPTIMIZED) != AX_OK)
        fail_msg("%s", ax_error_text());
    check_optimized(&hf, "a.weight", &optimized[0]);
    check_optimized(&hf, "b.weight", &optimized[1]);
    check_optimized(&hf, "c.weight", &optimized[2]);
    check_optimized(&hf, "d.weight", &optimized[3]);
    ax_hf_close(&hf);
    assert_int_equal(open_optimized(&hf, "W4A8_AWQ", 0, 1), AX_ERR_UNSUPPORTED);
    assert_non_null(strstr(ax_error_text(), "quant_algo: this quant_algo (of config.json or "));
    assert_int_equal(open_optimized(&hf, "FP8", 2, 1), AX_ERR_DATA);
    assert_non_null(strstr(ax_error_text(), "a.weight_scale has another number of scales"));
}

static void model_optimizer_has_its_values(void **state) {
    (void)state;
    struct ax_hf hf;
    for (int own = 0; own < 2; own++) {
        own_file = own == 1;
        check_all_optimized();
    }
    /* in small letters, as some versions write it; and of no algorithm, where only the KV cache is quantized */
    assert_int_equal(open_optimized(&hf, "nvfp4", 0, 1), AX_OK);
    check_optimized(&hf, "a.weight", &optimized[0]);
    ax_hf_close(&hf);
    put_text("hf_quant_config.json", "{\"quantization\": {\"quant_algo\": null, "
                                     "\"kv_cache_quant_algo\": \"FP8\"}}");
    assert_int_equal(ax_hf_open(&hf, dir), AX_ERR_UNSUPPORTED);
    assert_non_null(strstr(ax_error_text(), "config.json has no quantization_config"));
    put_text("hf_quant_config.json", "[");
    assert_int_equal(ax_hf_open(&hf, dir), AX_ERR_DATA);
    assert_non_null(strstr(ax_error_text(), "hf_quant_config.json"));
    assert_int_equal(unlink(in_dir("hf_quant_config.json")), 0);
    own_file = false;
}

/* What runs in fewer bits there and not here. */
static void activations_are_named(void **state) {
    (void)state;
    static const struct {
        const char *config, *key;
    } cases[] = {{"{\"quant_method\": \"modelopt\", \"quant_algo\": \"MXFP8\"}", "quant_algo"},
                 {"{\"quant_method\": \"modelopt\", \"quant_algo\": \"W4A16_NVFP4\"}", NULL},
                 {"{\"quant_method\": \"modelopt\", \"quant_algo\": \"W4A16_NVFP4\", "
                  "\"kv_cache_scheme\": \"NVFP4\"}",
                  "kv_cache_scheme"},
                 {"{\"quantization\": {\"quant_algo\": \"FP8\"}}", "quant_algo"},
                 {"{\"quantization\": {\"quant_algo\": \"W4A16_NVFP4\", "
                  "\"kv_cache_quant_algo\": \"FP8\"}}",
                  "kv_cache_quant_algo"},
                 {"{\"quantization\": {\"quant_algo\": \"W4A16_NVFP4\", "
                  "\"kv_cache_quant_algo\": null}}",
                  NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ax_json_doc doc;
        assert_int_equal(ax_json_parse(&doc, "c", cases[i].config, strlen(cases[i].config)), AX_OK);
        const char *key = ax_compressed_unfollowed(ax_json_root(&doc));
        assert_true(key ? cases[i].key && strcmp(key, cases[i].key) == 0 : !cases[i].key);
        ax_json_free(&doc);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_those_of_the_writer),
        cmocka_unit_test(formats_may_be_mixed),
        cmocka_unit_test(columns_may_be_in_any_group),
        cmocka_unit_test(shapes_of_packed_rows_are_checked),
        cmocka_unit_test(zeros_are_checked),
        cmocka_unit_test(other_forms_are_refused),
        cmocka_unit_test(model_optimizer_has_its_values),
        cmocka_unit_test(activations_are_named),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
