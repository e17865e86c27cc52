/* `axtrain sft` with kd_teacher or kd_trainer: what it reports, and which teachers it refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/cmd/sft_case.h"

static const char rows[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"one\"}, {\"role\": \"assistant\", "
    "\"content\": \"two\"}]}\n"
    "{\"messages\": [{\"role\": \"user\", \"content\": \"say yes\"}, {\"role\": \"assistant\", "
    "\"content\": \"yes\"}]}\n";

static const char *config(const char *more) {
    static char path[128];
    struct ax_buf b = {0};
    need_binary();
    put_bytes("rows.jsonl", rows, sizeof rows - 1);
    assert_ok(ax_buf_printf(&b,
                            "base_model: %s\noutput_dir: %s/out\ndataset_prepared_path: %s/cache\n"
                            "datasets:\n  - path: %s/rows.jsonl\n    type: chat_template\n"
                            "chat_template: llama3\nsequence_len: 64\nmicro_batch_size: 2\n"
                            "logging_steps: 1\nfloat32: true\nnum_epochs: 9\nmax_steps: 2\n%s",
                            golden_llama(), scratch, scratch, scratch, more));
    snprintf(path, sizeof path, "%s", put_bytes("c.yaml", b.data, b.len));
    ax_buf_free(&b);
    return path;
}

static void refuses(const char *more, const char *what) {
    char said[4096];
    const char *args[] = {config(more)};
    assert_int_equal(sft(said, sizeof said, 1, args), 2);
    if (!strstr(said, what))
        fail_msg("expected \"%s\" in: %s", what, said);
}

/* A model that is its own teacher has nothing to learn from it. */
static void a_teacher_like_the_model(void **state) {
    (void)state;
    char said[4096], more[640];
    snprintf(more, sizeof more, "kd_teacher: %s\nkd_ce_alpha: 0.25\nlearning_rate: 1.0e-5\n",
             golden_llama());
    const char *args[] = {config(more)};
    if (sft(said, sizeof said, 1, args) != 0)
        fail_msg("%s", said);
    assert_true(fabs(metric_of("out", "kd_loss", 1)) < 1e-6);
    const double ce = metric_of("out", "ce_loss", 1);
    assert_true(ce > 1);
    assert_true(fabs(metric_of("out", "loss", 1) - 0.25 * ce) < 1e-5);
    assert_ok(ax_remove_tree(in_scratch("out")));
}

static void other_vocabularies(void **state) {
    (void)state;
    char more[640];
    snprintf(more, sizeof more, "kd_teacher: %s\ntokens: [<new_0>, <new_1>]\nlearning_rate: 1e-5\n",
             golden_llama());
    refuses(more, "kd_teacher: it has 512 tokens, the model that is trained 514");
    snprintf(more, sizeof more, "kd_teacher: %s\nlearning_rate: 1e-5\n",
             golden_path("models/qwen3"));
    refuses(more, "kd_teacher: its tokenizer is another one: token ");
    snprintf(more, sizeof more, "kd_teacher: %s/nowhere\nlearning_rate: 1e-5\n", scratch);
    refuses(more, "no such folder");
}

/* `type` of a data set, of rows that are not those above. */
static const char *stored_config(const char *data, const char *type, const char *more) {
    static char path[128];
    struct ax_buf b = {0};
    need_binary();
    put_bytes("stored.jsonl", data, strlen(data));
    assert_ok(ax_buf_printf(&b,
                            "base_model: %s\noutput_dir: %s/out\ndataset_prepared_path: %s/cache\n"
                            "datasets:\n  - path: %s/stored.jsonl\n%stest_datasets:\n"
                            "  - path: %s/stored.jsonl\n%schat_template: llama3\n"
                            "sequence_len: 64\nmicro_batch_size: 2\nlogging_steps: 1\n"
                            "eval_steps: 1\nfloat32: true\nnum_epochs: 9\nmax_steps: 2\n"
                            "kd_trainer: true\nlearning_rate: 1.0e-5\n%s",
                            golden_llama(), scratch, scratch, scratch, type, scratch, type, more));
    snprintf(path, sizeof path, "%s", put_bytes("s.yaml", b.data, b.len));
    ax_buf_free(&b);
    return path;
}

/* A teacher that is sure of each token says what the text says: the divergence is the
 * cross-entropy, at any temperature of the teacher's; one that is not sure says something else. */
