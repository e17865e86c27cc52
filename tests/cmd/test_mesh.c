/* Meshes of ranks against one rank: losses, norms, every gradient and every weight after two steps,
 * on ref in double precision and on cpu in float32; and that the comparison would notice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/text/json.h"
#include "base/mem.h"
#include "optim/check/mesh.h"
#include "cmd/commands.h"
#include "model/arch/split.h"
#include "tests/cmd/command_case.h"
#include "tests/cmd/mesh_case.h"
#include "tests/sweep.h"
#include "tests/long.h"

static const struct model models[] = {
    {"llama", false, ", \"attention_bias\": true, \"mlp_bias\": true", {0}, {0}, 0},
    {"qwen3", true, "", {0}, {0}, 0},
    {"mistral", false, ", \"sliding_window\": 7", {0}, {0}, 0},
    {"llama",
     false,
     "",
     {"model.layers.%d.mixer_in_norm.weight", "model.layers.%d.mixer_norm.weight"},
     {NULL, "model.layers.%d.ffn_norm.weight"},
     0},
    {"granite",
     true,
     ", \"embedding_multiplier\": 5, \"attention_multiplier\": 0.4, \"residual_multiplier\": 0.6, "
     "\"logits_scaling\": 1.5",
     {0},
     {0},
     0},
    {"gemma2",
     true,
     ", \"sliding_window\": 7, \"attn_logit_softcapping\": 2.5, \"final_logit_softcapping\": 4, "
     "\"query_pre_attn_scalar\": 20",
     {0},
     {0},
     0},
    {"gemma3_text",
     true,
     ", \"sliding_window\": 7, \"sliding_window_pattern\": 2, \"query_pre_attn_scalar\": 20",
     {0},
     {0},
     0},
};

static const struct mesh dense[] = {
    {{1, 1, 2, 1, 1, 1}, 3}, {{1, 1, 4, 1, 1, 1}, 2}, {{1, 2, 1, 1, 1, 1}, 3},
    {{1, 1, 1, 1, 2, 1}, 3}, {{1, 1, 1, 1, 4, 1}, 2}, {{2, 1, 1, 1, 1, 1}, 1},
    {{2, 1, 1, 1, 1, 1}, 5}, {{4, 1, 1, 1, 1, 1}, 2}, {{4, 1, 1, 1, 1, 1}, 6},
    {{1, 1, 1, 2, 1, 1}, 3}, {{1, 1, 1, 3, 1, 1}, 2}, {{1, 1, 2, 1, 2, 1}, 3},
    {{2, 1, 2, 1, 1, 1}, 3}, {{1, 1, 1, 2, 2, 1}, 3}, {{2, 1, 2, 1, 2, 1}, 3},
    {{1, 2, 2, 1, 2, 1}, 2}, {{2, 2, 1, 2, 1, 1}, 3},
};

/* Experts: eight in the first layers, of which two work on a token; in few rows some expert gets
 * none. The second model has a dense layer among them. */
static const struct model experts[] = {
    {"mixtral", true, ", \"num_local_experts\": 8, \"num_experts_per_tok\": 2", {0}, {0}, 0},
    {"qwen3_moe",
     false,
     ", \"num_experts\": 8, \"num_experts_per_tok\": 3, \"moe_intermediate_size\": 22, "
     "\"norm_topk_prob\": false, \"mlp_only_layers\": [1], \"decoder_sparse_step\": 1",
     {0},
     {0},
     0},
    {"gpt_oss",
     false,
     ", \"num_local_experts\": 8, \"num_experts_per_tok\": 3, \"sliding_window\": 7, "
     "\"swiglu_limit\": 0.4",
     {0},
     {0},
     0},
};
static const struct mesh sparse[] = {
    {{1, 1, 2, 1, 1, 2}, 3}, {{1, 1, 4, 1, 1, 4}, 2}, {{1, 1, 4, 1, 1, 2}, 2},
    {{1, 2, 2, 1, 1, 2}, 2}, {{1, 1, 1, 1, 2, 2}, 3}, {{1, 1, 2, 1, 2, 4}, 2},
    {{1, 1, 1, 2, 1, 2}, 3}, {{2, 1, 2, 1, 1, 2}, 3}, {{1, 1, 2, 1, 1, 1}, 2},
};

static void expect_equal(const struct model *m, const struct mesh *mesh, const char *backend,
                         enum ax_recompute recompute) {
    static struct ax_golden_report r;
    struct ax_mesh_check c = {0};
    run(m, mesh, backend, recompute, &c, &r);
    expect_figures(&r, m, mesh, 10);
    const bool balanced = m >= experts && m <= &experts[2] && mesh->sizes.pp == 1;
    assert_int_equal(has_group(&r, "balancing loss"), balanced);
}

static void every_mesh_is_one_rank_in_double(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof models / sizeof *models; k++) /* of the later models a few */
        for (size_t i = 0; i < sizeof dense / sizeof *dense; i += k < 2 ? 1 : 4)
            if (k != 1 || !left_out(i))
                expect_equal(&models[k], &dense[i], "ref",
                             (i + k) % 2 ? AX_RECOMPUTE_ON : AX_RECOMPUTE_OFF);
    print_message("%d figures\n", figures);
}

static void experts_are_one_rank(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof experts / sizeof *experts; k++)
        for (size_t i = 0; i < sizeof sparse / sizeof *sparse; i++)
            expect_equal(&experts[k], &sparse[i], (i + k) % 3 ? "ref" : "cpu",
                         (enum ax_recompute)((i + k) % 3));
}

/* Kept weights and gradients are sharded ones, in sums of the same gradients; also with frozen
 * weights, packed ones, and experts with a gather group of their own. */
