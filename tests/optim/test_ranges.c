/* FP8 training with one scale for a tensor: every range that a product's operand is rounded by is the operand's, whoever
 * left it and however long ago, and few are found by a pass of their own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/tiny.h"

#define STEPS  3
#define MICRO  2
#define LAYERS 3

/* Of every micro-batch: the last tokens are padding. No matrix has as many rows. */
static const int64_t room[] = {9, 17, 14, 0}, lengths[] = {9, 12, 14, 0};
#define ROOM 40
#define USED 35

struct run {
    struct ax_arch arch;
    struct ax_scheme scheme;
    enum ax_dtype dtype;
    enum ax_recompute recompute;
    uint64_t ranges, rounded; /* launches: quant_range, fake_quantize */
};

static const struct ax_ops *real;
static int wrong;

static enum ax_status check_range(struct ax_queue *q, const struct ax_fake_quantize *a,
                                  void *work) {
    const int64_t rows = a->x.shape[0] == ROOM ? USED : a->x.shape[0];
    float want[2];
    AX_TRY(real->quant_range(q,
                             &(struct ax_quant_range){.x = ax_tensor_rows(&a->x, 0, rows),
                                                      .range = ax_tensor_2d(AX_F32, want, 1, 2)},
                             NULL));
    wrong += memcmp(want, a->range.data, sizeof want) != 0;
    return real->fake_quantize(q, a, work);
}

static enum ax_status train(struct ax_runtime *rt, void *ctx) {
    struct run *r = ctx;
    struct ax_step_options o = tiny_options(r->dtype, r->recompute, MICRO, room);
    struct ax_step s;
    double loss[STEPS], norm[STEPS];
    o.model.qat = &r->scheme;
    AX_TRY(ax_step_create(&s, rt, &r->arch, &o));
    enum ax_status st = ax_model_init_random(&s.model, 5);
    struct ax_ops watched = *rt->q->ops;
    watched.fake_quantize = check_range;
    real = rt->q->ops;
    if (!ax_runtime_planning(rt))
        rt->q->ops = &watched;
    if (st == AX_OK)
        st = tiny_take_steps(&s, lengths, STEPS, loss, norm);
    rt->q->ops = real;
    r->ranges = rt->q->counters.launches[AX_OP_quant_range];
    r->rounded = rt->q->counters.launches[AX_OP_fake_quantize];
    ax_step_free(&s);
    return st;
}

static struct run check_training(const char *family, const char *extra, enum ax_dtype dtype,
                                 enum ax_recompute recompute) {
    struct run r = {.dtype = dtype, .recompute = recompute};
    const struct ax_runtime_options o = {.backend = ax_ops_cpu() ? "cpu" : "ref", .threads = 1};
    assert_int_equal(ax_fp8_recipe("tensorwise", false, &r.scheme), AX_OK);
    if (tiny_arch(&r.arch, family, true, extra) != AX_OK)
        fail_msg("%s: %s", family, ax_error_text());
    wrong = 0;
    if (ax_runtime_run(&o, train, &r, NULL) != AX_OK)
        fail_msg("%s: %s", family, ax_error_text());
    if (wrong > 0 || r.rounded == 0)
        fail_msg("%s, %s, recompute %s: %d of %llu ranges are not the operand's", family,
                 ax_dtype_info(dtype)->name, ax_recompute_name(recompute), wrong,
                 (unsigned long long)r.rounded);
    ax_arch_free(&r.arch);
    return r;
}

#define BESIDE                                                                                     \
    ", \"mamba_d_ssm\": 80, \"mamba_n_heads\": 8, \"mamba_d_head\": \"auto\", "                    \
    "\"mamba_n_groups\": 2, "                                                                      \
    "\"mamba_d_state\": 12, \"attention_in_multiplier\": 0.9, \"attention_out_multiplier\": 1.2, " \
    "\"mlp_multipliers\": [0.9, 0.7]"

static void ranges_are_the_operands(void **state) {
    static const struct {
        const char *family, *extra;
    } models[] = {
        {"llama", ""},
        {"phi3", ""},   /* a matrix for q, k and v, and one for gate and up */
        {"olmo2", ""},  /* norms after attention and MLP alone */
        {"cohere", ""}, /* both branches read one norm */
        {"granite", ", \"residual_multiplier\": 0.5"},
        {"gemma3_text", ", \"query_pre_attn_scalar\": 16"},
        {"qwen3", ""},         /* norms of q and k */
        {"falcon_h1", BESIDE}, /* factors of gate and up, and of attention */
    };
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        for (int k = 0; k < 6; k++)
            (void)check_training(models[i].family, models[i].extra, k % 2 ? AX_BF16 : AX_F32,
                                 (enum ax_recompute)(k / 2));
}

/* Of a layer: its seven matrices once a step; for each micro-batch attention's output, and the gradients of q, k and v
 * and of both branches for each of their two products. */
static void few_are_found_by_themselves(void **state) {
    (void)state;
    const struct run r = check_training("llama", "", AX_BF16, AX_RECOMPUTE_OFF);
    assert_int_equal(r.ranges, STEPS * LAYERS * (7 + MICRO * (1 + 5 * 2)));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranges_are_the_operands),
                                       cmocka_unit_test(few_are_found_by_themselves)};
    return cmocka_run_group_tests_name("ranges", tests, NULL, NULL);
}
