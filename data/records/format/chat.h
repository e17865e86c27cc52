/* A conversation as text, and which of its tokens are trained on. Private to data/records/format/. */
#ifndef AX_DATA_RECORDS_FORMAT_CHAT_H
#define AX_DATA_RECORDS_FORMAT_CHAT_H

#include "data/records/format/chat_turns.h"

/* Renders the first n messages. With `replaced`, the last one but `later` keeps only its role and has
 * that text. `part` tells the template how many turns the full conversation has. */
struct ax_chat_render {
    size_t n;
    size_t head; /* the first `head` of these and the last are rendered; 0: all */
    size_t later;
    const char *replaced;
    const char *kept; /* key of that message to keep; NULL = none */
    bool part;
    bool generation_prompt; /* followed by the header of the answer to come */
    unsigned *lost;         /* gets the bits of what the text leaves out (tools.h); NULL: none */
};
enum ax_status ax_chat_render(const struct ax_format *f, const struct ax_conversation *c,
                              const struct ax_chat_render *r, struct ax_template_output *out);

/* AX_ERR_CONFIG for a template without generation blocks. */
enum ax_status ax_chat_check_generation(const struct ax_format *f);

/* Sets labels[n of w->full] from the template's generation spans. */
void ax_chat_mask_generation(struct ax_format_work *w, const struct ax_template_output *out,
                             int32_t *labels);

/* The same conversation rendered up to a turn, or whole: unchanged, and with other text in that turn. */
struct ax_turn_pair {
    struct ax_text real, other;
    size_t
        shared; /* bytes at the start that are the same, also in the full conversation; 0: unknown */
};

#endif
