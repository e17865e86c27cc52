/* Biases of routers that follow the loads of experts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "kernels/transfer.h"
#include "optim/step/step.h"
#include "tests/tiny.h"
#include "tests/train_case.h"

enum { E = 8, K = 3, LAYERS = 3, FIRST = 1 };
static const int64_t lengths[] = {23, 1, 17, 40, 0};
#define TOKENS 81

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

struct run {
    struct ax_arch arch;
    struct ax_step_options o;
    int steps;
    double largest;             /* load of an expert in the last step, relative to the mean */
    struct ax_step_result last; /* without a speed */
};

static void read_bias(const struct ax_step *s, int layer, double *out) {
    const struct ax_tensor t = ax_model_value(&s->model, s->model.layers[layer].moe.bias);
    must(ax_tensor_read(s->rt->q, &t, AX_F64, out));
}

/* What a step says of its loads. */
static void check_balance(const struct ax_step_result *r, double loads[LAYERS][E]) {
    double worst = 0, entropy = 0;
    for (int l = 0; l < AX_BALANCE_LAYERS; l++) {
        if (l < FIRST || l >= LAYERS) {
            assert_true(isnan(r->experts.layers[l]));
            continue;
        }
        double largest = 0;
        for (int e = 0; e < E; e++) {
            const double share = loads[l][e] / (2.0 * TOKENS * K);
            largest = fmax(largest, share);
            entropy -= share > 0 ? share * log(share) / log(E) / (LAYERS - FIRST) : 0;
        }
        assert_true(fabs((double)r->experts.layers[l] - (largest * E - 1)) < 1e-6);
        worst = fmax(worst, largest * E - 1);
    }
    assert_true(worst > 0 && fabs(r->experts.violation - worst) < 1e-12);
    assert_true(entropy < 1 && fabs(r->experts.entropy - entropy) < 1e-12);
}

/* Each load is counted once, whatever is computed again, and moves its bias by one speed. */
static void check_update(struct ax_step *s, double *largest) {
    double loads[LAYERS][E], before[LAYERS][E], after[E];
    struct ax_step_result r;
    must(ax_step_gradients(s, &r));
    must(ax_tensor_read(s->rt->q, &s->model.expert_loads, AX_F64, loads));
    for (int l = FIRST; l < LAYERS; l++)
        read_bias(s, l, before[l]);
    must(ax_step_update(s, 1e-2, &r));
    *largest = 0;
    for (int l = 0; l < LAYERS; l++) {
        double sum = 0;
        for (int e = 0; e < E; e++) {
            sum += loads[l][e];
            *largest = fmax(*largest, loads[l][e] / (2.0 * TOKENS * K / E));
        }
        assert_true(sum == (l < FIRST ? 0 : 2 * TOKENS * K)); /* two micro-batches */
        if (l < FIRST)
            continue;
        read_bias(s, l, after);
        for (int e = 0; e < E; e++) {
            const double mean = sum / E, load = loads[l][e];
            const double sign = load < mean ? 1 : load > mean ? -1 : 0;
            assert_true(fabs(after[e] - before[l][e] - s->o.router_bias_speed * sign) < 1e-6);
        }
    }
    check_balance(&r, loads);
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct run *run = ctx;
    struct ax_step s;
    struct ax_step_result r = {0};
    must(ax_step_create(&s, rt, &run->arch, &run->o));
    must(ax_model_init_random(&s.model, 7));
    must(tiny_fill(&s, lengths, 7));
    for (int i = 0; i < run->steps; i++)
        if (ax_runtime_planning(rt) || run->o.router_bias_speed == 0)
            must(ax_step_run(&s, 1e-2, &r));
        else
            check_update(&s, &run->largest);
    if (run->o.router_bias_speed == 0)
        run->last = r;
    ax_step_free(&s);
    return AX_OK;
}

static void setup(struct run *run, enum ax_dtype dtype, enum ax_recompute mode, double speed,
                  int steps) {
    *run = (struct run){.steps = steps};
    must(tiny_arch(&run->arch, "deepseek_v3", false,
                   ", \"q_lora_rank\": 9, \"kv_lora_rank\": 10, \"qk_nope_head_dim\": 7, "
                   "\"qk_rope_head_dim\": 6, \"v_head_dim\": 5, \"n_routed_experts\": 8, "
                   "\"n_group\": 1, \"topk_group\": 1, \"num_experts_per_tok\": 3, "
                   "\"moe_intermediate_size\": 22, \"first_k_dense_replace\": 1"));
    run->o = tiny_options(dtype, mode, 2, lengths);
    run->o.router_bias_speed = speed;
}

