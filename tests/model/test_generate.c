/* Generation: a sequence gets the same tokens and log-probs, to the bit, whatever else is going on;
 * lanes are freed and shared as they should be. */
#include "tests/model/generate_case.h"
/* A repetition penalty that no logit outweighs: greedy decoding, which repeats itself without it,
 * takes no token of its context again, and none of the prompt. */
static void no_token_twice(void **state) {
    (void)state;
    static struct test t;
    for (int penalty = 0; penalty < 2; penalty++) {
        int again = 0;
        setup(&t, "llama", AX_F32, 3);
        t.o.sampling = (struct ax_sampling){.repetition_penalty = penalty ? 1e6 : 0};
        must(try(&t, "cpu", 1));
        for (int i = 0; i < N; i++)
            for (int64_t k = 0; k < t.result[i].n_new; k++) {
                for (int64_t j = 0; j < t.result[i].n_prompt; j++)
                    again += t.tokens[i][k] == t.prompts[i][j];
                for (int64_t j = 0; j < k; j++)
                    again += t.tokens[i][k] == t.tokens[i][j];
            }
        assert_true(penalty ? again == 0 : again > 0);
        ax_arch_free(&t.arch);
    }
}

/* Those of olmo2 and DeepSeek have values smaller than their keys. */
static const struct {
    const char *family;
    enum ax_dtype dtype;
    int64_t v_head_dim;
    const char *extra;
} models[] = {
    {"llama", AX_F32, 16, ""},
    {"llama", AX_BF16, 16, ""},
    {"qwen3", AX_BF16, 16, ""},
    {"olmo2", AX_F32, 10, ""},
    {"gemma2", AX_BF16, 16, ""},
    {"gemma3_text", AX_F32, 16, ""},
    {"smollm3", AX_F32, 16, ""},
    {"granite", AX_F32, 16, ""},
    {"phi3", AX_F32, 16,
     ", \"original_max_position_embeddings\": 14, \"rope_scaling\": {\"type\": \"longrope\", "
     "\"short_factor\": [1, 1, 1, 1.1, 1.2, 1.3, 1.4, 1.5], "
     "\"long_factor\": [1, 1.1, 1.5, 2, 3, 4, 6, 9]}"},
    {"deepseek_v3", AX_F32, 5,
     ", \"q_lora_rank\": 9, \"kv_lora_rank\": 10, \"qk_nope_head_dim\": 7, "
     "\"qk_rope_head_dim\": 6, \"v_head_dim\": 5, \"n_routed_experts\": 8, \"n_group\": 4, "
     "\"num_experts_per_tok\": 3, \"moe_intermediate_size\": 22, \"first_k_dense_replace\": 1"},
    {"deepseek_v32", AX_F32, 5, SPARSE},
    {"glm_moe_dsa", AX_F32, 5, SPARSE SHARED},
    {"glm4", AX_F32, 16, ", \"attention_bias\": true"},
    {"gpt_oss", AX_F32, 16,
     ", \"num_local_experts\": 4, \"num_experts_per_tok\": 2, \"sliding_window\": 6, "
     "\"swiglu_limit\": 0.4"},
    {"mimo_v2_flash", AX_F32, 10,
     ", \"v_head_dim\": 10, \"sliding_window_size\": 5, \"n_routed_experts\": 4, "
     "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 22, \"partial_rotary_factor\": 0.5"},
    {"llama4_text", AX_F32, 16, CHUNKS(12)},
    {"llama4_text", AX_F32, 16, CHUNKS(16)},
    {"lfm2", AX_F32, 16, RECURRENT},
    {"qwen3_next", AX_F32, 16, DELTA},
    {"olmo_hybrid", AX_F32, 16, DELTA},
    {"granitemoehybrid", AX_F32, 16, MAMBA},
    {"kimi_linear", AX_F32, 5, KDA},
    {"falcon_h1", AX_F32, 16, BESIDE},
    {"nemotron_h", AX_F32, 16, ALONE},
    {"gemma4_text", AX_F32, 16, LENDS},
    {"gemma4_text", AX_F32, 16, EXPERTS_BESIDE},
    {"gemma3n_text", AX_F32, 16, STREAMS}};

