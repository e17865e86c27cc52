/* Ordered merges, and equivalent scores.
 *
 * SentencePiece has no merge list: any two neighbors that form a token may be merged, highest score
 * first. tokenizer.json lists the pairs in that order instead. So the n-th token that the list
 * forms gets the score −n, and the list derived from these scores must equal the original. */
#include <stdlib.h>

#include "data/text/gguf/tokens.h"
#include "data/text/vocab/score_merges.h"
#include "data/text/tokenizer/tokenizer_impl.h"

static int by_rank(const void *a, const void *b) {
    const struct ax_bpe_pair *x = a, *y = b;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

enum ax_status ax_gguf_sorted_merges(struct ax_bpe_pair **pairs, size_t *n,
                                     const struct ax_tokenizer *t) {
    struct ax_bpe_pair *list;
    *n = 0;
    AX_TRY(ax_alloc(&list, t->bpe.n_pairs, sizeof *list));
    for (size_t i = 0; i < t->bpe.n_slots; i++)
        if (t->bpe.pairs[i].ids != UINT64_MAX)
            list[(*n)++] = t->bpe.pairs[i];
    AX_ASSERT(*n == t->bpe.n_pairs);
    qsort(list, *n, sizeof *list, by_rank);
    *pairs = list;
    return AX_OK;
}

/* True if the merges that follow from the scores form the same tokens in the same order. Added
 * tokens do not count. */
static enum ax_status same_merges(const struct ax_tokenizer *t, const float *scores,
                                  const struct ax_bpe_pair *pairs, size_t n, bool *same) {
    struct ax_score_merge *merges;
    size_t n_merges, at = 0;
    AX_TRY(ax_score_merges(&t->vocab, scores, &merges, &n_merges));
    *same = true;
    for (size_t i = 0; i < n_merges && *same; i++) {
        if (ax_added_by_id(&t->added, merges[i].token))
            continue;
        *same = at < n && pairs[at++].merged == merges[i].token;
    }
    ax_free(merges);
    *same = *same && at == n;
    return AX_OK;
}

enum ax_status ax_gguf_scores(float **out, const struct ax_tokenizer *t, const char *where) {
    struct ax_bpe_pair *pairs = NULL;
    float *scores = NULL;
    size_t n = 0, ids = t->vocab.n_ids;
    int32_t before = AX_NO_TOKEN;
    bool same = false;
    enum ax_status st;
    AX_TRY_GOTO(ax_gguf_sorted_merges(&pairs, &n, t), st, done);
    AX_TRY_GOTO(ax_alloc(&scores, ids, sizeof *scores), st, done);
    float score = 0;
    for (size_t i = 0; i < n; i++) {
        if (pairs[i].merged != before)
            scores[pairs[i].merged] = --score;
        before = pairs[i].merged;
    }
    for (size_t id = 0; id < ids; id++) /* tokens that no merge forms come last */
        if (scores[id] == 0)
            scores[id] = score - 1;
    AX_TRY_GOTO(same_merges(t, scores, pairs, n, &same), st, done);
    if (!same) {
        st = ax_error(AX_ERR_UNSUPPORTED,
                      "%s: tokenizer.json: the order of model.merges cannot be expressed as token "
                      "scores, and a GGUF file stores only scores for such a vocabulary. The file "
                      "would produce wrong tokens, so it is not written.",
                      where);
        goto done;
    }
    *out = scores;
    scores = NULL;
done:
    ax_free(pairs);
    ax_free(scores);
    return st;
}
