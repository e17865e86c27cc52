/* Families whose layers are not Llama's, on meshes of ranks against one rank, in double precision. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/cmd/mesh_case.h"
#include "tests/sweep.h"
#include "tests/long.h"

/* Latent attention, shared experts, and routers that choose among groups or by a bias. */
#define LATENT                                                                                     \
    "\"kv_lora_rank\": 10, \"qk_nope_head_dim\": 7, \"qk_rope_head_dim\": 6, "                     \
    "\"v_head_dim\": 5, \"n_routed_experts\": 8, \"num_experts_per_tok\": 3, "                     \
    "\"moe_intermediate_size\": 22, \"n_shared_experts\": 2, \"first_k_dense_replace\": 1"
#define INDEX ", \"index_topk\": 5, \"index_n_heads\": 3, \"index_head_dim\": 9"
static const struct model latent[] = {
    {"deepseek_v2",
     false,
     ", " LATENT ", \"q_lora_rank\": null, \"attention_bias\": true, \"n_group\": 4, "
     "\"topk_group\": 2, \"topk_method\": \"group_limited_greedy\", "
     "\"routed_scaling_factor\": 2",
     {0},
     {0},
     0},
    {"deepseek_v3",
     true,
     ", " LATENT ", \"q_lora_rank\": 9, \"attention_bias\": true, \"n_group\": 2, "
     "\"topk_group\": 1",
     {0},
     {0},
     0},
    {"glm4_moe",
     false,
     ", \"n_routed_experts\": 8, \"num_experts_per_tok\": 3, \"moe_intermediate_size\": 22, "
     "\"use_qk_norm\": true, \"attention_bias\": true",
     {0},
     {0},
     0},
    {"qwen2_moe",
     false,
     ", \"num_experts\": 8, \"num_experts_per_tok\": 3, \"moe_intermediate_size\": 22, "
     "\"shared_expert_intermediate_size\": 30, \"output_router_logits\": true",
     {0},
     {0},
     0},
    {"deepseek_v32",
     true,
     ", " LATENT ", \"q_lora_rank\": 9, \"attention_bias\": true, \"n_group\": 2, "
     "\"topk_group\": 1" INDEX,
     {0},
     {0},
     0},
    {"glm_moe_dsa",
     false,
     ", " LATENT ", \"q_lora_rank\": 9, \"index_topk_pattern\": \"FSFFS\"" INDEX,
     {0},
     {0},
     0},
};
static void latent_attention_is_one_rank(void **state) {
    (void)state;
    static const struct mesh meshes[] = {
        {{1, 1, 2, 1, 1, 1}, 3}, {{1, 1, 1, 1, 2, 1}, 3}, {{1, 1, 1, 2, 1, 1}, 3},
        {{2, 1, 1, 1, 1, 1}, 3}, {{1, 1, 2, 1, 1, 2}, 3}, {{1, 1, 1, 1, 4, 2}, 2},
        {{1, 1, 2, 1, 2, 4}, 2}, {{1, 1, 1, 2, 2, 2}, 3}, {{2, 1, 2, 1, 1, 2}, 3},
    };
    for (size_t k = 0; k < sizeof latent / sizeof *latent; k++) /* of the later models a few */
        for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i += k < 2 ? 1 : 3) {
            static struct ax_golden_report r;
            struct ax_mesh_check c = {0};
            run(&latent[k], &meshes[i], "ref", (enum ax_recompute)((i + k) % 3), &c, &r);
            expect_figures(&r, &latent[k], &meshes[i], 10);
            assert_int_equal(has_group(&r, "balancing loss"), meshes[i].sizes.pp == 1);
        }
}

/* Loads are those of all micro-batches and ranks: the second step, whose experts are others, is equal.
 * So is the loss by sequence, of documents that several ranks have parts of. */
