/* Generation on meshes of threads: every rank gets the tokens, log-probs and scores of one rank. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "model/drafter.h"
#include "model/generate/generate.h"
#include "parallel/fabric/comm_local.h"
#include "tests/tiny.h"
#include "tests/long.h"

enum { N = 9, NEW = 40, LONGEST = 43, MAX_WORLD = 4 };

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

/* What one rank got. */
struct got {
    int32_t tokens[N][NEW];
    double logprobs[N][LONGEST];
    struct ax_sequence seqs[N];
    int told_tokens, told_done; /* by the callbacks */
    bool disorder;              /* a callback saw another token than the last one */
    struct ax_generate_counters counters;
    uint64_t gathers; /* of weights, all passes together */
    int n_units;
};

struct test {
    struct ax_arch arch;
    enum ax_dtype dtype;
    const char *backend;
    struct ax_mesh_sizes sizes;
    struct ax_sampling sampling;
    int n, n_scored; /* sequences; the last ones are scored */
    int stops;       /* rank that asks to stop after three passes; −1: none */
    bool differs;    /* the last rank draws other random numbers */
    bool longer;     /* answers of several blocks */
    bool drafts;
    int64_t kv_tokens;
    size_t step; /* bytes that steps of training need at other times */
    int32_t prompts[N][LONGEST];
    struct got ranks[MAX_WORLD];
};

struct asked {
    struct got *got;
    int passes; /* until this rank stops; 0 = never */
};

static enum ax_status on_token(void *ctx, struct ax_sequence *s, bool *stop) {
    struct got *g = ((struct asked *)ctx)->got;
    const int64_t i = s - g->seqs;
    g->told_tokens++;
    g->disorder |= s->tokens != g->tokens[i] || s->n_new < 1 || s->n_new > NEW;
    *stop = i == 1 && s->n_new == 3; /* alike on all ranks */
    return AX_OK;
}

static enum ax_status on_done(void *ctx, struct ax_sequence *s) {
    struct got *g = ((struct asked *)ctx)->got;
    (void)s;
    g->told_done++;
    return AX_OK;
}

static bool stop_now(void *ctx) {
    struct asked *a = ctx;
    return a->passes > 0 && --a->passes == 0;
}

struct rank {
    struct test *t;
    struct got *got;
    int rank;
};

static int world_of(const struct ax_mesh_sizes *s) {
    return s->pp * s->dp_replicate * s->dp_shard * s->cp * s->tp;
}

static void make_sequences(struct test *t, struct got *g) {
    for (int i = 0; i < t->n; i++) {
        const bool scored = i >= t->n - t->n_scored;
        g->seqs[i] = (struct ax_sequence){.n_prompt = 1 + 5 * (i % 8),
                                          .prompt = t->prompts[i],
                                          .stream = (uint64_t)i,
                                          .max_new = t->longer ? NEW - i : 2 + i % 6,
                                          .tokens = g->tokens[i],
                                          .logprobs = g->logprobs[i]};
        if (scored) {
            g->seqs[i].n_scored = 1 + (i * 7) % g->seqs[i].n_prompt;
            g->seqs[i].scored = t->prompts[(i + 1) % N];
        }
    }
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct rank *r = ctx;
    struct test *t = r->t;
    struct ax_model m;
    struct ax_drafter drafter = {0};
    struct ax_generator g = {0};
    const bool planning = ax_runtime_planning(rt);
    const struct ax_model_options mo = {.dtype = t->dtype, .max_positions = LONGEST + NEW};
    struct asked asked = {.got = r->got, .passes = !planning && r->rank == t->stops ? 4 : 0};
    const struct ax_generate_options o = {.n_seqs = 3,
                                          .max_prompt = LONGEST,
                                          .max_new = NEW,
                                          .pass_tokens = 10,
                                          .kv_tokens = t->kv_tokens,
                                          .scoring = t->n_scored > 0,
                                          .sampling = t->sampling,
                                          .token = on_token,
                                          .done = on_done,
                                          .stop_now = stop_now,
                                          .ctx = &asked};
    struct ax_generate_options mine = o;
    ax_stack_push(&rt->arena.scratch, "a step", t->step);
    ax_stack_release(&rt->arena.scratch, 0);
    mine.drafts = t->drafts;
    mine.sampling.seed += t->differs && r->rank == world_of(&t->sizes) - 1;
    AX_TRY(ax_model_create(&m, &t->arch, rt, &mo));
    enum ax_status st = ax_model_init_random(&m, 5);
    if (st == AX_OK)
        st = ax_model_make_panels(&m);
    if (st == AX_OK && t->drafts) {
        st = ax_drafter_create(&drafter, &m, &mo);
        st = st == AX_OK ? ax_model_init_random(&drafter.model, 5) : st;
    }
    const uint64_t gathers = rt->comms[AX_ROLE_FSDP].calls[AX_ALL_GATHER];
    if (st == AX_OK)
        st = ax_generator_create(&g, &m, &mine);
    if (!planning)
        make_sequences(t, r->got);
    if (st == AX_OK)
        st = ax_generate(&g, t->n, r->got->seqs);
    r->got->counters = g.counters;
    r->got->gathers = rt->comms[AX_ROLE_FSDP].calls[AX_ALL_GATHER] - gathers;
    r->got->n_units = m.n_units;
    ax_generator_free(&g);
    for (int u = 0; u < m.n_units; u++) /* as before */
        assert_true(m.units[u].gathered == 0 && !m.units[u].away);
    ax_drafter_free(&drafter);
    ax_model_free(&m);
    return st;
}

