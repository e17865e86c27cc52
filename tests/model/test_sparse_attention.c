/* Sparse attention: where all keys may be chosen it has the bits of latent attention without an indexer, in training,
 * evaluation and generation; else it differs. The indexer is never trained. Meshes and layers that cannot choose are
 * refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "model/arch/split.h"
#include "model/generate/generate.h"
#include "model/model.h"
#include "tests/tiny.h"

#define LATENT                                                                                     \
    ", \"q_lora_rank\": 9, \"kv_lora_rank\": 10, \"qk_nope_head_dim\": 7, "                        \
    "\"qk_rope_head_dim\": 6, \"v_head_dim\": 5, \"n_routed_experts\": 8, \"n_group\": 4, "        \
    "\"num_experts_per_tok\": 3, \"moe_intermediate_size\": 22, \"topk_group\": 2, "               \
    "\"first_k_dense_replace\": 1"
#define INDEX ", \"index_n_heads\": 3, \"index_head_dim\": 9, \"index_topk\": "

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

static const struct {
    const char *backend;
    enum ax_dtype dtype;
} kinds[] = {{"ref", AX_F64}, {"cpu", AX_F32}, {"cpu", AX_BF16}};
#define COUNT(list) (sizeof(list) / sizeof *(list))

/* ---- training ---- */

static void train(const struct ax_arch *a, size_t kind, const int64_t *lengths,
                  struct tiny_run *r) {
    *r = (struct tiny_run){.arch = a, .lengths = lengths, .steps = 1, .seed = 7};
    r->o = tiny_options(kinds[kind].dtype, AX_RECOMPUTE_ON, 1, lengths);
    r->o.max_len = 40; /* so documents might choose */
    must(tiny_run(r, kinds[kind].backend, 2));
}

static void short_documents_train_as_without_indexers(void **state) {
    (void)state;
    static const int64_t lengths[] = {12, 1, 7, 11, 0}, longer[] = {12, 1, 18, 0};
    struct ax_arch full, sparse;
    must(tiny_arch(&full, "deepseek_v3", true, LATENT));
    must(tiny_arch(&sparse, "deepseek_v32", true, LATENT INDEX "12"));
    for (size_t k = 0; k < COUNT(kinds); k++) {
        struct tiny_run a, b;
        train(&full, k, lengths, &a);
        train(&sparse, k, lengths, &b);
        assert_true(a.loss == b.loss && a.grad_norm == b.grad_norm);
        train(&full, k, longer, &a);
        train(&sparse, k, longer, &b);
        assert_true(a.loss != b.loss && fabs(a.loss - b.loss) < 0.3);
    }
    ax_arch_free(&full);
    ax_arch_free(&sparse);
}

/* ---- generation ---- */

enum { N = 30, SCORED = 29 };
struct scores {
    const struct ax_arch *arch;
    enum ax_dtype dtype;
    int n; /* tokens */
    int32_t tokens[N];
    double logprobs[SCORED];
};

static enum ax_status score(struct ax_runtime *rt, void *ctx) {
    struct scores *s = ctx;
    struct ax_model m;
    struct ax_generator g = {0};
    const struct ax_model_options mo = {.dtype = s->dtype, .max_positions = 64};
    const struct ax_generate_options go = {
        .n_seqs = 1, .max_prompt = N, .max_new = 2, .pass_tokens = 5, .scoring = true};
    struct ax_sequence one = {.n_prompt = s->n - 1,
                              .prompt = s->tokens,
                              .n_scored = s->n - 1,
                              .scored = s->tokens + 1,
                              .logprobs = s->logprobs};
    AX_TRY(ax_model_create(&m, s->arch, rt, &mo));
    enum ax_status st = ax_model_init_random(&m, 5);
    if (st == AX_OK)
        st = ax_generator_create(&g, &m, &go);
    if (st == AX_OK)
        st = ax_generate(&g, 1, &one);
    ax_generator_free(&g);
    ax_model_free(&m);
    return st;
}

/* The cache may hold more tokens than are chosen, so the sparse model attends to rows of it. */
static void short_sequences_are_scored_as_without_indexers(void **state) {
    (void)state;
    struct ax_arch arch[2];
    must(tiny_arch(&arch[0], "deepseek_v3", true, LATENT));
    must(tiny_arch(&arch[1], "deepseek_v32", true, LATENT INDEX "12"));
    for (size_t k = 0; k < COUNT(kinds); k++)
        for (int n = 12; n <= N; n += 18) {
            static struct scores s[2];
            const struct ax_runtime_options ro = {.backend = kinds[k].backend, .threads = 2};
            for (int i = 0; i < 2; i++) {
                s[i] = (struct scores){.arch = &arch[i], .dtype = kinds[k].dtype, .n = n};
                for (int t = 0; t < n; t++)
                    s[i].tokens[t] =
                        (int32_t)ax_rng_below((struct ax_rng_key){31, 0, 0}, (uint64_t)t, 97);
                must(ax_runtime_run(&ro, score, &s[i], NULL));
            }
            const size_t same = 11 * sizeof *s[0].logprobs; /* those that 12 tokens give */
            assert_memory_equal(s[0].logprobs, s[1].logprobs, same);
            if (n > 12)
                assert_memory_not_equal(s[0].logprobs + 12, s[1].logprobs + 12,
                                        (size_t)(n - 13) * sizeof *s[0].logprobs);
        }
    ax_arch_free(&arch[0]);
    ax_arch_free(&arch[1]);
}

