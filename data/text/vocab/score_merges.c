#include "data/text/vocab/score_merges.h"

#include <stdlib.h>

#include "base/mem.h"

enum { MAX_TOKEN = 512 }; /* bytes: every cut of it is looked up */

struct list {
    struct ax_score_merge *merges;
    size_t n, cap;
};

static enum ax_status append(struct list *l, const struct ax_score_merge *m) {
    AX_TRY(ax_grow(&l->merges, l->n, &l->cap, sizeof *l->merges));
    l->merges[l->n++] = *m;
    return AX_OK;
}

static bool begins_char(char c) {
    return ((unsigned char)c & 0xc0) != 0x80;
}

static enum ax_status cut_token(struct list *l, const struct ax_vocab *v, int32_t id, float score) {
    size_t len;
    uint32_t chars = 0, before = 0;
    const char *s = ax_vocab_string(v, id, &len);
    if (!s)
        return AX_OK;
    if (len > MAX_TOKEN)
        return ax_error(AX_ERR_DATA, "token %d has %zu bytes; at most %d are supported", id, len,
                        MAX_TOKEN);
    for (size_t i = 0; i < len; i++)
        chars += begins_char(s[i]);
    for (size_t i = 1; i < len; i++) {
        if (!begins_char(s[i]))
            continue;
        before++;
        if (ax_vocab_find(v, s, i) == AX_NO_TOKEN ||
            ax_vocab_find(v, s + i, len - i) == AX_NO_TOKEN)
            continue;
        const struct ax_score_merge m = {id, (uint32_t)i, before, chars - before, score};
        AX_TRY(append(l, &m));
    }
    return AX_OK;
}

static int by_rank(const void *a, const void *b) {
    const struct ax_score_merge *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    if (x->left_chars != y->left_chars)
        return x->left_chars > y->left_chars ? -1 : 1;
    if (x->right_chars != y->right_chars)
        return x->right_chars > y->right_chars ? -1 : 1;
    return (x->token > y->token) - (x->token < y->token);
}

enum ax_status ax_score_merges(const struct ax_vocab *v, const float *scores,
                               struct ax_score_merge **out, size_t *n) {
    struct list l = {0};
    enum ax_status st = AX_OK;
    for (size_t id = 0; id < v->n_ids && st == AX_OK; id++)
        st = cut_token(&l, v, (int32_t)id, scores[id]);
    if (st != AX_OK) {
        ax_free(l.merges);
        return st;
    }
    if (l.n > 0)
        qsort(l.merges, l.n, sizeof *l.merges, by_rank);
    *out = l.merges;
    *n = l.n;
    return AX_OK;
}