static void kept_weights_and_gradients_are_one_rank(void **state) {
    (void)state;
    static const struct mesh meshes[] = {{{1, 1, 2, 1, 1, 1}, 3},
                                         {{1, 2, 2, 1, 1, 1}, 3},
                                         {{2, 1, 2, 1, 1, 1}, 4},
                                         {{1, 1, 2, 1, 2, 1}, 2},
                                         {{1, 1, 1, 3, 1, 1}, 2}};
    static const struct mesh of_experts[] = {
        {{1, 1, 4, 1, 1, 2}, 3}, {{1, 1, 2, 1, 2, 4}, 2}, {{2, 1, 2, 1, 1, 2}, 3}};
    static const struct ax_peft_config lora = {.r = 3, .alpha = 6, .all_linear = true};
    static struct ax_golden_report r;
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        const int stage = 1 + (int)(i % 2);
        struct ax_mesh_check full = {.step.model.sharding = ax_zero_stage(stage)},
                             frozen = {.step.model.sharding = ax_zero_stage(3 - stage),
                                       .step.model.adapter = &lora};
        frozen.step.model.base_store = i % 3 ? AX_STORAGE_INT8 : AX_STORAGE_PLAIN;
        run(&models[i % 2], &meshes[i], "ref", AX_RECOMPUTE_ON, &full, &r);
        expect_figures(&r, &models[i % 2], &meshes[i], 10);
        run(&models[i % 2], &meshes[i], "ref", AX_RECOMPUTE_OFF, &frozen, &r);
        expect_figures(&r, &models[i % 2], &meshes[i], 6);
    }
    for (size_t i = 0; i < sizeof of_experts / sizeof *of_experts; i++) {
        struct ax_mesh_check c = {.step.model.sharding = ax_zero_stage(1 + (int)(i % 2))};
        run(&experts[i % 2], &of_experts[i], "ref", AX_RECOMPUTE_OFF, &c, &r);
        expect_figures(&r, &experts[i % 2], &of_experts[i], 10);
    }
}

/* Noise by number of the row in the step, mean log-probs over a cut vocabulary. */
static void noise_and_loss_terms_are_one_rank(void **state) {
    (void)state;
    static const struct mesh meshes[] = {{{1, 1, 2, 1, 1, 1}, 3},
                                         {{1, 1, 1, 1, 2, 1}, 3},
                                         {{1, 1, 1, 3, 1, 1}, 2},
                                         {{1, 1, 1, 2, 2, 1}, 3},
                                         {{2, 1, 2, 1, 1, 1}, 3}};
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        static struct ax_golden_report r;
        struct ax_mesh_check c = {.sft = {.label_smoothing = 0.1, .z_loss = 0.01},
                                  .step.neftune_alpha = 5};
        run(&models[i % 2], &meshes[i], "ref", AX_RECOMPUTE_ON, &c, &r);
        expect_figures(&r, &models[i % 2], &meshes[i], 10);
    }
}

/* Micro-batches of unequal lengths, which divide nothing: the data ranks agree on one length, and
 * stages, sequence and tensor parallel ranks on what they send. Chunks of the head, too, are as many
 * as there are labels; those of an objective that is not linear, twice. */
static void unequal_lengths_are_one_rank(void **state) {
    (void)state;
    static const struct mesh meshes[] = {{{1, 1, 2, 1, 1, 1}, 3}, {{1, 1, 1, 1, 2, 1}, 3},
                                         {{1, 1, 1, 3, 1, 1}, 2}, {{1, 1, 1, 2, 2, 1}, 3},
                                         {{2, 1, 1, 1, 1, 1}, 5}, {{2, 1, 2, 1, 2, 1}, 3},
                                         {{1, 2, 1, 2, 1, 1}, 3}, {{4, 1, 1, 1, 1, 1}, 6}};
    static const struct mesh of_experts[] = {
        {{1, 1, 2, 1, 1, 2}, 3}, {{1, 1, 2, 1, 2, 4}, 2}, {{1, 1, 1, 2, 1, 2}, 3}};
    static struct ax_golden_report r;
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        struct ax_mesh_check c = {.step.pad = i % 2 ? 5 : 4, .step.neftune_alpha = 5};
        run(&models[i % 2], &meshes[i], i % 3 ? "ref" : "cpu", (enum ax_recompute)(i % 3), &c, &r);
        expect_figures(&r, &models[i % 2], &meshes[i], 10);
    }
    for (size_t i = 0; i < sizeof of_experts / sizeof *of_experts; i++) {
        struct ax_mesh_check c = {.step.pad = 4};
        run(&experts[i % 2], &of_experts[i], "ref", AX_RECOMPUTE_OFF, &c, &r);
        expect_figures(&r, &experts[i % 2], &of_experts[i], 10);
    }
}

/* Tables of a rope that are for the longest document of a micro-batch, of which stages have several at a time. */
static void ropes_by_length_are_one_rank(void **state) {
    (void)state;
    static const struct model longrope = {
        "llama",
        false,
        ", \"rope_scaling\": {\"rope_type\": \"longrope\", \"factor\": 8, "
        "\"original_max_position_embeddings\": 8, \"short_factor\": [1, 1.2, 1.5, 2, 3, 4], "
        "\"long_factor\": [1, 2, 3, 5, 8, 13]}",
        {0},
        {0},
        0};
    static const struct mesh meshes[] = {
        {{2, 1, 1, 1, 1, 1}, 5}, {{2, 1, 1, 1, 1, 1}, 5}, {{2, 1, 1, 2, 1, 1}, 4}};
    static struct ax_golden_report r;
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        struct ax_mesh_check c = {
            .step.pad = 4, .step.pipeline = i == 1 ? AX_PIPELINE_ZERO_BUBBLE : AX_PIPELINE_1F1B};
        run(&longrope, &meshes[i], "ref", (enum ax_recompute)i, &c, &r);
        expect_figures(&r, &longrope, &meshes[i], 10);
    }
}

