/* Reads a GGUF header and its keys sequentially. Private to ckpt/. */
#ifndef AX_CKPT_GGUF_CURSOR_H
#define AX_CKPT_GGUF_CURSOR_H

#include "ckpt/gguf/gguf.h"

struct ax_gguf_cursor {
    const char *name; /* file name for messages */
    const unsigned char *data;
    size_t at, len;
};

/* AX_ERR_DATA if the bytes end first; `what` is for the message. */
enum ax_status ax_gguf_read_u32(struct ax_gguf_cursor *c, const char *what, uint32_t *out);
enum ax_status ax_gguf_read_u64(struct ax_gguf_cursor *c, const char *what, uint64_t *out);
enum ax_status ax_gguf_read_text(struct ax_gguf_cursor *c, const char *what,
                                 struct ax_gguf_text *out);
/* The name of a key or tensor: 1 to 65,535 bytes, no control characters. */
enum ax_status ax_gguf_read_name(struct ax_gguf_cursor *c, const char *what,
                                 struct ax_gguf_text *out);
/* One key with its value, which is checked completely. */
enum ax_status ax_gguf_read_key(struct ax_gguf_cursor *c, struct ax_gguf_key *k);

/* Unaligned numbers in the file. */
uint32_t ax_gguf_u32(const unsigned char *p);
uint64_t ax_gguf_u64(const unsigned char *p);

int ax_gguf_text_compare(const struct ax_gguf_text *a, const struct ax_gguf_text *b);

#endif
