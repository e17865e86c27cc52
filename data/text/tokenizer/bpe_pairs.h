/* Lookup in the pair table, inlined into the merge loop. */
#ifndef AX_DATA_TEXT_TOKENIZER_BPE_PAIRS_H
#define AX_DATA_TEXT_TOKENIZER_BPE_PAIRS_H

#include "data/text/tokenizer/bpe.h"

static inline uint64_t ax_bpe_pair_key(int32_t left, int32_t right) {
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

/* The slot of this pair, or the free slot for it. */
static inline struct ax_bpe_pair *ax_bpe_pair_slot(const struct ax_bpe *b, uint64_t ids) {
    size_t mask = b->n_slots - 1;
    uint64_t h = ids * 0x9e3779b97f4a7c15U;
    size_t i = (size_t)(h ^ h >> 32) & mask;
    while (b->pairs[i].ids != ids && b->pairs[i].ids != UINT64_MAX)
        i = (i + 1) & mask;
    return &b->pairs[i];
}

#endif
