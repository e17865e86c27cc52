/* A teacher of sampled tokens: its log-probs as the advantages of `rl: distill`, and beside those of rewards in
 * GRPO. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "tests/cmd/on_policy_case.h"

#define SAMPLED "trl.distillation_objective=sampled_token "
#define GRPO                                                                                       \
    "rl=grpo trl.num_generations=2 trl.reward_funcs=\"['format:a']\" trl.num_iterations=2 "        \
    "gradient_accumulation_steps=4 max_steps=1 save_steps=1 "

/* ---- what a run says ---- */

static void metrics(void **state) {
    (void)state;
    static const char *const names[] = {"iw_opd/mean_advantage", "iw_opd/mean_abs_advantage",
                                        "iw_opd/mean_weight", "iw_opd/min_weight",
                                        "iw_opd/max_weight"};
    double x[4] = {0}, kd[4] = {0};
    distill("a", SAMPLED);
    assert_int_equal(numbers("a", "kd_loss", kd, 4), 4);
    assert_int_equal(numbers("a", "ratio_mean", x, 4), 4);
    for (int i = 0; i < 4; i++)
        assert_true(kd[i] > 0 && x[i] == 1);
    assert_int_equal(numbers("a", "approx_kl", x, 4), 4);
    assert_true(x[0] == 0 && x[3] == 0);
    assert_int_equal(numbers("a", names[0], x, 4), 0);
    json_t *v = completion("a", 0);
    assert_true(json_is_real(json_object_get(v, "kd_loss")));
    assert_null(json_object_get(v, "rewards"));
    json_decref(v);
    distill("b", "trl.distillation_objective=iw_opd trl.iw_opd_gamma=2");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_int_equal(numbers("b", names[i], x, 4), 4);
    assert_true(x[0] == 3); /* the first token's weight */
    assert_int_equal(numbers("b", names[3], x, 4), 4);
    assert_true(x[0] >= 1 && x[0] < 1.5);
    clear("a");
    clear("b");
}

/* With no weight on early tokens, IW-OPD is the same in each bit. */
static void without_gamma_all_tokens_count_alike(void **state) {
    (void)state;
    distill("a", SAMPLED);
    distill("b", "trl.distillation_objective=iw_opd trl.iw_opd_gamma=0");
    same_completions("a", "b");
    assert_true(hash_of("a", "model.safetensors") == hash_of("b", "model.safetensors"));
    clear("b");
    distill("b", "trl.distillation_objective=iw_opd");
    assert_true(hash_of("a", "model.safetensors") != hash_of("b", "model.safetensors"));
    clear("a");
    clear("b");
}

static void a_teacher_like_the_model(void **state) {
    (void)state;
    double loss[1], norm[1];
    if (try("train", config(), student, "out", SAMPLED "max_steps=1") != 0)
        fail_msg("%s", said);
    assert_int_equal(numbers("out", "loss", loss, 1), 1);
    assert_int_equal(numbers("out", "grad_norm", norm, 1), 1);
    assert_true(fabs(loss[0]) < 1e-5 && norm[0] < 1e-5);
    clear("out");
}

/* The estimate by sampled tokens and the divergence itself, of the same answers. */
static void kd_loss_estimates_the_divergence(void **state) {
    (void)state;
    double sampled[1], full[1];
    distill("a", SAMPLED "gradient_accumulation_steps=10 max_steps=1");
    distill("b", "gradient_accumulation_steps=10 max_steps=1");
    assert_int_equal(numbers("a", "kd_loss", sampled, 1), 1);
    assert_int_equal(numbers("b", "kd_loss", full, 1), 1);
    assert_true(fabs(sampled[0] - full[0]) < 0.2 * full[0]);
    clear("a");
    clear("b");
}

static void evaluations(void **state) {
    (void)state;
    double loss[4], kd[4], perplexity[4];
    distill("out", SAMPLED "val_set_size=0.3 eval_steps=2 learning_rate=1e-2 max_steps=6 "
                           "save_steps=2 metric_for_best_model=eval_loss");
    assert_int_equal(numbers("out", "eval_loss", loss, 4), 4);
    assert_int_equal(numbers("out", "eval_kd_loss", kd, 4), 4);
    assert_int_equal(numbers("out", "eval_perplexity", perplexity, 4), 4);
    for (int i = 0; i < 4; i++)
        assert_true(fabs(loss[i] - kd[i]) < 1e-9 && perplexity[i] > 100 && perplexity[i] < 600);
    clear("out");
}