static void biases_of_routers_are_one_rank_s(void **state) {
    (void)state;
    static const struct mesh meshes[] = {{{1, 1, 2, 1, 1, 2}, 3},
                                         {{1, 1, 1, 1, 2, 1}, 3},
                                         {{1, 2, 1, 2, 1, 1}, 2},
                                         {{2, 1, 2, 1, 1, 1}, 3},
                                         {{1, 1, 2, 1, 2, 4}, 2}};
    static struct ax_golden_report r;
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        struct ax_mesh_check c = {.step.router_bias_speed = 0.4,
                                  .step.sequence_coef = 0.3,
                                  .step.model.sharding = ax_zero_stage(1 + (int)i % 3)};
        run(&latent[1 + i % 2], &meshes[i], "ref", AX_RECOMPUTE_ON, &c, &r);
        expect_figures(&r, &latent[1 + i % 2], &meshes[i], 10);
        assert_true(has_group(&r, "loss by sequence"));
    }
}

/* Indexers, while they warm up and beside all else: their loss and gradients are of queries that ranks share by rows, of
 * attention whose heads they share, and of keys from all parts of a sequence. */
static void indexers_train_as_on_one_rank(void **state) {
    (void)state;
    static const struct mesh meshes[] = {
        {{1, 1, 2, 1, 1, 1}, 3}, {{1, 1, 1, 1, 2, 1}, 3}, {{1, 1, 1, 2, 1, 1}, 3},
        {{2, 1, 1, 1, 1, 1}, 3}, {{1, 1, 1, 1, 4, 2}, 2}, {{1, 1, 1, 2, 2, 2}, 3},
        {{2, 1, 2, 1, 1, 2}, 3}, {{1, 2, 1, 2, 1, 1}, 2},
    };
    static struct ax_golden_report r;
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++)
        for (int mode = AX_INDEXERS_WARM_UP; mode <= AX_INDEXERS_SPARSE; mode++) {
            struct ax_mesh_check c = {.step.index_coef = 0.7,
                                      .step.model.indexers = (enum ax_indexer_mode)mode,
                                      .step.model.sharding = ax_zero_stage(1 + (int)i % 3)};
            const struct model *m = &latent[4 + (i + (size_t)mode) % 2];
            run(m, &meshes[i], "ref", (enum ax_recompute)(i % 3), &c, &r);
            expect_figures(&r, m, &meshes[i], mode == AX_INDEXERS_SPARSE ? 10 : 4);
            assert_true(has_group(&r, "loss of indexers"));
        }
}

/* Adapters of all linears and of experts, with dropout, which numbers rows of the entire step; on
 * packed weights, too, and in several rounds of rows. */
static void adapters_of_all_linears_are_one_rank(void **state) {
    (void)state;
    static const struct mesh meshes[] = {
        {{1, 1, 1, 1, 2, 1}, 3}, {{1, 1, 2, 1, 2, 4}, 2}, {{1, 1, 1, 2, 1, 2}, 3}};
    static const char *stacked[] = {"mlp.experts.gate_up_proj", "mlp.experts.down_proj"};
    static const struct ax_peft_config drops = {
        .r = 3, .alpha = 6, .dropout = 0.25, .all_linear = true};
    const struct ax_peft_config routed = {
        .r = 3, .alpha = 6, .all_linear = true, .parameters = {2, (char **)(uintptr_t)stacked}};
    static struct ax_golden_report r;
    for (size_t k = 0; k < sizeof latent / sizeof *latent; k++)
        for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
            struct ax_mesh_check c = {.step.model.adapter = (i + k) % 2 ? &drops : &routed,
                                      .step.model.sharding = ax_zero_stage(3),
                                      .step.model.expert_room = i == 1 ? 0.4 : 0,
                                      .step.model.base_store =
                                          i == 1 ? AX_STORAGE_INT8 : AX_STORAGE_PLAIN};
            run(&latent[k], &meshes[i], "ref", AX_RECOMPUTE_ON, &c, &r);
            expect_figures(&r, &latent[k], &meshes[i], 6);
        }
}

