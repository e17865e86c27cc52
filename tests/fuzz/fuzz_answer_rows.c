/* Rows of any bytes as pairs, unpaired answers, reward pairs, steps and prompts: examples whose labels
 * fit the task, or an error that says why, and nothing left behind. The first two bytes choose task,
 * type and options. */
#include <stdio.h>
#include <string.h>

#include "base/text/json.h"
#include "data/records/format/format.h"
#include "tests/fuzz/byte_tokenizer.h"

static const char source[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

static const struct ax_columns columns = {.list = {{"desirable", false, AX_OF_EXAMPLE, 0},
                                                   {"margin", true, AX_OF_EXAMPLE, 0},
                                                   {"target", true, AX_OF_LABEL, 0}},
                                          .n = 3};

/* Is this label possible for a token of this task? */
static bool fits(enum ax_task task, int32_t token, int32_t label) {
    if (label == AX_NO_LABEL)
        return true;
    return task == AX_TASK_STEPS    ? label == 0 || label == 1
           : task == AX_TASK_REWARD ? label == 0
                                    : label == token;
}

static void check(enum ax_task task, const struct ax_example_list *l) {
    const bool pairs = task == AX_TASK_PAIR || task == AX_TASK_REWARD;
    AX_ASSERT(l->n == 0 || l->n == (pairs ? 2 : 1) || (task == AX_TASK_UNPAIRED && l->n == 2));
    for (size_t i = 0; i < l->n; i++) {
        AX_ASSERT(l->items[i].joined == (pairs && i == 1));
        AX_ASSERT((l->items[i].n_text > 0) == (task == AX_TASK_PROMPT));
        for (size_t t = 0; t < l->items[i].n; t++)
            AX_ASSERT(fits(task, l->items[i].tokens[t], l->items[i].labels[t]));
    }
}

static void run(const struct ax_format_options *o, json_t *row) {
    struct ax_format *f;
    struct ax_format_work w = {0};
    struct ax_example_list l = {.columns = &columns};
    if (ax_format_new(&f, o) != AX_OK)
        return; /* a type of another task */
    const enum ax_status st = ax_format_record(f, &w, row, (struct ax_origin){.line = 1}, &l);
    AX_ASSERT(st == AX_OK ||
              ((st == AX_ERR_DATA || st == AX_ERR_EMPTY || st == AX_ERR_CONFIG) && l.n == 0));
    check(o->task, &l);
    ax_example_list_free(&l);
    ax_format_work_free(&w);
    ax_format_free(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const types[] = {NULL,
                                        "chat_template.default",
                                        "chat_template.argilla",
                                        "chat_template.argilla_chat",
                                        "bradley_terry.chat_template",
                                        "chatml.default",
                                        "llama3.ultra",
                                        "passthrough"};
    static const struct ax_name_map properties[] = {{"role", "role"}, {"content", "content"}};
    struct ax_json_doc doc;
    if (!tokenizer)
        make_tokenizer(source);
    if (size < 2 || ax_json_parse(&doc, "row", (const char *)data + 2, size - 2) != AX_OK)
        return 0;
    const struct ax_format_chat chat = {.template = template,
                                        .tokens = tokens,
                                        .field_messages = "messages",
                                        .field_tools = "tools",
                                        .properties = properties,
                                        .n_properties = 2,
                                        .thinking_key = "reasoning_content"};
    const struct ax_format_answer_map map = {.field_prompt = "question",
                                             .field_system = "system",
                                             .field_chosen = "chosen",
                                             .field_rejected = "rejected",
                                             .field_completion = "completion",
                                             .field_label = "label",
                                             .prompt_format = "{system}{prompt}",
                                             .chosen_format = "{chosen}",
                                             .rejected_format = "{rejected}",
                                             .completion_format = "{completion}"};
    const struct ax_format_answers answers = {.field_chosen = "chosen",
                                              .field_rejected = "rejected",
                                              .map = data[0] & 64 ? &map : NULL,
                                              .framed_by_ids = data[1] & 1,
                                              .own = data[1] & 128 && !(data[0] & 64)};
    const struct ax_format_steps steps = {.separator = data[1] & 2 ? "\n" : "",
                                          .max_completion = data[1] & 4 ? 9 : 0,
                                          .last_only = data[1] & 8};
    const bool prompt = data[0] & 32;
    const struct ax_format_options o = {
        .task = prompt ? AX_TASK_PROMPT : (enum ax_task)(1 + (data[0] & 3)),
        .type = prompt && data[0] & 4 ? "chat_template" : types[data[0] >> 2 & 7],
        .tokenizer = tokenizer,
        .sequence_len = 40,
        .chat = data[1] & 16 ? NULL : &chat,
        .answers = &answers,
        .steps = &steps,
        .long_examples = (enum ax_long)((data[1] >> 5) % 3),
        .columns = &columns};
    if (json_is_object(doc.root))
        run(&o, doc.root);
    ax_json_free(&doc);
    return 0;
}
