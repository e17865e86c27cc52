/* Mixes data sets in proportions by repeating or omitting groups. Read ax_corpus_weigh first. */
#include <math.h>

#include "data/records/pipeline/corpus.h"

/* Groups by number, from 0, in the order of the corpus. */
struct mix {
    uint32_t *firsts; /* [n] */
    size_t n;
    size_t *counts; /* [n_sets] groups of each set */
    double *wanted; /* [n_sets] groups to take from each set */
    uint32_t *left; /* [n] how often each group is still to be added */
};

static double smaller(double a, double b) {
    return a < b ? a : b;
}

/* As many groups as the proportions allow without repeating any: the scarcest set is used up. */
static enum ax_status share_out(struct mix *m, const struct ax_corpus_weights *w) {
    double unit = INFINITY;
    for (size_t s = 0; s < w->n; s++) {
        if (m->counts[s] == 0)
            return ax_error(AX_ERR_DATA, "mixing_weights: data set %zu has no documents", s + 1);
        unit = smaller(unit, (double)m->counts[s] / w->list[s]);
    }
    for (size_t s = 0; s < w->n; s++)
        m->wanted[s] = smaller(round(unit * w->list[s]), (double)m->counts[s]);
    return AX_OK;
}

static enum ax_status too_many(double n) {
    return ax_error(AX_ERR_DATA,
                    "the weights of the data sets ask for %.0f documents; at most 2^32 − 1 are "
                    "supported; lower them",
                    n);
}

static enum ax_status want(struct mix *m, const struct ax_corpus_weights *w) {
    double total = 0;
    if (w->shares)
        AX_TRY(share_out(m, w));
    for (size_t s = 0; s < w->n; s++) {
        if (!w->shares)
            m->wanted[s] = round(w->list[s] * (double)m->counts[s]);
        if (m->counts[s] > 0 && m->wanted[s] < 1)
            return ax_error(AX_ERR_DATA,
                            "a weight of %g leaves none of the %zu documents of data set %zu; "
                            "raise it, or remove the data set",
                            w->list[s], m->counts[s], s + 1);
        total += m->wanted[s];
    }
    return total < UINT32_MAX ? AX_OK : too_many(total);
}

/* Every group of a set is repeated equally often; a random part gets one more repetition. */
static enum ax_status deal(struct mix *m, const struct ax_corpus *c,
                           const struct ax_corpus_weights *w, size_t set) {
    const size_t n = m->counts[set], wanted = (size_t)m->wanted[set];
    uint32_t *of_set = NULL;
    uint32_t *order = NULL;
    size_t k = 0;
    enum ax_status st;
    if (n == 0)
        return AX_OK;
    AX_TRY_GOTO(ax_alloc(&of_set, n, sizeof *of_set), st, done);
    for (size_t g = 0; g < m->n; g++) {
        if (c->refs[m->firsts[g]].set == set) {
            m->left[g] = (uint32_t)(wanted / n);
            of_set[k++] = (uint32_t)g;
        }
    }
    const struct ax_shuffle_key key = {w->seed, (uint32_t)set, "data.weight"};
    AX_TRY_GOTO(ax_shuffled(&order, n, key), st, done);
    for (k = 0; k < wanted % n; k++)
        m->left[of_set[order[k]]]++;
done:
    ax_free(of_set);
    ax_free(order);
    return st;
}

/* Passes over the groups in order until none is left; a pass adds each remaining group once. */
static enum ax_status emit(struct mix *m, const struct ax_corpus *from, struct ax_corpus *to) {
    for (size_t n = m->n; n > 0;) {
        size_t kept = 0;
        for (size_t g = 0; g < n; g++) {
            const size_t first = m->firsts[g], end = ax_corpus_group_end(from, first);
            for (size_t i = first; i < end && m->left[g] > 0; i++)
                AX_TRY(ax_corpus_add(to, from->refs[i]));
            if (to->n > UINT32_MAX)
                return too_many((double)to->n);
            if (m->left[g] > 1) {
                m->firsts[kept] = m->firsts[g];
                m->left[kept++] = m->left[g] - 1;
            }
        }
        n = kept;
    }
    return AX_OK;
}

static enum ax_status count(struct mix *m, const struct ax_corpus *c, size_t n_sets) {
    AX_TRY(ax_corpus_groups(c, 0, &m->firsts, &m->n));
    AX_TRY(ax_alloc(&m->left, m->n, sizeof *m->left));
    AX_TRY(ax_alloc(&m->counts, n_sets, sizeof *m->counts));
    AX_TRY(ax_alloc(&m->wanted, n_sets, sizeof *m->wanted));
    for (size_t g = 0; g < m->n; g++)
        m->counts[c->refs[m->firsts[g]].set]++;
    return AX_OK;
}

enum ax_status ax_corpus_weigh(struct ax_corpus *c, const struct ax_corpus_weights *w) {
    struct mix m = {0};
    struct ax_corpus out = {.sets = c->sets};
    enum ax_status st;
    AX_TRY_GOTO(count(&m, c, w->n), st, done);
    AX_TRY_GOTO(want(&m, w), st, done);
    for (size_t s = 0; s < w->n; s++)
        AX_TRY_GOTO(deal(&m, c, w, s), st, done);
    AX_TRY_GOTO(emit(&m, c, &out), st, done);
    if (w->shuffle)
        AX_TRY_GOTO(
            ax_corpus_shuffle(&out, 0, (struct ax_shuffle_key){w->seed, 0, "data.weighted"}), st,
            done);
    const struct ax_corpus unweighted = *c;
    *c = out;
    out = unweighted;
done:
    ax_corpus_free(&out);
    ax_free(m.firsts);
    ax_free(m.counts);
    ax_free(m.wanted);
    ax_free(m.left);
    return st;
}
