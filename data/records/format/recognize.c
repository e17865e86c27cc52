#include "data/records/format/recognize.h"

#include <stdio.h>
#include <string.h>

/* Pairs of prompt and answer columns that data sets use, the least ambiguous first. */
static const struct {
    const char *prompt, *answer;
} pairs[] = {
    {"question", "answer"},      {"prompt", "completion"}, {"prompt", "response"},
    {"instruction", "response"}, {"query", "response"},    {"question", "response"},
    {"problem", "solution"},     {"input", "output"},      {"prompt", "answer"},
};
static const struct {
    const char *role, *content;
} speakers[] = {{"role", "content"}, {"from", "value"}};
static const char *const texts[] = {"text", "content", "document"};

/* ---- columns ---- */

struct sample {
    json_t *const *rows;
    size_t n;
};

/* True if every record has the column with this kind of value. */
static bool all_have(const struct sample *s, const char *column,
                     bool (*fits)(const json_t *v, const void *ctx), const void *ctx) {
    for (size_t i = 0; i < s->n; i++)
        if (!fits(json_object_get(s->rows[i], column), ctx))
            return false;
    return true;
}

static bool is_text(const json_t *v, const void *ctx) {
    (void)ctx;
    return json_is_string(v);
}

static bool is_list(const json_t *v, const void *ctx) {
    (void)ctx;
    return json_is_array(v);
}

static bool is_rating(const json_t *v, const void *ctx) {
    (void)ctx;
    return json_is_boolean(v) ||
           (json_is_number(v) && (json_number_value(v) == 0 || json_number_value(v) == 1));
}

static bool is_anything(const json_t *v, const void *ctx) {
    (void)ctx;
    return v != NULL;
}

/* A list of objects with a speaker and text (null or missing with tool calls). */
static bool is_conversation(const json_t *v, const void *ctx) {
    const size_t which = *(const size_t *)ctx;
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *turn = json_array_get(v, i);
        const json_t *words = json_object_get(turn, speakers[which].content);
        if (!json_is_string(json_object_get(turn, speakers[which].role)) ||
            (!words && !json_object_get(turn, "tool_calls")))
            return false;
    }
    return json_array_size(v) > 0;
}

static bool has_text(const struct sample *s, const char *column) {
    return all_have(s, column, is_text, NULL);
}

static void set(char *to, const char *name) {
    snprintf(to, AX_COLUMN_NAME, "%s", name);
}

/* ---- kinds ---- */

static bool find_chat(struct ax_record_shape *d, const struct sample *s) {
    const char *column;
    json_t *v;
    json_object_foreach(s->rows[0], column, v) {
        for (size_t which = 0; which < sizeof speakers / sizeof *speakers; which++) {
            if (strlen(column) >= AX_COLUMN_NAME || !all_have(s, column, is_conversation, &which))
                continue;
            d->kind = AX_RECORD_CHAT;
            set(d->messages, column);
            set(d->role, speakers[which].role);
            set(d->content, speakers[which].content);
            return true;
        }
    }
    return false;
}

static bool find_alpaca(struct ax_record_shape *d, const struct sample *s) {
    if (!has_text(s, "instruction") || !has_text(s, "output"))
        return false;
    d->kind = AX_RECORD_ALPACA;
    set(d->prompt, "instruction");
    set(d->answer, "output");
    return true;
}

static bool find_pair(struct ax_record_shape *d, const struct sample *s) {
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (!has_text(s, pairs[i].prompt) || !has_text(s, pairs[i].answer))
            continue;
        d->kind = AX_RECORD_PAIR;
        set(d->prompt, pairs[i].prompt);
        set(d->answer, pairs[i].answer);
        return true;
    }
    return false;
}

/* Finds a column with a common name, or the only one. */
static bool find_text(struct ax_record_shape *d, const struct sample *s) {
    const char *name = NULL;
    for (size_t i = 0; i < sizeof texts / sizeof *texts && !name; i++)
        name = has_text(s, texts[i]) ? texts[i] : NULL;
    if (!name && json_object_size(s->rows[0]) == 1) {
        const char *only = json_object_iter_key(json_object_iter(s->rows[0]));
        name = strlen(only) < AX_COLUMN_NAME && has_text(s, only) ? only : NULL;
    }
    if (!name)
        return false;
    d->kind = AX_RECORD_TEXT;
    set(d->text, name);
    return true;
}