static enum ax_status on_rank(struct ax_fabric *f, void *ctx) {
    struct test *t = ctx;
    struct rank r = {.t = t, .got = &t->ranks[f->rank], .rank = f->rank};
    const struct ax_runtime_options ro = {
        .backend = t->backend, .threads = 1, .sizes = t->sizes, .fabric = f->world > 1 ? f : NULL};
    return ax_runtime_run(&ro, body, &r, NULL);
}

static enum ax_status run(struct test *t, struct ax_mesh_sizes sizes) {
    t->sizes = sizes;
    memset(t->ranks, 0, sizeof t->ranks);
    return ax_local_run(world_of(&sizes), NULL, on_rank, t);
}

#define MOE                                                                                        \
    ", \"num_experts\": 4, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 24, "            \
    "\"norm_topk_prob\": true"

#define LATENT                                                                                     \
    ", \"q_lora_rank\": 9, \"kv_lora_rank\": 10, \"qk_nope_head_dim\": 7, "                        \
    "\"qk_rope_head_dim\": 6, \"v_head_dim\": 5, \"n_routed_experts\": 4, \"n_group\": 1, "        \
    "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 24, \"first_k_dense_replace\": 1, "    \
    "\"num_nextn_predict_layers\": 1"

#define HEADS                                                                                      \
    ", \"v_head_dim\": 10, \"sliding_window_size\": 5, \"n_routed_experts\": 4, "                  \
    "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 24, \"partial_rotary_factor\": 0.5"
/* Layer 2 uses the keys of layer 1, and every layer inputs of its own; then of three streams, too. */
#define LENDS                                                                                      \
    ", \"layer_types\": [\"sliding_attention\", \"full_attention\", \"full_attention\"], "         \
    "\"sliding_window\": 6, \"num_kv_shared_layers\": 1, \"hidden_size_per_layer_input\": 6, "     \
    "\"vocab_size_per_layer_input\": 97"
#define STREAMS                                                                                    \
    LENDS ", \"altup_num_inputs\": 3, \"laurel_rank\": 5, "                                        \
          "\"activation_sparsity_pattern\": [0.5, 0, 0.8], \"altup_active_idx\": 1"
#define INDEX ", \"index_topk\": 6, \"index_n_heads\": 3, \"index_head_dim\": 10"

