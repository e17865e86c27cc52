/* `axtrain sft` with kd_teacher: what it reports, and which teachers it refuses. */
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
    snprintf(more, sizeof more, "kd_teacher: %s/../qwen3\nlearning_rate: 1e-5\n", golden_llama());
    refuses(more, "kd_teacher: its tokenizer is another one: token ");
    snprintf(more, sizeof more, "kd_teacher: %s/nowhere\nlearning_rate: 1e-5\n", scratch);
    refuses(more, "no such folder");
}

static void other_keys(void **state) {
    (void)state;
    refuses("kd_trainer: true\nlearning_rate: 1e-5\n", "set kd_teacher");
    refuses("kd_teacher: t\nreward_model: true\nlearning_rate: 1e-5\n",
            "distills into a language model");
    refuses("kd_teacher: t\nlabel_smoothing: 0.1\nlearning_rate: 1e-5\n",
            "are not terms of its loss");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_teacher_like_the_model),
                                       cmocka_unit_test(other_vocabularies),
                                       cmocka_unit_test(other_keys)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
