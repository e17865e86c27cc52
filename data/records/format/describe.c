/* A format's options as JSON: if it is equal, so are the examples of equal records and
 * tokenizers. */
#include <string.h>

#include "data/records/format/chat_turns.h"
#include "data/records/format/topk.h"

static json_t *name_map(const struct ax_name_map *map, size_t n) {
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_pack("[s, s]", map[i].from, map[i].to));
    return list;
}

static json_t *strings(const char *const *s, size_t n) {
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_string(s[i]));
    return list;
}

/* A template that prints the date gives different examples each day. */
static json_int_t day(const struct ax_format_chat *c) {
    return ax_chat_has(c, "strftime_now") ? (json_int_t)(c->now / 86400) : 0;
}

static json_t *describe_chat(const struct ax_format_chat *c) {
    size_t n;
    const char *source = ax_template_source(c->template, &n);
    json_t *v = json_pack("{s:s%, s:O?, s:O?, s:s, s:s, s:s?, s:s?, s:s, s:s?}", "template", source,
                          n, "tokens", c->tokens, "variables", c->variables, "field_messages",
                          c->field_messages, "field_tools", c->field_tools, "field_training",
                          c->field_training, "field_training_detail", c->field_training_detail,
                          "thinking_key", c->thinking_key, "field_thinking", c->field_thinking);
    json_t *rules =
        json_pack("{s:i, s:i, s:b, s:b, s:b, s:b, s:I}", "train_on_eos", (int)c->train_on_eos,
                  "train_on_eot", (int)c->train_on_eot, "split_thinking", c->split_thinking,
                  "drop_system", c->drop_system, "leading_system_untrained",
                  c->leading_system_untrained, "by_generation", c->by_generation, "day", day(c));
    json_t *names =
        json_pack("{s:o, s:o, s:o, s:o}", "properties", name_map(c->properties, c->n_properties),
                  "roles", name_map(c->roles, c->n_roles), "roles_to_train",
                  strings(c->roles_to_train, c->n_roles_to_train), "eot_tokens",
                  strings(c->eot_tokens, c->n_eot_tokens));
    if (v && c->tools && json_object_set(v, "tools", (json_t *)(uintptr_t)c->tools) != 0) {
        json_decref(v);
        v = NULL;
    }
    source = c->tool_use ? ax_template_source(c->tool_use, &n) : NULL;
    if ((source && json_object_set_new(v, "tool_use", json_stringn(source, n)) != 0) ||
        json_object_update(v, rules) != 0 || json_object_update(v, names) != 0) {
        json_decref(v);
        v = NULL;
    }
    json_decref(rules);
    json_decref(names);
    return v;
}

static json_t *describe_user(const struct ax_format_user *u) {
    return json_pack("[s, s, s, s, s, s, s, s]", u->system_prompt, u->system_format,
                     u->field_system, u->field_instruction, u->field_input, u->field_output,
                     u->format, u->no_input_format);
}

static json_t *describe_answers(const struct ax_format_answers *a) {
    const struct ax_format_answer_map *m = a->map;
    json_t *v = json_pack("[s, s, b, f]", a->field_chosen, a->field_rejected, a->framed_by_ids,
                          a->tail_share);
    if (a->own)
        json_array_append_new(v, json_string("own"));
    if (a->turns)
        json_array_append_new(v, json_string("turns"));
    if (m)
        json_array_append_new(v, json_pack("[s, s, s, s, s, s, s, s, s, s]", m->field_prompt,
                                           m->field_system, m->field_chosen, m->field_rejected,
                                           m->field_completion, m->field_label, m->prompt_format,
                                           m->chosen_format, m->rejected_format,
                                           m->completion_format));
    return v;
}

static json_t *describe_steps(const struct ax_format_steps *s) {
    return json_pack("[s, I, b]", s->separator, (json_int_t)s->max_completion, s->last_only);
}

static json_t *describe_columns(const struct ax_columns *columns) {
    json_t *list = json_array();
    for (int c = 0; c < columns->n; c++) {
        const struct ax_column *column = &columns->list[c];
        json_t *v = json_pack("[s, b, i]", column->name, column->is_float, (int)column->of);
        if (column->width > 0)
            json_array_append_new(v, json_integer(column->width));
        json_array_append_new(list, v);
    }
    return list;
}

/* True for types that cut text by sequence_len; other types' examples do not depend on it. */
static bool is_cut(const struct ax_format *f) {
    return f->type != &ax_format_type_chat && f->type != &ax_format_type_ids &&
           f->type != &ax_format_type_input_output && f->type != &ax_format_type_synthetic &&
           f->type != &ax_format_type_prompt;
}

enum ax_status ax_format_describe(const struct ax_format *f, json_t **out) {
    const struct ax_format_options *o = &f->o;
    const struct ax_format_synthetic *s = &o->synthetic;
    const bool pretrain = f->type == &ax_format_type_pretrain;
    json_t *v =
        json_pack("{s:s?, s:I, s:b, s:i, s:s?, s:i, s:[I, I, I, I]}", "type", o->type,
                  "sequence_len", is_cut(f) ? (json_int_t)o->sequence_len : 0, "train_on_inputs",
                  o->train_on_inputs, "pad", pretrain ? (int)o->pad : 0, "field", o->field,
                  "pretrain", pretrain ? (int)o->pretrain : 0, "synthetic", (json_int_t)s->length,
                  (json_int_t)s->min_id, (json_int_t)s->max_id, (json_int_t)s->seed);
    bool ok = v != NULL;
    if (ok && o->user)
        ok = json_object_set_new(v, "user", describe_user(o->user)) == 0;
    if (ok && o->chat)
        ok = json_object_set_new(v, "chat", describe_chat(o->chat)) == 0;
    if (ok && o->task != AX_TASK_TEXT)
        ok = json_object_set_new(v, "task",
                                 json_pack("[i, i]", (int)o->task, (int)o->long_examples)) == 0;
    if (ok && o->task == AX_TASK_REWARD)
        ok = json_object_set_new(v, "score_pad", json_integer(o->pad)) == 0;
    if (ok && o->answers)
        ok = json_object_set_new(v, "answers", describe_answers(o->answers)) == 0;
    if (ok && o->steps)
        ok = json_object_set_new(v, "steps", describe_steps(o->steps)) == 0;
    if (ok && ax_topk_wanted(f))
        ok = json_object_set_new(v, "topk",
                                 json_pack("[s, f]", o->topk.field, o->topk.temperature)) == 0;
    if (ok && o->columns)
        ok = json_object_set_new(v, "columns", describe_columns(o->columns)) == 0;
    if (!ok) {
        json_decref(v);
        return ax_error(AX_ERR_NOMEM, "out of memory while describing a format");
    }
    *out = v;
    return AX_OK;
}
