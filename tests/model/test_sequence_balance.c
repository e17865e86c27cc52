/* The balancing loss by sequence against PyTorch's numbers (tests/peers/make_sequence_balance.py): the
 * loss, and what reaches the logits; also of rows in any order, and of rows in two parts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/parts/router.h"
#include "tests/kernels/harness.h"
#include "tests/model/sequence_balance.h"

#define ROWS SEQUENCE_TOKENS
#define MOST (SEQUENCE_TOKENS * SEQUENCE_EXPERTS)

/* A router's numbers, dense, in the backend's accumulation dtype. */
struct numbers {
    double logits[MOST], probs[MOST], weights[MOST], none[MOST], slopes[MOST], dlogits[MOST];
    int32_t experts[MOST], order[ROWS];
    double counts[ROWS * SEQUENCE_EXPERTS];
};

static struct numbers n;
static struct machine m;
static enum ax_dtype dtype;

static struct ax_tensor matrix(void *data, int64_t rows, int64_t cols) {
    return ax_tensor_2d(dtype, data, rows, cols);
}

/* Row t of the tensors is token order[t]; choices and the gradient of logits by these `rows`. */
static void route(const struct sequence_golden *g) {
    const struct ax_routing routing = {.sigmoid = g->sigmoid, .renormalize = true, .scale = 1};
    for (int64_t t = 0; t < g->cu[g->n_docs]; t++)
        for (int64_t e = 0; e < g->E; e++)
            ax_store(dtype, n.logits, t * g->E + e, g->logits[n.order[t] * g->E + e]);
    const int64_t T = g->cu[g->n_docs];
    const struct ax_router_forward f = {.logits = matrix(n.logits, T, g->E),
                                        .probs = matrix(n.probs, T, g->E),
                                        .weights = matrix(n.weights, T, g->k),
                                        .experts = ax_tensor_2d(AX_I32, n.experts, T, g->k),
                                        .routing = routing};
    assert_int_equal(ax_run_router_forward(m.q, &f), AX_OK);
}

static struct ax_sequence_rows rows_of(const struct sequence_golden *g, int64_t first, int64_t end,
                                       struct ax_step_scalars *scalars) {
    const int64_t T = g->cu[g->n_docs];
    const struct ax_tensor probs = matrix(n.probs, T, g->E), slopes = matrix(n.slopes, T, g->E);
    const struct ax_tensor experts = ax_tensor_2d(AX_I32, n.experts, T, g->k);
    return (struct ax_sequence_rows){
        .probs = ax_tensor_rows(&probs, first, end - first),
        .experts = ax_tensor_rows(&experts, first, end - first),
        .cu = ax_tensor_1d(AX_I32, (void *)(uintptr_t)g->cu, g->n_docs + 1),
        .order = ax_tensor_1d(AX_I32, n.order, T),
        .counts = ax_tensor_2d(AX_F64, n.counts, g->n_docs, g->E),
        .slopes = ax_tensor_rows(&slopes, first, end - first),
        .first = first,
        .n_docs = g->n_docs,
        .sigmoid = g->sigmoid,
        .coef = g->coef,
        .scalars = scalars};
}

static void check(const struct sequence_golden *g, double loss, double tolerance) {
    const int64_t T = g->cu[g->n_docs];
    const struct ax_routing routing = {.sigmoid = g->sigmoid, .renormalize = true, .scale = 1};
    memset(n.none, 0, sizeof n.none);
    const struct ax_router_backward back = {.probs = matrix(n.probs, T, g->E),
                                            .experts = ax_tensor_2d(AX_I32, n.experts, T, g->k),
                                            .dweights = matrix(n.none, T, g->k),
                                            .slopes = matrix(n.slopes, T, g->E),
                                            .dlogits = matrix(n.dlogits, T, g->E),
                                            .routing = routing};
    assert_int_equal(ax_run_router_backward(m.q, &back), AX_OK);
    if (!(fabs(loss - g->loss) <= tolerance * g->loss))
        fail_msg("loss %.17g, not %.17g", loss, g->loss);
    for (int64_t t = 0; t < T; t++)
        for (int64_t e = 0; e < g->E; e++) {
            const double want = g->gradient[n.order[t] * g->E + e];
            const double got = ax_load(dtype, n.dlogits, t * g->E + e);
            if (!(fabs(got - want) <= tolerance * 1e-2))
                fail_msg("row %lld, expert %lld: %.17g, not %.17g", (long long)t, (long long)e, got,
                         want);
        }
}

static void losses_are_pytorch_s(void **state) {
    (void)state;
    for (int far = 0; far < 2; far++) {
        const double tolerance = far ? 2e-6 : 1e-13;
        dtype = far ? AX_F32 : AX_F64;
        machine_open(&m, far ? "cpu" : "ref", 1);
        for (size_t i = 0; i < sizeof sequence_goldens / sizeof *sequence_goldens; i++)
            for (int reversed = 0; reversed < 2; reversed++) {
                const struct sequence_golden *g = &sequence_goldens[i];
                const int64_t T = g->cu[g->n_docs];
                struct ax_step_scalars scalars = {.documents = (double)g->n_docs};
                for (int64_t t = 0; t < T; t++)
                    n.order[t] = (int32_t)(reversed ? T - 1 - t : t);
                route(g);
                struct ax_sequence_rows rows = rows_of(g, 0, T, &scalars);
                assert_int_equal(ax_sequence_count(m.q, &rows), AX_OK);
                memset(n.slopes, 0xff, sizeof n.slopes);
                const int64_t half = T / 2; /* two ranks' rows, with the counts of both */
                rows = rows_of(g, 0, half, &scalars);
                assert_int_equal(ax_sequence_slopes(m.q, &rows), AX_OK);
                rows = rows_of(g, half, T, &scalars);
                assert_int_equal(ax_sequence_slopes(m.q, &rows), AX_OK);
                check(g, scalars.sequence_loss, tolerance);
            }
        machine_close(&m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_are_pytorch_s),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