static void setup_model(struct test *t, size_t k, int lanes) {
    setup_with(t, models[k].family, models[k].extra, models[k].dtype, lanes);
    t->arch.v_head_dim = models[k].v_head_dim;
}

static void nothing_else_matters(void **state) {
    (void)state;
    static struct test base, other;
    for (size_t k = 0; k < sizeof models / sizeof *models; k++) {
        setup_model(&base, k, N);
        must(try(&base, "cpu", 1));
        for (int i = 0; i < N; i++)
            assert_int_equal(base.result[i].n_new, 4 + i);
        static const struct {
            int lanes, threads, pass_tokens;
            bool backwards, panels;
        } ways[] = {{1, 1, 0, false, true},
                    {3, 2, 0, true, false},
                    {16, 2, 0, false, true},
                    {N, 2, N, true, true},
                    {2, 1, 5, false, false}};
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            setup_model(&other, k, ways[w].lanes);
            other.o.pass_tokens = ways[w].pass_tokens;
            other.panels = ways[w].panels;
            for (int i = 0; ways[w].backwards && i < N; i++)
                other.order[i] = N - 1 - i;
            must(try(&other, "cpu", ways[w].threads));
            for (int i = 0; i < N; i++)
                same(&base, &other, i);
            ax_arch_free(&other.arch);
        }
        for (int i = 0; i < N; i++) { /* each alone */
            setup_model(&other, k, 1);
            other.n = 1;
            other.order[0] = i;
            must(try(&other, "cpu", 2));
            same(&base, &other, i);
            ax_arch_free(&other.arch);
        }
        ax_arch_free(&base.arch);
    }
}

/* However little room the cache has: sequences wait for it, and are put back and computed again. */
static void any_room(void **state) {
    (void)state;
    static struct test base, other;
    static const struct {
        const char *backend;
        int lanes, pass_tokens;
        int64_t kv_tokens, blocks;
        bool puts_back, backwards;
    } ways[] = {{"cpu", N, 0, 1, 5, true, false},    {"cpu", N, 5, 80, 5, true, true},
                {"cpu", 16, 0, 130, 8, true, false}, {"cpu", 3, 9, 100, 6, true, true},
                {"cpu", N, 0, 500, 31, false, true}, {"cpu", N, 0, 100000, 35, false, false},
                {"far", N, 11, 90, 5, true, false}};
    for (size_t k = 0; k < sizeof models / sizeof *models; k += k < 12 ? 3 : 1) {
        setup_model(&base, k, N);
        make_long(&base);
        must(try(&base, "cpu", 1));
        assert_int_equal(base.counters.put_back, 0);
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            setup_model(&other, k, ways[w].lanes);
            other.o.pass_tokens = ways[w].pass_tokens;
            other.o.kv_tokens = ways[w].kv_tokens;
            make_long(&other);
            for (int i = 0; ways[w].backwards && i < N; i++)
                other.order[i] = N - 1 - i;
            must(try(&other, ways[w].backend, 2));
            for (int i = 0; i < N; i++)
                same(&base, &other, i);
            assert_int_equal(other.blocks, ways[w].blocks);
            assert_true((other.counters.put_back > 0) == ways[w].puts_back);
            assert_true(ways[w].puts_back ||
                        other.counters.prompt_tokens == base.counters.prompt_tokens);
            assert_int_equal(other.counters.tokens, base.counters.tokens);
            ax_arch_free(&other.arch);
        }
        ax_arch_free(&base.arch);
    }
}

/* Dynamic rope turns by the length of the row: some are beyond the 64 positions of the model from
 * the start, some pass them on the way, some never do. */
