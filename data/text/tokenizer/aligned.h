/* Text that passes through a tokenizer's steps; each byte knows its origin. */
#ifndef AX_DATA_TEXT_TOKENIZER_ALIGNED_H
#define AX_DATA_TEXT_TOKENIZER_ALIGNED_H

#include <stdbool.h>
#include <stddef.h>

#include "base/mem.h"
#include "base/status.h"
#include "data/text/tokenizer/tokenizer.h"

/* A segment of text; borrows. If no step has changed anything, byte i came from byte at + i of the
 * original; else align[i] gives the characters it came from. */
struct ax_piece {
    const char *s;
    size_t len;
    size_t at; /* unused with align */
    const struct ax_span *align;
};

struct ax_piece ax_piece_part(const struct ax_piece *p, size_t start, size_t end);
/* The range of the original that bytes start ≤ i < end of a piece cover: entire characters. */
struct ax_span ax_piece_span(const struct ax_piece *p, size_t start, size_t end);

/* Modified text under construction; reused. */
struct ax_aligned {
    char *s;
    size_t len, cap;
    struct ax_span *align; /* [len]; only if `track` */
    size_t cap_align;
    size_t most; /* longest that it may become: AX_ERR_DATA beyond; 0: any */
    bool track;
};

/* Empties it and sets whether to record alignments; of any length. */
void ax_aligned_start(struct ax_aligned *a, bool track);
/* Appends n bytes that all come from one span. */
enum ax_status ax_aligned_put(struct ax_aligned *a, const char *s, size_t n, struct ax_span from);
/* Appends bytes start ≤ i < end of a piece, each with its own origin. */
enum ax_status ax_aligned_copy(struct ax_aligned *a, const struct ax_piece *p, size_t start,
                               size_t end);
struct ax_piece ax_aligned_piece(const struct ax_aligned *a);
void ax_aligned_free(struct ax_aligned *a);

#endif