/* Adapters of experts without gates, in a latent, alone: nothing before the first layer's is trained. */
static void adapters_of_ungated_experts_are_one_rank(void **state) {
    (void)state;
    static const struct mesh meshes[] = {{{1, 1, 2, 1, 1, 1}, 3},
                                         {{1, 1, 1, 1, 2, 1}, 3},
                                         {{1, 1, 2, 1, 2, 4}, 2},
                                         {{1, 1, 1, 2, 1, 2}, 3}};
    static const struct model mixtures = {
        "nemotron_h",
        false,
        ", \"hybrid_override_pattern\": \"E*E*E\", \"n_routed_experts\": 4, "
        "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 22, \"moe_latent_size\": 14, "
        "\"moe_shared_expert_intermediate_size\": 30",
        {0},
        {0},
        0};
    static const char *weights[] = {"mixer.experts.up_proj", "mixer.experts.down_proj"};
    const struct ax_peft_config routed = {
        .r = 3, .alpha = 6, .parameters = {2, (char **)(uintptr_t)weights}};
    static struct ax_golden_report r;
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        struct ax_mesh_check c = {.step.model.adapter = &routed,
                                  .step.model.sharding = ax_zero_stage(1 + (int)i % 3)};
        run(&mixtures, &meshes[i], "ref", (enum ax_recompute)(i % 3), &c, &r);
        expect_figures(&r, &mixtures, &meshes[i], 6);
    }
}

/* Families that put another one's parts together, each on a mesh that cuts what is its own: MLPs without a gate and with
 * biases, gates of attention in a matrix, stacked experts beside an MLP in one matrix, latent attention with other names
 * of experts, and such with queries that grow. */
static void parts_of_others_are_one_rank(void **state) {
    (void)state;
    static const struct {
        struct model model;
        struct mesh meshes[2];
    } cases[] = {
        {{"afmoe",
          false,
          ", \"num_experts\": 8, \"num_experts_per_tok\": 3, \"moe_intermediate_size\": 22, "
          "\"sliding_window\": 5, \"global_attn_every_n_layers\": 2, \"mup_enabled\": true",
          {0},
          {0},
          0},
         {{{1, 1, 1, 2, 4, 1}, 3}, {{1, 1, 2, 1, 2, 2}, 3}}},
        {{"arcee", true, ", \"attention_bias\": true, \"mlp_bias\": true", {0}, {0}, 0},
         {{{1, 1, 1, 1, 2, 1}, 3}, {{1, 1, 2, 2, 1, 1}, 2}}},
        {{"granitemoeshared",
          false,
          ", \"num_local_experts\": 8, \"num_experts_per_tok\": 3, "
          "\"shared_intermediate_size\": 30, \"residual_multiplier\": 0.4",
          {0},
          {0},
          0},
         {{{1, 1, 1, 1, 2, 1}, 3}, {{1, 1, 2, 1, 1, 2}, 3}}},
        {{"glm4_moe_lite", false, ", " LATENT ", \"q_lora_rank\": 9", {0}, {0}, 0},
         {{{1, 1, 1, 1, 4, 1}, 3}, {{2, 1, 1, 1, 1, 1}, 3}}},
        {{"mistral4",
          false,
          ", " LATENT ", \"q_lora_rank\": 9, \"rope_parameters\": {\"rope_theta\": 1e4, "
          "\"llama_4_scaling_beta\": 0.3, \"original_max_position_embeddings\": 4}",
          {0},
          {0},
          0},
         {{{1, 1, 1, 2, 2, 1}, 3}, {{2, 1, 1, 2, 1, 2}, 3}}},
        {{"exaone_moe",
          false,
          ", \"num_experts\": 8, \"num_experts_per_tok\": 3, \"moe_intermediate_size\": 22, "
          "\"num_shared_experts\": 2, \"sliding_window\": 5, \"sliding_window_pattern\": 2",
          {0},
          {0},
          0},
         {{{1, 1, 1, 2, 2, 1}, 3}, {{1, 1, 2, 1, 1, 2}, 3}}}};
    static struct ax_golden_report r;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        for (size_t i = 0; i < 2; i++) {
            struct ax_mesh_check c = {0};
            run(&cases[k].model, &cases[k].meshes[i], "ref", (enum ax_recompute)((i + k) % 3), &c,
                &r);
            expect_figures(&r, &cases[k].model, &cases[k].meshes[i], 6);
        }
}

/* Windows in some layers of a mixture or in all; and beside two ropes and norms of all heads, of which tp splits rows; with
 * tp 4 every rank has all heads of keys. */
