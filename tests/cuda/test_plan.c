/* A plan of time for backend cuda says of an H200 what was measured there: docs/results/gpu-speed.md, hybrids.md. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cmd/train/step_args.h"
#include "model/arch/shapes.h"
#include "optim/plan/plan_time.h"

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

static struct ax_rates rates_of(const char *machine) {
    struct ax_hardware h;
    must(ax_hardware_find(machine, &h));
    return ax_rates_cuda(&h);
}

static struct ax_rates h200(void) {
    return rates_of("h200");
}

/* Steps that were measured: tokens per second, and seconds of a step. */
static const struct {
    const char *shape, *config, *recompute, *fp8;
    int64_t batch, accumulate;
    double speed, products, attention, gone;
} steps[] = {
    {"llama-3.2-1b", NULL, "off", NULL, 4, 4, 62066, 0.697, 0.231, 0},
    {"llama-3.2-1b", NULL, "off", "tensorwise", 4, 4, 69880, 0.455, 0.220, 0.056},
    {NULL,
     "{\"architectures\": [\"Qwen3_5ForCausalLM\"], \"model_type\": \"qwen3_5_text\","
     "\"vocab_size\": 151936, \"hidden_size\": 2048, \"intermediate_size\": 6144,"
     "\"num_hidden_layers\": 16, \"num_attention_heads\": 16, \"num_key_value_heads\": 2,"
     "\"head_dim\": 128, \"linear_num_key_heads\": 16, \"linear_num_value_heads\": 32,"
     "\"linear_key_head_dim\": 128, \"linear_value_head_dim\": 128, \"linear_conv_kernel_dim\": 4,"
     "\"max_position_embeddings\": 16384, \"rms_norm_eps\": 1e-6, \"tie_word_embeddings\": true,"
     "\"full_attention_interval\": 4, \"rope_parameters\": {\"rope_type\": \"default\","
     "\"rope_theta\": 10000000, \"partial_rotary_factor\": 0.25}}",
     "selective", NULL, 2, 1, 40759, 0.090, 0.055, 0},
};

/* shape NULL: that of the config. */
static struct ax_plan_time plan_for(struct ax_rates rates, struct ax_step_options *so,
                                    const char *recompute, const char *shape, const char *text) {
    const struct ax_plan_time_options o = {.rates = &rates};
    const struct ax_runtime_options ro = {
        .backend = rates.backend, .threads = 1, .gpu = rates.hardware.gpu};
    struct ax_json_doc config;
    struct ax_arch arch;
    struct ax_plan_time t;
    must(ax_recompute_parse(recompute, &so->recompute));
    must(shape ? ax_shape_config(shape, &config)
               : ax_json_parse(&config, "config", text, strlen(text)));
    must(ax_arch_parse(&arch, ax_json_root(&config)));
    must(ax_plan_time(&t, &o, &ro, &arch, so));
    ax_json_free(&config);
    ax_arch_free(&arch);
    return t;
}

/* With the adapters' dropout. */
static struct ax_plan_time plan(struct ax_step_args *a, const char *recompute, const char *shape,
                                const char *text, double dropout) {
    struct ax_step_options so = {0};
    must(ax_step_args_options(a, &so));
    a->adapter.dropout = dropout;
    return plan_for(h200(), &so, recompute, shape, text);
}

static struct ax_plan_time planned(size_t i) {
    struct ax_step_args a = {.dtype = "bfloat16",
                             .optimizer = "adamw",
                             .batch = steps[i].batch,
                             .seq = 4096,
                             .accumulate = steps[i].accumulate,
                             .fp8 = steps[i].fp8};
    return plan(&a, steps[i].recompute, steps[i].shape, steps[i].config, 0);
}

static void within(const char *what, size_t i, double got, double measured, double tolerance) {
    if (fabs(got / measured - 1) > tolerance)
        fail_msg("step %zu: %s %g, measured %g", i, what, got, measured);
}

static void steps_take_what_was_measured(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        const struct ax_plan_time t = planned(i);
        const double tokens = 4096.0 * (double)(steps[i].batch * steps[i].accumulate);
        const double speed = tokens / (tokens / steps[i].speed - steps[i].gone);
        within("tokens/s", i, t.tokens_per_second, speed, 0.05);
        within("products", i, t.work[AX_TIME_PRODUCTS], steps[i].products, 0.07);
        within("attention", i, t.work[AX_TIME_ATTENTION], steps[i].attention, 0.1);
    }
}

