/* Axolotl's types of preference and reward records: readers of texts (chatml and llama3, which write a
 * chat's text themselves, and the texts as they are), of a map's own texts, of messages; the table. */
#include <stdio.h>
#include <string.h>

#include "data/records/format/answers.h"
#include "data/records/format/tools.h"

/* ---- columns as text ---- */

/* The value of "name[1]", the content of a message, or of a column; NULL if it is not there. */
static const json_t *value_at(const json_t *record, const char *path, size_t n) {
    const char *open = memchr(path, '[', n);
    const json_t *v = json_object_getn(record, path, open ? (size_t)(open - path) : n);
    return open ? json_object_get(json_array_get(v, (size_t)(open[1] - '0')), "content") : v;
}

/* Whether "name[1]" is of a list with more messages than the two that a type reads. */
static bool leaves_out(const json_t *record, const char *path) {
    const char *open = path ? strchr(path, '[') : NULL;
    return open && json_array_size(json_object_getn(record, path, (size_t)(open - path))) > 2;
}

/* Appends the first of the columns "a|b" that the record has. */
static enum ax_status put_column(const struct ax_format *f, json_t *record, const char *paths,
                                 struct ax_buf *out) {
    AX_ASSERT(paths != NULL);
    for (const char *path = paths;; path++) {
        const size_t n = strcspn(path, "|");
        const json_t *v = value_at(record, path, n);
        if (json_is_string(v))
            return ax_buf_append(out, json_string_value(v), json_string_length(v));
        if (v)
            return ax_error(AX_ERR_DATA, "%.*s: expected text, got %s", (int)n, path,
                            ax_json_kind(v));
        path += n;
        if (*path == '\0')
            break;
    }
    char first[64];
    snprintf(first, sizeof first, "%.*s", (int)strcspn(paths, "|"), paths);
    return ax_answers_missing(f, record, first);
}

/* ---- types that write a chat's text themselves ---- */

static const struct text_family {
    const char *name, *system[2], *prompt[2], *end;
} families[] = {
    {"chatml",
     {"<|im_start|>system\n", "<|im_end|>\n"},
     {"<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"},
     "<|im_end|>"},
    {"llama3",
     {"<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>"},
     {"<|start_header_id|>user<|end_header_id|>\n\n",
      "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
     "<|eot_id|>"},
    {"passthrough", {"", ""}, {"", ""}, ""},
};

static const struct text_family *family_of(const char *type) {
    const size_t n = strcspn(type, ".");
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strlen(families[i].name) == n && memcmp(families[i].name, type, n) == 0)
            return &families[i];
    return NULL;
}

/* The column of the label that unpaired answers have. */
static enum ax_status read_label(const struct ax_format *f, json_t *record, const char *column,
                                 struct ax_answers *a) {
    if (a->n == 2)
        return AX_OK;
    if (!json_object_get(record, column))
        return ax_answers_missing(f, record, column);
    return ax_answers_label(record, column, &a->desirable);
}

/* The type's columns, in the texts of its family. */
static enum ax_status read_texts(const struct ax_format *f, json_t *record, struct ax_answers *a) {
    const struct ax_answers_type *t = ax_answers_type_of(f);
    const struct text_family *family = family_of(f->o.type);
    const json_t *system = t->system ? json_object_get(record, t->system) : NULL;
    a->n = t->answers[1] ? 2 : 1;
    if (json_string_length(system) > 0) {
        AX_TRY(ax_buf_puts(&a->prompt, family->system[0]));
        AX_TRY(ax_buf_append(&a->prompt, json_string_value(system), json_string_length(system)));
        AX_TRY(ax_buf_puts(&a->prompt, family->system[1]));
    }
    AX_TRY(ax_buf_puts(&a->prompt, family->prompt[0]));
    AX_TRY(put_column(f, record, t->prompt, &a->prompt));
    AX_TRY(ax_buf_puts(&a->prompt, family->prompt[1]));
    for (int k = 0; k < a->n; k++) {
        a->names[k] = t->answers[k];
        a->lost |= leaves_out(record, t->answers[k]) ? 1U << AX_ODD_REST : 0;
        AX_TRY(put_column(f, record, t->answers[k], &a->texts[k]));
        AX_TRY(ax_answers_check_text(a->names[k],
                                     (struct ax_text){a->texts[k].data, a->texts[k].len}));
        AX_TRY(ax_buf_puts(&a->texts[k], family->end));
    }
    return read_label(f, record, "label", a);
}

