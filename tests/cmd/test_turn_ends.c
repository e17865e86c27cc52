/* eot_tokens: what training teaches to end a turn with also ends the answers of the saved model, adapter and merged
 * model, as eos_token_id of their generation_config.json, where transformers and vLLM look for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ckpt/hf/hf.h"
#include "data/text_side.h"
#include "model/convert/merge.h"
#include "tests/cmd/sft_case.h"

/* Of the golden model: EOS is <|eot_id|>. */
enum { EOS = 504, END = 501 };
#define ENDS "eot_tokens=[<|end_of_text|>]"
#define LORA "adapter=lora", "lora_r=4", "lora_alpha=8", "lora_target_linear=true"

#define OF_ANSWERS "{{ m.role }}: {{ m.content }}<|end_of_text|>"

/* A template that writes each message as `turn` says. */
static const char *config(const char *base, const char *turn) {
    static const char rows[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"say yes\"}, {\"role\": \"assistant\", "
        "\"content\": \"yes\"}]}\n";
    static char path[128];
    struct ax_buf b = {0};
    need_binary();
    put_bytes("rows.jsonl", rows, sizeof rows - 1);
    assert_ok(
        ax_buf_printf(&b,
                      "base_model: %s\noutput_dir: %s/out\ndatasets:\n  - path: %s/rows.jsonl\n"
                      "    type: chat_template\nchat_template_jinja: \"{%% for m in messages "
                      "%%}%s{%% endfor %%}\"\n"
                      "sequence_len: 64\nmax_steps: 1\nlearning_rate: 0.001\nfloat32: true\n",
                      base, scratch, scratch, turn));
    snprintf(path, sizeof path, "%s", put_bytes("c.yaml", b.data, b.len));
    ax_buf_free(&b);
    return path;
}

static void clear(void) {
    assert_ok(ax_remove_tree(in_scratch("out")));
}

/* eos_token_id of a folder's generation_config.json as text; "-": it has no such file. */
static const char *eos_of(const char *folder) {
    static char text[64];
    char path[192];
    struct ax_json_doc doc = {0};
    snprintf(path, sizeof path, "%s/%s/generation_config.json", scratch, folder);
    if (!ax_path_exists(path))
        return "-";
    assert_ok(ax_json_load(&doc, path, 1 << 20));
    char *found = json_dumps(json_object_get(doc.root, "eos_token_id"), JSON_ENCODE_ANY);
    snprintf(text, sizeof text, "%s", found);
    ax_free(found);
    ax_json_free(&doc);
    return text;
}

static void check_answers_end(const char *folder, const char *model) {
    struct ax_text_side side;
    bool ends = false;
    char path[192];
    snprintf(path, sizeof path, "%s/%s", scratch, folder);
    assert_ok(ax_text_side_open(&side, path, model ? model : path));
    for (int i = 0; i < side.stop.n; i++)
        ends = ends || side.stop.ids[i] == END;
    assert_true(ends);
    ax_text_side_close(&side);
}

static void test_of_a_model(void **state) {
    (void)state;
    const char *path = config(golden_llama(), OF_ANSWERS);
    EXPECT(0, "trained 1 of 1", path, ENDS);
    assert_string_equal(eos_of("out"), "[501, 504]");
    check_answers_end("out", NULL);
    clear();
    EXPECT(0, "trained 1 of 1", path); /* without the key, EOS alone */
    assert_string_equal(eos_of("out"), "504");
    clear();
}

/* Only what ends an answer ends those of the model: not what ends turns of users, nor a part of an answer, as <|end|> of
 * gpt-oss does, which may be among eot_tokens. */
static void test_of_other_ends(void **state) {
    (void)state;
    const char *path =
        config(golden_llama(), "{% if m.role == 'user' %}{{ m.content }}<|start_header_id|>"
                               "{% else %}" OF_ANSWERS "{% endif %}");
    EXPECT(0, "trained 1 of 1", path, "eot_tokens=[<|start_header_id|>, <|end_of_text|>]");
    assert_string_equal(eos_of("out"), "[501, 504]");
    clear();
    path = config(golden_llama(), "thought<|end_of_text|>{{ m.content }}<|eot_id|>");
    EXPECT(0, "trained 1 of 1", path, "eot_tokens=[<|end_of_text|>, <|eot_id|>]");
    assert_string_equal(eos_of("out"), "504");
    clear();
}

/* A template that refuses two turns is asked nothing. */
static void test_of_a_template_that_refuses(void **state) {
    (void)state;
    const char *path =
        config(golden_llama(),
               "{% if m.content == 'Answer' %}{{ raise_exception('no') }}{% endif %}" OF_ANSWERS);
    EXPECT(0, "trained 1 of 1", path, ENDS);
    assert_string_equal(eos_of("out"), "504");
    clear();
}

/* A base without generation_config.json, of which transformers makes one from config.json. */
static void test_of_a_model_without_the_file(void **state) {
    static const char *const files[] = {"config.json", "tokenizer.json", "tokenizer_config.json",
                                        "model.safetensors"};
    (void)state;
    const char *path = config(golden_llama(), OF_ANSWERS);
    char base[128];
    EXPECT(0, "trained 1 of 1", path); /* for its weights */
    snprintf(base, sizeof base, "%s/base", scratch);
    assert_ok(ax_mkdir(base));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char from[192], to[192];
        snprintf(from, sizeof from, "%s/out/%s", scratch, files[i]);
        snprintf(to, sizeof to, "%s/%s", base, files[i]);
        assert_int_equal(rename(from, to), 0);
    }
    clear();
    path = config(base, OF_ANSWERS);
    EXPECT(0, "trained 1 of 1", path, ENDS);
    assert_string_equal(eos_of("out"), "[501, 504]");
    clear();
    EXPECT(0, "trained 1 of 1", path);
    assert_string_equal(eos_of("out"), "-");
    clear();
}

static void test_of_an_adapter(void **state) {
    (void)state;
    const char *path = config(golden_llama(), OF_ANSWERS);
    char out[128], merged[128];
    EXPECT(0, "trained 1 of 1", path, ENDS, LORA);
    assert_string_equal(eos_of("out"), "[501, 504]");
    check_answers_end("out", golden_llama());
    snprintf(out, sizeof out, "%s/out", scratch);
    snprintf(merged, sizeof merged, "%s/merged", scratch);
    struct ax_merge m = {.base = golden_llama(), .adapter = out, .dst = merged};
    assert_ok(ax_merge_run(&m));
    assert_string_equal(eos_of("merged"), "[501, 504]");
    clear();
    EXPECT(0, "trained 1 of 1", path, LORA);
    assert_string_equal(eos_of("out"), "-");
    clear();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_of_a_model),
        cmocka_unit_test(test_of_other_ends),
        cmocka_unit_test(test_of_a_template_that_refuses),
        cmocka_unit_test(test_of_a_model_without_the_file),
        cmocka_unit_test(test_of_an_adapter),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
