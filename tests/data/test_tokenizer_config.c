/* Model folders: tokenizer_config.json, special_tokens_map.json, and changes after loading. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <fcntl.h>
#include <unistd.h>

#include "tests/data/tokenizer_case.h"

static char dir[64];

static const char model[] =
    "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"<s>\":3,\"</s>\":4,\"<\":5,"
    "\"s\":6,\">\":7,\"p\":8},\"merges\":[\"a "
    "b\"]},\"added_tokens\":[{\"id\":3,\"content\":\"<s>\","
    "\"special\":true,\"normalized\":false},{\"id\":9,\"content\":\"<r0>\",\"special\":true,"
    "\"normalized\":false}],\"decoder\":{\"type\":\"Fuse\"},\"post_processor\":{\"type\":"
    "\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}},{\"Sequence\":{\"id\":"
    "\"A\"}}],\"special_tokens\":{\"<s>\":{\"ids\":[3]}}}}";

static void put(const char *name, const char *text) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    MUST(ax_write_file_atomic(path, text, strlen(text)));
}

/* A folder with these two files; NULL: without. */
static enum ax_status load(struct ax_tokenizer **t, const char *config, const char *map) {
    MUST(ax_remove_tree(dir));
    MUST(ax_mkdir(dir));
    put("tokenizer.json", model);
    if (config != NULL)
        put("tokenizer_config.json", config);
    if (map != NULL)
        put("special_tokens_map.json", map);
    return ax_tokenizer_load(t, dir);
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

/* What goes around the text is the post-processor's business. */
static void add_flags_have_no_effect(void **state) {
    (void)state;
    static const char *const configs[] = {
        NULL, "{}", "{\"bos_token\":\"<s>\",\"add_bos_token\":false}",
        "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"add_eos_token\":true}"};
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
        struct ax_tokenizer *t;
        MUST(load(&t, configs[i], NULL));
        assert_text(t, "ab", true, false, "3 2");
        ax_tokenizer_free(t);
    }
}

static void named_tokens_become_special(void **state) {
    (void)state;
    struct ax_tokenizer *t;
    MUST(
        load(&t,
             "{\"bos_token\":\"<s>\",\"eos_token\":{\"__type\":\"AddedToken\",\"content\":\"</s>\","
             "\"lstrip\":true},\"pad_token\":\"<pad>\",\"unk_token\":null,\"mask_token\":false,"
             "\"additional_special_tokens\":[\"p\"],\"extra_special_tokens\":{\"k\":\"v\"}}",
             NULL));
    assert_string_equal(ax_tokenizer_special(t, AX_BOS), "<s>");
    assert_int_equal(ax_tokenizer_special_id(t, AX_EOS), 4);
    assert_int_equal(ax_tokenizer_special_id(t, AX_PAD), 10); /* new: behind <r0> */
    assert_int_equal(ax_tokenizer_size(t), 11);
    assert_null(ax_tokenizer_special(t, AX_UNK));
    assert_int_equal(ax_tokenizer_special_id(t, AX_MASK), AX_NO_TOKEN);
    assert_true(ax_tokenizer_is_special(t, 8));
    assert_text(t, "ab  </s>p<pad>", false, false, "2 4 8 10"); /* </s> takes the blanks along */
    assert_text(t, "a</s>", false, true, "0 5 6 7");            /* plain: no token for '/' */
    ax_tokenizer_free(t);
}

