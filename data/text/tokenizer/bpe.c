/* Tables of a BPE model: pairs, scores and what is derived from the vocabulary. See bpe.h; merging
 * is in bpe_merge.c. */
#include "data/text/tokenizer/bpe.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "data/text/tokenizer/bpe_cuts.h"
#include "data/text/tokenizer/bpe_pairs.h"

/* Sets the capacity so that the expected merges fill at most half of it. */
static enum ax_status grow_pairs(struct ax_bpe *b, size_t n) {
    if (2 * n <= b->n_slots)
        return AX_OK;
    size_t slots = b->n_slots > 0 ? b->n_slots : 64;
    while (slots < 2 * n)
        slots *= 2;
    struct ax_bpe_pair *old = b->pairs;
    size_t n_old = b->n_slots;
    AX_TRY(ax_alloc(&b->pairs, slots, sizeof *b->pairs));
    b->n_slots = slots;
    for (size_t i = 0; i < slots; i++)
        b->pairs[i].ids = UINT64_MAX;
    for (size_t i = 0; i < n_old; i++)
        if (old[i].ids != UINT64_MAX)
            *ax_bpe_pair_slot(b, old[i].ids) = old[i];
    ax_free(old);
    return AX_OK;
}

enum ax_status ax_bpe_add_merge(struct ax_bpe *b, int32_t left, int32_t right, int32_t merged,
                                uint32_t rank, size_t expected) {
    AX_TRY(grow_pairs(b, expected > b->n_pairs ? expected : b->n_pairs + 1));
    uint64_t ids = ax_bpe_pair_key(left, right);
    struct ax_bpe_pair *p = ax_bpe_pair_slot(b, ids);
    if (p->ids == UINT64_MAX)
        b->n_pairs++;
    *p = (struct ax_bpe_pair){ids, rank, merged};
    return AX_OK;
}

enum ax_status ax_bpe_add_merge_text(struct ax_bpe *bpe, const struct ax_vocab *vocab,
                                     const char *text, size_t len, size_t left, size_t rank,
                                     size_t expected) {
    int32_t a = ax_vocab_find(vocab, text, left);
    int32_t b = ax_vocab_find(vocab, text + left, len - left);
    int32_t both = ax_vocab_find(vocab, text, len);
    if (left == 0 || left == len)
        return ax_error(AX_ERR_DATA, "merge %zu: one side of \"%.*s\" is empty", rank,
                        (int)(len < 80 ? len : 80), text);
    if (a == AX_NO_TOKEN || b == AX_NO_TOKEN || both == AX_NO_TOKEN) {
        size_t from = a != AX_NO_TOKEN && b == AX_NO_TOKEN ? left : 0;
        size_t n = a == AX_NO_TOKEN ? left : len - from;
        return ax_error(AX_ERR_DATA, "merge %zu: \"%.*s\" is not in the vocabulary", rank,
                        (int)(n < 80 ? n : 80), text + from);
    }
    return ax_bpe_add_merge(bpe, a, b, both, (uint32_t)rank, expected);
}

/* Order-preserving bits, inverted so that the highest score gets the smallest number. */
static uint32_t score_rank(float score) {
    score += 0.0F; /* −0 and 0 are the same score */
    uint32_t bits;
    memcpy(&bits, &score, sizeof bits);
    bits = bits >> 31 ? ~bits : bits | 0x80000000U;
    return ~bits;
}

enum ax_status ax_bpe_set_scores(struct ax_bpe *b, const float *scores, size_t n) {
    AX_TRY(ax_alloc(&b->score_ranks, n, sizeof *b->score_ranks));
    for (size_t i = 0; i < n; i++) {
        if (isnan(scores[i]))
            return ax_error(AX_ERR_DATA, "the score of token %zu is not a number", i);
        b->score_ranks[i] = score_rank(scores[i]);
    }
    return AX_OK;
}

enum ax_status ax_bpe_prepare(struct ax_bpe *b) {
    for (int c = 0; c < 256; c++) {
        char one = (char)c, code[8];
        int n = snprintf(code, sizeof code, "<0x%02X>", (unsigned)c);
        b->first[c] = b->raw_bytes || c < 128 ? ax_vocab_find(b->vocab, &one, 1) : AX_NO_TOKEN;
        b->fallback[c] = ax_vocab_find(b->vocab, code, (size_t)n);
    }
    AX_TRY(grow_pairs(b, 1)); /* so that lookups need no special case for an empty table */
    return ax_bpe_find_cuts(b);
}

void ax_bpe_free(struct ax_bpe *b) {
    ax_free(b->score_ranks);
    ax_free(b->cuts);
    ax_free(b->pairs);
    *b = (struct ax_bpe){0};
}
