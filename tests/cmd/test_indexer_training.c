/* `axtrain sft` with indexer_training: what it reports and writes, also when it is resumed; and what it
 * refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/cmd/chats_case.h"
#include "tests/cmd/tiny_base.h"

#define KEY "indexer_training"

static const struct tiny_family sparse = {
    "sparse", "llama",
    "\"model_type\": \"deepseek_v32\", \"architectures\": [\"DeepseekV32ForCausalLM\"], "
    "\"first_k_dense_replace\": 1, \"kv_lora_rank\": 32, \"moe_intermediate_size\": 48, "
    "\"n_group\": 1, \"n_routed_experts\": 8, \"n_shared_experts\": 1, "
    "\"num_experts_per_tok\": 2, \"q_lora_rank\": 24, \"qk_nope_head_dim\": 16, "
    "\"qk_rope_head_dim\": 8, \"routed_scaling_factor\": 2.446, \"topk_group\": 1, "
    "\"v_head_dim\": 16, \"rope_theta\": 50000.0, \"tie_word_embeddings\": false, "
    "\"index_topk\": 12, \"index_n_heads\": 4, \"index_head_dim\": 16"};

/* base_model=… of a folder in the scratch folder. */
static const char *base(const char *name) {
    static char text[256];
    snprintf(text, sizeof text, "base_model=%s/%s", scratch, name);
    return text;
}

/* How many tensors of the folders differ, of indexers and of all else. */
static void compare(const char *x, const char *y, int *indexers, int *others) {
    struct ax_hf a, b;
    assert_ok(ax_hf_open(&a, in_scratch(x)));
    assert_ok(ax_hf_open(&b, in_scratch(y)));
    assert_int_equal(ax_hf_count(&a), ax_hf_count(&b));
    *indexers = *others = 0;
    for (int i = 0; i < ax_hf_count(&a); i++) {
        const struct ax_st_entry *e = ax_hf_at(&a, i), *f = ax_hf_find(&b, e->name);
        assert_non_null(f);
        assert_int_equal(e->bytes, f->bytes);
        *(strstr(e->name, ".indexer.") ? indexers : others) +=
            memcmp(e->data, f->data, e->bytes) != 0;
    }
    ax_hf_close(&a);
    ax_hf_close(&b);
}

enum { INDEXERS = 3 * 5 };

/* `start` has learned three conversations, with frozen indexers; `warm` is that with indexers that have warmed up. */
static const char *first_runs(void) {
    const char *config = chats_config("max_steps: 12\nsave_steps: 6\nfloat32: true\n");
    tiny_base(&sparse);
    EXPECT(0, "trained 12 of 12", config, base("sparse"), "reinit_weights=true", out("start"));
    EXPECT(0, "trained 12 of 12", config, base("start"), out("warm"), KEY "=warm_up");
    return config;
}

static void indexers_warm_up_and_then_train_beside_all_else(void **state) {
    (void)state;
    int indexers, others;
    const char *config = first_runs();
    compare("start", "warm", &indexers, &others);
    assert_true(indexers == INDEXERS && others == 0);
    const double first = metric_of("warm", "indexer_kl", 1),
                 last = metric_of("warm", "indexer_kl", 12);
    assert_true(first > 0 && last < 0.9 * first);
    assert_true(metric_of("warm", "loss", 1) == metric_of("warm", "loss", 12));
    EXPECT(0, "trained 3 of 3", config, base("warm"), out("all"), "max_steps=3", KEY "=sparse",
           "indexer_loss_coef=0.5");
    compare("warm", "all", &indexers, &others);
    assert_true(indexers == INDEXERS && others > 30);
    assert_true(metric_of("all", "indexer_kl", 3) > 0);
    EXPECT(0, "trained 3 of 3", config, base("warm"), out("frozen"), "max_steps=3");
    compare("warm", "frozen", &indexers, &others);
    assert_true(indexers == 0 && others > 30);
}

static void a_resumed_run_is_the_same(void **state) {
    (void)state;
    char from[256];
    const char *config = first_runs();
    snprintf(from, sizeof from, "resume_from_checkpoint=%s/warm/checkpoint-6", scratch);
    EXPECT(0, "trained", config, base("start"), out("again"), from, KEY "=warm_up");
    assert_true(same_weights("warm", "again"));
    EXPECT(2, KEY, config, base("start"), out("frozen"), from, KEY "=sparse");
    snprintf(from, sizeof from, "resume_from_checkpoint=%s/start/checkpoint-6", scratch);
    EXPECT(0, "trained", config, base("sparse"), "reinit_weights=true", out("all"), from);
    assert_true(same_weights("start", "all")); /* frozen indexers, too */
}

static int clear(void **state) {
    (void)state;
    static const char *const names[] = {"start", "warm", "all", "frozen", "again"};
    sft_command = "sft";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_int_equal(ax_remove_tree(in_scratch(names[i])), AX_OK);
    return 0;
}

/* Steps of three short conversations, where the plan is of the longest. */
static void ranks_of_tp_train_them_alike(void **state) {
    (void)state;
    static const char *const modes[] = {KEY "=warm_up", KEY "=sparse"};
    const char *config = chats_config("max_steps: 3\nfloat32: true\n");
    tiny_base(&sparse);
    for (int i = 0; i < 2; i++) {
        EXPECT(0, "trained 3 of 3", config, base("sparse"), "reinit_weights=true", out("start"),
               modes[i]);
        sft_command = "launch";
        EXPECT(0, "trained 3 of 3", "-n", "2", "--", "sft", config, base("sparse"),
               "reinit_weights=true", out("all"), "tensor_parallel_size=2", "micro_batch_size=1",
               "gradient_accumulation_steps=3", modes[i]);
        sft_command = "sft";
        for (int step = 1; step <= 3; step++)
            assert_true(
                fabs(metric_of("start", "indexer_kl", step) / metric_of("all", "indexer_kl", step) -
                     1) < 1e-3);
        clear(state);
    }
}

static void what_has_no_indexers_to_train_is_refused(void **state) {
    (void)state;
    const char *config = chats_config("max_steps: 1\nfloat32: true\n");
    tiny_base(&sparse);
    EXPECT(2, KEY ": llama models have no indexers", config, KEY "=sparse");
    EXPECT(2, KEY ": expected", config, KEY "=dense");
    EXPECT(2, KEY ": an adapter is saved without", config, base("sparse"), "reinit_weights=true",
           "adapter=lora", "lora_r=4", "lora_alpha=8", "lora_target_linear=true", KEY "=sparse");
    EXPECT(2, KEY ": warm_up trains indexers alone", config, base("sparse"), "reinit_weights=true",
           "unfrozen_parameters=[lm_head]", KEY "=warm_up");
    EXPECT(2, "unfrozen_parameters: names no indexer", config, base("sparse"),
           "reinit_weights=true", "unfrozen_parameters=[lm_head]", KEY "=sparse");
    EXPECT(0, "trained 1 of 1", config, base("sparse"), "reinit_weights=true", out("all"),
           "unfrozen_parameters=[model.layers.0.self_attn.indexer.wk]", KEY "=sparse");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(indexers_warm_up_and_then_train_beside_all_else, clear),
        cmocka_unit_test_setup(a_resumed_run_is_the_same, clear),
        cmocka_unit_test_setup(ranks_of_tp_train_them_alike, clear),
        cmocka_unit_test_setup(what_has_no_indexers_to_train_is_refused, clear),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