static void windows_are_one_rank(void **state) {
    (void)state;
#define WINDOWS                                                                                    \
    ", \"num_experts\": 8, \"num_experts_per_tok\": 3, \"moe_intermediate_size\": 22, "            \
    "\"use_sliding_window\": true, \"sliding_window\": 5"
    static const struct model models[] = {
        {"qwen2_moe", false, WINDOWS ", \"shared_expert_intermediate_size\": 30", {0}, {0}, 0},
        {"qwen3_moe", true, WINDOWS, {0}, {0}, 0},
        {"minimax_m2", false, WINDOWS ", \"use_qk_norm\": true", {0}, {0}, 0},
        {"olmo3", false, ", \"sliding_window\": 5", {0}, {0}, 0}};
    static const struct mesh meshes[] = {{{1, 1, 2, 1, 1, 1}, 3}, {{1, 1, 1, 2, 1, 1}, 3},
                                         {{2, 1, 1, 2, 1, 1}, 3}, {{1, 1, 1, 1, 2, 1}, 3},
                                         {{1, 1, 1, 1, 4, 1}, 3}, {{2, 1, 1, 1, 2, 1}, 3},
                                         {{1, 1, 2, 1, 1, 2}, 3}, {{1, 1, 1, 2, 2, 2}, 3}};
    static struct ax_golden_report r;
    for (size_t k = 0; k < 4; k++)
        for (size_t i = 0; i < (k < 3 ? 8 : 6); i++) {
            struct ax_mesh_check c = {0};
            if (left_out(i + k))
                continue;
            run(&models[k], &meshes[i], "ref", (enum ax_recompute)((i + k) % 3), &c, &r);
            expect_figures(&r, &models[k], &meshes[i], 6);
        }
}

/* Every product of two axes of a mesh. */
static const struct mesh two_axes[] = {
    {{1, 1, 1, 4, 1, 1}, 3}, {{1, 1, 1, 1, 4, 1}, 3}, {{1, 1, 1, 2, 2, 1}, 3},
    {{1, 1, 2, 2, 1, 1}, 2}, {{1, 1, 2, 1, 2, 1}, 2}, {{1, 2, 1, 2, 1, 1}, 2},
    {{2, 1, 1, 2, 1, 1}, 3}, {{2, 1, 1, 1, 2, 1}, 3}, {{2, 1, 2, 1, 1, 1}, 3},
    {{1, 1, 2, 1, 2, 4}, 2}, {{1, 1, 1, 2, 2, 4}, 3}, {{1, 1, 1, 3, 1, 1}, 3},
    {{1, 2, 1, 1, 4, 1}, 2}, {{1, 1, 2, 2, 1, 2}, 3}};

/* With adapters of all linears on every fourth mesh, which have 6 figures at least; the full model has `at_least`. `check`
 * is what else is asked of all. Of families whose layers are another one's or have no state, half of the meshes, which are
 * others in another turn; in a sweep all. */
static void on_two_axes(const struct model *m, bool experts, bool half, size_t turn, int at_least,
                        const struct ax_mesh_check *check) {
    static const struct ax_peft_config adapters = {.r = 3, .alpha = 6, .all_linear = true};
    static struct ax_golden_report r;
    for (size_t i = 0, n = 0; i < sizeof two_axes / sizeof *two_axes; i++) {
        const struct ax_mesh_sizes *sizes = &two_axes[i].sizes;
        struct ax_mesh_check c = *check;
        if ((sizes->ep > 1 && !experts) || (half && left_out(i + turn)))
            continue;
        if (c.step.model.cp_method == AX_CP_RING && sizes->cp == 1)
            continue;
        const bool adapts = ++n % 4 == 0;
        c.step.model.adapter = adapts ? &adapters : NULL;
        c.step.model.sharding = ax_zero_stage(1 + (int)i % 3);
        run(m, &two_axes[i], "ref", (enum ax_recompute)((i + turn) % 3), &c, &r);
        expect_figures(&r, m, &two_axes[i], adapts ? 6 : at_least);
    }
}

/* The layer for multi-token prediction looks a token ahead, across runs of a sequence over cp, and reads
 * the embedding, of which the last stage has a copy. */
