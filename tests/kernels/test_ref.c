/* ref against answers worked out by hand: what a formula means where it is easy to mistake. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/kernels/harness.h"

static struct machine ref;

static void expect(const struct ax_tensor *t, const double *want, int64_t n, double within) {
    assert_int_equal(ax_tensor_numel(t), n);
    for (int64_t i = 0; i < n; i++) {
        double got = element(t, i);
        if (!(fabs(got - want[i]) <= within))
            fail_msg("element %lld is %.12g, not %.12g", (long long)i, got, want[i]);
    }
}

#define EXPECT(t, within, ...)                                                                     \
    expect(&(t), (const double[]){__VA_ARGS__},                                                    \
           (int64_t)(sizeof((const double[]){__VA_ARGS__}) / sizeof(double)), within)
#define VECTOR(name, ...)                                                                          \
    double name##_data[] = {__VA_ARGS__};                                                          \
    struct ax_tensor name =                                                                        \
        ax_tensor_1d(AX_F64, name##_data, (int64_t)(sizeof(name##_data) / sizeof(double)))
#define MATRIX(name, rows, cols, ...)                                                              \
    double name##_data[(rows) * (cols)] = {__VA_ARGS__};                                           \
    struct ax_tensor name = ax_tensor_2d(AX_F64, name##_data, rows, cols)
#define IDS(name, ...)                                                                             \
    int32_t name##_data[] = {__VA_ARGS__};                                                         \
    struct ax_tensor name =                                                                        \
        ax_tensor_1d(AX_I32, name##_data, (int64_t)(sizeof(name##_data) / sizeof(int32_t)))
#define RUN(op, ...) assert_int_equal(ax_run_##op(ref.q, &(struct ax_##op){__VA_ARGS__}), AX_OK)

static void gemm_by_hand(void **state) {
    (void)state;
    MATRIX(x, 2, 3, 1, 2, 3, 4, 5, 6);
    MATRIX(w, 2, 3, 1, 0, -1, 2, 1, 0);
    MATRIX(y, 2, 2, 0);
    VECTOR(bias, 10, 20);
    MATRIX(addend, 2, 2, 100, 200, 300, 400);
    RUN(gemm, .a = x, .b = w, .c = y, .trans_b = true, .alpha = 1);
    EXPECT(y, 0, -2, 4, -2, 13);
    RUN(gemm, .a = x, .b = w, .c = y, .trans_b = true, .alpha = 0.5, .accumulate = true);
    EXPECT(y, 0, -3, 6, -3, 19.5);
    RUN(gemm, .a = x, .b = w, .c = y, .bias = bias, .addend = addend, .trans_b = true, .alpha = 2);
    EXPECT(y, 0, 106, 228, 306, 446);
    MATRIX(dy, 2, 2, 1, 2, 3, 4);
    MATRIX(dx, 2, 3, 0);
    RUN(gemm, .a = dy, .b = w, .c = dx, .alpha = 1);
    EXPECT(dx, 0, 5, 2, -1, 11, 4, -3);
    MATRIX(dw, 3, 3, 1);
    RUN(gemm, .a = x, .b = w, .c = dw, .trans_a = true, .accumulate = true, .alpha = 1);
    EXPECT(dw, 0, 10, 4, -1, 12, 5, -2, 15, 6, -3);
}

/* bf16 in, the sum rounded once: 1 + 2⁻⁸ + 2⁻⁹ goes up although 1 + 2⁻⁸ alone would go down. */
static void gemm_rounds_once(void **state) {
    (void)state;
    uint16_t a_data[3], b_data[3], c_data[1];
    for (int i = 0; i < 3; i++) {
        ax_store(AX_BF16, a_data, i, i == 0 ? 1 : ldexp(1, -7 - i));
        ax_store(AX_BF16, b_data, i, 1);
    }
    RUN(gemm, .a = ax_tensor_2d(AX_BF16, a_data, 1, 3), .b = ax_tensor_2d(AX_BF16, b_data, 3, 1),
        .c = ax_tensor_2d(AX_BF16, c_data, 1, 1), .alpha = 1);
    assert_true(ax_load(AX_BF16, c_data, 0) == 1 + 0x1p-7);
    RUN(gemm, .a = ax_tensor_2d(AX_BF16, a_data, 1, 2), .b = ax_tensor_2d(AX_BF16, b_data, 2, 1),
        .c = ax_tensor_2d(AX_BF16, c_data, 1, 1), .alpha = 1);
    assert_true(ax_load(AX_BF16, c_data, 0) == 1);
}

