/* FLOPs per token that a method needs, against counts by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "optim/plan/plan.h"
#include "tests/tiny.h"

static const int64_t lengths[] = {24, 0};

/* The tiny models: one layer's matrices and causal attention of n tokens. */
enum {
    HIDDEN = 48,
    VOCAB = 97,
    LAYERS = 3,
    MATRICES = HIDDEN * (64 + 2 * 32 + 64) + 3 * HIDDEN * 80,
    HEAD = HIDDEN * VOCAB,
    ADAPTERS = 3 * (48 + 64 + 2 * (48 + 32) + 64 + 48 + 3 * (48 + 80)) /* of rank 3, a layer's */
};

static double per_token(const struct ax_arch *arch, const struct ax_step_options *o) {
    static struct ax_plan plan;
    const struct ax_runtime_options ro = {.backend = "ref", .threads = 1};
    assert_int_equal(ax_plan_make(&plan, &ro, arch, o), AX_OK);
    return plan.model_flops / (double)plan.tokens;
}

static void training_everything_is_6n_6lhs(void **state) {
    (void)state;
    static const struct {
        const char *type, *more;
        bool tied;
    } cases[] = {{"llama", "", false}, {"llama", "", true}, {"qwen3_moe", "", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ax_arch arch;
        assert_int_equal(tiny_arch(&arch, cases[i].type, cases[i].tied, cases[i].more), AX_OK);
        const struct ax_step_options o = tiny_options(AX_F32, AX_RECOMPUTE_ON, 1, lengths);
        assert_true(per_token(&arch, &o) == ax_arch_flops_per_token(&arch, o.max_len));
        ax_arch_free(&arch);
    }
}

/* Frozen matrices have a gradient of their input only, and none below the lowest adapter. */
static void frozen_weights_cost_less(void **state) {
    (void)state;
    struct ax_arch arch;
    assert_int_equal(tiny_arch(&arch, "llama", false, ""), AX_OK);
    struct ax_step_options o = tiny_options(AX_F32, AX_RECOMPUTE_ON, 1, lengths);
    const double attention = (double)(arch.n_heads * (arch.head_dim + arch.v_head_dim) * o.max_len);
    static int64_t last[] = {LAYERS - 1};
    static char *embedding[] = {"embed_tokens"};
    struct ax_peft_config all = {.r = 3, .alpha = 6, .all_linear = true};
    o.model.adapter = &all;
    assert_true(per_token(&arch, &o) ==
                LAYERS * (4.0 * MATRICES + 6 * ADAPTERS + 3 * attention) + 4 * HEAD);
    struct ax_peft_config top = all;
    top.n_layers = 1;
    top.layers = last;
    o.model.adapter = &top;
    assert_true(per_token(&arch, &o) == (LAYERS - 1) * (2.0 * MATRICES + attention) +
                                            (4.0 * MATRICES + 6 * ADAPTERS + 3 * attention) +
                                            4 * HEAD);
    struct ax_peft_config with = top; /* a trained look-up needs all gradients, and no products */
    with.save = (struct ax_peft_names){1, embedding};
    o.model.adapter = &with;
    assert_true(per_token(&arch, &o) ==
                LAYERS * (4.0 * MATRICES + 3 * attention) + 6 * ADAPTERS + 4 * HEAD);
    ax_arch_free(&arch);
}

/* What is executed, without recompute, is no more than what the method needs: the lowest layer that
 * is trained has no gradient of its input, which q, k, v and their adapters would pass on. What an
 * adapter reduces to its rank is kept. */
static void nothing_is_computed_for_nothing(void **state) {
    (void)state;
    static struct ax_plan plan;
    struct ax_arch arch;
    const struct ax_runtime_options ro = {.backend = "ref", .threads = 1};
    const double qkv = HIDDEN * (64 + 2 * 32), a_of_qkv = 3 * 3 * HIDDEN;
    assert_int_equal(tiny_arch(&arch, "llama", false, ""), AX_OK);
    struct ax_step_options o = tiny_options(AX_F32, AX_RECOMPUTE_OFF, 1, lengths);
    assert_int_equal(ax_plan_make(&plan, &ro, &arch, &o), AX_OK);
    const double n = (double)plan.tokens;
    assert_true(plan.gemm_flops == n * (LAYERS * 6.0 * MATRICES + 6 * HEAD));
    for (int64_t first = 0; first < LAYERS; first++) {
        int64_t layers[LAYERS];
        struct ax_peft_config top = {.r = 3, .alpha = 6, .all_linear = true, .layers = layers};
        for (int64_t i = first; i < LAYERS; i++)
            layers[top.n_layers++] = i;
        o.model.adapter = &top;
        assert_int_equal(ax_plan_make(&plan, &ro, &arch, &o), AX_OK);
        const double trained = (double)(LAYERS - first), frozen = (double)first;
        const double needed = frozen * 2 * MATRICES + trained * (4.0 * MATRICES + 6 * ADAPTERS) -
                              2 * (qkv + a_of_qkv) + 4 * HEAD;
        assert_true(plan.gemm_flops == n * needed);
    }
    ax_arch_free(&arch);
}

/* FLOPs of the matrix products, of experts too, that a step executes per token. */
static double executed(const struct ax_arch *arch, const struct ax_step_options *o) {
    const struct ax_runtime_options ro = {.backend = "ref", .threads = 1};
    struct ax_runtime rt;
    struct ax_step s;
    struct ax_step_result r;
    assert_int_equal(ax_runtime_open_planning(&rt, &ro), AX_OK);
    assert_int_equal(ax_step_create(&s, &rt, arch, o), AX_OK);
    assert_int_equal(ax_batch_fill(&s.batches[0], rt.q, arch->vocab_size, 0, NULL), AX_OK);
    assert_int_equal(ax_step_run(&s, 0, &r), AX_OK);
    const struct ax_queue_counters *c = &rt.q->counters;
    const double flops = c->flops[AX_OP_gemm] + c->flops[AX_OP_grouped_gemm];
    ax_step_free(&s);
    ax_runtime_close(&rt);
    return flops / (double)o->tokens;
}

/* Of eight experts each token has three, in every product, forward and backward. */
static void experts_cost_what_tokens_have(void **state) {
    (void)state;
    enum {
        EXPERTS = 8,
        ACTIVE = 3,
        WIDTH = 24,
        MIXER = HIDDEN * (64 + 2 * 32 + 64),
        ROUTER = HIDDEN * EXPERTS,
        EACH = 3 * HIDDEN * WIDTH
    };
    static const enum ax_recompute modes[] = {AX_RECOMPUTE_OFF, AX_RECOMPUTE_SELECTIVE};
    struct ax_arch arch;
    assert_int_equal(tiny_arch(&arch, "qwen3_moe", false,
                               ", \"num_experts\": 8, \"num_experts_per_tok\": 3, "
                               "\"moe_intermediate_size\": 24"),
                     AX_OK);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        const struct ax_step_options o = tiny_options(AX_F32, modes[i], 1, lengths);
        assert_true(executed(&arch, &o) ==
                    6.0 * (LAYERS * (MIXER + ROUTER + ACTIVE * EACH) + HEAD));
    }
    ax_arch_free(&arch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_everything_is_6n_6lhs),
        cmocka_unit_test(frozen_weights_cost_less),
        cmocka_unit_test(nothing_is_computed_for_nothing),
        cmocka_unit_test(experts_cost_what_tokens_have),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