/* ---- a map ---- */

/* The column of a key, as a value for the texts. */
static enum ax_status read_value(const struct ax_format *f, json_t *record, const char *column,
                                 struct ax_text *out) {
    if (!json_object_get(record, column))
        return ax_answers_missing(f, record, column);
    return ax_record_text(record, column, out);
}

enum ax_status ax_answers_fill_prompt(const struct ax_format *f, json_t *record,
                                      struct ax_buf *out) {
    const struct ax_format_answer_map *m = f->o.answers->map;
    struct ax_fill_value values[2] = {{.name = "prompt"}, {.name = "system"}};
    AX_TRY(read_value(f, record, m->field_prompt, &values[0].text));
    AX_TRY(ax_record_text_or_empty(record, m->field_system, &values[1].text));
    return ax_text_fill(out, "prompt_format", m->prompt_format, values, 2);
}

static enum ax_status map_record(const struct ax_format *f, json_t *record, struct ax_answers *a) {
    const struct ax_format_answer_map *m = f->o.answers->map;
    const int first = f->o.task == AX_TASK_UNPAIRED ? 2 : 0, n = first == 2 ? 1 : 2;
    const struct {
        const char *column, *name, *key, *format;
    } answers[] = {{m->field_chosen, "chosen", "chosen_format", m->chosen_format},
                   {m->field_rejected, "rejected", "rejected_format", m->rejected_format},
                   {m->field_completion, "completion", "completion_format", m->completion_format}};
    a->n = n;
    AX_TRY(ax_answers_fill_prompt(f, record, &a->prompt));
    for (int k = 0; k < n; k++) {
        const int i = first + k;
        struct ax_fill_value answer = {.name = answers[i].name};
        a->names[k] = answers[i].column;
        AX_TRY(read_value(f, record, answers[i].column, &answer.text));
        AX_TRY(ax_answers_check_text(a->names[k], answer.text));
        AX_TRY(ax_text_fill(&a->texts[k], answers[i].key, answers[i].format, &answer, 1));
    }
    return read_label(f, record, m->field_label, a);
}

enum ax_status ax_answers_check_map(const struct ax_format_answer_map *m) {
    static const struct ax_fill_value prompt[] = {{.name = "prompt"}, {.name = "system"}},
                                      chosen[] = {{.name = "chosen"}},
                                      rejected[] = {{.name = "rejected"}},
                                      completion[] = {{.name = "completion"}};
    AX_TRY(ax_text_fill(NULL, "prompt_format", m->prompt_format, prompt, 2));
    AX_TRY(ax_text_fill(NULL, "chosen_format", m->chosen_format, chosen, 1));
    AX_TRY(ax_text_fill(NULL, "rejected_format", m->rejected_format, rejected, 1));
    return ax_text_fill(NULL, "completion_format", m->completion_format, completion, 1);
}

const struct ax_answers_type ax_answers_map = {.tasks = 1U << AX_TASK_PAIR | 1U << AX_TASK_REWARD |
                                                        1U << AX_TASK_UNPAIRED,
                                               .read = map_record};

/* ---- types whose records hold messages, as texts ----
 *
 * As axolotl does: the template's rendering of the prompt, and what it writes for each answer. */

static bool is_blank(char c) {
    return c != '\0' && strchr(" \t\r\n\v\f", c);
}

/* Where the template writes the text of an answer in `text`, the rendering of both messages of `list`: the
 * rendering with another text is the same up to there. 0 if it differs before. */
static enum ax_status find_start(const struct ax_format *f, json_t *list, json_t *variables,
                                 const struct ax_buf *text, size_t *start) {
    static const char mark[] = "[[this turn]]";
    json_t *marked =
        json_pack("[O, o]", json_array_get(list, 0), json_copy(json_array_get(list, 1)));
    const struct ax_answers_text t = {.messages = marked, .variables = variables};
    struct ax_buf other = {0};
    enum ax_status st =
        json_object_set_new(json_array_get(marked, 1), "content", json_string(mark)) == 0
            ? ax_answers_render(f, &t, &other)
            : ax_answers_no_memory();
    const char *at = st == AX_OK ? strstr(other.data, mark) : NULL;
    const size_t n = at ? (size_t)(at - other.data) : 0;
    *start = n > 0 && n <= text->len && memcmp(other.data, text->data, n) == 0 ? n : 0;
    ax_buf_free(&other);
    json_decref(marked);
    return st;
}