static void predictions_are_one_rank(void **state) {
    (void)state;
    static const struct model models[] = {{"deepseek_v3",
                                           false,
                                           ", " LATENT ", \"q_lora_rank\": 9, \"n_group\": 2, "
                                           "\"topk_group\": 1, \"num_nextn_predict_layers\": 1",
                                           {0},
                                           {0},
                                           0},
                                          {"glm4_moe",
                                           true,
                                           ", \"n_routed_experts\": 8, \"num_experts_per_tok\": "
                                           "3, \"moe_intermediate_size\": 22, "
                                           "\"num_nextn_predict_layers\": 1",
                                           {0},
                                           {0},
                                           0}};
    for (size_t k = 0; k < 2; k++)
        on_two_axes(&models[k], true, k > 0, k, 9, &(struct ax_mesh_check){.step.mtp_coef = 0.7});
    static const enum ax_pipeline_kind kinds[] = {AX_PIPELINE_INTERLEAVED, AX_PIPELINE_ZERO_BUBBLE};
    static const struct mesh staged = {{2, 1, 2, 1, 1, 1}, 4};
    static struct ax_golden_report r;
    for (size_t i = 0; i < 2; i++) {
        struct ax_mesh_check c = {.step.mtp_coef = 0.7, .step.pipeline = kinds[i]};
        run(&models[0], &staged, "ref", AX_RECOMPUTE_SELECTIVE, &c, &r);
        expect_figures(&r, &models[0], &staged, 9);
        assert_true(has_group(&r, "loss of multi-token prediction"));
    }
}

/* More heads of keys and values in layers with a window, which alone have sinks, and values with a factor. */
static void heads_of_layers_are_one_rank(void **state) {
    (void)state;
    static const struct model heads = {
        "mimo_v2_flash",
        false,
        ", \"v_head_dim\": 7, \"sliding_window_size\": 6, \"n_routed_experts\": 4, "
        "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 22, "
        "\"partial_rotary_factor\": 0.5, \"hybrid_layer_pattern\": [0, 1, 0, 1, 1]",
        {0},
        {0},
        0};
    for (int ring = 0; ring < 2; ring++)
        on_two_axes(
            &heads, true, true, (size_t)ring, 9,
            &(struct ax_mesh_check){.step.model.cp_method = ring ? AX_CP_RING : AX_CP_GATHER});
}

/* Attention within chunks that end anywhere in the runs of a sequence, by either way of cp; queries that grow, and
 * experts whose input is weighed. */
static void chunks_are_one_rank(void **state) {
    (void)state;
    static const struct model chunked = {
        "llama4_text",
        false,
        ", \"intermediate_size_mlp\": 38, \"num_local_experts\": 4, \"attention_chunk_size\": 5, "
        "\"floor_scale\": 3, \"no_rope_layer_interval\": 3, \"interleave_moe_layer_step\": 2",
        {0},
        {0},
        0};
    for (int ring = 0; ring < 2; ring++)
        on_two_axes(
            &chunked, true, true, (size_t)!ring, 9,
            &(struct ax_mesh_check){.step.model.cp_method = ring ? AX_CP_RING : AX_CP_GATHER,
                                    .step.model.expert_room = 0.4});
}

/* Runs of a sequence over cp are shorter than what a convolution of 8 reaches back. The
 * delta rule's output is tiny where a query is nearly orthogonal to its only key; with the usual eps its norm would make the
 * rounding of that product 1e5 times larger. */