/* Tokens of lists are added if they are new, as what they say; those with names of the model's own are special. */
static void tokens_of_lists_and_of_other_names(void **state) {
    (void)state;
#define NEW "{\"__type\":\"AddedToken\",\"content\":\"<y>\",\"lstrip\":true,\"special\":false}"
    static const struct {
        const char *config;
        bool p, r, y; /* is it special? */
    } cases[] = {
        {"\"extra_special_tokens\":[" NEW "]", false, true, false},
        {"\"additional_special_tokens\":[" NEW ",\"p\"]", true, true, false},
        {"\"additional_special_tokens\":[\"p\"],\"extra_special_tokens\":[\"<y>\"]", false, true,
         true},
        {"\"additional_special_tokens\":[\"p\"],\"extra_special_tokens\":[]", true, true, false},
        {"\"added_tokens_decoder\":{\"10\":{\"content\":\"<y>\"}},\"extra_special_tokens\":[\"<y>"
         "\"]",
         false, true, false},
        {"\"extra_special_tokens\":{\"image\":\"p\"}", true, true, false},
        {"\"model_specific_special_tokens\":{\"image\":\"p\"}", true, true, false},
        {"\"image_token\":\"p\",\"add_bos_token\":true", true, true, false},
        {"\"fill_token\":\"<y>\"", false, true, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char config[512];
        struct ax_tokenizer *t;
        snprintf(config, sizeof config, "{%s}", cases[i].config);
        MUST(load(&t, config, NULL));
        const int32_t y = ax_tokenizer_find(t, "<y>", 3);
        assert_int_equal(ax_tokenizer_is_special(t, 8), cases[i].p);
        assert_int_equal(ax_tokenizer_is_special(t, 9), cases[i].r);
        assert_int_equal(y != AX_NO_TOKEN && ax_tokenizer_is_special(t, y), cases[i].y);
        ax_tokenizer_free(t);
    }
}

static void the_map_goes_before_the_config(void **state) {
    (void)state;
    struct ax_tokenizer *t;
    static const char map[] = "{\"eos_token\":{\"content\":\"<r0>\"},\"pad_token\":\"<r0>\"}";
    MUST(load(&t, "{\"eos_token\":\"</s>\",\"bos_token\":\"<s>\"}", map));
    assert_int_equal(ax_tokenizer_special_id(t, AX_BOS), 3);
    assert_text(t, "ab</s>", false, false, "2 5 6 7"); /* </s> is not special, then */
    assert_int_equal(ax_tokenizer_special_id(t, AX_EOS), 9);
    assert_int_equal(ax_tokenizer_special_id(t, AX_PAD), 9);
    ax_tokenizer_free(t);
    MUST(load(&t, "{\"eos_token\":\"</s>\",\"added_tokens_decoder\":{}}", map));
    assert_int_equal(ax_tokenizer_special_id(t, AX_EOS), 4);
    assert_null(ax_tokenizer_special(t, AX_PAD));
    ax_tokenizer_free(t);
}

static void added_tokens_decoder_overrides(void **state) {
    (void)state;
    struct ax_tokenizer *t;
    MUST(load(&t,
              "{\"added_tokens_decoder\":{\"11\":{\"content\":\"<y>\",\"special\":false},\"10\":{"
              "\"content\":\"<x>\",\"special\":true},\"3\":{\"content\":\"<s>\",\"rstrip\":true,"
              "\"special\":true}}}",
              NULL));
    assert_text(t, "<s>  ab<x><y>", false, false, "3 2 10 11");
    assert_false(ax_tokenizer_is_special(t, 11));
    ax_tokenizer_free(t);
    MUST(
        load(&t, "{\"added_tokens_decoder\":{\"10\":{\"content\":\"!\",\"special\":true}}}", NULL));
    assert_text(t, "ab!", false, false, "2 10");
    ax_tokenizer_free(t);
    /* a name makes a token special, whatever else it is */
    MUST(load(&t,
              "{\"added_tokens_decoder\":{\"10\":{\"content\":\"<x>\",\"special\":false,"
              "\"lstrip\":true}},\"pad_token\":\"<x>\"}",
              NULL));
    assert_true(ax_tokenizer_is_special(t, 10));
    assert_text(t, "ab  <x>", false, false, "2 10"); /* and it stays what it was */
    ax_tokenizer_free(t);
}

/* Folders of older programs. In the order of the ids; what tokenizer.json has is as there, and so is all of it where
 * tokenizer_config.json has tokens by id. */
static void added_tokens_beside_the_file(void **state) {
    (void)state;
    struct ax_tokenizer *t;
    for (int by_id = 0; by_id < 2; by_id++) {
        MUST(load(&t, NULL, NULL));
        ax_tokenizer_free(t);
        put("added_tokens.json", "{\"<y>\": 11, \"<x>\": 10, \"<z>\": 3, \"</s>\": 99}");
        put("special_tokens_map.json", "{\"pad_token\": {\"content\": \"<x>\"}}");
        put("tokenizer_config.json", by_id ? "{\"added_tokens_decoder\": {}}" : "{}");
        MUST(ax_tokenizer_load(&t, dir));
        assert_int_equal(ax_tokenizer_find(t, "<x>", 3), by_id ? AX_NO_TOKEN : 10);
        assert_int_equal(ax_tokenizer_find(t, "<z>", 3), AX_NO_TOKEN); /* 3 is <s> */
        if (!by_id) {
            assert_text(t, "ab<x><y>", false, false, "2 10 11");
            assert_true(ax_tokenizer_is_special(t, 10) && !ax_tokenizer_is_special(t, 11));
            assert_int_equal(ax_tokenizer_size(t), 12);
            assert_int_equal(ax_tokenizer_find(t, "</s>", 4), 4);
        }
        ax_tokenizer_free(t);
    }
    put("tokenizer_config.json", "{}");
    put("added_tokens.json", "{\"<y>\": -1}");
    MUST_FAIL(ax_tokenizer_load(&t, dir), AX_ERR_DATA, "<y>: expected an integer");
}

/* Ids and tokens around the text stay what they are. */
static void special_tokens_can_be_split(void **state) {
    (void)state;
    struct ax_tokenizer *t;
    for (int split = 0; split < 2; split++) {
        MUST(load(&t,
                  split ? "{\"split_special_tokens\":true}" : "{\"split_special_tokens\":false}",
                  NULL));
        assert_text(t, "a<s>b", true, false, split ? "3 0 5 6 7 1" : "3 0 3 1");
        assert_true(ax_tokenizer_is_special(t, 3));
        ax_tokenizer_free(t);
    }
    MUST_FAIL(load(&t, "{\"split_special_tokens\":1}", NULL), AX_ERR_DATA,
              "split_special_tokens: expected true or false");
}

/* What is logged while the folder is loaded; free with ax_free. */
static char *said_by_load(void) {
    char path[128], *said;
    struct ax_tokenizer *t;
    size_t n;
    snprintf(path, sizeof path, "%s/said", dir);
    const int saved = dup(STDERR_FILENO), file = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    assert_true(saved >= 0 && dup2(file, STDERR_FILENO) >= 0);
    ax_log_set_level(AX_LOG_INFO);
    const enum ax_status st = ax_tokenizer_load(&t, dir);
    ax_log_set_level(AX_LOG_ERROR);
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    close(saved);
    close(file);
    MUST(st);
    ax_tokenizer_free(t);
    MUST(ax_read_file(path, 4096, &said, &n));
    return said;
}

/* As in transformers 5, the class has rules of its own, or tokenizer.json is followed: by the type of the model. */
static void rules_of_classes(void **state) {
    (void)state;
#define NAMED(class) "\"tokenizer_class\":\"" class "\""
    static const char prepend[] = "\"normalizer\":{\"type\":\"Prepend\",\"prepend\":\"▁\"}";
#define SPLIT                                                                                      \
    "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["                                 \
    "{\"type\":\"Digits\",\"individual_digits\":true},"                                            \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}]}"
    static const char digits[] = "\"normalizer\":null," SPLIT,
                      composed[] = "\"normalizer\":{\"type\":\"NFC\"}," SPLIT;
    static const struct {
        const char *rules, *config, *type, *ids; /* of text */
        const char *class;                       /* of which a line is logged; NULL: none is */
    } cases[] = {
        {prepend, NAMED("LlamaTokenizer"), "llama", "1 0 4 0 1 6", "LlamaTokenizer"},
        {prepend, NAMED("LlamaTokenizerFast"), "llama", "1 0 4 0 1 6", "LlamaTokenizer"},
        {prepend, NAMED("LlamaTokenizer") ",\"legacy\":true", "llama", "1 0 4 1 0 1 6",
         "LlamaTokenizer"},
        {prepend, NAMED("LlamaTokenizer") ",\"add_prefix_space\":false", "llama", "0 4 0 1 6",
         "LlamaTokenizer"},
        {prepend, NAMED("CodeLlamaTokenizer") ",\"legacy\":true", "llama", "1 0 4 0 1 6",
         "CodeLlamaTokenizer"},
        {prepend, NAMED("GemmaTokenizer"), "llama", "0 4 0 1 6", "GemmaTokenizer"},
        {prepend, "\"legacy\":true", "gemma2", "0 4 0 1 6", "GemmaTokenizer"},
        {prepend, NAMED("LlamaTokenizer"), "mistral", "1 0 4 1 0 2 6", NULL},
        {prepend, NAMED("LlamaTokenizer") ",\"auto_map\":{}", "llama", "1 0 4 1 0 2 6", NULL},
        {prepend, NAMED("PreTrainedTokenizerFast"), "llama", "1 0 4 1 0 2 6", NULL},
        {prepend, "\"legacy\":true", "llama", "1 0 4 1 0 2 6", NULL},
        {digits, NAMED("GPT2Tokenizer"), "llama", "0 4 0 3 6", "GPT2Tokenizer"},
        {digits, NAMED("GPT2Tokenizer"), "olmo2", "0 4 0 3 7 8", NULL},
        {digits, NAMED("GPT2Tokenizer") ",\"add_prefix_space\":true", "starcoder2", "3 0 4 3 0 3 6",
         "GPT2Tokenizer"},
        {digits, NAMED("LlamaTokenizer"), "llama", "0 4 0 3 7 8", NULL},
        {digits, NAMED("LlamaTokenizer"), "qwen2", "0 4 0 3 7 8", "Qwen2Tokenizer"},
        {composed, NAMED("Qwen2Tokenizer"), "qwen2", "0 4 0 3 7 8", "Qwen2Tokenizer"},
        {digits, NAMED("Qwen2TokenizerFast"), "qwen3", "0 4 0 3 7 8", "Qwen2Tokenizer"},
        {digits, NAMED("CohereTokenizer"), "cohere", "0 4 0 3 7 8", "CohereTokenizer"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[1024];
        struct ax_tokenizer *t;
        MUST(ax_remove_tree(dir));
        MUST(ax_mkdir(dir));
        snprintf(text, sizeof text,
                 "{%s,\"added_tokens\":[{\"id\":4,\"content\":\"<s>\",\"special\":true}],\"model\":"
                 "{\"vocab\":{\"a\":0,\"▁\":1,\" \":2,\"Ġ\":3,\"<s>\":4,\"<unk>\":5,\"12\":6,"
                 "\"1\":7,\"2\":8},\"merges\":[\"1 2\"]}}",
                 cases[i].rules);
        put("tokenizer.json", text);
        snprintf(text, sizeof text, "{%s}", cases[i].config);
        put("tokenizer_config.json", text);
        snprintf(text, sizeof text, "{\"model_type\":\"%s\"}", cases[i].type);
        put("config.json", text);
        MUST(ax_tokenizer_load(&t, dir));
        assert_text(t, "a<s>a 12", false, false, cases[i].ids);
        ax_tokenizer_free(t);
        char *said = said_by_load();
        snprintf(text, sizeof text,
                 "is not followed: as in transformers 5, a %s has one of its own",
                 cases[i].class ? cases[i].class : "");
        assert_true(cases[i].class ? strstr(said, text) != NULL : *said == '\0');
        ax_free(said);
    }
}

