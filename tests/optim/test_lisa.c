/* LISA: which layers are drawn when, and what a step leaves alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "tests/tiny.h"

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

/* ---- draws ---- */

enum { LAYERS = 7, UNITS = LAYERS + 2 };

static int active_layers(const struct ax_lisa *l) {
    int n = 0;
    assert_true(l->active[0] && l->active[UNITS - 1]);
    for (int i = 1; i <= LAYERS; i++)
        n += l->active[i];
    return n;
}

static void draws(void **state) {
    (void)state;
    const struct ax_lisa_options o = {.layers = 2, .interval = 5};
    struct ax_lisa l;
    bool before[UNITS] = {false};
    int changes = 0, often[UNITS] = {0};
    must(ax_lisa_create(&l, &o, 42, UNITS));
    for (int64_t step = 0; step < 5000; step++) {
        ax_lisa_begin(&l, step);
        assert_int_equal(active_layers(&l), 2);
        if (memcmp(before, l.active, sizeof before) != 0) {
            assert_true(step % 5 == 0 || step == 1);
            changes++;
        }
        memcpy(before, l.active, sizeof before);
        for (int i = 1; i <= LAYERS; i++)
            often[i] += l.active[i];
        ax_lisa_count(&l);
    }
    assert_true(changes > 900); /* of 1,001 draws of 21 pairs, 1 in 21 is the one before */
    for (int i = 1; i <= LAYERS; i++) {
        assert_true(often[i] > 1200 && often[i] < 1660); /* 1,429, of 1,001 draws */
        assert_int_equal(l.updates[i], often[i]);
    }
    struct ax_lisa other;
    must(ax_lisa_create(&other, &o, 42, UNITS));
    for (int64_t step = 0; step < 40; step++) { /* the same as if it had counted */
        ax_lisa_restore(&other, step);
        int64_t sum = 0;
        for (int i = 1; i <= LAYERS; i++)
            sum += other.updates[i];
        assert_int_equal(sum, 2 * step);
        assert_int_equal(other.updates[0], step);
    }
    ax_lisa_restore(&other, 5000);
    assert_memory_equal(l.updates, other.updates, UNITS * sizeof *l.updates);
    ax_lisa_free(&l);
    ax_lisa_free(&other);
    assert_int_equal(ax_lisa_create(&l, &(struct ax_lisa_options){8, 5}, 1, UNITS), AX_ERR_CONFIG);
    assert_non_null(strstr(ax_error_text(), "at most the model's 7 layers, got 8"));
    ax_lisa_free(&l);
}

/* ---- steps ---- */

static const int64_t lengths[] = {9, 1, 6, 0};

/* AdamW of every parameter in double, with a step count for each unit. */
struct copy {
    double *w, *m, *v;
    int64_t n, updates;
};

static void adamw(struct copy *c, const double *g, double lr, const struct ax_optimizer_options *o,
                  double decay) {
    c->updates++;
    const double b1 = 1 - pow(o->beta1, (double)c->updates),
                 b2 = 1 - pow(o->beta2, (double)c->updates);
    for (int64_t i = 0; i < c->n; i++) {
        c->m[i] = o->beta1 * c->m[i] + (1 - o->beta1) * g[i];
        c->v[i] = o->beta2 * c->v[i] + (1 - o->beta2) * g[i] * g[i];
        c->w[i] -= lr * decay * c->w[i] + lr * (c->m[i] / b1) / (sqrt(c->v[i] / b2) + o->eps);
    }
}

static void read_values(const struct ax_tensor *t, double *out) {
    ax_convert(AX_F64, out, t->dtype, t->data, ax_tensor_numel(t));
}

static enum ax_status open_copy(struct ax_step *s, int i, struct copy *c) {
    const struct ax_tensor w = ax_model_value(&s->model, &s->model.params[i]);
    c->n = ax_tensor_numel(&w);
    AX_TRY(ax_alloc(&c->w, (size_t)c->n, sizeof *c->w));
    AX_TRY(ax_alloc(&c->m, (size_t)c->n, sizeof *c->m));
    AX_TRY(ax_alloc(&c->v, (size_t)c->n, sizeof *c->v));
    read_values(&w, c->w);
    return AX_OK;
}

