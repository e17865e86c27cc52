/* GGUF vocabularies: the split rules against the shared table, the llama kind against a plain
 * rendering of SentencePiece's algorithm, defaults, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "ckpt/gguf/gguf.h"
#include "data/text/tokenizer/split_rules.h"
#include "tests/data/random_text.h"
#include "tests/data/tokenizer_case.h"
#include "tests/golden_files.h"

#define TEXT(s)                                                                                    \
    { (s), sizeof(s) - 1 }
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static void split_rules_equal_the_table(void **state) {
    (void)state;
    struct ax_json_doc doc;
    size_t i, k, names = 0;
    json_t *family, *name, *rule;
    MUST(ax_json_load(&doc, golden_path("gguf/pre_tokenizers.json"), 1 << 20));
    json_array_foreach(json_object_get(doc.root, "families"), i, family) {
        json_array_foreach(json_object_get(family, "names"), k, name) {
            const struct ax_split_rules *r = ax_split_rules_find(json_string_value(name));
            size_t n;
            assert_non_null(r);
            assert_int_equal(r->whole_word, json_is_true(json_object_get(family, "whole_word")));
            json_array_foreach(json_object_get(family, "rules"), n, rule) {
                assert_non_null(r->rules[n]);
                assert_string_equal(r->rules[n], json_string_value(rule));
            }
            assert_null(r->rules[n]);
            names++;
        }
    }
    ax_json_free(&doc);
    for (i = 0; i < ax_split_rules_count; i++)
        for (k = 0; ax_split_rules[i].names[k] != NULL; k++)
            names--;
    assert_int_equal(names, 0);
}

/* --- the llama kind --- */

static const struct ax_gguf_text pieces[] = {
    TEXT("<unk>"),
    TEXT("<s>"),
    TEXT("</s>"),
    TEXT("<0x0A>"),
    TEXT("<0xC3>"),
    TEXT("<0xA9>"),
    TEXT("<user>"),
    TEXT("\xe2\x96\x81"),
    TEXT("a"),
    TEXT("b"),
    TEXT("c"),
    TEXT("\xe2\x96\x81\xe2\x96\x81"),
    TEXT("\xe2\x96\x81\xe2\x96\x81\xe2\x96\x81"),
    TEXT("\xe2\x96\x81"
         "a"),
    TEXT("ab"),
    TEXT("bc"),
    TEXT("abc"),
    TEXT("\xe2\x96\x81"
         "ab"),
    TEXT("ca"),
    TEXT("x\xc3\xa9") /* although neither x nor é is a piece */,
    TEXT("cab"),
    TEXT("b\xe2\x96\x81")};
static const int32_t piece_types[] = {2, 3, 3, 6, 6, 6, 4, 1, 1, 1, 1,
                                      1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 5};
static const float piece_scores[] = {0,  0,  0,  0,  0,  0,  0,  -9, -9, -9, -9,
                                     -5, -5, -2, -3, -3, -7, -1, -3, -4, -6, -8};

static struct ax_gguf_vocab llama_vocab(void) {
    return (struct ax_gguf_vocab){.name = "t.gguf",
                                  .model = "llama",
                                  .n_tokens = COUNT(pieces),
                                  .tokens = pieces,
                                  .types = piece_types,
                                  .scores = piece_scores,
                                  .bos = 1,
                                  .eos = 2,
                                  .unk = 0,
                                  .pad = -1,
                                  .add_bos = -1,
                                  .add_eos = -1,
                                  .add_space_prefix = -1};
}

static int32_t piece_id(const char *s, size_t len) {
    for (size_t i = 0; i < COUNT(pieces); i++)
        if (pieces[i].len == len && memcmp(pieces[i].s, s, len) == 0)
            return (int32_t)i;
    return AX_NO_TOKEN;
}

/* SentencePiece on text whose blanks are ▁ already: join the two neighbors whose string has the
 * best score, the leftmost of equals, as long as there are any. */
