/* GPTQ's folders: values are those of integers that numpy packed by the format's definition, and codes are kept
 * where packed storage has the same; mistakes are named. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/bytes.h"
#include "tests/ckpt/folder.h"
#include "tests/ckpt/gptq_folder.h"

struct golden {
    const char *name, *config;
    int bits, group;
    const void *qweight, *qzeros, *scales, *g_idx;
    const float *values;
    bool keeps_codes, needs_order;
};
#define GOLDEN(name, config, bits, group, codes, order)                                            \
    {                                                                                              \
        #name, config, bits, group, name##_qweight, name##_qzeros, name##_scales, name##_g_idx,    \
            name##_values, codes, order                                                            \
    }
static const struct golden goldens[] = {
    GOLDEN(symmetric, "\"sym\": true, \"desc_act\": false", 4, 16, true, false),
    GOLDEN(second, "\"checkpoint_format\": \"gptq_v2\"", 4, 8, true, false),
    GOLDEN(ordered, "\"desc_act\": true, \"checkpoint_format\": \"gptq\"", 4, 8, false, true),
    GOLDEN(ordered_second, "\"desc_act\": true, \"format\": \"gptq_v2\"", 4, 16, false, true),
    GOLDEN(bytes, "\"sym\": false", 8, -1, false, false),
    GOLDEN(bytes_symmetric, "\"sym\": true", 8, 16, true, false),
    GOLDEN(ragged, "\"dynamic\": {\"-:.*norm\": {}, \"a\": {}}", 4, 24, false, false),
    GOLDEN(ragged_ordered, "\"desc_act\": true, \"format\": \"gptq_v2\"", 8, 24, false, true),
    GOLDEN(wide, "\"sym\": true", 4, 64, false, false),
};

/* The folder of a golden; mistakes change one thing of it. */
struct made {
    const char *config, *lacks;       /* a tensor that is not there */
    int64_t groups, qzeros, in, rows; /* 0: as it has to be */
    const int32_t *g_idx;
    enum ax_dtype scales;
};
static enum ax_status open_made(struct ax_hf *hf, const struct golden *g, const struct made *how) {
    const int per = 32 / g->bits, group = g->group > 0 ? g->group : GPTQ_COLS;
    const int64_t rows = how->rows ? how->rows : GPTQ_ROWS;
    const int64_t groups = how->groups ? how->groups : (GPTQ_COLS + group - 1) / group;
    struct bytes b[] = {{g->qweight, AX_I32},
                        {how->qzeros ? g->qweight : g->qzeros, AX_I32},
                        {g->scales, how->scales ? how->scales : AX_F16},
                        {how->g_idx ? (const void *)how->g_idx : g->g_idx, AX_I32},
                        {g->scales, AX_F16}};
    const struct ax_st_output all[] = {
        {.name = "a.qweight", .ndim = 2, .shape = {GPTQ_COLS / per, rows}},
        {.name = "a.qzeros", .ndim = 2, .shape = {groups, how->qzeros ? how->qzeros : rows / per}},
        {.name = "a.scales", .ndim = 2, .shape = {groups, rows}},
        {.name = "a.g_idx", .ndim = 1, .shape = {how->in ? how->in : GPTQ_COLS}},
        {.name = "norm.weight", .ndim = 1, .shape = {4}}};
    struct ax_st_output t[5];
    char text[512];
    int n = 0;
    for (int i = 0; i < 5; i++) {
        if (how->lacks && strcmp(all[i].name, how->lacks) == 0)
            continue;
        t[n] = all[i];
        t[n].dtype = b[i].dtype;
        t[n].fill = copy_bytes;
        t[n++].ctx = &b[i];
    }
    snprintf(text, sizeof text,
             "{\"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": %d, "
             "\"group_size\": %d, %s}}",
             g->bits, g->group, g->config);
    put_text("config.json", how->config ? how->config : text);
    assert_int_equal(ax_safetensors_write(in_dir("model.safetensors"), n, t), AX_OK);
    return ax_hf_open(hf, dir);
}

