/* Losses of completions beside what golden files have: derivatives, completions without tokens or
 * gradients, the entropy that tokens need. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "tests/goldens/labels.h"
#include "optim/losses/policy.h"
#include "optim/step/step.h"
#include "tests/tiny.h"

/* ---- formulas ---- */

static void slopes_are_derivatives(void **state) {
    (void)state;
    static const char *const losses[] = {"grpo", "sapo"};
    static const double ratios[] = {0.5, 0.9, 1.1, 1.25, 1.7};
    const double h = 1e-6;
    for (size_t l = 0; l < 2; l++)
        for (int delta = 0; delta < 2; delta++)
            for (size_t i = 0; i < 5; i++)
                for (int sign = -1; sign <= 1; sign++) {
                    struct ax_policy_options o = ax_policy_defaults(losses[l]);
                    double slope, unused;
                    o.delta = delta ? 1.5 : 0;
                    o.loss->term(&o, sign * 0.7, ratios[i], &slope);
                    const double rise = o.loss->term(&o, sign * 0.7, ratios[i] + h, &unused) -
                                        o.loss->term(&o, sign * 0.7, ratios[i] - h, &unused);
                    assert_true(fabs(rise / (2 * h) - slope) < 1e-8);
                }
}

/* exp(3 + 2·0.1 − 3·e^0.1) and, of a negative advantage, exp(2 + 3·0.1 − 2·e^0.1). */
static void weights(void **state) {
    (void)state;
    const struct ax_policy_options vespo = ax_policy_defaults("vespo");
    struct ax_policy_options cispo = ax_policy_defaults("cispo");
    assert_true(fabs(vespo.loss->weight(&vespo, 0, 1, 0.1) - 0.89090921) < 1e-7);
    assert_true(fabs(vespo.loss->weight(&vespo, -1, 1, 0.1) - 1.09380032) < 1e-7);
    assert_true(vespo.loss->weight(&vespo, 1, 1, 1e6) == 0);
    assert_true(vespo.loss->weight(&vespo, 1, 1, -19) ==
                vespo.loss->weight(&vespo, 1, 1, log(1e-8)));
    cispo.epsilon_high = 1.5;
    assert_true(cispo.loss->weight(&cispo, 1, 1.4, 0) == 1.4);
    assert_true(cispo.loss->weight(&cispo, 1, 1.6, 0) == 1.5);
    assert_int_equal(cispo.loss->clipped(&cispo, 1, 1.6), 1);
    assert_int_equal(cispo.loss->clipped(&cispo, -1, 0.1), 0);
    assert_null(ax_policy_loss("ppo"));
}

/* -1 below the lower bound of a bad answer, 1 above the upper one of a good answer, as far as delta lets see. */
static void ratios_that_are_clipped(void **state) {
    (void)state;
    static const struct {
        double advantage, ratio, delta;
        int clipped;
    } cases[] = {{1, 1.25, 0, 0}, {1, 1.35, 0, 1},  {-1, 1.35, 0, 0},   {1, 0.75, 0, 0},
                 {1, 0.65, 0, 0}, {-1, 0.85, 0, 0}, {-1, 0.75, 0, -1},  {0, 2, 0, 0},
                 {0, 0.1, 0, 0},  {1, 2, 1.25, 0},  {-1, 0.75, 0.9, -1}};
    struct ax_policy_options o = ax_policy_defaults("dapo");
    o.epsilon = 0.2;
    o.epsilon_high = 0.3;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        o.delta = cases[i].delta;
        assert_int_equal(o.loss->clipped(&o, cases[i].advantage, cases[i].ratio), cases[i].clipped);
    }
}

