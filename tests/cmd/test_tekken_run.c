/* A model whose only tokenizer is Mistral's tekken.json: trained on chats, saved with it, and answering;
 * and one that has both, where the configuration chooses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/cmd/program_case.h"
#include "tests/data/scratch.h"
#include "tests/golden_files.h"

#define TEKKEN "tests/data/tekken.json"

static void copy(const char *from, const char *to) {
    char *text;
    size_t len;
    assert_ok(ax_read_file(from, 1 << 24, &text, &len));
    put_bytes(to, text, len);
    ax_free(text);
}

static const char *config(void) {
    static char path[128];
    struct ax_buf b = {0};
    make_folder("base");
    copy(TEKKEN, "base/tekken.json");
    put_text("base/config.json",
             "{\"model_type\": \"mistral\", \"architectures\": [\"MistralForCausalLM\"], "
             "\"vocab_size\": 588, \"hidden_size\": 32, \"intermediate_size\": 48, "
             "\"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, "
             "\"sliding_window\": null, \"torch_dtype\": \"float32\"}");
    put_text(
        "rows.jsonl",
        "{\"messages\": [{\"role\": \"system\", \"content\": \"Be brief.\"}, {\"role\": \"user\", "
        "\"content\": \"one and one\"}, {\"role\": \"assistant\", \"content\": \"two\"}]}\n");
    assert_ok(ax_buf_printf(&b,
                            "base_model: %s\noutput_dir: %s\ndataset_prepared_path: %s\n"
                            "reinit_weights: true\ndatasets:\n  - path: %s\n"
                            "    type: chat_template\nsequence_len: 128\nlearning_rate: 5e-3\n"
                            "micro_batch_size: 1\ngradient_accumulation_steps: 1\nmax_steps: 2\n"
                            "num_epochs: 10\nfloat32: true\n",
                            in_scratch("base"), in_scratch("out"), in_scratch("cache"),
                            in_scratch("rows.jsonl")));
    snprintf(path, sizeof path, "%s", put_bytes("c.yaml", b.data, b.len));
    ax_buf_free(&b);
    return path;
}

static void assert_has(const char *out, const char *part) {
    if (!strstr(out, part))
        fail_msg("expected \"%s\" in: %s", part, out);
}

static void a_folder_with_only_tekken_trains_and_answers(void **state) {
    (void)state;
    static char out[1 << 16];
    if (run(out, sizeof out, "sft %s", config()) != 0)
        fail_msg("%s", out);
    assert_true(ax_path_exists(in_scratch("out/tekken.json")));
    if (run(out, sizeof out, "generate %s --chat --prompt hello --max-new-tokens 3 --json",
            in_scratch("out")) != 0)
        fail_msg("%s", out);
    assert_has(out, "\"finish\"");
    assert_int_equal(run(out, sizeof out, "preview %s", config()), 0);
    assert_has(out, "[INST]");
    assert_int_not_equal(run(out, sizeof out, "sft %s output_dir=%s 'tokens=[\"<new>\"]'", config(),
                             in_scratch("other")),
                         0);
    assert_has(out, "Mistral's own tokenizers cannot have tokens added");
}

/* tokenizer.json and its template come first, unless tokenizer_use_mistral_common is set. */
static void the_configuration_chooses(void **state) {
    (void)state;
    static char out[1 << 16];
    char from[600];
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json"};
    const char *path = config();
    for (size_t i = 0; i < 2; i++) {
        char to[64];
        snprintf(from, sizeof from, "%s/%s", golden_path("models/llama"), names[i]);
        snprintf(to, sizeof to, "base/%s", names[i]);
        copy(from, to);
    }
    run(out, sizeof out, "preview %s", path);
    assert_null(strstr(out, "[SYSTEM_PROMPT]"));
    assert_null(strstr(out, "[INST]"));
    assert_int_equal(run(out, sizeof out, "preview %s tokenizer_use_mistral_common=true", path), 0);
    assert_has(out, "[INST]");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folder_with_only_tekken_trains_and_answers),
        cmocka_unit_test(the_configuration_chooses),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
