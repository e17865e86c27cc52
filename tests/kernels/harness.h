/* What the op tests share: a queue with scratch memory, the backends that exist on this machine,
 * and comparing what two runs of a case left behind. Include after cmocka.h. */
#ifndef AX_TESTS_KERNELS_HARNESS_H
#define AX_TESTS_KERNELS_HARNESS_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/compare.h"
#include "kernels/operands.h"
#include "kernels/backend.h"
#include "kernels/queue.h"

static const enum ax_dtype REALS[] = {AX_F64, AX_F32, AX_BF16};

struct machine {
    struct ax_arena arena;
    struct ax_queue *q;
};

/* Workspaces get up to 1 GiB of address space. */
static inline void machine_open(struct machine *m, const char *backend, int threads) {
    struct ax_arena_plan plan = {.scratch[AX_PHASE_TRAIN] = (size_t)1 << 30, .host = AX_QUEUE_RING};
    const struct ax_ops *ops;
    assert_int_equal(ax_backend_find(strcmp(backend, "meta") == 0 ? "ref" : backend, &ops), AX_OK);
    assert_int_equal(ax_arena_create(&m->arena, &plan, ops->device), AX_OK);
    assert_int_equal(ax_queue_create(&m->q, backend, NULL, threads, &m->arena.scratch), AX_OK);
    assert_int_equal(ax_queue_open_ring(m->q), AX_OK);
}

static inline void machine_close(struct machine *m) {
    ax_queue_free(m->q);
    ax_arena_free(&m->arena);
}

static inline bool have_cpu(void) {
    return ax_ops_cpu() != NULL;
}

/* A case whose inputs are complete; `ref` computes those that are results of another op. */
static inline void case_open(struct ax_case *c, enum ax_op op, const struct ax_shape *shape,
                             enum ax_dtype dtype, struct machine *ref) {
    assert_int_equal(ax_case_create(c, op, shape, dtype, 11), AX_OK);
    assert_int_equal(ax_case_prepare(c, ref->q), AX_OK);
}

static inline void case_run(const struct ax_case *c, struct machine *m) {
    if (ax_case_run(c, m->q) != AX_OK) {
        fail_msg("%s \"%s\" %s: %s", ax_op_name(c->op), c->shape->name,
                 ax_dtype_info(c->dtype)->name, ax_error_text());
    }
}

static inline double element(const struct ax_tensor *t, int64_t i) {
    return ax_case_element(t, i);
}

/* got and want hold the same elements of one operand of case c. */
static inline void compare(const struct ax_case *c, const char *name, const struct ax_tensor *got,
                           const struct ax_tensor *want) {
    struct ax_case_difference d = {0};
    ax_case_compare_operand(c, name, got, want, &d);
    if (!(d.worst <= 1))
        fail_msg("%s", d.where);
}

/* Everything that a case writes, its scalars and measures too. */
static inline void compare_outputs(const struct ax_case *got, const struct ax_case *want) {
    struct ax_case_difference d = {0};
    ax_case_compare(got, want, &d);
    if (!(d.worst <= 1))
        fail_msg("%s", d.where);
}

static inline bool same_bits(const struct ax_tensor *a, const struct ax_tensor *b) {
    size_t row = (size_t)ax_tensor_row_len(a) * ax_dtype_size(a->dtype);
    for (int64_t r = 0; r < a->shape[0]; r++)
        if (memcmp(ax_tensor_row(a, r), ax_tensor_row(b, r), row) != 0)
            return false;
    return true;
}

/* Without big shapes: they take 10 minutes on an emulated processor (tools/test-arm). */
static inline bool skips_big(void) {
    const char *text = getenv("AXTRAIN_SKIP_BIG");
    return text != NULL && *text != '\0';
}

/* Calls f(op, shape, dtype) for every combination, big shapes only or small ones only. */
static inline void for_each_case(bool big,
                                 void (*f)(enum ax_op, const struct ax_shape *, enum ax_dtype)) {
    for (int op = 0; op < AX_OP_COUNT; op++) {
        int n;
        const struct ax_shape *shapes = ax_op_shapes((enum ax_op)op, &n);
        for (int i = 0; i < n; i++)
            for (size_t d = 0; d < sizeof(REALS) / sizeof(REALS[0]) && shapes[i].big == big; d++)
                f((enum ax_op)op, &shapes[i], REALS[d]);
    }
}

#endif
