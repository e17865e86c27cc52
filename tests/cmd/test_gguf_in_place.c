/* GGUF files as models: their weights are read in place, and every command gives what it gives for
 * a folder converted from the file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "base/rng.h"
#include "cmd/commands.h"
#include "model/convert/from_gguf.h"
#include "cmd/to_gguf.h"
#include "model/convert/base_model.h"
#include "tests/ckpt/folder.h"
#include "tests/cmd/gguf_tiny.h"
#include "tests/cmd/words_case.h"
#include "tests/golden_files.h"

static char model[512], adapter[512];

static int start(void **state) {
    snprintf(model, sizeof model, "%s", golden_path("models/llama"));
    snprintf(adapter, sizeof adapter, "%s", golden_path("lora/llama_r4"));
    return make_dir(state) == 0 && setenv("XDG_CACHE_HOME", in_dir("cache"), 1) == 0 ? 0 : -1;
}

static void mentions(const char *part) {
    if (!strstr(ax_error_text(), part))
        fail_msg("\"%s\" is not in: %s", part, ax_error_text());
}

/* The golden model as NAME.gguf, and that file converted to the folder NAME. */
static void put_both(const char *name, const char *quant) {
    char file[64];
    snprintf(file, sizeof file, "%s.gguf", name);
    struct ax_to_gguf to = {.src = model, .dst = in_dir(file), .threads = 1};
    ok(ax_to_gguf_quant(&to.quant, quant));
    ok(ax_convert_to_gguf(&to));
    struct ax_convert from = {.src = in_dir(file), .dst = in_dir(name)};
    ok(ax_convert_gguf_to_hf(&from));
}

/* ---- the same numbers ---- */

static void answers_equal_those_of_the_converted_folder(void **state) {
    (void)state;
    static const char *const quants[] = {"f16", "q8_0", "q4_0"};
    static const char *const ways[][2] = {{"float32", "plain"},
                                          {"bfloat16", "plain"},
                                          {"float32", "int8"},
                                          {"bfloat16", "nf4-double"}};
    static char copy[sizeof text];
    char file[32];
    for (size_t q = 0; q < sizeof quants / sizeof *quants; q++) {
        put_both(quants[q], quants[q]);
        snprintf(file, sizeof file, "%s.gguf", quants[q]);
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            ok(RUN(ax_cmd_generate, in_dir(quants[q]), "--prompt", "The train", "--json", "--dtype",
                   ways[w][0], "--base", ways[w][1], "--max-new-tokens", "16"));
            assert_non_null(strstr(text, "\"logprob\""));
            memcpy(copy, text, sizeof copy);
            ok(RUN(ax_cmd_generate, in_dir(file), "--prompt", "The train", "--json", "--dtype",
                   ways[w][0], "--base", ways[w][1], "--max-new-tokens", "16"));
            assert_string_equal(text, copy);
        }
    }
}

static void losses_equal_those_of_the_converted_folder(void **state) {
    (void)state;
    static char copy[sizeof text];
    put_both("eval", "q8_0");
    put_text("rows.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}, "
                           "{\"role\": \"assistant\", \"content\": \"hello there\"}]}\n");
    const char *const models[] = {"eval", "eval.gguf"};
    for (int i = 0; i < 2; i++) {
        ok(RUN(ax_cmd_eval, in_dir(models[i]), "--data", in_dir("rows.jsonl"), "--adapter", adapter,
               "--threads", "1"));
        char *numbers = strstr(text, "mean NLL");
        assert_non_null(numbers);
        if (i == 0)
            memcpy(copy, numbers, strlen(numbers) + 1);
        else
            assert_string_equal(numbers, copy);
    }
}

static void same_tensors(const char *a, const char *b) {
    struct ax_hf x, y;
    ok(ax_hf_open(&x, a));
    ok(ax_hf_open(&y, b));
    assert_true(ax_hf_count(&x) > 0);
    assert_int_equal(ax_hf_count(&x), ax_hf_count(&y));
    for (int i = 0; i < ax_hf_count(&x); i++) {
        const struct ax_st_entry *e = ax_hf_at(&x, i), *f = ax_hf_find(&y, e->name);
        assert_non_null(f);
        assert_true(e->dtype == f->dtype && e->bytes == f->bytes);
        assert_memory_equal(e->data, f->data, e->bytes);
    }
    ax_hf_close(&x);
    ax_hf_close(&y);
}

static void merges_equal_those_of_the_converted_folder(void **state) {
    (void)state;
    put_both("base", "q8_0");
    ok(RUN(ax_cmd_merge, in_dir("base"), adapter, in_dir("merged-a"), "--threads", "1"));
    ok(RUN(ax_cmd_merge, in_dir("base.gguf"), adapter, in_dir("merged-b"), "--threads", "1"));
    same_tensors(in_dir("merged-a"), in_dir("merged-b"));
    char *note = get_text("merged-b/axtrain_merge.json");
    assert_non_null(strstr(note, "base.gguf\"")); /* the user's name of it, not the cache's */
    ax_free(note);
}