static void sums_add_to_what_is_there(void **state) {
    (void)state;
    MATRIX(x, 2, 2, 1, 2, 3, 4);
    VECTOR(sum, 10, 20);
    RUN(colsum, x, sum);
    EXPECT(sum, 0, 14, 26);
    IDS(tokens, 7, 5, 7, 9, 4);
    MATRIX(dout, 5, 1, 1, 2, 3, 4, 5);
    MATRIX(dweight, 3, 1, 100, 200, 300); /* rows 5, 6, 7 of the vocabulary */
    RUN(embedding_backward, dout, tokens, dweight, 5, -1, 0);
    EXPECT(dweight, 0, 102, 200, 304);
    RUN(embedding_backward, dout, tokens, dweight, 5, 7, 0);
    EXPECT(dweight, 0, 104, 200, 304);
    MATRIX(out, 5, 1, 0);
    RUN(embedding_forward, dweight, tokens, out, 5, 0);
    EXPECT(out, 0, 304, 104, 304, 0, 0);
    MATRIX(y, 1, 2, 3, 4);
    VECTOR(weight, 1, 1);
    VECTOR(rstd, 0.5);
    VECTOR(dw, 7, 7);
    MATRIX(dx, 1, 2, 1, 1);
    RUN(rmsnorm_backward, .dy = y, .x = y, .weight = weight, .rstd = rstd, .dx = dx, .dweight = dw,
        .accumulate = true);
    EXPECT(dw, 0, 7 + 4.5, 7 + 8);
    /* x̂ = (1.5, 2), mean(g·x̂) = 6.25, dx += 0.5·(g − 6.25·x̂) */
    EXPECT(dx, 0, 1 + 0.5 * (3 - 9.375), 1 + 0.5 * (4 - 12.5));
}

/* x·rstd is rounded to bf16 before the weight is applied, as transformers does: with rstd = 1/√29,
 * 7·rstd → 1.296875 and 3·rstd → 0.55859375; rounding only at the end would give 1.953125 and
 * 0.6953125. */
static void rmsnorm_rounds_in_between(void **state) {
    (void)state;
    uint16_t x[2], w[2], y[2];
    float rstd[1];
    ax_store(AX_BF16, x, 0, 7);
    ax_store(AX_BF16, x, 1, 3);
    ax_store(AX_BF16, w, 0, 1.5);
    ax_store(AX_BF16, w, 1, 1.25);
    RUN(rmsnorm_forward, ax_tensor_2d(AX_BF16, x, 1, 2), ax_tensor_1d(AX_BF16, w, 2),
        ax_tensor_2d(AX_BF16, y, 1, 2), ax_tensor_1d(AX_F32, rstd, 1), 0, 0, .once = false);
    assert_true(fabs((double)rstd[0] - 1 / sqrt(29)) < 1e-7);
    assert_true(ax_load(AX_BF16, y, 0) == 1.9453125);
    assert_true(ax_load(AX_BF16, y, 1) == 0.69921875);
}

