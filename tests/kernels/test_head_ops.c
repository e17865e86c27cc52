/* The cpu backend's softmax head, nll_loss, argmax and top_entropy on every instruction set of this machine,
 * against plain double loops: vocabulary in one piece and in shards, temperature, rows without
 * label, rows of equal, huge and infinite logits and rows that are almost certain, which keep what is left of
 * a float's digits, 1, 2 and 4 threads with equal bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/mem.h"
#include "kernels/operands.h"
#include "tests/kernels/isa.h"

enum { T = 19, V = 4099, EQUAL = 3, MASKED = 4, HUGE_ROW = 5, MASKED_SHARD = 6 };
/* Almost certain, of a logit far above the others: at the label, beside it, of large numbers, without a
 * label; and of two that are equal. */
enum { SURE = 8, WRONG, SURE_LARGE, SURE_UNLABELED, TWO, FIRST_SURE = SURE };
static const int64_t sure_cols[] = {2113, 30, 4090, 2000, 7};

static struct ax_tensor some_logits(enum ax_dtype dtype) {
    struct ax_tensor x = grid(dtype, T, V, 3);
    randomize(&x, 8, 0);
    for (int64_t c = 0; c < V; c++) {
        set(&x, EQUAL, c, 2.5);
        set(&x, HUGE_ROW, c, c % 5 == 0 ? 3e4 : -3e30);
        if (c % 3 == 1)
            set(&x, MASKED, c, -INFINITY);
        if (c < 2000)
            set(&x, MASKED_SHARD, c, -INFINITY);
        set(&x, SURE_LARGE, c, get(&x, SURE_LARGE, c) - 700);
    }
    for (int i = 0; i < 5; i++)
        set(&x, FIRST_SURE + i, sure_cols[i], FIRST_SURE + i == SURE_LARGE ? -680 : 17 + 3 * i);
    set(&x, TWO, 3000, 29);
    return x;
}

static struct ax_tensor some_labels(void) {
    struct ax_tensor labels = line(AX_I32, T);
    for (int64_t t = 0; t < T; t++)
        set(&labels, t, 0, t % 4 == 3 ? -1 : (double)(t * 3001 % V));
    set(&labels, MASKED_SHARD, 0, 4098);
    set(&labels, MASKED, 0, 0);
    set(&labels, SURE, 0, (double)sure_cols[0]);
    set(&labels, SURE_LARGE, 0, (double)sure_cols[2]);
    return labels;
}

/* One row's distribution, in double, relative to the largest logit; without one of these, exponentials
 * sum to `rest`. `spread` is the mean distance of what they are of: relative errors are of its order. */
struct row {
    double max, rest, log_sum, entropy, logprob, spread;
    int64_t label; /* −1 = none */
};

static double distance(const struct ax_tensor *logits, int64_t t, int64_t c, double max,
                       double temper) {
    return (get(logits, t, c) - max) * temper;
}

static struct row naive_row(const struct ax_tensor *logits, const struct ax_tensor *labels,
                            int64_t t, double temper) {
    double max = -INFINITY, rest = -1, moment = 0;
    for (int64_t c = 0; c < V; c++)
        max = fmax(max, get(logits, t, c));
    for (int64_t c = 0; c < V; c++)
        rest += distance(logits, t, c, max, temper) == 0;
    for (int64_t c = 0; c < V; c++) {
        const double d = distance(logits, t, c, max, temper);
        rest += d < 0 ? exp(d) : 0;
        moment += isinf(d) ? 0 : exp(d) * d;
    }
    struct row r = {.max = max, .rest = rest, .label = (int64_t)get(labels, t, 0)};
    r.log_sum = log1p(rest);
    r.entropy = r.log_sum - moment / (1 + rest);
    r.logprob = r.label < 0 ? 0 : distance(logits, t, r.label, max, temper) - r.log_sum;
    r.spread = rest > 0 ? 1 - moment / rest : 1;
    return r;
}

struct head {
    struct ax_tensor logprob, lse, lse_rest, entropy, dlogits, stats;
};

