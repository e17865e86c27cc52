/* The layer for multi-token prediction in training: its gradients however documents are spread, its bits with
 * any recompute, what it costs, and what it is refused with. That it is what transformers computes is in
 * tests/goldens, and meshes are in tests/cmd/test_mesh_families.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "optim/plan/plan.h"
#include "tests/optim/tiny_case.h"

#define KEY "mtp_loss_scaling_factor"
#define LATENT                                                                                     \
    ", \"q_lora_rank\": 9, \"kv_lora_rank\": 10, \"qk_nope_head_dim\": 7, \"qk_rope_head_dim\": "  \
    "6, \"v_head_dim\": 5, \"n_routed_experts\": 8, \"n_group\": 1, \"topk_group\": 1, "           \
    "\"num_experts_per_tok\": 3, \"moe_intermediate_size\": 22, \"first_k_dense_replace\": 1"
#define NEXT ", \"num_nextn_predict_layers\": 1"

static void predicting(struct ax_arch *a) {
    must(tiny_arch(a, "deepseek_v3", false, LATENT NEXT));
    must(ax_arch_predict(a, KEY));
}

static struct tiny_run run_of(const struct ax_arch *arch, enum ax_dtype dtype, int micro,
                              const int64_t *of) {
    struct tiny_run t = tiny_step(arch, dtype, micro, of);
    t.o.mtp_coef = 0.6;
    return t;
}

static void packed_documents_are_those_alone(void **state) {
    (void)state;
    struct ax_arch arch;
    predicting(&arch);
    for (size_t k = 0; k < N_PACKINGS; k++) {
        struct tiny_run one = run_of(&arch, AX_F64, 1, packings[k].together),
                        more = run_of(&arch, AX_F64, packings[k].micro, packings[k].apart);
        one.o.recompute = AX_RECOMPUTE_OFF;
        expect_same_gradients(&one, &more, "ref", 1, 1e-12);
    }
    ax_arch_free(&arch);
}

static void recompute_changes_no_bit(void **state) {
    (void)state;
    struct ax_arch arch;
    predicting(&arch);
    recompute_keeps_bits(run_of(&arch, AX_F32, 2, lengths));
    recompute_keeps_bits(run_of(&arch, AX_BF16, 2, lengths));
    ax_arch_free(&arch);
}

/* The layer, eh_proj, and the head's product once more. */
static void it_is_counted(void **state) {
    (void)state;
    static struct ax_plan plan;
    const struct ax_runtime_options ro = {.backend = "ref", .threads = 1};
    struct ax_arch with, without;
    predicting(&with);
    must(tiny_arch(&without, "deepseek_v3", false, LATENT NEXT));
    struct ax_step_options o = tiny_options(AX_F32, AX_RECOMPUTE_ON, 1, lengths);
    o.mtp_coef = 0.1;
    must(ax_plan_make(&plan, &ro, &with, &o));
    assert_true(plan.model_flops / (double)plan.tokens ==
                ax_arch_flops_per_token(&with, o.max_len));
    assert_int_equal(plan.parameters, ax_arch_parameters(&with));
    const int64_t D = with.hidden_size, last = without.n_layers;
    const double more = ax_arch_unit_flops(&with, last + 1, 24) +
                        ax_arch_unit_flops(&with, last + 2, 24) -
                        ax_arch_unit_flops(&without, last + 1, 24);
    assert_true(more == ax_arch_unit_flops(&without, last, 24) + 4 * (double)(D * D) +
                            2 * (double)(D * with.vocab_size));
    ax_arch_free(&with);
    ax_arch_free(&without);
}

static void refused(const char *type, const char *extra, enum ax_status st, const char *part) {
    struct ax_arch a;
    must(tiny_arch(&a, type, false, extra));
    assert_int_equal(ax_arch_predict(&a, KEY), st);
    if (!strstr(ax_error_text(), part) || !strstr(ax_error_text(), KEY))
        fail_msg("\"%s\" is not in: %s", part, ax_error_text());
    ax_error_clear();
    ax_arch_free(&a);
}

static void models_without_such_a_layer_are_refused(void **state) {
    (void)state;
    refused("llama", "", AX_ERR_CONFIG, "llama model has no layer");
    refused("deepseek_v3", LATENT, AX_ERR_CONFIG, "num_nextn_predict_layers");
    refused("deepseek_v3", LATENT ", \"num_nextn_predict_layers\": 2", AX_ERR_UNSUPPORTED,
            "num_nextn_predict_layers is 2");
    refused("deepseek_v32",
            LATENT NEXT ", \"index_topk\": 5, \"index_n_heads\": 3, "
                        "\"index_head_dim\": 9",
            AX_ERR_UNSUPPORTED, "deepseek_v32 models are kept");
}

static void other_methods_are_refused(void **state) {
    (void)state;
    const struct ax_runtime_options ro = {.backend = "ref", .threads = 1};
    struct ax_objective other = ax_objective_sft;
    struct ax_arch arch;
    other.name = "dpo";
    predicting(&arch);
    static const char *const words[] = {"with dpo", "with qat", "with relora"};
    for (int i = 0; i < 3; i++) {
        struct tiny_run t = run_of(&arch, AX_F32, 1, lengths);
        t.o.objective = i == 0 ? &other : t.o.objective;
        t.o.model.qat = i == 1 ? &ax_schemes[0] : NULL;
        t.o.relora.interval = i == 2 ? 3 : 0;
        assert_int_equal(ax_runtime_run(&ro, tiny_create, &t, NULL), AX_ERR_UNSUPPORTED);
        assert_non_null(strstr(ax_error_text(), words[i]));
        ax_error_clear();
    }
    ax_arch_free(&arch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_documents_are_those_alone),
        cmocka_unit_test(recompute_changes_no_bit),
        cmocka_unit_test(it_is_counted),
        cmocka_unit_test(models_without_such_a_layer_are_refused),
        cmocka_unit_test(other_methods_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
