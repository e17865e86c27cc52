/* Meshes of ranks against one rank, as in test_mesh.c: of models whose products read quantized operands,
 * with scales that span ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/cmd/mesh_case.h"

static const struct model models[] = {
    {.type = "llama", .extra = ", \"attention_bias\": true, \"mlp_bias\": true"},
    {.type = "qwen3", .tied = true, .extra = ""},
};
static const struct model experts[] = {
    {.type = "mixtral",
     .tied = true,
     .extra = ", \"num_local_experts\": 8, \"num_experts_per_tok\": 2"},
    {.type = "qwen3_moe",
     .extra = ", \"num_experts\": 8, \"num_experts_per_tok\": 3, \"moe_intermediate_size\": 22, "
              "\"norm_topk_prob\": false, \"mlp_only_layers\": [1], \"decoder_sparse_step\": 1"},
};

/* Scales that span ranks: of rows that tp splits, of tensors. */
static void quantized_linears_are_one_rank(void **state) {
    (void)state;
    static const struct mesh meshes[] = {{{1, 1, 2, 1, 1, 1}, 2}, {{1, 1, 1, 1, 2, 1}, 2},
                                         {{2, 1, 1, 1, 1, 1}, 2}, {{1, 1, 1, 2, 1, 1}, 2},
                                         {{1, 1, 1, 2, 2, 1}, 2}, {{1, 1, 2, 1, 2, 1}, 2}};
    static const char *const names[] = {"fp8", "int8-int8", "fp8-tensor", "int4-int8"};
    static const struct ax_peft_config lora = {.r = 3, .alpha = 8, .all_linear = true};
    static struct ax_golden_report r;
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++)
        for (size_t k = 0; k < 4; k++) {
            struct ax_scheme scheme;
            assert_int_equal(ax_scheme_find("scheme", names[k], &scheme), AX_OK);
            scheme.weight.block = scheme.groups ? 2 : scheme.weight.block;
            scheme.embedding = i % 2;
            scheme.head = i % 3 < 2;
            struct ax_mesh_check c = {.step.model.qat = &scheme,
                                      .step.model.adapter = (i + k) % 3 == 0 ? &lora : NULL,
                                      .step.pad = (i + k) % 3 == 1 ? 4 : 0};
            const struct model *m = &models[(i + k) % 2];
            run(m, &meshes[i], "ref", (enum ax_recompute)((i + k) % 3), &c, &r);
            expect_figures(&r, m, &meshes[i], 6);
        }
}

/* Blocks that the bounds of shards cut: of 8 where ranks have 28 or 14 of 56 inputs, or 12 of the 48 of heads; of 2
 * where they have 27, or 14, 14, 13, 13 of 54. */
static void blocks_that_span_ranks_are_one_rank(void **state) {
    (void)state;
    static const struct mesh meshes[] = {
        {{1, 1, 1, 1, 2, 1}, 2}, {{1, 1, 1, 1, 4, 1}, 2}, {{1, 1, 2, 1, 2, 1}, 2}};
    static const char *const names[] = {"int4-int8", "int4-fp8", "nvfp4", "mxfp8", "int4-asym"};
    static const struct ax_peft_config lora = {.r = 3, .alpha = 8, .all_linear = true};
    static struct ax_golden_report r;
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++)
        for (size_t k = 0; k < 2 * sizeof names / sizeof *names; k++) {
            struct ax_scheme scheme;
            assert_int_equal(ax_scheme_find("scheme", names[k / 2], &scheme), AX_OK);
            scheme.weight.block = k % 2 ? 2 : 8;
            if (scheme.quantizes_input && scheme.input.block > 0)
                scheme.input.block = scheme.weight.block;
            struct ax_mesh_check c = {.step.model.qat = &scheme,
                                      .step.model.adapter = (i + k) % 3 == 0 ? &lora : NULL};
            ffn_size = k % 2 ? 54 : 56;
            run(&models[k / 2 % 2], &meshes[i], "ref", (enum ax_recompute)((i + k) % 3), &c, &r);
            ffn_size = 0;
            expect_figures(&r, &models[k / 2 % 2], &meshes[i], 6);
        }
}

