/* `axtrain quantize`: what it writes has, read back, the values that training for the scheme used; and
 * which models and folders are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "ckpt/hf/hf.h"
#include "kernels/scheme.h"
#include "tests/cmd/chats_case.h"
#include "tests/kernels/harness.h"

static const char *config(const char *more) {
    char all[1024];
    sft_command = "train";
    snprintf(all, sizeof all, "max_steps: 3\nsave_only_model: true\nfloat32: true\n%s", more);
    return chats_config(all);
}

/* The values that the forward pass computes from a matrix. */
static void fake(struct machine *m, const struct ax_scheme *s, const struct ax_st_entry *e,
                 float *y) {
    float *x, range[2];
    assert_int_equal(ax_alloc(&x, (size_t)e->numel, sizeof *x), AX_OK);
    assert_int_equal(ax_st_read(e, 0, e->numel, AX_F32, x), AX_OK);
    const int64_t cols = e->shape[1];
    struct ax_fake_quantize f = {.x = ax_tensor_2d(AX_F32, x, e->shape[0], cols),
                                 .y = ax_tensor_2d(AX_F32, y, e->shape[0], cols),
                                 .block = s->weight.block > 0 ? s->weight.block : cols,
                                 .kind = s->weight.kind};
    if (s->weight.block == AX_BLOCK_TENSOR || s->weight.kind == AX_QUANT_NVFP4) {
        f.range = ax_tensor_2d(AX_F32, range, 1, 2);
        assert_int_equal(
            ax_run_quant_range(m->q, &(struct ax_quant_range){.x = f.x, .range = f.range}), AX_OK);
    }
    assert_int_equal(ax_run_fake_quantize(m->q, &f), AX_OK);
    ax_free(x);
}

/* Values of NVFP4 are e2m1·(e4m3·g), but its files have 1/g: an ulp may differ. */
static void same_values(struct machine *m, const struct ax_scheme *s) {
    struct ax_hf model, quantized;
    int matrices = 0;
    assert_int_equal(ax_hf_open(&model, in_scratch("out")), AX_OK);
    assert_int_equal(ax_hf_open(&quantized, in_scratch("out/quantized")), AX_OK);
    assert_int_equal(ax_hf_count(&model), ax_hf_count(&quantized));
    for (int i = 0; i < ax_hf_count(&model); i++) {
        const struct ax_st_entry *e = ax_hf_at(&model, i), *q = ax_hf_find(&quantized, e->name);
        float *want, *got;
        assert_int_equal(ax_alloc(&want, (size_t)e->numel, sizeof *want), AX_OK);
        assert_int_equal(ax_alloc(&got, (size_t)e->numel, sizeof *got), AX_OK);
        if (strstr(e->name, "_proj.weight"))
            fake(m, s, e, want);
        else
            assert_int_equal(ax_st_read(e, 0, e->numel, AX_F32, want), AX_OK);
        matrices += strstr(e->name, "_proj.weight") != NULL;
        assert_int_equal(ax_st_read(q, 0, e->numel, AX_F32, got), AX_OK);
        for (int64_t k = 0; k < e->numel; k++)
            if (s->form == AX_FORM_NVFP4)
                assert_true(fabsf(got[k] - want[k]) <= 2.4e-7F * fabsf(want[k]));
            else if (got[k] != want[k])
                fail_msg("%s: %s[%d] is %g, the forward pass has %g", s->name, e->name, (int)k,
                         (double)got[k], (double)want[k]);
        ax_free(want);
        ax_free(got);
    }
    assert_int_equal(matrices, 21);
    ax_hf_close(&model);
    ax_hf_close(&quantized);
}

