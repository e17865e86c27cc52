/* Kimi's tokenizer files: ids and texts equal those of the tiktoken package, and what is wrong with a file is said in one
 * line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/data/scratch.h"
#include "tests/data/mistral_case.h"

#define KIMI "tests/data/kimi"

enum { TOKENS = 900, SPECIALS = 258, MAX_FILE = 1 << 20 };

static int load_cases(void **state) {
    return load_cases_of(state, KIMI "/cases.json");
}

static void texts_have_the_packages_ids(void **state) {
    (void)state;
    struct ax_tokenizer *t;
    json_t *row;
    size_t i;
    assert_true(ax_tokenizer_is_in(KIMI));
    MUST(ax_tokenizer_load(&t, KIMI));
    assert_int_equal(ax_tokenizer_size(t), TOKENS + SPECIALS);
    json_array_foreach(member("texts"), i, row) {
        assert_encodes(t, json_object_get(row, "text"), json_object_get(row, "ids"), false);
    }
    json_array_foreach(member("decoded"), i, row) {
        assert_decodes(t, json_object_get(row, "ids"), json_object_get(row, "text"), false);
    }
    ax_tokenizer_free(t);
}

static void special_tokens_are_those_of_the_config(void **state) {
    (void)state;
    struct ax_tokenizer *t;
    size_t len;
    MUST(ax_tokenizer_load(&t, KIMI));
    assert_int_equal(ax_tokenizer_special_id(t, AX_BOS), TOKENS);
    assert_int_equal(ax_tokenizer_special_id(t, AX_EOS), TOKENS + 1);
    assert_int_equal(ax_tokenizer_special_id(t, AX_PAD), TOKENS + 257);
    assert_int_equal(ax_tokenizer_find(t, "<|tool_call_begin|>", 19), TOKENS + 11);
    assert_string_equal(ax_tokenizer_token(t, TOKENS + 5, &len), "<|reserved_token_905|>");
    /* of the skipped ones, a call's is not special */
    const int32_t ids[] = {TOKENS, TOKENS + 2, TOKENS + 11, TOKENS + 1};
    struct ax_buf text = {0};
    MUST(ax_tokenizer_decode(t, ids, 4, true, &text));
    assert_int_equal(text.len, 19);
    assert_memory_equal(text.data, "<|tool_call_begin|>", 19);
    ax_buf_free(&text);
    /* nothing is put around a text */
    struct ax_encoding e = {0};
    const struct ax_encode_options opt = {.add_special_tokens = true};
    MUST(ax_tokenizer_encode(t, "a", 1, &opt, &e));
    assert_int_equal(e.n, 1);
    ax_encoding_free(&e);
    ax_tokenizer_free(t);
}

/* SCRATCH/tiktoken.model, in which the first `from` is `to`. */
static void put_tokens(const char *from, const char *to) {
    struct ax_buf b = {0};
    char *text;
    size_t len;
    MUST(ax_read_file(KIMI "/tiktoken.model", MAX_FILE, &text, &len));
    const char *at = strstr(text, from);
    assert_non_null(at);
    MUST(ax_buf_printf(&b, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from)));
    put_bytes("tiktoken.model", b.data, b.len);
    ax_buf_free(&b);
    ax_free(text);
}

static void mistakes_are_said_in_one_line(void **state) {
    (void)state;
    static const struct {
        const char *from, *to, *config;
        enum ax_status st;
        const char *part;
    } bad[] = {
        {"Ig== 1\n", "Ig==  1\n", "{}", AX_ERR_DATA, "line 2: expected a blank and the rank"},
        {"Ig== 1\n", "Ig== 2\n", "{}", AX_ERR_DATA, "line 2: expected a blank and the rank"},
        {"Ig== 1\n", "Ig==\n", "{}", AX_ERR_DATA, "line 2: expected a blank and the rank"},
        {"Ig== 1\n", "Ig=! 1\n", "{}", AX_ERR_DATA, "line 2: expected 1 to 512 bytes in base64"},
        {"Ig== 1\n", "\n", "{}", AX_ERR_DATA, "line 2: expected 1 to 512 bytes in base64"},
        {"Ig== 1\n", "IQ== 1\n", "{}", AX_ERR_DATA, "line 2: "},
        {"Ig== 1\n", "ISE= 1\n", "{}", AX_ERR_DATA, "byte 34 is no token"},
        {"", "", "{\"tokenizer_class\": \"HYTokenizer\"}", AX_ERR_UNSUPPORTED,
         "a tiktoken.model of HYTokenizer is not supported"},
        {"", "", "{\"added_tokens_decoder\": {\"899\": {\"content\": \"a\"}}}", AX_ERR_DATA,
         "expected an id from 900 to 1157"},
        {"", "", "{\"added_tokens_decoder\": {\"1158\": {\"content\": \"a\"}}}", AX_ERR_DATA,
         "expected an id from 900 to 1157"},
        {"", "", "{\"added_tokens_decoder\": {\"900x\": {\"content\": \"a\"}}}", AX_ERR_DATA,
         "expected an id from 900 to 1157"},
        {"", "", "{\"added_tokens_decoder\": {\"900\": {}}}", AX_ERR_DATA, "content: missing"},
        {"", "",
         "{\"added_tokens_decoder\": {\"900\": {\"content\": \"a\"}, \"901\": "
         "{\"content\": \"a\"}}}",
         AX_ERR_DATA, "the token \"a\" has two ids"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ax_tokenizer *t;
        put_tokens(bad[i].from, bad[i].to);
        put_bytes("tokenizer_config.json", bad[i].config, strlen(bad[i].config));
        assert_error(ax_tokenizer_load(&t, scratch), bad[i].st, bad[i].part);
        assert_null(strchr(ax_error_text(), '\n'));
    }
    put_tokens("", "");
    assert_int_equal(ax_remove_tree(in_scratch("tokenizer_config.json")), AX_OK);
    struct ax_tokenizer *t;
    MUST(ax_tokenizer_load(&t, scratch)); /* all special tokens are reserved */
    assert_int_equal(ax_tokenizer_find(t, "<|reserved_token_900|>", 22), TOKENS);
    ax_tokenizer_free(t);
}

/* Kimi's models have embeddings of 256 special tokens; [PAD] is the last of most. */
static void unnamed_ids_at_the_end_are_none(void **state) {
    (void)state;
    static const struct {
        int pad, specials;
    } pads[] = {{0, 256}, {255, 256}, {256, 257}, {257, 258}};
    put_tokens("", "");
    for (size_t i = 0; i < sizeof pads / sizeof *pads; i++) {
        char config[100];
        struct ax_tokenizer *t;
        const int n = snprintf(config, sizeof config,
                               "{\"added_tokens_decoder\": {\"%d\": {\"content\": \"[PAD]\"}}}",
                               TOKENS + pads[i].pad);
        put_bytes("tokenizer_config.json", config, (size_t)n);
        MUST(ax_tokenizer_load(&t, scratch));
        assert_int_equal(ax_tokenizer_size(t), TOKENS + pads[i].specials);
        assert_int_equal(ax_tokenizer_find(t, "[PAD]", 5), TOKENS + pads[i].pad);
        ax_tokenizer_free(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_have_the_packages_ids),
        cmocka_unit_test(special_tokens_are_those_of_the_config),
        cmocka_unit_test(mistakes_are_said_in_one_line),
        cmocka_unit_test(unnamed_ids_at_the_end_are_none),
    };
    return cmocka_run_group_tests(tests, load_cases, free_cases);
}
