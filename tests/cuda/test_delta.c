/* The gated delta rule on the emulated GPU: the same bits in pieces of any size, and for a document alone; more
 * documents and heads than there are blocks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/cuda/device_case.h"
#include "tests/kernels/delta_case.h"

static struct machine ref, cuda;

static void pieces_have_the_same_bits(void **state) {
    (void)state;
    for (int kind = 0; kind < DELTA_KINDS; kind++) {
        delta_check_pieces(&ref, &cuda, case_run_there, AX_F32, (enum delta_kind)kind);
        delta_check_pieces(&ref, &cuda, case_run_there, AX_BF16, (enum delta_kind)kind);
    }
}

static void packed_documents_are_as_if_alone(void **state) {
    (void)state;
    for (int op = AX_OP_delta_forward; op <= AX_OP_delta_backward; op++) {
        delta_check_alone(&ref, &cuda, case_run_there, (enum ax_op)op, AX_F32);
        delta_check_alone(&ref, &cuda, case_run_there, (enum ax_op)op, AX_BF16);
    }
}

#define MANY 30
static void blocks_take_turns(void **state) {
    (void)state;
    struct ax_shape_document documents[MANY];
    for (int i = 0; i < MANY; i++)
        documents[i] = (struct ax_shape_document){1 + i % 3, 0};
    const struct ax_shape shape = {.name = "turns",
                                   .rows = 2 * MANY,
                                   .heads = 6,
                                   .kv_heads = 3,
                                   .head_dim = 8,
                                   .documents = documents,
                                   .n_documents = MANY};
    for (int op = AX_OP_delta_forward; op <= AX_OP_delta_backward; op++)
        case_compare_there((enum ax_op)op, &shape, AX_F32, &ref, &cuda);
}

static int open_machines(void **state) {
    (void)state;
    machine_open(&ref, "ref", 1);
    machine_open(&cuda, "cuda", 1);
    return 0;
}

static int close_machines(void **state) {
    (void)state;
    machine_close(&ref);
    machine_close(&cuda);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_have_the_same_bits),
        cmocka_unit_test(packed_documents_are_as_if_alone),
        cmocka_unit_test(blocks_take_turns),
    };
    return cmocka_run_group_tests(tests, open_machines, close_machines);
}
