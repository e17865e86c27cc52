/* The cpu backend's ops of distillation on every instruction set of this machine, against plain double
 * loops: each divergence, the vocabulary in one piece and in shards, temperature, rows without label,
 * tokens that one model or both give no probability, 1, 2 and 4 threads with equal bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/kernels/isa.h"

enum { T = 9, V = 4099, STUDENT_MASKED = 3, TEACHER_MASKED = 4, BOTH_MASKED = 5, EQUAL = 6 };

struct models {
    struct ax_tensor logits, teacher, labels, nll_lse, lse, teacher_lse, g_logprob, g_divergence;
    double beta, temper;
};

static double naive_lse(const struct ax_tensor *z, int64_t t, double temper) {
    double sum = 0;
    for (int64_t c = 0; c < V; c++)
        sum += exp(get(z, t, c) * temper);
    return log(sum);
}

static struct models some_models(enum ax_dtype dtype, double beta, double temper) {
    struct models m = {.beta = beta, .temper = temper};
    struct ax_tensor *const lines[] = {&m.nll_lse, &m.lse, &m.teacher_lse, &m.g_logprob,
                                       &m.g_divergence};
    m.logits = grid(dtype, T, V, 3);
    m.teacher = grid(dtype, T, V, 5);
    m.labels = line(AX_I32, T);
    for (int i = 0; i < 5; i++)
        *lines[i] = line(AX_F32, T);
    randomize(&m.logits, 6, 0);
    randomize(&m.teacher, 6, 1);
    randomize(&m.g_logprob, 1, 0);
    randomize(&m.g_divergence, 1, 0);
    for (int64_t c = 0; c < V; c++) {
        set(&m.teacher, EQUAL, c, get(&m.logits, EQUAL, c));
        if (c % 3 == 1) {
            set(&m.logits, STUDENT_MASKED, c, -INFINITY);
            set(&m.teacher, TEACHER_MASKED, c, -INFINITY);
            set(&m.logits, BOTH_MASKED, c, -INFINITY);
            set(&m.teacher, BOTH_MASKED, c, -INFINITY);
        }
    }
    for (int64_t t = 0; t < T; t++) {
        set(&m.labels, t, 0, t % 4 == 2 ? -1 : (double)(t * 3001 % V));
        set(&m.nll_lse, t, 0, naive_lse(&m.logits, t, 1));
        set(&m.lse, t, 0, naive_lse(&m.logits, t, temper));
        set(&m.teacher_lse, t, 0, naive_lse(&m.teacher, t, temper));
    }
    return m;
}

struct results {
    struct ax_tensor parts, divergence, student_kl, dlogits;
};

/* In `shards` shards of unequal width. */
static struct results run(const struct isa *isa, int threads, const struct models *m,
                          enum ax_dtype to, int64_t shards) {
    static const int64_t bounds[2][4] = {{0, V}, {0, 2000, 2001, V}};
    const int64_t *first = bounds[shards > 1];
    struct results r = {grid(AX_F32, shards * T, 2, 0), line(AX_F32, T), line(AX_F32, T), {0}};
    const bool over = m->logits.dtype == AX_F32 && shards == 1;
    const struct ax_tensor copy = clone(&m->logits), *from = &copy;
    r.dlogits = over || to == copy.dtype ? ax_tensor_over(&copy, to) : grid(to, T, V, 1);
    for (int64_t s = 0; s < shards; s++)
        RUN(isa, threads, divergence, ax_tensor_cols(from, first[s], first[s + 1] - first[s]),
            ax_tensor_cols(&m->teacher, first[s], first[s + 1] - first[s]), m->lse, m->teacher_lse,
            ax_tensor_rows(&r.parts, s * T, T), m->beta, m->temper);
    RUN(isa, threads, divergence_merge, ax_tensor_3d(AX_F32, r.parts.data, shards, T, 2),
        r.divergence, r.student_kl, m->beta);
    for (int64_t s = 0; s < shards; s++) {
        const int64_t width = first[s + 1] - first[s];
        RUN(isa, threads, distill_backward, ax_tensor_cols(from, first[s], width),
            ax_tensor_cols(&m->teacher, first[s], width), m->labels, m->nll_lse, m->lse,
            m->teacher_lse, r.student_kl, m->g_logprob, m->g_divergence,
            ax_tensor_cols(&r.dlogits, first[s], width), first[s], m->beta, m->temper);
    }
    return r;
}

static double log_prob(const struct ax_tensor *z, const struct ax_tensor *lse, int64_t t, int64_t c,
                       double temper) {
    return fmax(-1024, get(z, t, c) * temper - get(lse, t, 0));
}

