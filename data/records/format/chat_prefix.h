/* Renderings of the first messages of a long conversation, for each turn in order, without rendering all of them each
 * time. Private to data/records/format/.
 *
 * Possible where a template writes each message without looking at others but the first: then the
 * rendering of the first messages and message i shows what message i adds. That the pieces are those of the full
 * rendering is checked, too. */
#ifndef AX_DATA_RECORDS_FORMAT_CHAT_PREFIX_H
#define AX_DATA_RECORDS_FORMAT_CHAT_PREFIX_H

#include "data/records/format/chat.h"

struct ax_chat_prefixes {
    const struct ax_format *f;
    const struct ax_conversation *c;
    struct ax_text whole;               /* the full rendering */
    bool usable;                        /* else each prefix has to be rendered */
    struct ax_template_output bases[2]; /* the first two messages; the first three */
    size_t tail;                        /* bytes at the end of any rendering */
    size_t next, begin,
        end; /* message next - 1 is whole[begin, end), with what precedes its tail */
    struct ax_buf real, other;
    size_t n_real, n_other; /* their first bytes are whole's */
};

/* `whole` is borrowed, as are f and c. */
enum ax_status ax_chat_prefixes_begin(struct ax_chat_prefixes *p, const struct ax_format *f,
                                      const struct ax_conversation *c, struct ax_text whole);
void ax_chat_prefixes_free(struct ax_chat_prefixes *p); /* safe on a zeroed one */
/* The texts of a turn as ax_chat_render writes them with r (of r->n messages, the last replaced), and unchanged; valid
 * until the next call. Turns ascend. *found = false: they have to be rendered. */
enum ax_status ax_chat_prefixes_turn(struct ax_chat_prefixes *p, const struct ax_chat_render *r,
                                     struct ax_turn_pair *pair, bool *found);

#endif
