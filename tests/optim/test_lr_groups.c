/* LoRA+: every group moves as AdamW with its own learning rate and decay says, computed here from the step's
 * gradients in double by the formula of Loshchilov & Hutter. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "tests/tiny.h"

#define MOST 32768

static const int64_t lengths[] = {9, 1, 14, 0};
static char *targets[] = {"q_proj", "down_proj"};
static char *saved[] = {"norm"};

struct probe {
    const struct ax_arch *arch;
    const struct ax_peft_config *config;
    struct ax_lr_groups groups;
    bool keeps_tables;
    double worst;
    int seen[AX_LR_GROUPS]; /* parameters of each group */
};

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

/* What AdamW of one group makes of n elements; m and v are its moments before. */
static void adamw(const struct ax_optimizer_options *o, double lr, double decay, int64_t step,
                  const double *g, double clip, double *w, double *m, double *v, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        const double grad = g[i] * clip;
        m[i] = o->beta1 * m[i] + (1 - o->beta1) * grad;
        v[i] = o->beta2 * v[i] + (1 - o->beta2) * grad * grad;
        const double m_hat = m[i] / (1 - pow(o->beta1, (double)step));
        const double v_hat = v[i] / (1 - pow(o->beta2, (double)step));
        w[i] -= lr * decay * w[i] + lr * m_hat / (sqrt(v_hat) + o->eps);
    }
}

static double factor_of(const struct ax_param *p) {
    if (strstr(p->name, "lora_embedding_"))
        return 0.125;
    return strstr(p->name, "lora_B") || p->ndim == 1 ? 16 : 1;
}

static enum ax_status steps(struct probe *probe, struct ax_step *s) {
    static double w[MOST], m[MOST], v[MOST], g[MOST];
    const double lr[] = {3e-3, 1e-3, 2e-3};
    int64_t at = 0;
    memset(m, 0, sizeof m);
    memset(v, 0, sizeof v);
    for (int i = 0; i < s->model.n_params; i++) {
        const struct ax_param *p = &s->model.params[i];
        const struct ax_tensor value = ax_model_value(&s->model, p);
        if (!p->trainable)
            continue;
        assert_true(at + ax_param_numel(p) <= MOST);
        memcpy(w + at, value.data, ax_tensor_bytes(&value));
        at += ax_param_numel(p);
        probe->seen[ax_lr_group_of(&probe->groups, p)]++;
    }
    for (int k = 0; k < 3; k++) {
        struct ax_step_result r;
        AX_TRY(ax_step_gradients(s, &r));
        const double clip = fmin(1, s->o.max_norm / (r.grad_norm + 1e-6));
        at = 0;
        for (int i = 0; i < s->model.n_params; i++) {
            const struct ax_tensor grad = ax_model_grad(&s->model, &s->model.params[i]);
            if (grad.data)
                memcpy(g + at, grad.data, ax_tensor_bytes(&grad));
            at += grad.data ? ax_tensor_numel(&grad) : 0;
        }
        AX_TRY(ax_step_update(s, lr[k], &r));
        at = 0;
        for (int i = 0; i < s->model.n_params; i++) {
            const struct ax_param *p = &s->model.params[i];
            const int64_t n = ax_param_numel(p);
            if (!p->trainable)
                continue;
            const bool kept = probe->keeps_tables && strstr(p->name, "embed_tokens");
            const double decay = p->ndim == 2 && !kept ? s->o.opt.weight_decay : 0;
            adamw(&s->o.opt, lr[k] * (probe->groups.on ? factor_of(p) : 1), decay, k + 1, g + at,
                  clip, w + at, m + at, v + at, n);
            const struct ax_tensor value = ax_model_value(&s->model, p);
            for (int64_t j = 0; j < n; j++)
                probe->worst = fmax(probe->worst, fabs(((double *)value.data)[j] - w[at + j]));
            at += n;
        }
    }
    return AX_OK;
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct probe *probe = ctx;
    struct ax_step s;
    struct ax_step_result r;
    struct ax_step_options o = tiny_options(AX_F64, AX_RECOMPUTE_OFF, 1, lengths);
    o.model.adapter = probe->config;
    o.lr_groups = probe->groups;
    o.opt.keeps_tables = probe->keeps_tables;
    o.max_norm = 0.05;
    AX_TRY(ax_step_create(&s, rt, probe->arch, &o));
    enum ax_status st;
    AX_TRY_GOTO(ax_model_init_random(&s.model, 8), st, done);
    AX_TRY_GOTO(tiny_adapters(&s.model, 8), st, done);
    AX_TRY_GOTO(tiny_fill(&s, lengths, 8), st, done);
    if (ax_runtime_planning(rt))
        AX_TRY_GOTO(ax_step_run(&s, 1e-3, &r), st, done);
    else
        AX_TRY_GOTO(steps(probe, &s), st, done);
done:
    ax_step_free(&s);
    return st;
}

static void run(struct probe *probe) {
    must(ax_runtime_run(&(struct ax_runtime_options){.backend = "ref", .threads = 1}, body, probe,
                        NULL));
    print_message("worst difference %.2g\n", probe->worst);
    assert_true(probe->worst < 1e-14);
}

static void groups_move_at_their_own_rate(void **state) {
    (void)state;
    struct ax_arch arch;
    must(tiny_arch(&arch, "llama", false, ""));
    const struct ax_peft_config c = {
        .r = 3, .alpha = 6, .targets = {2, targets}, .save = {1, saved}};
    struct probe probe = {
        .arch = &arch, .config = &c, .groups = ax_lr_groups_loraplus(2e-4, 16, 2.5e-5)};
    run(&probe);
    assert_int_equal(probe.seen[AX_LR_USUAL], 3 * 2);
    assert_int_equal(probe.seen[AX_LR_B], 3 * 2 + 7); /* and all norms */
    assert_int_equal(probe.seen[AX_LR_EMBEDDING], 0);
    ax_arch_free(&arch);
}

/* A and B of an embedding's adapter have a rate of their own, the same for both. */
static void embeddings_are_a_group(void **state) {
    (void)state;
    static char *with_embedding[] = {"q_proj", "embed_tokens"};
    struct ax_arch arch;
    must(tiny_arch(&arch, "llama", false, ""));
    const struct ax_peft_config c = {.r = 3, .alpha = 6, .targets = {2, with_embedding}};
    struct probe probe = {
        .arch = &arch, .config = &c, .groups = ax_lr_groups_loraplus(2e-4, 16, 2.5e-5)};
    run(&probe);
    assert_int_equal(probe.seen[AX_LR_USUAL], 3);
    assert_int_equal(probe.seen[AX_LR_B], 3);
    assert_int_equal(probe.seen[AX_LR_EMBEDDING], 2);
    ax_arch_free(&arch);
}

/* Some optimizers let the tables of tokens, and their adapters, decay, others do not. */
static void tables_decay_or_are_kept(void **state) {
    (void)state;
    static char *with_embedding[] = {"q_proj", "embed_tokens"};
    struct ax_arch arch;
    must(tiny_arch(&arch, "llama", false, ""));
    const struct ax_peft_config c = {.r = 3, .alpha = 6, .targets = {2, with_embedding}};
    for (int keeps = 0; keeps < 2; keeps++)
        run(&(struct probe){.arch = &arch, .config = &c, .keeps_tables = keeps});
    ax_arch_free(&arch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_move_at_their_own_rate),
        cmocka_unit_test(embeddings_are_a_group),
        cmocka_unit_test(tables_decay_or_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
