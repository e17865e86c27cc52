/* Sequences that join and leave while others are generated, each with its own sampling: the tokens and
 * log-probs that it has alone. */
#include "tests/model/generate_case.h"

static const struct ax_sampling ways[] = {
    {0},
    {.temperature = 1, .seed = 11},
    {.temperature = 0.7, .top_k = 5, .seed = 3},
    {.temperature = 1.3, .top_p = 0.8, .seed = 3, .raw = true},
    {.temperature = 1, .min_p = 0.1, .seed = 5, .truncated = true},
    {.temperature = 1, .repetition_penalty = 1.5, .seed = 8},
    {.repetition_penalty = 1.5},
};
_Static_assert(sizeof ways / sizeof *ways == N, "one for each");

/* Who arrives when, counted in calls of `more`. */
struct arrivals {
    struct test *t;
    int calls, joined, ended, idle, step;
    int leaver, leaves_at; /* −1: nobody */
    int32_t best[N][NEW];
    double best_logprobs[N][NEW];
};

static enum ax_status more(void *ctx, bool idle, struct ax_sequence **joining) {
    struct arrivals *a = ctx;
    a->idle += idle;
    if (a->calls++ == a->leaves_at)
        a->t->result[a->leaver].leaves = true;
    for (; a->joined < N && (a->joined * a->step < a->calls || (idle && !*joining)); a->joined++) {
        struct ax_sequence *s = &a->t->result[N - 1 - a->joined]; /* the longest first */
        s->next = *joining;
        *joining = s;
    }
    return AX_OK;
}

static enum ax_status on_done(void *ctx, struct ax_sequence *s) {
    struct arrivals *a = ctx;
    (void)s;
    a->ended++;
    return AX_OK;
}

static void setup_joins(struct test *t, struct arrivals *a, int lanes, int step) {
    setup(t, "llama", AX_F32, lanes);
    *a = (struct arrivals){.t = t, .step = step, .leaver = -1, .leaves_at = -1};
    t->o.sampling = (struct ax_sampling){0};
    t->o.varied = true;
    t->o.more = more;
    t->o.done = on_done;
    t->o.ctx = a;
    t->n = 0;
    for (int i = 0; i < N; i++) {
        struct ax_sequence *s = &t->result[i];
        s->sampling = &ways[i];
        s->n_best = 1;
        s->best = a->best[i];
        s->best_logprobs = a->best_logprobs[i];
    }
}

static void joining_changes_nothing(void **state) {
    (void)state;
    static struct test alone[N], t;
    static struct arrivals a;
    for (int i = 0; i < N; i++) {
        setup(&alone[i], "llama", AX_F32, 1);
        alone[i].o.sampling = ways[i];
        alone[i].n = 1;
        alone[i].order[0] = i;
        must(try(&alone[i], "cpu", 1));
    }
    static const struct {
        int lanes, step;
        int64_t kv_tokens, pass_tokens;
    } runs[] = {{N, 1, 0, 0}, {2, 0, 0, 9}, {3, 3, 0, 0}, {N, 0, 1, 0}, {1, 90, 0, 0}};
    for (size_t r = 0; r < sizeof runs / sizeof *runs; r++) {
        setup_joins(&t, &a, runs[r].lanes, runs[r].step);
        t.o.kv_tokens = runs[r].kv_tokens;
        t.o.pass_tokens = runs[r].pass_tokens;
        must(try(&t, "cpu", 2));
        assert_int_equal(a.joined, N);
        assert_int_equal(a.ended, N);
        assert_true(a.idle >= 1);
        for (int i = 0; i < N; i++) {
            same(&alone[i], &t, i);
            for (int64_t k = 0; k < t.result[i].n_new; k++) {
                const bool is_best = a.best[i][k] == t.tokens[i][k];
                assert_true(ways[i].temperature > 0 || ways[i].repetition_penalty > 0 || is_best);
                assert_true(is_best ? a.best_logprobs[i][k] == t.logprobs[i][k]
                                    : a.best_logprobs[i][k] >= t.logprobs[i][k]);
            }
        }
        ax_arch_free(&t.arch);
    }
    for (int i = 0; i < N; i++)
        ax_arch_free(&alone[i].arch);
}

