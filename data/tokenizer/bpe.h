/* Byte-pair encoding of one piece of text, as HF tokenizers and llama.cpp do it.
 *
 * A piece becomes symbols (bytes, or code points), and the pair of neighbors with the lowest rank,
 * the leftmost of equals, is merged until none has one. Two sources of ranks:
 *   merges  rank = position in the merge list, looked up by the two ids
 *   scores  rank = order of the score of the token that the two strings make (SentencePiece)
 * Both take O(n log n) for n symbols. */
#ifndef AX_DATA_TOKENIZER_BPE_H
#define AX_DATA_TOKENIZER_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/vocab.h"

struct ax_bpe_pair {
    uint64_t ids; /* left << 32 | right; UINT64_MAX = free */
    uint32_t rank;
    int32_t merged;
};

struct ax_bpe {
    const struct ax_vocab *vocab; /* strings in the form that pieces have */
    bool raw_bytes;               /* a symbol is a byte (byte-level), else a code point */
    bool ignore_merges;           /* a piece that is a token is taken whole */
    bool fuse_unk;                /* neighboring unknown characters become one token */
    bool byte_fallback;           /* an unknown character becomes its bytes' tokens */
    int32_t unk;                  /* AX_NO_TOKEN: unknown characters vanish */
    bool unk_missing; /* … or are an error: the model names an unk token that it does not have */
    int32_t first[256];       /* token of each byte, or of each ASCII character */
    int32_t fallback[256];    /* token "<0xHH>" of each byte */
    uint32_t *score_ranks;    /* [vocab->n_ids]; NULL: merges */
    struct ax_bpe_cuts *cuts; /* where a piece may be cut first; NULL: nowhere */
    struct ax_bpe_pair *pairs;
    size_t n_pairs, n_slots; /* slots: a power of two */
};

/* Merges are added in the order of their ranks, `expected` in all. A pair that is there already
 * takes the later rank, as in HF's. */
enum ax_status ax_bpe_add_merge(struct ax_bpe *b, int32_t left, int32_t right, int32_t merged,
                                uint32_t rank, size_t expected);
/* The same for the strings text[0…left) and text[left…len), which with their sum must be tokens of
 * `vocab`. AX_ERR_DATA names what is not; also when one of them is empty. */
enum ax_status ax_bpe_add_merge_text(struct ax_bpe *b, const struct ax_vocab *vocab,
                                     const char *text, size_t len, size_t left, size_t rank,
                                     size_t expected);
/* Ranks from scores: the higher the score, the sooner. scores[n], one for each id of the
 * vocabulary; AX_ERR_DATA for NaN. */
enum ax_status ax_bpe_set_scores(struct ax_bpe *b, const float *scores, size_t n);
/* Fills the tables that derive from the vocabulary; call when all of it is there. */
enum ax_status ax_bpe_prepare(struct ax_bpe *b);
void ax_bpe_free(struct ax_bpe *b); /* not the vocabulary */

/* Scratch of one thread, and its memory of short words. Zero-initialize. */
struct ax_bpe_work {
    struct ax_symbol *symbols;
    size_t n_symbols, cap_symbols;
    struct ax_merge *heap;
    size_t n_heap, cap_heap;
    struct ax_word_cache *cache;
};
void ax_bpe_work_free(struct ax_bpe_work *w);

/* Appends the tokens of a piece (0 < len < 2^31 bytes; UTF-8 unless raw_bytes) to out; with spans
 * when `spans`, relative to the piece. */
enum ax_status ax_bpe_encode(const struct ax_bpe *b, struct ax_bpe_work *w, const char *s,
                             size_t len, bool spans, struct ax_encoding *out);

#endif
