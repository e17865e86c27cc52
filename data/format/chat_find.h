/* Finding the tokens of one turn in a conversation. Private to the chat format. */
#ifndef AX_DATA_FORMAT_CHAT_FIND_H
#define AX_DATA_FORMAT_CHAT_FIND_H

#include "data/format/impl.h"

/* The same conversation rendered up to a turn: as it is, and with other text in that turn. */
struct ax_turn_pair {
    struct ax_text real, other;
};

/* Tokenizes both texts and gives the tokens [*start, *end) of the real one in which they differ:
 * from the first that differs, counted from the front, to the last, counted from the back. *found =
 * false where they do not. w->full holds the tokens of `whole`, which the real text most often
 * begins; then hardly anything has to be tokenized again. */
enum ax_status ax_chat_find_turn(const struct ax_format *f, struct ax_format_work *w,
                                 const struct ax_text *whole, const struct ax_turn_pair *pair,
                                 size_t *start, size_t *end, bool *found);

#endif
