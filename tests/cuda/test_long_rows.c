/* What the listed shapes are too small for, in the emulated backend cuda against ref: rows with more than
 * one vector per thread, more than one block or piece, and what is just beyond or not a multiple of either. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "kernels/cuda/cuda.h"
#include "tests/cuda/device_case.h"

static struct machine ref, cuda;

#define ACC   AX_SHAPE_ACCUMULATE
#define IN32  AX_SHAPE_ACCUM_IN
#define OUT32 AX_SHAPE_ACCUM_OUT

static const struct ax_shape_document groups[] = {{40, 0}, {0, 0}, {30, 0}};

static const struct {
    enum ax_op op;
    struct ax_shape shape;
} long_cases[] = {
    {AX_OP_rmsnorm_forward, {"vectors", .rows = 3, .cols = 1032, .flags = IN32}},
    {AX_OP_rmsnorm_forward, {"unaligned", .rows = 2, .cols = 1033, .pad = 3}},
    {AX_OP_rmsnorm_forward, {"long", .rows = 2, .cols = 8200}},
    {AX_OP_center, {"long", .rows = 2, .cols = 8200, .flags = IN32 | OUT32}},
    {AX_OP_rmsnorm_forward, {"wide heads", .rows = 2, .heads = 3, .head_dim = 264}},
    {AX_OP_rmsnorm_backward, {"vectors", .rows = 5, .cols = 1032, .flags = IN32 | ACC}},
    {AX_OP_rmsnorm_backward, {"unaligned", .rows = 2, .cols = 1033, .pad = 3}},
    {AX_OP_rmsnorm_backward, {"long", .rows = 2, .cols = 8200}},
    {AX_OP_rmsnorm_backward, {"turns", .rows = 270, .cols = 264}},
    {AX_OP_rmsnorm_backward, {"long, unaligned", .rows = 2, .cols = 8197, .flags = ACC}},
    {AX_OP_rmsnorm_backward, {"wide heads", .rows = 2, .heads = 3, .head_dim = 264}},
    {AX_OP_rmsnorm_backward, {"many heads", .rows = 600, .heads = 9, .head_dim = 24}},
    {AX_OP_rope, {"many heads", .rows = 2, .heads = 40, .head_dim = 128, .cols = 64, .inner = 8}},
    {AX_OP_swiglu_forward, {"blocks", .rows = 2, .cols = 2056}},
    {AX_OP_swiglu_backward, {"blocks, unaligned", .rows = 2, .cols = 2057, .pad = 1}},
    {AX_OP_embedding_forward, {"blocks", .rows = 3, .cols = 2056, .inner = 5}},
    {AX_OP_embedding_backward, {"many tokens", .rows = 2100, .cols = 21, .inner = 7}},
    {AX_OP_embedding_backward, {"blocks", .rows = 9, .cols = 1032, .inner = 3, .flags = IN32}},
    {AX_OP_colsum, {"pieces", .rows = 4200, .cols = 9}},
    {AX_OP_colsum, {"blocks", .rows = 70, .cols = 520}},
    {AX_OP_coldot, {"pieces", .rows = 4200, .cols = 9, .pad = 1}},
    {AX_OP_grouped_colsum,
     {"blocks", .documents = groups, .n_documents = 3, .rows = 70, .cols = 520}},
    {AX_OP_softmax_stats, {"vectors", .rows = 2, .cols = 9008}},
    {AX_OP_softmax_stats, {"unaligned", .rows = 2, .cols = 9001, .flags = IN32}},
    {AX_OP_softmax_backward, {"blocks", .rows = 2, .cols = 9008}},
    {AX_OP_softmax_backward, {"blocks, unaligned", .rows = 2, .cols = 9001, .flags = OUT32}},
    {AX_OP_nll_loss, {"turns", .rows = 1300}},
    {AX_OP_argmax, {"turns", .rows = 3, .cols = 9001}},
    {AX_OP_scatter_rows, {"blocks", .rows = 3, .cols = 4104, .inner = 9}},
    {AX_OP_group_rows, {"pieces", .rows = 6000, .groups = 40, .choices = 3}},
    {AX_OP_combine_forward, {"blocks", .rows = 3, .cols = 2056, .inner = 9, .choices = 2}},
    {AX_OP_combine_backward, {"turns", .rows = 2, .cols = 8200, .inner = 9, .choices = 2}},
    {AX_OP_dora_norm, {"turns", .rows = 2, .cols = 8200, .inner = 4}},
    {AX_OP_colscale, {"blocks", .rows = 2, .cols = 2056, .flags = AX_SHAPE_ADDEND}},
};

static void long_rows_agree_with_ref(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(long_cases) / sizeof(long_cases[0]); i++) {
        case_compare_there(long_cases[i].op, &long_cases[i].shape, AX_F32, &ref, &cuda);
        case_compare_there(long_cases[i].op, &long_cases[i].shape, AX_BF16, &ref, &cuda);
    }
}

static int open_machines(void **state) {
    (void)state;
    machine_open(&ref, "ref", 1);
    machine_open(&cuda, "cuda", 1);
    return 0;
}

static int close_machines(void **state) {
    (void)state;
    machine_close(&cuda);
    machine_close(&ref);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_rows_agree_with_ref),
    };
    return cmocka_run_group_tests_name("cuda long rows", tests, open_machines, close_machines);
}