/* As it is written; where both are 0, so is whatever it is multiplied by. */
static double log_mixture(double s, double t, double beta) {
    if (beta == 0 || beta == 1)
        return beta == 0 ? s : t;
    return fmax(-1024, log((1 - beta) * exp(s) + beta * exp(t)));
}

static void assert_row(const struct isa *isa, const struct models *m, const struct results *r,
                       int64_t t) {
    double of_teacher = 0, of_student = 0, size = 1;
    for (int64_t c = 0; c < V; c++) {
        const double s = log_prob(&m->logits, &m->lse, t, c, m->temper);
        const double y = log_prob(&m->teacher, &m->teacher_lse, t, c, m->temper);
        const double mix = log_mixture(s, y, m->beta);
        of_teacher += exp(y) * (y - mix);
        of_student += exp(s) * (s - mix);
        size += (exp(s) + exp(y)) * (fabs(s) + fabs(y) + fabs(mix));
    }
    const double d = m->beta == 0   ? of_teacher
                     : m->beta == 1 ? of_student
                                    : m->beta * of_teacher + (1 - m->beta) * of_student;
    assert_near(isa, "divergence", &r->divergence, t, 0, d, size);
    assert_near(isa, "student_kl", &r->student_kl, t, 0, of_student, size);
    const int64_t label = (int64_t)get(&m->labels, t, 0);
    const double g = label < 0 ? 0 : get(&m->g_logprob, t, 0);
    const double scale = get(&m->g_divergence, t, 0) * m->temper;
    for (int64_t c = 0; c < V; c++) {
        const double s = log_prob(&m->logits, &m->lse, t, c, m->temper);
        const double y = log_prob(&m->teacher, &m->teacher_lse, t, c, m->temper);
        const double p = exp(get(&m->logits, t, c) - get(&m->nll_lse, t, 0));
        const double steep = s - log_mixture(s, y, m->beta) - of_student;
        const double dz = m->beta == 0   ? exp(s) - exp(y)
                          : m->beta == 1 ? exp(s) * steep
                                         : (1 - m->beta) * exp(s) * steep;
        const double want = g * ((c == label ? 1 : 0) - p) + scale * dz;
        assert_near(isa, "dlogits", &r->dlogits, t, c, want,
                    fabs(want) + fabs(g) * p * 10 + fabs(scale) * (exp(s) + exp(y)) * size + 1e-3);
    }
}

