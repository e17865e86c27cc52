/* Where a long piece may be cut before merging, without changing the outcome.
 *
 * SentencePiece-like models see whole paragraphs as one piece. But if no merge ever joins a token
 * that ends in x with one that begins with y, then nothing crosses the places between x and y: what
 * stands on the two sides is merged independently, and the short parts can be remembered as words.
 */
#ifndef AX_DATA_TOKENIZER_BPE_CUTS_H
#define AX_DATA_TOKENIZER_BPE_CUTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "data/tokenizer/bpe.h"

/* Characters by class: an ASCII character is one, so is ▁, and all others with one lead byte. */
struct ax_bpe_cuts {
    uint64_t allowed[256][4]; /* bit set: may be cut between class x and class y */
};

static inline unsigned ax_cut_class(const unsigned char *s) {
    return s[0] == 0xe2 && s[1] == 0x96 && s[2] == 0x81 ? 0x80 : s[0];
}

static inline bool ax_cut_allowed(const struct ax_bpe_cuts *c, unsigned x, unsigned y) {
    return (c->allowed[x][y >> 6] >> (y & 63) & 1) != 0;
}

/* Length of the part of s (valid UTF-8, len > 0) up to the first cut. */
size_t ax_cut_length(const struct ax_bpe_cuts *c, const char *s, size_t len);

/* Fills in b->cuts from the vocabulary and the merges or scores. */
enum ax_status ax_bpe_find_cuts(struct ax_bpe *b);

#endif