/* Each second of a step is an op's. */
static void ops_add_up_to_their_kinds(void **state) {
    (void)state;
    const struct ax_plan_time t = planned(1);
    double kinds[AX_TIME_KINDS] = {0};
    for (int op = 0; op < AX_OP_COUNT; op++) {
        assert_true((t.ops[op].calls > 0) == (t.ops[op].seconds > 0));
        kinds[ax_rates_kind((enum ax_op)op)] += t.ops[op].seconds;
    }
    for (int kind = 0; kind < AX_TIME_KINDS; kind++)
        assert_true(fabs(kinds[kind] - t.work[kind]) <= 1e-9 * t.step);
    /* seven linears of each layer, three products in each micro-batch: each weight has a scale of its own */
    assert_true(t.ops[AX_OP_fp8_gemm].calls == 16 * 7 * 3 * 4);
}

/* A step of 1B in four micro-batches. */
static struct ax_plan_time planned_on(const char *machine, const char *fp8) {
    struct ax_step_args a = {.dtype = "bfloat16",
                             .optimizer = "adamw",
                             .batch = 4,
                             .seq = 4096,
                             .accumulate = 4,
                             .fp8 = fp8};
    struct ax_step_options so = {0};
    must(ax_step_args_options(&a, &so));
    return plan_for(rates_of(machine), &so, "off", "llama-3.2-1b", NULL);
}

/* Where rows have scales, q, k and v, gate and up share products, but those of dx. */
static void codes_are_multiplied_where_a_gpu_can(void **state) {
    (void)state;
    static const struct {
        const char *machine;
        double one, rows; /* products of a layer and micro-batch */
    } of[] = {
        {"h200", 7 * 3, 4 + 7 + 4}, {"b200", 7 * 3, 0}, {"rtx4090", 7 * 3, 0}, {"a100-80", 0, 0}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const char *machine = of[i].machine;
        assert_true(planned_on(machine, "tensorwise").ops[AX_OP_fp8_gemm].calls ==
                    16 * 4 * of[i].one);
        assert_true(planned_on(machine, "rowwise").ops[AX_OP_fp8_gemm].calls ==
                    16 * 4 * of[i].rows);
    }
}

/* Products of the values of codes take as long as others in bfloat16, beside what makes the values. */
static void emulated_products_are_no_faster(void **state) {
    (void)state;
    static const char *const machines[] = {"a100-80", "b200"};
    for (int i = 0; i < 2; i++) {
        const struct ax_plan_time values = planned_on(machines[i], "rowwise"),
                                  plain = planned_on(machines[i], NULL);
        within("gemm", (size_t)i, values.ops[AX_OP_gemm].seconds, plain.ops[AX_OP_gemm].seconds,
               1e-6);
        assert_true(values.step > plain.step);
    }
    assert_true(planned_on("h200", "rowwise").step < planned_on("h200", NULL).step);
}

static double products_of(int64_t lora, double dropout) {
    struct ax_step_args a = {.dtype = "bfloat16",
                             .optimizer = "adamw",
                             .batch = 1,
                             .seq = 4096,
                             .accumulate = 1,
                             .lora = lora};
    return plan(&a, "selective", "llama-3.2-1b", NULL, dropout).ops[AX_OP_gemm].calls;
}

/* q, k, v and gate, up: a product for the A's of one input, one for dx, one for A's gradients; x·Aᵀ is
 * kept. With dropout each projection has an input of its own. */
static void adapters_share_products(void **state) {
    (void)state;
    const double layers = 16, projections = 7, inputs = 4;
    const double all = products_of(8, 0), each = products_of(8, 0.1);
    const double base =
        2 * inputs * layers + 2 * 2 - 1; /* two chunks of the head; no dx of the first layer */
    assert_true(all == base + layers * (3 * projections + 3 * inputs) - 1);
    assert_true(each == base + layers * 6 * projections - 3);
}