static void rows_are_centered(void **state) {
    (void)state;
    MATRIX(x, 2, 3, 1, 2, 6, -4, 0, 1);
    MATRIX(y, 2, 3, 1, 1, 1, 0, 0, 10);
    RUN(center, x, y, .accumulate = true);
    EXPECT(y, 0, -1, 0, 4, -3, 1, 12);
    RUN(center, x, x, .accumulate = false);
    EXPECT(x, 0, -2, -1, 3, -3, 1, 2);
}

/* The second row is below the floor: its gradient is as if the divisor were a number. */
static void rows_are_as_large_as_others(void **state) {
    (void)state;
    MATRIX(x, 2, 2, 3, 4, 0.1, 0);
    MATRIX(like, 2, 2, 5, 5, 0, 2);
    MATRIX(y, 2, 2, 0);
    RUN(match_rms_forward, x, like, y, .floor = 2);
    EXPECT(y, 1e-12, 3 * sqrt(2), 4 * sqrt(2), 0.1, 0);
    MATRIX(dy, 2, 2, 1, 1, 2, 3);
    MATRIX(dx, 2, 2, 0);
    MATRIX(dlike, 2, 2, 1, 1, 1, 1);
    RUN(match_rms_backward, dy, x, like, dx, dlike, .floor = 2);
    EXPECT(dx, 1e-12, sqrt(2) * (1 - 3 * 3.5 / 12.5), sqrt(2) * (1 - 4 * 3.5 / 12.5), 2, 3);
    EXPECT(dlike, 1e-12, 1 + 0.7 * sqrt(2), 1 + 0.7 * sqrt(2), 1, 1 + 0.1);
}

/* Mean 3, standard deviation 2: above 5 is one element. A row of equal ones has none. */
static void rows_become_sparse(void **state) {
    (void)state;
    MATRIX(x, 2, 4, 1, 2, 2.5, 6.5, 7, 7, 7, 7);
    MATRIX(y, 2, 4, 0);
    RUN(sparsify_forward, x, y, .z = 1);
    const double std = sqrt((4 + 1 + 0.25 + 12.25) / 4);
    EXPECT(y, 1e-12, 0, 0, 0, 3.5 - std, 0, 0, 0, 0);
    MATRIX(dy, 2, 4, 9, 9, 9, 4, 1, 1, 1, 1);
    RUN(sparsify_backward, dy, x, dy, .z = 1);
    EXPECT(dy, 1e-12, -1 + 2 / std, -1 + 1 / std, -1 + 0.5 / std, 4 - 1 - 3.5 / std, 0, 0, 0, 0);
}

/* Tokens from the table's end on have its first row, with its gradient unless that is skipped. */
static void unknown_tokens_have_the_first_row(void **state) {
    (void)state;
    MATRIX(table, 2, 1, 5, 7);
    MATRIX(out, 4, 1, 0);
    IDS(tokens, 1, 2, 0, 9);
    RUN(embedding_forward, table, tokens, out, .known = 2);
    EXPECT(out, 0, 7, 5, 5, 5);
    MATRIX(dout, 4, 1, 1, 10, 100, 1000);
    MATRIX(dtable, 2, 1, 0);
    RUN(embedding_backward, dout, tokens, dtable, .skip_token = -1, .known = 2);
    EXPECT(dtable, 0, 1110, 1);
    RUN(embedding_backward, dout, tokens, dtable, .skip_token = 0, .known = 2);
    EXPECT(dtable, 0, 1110, 2);
}

