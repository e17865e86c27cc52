/* Backward ops against finite differences of ref's forward, in F64. Include after cmocka.h.
 *
 * Along a random direction u, (L(x + hu) − L(x − hu)) / 2h = Σ grad·u up to h²·L''' (1e-10 here)
 * and rounding (1e-16/h = 1e-11): compared to 1e-6 of Σ |grad·u|, so that nothing hides in
 * cancellation. */
#ifndef AX_TESTS_KERNELS_GRADIENTS_H
#define AX_TESTS_KERNELS_GRADIENTS_H

#include "base/rng.h"
#include "tests/kernels/harness.h"

#define STEP 1e-5

static struct machine ref;
static char *pool; /* temporaries of one test, as F64 */
static size_t pool_used;

#define POOL_BYTES ((size_t)4 << 20)

static inline struct ax_tensor like(const struct ax_tensor *t) {
    struct ax_tensor copy = ax_tensor_nd(AX_F64, pool + pool_used, t->ndim, t->shape);
    pool_used += ax_tensor_bytes(&copy);
    assert_true(pool_used <= POOL_BYTES);
    return copy;
}

static inline struct ax_tensor copy_of(const struct ax_tensor *t) {
    struct ax_tensor copy = like(t);
    assert_int_equal(ax_run_copy(ref.q, &(struct ax_copy){copy, *t}), AX_OK);
    return copy;
}

static inline void zero(const struct ax_tensor *t) {
    assert_int_equal(ax_run_fill(ref.q, &(struct ax_fill){*t, 0}), AX_OK);
}

static inline double dot(const struct ax_tensor *a, const struct ax_tensor *b) {
    double sum = 0;
    for (int64_t i = 0; i < ax_tensor_numel(a); i++)
        sum += element(a, i) * element(b, i);
    return sum;
}

static inline double *address(const struct ax_tensor *t, int64_t i) {
    int64_t cols = ax_tensor_row_len(t);
    return (double *)t->data + i / cols * t->row_stride + i % cols;
}

static inline double direction(int trial, int64_t i) {
    struct ax_rng_key key = {.seed = 5, .step = (uint32_t)trial};
    return 2 * (double)ax_rng_uniform(key, (uint64_t)i) - 1;
}

/* Loss at x + h·u, x being put back. */
static inline double moved(const struct ax_tensor *x, int trial, double h, double (*loss)(void *),
                           void *context) {
    struct ax_tensor before = copy_of(x);
    for (int64_t i = 0; i < ax_tensor_numel(x); i++)
        *address(x, i) += h * direction(trial, i);
    double value = loss(context);
    assert_int_equal(ax_run_copy(ref.q, &(struct ax_copy){*x, before}), AX_OK);
    pool_used -= ax_tensor_bytes(&before);
    return value;
}

static inline void check(const char *what, const struct ax_tensor *x, const struct ax_tensor *grad,
                         double (*loss)(void *), void *context) {
    for (int trial = 0; trial < 3; trial++) {
        double up = moved(x, trial, STEP, loss, context);
        double down = moved(x, trial, -STEP, loss, context);
        double numeric = (up - down) / (2 * STEP), analytic = 0, scale = 0;
        for (int64_t i = 0; i < ax_tensor_numel(x); i++) {
            double term = element(grad, i) * direction(trial, i);
            analytic += term;
            scale += fabs(term);
        }
        if (fabs(numeric - analytic) > 1e-6 * scale + 1e-9)
            fail_msg("%s: differences say %.12g, backward says %.12g (scale %.3g)", what, numeric,
                     analytic, scale);
    }
}

static inline int start(void **state) {
    (void)state;
    machine_open(&ref, "ref", 1);
    return ax_alloc(&pool, POOL_BYTES, 1) == AX_OK ? 0 : -1;
}

static inline int stop(void **state) {
    (void)state;
    ax_free(pool);
    machine_close(&ref);
    return 0;
}

static inline int reset_pool(void **state) {
    (void)state;
    pool_used = 0;
    return 0;
}

#endif
