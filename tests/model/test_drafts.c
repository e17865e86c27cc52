/* Drafts by the layer for multi-token prediction: the tokens and log-probs are those without, bit for bit, however
 * sequences are generated, in fewer passes where drafts are accepted. */
#include "tests/model/generate_case.h"

#include "base/fault.h"

#define LATENT                                                                                     \
    ", \"q_lora_rank\": 9, \"kv_lora_rank\": 10, \"qk_nope_head_dim\": 7, "                        \
    "\"qk_rope_head_dim\": 6, \"v_head_dim\": 5, \"n_routed_experts\": 8, \"n_group\": 1, "        \
    "\"topk_group\": 1, \"num_experts_per_tok\": 3, \"moe_intermediate_size\": 22, "               \
    "\"first_k_dense_replace\": 1, \"num_nextn_predict_layers\": 1"
#define MIXTURE                                                                                    \
    ", \"n_routed_experts\": 8, \"num_experts_per_tok\": 3, \"moe_intermediate_size\": 22, "       \
    "\"num_nextn_predict_layers\": 1"

/* Where all tokens are about as likely, both distributions are alike, and the random number decides: nearly every
 * draft is accepted. Others of these models hardly accept any. */
#define EVEN 1e-4

static const struct {
    const char *family, *extra;
    enum ax_dtype dtype;
    double range; /* 0: the family's */
    struct ax_sampling sampling;
} models[] = {
    {"deepseek_v3",
     LATENT,
     AX_F32,
     0,
     {.temperature = 1.1, .top_p = 0.95, .min_p = 0.01, .seed = 4}},
    {"deepseek_v3", LATENT, AX_F32, EVEN, {.temperature = 1, .seed = 4}},
    {"deepseek_v3", LATENT, AX_BF16, EVEN, {.temperature = 0.9, .seed = 3}},
    {"glm4_moe", MIXTURE, AX_BF16, 0, {.temperature = 0}},
    {"glm4_moe", MIXTURE, AX_F32, EVEN, {.temperature = 1, .seed = 7}},
};
#define N_MODELS (sizeof models / sizeof *models)

static void setup_model(struct test *t, size_t k, int lanes, bool drafts) {
    setup_with(t, models[k].family, models[k].extra, models[k].dtype, lanes);
    t->o.sampling = models[k].sampling;
    t->arch.init_range = models[k].range > 0 ? models[k].range : t->arch.init_range;
    t->o.drafts = drafts;
    if (drafts)
        must(ax_arch_check_predict(&t->arch, "drafts"));
    make_long(t);
}

static void tokens_are_those_without(void **state) {
    (void)state;
    static struct test base, other;
    static const struct {
        const char *backend;
        int lanes, threads, pass_tokens;
        int64_t kv_tokens;
        bool backwards, panels;
    } ways[] = {{"cpu", N, 1, 0, 0, false, true},  {"cpu", 1, 2, 0, 0, true, false},
                {"cpu", 3, 2, 5, 0, false, false}, {"cpu", N, 2, 0, 90, true, false},
                {"cpu", 16, 1, 9, 0, true, true},  {"far", N, 2, 11, 90, false, false}};
    for (size_t k = 0; k < N_MODELS; k++) {
        setup_model(&base, k, N, false);
        must(try(&base, "cpu", 1));
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            const struct ax_generate_counters *c = &other.counters;
            setup_model(&other, k, ways[w].lanes, true);
            other.o.pass_tokens = ways[w].pass_tokens;
            other.o.kv_tokens = ways[w].kv_tokens;
            for (int i = 0; ways[w].backwards && i < N; i++)
                other.order[i] = N - 1 - i;
            must(try(&other, ways[w].backend, ways[w].threads));
            for (int i = 0; i < N; i++)
                same(&base, &other, i);
            assert_int_equal(c->tokens, base.counters.tokens);
            assert_true(c->drafts > 0 && (ways[w].kv_tokens == 0) == (c->put_back == 0));
            assert_true(models[k].range != EVEN || 10 * c->accepted > 8 * c->drafts);
            ax_arch_free(&other.arch);
        }
        ax_arch_free(&base.arch);
    }
}

