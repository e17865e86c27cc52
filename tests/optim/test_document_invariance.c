/* Losses on documents do not depend on how a step is computed: threads, recompute modes and work that
 * is done late give the same bits; micro-batches and packing the same sums in another order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "model/arch/classifier.h"
#include "optim/losses/kto.h"
#include "optim/losses/policy.h"
#include "optim/losses/preference.h"
#include "optim/losses/reward.h"
#include "optim/losses/value.h"
#include "tests/optim/train_runs.h"

#define STEPS 4

/* ---- methods ---- */

static struct ax_preference preference;
static struct ax_kto kto;
static struct ax_reward reward;
static struct ax_sft_options steps;
static struct ax_policy policy;

static struct ax_objective as_dpo(void) {
    const struct ax_preference_options o = {
        .beta = 0.3,
        .reference = true,
        .shares = true,
        .weight = {[AX_PREFER_SIGMOID] = 1, [AX_PREFER_IPO] = 0.5, [AX_PREFER_SFT] = 0.2}};
    return ax_objective_preference(&preference, "dpo", &o);
}

static struct ax_objective as_kto(void) {
    const struct ax_kto_options o = {.beta = 0.3, .desirable_weight = 1, .undesirable_weight = 1.5};
    return ax_objective_kto(&kto, &o);
}

static struct ax_objective as_reward(void) {
    return ax_objective_reward(&reward, 0.05);
}

static struct ax_objective as_prm(void) {
    return ax_objective_prm(&steps);
}

/* A mean over tokens, which have ratios of their own. */
static struct ax_objective as_dapo(void) {
    struct ax_policy_options o = ax_policy_defaults("dapo");
    o.old = true;
    o.beta = 0.5;
    o.delta = 1.5;
    o.sampler = (struct ax_sampler_ratio){.given = true, .most = 1.1};
    o.entropy_coef = 0.01;
    return ax_objective_policy(&policy, &o);
}

/* A mean over completions, which have a ratio each. */
static struct ax_objective as_gspo(void) {
    struct ax_policy_options o = ax_policy_defaults("grpo");
    o.old = o.sequence = true;
    o.beta = 0.5;
    o.sampler = (struct ax_sampler_ratio){.given = true, .sequence = true, .most = 1.1};
    o.off_policy_threshold = 1e-3;
    return ax_objective_policy(&policy, &o);
}

/* PPO's two: advantages of tokens, and values. */
static struct ax_objective as_ppo(void) {
    struct ax_policy_options o = ax_policy_defaults("bnpo");
    o.old = o.token_advantages = true;
    return ax_objective_policy(&policy, &o);
}

static struct ax_objective as_values(void) {
    static struct ax_value_options o = {.coef = 0.7, .cliprange = 0.2};
    return ax_objective_value(&o);
}

static const struct method {
    const char *name;
    struct ax_objective (*objective)(void);
    const struct ax_classifier *head; /* NULL: a language model's */
    bool no_eval;
} methods[] = {{"dpo", as_dpo, NULL, false},
               {"kto", as_kto, NULL, false},
               {"dapo", as_dapo, NULL, false},
               {"gspo", as_gspo, NULL, false},
               {"reward", as_reward, &ax_classifier_reward, false},
               {"prm", as_prm, &ax_classifier_prm, false},
               {"ppo", as_ppo, NULL, false},
               {"values", as_values, &ax_classifier_reward, true}};
#define N_METHODS (sizeof methods / sizeof *methods)

/* ---- runs ---- */

struct way {
    const char *backend;
    enum ax_dtype dtype;
    bool packed, packed_eval, adapter;
    bool alone; /* with dropout, if only once in 1e300 elements: then no prompt is shared */
    int threads, microbatches, per_batch; /* sequences */
    enum ax_recompute recompute;
};

struct outcome {
    double loss, eval_loss, eval_accuracy, first_eval;
    uint64_t weights;
    size_t memory;
};

static char *score[] = {"score"};
static const struct ax_peft_config lora = {.r = 3, .alpha = 6, .all_linear = true};

static struct outcome train(const struct method *m, const struct way *w) {
    struct train_case c;
    struct ax_train_result r;
    const struct ax_objective objective = m->objective();
    if (train_case_open_for(&c, w->dtype, w->packed, &objective) != AX_OK)
        fail_msg("%s", ax_error_text());
    if (m->head) {
        assert_int_equal(ax_classifier_choose(&c.arch, m->head), AX_OK);
        c.arch.new_head = false; /* drawn like all of the model */
    }
    c.o.runtime.backend = w->backend;
    c.o.runtime.threads = w->threads;
    c.o.step.recompute = w->recompute;
    c.o.step.n_microbatches = w->microbatches;
    struct ax_peft_config adapter = lora;
    adapter.dropout = w->alone ? 1e-300 : 0;
    adapter.save = m->head ? (struct ax_peft_names){1, score} : adapter.save;
    c.o.step.model.adapter = w->adapter ? &adapter : NULL;
    c.o.data.sequences_per_batch = w->per_batch;
    c.o.max_steps = STEPS;
    c.o.lr.base_lr = 1e-3; /* with Adam, rounding errors of small gradients become steps */
    if (!m->no_eval)
        c.o.eval.when = (struct ax_cadence){AX_EACH_STEPS, STEPS};
    c.o.data.eval_tokens = w->packed_eval ? 256 : 64; /* one pass, several */
    run_ok(&c, &r);
    const struct outcome out = {
        .loss = r.loss,
        .eval_loss = r.last_eval.loss,
        .first_eval = r.first_eval.loss,
        .memory = r.plan.persistent,
        .eval_accuracy = r.last_eval.accuracy,
        .weights =
            train_case_hash(&c, w->adapter ? "adapter_model.safetensors" : "model.safetensors")};
    assert_true(out.weights != 0 && isfinite(out.loss) && out.loss > 0);
    assert_true(m->no_eval || r.first_eval.loss != r.last_eval.loss);
    const bool measured = strcmp(m->name, "dpo") != 0 && strcmp(m->name, "kto") != 0;
    assert_true(m->no_eval || isnan(out.eval_accuracy) == !measured);
    train_case_close(&c);
    return out;
}