static void attention_by_hand(void **state) {
    (void)state;
    /* One head of size 1; document 0 has a query over three keys, document 1 none, document 2 two
     * queries over one key: its first query, bottom-right, comes before the key. */
    double q[3] = {2, 1, 1}, k[4] = {0, log(2) / 2, log(5) / 2, 3}, v[4] = {10, 20, 30, 40};
    double out[3], lse[3];
    IDS(cu_q, 0, 1, 1, 3);
    IDS(cu_k, 0, 3, 3, 4);
    struct ax_attention a = {.q = ax_tensor_3d(AX_F64, q, 3, 1, 1),
                             .k = ax_tensor_3d(AX_F64, k, 4, 1, 1),
                             .v = ax_tensor_3d(AX_F64, v, 4, 1, 1),
                             .out = ax_tensor_3d(AX_F64, out, 3, 1, 1),
                             .lse = ax_tensor_2d(AX_F64, lse, 3, 1),
                             .cu_q = cu_q,
                             .cu_k = cu_k,
                             .max_q = 2,
                             .max_k = 3,
                             .scale = 1,
                             .causal = true};
    RUN(attention_forward, a); /* weights 1 : 2 : 5 */
    EXPECT(a.out, 1e-13, 25, 0, 40);
    assert_true(fabs(lse[0] - log(8)) < 1e-14);
    assert_true(lse[1] == -INFINITY);
    assert_true(lse[2] == 3);
    a.window = 2; /* weights 2 : 5 */
    RUN(attention_forward, a);
    EXPECT(a.out, 1e-13, 190.0 / 7, 0, 40);
    a.window = 0;
    VECTOR(sink, log(2));
    a.sink = sink; /* two more in the denominator */
    RUN(attention_forward, a);
    EXPECT(a.out, 1e-13, 20, 0, 40 * exp(3) / (exp(3) + 2));
    EXPECT(a.lse, 1e-13, log(10), log(2), log(exp(3) + 2));
    a.sink.data = NULL;
    a.causal = false;
    a.scale = 0.5;
    a.softcap = 1;
    RUN(attention_forward, a);
    double w1 = exp(tanh(log(2) / 2)), w2 = exp(tanh(log(5) / 2));
    EXPECT(a.out, 1e-13, (10 + 20 * w1 + 30 * w2) / (1 + w1 + w2), 40, 40);
}

static void softmax_of_even_logits(void **state) {
    (void)state;
    MATRIX(logits, 2, 4, 3, 3, 3, 3, 0, 0, 0, 0);
    IDS(labels, 1, -1);
    double stats[2 * 2 * AX_SOFTMAX_STATS];
    VECTOR(mean, 9, 9);
    VECTOR(logprob, 9, 9);
    VECTOR(lse, 9, 9);
    VECTOR(entropy, 9, 9);
    for (int s = 0; s < 2; s++) { /* two shards of two columns */
        RUN(softmax_stats, ax_tensor_cols(&logits, 2 * s, 2), labels,
            ax_tensor_2d(AX_F64, stats + 10 * s, 2, AX_SOFTMAX_STATS), 2 * s, 2);
    }
    struct ax_tensor row0 = ax_tensor_1d(AX_F64, stats, AX_SOFTMAX_STATS);
    EXPECT(row0, 0, 3, 1, 0, 3, 6);
    struct ax_tensor other = ax_tensor_1d(AX_F64, stats + 10, AX_SOFTMAX_STATS);
    EXPECT(other, 0, 3, 1, 0, 0, 6);
    RUN(softmax_merge, .stats = ax_tensor_3d(AX_F64, stats, 2, 2, AX_SOFTMAX_STATS), labels,
        logprob, lse, entropy, mean, 4, .inv_temperature = 2);
    EXPECT(mean, 1e-14, -log(4), -log(4));
    EXPECT(logprob, 1e-14, -log(4), 0);
    EXPECT(lse, 1e-14, 6 + log(4), log(4));
    EXPECT(entropy, 1e-14, log(4), log(4));
    VECTOR(g, -1, -1);
    MATRIX(dlogits, 2, 4, 9, 9, 9, 9, 9, 9, 9, 9);
    RUN(softmax_backward, .logits = logits, .labels = labels, .lse = lse, .entropy = entropy,
        .g_logprob = g, .dlogits = dlogits, .inv_temperature = 2);
    EXPECT(dlogits, 1e-14, 0.5, -1.5, 0.5, 0.5, 0, 0, 0, 0);
}

