/* Ring attention, chunks over tp and experts in halves on meshes of ranks against one rank: losses, norms, every gradient and
 * weight; documents shorter and longer than a run, windows, sinks, soft caps, latents, experts, adapters. Then
 * every product of dimensions, with all that overlaps; AXTRAIN_SWEEP=1: and with nothing, and with each alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "tests/cmd/mesh_case.h"
#include "tests/sweep.h"

static const struct model models[] = {
    {"llama", false, ", \"attention_bias\": true, \"mlp_bias\": true", {0}, {0}, 0},
    {"qwen3", true, "", {0}, {0}, 0},
    {"mistral", false, ", \"sliding_window\": 7", {0}, {0}, 0},
    {"gemma2",
     true,
     ", \"sliding_window\": 3, \"attn_logit_softcapping\": 2.5, \"final_logit_softcapping\": 4, "
     "\"query_pre_attn_scalar\": 20",
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
    {"deepseek_v3",
     true,
     ", \"kv_lora_rank\": 10, \"qk_nope_head_dim\": 7, \"qk_rope_head_dim\": 6, "
     "\"v_head_dim\": 5, \"n_routed_experts\": 8, \"num_experts_per_tok\": 3, "
     "\"moe_intermediate_size\": 22, \"n_shared_experts\": 2, \"first_k_dense_replace\": 1, "
     "\"q_lora_rank\": 9, \"attention_bias\": true, \"n_group\": 2, \"topk_group\": 1",
     {0},
     {0},
     0},
};
enum { N_MODELS = sizeof models / sizeof *models };

static const struct mesh meshes[] = {
    {{1, 1, 1, 2, 1, 1}, 2}, {{1, 1, 1, 3, 1, 1}, 2}, {{1, 1, 1, 4, 1, 1}, 2},
    {{1, 1, 2, 2, 1, 1}, 2}, {{1, 2, 1, 2, 1, 1}, 3}, {{1, 1, 1, 2, 2, 1}, 3},
    {{2, 1, 1, 2, 1, 1}, 3}, {{2, 1, 1, 2, 2, 1}, 3},
};

/* Documents of at most 12 of 36 tokens, and one of up to all of them. */
static void rings_are_one_rank_in_double(void **state) {
    (void)state;
    static struct ax_golden_report r;
    for (size_t k = 0; k < N_MODELS; k++)
        for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i += k < 3 ? 1 : 2) {
            struct ax_mesh_check c = {.step.model.cp_method = AX_CP_RING,
                                      .longest = (i + k) % 2 ? 36 : 0};
            run(&models[k], &meshes[i], "ref", (enum ax_recompute)((i + k) % 3), &c, &r);
            expect_figures(&r, &models[k], &meshes[i], 10);
        }
    print_message("%d figures\n", figures);
}

static void rings_are_one_rank_in_float(void **state) {
    (void)state;
    static struct ax_golden_report r;
    for (size_t k = 0; k < N_MODELS; k++)
        for (size_t i = k % 2; i < sizeof meshes / sizeof *meshes; i += 2) {
            struct ax_mesh_check c = {
                .step.model.cp_method = AX_CP_RING, .longest = 36, .bf16 = k == 1 && i % 4 == 1};
            run(&models[k], &meshes[i], "cpu", (enum ax_recompute)((i + k) % 3), &c, &r);
            expect_figures(&r, &models[k], &meshes[i], 10);
        }
}

/* Runs of unequal micro-batches are as long as these need: which messages there are changes. Then adapters,
 * with what they need recomputed. */
static void lengths_and_adapters(void **state) {
    (void)state;
    static const struct ax_peft_config lora = {.r = 3, .alpha = 6, .all_linear = true};
    static struct ax_golden_report r;
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        struct ax_mesh_check pads = {.step.model.cp_method = AX_CP_RING,
                                     .step.pad = 4,
                                     .longest = i % 2 ? 9 : 30},
                             adapts = {.step.model.cp_method = AX_CP_RING,
                                       .step.model.adapter = &lora};
        run(&models[1 + i % 3], &meshes[i], "ref", (enum ax_recompute)(i % 3), &pads, &r);
        expect_figures(&r, &models[1 + i % 3], &meshes[i], 10);
        run(&models[i % 3], &meshes[i], i % 2 ? "ref" : "cpu", AX_RECOMPUTE_ON, &adapts, &r);
        expect_figures(&r, &models[i % 3], &meshes[i], 6);
    }
}

