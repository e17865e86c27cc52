/* Mistral's own tokenizer files: ids, texts and conversations of every version equal those of the
 * mistral-common package, and what is wrong with a file is said in one line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "data/text/template/mistral.h"
#include "tests/data/scratch.h"
#include "tests/data/mistral_case.h"

enum { MAX_JSON = 16 * 1024 * 1024 };

#define TEKKEN "tests/data/tekken.json"

static int load_cases(void **state) {
    return load_cases_of(state, "tests/data/tekken_cases.json");
}

static void texts_have_the_packages_ids(void **state) {
    (void)state;
    struct ax_tokenizer *t;
    json_t *row;
    size_t i;
    MUST(ax_tokenizer_load(&t, TEKKEN));
    assert_int_equal(ax_tokenizer_size(t), 588);
    json_array_foreach(member("texts"), i, row) {
        assert_encodes(t, json_object_get(row, "text"), json_object_get(row, "ids"), false);
    }
    json_array_foreach(member("decoded"), i, row) {
        assert_decodes(t, json_object_get(row, "ids"), json_object_get(row, "text"), true);
    }
    struct ax_encoding e = {0};
    const struct ax_encode_options opt = {.add_special_tokens = true};
    MUST(ax_tokenizer_encode(t, "a", 1, &opt, &e));
    assert_int_equal(e.n, 2);
    assert_int_equal(e.ids[0], ax_tokenizer_special_id(t, AX_BOS));
    ax_encoding_free(&e);
    ax_tokenizer_free(t);
}

/* What a file of version v15 says of settings that a conversation does not give. */
static json_t *settings(void) {
    return json_pack("{s{sssssbs[ss]}}", "reasoning_effort", "type", "enum", "default", "none",
                     "accepts_none", 1, "values", "none", "high");
}

/* SCRATCH/tekken.json: the small file with another value at config.KEY, or in place of KEY; with
 * the settings if that makes it v15. */
static void put_file(bool in_config, const char *key, json_t *value) {
    struct ax_json_doc doc;
    char *text;
    size_t len;
    MUST(ax_json_load(&doc, TEKKEN, MAX_JSON));
    json_t *at = in_config ? json_object_get(doc.root, "config") : doc.root;
    const char *version = value && in_config ? json_string_value(value) : NULL;
    if (version && strcmp(version, "v15") == 0)
        json_object_set_new(doc.root, "model_settings_builder", settings());
    assert_int_equal(value ? json_object_set_new(at, key, value) : json_object_del(at, key), 0);
    MUST(ax_json_dump(doc.root, &text, &len));
    put_bytes("tekken.json", text, len);
    ax_free(text);
    ax_json_free(&doc);
}

static void conversations_have_the_packages_ids(void **state) {
    (void)state;
    static const char *const versions[] = {"v3", "v7", "v11", "v13", "v15"};
    json_t *row;
    size_t i, checked = 0;
    for (size_t v = 0; v < sizeof versions / sizeof *versions; v++) {
        struct ax_template *template;
        struct ax_tokenizer *t;
        put_file(true, "version", json_string(versions[v]));
        MUST(ax_tokenizer_load(&t, scratch));
        MUST(ax_template_from_folder(&template, scratch, NULL, false));
        json_array_foreach(member("chats"), i, row) {
            if (strcmp(json_string_value(json_object_get(row, "version")), versions[v]) != 0)
                continue;
            check_chat(template, t, row);
            checked++;
        }
        ax_template_free(template);
        ax_tokenizer_free(t);
    }
    assert_int_equal(checked, json_array_size(member("chats")));
}

/* A conversation of some version, as mistral-common 1.11.7 writes it. */
static void writes(const char *version, const char *effort, const char *messages,
                   const char *want) {
    struct ax_template *template;
    put_file(true, "version", json_string(version));
    MUST(ax_template_from_folder(&template, scratch, NULL, false));
    check_text(template, messages, effort, want);
    ax_template_free(template);
}

#define CALL(id)                                                                                   \
    "{\"id\": \"" id "\", \"type\": \"function\", \"function\": {\"name\": \"f\", "                \
    "\"arguments\": \"\"}}"
