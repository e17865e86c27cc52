/* Optimizers through whole steps: names, refusals, what they keep, the ways to keep masters, and
 * the same bits for any number of threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "tests/tiny.h"

static const int64_t lengths[] = {23, 1, 17, 0};

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

static void names_and_what_they_mean(void **state) {
    (void)state;
    static const struct {
        const char *name;
        const struct ax_optimizer *optimizer;
        enum ax_moments moments;
    } cases[] = {
        {"adamw_torch_fused", &ax_optimizer_adamw, AX_MOMENTS_FULL},
        {"adamw_bnb_8bit", &ax_optimizer_adamw, AX_MOMENTS_8BIT},
        {"paged_adamw_8bit", &ax_optimizer_adamw, AX_MOMENTS_8BIT},
        {"lion_8bit", &ax_optimizer_lion, AX_MOMENTS_BF16},
        {"adafactor", &ax_optimizer_adafactor, AX_MOMENTS_FULL},
        {"muon", &ax_optimizer_muon, AX_MOMENTS_FULL},
        {"sgd", &ax_optimizer_sgd, AX_MOMENTS_FULL},
    };
    const struct ax_optimizer *found;
    struct ax_optimizer_options o;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        must(ax_optimizer_find(cases[i].name, &found, &o));
        assert_ptr_equal(found, cases[i].optimizer);
        assert_int_equal(o.moments, cases[i].moments);
        must(ax_optimizer_check(found, &o));
    }
    must(ax_optimizer_find("adamw", &found, &o));
    assert_true(o.beta1 == 0.9 && o.beta2 == 0.999 && o.eps == 1e-8);
    assert_int_equal(ax_optimizer_find("adamwx", &found, &o), AX_ERR_CONFIG);
    assert_non_null(strstr(ax_error_text(), "\"adamwx\" is not one of adamw, sgd, lion"));
}

static void frozen_moments_are_refused(void **state) {
    (void)state;
    struct ax_optimizer_options o = {.beta2 = 0.999, .moments = AX_MOMENTS_BF16_NEAREST};
    assert_int_equal(ax_optimizer_check(&ax_optimizer_adamw, &o), AX_ERR_CONFIG);
    assert_non_null(strstr(ax_error_text(), "never shrink with adam_beta2 0.999"));
    o.beta2 = 0.995;
    must(ax_optimizer_check(&ax_optimizer_adamw, &o));
    o = (struct ax_optimizer_options){.beta2 = 0.999, .moments = AX_MOMENTS_BF16};
    must(ax_optimizer_check(&ax_optimizer_adamw, &o));
    o.moments = AX_MOMENTS_8BIT;
    assert_int_equal(ax_optimizer_check(&ax_optimizer_lion, &o), AX_ERR_CONFIG);
    assert_non_null(strstr(ax_error_text(), "lion keeps no moments in int8"));
    enum ax_moments moments;
    must(ax_moments_parse("bfloat16", &moments));
    assert_int_equal(moments, AX_MOMENTS_BF16);
    assert_int_equal(ax_moments_parse("fp4", &moments), AX_ERR_CONFIG);
    enum ax_masters masters;
    must(ax_masters_parse("bf16_sr", &masters));
    assert_int_equal(masters, AX_MASTERS_STOCHASTIC);
    assert_int_equal(ax_masters_parse("bf16", &masters), AX_ERR_CONFIG);
}

/* What a planned run of the tiny model takes for the optimizer. */
struct sizes {
    const struct ax_arch *arch;
    struct ax_step_options o;
    int64_t parameters, hidden;
    size_t state, masters;
};

static size_t bytes_named(const struct ax_stack *s, const char *const *names) {
    size_t sum = 0;
    for (int i = 0; i < s->n_names; i++)
        for (int k = 0; names[k]; k++)
            sum += strcmp(s->names[i].name, names[k]) == 0 ? s->names[i].at_peak : 0;
    return sum;
}

static enum ax_status measure(struct ax_runtime *rt, void *ctx) {
    static const char *const state_names[] = {
        "exp_avg",         "exp_avg_sq",     "exp_avg_scale",  "exp_avg_sq_scale",
        "momentum_buffer", "exp_avg_sq_row", "exp_avg_sq_col", NULL};
    static const char *const master_names[] = {"masters", "master remainders", NULL};
    struct sizes *z = ctx;
    struct ax_step s;
    AX_TRY(ax_step_create(&s, rt, z->arch, &z->o));
    z->parameters = ax_model_parameters(&s.model);
    z->hidden = 0;
    for (int i = 0; i < s.model.n_params; i++)
        z->hidden += s.states[i].piece.hidden ? s.states[i].piece.n : 0;
    z->state = bytes_named(&rt->arena.persistent, state_names);
    z->masters = bytes_named(&rt->arena.persistent, master_names);
    ax_step_free(&s);
    return AX_OK;
}

