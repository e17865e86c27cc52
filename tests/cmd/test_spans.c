/* A teacher with another tokenizer: what it says of answers' spans, against transformers' float64; on ranks, in GRPO, and
 * what it is not for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "tests/cmd/on_policy_case.h"

#define SAMPLED "trl.distillation_objective=sampled_token "
#define LONG    "sequence_len=256 "
#define BESIDE  LONG "rl=grpo trl.num_generations=2 trl.reward_funcs=\"['format:a']\" "

static char other[512]; /* a teacher with as many tokens as the model, which are other ones */

static int begin(void **state) {
    if (on_policy_begin(state) != 0)
        return 1;
    snprintf(other, sizeof other, "%s", in_scratch("other"));
    make_folder("other");
    copy_golden("runs/models/opd_teacher", "config.json", "other");
    copy_golden("runs/models/opd_teacher", "model.safetensors", "other");
    copy_golden("runs/models/tok320", "tokenizer.json", "other");
    copy_golden("runs/models/tok320", "tokenizer_config.json", "other");
    return 0;
}

static void learn_by(const char *command, const char *taught_by, const char *out,
                     const char *more) {
    if (try(command, config(), taught_by, out, more) != 0)
        fail_msg("%s: %s", out, said);
}

static void learn(const char *taught_by, const char *out, const char *more) {
    learn_by("train", taught_by, out, more);
}

static double number(const json_t *v, const char *list, size_t i) {
    return json_number_value(json_array_get(json_object_get(v, list), i));
}

/* tests/peers/span_rewards.py: all tokens of a span have its log t − log s; what ends an answer is a span. */
static void as_in_float64(void **state) {
    (void)state;
    json_error_t e;
    json_t *golden = json_load_file(golden_path("spans/tok320.json"), 0, &e);
    json_t *answers = json_object_get(golden, "answers");
    size_t same = 0;
    assert_int_equal(json_array_size(answers), 8);
    learn(other, "a", SAMPLED LONG "gradient_accumulation_steps=4 max_steps=1");
    for (size_t i = 0; i < 8; i++) {
        const json_t *want = json_array_get(answers, i);
        json_t *got = completion("a", (int)i);
        const size_t n = json_array_size(json_object_get(want, "ids"));
        if (!json_equal(json_object_get(got, "completion_ids"), json_object_get(want, "ids")))
            fail_msg("answer %zu is another one", i);
        assert_int_equal(json_array_size(json_object_get(got, "kd_advantages")), n);
        double sum = 0;
        for (size_t t = 0; t < n; t++) {
            const double a = number(got, "kd_advantages", t), b = number(want, "advantages", t);
            if (!(fabs(a - b) < 1e-4))
                fail_msg("answer %zu, token %zu: %.9g, not %.9g", i, t, a, b);
            same += t > 0 && a == number(got, "kd_advantages", t - 1);
            sum += a;
        }
        assert_true(fabs(json_number_value(json_object_get(got, "kd_loss")) + sum / (double)n) <
                    1e-4);
        json_decref(got);
    }
    assert_true(same > 4); /* spans of several tokens */
    json_decref(golden);
    clear("a");
}

/* With GRPO's rewards, by a teacher of another size. */
static void beside_rewards(void **state) {
    (void)state;
    double kd[2], x[2];
    char llama[512];
    snprintf(llama, sizeof llama, "%s", golden_path("runs/models/tools_llama"));
    learn(llama, "a", BESIDE "max_steps=2");
    assert_int_equal(numbers("a", "kd_loss", kd, 2), 2);
    assert_int_equal(numbers("a", "ratio_mean", x, 2), 2);
    assert_true(kd[0] > 0 && kd[1] > 0 && x[0] == 1 && x[1] == 1);
    clear("a");
}

/* What a teacher says of the same answers depends on its template, whatever the configuration names. */
static void prompts_have_the_teachers_template(void **state) {
    (void)state;
    static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json",
                                        "tokenizer_config.json"};
    static const char *const templates[] = {"{{ messages[0].content }}\n",
                                            "{{ messages[0].content }}\nAnswer: "};
    double kd[3];
    char folder[512];
    snprintf(folder, sizeof folder, "%s", in_scratch("llama"));
    make_folder("llama");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        copy_golden("runs/models/tools_llama", files[i], "llama");
    for (size_t i = 0; i < 3; i++) {
        put_text("llama/chat_template.jinja", templates[i % 2]);
        learn(folder, "a", BESIDE "chat_template=chatml max_steps=1");
        assert_int_equal(numbers("a", "kd_loss", &kd[i], 1), 1);
        clear("a");
    }
    assert_true(kd[0] == kd[2] && fabs(kd[0] - kd[1]) > 1e-3);
}

static void ranks_and_resuming(void **state) {
    (void)state;
    static const char *const meshes[] = {"dp_shard_size=2 gradient_accumulation_steps=1",
                                         "tensor_parallel_size=2"};
    learn(other, "a", SAMPLED LONG);
    learn(other, "b", SAMPLED LONG "max_steps=2");
    learn(other, "b", SAMPLED LONG "resume_from_checkpoint=auto");
    assert_true(hash_of("a", "model.safetensors") == hash_of("b", "model.safetensors"));
    clear("b");
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        char words[256];
        snprintf(words, sizeof words, SAMPLED LONG "%s", meshes[i]);
        learn_by("launch -n 2 -- train", other, "b", words);
        near_steps("kd_loss", 4, 1e-5, meshes[i]);
        clear("b");
    }
    clear("a");
}

/* A text that is too long for the teacher has no advantages where it ends. */
static void too_long(void **state) {
    (void)state;
    double kd[1];
    learn(other, "a", SAMPLED "max_steps=1 sequence_len=80");
    assert_non_null(strstr(said, "it says nothing of "));
    assert_int_equal(numbers("a", "kd_loss", kd, 1), 1);
    clear("a");
}

static void mistakes(void **state) {
    (void)state;
    static const struct {
        const char *more, *says;
    } cases[] = {
        {"", "token 256 is \"er\" there, but not in the base model's. With rl: distill, "
             "trl.distillation_objective: sampled_token compares texts"},
        {SAMPLED "trl.tools=[python] sequence_len=1024",
         "which reads no answers with tools or an environment"},
        {"use_uld_loss=true", "trl.distillation_objective: sampled_token takes a teacher with any "
                              "tokenizer"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (try("train", config(), other, "out", cases[i].more) != 2 ||
            !strstr(said, cases[i].says))
            fail_msg("%s: expected \"%s\" in: %s", cases[i].more, cases[i].says, said);
    char sets[1200];
    snprintf(sets, sizeof sets,
             SAMPLED "datasets='[{path: %s}, {path: %s, chat_template: chatml}]'", data, data);
    assert_int_equal(try("train", config(), other, "out", sets), 2);
    assert_non_null(strstr(said, "with a teacher that has another tokenizer, all data sets need "
                                 "the same type, columns and template"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_in_float64),
        cmocka_unit_test(beside_rewards),
        cmocka_unit_test(prompts_have_the_teachers_template),
        cmocka_unit_test(ranks_and_resuming),
        cmocka_unit_test(too_long),
        cmocka_unit_test(mistakes),
    };
    return cmocka_run_group_tests(tests, begin, scratch_remove);
}
