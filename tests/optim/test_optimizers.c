/* Optimizers through whole steps: names, refusals, what they keep, the ways to keep masters, and
 * the same bits for any number of threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/hash/hash.h"
#include "base/mem.h"
#include "base/rng.h"
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
    assert_non_null(strstr(ax_error_text(), "never decrease with adam_beta2 0.999"));
    o.beta2 = 0.995;
    must(ax_optimizer_check(&ax_optimizer_adamw, &o));
    o = (struct ax_optimizer_options){.beta2 = 0.999, .moments = AX_MOMENTS_BF16};
    must(ax_optimizer_check(&ax_optimizer_adamw, &o));
    o.moments = AX_MOMENTS_8BIT;
    assert_int_equal(ax_optimizer_check(&ax_optimizer_lion, &o), AX_ERR_CONFIG);
    assert_non_null(strstr(ax_error_text(), "lion does not support moments in int8"));
    enum ax_moments moments;
    must(ax_moments_parse("bfloat16", &moments));
    assert_int_equal(moments, AX_MOMENTS_BF16);
    assert_int_equal(ax_moments_parse("fp4", &moments), AX_ERR_CONFIG);
    enum ax_masters masters;
    must(ax_masters_parse("bf16_sr", &masters));
    assert_int_equal(masters, AX_MASTERS_STOCHASTIC);
    assert_int_equal(ax_masters_parse("bf16", &masters), AX_ERR_CONFIG);
}

/* ---- every option has its effect ---- */

enum { ROWS = 3, COLS = 4, N = ROWS * COLS };

/* A matrix in the middle of training, and what one update should make of it, by the formulas of
 * kernels/ops.h in double. */
struct small {
    struct ax_optimizer_options o;
    struct ax_step_scalars s;
    double decay;
    float w[N], grad[N], state[2][N];
    double want[N], g[N], before[2][N]; /* g: clipped */
};

static void random_small(struct small *a, double scale) {
    for (int i = 0; i < N; i++) {
        const struct ax_rng_key key = {5, 0, 0};
        a->w[i] = (float)scale * ax_rng_normal(key, 4 * (uint64_t)i);
        a->grad[i] = ax_rng_normal(key, 4 * (uint64_t)i + 1);
        a->g[i] = a->s.clip * (double)a->grad[i];
        for (int k = 0; k < 2; k++) {
            a->state[k][i] = 0.1F + ax_rng_uniform(key, 4 * (uint64_t)i + 2 + (uint64_t)k);
            a->before[k][i] = (double)a->state[k][i];
        }
        a->want[i] = (double)a->w[i];
    }
}

static void sgd_by_hand(struct small *a) {
    for (int i = 0; i < N; i++) {
        const double g = a->g[i] + a->decay * a->want[i];
        const double buf = a->o.momentum * a->before[0][i] + g;
        a->want[i] -= a->s.lr * (a->o.nesterov ? g + a->o.momentum * buf : buf);
    }
}

static void lion_by_hand(struct small *a) {
    for (int i = 0; i < N; i++) {
        const double c = a->o.beta1 * a->before[0][i] + (1 - a->o.beta1) * a->g[i];
        a->want[i] -= a->s.lr * ((c > 0 ? 1 : -1) + a->decay * a->want[i]);
    }
}

static void adamw_by_hand(struct small *a) {
    const double b1 = a->o.beta1, b2 = a->o.beta2, t = (double)a->s.step;
    for (int i = 0; i < N; i++) {
        const double m = b1 * a->before[0][i] + (1 - b1) * a->g[i];
        const double v = b2 * a->before[1][i] + (1 - b2) * a->g[i] * a->g[i];
        a->want[i] *= 1 - a->s.lr * a->decay;
        a->want[i] -= a->s.lr * (m / (1 - pow(b1, t))) / (sqrt(v / (1 - pow(b2, t))) + a->o.eps);
    }
}

