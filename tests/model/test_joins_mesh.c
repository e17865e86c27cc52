/* Sequences that join and leave on meshes of threads: every rank gets what one rank gets, while it is generated. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "model/generate/generate.h"
#include "parallel/fabric/comm_local.h"
#include "tests/tiny.h"

enum { N = 11, SCORED = 4, NEW = 24, LONGEST = 40, BEST = 3, MAX_WORLD = 4, LEAVER = 5 };

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

static const struct ax_sampling ways[] = {
    {0},
    {.temperature = 1, .seed = 11},
    {.temperature = 0.7, .top_k = 5, .seed = 3, .raw = true},
    {.temperature = 1, .repetition_penalty = 1.5, .seed = 8},
};
enum { WAYS = sizeof ways / sizeof *ways };
static const int32_t biased[] = {3, 9};
static const float values[] = {6, -100};
static const struct ax_bias bias = {
    .presence = 0.5, .frequency = 0.2, .n = 2, .tokens = biased, .values = values};

/* What a rank got, and when sequences join. */
struct got {
    int32_t tokens[N][NEW], best[N][LONGEST][BEST];
    double logprobs[N][LONGEST], best_logprobs[N][LONGEST][BEST];
    struct ax_sequence seqs[N];
    int calls, joined, idle, told[N], done[N];
    struct ax_generate_counters counters;
    const struct ax_generator *generator;
    int64_t counted;  /* tokens, when it was last asked for more */
    uint64_t history; /* hash of all of these numbers */
    const struct test *t;
};

struct test {
    struct ax_arch arch;
    struct ax_mesh_sizes sizes;
    int64_t kv_tokens, step; /* step: calls between two that join */
    int leaves_at;           /* −1: nobody leaves */
    int32_t prompts[N][LONGEST];
    struct got ranks[MAX_WORLD];
};

static void make_sequences(struct got *g) {
    for (int i = 0; i < N; i++) {
        struct ax_sequence *s = &g->seqs[i];
        *s = (struct ax_sequence){.n_prompt = 2 + 5 * (i % 8),
                                  .prompt = g->t->prompts[i],
                                  .stream = (uint64_t)i,
                                  .max_new = NEW - i,
                                  .sampling = &ways[i % WAYS],
                                  .bias = i % 3 == 1 ? &bias : NULL,
                                  .tokens = g->tokens[i],
                                  .logprobs = g->logprobs[i],
                                  .n_best = i % (BEST + 1),
                                  .best = &g->best[i][0][0],
                                  .best_logprobs = &g->best_logprobs[i][0][0]};
        if (i >= N - SCORED) {
            s->n_scored = 1 + (i * 7) % s->n_prompt;
            s->scored = g->t->prompts[(i + 1) % N];
        }
    }
}

static enum ax_status more(void *ctx, bool idle, struct ax_sequence **joining) {
    struct got *g = ctx;
    struct ax_sequence **last = joining;
    const int64_t tokens = g->generator->counters.tokens;
    assert_true(tokens >= g->counted);
    g->counted = tokens;
    g->history = g->history * 31 + (uint64_t)tokens;
    g->idle += idle;
    if (g->calls++ == g->t->leaves_at)
        g->seqs[LEAVER].leaves = true;
    for (; g->joined < N && (g->joined * g->t->step < g->calls || (idle && last == joining));
         g->joined++) {
        *last = &g->seqs[g->joined * 4 % N]; /* scored ones among the others */
        last = &(*last)->next;
    }
    *last = NULL;
    return AX_OK;
}

static enum ax_status on_token(void *ctx, struct ax_sequence *s, bool *stop) {
    struct got *g = ctx;
    g->told[s - g->seqs]++;
    assert_int_equal(g->told[s - g->seqs], s->n_new);
    *stop = s == &g->seqs[2] && s->n_new == 3;
    return AX_OK;
}

