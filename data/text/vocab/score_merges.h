/* Merge lists for vocabularies with scores. */
#ifndef AX_DATA_TEXT_VOCAB_SCORE_MERGES_H
#define AX_DATA_TEXT_VOCAB_SCORE_MERGES_H

#include "data/text/tokenizer/vocab.h"

struct ax_score_merge {
    int32_t token;
    uint32_t left_bytes; /* where its string splits into two tokens */
    uint32_t left_chars, right_chars;
    float score;
};

/* All ways to form a token of the vocabulary from two others, in the order of trying: by descending
 * score, then longer left part, then longer right part, then smaller id. This is the list that
 * transformers builds for such a vocabulary. scores[n_ids]; strings are UTF-8. AX_ERR_DATA for a
 * string over 512 bytes. Free *out with ax_free. */
enum ax_status ax_score_merges(const struct ax_vocab *v, const float *scores,
                               struct ax_score_merge **out, size_t *n);

#endif