/* Everything the head does, in `shards` shards of unequal width. */
static struct head run_head(const struct isa *isa, int threads, const struct ax_tensor *logits,
                            const struct ax_tensor *labels, const struct ax_tensor g[3],
                            enum ax_dtype out, int64_t shards, double temper) {
    static const int64_t bounds[2][4] = {{0, V}, {0, 2000, 2001, V}};
    const int64_t *first = bounds[shards > 1];
    struct head h = {.logprob = line(AX_F32, T),
                     .lse = line(AX_F32, T),
                     .lse_rest = line(AX_F32, T),
                     .entropy = line(AX_F32, T)};
    h.stats = grid(AX_F32, shards * T, AX_SOFTMAX_STATS, 0);
    const bool over = logits->dtype == AX_F32 && shards == 1;
    const struct ax_tensor copy = clone(logits);
    h.dlogits = over || out == logits->dtype ? ax_tensor_over(&copy, out) : grid(out, T, V, 1);
    const struct ax_tensor *from = &copy;
    for (int64_t s = 0; s < shards; s++) {
        RUN(isa, threads, softmax_stats, ax_tensor_cols(from, first[s], first[s + 1] - first[s]),
            *labels, ax_tensor_rows(&h.stats, s * T, T), first[s], temper);
    }
    RUN(isa, threads, softmax_merge,
        .stats = ax_tensor_3d(AX_F32, h.stats.data, shards, T, AX_SOFTMAX_STATS), *labels,
        h.logprob, h.lse, h.entropy, .lse_rest = h.lse_rest, .inv_temperature = temper);
    for (int64_t s = 0; s < shards; s++) {
        int64_t width = first[s + 1] - first[s];
        RUN(isa, threads, softmax_backward, .logits = ax_tensor_cols(from, first[s], width),
            *labels, h.lse, h.entropy, g[0], g[1], g[2],
            ax_tensor_cols(&h.dlogits, first[s], width), first[s], temper, .lse_rest = h.lse_rest);
    }
    return h;
}

static void assert_head(const struct isa *isa, const struct head *h, const struct ax_tensor *logits,
                        const struct ax_tensor *labels, const struct ax_tensor g[3],
                        double temper) {
    for (int64_t t = 0; t < T; t++) {
        const struct row r = naive_row(logits, labels, t, temper);
        const double lse = r.max * temper + r.log_sum;
        assert_near(isa, "lse", &h->lse, t, 0, lse, fabs(lse) + 1e-30);
        assert_near(isa, "entropy", &h->entropy, t, 0, r.entropy, r.entropy * r.spread);
        if (isinf(r.logprob))
            assert_true(get(&h->logprob, t, 0) == r.logprob);
        else
            assert_near(isa, "logprob", &h->logprob, t, 0, r.logprob,
                        fabs(r.logprob) + r.log_sum * r.spread);
        double g_logprob = r.label < 0 ? 0 : get(&g[0], t, 0);
        double g_lse = g[1].data != NULL ? get(&g[1], t, 0) : 0;
        double g_entropy = g[2].data != NULL ? get(&g[2], t, 0) : 0;
        for (int64_t c = 0; c < V; c++) {
            const double d = distance(logits, t, c, r.max, temper) - r.log_sum, p = exp(d);
            const double likely = g_logprob * (c == r.label ? -expm1(d) : -p), even = g_lse * p;
            const double steep = p > 0 ? -g_entropy * p * (d + r.entropy) : 0;
            const double size = fabs(likely) + fabs(even) +
                                (p > 0 ? fabs(g_entropy) * p * (fabs(d) + r.entropy) : 0);
            const double far = isinf(d) ? 1 : 1 + fabs(d) + r.spread;
            assert_near(isa, "dlogits", &h->dlogits, t, c, temper * (likely + even + steep),
                        temper * size * far + 1e-30);
        }
    }
}

static void check_head(const struct isa *isa, enum ax_dtype real) {
    struct ax_tensor labels = some_labels(), g[3];
    for (int i = 0; i < 3; i++) {
        g[i] = line(AX_F32, T);
        randomize(&g[i], 1, 0);
    }
    static const struct {
        enum ax_dtype logits;
        int64_t shards;
        double temper;
        bool all_gradients;
    } cases[] = {{AX_F32, 1, 1, false},
                 {AX_F32, 3, 1 / 0.7, true},
                 {AX_BF16, 1, 1 / 1.3, true},
                 {AX_BF16, 3, 1, false}};
    for (int i = 0; i < 4; i++) {
        struct ax_tensor logits = some_logits(cases[i].logits);
        if (!cases[i].all_gradients) {
            g[1].data = NULL;
            g[2].data = NULL;
        }
        struct head first = {0};
        for (int k = 0; k < 3; k++) {
            struct head h = run_head(isa, THREADS[k], &logits, &labels, g, real, cases[i].shards,
                                     cases[i].temper);
            if (k == 0) {
                first = h;
                assert_head(isa, &h, &logits, &labels, g, cases[i].temper);
            }
            assert_same_bits(&h.stats, &first.stats);
            assert_same_bits(&h.logprob, &first.logprob);
            assert_same_bits(&h.lse_rest, &first.lse_rest);
            assert_same_bits(&h.entropy, &first.entropy);
            assert_same_bits(&h.dlogits, &first.dlogits);
        }
        for (int j = 1; j < 3; j++) {
            g[j] = line(AX_F32, T);
            randomize(&g[j], 1, 0);
        }
    }
}

