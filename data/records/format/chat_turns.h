/* Reads the conversation in a record: messages under the template's names, and what to train in
 * each. Private to the chat format. */
#ifndef AX_DATA_RECORDS_FORMAT_CHAT_TURNS_H
#define AX_DATA_RECORDS_FORMAT_CHAT_TURNS_H

#include "data/records/format/impl.h"

/* Code points [start, end) of a text, trained or not. */
struct ax_detail {
    size_t start, end;
    bool train;
};

struct ax_details {
    struct ax_detail *list;
    size_t n;
};

struct ax_turn {
    bool train;        /* this turn's text is trained */
    bool opts_out;     /* it says that it is not to be trained on, where nothing asks it */
    bool lost_calls;   /* it has calls, under a key that the template never reads */
    bool lost_thought; /* it has reasoning, under a key that the template never reads */
    struct ax_details content, thinking; /* both n = 0: all of it; one n = 0: nothing of that one */
};

struct ax_conversation {
    json_t *messages;      /* for the template */
    json_t *tools;         /* NULL = none */
    json_t *variables;     /* the record's own, for the template; NULL = none */
    struct ax_turn *turns; /* [n], as messages */
    size_t n;
    unsigned oddities; /* bits 1 << enum ax_oddity */
};

/* May change `record`. AX_ERR_DATA names the path of the problem; free also after an error. */
enum ax_status ax_conversation_read(struct ax_conversation *c, const struct ax_format *f,
                                    json_t *record);
/* The same from a list of messages alone; errors begin with `name`. */
enum ax_status ax_conversation_read_list(struct ax_conversation *c, const struct ax_format *f,
                                         json_t *messages, const char *name);
/* The column chat_template_kwargs, an object or JSON text of one, into *out, to be freed; a missing
 * column leaves *out alone. */
enum ax_status ax_conversation_variables(json_t *record, json_t **out);
void ax_conversation_free(struct ax_conversation *c);

/* The template's name for a record's role. */
const char *ax_chat_role(const struct ax_format_chat *chat, const char *role);
/* Do most templates have the role? */
bool ax_chat_is_common_role(const char *role);
/* Does a template of the format contain the word? */
bool ax_chat_has(const struct ax_format_chat *chat, const char *word);
/* The template that renders it. */
const struct ax_template *ax_conversation_template(const struct ax_format *f,
                                                   const struct ax_conversation *c);

/* AX_ERR_EMPTY "NAME: WHAT", and whether the template leaves out calls, which could be learned from. */
enum ax_status ax_chat_is_empty(const struct ax_format *f, const struct ax_conversation *c,
                                const char *name, const char *what);
/* The reasoning in a message, under a key of its own or between marks in its text; n = 0: none. */
struct ax_text ax_message_reasoning(const struct ax_format *f, const json_t *message);
/* No text, reasoning or calls? */
bool ax_message_is_empty(const struct ax_format *f, const json_t *message);

#endif