/* A sequence's n tokens take n passes, of which the prompt is one; each accepted draft saves one. */
static void accepted_drafts_save_passes(void **state) {
    (void)state;
    static struct test without, with;
    for (size_t k = 0; k < N_MODELS; k++) {
        setup_model(&without, k, 1, false);
        setup_model(&with, k, 1, true);
        without.n = with.n = 1;
        without.order[0] = with.order[0] = 2;
        must(try(&without, "cpu", 1));
        must(try(&with, "cpu", 1));
        same(&without, &with, 2);
        assert_int_equal(without.counters.passes, without.result[2].n_new);
        assert_int_equal(with.counters.passes, without.counters.passes - with.counters.accepted);
        print_message("%s: %lld passes, %lld with drafts, of which %lld of %lld are accepted\n",
                      models[k].family, (long long)without.counters.passes,
                      (long long)with.counters.passes, (long long)with.counters.accepted,
                      (long long)with.counters.drafts);
        if (models[k].range == EVEN)
            assert_true(with.counters.passes < 0.6 * (double)without.counters.passes);
        ax_arch_free(&without.arch);
        ax_arch_free(&with.arch);
    }
}

/* A sequence may end with a draft, or where one was made. */
static void sequences_end_where_they_would(void **state) {
    (void)state;
    static struct test base, other;
    for (int32_t stop = 0; stop < 97; stop += 16) {
        setup_model(&base, 1, N, false);
        setup_model(&other, 1, 3, true);
        const int32_t stops[] = {stop, (stop + 7) % 97, (stop + 31) % 97, (stop + 48) % 97};
        base.o.stop = other.o.stop = stops;
        base.o.n_stop = other.o.n_stop = 4;
        must(try(&base, "cpu", 1));
        must(try(&other, "cpu", 2));
        for (int i = 0; i < N; i++)
            same(&base, &other, i);
        assert_true(other.counters.accepted > 0);
        ax_arch_free(&base.arch);
        ax_arch_free(&other.arch);
    }
}

/* What depends on tokens that a draft has not made yet is chosen without. */
static void penalties_go_without_drafts(void **state) {
    (void)state;
    static struct test base, other;
    setup_model(&base, 1, N, false);
    setup_model(&other, 1, N, true);
    base.o.sampling.repetition_penalty = other.o.sampling.repetition_penalty = 1.2;
    must(try(&base, "cpu", 1));
    must(try(&other, "cpu", 1));
    for (int i = 0; i < N; i++)
        same(&base, &other, i);
    assert_int_equal(other.counters.drafts, 0);
    ax_arch_free(&base.arch);
    ax_arch_free(&other.arch);
}

static void ropes_that_depend_on_the_length_are_refused(void **state) {
    (void)state;
    static struct test t;
    setup_with(&t, "glm4_moe",
               MIXTURE ", \"rope_scaling\": {\"rope_type\": \"dynamic\", \"factor\": 2.0}", AX_F32,
               2);
    must(ax_arch_check_predict(&t.arch, "drafts"));
    t.o.drafts = true;
    t.o.max_prompt = 64;
    assert_int_equal(try(&t, "cpu", 1), AX_ERR_UNSUPPORTED);
    assert_non_null(strstr(ax_error_text(), "the rope of this model depends on the length"));
    ax_error_clear();
    ax_arch_free(&t.arch);
}

/* What a drafter frees is not the model's. */
static void a_copy_that_fails_has_no_layers(void **state) {
    (void)state;
    static struct test t;
    struct ax_arch copy = {0};
    setup_model(&t, 0, 1, true);
    must(ax_fault_configure("malloc:1:enomem"));
    assert_int_equal(ax_arch_with_prediction(&t.arch, &copy), AX_ERR_NOMEM);
    must(ax_fault_configure(NULL));
    ax_error_clear();
    assert_null(copy.layers);
    ax_arch_free(&t.arch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_are_those_without),
        cmocka_unit_test(accepted_drafts_save_passes),
        cmocka_unit_test(sequences_end_where_they_would),
        cmocka_unit_test(penalties_go_without_drafts),
        cmocka_unit_test(ropes_that_depend_on_the_length_are_refused),
        cmocka_unit_test(a_copy_that_fails_has_no_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