static void setup_dynamic(struct test *t, int lanes) {
    static const int64_t lengths[N] = {75, 10, 58, 66, 33, 71, 62};
    const char *rope = ", \"rope_scaling\": {\"rope_type\": \"dynamic\", \"factor\": 4}";
    setup_with(t, "llama", rope, AX_F32, lanes);
    t->o.max_prompt = ROOM;
    for (int i = 0; i < N; i++) {
        for (int64_t k = 0; k < lengths[i]; k++) /* all begin alike, and could share */
            t->prompts[i][k] = (int32_t)ax_rng_below(
                (struct ax_rng_key){32, k < 50 ? 0 : (uint32_t)i, 0}, (uint64_t)k, 97);
        t->result[i].n_prompt = lengths[i];
    }
    make_long(t);
}

static void dynamic_rope_turns_by_the_own_row(void **state) {
    (void)state;
    static struct test alone[N], t;
    static const struct {
        int lanes, pass_tokens;
        int64_t kv_tokens;
    } ways[] = {{2, 0, 0}, {N, 0, 0}, {1, 0, 0}, {3, 7, 0}, {N, 0, 1}};
    int64_t shared = 0;
    for (int i = 0; i < N; i++) {
        setup_dynamic(&alone[i], 1);
        alone[i].n = 1;
        alone[i].order[0] = i;
        must(try(&alone[i], "cpu", 1));
        ax_arch_free(&alone[i].arch);
    }
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        setup_dynamic(&t, ways[w].lanes);
        t.o.pass_tokens = ways[w].pass_tokens;
        t.o.kv_tokens = ways[w].kv_tokens;
        must(try(&t, "cpu", 2));
        for (int i = 0; i < N; i++)
            same(&alone[i], &t, i);
        shared += t.counters.shared_tokens;
        ax_arch_free(&t.arch);
    }
    assert_true(shared > 0); /* of the prompts that are short enough */
}

/* What was put back and computed again turns as it did before, each token by the row's length then. */
static void dynamic_rope_in_any_room(void **state) {
    (void)state;
    static struct test t[3];
    static const int64_t kv_tokens[] = {0, 272, 130};
    for (int k = 0; k < 3; k++) {
        setup_dynamic(&t[k], N);
        t[k].o.kv_tokens = kv_tokens[k];
        for (int i = 0; i < N; i++)
            t[k].result[i].n_prompt = 57 + i;
        must(try(&t[k], "cpu", 2));
        assert_true((t[k].counters.put_back > 0) == (k > 0));
        for (int i = 0; i < N; i++)
            same(&t[0], &t[k], i);
        ax_arch_free(&t[k].arch);
    }
}

/* The reference backend, in double, greedily chooses as the fast one in float. */
static void backends_agree(void **state) {
    (void)state;
    static struct test fast, slow;
    setup(&fast, "qwen2", AX_F32, 4);
    setup(&slow, "qwen2", AX_F64, 4);
    fast.arch.v_head_dim = slow.arch.v_head_dim = 24;
    fast.o.sampling = slow.o.sampling = (struct ax_sampling){0};
    must(try(&fast, "cpu", 2));
    must(try(&slow, "ref", 1));
    for (int i = 0; i < N; i++) {
        assert_memory_equal(fast.tokens[i], slow.tokens[i], 4 * sizeof **fast.tokens);
        for (int k = 0; k < 4; k++)
            assert_true(slow.logprobs[i][k] - fast.logprobs[i][k] < 1e-4 &&
                        fast.logprobs[i][k] - slow.logprobs[i][k] < 1e-4);
    }
    ax_arch_free(&fast.arch);
    ax_arch_free(&slow.arch);
}