/* Stages with several ranges of layers, whose peers wrap; all micro-batches before the first backward.
 * Plan and run are the same to the byte in each (ax_runtime_run). */
static void every_schedule_is_one_rank(void **state) {
    (void)state;
    static const struct {
        struct mesh mesh;
        enum ax_pipeline_kind schedule;
        int virtual_stages;
    } cases[] = {
        {{{2, 1, 1, 1, 1, 1}, 1}, AX_PIPELINE_AFAB, 0},
        {{{2, 1, 1, 1, 1, 1}, 5}, AX_PIPELINE_AFAB, 0},
        {{{4, 1, 1, 1, 1, 1}, 3}, AX_PIPELINE_AFAB, 0},
        {{{2, 1, 2, 1, 2, 1}, 3}, AX_PIPELINE_AFAB, 0},
        {{{2, 1, 1, 1, 1, 1}, 5}, AX_PIPELINE_ZERO_BUBBLE, 0},
        {{{4, 1, 1, 1, 1, 1}, 6}, AX_PIPELINE_ZERO_BUBBLE, 0},
        {{{2, 1, 2, 1, 2, 1}, 3}, AX_PIPELINE_ZERO_BUBBLE, 0},
        {{{2, 1, 1, 1, 1, 1}, 1}, AX_PIPELINE_INTERLEAVED, 2},
        {{{2, 1, 1, 1, 1, 1}, 4}, AX_PIPELINE_INTERLEAVED, 0},
        {{{2, 1, 1, 1, 1, 1}, 5}, AX_PIPELINE_INTERLEAVED, 2},
        {{{4, 1, 1, 1, 1, 1}, 5}, AX_PIPELINE_INTERLEAVED, 1},
        {{{2, 1, 2, 1, 1, 1}, 3}, AX_PIPELINE_INTERLEAVED, 2},
        {{{2, 2, 1, 1, 2, 1}, 2}, AX_PIPELINE_INTERLEAVED, 2},
        {{{2, 1, 1, 2, 1, 1}, 3}, AX_PIPELINE_INTERLEAVED, 2},
    };
    static const struct ax_peft_config lora = {.r = 3, .alpha = 8, .all_linear = true};
    static struct ax_golden_report r;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int k = (int)i % 2; k < 3; k += 2) {
            struct ax_mesh_check c = {.step.pipeline = cases[i].schedule,
                                      .step.virtual_stages = cases[i].virtual_stages,
                                      .step.model.sharding = ax_zero_stage(3 - k),
                                      .step.model.adapter = k == 2 ? &lora : NULL,
                                      .step.pad = k == 1 ? 4 : 0,
                                      .step.neftune_alpha = 5};
            const struct model *m = &models[((int)i + k) % 2];
            run(m, &cases[i].mesh, k == 2 ? "cpu" : "ref", (enum ax_recompute)(i % 3), &c, &r);
            expect_figures(&r, m, &cases[i].mesh, 6);
        }
    static const struct mesh with_experts = {{2, 1, 2, 1, 1, 2}, 3};
    for (int i = 0; i < 2; i++) {
        struct ax_mesh_check c = {
            .step.pipeline = i ? AX_PIPELINE_ZERO_BUBBLE : AX_PIPELINE_INTERLEAVED, .step.pad = 4};
        run(&experts[1], &with_experts, "ref", AX_RECOMPUTE_ON, &c, &r);
        expect_figures(&r, &experts[1], &with_experts, 10);
    }
}

/* A head that costs as much as three layers has a stage for itself; tied, a copy of the embedding, too. */
static void a_stage_of_the_head_alone_is_one_rank(void **state) {
    (void)state;
    static const struct model heads[] = {{"llama", false, "", {0}, {0}, 997},
                                         {"qwen3", true, "", {0}, {0}, 997}};
    static const struct mesh meshes[] = {{{4, 1, 1, 1, 1, 1}, 3}, {{4, 1, 2, 1, 1, 1}, 2}};
    static struct ax_golden_report r;
    for (size_t i = 0; i < 4; i++) {
        struct ax_arch arch;
        struct ax_chunks units;
        assert_int_equal(make_arch(&arch, heads[i % 2].type, heads[i % 2].tied, "", 997), AX_OK);
        assert_int_equal(ax_split_units(&arch, NULL, 36, 4, 1, 3, &units), AX_OK);
        assert_int_equal(units.list[0].end - units.list[0].first, 1);
        ax_arch_free(&arch);
        struct ax_mesh_check c = {.step.pipeline = i < 2 ? AX_PIPELINE_AFAB : AX_PIPELINE_1F1B};
        run(&heads[i % 2], &meshes[i / 2], "ref", AX_RECOMPUTE_OFF, &c, &r);
        expect_figures(&r, &heads[i % 2], &meshes[i / 2], 10);
    }
}

static void leave(struct ax_step *s, void *ctx) {
    (void)s;
    (void)ctx;
}