/* Results of two calls with one id are written once, in the place of the last. */
static void calls_of_one_id(void **state) {
    (void)state;
    static const char calls[] = "[{\"role\": \"assistant\", \"tool_calls\": [" CALL("a") "," CALL(
        "b") "," CALL("a") "]},"
                           " {\"role\": \"tool\", \"content\": \"1\", \"tool_call_id\": \"a\"},"
                           " {\"role\": \"tool\", \"content\": \"2\", \"tool_call_id\": \"b\"},"
                           " {\"role\": \"tool\", \"content\": \"3\", \"tool_call_id\": \"a\"}]";
    writes("v13", NULL, calls,
           "<s>[TOOL_CALLS]f[ARGS]{}[TOOL_CALLS]f[ARGS]{}[TOOL_CALLS]f[ARGS]{}</s>"
           "[TOOL_RESULTS]2[/TOOL_RESULTS][TOOL_RESULTS]1[/TOOL_RESULTS]"
           "[TOOL_RESULTS]3[/TOOL_RESULTS]");
}

/* An empty line is between texts, and not after a thought. */
static void answers_after_answers(void **state) {
    (void)state;
    static const char answers[] =
        "[{\"role\": \"assistant\", \"content\": \"\", \"reasoning_content\": \"t\"},"
        " {\"role\": \"assistant\", \"content\": \"a\"},"
        " {\"role\": \"assistant\", \"content\": \"\"},"
        " {\"role\": \"assistant\", \"content\": \"b\"},"
        " {\"role\": \"assistant\", \"content\": \"c\", \"reasoning_content\": \"u\"}]";
    writes("v13", NULL, answers, "<s>[THINK]t[/THINK]a\n\nb[THINK]u[/THINK]c</s>");
}

/* v3 has words or calls, also in answers that follow each other. */
static void words_before_calls(void **state) {
    (void)state;
    static const char answers[] = "[{\"role\": \"assistant\", \"content\": \"a\"},"
                                  " {\"role\": \"assistant\", \"tool_calls\": [" CALL("b") "]}]";
    writes("v3", NULL, answers, NULL);
    writes("v11", NULL, answers, "<s>a[TOOL_CALLS]f[CALL_ID]b[ARGS]{}</s>");
}

static void a_conversation_chooses_settings(void **state) {
    (void)state;
    static const char question[] = "[{\"role\": \"user\", \"content\": \"q\"}]";
    writes("v15", NULL, question,
           "<s>[MODEL_SETTINGS]{\"reasoning_effort\": \"none\"}[/MODEL_SETTINGS][INST]q[/INST]");
    writes("v15", "high", question,
           "<s>[MODEL_SETTINGS]{\"reasoning_effort\": \"high\"}[/MODEL_SETTINGS][INST]q[/INST]");
    writes("v15", "low", question, NULL);
}

static json_t *list_of(const char *key, size_t at, const char *field, json_t *value) {
    struct ax_json_doc doc;
    MUST(ax_json_load(&doc, TEKKEN, MAX_JSON));
    json_t *list = json_incref(json_object_get(doc.root, key));
    json_object_set_new(json_array_get(list, at), field, value);
    ax_json_free(&doc);
    return list;
}