/* A quantile between two entropies, on one, and among equal ones. */
static void the_entropy_that_tokens_need(void **state) {
    (void)state;
    static const struct {
        double x[5], top, cut;
        int64_t n, kept;
    } cases[] = {
        {{4, 1, 3, 2}, 0.5, 2.5, 4, 2},    {{5, 4, 1, 3, 2}, 0.5, 2.5, 5, 3},
        {{5, 4, 1, 3, 2}, 0.3, 3.5, 5, 2}, {{2, 2, 1, 2, 2}, 0.2, 1.5, 5, 4},
        {{3, 3, 3}, 0.2, 0, 3, 3},         {{1}, 0.1, 0, 1, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double x[5];
        int64_t kept;
        for (int k = 0; k < 5; k++)
            x[k] = cases[i].x[k];
        assert_true(ax_policy_entropy_cut(x, cases[i].n, cases[i].top, &kept) == cases[i].cut);
        assert_int_equal(kept, cases[i].kept);
    }
}

/* ---- gradients ---- */

enum { ROWS = 3, WIDTH = 4, ALL = ROWS * WIDTH };

/* Of completions of 4, 2 and no tokens, with log-probs that differ from all others. */
static double loss_at(const struct ax_objective *o, const double *logprob, double *gradient) {
    static const double mask[ALL] = {1, 1, 1, 1, 1, 1}, advantage[ROWS] = {0.8, -0.6, 1};
    double old[ALL], reference[ALL], sampler[ALL];
    for (int i = 0; i < ALL; i++) {
        old[i] = -2 + 0.25 * (i % 3);
        reference[i] = -1.5 - 0.125 * (i % 4);
        sampler[i] = -1.75 - 0.0625 * (i % 5);
    }
    struct ax_golden_labels l = {.objective = o,
                                 .n = ROWS,
                                 .width = WIDTH,
                                 .mask = mask,
                                 .logprob = logprob,
                                 .columns = {{"advantage", advantage},
                                             {"old", old},
                                             {"reference", reference},
                                             {"sampler", sampler}},
                                 .inv_weight = 0.25};
    if (ax_golden_labels_run(&l, &(struct ax_golden_options){.backend = "ref"}) != AX_OK)
        fail_msg("%s", ax_error_text());
    for (int i = 0; i < ALL && gradient; i++)
        gradient[i] = l.g_logprob[i];
    ax_golden_labels_free(&l);
    return l.loss;
}

static void derive(const struct ax_policy_options *options) {
    static const double h = 1e-5;
    struct ax_policy policy;
    const struct ax_objective o = ax_objective_policy(&policy, options);
    double logprob[ALL], gradient[ALL];
    for (int i = 0; i < ALL; i++)
        logprob[i] = -1.9 + 0.07 * (i * 5 % 7);
    loss_at(&o, logprob, gradient);
    for (int i = 0; i < ALL; i++) {
        const double at = logprob[i];
        logprob[i] = at + h;
        const double above = loss_at(&o, logprob, NULL);
        logprob[i] = at - h;
        const double below = loss_at(&o, logprob, NULL);
        logprob[i] = at;
        if (!(fabs((above - below) / (2 * h) - gradient[i]) < 1e-8))
            fail_msg("loss %d, sequence %d, correct_kl %d, token %d: %.9g, not %.9g", options->loss,
                     options->sequence, options->correct_kl, i, gradient[i],
                     (above - below) / (2 * h));
    }
}

/* Where no weight hides one: with ratios of tokens and of completions, and KL times either. */
static void gradients_are_derivatives(void **state) {
    (void)state;
    static const char *const losses[] = {"grpo", "bnpo", "dr_grpo", "sapo", "luspo"};
    for (size_t l = 0; l < sizeof losses / sizeof *losses; l++)
        for (int kind = 0; kind < 16; kind++) {
            struct ax_policy_options o = ax_policy_defaults(losses[l]);
            o.old = true;
            o.beta = 0.3;
            o.sequence = kind & 1;
            o.correct_kl = kind & 2;
            o.sampler = (struct ax_sampler_ratio){
                .given = kind & 4, .sequence = kind & 8, .least = 0.9, .most = 1.05};
            derive(&o);
        }
}

/* Losses by TRL's get_gamma_weights: ratios are in the weight, and no factor of their own. */
static void vespo_weighs_by_the_samplers_ratios(void **state) {
    (void)state;
    static const double losses[] = {0.6261835981534966,
                                    2.9730613730425067e-15}; /* with bounds, and masked */
    for (int masks = 0; masks < 2; masks++) {
        struct ax_policy policy;
        struct ax_policy_options options = ax_policy_defaults("vespo");
        options.old = true;
        options.sampler = (struct ax_sampler_ratio){.given = true, .masks = masks, .most = 1.1};
        const struct ax_objective o = ax_objective_policy(&policy, &options);
        double logprob[ALL];
        for (int i = 0; i < ALL; i++)
            logprob[i] = -1.9 + 0.07 * (i * 5 % 7);
        const double loss = loss_at(&o, logprob, NULL);
        if (!(fabs(loss - losses[masks]) < 1e-7))
            fail_msg("loss %.9g, expected %.9g", loss, losses[masks]);
    }
}

/* ---- steps ---- */

enum { DOCS = 3, LEN = 7 };

/* Which of three completions a step sees. */
static struct scene {
    const char *loss;
    float advantage[DOCS];
    bool masked[DOCS], left_out[DOCS];
    double absent;
    bool entropy_mask;
    double entropy_cut, entropy_coef;
    /* out */
    struct ax_step_result r;
    double grads; /* Σ g·(a number of its place) */
    int64_t count;
} *scene;

static enum ax_status fill(struct ax_step *s) {
    static const int32_t tokens[DOCS][LEN] = {
        {1, 5, 9, 13, 2, 7, 3}, {1, 8, 2, 2, 11, 4, 3}, {1, 3, 5, 8, 13, 21, 34}};
    int32_t labels[DOCS][LEN];
    struct ax_document docs[DOCS];
    int n = 0;
    for (int d = 0; d < DOCS; d++) {
        for (int t = 0; t < LEN; t++)
            labels[d][t] = t > 1 && t + 1 < LEN && !scene->masked[d] ? tokens[d][t + 1] : -1;
        if (!scene->left_out[d])
            docs[n++] = (struct ax_document){.n = LEN,
                                             .tokens = tokens[d],
                                             .labels = labels[d],
                                             .columns = {(const uint32_t *)&scene->advantage[d]}};
    }
    return ax_batch_fill(&s->batches[0], s->rt->q, s->model.arch.vocab_size, n, docs);
}

static enum ax_status sum_gradients(const struct ax_step *s) {
    for (int i = 0; i < s->model.n_params; i++) {
        const struct ax_tensor g = ax_model_grad(&s->model, &s->model.params[i]);
        const double *values = g.data;
        for (int64_t k = 0; k < ax_tensor_numel(&g); k++)
            scene->grads += values[k] * cos((double)(k + i));
    }
    return AX_OK;
}

struct job {
    struct ax_arch arch;
    struct ax_step_options o;
};

static enum ax_status train(struct ax_runtime *rt, void *ctx) {
    struct job *j = ctx;
    struct ax_step s;
    enum ax_status st;
    AX_TRY(ax_step_create(&s, rt, &j->arch, &j->o));
    AX_TRY_GOTO(ax_model_init_random(&s.model, 5), st, done);
    AX_TRY_GOTO(fill(&s), st, done);
    s.absent = scene->absent;
    s.entropy_cut = scene->entropy_cut;
    AX_TRY_GOTO(ax_step_gradients(&s, &scene->r), st, done);
    if (!ax_runtime_planning(rt))
        AX_TRY_GOTO(sum_gradients(&s), st, done);
    AX_TRY_GOTO(ax_step_update(&s, 1e-2, &scene->r), st, done);
    scene->count = s.count;
done:
    ax_step_free(&s);
    return st;
}

static void run(struct scene *of) {
    static const int64_t lengths[] = {LEN, LEN, LEN, 0};
    const struct ax_runtime_options ro = {.backend = "ref", .threads = 1};
    struct ax_policy policy;
    struct ax_policy_options o = ax_policy_defaults(of->loss);
    o.entropy_mask = of->entropy_mask;
    o.entropy_coef = of->entropy_coef;
    o.max_completion_length = 10;
    const struct ax_objective objective = ax_objective_policy(&policy, &o);
    struct job j = {.o = tiny_options(AX_F64, AX_RECOMPUTE_OFF, 1, lengths)};
    j.o.objective = &objective;
    j.o.max_norm = 0;
    scene = of;
    assert_int_equal(tiny_arch(&j.arch, "llama", true, ""), AX_OK);
    if (ax_runtime_run(&ro, train, &j, NULL) != AX_OK)
        fail_msg("%s", ax_error_text());
    ax_arch_free(&j.arch);
}

static void without_any_token_there_is_no_update(void **state) {
    (void)state;
    for (size_t i = 0; ax_policy_loss_at(i); i++) {
        const char *loss = ax_policy_loss_at(i)->name;
        struct scene all = {.loss = loss, .advantage = {1, -1, 0.5F}, .masked = {true, true, true}},
                     one = all;
        one.masked[1] = false;
        run(&all);
        assert_true(all.r.skipped && all.count == 0 && all.r.loss == 0 && all.grads == 0);
        run(&one);
        assert_true(!one.r.skipped && one.count == 1 && one.grads != 0);
    }
}

/* Where the policy has not moved, a weight is 1 or its cap: what is left is the log-probability. */
static void weighted_losses_begin_alike(void **state) {
    (void)state;
    struct scene tokens = {.loss = "cispo", .advantage = {1, -0.7F, 0.5F}}, whole = tokens;
    whole.loss = "vespo";
    const double cap = ax_policy_defaults(tokens.loss).epsilon_high;
    run(&tokens);
    run(&whole);
    assert_true(cap > 0 && cap < 1 && tokens.r.loss != 0);
    assert_true(fabs(cap * whole.r.loss - tokens.r.loss) < 1e-14);
    assert_true(fabs(cap * whole.grads - tokens.grads) < 1e-12 * fabs(tokens.grads));
}

/* A mean over completions has it, a mean over tokens has not. */
static void a_masked_completion_is_a_completion(void **state) {
    (void)state;
    for (size_t i = 0; ax_policy_loss_at(i); i++) {
        const char *loss = ax_policy_loss_at(i)->name;
        struct scene masked = {.loss = loss,
                               .advantage = {1, -0.7F, 0.5F},
                               .masked = {true, false, false}},
                     less = masked;
        const bool per_token = strstr("bnpo dapo cispo vespo", loss) != NULL;
        less.left_out[0] = true;
        run(&masked);
        run(&less);
        const double factor = per_token ? 1 : 2.0 / 3;
        assert_true(fabs(masked.r.loss - factor * less.r.loss) < 1e-14);
        assert_true(fabs(masked.grads - factor * less.grads) < 1e-12 * fabs(less.grads));
    }
}

/* Nothing changes if completions without advantage are not computed. */
static void what_has_no_gradient_may_be_left_out(void **state) {
    (void)state;
    for (size_t i = 0; ax_policy_loss_at(i); i++) {
        const char *loss = ax_policy_loss_at(i)->name;
        struct scene all = {.loss = loss, .advantage = {0.8F, 0, -0.3F}}, less = all;
        struct ax_policy_options o = ax_policy_defaults(all.loss);
        assert_false(ax_policy_trains(&o, 0));
        assert_true(ax_policy_trains(&o, -0.3));
        o.beta = 0.1;
        assert_true(ax_policy_trains(&o, 0));
        run(&all);
        less.left_out[1] = true;
        less.absent = all.r.weight_total - (all.r.weight_total == DOCS ? 2 : 2.0 * (LEN - 3));
        run(&less);
        assert_true(less.absent > 0 && less.r.weight_total == all.r.weight_total);
        assert_true(fabs(less.r.loss - all.r.loss) < 1e-14);
        assert_true(fabs(less.grads - all.grads) < 1e-12 * fabs(all.grads));
    }
}

/* No entropy is above that of a uniform distribution; nor has it a bonus. */
static void tokens_below_the_bound_have_no_term(void **state) {
    (void)state;
    struct scene open = {.loss = "dapo", .advantage = {1, -0.7F, 0.5F}}, none = open, masked = open;
    none.entropy_mask = masked.entropy_mask = true;
    masked.entropy_cut = 100;
    masked.entropy_coef = 0.5;
    run(&open);
    run(&none);
    run(&masked);
    assert_true(open.r.loss == none.r.loss && open.grads == none.grads && open.grads != 0);
    assert_true(masked.r.loss == 0 && masked.grads == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slopes_are_derivatives),
        cmocka_unit_test(weights),
        cmocka_unit_test(vespo_weighs_by_the_samplers_ratios),
        cmocka_unit_test(ratios_that_are_clipped),
        cmocka_unit_test(the_entropy_that_tokens_need),
        cmocka_unit_test(gradients_are_derivatives),
        cmocka_unit_test(without_any_token_there_is_no_update),
        cmocka_unit_test(weighted_losses_begin_alike),
        cmocka_unit_test(a_masked_completion_is_a_completion),
        cmocka_unit_test(what_has_no_gradient_may_be_left_out),
        cmocka_unit_test(tokens_below_the_bound_have_no_term),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
