/* Mistral's own files: its tokenizers are used and saved; weights and configuration in its own form are
 * refused, with what to use instead. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/cmd/program_case.h"
#include "tests/data/scratch.h"
#include "tests/golden_files.h"

static char out[1 << 16];

static void must(int code) {
    if (code != 0)
        fail_msg("exit code %d: %s", code, out);
}

static void copy(const char *from, const char *to) {
    char *text;
    size_t len;
    assert_int_equal(ax_read_file(from, 1 << 24, &text, &len), AX_OK);
    put_bytes(to, text, len);
    ax_free(text);
}

/* SCRATCH/hf: the tiny mistral without its tokenizer. */
static void make_model(void) {
    static const char *const files[] = {"config.json", "model.safetensors"};
    char from[700], to[64];
    make_folder("hf");
    for (size_t i = 0; i < 2; i++) {
        snprintf(from, sizeof from, "%s/%s", golden_path("models/mistral"), files[i]);
        snprintf(to, sizeof to, "hf/%s", files[i]);
        copy(from, to);
    }
}

static void train(const char *base, const char *to, const char *more) {
    struct ax_buf b = {0};
    put_text("rows.jsonl", "{\"text\": \"one and one is two\"}\n{\"text\": \"two and two\"}\n");
    assert_int_equal(ax_buf_printf(&b,
                                   "base_model: %s/%s\noutput_dir: %s/%s\n"
                                   "dataset_prepared_path: %s/cache\ndatasets:\n"
                                   "  - path: %s/rows.jsonl\n    type: completion\n"
                                   "sequence_len: 64\nlearning_rate: 5e-3\nmicro_batch_size: 2\n"
                                   "gradient_accumulation_steps: 1\nnum_epochs: 40\nmax_steps: 2\n"
                                   "float32: true\n%s",
                                   scratch, base, scratch, to, scratch, scratch, more),
                     AX_OK);
    const char *path = put_bytes("c.yaml", b.data, b.len);
    ax_buf_free(&b);
    must(run(out, sizeof out, "sft %s", path));
}

static void refuses(const char *command, const char *folder, const char *more, const char *file) {
    char want[200];
    snprintf(want, sizeof want, "%s is a file of Mistral's own form, which is not read. Use", file);
    assert_int_equal(run(out, sizeof out, "%s %s %s", command, in_scratch(folder), more), 2);
    if (!strstr(out, want) || !strstr(out, "convert_mistral_weights_to_hf.py"))
        fail_msg("no \"%s\" in: %s", want, out);
}

static void its_weights_are_refused(void **state) {
    (void)state;
    make_folder("own");
    put_text("own/params.json", "{\"dim\": 64}");
    refuses("plan", "own", "", "params.json");
    refuses("plan", "own/params.json", "", "params.json");
    refuses("generate --prompt one", "own", "", "params.json");
    make_folder("shards");
    put_text("shards/consolidated-00001-of-00002.safetensors", "");
    refuses("plan", "shards", "", "consolidated-00001-of-00002.safetensors");
    make_model();
    assert_int_equal(ax_unlink(in_scratch("hf/model.safetensors")), AX_OK);
    put_text("hf/consolidated.safetensors.index.json", "{}");
    refuses("convert", "hf", "x.gguf --to gguf", "consolidated.safetensors.index.json");
}

/* The tokenizer is tokenizer.model.v3, and is saved. */
static void its_tokenizer_is_enough(void **state) {
    (void)state;
    char more[400];
    make_model();
    copy("tests/data/tokenizer.model.v3", "hf/tokenizer.model.v3");
    put_text("chats.jsonl",
             "{\"messages\": [{\"role\": \"user\", \"content\": \"one and one\"}, {\"role\": "
             "\"assistant\", \"content\": \"two\"}]}\n");
    snprintf(more, sizeof more, "reinit_weights: true\nmodel_config:\n  vocab_size: 560\n");
    train("hf", "c", more);
    assert_true(ax_path_exists(in_scratch("c/tokenizer.model.v3")));
    must(run(out, sizeof out, "generate %s --chat --prompt hello --max-new-tokens 3 --json",
             in_scratch("c")));
    assert_non_null(strstr(out, "\"finish\""));
    must(run(out, sizeof out,
             "preview %s/c.yaml datasets='[{path: %s/chats.jsonl, type: chat_template}]'", scratch,
             scratch));
    assert_non_null(strstr(out, "[INST]"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_weights_are_refused),
        cmocka_unit_test(its_tokenizer_is_enough),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