/* As transformers has it, with scale_parameter; the first ROWS and COLS of the state are in use. */
static void adafactor_by_hand(struct small *a) {
    const double b = pow((double)a->s.step, a->o.decay_rate);
    double row[ROWS] = {0}, col[COLS] = {0}, mean = 0, size = 0, rms = 0, u[N];
    for (int i = 0; i < N; i++) {
        const double square = a->g[i] * a->g[i] + a->o.eps;
        row[i / COLS] += b * square / COLS;
        col[i % COLS] += b * square / ROWS;
        size += a->want[i] * a->want[i] / N;
    }
    for (int r = 0; r < ROWS; r++)
        mean += (row[r] += (1 - b) * a->before[0][r]) / ROWS;
    for (int c = 0; c < COLS; c++)
        col[c] += (1 - b) * a->before[1][c];
    for (int i = 0; i < N; i++) {
        u[i] = a->g[i] / sqrt(row[i / COLS] * col[i % COLS] / mean);
        rms += u[i] * u[i] / N;
    }
    size = a->s.lr * fmax(a->o.eps2, sqrt(size));
    for (int i = 0; i < N; i++) {
        a->want[i] -= size * a->decay * a->want[i];
        a->want[i] -= size * u[i] / fmax(1, sqrt(rms) / a->o.clip_threshold);
    }
}

static void update_small(struct small *a, const struct ax_optimizer *optimizer) {
    const struct ax_arena_plan plan = {.scratch[AX_PHASE_TRAIN] = 1 << 20};
    struct ax_arena arena;
    struct ax_queue *q;
    must(ax_arena_create(&arena, &plan, &ax_device_host));
    must(ax_queue_create(&q, "cpu", NULL, 1, &arena.scratch));
    struct ax_update u = {.master = ax_tensor_1d(AX_F32, a->w, N),
                          .grad = ax_tensor_1d(AX_F32, a->grad, N),
                          .copy = {.dtype = AX_F32},
                          .remainder = {.dtype = AX_I16},
                          .piece = {.n = N, .rows = ROWS, .cols = COLS, .accum = AX_F32},
                          .weight_decay = a->decay,
                          .scalars = &a->s};
    struct ax_slot_size sizes[AX_MAX_STATE];
    const int n = optimizer->slots(&a->o, &u.piece, sizes);
    for (int k = 0; k < n; k++)
        u.state[k] = ax_tensor_1d(AX_F32, a->state[k], sizes[k].numel);
    must(optimizer->update(q, &a->o, &u));
    ax_queue_free(q);
    ax_arena_free(&arena);
}

/* Options far from their defaults. Weights are up to 5, and a few roundings in float32 of that
 * (each 2.4e-7) are allowed. */