static void setup(struct test *t, const char *family, enum ax_dtype dtype, const char *backend) {
    memset(t, 0, sizeof *t);
    must(tiny_arch(&t->arch, family, true,
                   strstr(family, "moe")        ? MOE
                   : strstr(family, "v32")      ? LATENT INDEX
                   : strstr(family, "mimo")     ? HEADS
                   : strstr(family, "gemma4")   ? LENDS
                   : strstr(family, "gemma3n")  ? STREAMS
                   : strstr(family, "deepseek") ? LATENT
                                                : ""));
    t->dtype = dtype;
    t->backend = backend;
    t->n = N;
    t->stops = -1;
    for (int i = 0; i < N; i++)
        for (int k = 0; k < LONGEST; k++) /* some begin alike */
            t->prompts[i][k] = (int32_t)ax_rng_below(
                (struct ax_rng_key){33, k < 18 ? (uint32_t)i % 2 : (uint32_t)i, 0}, (uint64_t)k,
                97);
}

/* tp 4 is more than the models' key-value heads. */
static const struct ax_mesh_sizes meshes[] = {
    {1, 1, 1, 1, 2, 1}, {1, 1, 1, 1, 4, 1}, {1, 2, 1, 1, 1, 1}, {1, 1, 2, 1, 1, 1},
    {1, 1, 3, 1, 1, 1}, {1, 2, 1, 1, 2, 1}, {1, 1, 2, 1, 2, 1}, {1, 2, 2, 1, 1, 1},
    {2, 1, 1, 1, 1, 1}, {2, 1, 1, 1, 2, 1}, {2, 1, 2, 1, 1, 1}, {2, 2, 1, 1, 1, 1},
    {1, 1, 1, 2, 1, 1}, {1, 1, 2, 2, 1, 1}, {1, 1, 1, 2, 2, 1}, {2, 1, 1, 2, 1, 1},
};
static const struct ax_mesh_sizes expert_meshes[] = {
    {1, 1, 1, 1, 2, 1}, {1, 1, 1, 1, 2, 2}, {1, 1, 2, 1, 1, 2}, {1, 1, 2, 1, 2, 4},
    {1, 2, 1, 1, 2, 2}, {2, 1, 1, 1, 2, 2}, {1, 1, 1, 2, 1, 2},
};

/* All ranks have the results of `one`. */
static void same(const struct test *t, const struct got *one, double tolerance) {
    for (int r = 0; r < world_of(&t->sizes); r++) {
        const struct got *g = &t->ranks[r];
        assert_false(g->disorder);
        assert_int_equal(g->told_tokens, one->told_tokens);
        assert_int_equal(g->told_done, one->told_done);
        assert_int_equal(g->counters.tokens, one->counters.tokens);
        for (int i = 0; i < t->n; i++) {
            const struct ax_sequence *a = &one->seqs[i], *b = &g->seqs[i];
            const int64_t scores = a->n_scored > 0 ? a->n_scored : a->n_new;
            assert_int_equal(a->n_new, b->n_new);
            assert_int_equal(a->finish, b->finish);
            assert_int_equal(a->greedy, b->greedy);
            assert_memory_equal(one->tokens[i], g->tokens[i], sizeof g->tokens[i]);
            for (int64_t k = 0; k < scores; k++)
                if (!(fabs(one->logprobs[i][k] - g->logprobs[i][k]) <= tolerance))
                    fail_msg("rank %d, sequence %d, %lld: %.17g, on one rank %.17g", r, i,
                             (long long)k, g->logprobs[i][k], one->logprobs[i][k]);
        }
    }
}

static const struct ax_mesh_sizes one_rank = {1, 1, 1, 1, 1, 1};

static void compare(struct test *t, const struct ax_mesh_sizes *list, size_t n, double tolerance) {
    static struct got one;
    must(run(t, one_rank));
    one = t->ranks[0];
    assert_true(one.told_done == t->n && one.told_tokens > 0);
    for (size_t i = 0; i < n; i++) {
        const bool exact = list[i].tp == 1 && list[i].ep == 1;
        must(run(t, list[i]));
        same(t, &one, exact ? 0 : tolerance);
    }
}

#define COUNT(list) (sizeof(list) / sizeof *(list))

