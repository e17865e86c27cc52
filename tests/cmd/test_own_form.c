/* A folder in Mistral's own form in place of Hugging Face's: what is trained, saved, answered and merged is
 * the same to the byte, and its tokenizer is used. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ckpt/hf/hf.h"
#include "tests/cmd/program_case.h"
#include "tests/data/scratch.h"
#include "tests/own_names.h"

enum { HEAD = 16, MAX_TENSORS = 64 };

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

static void assert_same_file(const char *a, const char *b) {
    char *x, *y;
    size_t n, m;
    assert_int_equal(ax_read_file(a, 1 << 24, &x, &n), AX_OK);
    assert_int_equal(ax_read_file(b, 1 << 24, &y, &m), AX_OK);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    ax_free(x);
    ax_free(y);
}

static enum ax_status fill(void *ctx, int64_t first, int64_t n, void *to) {
    const struct ax_st_entry *e = ctx;
    const bool rotary = strstr(e->name, "q_proj") || strstr(e->name, "k_proj");
    for (int64_t k = first; k < first + n; k++) {
        const int64_t cols = e->ndim > 1 ? e->shape[1] : 1, row = k / cols, in = row % HEAD;
        const int64_t from = rotary ? row - in + in % 2 * (HEAD / 2) + in / 2 : row;
        AX_TRY(ax_st_read(e, from * cols + k % cols, 1, AX_F32, (float *)to + (k - first)));
    }
    return AX_OK;
}

/* SCRATCH/hf and SCRATCH/own: the tiny mistral in both forms, with a tokenizer.json. */
static void make_folders(void) {
    static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json",
                                        "tokenizer_config.json"};
    static char names[MAX_TENSORS][160];
    struct ax_st_output tensors[MAX_TENSORS];
    struct ax_hf hf;
    char from[700], to[64];
    make_folder("hf");
    make_folder("own");
    for (size_t i = 0; i < 4; i++) {
        snprintf(from, sizeof from, "%s/%s", fixture("models/mistral"), files[i]);
        snprintf(to, sizeof to, "hf/%s", files[i]);
        copy(from, to);
        snprintf(to, sizeof to, "own/%s", files[i]);
        if (i >= 2)
            copy(from, to);
    }
    assert_int_equal(ax_hf_open(&hf, in_scratch("hf")), AX_OK);
    const int n = ax_hf_count(&hf);
    assert_in_range(n, 1, MAX_TENSORS);
    for (int i = 0; i < n; i++) {
        const struct ax_st_entry *e = ax_hf_at(&hf, i);
        own_name(e->name, names[i]);
        tensors[i] = (struct ax_st_output){.name = names[i],
                                           .dtype = AX_F32,
                                           .ndim = e->ndim,
                                           .fill = fill,
                                           .ctx = (void *)(uintptr_t)e};
        memcpy(tensors[i].shape, e->shape, sizeof e->shape);
    }
    const int half = n / 2;
    assert_int_equal(ax_safetensors_write(in_scratch("own/consolidated-00001-of-00002.safetensors"),
                                          half, tensors),
                     AX_OK);
    assert_int_equal(ax_safetensors_write(in_scratch("own/consolidated-00002-of-00002.safetensors"),
                                          n - half, tensors + half),
                     AX_OK);
    put_text(
        "own/params.json",
        "{\"dim\": 64, \"n_layers\": 2, \"head_dim\": 16, \"hidden_dim\": 128, \"n_heads\": 4, "
        "\"n_kv_heads\": 2, \"norm_eps\": 1e-05, \"vocab_size\": 512, \"sliding_window\": 16, "
        "\"max_seq_len\": 256}");
    ax_hf_close(&hf);
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

/* What is said without the line with the times. */
static const char *answer(void) {
    char *times = strstr(out, "info generated");
    if (!times)
        fail_msg("no times in: %s", out);
    else
        *times = '\0';
    return out;
}

static void both_forms_are_one_model(void **state) {
    (void)state;
    static char text[1 << 16];
    make_folders();
    train("hf", "a", "");
    train("own", "b", "");
    assert_same_file(in_scratch("a/model.safetensors"), in_scratch("b/model.safetensors"));
    assert_true(ax_path_exists(in_scratch("b/config.json")));
    assert_false(ax_path_exists(in_scratch("b/params.json")));
    assert_int_equal(run(out, sizeof out, "plan %s", in_scratch("own")), 0);
    assert_non_null(strstr(out, "mistral, 140 k parameters"));
    assert_int_equal(run(out, sizeof out, "plan %s", in_scratch("own/params.json")), 0);
    assert_non_null(strstr(out, "mistral, 140 k parameters"));
    static const char generate[] = "generate %s --prompt one --max-new-tokens 8";
    must(run(out, sizeof out, generate, in_scratch("hf")));
    snprintf(text, sizeof text, "%s", answer());
    must(run(out, sizeof out, generate, in_scratch("own")));
    assert_true(strlen(text) > 1);
    assert_string_equal(answer(), text);
    train("own", "adapter", "adapter: lora\nlora_r: 4\nlora_alpha: 8\nlora_target_linear: true\n");
    must(run(out, sizeof out, "merge %s %s %s", in_scratch("own"), in_scratch("adapter"),
             in_scratch("merged")));
    must(run(out, sizeof out, "merge %s %s %s", in_scratch("hf"), in_scratch("adapter"),
             in_scratch("merged-hf")));
    assert_same_file(in_scratch("merged/model.safetensors"),
                     in_scratch("merged-hf/model.safetensors"));
}

/* With nothing but Mistral's files: the tokenizer is tokenizer.model.v3, and is saved. */
static void its_tokenizer_is_enough(void **state) {
    (void)state;
    char more[400];
    make_folders();
    assert_int_equal(ax_unlink(in_scratch("own/tokenizer.json")), AX_OK);
    assert_int_equal(ax_unlink(in_scratch("own/tokenizer_config.json")), AX_OK);
    copy("tests/data/tokenizer.model.v3", "own/tokenizer.model.v3");
    put_text("chats.jsonl",
             "{\"messages\": [{\"role\": \"user\", \"content\": \"one and one\"}, {\"role\": "
             "\"assistant\", \"content\": \"two\"}]}\n");
    snprintf(more, sizeof more, "reinit_weights: true\nmodel_config:\n  vocab_size: 560\n");
    train("own", "c", more);
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
        cmocka_unit_test(both_forms_are_one_model),
        cmocka_unit_test(its_tokenizer_is_enough),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
