/* Which tokens of a rendered conversation are trained on. Private to the chat format. */
#ifndef AX_DATA_RECORDS_FORMAT_CHAT_MASK_H
#define AX_DATA_RECORDS_FORMAT_CHAT_MASK_H

#include "data/records/format/chat_turns.h"

/* Renders the first n messages. With `replaced`, the last one keeps only its role and has that
 * text. `part` tells the template how many turns the full conversation has. */
struct ax_chat_render {
    size_t n;
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

/* Sets labels[n of w->full] from the turns. w->full holds the tokens of `text`, with spans. */
enum ax_status ax_chat_mask_turns(const struct ax_format *f, struct ax_format_work *w,
                                  const struct ax_conversation *c, const struct ax_text *text,
                                  int32_t *labels);
/* The same, from the template's generation spans. */
void ax_chat_mask_generation(struct ax_format_work *w, const struct ax_template_output *out,
                             int32_t *labels);

#endif
