/* AWQ's folders: values are those that AutoAWQ unpacks; mistakes are named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/bytes.h"
#include "tests/ckpt/awq_folder.h"
#include "tests/ckpt/folder.h"

enum { OUT = 32, PER = 8 };

struct golden {
    const void *qweight, *qzeros, *scales;
    const float *values;
    int64_t in, group;
};
#define GOLDEN(name, in, group)                                                                    \
    { name##_qweight, name##_qzeros, name##_scales, name##_values, in, group }
static const struct golden goldens[] = {GOLDEN(groups, 16, 8), GOLDEN(rows, 6, -1)};

/* The folder of a golden; mistakes change one thing of it. */
struct made {
    const char *config, *lacks; /* a tensor that is not there */
    int64_t groups, zeros;      /* rows of scales, columns of qzeros; 0: as they have to be */
};
static enum ax_status open_made(struct ax_hf *hf, const struct golden *g, const struct made *how) {
    const int64_t all = g->group > 0 ? g->in / g->group : 1;
    const int64_t groups = how->groups ? how->groups : all;
    struct bytes b[] = {{g->qweight, AX_I32}, {g->qzeros, AX_I32}, {g->scales, AX_F16}};
    const struct ax_st_output tensors[] = {
        {.name = "a.qweight", .ndim = 2, .shape = {g->in, OUT / PER}},
        {.name = "a.qzeros", .ndim = 2, .shape = {all, how->zeros ? how->zeros : OUT / PER}},
        {.name = "a.scales", .ndim = 2, .shape = {groups, OUT}}};
    struct ax_st_output t[3];
    char text[256];
    int n = 0;
    for (int i = 0; i < 3; i++) {
        if (how->lacks && strcmp(tensors[i].name, how->lacks) == 0)
            continue;
        t[n] = tensors[i];
        t[n].dtype = b[i].dtype;
        t[n].fill = copy_bytes;
        t[n++].ctx = &b[i];
    }
    snprintf(text, sizeof text,
             "{\"quantization_config\": {\"quant_method\": \"awq\", \"bits\": 4, \"group_size\": "
             "%d, \"zero_point\": true, \"version\": \"GEMM\"}}",
             (int)g->group);
    put_text("config.json", how->config ? how->config : text);
    assert_int_equal(ax_safetensors_write(in_dir("model.safetensors"), n, t), AX_OK);
    return ax_hf_open(hf, dir);
}

static void values_are_those_of_autoawq(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof goldens / sizeof *goldens; k++) {
        const struct golden *g = &goldens[k];
        struct ax_hf hf;
        float v[OUT * 16], part[70];
        if (open_made(&hf, g, &(struct made){0}) != AX_OK)
            fail_msg("%s", ax_error_text());
        const struct ax_st_entry *e = ax_hf_find(&hf, "a.weight");
        assert_true(ax_hf_count(&hf) == 1 && e && e->quantized && e->dtype == AX_F16 && !e->codes);
        assert_true(e->shape[0] == OUT && e->shape[1] == g->in);
        assert_int_equal(ax_st_read(e, 0, e->numel, AX_F32, v), AX_OK);
        for (int64_t i = 0; i < e->numel; i++)
            if (v[i] != g->values[i])
                fail_msg("element %d is %.9g, not %.9g", (int)i, (double)v[i],
                         (double)g->values[i]);
        assert_int_equal(ax_st_read(e, 45, 70, AX_F32, part), AX_OK);
        assert_memory_equal(part, v + 45, sizeof part);
        ax_hf_close(&hf);
    }
}

#define CONFIG(fields) "{\"quantization_config\": {\"quant_method\": \"awq\", " fields "}}"
#define GROUP_8        "\"bits\": 4, \"group_size\": 8"

static void mistakes_are_named(void **state) {
    (void)state;
    static const struct {
        struct made how;
        enum ax_status st;
        const char *says;
    } bad[] = {
        {{.lacks = "a.scales"}, AX_ERR_DATA, "a.qweight has no scales; quantize"},
        {{.lacks = "a.qzeros"}, AX_ERR_DATA, "a.qweight has no qzeros"},
        {{.groups = 1}, AX_ERR_DATA, "a.scales has another number of scales"},
        {{.zeros = 2}, AX_ERR_DATA, "a.qzeros has no zero for each group and row"},
        {{.config = CONFIG("\"bits\": 4")}, AX_ERR_DATA, "a.scales has another number of scales"},
        {{.config = CONFIG("\"group_size\": 8")}, AX_ERR_DATA, "bits"},
        {{.config = CONFIG("\"bits\": 4, \"group_size\": 0")}, AX_ERR_DATA, "group_size: expected"},
        {{.config = CONFIG("\"bits\": 3, \"group_size\": 8")},
         AX_ERR_UNSUPPORTED,
         "bits: this number of bits is not supported. Supported: AWQ of 4 bits"},
        {{.config = CONFIG(GROUP_8 ", \"version\": \"gemv\"")},
         AX_ERR_UNSUPPORTED,
         "version: this layout is not supported. Supported: AWQ of 4 bits in the layout gemm"},
        {{.config = CONFIG(GROUP_8 ", \"format\": \"gemv_fast\"")},
         AX_ERR_UNSUPPORTED,
         "format: this layout is not supported"},
        {{.config = CONFIG(GROUP_8 ", \"backend\": \"llm-awq\"")},
         AX_ERR_UNSUPPORTED,
         "backend: its layout is not supported"},
        {{.config = CONFIG(GROUP_8 ", \"dynamic\": {\"a\": {\"bits\": 8}}")},
         AX_ERR_UNSUPPORTED,
         "dynamic.a: modules with formats of their own are not supported"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ax_hf hf;
        const enum ax_status st = open_made(&hf, &goldens[0], &bad[i].how);
        if (st != bad[i].st || !strstr(ax_error_text(), bad[i].says) ||
            strchr(ax_error_text(), '\n'))
            fail_msg("case %d: %d, %s", (int)i, (int)st, ax_error_text());
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_those_of_autoawq),
        cmocka_unit_test(mistakes_are_named),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
