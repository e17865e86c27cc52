/* Names of the configuration that no record may have, as one with a spelling mistake. */
#include "data/records/format/names.h"

#include <string.h>

#include "data/records/format/chat_turns.h"

/* ---- names for records ---- */

/* The name is left out if it is the usual one, which records need not have. */
static void choose(struct ax_format *f, const char *name, const char *usual,
                   struct ax_format_name n) {
    n.name = name;
    if (name && !(usual && strcmp(name, usual) == 0) && f->n_names < AX_ODD_NAMES)
        f->names[f->n_names++] = n;
}

static bool is_usual_role(const char *role) {
    return ax_chat_is_common_role(role) || strcmp(role, "human") == 0 || strcmp(role, "gpt") == 0;
}

/* Of the names that become one role, the first; NULL: one of them is usual, or an earlier entry has
 * the role. */
static const char *unusual_source(const struct ax_format_chat *chat, size_t at) {
    for (size_t i = 0; i < chat->n_roles; i++)
        if (strcmp(chat->roles[i].to, chat->roles[at].to) == 0 &&
            (i < at || is_usual_role(chat->roles[i].from)))
            return NULL;
    return chat->roles[at].from;
}

static void choose_of_chat(struct ax_format *f, const struct ax_format_chat *chat) {
    choose(f, chat->field_training, NULL,
           (struct ax_format_name){.key = "message_field_training",
                                   .in = AX_NAME_MESSAGE,
                                   .then = ", so roles decide what is trained on"});
    choose(f, chat->field_training_detail, NULL,
           (struct ax_format_name){.key = "message_field_training_detail",
                                   .in = AX_NAME_MESSAGE,
                                   .then = ", so entire turns are trained on"});
    choose(f, chat->field_thinking, NULL,
           (struct ax_format_name){.key = "field_thinking", .in = AX_NAME_MESSAGE});
    choose(f, chat->tools ? NULL : chat->field_tools, "tools",
           (struct ax_format_name){
               .key = "field_tools", .in = AX_NAME_RECORD, .then = ", so there are no tools"});
    for (size_t i = 0; i < chat->n_properties; i++)
        choose(f, chat->properties[i].from, chat->properties[i].to,
               (struct ax_format_name){.key = "message_property_mappings", .in = AX_NAME_MESSAGE});
    for (size_t i = 0; i < chat->n_roles; i++)
        choose(
            f, unusual_source(chat, i), NULL,
            (struct ax_format_name){.key = "roles", .in = AX_NAME_ROLE, .role = chat->roles[i].to});
    for (size_t i = 0; i < chat->n_roles_to_train; i++) {
        const char *role = chat->roles_to_train[i];
        choose(f, is_usual_role(role) ? NULL : role, NULL,
               (struct ax_format_name){
                   .key = "roles_to_train", .in = AX_NAME_ROLE, .role = ax_chat_role(chat, role)});
    }
}

/* ---- names for the template ---- */

static bool is_read(const struct ax_format_chat *chat, const char *word) {
    return ax_template_mentions(chat->template, word) ||
           (chat->tool_use && ax_template_mentions(chat->tool_use, word));
}

static bool has_source(const struct ax_format_chat *chat, const char *role) {
    for (size_t i = 0; i < chat->n_roles; i++)
        if (strcmp(chat->roles[i].to, role) == 0 && strcmp(chat->roles[i].from, role) == 0)
            return true;
    return false;
}

/* A role that keeps its name is meant: many templates write any role. */
static enum ax_status warn_of_unread(struct ax_format *f, const struct ax_format_chat *chat) {
    const char *before = "";
    for (size_t i = 0; i < chat->n_properties; i++) {
        const char *to = chat->properties[i].to;
        if (strcmp(to, "role") != 0 && strcmp(to, "content") != 0 && !is_read(chat, to))
            AX_TRY(ax_buf_printf(
                &f->warnings,
                "message_property_mappings: the chat template reads no \"%s\" of a message\n", to));
    }
    for (size_t i = 0; i < chat->n_roles; i++) {
        const char *to = chat->roles[i].to;
        if (!ax_chat_is_common_role(to) && !is_read(chat, to) && !has_source(chat, to) &&
            strcmp(before, to) != 0)
            AX_TRY(ax_buf_printf(&f->warnings,
                                 "roles: \"%s\" is no common role, and the chat template does not "
                                 "name it\n",
                                 to));
        before = to;
    }
    return AX_OK;
}

enum ax_status ax_names_choose(struct ax_format *f) {
    const struct ax_format_user *user = f->o.user;
    if (f->o.chat) {
        choose_of_chat(f, f->o.chat);
        AX_TRY(warn_of_unread(f, f->o.chat));
    }
    if (!user)
        return AX_OK;
    choose(f, user->field_input, "input",
           (struct ax_format_name){.key = "type.field_input",
                                   .in = AX_NAME_RECORD,
                                   .then = ", so all prompts are those of no_input_format"});
    choose(f, user->field_system, "system",
           (struct ax_format_name){.key = "type.field_system", .in = AX_NAME_RECORD});
    return AX_OK;
}

/* ---- a record ---- */

static bool is_in(const struct ax_format_name *name, const json_t *record, const json_t *messages,
                  const json_t *turns) {
    const json_t *list = name->in == AX_NAME_ROLE ? turns : messages, *one;
    size_t i;
    if (name->in == AX_NAME_RECORD)
        return json_object_get(record, name->name) != NULL;
    json_array_foreach(list, i, one) {
        const char *role = json_string_value(json_object_get(one, "role"));
        if (name->in == AX_NAME_ROLE ? role && strcmp(role, name->role) == 0
                                     : json_object_get(one, name->name) != NULL)
            return true;
    }
    return false;
}

unsigned ax_names_missing(const struct ax_format *f, const json_t *record, const json_t *messages,
                          const json_t *turns) {
    unsigned missing = 0;
    for (size_t i = 0; i < f->n_names; i++)
        missing |= is_in(&f->names[i], record, messages, turns) ? 0 : 1U << (AX_ODD_NAME + i);
    return missing;
}

const struct ax_format_name *ax_format_name_at(const struct ax_format *f, size_t i) {
    return i < f->n_names ? &f->names[i] : NULL;
}