/* With lse 0 and only g_lse = 1, dlogits = e^z: the vector exponential itself, over its range. */
static void check_exponential(const struct isa *isa, enum ax_dtype real) {
    (void)real;
    enum { N = 30000 };
    struct ax_tensor x = grid(AX_F32, 1, N, 0), y = grid(AX_F32, 1, N, 0), zero = line(AX_F32, 1);
    struct ax_tensor one = line(AX_F32, 1), label = line(AX_I32, 1), none = {0};
    set(&one, 0, 0, 1);
    set(&label, 0, 0, -1);
    randomize(&x, 96, -7); /* e^x from 0 and denormals up to the largest float */
    set(&x, 0, 0, 1e4);
    set(&x, 0, 1, -INFINITY);
    set(&x, 0, 2, NAN);
    set(&x, 0, 3, 0);
    RUN(isa, 1, softmax_backward, .logits = x, label, zero, zero, zero, one, none, y, 0, 1);
    for (int64_t i = 0; i < N; i++) {
        double want = exp(get(&x, 0, i)), got = get(&y, 0, i);
        int exponent;
        frexp(want, &exponent);
        double last_place = fmax(ldexp(1, exponent - 24), 0x1p-149);
        if (isnan(want) || isinf((float)want))
            assert_true(isnan(want) ? isnan(got) : got == INFINITY);
        else if (!(fabs(got - want) <= 1.5 * last_place))
            fail_msg("exp(%a) on %s: %a, expected %a", get(&x, 0, i), isa->name, got, want);
    }
}

/* Shapes and values at the edges; NaN must show in what depends on it. */
static void check_edges(const struct isa *isa, enum ax_dtype real) {
    struct ax_tensor x = grid(real, 4, 1, 2), labels = line(AX_I32, 4),
                     stats = grid(AX_F32, 4, AX_SOFTMAX_STATS, 0);
    struct ax_tensor lp = line(AX_F32, 4), lse = line(AX_F32, 4), ent = line(AX_F32, 4);
    struct ax_tensor g = line(AX_F32, 4), none = {0}, dx = grid(real, 4, 1, 0);
    set(&x, 0, 0, -7.5); /* a vocabulary of one: certain */
    set(&x, 1, 0, 1e30);
    set(&x, 2, 0, NAN);
    set(&x, 3, 0, INFINITY);
    for (int64_t t = 0; t < 4; t++)
        set(&g, t, 0, 1);
    RUN(isa, 1, softmax_stats, x, labels, stats, 0, 1);
    RUN(isa, 1, softmax_merge, .stats = ax_tensor_3d(AX_F32, stats.data, 1, 4, AX_SOFTMAX_STATS),
        labels, lp, lse, ent, .inv_temperature = 1);
    RUN(isa, 1, softmax_backward, .logits = x, labels, lse, ent, g, none, none, dx, 0, 1);
    for (int64_t t = 0; t < 2; t++) {
        assert_true(get(&lp, t, 0) == 0 && get(&ent, t, 0) == 0 && get(&dx, t, 0) == 0);
        assert_true(get(&lse, t, 0) == get(&x, t, 0));
    }
    for (int64_t t = 2; t < 4; t++)
        assert_true(isnan(get(&lp, t, 0)) && isnan(get(&lse, t, 0)) && isnan(get(&dx, t, 0)));
    /* a shard of nothing but −inf adds nothing, and a row none of whose outputs matters is 0 */
    set(&x, 0, 0, -INFINITY);
    set(&labels, 0, 0, -1);
    RUN(isa, 1, softmax_stats, x, labels, stats, 0, 1);
    assert_true(get(&stats, 0, 0) == -INFINITY && get(&stats, 0, 1) == 0 && get(&stats, 0, 2) == 0);
    set(&dx, 0, 0, 5);
    RUN(isa, 1, softmax_backward, .logits = x, labels, lse, ent, g, none, none, dx, 0, 1);
    assert_true(get(&dx, 0, 0) == 0);
}