/* The raw log-probs are those that scoring finds. */
static void raw_log_probs(void **state) {
    (void)state;
    static struct test t, u;
    static struct arrivals a;
    static int32_t text[ROOM + NEW], best[NEW];
    static double logprobs[NEW], best_logprobs[NEW];
    const int i = 3;
    setup_joins(&t, &a, N, 1);
    must(try(&t, "cpu", 2));
    const struct ax_sequence *s = &t.result[i];
    memcpy(text, s->prompt, (size_t)s->n_prompt * sizeof *text);
    memcpy(text + s->n_prompt, s->tokens, (size_t)s->n_new * sizeof *text);
    setup(&u, "llama", AX_F32, 2);
    u.o.varied = u.o.scoring = true;
    u.o.max_prompt = ROOM;
    u.o.sampling = (struct ax_sampling){0};
    u.n = 1;
    u.order[0] = 0;
    u.result[0] = (struct ax_sequence){.n_prompt = s->n_prompt + s->n_new - 1,
                                       .prompt = text,
                                       .n_scored = s->n_new,
                                       .scored = text + s->n_prompt,
                                       .logprobs = logprobs,
                                       .n_best = 1,
                                       .best = best,
                                       .best_logprobs = best_logprobs};
    must(try(&u, "cpu", 2));
    const size_t n = (size_t)s->n_new;
    assert_memory_equal(logprobs, s->logprobs, n * sizeof *logprobs);
    assert_memory_equal(best, a.best[i], n * sizeof *best);
    assert_memory_equal(best_logprobs, a.best_logprobs[i], n * sizeof *best_logprobs);
    ax_arch_free(&t.arch);
    ax_arch_free(&u.arch);
}

/* One that leaves frees its lane before the next pass, or is never begun; the others are as without it. */
static void leaving(void **state) {
    (void)state;
    static struct test all, t;
    static struct arrivals a;
    setup_joins(&all, &a, N, 0);
    must(try(&all, "cpu", 2));
    for (int lanes = 1; lanes <= N; lanes += N - 1)
        for (int leaver = 0; leaver < N; leaver += 2) {
            setup_joins(&t, &a, lanes, 0);
            a.leaver = leaver;
            a.leaves_at = 3;
            must(try(&t, "cpu", 2));
            assert_int_equal(a.ended, N);
            for (int i = 0; i < N; i++) {
                if (i != leaver) {
                    same(&all, &t, i);
                    continue;
                }
                assert_int_equal(t.result[i].finish, AX_FINISH_CALLER);
                assert_true(t.result[i].n_new <= 3);
                assert_memory_equal(t.tokens[i], all.tokens[i],
                                    (size_t)t.result[i].n_new * sizeof **t.tokens);
            }
            ax_arch_free(&t.arch);
        }
    ax_arch_free(&all.arch);
}

/* One whose log-probs are computed may leave as well, before and after the first of them. */
static void leaving_scores(void **state) {
    (void)state;
    static struct test t;
    static struct arrivals a;
    for (int at = 0; at < 4; at++) {
        setup_joins(&t, &a, 2, 0);
        t.o.scoring = true;
        t.o.pass_tokens = 5;
        for (int i = 1; i < N; i += 2) {
            t.result[i].n_scored = t.result[i].n_prompt;
            t.result[i].scored = t.prompts[i];
        }
        a.leaver = 5;
        a.leaves_at = at;
        must(try(&t, "cpu", 2));
        assert_int_equal(a.ended, N);
        assert_int_equal(t.result[5].finish, AX_FINISH_CALLER);
        for (int i = 1; i < 5; i += 2)
            assert_true(t.logprobs[i][0] < 0 && t.result[i].finish == AX_FINISH_LENGTH);
        ax_arch_free(&t.arch);
    }
}

/* The reference backend, in double, adds the same biases as the fast one in float. */
static void biases_in_double(void **state) {
    (void)state;
    static const int32_t biased[] = {3, 90};
    static const float values[] = {0.4F, -100};
    static const struct ax_bias bias = {
        .presence = 0.5, .frequency = 0.2, .n = 2, .tokens = biased, .values = values};
    static struct test fast, slow, plain;
    static struct arrivals a[3];
    struct test *const all[] = {&fast, &slow, &plain};
    int differ = 0;
    for (int k = 0; k < 3; k++) {
        setup_joins(all[k], &a[k], 3, 1);
        all[k]->dtype = k == 1 ? AX_F64 : AX_F32;
        for (int i = 0; i < N; i++) {
            all[k]->result[i].sampling = &ways[0]; /* greedy */
            all[k]->result[i].bias = k < 2 ? &bias : NULL;
        }
        must(try(all[k], k == 1 ? "ref" : "cpu", 1));
    }
    for (int i = 0; i < N; i++)
        for (int64_t k = 0; k < fast.result[i].n_new; k++) {
            const double d = slow.logprobs[i][k] - fast.logprobs[i][k];
            assert_int_equal(slow.tokens[i][k], fast.tokens[i][k]);
            assert_true(d < 1e-4 && d > -1e-4);
            differ += fast.tokens[i][k] != plain.tokens[i][k];
        }
    assert_true(differ > N);
    for (int k = 0; k < 3; k++)
        ax_arch_free(&all[k]->arch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joining_changes_nothing),
        cmocka_unit_test(raw_log_probs),
        cmocka_unit_test(leaving),
        cmocka_unit_test(leaving_scores),
        cmocka_unit_test(biases_in_double),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