/* From the answer's text on, or from its calls, up to the end of its turn, without white space after it. */
static enum ax_status put_from(const struct ax_buf *text, size_t start, const char *content,
                               struct ax_buf *out) {
    const char *from = text->data + start, *at = from;
    size_t n = content ? strlen(content) : 0, end = text->len;
    if (n > 0 && !ax_text_is_blank(content, n))
        at = strstr(from, content);
    if (!at) { /* templates may trim it */
        for (; is_blank(*content); content++)
            n--;
        while (n > 0 && is_blank(content[n - 1]))
            n--;
        at = memmem(from, text->len - start, content, n);
    }
    if (!at)
        return ax_error(AX_ERR_DATA, "the chat template does not write the answer's text");
    while (end > start && is_blank(text->data[end - 1]))
        end--;
    return ax_buf_append(out, at, end - (size_t)(at - text->data));
}

/* An answer as the template writes it after some other turn. */
static enum ax_status put_reply(const struct ax_format *f, struct ax_answers *a, json_t *message,
                                struct ax_buf *out) {
    json_t *list =
        json_pack("[{s:s, s:s}, O]", "role", "user", "content", "[[other turn]]", message);
    const struct ax_answers_text reply = {
        .messages = list, .lost = &a->lost, .variables = a->variables};
    struct ax_buf text = {0};
    size_t start = 0;
    enum ax_status st = list ? ax_answers_render(f, &reply, &text) : ax_answers_no_memory();
    if (st == AX_OK)
        st = find_start(f, list, a->variables, &text, &start);
    if (st == AX_OK)
        st = put_from(&text, start, json_string_value(json_object_get(message, "content")), out);
    ax_buf_free(&text);
    json_decref(list);
    return st;
}

/* The last message of answer k, which is a text, a message or a list, as a list of one. */
static enum ax_status read_last(const struct ax_format *f, json_t *record, struct ax_answers *a,
                                int k, json_t **out) {
    const struct ax_message_source from = {a->names[k], "assistant", true};
    json_t *v = json_object_get(record, a->names[k]);
    if (!v)
        return ax_answers_missing(f, record, a->names[k]);
    json_t *last = json_array_get(v, json_array_size(v) - 1);
    return ax_answers_messages(f, a, last ? last : v, &from, out);
}

static enum ax_status put_replies(const struct ax_format *f, json_t *record, struct ax_answers *a) {
    for (int k = 0; k < 2; k++) {
        json_t *list = NULL;
        AX_TRY(read_last(f, record, a, k, &list));
        const enum ax_status st = put_reply(f, a, json_array_get(list, 0), &a->texts[k]);
        json_decref(list);
        if (st != AX_OK)
            return st == AX_ERR_DATA ? ax_error_prefix(st, "%s", a->names[k]) : st;
    }
    return AX_OK;
}

static enum ax_status keep_replies(const struct ax_format *f, json_t *record,
                                   struct ax_answers *a) {
    a->chat = true;
    for (int k = 0; k < 2; k++)
        AX_TRY(read_last(f, record, a, k, &a->replies[k]));
    return AX_OK;
}

/* The names of both answers, and the tools. */
static enum ax_status start_pair(const struct ax_format *f, json_t *record, struct ax_answers *a) {
    a->n = 2;
    a->names[0] = f->o.answers->field_chosen;
    a->names[1] = f->o.answers->field_rejected;
    AX_TRY(ax_answers_beside(f, record, a));
    if (json_array_size(a->tools) == 0) { /* some templates introduce them all the same */
        json_decref(a->tools);
        a->tools = NULL;
    }
    return AX_OK;
}

static enum ax_status put_prompt(const struct ax_format *f, json_t *v, const char *name,
                                 struct ax_answers *a) {
    json_t *list = NULL;
    AX_TRY(ax_answers_messages(f, a, v, &(struct ax_message_source){name, "user", false}, &list));
    const struct ax_answers_text prompt = {.messages = list,
                                           .tools = a->tools,
                                           .generation_prompt = true,
                                           .lost = &a->lost,
                                           .variables = a->variables};
    const enum ax_status st = ax_answers_render(f, &prompt, &a->prompt);
    json_decref(list);
    return st;
}

static enum ax_status read_chat(const struct ax_format *f, json_t *record, struct ax_answers *a) {
    AX_TRY(start_pair(f, record, a));
    const char *column = f->o.chat ? f->o.chat->field_messages : "messages";
    json_t *messages = json_object_get(record, column);
    if (!messages)
        return ax_answers_missing(f, record, column);
    AX_TRY(put_prompt(f, messages, column, a));
    return put_replies(f, record, a);
}