/* The kinds with two columns that say it, and need no type. */
static const struct rated {
    enum ax_record_kind kind;
    const char *columns[2];
    bool (*fits[2])(const json_t *v, const void *ctx);
    const char *text, *task;
} rated[] = {
    {AX_RECORD_PREFERENCES,
     {"chosen", "rejected"},
     {is_anything, is_anything},
     "preferences (chosen, rejected)",
     "rl: dpo, without `type`"},
    {AX_RECORD_UNPAIRED,
     {"completion", "label"},
     {is_anything, is_rating},
     "rated answers (completion, label)",
     "rl: kto, without `type`"},
    {AX_RECORD_STEPS,
     {"completions", "labels"},
     {is_list, is_list},
     "labeled steps (completions, labels)",
     "process_reward_model: true"},
    {AX_RECORD_COMPLETION,
     {"prompt", "completion"},
     {is_list, is_list},
     "messages in prompt and completion",
     "leave `type` out"},
};

static const struct rated *find_rated(const struct sample *s, enum ax_record_kind kind) {
    for (size_t i = 0; i < sizeof rated / sizeof *rated; i++)
        if (s ? all_have(s, rated[i].columns[0], rated[i].fits[0], NULL) &&
                    all_have(s, rated[i].columns[1], rated[i].fits[1], NULL)
              : rated[i].kind == kind)
            return &rated[i];
    return NULL;
}

struct ax_record_shape ax_records_recognize(json_t *const *records, size_t n) {
    const struct sample s = {records, n};
    struct ax_record_shape d = {.kind = AX_RECORD_UNKNOWN};
    const struct rated *r = find_rated(&s, AX_RECORD_UNKNOWN);
    if (r)
        d.kind = r->kind;
    else if (!find_chat(&d, &s) && !find_alpaca(&d, &s) && !find_pair(&d, &s))
        (void)find_text(&d, &s);
    return d;
}

char *ax_record_columns(const json_t *record, char *buf, size_t size) {
    static const char more[] = "…";
    size_t n = 0;
    const char *key;
    const json_t *value;
    snprintf(buf, size, "none");
    json_object_foreach((json_t *)(uintptr_t)record, key, value) {
        const char *comma = n ? ", " : "", *null = json_is_null(value) ? " (null)" : "";
        const size_t len = strlen(key),
                     taken = strlen(comma) + sizeof "\"\"" + sizeof more + strlen(null);
        if (n + taken + len > size) { /* a first name is never left out, however long */
            size_t part = n ? 0 : size - taken;
            while (part > 0 && ((unsigned char)key[part] & 0xC0U) == 0x80U)
                part--;
            const char *quote = n ? "" : "\"";
            snprintf(buf + n, size - n, "%s%s%.*s%s%s", comma, quote, (int)part, key, more, quote);
            break;
        }
        n += (size_t)snprintf(buf + n, size - n, "%s\"%s\"%s", comma, key, null);
    }
    return buf;
}

/* ---- errors ---- */

static bool has_property(const struct ax_format_chat *chat, const char *from, const char *to) {
    for (size_t i = 0; i < chat->n_properties; i++)
        if (strcmp(chat->properties[i].from, from) == 0 && strcmp(chat->properties[i].to, to) == 0)
            return true;
    return false;
}

/* The prompt and answer columns that the options read; false if the type has none. */
static bool pair_of(const struct ax_format_options *o, const char **prompt, const char **answer) {
    static const struct {
        const char *type, *prompt, *answer;
    } types[] = {{"alpaca", "instruction", "output"},
                 {"gpteacher", "instruction", "response"},
                 {"oasst", "INSTRUCTION", "RESPONSE"},
                 {"jeopardy", "question", "answer"}};
    if (o->user) {
        *prompt = o->user->field_instruction;
        *answer = o->user->field_output;
        return true;
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const size_t n = strlen(types[i].type);
        if (o->type && strncmp(o->type, types[i].type, n) == 0 &&
            (o->type[n] == '\0' || o->type[n] == ':')) {
            *prompt = types[i].prompt;
            *answer = types[i].answer;
            return true;
        }
    }
    return false;
}

/* True for "messages" with "role" and "content". */
static bool has_usual_names(const struct ax_record_shape *d) {
    return strcmp(d->messages, "messages") == 0 && strcmp(d->role, "role") == 0;
}