/* What no table can be made of is one line with the nearest choice. */
static void impossible_pipelines_are_refused(void **state) {
    (void)state;
    static const struct {
        struct mesh mesh;
        struct ax_mesh_check c;
        const char *text;
    } cases[] = {
        {{{6, 1, 1, 1, 1, 1}, 2}, {0}, "mesh: pp 6 exceeds the 5 layers. Nearest: pp 5."},
        {{{2, 1, 1, 1, 1, 1}, 2},
         {.step.pipeline = AX_PIPELINE_INTERLEAVED, .step.virtual_stages = 3},
         "pipeline: 3 virtual stages on each of pp 2 ranks exceed the layers (5 layers). "
         "Nearest: 2."},
        {{{2, 1, 1, 1, 1, 1}, 70},
         {.step.pipeline = AX_PIPELINE_AFAB},
         "keeps the activations of 70 passes, and at most 64 are possible. Nearest: 64 "
         "micro-batches."},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static struct ax_golden_report r;
        struct ax_mesh_check c = cases[i].c;
        c.tamper = leave; /* an error is expected */
        assert_int_equal(run(&models[0], &cases[i].mesh, "ref", AX_RECOMPUTE_ON, &c, &r),
                         AX_ERR_CONFIG);
        assert_non_null(strstr(ax_error_text(), cases[i].text));
    }
}

/* bfloat16's weights are rounded by element of the model, wherever it is. AdamW has two moments. */
static void bf16_and_adamw_are_one_rank(void **state) {
    (void)state;
    static const struct mesh meshes[] = {{{1, 1, 2, 1, 1, 1}, 2},
                                         {{1, 1, 1, 1, 2, 1}, 2},
                                         {{1, 1, 1, 2, 1, 1}, 2},
                                         {{2, 1, 2, 1, 1, 1}, 2},
                                         {{1, 2, 2, 1, 1, 1}, 2}};
    static struct ax_golden_report r;
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        struct ax_mesh_check bf16 = {.bf16 = true, .step.pad = 4}, adamw = {.adamw = true};
        run(&models[i % 2], &meshes[i], "cpu", AX_RECOMPUTE_ON, &bf16, &r);
        expect_figures(&r, &models[i % 2], &meshes[i], 10);
        run(&models[i % 2], &meshes[i], "ref", AX_RECOMPUTE_ON, &adamw, &r);
        expect_figures(&r, &models[i % 2], &meshes[i], 10);
    }
}

/* The head's rows are on every rank of tp: as a few labels with a bias, and as one whose log-sum-exp
 * is the score; trained in full, as part of an adapter, and with an adapter of its own. */
static void classifiers_are_one_rank(void **state) {
    (void)state;
    static const struct model classifiers[] = {
        {"llama", true, ", \"architectures\": [\"LlamaForTokenClassification\"]", {0}, {0}, 0},
        {"qwen3",
         false,
         ", \"architectures\": [\"Qwen3ForSequenceClassification\"], \"num_labels\": 1",
         {0},
         {0},
         0}};
    static const struct mesh meshes[] = {
        {{1, 1, 2, 1, 1, 1}, 3}, {{1, 1, 1, 1, 2, 1}, 3}, {{1, 1, 1, 1, 4, 1}, 2},
        {{2, 1, 1, 1, 1, 1}, 3}, {{1, 1, 1, 3, 1, 1}, 2}, {{1, 1, 2, 1, 2, 1}, 3},
        {{1, 1, 1, 2, 2, 1}, 3}, {{2, 1, 2, 1, 2, 1}, 3}, {{1, 2, 1, 2, 1, 1}, 3}};
    static char *save[] = {"score"}, *targets[] = {"score", "v_proj"};
    static const struct ax_peft_config saved = {.r = 3,
                                                .alpha = 6,
                                                .all_linear = true,
                                                .save = {1, save}},
                                       own = {.r = 2, .alpha = 6, .targets = {2, targets}};
    const struct ax_peft_config *const adapters[] = {NULL, &saved, &own};
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++)
        for (size_t k = i % 3; k < 6; k += 3) {
            static struct ax_golden_report r;
            struct ax_mesh_check c = {.sft = {.label_smoothing = 0.1, .z_loss = 0.02},
                                      .step.model.adapter = adapters[k / 2],
                                      .step.pad = i % 2 ? 0 : 4};
            const struct model *m = &classifiers[(i + k) % 2];
            run(m, &meshes[i], "ref", (enum ax_recompute)((i + k) % 3), &c, &r);
            expect_figures(&r, m, &meshes[i], 6);
            assert_true(k >= 4 || has_group(&r, "head gradients"));
        }
}

/* Of a shard of the vocabulary a few tokens, more than half or, with 4 of 25 or 24, all it has. */
static void weights_by_entropy_are_one_rank(void **state) {
    (void)state;
    static const struct mesh meshes[] = {{{1, 1, 2, 1, 1, 1}, 3}, {{1, 1, 1, 1, 2, 1}, 3},
                                         {{1, 1, 1, 1, 4, 1}, 2}, {{1, 1, 1, 2, 2, 1}, 3},
                                         {{2, 1, 2, 1, 2, 1}, 3}, {{2, 1, 2, 1, 1, 1}, 3}};
    static const int64_t tops[] = {2, 20, 48, 256};
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        static struct ax_golden_report r;
        struct ax_mesh_check c = {.sft = {.entropy_k = tops[i % 4], .entropy_alpha = 0.5}};
        run(&models[i % 2], &meshes[i], i % 2 ? "cpu" : "ref", AX_RECOMPUTE_ON, &c, &r);
        expect_figures(&r, &models[i % 2], &meshes[i], 10);
    }
}

/* The merged base shows in the second step's loss and gradients, the reset moments in its
 * weights. */
static void restarted_adapters_are_one_rank(void **state) {
    (void)state;
    static const struct mesh meshes[] = {{{1, 1, 2, 1, 1, 1}, 3}, {{1, 1, 4, 1, 1, 1}, 2},
                                         {{1, 1, 1, 1, 2, 1}, 3}, {{1, 2, 2, 1, 2, 1}, 2},
                                         {{2, 1, 2, 1, 1, 1}, 3}, {{1, 1, 1, 2, 1, 1}, 2}};
    static char *some[] = {"lm_head", "o_proj", "down_proj"};
    static const struct ax_peft_config configs[] = {
        {.r = 3, .alpha = 8, .all_linear = true, .dropout = 0.1},
        {.r = 4, .alpha = 4, .start = AX_LORA_GAUSSIAN, .targets = {3, some}}};
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        static struct ax_golden_report r;
        for (size_t k = 0; k < 2; k++) {
            struct ax_mesh_check c = {
                .step.model.adapter = &configs[k], .step.relora = {.interval = 1}, .adamw = true};
            run(&models[0], &meshes[i], "ref", AX_RECOMPUTE_ON, &c, &r);
            expect_figures(&r, &models[0], &meshes[i], 4);
        }
    }
}

