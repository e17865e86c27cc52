/* Sampling: filters against a plain reference in double, draws against their shares, and the same
 * choice wherever a row stands. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "model/core/sample.h"
#include "parallel/runtime.h"

#define V    301
#define ROWS 5

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

struct test {
    struct ax_sampling o;
    double logits[ROWS * V];
    int rows;
    struct ax_sample_row row[ROWS];
    int draws; /* how often to choose; positions count up */
    /* out */
    int32_t *ids; /* [draws][rows] */
    double logprobs[ROWS];
    float shares[ROWS][V]; /* of the last choice; not if greedy */
    int64_t n_left[ROWS];
    bool unchanged; /* the logits, after all choices */
    uint64_t waits; /* of one choice */
};

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct test *t = ctx;
    struct ax_sampler s;
    struct ax_results results;
    struct ax_tensor logits = ax_tensor_2d(AX_F32, NULL, t->rows, V);
    struct ax_stack *scratch = &rt->arena.scratch;
    float before[ROWS * V], after[ROWS * V];
    const size_t bytes = ax_tensor_bytes(&logits);
    logits.data = ax_stack_push(&rt->arena.persistent, "logits", bytes);
    AX_TRY(ax_sampler_create(&s, &t->o, rt->q, scratch, AX_F32, t->rows, V, 0));
    ax_results_create(&results, rt->q, scratch, ax_choice_bytes(AX_F32, t->rows));
    struct ax_choice c = {.logits = logits, .rows = t->row, .logprobs = true};
    if (t->o.temperature > 0) {
        c.shares = logits;
        c.shares.data = ax_stack_push(scratch, "shares", bytes);
    }
    ax_convert(AX_F32, before, AX_F64, t->logits, (int64_t)t->rows * V);
    AX_TRY(ax_queue_write(rt->q, logits.data, before, bytes));
    for (int d = 0; d < (ax_runtime_planning(rt) ? 1 : t->draws); d++) {
        const uint64_t waits = rt->q->counters.waits;
        AX_TRY(ax_sampler_choose(&s, &results, &c));
        AX_TRY(ax_results_read(&results));
        t->waits = rt->q->counters.waits - waits;
        for (int i = 0; i < t->rows; i++) {
            t->ids[d * t->rows + i] = (int32_t)ax_results_get(&results, &c.index, i);
            t->logprobs[i] = ax_results_get(&results, &c.logprob, i);
            t->row[i].position++;
        }
    }
    if (t->o.temperature > 0)
        AX_TRY(ax_queue_read(rt->q, c.shares.data, t->shares, bytes, NULL));
    AX_TRY(ax_queue_read(rt->q, logits.data, after, bytes, NULL));
    t->unchanged = memcmp(before, after, bytes) == 0;
    ax_results_free(&results);
    ax_sampler_free(&s);
    ax_stack_release(&rt->arena.scratch, 0);
    return AX_OK;
}

static void run_on(struct test *t, const char *backend, int threads) {
    const struct ax_runtime_options ro = {.backend = backend, .threads = threads};
    t->draws = t->draws > 0 ? t->draws : 1;
    must(ax_alloc(&t->ids, (size_t)(t->draws * t->rows), sizeof *t->ids));
    must(ax_runtime_run(&ro, body, t, NULL));
    for (int i = 0; i < t->rows; i++) {
        t->row[i].position = 0;
        t->n_left[i] = 0;
        for (int c = 0; c < V; c++)
            t->n_left[i] += t->shares[i][c] > 0;
    }
}

static void run(struct test *t, int threads) {
    run_on(t, "cpu", threads);
}

static void random_logits(struct test *t, uint64_t seed) {
    const struct ax_rng_key key = {seed, 0, 0};
    t->rows = ROWS;
    for (int i = 0; i < ROWS * V; i++)
        t->logits[i] = (double)(float)(3 * (double)ax_rng_normal(key, (uint64_t)i));
    for (int i = 0; i < ROWS; i++)
        t->row[i] = (struct ax_sample_row){.stream = (uint64_t)i};
}

/* ---- the reference: one row, as the processors are described ---- */

