/* `axtrain quantize`: which models and folders it refuses. test_quantized_values.c compares values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ckpt/hf/hf.h"
#include "tests/cmd/chats_case.h"

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
    EXPECT(2, "groups of 48 numbers do not divide the 64 inputs", src, dst, "--scheme", "int4",
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
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_damaged_folders),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