static void loss_and_argmax(void **state) {
    (void)state;
    VECTOR(logprob, -1, -2, -3);
    IDS(labels, 4, -1, 0);
    float weight_data[] = {1, 1, 0.5f};
    struct ax_tensor weight = ax_tensor_1d(AX_F32, weight_data, 3);
    VECTOR(g, 9, 9, 9);
    struct ax_step_scalars s = {.loss = 1, .inv_weight = 0.5};
    RUN(nll_loss, .logprob = logprob, labels, weight, g, &s);
    assert_true(s.loss == 1 + 0.5 + 0.75);
    EXPECT(g, 0, -0.5, 0, -0.25);
    s.loss = 0;
    RUN(nll_loss, .logprob = logprob, labels, weight, g, &s, .dynamic = true);
    assert_true(fabs(s.loss - (0.5 * exp(-1) + 0.75 * exp(-3))) < 1e-15);
    EXPECT(g, 1e-15, -0.5 * exp(-1), 0, -0.25 * exp(-3));
    /* (p, 1 − p) of p = 0.75, none, and 0.125: the two log-probs are logprob and 2·mean − logprob */
    VECTOR(mean, -1.5, -9, -4);
    VECTOR(g_mean, 9, 9, 9);
    float target_data[] = {0.75f, 0.5f, 0.125f};
    const struct ax_tensor targets = ax_tensor_1d(AX_F32, target_data, 3);
    s.loss = 0;
    RUN(nll_loss, .logprob = logprob, labels, weight, g, &s, .mean_logprob = mean, .g_mean = g_mean,
        .targets = targets);
    assert_true(s.loss == 0.5 * (0.75 * 1 + 0.25 * 2) + 0.25 * (0.875 * 3 + 0.125 * 5));
    EXPECT(g, 0, -0.25, 0, -0.1875);
    EXPECT(g_mean, 0, -0.25, 0, -0.0625);
    /* how many of the labels are likelier than not */
    VECTOR(sure, -0.69, 0, -0.7);
    struct ax_step_measures measures = {.sum = {1}, .of = {1}};
    RUN(nll_loss, .logprob = sure, labels, weight, g, &s, .mean_logprob = mean, .g_mean = g_mean,
        .targets = targets, .measures = &measures);
    assert_true(measures.sum[0] == 2 && measures.of[0] == 3);
    MATRIX(logits, 2, 4, 1, 5, 5, 2, -3, -4, -3, -3);
    IDS(index, 9, 9);
    RUN(argmax, .logits = logits, .index = index);
    assert_int_equal(index_data[0], 1);
    assert_int_equal(index_data[1], 0);
}

/* Sums over the rows with labels, weighted. */
static void distill_loss(void **state) {
    (void)state;
    VECTOR(logprob, -1, -2, -3);
    VECTOR(divergence, 4, 5, 6);
    VECTOR(entropy, 0.5, 7, 0.25);
    IDS(labels, 4, -1, 0);
    float weight_data[] = {1, 1, 0.5f};
    const struct ax_tensor weight = ax_tensor_1d(AX_F32, weight_data, 3);
    VECTOR(g, 9, 9, 9);
    VECTOR(g_divergence, 9, 9, 9);
    struct ax_step_scalars s = {.loss = 1, .inv_weight = 0.5};
    struct ax_step_measures m = {.sum = {1, 2, 3}, .of = {4, 5, 6}};
    RUN(distill_loss, logprob, divergence, labels, weight, g, g_divergence, 0.75, 0.25, &s, &m,
        {.data = NULL});
    assert_true(s.loss == 1 + 0.5 * (0.75 * (4 + 3) + 0.25 * (1 + 1.5)));
    assert_true(m.sum[0] == 1 + 7 && m.sum[1] == 2 + 2.5 && m.sum[2] == 3);
    assert_true(m.of[0] == 4 + 1.5 && m.of[1] == 5 + 1.5 && m.of[2] == 6);
    EXPECT(g, 0, -0.125, 0, -0.0625);
    EXPECT(g_divergence, 0, 0.375, 0, 0.1875);
    RUN(distill_loss, logprob, divergence, labels, weight, g, g_divergence, 0.75, 0.25, &s, &m,
        entropy);
    assert_true(m.sum[2] == 3 + 0.5 + 0.125 && m.of[2] == 6 + 1.5);
}

