/* `axtrain ppo` with an environment: advantages, values and returns are of what the model has sampled alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "tests/cmd/game_case.h"

enum { LENGTH = 120 }; /* as in game_case.h */

/* Two steps on each batch of answers. */
static void train_ppo(const char *out, const char *launch, const char *more) {
    if (run(said, sizeof said,
            "%sppo '%s' output_dir='%s/%s' --quiet rl=ppo trl.num_generations= "
            "trl.max_completion_length= ppo.response_length=120 ppo.num_ppo_epochs=2 ppo.vf_coef=1 "
            "%s",
            launch, configure_game(base, ""), scratch, out, more) != 0)
        fail_msg("%s: %s", out, said);
}

/* ---- the formulas ---- */

/* Of an answer, without what the environment has said. */
struct answer {
    int64_t n, places;
    double logprobs[LENGTH], reference[LENGTH], values[LENGTH], returns[LENGTH], rewards[LENGTH],
        raw[LENGTH], advantages[LENGTH];
};

static double number_at(const json_t *c, const char *key, int64_t i) {
    const json_t *x = json_array_get(json_object_get(c, key), (size_t)i);
    assert_true(json_is_number(x));
    return json_number_value(x);
}

static bool is_inserted(const json_t *c, int64_t t) {
    const json_t *list = json_object_get(c, "inserted");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *s = json_array_get(list, i);
        if (t >= json_integer_value(json_array_get(s, 0)) &&
            t < json_integer_value(json_array_get(s, 1)))
            return true;
    }
    return false;
}

/* Returns how many tokens were inserted. */
static int take(struct answer *a, const json_t *c, const json_t *line) {
    const int64_t n = (int64_t)json_array_size(json_object_get(c, "completion"));
    const bool lost = json_is_true(json_object_get(line, "lost"));
    int inserted = 0;
    *a = (struct answer){0};
    for (int64_t t = 0; t < n; t++) {
        if (is_inserted(c, t)) {
            assert_float_equal(number_at(c, "advantages", t), 0, 0);
            inserted++;
            continue;
        }
        a->logprobs[a->n] = number_at(c, "logprobs", t);
        a->reference[a->n] = number_at(c, "reference", t);
        a->advantages[a->n] = number_at(c, "advantages", t);
        a->values[a->n] = number_at(c, "values", t);
        a->returns[a->n++] = number_at(c, "returns", t);
    }
    a->places = a->n;
    if (n < LENGTH) {
        a->values[a->places] = number_at(c, "values", n);
        a->returns[a->places++] = number_at(c, "returns", n);
    }
    for (int64_t k = 0; k < a->n; k++)
        a->rewards[k] = -0.05 * (a->logprobs[k] - a->reference[k]);
    const json_t *given = json_object_get(json_object_get(line, "rewards"), "Guess");
    assert_int_equal(lost, json_is_null(given));
    a->rewards[a->places - 1] += lost ? a->values[a->places - 1] : json_number_value(given);
    return inserted;
}

static void estimate(struct answer *a) {
    double last = 0;
    for (int64_t k = a->places - 1; k >= 0; k--) {
        const double next = k + 1 < a->places ? a->values[k + 1] : 0;
        last = a->rewards[k] + next - a->values[k] + 0.95 * last;
        a->raw[k] = last;
        assert_true(fabs(a->returns[k] - (last + a->values[k])) < 1e-5);
    }
}

/* Returns half the mean square of what values are off by. */
static double judge(const json_t *list, const char *folder) {
    struct answer all[ANSWERS];
    double mean = 0, squares = 0, off = 0, kl = 0;
    int64_t n = 0, places = 0;
    int inserted = 0;
    assert_int_equal(json_array_size(list), ANSWERS);
    for (int i = 0; i < ANSWERS; i++) {
        json_t *line = line_of(folder, ANSWERS + i);
        inserted += take(&all[i], json_array_get(list, (size_t)i), line);
        json_decref(line);
        estimate(&all[i]);
        for (int64_t k = 0; k < all[i].n; k++, n++) {
            mean += all[i].raw[k];
            kl += fabs(all[i].logprobs[k] - all[i].reference[k]);
        }
        for (int64_t k = 0; k < all[i].places; k++, places++)
            off += pow(all[i].values[k] - all[i].returns[k], 2) / 2;
    }
    assert_true(inserted > 20 && kl > 0);
    mean /= (double)n;
    for (int i = 0; i < ANSWERS; i++)
        for (int64_t k = 0; k < all[i].n; k++)
            squares += pow(all[i].raw[k] - mean, 2);
    const double deviation = sqrt(squares / (double)(n - 1) + 1e-8);
    for (int i = 0; i < ANSWERS; i++)
        for (int64_t k = 0; k < all[i].n; k++)
            assert_true(fabs(all[i].advantages[k] - (all[i].raw[k] - mean) / deviation) < 1e-4);
    return off / (double)places;
}