static void check_argmax(const struct isa *isa, enum ax_dtype real) {
    struct ax_tensor x = some_logits(real), index = line(AX_I32, T);
    for (int64_t c = 0; c < V; c++) {
        set(&x, 7, c, -INFINITY);
        set(&x, 8, c, (double)c / 4096); /* in bf16: many equal largest ones */
    }
    set(&x, 9, V - 1, 100);
    set(&x, 10, 2047, 100);
    set(&x, 10, 2048, 100);
    for (int k = 0; k < 3; k++) {
        RUN(isa, THREADS[k], argmax, .logits = x, .index = index);
        for (int64_t t = 0; t < T; t++) {
            int64_t best = 0;
            for (int64_t c = 1; c < V; c++)
                best = get(&x, t, c) > get(&x, t, best) ? c : best;
            assert_int_equal((int64_t)get(&index, t, 0), best);
        }
    }
}

/* One after another, the tokens of a row come in order, each once, and then none. */
static void check_following(const struct isa *isa, enum ax_dtype real) {
    enum { FEW = 9 };
    struct ax_tensor x = grid(real, 2, FEW, 3), after = line(AX_I32, 2), index = line(AX_I32, 2);
    static const double z[2][FEW] = {{1, 3, 3, -2, 0, 3, 8, -2, 0.5},
                                     {-1, -INFINITY, -1, -1, -INFINITY, -5, -1, -1, -1}};
    static const int order[2][FEW] = {{6, 1, 2, 5, 0, 8, 4, 3, 7}, {0, 2, 3, 6, 7, 8, 5, 1, 4}};
    for (int64_t t = 0; t < 2; t++)
        for (int64_t c = 0; c < FEW; c++)
            set(&x, t, c, z[t][c]);
    RUN(isa, 2, argmax, .logits = x, .index = index);
    for (int i = 0; i <= FEW; i++) {
        for (int64_t t = 0; t < 2; t++) {
            assert_int_equal((int64_t)get(&index, t, 0), i < FEW ? order[t][i] : -1);
            set(&after, t, 0, get(&index, t, 0));
        }
        RUN(isa, 2, argmax, .logits = x, .index = index, .after = after);
    }
    assert_int_equal((int64_t)get(&index, 0, 0), -1); /* nothing follows nothing */
}

static void check_nll(const struct isa *isa, enum ax_dtype real) {
    (void)real;
    struct ax_tensor labels = some_labels(), logprob = line(AX_F32, T), weight = line(AX_F32, T);
    struct ax_tensor g = line(AX_F32, T);
    struct ax_step_scalars s = {.inv_weight = 1.0 / 12, .loss = 2};
    randomize(&logprob, 3, -3);
    randomize(&weight, 1, 1);
    set(&logprob, 3, 0, NAN); /* no label: not looked at */
    set(&logprob, MASKED, 0,
        -0.1); /* of labels likelier than not, and of others, there is one each */
    set(&logprob, SURE, 0, -2);
    double want = 2;
    for (int64_t t = 0; t < T; t++)
        if (get(&labels, t, 0) >= 0)
            want -= get(&weight, t, 0) * get(&logprob, t, 0) / 12;
    RUN(isa, 2, nll_loss, .logprob = logprob, labels, weight, g, &s);
    assert_true(fabs(s.loss - want) < 1e-12);
    for (int64_t t = 0; t < T; t++) {
        double slope = get(&labels, t, 0) >= 0 ? -get(&weight, t, 0) / 12 : 0;
        assert_near(isa, "g_logprob", &g, t, 0, slope, fabs(slope));
    }
    /* each times its probability, which the gradient takes for a constant */
    want = s.loss = 0;
    RUN(isa, 2, nll_loss, .logprob = logprob, labels, weight, g, &s, .dynamic = true);
    for (int64_t t = 0; t < T; t++) {
        double slope = 0;
        if (get(&labels, t, 0) >= 0)
            slope = -get(&weight, t, 0) * exp(get(&logprob, t, 0)) / 12;
        want += slope != 0 ? slope * get(&logprob, t, 0) : 0;
        assert_near(isa, "g_logprob, dynamic", &g, t, 0, slope, fabs(slope));
    }
    assert_true(fabs(s.loss - want) < 1e-12 * fabs(want));
    /* the share of labels that are likelier than not */
    struct ax_step_measures m = {.sum = {1}, .of = {1}};
    double right = 1, n = 1;
    for (int64_t t = 0; t < T; t++) {
        n += get(&labels, t, 0) >= 0;
        right += get(&labels, t, 0) >= 0 && get(&logprob, t, 0) > -log(2);
    }
    assert_true(right > 1 && right < n);
    RUN(isa, 2, nll_loss, .logprob = logprob, labels, weight, g, &s, .measures = &m);
    assert_true(m.sum[0] == right && m.of[0] == n);
}