/* Sampling with everything on: one random number per token, whatever the mesh. */
static void ranks_sample_as_one_does(void **state) {
    (void)state;
    static struct test t;
    static const char *const families[] = {"llama",        "olmo2",       "qwen3",
                                           "qwen3_moe",    "deepseek_v3", "mimo_v2_flash",
                                           "deepseek_v32", "gemma4_text", "gemma3n_text"};
    for (size_t k = 0; k < COUNT(families); k++) {
        setup(&t, families[k], AX_F64, "ref");
        t.sampling = (struct ax_sampling){.temperature = 1.1,
                                          .top_k = 40,
                                          .top_p = 0.95,
                                          .min_p = 0.01,
                                          .repetition_penalty = 1.2,
                                          .seed = 4};
        compare(&t, meshes, COUNT(meshes), 1e-11);
        if (t.arch.moe.n_experts > 0)
            compare(&t, expert_meshes, COUNT(expert_meshes), 1e-11);
        ax_arch_free(&t.arch);
    }
}

/* With drafts, of which few are accepted, or most, or all where all tokens are about as likely; the same on all meshes, but
 * for keys that sequences share there. Beside sequences that are scored. */
static void ranks_draft_as_one_goes_without(void **state) {
    (void)state;
    static struct test t;
    static struct got one;
    static const double ranges[] = {0.15, 0.01, 1e-4}, shares[] = {0, 0.6, 0.8};
    for (size_t k = 0; k < COUNT(ranges); k++) {
        setup(&t, "deepseek_v3", AX_F64, "ref");
        t.sampling = (struct ax_sampling){.temperature = 1, .seed = 4};
        t.arch.init_range = ranges[k];
        t.longer = true;
        t.n_scored = 2;
        must(run(&t, one_rank));
        one = t.ranks[0];
        must(ax_arch_check_predict(&t.arch, "drafts"));
        t.drafts = true;
        must(run(&t, one_rank));
        const int64_t accepted = t.ranks[0].counters.accepted;
        for (size_t i = 0; i < COUNT(meshes) + COUNT(expert_meshes); i++) {
            const struct ax_mesh_sizes *sizes =
                i < COUNT(meshes) ? &meshes[i] : &expert_meshes[i - COUNT(meshes)];
            must(run(&t, *sizes));
            same(&t, &one, 1e-11);
            const struct ax_generate_counters *c = &t.ranks[0].counters;
            assert_true(c->drafts > 0 && (double)c->accepted > shares[k] * (double)c->drafts);
            assert_in_range(c->accepted, accepted - 1, accepted + 1);
        }
        ax_arch_free(&t.arch);
    }
}

/* Greedily, and asked for the log-probs of given tokens. */
static void ranks_score_as_one_does(void **state) {
    (void)state;
    static struct test t;
    static const char *const families[] = {"llama", "qwen3_moe", "deepseek_v3", "deepseek_v32"};
    for (size_t k = 0; k < COUNT(families); k++) {
        setup(&t, families[k], AX_F32, "cpu");
        t.n_scored = 5;
        compare(&t, meshes, COUNT(meshes), 1e-5);
        if (t.arch.moe.n_experts > 0)
            compare(&t, expert_meshes, COUNT(expert_meshes), 1e-5);
        ax_arch_free(&t.arch);
    }
}

/* One sequence: most data ranks have none, and take part in its passes. */
static void ranks_without_work(void **state) {
    (void)state;
    static struct test t;
    for (int scored = 0; scored < 2; scored++) {
        setup(&t, "llama", AX_F32, "cpu");
        t.n = 1;
        t.n_scored = scored;
        static struct got one;
        must(run(&t, one_rank));
        one = t.ranks[0];
        for (size_t i = 0; i < COUNT(meshes); i++) {
            must(run(&t, meshes[i]));
            same(&t, &one, 1e-5);
        }
        ax_arch_free(&t.arch);
    }
}

