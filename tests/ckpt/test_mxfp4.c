/* Tensors in MXFP4: those of a folder as gpt-oss is published equal those of the same model in float32;
 * mistakes are named. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/ckpt/folder.h"
#include "tests/golden_files.h"

static void compare(const struct ax_st_entry *want, const struct ax_st_entry *got) {
    const size_t n = (size_t)want->numel;
    float *a, *b;
    assert_non_null(got);
    assert_int_equal(got->ndim, want->ndim);
    for (int d = 0; d < want->ndim; d++)
        assert_int_equal(got->shape[d], want->shape[d]);
    assert_int_equal(ax_alloc(&a, n, sizeof *a), AX_OK);
    assert_int_equal(ax_alloc(&b, n, sizeof *b), AX_OK);
    assert_int_equal(ax_st_read(want, 0, want->numel, AX_F32, a), AX_OK);
    assert_int_equal(ax_st_read(got, 0, got->numel, AX_F32, b), AX_OK);
    for (size_t i = 0; i < n; i++) /* zeros of both signs are equal */
        assert_true(a[i] == b[i]);
    if (n > 70) { /* and a part of it */
        assert_int_equal(ax_st_read(got, 37, 33, AX_F32, b), AX_OK);
        for (size_t i = 0; i < 33; i++)
            assert_true(a[37 + i] == b[i]);
    }
    ax_free(a);
    ax_free(b);
}

static void values_are_those_of_the_model(void **state) {
    (void)state;
    struct ax_hf a, b;
    assert_int_equal(ax_hf_open(&a, golden_path("models/gpt_oss")), AX_OK);
    assert_int_equal(ax_hf_open(&b, golden_path("models/gpt_oss/mxfp4")), AX_OK);
    assert_int_equal(ax_hf_count(&b), ax_hf_count(&a));
    for (int i = 0; i < ax_hf_count(&a); i++) {
        compare(ax_hf_at(&a, i), ax_hf_find(&b, ax_hf_at(&a, i)->name));
        assert_non_null(ax_hf_find(&a, ax_hf_at(&b, i)->name));
    }
    ax_hf_close(&a);
    ax_hf_close(&b);
}

/* Code of element i of a row's group in a folder's blocks. */
static unsigned code_of(const uint8_t *block, int i) {
    return i % 2 ? block[i / 2] >> 4 : block[i / 2] & 15;
}

/* GGUF has the same blocks with the scale first, and elements 16 apart in a byte. */
static void gguf_has_the_same_values(void **state) {
    (void)state;
    struct ax_hf hf;
    int compared = 0;
    const struct ax_block_type *type = ax_block_type_find(39);
    assert_true(type && type->elements == 32 && type->bytes == 17 && !type->quantize);
    assert_int_equal(ax_hf_open(&hf, golden_path("models/gpt_oss/mxfp4")), AX_OK);
    for (int k = 0; k < hf.mxfp4->n; k++) {
        const struct ax_st_entry *e = &hf.mxfp4->entries[k];
        if (!e->read)
            continue;
        const struct ax_mxfp4_source *s = e->ctx;
        const int64_t groups = s->in / 32, blocks = e->shape[0] * s->out * groups;
        for (int64_t b = 0; b < blocks; b++) {
            const uint8_t *from = s->blocks + 16 * b;
            unsigned char block[17] = {s->scales[b]};
            float got[32], want;
            for (int i = 0; i < 16; i++)
                block[1 + i] = (unsigned char)(code_of(from, i) | code_of(from, i + 16) << 4);
            type->dequantize(block, 1, got);
            for (int i = 0; i < 32; i++, compared++) {
                const int64_t row = b / groups, column = row % s->out, expert = row / s->out;
                const int64_t at = (expert * s->in + b % groups * 32 + i) * s->out + column;
                assert_int_equal(ax_st_read(e, at, 1, AX_F32, &want), AX_OK);
                assert_true(got[i] == want);
            }
        }
    }
    assert_true(compared > 1000);
    const unsigned char no_number[17] = {255, 1};
    float value[32];
    type->dequantize(no_number, 1, value);
    assert_true(isnan(value[0]));
    ax_hf_close(&hf);
}

static enum ax_status bytes(void *ctx, int64_t first, int64_t n, void *out) {
    (void)first;
    memset(out, *(const int *)ctx, (size_t)n);
    return AX_OK;
}

/* Two experts of 32 elements for 3 outputs, every code and scale the same byte; scales of these experts, outputs and
 * groups, or none. */
static enum ax_status open_shaped(struct ax_hf *hf, int code, int scale, const int64_t *shape) {
    const struct ax_st_output t[] = {{.name = "w_blocks",
                                      .dtype = AX_U8,
                                      .ndim = 4,
                                      .shape = {2, 3, 1, 16},
                                      .fill = bytes,
                                      .ctx = &code},
                                     {.name = "w_scales",
                                      .dtype = AX_U8,
                                      .ndim = 3,
                                      .shape = {shape[0], shape[1], shape[2]},
                                      .fill = bytes,
                                      .ctx = &scale}};
    const char *path = in_dir("model.safetensors");
    assert_int_equal(ax_safetensors_write(path, shape[2] > 0 ? 2 : 1, t), AX_OK);
    return ax_hf_open(hf, path);
}
static enum ax_status open_made(struct ax_hf *hf, int code, int scale) {
    return open_shaped(hf, code, scale, (const int64_t[]){2, 3, 1});
}

static void every_code_has_its_value(void **state) {
    (void)state;
    static const double values[] = {0,    0.5,  1,  1.5,  2,  3,  4,  6,
                                    -0.0, -0.5, -1, -1.5, -2, -3, -4, -6};
    struct ax_hf hf;
    for (int code = 0; code < 16; code++) {
        float v[2];
        assert_int_equal(open_made(&hf, code | (15 - code) << 4, 125), AX_OK);
        const struct ax_st_entry *e = ax_hf_find(&hf, "w");
        assert_true(e && e->numel == 2 * 32 * 3 && e->shape[1] == 32 && e->shape[2] == 3);
        for (int k = 0; k < 2; k++) /* the first two inputs of the first output */
            assert_int_equal(ax_st_read(e, 3 * k, 1, AX_F32, &v[k]), AX_OK);
        assert_true((double)v[0] == values[code] / 4 && (double)v[1] == values[15 - code] / 4);
        ax_hf_close(&hf);
    }
}

static void mistakes_are_named(void **state) {
    (void)state;
    struct ax_hf hf;
    float v;
    const uint64_t live = ax_mem_live_blocks();
    static const int64_t shapes[][3] = {{2, 3, 0}, {2, 3, 2}, {2, 2, 1},
                                        {2, 4, 1}, {1, 3, 1}, {3, 3, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        assert_int_equal(open_shaped(&hf, 0, 127, shapes[i]), AX_ERR_DATA);
        assert_non_null(strstr(ax_error_text(), "w_blocks is not the blocks of an MXFP4 tensor"));
    }
    assert_int_equal(open_made(&hf, 0, 255), AX_OK);
    assert_int_equal(ax_st_read(ax_hf_find(&hf, "w"), 0, 1, AX_F32, &v), AX_ERR_DATA);
    assert_non_null(strstr(ax_error_text(), "w_blocks: block 0 is not a number"));
    ax_hf_close(&hf);
    assert_int_equal(ax_mem_live_blocks(), live);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_those_of_the_model),
        cmocka_unit_test(gguf_has_the_same_values),
        cmocka_unit_test(every_code_has_its_value),
        cmocka_unit_test(mistakes_are_named),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
