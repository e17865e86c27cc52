/* Figures of a run that cannot be: each rule fails for a step or an evaluation that breaks it alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "optim/metrics/plausible.h"

static const char *const measures[] = {"clip_ratio/low_mean", "entropy", "kl", NULL};

struct case_of {
    struct ax_step_figures step;
    struct ax_eval_result eval;
    struct ax_figures figures;
};

static void make(struct case_of *c) {
    *c = (struct case_of){.step = {.step = 3,
                                   .epoch = 0.5,
                                   .loss = -2,
                                   .grad_norm = 1,
                                   .learning_rate = 1e-3,
                                   .tokens = 100,
                                   .trained_tokens = 60,
                                   .computed_tokens = 120,
                                   .seconds = 2,
                                   .flops = 1e9,
                                   .memory = 1 << 30,
                                   .peak_memory = 1 << 30,
                                   .n_phases = 2,
                                   .phases = {{"data", 0.5}, {"forward", 1.5}},
                                   .ranks = {.n_waits = 1,
                                             .waits = {{"tp", 0.25}},
                                             .slowest_seconds = 1.75,
                                             .memory = 1 << 20,
                                             .peak_memory = 1 << 20},
                                   .measures = {0.5, 1, -3}},
                          .eval = {.loss = 0.5,
                                   .perplexity = 1.65,
                                   .accuracy = 1,
                                   .documents = 1,
                                   .rows = 1,
                                   .tokens = 10,
                                   .trained = 10,
                                   .correct = 10,
                                   .seconds = 0,
                                   .measures = {0, 1, 2}}};
    static const struct {
        const char *name;
        double value;
    } named[] = {{"completions/min_length", 1},
                 {"completions/mean_length", 2},
                 {"completions/max_length", 2},
                 {"completions/clipped_ratio", 1},
                 {"rewards/length/mean", -5},
                 {"rewards/length/std", 0},
                 {"frac_reward_zero_std", NAN},
                 {"staleness", 0},
                 {"sampling_s", 0.25},
                 {"reward_std", 0.5},
                 {"sampling/any", 0},
                 {"rewards/accuracies", 0.5},
                 {"completions/min_terminated_length", NAN}};
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        ax_figures_add(&c->figures, named[i].name, named[i].value);
    c->step.figures = &c->figures;
    c->eval.figures = c->figures;
}

static double *named(struct ax_figures *f, const char *name) {
    for (int i = 0; i < f->n; i++)
        if (strcmp(f->names[i], name) == 0)
            return &f->values[i];
    fail_msg("no %s", name);
    return NULL;
}

static void expect(const char *text, const char *wrong) {
    if (!wrong ? text != NULL : !text || strncmp(text, wrong, strlen(wrong)) != 0)
        fail_msg("expected %s, got %s", wrong ? wrong : "nothing wrong", text ? text : "nothing");
}

static void steps(void **state) {
    (void)state;
    static struct case_of c;
#define BROKEN(change, wrong)                                                                      \
    make(&c);                                                                                      \
    change;                                                                                        \
    expect(ax_figures_of_step_wrong(&c.step, measures), wrong)
    BROKEN((void)0, NULL);
    BROKEN(c.step.figures = NULL, NULL);
    BROKEN(c.step.loss = c.step.grad_norm = NAN, NULL);
    BROKEN(c.step.step = 0, "step is 0, less than 1");
    BROKEN(c.step.epoch = -1, "epoch is -1, less than 0");
    BROKEN(c.step.grad_norm = -0.5, "grad_norm is -0.5");
    BROKEN(c.step.learning_rate = -1, "learning_rate is -1");
    BROKEN(c.step.seconds = -1, "seconds is -1");
    BROKEN(c.step.flops = -1, "FLOPs is -1");
    BROKEN(c.step.tokens = -1, "tokens is -1");
    BROKEN(c.step.trained_tokens = 101, "trained_tokens is 101, more than 100");
    BROKEN(c.step.trained_tokens = -1, "trained_tokens is -1");
    BROKEN(c.step.computed_tokens = -1, "computed tokens is -1");
    BROKEN(c.step.memory *= 2, "memory_bytes is 2147483648, more than");
    BROKEN(c.step.ranks.memory *= 1024, "memory of the largest rank is");
    BROKEN(c.step.ranks.slowest_seconds = -1, "slowest_seconds is -1");
    BROKEN(c.step.ranks.waits[0].seconds = -1, "tp is -1");
    BROKEN(c.step.phases[1].seconds = -0.25, "forward is -0.25");
    BROKEN(c.step.phases[1].seconds = 2.5, "the sum of phase_seconds is 3, more than 2.001");
    BROKEN(c.step.phases[0].seconds = 0.75, "the sum of phase_seconds is 2.25, more than 2.001");
    BROKEN((c.step.phases[0].seconds = 3, c.step.works_late = true), NULL);
    BROKEN(c.step.measures[0] = 1.5, "clip_ratio/low_mean is 1.5, more than 1");
    BROKEN(c.step.measures[1] = -1, "entropy is -1, less than 0");
    BROKEN(*named(&c.figures, "completions/mean_length") = 3,
           "completions/mean_length is 3, more than 2");
    BROKEN(*named(&c.figures, "completions/min_length") = 2.5,
           "completions/mean_length is 2, less than 2.5");
    BROKEN(*named(&c.figures, "completions/clipped_ratio") = 2, "completions/clipped_ratio is 2");
    BROKEN(*named(&c.figures, "rewards/length/std") = -1, "rewards/length/std is -1");
    BROKEN(*named(&c.figures, "sampling_s") = -1, "sampling_s is -1");
    BROKEN(*named(&c.figures, "staleness") = -1, "staleness is -1");
}

static void evaluations(void **state) {
    (void)state;
    static struct case_of c;
#define BROKEN_EVAL(change, wrong)                                                                 \
    make(&c);                                                                                      \
    change;                                                                                        \
    expect(ax_figures_of_eval_wrong(&c.eval, measures), wrong)
    BROKEN_EVAL((void)0, NULL);
    BROKEN_EVAL(c.eval.perplexity = c.eval.accuracy = NAN, NULL);
    BROKEN_EVAL(c.eval.accuracy = 1.5, "accuracy is 1.5");
    BROKEN_EVAL(c.eval.trained = 11, "trained tokens is 11, more than 10");
    BROKEN_EVAL(c.eval.correct = 11, "correct tokens is 11");
    BROKEN_EVAL(c.eval.seconds = -1, "seconds is -1, less than 0");
    BROKEN_EVAL(c.eval.measures[1] = -1, "entropy is -1");
    BROKEN_EVAL(*named(&c.eval.figures, "rewards/accuracies") = -1, "rewards/accuracies is -1");
    BROKEN_EVAL((c.eval.documents = 0, c.eval.accuracy = 2), NULL); /* of rewards */
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(steps), cmocka_unit_test(evaluations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