static const double *order_by;
static int descending(const void *x, const void *y) {
    const double a = order_by[*(const int *)x], b = order_by[*(const int *)y];
    return a > b ? -1 : a < b;
}

static double share_of(double *p) {
    double sum = 0;
    for (int c = 0; c < V; c++)
        sum += p[c];
    for (int c = 0; c < V; c++)
        p[c] /= sum;
    return sum;
}

static void reference(const struct ax_sampling *o, const double *logits,
                      const struct ax_sample_row *row, double *p) {
    double z[V], most = -INFINITY;
    int order[V];
    memcpy(z, logits, sizeof z);
    for (int64_t i = 0; o->repetition_penalty > 0 && i < row->n_context; i++) {
        double *at = &z[row->context[i]];
        *at = *at < 0 ? *at * o->repetition_penalty : *at / o->repetition_penalty;
    }
    for (int c = 0; c < V; c++)
        most = fmax(most, z[c]);
    for (int c = 0; c < V; c++) {
        p[c] = exp((z[c] - most) / o->temperature);
        order[c] = c;
    }
    share_of(p);
    order_by = p;
    qsort(order, V, sizeof *order, descending);
    for (int k = 0; o->top_k > 0 && k < V; k++)
        if (k >= o->top_k)
            p[order[k]] = 0;
    share_of(p);
    double before = 0;
    for (int k = 0; o->top_p > 0 && k < V; k++) {
        const double mine = p[order[k]];
        if (k > 0 && before >= o->top_p)
            p[order[k]] = 0;
        before += mine;
    }
    share_of(p);
    for (int k = 1; k < V; k++)
        if (p[order[k]] < o->min_p * p[order[0]])
            p[order[k]] = 0;
    share_of(p);
}

static const struct ax_sampling settings[] = {
    {.temperature = 1},
    {.temperature = 0.5, .top_k = 7},
    {.temperature = 1.5, .top_k = V + 4},
    {.temperature = 1, .top_p = 0.6},
    {.temperature = 4, .top_p = 0.97},
    {.temperature = 1, .min_p = 0.2},
    {.temperature = 1.3, .top_k = 40, .top_p = 0.9, .min_p = 0.02},
    {.temperature = 0.8, .top_p = 0.9, .repetition_penalty = 1.7},
};

static void filters_are_the_reference(void **state) {
    (void)state;
    static const int32_t context[] = {3, 300, 17, 44, 5};
    for (size_t k = 0; k < sizeof settings / sizeof *settings; k++) {
        static struct test t;
        memset(&t, 0, sizeof t);
        t.o = settings[k];
        random_logits(&t, k + 1);
        for (int i = 0; i < ROWS; i++) {
            t.row[i].context = context;
            t.row[i].n_context = i;
        }
        run(&t, 2);
        assert_true(t.unchanged);
        for (int i = 0; i < ROWS; i++) {
            double p[V];
            int kept = 0;
            reference(&t.o, t.logits + i * V, &t.row[i], p);
            for (int c = 0; c < V; c++) {
                kept += p[c] > 0;
                assert_true(fabs((double)t.shares[i][c] - p[c]) <= 1e-5 * p[c] + 1e-7);
            }
            assert_int_equal(t.n_left[i], kept);
            assert_true(t.shares[i][t.ids[i]] > 0);
        }
        ax_free(t.ids);
    }
}

/* 20,000 draws: each token's frequency is within five standard errors of its share. */
static void draws_follow_the_shares(void **state) {
    (void)state;
    enum { DRAWS = 20000 };
    for (int filtered = 0; filtered < 2; filtered++) {
        static struct test t;
        memset(&t, 0, sizeof t);
        t.o = (struct ax_sampling){.temperature = 1, .top_p = filtered ? 0.9 : 0, .seed = 11};
        random_logits(&t, 5);
        t.rows = 2;
        t.draws = DRAWS;
        run(&t, 2);
        for (int i = 0; i < t.rows; i++) {
            int count[V] = {0};
            double p[V];
            reference(&t.o, t.logits + i * V, &t.row[i], p);
            for (int d = 0; d < DRAWS; d++)
                count[t.ids[d * t.rows + i]]++;
            for (int c = 0; c < V; c++) {
                const double expect = p[c] * DRAWS;
                assert_true(fabs(count[c] - expect) <= 5 * sqrt(expect + 1) + 1);
            }
        }
        ax_free(t.ids);
    }
}