/* Each rank puts sequences back as its own room demands. */
static void ranks_with_little_room(void **state) {
    (void)state;
    static struct test t;
    static struct got one;
    setup(&t, "llama", AX_F64, "ref");
    t.sampling = (struct ax_sampling){.temperature = 1.1, .seed = 4};
    t.longer = true;
    must(run(&t, one_rank));
    one = t.ranks[0];
    assert_int_equal(one.counters.put_back, 0);
    t.kv_tokens = 100;
    for (size_t i = 0; i < COUNT(meshes); i++) {
        must(run(&t, meshes[i]));
        same(&t, &one, 1e-11);
        assert_true(t.ranks[0].counters.put_back > 0);
    }
    ax_arch_free(&t.arch);
}

/* Sharded weights are gathered once, if a step needs as much memory as all of them and the cache. */
static void weights_are_gathered_once(void **state) {
    (void)state;
    static struct test t;
    static struct got one;
    static const struct ax_mesh_sizes list[] = {{1, 1, 2, 1, 1, 1}, {1, 2, 2, 1, 1, 1}};
    setup(&t, "llama", AX_F64, "ref");
    t.sampling = (struct ax_sampling){.temperature = 1.1, .seed = 4};
    must(run(&t, one_rank));
    one = t.ranks[0];
    for (size_t i = 0; i < COUNT(list); i++)
        for (int room = 0; room < 2; room++) {
            t.step = room ? (size_t)8 << 20 : 0;
            must(run(&t, list[i]));
            same(&t, &one, 0);
            const uint64_t units = (uint64_t)t.ranks[0].n_units;
            for (int r = 0; r < world_of(&list[i]); r++)
                assert_true(room ? t.ranks[r].gathers == units : t.ranks[r].gathers > 5 * units);
        }
    ax_arch_free(&t.arch);
}

/* A rank that is interrupted ends the sequences of all that compute with it. */
static void one_stops_all(void **state) {
    (void)state;
    static struct test t;
    static const struct ax_mesh_sizes list[] = {
        {1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 2, 1}, {1, 1, 2, 1, 1, 1}, {1, 1, 2, 1, 2, 1}};
    for (size_t i = 0; i < COUNT(list); i++) {
        const int world = world_of(&list[i]);
        setup(&t, "llama", AX_F32, "cpu");
        t.stops = world - 1;
        must(run(&t, list[i]));
        for (int r = 0; r < world; r++) {
            const struct got *g = &t.ranks[r];
            int ended = 0;
            for (int s = 0; s < N; s++)
                ended += g->seqs[s].finish == AX_FINISH_CALLER && g->seqs[s].n_new < 2 + s % 6;
            assert_true(ended >= N - 3); /* after three passes */
            assert_true(g->counters.passes <= 3 * world);
        }
        ax_arch_free(&t.arch);
    }
}

/* Should the ranks of tp choose differently, as unlike processors may, the first one's choice counts. */
static void the_first_rank_chooses(void **state) {
    (void)state;
    static struct test t;
    static struct got one;
    setup(&t, "llama", AX_F32, "cpu");
    t.sampling.temperature = 2;
    must(run(&t, one_rank));
    one = t.ranks[0];
    t.differs = true;
    must(run(&t, meshes[0]));
    for (int i = 0; i < N; i++)
        assert_memory_equal(t.ranks[0].tokens[i], one.tokens[i], sizeof one.tokens[i]);
    for (int i = 0; i < N; i++)
        assert_memory_equal(t.ranks[1].tokens[i], one.tokens[i], sizeof one.tokens[i]);
    ax_arch_free(&t.arch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        LONG_TEST(cmocka_unit_test(ranks_sample_as_one_does)),
        LONG_TEST(cmocka_unit_test(ranks_draft_as_one_goes_without)),
        LONG_TEST(cmocka_unit_test(ranks_score_as_one_does)),
        cmocka_unit_test(ranks_without_work),
        cmocka_unit_test(one_stops_all),
        LONG_TEST(cmocka_unit_test(ranks_with_little_room)),
        cmocka_unit_test(weights_are_gathered_once),
        cmocka_unit_test(the_first_rank_chooses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
