/* tokenizer.json files that are broken, hostile or beyond what axtrain does: a clear error, bounded
 * time and memory, nothing left behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fault.h"
#include "tests/data/tokenizer_case.h"

#define MODEL(vocab, merges)                                                                       \
    "\"model\":{\"type\":\"BPE\",\"vocab\":" vocab ",\"merges\":" merges "}"
#define AB MODEL("{\"a\":0,\"b\":1,\"ab\":2}", "[\"a b\"]")

static enum ax_status parse(const char *text) {
    struct ax_tokenizer *t = NULL;
    uint64_t live = ax_mem_live_blocks();
    enum ax_status st = ax_tokenizer_parse(&t, "t.json", text, strlen(text));
    ax_tokenizer_free(t);
    assert_int_equal(ax_mem_live_blocks(), live);
    return st;
}

static void broken_files_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *part;
    } rows[] = {
        {"", "t.json"},
        {"{", "t.json:1:"},
        {"[]", "expected an object"},
        {"{}", "in the BPE model"},
        {"{\"model\":null}", "in the BPE model"},
        {"{" AB ",}", "t.json:1:"},
        {"{" AB "} x", "t.json:1:"},
        {"{\"model\":{\"vocab\":{},\"merges\":[]}", "t.json:1:"},
        {"{" AB "," AB "}", "t.json"},
        {"{\n" MODEL("{\"a\":0,\n\"b\":x}", "[]") "}", "t.json:3: model.vocab[1]"},
        {"{" MODEL("{\"a\":0,\"b\":1.5}", "[]") "}", "model.vocab[1]: expected \"token\": id"},
        {"{" MODEL("{\"a\":0,\"b\":-1}", "[]") "}", "model.vocab[1]"},
        {"{" MODEL("{\"a\":0,\"b\":01}", "[]") "}", "model.vocab[1]"},
        {"{" MODEL("{\"a\":0,\"a\":1}", "[]") "}", "model.vocab: token \"a\" occurs twice"},
        {"{" MODEL("{\"a\":0,\"b\":0}", "[]") "}", "have the same id 0"},
        {"{" MODEL("{\"a\":2147483648}", "[]") "}", "id 2147483648 is out of range"},
        {"{" MODEL("{\"a\":99999999999999999999999}", "[]") "}", "out of range"},
        {"{" MODEL("{\"a\":2000000}", "[]") "}", "out of range"},
        {"{" MODEL("{\"\\ud800\":0}", "[]") "}", "model.vocab[0]"},
        {"{" MODEL("{\"\\ud800\\u0041\":0}", "[]") "}", "model.vocab[0]"},
        {"{" MODEL("{\"\\q\":0}", "[]") "}", "model.vocab[0]"},
        {"{" MODEL("{\"a\":0}", "[\"a\"]") "}", "merges[0]: expected \"left right\""},
        {"{" MODEL("{\"a\":0}", "[\"a b c\"]") "}", "merges[0]: expected \"left right\""},
        {"{" MODEL("{\"a\":0}", "[[\"a\"]]") "}", "expected [\"left\", \"right\"]"},
        {"{" MODEL("{\"a\":0,\"aa\":1}", "[[\"a\",\"a\"],\"a a\"]") "}", "model.merges[1]"},
        {"{" MODEL("{\"a\":0}", "[\"a a\"]") "}", "merge 0: \"aa\" is not in the vocabulary"},
        {"{" MODEL("{\"a\":0,\"aa\":1}", "[\"a b\"]") "}", "\"b\" is not in the vocabulary"},
        {"{" MODEL("{\"a\":0,\"\":1}", "[[\"a\",\"\"]]") "}", "one side of \"a\" is empty"},
        {"{" MODEL("{\"a\":0}", "{}") "}", "a list \"merges\""},
        {"{" MODEL("[]", "[]") "}", "an object \"vocab\""},
        {"{" AB ",\"normalizer\":{}}", "normalizer.type: missing"},
        {"{" AB ",\"normalizer\":3}", "normalizer.type"},
        {"{" AB ",\"pre_tokenizer\":{\"type\":\"Split\"}}", "pre_tokenizer.pattern"},
        {"{" AB ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},"
         "\"behavior\":\"Isolated\"}}",
         "pre_tokenizer.pattern: bad regular expression"},
        {"{" AB ",\"pre_tokenizer\":{\"type\":\"Punctuation\",\"behavior\":\"Sideways\"}}",
         "unknown behavior \"Sideways\""},
        {"{" AB ",\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"ab\"}}",
         "not one character"},
        {"{" AB ",\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\","
         "\"add_prefix_space\":false,\"prepend_scheme\":\"first\"}}",
         "add_prefix_space is false"},
        {"{" AB ",\"added_tokens\":{}}", "added_tokens: expected a list"},
        {"{" AB ",\"added_tokens\":[{\"id\":3}]}", "added_tokens[0].content: missing"},
        {"{" AB ",\"added_tokens\":[{\"content\":\"a\\u0000\"}]}", "NUL"},
        {"{" AB ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Text\":\"a\"},"
         "\"behavior\":\"Isolated\"}}",
         "expected {\"String\": …} or {\"Regex\": …}"},
        {"{" AB ",\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\","
         "\"prepend_scheme\":\"last\"}}",
         "unknown scheme \"last\""},
        {"{" AB ",\"decoder\":{\"type\":\"Strip\",\"content\":\"  \",\"start\":0,\"stop\":0}}",
         "expected one character"},
        {"{" AB ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[]}}",
         "must contain that text exactly once"},
        {"{" AB ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["
         "{\"SpecialToken\":{\"id\":\"x\"}},{\"Sequence\":{\"id\":\"A\"}}],"
         "\"special_tokens\":{\"x\":{\"ids\":[77]}}}}",
         "adds id 77, which no token has"},
        {"{" AB ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["
         "{\"Sequence\":{\"id\":\"A\"}},{\"SpecialToken\":{\"id\":\"x\"}}],"
         "\"special_tokens\":{\"x\":{\"ids\":[78]}}}}",
         "adds id 78, which no token has"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        MUST_FAIL(parse(rows[i].text), AX_ERR_DATA, rows[i].part);
    MUST_FAIL(parse("{\"a\":\"\xff\"," AB "}"), AX_ERR_DATA, "not UTF-8 at byte 6");
    MUST(parse("{" AB "}"));
    MUST(parse("\xef\xbb\xbf{" AB "}"));
    MUST(parse("{" MODEL("{\"a\":0}", "[\"#version: 0.2\"]") "}"));
}

static void what_axtrain_does_not_do(void **state) {
    (void)state;
    static const char *const models[] = {"Unigram", "WordPiece", "WordLevel"};
    static const char *const parts[][2] = {{"normalizer", "Precompiled"},
                                           {"normalizer", "BertNormalizer"},
                                           {"normalizer", "Nmt"},
                                           {"pre_tokenizer", "BertPreTokenizer"},
                                           {"pre_tokenizer", "UnicodeScripts"},
                                           {"decoder", "WordPiece"},
                                           {"decoder", "CTC"},
                                           {"post_processor", "Other"}};
    char text[512];
    for (size_t i = 0; i < 3; i++) {
        snprintf(text, sizeof text, "{\"model\":{\"type\":\"%s\",\"vocab\":[[\"a\",-1.5]]}}",
                 models[i]);
        MUST_FAIL(parse(text), AX_ERR_UNSUPPORTED, models[i]);
    }
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        snprintf(text, sizeof text, "{" AB ",\"%s\":{\"type\":\"%s\"}}", parts[i][0], parts[i][1]);
        MUST_FAIL(parse(text), AX_ERR_UNSUPPORTED, parts[i][1]);
    }
    MUST_FAIL(parse("{\"model\":{\"vocab\":{},\"merges\":[],\"dropout\":0.1}}"), AX_ERR_UNSUPPORTED,
              "model.dropout");
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < 2; i++) {
        char part[64];
        snprintf(text, sizeof text, "{\"model\":{\"vocab\":{},\"merges\":[],\"%s\":\"##\"}}",
                 affixes[i]);
        snprintf(part, sizeof part, "%s \"##\"", affixes[i]);
        MUST_FAIL(parse(text), AX_ERR_UNSUPPORTED, part);
        snprintf(text, sizeof text, "{\"model\":{\"vocab\":{},\"merges\":[],\"%s\":\"\"}}",
                 affixes[i]);
        MUST(parse(text));
    }
    MUST_FAIL(parse("{\"version\":\"2.0\"," AB "}"), AX_ERR_UNSUPPORTED, "version \"2.0\"");
    MUST(parse("{\"model\":{\"vocab\":{},\"merges\":[],\"dropout\":0.0}}"));
}

/* prefix, n times unit, suffix */
static void parse_repeated(const char *prefix, const char *unit, size_t n, const char *suffix,
                           enum ax_status want) {
    struct ax_buf text = {0};
    MUST(ax_buf_puts(&text, prefix));
    for (size_t i = 0; i < n; i++)
        MUST(ax_buf_puts(&text, unit));
    MUST(ax_buf_puts(&text, suffix));
    double t0 = ax_clock_now();
    assert_int_equal(parse(text.data), want);
    assert_true(ax_clock_now() - t0 < 20);
    ax_buf_free(&text);
}