/* Frozen packed matrices with trainable adapters; gradients and weights of A, B and magnitudes. */
static void adapters_are_one_rank(void **state) {
    (void)state;
    static const struct mesh meshes[] = {{{1, 1, 2, 1, 1, 1}, 3}, {{1, 1, 1, 1, 2, 1}, 3},
                                         {{1, 1, 1, 1, 4, 1}, 2}, {{1, 2, 2, 1, 2, 1}, 2},
                                         {{2, 1, 2, 1, 1, 1}, 3}, {{1, 1, 1, 2, 1, 1}, 2}};
    static char *ends[] = {"embed_tokens", "lm_head", "o_proj"};
    static const struct ax_peft_config configs[] = {
        {.r = 3, .alpha = 8, .all_linear = true},
        {.r = 4, .alpha = 4, .all_linear = true, .rslora = true, .dropout = 0.2},
        {.r = 3, .alpha = 8, .all_linear = true, .dora = true},
        {.r = 2, .alpha = 8, .all_linear = true, .dora = true, .dropout = 0.2},
        {.r = 3, .alpha = 8, .targets = {3, ends}, .dropout = 0.1}};
    static const enum ax_storage stores[] = {AX_STORAGE_NF4, AX_STORAGE_NF4_DOUBLE, AX_STORAGE_INT8,
                                             AX_STORAGE_PLAIN};
    static struct ax_golden_report r;
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++)
        for (int k = 0; k < 5; k++) {
            struct ax_mesh_check c = {.step.model.adapter = &configs[k],
                                      .step.model.base_store = stores[(i + (size_t)k) % 4]};
            const struct model *m = &models[(i + (size_t)k) % 2];
            run(m, &meshes[i], "ref", k % 2 ? AX_RECOMPUTE_ON : AX_RECOMPUTE_OFF, &c, &r);
            expect_figures(&r, m, &meshes[i], 6);
        }
}

/* Matrices of q, k and v, and of gate and up, with one A and B each. */
static void adapters_of_fused_matrices_are_one_rank(void **state) {
    (void)state;
    static const struct model fused[] = {
        {"phi3", false, ", \"sliding_window\": 9", {0}, {0}, 0},
        {"glm4", false, ", \"attention_bias\": true", {0}, {0}, 0}};
    static const struct mesh meshes[] = {{{1, 1, 2, 1, 1, 1}, 3}, {{1, 1, 1, 2, 1, 1}, 2},
                                         {{2, 1, 2, 1, 1, 1}, 3}, {{1, 1, 1, 1, 2, 1}, 3},
                                         {{1, 1, 1, 1, 4, 1}, 2}, {{1, 1, 2, 1, 2, 1}, 2},
                                         {{1, 1, 1, 2, 2, 1}, 2}};
    static const struct ax_peft_config lora = {
        .r = 3, .alpha = 8, .all_linear = true, .dropout = 0.1};
    static struct ax_golden_report r;
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++)
        for (int k = 0; k < 2; k++) {
            struct ax_mesh_check c = {.step.model.adapter = k ? &lora : NULL};
            const struct model *m = &fused[(i + (size_t)k) % 2];
            run(m, &meshes[i], "ref", (enum ax_recompute)(i % 3), &c, &r);
            expect_figures(&r, m, &meshes[i], 6);
        }
}

/* The same of experts, which ep deals out while their adapters are on every rank; beside them the
 * attention's, on a packed base. Every other mesh has the experts packed too, and the second adapter small
 * buffers for experts, so that rows travel in several rounds. */
static void adapters_of_experts_are_one_rank(void **state) {
    (void)state;
    static char *proj[] = {"q_proj", "o_proj"};
    static char *stacked[] = {"experts.down_proj", "experts.gate_up_proj"};
    static const struct ax_peft_config configs[] = {
        {.r = 3, .alpha = 8, .targets = {2, proj}, .parameters = {2, stacked}},
        {.r = 2, .alpha = 4, .rslora = true, .parameters = {1, stacked}}};
    static const struct mesh meshes[] = {
        {{1, 1, 2, 1, 1, 1}, 3}, {{1, 1, 1, 1, 2, 1}, 3}, {{1, 1, 2, 1, 1, 2}, 3},
        {{1, 1, 1, 1, 2, 2}, 2}, {{1, 1, 4, 1, 1, 2}, 2}, {{1, 1, 2, 1, 2, 4}, 2},
        {{2, 1, 2, 1, 1, 2}, 3}, {{1, 1, 1, 2, 2, 4}, 2}, {{2, 1, 1, 1, 2, 2}, 2},
        {{1, 2, 1, 2, 1, 2}, 2}, {{2, 1, 1, 2, 2, 4}, 2}};
    static const enum ax_storage stores[] = {AX_STORAGE_NF4, AX_STORAGE_INT8,
                                             AX_STORAGE_NF4_DOUBLE};
    static struct ax_golden_report r;
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++)
        for (size_t k = 0; k < 2; k++) {
            struct ax_mesh_check c = {.step.model.adapter = &configs[k],
                                      .step.model.base_store =
                                          k == 0 ? stores[i % 3] : AX_STORAGE_PLAIN,
                                      .step.model.expert_room = k == 1 ? 0.5 : 0,
                                      .step.model.store_experts = i % 2 == 0};
            const struct model *m = &experts[(i + k) % 3];
            if (left_out(i / 2 + k))
                continue;
            run(m, &meshes[i], "ref", (enum ax_recompute)((i + k) % 3), &c, &r);
            expect_figures(&r, m, &meshes[i], 6);
        }
}