/* Many samples of one prompt read it once; the same conversation again reads its last token. */
static void share_prompts(const char *family, const char *extra) {
    static struct test t, alone;
    setup_with(&t, family, extra, AX_BF16, 3);
    for (int i = 0; i < N; i++) {
        t.result[i].prompt = t.prompts[N - 1];
        t.result[i].n_prompt = 37;
    }
    must(try(&t, "cpu", 2));
    assert_int_equal(t.counters.shared_tokens, 36 * (N - 1));
    assert_int_equal(t.counters.prompt_tokens, 37 + (N - 1));
    assert_int_equal(t.counters.shared_blocks, 36 / AX_KV_BLOCK * (3 - 1)); /* lanes */
    for (int i = 0; i < N; i++) {
        setup_with(&alone, family, extra, AX_BF16, 1);
        alone.n = 1;
        alone.order[0] = i;
        alone.result[i].prompt = alone.prompts[N - 1];
        alone.result[i].n_prompt = 37;
        must(try(&alone, "cpu", 1));
        same(&t, &alone, i);
        ax_arch_free(&alone.arch);
    }
    ax_arch_free(&t.arch);
}

static void prompts_are_shared(void **state) {
    (void)state;
    static struct test t;
    share_prompts("llama", "");
    share_prompts("qwen3_next", DELTA);
    share_prompts("granitemoehybrid", MAMBA);
    share_prompts("kimi_linear", KDA);
    share_prompts("falcon_h1", BESIDE);
    share_prompts("gemma4_text", LENDS);
    share_prompts("gemma3n_text", STREAMS);
    share_prompts("nemotron_h", ALONE);
    share_prompts("lfm2", RECURRENT); /* states are kept where the prompts part */
    for (int k = 0; k < 2; k++) {
        setup_with(&t, k ? "lfm2" : "llama", k ? RECURRENT : "", AX_BF16, 1);
        t.n = 1;
        t.order[0] = N - 1;
        t.calls = 3;
        must(try(&t, "cpu", 2));
        assert_int_equal(t.counters.prompt_tokens, 37 + 2);
        assert_int_equal(t.counters.shared_tokens, 2 * 36);
        ax_arch_free(&t.arch);
    }
}

/* A group shares the full blocks of its prompt: where each sequence has four, two more are
 * enough for the entire group. */
static void groups_take_little_room(void **state) {
    (void)state;
    static struct test t[2];
    for (int i = 0; i < 2; i++) {
        setup(&t[i], "llama", AX_F32, N);
        t[i].o.kv_tokens = i == 0 ? 0 : (2 + 2 * N) * AX_KV_BLOCK;
        t[i].o.max_new = 10;
        for (int k = 0; k < N; k++) {
            t[i].result[k].prompt = t[i].prompts[N - 1];
            t[i].result[k].n_prompt = 37;
        }
        must(try(&t[i], "cpu", 2));
        assert_int_equal(t[i].counters.put_back, 0);
        assert_int_equal(t[i].blocks, i == 0 ? 4 * N : 2 + 2 * N);
        assert_int_equal(t[i].counters.shared_blocks, 2 * (N - 1));
    }
    for (int k = 0; k < N; k++)
        same(&t[0], &t[1], k);
    assert_int_equal(t[0].counters.passes, t[1].counters.passes);
    ax_arch_free(&t[0].arch);
    ax_arch_free(&t[1].arch);
}

/* The work of a batch is that of its sequences: rows that ended are not computed. */
static void the_dead_cost_nothing(void **state) {
    (void)state;
    static struct test t;
    setup(&t, "llama", AX_F32, N);
    must(try(&t, "cpu", 2));
    int64_t tokens = 0, prompt = 0;
    for (int i = 0; i < N; i++) {
        tokens += t.result[i].n_new;
        prompt += t.result[i].n_prompt;
    }
    assert_int_equal(t.counters.tokens, tokens);
    assert_int_equal(t.counters.prompt_tokens, prompt);
    assert_int_equal(t.counters.decode_tokens, tokens - N);
    assert_int_equal(t.counters.passes, 4 + N - 1); /* the longest answer */
    ax_arch_free(&t.arch);
}