static size_t naive_llama(const char *s, size_t len, int32_t *out) {
    size_t start[400], count = 0, n = 0, k;
    for (size_t i = 0; i < len; i += k) {
        start[count++] = i;
        (void)ax_utf8_decode((const unsigned char *)s + i, &k);
    }
    start[count] = len;
    for (;;) {
        size_t best = count;
        int32_t best_id = AX_NO_TOKEN;
        for (size_t i = 0; i + 1 < count; i++) {
            int32_t id = piece_id(s + start[i], start[i + 2] - start[i]);
            if (id != AX_NO_TOKEN && (best == count || piece_scores[id] > piece_scores[best_id])) {
                best = i;
                best_id = id;
            }
        }
        if (best == count)
            break;
        memmove(&start[best + 1], &start[best + 2], (count - best - 1) * sizeof *start);
        count--;
    }
    for (size_t i = 0; i < count; i++) {
        int32_t id = piece_id(s + start[i], start[i + 1] - start[i]);
        for (size_t b = start[i]; id == AX_NO_TOKEN && b < start[i + 1]; b++) {
            char code[8];
            snprintf(code, sizeof code, "<0x%02X>", (unsigned char)s[b]);
            int32_t byte = piece_id(code, 6);
            out[n++] = byte != AX_NO_TOKEN ? byte : 0;
        }
        if (id != AX_NO_TOKEN)
            out[n++] = id;
    }
    return n;
}

static void llama_equals_sentencepiece(void **state) {
    (void)state;
    struct text_rng r = {.key = {.seed = 23}};
    struct ax_gguf_vocab v = llama_vocab();
    struct ax_tokenizer *t;
    struct ax_encoding e = {0};
    const struct ax_encode_options opt = {0};
    v.add_space_prefix = 0;
    MUST(ax_tokenizer_from_gguf(&t, &v));
    for (int k = 0; k < 5000; k++) {
        static const char *const units[] = {"a", "b", "c", " ", "\xc3\xa9", "x", "\n", "y", "ab"};
        char text[256] = "", escaped[768] = "";
        int32_t want[800];
        for (uint32_t n = below(&r, 60); n > 0; n--) {
            const char *u = units[below(&r, k % 2 ? 4 : COUNT(units))];
            strcat(text, u);
            strcat(escaped, *u == ' ' ? "\xe2\x96\x81" : u);
        }
        size_t n = naive_llama(escaped, strlen(escaped), want);
        e.n = 0;
        MUST(ax_tokenizer_encode(t, text, strlen(text), &opt, &e));
        assert_int_equal(e.n, n);
        assert_memory_equal(e.ids, want, n * sizeof *want);
    }
    ax_encoding_free(&e);
    ax_tokenizer_free(t);
}

static void assert_text(const struct ax_tokenizer *t, const char *text, bool special, bool plain,
                        const char *want) {
    struct ax_encoding e = {0};
    struct ax_buf got = {0};
    const struct ax_encode_options opt = {.add_special_tokens = special, .plain = plain};
    MUST(ax_tokenizer_encode(t, text, strlen(text), &opt, &e));
    for (size_t i = 0; i < e.n; i++)
        MUST(ax_buf_printf(&got, "%s%d", i > 0 ? " " : "", e.ids[i]));
    assert_string_equal(got.data != NULL ? got.data : "", want);
    ax_encoding_free(&e);
    ax_buf_free(&got);
}

/* A blank before each stretch of text, even where it begins with one; specials of types 2, 3 and 4.
 */
static void llama_defaults(void **state) {
    (void)state;
    struct ax_gguf_vocab v = llama_vocab();
    struct ax_tokenizer *t;
    MUST(ax_tokenizer_from_gguf(&t, &v));
    assert_text(t, "", true, false, "1");
    assert_text(t, "ab", true, false, "1 17");
    assert_text(t, " ab", false, false, "7 17");
    assert_text(t, "a<s>ab<user>\n", false, false, "13 1 17 6 7 3");
    assert_text(t, "a<user>b", false, true, "13 6 7 9");
    assert_text(t, "\xc3\xa9x\xc3\xa9", false, false, "7 4 5 19");
    const int32_t ids[] = {1, 17, 4, 5, 13, 2};
    struct ax_buf text = {0};
    MUST(ax_tokenizer_decode(t, ids, COUNT(ids), false, &text));
    assert_string_equal(text.data, "<s> ab\xc3\xa9 a</s>");
    text.len = 0;
    MUST(ax_tokenizer_decode(t, ids, COUNT(ids), true, &text));
    assert_string_equal(text.data, "ab\xc3\xa9 a");
    ax_buf_free(&text);
    assert_string_equal(ax_tokenizer_special(t, AX_EOS), "</s>");
    assert_null(ax_tokenizer_special(t, AX_PAD));
    assert_true(ax_tokenizer_is_special(t, 0));
    assert_false(ax_tokenizer_is_special(t, 6));
    ax_tokenizer_free(t);
    v.add_bos = 0;
    v.add_eos = 1;
    MUST(ax_tokenizer_from_gguf(&t, &v));
    assert_text(t, "a", true, false, "13 2");
    ax_tokenizer_free(t);
}

