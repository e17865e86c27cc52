/* What losses of a layer of their own have in common: gradients do not depend on how documents are packed, nor bits on
 * what is computed again. Include after cmocka.h. */
#ifndef AX_TESTS_OPTIM_TINY_CASE_H
#define AX_TESTS_OPTIM_TINY_CASE_H

#include <math.h>

#include "base/mem.h"
#include "tests/tiny.h"

static const int64_t lengths[] = {9, 1, 2, 24, 0};

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

/* The same documents in one sequence, and in `micro` sequences that accumulate. */
static const int64_t twice[] = {9, 1, 2, 24, 9, 1, 2, 24, 0}, four[] = {13, 13, 13, 13, 0},
                     one_of_four[] = {13, 0};
static const struct packing {
    const int64_t *together, *apart;
    int micro;
} packings[] = {{twice, lengths, 2}, {four, one_of_four, 4}};
#define N_PACKINGS (sizeof packings / sizeof *packings)

/* One step, whose gradients are kept. */
static struct tiny_run tiny_step(const struct ax_arch *arch, enum ax_dtype dtype, int micro,
                                 const int64_t *of) {
    return (struct tiny_run){.arch = arch,
                             .o = tiny_options(dtype, AX_RECOMPUTE_ON, micro, of),
                             .lengths = of,
                             .steps = 1,
                             .seed = 5,
                             .want_grads = true};
}

/* Gradients of both runs; `tolerance`: relative to the largest one. */
static void expect_same_gradients(struct tiny_run *a, struct tiny_run *b, const char *backend,
                                  int threads, double tolerance) {
    double most = 0, off = 0;
    must(tiny_run(a, backend, threads));
    must(tiny_run(b, backend, threads));
    assert_int_equal(a->n_grads, b->n_grads);
    for (int64_t i = 0; i < a->n_grads; i++) {
        most = fmax(most, fabs(b->grad_values[i]));
        off = fmax(off, fabs(a->grad_values[i] - b->grad_values[i]));
    }
    if (!(most > 0 && off <= tolerance * most &&
          fabs(a->grad_norm - b->grad_norm) <= tolerance * b->grad_norm))
        fail_msg("gradients are off by %g, and up to %g; their norms are %.17g and %.17g", off,
                 most, a->grad_norm, b->grad_norm);
    ax_free(a->grad_values);
    ax_free(b->grad_values);
}

/* Two steps of it, in every mode and on one thread and two. */
static void recompute_keeps_bits(struct tiny_run t) {
    uint64_t grads = 0, masters = 0;
    t.steps = 2;
    for (int mode = AX_RECOMPUTE_OFF; mode <= AX_RECOMPUTE_ON; mode++)
        for (int threads = 1; threads <= 2; threads++) {
            struct tiny_run again = t;
            again.o.recompute = (enum ax_recompute)mode;
            must(tiny_run(&again, "cpu", threads));
            grads = grads ? grads : again.grads;
            masters = masters ? masters : again.masters;
            assert_true(again.grads == grads && again.masters == masters);
            ax_free(again.grad_values);
        }
}

#endif