static void state_is_as_small_as_said(void **state) {
    (void)state;
    static const struct {
        const char *name;
        enum ax_moments moments;
        double bytes, of_rest; /* per parameter; muon: of hidden matrices, and of the others */
    } cases[] = {
        {"adamw", AX_MOMENTS_FULL, 8, 8},     {"adamw", AX_MOMENTS_BF16, 4, 4},
        {"adamw", AX_MOMENTS_8BIT, 2, 2},     {"lion", AX_MOMENTS_FULL, 4, 4},
        {"lion", AX_MOMENTS_BF16, 2, 2},      {"muon", AX_MOMENTS_FULL, 4, 8},
        {"adafactor", AX_MOMENTS_FULL, 0, 0}, {"sgd", AX_MOMENTS_FULL, 0, 0},
    };
    struct ax_arch arch;
    must(tiny_arch(&arch, "llama", false, ""));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sizes z = {.arch = &arch, .o = tiny_options(AX_BF16, AX_RECOMPUTE_OFF, 1, lengths)};
        must(ax_optimizer_find(cases[i].name, &z.o.optimizer, &z.o.opt));
        z.o.opt.moments = cases[i].moments;
        z.o.masters = AX_MASTERS_REMAINDER;
        const struct ax_runtime_options ro = {.backend = "cpu", .threads = 1};
        must(ax_runtime_run(&ro, measure, &z, NULL));
        const double rest = (double)(z.parameters - z.hidden), n = (double)z.parameters;
        const double want = cases[i].bytes * (double)z.hidden + cases[i].of_rest * rest;
        /* above that: scales, rows and columns, and room up to the next 64 bytes */
        assert_true((double)z.state >= want);
        assert_true((double)z.state <= want + 0.1 * n + 64 * 4 * 40);
        assert_true((double)z.masters >= 2 * n && (double)z.masters <= 2 * n + 65536);
    }
    ax_arch_free(&arch);
}

/* Every optimizer with every way to keep masters learns a batch by heart, whatever the threads. */
static void all_learn_and_threads_do_not_show(void **state) {
    (void)state;
    static const struct {
        const char *name;
        enum ax_moments moments;
        double momentum;
    } cases[] = {
        {"adamw", AX_MOMENTS_FULL, 0},   {"adamw", AX_MOMENTS_BF16, 0},
        {"adamw", AX_MOMENTS_8BIT, 0},   {"sgd", AX_MOMENTS_FULL, 0.9},
        {"lion", AX_MOMENTS_BF16, 0},    {"adafactor", AX_MOMENTS_FULL, 0},
        {"muon", AX_MOMENTS_FULL, 0.95},
    };
    struct ax_arch arch;
    must(tiny_arch(&arch, "llama", false, ""));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int masters = AX_MASTERS_ACCUM; masters <= AX_MASTERS_STOCHASTIC; masters++) {
            struct tiny_run run[3];
            for (int r = 0; r < 3; r++) { /* one step; ten on one thread; ten on two */
                run[r] = (struct tiny_run){.arch = &arch, .lengths = lengths, .seed = 4};
                run[r].steps = r == 0 ? 1 : 10;
                run[r].o = tiny_options(AX_BF16, AX_RECOMPUTE_OFF, 1, lengths);
                must(ax_optimizer_find(cases[i].name, &run[r].o.optimizer, &run[r].o.opt));
                run[r].o.opt.moments = cases[i].moments;
                run[r].o.opt.momentum = cases[i].momentum;
                run[r].o.masters = (enum ax_masters)masters;
                run[r].o.seed = 11;
                must(tiny_run(&run[r], "cpu", r == 2 ? 2 : 1));
                assert_int_equal(run[r].fallbacks, 0);
            }
            if (!(run[1].loss < run[0].loss))
                fail_msg("%s, masters %d: loss %g, then %g", cases[i].name, masters, run[0].loss,
                         run[1].loss);
            assert_true(run[1].masters == run[2].masters && run[1].grads == run[2].grads);
            assert_int_equal(run[2].allocations, 0);
        }
    }
    ax_arch_free(&arch);
}

/* The masters after one step from the same bf16 weights. */
struct after {
    const struct ax_arch *arch;
    struct ax_step_options o;
    float *values;
    int64_t n;
};

static float master_of(const struct ax_segment *seg, int64_t at) {
    if (seg->remainder.data)
        return ax_f32_join(((const uint16_t *)seg->master.data)[at],
                           ((const int16_t *)seg->remainder.data)[at]);
    return (float)ax_load(seg->master.dtype, seg->master.data, at);
}