/* ---- what is trained ---- */

static enum ax_status count_frozen(struct ax_runtime *rt, void *ctx) {
    const struct ax_model_options *o = ctx;
    struct ax_arch arch;
    struct ax_model m;
    int indexers = 0, trained = 0;
    must(tiny_arch(&arch, "glm_moe_dsa", false, LATENT INDEX "5, \"index_topk_pattern\": \"FSF\""));
    AX_TRY(ax_model_create(&m, &arch, rt, o));
    for (int i = 0; i < m.n_params; i++) {
        const bool of_indexer = strstr(m.params[i].name, ".self_attn.indexer.") != NULL;
        indexers += of_indexer;
        trained += m.params[i].trainable;
        assert_false(of_indexer && m.params[i].trainable);
    }
    assert_int_equal(indexers, 2 * 5); /* of layers 0 and 2 */
    assert_true(trained > 0);
    ax_model_free(&m);
    ax_arch_free(&arch);
    return AX_OK;
}

static void indexers_are_frozen(void **state) {
    (void)state;
    static char *all[] = {".*"};
    const struct ax_peft_names patterns = {1, all};
    const struct ax_peft_config adapter = {.r = 2, .alpha = 4, .all_linear = true};
    const struct ax_runtime_options ro = {.backend = "ref", .threads = 1};
    struct ax_model_options ways[] = {{.train = true},
                                      {.train = true, .unfrozen = &patterns},
                                      {.train = true, .adapter = &adapter}};
    for (size_t i = 0; i < COUNT(ways); i++) {
        ways[i].dtype = AX_F64;
        ways[i].max_positions = 32;
        must(ax_runtime_run(&ro, count_frozen, &ways[i], NULL));
    }
}

/* ---- stages ---- */

static void stages_begin_at_indexers(void **state) {
    (void)state;
    struct ax_arch a;
    struct ax_chunks c;
    must(tiny_arch(&a, "glm_moe_dsa", false, LATENT INDEX "5, \"index_topk_pattern\": \"FSF\""));
    /* units: embedding, layers 0 and 1, then layer 2 and the head, however little a layer costs */
    const double times[] = {1, 1, 100, 1, 1};
    for (int stage = 0; stage < 2; stage++) {
        must(ax_split_units(&a, times, 32, 2, 1, stage, &c));
        assert_int_equal(c.list[0].first, stage ? 3 : 0);
        assert_int_equal(c.list[0].end, stage ? 5 : 3);
    }
    assert_int_equal(ax_split_units(&a, NULL, 32, 3, 1, 0, &c), AX_ERR_CONFIG);
    assert_string_equal(ax_error_text(),
                        "mesh: pp 3 exceeds the 2 layers with an indexer (the others share its "
                        "choice). Nearest: pp 2.");
    ax_arch_free(&a);
}

static enum ax_status ring(struct ax_runtime *rt, void *ctx) {
    const struct ax_arch *arch = ctx;
    struct ax_model m;
    const struct ax_model_options o = {
        .dtype = AX_F32, .max_positions = 32, .cp_method = AX_CP_RING};
    struct ax_runtime two = *rt;
    two.mesh.size[AX_ROLE_CP] = 2;
    const enum ax_status st = ax_model_create(&m, arch, &two, &o);
    assert_int_equal(st, AX_ERR_UNSUPPORTED);
    assert_non_null(strstr(ax_error_text(), "context_parallel_method: queries of deepseek_v32"));
    assert_non_null(strstr(ax_error_text(), "set it to gather"));
    ax_error_clear();
    return AX_OK;
}

static void rings_are_refused(void **state) {
    (void)state;
    struct ax_arch a;
    const struct ax_runtime_options ro = {.backend = "ref", .threads = 1};
    must(tiny_arch(&a, "deepseek_v32", false, LATENT INDEX "5"));
    must(ax_runtime_run(&ro, ring, &a, NULL));
    ax_arch_free(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_documents_train_as_without_indexers),
        cmocka_unit_test(short_sequences_are_scored_as_without_indexers),
        cmocka_unit_test(indexers_are_frozen),
        cmocka_unit_test(stages_begin_at_indexers),
        cmocka_unit_test(rings_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
