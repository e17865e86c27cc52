/* The user's own columns and texts, formatted as by Python's str.format. */
#include <string.h>

#include "data/records/format/impl.h"
#include "data/records/format/names.h"

static enum ax_status check_formats(struct ax_format *f) {
    const struct ax_format_user *u = f->o.user;
    const struct ax_fill_value system[] = {{.name = "system"}};
    const struct ax_fill_value prompt[] = {{.name = "instruction"}, {.name = "input"}};
    AX_TRY(ax_text_fill(NULL, "system_format", u->system_format, system, 1));
    AX_TRY(ax_text_fill(NULL, "format", u->format, prompt, 2));
    return ax_text_fill(NULL, "no_input_format", u->no_input_format, prompt, 1);
}

static enum ax_status put_prompt(const struct ax_format_user *u, const json_t *record,
                                 struct ax_buf *b) {
    struct ax_text system = {u->system_prompt, strlen(u->system_prompt)};
    struct ax_text instruction;
    struct ax_text input;
    if (json_object_get(record, u->field_system))
        AX_TRY(ax_record_text_or_empty(record, u->field_system, &system));
    AX_TRY(ax_record_text(record, u->field_instruction, &instruction));
    AX_TRY(ax_record_text_or_empty(record, u->field_input, &input));
    const struct ax_fill_value system_value[] = {{"system", system}};
    const struct ax_fill_value values[] = {{"instruction", instruction}, {"input", input}};
    b->len = 0;
    if (system.n)
        AX_TRY(ax_text_fill(b, "system_format", u->system_format, system_value, 1));
    if (input.n)
        return ax_text_fill(b, "format", u->format, values, 2);
    return ax_text_fill(b, "no_input_format", u->no_input_format, values, 1);
}

static enum ax_status user_record(const struct ax_format *f, struct ax_format_work *w,
                                  json_t *record, struct ax_origin origin,
                                  struct ax_example_list *out) {
    struct ax_text response;
    w->oddities |= ax_names_missing(f, record, NULL, NULL);
    AX_TRY(ax_record_text(record, f->o.user->field_output, &response));
    AX_TRY(ax_record_not_blank(f->o.user->field_output, "answer", response));
    AX_TRY(put_prompt(f->o.user, record, &w->text));
    return ax_format_pair(f, w, (struct ax_text){w->text.data, w->text.len}, response, origin, out);
}

const struct ax_format_type ax_format_type_user = {"a map", false, true, check_formats,
                                                   user_record};
