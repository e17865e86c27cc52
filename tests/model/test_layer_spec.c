/* What a layer may be beyond today's families: norms on what its parts read, on what they make, on
 * both or on neither, and heads of v smaller or larger than those of k. Gradients against finite
 * differences, recompute modes bit by bit, and what trains alone against all that trains. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "tests/tiny.h"

#define LAYER "model.layers.%d."

static const int64_t lengths[] = {9, 1, 6, 0};

static const struct {
    const char *type, *extra;
    struct ax_norm_names mixer, ffn; /* of all layers but the last, which is as the family has it */
    int64_t v_head_dim;              /* 0: as head_dim, 16 */
} models[] = {
    {"llama", "", {NULL, LAYER "mixer_norm.weight"}, {NULL, LAYER "ffn_norm.weight"}, 0},
    {"llama",
     "",
     {LAYER "mixer_in_norm.weight", LAYER "mixer_norm.weight"},
     {LAYER "ffn_in_norm.weight", LAYER "ffn_norm.weight"},
     10},
    {"qwen3", "", {NULL, NULL}, {LAYER "ffn_in_norm.weight", NULL}, 24},
    {"olmo2", "", {LAYER "mixer_in_norm.weight", NULL}, {NULL, NULL}, 0},
    {"mixtral",
     ", \"num_local_experts\": 3, \"num_experts_per_tok\": 2",
     {NULL, LAYER "mixer_norm.weight"},
     {NULL, LAYER "ffn_norm.weight"},
     0},
};
#define N_MODELS (sizeof models / sizeof *models)

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

static void make_arch(struct ax_arch *arch, size_t i) {
    must(tiny_arch(arch, models[i].type, false, models[i].extra));
    if (models[i].v_head_dim > 0)
        arch->v_head_dim = models[i].v_head_dim;
    for (int64_t k = 0; k < arch->n_layers - 1; k++) {
        arch->layers[k].mixer_norms = models[i].mixer;
        arch->layers[k].ffn_norms = models[i].ffn;
    }
}

struct probe {
    struct ax_arch arch;
    struct ax_step_options o;
    double worst;
    const char *only; /* a parameter, for `find` */
    double gradient[3];
};

/* Norm weights off 1, so that they are seen. */
static void move_norms(struct ax_model *m) {
    for (int i = 0; i < m->n_params; i++) {
        const struct ax_tensor w = ax_model_value(m, &m->params[i]);
        double *v = w.data;
        for (int64_t k = 0; m->params[i].ndim == 1 && k < ax_tensor_numel(&w); k++)
            v[k] += 0.3 * sin((double)(k + i));
    }
}

/* One element of every parameter, moved by ±h. */
static enum ax_status differ(struct probe *p, struct ax_step *s) {
    const double h = 1e-5;
    double *grads;
    struct ax_step_result r;
    AX_TRY(ax_alloc(&grads, (size_t)s->model.n_params, sizeof *grads));
    enum ax_status st;
    for (int i = 0; i < s->model.n_params; i++) {
        const struct ax_tensor g = ax_model_grad(&s->model, &s->model.params[i]);
        grads[i] = ((double *)g.data)[ax_tensor_numel(&g) / 3];
    }
    for (int i = 0; i < s->model.n_params; i++) {
        const struct ax_tensor w = ax_model_value(&s->model, &s->model.params[i]);
        double *v = (double *)w.data + ax_tensor_numel(&w) / 3;
        const double keep = *v;
        *v = keep + h;
        AX_TRY_GOTO(ax_step_gradients(s, &r), st, done);
        const double up = r.loss;
        *v = keep - h;
        AX_TRY_GOTO(ax_step_gradients(s, &r), st, done);
        *v = keep;
        const double slope = (up - r.loss) / (2 * h);
        p->worst = fmax(p->worst, fabs(slope - grads[i]) / fmax(1, fabs(slope)));
    }
done:
    ax_free(grads);
    return st;
}

static enum ax_status find(struct probe *p, struct ax_step *s) {
    for (int i = 0; i < s->model.n_params; i++) {
        const struct ax_tensor g = ax_model_grad(&s->model, &s->model.params[i]);
        if (strcmp(s->model.params[i].name, p->only) == 0)
            memcpy(p->gradient, g.data, sizeof p->gradient);
    }
    return AX_OK;
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct probe *p = ctx;
    struct ax_step s;
    struct ax_step_result r;
    AX_TRY(ax_step_create(&s, rt, &p->arch, &p->o));
    enum ax_status st;
    AX_TRY_GOTO(ax_model_init_random(&s.model, 4), st, done);
    if (!ax_runtime_planning(rt))
        move_norms(&s.model);
    AX_TRY_GOTO(tiny_fill(&s, lengths, 4), st, done);
    AX_TRY_GOTO(ax_step_gradients(&s, &r), st, done);
    if (!ax_runtime_planning(rt))
        st = p->only ? find(p, &s) : differ(p, &s);
done:
    ax_step_free(&s);
    return st;
}