static void deep_and_large_files(void **state) {
    (void)state;
    parse_repeated("", "[", 100000, "", AX_ERR_DATA);
    parse_repeated("{\"x\":", "{\"x\":", 100000, "", AX_ERR_DATA);
    parse_repeated("{\"normalizer\":", "{\"type\":\"Sequence\",\"normalizers\":[", 300, "",
                   AX_ERR_DATA);
    parse_repeated("{" AB ",\"x\":[", "[],", 300000, "[]]}", AX_OK);
    parse_repeated("{" AB ",\"x\":", "9", 1000000, "}", AX_ERR_DATA); /* too large for any number */
    parse_repeated("{" AB ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[",
                   "{\"type\":\"WhitespaceSplit\"},", 16, "{\"type\":\"WhitespaceSplit\"}]}}",
                   AX_ERR_UNSUPPORTED);
    struct ax_buf many = {0};
    MUST(ax_buf_puts(&many, "{" AB ",\"added_tokens\":["));
    for (int i = 0; i < 50000; i++)
        MUST(ax_buf_printf(&many, "%s{\"content\":\"<%d>\",\"special\":true}", i ? "," : "", i));
    MUST(ax_buf_puts(&many, "]}"));
    double t0 = ax_clock_now();
    MUST(parse(many.data));
    assert_true(ax_clock_now() - t0 < 20);
    ax_buf_free(&many);
    parse_repeated("{" AB ",\"added_tokens\":[{\"content\":\"", "x", 5000, "\"}]}", AX_ERR_DATA);
}

/* A split rule that backtracks for ever gives an error while encoding. */
static void slow_rules_give_up(void **state) {
    (void)state;
    static const char json[] =
        "{" AB ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(a+)+b\"},"
        "\"behavior\":\"Isolated\"}}";
    struct ax_tokenizer *t;
    struct ax_encoding e = {0};
    const struct ax_encode_options opt = {0};
    char text[203];
    memset(text, 'a', sizeof text);
    memcpy(text + 200, "cb", 3);
    MUST(ax_tokenizer_parse(&t, "t", json, strlen(json)));
    MUST_FAIL(ax_tokenizer_encode(t, text, 202, &opt, &e), AX_ERR_DATA, "too slow");
    assert_int_equal(e.n, 0);
    MUST(ax_tokenizer_encode(t, "aab", 3, &opt, &e)); /* and is fit for use after it */
    assert_int_equal(e.n, 2);
    ax_encoding_free(&e);
    ax_tokenizer_free(t);
}

static void text_must_be_utf8(void **state) {
    (void)state;
    struct ax_tokenizer *t;
    struct ax_encoding e = {0};
    const struct ax_encode_options opt = {0};
    MUST(ax_tokenizer_parse(&t, "t", "{" AB "}", strlen("{" AB "}")));
    MUST_FAIL(ax_tokenizer_encode(t, "ab\xff", 3, &opt, &e), AX_ERR_DATA, "0xff at offset 2");
    MUST_FAIL(ax_tokenizer_encode(t, "\xe4\xbd", 2, &opt, &e), AX_ERR_DATA, "at offset 0");
    MUST(ax_tokenizer_encode(t, "a\0b", 3, &opt, &e));
    assert_int_equal(e.n, 1); /* NUL has no token, nor is there an unk_token: a and b meet */
    assert_int_equal(e.ids[0], 2);
    ax_encoding_free(&e);
    ax_tokenizer_free(t);
}

/* The model's unk_token is not in its vocabulary: an error where it is needed, as in HF's. */
static void unk_token_that_is_missing(void **state) {
    (void)state;
    static const char json[] =
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[],\"unk_token\":\"<unk>\"}}";
    struct ax_tokenizer *t;
    struct ax_encoding e = {0};
    const struct ax_encode_options opt = {0};
    MUST(ax_tokenizer_parse(&t, "t", json, strlen(json)));
    MUST(ax_tokenizer_encode(t, "aa", 2, &opt, &e));
    MUST_FAIL(ax_tokenizer_encode(t, "ax", 2, &opt, &e), AX_ERR_DATA, "no token for \"x\"");
    assert_int_equal(e.n, 2);
    ax_encoding_free(&e);
    ax_tokenizer_free(t);
}

static const char whole[] =
    "{\"added_tokens\":[{\"content\":\"<x>\",\"special\":true},{\"content\":\"Q\","
    "\"normalized\":true}],\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":"
    "\"NFC\"},"
    "{\"type\":\"Lowercase\"},{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"c+\"},"
    "\"content\":\"c\"}]},\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\p{L}+\"},\"behavior\":\"Isolated\","
    "\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_space\":true}]},\"decoder\":{\"type\":"
    "\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"z\"},\"content\":"
    "\"\"},{\"type\":\"ByteFallback\"},{\"type\":\"ByteLevel\"}]}," AB "}";

static enum ax_status use_once(void) {
    struct ax_tokenizer *t = NULL;
    struct ax_encoding e = {0};
    struct ax_buf text = {0};
    struct ax_decode_stream *s = NULL;
    const struct ax_encode_options opt = {.spans = true};
    static const char input[] = "aabb <x>\xc3\x80"
                                "e\xcc\x81 ccQab abababababababababababababababababab";
    int32_t id;
    enum ax_status st;
    AX_TRY_GOTO(ax_tokenizer_parse(&t, "t", whole, strlen(whole)), st, done);
    AX_TRY_GOTO(ax_tokenizer_add(t, "<new>", true, &id), st, done);
    AX_TRY_GOTO(ax_tokenizer_set_special(t, AX_EOS, "<eos>"), st, done);
    AX_TRY_GOTO(ax_tokenizer_rename(t, id, "<newer>"), st, done);
    AX_TRY_GOTO(ax_tokenizer_encode(t, input, strlen(input), &opt, &e), st, done);
    AX_TRY_GOTO(ax_tokenizer_decode(t, e.ids, e.n, false, &text), st, done);
    AX_TRY_GOTO(ax_decode_stream_new(&s, t, true), st, done);
    AX_TRY_GOTO(ax_decode_stream_step(s, 0, &text), st, done);
    st = ax_decode_stream_finish(s, &text);
done:
    ax_decode_stream_free(s);
    ax_buf_free(&text);
    ax_encoding_free(&e);
    ax_tokenizer_free(t);
    return st;
}

/* Each allocation fails in turn: a clean error, nothing left. */
/* Steps that make five bytes of one, eight times in a row: 11 bytes would be 4 MB, and with twelve steps 2.7 GB. */
static void text_is_not_multiplied(void **state) {
    (void)state;
    static const char step[] =
        "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aaaaa\"}";
    static const char *const chains[] = {"normalizer\":{\"type\":\"Sequence\",\"normalizers",
                                         "decoder\":{\"type\":\"Sequence\",\"decoders"};
    for (int k = 0; k < 2; k++) {
        struct ax_buf json = {0}, text = {0};
        struct ax_tokenizer *t = NULL;
        struct ax_encoding e = {0};
        const int32_t ids[11] = {0};
        assert_int_equal(ax_buf_printf(&json, "{" AB ",\"%s\":[%s", chains[k], step), AX_OK);
        for (int i = 1; i < 12; i++)
            assert_int_equal(ax_buf_printf(&json, ",%s", step), AX_OK);
        assert_int_equal(ax_buf_puts(&json, "]}}"), AX_OK);
        assert_int_equal(ax_tokenizer_parse(&t, "t.json", json.data, json.len), AX_OK);
        const double start = ax_clock_now();
        if (k == 0)
            assert_int_equal(
                ax_tokenizer_encode(t, "aaaaaaaaaaa", 11, &(struct ax_encode_options){0}, &e),
                AX_ERR_DATA);
        else
            assert_int_equal(ax_tokenizer_decode(t, ids, 11, false, &text), AX_ERR_DATA);
        assert_true(ax_clock_now() - start < 1);
        assert_non_null(strstr(ax_error_text(), k == 0 ? "tokenizer.json: step 3 of the normalizer "
                                                         "makes of 11 bytes of text: more than 960"
                                                       : "tokenizer.json: the decoder makes"));
        ax_encoding_free(&e);
        ax_tokenizer_free(t);
        ax_buf_free(&json);
        ax_buf_free(&text);
    }
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    MUST(use_once());
    uint64_t live = ax_mem_live_blocks();
    int k = 1;
    for (;; k++) {
        char spec[40];
        snprintf(spec, sizeof spec, "malloc:%d:enomem", k);
        MUST(ax_fault_configure(spec));
        enum ax_status st = use_once();
        bool fired = ax_fault_fired();
        MUST(ax_fault_configure(NULL));
        if (!fired) {
            assert_int_equal(st, AX_OK);
            break;
        }
        if (st != AX_OK && st != AX_ERR_NOMEM)
            fail_msg("allocation %d: %s", k, ax_error_text());
        assert_int_equal(ax_mem_live_blocks(), live);
    }
    printf("%d allocations\n", k - 1);
    assert_true(k > 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broken_files_are_refused), cmocka_unit_test(what_axtrain_does_not_do),
        cmocka_unit_test(deep_and_large_files),     cmocka_unit_test(slow_rules_give_up),
        cmocka_unit_test(text_must_be_utf8),        cmocka_unit_test(unk_token_that_is_missing),
        cmocka_unit_test(text_is_not_multiplied),   cmocka_unit_test(every_allocation_may_fail),
    };
    ax_log_set_level(AX_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
