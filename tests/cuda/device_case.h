/* Cases (kernels/cases.h) on a device whose memory the host cannot touch. Include after cmocka.h. */
#ifndef AX_TESTS_CUDA_DEVICE_CASE_H
#define AX_TESTS_CUDA_DEVICE_CASE_H

#include "tests/kernels/harness.h"

/* Words of the arguments that point into `from` point as far into `to`. */
static inline void move_args(void *args, size_t size, const char *from, size_t bytes, char *to) {
    for (size_t at = 0; at + sizeof(char *) <= size; at += sizeof(char *)) {
        char *word;
        memcpy(&word, (char *)args + at, sizeof word);
        if (word >= from && word < from + bytes) {
            word = to + (word - from);
            memcpy((char *)args + at, &word, sizeof word);
        }
    }
}

/* Copies the case's memory to the device, runs it there, and copies it back. */
static inline void case_run_there(struct ax_case *c, struct machine *m) {
    const size_t mark = ax_stack_mark(&m->arena.scratch), size = ax_op_args_size(c->op);
    char *there = ax_stack_push(&m->arena.scratch, "case", c->bytes);
    assert_int_equal(ax_queue_write(m->q, there, c->memory, c->bytes), AX_OK);
    move_args(c->args, size, c->memory, c->bytes, there);
    case_run(c, m);
    assert_int_equal(ax_queue_read(m->q, there, c->memory, c->bytes, NULL), AX_OK);
    move_args(c->args, size, there, c->bytes, c->memory);
    ax_stack_release(&m->arena.scratch, mark);
}

static inline void compare_scalars(const struct ax_case *c, const struct ax_case *want) {
    const struct ax_step_scalars *a = c->scalars, *b = want->scalars;
    /* sums of doubles, in another order or of products rounded to F32 first (loss) */
    assert_true(fabs(a->sumsq - b->sumsq) <= 1e-12 * b->sumsq);
    assert_true(fabs(a->loss - b->loss) <= 1e-6 * (1 + fabs(b->loss)));
    assert_true(fabs(a->aux_loss - b->aux_loss) <= 1e-6 * (1 + fabs(b->aux_loss)));
    assert_true(fabs(a->grad_norm - b->grad_norm) <= 1e-14 * b->grad_norm);
    assert_true(fabs(a->clip - b->clip) <= 1e-14 * b->clip);
    assert_int_equal(a->skip, b->skip);
    assert_int_equal(a->step, b->step);
    assert_true(a->weight == b->weight);
    assert_true(a->lr == b->lr && a->inv_weight == b->inv_weight && a->max_norm == b->max_norm);
}

#endif
