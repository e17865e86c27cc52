/* The table of axolotl's types of preference and reward records. */
#include <string.h>

#include "data/records/format/answers_types.h"

#define PAIRS   (1U << AX_TASK_PAIR | 1U << AX_TASK_REWARD)
#define REWARDS (1U << AX_TASK_REWARD)
#define SINGLES (1U << AX_TASK_UNPAIRED)
#define CHAT    "chatml|llama3"

#define TEXTS(family, function, tasks, system, prompt, ...)                                        \
    {                                                                                              \
        family, function, tasks, ax_answers_text, system, prompt, {                                \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

static const struct ax_answers_type types[] = {
    {"chat_template", "default", PAIRS, ax_answers_chat, NULL, NULL, {NULL, NULL}},
    {"chat_template", "argilla_chat", PAIRS, ax_answers_argilla_chat, NULL, NULL, {NULL, NULL}},
    {"chat_template", "argilla", PAIRS, ax_answers_argilla, NULL, NULL, {NULL, NULL}},
    {"bradley_terry", "default", REWARDS, ax_answers_bradley_terry, NULL, NULL, {NULL, NULL}},
    {"bradley_terry", "chat_template", REWARDS, ax_answers_bradley_terry, NULL, NULL, {NULL, NULL}},
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