static void check_codes(const struct golden *g, const struct ax_st_entry *e) {
    unsigned char codes[GPTQ_ROWS * GPTQ_COLS];
    float scales[GPTQ_ROWS * GPTQ_COLS];
    assert_int_equal(e->codes->quant, g->bits == 4 ? AX_QUANT_INT4 : AX_QUANT_INT8);
    assert_int_equal(e->codes->block, g->group);
    assert_int_equal(e->codes->read(e->ctx, 0, e->numel, codes, scales), AX_OK);
    for (int i = 0; i < GPTQ_ROWS * GPTQ_COLS; i++)
        assert_true((float)(signed char)codes[i] * scales[i / g->group] == g->values[i]);
}

static void values_are_those_of_the_integers(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof goldens / sizeof *goldens; k++) {
        const struct golden *g = &goldens[k];
        for (int without = 0; without <= !g->needs_order; without++) {
            struct ax_hf hf;
            float v[GPTQ_ROWS * GPTQ_COLS], part[70];
            const struct made how = {.lacks = without ? "a.g_idx" : NULL};
            if (open_made(&hf, g, &how) != AX_OK)
                fail_msg("%s: %s", g->name, ax_error_text());
            assert_int_equal(ax_hf_count(&hf), 2);
            const struct ax_st_entry *e = ax_hf_find(&hf, "a.weight");
            assert_non_null(e);
            assert_true(e->shape[0] == GPTQ_ROWS && e->shape[1] == GPTQ_COLS);
            assert_int_equal(ax_st_read(e, 0, e->numel, AX_F32, v), AX_OK);
            for (int i = 0; i < GPTQ_ROWS * GPTQ_COLS; i++)
                if (v[i] != g->values[i])
                    fail_msg("%s[%d] is %.9g, not %.9g", g->name, i, (double)v[i],
                             (double)g->values[i]);
            assert_int_equal(ax_st_read(e, 45, 70, AX_F32, part), AX_OK);
            assert_memory_equal(part, v + 45, sizeof part);
            assert_int_equal(e->codes != NULL, g->keeps_codes);
            if (e->codes)
                check_codes(g, e);
            ax_hf_close(&hf);
        }
    }
}

#define CONFIG(fields) "{\"quantization_config\": {\"quant_method\": \"gptq\", " fields "}}"
#define GROUP_16       "\"bits\": 4, \"group_size\": 16"

