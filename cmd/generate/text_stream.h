/* Tokens to text as they come, up to a stop string. */
#ifndef AX_CMD_GENERATE_TEXT_STREAM_H
#define AX_CMD_GENERATE_TEXT_STREAM_H

#include "cmd/args.h"
#include "data/tokenizer/tokenizer.h"

struct ax_text_stream {
    struct ax_decode_stream *decode;
    const struct ax_arg_list *stop;
    struct ax_buf held; /* decoded, but maybe the start of a stop string */
    bool stopped;       /* a stop string has come */
};
/* Special tokens are left out. `stop` is borrowed. */
enum ax_status ax_text_stream_open(struct ax_text_stream *s, const struct ax_tokenizer *t,
                                   const struct ax_arg_list *stop);
/* Appends to `out` what the token makes certain: whole characters, and nothing that may turn out to
 * be a stop string or comes after one. */
enum ax_status ax_text_stream_step(struct ax_text_stream *s, int32_t id, struct ax_buf *out);
/* No more tokens: appends what was held back. */
enum ax_status ax_text_stream_finish(struct ax_text_stream *s, struct ax_buf *out);
void ax_text_stream_close(struct ax_text_stream *s); /* safe on a zeroed one */

#endif