/* Masters become bf16 numbers. Kept as bf16 and remainder they are rounded away from zero where
 * float32 ones are rounded to even, and the first step should see the same weights. */
static void round_weights(const struct ax_segment *seg) {
    for (int64_t at = 0; at < seg->shard_numel; at++)
        ax_unit_store(seg, at, ax_bf16_to_f32(ax_f32_to_bf16(master_of(seg, at))));
}

static enum ax_status one_step(struct ax_runtime *rt, void *ctx) {
    struct after *a = ctx;
    struct ax_step s;
    struct ax_step_result r;
    AX_TRY(ax_step_create(&s, rt, a->arch, &a->o));
    enum ax_status st;
    ax_model_init_random(&s.model, 3);
    for (int u = 0; u < s.model.n_units && !ax_runtime_planning(rt); u++)
        round_weights(&s.model.units[u].segments[0]);
    AX_TRY_GOTO(tiny_fill(&s, lengths, 3), st, done);
    AX_TRY_GOTO(ax_step_run(&s, 1e-2, &r), st, done);
    if (ax_runtime_planning(rt))
        goto done;
    AX_TRY_GOTO(ax_alloc(&a->values, (size_t)ax_model_parameters(&s.model), sizeof *a->values), st,
                done);
    for (int i = 0; i < s.model.n_params; i++) {
        const struct ax_param *p = &s.model.params[i];
        const struct ax_segment *seg = &s.model.units[p->unit].segments[p->segment];
        for (int64_t k = 0; k < ax_param_numel(p); k++)
            a->values[a->n++] = master_of(seg, p->offset + k);
    }
done:
    ax_step_free(&s);
    return st;
}

/* From the same bf16 weights the gradients of the first step are the same; so it gives the same
 * float32 masters, and drawn ones lie within a last place of them. */
static void remainders_are_exact(void **state) {
    (void)state;
    struct ax_arch arch;
    must(tiny_arch(&arch, "llama", true, ""));
    struct after a[3];
    for (int m = AX_MASTERS_ACCUM; m <= AX_MASTERS_STOCHASTIC; m++) {
        a[m] =
            (struct after){.arch = &arch, .o = tiny_options(AX_BF16, AX_RECOMPUTE_OFF, 1, lengths)};
        a[m].o.masters = (enum ax_masters)m;
        const struct ax_runtime_options ro = {.backend = "cpu", .threads = 2};
        must(ax_runtime_run(&ro, one_step, &a[m], NULL));
    }
    int64_t between = 0; /* bf16 numbers */
    assert_true(a[0].n > 0);
    assert_memory_equal(a[0].values, a[1].values, (size_t)a[0].n * sizeof(float));
    for (int64_t i = 0; i < a[0].n; i++) {
        const float x = a[0].values[i];
        between += x != ax_bf16_to_f32(ax_f32_to_bf16(x));
        assert_true(fabsf(a[2].values[i] - x) <= 0x1p-7f * fabsf(x) + 1e-30f);
    }
    assert_true(between > a[0].n / 2);
    for (int m = 0; m < 3; m++)
        ax_free(a[m].values);
    ax_arch_free(&arch);
}

static enum ax_status create_only(struct ax_runtime *rt, void *ctx) {
    struct sizes *z = ctx;
    struct ax_step s;
    AX_TRY(ax_step_create(&s, rt, z->arch, &z->o));
    ax_step_free(&s);
    return AX_OK;
}

static void cut_matrices_are_refused(void **state) {
    (void)state;
    struct ax_arch arch;
    must(tiny_arch(&arch, "llama", false, ""));
    static const char *const names[] = {"muon", "adafactor"};
    for (int i = 0; i < 2; i++) {
        struct sizes z = {.arch = &arch, .o = tiny_options(AX_F32, AX_RECOMPUTE_OFF, 1, lengths)};
        must(ax_optimizer_find(names[i], &z.o.optimizer, &z.o.opt));
        struct ax_runtime rt;
        const struct ax_runtime_options ro = {
            .backend = "cpu", .threads = 1, .sizes = {1, 1, 2, 1, 1, 1}, .world = 2};
        must(ax_runtime_open_planning(&rt, &ro));
        assert_int_equal(create_only(&rt, &z), AX_ERR_CONFIG);
        assert_non_null(strstr(ax_error_text(), "updates whole matrices"));
        assert_non_null(strstr(ax_error_text(), "cut over 2 ranks"));
        ax_runtime_close(&rt);
    }
    ax_arch_free(&arch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_what_they_mean),
        cmocka_unit_test(frozen_moments_are_refused),
        cmocka_unit_test(state_is_as_small_as_said),
        cmocka_unit_test(all_learn_and_threads_do_not_show),
        cmocka_unit_test(remainders_are_exact),
        cmocka_unit_test(cut_matrices_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