/* As in the tokenizers library, a token of white space that strips to its left is gone where the one before it has
 * consumed it. */
static void white_space_is_consumed_once(void **state) {
    (void)state;
    struct ax_tokenizer *t;
    MUST(load(&t,
              "{\"added_tokens_decoder\":{\"10\":{\"content\":\"<r>\",\"rstrip\":true},"
              "\"11\":{\"content\":\"\\n\\n\",\"lstrip\":true},\"12\":{\"content\":\"\\t\"}}}",
              NULL));
    assert_text(t, "a \n\nb", false, false, "0 11 1");
    assert_text(t, "<r>a\n\n<r> \n\n", false, false, "10 0 11 10");
    assert_text(t, "<r> \tb", false, false, "10 12 1"); /* it does not strip */
    ax_tokenizer_free(t);
}

static void bad_folders(void **state) {
    (void)state;
    struct ax_tokenizer *t;
    MUST_FAIL(load(&t, "{\"bos_token\":3}", NULL), AX_ERR_DATA,
              "tokenizer_config.json: bos_token: expected a string");
    MUST_FAIL(load(&t, "{\"bos_token\":{}}", NULL), AX_ERR_DATA, "bos_token.content");
    MUST_FAIL(load(&t, "{", NULL), AX_ERR_DATA, "tokenizer_config.json:1:");
    MUST_FAIL(load(&t, NULL, "[1"), AX_ERR_DATA, "special_tokens_map.json:1:");
    MUST(ax_remove_tree(dir));
    MUST(ax_mkdir(dir));
    MUST_FAIL(ax_tokenizer_load(&t, dir), AX_ERR_DATA, "tokenizer.json is missing in this folder");
    assert_int_equal(ax_tokenizer_load(&t, "/nonexistent/tokenizer.json"), AX_ERR_IO);
}