/* Groups, rows, tensors, and groups whose scales have one of the tensor: of linears, of experts, and of the
 * embedding and the head, whose rows tp splits. */
static void every_kind_of_scale_is_one_rank(void **state) {
    (void)state;
    static const struct mesh meshes[] = {{{1, 1, 2, 1, 1, 1}, 2},
                                         {{1, 1, 1, 1, 2, 1}, 2},
                                         {{2, 1, 1, 1, 1, 1}, 2},
                                         {{1, 1, 2, 1, 1, 2}, 2},
                                         {{1, 1, 1, 1, 2, 2}, 2}};
    static const struct {
        const char *scheme;
        int64_t block; /* of these sizes; 0 = the scheme's */
    } formats[] = {{"int4", 2}, {"fp8", 0}, {"fp8-tensor", 0}, {"nvfp4", 2}, {"int4-int8", 2}};
    static const struct ax_peft_config lora = {.r = 3, .alpha = 8, .all_linear = true};
    static const struct ax_peft_config dora = {
        .r = 3, .alpha = 8, .all_linear = true, .dora = true};
    static struct ax_golden_report r;
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++)
        for (size_t k = 0; k < 2 * sizeof formats / sizeof *formats; k++) {
            struct ax_scheme scheme;
            assert_int_equal(ax_scheme_find("scheme", formats[k / 2].scheme, &scheme), AX_OK);
            if (formats[k / 2].block > 0)
                scheme.weight.block = formats[k / 2].block;
            const struct model *m = meshes[i].sizes.ep > 1 ? &experts[k % 2] : &models[k % 2];
            scheme.embedding = scheme.head = k % 2;
            struct ax_mesh_check c = {.step.model.qat = &scheme};
            if (meshes[i].sizes.ep == 1 && (i + k) % 3 > 0)
                c.step.model.adapter = (i + k) % 3 == 1 ? &lora : &dora;
            ffn_size = 56; /* halves have whole groups */
            run(m, &meshes[i], "ref", (enum ax_recompute)((i + k) % 3), &c, &r);
            ffn_size = 0;
            expect_figures(&r, m, &meshes[i], 6);
        }
}

/* Scales of operands that span ranks of tp and cp: of all, of rows, of columns; without the padding. Weights
 * are gathered as they are, or as codes. */
static void fp8_training_is_one_rank(void **state) {
    (void)state;
    static const struct mesh meshes[] = {{{1, 1, 2, 1, 1, 1}, 2}, {{1, 1, 1, 1, 2, 1}, 2},
                                         {{2, 1, 1, 1, 1, 1}, 2}, {{1, 1, 1, 2, 1, 1}, 2},
                                         {{1, 1, 1, 2, 2, 1}, 2}, {{1, 1, 2, 1, 1, 2}, 2}};
    static const struct ax_peft_config lora = {.r = 3, .alpha = 8, .all_linear = true};
    static struct ax_golden_report r;
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++)
        for (size_t k = 0; k < 4; k++) {
            struct ax_scheme scheme;
            assert_int_equal(ax_fp8_recipe(k % 2 ? "rowwise" : "tensorwise", k > 1, &scheme),
                             AX_OK);
            struct ax_mesh_check c = {.step.model.qat = &scheme,
                                      .step.model.adapter = (i + k) % 4 == 0 ? &lora : NULL,
                                      .step.model.sharding = {.coded = (i + k / 2) % 2 == 0},
                                      .step.pad = (i + k) % 2 ? 4 : 0};
            const struct model *m = meshes[i].sizes.ep > 1 ? &experts[k % 2] : &models[k % 2];
            run(m, &meshes[i], "ref", (enum ax_recompute)((i + k) % 3), &c, &r);
            expect_figures(&r, m, &meshes[i], 6);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantized_linears_are_one_rank),
        cmocka_unit_test(every_kind_of_scale_is_one_rank),
        cmocka_unit_test(blocks_that_span_ranks_are_one_rank),
        cmocka_unit_test(fp8_training_is_one_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