static void stored_log_probs(void **state) {
    (void)state;
    static const char sure[] = "{\"input_ids\": [5, 6, 7, 8], \"labels\": [-100, 6, 7, 8], "
                               "\"target_token_ids\": [[6], [7], [8], []], "
                               "\"target_logprobs\": [[0], [-3], [-0.25], []]}\n",
                      split[] = "{\"input_ids\": [5, 6, 7, 8], \"labels\": [-100, 6, 7, 8], "
                                "\"target_token_ids\": [[6, 9], [7], [8], []], "
                                "\"target_logprobs\": [[-0.7, -0.7], [-3], [-0.25], []]}\n";
    char said[4096];
    for (int k = 0; k < 2; k++) {
        const char *args[] = {stored_config(k ? split : sure, "    temperature: 0.5\n",
                                            "kd_topk: 2\nkd_ce_alpha: 0.5\n")};
        if (sft(said, sizeof said, 1, args) != 0)
            fail_msg("%s", said);
        const double kd = metric_of("out", "kd_loss", 1), ce = metric_of("out", "ce_loss", 1);
        assert_true(ce > 1);
        assert_int_equal(fabs(kd - ce) < 1e-5, k == 0);
        assert_true(fabs(metric_of("out", "loss", 1) - kd - 0.5 * ce) < 1e-5);
        assert_true(isfinite(metric_of("out", "eval_loss", 1)));
        assert_ok(ax_remove_tree(in_scratch("out")));
    }
}

static void bad_records(void **state) {
    (void)state;
    static const char chat[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"one\"}, "
                               "{\"role\": \"assistant\", \"content\": \"two\"}]}\n";
    static const struct {
        const char *data, *type, *what;
    } cases[] = {
        {chat, "    type: axolotl.integrations.kd.chat_template\n",
         "stored.jsonl:1: column \"logprobs\" is missing: kd_trainer needs it"},
        {chat, "    type: chat_template\n    logprobs_field: said\n",
         "stored.jsonl:1: column \"said\" is missing"},
        {"{\"input_ids\": [5, 6], \"labels\": [-100, 6], \"target_token_ids\": [[512], []], "
         "\"target_logprobs\": [[-1], []]}\n",
         "", "stored.jsonl:1: target_token_ids[0][0]: id 512 is not below the vocabulary of 512"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char said[4096];
        const char *args[] = {stored_config(cases[i].data, cases[i].type, "kd_topk: 2\n")};
        assert_int_equal(sft(said, sizeof said, 1, args), 3);
        if (!strstr(said, cases[i].what))
            fail_msg("expected \"%s\" in: %s", cases[i].what, said);
    }
    char said[4096];
    const char *args[] = {stored_config(chat, "    type: alpaca\n", "kd_topk: 2\n")};
    assert_int_equal(sft(said, sizeof said, 1, args), 2);
    assert_non_null(strstr(said, "type alpaca has no log-probs of a teacher"));
}

static void other_keys(void **state) {
    (void)state;
    refuses("kd_trainer: true\nlearning_rate: 1e-5\n", "kd_trainer: set kd_topk");
    refuses("kd_trainer: true\nkd_topk: 300\nlearning_rate: 1e-5\n",
            "kd_topk: expected at most 256");
    refuses("kd_trainer: true\nkd_topk: 8\nkd_teacher: t\nlearning_rate: 1e-5\n",
            "kd_trainer: distills from log-probs in the data sets, kd_teacher from a model");
    refuses("kd_trainer: true\nkd_topk: 8\nkd_beta: 0.5\nlearning_rate: 1e-5\n",
            "kd_beta: only the forward divergence");
    refuses("kd_trainer: true\nkd_topk: 8\nkd_normalize_topk: true\nlearning_rate: 1e-5\n",
            "kd_normalize_topk");
    refuses("kd_trainer: true\nkd_topk: 8\nkd_alpha: 0\nlearning_rate: 1e-5\n",
            "Set it above 0, or remove kd_trainer");
    refuses("kd_trainer: true\nkd_topk: 8\nrl: dpo\nlearning_rate: 1e-5\n",
            "kd_trainer: distills into a language model");
    refuses("kd_teacher: t\nreward_model: true\nlearning_rate: 1e-5\n",
            "distills into a language model");
    refuses("kd_teacher: t\nlabel_smoothing: 0.1\nlearning_rate: 1e-5\n",
            "are not terms of its loss");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_teacher_like_the_model),
                                       cmocka_unit_test(other_vocabularies),
                                       cmocka_unit_test(stored_log_probs),
                                       cmocka_unit_test(bad_records), cmocka_unit_test(other_keys)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
