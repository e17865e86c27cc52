/* Reorders groups by permuting a list of their first references. */
#include <stdlib.h>
#include <string.h>

#include "data/records/pipeline/corpus.h"

enum ax_status ax_corpus_groups(const struct ax_corpus *c, size_t start, uint32_t **firsts,
                                size_t *n) {
    AX_ASSERT(c->n <= UINT32_MAX);
    AX_TRY(ax_alloc(firsts, c->n - start, sizeof **firsts));
    *n = 0;
    for (size_t i = start; i < c->n; i++)
        if (!c->refs[i].joined)
            (*firsts)[(*n)++] = (uint32_t)i;
    return AX_OK;
}

/* Makes firsts[order[k]] the k-th group from `start` on. */
static enum ax_status reorder(struct ax_corpus *c, size_t start, const uint32_t *firsts,
                              const uint32_t *order, size_t n) {
    const size_t count = c->n - start;
    struct ax_example_ref *old;
    if (n == 0)
        return AX_OK;
    AX_TRY(ax_alloc(&old, count, sizeof *old));
    memcpy(old, c->refs + start, count * sizeof *old);
    size_t at = start;
    for (size_t k = 0; k < n; k++) {
        size_t from = firsts[order[k]] - start;
        do
            c->refs[at++] = old[from++];
        while (from < count && old[from].joined);
    }
    ax_free(old);
    return AX_OK;
}

enum ax_status ax_corpus_shuffle(struct ax_corpus *c, size_t start, struct ax_shuffle_key key) {
    uint32_t *firsts = NULL;
    uint32_t *order = NULL;
    size_t n;
    enum ax_status st;
    AX_TRY_GOTO(ax_corpus_groups(c, start, &firsts, &n), st, done);
    AX_TRY_GOTO(ax_shuffled(&order, n, key), st, done);
    st = reorder(c, start, firsts, order, n);
done:
    ax_free(firsts);
    ax_free(order);
    return st;
}

/* A group: its first reference, and the length of its longest example. */
struct measured {
    struct ax_example_ref first;
    uint32_t longest, group;
};

static int longest_first(const void *a, const void *b) {
    const struct measured *x = a;
    const struct measured *y = b;
    if (x->longest != y->longest)
        return x->longest < y->longest ? 1 : -1;
    if (x->first.set != y->first.set)
        return x->first.set < y->first.set ? -1 : 1;
    return x->first.index < y->first.index ? -1 : x->first.index > y->first.index;
}

static void measure(const struct ax_corpus *c, const uint32_t *firsts, size_t n,
                    struct measured *out) {
    for (size_t k = 0; k < n; k++) {
        out[k] = (struct measured){.first = c->refs[firsts[k]], .group = (uint32_t)k};
        for (size_t i = firsts[k]; i < ax_corpus_group_end(c, firsts[k]); i++)
            out[k].longest = c->refs[i].n > out[k].longest ? c->refs[i].n : out[k].longest;
    }
}

enum ax_status ax_corpus_sort_runs(struct ax_corpus *c, size_t run) {
    uint32_t *firsts = NULL;
    uint32_t *order = NULL;
    struct measured *groups = NULL;
    size_t n;
    enum ax_status st;
    AX_TRY_GOTO(ax_corpus_groups(c, 0, &firsts, &n), st, done);
    AX_TRY_GOTO(ax_alloc(&groups, n, sizeof *groups), st, done);
    AX_TRY_GOTO(ax_alloc(&order, n, sizeof *order), st, done);
    measure(c, firsts, n, groups);
    for (size_t i = 0; i < n; i += run)
        qsort(groups + i, n - i < run ? n - i : run, sizeof *groups, longest_first);
    for (size_t k = 0; k < n; k++)
        order[k] = groups[k].group;
    st = reorder(c, 0, firsts, order, n);
done:
    ax_free(firsts);
    ax_free(order);
    ax_free(groups);
    return st;
}
