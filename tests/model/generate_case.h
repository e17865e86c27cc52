/* Sequences to generate and what came out, for tests of generation. */
#ifndef AX_TESTS_MODEL_GENERATE_CASE_H
#define AX_TESTS_MODEL_GENERATE_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/rng.h"
#include "model/drafter.h"
#include "model/generate/generate.h"
#include "tests/tiny.h"

#define N       7
#define NEW     40
#define LONGEST 40
/* extra members of qwen3_next, kimi_linear, granitemoehybrid, falcon_h1, nemotron_h, and lfm2 */
#define DELTA                                                                                      \
    ", \"full_attention_interval\": 2, \"linear_num_key_heads\": 2, "                              \
    "\"linear_num_value_heads\": 4, \"linear_key_head_dim\": 12, \"linear_value_head_dim\": 10, "  \
    "\"num_experts\": 4, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 22, "              \
    "\"shared_expert_intermediate_size\": 30"
#define KDA                                                                                        \
    ", \"linear_attn_config\": {\"full_attn_layers\": [2], \"kda_layers\": [1, 3], "               \
    "\"num_heads\": 3, \"head_dim\": 12}, \"kv_lora_rank\": 10, \"qk_nope_head_dim\": 7, "         \
    "\"qk_rope_head_dim\": 6, \"v_head_dim\": 5, \"num_experts\": 4, "                             \
    "\"num_experts_per_token\": 2, \"moe_intermediate_size\": 22"
#define MAMBA                                                                                      \
    ", \"num_local_experts\": 0, \"mamba_n_heads\": 8, \"mamba_d_head\": \"auto\", "               \
    "\"mamba_n_groups\": 2, \"mamba_d_state\": 12, \"shared_intermediate_size\": 40, "             \
    "\"layer_types\": [\"mamba\", \"attention\", \"mamba\"]"
#define BESIDE                                                                                     \
    ", \"mamba_d_ssm\": 80, \"mamba_n_heads\": 8, \"mamba_d_head\": \"auto\", "                    \
    "\"mamba_n_groups\": 2, \"mamba_d_state\": 12, \"key_multiplier\": 0.6, "                      \
    "\"attention_in_multiplier\": 0.9, \"attention_out_multiplier\": 1.2, "                        \
    "\"ssm_in_multiplier\": 1.3, \"ssm_out_multiplier\": 0.8, \"mlp_multipliers\": [0.9, 0.7], "   \
    "\"ssm_multipliers\": [0.9, 1.1, 0.8, 1.2, 0.7]"
#define ALONE                                                                                      \
    ", \"hybrid_override_pattern\": \"M*E\", \"mamba_num_heads\": 8, \"mamba_head_dim\": 10, "     \
    "\"n_groups\": 2, \"ssm_state_size\": 12, \"n_routed_experts\": 4, "                           \
    "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 22, \"moe_latent_size\": 14, "         \
    "\"moe_shared_expert_intermediate_size\": 30"
/* Of llama4_text; the middle one of three layers is full. */
#define CHUNKS(size)                                                                               \
    ", \"intermediate_size_mlp\": 38, \"num_local_experts\": 4, \"attention_chunk_size\": " #size  \
    ", \"floor_scale\": 3, \"no_rope_layer_interval\": 2, \"interleave_moe_layer_step\": 2"
/* of glm_moe_dsa, and of deepseek_v32 without SHARED: fewer keys than most sequences have */
#define SPARSE                                                                                     \
    ", \"q_lora_rank\": 9, \"kv_lora_rank\": 10, \"qk_nope_head_dim\": 7, "                        \
    "\"qk_rope_head_dim\": 6, \"v_head_dim\": 5, \"n_routed_experts\": 8, \"n_group\": 1, "        \
    "\"topk_group\": 1, \"num_experts_per_tok\": 3, \"moe_intermediate_size\": 22, "               \
    "\"first_k_dense_replace\": 1, \"index_topk\": 7, \"index_n_heads\": 3, \"index_head_dim\": "  \
    "10"
#define SHARED    ", \"indexer_types\": [\"full\", \"shared\", \"full\"]"
#define RECURRENT ", \"full_attn_idxs\": [1], \"block_multiple_of\": 16"
/* Of gemma4_text: layers that borrow keys, and inputs of each layer; or experts beside an MLP. */
#define LENDS                                                                                      \
    ", \"layer_types\": [\"sliding_attention\", \"full_attention\", \"full_attention\"], "         \
    "\"sliding_window\": 6, \"global_head_dim\": 20, \"num_kv_shared_layers\": 1, "                \
    "\"hidden_size_per_layer_input\": 6, \"vocab_size_per_layer_input\": 97, "                     \
    "\"use_double_wide_mlp\": true"
#define EXPERTS_BESIDE                                                                             \
    ", \"layer_types\": [\"sliding_attention\", \"sliding_attention\", \"full_attention\"], "      \
    "\"sliding_window\": 6, \"global_head_dim\": 20, \"num_global_key_value_heads\": 1, "          \
    "\"attention_k_eq_v\": true, \"hidden_size_per_layer_input\": 0, \"enable_moe_block\": true, " \
    "\"num_experts\": 4, \"top_k_experts\": 2, \"moe_intermediate_size\": 22"
