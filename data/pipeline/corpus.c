/* Read ax_corpus_build first. */
#include "data/pipeline/corpus.h"

#include <math.h>
#include <string.h>

#include "data/pipeline/dedup.h"
#include "data/rows/shuffle.h"

enum ax_status ax_corpus_add(struct ax_corpus *c, struct ax_corpus_doc doc) {
    if (c->n == c->cap) {
        const size_t cap = c->cap ? 2 * c->cap : 256;
        AX_TRY(ax_regrow(&c->docs, c->cap, cap, sizeof *c->docs));
        c->cap = cap;
    }
    c->docs[c->n++] = doc;
    return AX_OK;
}

enum ax_status ax_corpus_admit(const struct ax_length_rule *rule, const struct ax_docs *set,
                               struct ax_corpus_doc *doc, bool *keep, struct ax_corpus_report *r) {
    char where[512];
    *keep = false;
    if ((int64_t)doc->n > rule->max) {
        if (rule->excess == AX_EXCESS_RAISE)
            return ax_error(AX_ERR_DATA,
                            "%s: a document of %u tokens; sequence_len allows %lld "
                            "(excess_length_strategy: raise)",
                            ax_docs_where(set, doc->doc, where, sizeof where), doc->n,
                            (long long)rule->max);
        r->too_long += rule->excess == AX_EXCESS_DROP;
        if (rule->excess == AX_EXCESS_DROP)
            return AX_OK;
        doc->n = (uint32_t)rule->max;
        r->cut++;
    }
    if ((int64_t)doc->n < rule->min) {
        r->too_short++;
        return AX_OK;
    }
    *keep = !rule->drop_untrained || ax_docs_trained(set, doc->doc, doc->n) > 0;
    r->untrained += !*keep;
    return AX_OK;
}

enum ax_status ax_corpus_filter(struct ax_corpus *c, const struct ax_length_rule *rule,
                                struct ax_corpus_report *r) {
    size_t kept = 0;
    for (size_t i = 0; i < c->n; i++) {
        struct ax_corpus_doc doc = c->docs[i];
        bool keep;
        AX_TRY(ax_corpus_admit(rule, c->sets[doc.set], &doc, &keep, r));
        if (keep)
            c->docs[kept++] = doc;
    }
    c->n = kept;
    return AX_OK;
}

static enum ax_status drop_duplicates(struct ax_corpus *c, const struct ax_corpus *also,
                                      struct ax_corpus_report *r) {
    struct ax_dedup d;
    AX_TRY(ax_dedup_init(&d, c->n + (also ? also->n : 0)));
    for (size_t i = 0; also && i < also->n; i++)
        (void)ax_dedup_is_new(&d, also->sets, also->docs[i]);
    size_t kept = 0;
    for (size_t i = 0; i < c->n; i++)
        if (ax_dedup_is_new(&d, c->sets, c->docs[i]))
            c->docs[kept++] = c->docs[i];
    r->duplicates += (int64_t)(c->n - kept);
    c->n = kept;
    ax_dedup_free(&d);
    return AX_OK;
}

/* Puts docs[start …] into a random order. */
static enum ax_status shuffle(struct ax_corpus *c, size_t start, struct ax_shuffle_key key) {
    const size_t n = c->n - start;
    uint32_t *order;
    struct ax_corpus_doc *old;
    if (n == 0)
        return AX_OK;
    AX_TRY(ax_shuffled(&order, n, key));
    const enum ax_status st = ax_alloc(&old, n, sizeof *old);
    if (st == AX_OK) {
        memcpy(old, c->docs + start, n * sizeof *old);
        for (size_t i = 0; i < n; i++)
            c->docs[start + i] = old[order[i]];
        ax_free(old);
    }
    ax_free(order);
    return st;
}

static enum ax_status join(struct ax_corpus *c, const struct ax_corpus_options *o) {
    for (size_t s = 0; s < c->n_sets; s++) {
        const struct ax_docs *set = c->sets[s];
        const size_t start = c->n;
        for (size_t i = 0; i < set->n; i++)
            AX_TRY(
                ax_corpus_add(c, (struct ax_corpus_doc){(uint32_t)s, (uint32_t)i, set->list[i].n}));
        if (o->shuffle_each)
            AX_TRY(shuffle(c, start, (struct ax_shuffle_key){o->seed, (uint32_t)s, "data.set"}));
    }
    return o->shuffle ? shuffle(c, 0, (struct ax_shuffle_key){o->seed, 0, "data.sets"}) : AX_OK;
}

static void keep_shard(struct ax_corpus *c, const struct ax_corpus_options *o,
                       struct ax_corpus_report *r) {
    const int64_t n = (int64_t)c->n;
    const int64_t from = ax_shard_start(n, o->n_shards, o->shard);
    const int64_t to = ax_shard_start(n, o->n_shards, o->shard + 1);
    memmove(c->docs, c->docs + from, (size_t)(to - from) * sizeof *c->docs);
    c->n = (size_t)(to - from);
    r->other_shards += n - (to - from);
}

enum ax_status ax_corpus_build(struct ax_corpus *out, const struct ax_docs *const *sets,
                               size_t n_sets, const struct ax_corpus_options *o,
                               struct ax_corpus_report *r) {
    *out = (struct ax_corpus){.sets = sets, .n_sets = n_sets};
    enum ax_status st;
    AX_TRY_GOTO(join(out, o), st, fail);
    if (o->n_shards > 1 && out->n > 0)
        keep_shard(out, o, r);
    AX_TRY_GOTO(ax_corpus_filter(out, &o->rule, r), st, fail);
    if (o->deduplicate)
        AX_TRY_GOTO(drop_duplicates(out, o->also, r), st, fail);
    return AX_OK;
fail:
    ax_corpus_free(out);
    return st;
}

enum ax_status ax_corpus_take_tail(struct ax_corpus *c, double size, struct ax_corpus *tail) {
    const double wanted = size < 1 ? ceil(size * (double)c->n) : size;
    if (wanted >= (double)c->n)
        return ax_error(AX_ERR_DATA,
                        "val_set_size: %.0f documents for evaluation leave none of %zu for "
                        "training",
                        wanted, c->n);
    tail->sets = c->sets;
    tail->n_sets = c->n_sets;
    for (size_t i = c->n - (size_t)wanted; i < c->n; i++)
        AX_TRY(ax_corpus_add(tail, c->docs[i]));
    c->n -= (size_t)wanted;
    return AX_OK;
}

void ax_corpus_free(struct ax_corpus *c) {
    ax_free(c->docs);
    *c = (struct ax_corpus){0};
}
