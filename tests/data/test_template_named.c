/* The built-in templates: a conversation each spelled out or recorded from axolotl's (named_cases.json,
 * written by tests/peers/named_templates.py --record); and what a chat's variables are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/data/template_case.h"

#define SYSTEM "{\"role\": \"system\", \"content\": \"S\"}, "
#define USER   "{\"role\": \"user\", \"content\": \" q \"}"
#define ANSWER "{\"role\": \"assistant\", \"content\": \" a \"}"
#define CHAT   "{\"messages\": [" SYSTEM USER ", " ANSWER "]}"
#define ASK    "{\"messages\": [" USER "], \"add_generation_prompt\": true}"

static void renders(const char *name, const char *vars, const char *text) {
    static const char tokens[] = "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}";
    struct ax_template *t;
    struct ax_json_doc doc, defaults;
    struct ax_template_output out;
    assert_int_equal(ax_json_parse(&doc, "vars", vars, strlen(vars)), AX_OK);
    assert_int_equal(ax_json_parse(&defaults, "tokens", tokens, strlen(tokens)), AX_OK);
    struct ax_template_options o = stopped;
    o.chat = true;
    o.defaults = defaults.root;
    if (ax_template_builtin(&t, name) != AX_OK)
        fail_msg("%s", ax_error_text());
    enum ax_status st = ax_template_render(t, doc.root, &o, &out);
    if (text == NULL) {
        assert_int_equal(st, AX_ERR_DATA);
    } else if (st != AX_OK) {
        fail_msg("%s", ax_error_text());
    } else {
        assert_string_equal(out.text, text);
        ax_template_output_free(&out);
    }
    ax_template_free(t);
    ax_json_free(&doc);
    ax_json_free(&defaults);
}

static void chatml_and_qwen(void **state) {
    (void)state;
    renders("chatml", CHAT,
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\n q <|im_end|>\n"
            "<|im_start|>assistant\n a <|im_end|>\n");
    renders("chatml", ASK, "<|im_start|>user\n q <|im_end|>\n<|im_start|>assistant\n");
    renders("qwen_25", ASK,
            "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful "
            "assistant.<|im_end|>\n<|im_start|>user\n q <|im_end|>\n<|im_start|>assistant\n");
    renders("qwen_25", CHAT,
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\n q <|im_end|>\n"
            "<|im_start|>assistant\n a <|im_end|>\n");
    renders("qwen3", CHAT,
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\n q <|im_end|>\n"
            "<|im_start|>assistant\n<think>\n\n</think>\n\n a <|im_end|>\n");
    renders("qwen3",
            "{\"messages\": [" USER "], \"add_generation_prompt\": true,"
            " \"enable_thinking\": false}",
            "<|im_start|>user\n q <|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
    /* only the answer to the last question keeps its thoughts */
    renders("qwen3",
            "{\"messages\": [" USER
            ", {\"role\": \"assistant\", \"content\": \"<think>\\nx\\n</think>\\n\\n"
            "1\"}, " USER ", {\"role\": \"assistant\", \"content\": \"2\", \"thinking\": \"y\"}]}",
            "<|im_start|>user\n q <|im_end|>\n<|im_start|>assistant\n1<|im_end|>\n"
            "<|im_start|>user\n q <|im_end|>\n<|im_start|>assistant\n<think>\ny\n</think>\n\n2"
            "<|im_end|>\n");
}

#define BEGIN "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>"
#define END   "<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>"
#define CALL(arguments)                                                                            \
    "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"type\": "                    \
    "\"function\", \"function\": {\"name\": \"f\", \"arguments\": " arguments "}}]}"

