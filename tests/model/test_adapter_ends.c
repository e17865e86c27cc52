/* Gradients of adapters of the embedding and of the head against difference quotients, in float64. test_adapter, which
 * takes longer, has those of all others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "tests/tiny.h"

static const int64_t lengths[] = {9, 1, 14, 0};

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

/* The loss, and in `grads` those of p. */
static double loss_of(struct ax_step *s, const struct ax_param *p, double *grads) {
    struct ax_step_result r;
    for (int u = 0; u < s->model.n_units; u++)
        for (int g = 0; g < s->model.units[u].n_segments; g++) {
            struct ax_tensor *t = &s->model.units[u].segments[g].grad;
            if (t->data)
                memset(t->data, 0, ax_tensor_bytes(t));
        }
    must(ax_step_gradients(s, &r));
    const struct ax_tensor grad = ax_model_grad(&s->model, p);
    memcpy(grads, grad.data, ax_tensor_bytes(&grad));
    return r.loss;
}

/* Along one direction, in which all elements move. */
static void check(struct ax_step *s, const struct ax_param *p) {
    static double was[1 << 12], grads[1 << 12], moved_grads[1 << 12];
    const double h = 1e-5;
    const int64_t n = ax_param_numel(p);
    double *values = ax_model_value(&s->model, p).data, loss[2], got = 0;
    assert_true(n <= 1 << 12);
    memcpy(was, values, (size_t)n * sizeof *was);
    (void)loss_of(s, p, grads);
    for (int side = 0; side < 2; side++) {
        for (int64_t k = 0; k < n; k++) {
            const bool up = ax_rng_u32((struct ax_rng_key){3, 0, 0}, (uint64_t)k) & 1;
            values[k] += (side ? h : -h) * (up ? 1 : -1);
            got += side ? grads[k] * (up ? 1 : -1) : 0;
        }
        loss[side] = loss_of(s, p, moved_grads);
        memcpy(values, was, (size_t)n * sizeof *was);
    }
    const double want = (loss[1] - loss[0]) / (2 * h);
    if (!(fabs(want) > 1e-6) || fabs(got - want) > 1e-5 * fmax(1e-3, fabs(want)))
        fail_msg("%s: gradient %.10g, difference quotient %.10g", p->name, got, want);
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    static char *ends[] = {"embed_tokens", "lm_head"};
    static const struct ax_peft_config lora = {.r = 3, .alpha = 6, .targets = {2, ends}};
    struct ax_step s;
    struct ax_step_result r;
    struct ax_step_options o = tiny_options(AX_F64, AX_RECOMPUTE_SELECTIVE, 1, lengths);
    o.model.adapter = &lora;
    AX_TRY(ax_step_create(&s, rt, ctx, &o));
    must(ax_model_init_random(&s.model, 8));
    must(tiny_adapters(&s.model, 8));
    must(tiny_fill(&s, lengths, 8));
    if (ax_runtime_planning(rt)) {
        must(ax_step_gradients(&s, &r));
    } else {
        const struct ax_adapter *a[] = {&s.model.embed_adapter, &s.model.head.adapter[0]};
        for (int i = 0; i < 2; i++) {
            check(&s, a[i]->a);
            check(&s, a[i]->b);
        }
    }
    ax_step_free(&s);
    return AX_OK;
}

static void gradients_are_difference_quotients(void **state) {
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        struct ax_arch arch;
        const struct ax_runtime_options o = {.backend = "ref", .threads = 1};
        must(tiny_arch(&arch, "llama", tied, ""));
        must(ax_runtime_run(&o, body, &arch, NULL));
        ax_arch_free(&arch);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(gradients_are_difference_quotients)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
