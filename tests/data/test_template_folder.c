/* Where the template and the special tokens of a model folder come from, and the golden chats of
 * the reference tokenizers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/records/format/chat.h"
#include "tests/data/scratch.h"
#include "tests/data/template_case.h"
#include "tests/golden_files.h"

static void put(const char *name, const char *text) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    assert_int_equal(ax_write_file_atomic(path, text, strlen(text)), AX_OK);
}

static void drop(const char *name) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    assert_int_equal(ax_remove_tree(path), AX_OK);
}

/* The template found renders to this text; NULL: none is found. */
static void finds(const char *name, bool with_tools, const char *text) {
    struct ax_template *t;
    struct ax_template_output out;
    json_t *vars = json_object();
    enum ax_status st = ax_template_from_folder(&t, scratch, name, with_tools);
    if (text == NULL) {
        assert_int_equal(st, AX_ERR_DATA);
    } else if (st != AX_OK || ax_template_render(t, vars, NULL, &out) != AX_OK) {
        fail_msg("%s", ax_error_text());
    } else {
        assert_string_equal(out.text, text);
        ax_template_output_free(&out);
        ax_template_free(t);
    }
    json_decref(vars);
}

static void places_in_order(void **state) {
    (void)state;
    finds(NULL, false, NULL);
    assert_non_null(strstr(ax_error_text(), "no chat template named default"));
    put("chat_template.json", "{\"chat_template\": \"processor\"}");
    finds(NULL, false, "processor");
    put("tokenizer_config.json", "{\"chat_template\": \"config\"}");
    finds(NULL, false, "config");
    finds(NULL, true, "config");
    finds("tool_use", false, NULL);
    put("tokenizer_config.json",
        "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"tools\"},"
        " {\"name\": \"default\", \"template\": \"listed\"}, {\"name\": \"rag\", \"template\": "
        "\"rag\"}]}");
    finds(NULL, false, "listed");
    finds(NULL, true, "tools");
    finds("rag", true, "rag");
    put("tokenizer_config.json", "{\"chat_template\": {\"default\": \"mapped\"}}");
    finds(NULL, true, "mapped");
    put("chat_template.jinja", "file\n");
    finds(NULL, false, "file");
    finds(NULL, true, "file");
    char path[256];
    snprintf(path, sizeof path, "%s/additional_chat_templates", scratch);
    assert_int_equal(ax_mkdir(path), AX_OK);
    put("additional_chat_templates/tool_use.jinja", "extra {{ 1 }}");
    finds(NULL, true, "extra 1");
    finds(NULL, false, "file");
    finds("../chat_template", false, NULL);
    drop("additional_chat_templates");
    drop("chat_template.jinja");
    drop("chat_template.json");
    drop("tokenizer_config.json");
}

static void broken_templates_name_their_file(void **state) {
    (void)state;
    struct ax_template *t;
    put("tokenizer_config.json", "{\"chat_template\": \"a\\n{% if %}\"}");
    assert_int_equal(ax_template_from_folder(&t, scratch, NULL, false), AX_ERR_DATA);
    assert_non_null(strstr(ax_error_text(), "tokenizer_config.json: chat_template:2: "));
    put("tokenizer_config.json", "{\"chat_template\": 5}");
    assert_int_equal(ax_template_from_folder(&t, scratch, NULL, false), AX_ERR_DATA);
    assert_non_null(strstr(ax_error_text(), "expected a template"));
    put("chat_template.jinja", "{{ x");
    assert_int_equal(ax_template_from_folder(&t, scratch, NULL, false), AX_ERR_DATA);
    assert_non_null(strstr(ax_error_text(), "chat_template.jinja:1: "));
    drop("chat_template.jinja");
    drop("tokenizer_config.json");
}

static void has_tokens(const char *want) {
    json_t *tokens;
    if (ax_template_folder_tokens(&tokens, scratch) != AX_OK)
        fail_msg("%s", ax_error_text());
    char *text = json_dumps(tokens, JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(text, want);
    ax_free_hook(text);
    json_decref(tokens);
}

/* What transformers' classes set where the config names no tokens. */
static const struct {
    const char *name, *tokens;
} classes[] = {
    {"LlamaTokenizer", "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"unk_token\":\"<unk>\"}"},
    {"GemmaTokenizerFast",
     "{\"bos_token\":\"<bos>\",\"eos_token\":\"<eos>\",\"pad_token\":\"<pad>\","
     "\"unk_token\":\"<unk>\"}"},
    {"GPT2Tokenizer", "{\"bos_token\":\"<|endoftext|>\",\"eos_token\":\"<|endoftext|>\","
                      "\"unk_token\":\"<|endoftext|>\"}"},
    {"Qwen2TokenizerFast", "{\"eos_token\":\"<|endoftext|>\",\"pad_token\":\"<|endoftext|>\","
                           "\"unk_token\":\"<|endoftext|>\"}"},
    {"LlamaTokenizerSlow", "{}"},
    {"MyLlamaTokenizer", "{}"},
};

static void tokens_of_the_config(void **state) {
    (void)state;
    has_tokens("{}");
    put("tokenizer_config.json",
        "{\"bos_token\": \"<s>\", \"eos_token\": {\"content\": \"</s>\", \"lstrip\": false},"
        " \"pad_token\": null, \"add_bos_token\": true, \"image_token\": \"<img>\","
        " \"extra_special_tokens\": {\"video\": \"<vid>\"}, \"added_tokens_decoder\": {}}");
    put("special_tokens_map.json", "{\"eos_token\": \"</map>\", \"unk_token\": \"<unk>\"}");
    has_tokens("{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"image_token\":\"<img>\","
               "\"video\":\"<vid>\"}");
    put("tokenizer_config.json", "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}");
    has_tokens("{\"bos_token\":\"<s>\",\"eos_token\":\"</map>\",\"unk_token\":\"<unk>\"}");
    drop("special_tokens_map.json");
    put("tokenizer_config.json",
        "{\"tokenizer_class\": \"LlamaTokenizerFast\", \"unk_token\": null}");
    has_tokens("{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}");
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        char config[100];
        snprintf(config, sizeof config, "{\"tokenizer_class\": \"%s\"}", classes[i].name);
        put("tokenizer_config.json", config);
        has_tokens(classes[i].tokens);
    }
    drop("tokenizer_config.json");
}

