/* Finds the tokens of one turn in a conversation. Private to the chat format. */
#ifndef AX_DATA_RECORDS_FORMAT_CHAT_FIND_H
#define AX_DATA_RECORDS_FORMAT_CHAT_FIND_H

#include "data/records/format/impl.h"

/* The same conversation rendered up to a turn: unchanged, and with other text in that turn. */
struct ax_turn_pair {
    struct ax_text real, other;
};

/* Tokenizes both texts and returns the range [*start, *end) of the real text's tokens from the
 * first difference to the last. *found = false if there is none. w->full holds the tokens of
 * `whole`; the real text is usually a prefix of it, so hardly anything is tokenized again. */
enum ax_status ax_chat_find_turn(const struct ax_format *f, struct ax_format_work *w,
                                 const struct ax_text *whole, const struct ax_turn_pair *pair,
                                 size_t *start, size_t *end, bool *found);

#endif