static void check_distill(const struct isa *isa, enum ax_dtype real) {
    static const struct {
        double beta, temper;
        enum ax_dtype logits;
        int64_t shards;
    } cases[] = {{0, 1, AX_F32, 1},     {0, 1 / 1.3, AX_BF16, 3},   {0.3, 1, AX_F32, 3},
                 {0.9, 0.5, AX_F32, 1}, {0.5, 1 / 0.7, AX_BF16, 1}, {1, 1, AX_F32, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct models m = some_models(cases[i].logits, cases[i].beta, cases[i].temper);
        struct results first = {0};
        for (int k = 0; k < 3; k++) {
            const struct results r = run(isa, THREADS[k], &m, real, cases[i].shards);
            if (k == 0)
                first = r;
            assert_same_bits(&r.divergence, &first.divergence);
            assert_same_bits(&r.dlogits, &first.dlogits);
        }
        for (int64_t t = 0; t < T; t++)
            assert_row(isa, &m, &first, t);
        assert_near(isa, "none", &first.divergence, EQUAL, 0, 0, 1);
        release();
    }
}

static void check_loss(const struct isa *isa, enum ax_dtype real) {
    (void)real;
    const struct models m = some_models(AX_F32, 0, 1);
    struct ax_tensor logprob = line(AX_F32, T), divergence = line(AX_F32, T),
                     weight = line(AX_F32, T), g = line(AX_F32, T), d = line(AX_F32, T),
                     entropy = line(AX_F32, T);
    struct ax_step_scalars s = {.inv_weight = 1.0 / 12, .loss = 2};
    struct ax_step_measures sums = {.sum = {3, 4, 7}, .of = {5, 6, 8}};
    randomize(&logprob, 3, -3);
    randomize(&divergence, 1, 1);
    randomize(&weight, 1, 1);
    randomize(&entropy, 1, 1);
    set(&entropy, 2, 0, NAN);
    set(&logprob, 2, 0, NAN); /* no label: not looked at */
    set(&divergence, 2, 0, NAN);
    double kd = 0, ce = 0, total = 0, spread = 0;
    RUN(isa, 2, distill_loss, logprob, divergence, m.labels, weight, g, d, 0.75, 0.5, &s, &sums,
        entropy);
    for (int64_t t = 0; t < T; t++) {
        const double w = get(&m.labels, t, 0) >= 0 ? get(&weight, t, 0) : 0;
        total += w;
        kd += w > 0 ? w * get(&divergence, t, 0) : 0;
        ce -= w > 0 ? w * get(&logprob, t, 0) : 0;
        spread += w > 0 ? w * get(&entropy, t, 0) : 0;
        assert_near(isa, "g_logprob", &g, t, 0, -0.5 * w / 12, w);
        assert_near(isa, "g_divergence", &d, t, 0, 0.75 * w / 12, w);
    }
    assert_true(fabs(s.loss - (2 + (0.75 * kd + 0.5 * ce) / 12)) < 1e-12);
    assert_true(fabs(sums.sum[0] - (3 + kd)) < 1e-12 && fabs(sums.sum[1] - (4 + ce)) < 1e-12);
    assert_true(fabs(sums.of[0] - (5 + total)) < 1e-12 && fabs(sums.of[1] - (6 + total)) < 1e-12);
    assert_true(fabs(sums.sum[2] - (7 + spread)) < 1e-12);
    assert_true(fabs(sums.of[2] - (8 + total)) < 1e-12);
}

enum { TOP = 5 };

/* Logits of TOP tokens, and for all others a number so low that they have no probability; in shards,
 * with ids that are no token. Everything stays finite; the divergence is that over the TOP tokens. */
static void check_topk(const struct isa *isa, enum ax_dtype real) {
    static const int64_t first[] = {0, 2000, 2001, V};
    struct models m = some_models(AX_F32, 0, 0.5);
    struct ax_tensor ids = line(AX_I32, T * TOP), values = line(AX_F32, T * TOP);
    (void)real;
    ids = ax_tensor_2d(AX_I32, ids.data, T, TOP);
    values = ax_tensor_2d(AX_F32, values.data, T, TOP);
    randomize(&values, 3, -3);
    for (int64_t t = 0; t < T; t++) { /* both sides of each border */
        const double of_row[TOP] = {1999, 2000, t % 2 ? -1 : 2001, (double)(7 * t),
                                    (double)(V - 1 - t)};
        for (int j = 0; j < TOP; j++)
            set(&ids, t, j, of_row[j]);
    }
    for (int64_t t = 0; t < T; t++)
        for (int64_t c = 0; c < V; c++)
            set(&m.teacher, t, c, -1e30);
    for (int s = 0; s < 3; s++)
        RUN(isa, 2, scatter_topk, ax_tensor_cols(&m.teacher, first[s], first[s + 1] - first[s]),
            ids, values, first[s]);
    for (int64_t t = 0; t < T; t++) {
        double sum = 0;
        for (int j = 0; j < TOP; j++)
            sum += get(&ids, t, j) >= 0 ? exp(get(&values, t, j) * m.temper) : 0;
        for (int64_t c = 0; c < V; c++) {
            double want = -1e30;
            for (int j = 0; j < TOP; j++)
                want = get(&ids, t, j) == (double)c ? get(&values, t, j) : want;
            assert_near(isa, "stored", &m.teacher, t, c, want, fabs(want));
        }
        set(&m.teacher_lse, t, 0, log(sum));
    }
    const struct results r = run(isa, 2, &m, AX_F32, 3);
    for (int64_t t = 0; t < T; t++) {
        double of_teacher = 0;
        for (int j = 0; j < TOP && t != STUDENT_MASKED && t != BOTH_MASKED; j++) {
            if (get(&ids, t, j) < 0)
                continue;
            const double y = get(&values, t, j) * m.temper - get(&m.teacher_lse, t, 0);
            of_teacher +=
                exp(y) * (y - log_prob(&m.logits, &m.lse, t, (int64_t)get(&ids, t, j), m.temper));
        }
        assert_true(isfinite(get(&r.divergence, t, 0)));
        if (t != STUDENT_MASKED && t != BOTH_MASKED)
            assert_near(isa, "divergence of stored", &r.divergence, t, 0, of_teacher, 30);
        for (int64_t c = 0; c < V; c++)
            assert_true(isfinite(get(&r.dlogits, t, c)));
    }
}

static void divergences(void **state) {
    (void)state;
    for_each_isa(check_distill);
}

static void stored(void **state) {
    (void)state;
    for_each_isa(check_topk);
}

static void losses(void **state) {
    (void)state;
    for_each_isa(check_loss);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(divergences), cmocka_unit_test(stored),
                                       cmocka_unit_test(losses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