/* Rows travel over tp behind products, also with experts, latents, adapters and packed weights. */
static void chunks_over_tp_are_one_rank(void **state) {
    (void)state;
    static const struct mesh over_tp[] = {{{1, 1, 1, 1, 2, 1}, 3}, {{1, 1, 1, 1, 4, 1}, 2},
                                          {{1, 1, 2, 1, 2, 1}, 2}, {{1, 1, 1, 2, 2, 1}, 3},
                                          {{2, 1, 2, 1, 2, 1}, 3}, {{1, 2, 1, 1, 2, 1}, 3}};
    static char *some[] = {"q_proj", "down_proj"};
    static const struct ax_peft_config adapters[] = {
        {.r = 3, .alpha = 6, .targets = {2, some}},
        {.r = 3, .alpha = 6, .all_linear = true, .dropout = 0.2},
        {.r = 3, .alpha = 6, .all_linear = true, .dora = true}};
    static struct ax_golden_report r;
    for (size_t k = 0; k < N_MODELS; k++)
        for (size_t i = k % 2; i < sizeof over_tp / sizeof *over_tp; i += k < 2 ? 1 : 2) {
            struct ax_mesh_check c = {
                .step.model.tp_overlap = true,
                .step.model.cp_method = AX_CP_RING,
                .step.model.sharding = ax_zero_stage(3 - (int64_t)(k % 3)),
                .step.pad = i % 3 == 2 ? 4 : 0,
                .bf16 = k == 1 && i == 3,
                .step.model.adapter = (i + k) % 4 > 1 ? &adapters[k % 3] : NULL,
                .step.model.base_store = (i + k) % 4 == 3 ? AX_STORAGE_NF4 : AX_STORAGE_PLAIN};
            run(&models[k], &over_tp[i], (i + k) % 2 ? "ref" : "cpu", (enum ax_recompute)(i % 3),
                &c, &r);
            expect_figures(&r, &models[k], &over_tp[i], 6);
        }
}

/* Rows of experts in two halves and in line, in one round and several; with a shared expert, gated or not,
 * adapters, and stages whose backward is in halves. Each model is on each mesh in one of both ways. */
static void experts_in_halves_are_one_rank(void **state) {
    (void)state;
    static const struct model gated = {
        "qwen2_moe",
        false,
        ", \"num_experts\": 8, \"num_experts_per_tok\": 3, \"moe_intermediate_size\": 22, "
        "\"shared_expert_intermediate_size\": 30, \"output_router_logits\": true",
        {0},
        {0},
        0};
    static const struct mesh with_ep[] = {{{1, 1, 2, 1, 1, 2}, 3}, {{1, 1, 4, 1, 1, 2}, 2},
                                          {{1, 1, 1, 1, 2, 2}, 3}, {{1, 1, 2, 1, 2, 2}, 2},
                                          {{1, 1, 1, 2, 1, 2}, 3}, {{2, 1, 2, 1, 1, 2}, 3}};
    static char *some[] = {"q_proj", "down_proj"};
    static const struct ax_peft_config lora = {.r = 3, .alpha = 6, .targets = {2, some}};
    const struct model *kinds[] = {&models[N_MODELS - 2], &models[N_MODELS - 1], &gated};
    static struct ax_golden_report r;
    for (size_t k = 0; k < 3; k++)
        for (size_t i = 0; i < sizeof with_ep / sizeof *with_ep; i++)
            for (int on = 0; on < 2; on++) {
                const bool stages = with_ep[i].sizes.pp > 1;
                if (left_out(i / 2 + k + (size_t)on))
                    continue;
                struct ax_mesh_check c = {.step.model.expert_overlap = on,
                                          .step.model.tp_overlap = on,
                                          .step.model.expert_room = (i + k) % 2 ? 0.4 : 0,
                                          .step.pipeline =
                                              stages ? AX_PIPELINE_ZERO_BUBBLE : AX_PIPELINE_1F1B,
                                          .step.pad = i == 1 ? 4 : 0,
                                          .step.model.adapter = k == 2 && i == 4 ? &lora : NULL};
                run(kinds[k], &with_ep[i], (i + k) % 2 ? "cpu" : "ref",
                    (enum ax_recompute)((i + k) % 3), &c, &r);
                expect_figures(&r, kinds[k], &with_ep[i], 6);
            }
}