/* Over two logits, over all of fewer, and where one has all. */
static void top_entropy(void **state) {
    (void)state;
    MATRIX(logits, 3, 4, 1, 5, 5, 2, 3, 3, 3, 3, 900, 0, 0, 0);
    float weight_data[] = {1, 0.5f, 3}, out_data[] = {9, 9, 9};
    const struct ax_tensor weight = ax_tensor_1d(AX_F32, weight_data, 3),
                           out = ax_tensor_1d(AX_F32, out_data, 3);
    RUN(top_entropy, logits, weight, out, .k = 2, .alpha = 1, .inv_temperature = 1);
    EXPECT(out, 1e-7, log(2), 0.5 * log(2), 0);
    RUN(top_entropy, logits, weight, out, .k = 9, .alpha = 2, .inv_temperature = 0.5);
    const double e = exp(-2), f = exp(-1.5), all = 2 + e + f,
                 h = log(all) + (2 * e + 1.5 * f) / all;
    EXPECT(out, 1e-6, h * h, 0.5 * log(4) * log(4), 0);
    RUN(top_entropy, logits, weight, out, .k = 1, .alpha = 0, .inv_temperature = 1);
    EXPECT(out, 0, 1, 0.5, 3); /* 0⁰ = 1: weights as they are */
}

static void top_logits(void **state) {
    (void)state;
    MATRIX(logits, 2, 4, 1, 5, 5, 2, 3, -3, 9, 0);
    MATRIX(two, 2, 2, 0, 0, 0, 0);
    MATRIX(six, 2, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    RUN(top_logits, logits, two);
    EXPECT(two, 0, 5, 5, 9, 3);
    RUN(top_logits, logits, six);
    const double want[] = {5, 5, 2, 1, -INFINITY, -INFINITY, 9, 3, 0, -3, -INFINITY, -INFINITY};
    assert_memory_equal(six_data, want, sizeof want);
}

/* Probabilities 0.4, 0.3, 0.2, 0.1: what each filter leaves, and the penalty's choice. */
static void sampling(void **state) {
    (void)state;
    static const struct {
        struct ax_sample with;
        double left[4];
    } cases[] = {
        {{.temperature = 1}, {0.4, 0.3, 0.2, 0.1}},
        {{.temperature = 0.5}, {16. / 30, 9. / 30, 4. / 30, 1. / 30}},
        {{.temperature = 1, .top_k = 2}, {4. / 7, 3. / 7, 0, 0}},
        {{.temperature = 1, .top_p = 0.6}, {4. / 7, 3. / 7, 0, 0}},
        {{.temperature = 1, .top_k = 2, .top_p = 0.5}, {1, 0, 0, 0}}, /* 4/7 is enough */
        {{.temperature = 1, .min_p = 0.45}, {4. / 9, 3. / 9, 2. / 9, 0}},
        {{.temperature = 1, .min_p = 1}, {1, 0, 0, 0}},
    };
    MATRIX(logits, 1, 4, log(0.4), log(0.3), log(0.2), log(0.1));
    MATRIX(shares, 1, 4, 9, 9, 9, 9);
    IDS(keys, 1, 2, 3, 4);
    IDS(context, 0, -1, 1);
    IDS(index, 9);
    keys = ax_tensor_2d(AX_I32, keys.data, 1, 4);
    context = ax_tensor_2d(AX_I32, context.data, 1, 3);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct ax_sample *w = &cases[i].with;
        RUN(sample, .logits = logits, .keys = keys, .index = index, .shares = shares,
            .temperature = w->temperature, .top_k = w->top_k, .top_p = w->top_p, .min_p = w->min_p);
        EXPECT(shares, 1e-14, cases[i].left[0], cases[i].left[1], cases[i].left[2],
               cases[i].left[3]);
        assert_true(cases[i].left[index_data[0]] > 0);
    }
    RUN(sample, .logits = logits, .keys = keys, .index = index);
    assert_int_equal(index_data[0], 0);
    RUN(sample, .logits = logits, .keys = keys, .context = context, .index = index,
        .repetition_penalty = 2); /* log 0.4 becomes log 0.16; what follows −1 is not penalized */
    assert_int_equal(index_data[0], 1);
}