static void layers_with_states_are_one_rank(void **state) {
    (void)state;
#define CONVOLVES ", \"full_attn_idxs\": [1, 3], \"conv_bias\": true, \"block_multiple_of\": 6"
#define DELTA_RULE                                                                                 \
    ", \"full_attention_interval\": 3, \"linear_num_key_heads\": 4, \"linear_num_value_heads\": "  \
    "8, "                                                                                          \
    "\"linear_key_head_dim\": 6, \"linear_value_head_dim\": 5, \"rms_norm_eps\": 0.01"
#define HALF ", \"partial_rotary_factor\": 0.5"
    /* 2 groups: with tp 4 a norm's elements are on several ranks */
#define MAMBA                                                                                      \
    ", \"mamba_n_heads\": 8, \"mamba_d_head\": 10, \"mamba_n_groups\": 2, \"mamba_d_state\": 6, "  \
    "\"mamba_proj_bias\": true, \"shared_intermediate_size\": 54, \"time_step_limit\": [0.3, "     \
    "1.2], "                                                                                       \
    "\"layer_types\": [\"mamba\", \"mamba\", \"attention\", \"mamba\", \"mamba\"]"
    /* heads of latent attention are others than those of the delta rule */
#define KDA                                                                                        \
    ", \"linear_attn_config\": {\"full_attn_layers\": [2, 5], \"kda_layers\": [1, 3, 4], "         \
    "\"num_heads\": 4, \"head_dim\": 6}, \"kv_lora_rank\": 10, \"qk_nope_head_dim\": 7, "          \
    "\"qk_rope_head_dim\": 6, \"v_head_dim\": 5, \"rms_norm_eps\": 0.01, "                         \
    "\"num_experts\": 4, \"num_experts_per_token\": 2, \"moe_intermediate_size\": 22"
#define BESIDE                                                                                     \
    ", \"mamba_d_ssm\": 80, \"mamba_n_heads\": 8, \"mamba_d_head\": 10, \"mamba_n_groups\": 2, "   \
    "\"mamba_d_state\": 6, \"time_step_limit\": [0.3, 1.2], \"attention_bias\": true, "            \
    "\"attention_in_multiplier\": 0.9, \"attention_out_multiplier\": 1.2, "                        \
    "\"ssm_in_multiplier\": 1.3, \"ssm_out_multiplier\": 0.8, \"mlp_multipliers\": [0.9, 0.7], "   \
    "\"ssm_multipliers\": [0.9, 1.1, 0.8, 1.2, 0.7]"
#define ALONE                                                                                      \
    ", \"mamba_num_heads\": 8, \"mamba_head_dim\": 10, \"n_groups\": 2, "                          \
    "\"ssm_state_size\": 6, \"use_bias\": true, \"time_step_limit\": [0.3, 1.2]"
#define EXPERTS ", \"num_experts\": 4, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 22"
    static const struct {
        struct model model;
        bool experts, half;
        int figures;
    } cases[] = {
        {{"granitemoehybrid", true, MAMBA ", \"num_local_experts\": 0", {0}, {0}, 0},
         false,
         true,
         7},
        {{"granitemoehybrid",
          false,
          MAMBA ", \"num_local_experts\": 4, \"output_router_logits\": true",
          {0},
          {0},
          0},
         true,
         false,
         9},
        {{"kimi_linear", false, KDA, {0}, {0}, 0}, true, false, 9},
        {{"falcon_h1", true, BESIDE, {0}, {0}, 0}, false, true, 7},
        {{"falcon_h1",
          false,
          BESIDE ", \"mamba_rms_norm\": true, \"mamba_norm_before_gate\": false",
          {0},
          {0},
          0},
         false,
         true,
         7},
        {{"nemotron_h", true, ALONE ", \"hybrid_override_pattern\": \"M-*M-\"", {0}, {0}, 0},
         false,
         true,
         5},
        {{"nemotron_h",
          false,
          ALONE
          ", \"hybrid_override_pattern\": \"ME*ME\", \"n_routed_experts\": 4, "
          "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 22, \"moe_latent_size\": 14, "
          "\"moe_shared_expert_intermediate_size\": 30",
          {0},
          {0},
          0},
         true,
         true,
         7},
        {{"lfm2", true, CONVOLVES ", \"conv_L_cache\": 8", {0}, {0}, 0}, false, true, 9},
        {{"lfm2_moe", true, CONVOLVES EXPERTS, {0}, {0}, 0}, true, false, 9},
        {{"qwen3_5_text", true, DELTA_RULE HALF, {0}, {0}, 0}, false, true, 7},
        {{"qwen3_5_moe_text",
          false,
          DELTA_RULE HALF EXPERTS ", \"shared_expert_intermediate_size\": 30",
          {0},
          {0},
          0},
         true,
         false,
         9},
        {{"olmo_hybrid", false, DELTA_RULE, {0}, {0}, 0}, false, true, 6},
        {{"qwen3_next",
          false,
          DELTA_RULE HALF EXPERTS
          ", \"shared_expert_intermediate_size\": 30, \"mlp_only_layers\": [0, 3]",
          {0},
          {0},
          0},
         true,
         true,
         9}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        on_two_axes(&cases[k].model, cases[k].experts, cases[k].half, k, cases[k].figures,
                    &(struct ax_mesh_check){0});
}

/* Micro-batches whose runs have fewer rows than a convolution looks back, or as many. */
static void short_runs_are_one_rank(void **state) {
    (void)state;
    static const struct model models[] = {
        {"lfm2", true, CONVOLVES ", \"conv_L_cache\": 8", {0}, {0}, 0},
        {"olmo_hybrid", false, DELTA_RULE, {0}, {0}, 0}};
    static const struct mesh meshes[] = {{{1, 1, 1, 2, 1, 1}, 4}, {{1, 1, 1, 2, 2, 1}, 3}};
    static struct ax_golden_report r;
    for (size_t i = 0; i < 2; i++) {
        struct ax_mesh_check c = {.step.pad = 4};
        run(&models[i], &meshes[i], "ref", AX_RECOMPUTE_OFF, &c, &r);
        expect_figures(&r, &models[i], &meshes[i], 6);
    }
}

/* Layers that differ in their heads and their MLPs, borrow keys and values, and read inputs of their own; then those of
 * several streams, and gates of which few stay, by moments of all ranks' columns. */
#define KINDS                                                                                      \
    ", \"sliding_window\": 5, \"layer_types\": [\"sliding_attention\", \"full_attention\", "       \
    "\"sliding_attention\", \"sliding_attention\", \"full_attention\"], "
static const struct model lending[] = {
    {"gemma4_text",
     true,
     KINDS "\"global_head_dim\": 16, \"num_kv_shared_layers\": 2, "
           "\"use_double_wide_mlp\": true, \"hidden_size_per_layer_input\": 6, "
           "\"vocab_size_per_layer_input\": 97",
     {0},
     {0},
     0},
    {"gemma3n_text",
     true,
     KINDS "\"num_kv_shared_layers\": 2, \"altup_num_inputs\": 3, \"altup_active_idx\": 2, "
           "\"laurel_rank\": 6, \"activation_sparsity_pattern\": [0.6, 0, 0, 0.8, 0], "
           "\"hidden_size_per_layer_input\": 6, \"vocab_size_per_layer_input\": 60",
     {0},
     {0},
     0},
    /* the first two layers are alike: their time is planned once */
    {"gemma4_text",
     true,
     ", \"sliding_window\": 5, \"layer_types\": [\"sliding_attention\", \"sliding_attention\", "
     "\"full_attention\", \"sliding_attention\", \"sliding_attention\"], "
     "\"global_head_dim\": 16, \"num_kv_shared_layers\": 1, "
     "\"hidden_size_per_layer_input\": 6, \"vocab_size_per_layer_input\": 97",
     {0},
     {0},
     0},
};

/* Beside the above, experts beside an MLP, whose router has rows and factors of its own, and values without a
 * projection. */
static void layers_that_differ_are_one_rank(void **state) {
    (void)state;
    static const struct model beside = {
        "gemma4_text",
        false,
        KINDS "\"global_head_dim\": 16, \"attention_k_eq_v\": true, "
              "\"num_global_key_value_heads\": 1, \"enable_moe_block\": true, "
              "\"num_experts\": 4, \"top_k_experts\": 2, \"moe_intermediate_size\": 22, "
              "\"hidden_size_per_layer_input\": 0, \"final_logit_softcapping\": 9",
        {0},
        {0},
        0};
    const struct ax_mesh_check plain = {0};
    on_two_axes(&beside, true, true, 1, 9, &plain);
    for (size_t k = 0; k < 2; k++)
        on_two_axes(&lending[k], false, true, k, 8, &plain);
}

/* In every order, keys and values go to a later stage; of 3, or of 2 with 2 chunks each, also through another. */
static void stages_lend_keys(void **state) {
    (void)state;
    static const struct {
        struct mesh mesh;
        enum ax_pipeline_kind schedule;
        int virtual_stages;
    } cases[] = {{{{3, 1, 1, 1, 1, 1}, 4}, AX_PIPELINE_1F1B, 0},
                 {{{3, 1, 1, 1, 1, 1}, 3}, AX_PIPELINE_AFAB, 0},
                 {{{3, 1, 1, 1, 1, 1}, 5}, AX_PIPELINE_ZERO_BUBBLE, 0},
                 {{{2, 1, 1, 1, 1, 1}, 4}, AX_PIPELINE_INTERLEAVED, 2},
                 {{{2, 1, 1, 2, 1, 1}, 3}, AX_PIPELINE_INTERLEAVED, 2},
                 {{{2, 1, 1, 1, 4, 1}, 3}, AX_PIPELINE_ZERO_BUBBLE, 0}};
    static const struct ax_peft_config lora = {.r = 3, .alpha = 8, .all_linear = true};
    static struct ax_golden_report r;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t k = 0; k < 6; k++) {
            struct ax_mesh_check c = {.step.pipeline = cases[i].schedule,
                                      .step.virtual_stages = cases[i].virtual_stages,
                                      .step.model.sharding = ax_zero_stage(3),
                                      .step.model.adapter = k > 2 ? &lora : NULL};
            const struct model *m = &lending[k % 3];
            if (left_out(i + k)) /* each model is left with or without adapters */
                continue;
            run(m, &cases[i].mesh, "ref", (enum ax_recompute)((i + k) % 3), &c, &r);
            expect_figures(&r, m, &cases[i].mesh, k > 2 ? 6 : 8);
        }
}