static void options_reach_the_weights(void **state) {
    (void)state;
    static const struct {
        const struct ax_optimizer *optimizer;
        void (*by_hand)(struct small *a);
        struct ax_optimizer_options o;
        double scale; /* of the weights: below and above eps2 */
    } cases[] = {
        {&ax_optimizer_sgd, sgd_by_hand, {.momentum = 0.6}, 1},
        {&ax_optimizer_sgd, sgd_by_hand, {.momentum = 0.6, .nesterov = true}, 1},
        {&ax_optimizer_lion, lion_by_hand, {.beta1 = 0.5, .beta2 = 0.7}, 1},
        {&ax_optimizer_lion, lion_by_hand, {.beta1 = 0.05, .beta2 = 0.7}, 1},
        {&ax_optimizer_adamw, adamw_by_hand, {.beta1 = 0.5, .beta2 = 0.7, .eps = 0.1}, 1},
        {&ax_optimizer_adafactor,
         adafactor_by_hand,
         {.eps = 0.01,
          .eps2 = 0.3,
          .decay_rate = -0.5,
          .clip_threshold = 0.4,
          .scale_parameter = true},
         0.01},
        {&ax_optimizer_adafactor,
         adafactor_by_hand,
         {.eps = 0.01,
          .eps2 = 0.3,
          .decay_rate = -1.5,
          .clip_threshold = 9,
          .scale_parameter = true},
         2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct small a = {.o = cases[i].o, .s = {.lr = 0.1, .clip = 0.5, .step = 3}, .decay = 0.2};
        random_small(&a, cases[i].scale);
        cases[i].by_hand(&a);
        update_small(&a, cases[i].optimizer);
        for (int k = 0; k < N; k++)
            if (!(fabs((double)a.w[k] - a.want[k]) <= 1e-6))
                fail_msg("%s, case %d: weight %d is %.9g, expected %.9g", cases[i].optimizer->name,
                         (int)i, k, (double)a.w[k], a.want[k]);
    }
}

/* Of moments in bfloat16, after one update: to nearest is what is nearest to the exact sum, element
 * by element; otherwise some are the next on the other side. */
static void moments_are_rounded_as_asked(void **state) {
    (void)state;
    static const enum ax_moments kinds[] = {AX_MOMENTS_BF16_NEAREST, AX_MOMENTS_BF16};
    enum { MANY = 512 };
    static float w[MANY], grad[MANY];
    static uint16_t m[MANY], v[MANY];
    for (int kind = 0; kind < 2; kind++) {
        int off[2] = {0};
        double want[2][MANY];
        const struct ax_optimizer_options o = {
            .beta1 = 0.5, .beta2 = 0.7, .eps = 0.1, .moments = kinds[kind]};
        const struct ax_arena_plan plan = {.scratch[AX_PHASE_TRAIN] = 1 << 20};
        struct ax_step_scalars s = {.lr = 0.1, .clip = 1, .step = 3, .seed = 11};
        struct ax_arena arena;
        struct ax_queue *q;
        for (int i = 0; i < MANY; i++) {
            const struct ax_rng_key key = {6, 0, 0};
            w[i] = ax_rng_normal(key, 4 * (uint64_t)i);
            grad[i] = ax_rng_normal(key, 4 * (uint64_t)i + 1);
            ax_store(AX_BF16, m, i, (double)ax_rng_normal(key, 4 * (uint64_t)i + 2));
            ax_store(AX_BF16, v, i, (double)ax_rng_uniform(key, 4 * (uint64_t)i + 3));
            const double g = (double)grad[i];
            want[0][i] = 0.5 * ax_load(AX_BF16, m, i) + 0.5 * g;
            want[1][i] = 0.7 * ax_load(AX_BF16, v, i) + 0.3 * g * g;
        }
        must(ax_arena_create(&arena, &plan, &ax_device_host));
        must(ax_queue_create(&q, "cpu", NULL, 1, &arena.scratch));
        struct ax_update u = {
            .master = ax_tensor_1d(AX_F32, w, MANY),
            .grad = ax_tensor_1d(AX_F32, grad, MANY),
            .state = {ax_tensor_1d(AX_BF16, m, MANY), ax_tensor_1d(AX_BF16, v, MANY)},
            .copy = {.dtype = AX_F32},
            .remainder = {.dtype = AX_I16},
            .piece = {.n = MANY, .rows = 1, .cols = MANY, .accum = AX_F32},
            .scalars = &s};
        must(ax_optimizer_adamw.update(q, &o, &u));
        ax_queue_free(q);
        ax_arena_free(&arena);
        for (int i = 0; i < MANY; i++) {
            for (int k = 0; k < 2; k++) {
                const double got = ax_load(AX_BF16, k ? v : m, i), exact = want[k][i];
                uint16_t nearest;
                ax_store(AX_BF16, &nearest, 0, exact);
                /* a sum in float32 may round otherwise where it is almost halfway */
                const double error = fabs(got - exact),
                             least = fabs(ax_load(AX_BF16, &nearest, 0) - exact);
                off[k] += error > least + 1e-5 * fabs(exact);
                assert_true(error <= 0x1p-7 * fabs(exact) + 1e-6);
            }
        }
        for (int k = 0; k < 2; k++)
            if (kind == 0)
                assert_int_equal(off[k], 0);
            else /* rounded away from the nearest: a quarter on average */
                assert_true(off[k] > MANY / 6 && off[k] < MANY / 3);
    }
}

/* What a planned run of the tiny model takes for the optimizer, and what it should. */
struct sizes {
    const struct ax_arch *arch;
    struct ax_step_options o;
    size_t (*of)(const struct ax_param *p, bool hidden); /* bytes of a parameter's state */
    size_t state, masters, want_state, want_masters;
};

static size_t bytes_named(const struct ax_stack *s, const char *const *names) {
    size_t sum = 0;
    for (int i = 0; i < s->n_names; i++)
        for (int k = 0; names[k]; k++)
            sum += strcmp(s->names[i].name, names[k]) == 0 ? s->names[i].at_peak : 0;
    return sum;
}

/* A buffer takes a multiple of 64 bytes. */
static size_t buffers(int n, size_t bytes) {
    return (size_t)n * ((bytes + 63) / 64 * 64);
}

static size_t elements(const struct ax_param *p) {
    return (size_t)ax_param_numel(p);
}

static size_t adamw_bytes(const struct ax_param *p, bool hidden) {
    (void)hidden;
    return buffers(2, elements(p) * 4);
}

static size_t adamw_bf16_bytes(const struct ax_param *p, bool hidden) {
    (void)hidden;
    return buffers(2, elements(p) * 2);
}

/* Codes, and a float for each block of 256 in which the parameter has elements. */
static size_t adamw_8bit_bytes(const struct ax_param *p, bool hidden) {
    (void)hidden;
    const size_t first = (size_t)p->offset, end = first + elements(p);
    return buffers(2, elements(p)) + buffers(2, ((end + 255) / 256 - first / 256) * 4);
}

static size_t one_moment_bytes(const struct ax_param *p, bool hidden) {
    (void)hidden;
    return buffers(1, elements(p) * 4);
}

static size_t lion_bf16_bytes(const struct ax_param *p, bool hidden) {
    (void)hidden;
    return buffers(1, elements(p) * 2);
}

static size_t muon_bytes(const struct ax_param *p, bool hidden) {
    return hidden ? one_moment_bytes(p, hidden) : adamw_bytes(p, hidden);
}

/* Of a matrix a float for each row and each column. */
static size_t adafactor_bytes(const struct ax_param *p, bool hidden) {
    if (p->ndim == 1)
        return one_moment_bytes(p, hidden);
    return buffers(1, (size_t)p->shape[0] * 4) + buffers(1, (size_t)p->shape[1] * 4);
}

static size_t no_bytes(const struct ax_param *p, bool hidden) {
    (void)p;
    (void)hidden;
    return 0;
}

static bool in_a_layer(const struct ax_param *p) {
    return p->ndim == 2 && strstr(p->name, "layers.");
}

static enum ax_status measure(struct ax_runtime *rt, void *ctx) {
    static const char *const state_names[] = {
        "exp_avg",         "exp_avg_sq",     "exp_avg_scale",  "exp_avg_sq_scale",
        "momentum_buffer", "exp_avg_sq_row", "exp_avg_sq_col", NULL};
    static const char *const master_names[] = {"masters", "master remainders", NULL};
    struct sizes *z = ctx;
    struct ax_step s;
    AX_TRY(ax_step_create(&s, rt, z->arch, &z->o));
    z->want_state = z->want_masters = 0;
    for (int i = 0; i < s.model.n_params; i++)
        z->want_state += z->of(&s.model.params[i], in_a_layer(&s.model.params[i]));
    for (int u = 0; u < s.model.n_units; u++) /* 16 bits of each element, padding included */
        for (int k = 0; k < s.model.units[u].n_segments; k++)
            z->want_masters += buffers(1, (size_t)s.model.units[u].segments[k].shard_numel * 2);
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
        double momentum;
        size_t (*of)(const struct ax_param *p, bool hidden);
    } cases[] = {
        {"adamw", AX_MOMENTS_FULL, 0, adamw_bytes},
        {"adamw", AX_MOMENTS_BF16, 0, adamw_bf16_bytes},
        {"adamw", AX_MOMENTS_8BIT, 0, adamw_8bit_bytes},
        {"lion", AX_MOMENTS_FULL, 0, one_moment_bytes},
        {"lion", AX_MOMENTS_BF16, 0, lion_bf16_bytes},
        {"muon", AX_MOMENTS_FULL, 0.95, muon_bytes},
        {"adafactor", AX_MOMENTS_FULL, 0, adafactor_bytes},
        {"sgd", AX_MOMENTS_FULL, 0, no_bytes},
        {"sgd", AX_MOMENTS_FULL, 0.9, one_moment_bytes},
    };
    struct ax_arch arch;
    must(tiny_arch(&arch, "llama", false, ", \"attention_bias\": true"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sizes z = {.arch = &arch, .of = cases[i].of};
        z.o = tiny_options(AX_BF16, AX_RECOMPUTE_OFF, 1, lengths);
        must(ax_optimizer_find(cases[i].name, &z.o.optimizer, &z.o.opt));
        z.o.opt.moments = cases[i].moments;
        z.o.opt.momentum = cases[i].momentum;
        z.o.model.masters = AX_MASTERS_REMAINDER;
        const struct ax_runtime_options ro = {.backend = "cpu", .threads = 1};
        must(ax_runtime_run(&ro, measure, &z, NULL));
        assert_int_equal(z.state, z.want_state);
        assert_int_equal(z.masters, z.want_masters);
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
                run[r].o.model.masters = (enum ax_masters)masters;
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
    uint16_t *computed; /* what the model computes with next */
    uint32_t *words;    /* that drew it */
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
static enum ax_status round_weights(struct ax_model *m, const struct ax_param *p) {
    const struct ax_segment *seg = &m->units[p->unit].segments[p->segment];
    const int64_t n = ax_param_numel(p);
    float *values;
    AX_TRY(ax_alloc(&values, (size_t)n, sizeof *values));
    for (int64_t k = 0; k < n; k++)
        values[k] = ax_bf16_to_f32(ax_f32_to_bf16(master_of(seg, p->offset + k)));
    const struct ax_elements rounded = ax_elements_of(AX_F32, values);
    const enum ax_status st = ax_unit_load(&m->units[p->unit], m->rt, p, &rounded);
    ax_free(values);
    return st;
}

/* Weights are drawn by the stream behind that of the parameter's name (kernels/ops.h). */
static void keep(struct after *a, const struct ax_model *m, const struct ax_param *p) {
    const struct ax_segment *seg = &m->units[p->unit].segments[p->segment];
    const struct ax_rng_key key = {a->o.seed, 1, ax_hash32(p->name) + 1};
    for (int64_t k = 0; k < ax_param_numel(p); k++, a->n++) {
        a->values[a->n] = master_of(seg, p->offset + k);
        a->computed[a->n] = ((const uint16_t *)seg->shard.data)[p->offset + k];
        a->words[a->n] = ax_rng_u32(key, (uint64_t)k);
    }
}

static enum ax_status one_step(struct ax_runtime *rt, void *ctx) {
    struct after *a = ctx;
    struct ax_step s;
    struct ax_step_result r;
    AX_TRY(ax_step_create(&s, rt, a->arch, &a->o));
    enum ax_status st;
    ax_model_init_random(&s.model, 3);
    for (int i = 0; i < s.model.n_params && !ax_runtime_planning(rt); i++)
        AX_TRY_GOTO(round_weights(&s.model, &s.model.params[i]), st, done);
    AX_TRY_GOTO(tiny_fill(&s, lengths, 3), st, done);
    AX_TRY_GOTO(ax_step_run(&s, 1e-2, &r), st, done);
    if (ax_runtime_planning(rt))
        goto done;
    must(ax_alloc(&a->values, (size_t)ax_model_parameters(&s.model), sizeof *a->values));
    must(ax_alloc(&a->computed, (size_t)ax_model_parameters(&s.model), sizeof *a->computed));
    must(ax_alloc(&a->words, (size_t)ax_model_parameters(&s.model), sizeof *a->words));
    for (int i = 0; i < s.model.n_params; i++)
        keep(a, &s.model, &s.model.params[i]);
done:
    ax_step_free(&s);
    return st;
}

static void compare_masters(const struct ax_arch *arch, const char *name) {
    struct after a[3];
    for (int m = AX_MASTERS_ACCUM; m <= AX_MASTERS_STOCHASTIC; m++) {
        a[m] =
            (struct after){.arch = arch, .o = tiny_options(AX_BF16, AX_RECOMPUTE_OFF, 1, lengths)};
        must(ax_optimizer_find(name, &a[m].o.optimizer, &a[m].o.opt));
        a[m].o.model.masters = (enum ax_masters)m;
        a[m].o.seed = 0x123456789a;
        const struct ax_runtime_options ro = {.backend = "cpu", .threads = 2};
        must(ax_runtime_run(&ro, one_step, &a[m], NULL));
    }
    int64_t between = 0; /* bf16 numbers */
    assert_true(a[0].n > 0);
    assert_memory_equal(a[0].values, a[1].values, (size_t)a[0].n * sizeof(float));
    for (int64_t i = 0; i < a[0].n; i++) {
        const float x = a[0].values[i];
        const uint16_t drawn = ax_f32_to_bf16_random(x, a[0].words[i]);
        between += x != ax_bf16_to_f32(ax_f32_to_bf16(x));
        if (a[AX_MASTERS_ACCUM].computed[i] != drawn ||
            a[AX_MASTERS_STOCHASTIC].computed[i] != drawn)
            fail_msg("%s: weight %lld of %.9g is not drawn by its word", name, (long long)i,
                     (double)x);
    }
    assert_true(between > a[0].n / 2);
    for (int m = 0; m < 3; m++) {
        ax_free(a[m].values);
        ax_free(a[m].computed);
        ax_free(a[m].words);
    }
}

/* From the same bf16 weights the gradients of the first step are the same; so it gives the same
 * float32 masters, and what is drawn is drawn from these. */
static void remainders_are_exact(void **state) {
    (void)state;
    static const char *const names[] = {"adamw", "adamw_8bit", "sgd", "lion", "adafactor", "muon"};
    struct ax_arch arch;
    must(tiny_arch(&arch, "llama", true, ""));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        compare_masters(&arch, names[i]);
    ax_arch_free(&arch);
}

/* ---- what does not move ---- */

/* Without gradients only decay moves weights, and only those of matrices. */
static enum ax_status decay_only(struct ax_runtime *rt, void *ctx) {
    const struct ax_arch *arch = ctx;
    struct ax_step s;
    struct ax_step_options o = tiny_options(AX_F32, AX_RECOMPUTE_OFF, 1, lengths);
    o.optimizer = &ax_optimizer_sgd;
    o.opt = (struct ax_optimizer_options){.weight_decay = 0.5};
    AX_TRY(ax_step_create(&s, rt, arch, &o));
    must(ax_model_init_random(&s.model, 3));
    const struct ax_step_scalars now = {.lr = 0.1, .clip = 1, .step = 1};
    must(ax_queue_write(rt->q, s.scalars, &now, sizeof now));
    for (int i = 0; i < s.model.n_params && !ax_runtime_planning(rt); i++) {
        const struct ax_param *p = &s.model.params[i];
        const struct ax_tensor value = ax_model_value(&s.model, p);
        const double before = ax_load(value.dtype, value.data, 1);
        must(ax_param_update(&s.model, i, &s.states[i], o.optimizer, &o.opt, s.scalars));
        const double want = p->ndim == 2 ? before * (1 - 0.1 * 0.5) : before;
        assert_true(before != 0 || strstr(p->name, ".bias"));
        assert_true(fabs(ax_load(value.dtype, value.data, 1) - want) <= 1e-7 * fabs(before));
    }
    ax_step_free(&s);
    return AX_OK;
}

static void only_matrices_decay(void **state) {
    (void)state;
    struct ax_arch arch;
    must(tiny_arch(&arch, "llama", false, ", \"attention_bias\": true"));
    const struct ax_runtime_options ro = {.backend = "cpu", .threads = 1};
    must(ax_runtime_run(&ro, decay_only, &arch, NULL));
    ax_arch_free(&arch);
}

/* Two steps, the first after one whose tokens have no label if asked for. */
struct skipping {
    const struct ax_arch *arch;
    bool skip;
    uint64_t masters;
};

static enum ax_status fill_unlabeled(struct ax_step *s) {
    int32_t tokens[5] = {1, 2, 3, 4, 5}, labels[5] = {-1, -1, -1, -1, -1};
    const struct ax_document doc = {.n = 5, .tokens = tokens, .labels = labels};
    return ax_batch_fill(&s->batches[0], s->rt->q, s->model.arch.vocab_size, 1, &doc);
}

static enum ax_status skip_and_step(struct ax_runtime *rt, void *ctx) {
    struct skipping *k = ctx;
    struct ax_step s;
    struct ax_step_result r;
    const struct ax_step_options o = tiny_options(AX_F32, AX_RECOMPUTE_OFF, 1, lengths);
    AX_TRY(ax_step_create(&s, rt, k->arch, &o));
    must(ax_model_init_random(&s.model, 3));
    for (int i = k->skip ? -1 : 0; i < 2; i++) {
        must(i < 0 ? fill_unlabeled(&s) : tiny_fill(&s, lengths, (uint64_t)i));
        must(ax_step_run(&s, 1e-2, &r));
        if (ax_runtime_planning(rt))
            continue;
        assert_int_equal(r.skipped, i < 0);
        assert_int_equal(s.count, i + 1);
    }
    k->masters = 0;
    for (int i = 0; i < s.model.n_params && !ax_runtime_planning(rt); i++) {
        const struct ax_tensor value = ax_model_value(&s.model, &s.model.params[i]);
        k->masters = ax_hash64(value.data, ax_tensor_bytes(&value), k->masters);
    }
    ax_step_free(&s);
    return AX_OK;
}

/* It is not counted either: the next step corrects its moments as the first one does. */
static void a_skipped_step_leaves_no_trace(void **state) {
    (void)state;
    struct ax_arch arch;
    must(tiny_arch(&arch, "llama", true, ""));
    struct skipping without = {.arch = &arch}, with = {.arch = &arch, .skip = true};
    const struct ax_runtime_options ro = {.backend = "cpu", .threads = 1};
    must(ax_runtime_run(&ro, skip_and_step, &without, NULL));
    must(ax_runtime_run(&ro, skip_and_step, &with, NULL));
    assert_true(with.masters == without.masters && with.masters != 0);
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
        assert_non_null(strstr(ax_error_text(), "updates full matrices"));
        assert_non_null(strstr(ax_error_text(), "sharded over 2 ranks"));
        ax_runtime_close(&rt);
    }
    ax_arch_free(&arch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_what_they_mean),
        cmocka_unit_test(frozen_moments_are_refused),
        cmocka_unit_test(options_reach_the_weights),
        cmocka_unit_test(moments_are_rounded_as_asked),
        cmocka_unit_test(state_is_as_small_as_said),
        cmocka_unit_test(all_learn_and_threads_do_not_show),
        cmocka_unit_test(remainders_are_exact),
        cmocka_unit_test(only_matrices_decay),
        cmocka_unit_test(a_skipped_step_leaves_no_trace),
        cmocka_unit_test(cut_matrices_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