static void test_values_are_those_of_training(void **state) {
    (void)state;
    static const char *const names[] = {"int4", "int4-int8",  "int8", "int8-int8",
                                        "fp8",  "fp8-tensor", "nvfp4"};
    struct machine m;
    machine_open(&m, have_cpu() ? "cpu" : "ref", 1);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct ax_scheme s;
        char key[64], base[200], again[200];
        assert_int_equal(ax_scheme_find("scheme", names[i], &s), AX_OK);
        assert_int_equal(ax_remove_tree(in_scratch("out")), AX_OK);
        assert_int_equal(ax_remove_tree(in_scratch("again")), AX_OK);
        const char *path = config("qat:\n  scheme: int4\n");
        snprintf(key, sizeof key, "qat.scheme=%s", names[i]);
        EXPECT(0, "\nmodel: ", path, key);
        sft_command = "quantize";
        EXPECT(0, "layer 2: relative error 0.", path, key);
        same_values(&m, &s);
        if (s.quantizes_input)
            continue; /* evaluation does not quantize activations */
        sft_command = "train";
        snprintf(base, sizeof base, "base_model=%s/out/quantized", scratch);
        snprintf(again, sizeof again, "output_dir=%s/again", scratch);
        EXPECT(0, "\nmodel: ", path, "qat=null", base, again, "max_steps=1", "eval_steps=1");
        assert_true(fabs(metric_of("again", "eval_loss", 0) - metric_of("out", "eval_loss", 3)) <
                    1e-6);
    }
    machine_close(&m);
}

static void test_refusals(void **state) {
    (void)state;
    char dst[160], src[600];
    need_binary();
    assert_int_equal(ax_remove_tree(in_scratch("out")), AX_OK);
    snprintf(src, sizeof src, "%s", golden_llama());
    snprintf(dst, sizeof dst, "%s", in_scratch("out"));
    sft_command = "quantize";
    EXPECT(2, "say which --scheme", src, dst);
    EXPECT(2, "no scheme is called \"int3\". Nearest: int4.", src, dst, "--scheme", "int3");
    EXPECT(2, "scheme fp8 has none", src, dst, "--scheme", "fp8", "--group", "32");
    EXPECT(2, "groups of 48 numbers do not divide the 160 inputs", src, dst, "--scheme", "int4",
           "--group", "48");
    EXPECT(2, "Nearest: 32; or use", src, dst, "--scheme", "int4", "--group", "48");
    EXPECT(2, "Nearest: nvfp4.", src, dst, "--scheme", "mxfp4");
    EXPECT(0, "21 matrices as int4", src, dst, "--scheme", "int4", "--group", "16");
    EXPECT(2, "is quantized already", dst, in_scratch("twice"), "--scheme", "fp8");
}

/* A folder that lacks a scale, or whose config says another format. */
static void test_damaged_folders(void **state) {
    (void)state;
    char *text;
    size_t n;
    struct ax_hf hf;
    assert_int_equal(ax_read_file(in_scratch("out/model.safetensors"), 1 << 24, &text, &n), AX_OK);
    char *scale = memmem(text, n, "gate_proj.weight_scale", 22);
    assert_non_null(scale);
    memcpy(scale, "gate_proj.weight_scald", 22);
    put_bytes("out/model.safetensors", text, n);
    assert_int_equal(ax_hf_open(&hf, in_scratch("out")), AX_ERR_DATA);
    assert_non_null(strstr(ax_error_text(), "gate_proj.weight_packed has no weight_scale"));
    memcpy(scale, "gate_proj.weight_scale", 22);
    put_bytes("out/model.safetensors", text, n);
    ax_free(text);
    assert_int_equal(ax_read_file(in_scratch("out/config.json"), 1 << 20, &text, &n), AX_OK);
    char *group = memmem(text, n, "\"group_size\": 16", 16);
    assert_non_null(group);
    memcpy(group, "\"group_size\": 32", 16);
    put_bytes("out/config.json", text, n);
    assert_int_equal(ax_hf_open(&hf, in_scratch("out")), AX_ERR_DATA);
    assert_non_null(strstr(ax_error_text(), "another number of scales"));
    memcpy(group, "\"group_sizf\": 32", 16);
    put_bytes("out/config.json", text, n);
    assert_int_equal(ax_hf_open(&hf, in_scratch("out")), AX_ERR_UNSUPPORTED);
    ax_free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_are_those_of_training),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_damaged_folders),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