/* In bfloat16 partial sums over tp are rounded, so that a router may choose another one of two experts with nearly
 * equal scores, and their gradients differ by a token's. That is all: in float32 no choice differs; nor does one
 * where all experts are chosen, and then the gradients are within the tolerance. */
static void rounding_chooses_between_equal_experts(void **state) {
    (void)state;
#define MIXTURE(k)                                                                                 \
    ", \"num_experts\": 8, \"num_experts_per_tok\": " k ", \"moe_intermediate_size\": 22, "        \
    "\"shared_expert_intermediate_size\": 30, \"output_router_logits\": true"
    static const struct model three = {"qwen2_moe", false, MIXTURE("3"), {0}, {0}, 0},
                              all = {"qwen2_moe", false, MIXTURE("8"), {0}, {0}, 0};
    static const struct mesh mesh = {{1, 1, 2, 1, 2, 2}, 3};
    static struct ax_golden_report r;
    struct ax_mesh_check exact = {.longest = 36}, equal = {.bf16 = true, .longest = 36},
                         rounded = equal;
    run(&three, &mesh, "cpu", AX_RECOMPUTE_OFF, &exact, &r);
    expect_figures(&r, &three, &mesh, 10);
    assert_true(exact.choices > 0 && exact.other_choices == 0);
    run(&all, &mesh, "cpu", AX_RECOMPUTE_OFF, &equal, &r);
    expect_figures(&r, &all, &mesh, 10);
    assert_true(equal.choices > exact.choices && equal.other_choices == 0);
    run(&three, &mesh, "cpu", AX_RECOMPUTE_OFF, &rounded, &r);
    print_message("%g of %g choices\n", rounded.other_choices, rounded.choices);
    assert_true(rounded.choices == exact.choices);
    assert_true(rounded.other_choices > 0 && rounded.other_choices < 0.02 * rounded.choices);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        LONG_TEST(cmocka_unit_test(windows_are_one_rank)),
        LONG_TEST(cmocka_unit_test(predictions_are_one_rank)),
        LONG_TEST(cmocka_unit_test(heads_of_layers_are_one_rank)),
        LONG_TEST(cmocka_unit_test(chunks_are_one_rank)),
        LONG_TEST(cmocka_unit_test(layers_with_states_are_one_rank)),
        cmocka_unit_test(short_runs_are_one_rank),
        LONG_TEST(cmocka_unit_test(layers_that_differ_are_one_rank)),
        LONG_TEST(cmocka_unit_test(stages_lend_keys)),
        LONG_TEST(cmocka_unit_test(rounding_chooses_between_equal_experts)),
        LONG_TEST(cmocka_unit_test(latent_attention_is_one_rank)),
        LONG_TEST(cmocka_unit_test(biases_of_routers_are_one_rank_s)),
        LONG_TEST(cmocka_unit_test(indexers_train_as_on_one_rank)),
        LONG_TEST(cmocka_unit_test(adapters_of_all_linears_are_one_rank)),
        cmocka_unit_test(adapters_of_ungated_experts_are_one_rank),
        cmocka_unit_test(parts_of_others_are_one_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
