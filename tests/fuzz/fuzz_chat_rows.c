/* Rows of any bytes as conversations: a document whose labels fit its ids, or an error that says
 * why, and nothing left behind. The first byte chooses options. */
#include <stdio.h>
#include <string.h>

#include "base/text/json.h"
#include "data/records/format/format.h"
#include "tests/fuzz/byte_tokenizer.h"

static const char source[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.reasoning_content %}<think>"
    "{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}{% for c in m.tool_calls or [] %}"
    "{{ c.function.arguments | tojson }}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if tools %}{{ tools | tojson }}{% endif %}";

static void run(const struct ax_format_chat *chat, json_t *row) {
    struct ax_format *f;
    struct ax_format_work w = {0};
    struct ax_example_list s = {0};
    AX_ASSERT(ax_format_new(&f, &(struct ax_format_options){.type = "chat_template",
                                                            .tokenizer = tokenizer,
                                                            .sequence_len = 512,
                                                            .chat = chat}) == AX_OK);
    const enum ax_status st = ax_format_record(f, &w, row, (struct ax_origin){.line = 1}, &s);
    AX_ASSERT(st == AX_OK || ((st == AX_ERR_DATA || st == AX_ERR_EMPTY) && s.n == 0));
    for (size_t i = 0; i < s.n_tokens; i++)
        AX_ASSERT(s.labels[i] == AX_NO_LABEL || s.labels[i] == s.tokens[i]);
    ax_example_list_free(&s);
    ax_format_work_free(&w);
    ax_format_free(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct ax_name_map properties[] = {{"role", "role"}, {"content", "content"}};
    static const struct ax_name_map roles[] = {{"gpt", "assistant"}};
    static const char *const trained[] = {"gpt", "tool"};
    struct ax_json_doc doc;
    if (!tokenizer)
        make_tokenizer(source);
    if (size == 0 || ax_json_parse(&doc, "row", (const char *)data + 1, size - 1) != AX_OK)
        return 0;
    const struct ax_format_chat chat = {
        .template = template,
        .tokens = tokens,
        .field_messages = "messages",
        .field_tools = "tools",
        .properties = properties,
        .n_properties = 2,
        .roles = roles,
        .n_roles = 1,
        .roles_to_train = trained,
        .n_roles_to_train = 2,
        .train_on_eos = (enum ax_train_on)(data[0] & 3),
        .train_on_eot = (enum ax_train_on)(data[0] & 3),
        .field_training = "train",
        .field_training_detail = "spans",
        .split_thinking = data[0] & 4,
        .thinking_key = "reasoning_content",
        .drop_system = data[0] & 8,
    };
    if (json_is_object(doc.root))
        run(&chat, doc.root);
    ax_json_free(&doc);
    return 0;
}