/* The prompt is the preferred conversation without its last message. */
static enum ax_status read_argilla_chat(const struct ax_format *f, json_t *record,
                                        struct ax_answers *a) {
    AX_TRY(start_pair(f, record, a));
    json_t *chosen = json_object_get(record, a->names[0]);
    if (!chosen)
        return ax_answers_missing(f, record, a->names[0]);
    if (json_array_size(chosen) < 2)
        return ax_error(AX_ERR_DATA, "%s: expected a list of at least two messages, got %s",
                        a->names[0],
                        json_is_array(chosen) ? "a shorter one" : ax_json_kind(chosen));
    json_t *prompt = json_copy(chosen);
    if (!prompt)
        return ax_answers_no_memory();
    json_array_remove(prompt, json_array_size(prompt) - 1);
    const enum ax_status st = put_prompt(f, prompt, a->names[0], a);
    json_decref(prompt);
    return st == AX_OK ? put_replies(f, record, a) : st;
}

/* ---- types whose records hold messages, as messages ---- */

static enum ax_status add_message(json_t *list, const char *role, const json_t *content,
                                  const json_t *calls) {
    return json_array_append_new(list, json_pack("{s:s, s:O, s:O*}", "role", role, "content",
                                                 content, "tool_calls", calls))
               ? ax_answers_no_memory()
               : AX_OK;
}

/* A system turn if there is a text, then the conversation so far. */
static enum ax_status start_messages(const json_t *record, json_t **out) {
    const json_t *system = json_object_get(record, "system");
    *out = json_array();
    if (!*out)
        return ax_answers_no_memory();
    return json_string_length(system) > 0 ? add_message(*out, "system", system, NULL) : AX_OK;
}

/* User and assistant turns take turns; the column prompt replaces the text of user turns. */
static enum ax_status read_argilla(const struct ax_format *f, json_t *record,
                                   struct ax_answers *a) {
    AX_TRY(start_pair(f, record, a));
    const json_t *prompt = json_object_get(record, "prompt");
    json_t *list = NULL;
    for (int k = 0; k < 2; k++) {
        const json_t *v = json_object_get(record, a->names[k]);
        if (!v)
            return ax_answers_missing(f, record, a->names[k]);
        if (!json_is_array(v) || json_array_size(v) < 2 || json_array_size(v) % 2 != 0)
            return ax_error(
                AX_ERR_DATA, "%s: expected pairs of a user and an assistant message, got %s",
                a->names[k], json_is_array(v) ? "an odd number of messages" : ax_json_kind(v));
    }
    const json_t *chosen = json_object_get(record, a->names[0]);
    AX_TRY(keep_replies(f, record, a));
    enum ax_status st = start_messages(record, &list);
    for (size_t i = 0; i + 1 < json_array_size(chosen) && st == AX_OK; i++) {
        const json_t *own = json_object_get(json_array_get(chosen, i), "content");
        const json_t *text = i % 2 == 0 && json_is_string(prompt) ? prompt : own;
        if (text)
            st = add_message(list, i % 2 == 0 ? "user" : "assistant", text,
                             json_object_get(json_array_get(chosen, i), "tool_calls"));
        else
            st = ax_error(AX_ERR_DATA, "%s[%zu]: expected {\"role\": …, \"content\": …}",
                          a->names[0], i);
    }
    if (st == AX_OK)
        st = ax_answers_messages(
            f, a, list, &(struct ax_message_source){a->names[0], "user", false}, &a->messages);
    json_decref(list);
    return st;
}

/* system, input, chosen, rejected */
static enum ax_status read_bradley_terry(const struct ax_format *f, json_t *record,
                                         struct ax_answers *a) {
    AX_TRY(start_pair(f, record, a));
    const json_t *input = json_object_get(record, "input");
    json_t *list = NULL;
    if (!json_is_string(input))
        return input ? ax_record_bad_text(record, "input", input)
                     : ax_answers_missing(f, record, "input");
    AX_TRY(keep_replies(f, record, a));
    enum ax_status st = start_messages(record, &list);
    if (st == AX_OK)
        st = add_message(list, "user", input, NULL);
    if (st == AX_OK)
        st = ax_answers_messages(f, a, list, &(struct ax_message_source){"input", "user", false},
                                 &a->messages);
    json_decref(list);
    return st;
}

