/* Reading the conversation of a record: messages with the template's own names, and what is to be
 * trained in each. Private to the chat format. */
#ifndef AX_DATA_FORMAT_CHAT_TURNS_H
#define AX_DATA_FORMAT_CHAT_TURNS_H

#include "data/format/impl.h"

/* Characters [start, end) of a text (code points) that are trained or not. */
struct ax_detail {
    size_t start, end;
    bool train;
};

struct ax_details {
    struct ax_detail *list;
    size_t n;
};

struct ax_turn {
    bool train;                          /* this turn's text is trained */
    struct ax_details content, thinking; /* n = 0: all of it, or nothing */
};

struct ax_conversation {
    json_t *messages;      /* for the template */
    json_t *tools;         /* NULL = none */
    struct ax_turn *turns; /* [n], as messages */
    size_t n;
};

/* `record` may be changed. AX_ERR_DATA with the path of what is wrong; free also after an error. */
enum ax_status ax_conversation_read(struct ax_conversation *c, const struct ax_format *f,
                                    json_t *record);
void ax_conversation_free(struct ax_conversation *c);

/* Parts of a message: joins a list of parts to one text and notes the parts' flags as details.
 * Parts without a flag are trained; *flags = false where no part has one, and there are no details
 * then. Text stays as it is. */
enum ax_status ax_chat_join_parts(json_t *message, const char *key, struct ax_details *details,
                                  bool *flags);
/* Moves <think>…</think> (and its relatives) from the start of content to `key`. */
enum ax_status ax_chat_split_thinking(json_t *message, const char *key);
/* JSON in a string, in place: object[key] = its value. Other values stay. */
enum ax_status ax_chat_parse_inner(json_t *object, const char *key);

enum ax_status ax_details_add(struct ax_details *d, size_t start, size_t end, bool train);

#endif
