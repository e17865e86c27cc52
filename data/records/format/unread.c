/* Columns with a part of the conversation that a type leaves out, as axolotl's and TRL's do: LLaMA-Factory's records, which have the
 * columns of alpaca, have a system text and earlier turns beside them. */
#include <string.h>

#include "data/records/format/answers.h"
#include "data/records/format/impl.h"

/* Types whose records are a prompt and an answer. */
static bool is_of_one_turn(const struct ax_format *f, const struct ax_format_type *type,
                           const json_t *record) {
    static const struct ax_format_type *const types[] = {
        &ax_format_type_alpaca, &ax_format_type_gpteacher, &ax_format_type_oasst,
        &ax_format_type_jeopardy, &ax_format_type_user};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (type == types[i])
            return true;
    return !f->o.type && f->o.answers && json_object_get(record, "completion");
}

static bool is_named(const struct ax_format_user *u, const char *column) {
    const char *const names[] = {u->field_system, u->field_instruction, u->field_input,
                                 u->field_output};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i] && strcmp(names[i], column) == 0)
            return true;
    return false;
}

static bool says_something(const json_t *v) {
    return json_array_size(v) > 0 ||
           (json_is_string(v) && !ax_text_is_blank(json_string_value(v), json_string_length(v)));
}

unsigned ax_format_unread(const struct ax_format *f, const struct ax_format_type *type,
                          const json_t *record) {
    static const char *const columns[] = {"system", "system_prompt", "history"};
    if (f->o.task != AX_TASK_TEXT || !is_of_one_turn(f, type, record))
        return 0;
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        if (says_something(json_object_get(record, columns[i])) &&
            !(f->o.user && is_named(f->o.user, columns[i])))
            return 1U << AX_ODD_UNREAD;
    return 0;
}