/* The host waits for tokens, once per pass that has some, however they are chosen: passes of prompts
 * alone need no wait. */
static void one_wait_per_pass(void **state) {
    (void)state;
    static struct test t;
    static const struct ax_sampling ways[] = {
        {0}, {.temperature = 1, .top_k = 5}, {.temperature = 1, .repetition_penalty = 1.5}};
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        setup(&t, "llama", AX_F32, 3);
        t.o.sampling = ways[w];
        must(try(&t, "cpu", 2));
        assert_int_equal(t.waits, t.counters.passes);
        ax_arch_free(&t.arch);

        setup(&t, "llama", AX_F32, 1); /* a prompt of 37 tokens: seven passes of it without any */
        t.o.sampling = ways[w];
        t.o.pass_tokens = 5;
        t.n = 1;
        t.order[0] = N - 1;
        must(try(&t, "cpu", 2));
        assert_int_equal(t.counters.passes, 7 + 10);
        assert_int_equal(t.waits, 10);
        ax_arch_free(&t.arch);
    }
}

/* On a device whose memory the host cannot touch: the same tokens, log-probs and waits. Experts' rows
 * are counted on the host: a wait more per layer and pass. */
static void the_same_far_away(void **state) {
    (void)state;
    static struct test near, far;
    static const struct {
        const char *family, *extra;
        enum ax_dtype dtype;
        bool panels;
    } cases[] = {{"llama", "", AX_F32, false},
                 {"llama", "", AX_BF16, true},
                 {"qwen3_moe",
                  ", \"num_experts\": 4, \"num_experts_per_tok\": 2, "
                  "\"moe_intermediate_size\": 24, \"norm_topk_prob\": true",
                  AX_F32, false}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct test *const both[] = {&near, &far};
        for (int i = 0; i < 2; i++) {
            setup_with(both[i], cases[k].family, cases[k].extra, cases[k].dtype, 3);
            both[i]->o.pass_tokens = 11;
            both[i]->panels = cases[k].panels;
            must(try(both[i], i == 0 ? "cpu" : "far", 2));
        }
        for (int i = 0; i < N; i++)
            same(&near, &far, i);
        const int64_t experts = near.arch.moe.n_experts > 0 ? near.arch.n_layers : 0;
        assert_true(far.waits <= (uint64_t)(far.counters.passes * (1 + experts)));
        assert_int_equal(near.waits, far.waits);
        ax_arch_free(&near.arch);
        ax_arch_free(&far.arch);
    }
}

static void no_allocations_per_token(void **state) {
    (void)state;
    static struct test t;
    uint64_t calls[2];
    for (int i = 0; i < 2; i++) {
        setup(&t, "llama", AX_BF16, 3);
        for (int k = 0; k < N; k++)
            t.result[k].max_new = i == 0 ? 2 : NEW;
        must(try(&t, "cpu", 2));
        calls[i] = t.allocations;
        ax_arch_free(&t.arch);
    }
    assert_int_equal(calls[0], calls[1]);
}

/* ---- ends ---- */

struct ends {
    struct test *t;
    int tokens, done, stop_at;
};

static enum ax_status on_token(void *ctx, struct ax_sequence *s, bool *stop) {
    struct ends *e = ctx;
    e->tokens++;
    *stop = e->stop_at > 0 && s->n_new == e->stop_at;
    return AX_OK;
}

static enum ax_status on_done(void *ctx, struct ax_sequence *s) {
    struct ends *e = ctx;
    assert_true(s->n_new > 0);
    e->done++;
    return AX_OK;
}

static enum ax_status refuse(void *ctx, struct ax_sequence *s, bool *stop) {
    (void)ctx;
    (void)s;
    (void)stop;
    return ax_error(AX_ERR_IO, "the reader went away");
}