#define TOOLS                                                                                      \
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}]"
#define CALLS                                                                                      \
    "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \"123456789\", "       \
    "\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": {\"x\": 1.0}}}]}, "    \
    "{\"role\": \"tool\", \"content\": \"r\", \"tool_call_id\": \"123456789\"}, "                  \
    "{\"role\": \"tool\", \"content\": \"s\", \"tool_call_id\": \"123456789\"}"

static void tools(void **state) {
    (void)state;
    renders("qwen3", "{\"messages\": [" USER ", " CALLS "], " TOOLS "}",
            "<|im_start|>system\n# Tools\n\nYou may call one or more functions to assist with the "
            "user query.\n\nYou are provided with function signatures within <tools></tools> XML "
            "tags:\n<tools>\n{\"type\": \"function\", \"function\": {\"name\": \"f\", "
            "\"parameters\": {}}}\n</tools>\n\nFor each function call, return a json object with "
            "function name and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n"
            "{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>"
            "<|im_end|>\n<|im_start|>user\n q <|im_end|>\n<|im_start|>assistant\n<tool_call>\n"
            "{\"name\": \"f\", \"arguments\": {\"x\": 1.0}}\n</tool_call><|im_end|>\n"
            "<|im_start|>user\n<tool_response>\nr\n</tool_response>\n<tool_response>\ns\n"
            "</tool_response><|im_end|>\n");
    renders(
        "mistral_v2v3", "{\"messages\": [" USER ", " CALLS "], " TOOLS "}",
        "<s>[AVAILABLE_TOOLS] [{\"type\": \"function\", \"function\": {\"name\": \"f\", "
        "\"parameters\": {}}}][/AVAILABLE_TOOLS][INST]  q [/INST][TOOL_CALLS] [{\"name\": \"f\", "
        "\"arguments\": {\"x\": 1.0}, \"id\": \"123456789\"}]</s>[TOOL_RESULTS] {\"content\": r, "
        "\"call_id\": \"123456789\"}[/TOOL_RESULTS][TOOL_RESULTS] {\"content\": s, "
        "\"call_id\": \"123456789\"}[/TOOL_RESULTS]");
}

static void llama_mistral_deepseek(void **state) {
    (void)state;
    renders("llama3", CHAT,
            "<s><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user"
            "<|end_header_id|>\n\nq<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\na"
            "<|eot_id|>");
    renders("llama3", ASK,
            "<s><|start_header_id|>user<|end_header_id|>\n\nq<|eot_id|><|start_header_id|>assistant"
            "<|end_header_id|>\n\n");
    renders("mistral_v1", CHAT, "<s> [INST] S\n\n q  [/INST]  a </s>");
    renders("mistral_v2v3", CHAT, "<s>[INST]  q [/INST] a</s>");
    renders("mistral_v3_tekken", CHAT, "<s>[INST] q [/INST] a </s>");
    renders("mistral_v3_tekken", "{\"messages\": [" SYSTEM USER "]}", "<s>[INST]S\n\n q [/INST]");
    renders("mistral_v7_tekken", CHAT,
            "<s>[SYSTEM_PROMPT]S[/SYSTEM_PROMPT][INST] q [/INST] a </s>");
    renders("mistral_v1", "{\"messages\": [" USER ", " USER "]}", NULL);
    assert_non_null(strstr(ax_error_text(), "must alternate user/assistant"));
    renders("deepseek_v2", CHAT, "<s>S\n\n<｜User｜> q <｜Assistant｜> a </s>");
    renders("deepseek_v3", CHAT, "<s>S<｜User｜> q <｜Assistant｜> a <｜end▁of▁sentence｜>");
    renders("deepseek_v3", ASK, "<s><｜User｜> q <｜Assistant｜>");
    static const char called[] = "<s><｜User｜> q <｜Assistant｜>" BEGIN "function<｜tool▁sep｜>f\n"
                                 "```json\n{\"x\": 1}\n```" END;
    renders("deepseek_v3", "{\"messages\": [" USER ", " CALL("{\"x\": 1}") "]}", called);
    renders("deepseek_v3", "{\"messages\": [" USER ", " CALL("\"{\\\"x\\\": 1}\"") "]}", called);
}

static void alpaca_gemma_phi(void **state) {
    (void)state;
    renders("alpaca", CHAT, "<s>S\n\n### Instruction:\n q \n\n### Response:\n a </s>");
    renders("alpaca", ASK, "<s>### Instruction:\n q \n\n### Response:\n");
    renders("gemma", ASK, "<s><start_of_turn>user\nq<end_of_turn>\n<start_of_turn>model\n");
    renders("gemma", CHAT, NULL);
    assert_non_null(strstr(ax_error_text(), "System role not supported"));
    renders("phi_3", CHAT,
            "<s><|system|>\nS<|end|>\n<|user|>\n q <|end|>\n<|assistant|>\n a <|end|>\n");
    renders("phi_35", ASK, "<|user|>\n q <|end|>\n<|assistant|>\n");
}

/* ---- against what jinja2 made of axolotl's templates ---- */

static bool same_spans(const json_t *want, const struct ax_template_output *out) {
    bool same = json_array_size(want) == out->n_spans;
    for (size_t i = 0; same && i < out->n_spans; i++) {
        const json_t *span = json_array_get(want, i);
        same = json_integer_value(json_array_get(span, 0)) == (json_int_t)out->spans[i].start &&
               json_integer_value(json_array_get(span, 1)) == (json_int_t)out->spans[i].end;
    }
    return same;
}

static void check_recorded(const json_t *c, const struct ax_template_options *o) {
    const char *name = json_string_value(json_object_get(c, "name"));
    const char *text = json_string_value(json_object_get(c, "text"));
    const char *error = json_string_value(json_object_get(c, "error"));
    struct ax_template *t;
    struct ax_template_output out;
    if (ax_template_builtin(&t, name) != AX_OK)
        fail_msg("%s", ax_error_text());
    const enum ax_status st = ax_template_render(t, json_object_get(c, "vars"), o, &out);
    if (error != NULL) {
        assert_int_equal(st, AX_ERR_DATA);
        assert_non_null(strstr(ax_error_text(), error));
    } else {
        if (st != AX_OK)
            fail_msg("%s", ax_error_text());
        assert_string_equal(out.text, text);
        assert_true(same_spans(json_object_get(c, "spans"), &out));
        ax_template_output_free(&out);
    }
    ax_template_free(t);
}

static void recorded(void **state) {
    (void)state;
    struct ax_json_doc doc;
    struct ax_template_options o = stopped;
    size_t met = 0;
    o.chat = true;
    o.defaults = json_pack("{s:s, s:s}", "bos_token", "<s>", "eos_token", "</s>");
    if (ax_json_load(&doc, "tests/data/named_cases.json", (size_t)1 << 20) != AX_OK)
        fail_msg("%s", ax_error_text());
    for (size_t i = 0; i < json_array_size(doc.root); i++)
        check_recorded(json_array_get(doc.root, i), &o);
    for (size_t i = 0; ax_template_name(i) != NULL; i++) {
        const json_t *first = json_object_get(json_array_get(doc.root, i), "name");
        met += json_is_string(first) && strcmp(json_string_value(first), ax_template_name(i)) == 0;
        assert_int_equal(met, i + 1); /* the file opens with a case for each name, in order */
    }
    assert_true(json_array_size(doc.root) > 2 * met);
    ax_json_free(&doc);
    json_decref((json_t *)o.defaults);
}

static void names(void **state) {
    (void)state;
    struct ax_template *t;
    assert_int_equal(ax_template_builtin(&t, "llama33"), AX_ERR_CONFIG);
    assert_string_equal(
        ax_error_text(),
        "chat_template: unknown template \"llama33\"; the built-in ones are alpaca, aya, chatml, "
        "cohere, deepseek_v2, deepseek_v3, exaone, exaone4, falcon_h1, gemma, gemma3, gemma3n, "
        "gemma4, gemma4_unified, jamba, llama3, llama3_2_vision, llama4, llava, metharme, "
        "mistral_v1, mistral_v2v3, mistral_v3_tekken, mistral_v7_tekken, nemotron_h, phi_3, "
        "phi_35, pixtral, qwen2_vl, qwen3, qwen3_5, qwen_25");
    assert_int_equal(ax_template_builtin(&t, "command_a"), AX_ERR_CONFIG);
    assert_int_equal(ax_template_builtin(&t, "qwen3"), AX_OK);
    assert_true(ax_template_mentions(t, "reasoning_content"));
    assert_true(ax_template_mentions(t, "</think>"));
    assert_false(ax_template_mentions(t, "weight"));
    assert_false(ax_template_has_generation(t));
    ax_template_free(t);
}

/* ---- a chat's variables ---- */

static void chat_gives(const char *source, const char *vars, const char *text) {
    struct ax_template_options o = stopped;
    struct ax_template_output out;
    o.chat = true;
    if (render(source, vars, &o, &out) != AX_OK)
        fail_msg("%s", ax_error_text());
    assert_string_equal(out.text, text);
    ax_template_output_free(&out);
}

static void messages_are_prepared(void **state) {
    (void)state;
    const char *vars = "{\"messages\": [{\"role\": \"a\", \"content\": null, \"reasoning\": \"r\"},"
                       " {\"thinking\": \"t\", \"x\": null}]}";
    chat_gives("{{ messages }}", vars,
               "[{'thinking': 'r', 'role': 'a', 'reasoning': 'r', 'reasoning_content': 'r'}, "
               "{'thinking': 't', 'reasoning_content': 't'}]");
    gives("{{ messages[0] }}", vars, "{'role': 'a', 'content': None, 'reasoning': 'r'}");
    chat_gives(
        "{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}{{ x is defined }}",
        vars, "TrueTrueFalseFalse");
    gives("{{ tools is defined }}{{ add_generation_prompt is defined }}", vars, "FalseFalse");
    struct ax_template_options o = {.chat = true};
    refuses_with("{{ messages }}", "{\"messages\": [5]}", &o, "t:",
                 "messages[0] must be an object, "
                 "not a int");
    refuses_with("{{ messages }}", "{\"messages\": \"x\"}", &o, "t:",
                 "messages must be a list, not "
                 "a str");
}

static void text_is_read_as_json(void **state) {
    (void)state;
    static const char source[] = "{{ messages[0] | tojson }}{{ messages[0].n + 1 }}";
    static const char json[] =
        "[{\"n\": 9223372036854775806, \"f\": 1e2, \"s\": "
        "\"\\u00e9\\ud83d\\ude00\\n\\\"\", \"l\": [ true , false,null ,{} ]}]";
    struct ax_template *t;
    struct ax_template_output out;
    assert_int_equal(ax_template_compile(&t, "t", source, strlen(source)), AX_OK);
    assert_int_equal(ax_template_render_text(t, json, strlen(json), NULL, &out), AX_OK);
    assert_string_equal(out.text,
                        "{\"n\": 9223372036854775806, \"f\": 100.0, \"s\": \"é😀\\n\\\"\", "
                        "\"l\": [true, false, null, {}]}9223372036854775807");
    ax_template_output_free(&out);
    assert_true(out.text == NULL && out.len == 0 && out.spans == NULL && out.n_spans == 0);
    ax_template_output_free(&out);
    assert_int_equal(ax_template_render_text(t, "5", 1, NULL, &out), AX_ERR_DATA);
    ax_template_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(chatml_and_qwen),
                                       cmocka_unit_test(tools),
                                       cmocka_unit_test(llama_mistral_deepseek),
                                       cmocka_unit_test(alpaca_gemma_phi),
                                       cmocka_unit_test(recorded),
                                       cmocka_unit_test(names),
                                       cmocka_unit_test(messages_are_prepared),
                                       cmocka_unit_test(text_is_read_as_json)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