static void mistakes_are_named(void **state) {
    (void)state;
    static int32_t far[GPTQ_COLS], below[GPTQ_COLS];
    far[5] = 4;
    below[6] = -1;
    static const struct {
        struct made how;
        enum ax_status st;
        const char *says;
    } bad[] = {
        {{.lacks = "a.scales"}, AX_ERR_DATA, "a.qweight has no scales; quantize"},
        {{.lacks = "a.qzeros"}, AX_ERR_DATA, "a.qweight has no qzeros"},
        {{.lacks = "a.g_idx"}, AX_ERR_DATA, "a.qweight has no g_idx, which desc_act needs"},
        {{.g_idx = far}, AX_ERR_DATA, "a.g_idx names a group that has no scales"},
        {{.g_idx = below}, AX_ERR_DATA, "a.g_idx names a group that has no scales"},
        {{.in = 16}, AX_ERR_DATA, "a.g_idx has no group for each column"},
        {{.groups = 2}, AX_ERR_DATA, "a.scales has another number of scales"},
        {{.qzeros = 2}, AX_ERR_DATA, "a.qzeros has no zero for each group and row"},
        {{.rows = 4, .qzeros = 1}, AX_ERR_DATA, "a.qzeros has no zero for each group and row"},
        {{.scales = AX_U8}, AX_ERR_DATA, "a.scales is of another type"},
        {{.config = CONFIG("\"bits\": 4, \"group_size\": 24")},
         AX_ERR_DATA,
         "a.scales has another number of scales than the matrix has groups"},
        {{.config = CONFIG("\"bits\": 4, \"group_size\": 0")}, AX_ERR_DATA, "group_size: expected"},
        {{.config = CONFIG("\"group_size\": 16")}, AX_ERR_DATA, "bits"},
        {{.config = CONFIG("\"bits\": 3, \"group_size\": 16")},
         AX_ERR_UNSUPPORTED,
         "bits: this number of bits is not supported. Supported: GPTQ of 4 or 8 bits"},
        {{.config = CONFIG(GROUP_16 ", \"checkpoint_format\": \"marlin\"")},
         AX_ERR_UNSUPPORTED,
         "this checkpoint_format is not supported"},
        {{.config = CONFIG(GROUP_16 ", \"dynamic\": {\"-:.*\": {}, \"a\": {\"bits\": 3}}")},
         AX_ERR_UNSUPPORTED,
         "dynamic.a.bits: this number of bits is not supported"},
        {{.config = CONFIG(GROUP_16 ", \"rotation\": \"hadamard\"")},
         AX_ERR_UNSUPPORTED,
         "rotation: rotations of activations are not supported"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ax_hf hf;
        const enum ax_status st = open_made(&hf, &goldens[2], &bad[i].how);
        if (st != bad[i].st || !strstr(ax_error_text(), bad[i].says) ||
            strchr(ax_error_text(), '\n'))
            fail_msg("case %d: %d, %s", (int)i, (int)st, ax_error_text());
    }
}

/* Modules may have other bits than the folder says: AutoRound's, whose matrices are these or AWQ's, and GPTQModel's. */
static void modules_may_have_their_own(void **state) {
    (void)state;
#define ROUND(fields) "{\"quantization_config\": {\"quant_method\": \"auto-round\", " fields "}}"
#define AS(packing)   "\"packing_format\": \"auto_round" packing "\""
    static const struct {
        int golden;
        const char *config;
    } good[] = {
        {0, ROUND("\"bits\": 4, \"group_size\": 16, \"data_type\": \"int\", " AS(":auto_gptq"))},
        {1, ROUND("\"bits\": 4, \"group_size\": 8, " AS(":gptqmodel"))},
        {1, ROUND("\"bits\": 4, \"group_size\": 8, " AS(""))},
        {0, ROUND("\"bits\": 8, \"group_size\": -1, " AS(
                ":auto_gptq") ", \"extra_config\": {\"norm\": {\"bits\": 16, \"data_type\": "
                              "\"float\"}, "
                              "\"a\": {\"bits\": 4, \"group_size\": 16}}")},
        {4, ROUND("\"bits\": 4, \"group_size\": -1, " AS(
                ":auto_gptq") ", \"extra_config\": {\"a\": {\"bits\": 8}}")},
        {0, CONFIG("\"bits\": 8, \"dynamic\": {\"a\": {\"bits\": 4, \"group_size\": 16}}")},
        {4, CONFIG("\"bits\": 4, \"group_size\": -1, \"dynamic\": {\"+:a\": {\"bits\": 8}}")},
    };
    static const char *const bad[] = {
        ROUND("\"bits\": 4, \"data_type\": \"mx_fp\", " AS(":auto_gptq")),
        ROUND("\"bits\": 2, " AS(":auto_gptq")), ROUND("\"bits\": 8, " AS(":auto_awq")),
        ROUND("\"bits\": 4, " AS(":llm_compressor"))};
    for (size_t k = 0; k < sizeof good / sizeof *good; k++) {
        const struct golden *g = &goldens[good[k].golden];
        float v[GPTQ_ROWS * GPTQ_COLS];
        struct ax_hf hf;
        if (open_made(&hf, g, &(struct made){.config = good[k].config, .lacks = "a.g_idx"}) !=
            AX_OK)
            fail_msg("%d: %s", (int)k, ax_error_text());
        const struct ax_st_entry *e = ax_hf_find(&hf, "a.weight");
        assert_true(e && e->numel == GPTQ_ROWS * GPTQ_COLS);
        assert_int_equal(ax_st_read(e, 0, e->numel, AX_F32, v), AX_OK);
        assert_memory_equal(v, g->values, sizeof v);
        ax_hf_close(&hf);
    }
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        struct ax_hf hf;
        assert_int_equal(open_made(&hf, &goldens[0], &(struct made){.config = bad[k]}),
                         AX_ERR_UNSUPPORTED);
        assert_non_null(
            strstr(ax_error_text(), "this format is not supported. Supported: AutoRound"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_those_of_the_integers),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(modules_may_have_their_own),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