static enum ax_status on_done(void *ctx, struct ax_sequence *s) {
    struct got *g = ctx;
    g->done[s - g->seqs]++;
    return AX_OK;
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct got *got = ctx;
    struct ax_model m;
    struct ax_generator g = {0};
    const struct ax_model_options mo = {.dtype = AX_F32, .max_positions = LONGEST + NEW};
    const struct ax_generate_options o = {.n_seqs = 3,
                                          .max_prompt = LONGEST,
                                          .max_new = NEW,
                                          .pass_tokens = 10,
                                          .kv_tokens = got->t->kv_tokens,
                                          .scoring = true,
                                          .varied = true,
                                          .more = more,
                                          .token = on_token,
                                          .done = on_done,
                                          .ctx = got};
    AX_TRY(ax_model_create(&m, &got->t->arch, rt, &mo));
    enum ax_status st = ax_model_init_random(&m, 5);
    if (st == AX_OK)
        st = ax_model_make_panels(&m);
    if (st == AX_OK)
        st = ax_generator_create(&g, &m, &o);
    if (!ax_runtime_planning(rt))
        make_sequences(got);
    struct ax_sequence planned = {0};
    got->generator = &g;
    if (st == AX_OK)
        st = ax_generate(&g, ax_runtime_planning(rt) ? 1 : 0, &planned);
    got->counters = g.counters;
    got->generator = NULL;
    ax_generator_free(&g);
    ax_model_free(&m);
    return st;
}

static enum ax_status on_rank(struct ax_fabric *f, void *ctx) {
    struct test *t = ctx;
    struct got *got = &t->ranks[f->rank];
    const struct ax_runtime_options ro = {
        .backend = "cpu", .threads = 1, .sizes = t->sizes, .fabric = f->world > 1 ? f : NULL};
    got->t = t;
    return ax_runtime_run(&ro, body, got, NULL);
}

static int world_of(const struct ax_mesh_sizes *s) {
    return s->pp * s->dp_replicate * s->dp_shard * s->cp * s->tp;
}

static void run(struct test *t, struct ax_mesh_sizes sizes) {
    t->sizes = sizes;
    memset(t->ranks, 0, sizeof t->ranks);
    must(ax_local_run(world_of(&sizes), NULL, on_rank, t));
}

#define MOE                                                                                        \
    ", \"num_experts\": 4, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 24, "            \
    "\"norm_topk_prob\": true"

static void setup(struct test *t, const char *family) {
    memset(t, 0, sizeof *t);
    must(tiny_arch(&t->arch, family, true, strstr(family, "moe") ? MOE : ""));
    t->leaves_at = -1;
    for (int i = 0; i < N; i++)
        for (int k = 0; k < LONGEST; k++) /* some begin alike */
            t->prompts[i][k] = (int32_t)ax_rng_below(
                (struct ax_rng_key){33, k < 18 ? (uint32_t)i % 2 : (uint32_t)i, 0}, (uint64_t)k,
                97);
}

static const struct ax_mesh_sizes one_rank = {1, 1, 1, 1, 1, 1};
static const struct ax_mesh_sizes meshes[] = {
    {1, 1, 1, 1, 2, 1}, {1, 2, 1, 1, 1, 1}, {1, 1, 2, 1, 1, 1}, {1, 2, 1, 1, 2, 1},
    {1, 1, 2, 1, 2, 1}, {1, 2, 2, 1, 1, 1}, {2, 1, 1, 1, 1, 1}, {2, 1, 1, 1, 2, 1},
    {2, 2, 1, 1, 1, 1}, {1, 1, 1, 2, 1, 1}, {1, 1, 3, 1, 1, 1}, {2, 1, 1, 2, 1, 1},
};
static const struct ax_mesh_sizes expert_meshes[] = {
    {1, 1, 1, 1, 2, 2},
    {1, 1, 2, 1, 1, 2},
    {1, 2, 1, 1, 2, 2},
    {2, 1, 1, 1, 2, 2},
};
#define COUNT(list) (sizeof(list) / sizeof *(list))

static void near(const double *a, const double *b, int64_t n, double tolerance) {
    for (int64_t k = 0; k < n; k++)
        if (!(fabs(a[k] - b[k]) <= tolerance))
            fail_msg("%.17g, on one rank %.17g", b[k], a[k]);
}