static void run(struct probe *p) {
    const struct ax_runtime_options ro = {.backend = "ref", .threads = 2};
    must(ax_runtime_run(&ro, body, p, NULL));
}

static void gradients_are_the_slope(void **state) {
    (void)state;
    for (size_t i = 0; i < N_MODELS; i++) {
        struct probe p = {0};
        make_arch(&p.arch, i);
        p.o = tiny_options(AX_F64, i % 2 ? AX_RECOMPUTE_ON : AX_RECOMPUTE_SELECTIVE, 1, lengths);
        run(&p);
        if (!(p.worst <= 1e-7))
            fail_msg("%s %zu: gradient off by %g", models[i].type, i, p.worst);
        ax_arch_free(&p.arch);
    }
}

static void recompute_modes_are_bitwise(void **state) {
    (void)state;
    static const struct {
        const char *backend;
        enum ax_dtype dtype;
    } kinds[] = {{"ref", AX_F64}, {"cpu", AX_F32}, {"cpu", AX_BF16}};
    for (size_t i = 0; i < N_MODELS; i++) {
        struct ax_arch arch;
        make_arch(&arch, i);
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            struct tiny_run runs[3];
            for (int mode = AX_RECOMPUTE_OFF; mode <= AX_RECOMPUTE_ON; mode++) {
                struct tiny_run *r = &runs[mode];
                *r = (struct tiny_run){.arch = &arch, .lengths = lengths, .steps = 3, .seed = 7};
                r->o = tiny_options(kinds[k].dtype, (enum ax_recompute)mode, 2, lengths);
                must(tiny_run(r, kinds[k].backend, 2));
                assert_true(isfinite(r->loss) && r->grad_norm > 0);
                if (r->grads != runs[0].grads || r->masters != runs[0].masters)
                    fail_msg("%s %zu %s: recompute %s differs", models[i].type, i, kinds[k].backend,
                             ax_recompute_name((enum ax_recompute)mode));
            }
        }
        ax_arch_free(&arch);
    }
}

/* What trains in the lowest unit gets the gradient that it has where everything trains. */
static void what_trains_alone(void **state) {
    (void)state;
    static const char *const only[] = {"model.layers.1.self_attn.q_proj.weight",
                                       "model.layers.1.mlp.down_proj.weight"};
    for (size_t i = 0; i < N_MODELS - 1; i++) { /* the last one's experts train together */
        for (size_t k = 0; k < 2; k++) {
            char *names[] = {(char *)(uintptr_t)only[k]};
            const struct ax_peft_names unfrozen = {.n = 1, .names = names};
            struct probe all = {.only = only[k]}, one = {.only = only[k]};
            make_arch(&all.arch, i);
            one.arch = all.arch;
            all.o = one.o = tiny_options(AX_F64, AX_RECOMPUTE_OFF, 1, lengths);
            one.o.model.unfrozen = &unfrozen;
            run(&all);
            run(&one);
            assert_memory_equal(all.gradient, one.gradient, sizeof all.gradient);
            assert_true(all.gradient[0] != 0);
            ax_arch_free(&all.arch);
        }
    }
}

/* The count of config.json's sizes is that of the model. */
static enum ax_status count(struct ax_runtime *rt, void *ctx) {
    const struct ax_arch *arch = ctx;
    struct ax_model m;
    const struct ax_model_options o = {.dtype = AX_F32, .max_positions = 16};
    AX_TRY(ax_model_create(&m, arch, rt, &o));
    assert_int_equal(ax_model_parameters(&m), ax_arch_parameters(arch));
    ax_model_free(&m);
    return AX_OK;
}

static void parameters_are_counted(void **state) {
    (void)state;
    for (size_t i = 0; i < N_MODELS; i++) {
        struct ax_arch arch;
        const struct ax_runtime_options ro = {.backend = "cpu", .threads = 1};
        make_arch(&arch, i);
        must(ax_runtime_run(&ro, count, &arch, NULL));
        ax_arch_free(&arch);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_the_slope),
        cmocka_unit_test(recompute_modes_are_bitwise),
        cmocka_unit_test(what_trains_alone),
        cmocka_unit_test(parameters_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
