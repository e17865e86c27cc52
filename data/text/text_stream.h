/* Tokens to text during generation, up to a stop string. */
#ifndef AX_DATA_TEXT_TEXT_STREAM_H
#define AX_DATA_TEXT_TEXT_STREAM_H

#include "base/mem.h"
#include "data/text/tokenizer/tokenizer.h"

struct ax_text_stream {
    const struct ax_tokenizer *tokenizer;
    struct ax_decode_stream *decode;
    const char *const *stop; /* [n_stop] */
    int n_stop;
    struct ax_buf held; /* decoded, but possibly the start of a stop string */
    bool stopped;       /* a stop string has been found */
    const char *by;     /* which */
};
/* Skips special tokens; one whose own text is a stop string stops, too. All is borrowed. */
enum ax_status ax_text_stream_open(struct ax_text_stream *s, const struct ax_tokenizer *t,
                                   const char *const *stop, int n_stop);
/* Appends to `out` the text that this token makes final: complete characters, not part of or after
 * a possible stop string. */
enum ax_status ax_text_stream_step(struct ax_text_stream *s, int32_t id, struct ax_buf *out);
/* No more tokens: appends the text held back. */
enum ax_status ax_text_stream_finish(struct ax_text_stream *s, struct ax_buf *out);
void ax_text_stream_close(struct ax_text_stream *s); /* safe on a zeroed one */

#endif
