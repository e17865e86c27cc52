/* Scores: the log-probs of given tokens are those of the generator's own choice, whatever else is going on, and read
 * together. */
#include "tests/model/generate_case.h"

/* The log-probs of what the generator itself chose, when it is asked about them: in any company, and
 * with beginnings taken from other prompts, the same bits. */
static void scores(void **state) {
    (void)state;
    static struct test made, t;
    static int32_t texts[N][LONGEST + NEW];
    static const struct {
        int lanes, pass_tokens;
        int64_t kv_tokens;
    } ways[] = {{1, 0, 0}, {N, 0, 0}, {3, 9, 0}, {N, 5, 64}};
    setup(&made, "llama", AX_F32, 3);
    made.o.sampling = (struct ax_sampling){0};
    must(try(&made, "cpu", 2));
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        setup(&t, "llama", AX_F32, ways[w].lanes);
        t.o.sampling = (struct ax_sampling){0};
        t.o.scoring = true;
        t.o.pass_tokens = ways[w].pass_tokens;
        t.o.kv_tokens = ways[w].kv_tokens;
        t.o.max_prompt = LONGEST + NEW;
        for (int i = 0; i < N; i++) {
            const struct ax_sequence *s = &made.result[i];
            struct ax_sequence *q = &t.result[i];
            memcpy(texts[i], s->prompt, (size_t)s->n_prompt * sizeof **texts);
            memcpy(texts[i] + s->n_prompt, s->tokens, (size_t)s->n_new * sizeof **texts);
            q->prompt = texts[i];
            q->n_scored = i == 2 ? s->n_new - 1 : s->n_new; /* one token less, of the same text */
            q->n_prompt = s->n_prompt + s->n_new - 1;
            q->scored = texts[i] + s->n_prompt + (s->n_new - q->n_scored);
            q->tokens = NULL;
        }
        texts[5][t.result[5].n_prompt] ^= 1; /* the last token, which goes nowhere else */
        must(try(&t, "cpu", 2));
        for (int i = 0; i < N; i++) {
            const struct ax_sequence *q = &t.result[i];
            const double *want = made.logprobs[i] + (made.result[i].n_new - q->n_scored);
            const size_t n = (size_t)q->n_scored - (i == 5);
            assert_memory_equal(q->logprobs, want, n * sizeof *want);
            assert_true(q->greedy == (i != 5));
            assert_int_equal(q->n_new, 0);
        }
        assert_true(t.logprobs[5][t.result[5].n_scored - 1] <
                    made.logprobs[5][made.result[5].n_new - 1]);
        texts[5][0] = 97; /* outside the vocabulary: what is fed, and what is only predicted */
        assert_int_equal(try(&t, "cpu", 1), AX_ERR_DATA);
        texts[5][0] = 0;
        texts[5][t.result[5].n_prompt] = 97;
        assert_int_equal(try(&t, "cpu", 1), AX_ERR_DATA);
        assert_non_null(strstr(ax_error_text(), "is continued by id 97"));
        ax_arch_free(&t.arch);
    }
    ax_arch_free(&made.arch);
}

/* Where answers grow, prompts whose tokens are scored are put back, too. */
static void scores_in_any_room(void **state) {
    (void)state;
    static struct test t[2];
    static double scores[2][N][LONGEST];
    for (int i = 0; i < 2; i++) {
        setup(&t[i], "llama", AX_F32, N);
        make_long(&t[i]);
        t[i].o.scoring = true;
        t[i].o.pass_tokens = N;
        t[i].o.kv_tokens = i == 0 ? 0 : 130;
        for (int k = 3; k < N; k++) {
            t[i].result[k].n_scored = t[i].result[k].n_prompt;
            t[i].result[k].scored = t[i].prompts[k];
            t[i].result[k].logprobs = scores[i][k];
        }
        must(try(&t[i], "cpu", 2));
        assert_true((t[i].counters.put_back > 0) == (i == 1));
    }
    for (int k = 0; k < 3; k++)
        same(&t[0], &t[1], k);
    assert_memory_equal(scores[0], scores[1], sizeof scores[0]);
    for (int k = 3; k < N; k++)
        assert_true(t[0].result[k].greedy == t[1].result[k].greedy && scores[0][k][0] < 0);
    ax_arch_free(&t[0].arch);
    ax_arch_free(&t[1].arch);
}