static void every_mesh_is_one_rank_in_float(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof dense / sizeof *dense; i++)
        expect_equal(&models[i % 3], &dense[i], "cpu",
                     i % 2 ? AX_RECOMPUTE_SELECTIVE : AX_RECOMPUTE_ON);
}

/* The same, ranks as processes. The forked ranks leave through here. */
static void processes_are_one_rank(void **state) {
    (void)state;
    static const struct mesh meshes[] = {
        {{1, 1, 2, 1, 1, 1}, 2}, {{1, 1, 1, 1, 2, 1}, 2}, {{2, 1, 1, 1, 1, 1}, 5}};
    static struct ax_golden_report r;
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        struct ax_mesh_check c = {.gloo = true, .step.pipeline = AX_PIPELINE_INTERLEAVED};
        bool here;
        const enum ax_status st =
            run_here(&models[0], &meshes[i], "ref", AX_RECOMPUTE_ON, &c, &r, &here);
        if (!here)
            _exit(st == AX_OK ? 0 : 1);
        if (st != AX_OK)
            fail_msg("%s", ax_error_text());
        for (int k = 0; k < r.n; k++)
            assert_true(r.groups[k].worst <= r.groups[k].tolerance);
        assert_true(r.n >= 10);
    }
}

/* Ranks whose memory the host cannot touch (tests/doubles/far.c) have the deviations of ranks on cpu. */
static void far_meshes_have_the_bits_of_cpu(void **state) {
    (void)state;
    static char *stacked[] = {"experts.down_proj", "experts.gate_up_proj"};
    static const struct ax_peft_config dora = {.r = 3,
                                               .alpha = 8,
                                               .all_linear = true,
                                               .dora = true},
                                       of_experts = {
                                           .r = 2, .alpha = 4, .parameters = {2, stacked}};
    static const struct {
        const struct model *model;
        struct mesh mesh;
        const struct ax_peft_config *adapter;
        enum ax_storage store;
    } cases[] = {{&models[0], {{1, 1, 2, 1, 2, 1}, 2}, NULL, AX_STORAGE_PLAIN},
                 {&models[1], {{2, 2, 1, 2, 1, 1}, 2}, NULL, AX_STORAGE_PLAIN},
                 {&experts[0], {{1, 1, 2, 1, 2, 4}, 2}, NULL, AX_STORAGE_PLAIN},
                 {&models[0], {{1, 1, 1, 1, 4, 1}, 2}, &dora, AX_STORAGE_NF4},
                 {&models[1], {{2, 1, 2, 1, 1, 1}, 2}, &dora, AX_STORAGE_NF4_DOUBLE},
                 {&experts[1], {{1, 1, 2, 1, 1, 2}, 2}, &of_experts, AX_STORAGE_INT8}};
    static struct ax_golden_report cpu, far;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ax_mesh_check c = {.step.model.adapter = cases[i].adapter,
                                  .step.model.base_store = cases[i].store,
                                  .step.model.store_experts = true};
        run(cases[i].model, &cases[i].mesh, "cpu", AX_RECOMPUTE_SELECTIVE, &c, &cpu);
        run(cases[i].model, &cases[i].mesh, "far", AX_RECOMPUTE_SELECTIVE, &c, &far);
        expect_figures(&far, cases[i].model, &cases[i].mesh, 6);
        assert_int_equal(far.n, cpu.n);
        for (int k = 0; k < far.n; k++)
            if (far.groups[k].worst != cpu.groups[k].worst)
                fail_msg("case %zu: %s %.17g, on cpu %.17g", i, far.groups[k].name,
                         far.groups[k].worst, cpu.groups[k].worst);
    }
}

/* A sharded rank needs less than one rank alone. */
static void sharding_saves_memory(void **state) {
    (void)state;
    static const struct mesh shard = {{1, 1, 4, 1, 1, 1}, 1}, tp = {{1, 1, 1, 1, 4, 1}, 1};
    static struct ax_golden_report r;
    struct ax_mesh_check c = {0};
    run(&models[0], &shard, "ref", AX_RECOMPUTE_ON, &c, &r);
    assert_true(c.rank_bytes < c.one_bytes);
    run(&models[0], &tp, "ref", AX_RECOMPUTE_ON, &c, &r);
    assert_true(c.rank_bytes < c.one_bytes / 2);
}

static size_t bytes_of[2]; /* of each rank */
static void note_bytes(struct ax_step *s, void *ctx) {
    (void)ctx;
    if (!ax_runtime_planning(s->rt))
        bytes_of[s->rt->mesh.rank] = ax_arena_plan_total(&s->rt->arena.plan);
}

/* Of a pipeline's stages: here the second one, which has the logits of a large vocabulary. */
static void memory_is_the_largest_ranks(void **state) {
    (void)state;
    static const struct model wide = {.type = "llama", .extra = "", .vocab = 2000};
    static const struct mesh stages = {{2, 1, 1, 1, 1, 1}, 1};
    static struct ax_golden_report r;
    static const struct ax_peft_config lora = {.r = 2, .alpha = 4, .all_linear = true};
    struct ax_mesh_check c = {.step.model.adapter = &lora, .tamper = note_bytes};
    assert_int_equal(run(&wide, &stages, "ref", AX_RECOMPUTE_ON, &c, &r), AX_OK);
    assert_true(bytes_of[1] > bytes_of[0]);
    assert_int_equal(c.rank_bytes, bytes_of[1]);
}