static void ways_to_end(void **state) {
    (void)state;
    static struct test t, u;
    setup(&t, "llama", AX_F32, 3);
    struct ends e = {.t = &t};
    t.o.token = on_token;
    t.o.done = on_done;
    t.o.ctx = &e;
    must(try(&t, "cpu", 2));
    int total = 0;
    for (int i = 0; i < N; i++) {
        assert_int_equal(t.result[i].finish, AX_FINISH_LENGTH);
        total += (int)t.result[i].n_new;
    }
    assert_int_equal(e.tokens, total);
    assert_int_equal(e.done, N);

    /* a stop token ends a sequence where it first comes, and is its last token */
    const int32_t stop = t.tokens[N - 1][2];
    int first = 0;
    while (t.tokens[N - 1][first] != stop)
        first++;
    setup(&u, "llama", AX_F32, 3);
    u.o.stop = &stop;
    u.o.n_stop = 1;
    must(try(&u, "cpu", 2));
    assert_int_equal(u.result[N - 1].n_new, first + 1);
    assert_int_equal(u.result[N - 1].finish, AX_FINISH_STOP);
    assert_memory_equal(u.tokens[N - 1], t.tokens[N - 1], (size_t)(first + 1) * sizeof stop);
    assert_string_equal(ax_finish_name(AX_FINISH_STOP), "stop");
    ax_arch_free(&u.arch);

    setup(&u, "llama", AX_F32, 3);
    e = (struct ends){.t = &u, .stop_at = 2};
    u.o.token = on_token;
    u.o.ctx = &e;
    must(try(&u, "cpu", 2));
    for (int i = 0; i < N; i++) {
        assert_int_equal(u.result[i].n_new, 2);
        assert_int_equal(u.result[i].finish, AX_FINISH_CALLER);
        assert_memory_equal(u.tokens[i], t.tokens[i], 2 * sizeof stop);
    }
    ax_arch_free(&u.arch);
    ax_arch_free(&t.arch);
}

static void errors(void **state) {
    (void)state;
    static struct test t;
    setup(&t, "llama", AX_F32, 2);
    t.o.token = refuse;
    assert_int_equal(try(&t, "cpu", 2), AX_ERR_IO);
    assert_non_null(strstr(ax_error_text(), "the reader went away"));
    ax_arch_free(&t.arch);

    setup(&t, "llama", AX_F32, 2);
    t.o.max_prompt = 10;
    assert_int_equal(try(&t, "cpu", 2), AX_ERR_DATA);
    assert_non_null(strstr(ax_error_text(), "has 13 tokens; expected 1 to 10"));
    ax_arch_free(&t.arch);

    setup(&t, "llama", AX_F32, 2);
    t.prompts[3][2] = 97;
    assert_int_equal(try(&t, "cpu", 2), AX_ERR_DATA);
    assert_non_null(strstr(ax_error_text(), "prompt 3, token 2: id 97 is outside the vocabulary"));
    ax_arch_free(&t.arch);

    setup(&t, "llama", AX_F32, 2);
    t.o.sampling.top_p = 7;
    assert_int_equal(try(&t, "cpu", 2), AX_ERR_CONFIG);
    ax_arch_free(&t.arch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_token_twice),
        cmocka_unit_test(nothing_else_matters),
        cmocka_unit_test(any_room),
        cmocka_unit_test(dynamic_rope_turns_by_the_own_row),
        cmocka_unit_test(dynamic_rope_in_any_room),
        cmocka_unit_test(backends_agree),
        cmocka_unit_test(prompts_are_shared),
        cmocka_unit_test(groups_take_little_room),
        cmocka_unit_test(the_dead_cost_nothing),
        cmocka_unit_test(one_wait_per_pass),
        cmocka_unit_test(the_same_far_away),
        cmocka_unit_test(no_allocations_per_token),
        cmocka_unit_test(ways_to_end),
        cmocka_unit_test(errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