/* ---- what a token's advantage is ---- */

/* The completions of GRPO's first generation, from a checkpoint between two passes over it. */
static json_t *generation(const char *folder) {
    char *text = read_text(folder, "checkpoint-1/state/manifest.json");
    json_t *v = json_loads(text, 0, NULL);
    ax_free(text);
    json_t *list = json_incref(
        json_object_get(json_object_get(json_object_get(v, "run"), "rollout"), "completions"));
    json_decref(v);
    assert_int_equal(json_array_size(list), 8);
    return list;
}

static double at(const json_t *completion, const char *list, size_t i) {
    return json_number_value(json_array_get(json_object_get(completion, list), i));
}

/* The vocabulary has more tokens than the tokenizer, and a record may not have those. */
static bool is_record(const json_t *completion) {
    const json_t *ids = json_object_get(completion, "completion");
    for (size_t i = 0; i < json_array_size(ids); i++)
        if (json_integer_value(json_array_get(ids, i)) >= 489)
            return false;
    return true;
}

/* As a tokenized record, whose labels are the answer's tokens. */
static void put_record(struct ax_buf *b, const json_t *completion) {
    json_t *ids = json_array(), *labels = json_array();
    for (int answer = 0; answer < 2; answer++) {
        json_t *part = json_object_get(completion, answer ? "completion" : "prompt");
        for (size_t k = 0; k < json_array_size(part); k++) {
            json_array_append(ids, json_array_get(part, k));
            json_array_append_new(labels, answer ? json_incref(json_array_get(part, k))
                                                 : json_integer(-100));
        }
    }
    json_t *record = json_pack("{so so}", "input_ids", ids, "labels", labels);
    char *line = json_dumps(record, 0);
    assert_int_equal(ax_buf_printf(b, "%s\n", line), AX_OK);
    ax_free(line);
    json_decref(record);
}

/* Another way to the teacher's log-probs: its own loss on these records, as if it were to be trained on them. */
static double teacher_nll(const struct ax_buf *records, int n) {
    double loss[1];
    char path[256], file[256];
    static const char text[] = "base_model: m\ndatasets: [{path: d}]\nsequence_len: 128\n"
                               "max_steps: 1\nlearning_rate: 1e-9\n";
    snprintf(path, sizeof path, "%s", put_bytes("sft.yaml", text, sizeof text - 1));
    snprintf(file, sizeof file, "%s", put_bytes("answers.jsonl", records->data, records->len));
    if (run(said, sizeof said,
            "sft '%s' base_model='%s' tokenizer_config='%s' datasets='[{path: %s}]' "
            "dataset_prepared_path='%s/cache' output_dir='%s/sft' --quiet float32=true "
            "logging_steps=1 micro_batch_size=%d",
            path, teacher, student, file, scratch, scratch, n) != 0)
        fail_msg("%s", said);
    assert_int_equal(numbers("sft", "loss", loss, 1), 1);
    clear("sft");
    return loss[0];
}

/* Rewards give the answers of a prompt one advantage each, the teacher adds one to each token. Tokens may be drawn
 * from the likeliest alone; the teacher's distribution is not cut. */
static void advantages_are_sums(void **state) {
    (void)state;
    static const struct {
        const char *more;
        double coef;
    } runs[] = {{"", 1}, {"kd_alpha=0.25", 0.25}, {"trl.top_k=50", 1}};
    for (size_t k = 0; k < sizeof runs / sizeof *runs; k++) {
        double kl = 0, log_t = 0, tokens = 0, known = 0, sum = 0, kd[1] = {0}, loss[1] = {0};
        struct ax_buf records = {0};
        int n = 0;
        char all[512];
        bool differ = false;
        snprintf(all, sizeof all, GRPO "%s", runs[k].more);
        distill("out", all);
        json_t *list = generation("out");
        for (size_t i = 0; i < json_array_size(list); i++) {
            const json_t *c = json_array_get(list, i);
            const double group = json_number_value(json_object_get(c, "advantage"));
            const size_t length = json_array_size(json_object_get(c, "completion"));
            differ = differ || fabs(group) > 0.1;
            for (size_t t = 0; t < length; t++) {
                const double own = (at(c, "advantages", t) - group) / runs[k].coef;
                kl -= own;
                sum += at(c, "advantages", t);
                log_t += is_record(c) ? at(c, "logprobs", t) + own : 0;
            }
            tokens += (double)length;
            if (!is_record(c))
                continue;
            known += (double)length;
            put_record(&records, c);
            n++;
        }
        assert_true(differ &&
                    n > 1); /* else there would be nothing to add to, or to compare with */
        const double nll = teacher_nll(&records, n);
        if (fabs(log_t / known + nll) > 1e-5)
            fail_msg("the teacher's log-probs are %.9g on average, not %.9g", log_t / known, -nll);
        assert_int_equal(numbers("out", "kd_loss", kd, 1), 1);
        assert_true(fabs(kd[0] - kl / tokens) < 1e-5);
        /* where the ratio is 1 */
        assert_int_equal(numbers("out", "loss", loss, 1), 1);
        assert_true(fabs(loss[0] + sum / tokens) < 1e-5);
        ax_buf_free(&records);
        json_decref(list);
        clear("out");
    }
}