/* ---- would it notice? ---- */

static bool exceeds(const struct ax_golden_report *r, const char *group) {
    for (int i = 0; i < r->n; i++)
        if (strstr(r->groups[i].name, group) && !(r->groups[i].worst <= r->groups[i].tolerance))
            return true;
    return false;
}

/* A mistake is made in the dry run too and shows in the figures, or in the run only, and then the
 * contract stops it. */
static bool only_real;
static bool break_now(const struct ax_step *s) {
    return !only_real || !ax_runtime_planning(s->rt);
}

static void expect_caught(const struct mesh *mesh, void (*tamper)(struct ax_step *, void *),
                          const char *group) {
    static struct ax_golden_report r;
    struct ax_mesh_check c = {.tamper = tamper};
    only_real = false;
    assert_int_equal(run(&models[0], mesh, "ref", AX_RECOMPUTE_OFF, &c, &r), AX_OK);
    if (!exceeds(&r, group))
        fail_msg("nothing was wrong with %s", group);
}

static void expect_stopped(const struct mesh *mesh, void (*tamper)(struct ax_step *, void *),
                           const char *text) {
    static struct ax_golden_report r;
    struct ax_mesh_check c = {.tamper = tamper};
    only_real = true;
    assert_int_equal(run(&models[0], mesh, "ref", AX_RECOMPUTE_OFF, &c, &r), AX_ERR_FAILED);
    if (!strstr(ax_error_text(), text))
        fail_msg("\"%s\" is not in: %s", text, ax_error_text());
}

/* Takes roles from the sums of every gradient and adds others. */
static void change_roles(struct ax_step *s, uint32_t without, uint32_t with) {
    for (int u = 0; u < s->model.n_units; u++)
        for (int k = 0; k < s->model.units[u].n_segments; k++) {
            uint32_t *roles = &s->model.units[u].segments[k].reduce_roles;
            *roles = (*roles & ~without) | with;
        }
}

static void drop_reduce(struct ax_step *s, void *ctx) {
    (void)ctx;
    if (break_now(s))
        change_roles(s, 1u << AX_ROLE_TP, 0);
}

/* Norm weights under sequence parallelism: each rank has a part of the gradient. */
static void a_missing_reduce_is_named(void **state) {
    (void)state;
    expect_caught(&(struct mesh){{1, 1, 1, 1, 2, 1}, 2}, drop_reduce, "norms gradients");
    expect_stopped(&(struct mesh){{1, 1, 1, 1, 2, 1}, 2}, drop_reduce, "all_reduce");
}

static void wrong_group(struct ax_step *s, void *ctx) {
    (void)ctx;
    if (break_now(s))
        change_roles(s, 1u << AX_ROLE_DP_REPLICATE, 1u << AX_ROLE_TP);
}

static void a_wrong_group_is_named(void **state) {
    (void)state;
    expect_caught(&(struct mesh){{1, 2, 1, 1, 2, 1}, 2}, wrong_group, "mlp gradients");
    expect_stopped(&(struct mesh){{1, 2, 1, 1, 2, 1}, 2}, wrong_group, "dp_replicate");
}

static void count_twice(struct ax_step *s, void *ctx) {
    (void)ctx;
    if (break_now(s))
        s->model.units[0].segments[0].reduce_roles |= 1u << AX_ROLE_WORLD;
}

static void a_double_count_is_named(void **state) {
    (void)state;
    expect_caught(&(struct mesh){{1, 2, 1, 1, 1, 1}, 2}, count_twice, "embedding gradients");
    expect_stopped(&(struct mesh){{1, 2, 1, 1, 1, 1}, 2}, count_twice, "world");
}

static void remove_first(struct ax_step *s, enum ax_action_kind kind) {
    struct ax_schedule *t = &s->schedule;
    int i = 0;
    while (t->actions[i].kind != kind)
        i++;
    memmove(&t->actions[i], &t->actions[i + 1], (size_t)(t->n - i - 1) * sizeof *t->actions);
    t->n--;
    t->first_update -= i < t->first_update;
}

static void leave_out_of_norm(struct ax_step *s, void *ctx) {
    (void)ctx;
    if (s->rt->mesh.rank == 1)
        remove_first(s, AX_ACT_NORM);
}

static void a_tensor_left_out_of_the_norm_is_named(void **state) {
    (void)state;
    expect_caught(&(struct mesh){{1, 1, 1, 1, 2, 1}, 2}, leave_out_of_norm, "grad norm");
}

/* Rank 1 has no REDUCE of its last unit: the contract stops it there and says so. */
static void skip_collective(struct ax_step *s, void *ctx) {
    (void)ctx;
    if (s->rt->mesh.rank == 1 && break_now(s))
        remove_first(s, AX_ACT_REDUCE);
}

static void a_rank_that_skips_a_collective_is_named(void **state) {
    (void)state;
    expect_stopped(&(struct mesh){{1, 1, 2, 1, 1, 1}, 2}, skip_collective, "rank 1");
    assert_non_null(strstr(ax_error_text(), "reduce_scatter"));
}