/* Choices behind one question: it goes through the model once. */
static void share_questions(const char *family, const char *extra) {
    static struct test t;
    static const int32_t choices[] = {3, 5, 7, 11, 13, 17, 19};
    setup_with(&t, family, extra, AX_F32, 3);
    t.o.sampling = (struct ax_sampling){0};
    t.o.scoring = true;
    for (int i = 0; i < N; i++) {
        t.result[i].prompt = t.prompts[N - 1];
        t.result[i].n_prompt = 37;
        t.result[i].n_scored = 1;
        t.result[i].scored = &choices[i];
    }
    must(try(&t, "cpu", 2));
    assert_int_equal(t.counters.prompt_tokens, 37 + (N - 1));
    assert_int_equal(t.counters.tokens, 0);
    int greedy = 0;
    for (int i = 0; i < N; i++)
        greedy += t.result[i].greedy;
    assert_true(greedy <= 1);
    ax_arch_free(&t.arch);
}

static void scored_questions_are_shared(void **state) {
    (void)state;
    share_questions("llama", "");
    share_questions("lfm2", RECURRENT);
    share_questions("qwen3_next", DELTA);
    share_questions("granitemoehybrid", MAMBA);
    share_questions("kimi_linear", KDA);
    share_questions("falcon_h1", BESIDE);
    share_questions("gemma4_text", LENDS);
    share_questions("gemma3n_text", STREAMS);
    share_questions("nemotron_h", ALONE);
}

struct told {
    int n;
    const struct ax_sequence *seqs[N];
};

static enum ax_status on_scored(void *ctx, struct ax_sequence *s) {
    struct told *e = ctx;
    assert_true(s->logprobs[0] < 0); /* read before the caller is told */
    e->seqs[e->n++] = s;
    return AX_OK;
}

static void setup_scores(struct test *t, int pass_tokens) {
    static const int32_t choices[] = {3, 5, 7, 11, 13, 17, 19};
    setup(t, "llama", AX_F32, 2);
    t->o.scoring = true;
    t->o.pass_tokens = pass_tokens;
    for (int i = 0; i < N; i++) {
        t->result[i].n_scored = 1;
        t->result[i].scored = &choices[i];
    }
}

/* Scores are read for AX_SCORE_PASSES passes together; in a pass that chooses tokens, with them. */
static void scores_wait_together(void **state) {
    (void)state;
    static struct test t, alone;
    static double scores[2][N][ROOM];
    struct told e = {0};
    for (int every = 0; every < 2; every++) { /* score the last token of a prompt, or all of it */
        setup_scores(&t, 2);
        setup_scores(&alone, 2);
        for (int i = 0; every && i < N; i++) {
            t.result[i].logprobs = scores[0][i];
            alone.result[i].logprobs = scores[1][i];
            t.result[i].n_scored = alone.result[i].n_scored = t.result[i].n_prompt;
            t.result[i].scored = alone.result[i].scored = t.prompts[i];
        }
        must(try(&t, "cpu", 2));
        must(try(&alone, "far", 2));
        assert_memory_equal(scores[0], scores[1], sizeof scores[0]);
        assert_memory_equal(t.logprobs, alone.logprobs, sizeof t.logprobs);
        for (int i = 0; i < N; i++)
            assert_int_equal(t.result[i].greedy, alone.result[i].greedy);
        assert_int_equal(t.waits, alone.waits);
        ax_arch_free(&alone.arch);
        assert_true(t.counters.passes > 3 * AX_SCORE_PASSES);
        const uint64_t most = (uint64_t)(t.counters.passes + AX_SCORE_PASSES - 1) / AX_SCORE_PASSES;
        assert_true(t.waits >= 1 && t.waits <= most);
        assert_true(!every || t.waits == most);
        ax_arch_free(&t.arch);
    }
    setup_scores(&t, 0); /* one sequence generates in their midst: the same scores */
    setup_scores(&alone, 0);
    t.o.done = on_scored;
    t.o.ctx = &e;
    t.result[3].n_scored = 0;
    must(try(&t, "cpu", 2));
    must(try(&alone, "cpu", 2));
    assert_int_equal(e.n, N);
    assert_true(t.waits <= (uint64_t)t.counters.passes);
    for (int i = 0; i < N; i++)
        if (i != 3)
            assert_true(t.logprobs[i][0] == alone.logprobs[i][0] && t.logprobs[i][0] < 0);
    assert_int_equal(t.result[3].n_new, 7);
    ax_arch_free(&t.arch);
    ax_arch_free(&alone.arch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores),
        cmocka_unit_test(scores_in_any_room),
        cmocka_unit_test(scored_questions_are_shared),
        cmocka_unit_test(scores_wait_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