/* All ranks have the results of `one`, but for what the leaver has got. */
static void same(const struct test *t, const struct got *one) {
    const double tolerance = t->sizes.tp == 1 && t->sizes.ep == 1 ? 0 : 1e-5;
    for (int r = 0; r < world_of(&t->sizes); r++) {
        const struct got *g = &t->ranks[r];
        for (int i = 0; i < N; i++) {
            const struct ax_sequence *a = &one->seqs[i], *b = &g->seqs[i];
            const bool left = t->leaves_at >= 0 && i == LEAVER;
            const int64_t n = left ? b->n_new : a->n_scored > 0 ? a->n_scored : a->n_new;
            assert_int_equal(g->done[i], 1);
            assert_int_equal(b->finish, left ? AX_FINISH_CALLER : a->finish);
            assert_int_equal(b->n_new, left ? t->ranks[0].seqs[i].n_new : a->n_new);
            assert_int_equal(a->greedy, b->greedy);
            if (a->n_scored == 0)
                assert_memory_equal(one->tokens[i], g->tokens[i], (size_t)n * sizeof(int32_t));
            near(one->logprobs[i], g->logprobs[i], n, tolerance);
            assert_memory_equal(one->best[i], g->best[i], (size_t)(n * a->n_best) * 4);
            near(&one->best_logprobs[i][0][0], &g->best_logprobs[i][0][0], n * a->n_best,
                 tolerance);
        }
        if (t->sizes.tp == world_of(&t->sizes)) /* ranks of tp count for themselves */
            continue;
        assert_int_equal(g->counters.tokens, t->ranks[0].counters.tokens);
        assert_true(g->history == t->ranks[0].history);
        assert_int_equal(g->counters.passes, t->ranks[0].counters.passes);
    }
}

static const struct got *alone(struct test *t) {
    static struct got one;
    run(t, one_rank);
    one = t->ranks[0];
    for (int i = 0; i < N; i++)
        assert_int_equal(one.done[i], 1);
    assert_true(one.best_logprobs[N - 1][0][0] < 0 && one.best_logprobs[1][0][0] < 0);
    return &one;
}

static void compare(struct test *t, const struct ax_mesh_sizes *list, size_t n) {
    const struct got *one = alone(t);
    for (size_t i = 0; i < n; i++) {
        run(t, list[i]);
        same(t, one);
        assert_int_equal(t->ranks[0].counters.tokens, one->counters.tokens);
    }
}

static void joining(void **state) {
    (void)state;
    static struct test t;
    static const char *const families[] = {"llama", "qwen3_moe"};
    for (size_t k = 0; k < COUNT(families); k++)
        for (int64_t step = 0; step < 3; step += 2) {
            setup(&t, families[k]);
            t.step = step;
            compare(&t, meshes, COUNT(meshes));
            if (t.arch.moe.n_experts > 0)
                compare(&t, expert_meshes, COUNT(expert_meshes));
            ax_arch_free(&t.arch);
        }
}

/* Ranks put sequences back as their own room demands. */
static void with_little_room(void **state) {
    (void)state;
    static struct test t;
    int64_t put_back = 0;
    setup(&t, "llama");
    const struct got *one = alone(&t);
    assert_int_equal(one->counters.put_back, 0);
    t.kv_tokens = 80;
    for (size_t i = 0; i < COUNT(meshes); i++) {
        run(&t, meshes[i]);
        same(&t, one);
        put_back += t.ranks[0].counters.put_back;
    }
    assert_true(put_back > 0);
    ax_arch_free(&t.arch);
}

/* A sequence that leaves does so on all ranks, whichever computes it. */
static void leaving(void **state) {
    (void)state;
    static struct test t;
    setup(&t, "llama");
    const struct got *one = alone(&t);
    for (int at = 0; at < 9; at += 4)
        for (size_t i = 0; i < COUNT(meshes); i++) {
            t.leaves_at = at;
            run(&t, meshes[i]);
            same(&t, one);
        }
    ax_arch_free(&t.arch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joining),
        cmocka_unit_test(with_little_room),
        cmocka_unit_test(leaving),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
