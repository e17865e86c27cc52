/* Types whose records hold texts: chatml and llama3, which write a chat's text themselves, the texts
 * as they are (passthrough), and a map's own texts. */
#include <stdio.h>
#include <string.h>

#include "data/records/format/answers_types.h"

/* ---- columns ---- */

/* The value of "name[1]", the content of a message, or of a column; NULL if it is not there. */
static const json_t *value_at(const json_t *record, const char *path, size_t n) {
    char name[64];
    const char *open = memchr(path, '[', n);
    snprintf(name, sizeof name, "%.*s", (int)(open ? (size_t)(open - path) : n), path);
    const json_t *v = json_object_get(record, name);
    return open ? json_object_get(json_array_get(v, (size_t)(open[1] - '0')), "content") : v;
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

enum ax_status ax_answers_text(const struct ax_format *f, json_t *record, struct ax_answers *a) {
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