/* From the checkpoint after the first step on a second batch. */
static void check_formulas(const char *folder) {
    double loss[4] = {0}, ratio[4] = {0}, trained[4] = {0}, length[4] = {0};
    char path[64];
    snprintf(path, sizeof path, "%s/checkpoint-3/state/manifest.json", folder);
    json_t *v = json_load_file(in_scratch(path), 0, NULL);
    assert_non_null(v);
    const json_t *rollout = json_object_get(json_object_get(v, "run"), "rollout");
    const double want = judge(json_object_get(rollout, "completions"), folder);
    json_decref(v);
    assert_int_equal(numbers(folder, "loss/value_avg", loss, 4), 3);
    if (!(fabs(loss[2] - want) < 1e-4 * want))
        fail_msg("loss/value_avg %.9g, expected %.9g", loss[2], want);
    assert_int_equal(numbers(folder, "val/ratio", ratio, 4), 3);
    assert_true(ratio[0] == 1 && ratio[1] != 1 && ratio[2] == 1);
    assert_int_equal(numbers(folder, "trained_tokens", trained, 4), 3);
    assert_int_equal(numbers(folder, "completions/mean_length", length, 4), 2);
    assert_true(trained[0] == ANSWERS * length[0] && trained[2] == ANSWERS * length[1]);
}

static void advantages_are_of_what_was_sampled(void **state) {
    (void)state;
    train_ppo("a", "", "max_steps=3");
    check_formulas("a");
}

/* A number that is guessed in the second batch alone. */
static int late_secret(void) {
    for (int i = 0; i < ANSWERS; i++) {
        json_t *v = line_of("a", ANSWERS + i);
        const int secret = secret_of(v);
        bool early = false;
        json_decref(v);
        for (int k = 0; k < ANSWERS; k++) {
            v = line_of("a", k);
            early = early || secret_of(v) == secret;
            json_decref(v);
        }
        if (!early)
            return secret;
    }
    fail_msg("there is none");
    return -1;
}

/* An answer whose environment has failed is worth what was expected. */
static void a_lost_one_teaches_nothing(void **state) {
    char flag[256];
    double lost[2] = {0};
    (void)state;
    snprintf(flag, sizeof flag, "%s/died-%d", scratch, late_secret());
    setenv("AXTRAIN_TOOL_MOOD", flag, 1);
    train_ppo("dies", "", "max_steps=3");
    unsetenv("AXTRAIN_TOOL_MOOD");
    assert_int_equal(numbers("dies", "environment/lost_frequency", lost, 2), 2);
    assert_true(lost[0] == 0 && lost[1] == 1.0 / ANSWERS);
    check_formulas("dies");
}

static void a_run_goes_on_with_its_games(void **state) {
    char words[256];
    (void)state;
    train_ppo("part", "", "max_steps=1");
    snprintf(words, sizeof words, "max_steps=3 resume_from_checkpoint='%s/part/checkpoint-1'",
             scratch);
    train_ppo("part", "", words);
    assert_true(hash_of("part", "model.safetensors") == hash_of("a", "model.safetensors"));
}

static void meshes_change_nothing(void **state) {
    static const char *const meshes[] = {"dp_shard_size=2 gradient_accumulation_steps=1",
                                         "tensor_parallel_size=2"};
    (void)state;
    for (size_t k = 0; k < sizeof meshes / sizeof *meshes; k++) {
        char more[128];
        snprintf(more, sizeof more, "max_steps=1 %s", meshes[k]);
        train_ppo("two", "launch -n 2 -- ", more);
        for (int i = 0; i < ANSWERS; i++) {
            json_t *x = line_of("a", i), *y = line_of("two", i);
            assert_true(json_equal(json_object_get(x, "completion_ids"),
                                   json_object_get(y, "completion_ids")));
            assert_true(json_equal(json_object_get(x, "rewards"), json_object_get(y, "rewards")));
            json_decref(x);
            json_decref(y);
        }
        clear("two");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(advantages_are_of_what_was_sampled),
        cmocka_unit_test(a_lost_one_teaches_nothing),
        cmocka_unit_test(a_run_goes_on_with_its_games),
        cmocka_unit_test(meshes_change_nothing),
    };
    return cmocka_run_group_tests(tests, begin, scratch_remove);
}
