/* Where a long piece can be split before merging without changing the result.
 *
 * SentencePiece-like models see entire paragraphs as one piece. But if no merge ever joins a token
 * that ends in x with one that begins with y, no token crosses a boundary between x and y: both
 * sides are merged independently, and the short parts can be cached as words. */
#ifndef AX_DATA_TEXT_TOKENIZER_BPE_CUTS_H
#define AX_DATA_TEXT_TOKENIZER_BPE_CUTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "data/text/tokenizer/bpe.h"

/* Character classes: one per ASCII character, one for ▁, one per lead byte of the others. */
struct ax_bpe_cuts {
    uint64_t allowed[256][4]; /* bit set: may split between class x and class y */
};

static inline unsigned ax_cut_class(const unsigned char *s) {
    return s[0] == 0xe2 && s[1] == 0x96 && s[2] == 0x81 ? 0x80 : s[0];
}

static inline bool ax_cut_allowed(const struct ax_bpe_cuts *c, unsigned x, unsigned y) {
    return (c->allowed[x][y >> 6] >> (y & 63) & 1) != 0;
}

/* Length of s (valid UTF-8, len > 0) up to the first split. */
size_t ax_cut_length(const struct ax_bpe_cuts *c, const char *s, size_t len);

/* Fills b->cuts from the vocabulary and the merges or scores. */
enum ax_status ax_bpe_find_cuts(struct ax_bpe *b);

#endif