static void clipping(void **state) {
    (void)state;
    struct ax_step_scalars s = {.max_norm = 1, .inv_weight = 1, .sumsq = 7};
    VECTOR(grad, 1, -2, 2);
    RUN(sumsq, grad, &s);
    assert_true(s.sumsq == 16);
    RUN(clip, &s);
    assert_true(s.grad_norm == 4 && s.clip == 1 / (4 + 1e-6) && s.skip == 0);
    s.max_norm = 5;
    RUN(clip, &s);
    assert_true(s.clip == 1);
    s.max_norm = 0; /* off */
    s.sumsq = 1e9;
    RUN(clip, &s);
    assert_true(s.clip == 1);
    s.inv_weight = 0; /* nothing trained */
    RUN(clip, &s);
    assert_int_equal(s.skip, 1);
    s = (struct ax_step_scalars){.max_norm = 1, .inv_weight = 1, .sumsq = INFINITY};
    RUN(clip, &s);
    assert_int_equal(s.skip, 1);
    s.sumsq = NAN;
    RUN(clip, &s);
    assert_int_equal(s.skip, 1);
    s.sumsq = 1;
    s.loss = INFINITY; /* a token of probability 0: the gradient is finite */
    RUN(clip, &s);
    assert_int_equal(s.skip, 1);
    s.loss = s.hold_above = 2;
    RUN(clip, &s);
    assert_int_equal(s.skip, 0);
    s.hold_above = 1.9; /* the host looks at it first */
    RUN(clip, &s);
    assert_int_equal(s.skip, 1);
}

/* Into two rows of three, columns 10 to 12 of all; ids of other columns are another shard's. */
static void likeliest_to_their_columns(void **state) {
    (void)state;
    MATRIX(logits, 3, 3, 1, 2, 3, 4, 5, 6, 7, 8, 9);
    int32_t ids_data[] = {10, 9, 12, 13, -1, 11, 10, 12, 11};
    float values_data[] = {-1, -2, -3, -4, -5, -6, -7, -8, -9};
    const struct ax_tensor ids = ax_tensor_2d(AX_I32, ids_data, 2, 3),
                           values = ax_tensor_2d(AX_F32, values_data, 2, 3);
    RUN(scatter_topk, .logits = ax_tensor_rows(&logits, 0, 2), .ids = ids, .values = values,
        .first_col = 10);
    EXPECT(logits, 0, -1, 2, -3, 4, -6, 6, 7, 8, 9);
}

static void steps_begin(void **state) {
    (void)state;
    struct ax_step_scalars s = {.weight = 4, .loss = 1, .aux_loss = 2, .sumsq = 3, .step = 6};
    RUN(begin_step, &s, false);
    assert_true(s.inv_weight == 0.25 && s.loss == 0 && s.aux_loss == 0 && s.sumsq == 0);
    assert_true(s.step == 7 && s.skip == 0);
    RUN(begin_step, &s, true); /* without an update */
    assert_int_equal(s.step, 7);
    s.skip = 1; /* the last one was skipped */
    s.weight = 0;
    RUN(begin_step, &s, false);
    assert_true(s.step == 7 && s.skip == 0 && s.inv_weight == 0);
    s.weight = NAN;
    RUN(begin_step, &s, false);
    assert_true(s.step == 8 && s.inv_weight == 0);
}

