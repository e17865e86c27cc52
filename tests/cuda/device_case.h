/* Cases (kernels/cases.h) on a device whose memory the host cannot touch. Include after cmocka.h. */
#ifndef AX_TESTS_CUDA_DEVICE_CASE_H
#define AX_TESTS_CUDA_DEVICE_CASE_H

#include "tests/cuda/apart.h"

#ifdef AX_CUDA_EMULATED
void __asan_poison_memory_region(const volatile void *at, size_t bytes);
void __asan_unpoison_memory_region(const volatile void *at, size_t bytes);
#else /* on a GPU nobody watches */
#define __asan_poison_memory_region(at, bytes)   ((void)(at), (void)(bytes))
#define __asan_unpoison_memory_region(at, bytes) ((void)(at), (void)(bytes))
#endif

/* Of a case whose memory is on the device, and of the workspace after it: only operands, scalars and measures may
 * be touched, and the workspace, which begins as NaNs. */
#define GUARD ((size_t)4096)
static inline void guard(const struct ax_case *c, struct machine *m) {
    const struct ax_stack *s = &m->arena.scratch;
    char *work = s->base + s->top;
    const size_t bytes = m->q->ops->workspace(m->q, c->op, c->args);
    assert_int_equal(
        cudaMemsetAsync(work, 0xff, bytes < 1 << 20 ? bytes : 1 << 20, ax_cuda_stream(m->q)),
        cudaSuccess);
    assert_int_equal(ax_queue_finish(m->q), AX_OK);
    __asan_poison_memory_region(c->sent, c->bytes);
    __asan_poison_memory_region(work + bytes, GUARD);
    __asan_unpoison_memory_region(c->sent, sizeof *c->step);
    for (const struct ax_operand *o = ax_op_operands(c->op); o->name != NULL; o++) {
        const struct ax_tensor *t = ax_operand_tensor(o, c->args);
        const size_t row = (size_t)ax_tensor_row_len(t) * ax_dtype_size(t->dtype);
        for (int64_t r = 0; t->data != NULL && r < t->shape[0]; r++)
            __asan_unpoison_memory_region(ax_tensor_row(t, r), row);
    }
}

static inline void unguard(const struct ax_case *c, const struct machine *m) {
    const struct ax_stack *s = &m->arena.scratch;
    const size_t bytes = m->q->ops->workspace(m->q, c->op, c->args);
    __asan_unpoison_memory_region(c->sent, c->bytes);
    __asan_unpoison_memory_region(s->base + s->top + bytes, GUARD);
}

/* Copies the case's memory to the device, runs it there, and copies it back. With AXTRAIN_CUDA_GUARD=1 its operands lie
 * apart. */
static inline void case_run_there(struct ax_case *c, struct machine *m) {
    const char *wish = getenv("AXTRAIN_CUDA_GUARD");
    if (wish && strcmp(wish, "1") == 0) {
        case_run_apart(c, m);
        return;
    }
    const size_t mark = ax_stack_mark(&m->arena.scratch);
    assert_int_equal(ax_case_send(c, m->q), AX_OK);
    guard(c, m);
    case_run(c, m);
    assert_int_equal(ax_queue_finish(m->q), AX_OK);
    unguard(c, m);
    assert_int_equal(ax_case_fetch(c, m->q), AX_OK);
    ax_stack_release(&m->arena.scratch, mark);
}

/* A case there computes what it computes on `ref`. */
static inline void case_compare_there(enum ax_op op, const struct ax_shape *shape,
                                      enum ax_dtype dtype, struct machine *ref, struct machine *m) {
    struct ax_case got, want;
    case_open(&got, op, shape, dtype, ref);
    case_open(&want, op, shape, dtype, ref);
    assert_true(ax_ops_cuda.supports(m->q, op, got.args));
    case_run_there(&got, m);
    case_run(&want, ref);
    compare_outputs(&got, &want);
    ax_case_free(&got);
    ax_case_free(&want);
}

#endif