/* --- the gpt2 kind --- */

static const struct ax_gguf_text bytes[] = {TEXT("a"),
                                            TEXT("b"),
                                            TEXT("\xc4\xa0"),
                                            TEXT("1"),
                                            TEXT("ab"),
                                            TEXT("\xc4\xa0"
                                                 "a"),
                                            TEXT("11"),
                                            TEXT("\xc4\xa0"
                                                 "ab"),
                                            TEXT("<|x|>"),
                                            TEXT("")};
static const int32_t byte_types[] = {1, 1, 1, 1, 1, 1, 1, 1, 3, 1};
static const struct ax_gguf_text merges[] = {TEXT("a b"), TEXT("\xc4\xa0 a"), TEXT("1 1")};

static struct ax_gguf_vocab gpt2_vocab(const char *pre) {
    return (struct ax_gguf_vocab){.name = "t.gguf",
                                  .model = "gpt2",
                                  .pre = pre,
                                  .n_tokens = COUNT(bytes),
                                  .n_merges = COUNT(merges),
                                  .tokens = bytes,
                                  .types = byte_types,
                                  .merges = merges,
                                  .bos = 8,
                                  .eos = 8,
                                  .unk = -1,
                                  .pad = -1,
                                  .add_bos = -1,
                                  .add_eos = -1,
                                  .add_space_prefix = -1};
}

static void gpt2_follows_its_rule(void **state) {
    (void)state;
    static const struct {
        const char *pre, *text, *want;
    } rows[] = {
        {"gpt-2", "ab ab11<|x|>a", "4 2 4 6 8 0"},
        {"smollm", "ab11", "4 3 3"},         /* each digit alone */
        {"llama-bpe", "ab ab11", "8 4 7 6"}, /* Ġab is a token; BOS by default */
        {"qwen2", "11", "3 3"},
        {"dbrx", " ab", "7"},
    };
    struct ax_tokenizer *t;
    size_t len;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct ax_gguf_vocab v = gpt2_vocab(rows[i].pre);
        MUST(ax_tokenizer_from_gguf(&t, &v));
        assert_text(t, rows[i].text, true, false, rows[i].want);
        assert_int_equal(ax_tokenizer_size(t), COUNT(bytes));
        assert_int_equal(ax_tokenizer_token(t, 9, &len)[1], 'E'); /* [EMPTY_9] */
        ax_tokenizer_free(t);
    }
}

/* A blank before the text only if the file asks for one, unlike Llama's. */
static void gemma4_adds_no_blank(void **state) {
    (void)state;
    static const struct ax_gguf_text tokens[] = {TEXT("a"), TEXT("\xe2\x96\x81"),
                                                 TEXT("\xe2\x96\x81"
                                                      "a")};
    static const int32_t types[] = {1, 1, 1};
    static const struct ax_gguf_text joins[] = {TEXT("\xe2\x96\x81 a")};
    static const struct {
        int prefix;
        const char *text, *want;
    } rows[] = {{-1, "a", "0"}, {-1, " a a", "2 2"}, {0, "a", "0"},
                {0, " a", "2"}, {1, "a", "2"},       {1, "a a", "2 2"}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct ax_gguf_vocab v = gpt2_vocab(NULL);
        struct ax_tokenizer *t;
        v.model = "gemma4";
        v.tokens = tokens;
        v.types = types;
        v.n_tokens = COUNT(tokens);
        v.merges = joins;
        v.n_merges = COUNT(joins);
        v.bos = v.eos = -1;
        v.add_space_prefix = rows[i].prefix;
        MUST(ax_tokenizer_from_gguf(&t, &v));
        assert_text(t, rows[i].text, true, false, rows[i].want);
        ax_tokenizer_free(t);
    }
}

/* --- refusals --- */