/* ---- the table ---- */

#define PAIRS   (1U << AX_TASK_PAIR | 1U << AX_TASK_REWARD)
#define REWARDS (1U << AX_TASK_REWARD)
#define SINGLES (1U << AX_TASK_UNPAIRED)
#define CHAT    "chatml|llama3"

#define TEXTS(family, function, tasks, system, prompt, ...)                                        \
    {                                                                                              \
        family, function, tasks, read_texts, system, prompt, {                                     \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

static const struct ax_answers_type types[] = {
    {"chat_template", "default", PAIRS, read_chat, NULL, NULL, {NULL, NULL}},
    {"chat_template", "argilla_chat", PAIRS, read_argilla_chat, NULL, NULL, {NULL, NULL}},
    {"chat_template", "argilla", PAIRS, read_argilla, NULL, NULL, {NULL, NULL}},
    {"bradley_terry", "default", REWARDS, read_bradley_terry, NULL, NULL, {NULL, NULL}},
    {"bradley_terry", "chat_template", REWARDS, read_bradley_terry, NULL, NULL, {NULL, NULL}},
    TEXTS(CHAT, "default", PAIRS, "system", "prompt|input|question|instruction",
          "chosen|chosen_response", "rejected|rejected_response"),
    TEXTS(CHAT, "icr", PAIRS, "system", "input", "chosen", "rejected"),
    TEXTS(CHAT, "intel", PAIRS, "system", "question", "chosen", "rejected"),
    TEXTS(CHAT, "prompt_pairs", PAIRS, "system", "prompt", "chosen", "rejected"),
    TEXTS(CHAT, "ultra", PAIRS, "system", "prompt", "chosen[1]", "rejected[1]"),
    TEXTS(CHAT, "argilla_chat", PAIRS, NULL, "chosen[0]", "chosen[1]", "rejected[1]"),
    TEXTS(CHAT, "argilla", SINGLES, "system", "instruction", "completion", NULL),
    TEXTS(CHAT, "argilla_chat", SINGLES, NULL, "completion[0]", "completion[1]", NULL),
    TEXTS(CHAT, "intel", SINGLES, "system", "question", "completion", NULL),
    TEXTS(CHAT, "prompt_pairs", SINGLES, "system", "prompt", "completion", NULL),
    TEXTS(CHAT, "ultra", SINGLES, "system", "prompt", "completion", NULL),
    TEXTS("passthrough", "default", PAIRS, NULL, "prompt", "chosen", "rejected"),
    TEXTS("passthrough", "default", SINGLES, NULL, "prompt", "completion", NULL),
};

/* Is `word` (n bytes) one of "a|b"? */
static bool is_among(const char *word, size_t n, const char *list) {
    for (const char *s = list;; s++) {
        const size_t len = strcspn(s, "|");
        if (len == n && memcmp(s, word, n) == 0)
            return true;
        s += len;
        if (*s == '\0')
            return false;
    }
}

static bool is_named(const struct ax_answers_type *t, const char *type) {
    const size_t n = strcspn(type, ".");
    const char *function = type[n] ? type + n + 1 : "default";
    return is_among(type, n, t->family) && strcmp(function, t->function) == 0;
}

bool ax_answers_is_type(const char *type) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (is_named(&types[i], type))
            return true;
    return false;
}

enum ax_status ax_answers_find_type(const struct ax_format_options *o,
                                    const struct ax_answers_type **out) {
    *out = o->answers->map ? &ax_answers_map : &ax_answers_own;
    if (o->answers->map)
        return ax_answers_check_map(o->answers->map);
    if (!o->type)
        return AX_OK;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        *out = &types[i];
        if (is_named(*out, o->type) && ((*out)->tasks & 1U << o->task))
            return AX_OK;
    }
    if (strcmp(o->type, "zephyr.nectar") == 0)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "type zephyr.nectar pairs the two worst of the ranked answers; write the "
                        "pairs you want as prompt, chosen, rejected and leave out `type`");
    return ax_error(
        AX_ERR_CONFIG, "type \"%s\" does not make %s; leave out `type` for the columns %s", o->type,
        o->task == AX_TASK_UNPAIRED ? "unpaired answers" : "pairs of answers",
        o->task == AX_TASK_UNPAIRED ? "prompt, completion, label" : "prompt, chosen, rejected");
}

const struct ax_answers_type *ax_answers_type_of(const struct ax_format *f) {
    return *(const struct ax_answers_type *const *)f->own;
}