/* `axtrain check mesh CONFIG SIZE=N`: each size by its name; what it says of memory. */
static void sizes_are_read(void **state) {
    (void)state;
    static const char config[] =
        "{\"model_type\": \"mixtral\", \"vocab_size\": 97, \"hidden_size\": 40, "
        "\"intermediate_size\": 54, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
        "\"num_key_value_heads\": 2, \"head_dim\": 12, \"max_position_embeddings\": 64, "
        "\"num_local_experts\": 4, \"num_experts_per_tok\": 2}";
    static const struct {
        char *words[3];
        bool split; /* a rank holds less than all */
    } meshes[] = {
        {{"pp=2"}, true}, {{"dp_replicate=2"}, false},    {{"dp_shard=2"}, true}, {{"cp=2"}, false},
        {{"tp=2"}, true}, {{"dp_shard=2", "ep=2"}, true}, {{"pp=1"}, false}};
    static const char *const wrong[] = {"tp=0", "tp=-1", "tp=",   "tp=x", "tp=2x",
                                        "tp",   "t=2",   "tpp=2", "=2",   "tp=1000000"};
    char file[] = "/tmp/axtrain-mesh-XXXXXX", path[64], out[64], said[16384];
    assert_non_null(mkdtemp(file));
    snprintf(path, sizeof path, "%s/config.json", file);
    snprintf(out, sizeof out, "%s/out", file);
    assert_int_equal(ax_write_file_atomic(path, config, strlen(config)), AX_OK);
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        char *argv[6] = {"check", "mesh", path, meshes[i].words[0], meshes[i].words[1]};
        char rank[16], rank_unit[16], one[16], one_unit[16];
        const int n = meshes[i].words[1] ? 5 : 4;
        if (run_command(ax_cmd_check, n, argv, NULL, out, said, sizeof said) != AX_OK)
            fail_msg("%s: %s", meshes[i].words[0], ax_error_text());
        const char *memory = strstr(said, "memory per rank ");
        assert_non_null(memory);
        assert_int_equal(sscanf(memory, "memory per rank %15s %15s as planned, %15s %15s", rank,
                                rank_unit, one, one_unit),
                         4);
        const bool same = strcmp(rank, one) == 0 && strcmp(rank_unit, one_unit) == 0;
        const bool alone = strcmp(meshes[i].words[0], "pp=1") == 0;
        if ((meshes[i].split && same) || (alone && !same))
            fail_msg("%s: %.80s", meshes[i].words[0], memory);
        assert_non_null(strstr(said, " checks passed, 0 failed"));
    }
    char *on_far[] = {"check", "mesh", path, "tp=2", "--backend", "far", NULL};
    assert_int_equal(run_command(ax_cmd_check, 6, on_far, NULL, out, said, sizeof said), AX_OK);
    assert_non_null(strstr(said, ": far, ranks as threads"));
    static const struct {
        char *words[4];
        const char *says;
    } options[] = {
        {{"--qat", "nvfp4", "--fp8", "tensorwise"}, "give either --qat or --fp8"},
        {{"--recompute", "maybe", "tp=1", "pp=1"}, "--recompute: \"maybe\" is not one of"},
        {{"pp=1024", "dp_shard=1024", "cp=1024", "tp=1024"}, "these sizes are 1099511627776 ranks"},
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        char *const *w = options[i].words;
        char *argv[] = {"check", "mesh", path, w[0], w[1], w[2], w[3], NULL};
        assert_int_equal(run_command(ax_cmd_check, 7, argv, NULL, out, said, sizeof said),
                         AX_ERR_CONFIG);
        if (!strstr(ax_error_text(), options[i].says))
            fail_msg("%s", ax_error_text());
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char *argv[] = {"check", "mesh", path, (char *)(uintptr_t)wrong[i], NULL};
        assert_int_equal(run_command(ax_cmd_check, 4, argv, NULL, out, said, sizeof said),
                         AX_ERR_CONFIG);
        assert_non_null(strstr(ax_error_text(), wrong[i]));
    }
    assert_int_equal(ax_remove_tree(file), AX_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        LONG_TEST(cmocka_unit_test(processes_are_one_rank)), /* forks: before any threads */
        LONG_TEST(cmocka_unit_test(every_mesh_is_one_rank_in_double)),
        LONG_TEST(cmocka_unit_test(every_mesh_is_one_rank_in_float)),
        LONG_TEST(cmocka_unit_test(experts_are_one_rank)),
        LONG_TEST(cmocka_unit_test(kept_weights_and_gradients_are_one_rank)),
        LONG_TEST(cmocka_unit_test(noise_and_loss_terms_are_one_rank)),
        LONG_TEST(cmocka_unit_test(unequal_lengths_are_one_rank)),
        cmocka_unit_test(ropes_by_length_are_one_rank),
        LONG_TEST(cmocka_unit_test(every_schedule_is_one_rank)),
        cmocka_unit_test(a_stage_of_the_head_alone_is_one_rank),
        cmocka_unit_test(impossible_pipelines_are_refused),
        LONG_TEST(cmocka_unit_test(bf16_and_adamw_are_one_rank)),
        LONG_TEST(cmocka_unit_test(classifiers_are_one_rank)),
        LONG_TEST(cmocka_unit_test(weights_by_entropy_are_one_rank)),
        LONG_TEST(cmocka_unit_test(adapters_are_one_rank)),
        LONG_TEST(cmocka_unit_test(restarted_adapters_are_one_rank)),
        LONG_TEST(cmocka_unit_test(adapters_of_experts_are_one_rank)),
        LONG_TEST(cmocka_unit_test(adapters_of_fused_matrices_are_one_rank)),
        LONG_TEST(cmocka_unit_test(far_meshes_have_the_bits_of_cpu)),
        cmocka_unit_test(sharding_saves_memory),
        cmocka_unit_test(memory_is_the_largest_ranks),
        cmocka_unit_test(a_missing_reduce_is_named),
        cmocka_unit_test(a_wrong_group_is_named),
        cmocka_unit_test(a_double_count_is_named),
        cmocka_unit_test(a_tensor_left_out_of_the_norm_is_named),
        cmocka_unit_test(a_rank_that_skips_a_collective_is_named),
        LONG_TEST(cmocka_unit_test(sizes_are_read)),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
