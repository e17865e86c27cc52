/* A teacher that shares the model's base: the base without an adapter, or with another one. Its weights are in
 * memory once, and it teaches what a copy of it would. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "tests/cmd/on_policy_case.h"

/* An adapter that begins at random: else the model would be its base at first. */
#define LORA                                                                                       \
    "adapter=lora lora_r=4 lora_alpha=8 lora_target_linear=true peft_init_lora_weights=false "
#define QLORA   "adapter=qlora load_in_4bit=true lora_r=4 lora_alpha=8 lora_target_linear=true "
#define SAMPLED "trl.distillation_objective=sampled_token "

static char copy[256], other[256], merged[256];

static void distill_from(const char *of, const char *out, const char *more) {
    if (try("train", config(), of, out, more) != 0)
        fail_msg("%s: %s", out, said);
}

/* KiB of a plan's block; 0: it has none. */
static double block(const char *name) {
    char begins[64];
    double kib = 0;
    snprintf(begins, sizeof begins, "\n  %s ", name);
    const char *at = strstr(said, begins);
    if (at && sscanf(at + strlen(begins), " persistent %lf KiB", &kib) != 1)
        fail_msg("%s: no size in KiB in %s", name, said);
    return kib;
}

/* KiB of the frozen weights that a plan counts. */
static double planned(const char *of, const char *more) {
    if (run(said, sizeof said,
            "plan --blocks '%s' base_model='%s' kd_teacher='%s' datasets='[{path: %s}]' "
            "dataset_prepared_path='%s/cache' float32=true "
            "trl.max_completion_length=24 %s",
            config(), student, of, data, scratch, more) != 0)
        fail_msg("%s", said);
    return block("frozen weights") + block("packed weights");
}

static bool says_shared(void) {
    return strstr(said, ", on the model's base; the memory above includes it") != NULL;
}

/* ---- the base as the teacher of its adapter ---- */

static void a_base_teaches_as_its_copy(void **state) {
    (void)state;
    static const char *const runs[] = {LORA, LORA SAMPLED};
    for (size_t i = 0; i < 2; i++) {
        double kd[4] = {0};
        distill_from(student, "a", runs[i]);
        distill_from(copy, "b", runs[i]);
        same_completions("a", "b");
        assert_true(hash_of("a", "adapter_model.safetensors") ==
                    hash_of("b", "adapter_model.safetensors"));
        assert_int_equal(numbers("a", "kd_loss", kd, 4), 4);
        assert_true(kd[0] > 0.1);
        clear("a");
        clear("b");
    }
}

static void its_weights_are_counted_once(void **state) {
    (void)state;
    static const char *const runs[] = {LORA, QLORA};
    double shared[2], apart[2];
    for (size_t i = 0; i < 2; i++) {
        shared[i] = planned(student, runs[i]);
        assert_true(says_shared());
        apart[i] = planned(copy, runs[i]);
        assert_false(says_shared());
    }
    assert_true(shared[0] > 100 && fabs(apart[0] - 2 * shared[0]) < 1);
    /* a copy is not quantized */
    assert_true(fabs(apart[1] - shared[1] - shared[0]) < 1);
}

/* It is the base as the adapter meets it: an adapter that adds nothing yet differs in nothing. */
static void a_quantized_base_teaches_as_it_is(void **state) {
    (void)state;
    double kd[1] = {0};
    static const char *const objectives[] = {"", SAMPLED};
    for (size_t i = 0; i < 2; i++) {
        char more[512];
        snprintf(more, sizeof more, QLORA "%s max_steps=1", objectives[i]);
        distill_from(student, "a", more);
        assert_int_equal(numbers("a", "kd_loss", kd, 1), 1);
        assert_true(fabs(kd[0]) < 1e-7);
        clear("a");
    }
    distill_from(copy, "a", QLORA "max_steps=1");
    assert_int_equal(numbers("a", "kd_loss", kd, 1), 1);
    assert_true(kd[0] > 1e-3);
    clear("a");
}