/* ---- products ---- */

enum overlap { PREFETCH = 1, CHUNKS = 2, RING = 4, HALVED = 8, EXPERTS = 16, ALL = 31 };

static struct ax_mesh_check with(unsigned overlap) {
    struct ax_mesh_check c = {.step.model.tp_overlap = overlap & CHUNKS,
                              .step.model.expert_overlap = overlap & EXPERTS,
                              .step.model.cp_method = overlap & RING ? AX_CP_RING : AX_CP_GATHER,
                              .step.pipeline =
                                  overlap & HALVED ? AX_PIPELINE_ZERO_BUBBLE : AX_PIPELINE_1F1B};
    c.step.model.sharding = ax_zero_stage(3);
    c.step.model.sharding.prefetch = overlap & PREFETCH;
    return c;
}

/* What has an effect on a mesh. */
static unsigned overlaps_of(const struct ax_mesh_sizes *s) {
    return (s->dp_shard * s->dp_replicate * s->cp > 1 ? PREFETCH : 0) | (s->tp > 1 ? CHUNKS : 0) |
           (s->cp > 1 ? RING : 0) | (s->pp > 1 ? HALVED : 0) | (s->ep > 1 ? EXPERTS : 0);
}

static void check(const struct mesh *mesh, unsigned overlap) {
    static struct ax_golden_report r;
    const struct model *m = &models[mesh->sizes.ep > 1 ? N_MODELS - 2 : 0];
    struct ax_mesh_check c = with(overlap);
    run(m, mesh, "ref", AX_RECOMPUTE_OFF, &c, &r);
    expect_figures(&r, m, mesh, 10);
    if (!sweeping())
        return;
    c = with(overlap);
    run(m, mesh, "cpu", AX_RECOMPUTE_OFF, &c, &r);
    expect_figures(&r, m, mesh, 10);
}

static void check_all(const struct mesh *mesh) {
    const unsigned overlaps = overlaps_of(&mesh->sizes);
    check(mesh, overlaps);
    if (!sweeping())
        return;
    check(mesh, 0);
    for (unsigned one = 1; one < ALL; one *= 2)
        if ((overlaps & one) && overlaps != one)
            check(mesh, one);
}

/* One to three dimensions of 2, and then experts over two of the ranks that may have some; without a sweep, of three
 * dimensions one of both. */
static void products_with_overlap(void **state) {
    (void)state;
    for (int set = 1; set < 32; set++) {
        struct mesh mesh = {{1 + (set & 1), 1 + (set >> 1 & 1), 1 + (set >> 2 & 1),
                             1 + (set >> 3 & 1), 1 + (set >> 4 & 1), 1},
                            3};
        const int dimensions = __builtin_popcount((unsigned)set);
        const bool both = dimensions < 3;
        if (dimensions > 3)
            continue;
        if (both || !left_out((size_t)set + 1))
            check_all(&mesh);
        mesh.sizes.ep = 2;
        if (set >> 2 && (both || !left_out((size_t)set)))
            check_all(&mesh);
    }
    print_message("%d figures\n", figures);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rings_are_one_rank_in_double),
        cmocka_unit_test(rings_are_one_rank_in_float),
        cmocka_unit_test(lengths_and_adapters),
        cmocka_unit_test(chunks_over_tp_are_one_rank),
        cmocka_unit_test(experts_in_halves_are_one_rank),
        cmocka_unit_test(products_with_overlap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