/* ---- what does not change a run ---- */

static void a_resumed_run_is_the_run(void **state) {
    (void)state;
    static const char *const runs[] = {SAMPLED, GRPO "max_steps=4"};
    char more[512];
    for (size_t i = 0; i < 2; i++) {
        distill("a", runs[i]);
        snprintf(more, sizeof more, "%s max_steps=%d", runs[i], i == 0 ? 2 : 3);
        distill("b", more);
        snprintf(more, sizeof more, "%s resume_from_checkpoint=auto", runs[i]);
        distill("b", more);
        same_completions("a", "b");
        assert_true(hash_of("a", "model.safetensors") == hash_of("b", "model.safetensors"));
        clear("a");
        clear("b");
    }
}

static void ranks_sample_the_same(void **state) {
    (void)state;
    static const char *const meshes[] = {"dp_shard_size=2 gradient_accumulation_steps=1",
                                         "tensor_parallel_size=2", "pipeline_parallel_size=2",
                                         "context_parallel_size=2"};
    char more[512];
    distill("a", "trl.distillation_objective=iw_opd learning_rate=1e-7");
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        snprintf(more, sizeof more, "trl.distillation_objective=iw_opd learning_rate=1e-7 %s",
                 meshes[i]);
        if (try("launch -n 2 -- train", config(), teacher, "b", more) != 0)
            fail_msg("%s", said);
        near_steps("loss", 4, 1e-5, meshes[i]);
        clear("b");
    }
    clear("a");
}

/* ---- mistakes ---- */

static void mistakes(void **state) {
    (void)state;
    static const struct {
        const char *more, *says;
    } cases[] = {
        {SAMPLED "kd_teacher=", "kd_teacher: rl: distill needs a teacher"},
        {SAMPLED "kd_beta=0.5", "follow the reverse divergence"},
        {SAMPLED "kd_temperature=2", "tokens have the log-probs that they are drawn with"},
        {SAMPLED "kd_loss_top_k=8", "parts of distributions are compared with"},
        {SAMPLED "trl.lmbda=0.5", "answers of the data set were not sampled"},
        {SAMPLED "kd_alpha=0", "kd_alpha: is 0: the teacher is not used"},
        {GRPO "kd_alpha=0", "kd_alpha: is 0: the teacher is not used"},
        {GRPO "kd_ce_alpha=1", "kd_ce_alpha: with rl: distill, grpo and gdpo"},
        {GRPO "trl.distillation_objective=jsd", "is a loss of its own"},
        {GRPO "trl.importance_sampling_level=sequence", "gives each token an advantage"},
        {GRPO "trl.loss_type=vespo", "gives each token an advantage"},
        {GRPO "kd_teacher= trl.distillation_objective=iw_opd", "set kd_teacher"},
        {"iw_opd_gamma=1", "trl.iw_opd_gamma"},
        {"kl_penalty_coef=1", "kd_alpha"},
        {"use_uld_loss=true", "takes a teacher with any tokenizer"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (try("train", config(), teacher, "out", cases[i].more) != 2 ||
            !strstr(said, cases[i].says))
            fail_msg("%s: expected \"%s\" in: %s", cases[i].more, cases[i].says, said);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metrics),
        cmocka_unit_test(without_gamma_all_tokens_count_alike),
        cmocka_unit_test(a_teacher_like_the_model),
        cmocka_unit_test(kd_loss_estimates_the_divergence),
        cmocka_unit_test(evaluations),
        cmocka_unit_test(advantages_are_sums),
        cmocka_unit_test(a_resumed_run_is_the_run),
        cmocka_unit_test(ranks_sample_the_same),
        cmocka_unit_test(mistakes),
    };
    return cmocka_run_group_tests(tests, on_policy_begin, scratch_remove);
}
