/* Chat formats for tests: the options that a config would give by default. Include after
 * format_case.h. */
#ifndef AX_TESTS_DATA_CHAT_CASE_H
#define AX_TESTS_DATA_CHAT_CASE_H

#include "data/text/template/template.h"

static const char chatml[] =
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}";
/* BOS, trimmed contents, tools, calls and reasoning */
static const char full_chat[] =
    "{{ bos_token }}{% if tools %}TOOLS {{ tools | tojson }}<|eot|>{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n\n"
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
    "{% if m.content %}{{ m.content | trim }}{% endif %}"
    "{% if m.tool_calls %}{% for c in m.tool_calls %}CALL {{ c.function.name }} "
    "{{ c.function.arguments | tojson }}{% endfor %}{% endif %}"
    "{% if m.name %} ({{ m.name }}){% endif %}<|eot|>{% endfor %}";
/* no special token anywhere but EOS */
static const char plain_chat[] =
    "{% for m in messages %}{% if m.role == 'user' %}### In:\n{{ m.content }}\n\n"
    "{% elif m.role == 'assistant' %}### Out:\n{{ m.content }}{{ eos_token }}\n\n"
    "{% else %}{{ raise_exception('no ' + m.role + ' turns here') }}{% endif %}{% endfor %}";

static const struct ax_name_map default_properties[] = {{"role", "role"}, {"content", "content"}};
static const struct ax_name_map sharegpt_properties[] = {{"from", "role"}, {"value", "content"}};
static const struct ax_name_map default_roles[] = {
    {"user", "user"},     {"human", "user"},    {"assistant", "assistant"},
    {"gpt", "assistant"}, {"system", "system"}, {"tool", "tool"},
};
static const char *const default_trained[] = {"assistant"};

struct chat_case {
    struct ax_format_chat chat;
    struct ax_format_options o;
    struct ax_template *template;
};

static inline void chat_open(struct chat_case *c, const char *source) {
    *c = (struct chat_case){0};
    assert_ok(ax_template_compile(&c->template, "t", source, strlen(source)));
    c->chat = (struct ax_format_chat){
        .template = c->template,
        .tokens = json_pack("{s:s, s:s}", "bos_token", "<s>", "eos_token", "</s>"),
        .field_messages = "messages",
        .field_tools = "tools",
        .properties = default_properties,
        .n_properties = 2,
        .roles = default_roles,
        .n_roles = 6,
        .roles_to_train = default_trained,
        .n_roles_to_train = 1,
        .thinking_key = "reasoning_content",
    };
    c->o = (struct ax_format_options){.type = "chat_template",
                                      .tokenizer = bare_tokenizer,
                                      .sequence_len = 1000,
                                      .chat = &c->chat};
}

static inline void chat_close(struct chat_case *c) {
    ax_template_free(c->template);
    json_decref((json_t *)(uintptr_t)c->chat.tokens);
}

#endif
