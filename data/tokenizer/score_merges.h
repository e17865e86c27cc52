/* Merge lists for vocabularies that have scores instead. */
#ifndef AX_DATA_TOKENIZER_SCORE_MERGES_H
#define AX_DATA_TOKENIZER_SCORE_MERGES_H

#include "data/tokenizer/vocab.h"

struct ax_score_merge {
    int32_t token;
    uint32_t left_bytes; /* where its string is cut in two tokens */
    uint32_t left_chars, right_chars;
    float score;
};

/* Every way to make a token of the vocabulary from two others, in the order in which they are to be
 * tried: by score, falling; of equals the one with the longer left part, then the longer right
 * part, then the smaller id. That is the list that transformers makes for such a vocabulary.
 * scores[n_ids]; strings are UTF-8. AX_ERR_DATA for a string of more than 512 bytes. Free *out with
 * ax_free. */
enum ax_status ax_score_merges(const struct ax_vocab *v, const float *scores,
                               struct ax_score_merge **out, size_t *n);

#endif