static int rested, trained; /* units, over all steps */

/* One step of the model and of the copies. */
static enum ax_status compare_step(struct ax_step *s, struct copy *copies) {
    struct ax_step_result r;
    double *values, norm = 0;
    int64_t most = 0;
    AX_TRY(ax_step_gradients(s, &r));
    for (int i = 0; i < s->model.n_params; i++)
        most = copies[i].n > most ? copies[i].n : most;
    AX_TRY(ax_alloc(&values, (size_t)most, sizeof *values));
    for (int i = 0; i < s->model.n_params; i++) {
        const struct ax_param *p = &s->model.params[i];
        const struct ax_tensor g = ax_model_grad(&s->model, p);
        read_values(&g, values);
        if (!s->lisa.active[p->unit])
            continue;
        for (int64_t k = 0; k < copies[i].n; k++)
            norm += values[k] * values[k];
        adamw(&copies[i], values, 0.01, &s->o.opt, p->decay ? s->o.opt.weight_decay : 0);
    }
    if (fabs(sqrt(norm) - r.grad_norm) > 1e-9 * r.grad_norm)
        fail_msg("norm %.17g, expected %.17g", r.grad_norm, sqrt(norm));
    AX_TRY(ax_step_update(s, 0.01, &r));
    for (int i = 0; i < s->model.n_params; i++) {
        const struct ax_param *p = &s->model.params[i];
        const struct ax_tensor w = ax_model_value(&s->model, p), g = ax_model_grad(&s->model, p);
        read_values(&w, values);
        for (int64_t k = 0; k < copies[i].n; k++)
            if (fabs(values[k] - copies[i].w[k]) > 1e-12)
                fail_msg("%s: %.17g, expected %.17g", p->name, values[k], copies[i].w[k]);
        read_values(&g, values);
        for (int64_t k = 0; k < copies[i].n; k++)
            assert_true(values[k] == 0);
    }
    for (int u = 0; u < s->model.n_units; u++) {
        rested += !s->lisa.active[u];
        trained += s->lisa.active[u];
    }
    ax_free(values);
    return AX_OK;
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    const struct ax_arch *arch = ctx;
    struct ax_step s;
    struct ax_step_result r;
    struct copy *copies = NULL;
    struct ax_step_options o = tiny_options(AX_F64, AX_RECOMPUTE_SELECTIVE, 2, lengths);
    o.lisa = (struct ax_lisa_options){.layers = 1, .interval = 2};
    o.max_norm = 0;
    o.opt.weight_decay = 0.1;
    AX_TRY(ax_step_create(&s, rt, arch, &o));
    AX_TRY(ax_model_init_random(&s.model, 3));
    AX_TRY(ax_step_restore(&s, 0));
    AX_TRY(tiny_fill(&s, lengths, 3));
    enum ax_status st = AX_OK;
    if (ax_runtime_planning(rt)) {
        st = ax_step_run(&s, 0.01, &r);
        ax_step_free(&s);
        return st;
    }
    AX_TRY(ax_alloc(&copies, (size_t)s.model.n_params, sizeof *copies));
    for (int i = 0; i < s.model.n_params && st == AX_OK; i++)
        st = open_copy(&s, i, &copies[i]);
    for (int step = 0; step < 9 && st == AX_OK; step++)
        st = compare_step(&s, copies);
    for (int i = 0; i < s.model.n_params; i++) {
        ax_free(copies[i].w);
        ax_free(copies[i].m);
        ax_free(copies[i].v);
    }
    ax_free(copies);
    ax_step_free(&s);
    return st;
}

static void steps(void **state) {
    (void)state;
    struct ax_arch arch;
    const struct ax_runtime_options ro = {.backend = "ref", .threads = 1};
    must(tiny_arch(&arch, "llama", false, ""));
    must(ax_runtime_run(&ro, body, &arch, NULL));
    assert_int_equal(trained, 9 * 3); /* embedding, one layer, head */
    assert_int_equal(rested, 9 * (arch.n_layers - 1));
    assert_true(rested > 0);
    ax_arch_free(&arch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws),
        cmocka_unit_test(steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