static void mistakes_are_said_in_one_line(void **state) {
    (void)state;
    struct {
        bool in_config;
        const char *key;
        json_t *value; /* NULL: left out */
        enum ax_status st;
        const char *part;
    } bad[] = {
        {true, "version", json_string("v17"), AX_ERR_UNSUPPORTED, "\"v17\" is not one of v3, v7"},
        {true, "version", NULL, AX_ERR_DATA, "config.version: missing"},
        {true, "pattern", json_string("("), AX_ERR_DATA, "tekken.json"},
        {true, "default_vocab_size", json_integer(100000), AX_ERR_DATA, "vocab: expected at least"},
        {true, "default_vocab_size", json_integer(200), AX_ERR_DATA, "vocab: expected at least"},
        {true, "default_vocab_size", json_integer(1LL << 40), AX_ERR_DATA, "default_vocab_size"},
        {true, "default_num_special_tokens", json_integer(3), AX_ERR_DATA, "vocab: expected"},
        {false, "special_tokens", list_of("special_tokens", 5, "rank", json_integer(7)),
         AX_ERR_DATA, "special_tokens[5].rank: expected"},
        {false, "vocab", json_array(), AX_ERR_DATA, "vocab: expected at least 256 tokens"},
        {false, "vocab", list_of("vocab", 300, "rank", json_integer(3)), AX_ERR_DATA, "vocab[300]"},
        {false, "vocab", list_of("vocab", 300, "token_bytes", json_string("A")), AX_ERR_DATA,
         "vocab[300].token_bytes: expected 1 to 512 bytes in base64"},
        {false, "vocab", list_of("vocab", 65, "token_bytes", json_string("QkI=")), AX_ERR_DATA,
         "vocab[65].token_bytes: expected the byte 65"},
        {false, "vocab", list_of("vocab", 300, "token_bytes", json_string("QQ==")), AX_ERR_DATA,
         "vocab[300]"},
        {false, "special_tokens", list_of("special_tokens", 5, "token_str", json_string("<s>")),
         AX_ERR_DATA, "\"<s>\" is listed twice"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ax_tokenizer *t;
        put_file(bad[i].in_config, bad[i].key, bad[i].value);
        assert_error(ax_tokenizer_load(&t, in_scratch("tekken.json")), bad[i].st, bad[i].part);
        assert_null(strchr(ax_error_text(), '\n'));
    }
    put_file(true, "version", json_string("v11"));
    struct ax_tokenizer *t;
    MUST(ax_tokenizer_load(&t, scratch));
    ax_tokenizer_free(t);
}

/* A v15 without settings has ids, but says nothing of chats; one may say that there are none. */
static void settings_are_a_part_of_v15(void **state) {
    (void)state;
    static const struct {
        const char *builder;
        enum ax_status st;
        const char *part;
    } rows[] = {
        {"null", AX_ERR_DATA, "model_settings_builder is missing"},
        {"{}", AX_OK, NULL},
        {"{\"reasoning_effort\": null}", AX_OK, NULL},
        {"{\"reasoning_effort\": {}}", AX_ERR_DATA, "reasoning_effort.default: missing"},
        {"{\"reasoning_effort\": {\"default\": \"'}}\"}}", AX_ERR_DATA, "expected a word"},
        {"{\"reasoning_effort\": {\"default\": \"none\"}}", AX_ERR_DATA, "values"},
        {"{\"reasoning_effort\": {\"default\": null, \"values\": [\"'\"]}}", AX_ERR_DATA,
         "values[0]: expected a word"},
        {"{\"reasoning_effort\": {\"default\": null, \"values\": [\"high\"]}}", AX_OK, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ax_json_doc doc;
        struct ax_template *template = NULL;
        char *text;
        size_t len;
        MUST(ax_json_load(&doc, TEKKEN, MAX_JSON));
        json_object_set_new(json_object_get(doc.root, "config"), "version", json_string("v15"));
        json_error_t error;
        json_object_set_new(doc.root, "model_settings_builder",
                            json_loads(rows[i].builder, JSON_DECODE_ANY, &error));
        MUST(ax_json_dump(doc.root, &text, &len));
        put_bytes("tekken.json", text, len);
        const enum ax_status st = ax_template_from_folder(&template, scratch, NULL, false);
        assert_int_equal(st, rows[i].st);
        if (st != AX_OK && !strstr(ax_error_text(), rows[i].part))
            fail_msg("%s", ax_error_text());
        ax_template_free(template);
        ax_free(text);
        ax_json_free(&doc);
    }
}

/* Files up to v7 may leave out the special tokens; all others then have their places' names. */
static void the_first_special_tokens_are_known(void **state) {
    (void)state;
    struct ax_tokenizer *t;
    size_t len;
    put_file(false, "special_tokens", NULL);
    MUST(ax_tokenizer_load(&t, scratch));
    assert_int_equal(ax_tokenizer_find(t, "[TOOL_CONTENT]", 14), 19);
    assert_string_equal(ax_tokenizer_token(t, 20, &len), "<SPECIAL_20>");
    assert_int_equal(ax_tokenizer_special_id(t, AX_PAD), 11);
    int32_t id;
    MUST(ax_tokenizer_add(t, "<new>", false, &id));
    assert_int_equal(id, 588); /* after all others */
    ax_tokenizer_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_have_the_packages_ids),
        cmocka_unit_test(conversations_have_the_packages_ids),
        cmocka_unit_test(calls_of_one_id),
        cmocka_unit_test(answers_after_answers),
        cmocka_unit_test(words_before_calls),
        cmocka_unit_test(a_conversation_chooses_settings),
        cmocka_unit_test(mistakes_are_said_in_one_line),
        cmocka_unit_test(settings_are_a_part_of_v15),
        cmocka_unit_test(the_first_special_tokens_are_known),
    };
    return cmocka_run_group_tests(tests, load_cases, free_cases);
}