/* Of gemma3n_text: streams, sparse gates, layers that borrow keys, and tokens without a row of their own. */
#define STREAMS                                                                                    \
    ", \"layer_types\": [\"sliding_attention\", \"full_attention\", \"full_attention\"], "         \
    "\"sliding_window\": 6, \"num_kv_shared_layers\": 1, \"hidden_size_per_layer_input\": 6, "     \
    "\"vocab_size_per_layer_input\": 60, \"altup_num_inputs\": 3, \"laurel_rank\": 5, "            \
    "\"activation_sparsity_pattern\": [0.5, 0, 0.8], \"altup_active_idx\": 1"
#define ROOM 80 /* tokens of a prompt, where max_prompt is more */

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

struct test {
    struct ax_arch arch;
    enum ax_dtype dtype;
    struct ax_generate_options o;
    int n; /* sequences */
    int order[N];
    int calls; /* how often to generate all; 0 = once */
    bool panels;
    /* out, by number of the sequence */
    int32_t prompts[N][ROOM], tokens[N][NEW];
    double logprobs[N][NEW];
    struct ax_sequence seqs[N], result[N];
    struct ax_generate_counters counters;
    uint64_t allocations; /* of the last call */
    uint64_t waits;       /* of all calls */
    int64_t blocks;       /* of the cache */
};

static void prompts(struct test *t) {
    for (int i = 0; i < N; i++) {
        const struct ax_rng_key key = {31, (uint32_t)i, 0};
        const int64_t n = 1 + i * 6;
        for (int64_t k = 0; k < n; k++)
            t->prompts[i][k] = (int32_t)ax_rng_below(key, (uint64_t)k, 97);
        t->result[i] = (struct ax_sequence){.n_prompt = n,
                                            .prompt = t->prompts[i],
                                            .stream = (uint64_t)i,
                                            .max_new = 4 + i,
                                            .tokens = t->tokens[i],
                                            .logprobs = t->logprobs[i]};
        t->order[i] = i;
    }
    t->n = N;
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct test *t = ctx;
    struct ax_model m;
    struct ax_drafter drafter = {0};
    struct ax_generator g = {0};
    const struct ax_model_options mo = {.dtype = t->dtype,
                                        .max_positions = t->o.max_prompt + t->o.max_new};
    AX_TRY(ax_model_create(&m, &t->arch, rt, &mo));
    ax_model_init_random(&m, 5);
    if (t->o.drafts) {
        AX_TRY(ax_drafter_create(&drafter, &m, &mo));
        AX_TRY(ax_model_init_random(&drafter.model, 5));
    }
    if (t->panels) {
        AX_TRY(ax_model_make_panels(&m));
        int n = 0;
        for (int i = 0; i < m.n_params; i++)
            n += m.params[i].panels;
        assert_int_equal(n, t->dtype == AX_BF16 ? 7 * m.arch.n_layers : 0); /* 97 rows do not fit */
    }
    enum ax_status st = ax_generator_create(&g, &m, &t->o);
    const uint64_t waits = rt->q->counters.waits;
    for (int call = 0; st == AX_OK && call < (t->calls > 0 ? t->calls : 1); call++) {
        for (int i = 0; i < t->n; i++)
            t->seqs[i] = t->result[t->order[i]];
        const uint64_t calls = ax_mem_calls();
        st = ax_generate(&g, t->n, t->seqs);
        t->allocations = ax_mem_calls() - calls;
        for (int i = 0; i < t->n; i++)
            t->result[t->order[i]] = t->seqs[i];
    }
    t->counters = g.counters;
    t->waits = rt->q->counters.waits - waits;
    if (g.model) {
        t->blocks = g.cache.n_blocks;
        ax_generator_forget(&g);
        assert_int_equal(g.cache.n_free, g.cache.n_blocks);
    }
    ax_generator_free(&g);
    ax_drafter_free(&drafter);
    ax_model_free(&m);
    return st;
}

static enum ax_status try(struct test *t, const char *backend, int threads) {
    const struct ax_runtime_options ro = {.backend = backend, .threads = threads};
    return ax_runtime_run(&ro, body, t, NULL);
}

static void setup_with(struct test *t, const char *family, const char *extra, enum ax_dtype dtype,
                       int lanes) {
    memset(t, 0, sizeof *t);
    must(tiny_arch(&t->arch, family, true, extra));
    t->dtype = dtype;
    t->o = (struct ax_generate_options){
        .n_seqs = lanes,
        .max_prompt = LONGEST,
        .max_new = NEW,
        .sampling = {.temperature = 1.1, .top_p = 0.95, .repetition_penalty = 1.2, .seed = 4}};
    prompts(t);
}

static inline void setup(struct test *t, const char *family, enum ax_dtype dtype, int lanes) {
    setup_with(t, family, "", dtype, lanes);
}

static inline void same(const struct test *a, const struct test *b, int i) {
    assert_int_equal(a->result[i].n_new, b->result[i].n_new);
    assert_int_equal(a->result[i].finish, b->result[i].finish);
    const size_t n = (size_t)a->result[i].n_new;
    assert_memory_equal(a->tokens[i], b->tokens[i], n * sizeof **a->tokens);
    assert_memory_equal(a->logprobs[i], b->logprobs[i], n * sizeof **a->logprobs);
}

/* Answers of some blocks, of which the last is the shortest. */
static inline void make_long(struct test *t) {
    for (int i = 0; i < N; i++)
        t->result[i].max_new = NEW - 3 * i;
}

#endif
