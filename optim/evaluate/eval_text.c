#include "optim/evaluate/eval_text.h"

#include <string.h>

#include "base/mem.h"

/* A shared token costs an index of keys for each document. */
#define WORTH_IT 8

enum ax_status ax_eval_text_create(struct ax_eval_text *t, const struct ax_eval_options *o) {
    const size_t T = (size_t)o->tokens;
    AX_TRY(ax_alloc(&t->docs, (size_t)o->max_docs, sizeof *t->docs));
    AX_TRY(ax_alloc(&t->tokens, T, sizeof *t->tokens));
    AX_TRY(ax_alloc(&t->labels, T, sizeof *t->labels));
    AX_TRY(ax_alloc(&t->share, T, sizeof *t->share));
    t->columns = o->documents ? o->documents->columns : NULL;
    t->share_column = o->documents ? o->documents->share : -1;
    t->stored = o->distill ? ax_distill_columns(o->distill) : NULL;
    t->cap = o->tokens;
    t->pairs_share = o->pairs_share;
    AX_TRY(ax_alloc(&t->values, T * ax_columns_width(t->stored, ax_columns_count(t->stored)),
                    sizeof *t->values));
    return ax_alloc(&t->weight, T, sizeof *t->weight);
}

void ax_eval_text_free(struct ax_eval_text *t) {
    ax_free(t->docs);
    ax_free(t->tokens);
    ax_free(t->labels);
    ax_free(t->weight);
    ax_free(t->share);
    ax_free(t->values);
}

bool ax_eval_text_scored(const struct ax_eval_text *t, int64_t i) {
    return t->labels[i] >= 0 && t->weight[i] > 0;
}

static float share_of(const struct ax_eval_text *t, const struct ax_document *from, int64_t k) {
    float share = 1;
    if (t->share_column >= 0)
        memcpy(&share, &from->columns[t->share_column][k], sizeof share);
    return share;
}

/* What is stored for the labels; there is none for the last token. */
static void copy_stored(const struct ax_eval_text *t, const struct ax_document *from,
                        struct ax_document *to) {
    for (int c = 0; c < ax_columns_count(t->stored); c++) {
        const size_t width = ax_column_width(t->stored, c);
        uint32_t *values = t->values + ax_columns_width(t->stored, c) * (size_t)t->cap +
                           (size_t)t->n_tokens * width;
        memcpy(values, from->columns[c], (size_t)(from->n - 1) * width * sizeof *values);
        to->columns[c] = values;
    }
}

struct ax_eval_document ax_eval_text_add(struct ax_eval_text *t, const struct ax_packed_sequence *s,
                                         int i) {
    const struct ax_document *from = &s->docs[i];
    const int64_t shared = t->pairs_share ? ax_pair_shared(s, i) : 0, n = from->n - shared;
    int32_t *tokens = t->tokens + t->n_tokens, *labels = t->labels + t->n_tokens;
    float *weight = t->weight + t->n_tokens, *share = t->share + t->n_tokens;
    struct ax_eval_document d = {
        .set = ax_sequence_set(s, i), .example = ax_sequence_ref(s, i)->index, .tokens = from->n};
    memcpy(tokens, from->tokens + shared, (size_t)n * sizeof *tokens);
    for (int64_t k = 0; k < n; k++) {
        const int64_t at = shared + k;
        labels[k] = from->labels ? from->labels[at] : k + 1 < n ? from->tokens[at + 1] : -1;
        weight[k] = from->weight ? from->weight[at] : 1;
        if (ax_eval_text_scored(t, t->n_tokens + k)) {
            d.weight += (double)weight[k];
            d.trained++;
            share[k] = share_of(t, from, at);
            d.sums.answer += share[k] != 0;
        }
    }
    d.sums.tokens = (double)d.trained;
    for (int c = 0; c < ax_columns_count(t->columns); c++)
        if (t->columns->list[c].of == AX_OF_EXAMPLE)
            d.columns[c] = from->columns[c][0];
    struct ax_document *to = &t->docs[t->n_docs];
    *to = (struct ax_document){.n = n,
                               .tokens = tokens,
                               .labels = labels,
                               .weight = weight,
                               .first_position = from->first_position + shared,
                               .shared = shared,
                               .shared_with = t->n_docs - (shared > 0)};
    t->n_docs++;
    copy_stored(t, from, to);
    t->n_tokens += n;
    t->n_whole += from->n;
    return d;
}

int64_t ax_pair_shared(const struct ax_packed_sequence *s, int i) {
    const struct ax_document *a = i % 2 == 1 ? &s->docs[i - 1] : NULL, *b = &s->docs[i];
    int64_t n = 0;
    while (a && n + 1 < a->n && n + 1 < b->n && a->tokens[n] == b->tokens[n] && a->labels[n] < 0 &&
           b->labels[n] < 0)
        n++;
    return n >= WORTH_IT ? n : 0;
}