/* ---- golden chats ---- */

static int chats, masks, answers;

/* The tokens of the text, and which of them the generation blocks mark. */
static void check_tokens(const struct ax_tokenizer *tokenizer, const json_t *c,
                         const struct ax_template_output *out) {
    const char *name = json_string_value(json_object_get(c, "name"));
    const json_t *ids = json_object_get(c, "ids"), *mask = json_object_get(c, "assistant_mask");
    struct ax_format_work w = {0};
    const struct ax_encode_options with_spans = {.spans = true};
    assert_ok(ax_tokenizer_encode(tokenizer, out->text, out->len, &with_spans, &w.full));
    if (json_array_size(ids) != w.full.n || json_array_size(mask) != w.full.n)
        fail_msg("%s: %zu tokens, not %zu", name, w.full.n, json_array_size(ids));
    int32_t *labels;
    assert_ok(ax_alloc(&labels, w.full.n, sizeof *labels));
    for (size_t i = 0; i < w.full.n; i++)
        labels[i] = AX_NO_LABEL;
    ax_chat_mask_generation(&w, out, labels);
    for (size_t i = 0; i < w.full.n; i++) {
        const bool trained = json_integer_value(json_array_get(mask, i)) != 0;
        if (json_integer_value(json_array_get(ids, i)) != w.full.ids[i])
            fail_msg("%s: token %zu is %d", name, i, w.full.ids[i]);
        if (labels[i] != (trained ? w.full.ids[i] : AX_NO_LABEL))
            fail_msg("%s: token %zu is %s", name, i, trained ? "not trained" : "trained");
        answers += trained;
    }
    masks++;
    ax_free(labels);
    ax_format_work_free(&w);
}

static void check_chat(const struct ax_template *t, const struct ax_tokenizer *tokenizer,
                       const json_t *tokens, const json_t *c) {
    json_t *vars = json_pack("{s:O, s:O}", "messages", json_object_get(c, "messages"),
                             "add_generation_prompt", json_object_get(c, "add_generation_prompt"));
    json_t *tools = json_object_get(c, "tools");
    if (tools != NULL)
        json_object_set(vars, "tools", tools);
    const struct ax_template_options o = {.chat = true, .defaults = tokens};
    struct ax_template_output out;
    const char *name = json_string_value(json_object_get(c, "name"));
    const char *error = json_string_value(json_object_get(c, "error"));
    if (ax_template_render(t, vars, &o, &out) != AX_OK) {
        if (error == NULL || strstr(ax_error_text(), error) == NULL)
            fail_msg("%s: %s", name, ax_error_text());
    } else {
        const json_t *text = json_object_get(c, "text");
        if (text == NULL || json_string_length(text) != out.len ||
            memcmp(json_string_value(text), out.text, out.len) != 0)
            fail_msg("%s gave %s\n  not %s", name, out.text, json_string_value(text));
        if (json_object_get(c, "ids") != NULL)
            check_tokens(tokenizer, c, &out);
        ax_template_output_free(&out);
    }
    json_decref(vars);
    chats++;
}

static void check_folder(const char *name, const char *file) {
    char path[1200];
    const char *dir = golden_path(name);
    snprintf(path, sizeof path, "%s/%s", dir, file);
    struct ax_json_doc doc;
    struct ax_template *t;
    struct ax_tokenizer *tokenizer;
    json_t *tokens;
    assert_int_equal(ax_json_load(&doc, path, (size_t)64 << 20), AX_OK);
    assert_ok(ax_tokenizer_load(&tokenizer, dir));
    assert_int_equal(ax_template_folder_tokens(&tokens, dir), AX_OK);
    const json_t *own =
        strcmp(file, "chat.json") == 0 ? NULL : json_object_get(doc.root, "template");
    if (own != NULL)
        assert_int_equal(
            ax_template_compile(&t, file, json_string_value(own), json_string_length(own)), AX_OK);
    else
        assert_int_equal(ax_template_from_folder(&t, dir, NULL, false), AX_OK);
    const json_t *cases = json_object_get(doc.root, "cases");
    for (size_t i = 0; i < json_array_size(cases); i++)
        check_chat(t, tokenizer, tokens, json_array_get(cases, i));
    ax_template_free(t);
    ax_tokenizer_free(tokenizer);
    json_decref(tokens);
    ax_json_free(&doc);
}

static void golden_chats(void **state) {
    (void)state;
    chats = masks = answers = 0;
    check_folder("tokenizer/llama3_style", "chat.json");
    check_folder("tokenizer/llama3_style", "chat_chatml.json");
    check_folder("tokenizer/qwen2_style", "chat.json");
    check_folder("tokenizer/sp_bpe", "chat.json");
    check_folder("tokenizer/sp_bpe_legacy", "chat.json");
    printf("%d chats, %d masks with %d tokens of answers\n", chats, masks, answers);
    assert_int_equal(chats, 105);
    assert_int_equal(masks, 100);
    assert_true(answers > 500);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_in_order), cmocka_unit_test(broken_templates_name_their_file),
        cmocka_unit_test(tokens_of_the_config), cmocka_unit_test(golden_chats)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