static void changes(void **state) {
    (void)state;
    struct ax_tokenizer *t;
    int32_t id;
    MUST(load(&t, NULL, NULL));
    MUST(ax_tokenizer_add(t, "<t>", false, &id));
    assert_int_equal(id, 10);
    MUST(ax_tokenizer_add(t, "b", false, &id)); /* a token already: matched before merging now */
    assert_int_equal(id, 1);
    assert_text(t, "ab<t>", false, false, "0 1 10");
    assert_false(ax_tokenizer_is_special(t, 10));
    MUST(ax_tokenizer_set_special(t, AX_EOS, "<t>"));
    assert_true(ax_tokenizer_is_special(t, 10));
    assert_int_equal(ax_tokenizer_special_id(t, AX_EOS), 10);
    MUST(ax_tokenizer_rename(t, 9, "<role>"));
    assert_text(t, "<role>", false, false, "9");
    assert_int_equal(ax_tokenizer_find(t, "<r0>", 4), AX_NO_TOKEN);
    assert_int_equal(ax_tokenizer_find(t, "<role>", 6), 9);
    MUST_FAIL(ax_tokenizer_rename(t, 0, "<q>"), AX_ERR_CONFIG, "not an added token");
    MUST_FAIL(ax_tokenizer_rename(t, 9, "<s>"), AX_ERR_CONFIG, "that is token 3");
    MUST_FAIL(ax_tokenizer_add(t, "", false, &id), AX_ERR_DATA, "empty");
    assert_int_equal(ax_tokenizer_size(t), 11);
    assert_string_equal(ax_special_name(AX_PAD), "pad_token");
    ax_tokenizer_free(t);
}

static int make_dir(void **state) {
    (void)state;
    ax_log_set_level(AX_LOG_ERROR);
    snprintf(dir, sizeof dir, "%s/axtrain-tok-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    return mkdtemp(dir) != NULL ? 0 : -1;
}

static int remove_dir(void **state) {
    (void)state;
    return ax_remove_tree(dir) == AX_OK ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(add_flags_have_no_effect),
        cmocka_unit_test(named_tokens_become_special),
        cmocka_unit_test(tokens_of_lists_and_of_other_names),
        cmocka_unit_test(the_map_goes_before_the_config),
        cmocka_unit_test(added_tokens_decoder_overrides),
        cmocka_unit_test(added_tokens_beside_the_file),
        cmocka_unit_test(special_tokens_can_be_split),
        cmocka_unit_test(rules_of_classes),
        cmocka_unit_test(white_space_is_consumed_once),
        cmocka_unit_test(bad_folders),
        cmocka_unit_test(changes),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
