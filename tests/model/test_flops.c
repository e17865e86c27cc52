/* FLOPs per token that a method needs, against counts by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "optim/plan.h"
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
    o.adapter = &all;
    assert_true(per_token(&arch, &o) ==
                LAYERS * (4.0 * MATRICES + 6 * ADAPTERS + 3 * attention) + 4 * HEAD);
    struct ax_peft_config top = all;
    top.n_layers = 1;
    top.layers = last;
    o.adapter = &top;
    assert_true(per_token(&arch, &o) == (LAYERS - 1) * (2.0 * MATRICES + attention) +
                                            (4.0 * MATRICES + 6 * ADAPTERS + 3 * attention) +
                                            4 * HEAD);
    struct ax_peft_config with = top; /* a trained look-up needs all gradients, and no products */
    with.save = (struct ax_peft_names){1, embedding};
    o.adapter = &with;
    assert_true(per_token(&arch, &o) ==
                LAYERS * (4.0 * MATRICES + 3 * attention) + 6 * ADAPTERS + 4 * HEAD);
    ax_arch_free(&arch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_everything_is_6n_6lhs),
        cmocka_unit_test(frozen_weights_cost_less),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