/* At the first step m/(1−β₁) = g and v/(1−β₂) = g², so w moves by lr·g/(|g| + eps) after decay. */
static void adamw_by_hand(void **state) {
    (void)state;
    struct ax_step_scalars s = {.lr = 0.1, .clip = 0.5, .step = 1};
    VECTOR(w, 2, 2);
    VECTOR(grad, 6, -8);
    VECTOR(m, 0, 0);
    VECTOR(v, 0, 0);
    VECTOR(copy, 9, 9);
    RUN(adamw, .master = w, grad, m, v, copy, 0.9, 0.99, 1, 0.5, &s);
    EXPECT(m, 1e-15, 0.3, -0.4);
    EXPECT(v, 1e-15, 0.09, 0.16);
    EXPECT(w, 1e-14, 2 * 0.95 - 0.1 * 3 / 4, 2 * 0.95 + 0.1 * 4 / 5);
    EXPECT(grad, 0, 6, -8);
    EXPECT(copy, 0, w_data[0], w_data[1]);
    s.skip = 1;
    double before = w_data[0];
    grad_data[0] = NAN;
    RUN(adamw, .master = w, grad, m, v, copy, 0.9, 0.99, 1, 0.5, &s);
    assert_true(w_data[0] == before && isnan(grad_data[0]));
    EXPECT(m, 1e-15, 0.3, -0.4);
}

static void sgd_by_hand(void **state) {
    (void)state;
    struct ax_step_scalars s = {.lr = 0.5, .clip = 1, .step = 1};
    VECTOR(w, 10);
    VECTOR(grad, 3);
    VECTOR(buf, 777); /* not read at the first step */
    RUN(sgd, .master = w, .grad = grad, .momentum_buffer = buf, .momentum = 0.5,
        .weight_decay = 0.1, .scalars = &s);
    EXPECT(buf, 0, 4);
    EXPECT(w, 0, 8);
    s.step = 2;
    grad_data[0] = 2;
    RUN(sgd, .master = w, .grad = grad, .momentum_buffer = buf, .momentum = 0.5, .weight_decay = 0,
        .nesterov = true, .scalars = &s);
    EXPECT(buf, 0, 4); /* 0.5·4 + 2 */
    EXPECT(w, 0, 8 - 0.5 * (2 + 0.5 * 4));
    grad_data[0] = 1;
    RUN(sgd, .master = w, .grad = grad, .scalars = &s);
    EXPECT(w, 0, 5.5);
    EXPECT(grad, 0, 1);
}

static int start(void **state) {
    (void)state;
    machine_open(&ref, "ref", 1);
    return 0;
}

static int stop(void **state) {
    (void)state;
    machine_close(&ref);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gemm_by_hand),
        cmocka_unit_test(gemm_rounds_once),
        cmocka_unit_test(sums_add_to_what_is_there),
        cmocka_unit_test(rmsnorm_rounds_in_between),
        cmocka_unit_test(rows_are_centered),
        cmocka_unit_test(rows_are_as_large_as_others),
        cmocka_unit_test(rows_become_sparse),
        cmocka_unit_test(unknown_tokens_have_the_first_row),
        cmocka_unit_test(attention_by_hand),
        cmocka_unit_test(softmax_of_even_logits),
        cmocka_unit_test(loss_and_argmax),
        cmocka_unit_test(distill_loss),
        cmocka_unit_test(top_entropy),
        cmocka_unit_test(top_logits),
        cmocka_unit_test(likeliest_to_their_columns),
        cmocka_unit_test(sampling),
        cmocka_unit_test(clipping),
        cmocka_unit_test(steps_begin),
        cmocka_unit_test(adamw_by_hand),
        cmocka_unit_test(sgd_by_hand),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