/* True if the record has the columns that the options read, so that the error has another cause. */
static bool is_read(const struct ax_record_shape *d, const struct ax_format_options *o,
                    const json_t *record) {
    const char *prompt, *answer;
    static const enum ax_record_kind own[] = {[AX_TASK_PAIR] = AX_RECORD_PREFERENCES,
                                              [AX_TASK_UNPAIRED] = AX_RECORD_UNPAIRED,
                                              [AX_TASK_REWARD] = AX_RECORD_PREFERENCES,
                                              [AX_TASK_STEPS] = AX_RECORD_STEPS,
                                              [AX_TASK_PROMPT] = AX_RECORD_UNKNOWN};
    if (o->task != AX_TASK_TEXT) /* the type of steps reads the same columns */
        return (!o->type || o->task == AX_TASK_STEPS) && d->kind == own[o->task];
    if (!o->type && !o->user && /* TRL's columns */
        (d->kind == AX_RECORD_COMPLETION || (d->kind == AX_RECORD_CHAT && has_usual_names(d))))
        return true;
    if (o->chat && d->kind == AX_RECORD_CHAT)
        return strcmp(d->messages, o->chat->field_messages) == 0 &&
               has_property(o->chat, d->role, "role") &&
               has_property(o->chat, d->content, "content");
    if (o->chat)
        return json_object_get(record, o->chat->field_messages) != NULL;
    if (pair_of(o, &prompt, &answer))
        return json_object_get(record, prompt) && json_object_get(record, answer);
    return o->field && json_object_get(record, o->field) != NULL;
}

/* The settings that read this kind of record without ratings, as written in a config. */
static void advise_text(const struct ax_record_shape *d, char *buf, size_t size) {
    if (d->kind == AX_RECORD_CHAT && has_usual_names(d))
        snprintf(buf, size, "type: chat_template");
    else if (d->kind == AX_RECORD_CHAT)
        snprintf(buf, size,
                 "type: chat_template, field_messages: %s, message_property_mappings: "
                 "{role: %s, content: %s}",
                 d->messages, d->role, d->content);
    else if (d->kind == AX_RECORD_ALPACA)
        snprintf(buf, size, "type: alpaca");
    else if (d->kind == AX_RECORD_PAIR)
        snprintf(buf, size, "type: {field_instruction: %s, field_output: %s}", d->prompt,
                 d->answer);
    else
        snprintf(buf, size, "type: completion, field: %s", d->text);
}

/* A column that says of each answer whether it is good; NULL if there is none. */
static const char *rating_of(const json_t *record) {
    const char *column;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)record, column, v) {
        if (is_rating(v, NULL))
            return column;
    }
    return NULL;
}

/* The settings that read this record, or what it is instead of what the task needs. */
static void advise(const struct ax_record_shape *d, const json_t *record, enum ax_task task,
                   char *buf, size_t size) {
    static const char *const keys[] = {[AX_TASK_PAIR] = "rl",
                                       [AX_TASK_UNPAIRED] = "rl",
                                       [AX_TASK_REWARD] = "reward_model",
                                       [AX_TASK_STEPS] = "process_reward_model"};
    const struct rated *r = find_rated(NULL, d->kind);
    const char *prompt = d->kind == AX_RECORD_TEXT ? d->text : d->prompt;
    const char *rating = rating_of(record);
    char text[300];
    advise_text(d, text, sizeof text);
    if (task == AX_TASK_PROMPT && *prompt)
        snprintf(buf, size, "type: {field_prompt: %s}", prompt);
    else if (r)
        snprintf(buf, size, "%s: %s", r->text, r->task);
    else if (task == AX_TASK_UNPAIRED && *d->answer && rating)
        snprintf(buf, size, "type: {field_prompt: %s, field_completion: %s, field_label: %s}",
                 prompt, d->answer, rating);
    else if (task != AX_TASK_TEXT && task != AX_TASK_PROMPT)
        snprintf(buf, size, "fine-tuning data: %s, without `%s`", text, keys[task]);
    else
        snprintf(buf, size, "%s", text);
}

/* A column with a list of what could be records, as in {"data": [{"text": …}, …]}; NULL if there is none. */
static const char *find_inner(const json_t *record) {
    const char *column;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)record, column, v) {
        json_t *first = json_array_get(v, 0);
        if (json_is_object(first) && ax_records_recognize(&first, 1).kind != AX_RECORD_UNKNOWN)
            return column;
    }
    return NULL;
}

enum ax_status ax_record_error_hint(enum ax_status st, const struct ax_format_options *o,
                                    json_t *record) {
    const struct ax_record_shape d = ax_records_recognize(&record, 1);
    const char *inner = d.kind == AX_RECORD_UNKNOWN ? find_inner(record) : NULL;
    char advice[400];
    if (inner)
        return ax_error(st,
                        "%s; if the objects in \"%.100s\" are the records, write them alone: jq -c "
                        "'.[\"%.100s\"][]' FILE > rows.jsonl",
                        ax_error_text(), inner, inner);
    if (d.kind == AX_RECORD_UNKNOWN || is_read(&d, o, record))
        return st;
    advise(&d, record, o->task, advice, sizeof advice);
    return ax_error(st, "%s; these columns look like %s", ax_error_text(), advice);
}