static void biases_follow_loads(void **state) {
    (void)state;
    static const struct {
        const char *backend;
        enum ax_dtype dtype;
        enum ax_recompute mode;
    } kinds[] = {{"ref", AX_F64, AX_RECOMPUTE_OFF},
                 {"cpu", AX_F32, AX_RECOMPUTE_ON},
                 {"cpu", AX_BF16, AX_RECOMPUTE_SELECTIVE},
                 {"far", AX_F32, AX_RECOMPUTE_ON}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        static struct run run;
        const struct ax_runtime_options ro = {.backend = kinds[i].backend, .threads = 2};
        setup(&run, kinds[i].dtype, kinds[i].mode, 0.01, 3);
        must(ax_runtime_run(&ro, body, &run, NULL));
        ax_arch_free(&run.arch);
    }
}

/* Of a random model trained without, the busiest expert gets half more than the mean. */
static void loads_become_even(void **state) {
    (void)state;
    static struct run run;
    const struct ax_runtime_options ro = {.backend = "cpu", .threads = 2};
    double largest[2];
    for (int i = 0; i < 2; i++) {
        setup(&run, AX_F32, AX_RECOMPUTE_OFF, i == 0 ? 1e-9 : 0.02, 40);
        must(ax_runtime_run(&ro, body, &run, NULL));
        largest[i] = run.largest;
        ax_arch_free(&run.arch);
    }
    print_message("largest load %.2f without, %.2f with\n", largest[0], largest[1]);
    assert_true(largest[1] < 1.3 && largest[1] < 0.75 * largest[0]);
}

/* Biases are no state of an optimizer: a resumed run finds them in the checkpoint's model. */
static void resumed_runs_go_on_with_their_biases(void **state) {
    (void)state;
    static const char model[] =
        "{\"model_type\": \"deepseek_v3\", \"vocab_size\": 97, \"hidden_size\": 48, "
        "\"intermediate_size\": 80, \"num_hidden_layers\": 3, \"num_attention_heads\": 4, "
        "\"q_lora_rank\": 9, \"kv_lora_rank\": 10, \"qk_nope_head_dim\": 7, "
        "\"qk_rope_head_dim\": 6, \"v_head_dim\": 5, \"n_routed_experts\": 8, \"n_group\": 1, "
        "\"topk_group\": 1, \"num_experts_per_tok\": 3, \"moe_intermediate_size\": 22, "
        "\"first_k_dense_replace\": 1, \"initializer_range\": 0.15, "
        "\"max_position_embeddings\": 64}";
    static const enum ax_dtype dtypes[] = {AX_F32, AX_BF16};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        struct train_case c;
        struct ax_train_result r;
        char last[160];
        must(train_case_open(&c, dtypes[i], true));
        must(train_case_use_model(&c, model));
        c.o.step.router_bias_speed = 0.01;
        c.o.max_steps = 4;
        c.o.save.when = (struct ax_cadence){AX_EACH_STEPS, 2};
        must(train_case_run(&c, &r));
        const uint64_t once = train_case_hash(&c, "model.safetensors");
        assert_true(once != 0 && once != train_case_hash(&c, "checkpoint-2/model.safetensors"));
        snprintf(last, sizeof last, "%s/checkpoint-4", c.out);
        must(ax_remove_tree(last));
        c.o.save.resume = AX_RESUME_NEWEST;
        must(train_case_run(&c, &r));
        assert_int_equal(r.resumed_from, 2);
        assert_true(train_case_hash(&c, "model.safetensors") == once);
        train_case_close(&c);
    }
}

static void models_without_a_bias_are_refused(void **state) {
    (void)state;
    struct ax_arch arch;
    must(tiny_arch(&arch, "qwen3_moe", false, ", \"num_experts\": 8, \"num_experts_per_tok\": 2"));
    assert_int_equal(ax_router_bias_check(&arch, 0), AX_OK);
    assert_int_equal(ax_router_bias_check(&arch, 0.1), AX_ERR_CONFIG);
    assert_non_null(strstr(ax_error_text(), "router_bias_update_speed: the routers of qwen3_moe"));
    ax_arch_free(&arch);
}

/* An only expert has all tokens: as even as can be. */
static void an_only_expert_is_even(void **state) {
    (void)state;
    static struct run run = {.steps = 1};
    const struct ax_runtime_options ro = {.backend = "cpu", .threads = 1};
    must(tiny_arch(&run.arch, "qwen3_moe", false,
                   ", \"num_experts\": 1, \"num_experts_per_tok\": 1, "
                   "\"moe_intermediate_size\": 22"));
    run.o = tiny_options(AX_F32, AX_RECOMPUTE_OFF, 1, lengths);
    must(ax_runtime_run(&ro, body, &run, NULL));
    assert_true(run.last.experts.violation == 0 && run.last.experts.entropy == 1);
    assert_true(run.last.experts.layers[0] == 0);
    ax_arch_free(&run.arch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(biases_follow_loads),
        cmocka_unit_test(loads_become_even),
        cmocka_unit_test(resumed_runs_go_on_with_their_biases),
        cmocka_unit_test(an_only_expert_is_even),
        cmocka_unit_test(models_without_a_bias_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