/* The k-th largest is found by counting. */
static double naive_top(const struct ax_tensor *x, int64_t t, int64_t k, double temper) {
    double max = -INFINITY, sum = 0, entropy = 0;
    for (int64_t c = 0; c < V; c++)
        max = fmax(max, get(x, t, c));
    double *p;
    int64_t n = 0;
    assert_int_equal(ax_alloc(&p, V, sizeof *p), AX_OK);
    for (int64_t c = 0; c < V; c++) {
        int64_t larger = 0;
        for (int64_t d = 0; d < V && larger < k; d++)
            larger += get(x, t, d) > get(x, t, c) || (get(x, t, d) == get(x, t, c) && d < c);
        if (larger < k)
            sum += p[n++] = exp((get(x, t, c) - max) * temper);
    }
    for (int64_t i = 0; i < n; i++)
        entropy -= p[i] / sum * log(p[i] / sum + 1e-10);
    ax_free(p);
    return fmax(entropy, 0);
}

/* The i-th largest has at most i larger ones, and more than i that are not smaller. */
static void check_largest(const struct ax_tensor *x, int64_t t, const struct ax_tensor *out) {
    for (int64_t i = 0; i < out->shape[1]; i++) {
        int64_t larger = 0, not_smaller = 0;
        for (int64_t c = 0; c < V; c++) {
            larger += get(x, t, c) > get(out, t, i);
            not_smaller += get(x, t, c) >= get(out, t, i);
        }
        assert_true(larger <= i && not_smaller > i);
    }
}

static void check_top(const struct isa *isa, enum ax_dtype real) {
    struct ax_tensor x = some_logits(real), weight = line(AX_F32, T), out = line(AX_F32, T);
    randomize(&weight, 1, 1);
    for (int64_t c = 0; c < V; c++)
        set(&x, 8, c, (double)c / 256); /* each is larger than all before */
    for (int k = 0; k < 3; k++) {
        RUN(isa, THREADS[k], top_entropy, x, weight, out, .k = 20, .alpha = 0.5,
            .inv_temperature = 0.7);
        for (int64_t t = 0; t < T; t++) {
            double want = get(&weight, t, 0) * sqrt(naive_top(&x, t, 20, 0.7));
            assert_near(isa, "top_entropy", &out, t, 0, want, 1 + fabs(want));
        }
        const struct ax_tensor largest = grid(AX_F32, T, 20, 0);
        RUN(isa, THREADS[k], top_logits, x, largest);
        for (int64_t t = 0; t < T; t++)
            check_largest(&x, t, &largest);
    }
}

#define TEST(name)                                                                                 \
    static void name(void **state) {                                                               \
        (void)state;                                                                               \
        for_each_isa(check_##name);                                                                \
    }
TEST(head)
TEST(exponential)
TEST(edges)
TEST(argmax)
TEST(following)
TEST(nll)
TEST(top)

/* Some columns of all. */
static void columns_end_with_the_others(void **state) {
    float x[2 * 8] = {0};
    int32_t labels[2] = {0};
    struct ax_truncate a = {.all = ax_tensor_2d(AX_F32, x, 2, 8),
                            .labels = ax_tensor_1d(AX_I32, labels, 2),
                            .logits = ax_tensor_2d(AX_F32, x, 2, 3),
                            .first_col = 5,
                            .temperature = 1};
    (void)state;
    assert_null(ax_op_broken_rule(AX_OP_truncate, &a));
    a.first_col = 6;
    const char *rule = ax_op_broken_rule(AX_OP_truncate, &a);
    assert_true(rule && strstr(rule, "first_col"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(head),      cmocka_unit_test(exponential),
        cmocka_unit_test(edges),     cmocka_unit_test(argmax),
        cmocka_unit_test(following), cmocka_unit_test(nll),
        cmocka_unit_test(top),       cmocka_unit_test(columns_end_with_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
