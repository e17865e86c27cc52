/* Tokenizers against the golden files: every string, id list and chat, equal, no tolerance. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/data/tokenizer_case.h"
#include "tests/golden_files.h"
#include "tests/smollm2.h"

enum { MAX_JSON = 16 * 1024 * 1024 };

/* Rows of NAME/cases.json; returns how many comparisons were made. */
static size_t check_cases(const struct ax_tokenizer *t, const char *file) {
    struct ax_json_doc doc;
    size_t done = 0;
    MUST(ax_json_load(&doc, file, MAX_JSON));
    assert_int_equal(ax_tokenizer_size(t),
                     json_integer_value(json_object_get(doc.root, "vocab_size")));
    json_t *row;
    size_t i;
    json_array_foreach(json_object_get(doc.root, "cases"), i, row) {
        const json_t *text = json_object_get(row, "text"), *ids = json_object_get(row, "ids");
        const json_t *with_special = json_object_get(row, "ids_special");
        assert_encodes(t, text, ids, false);
        assert_encodes(t, text, with_special, true);
        assert_decodes(t, ids, json_object_get(row, "decoded"), false);
        assert_decodes(t, ids, json_object_get(row, "decoded_skip_special"), true);
        done += 4;
    }
    json_array_foreach(json_object_get(doc.root, "decode_only"), i, row) {
        const json_t *ids = json_object_get(row, "ids");
        assert_decodes(t, ids, json_object_get(row, "decoded"), false);
        assert_decodes(t, ids, json_object_get(row, "decoded_skip_special"), true);
        done += 2;
    }
    ax_json_free(&doc);
    return done;
}

/* Rendered conversations, whose special tokens are recognized; rows with an error have no ids. */
static size_t check_chats(const struct ax_tokenizer *t, const char *file) {
    struct ax_json_doc doc;
    size_t done = 0, i;
    json_t *row;
    MUST(ax_json_load(&doc, file, MAX_JSON));
    json_array_foreach(json_object_get(doc.root, "cases"), i, row) {
        if (json_object_get(row, "ids") == NULL)
            continue;
        assert_encodes(t, json_object_get(row, "text"), json_object_get(row, "ids"), false);
        done++;
    }
    ax_json_free(&doc);
    return done;
}

static void check_folder(const char *name, const char *bos, const char *eos) {
    char dir[64], path[4200];
    struct ax_tokenizer *t;
    snprintf(dir, sizeof dir, "tokenizer/%s", name);
    const char *root = golden_path(dir);
    uint64_t live = ax_mem_live_blocks();
    size_t done = 0;
    for (int alone = 0; alone < 2; alone++) {
        snprintf(path, sizeof path, "%s%s", root, alone ? "/tokenizer.json" : "");
        MUST(ax_tokenizer_load(&t, path));
        if (!alone && bos != NULL)
            assert_string_equal(ax_tokenizer_special(t, AX_BOS), bos);
        if (!alone)
            assert_string_equal(ax_tokenizer_special(t, AX_EOS), eos);
        snprintf(path, sizeof path, "%s/cases.json", root);
        done += check_cases(t, path);
        snprintf(path, sizeof path, "%s/chat.json", root);
        done += check_chats(t, path);
        snprintf(path, sizeof path, "%s/chat_chatml.json", root);
        if (ax_path_exists(path))
            done += check_chats(t, path);
        ax_tokenizer_free(t);
    }
    assert_int_equal(ax_mem_live_blocks(), live);
    assert_true(done >= 2 * (4 * 260 + 2 * 40 + 16));
    printf("%s: %zu comparisons\n", name, done);
}

static void llama3_style(void **state) {
    (void)state;
    check_folder("llama3_style", "<|begin_of_text|>", "<|eot_id|>");
}

static void qwen2_style(void **state) {
    (void)state;
    check_folder("qwen2_style", NULL, "<|im_end|>");
}

static void sp_bpe(void **state) {
    (void)state;
    check_folder("sp_bpe", "<s>", "</s>");
}

static void sp_bpe_legacy(void **state) {
    (void)state;
    check_folder("sp_bpe_legacy", "<s>", "</s>");
}

/* A real vocabulary. */
static void smollm2(void **state) {
    (void)state;
    struct ax_tokenizer *t;
    struct ax_json_doc doc;
    size_t i;
    json_t *row;
    MUST(ax_tokenizer_load(&t, smollm2_gguf()));
    MUST(ax_json_load(&doc, golden_path("smollm2/tokenize.json"), MAX_JSON));
    json_array_foreach(json_object_get(doc.root, "cases"), i, row) {
        const json_t *text = json_object_get(row, "text"), *ids = json_object_get(row, "ids");
        const json_t *decoded = json_object_get(row, "decoded");
        assert_encodes(t, text, ids, false);
        assert_decodes(t, ids, decoded != NULL ? decoded : text, false);
    }
    assert_true(i >= 97);
    assert_int_equal(ax_tokenizer_special_id(t, AX_BOS), 1);
    assert_int_equal(ax_tokenizer_special_id(t, AX_EOS), 2);
    assert_int_equal(ax_tokenizer_size(t), 49152);
    ax_json_free(&doc);
    ax_tokenizer_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama3_style),  cmocka_unit_test(qwen2_style), cmocka_unit_test(sp_bpe),
        cmocka_unit_test(sp_bpe_legacy), cmocka_unit_test(smollm2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
