/* Byte-pair encoding of one piece of text, as in HF tokenizers and llama.cpp.
 *
 * A piece becomes symbols (bytes or code points). The neighboring pair with the lowest rank
 * (leftmost if equal) is merged until no pair has a rank. Two sources of ranks:
 *   merges  rank = position in the merge list, looked up by the two ids
 *   scores  rank = order of the score of the token that the two strings form (SentencePiece)
 * Both take O(n log n) for n symbols. */
#ifndef AX_DATA_TEXT_TOKENIZER_BPE_H
#define AX_DATA_TEXT_TOKENIZER_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/text/tokenizer/tokenizer.h"
#include "data/text/tokenizer/vocab.h"

struct ax_bpe_pair {
    uint64_t ids; /* left << 32 | right; UINT64_MAX = free */
    uint32_t rank;
    int32_t merged;
};

/* Where pieces may be split before merging (bpe.c). */
struct ax_bpe_cuts {
    uint64_t allowed[256][4]; /* bit set: may split between class x and class y of characters */
};

struct ax_bpe {
    const struct ax_vocab *vocab; /* strings in the form used by the pieces */
    bool raw_bytes;               /* symbols are bytes (byte-level), else code points */
    bool ignore_merges;           /* a piece that is a token is not merged */
    bool fuse_unk;                /* neighboring unknown characters become one token */
    bool byte_fallback;           /* an unknown character becomes the tokens of its bytes */
    int32_t unk;                  /* AX_NO_TOKEN: unknown characters are dropped */
    /* unknown characters are an error: the model names an unk token that is missing */
    bool unk_missing;
    int32_t first[256];       /* token of each byte, or of each ASCII character */
    int32_t fallback[256];    /* token "<0xHH>" of each byte */
    uint32_t *score_ranks;    /* [vocab->n_ids]; NULL: merges */
    struct ax_bpe_cuts *cuts; /* where pieces may be split first; NULL: nowhere */
    struct ax_bpe_pair *pairs;
    size_t n_pairs, n_slots; /* slots: a power of two */
};

/* Adds merges in rank order, `expected` in all. A pair added twice gets the later rank, as in
 * HF. */
enum ax_status ax_bpe_add_merge(struct ax_bpe *b, int32_t left, int32_t right, int32_t merged,
                                uint32_t rank, size_t expected);
/* The same for the strings text[0…left) and text[left…len). Both and their concatenation must be
 * tokens of `vocab`, not empty; otherwise AX_ERR_DATA names the missing one. */
enum ax_status ax_bpe_add_merge_text(struct ax_bpe *b, const struct ax_vocab *vocab,
                                     const char *text, size_t len, size_t left, size_t rank,
                                     size_t expected);
/* Ranks from scores: the higher the score, the earlier. scores[n], one per id of the vocabulary;
 * AX_ERR_DATA for NaN. */
enum ax_status ax_bpe_set_scores(struct ax_bpe *b, const float *scores, size_t n);
/* Fills the tables derived from the vocabulary; call when it is complete. */
enum ax_status ax_bpe_prepare(struct ax_bpe *b);
void ax_bpe_free(struct ax_bpe *b); /* does not free the vocabulary */

/* Per-thread scratch, with a cache of short words. Zero-initialize. */
struct ax_bpe_work {
    struct ax_symbol *symbols;
    size_t n_symbols, cap_symbols;
    struct ax_merge *heap;
    size_t n_heap, cap_heap;
    struct ax_word_cache *cache;
};
void ax_bpe_work_free(struct ax_bpe_work *w);

/* Appends the tokens of a piece (0 < len < 2^31 bytes; UTF-8 unless raw_bytes) to out; with spans
 * relative to the piece if `spans`. */
enum ax_status ax_bpe_encode(const struct ax_bpe *b, struct ax_bpe_work *w, const char *s,
                             size_t len, bool spans, struct ax_encoding *out);

#endif
