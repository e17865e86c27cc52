/* Advantages of sampled tokens by a teacher: the losses and gradients that TRL's trainers make of them
 * (tests/goldens/ops/divergences.json), and what a rollout makes of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "base/text/json.h"
#include "optim/rollout/taught.h"
#include "tests/golden_files.h"

enum { T = 5, V = 24 };
#define TOLERANCE 1e-6

static struct ax_json_doc doc;

static int open_goldens(void **state) {
    char path[512];
    (void)state;
    snprintf(path, sizeof path, "%s", golden_path("ops/divergences.json"));
    return ax_json_load(&doc, path, 1 << 20) == AX_OK ? 0 : -1;
}

static int close_goldens(void **state) {
    (void)state;
    ax_json_free(&doc);
    return 0;
}

static double number_at(struct ax_json matrix, int t, int c) {
    return json_number_value(ax_json_at(ax_json_at(matrix, (size_t)t), (size_t)c).v);
}

static int token_at(int t) {
    return (int)json_integer_value(
        ax_json_at(ax_json_get(ax_json_root(&doc), "token"), (size_t)t).v);
}

/* Log-softmax of a model's row. */
static double logprob_of(const char *model, int t, int c) {
    const struct ax_json logits = ax_json_get(ax_json_root(&doc), model);
    double sum = 0;
    for (int k = 0; k < V; k++)
        sum += exp(number_at(logits, t, k));
    return number_at(logits, t, c) - log(sum);
}

/* ---- TRL's ---- */

/* The loss of a token that `rl: distill` takes, with advantage A: −weight·A·log s, and weight has no gradient. */
static double weight_of(double advantage) {
    struct ax_policy_options o = ax_policy_defaults("cispo");
    o.epsilon_high = AX_TEACH_CAP;
    return o.loss->weight(&o, advantage, 1, 0);
}

static void compare_case(struct ax_json v) {
    const struct ax_teach_options o = {1, json_number_value(ax_json_get(v, "gamma").v)};
    const struct ax_json losses = ax_json_get(v, "loss"), grad = ax_json_get(v, "grad");
    double logprob[T], teacher[T], advantages[T], weights[T], all = 0;
    for (int t = 0; t < T; t++) {
        logprob[t] = logprob_of("student", t, token_at(t));
        teacher[t] = logprob_of("teacher", t, token_at(t));
    }
    ax_teach(&o, T, logprob, teacher, advantages, weights);
    for (int t = 0; t < T; t++) {
        const double slope = -weight_of(advantages[t]) * advantages[t], loss = slope * logprob[t];
        all += loss;
        if (ax_json_size(losses) == T)
            assert_true(fabs(loss - json_number_value(ax_json_at(losses, (size_t)t).v)) <
                        TOLERANCE);
        for (int c = 0; c < V; c++) {
            const double d = slope * ((c == token_at(t)) - exp(logprob_of("student", t, c)));
            assert_true(fabs(d - number_at(grad, t, c)) < TOLERANCE);
        }
    }
    if (ax_json_size(losses) == 1)
        assert_true(fabs(all - json_number_value(ax_json_at(losses, 0).v)) < TOLERANCE);
}

static void losses_of_sampled_tokens_are_trl_s(void **state) {
    (void)state;
    const struct ax_json cases = ax_json_get(ax_json_root(&doc), "sampled");
    assert_int_equal(ax_json_size(cases), 2);
    compare_case(ax_json_at(cases, 0));
    compare_case(ax_json_at(cases, 1));
}

/* A teacher that agrees leaves nothing to divide by. */
static void agreement_has_no_advantage(void **state) {
    (void)state;
    const struct ax_teach_options o = {1, 0.5};
    const double logprob[] = {-1, -2};
    double advantages[2], weights[2];
    ax_teach(&o, 2, logprob, logprob, advantages, weights);
    assert_true(advantages[0] == 0 && advantages[1] == 0);
    assert_true(weights[0] == 1.5 && weights[1] == 1.5);
}

/* ---- a rollout's ---- */

/* Two completions of 3 and 4 tokens after prompts of 2; the second has inserted tokens in its middle. */
static float logprobs[16] = {0, 0, -1, -2, -3, 0, 0, 0, 0, 0, -4, 0, 0, -2};
static float teacher[16] = {0, 0, -2, -2, -1, 0, 0, 0, 0, 0, -1, -9, -9, -3};
static bool inserted[16] = {[11] = true, [12] = true};

static struct ax_taught teach(struct ax_rollout *r, double gamma) {
    struct ax_taught out;
    ((struct ax_rollout_options *)r->o)->teach = (struct ax_teach_options){0.5, gamma};
    assert_int_equal(ax_rollout_teach(r, &out), AX_OK);
    return out;
}

static void inserted_tokens_have_no_part(void **state) {
    (void)state;
    static struct ax_rollout_options o = {.max_prompt = 2, .max_new = 6};
    struct ax_completion list[] = {
        {.start = 0, .n_prompt = 2, .n = 5, .sampled = 3, .advantage = 2},
        {.start = 8, .n_prompt = 2, .n = 6, .sampled = 2, .advantage = -1}};
    float advantages[16] = {0};
    struct ax_rollout r = {.o = &o,
                           .n = 2,
                           .list = list,
                           .logprobs = logprobs,
                           .teacher = teacher,
                           .inserted = inserted,
                           .advantages = advantages};
    struct ax_rewards *const any = (struct ax_rewards *)(void *)&o;
    o.rewards = any; /* there are some: completions keep their advantages */
    struct ax_taught t = teach(&r, 0);
    static const float alike[] = {1.5F, 2, 3}, second[] = {0.5F, -1, -1, -1.5F};
    for (int i = 0; i < 3; i++)
        assert_true(advantages[2 + i] == alike[i]);
    for (int i = 0; i < 4; i++)
        assert_true(advantages[10 + i] == second[i]);
    assert_true(list[0].advantage == 2 && list[1].advantage == -1);
    assert_true(fabs((double)list[0].taught_kl + 1.0 / 3) < 1e-7 && list[1].taught_kl == -1);
    assert_true(t.n == 5 && fabs(t.kl + 3.0 / 5) < 1e-12 && fabs(t.size - 7.0 / 5) < 1e-12);
    assert_true(t.weight == 1 && t.least == 1 && t.most == 1);
    t = teach(&r, 1); /* sizes 3 and 1: weights 2 and 1 + 1/4 */
    assert_true(t.most == 2 && fabs(t.least - 1.25) < 1e-12);
    assert_true(fabs((double)advantages[10] - (-1 + 0.5 * 2 * 3)) < 1e-6);
    assert_true(fabs((double)advantages[13] - (-1 - 0.5 * 1.25)) < 1e-6);
    assert_true(advantages[11] == -1 && advantages[12] == -1);
    o.rewards = NULL; /* no group: the mean of the tokens', for people */
    list[0].advantage = list[1].advantage = 0;
    (void)teach(&r, 0);
    assert_true(fabs((double)list[0].advantage - 0.5 / 3) < 1e-7);
    assert_true(list[1].advantage == 0.5F);
    assert_true(advantages[10] == 1.5F && advantages[12] == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(losses_of_sampled_tokens_are_trl_s),
                                       cmocka_unit_test(agreement_has_no_advantage),
                                       cmocka_unit_test(inserted_tokens_have_no_part)};
    return cmocka_run_group_tests(tests, open_goldens, close_goldens);
}