/* What changes the base cannot lend it. */
static void a_base_that_changes_is_copied(void **state) {
    (void)state;
    static const char *const runs[] = {"",
                                       "adapter=lora lora_r=4 lora_alpha=8 lora_target_linear=true "
                                       "peft_init_lora_weights=pissa"};
    for (size_t i = 0; i < 2; i++) {
        double kd[4] = {0};
        (void)planned(student, runs[i]);
        assert_false(says_shared());
        distill_from(student, "a", runs[i]);
        assert_int_equal(numbers("a", "kd_loss", kd, 4), 4);
        assert_true(fabs(kd[0]) < 1e-5);
        clear("a");
    }
}

/* ---- an adapter as the teacher ---- */

static void an_adapter_teaches_as_merged(void **state) {
    (void)state;
    static const char *const runs[] = {LORA, LORA SAMPLED,
                                       LORA "rl=grpo trl.num_generations=2 "
                                            "trl.reward_funcs=\"['format:a']\"",
                                       "learning_rate=1e-4"};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        double one[4] = {0}, two[4] = {0};
        char more[512];
        snprintf(more, sizeof more, "%s seed=7 max_steps=1", runs[i]);
        distill_from(other, "a", more);
        distill_from(merged, "b", more);
        assert_int_equal(numbers("a", "kd_loss", one, 4), 1);
        assert_int_equal(numbers("b", "kd_loss", two, 4), 1);
        if (!(one[0] > 0.1 && fabs(one[0] - two[0]) < 1e-5))
            fail_msg("%s: %.9g by the adapter, %.9g merged", runs[i], one[0], two[0]);
        clear("a");
        clear("b");
    }
}

static void two_adapters_have_one_base(void **state) {
    (void)state;
    const double base = planned(student, LORA), shared = planned(other, LORA);
    assert_true(says_shared() && strstr(said, ", with an adapter"));
    assert_true(shared > base && shared < 1.5 * base); /* the other adapter's are frozen, too */
    assert_true(planned(merged, LORA) > 1.9 * base);
}

static void ranks_share_bases(void **state) {
    (void)state;
    static const char *const meshes[] = {"dp_shard_size=2 gradient_accumulation_steps=1",
                                         "tensor_parallel_size=2", "pipeline_parallel_size=2"};
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        double one[4] = {0}, two[4] = {0};
        char more[512];
        distill_from(other, "a", LORA "learning_rate=1e-7");
        snprintf(more, sizeof more, LORA "learning_rate=1e-7 %s", meshes[i]);
        if (try("launch -n 2 -- train", config(), other, "b", more) != 0)
            fail_msg("%s", said);
        assert_int_equal(numbers("a", "kd_loss", one, 4), 4);
        assert_int_equal(numbers("b", "kd_loss", two, 4), 4);
        for (int k = 0; k < 4; k++)
            assert_true(fabs(one[k] - two[k]) < 1e-5);
        clear("a");
        clear("b");
    }
}

/* ---- mistakes ---- */

static void mistakes(void **state) {
    (void)state;
    char bare[512];
    snprintf(bare, sizeof bare, "%s", golden_path("runs/opd/jsd_lora_adapter"));
    assert_int_equal(try("train", config(), bare, "out", LORA), 3);
    assert_non_null(strstr(said, "kd_teacher"));
    assert_non_null(strstr(said, "base_model_name_or_path"));
}

static int begin(void **state) {
    if (on_policy_begin(state) != 0)
        return -1;
    snprintf(copy, sizeof copy, "%s/copy", scratch);
    snprintf(other, sizeof other, "%s/other", scratch);
    snprintf(merged, sizeof merged, "%s/merged", scratch);
    char command[2048];
    snprintf(command, sizeof command, "cp -rL '%s' '%s'", student, copy);
    if (system(command) != 0)
        return -1;
    distill_from(teacher, "other", LORA "max_steps=1 seed=3");
    return run(said, sizeof said, "merge '%s' '%s' '%s' --dtype float32", student, other, merged);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_base_teaches_as_its_copy),
        cmocka_unit_test(its_weights_are_counted_once),
        cmocka_unit_test(a_quantized_base_teaches_as_it_is),
        cmocka_unit_test(a_base_that_changes_is_copied),
        cmocka_unit_test(an_adapter_teaches_as_merged),
        cmocka_unit_test(two_adapters_have_one_base),
        cmocka_unit_test(ranks_share_bases),
        cmocka_unit_test(mistakes),
    };
    return cmocka_run_group_tests(tests, begin, scratch_remove);
}