static void files_become_other_files(void **state) {
    (void)state;
    put_both("type", "q8_0");
    ok(RUN(ax_cmd_convert, in_dir("type"), in_dir("a.gguf"), "--quant", "q4_0"));
    ok(RUN(ax_cmd_convert, in_dir("type.gguf"), in_dir("b.gguf"), "--quant", "q4_0"));
    struct ax_convert c[] = {{.src = in_dir("a.gguf"), .dst = in_dir("a")},
                             {.src = in_dir("b.gguf"), .dst = in_dir("b")}};
    ok(ax_convert_gguf_to_hf(&c[0]));
    ok(ax_convert_gguf_to_hf(&c[1]));
    same_tensors(in_dir("a"), in_dir("b"));
}

/* ---- what is on disk ---- */

static int64_t bytes_of(const char *folder, const char *name) {
    struct stat info;
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return lstat(path, &info) == 0 ? (int64_t)info.st_size : -1;
}

static void no_weights_are_copied(void **state) {
    (void)state;
    struct stat link;
    struct ax_lock use;
    char *folder, path[512];
    put_both("disk", "f16");
    ok(RUN(ax_cmd_generate, in_dir("disk.gguf"), "--prompt", "The", "--max-new-tokens", "1"));
    ok(ax_base_model_folder(&folder, &use, in_dir("disk.gguf"), NULL, NULL));
    ax_lock_drop(&use);
    assert_true(strncmp(folder, in_dir("cache/axtrain/"), strlen(in_dir("cache/axtrain/"))) == 0);
    assert_int_equal(count_entries(folder), 5);
    snprintf(path, sizeof path, "%s/" AX_HF_GGUF, folder);
    assert_int_equal(lstat(path, &link), 0);
    assert_true(S_ISLNK(link.st_mode));
    static const char *const files[] = {"config.json", "generation_config.json", "tokenizer.json",
                                        "tokenizer_config.json"};
    for (size_t i = 0; i < 4; i++)
        assert_in_range(bytes_of(folder, files[i]), 1, 1 << 16);
    assert_int_equal(bytes_of(folder, "model.safetensors"), -1);
    ax_free(folder);
}

/* Earlier versions kept a float32 copy under the same name. */
static void a_copy_from_an_earlier_version_is_replaced(void **state) {
    (void)state;
    struct ax_lock use;
    char *folder, *old;
    put_both("old", "f16");
    ok(ax_base_model_folder(&folder, &use, in_dir("old.gguf"), NULL, NULL));
    ax_lock_drop(&use);
    ok(ax_remove_tree(folder));
    struct ax_convert c = {.src = in_dir("old.gguf"), .dst = folder};
    ok(ax_convert_gguf_to_hf(&c));
    assert_true(bytes_of(folder, "model.safetensors") > 0);
    ok(ax_base_model_folder(&old, &use, in_dir("old.gguf"), NULL, NULL));
    ax_lock_drop(&use);
    assert_string_equal(folder, old);
    assert_int_equal(bytes_of(folder, "model.safetensors"), -1);
    assert_true(bytes_of(folder, AX_HF_GGUF) > 0);
    ax_free(old);
    ax_free(folder);
}

/* ---- reading ---- */

static void put_tiny(const struct tiny *t, const char *name) {
    struct gguf_out o = {0};
    tiny_sizes(&o, t);
    tiny_vocab(&o, t);
    tiny_tensors(&o, t);
    gguf_out_finish(&o);
    put_file(name, o.file.data, o.file.len);
    gguf_out_free(&o);
}

/* A mesh's shards begin and end anywhere, inside blocks and rows too. */
static void any_range_can_be_read(void **state) {
    (void)state;
    static const struct tiny t = {
        .arch = "llama", .permuted = true, .untied = true, .matrix_type = TYPE_Q8_0};
    const struct ax_rng_key key = {1, 2, 3};
    struct ax_hf hf;
    struct ax_lock use;
    char *folder;
    float part[FFN * HIDDEN];
    put_tiny(&t, "ranges.gguf");
    ok(ax_base_model_folder(&folder, &use, in_dir("ranges.gguf"), NULL, in_dir("work")));
    ax_lock_drop(&use);
    ok(ax_hf_open(&hf, folder));
    assert_int_equal(ax_hf_count(&hf), 3 + 9 * LAYERS);
    for (int i = 0; i < ax_hf_count(&hf); i++) {
        const struct ax_st_entry *e = ax_hf_at(&hf, i);
        const int64_t cols = e->ndim > 1 ? e->shape[1] : 1;
        assert_true(e->dtype == AX_F32);
        for (uint64_t k = 0; k < 50; k++) {
            const uint64_t drawn = (uint64_t)i * 100 + 2 * k;
            const int64_t most = e->numel < FFN * HIDDEN ? e->numel : FFN * HIDDEN;
            const int64_t n = 1 + (int64_t)(ax_rng_uniform(key, drawn) * (float)(most - 1));
            const int64_t first = (int64_t)(ax_rng_uniform(key, drawn + 1) * (float)(e->numel - n));
            ok(ax_st_read(e, first, n, AX_F32, part));
            for (int64_t j = first; j < first + n; j++)
                if (part[j - first] != tiny_value(e->name, j / cols, j % cols))
                    fail_msg("%s: element %lld of %lld from %lld", e->name, (long long)j,
                             (long long)n, (long long)first);
        }
    }
    ax_hf_close(&hf);
    ax_free(folder);
}