static void bad_vocabularies_are_refused(void **state) {
    (void)state;
    struct ax_tokenizer *t;
    uint64_t live = ax_mem_live_blocks();
    struct ax_gguf_vocab v = gpt2_vocab(NULL);
    MUST_FAIL(ax_tokenizer_from_gguf(&t, &v), AX_ERR_DATA, "tokenizer.ggml.pre is missing");
    v = gpt2_vocab("gpt-2");
    v.n_merges = 0;
    MUST_FAIL(ax_tokenizer_from_gguf(&t, &v), AX_ERR_DATA, "merges: missing");
    v = gpt2_vocab("default");
    MUST_FAIL(ax_tokenizer_from_gguf(&t, &v), AX_ERR_UNSUPPORTED, "\"default\" is not supported");
    v = gpt2_vocab("gpt-2");
    v.model = "bert";
    MUST_FAIL(ax_tokenizer_from_gguf(&t, &v), AX_ERR_UNSUPPORTED, "\"bert\" is not supported");
    v = gpt2_vocab("gpt-2");
    v.bos = 10;
    MUST_FAIL(ax_tokenizer_from_gguf(&t, &v), AX_ERR_DATA, "bos_token: id 10");
    v.bos = -1;
    v.add_bos = 1;
    MUST_FAIL(ax_tokenizer_from_gguf(&t, &v), AX_ERR_DATA, "the bos id is missing");
    v = gpt2_vocab("gpt-2");
    v.n_tokens = 0;
    MUST_FAIL(ax_tokenizer_from_gguf(&t, &v), AX_ERR_DATA, "missing or empty");

    static const struct ax_gguf_text bad_merges[][1] = {{TEXT("ab")}, {TEXT("a x")}, {TEXT("b a")}};
    static const char *const parts[] = {"expected \"left right\"", "\"x\" is not in", "\"ba\""};
    for (size_t i = 0; i < COUNT(bad_merges); i++) {
        v = gpt2_vocab("gpt-2");
        v.merges = bad_merges[i];
        v.n_merges = 1;
        MUST_FAIL(ax_tokenizer_from_gguf(&t, &v), AX_ERR_DATA, parts[i]);
    }
    static const struct ax_gguf_text twice[] = {TEXT("a"), TEXT("a")};
    v = gpt2_vocab("gpt-2");
    v.tokens = twice;
    v.n_tokens = 2;
    MUST_FAIL(ax_tokenizer_from_gguf(&t, &v), AX_ERR_DATA, "occurs twice");
    static const int32_t types[] = {1, 1, 1, 1, 1, 1, 1, 1, 9, 1};
    v = gpt2_vocab("gpt-2");
    v.types = types;
    MUST_FAIL(ax_tokenizer_from_gguf(&t, &v), AX_ERR_DATA, "unknown type 9");
    v = llama_vocab();
    v.scores = NULL;
    MUST_FAIL(ax_tokenizer_from_gguf(&t, &v), AX_ERR_DATA, "scores: missing");
    assert_int_equal(ax_mem_live_blocks(), live);
}

/* Strings of any bytes: kept apart, and decoded as U+FFFD. */
static void tokens_that_are_not_utf8(void **state) {
    (void)state;
    static const struct ax_gguf_text odd[] = {TEXT("\xff"), TEXT("a"), TEXT("\xfe"),
                                              TEXT("\xef\xbf\xbd")};
    static const float scores[] = {0, 0, 0, 0};
    struct ax_gguf_vocab v = llama_vocab();
    struct ax_tokenizer *t;
    struct ax_buf text = {0};
    v.tokens = odd;
    v.scores = scores;
    v.types = NULL;
    v.n_tokens = 4;
    v.bos = v.eos = v.unk = -1;
    MUST(ax_tokenizer_from_gguf(&t, &v));
    MUST(ax_tokenizer_decode(t, (const int32_t[]){0, 1, 3}, 3, false, &text));
    assert_string_equal(text.data, "[INVALID_0]a\xef\xbf\xbd");
    ax_buf_free(&text);
    ax_tokenizer_free(t);
    v.n_tokens = 3;
    MUST(ax_tokenizer_from_gguf(&t, &v));
    MUST(ax_tokenizer_decode(t, (const int32_t[]){0, 1}, 2, false, &text));
    assert_string_equal(text.data, "\xef\xbf\xbd"
                                   "a");
    ax_buf_free(&text);
    ax_tokenizer_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(split_rules_equal_the_table),
        cmocka_unit_test(llama_equals_sentencepiece),
        cmocka_unit_test(llama_defaults),
        cmocka_unit_test(gpt2_follows_its_rule),
        cmocka_unit_test(gemma4_adds_no_blank),
        cmocka_unit_test(bad_vocabularies_are_refused),
        cmocka_unit_test(tokens_that_are_not_utf8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