/* A step of 8B with 65,536 tokens, of which docs/results/gpu-expected.md says 16,620 tokens/s. */
static void adapters_take_what_the_page_says(void **state) {
    (void)state;
    struct ax_step_args a = {.dtype = "bfloat16",
                             .optimizer = "adamw",
                             .batch = 4,
                             .seq = 4096,
                             .accumulate = 4,
                             .lora = 16};
    const struct ax_plan_time t = plan(&a, "off", "llama-3.1-8b", NULL, 0);
    assert_true(fabs(t.tokens_per_second / 16620 - 1) < 0.005);
}

/* Qwen3 30B-A3B's step, with adapters of rank 16 on attention and experts, as docs/results/gpu-expected.md has it. */
static struct ax_plan_time adapted_experts(int experts, enum ax_storage store) {
    static char *attention[] = {"q_proj", "k_proj", "v_proj", "o_proj"};
    static char *stacked[] = {"mlp.experts.gate_up_proj", "mlp.experts.down_proj"};
    static const struct ax_peft_config lora = {
        .r = 16, .alpha = 32, .targets = {4, attention}, .parameters = {2, stacked}};
    char config[1024];
    struct ax_step_args a = {
        .dtype = "bfloat16", .optimizer = "adamw", .batch = 4, .seq = 4096, .accumulate = 4};
    struct ax_step_options so = {0};
    must(ax_step_args_options(&a, &so));
    so.model.adapter = &lora;
    so.model.base_store = store;
    so.model.store_experts = true;
    snprintf(config, sizeof config,
             "{\"architectures\": [\"Qwen3MoeForCausalLM\"], \"model_type\": \"qwen3_moe\","
             "\"vocab_size\": 151936, \"hidden_size\": 2048, \"intermediate_size\": 6144,"
             "\"num_hidden_layers\": 48, \"num_attention_heads\": 32, \"num_key_value_heads\": 4,"
             "\"head_dim\": 128, \"max_position_embeddings\": 40960, \"rope_theta\": 1e6,"
             "\"rms_norm_eps\": 1e-6, \"num_experts\": %d, \"num_experts_per_tok\": 8,"
             "\"moe_intermediate_size\": 768, \"norm_topk_prob\": true}",
             experts);
    return plan_for(h200(), &so, "selective", NULL, config);
}

/* A layer's launches do not grow with its experts. Of gate and up, and of down, B is transposed forward and backward,
 * and its gradient is; codes are read forward and backward, and their scales, as are those of attention's four
 * matrices, of which the first layer's q, k and v have no backward. */
static void launches_do_not_grow_with_experts(void **state) {
    (void)state;
    const double passes = 48 * 4;
    for (int packed = 0; packed < 2; packed++) {
        const enum ax_storage store = packed ? AX_STORAGE_NF4_DOUBLE : AX_STORAGE_PLAIN;
        const struct ax_plan_time few = adapted_experts(16, store),
                                  many = adapted_experts(128, store);
        for (int op = 0; op < AX_OP_COUNT; op++)
            assert_true(few.ops[op].calls == many.ops[op].calls);
        assert_true(many.ops[AX_OP_transpose].calls == 2 * 3 * passes);
        assert_true(many.ops[AX_OP_dequantize].calls ==
                    packed * 2 * (2 * (2 + 4) * passes - 3 * 4));
        assert_true(fabs(many.tokens_per_second / (packed ? 16954 : 17793) - 1) < 0.005);
    }
}

/* What was measured holds on Hopper alone. */
static void other_machines_have_published_rates(void **state) {
    (void)state;
    struct ax_hardware h;
    must(ax_hardware_find("a100-80", &h));
    const struct ax_rates own = ax_rates_cuda(&h), published = ax_rates_of(&h);
    assert_string_equal(own.backend, "cuda");
    assert_string_equal(own.source, published.source);
    for (int op = 0; op < AX_OP_COUNT; op++)
        assert_true(own.ops[op].bytes == published.ops[op].bytes);
    assert_string_not_equal(h200().source, published.source);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_take_what_was_measured),
        cmocka_unit_test(ops_add_up_to_their_kinds),
        cmocka_unit_test(codes_are_multiplied_where_a_gpu_can),
        cmocka_unit_test(emulated_products_are_no_faster),
        cmocka_unit_test(adapters_share_products),
        cmocka_unit_test(adapters_take_what_the_page_says),
        cmocka_unit_test(launches_do_not_grow_with_experts),
        cmocka_unit_test(other_machines_have_published_rates),
    };
    return cmocka_run_group_tests_name("plan of cuda", tests, NULL, NULL);
}