/* As many elements as the shapes say: of each tensor, and together as convert prints. */
static void sizes_are_those_of_the_shapes(void **state) {
    (void)state;
    static const struct tiny t = {.arch = "llama", .untied = true, .matrix_type = TYPE_F16};
    struct ax_hf hf;
    struct ax_lock use;
    char *folder;
    int64_t all = 0;
    put_tiny(&t, "sizes.gguf");
    ok(ax_base_model_folder(&folder, &use, in_dir("sizes.gguf"), NULL, in_dir("work")));
    ax_lock_drop(&use);
    ok(ax_hf_open(&hf, folder));
    for (int i = 0; i < ax_hf_count(&hf); i++) {
        const struct ax_st_entry *e = ax_hf_at(&hf, i);
        const int64_t numel = e->shape[0] * (e->ndim > 1 ? e->shape[1] : 1);
        assert_int_equal(e->numel, numel);
        assert_int_equal(e->bytes, (size_t)numel * ax_dtype_size(e->dtype));
        all += numel;
    }
    assert_int_equal(all, 2 * VOCAB * HIDDEN + HIDDEN +
                              LAYERS * (2 * HIDDEN + 2 * HIDDEN * HIDDEN +
                                        2 * KV_HEADS * HEAD * HIDDEN + 3 * FFN * HIDDEN));
    ax_hf_close(&hf);
    ax_free(folder);
    struct ax_convert from = {.src = in_dir("sizes.gguf"), .dst = in_dir("sizes")};
    ok(ax_convert_gguf_to_hf(&from));
    assert_int_equal(from.weights, all);
}

/* Whichever allocation fails, what was opened is given back. */
static void opening_without_memory_fails_cleanly(void **state) {
    (void)state;
    static const struct tiny t = {.arch = "qwen2", .qkv_bias = true, .matrix_type = TYPE_F16};
    struct ax_lock use;
    struct ax_hf hf;
    char *folder, spec[32];
    enum ax_status st = AX_ERR_NOMEM;
    int k = 0;
    put_tiny(&t, "memory.gguf");
    ok(ax_base_model_folder(&folder, &use, in_dir("memory.gguf"), NULL, in_dir("work")));
    ax_lock_drop(&use);
    const uint64_t live = ax_mem_live_blocks();
    while (st != AX_OK && k < 500) {
        snprintf(spec, sizeof spec, "malloc:%d:enomem", ++k);
        ok(ax_fault_configure(spec));
        st = ax_hf_open(&hf, folder);
        const bool fired = ax_fault_fired();
        ok(ax_fault_configure(NULL));
        assert_true(fired == (st != AX_OK));
        if (st == AX_OK)
            ax_hf_close(&hf);
        assert_int_equal(ax_mem_live_blocks(), live);
    }
    assert_true(k > 10 && k < 500);
    ax_free(folder);
}

static void a_weight_that_is_no_number_is_named(void **state) {
    (void)state;
    static const struct tiny t = {.arch = "qwen3",
                                  .qk_norm = true,
                                  .matrix_type = TYPE_F16,
                                  .spoil = "model.layers.1.mlp.up_proj.weight",
                                  .spoiled = INFINITY};
    put_tiny(&t, "spoiled.gguf");
    assert_int_equal(RUN(ax_cmd_generate, in_dir("spoiled.gguf"), "--prompt", "the"), AX_ERR_DATA);
    mentions("spoiled.gguf: tensor blk.1.ffn_up.weight contains inf");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_equal_those_of_the_converted_folder),
        cmocka_unit_test(losses_equal_those_of_the_converted_folder),
        cmocka_unit_test(merges_equal_those_of_the_converted_folder),
        cmocka_unit_test(files_become_other_files),
        cmocka_unit_test(no_weights_are_copied),
        cmocka_unit_test(a_copy_from_an_earlier_version_is_replaced),
        cmocka_unit_test(any_range_can_be_read),
        cmocka_unit_test(sizes_are_those_of_the_shapes),
        cmocka_unit_test(opening_without_memory_fails_cleanly),
        cmocka_unit_test(a_weight_that_is_no_number_is_named),
    };
    return cmocka_run_group_tests(tests, start, remove_dir);
}