static void same_bits(const struct method *m, const struct way *a, const struct way *b) {
    const struct outcome x = train(m, a), y = train(m, b);
    if (x.loss != y.loss || x.eval_loss != y.eval_loss || x.weights != y.weights)
        fail_msg("%s: loss %.17g %.17g, evaluation %.17g %.17g, weights %d", m->name, x.loss,
                 y.loss, x.eval_loss, y.eval_loss, x.weights == y.weights);
}

static void near(const struct method *m, const struct way *a, const struct way *b,
                 double tolerance) {
    const struct outcome x = train(m, a), y = train(m, b);
    if (!(fabs(x.loss - y.loss) <= tolerance * fabs(x.loss)) ||
        !(fabs(x.eval_loss - y.eval_loss) <= tolerance * fabs(x.eval_loss)) ||
        isnan(x.eval_accuracy) != isnan(y.eval_accuracy) ||
        (!isnan(x.eval_accuracy) && x.eval_accuracy != y.eval_accuracy))
        fail_msg("%s: loss %.17g %.17g, evaluation %.17g %.17g, accuracy %g %g", m->name, x.loss,
                 y.loss, x.eval_loss, y.eval_loss, x.eval_accuracy, y.eval_accuracy);
}

static const struct way base = {.backend = "cpu",
                                .dtype = AX_F32,
                                .packed = true,
                                .threads = 1,
                                .microbatches = 2,
                                .per_batch = 2,
                                .recompute = AX_RECOMPUTE_OFF};

/* ---- the same bits ---- */

static void threads_are_bitwise(void **state) {
    (void)state;
    for (size_t i = 0; i < N_METHODS; i++) {
        struct way one = base, more = base;
        one.adapter = more.adapter = !methods[i].head && i % 2 == 0;
        more.threads = 3;
        same_bits(&methods[i], &one, &more);
    }
}

static void recompute_modes_are_bitwise(void **state) {
    (void)state;
    for (size_t i = 0; i < N_METHODS; i++)
        for (int mode = AX_RECOMPUTE_SELECTIVE; mode <= AX_RECOMPUTE_ON; mode++) {
            struct way other = base;
            other.recompute = (enum ax_recompute)mode;
            same_bits(&methods[i], &base, &other);
        }
}

static void late_work_is_bitwise(void **state) {
    (void)state;
    for (size_t i = 0; i < N_METHODS; i++) {
        struct way late = base;
        late.backend = "far";
        same_bits(&methods[i], &base, &late);
    }
}

/* ---- the same sums ---- */

/* Four sequences a step, in one to four micro-batches; evaluations in one pass or in several. */
static void micro_batches_are_one_batch(void **state) {
    (void)state;
    for (size_t i = 0; i < N_METHODS; i++)
        for (int packed = 0; packed < 2; packed++) {
            struct way one = base, four = base;
            one.backend = four.backend = "ref";
            one.dtype = four.dtype = AX_F64;
            one.packed = four.packed = packed;
            one.packed_eval = true;
            one.microbatches = 1;
            one.per_batch = 4;
            four.microbatches = 4;
            four.per_batch = 1;
            near(&methods[i], &one, &four, 1e-11);
        }
}

/* Pairs that compute their prompt once: forward has the bits of prompts of their own, what is learned is
 * the same sums. */
static void prompts_are_as_their_own(void **state) {
    (void)state;
    for (size_t i = 0; i < N_METHODS; i++) {
        const struct ax_objective objective = methods[i].objective();
        if (objective.per != AX_PER_PAIR)
            continue;
        for (int packed = 0; packed < 2; packed++) {
            struct way shared = base;
            shared.backend = "ref";
            shared.dtype = AX_F64;
            shared.adapter = true;
            shared.packed = shared.packed_eval = packed;
            struct way alone = shared;
            alone.alone = true;
            near(&methods[i], &shared, &alone, 1e-12);
            const struct outcome x = train(&methods[i], &shared), y = train(&methods[i], &alone);
            assert_true(x.first_eval == y.first_eval);
            assert_true(x.memory > y.memory); /* the lists of keys */
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_are_bitwise),      cmocka_unit_test(recompute_modes_are_bitwise),
        cmocka_unit_test(late_work_is_bitwise),     cmocka_unit_test(micro_batches_are_one_batch),
        cmocka_unit_test(prompts_are_as_their_own),
    };
    return cmocka_run_group_tests(tests, quiet, NULL);
}