/* A row's choices depend on seed, stream and position, not on its place or its neighbors. */
static void a_row_is_alone(void **state) {
    (void)state;
    static struct test all, one;
    for (int threads = 1; threads <= 2; threads++) {
        memset(&all, 0, sizeof all);
        all.o = (struct ax_sampling){.temperature = 1.2, .top_k = 50, .seed = 7};
        random_logits(&all, 9);
        all.draws = 50;
        run(&all, 2);
        for (int i = 0; i < ROWS; i++) {
            memset(&one, 0, sizeof one);
            one.o = all.o;
            one.rows = 1;
            one.draws = 50;
            memcpy(one.logits, all.logits + i * V, V * sizeof *one.logits);
            one.row[0].stream = (uint64_t)i;
            run(&one, threads);
            for (int d = 0; d < 50; d++)
                assert_int_equal(one.ids[d], all.ids[d * ROWS + i]);
            assert_true(one.logprobs[0] == all.logprobs[i]);
            ax_free(one.ids);
        }
        ax_free(all.ids);
    }
    /* and another seed or stream is another sequence */
    memset(&one, 0, sizeof one);
    one.o = (struct ax_sampling){.temperature = 1.2, .seed = 8};
    random_logits(&one, 9);
    one.draws = 50;
    for (int i = 0; i < ROWS; i++) {
        memcpy(one.logits + i * V, one.logits, V * sizeof *one.logits);
        one.row[i].stream = (uint64_t)i << 32;
    }
    run(&one, 2);
    for (int i = 1; i < ROWS; i++) {
        int same = 0;
        for (int d = 0; d < 50; d++)
            same += one.ids[d * ROWS] == one.ids[d * ROWS + i];
        assert_true(same < 25);
    }
    ax_free(one.ids);
}

static void greedy_and_its_log_prob(void **state) {
    (void)state;
    static struct test t;
    static const int32_t context[] = {12};
    memset(&t, 0, sizeof t);
    random_logits(&t, 3);
    t.logits[12] = 20;
    t.logits[40] = 19;
    run(&t, 2);
    double sum = 0;
    for (int c = 0; c < V; c++)
        sum += exp(t.logits[c] - 20);
    assert_int_equal(t.ids[0], 12);
    assert_true(fabs(t.logprobs[0] + log(sum)) < 1e-5);
    ax_free(t.ids);
    /* the penalty moves the choice; the log-prob stays the model's */
    t.o.repetition_penalty = 1.2;
    t.row[0].context = context;
    t.row[0].n_context = 1;
    run(&t, 2);
    assert_int_equal(t.ids[0], 40);
    assert_true(fabs(t.logprobs[0] + 1 + log(sum)) < 1e-5);
    assert_true(t.unchanged);
    ax_free(t.ids);
}

static void equal_logits(void **state) {
    (void)state;
    static struct test t;
    memset(&t, 0, sizeof t);
    random_logits(&t, 3);
    for (int c = 0; c < V; c++)
        t.logits[c] = c < 10 ? 2 : 1;
    t.o = (struct ax_sampling){.temperature = 1, .top_k = 4}; /* equal to the fourth: all ten */
    run(&t, 1);
    assert_int_equal(t.n_left[0], 10);
    ax_free(t.ids);
    t.o = (struct ax_sampling){.temperature = 1, .top_p = 1e-9}; /* always one */
    run(&t, 1);
    assert_int_equal(t.n_left[0], 1);
    ax_free(t.ids);
}

/* top-p keeps tokens until their mass is p: where it is p exactly, no further one. */
static void mass_of_exactly_p(void **state) {
    (void)state;
    static const struct {
        int equal; /* tokens that share all the mass */
        struct ax_sampling o;
        int left;
    } cases[] = {{2, {.temperature = 1, .top_p = 0.5}, 1},
                 {2, {.temperature = 1, .top_k = 2, .top_p = 0.5}, 1},
                 {4, {.temperature = 1, .top_k = 4, .top_p = 0.5}, 2},
                 {4, {.temperature = 1, .top_k = 4, .top_p = 0.75}, 3},
                 {4, {.temperature = 1, .top_k = 4, .top_p = 0.751}, 4}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        static struct test t;
        memset(&t, 0, sizeof t);
        t.rows = 1;
        t.o = cases[k].o;
        for (int c = 0; c < V; c++)
            t.logits[c] = c < cases[k].equal ? 0 : -1e4; /* e^−10000 is 0 */
        run(&t, 1);
        assert_int_equal(t.n_left[0], cases[k].left);
        for (int c = 0; c < cases[k].left; c++) /* of equals the later ones */
            assert_true(t.shares[0][cases[k].equal - 1 - c] > 0);
        ax_free(t.ids);
    }
}

static void logits_that_are_no_numbers(void **state) {
    (void)state;
    static struct test t;
    memset(&t, 0, sizeof t);
    random_logits(&t, 3);
    for (int c = 0; c < V; c++)
        t.logits[c] = NAN;
    t.o = (struct ax_sampling){.temperature = 1, .top_k = 10};
    run(&t, 2);
    for (int i = 0; i < ROWS; i++)
        assert_in_range(t.ids[i], 0, V - 1);
    assert_int_equal(t.n_left[0], 0); /* the row without numbers; the others are as ever */
    assert_int_equal(t.n_left[1], 10);
    ax_free(t.ids);
}

/* Where the op runs does not matter, and what it chose takes one wait. */
static void far_away(void **state) {
    (void)state;
    static const int32_t context[] = {3, 300, 17, 44, 5};
    for (size_t k = 0; k <= sizeof settings / sizeof *settings; k++) {
        static struct test near, far;
        memset(&near, 0, sizeof near);
        if (k > 0) /* else greedy */
            near.o = settings[k - 1];
        random_logits(&near, k + 1);
        near.draws = 20;
        for (int i = 0; i < ROWS; i++) {
            near.row[i].context = context;
            near.row[i].n_context = i;
        }
        far = near;
        run_on(&near, "cpu", 2);
        run_on(&far, "far", 2);
        assert_memory_equal(near.ids, far.ids, 20 * ROWS * sizeof *near.ids);
        assert_memory_equal(near.logprobs, far.logprobs, sizeof near.logprobs);
        assert_memory_equal(near.shares, far.shares, sizeof near.shares);
        assert_true(near.waits == 1 && far.waits == 1);
        ax_free(near.ids);
        ax_free(far.ids);
    }
}

static void settings_are_checked(void **state) {
    (void)state;
    static const struct {
        struct ax_sampling o;
        const char *says;
    } bad[] = {
        {{.temperature = -1}, "temperature: expected 0 (greedy) to 1000000, got -1"},
        {{.temperature = NAN}, "temperature"},
        {{.top_k = -3}, "top_k: expected 0 (off) or more, got -3"},
        {{.top_p = 1.5}, "top_p: expected a number from 0 to 1, got 1.5"},
        {{.min_p = -0.1}, "min_p: expected a number from 0 to 1, got -0.1"},
        {{.repetition_penalty = -2}, "repetition_penalty: expected a number above 0"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(ax_sampling_check(&bad[i].o), AX_ERR_CONFIG);
        assert_non_null(strstr(ax_error_text(), bad[i].says));
    }
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        must(ax_sampling_check(&settings[i]));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(filters_are_the_reference),
        cmocka_unit_test(draws_follow_the_shares),
        cmocka_unit_test(a_row_is_alone),
        cmocka_unit_test(greedy_and_its_log_prob),
        cmocka_unit_test(equal_logits),
        cmocka_unit_test(mass_of_exactly_p),
        cmocka_unit_test(logits_that_are_no_numbers),
        cmocka_unit_test(far_away),
        cmocka_unit_test(settings_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
