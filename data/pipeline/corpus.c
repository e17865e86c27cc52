/* Read ax_corpus_build first. */
#include "data/pipeline/corpus.h"

#include <math.h>
#include <string.h>

#include "data/pipeline/dedup.h"

enum ax_status ax_corpus_add(struct ax_corpus *c, struct ax_example_ref ref) {
    if (c->n == c->cap) {
        const size_t cap = c->cap ? 2 * c->cap : 256;
        AX_TRY(ax_regrow(&c->refs, c->cap, cap, sizeof *c->refs));
        c->cap = cap;
    }
    c->refs[c->n++] = ref;
    return AX_OK;
}

enum ax_status ax_corpus_admit(const struct ax_length_rule *rule, const struct ax_examples *set,
                               struct ax_example_ref *ref, bool *keep, struct ax_corpus_report *r) {
    char where[512];
    *keep = false;
    if ((int64_t)ref->n > rule->max) {
        if (rule->excess == AX_EXCESS_RAISE)
            return ax_error(AX_ERR_DATA,
                            "%s: a document of %u tokens; sequence_len allows %lld "
                            "(excess_length_strategy: raise)",
                            ax_examples_where(set, ref->index, where, sizeof where), ref->n,
                            (long long)rule->max);
        r->too_long += rule->excess == AX_EXCESS_DROP;
        if (rule->excess == AX_EXCESS_DROP)
            return AX_OK;
        ref->n = (uint32_t)rule->max;
        r->cut++;
    }
    if ((int64_t)ref->n < rule->min) {
        r->too_short++;
        return AX_OK;
    }
    *keep = !rule->drop_untrained || ax_examples_trained(set, ref->index, ref->n) > 0;
    r->untrained += !*keep;
    return AX_OK;
}

enum ax_status ax_corpus_filter(struct ax_corpus *c, const struct ax_length_rule *rule,
                                struct ax_corpus_report *r) {
    size_t kept = 0;
    for (size_t i = 0; i < c->n; i++) {
        struct ax_example_ref ref = c->refs[i];
        bool keep;
        AX_TRY(ax_corpus_admit(rule, &c->sets[ref.set], &ref, &keep, r));
        if (keep)
            c->refs[kept++] = ref;
    }
    c->n = kept;
    return AX_OK;
}

static enum ax_status drop_duplicates(struct ax_corpus *c, const struct ax_corpus *also,
                                      struct ax_corpus_report *r) {
    struct ax_dedup d;
    AX_TRY(ax_dedup_init(&d, c->n + (also ? also->n : 0)));
    for (size_t i = 0; also && i < also->n; i++)
        (void)ax_dedup_is_new(&d, also->sets, also->refs[i]);
    size_t kept = 0;
    for (size_t i = 0; i < c->n; i++)
        if (ax_dedup_is_new(&d, c->sets, c->refs[i]))
            c->refs[kept++] = c->refs[i];
    r->duplicates += (int64_t)(c->n - kept);
    c->n = kept;
    ax_dedup_free(&d);
    return AX_OK;
}

enum ax_status ax_corpus_shuffle(struct ax_corpus *c, size_t start, struct ax_shuffle_key key) {
    const size_t n = c->n - start;
    uint32_t *order;
    struct ax_example_ref *old;
    if (n == 0)
        return AX_OK;
    AX_TRY(ax_shuffled(&order, n, key));
    const enum ax_status st = ax_alloc(&old, n, sizeof *old);
    if (st == AX_OK) {
        memcpy(old, c->refs + start, n * sizeof *old);
        for (size_t i = 0; i < n; i++)
            c->refs[start + i] = old[order[i]];
        ax_free(old);
    }
    ax_free(order);
    return st;
}

static enum ax_status join(struct ax_corpus *c, size_t n_sets, const struct ax_corpus_options *o) {
    for (size_t s = 0; s < n_sets; s++) {
        const struct ax_examples *set = &c->sets[s];
        const size_t start = c->n;
        for (size_t i = 0; i < set->n; i++)
            AX_TRY(ax_corpus_add(
                c, (struct ax_example_ref){(uint32_t)s, (uint32_t)i, set->list[i].n}));
        if (o->shuffle_each)
            AX_TRY(ax_corpus_shuffle(c, start,
                                     (struct ax_shuffle_key){o->seed, (uint32_t)s, "data.set"}));
    }
    return o->shuffle ? ax_corpus_shuffle(c, 0, (struct ax_shuffle_key){o->seed, 0, "data.sets"})
                      : AX_OK;
}

static void keep_shard(struct ax_corpus *c, const struct ax_corpus_options *o,
                       struct ax_corpus_report *r) {
    const int64_t n = (int64_t)c->n;
    const int64_t from = ax_shard_start(n, o->n_shards, o->shard);
    const int64_t to = ax_shard_start(n, o->n_shards, o->shard + 1);
    memmove(c->refs, c->refs + from, (size_t)(to - from) * sizeof *c->refs);
    c->n = (size_t)(to - from);
    r->other_shards += n - (to - from);
}

enum ax_status ax_corpus_build(struct ax_corpus *out, const struct ax_examples *sets, size_t n_sets,
                               const struct ax_corpus_options *o, struct ax_corpus_report *r) {
    *out = (struct ax_corpus){.sets = sets};
    enum ax_status st;
    AX_TRY_GOTO(join(out, n_sets, o), st, fail);
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
    for (size_t i = c->n - (size_t)wanted; i < c->n; i++)
        AX_TRY(ax_corpus_add(tail, c->refs[i]));
    c->n -= (size_t)wanted;
    return AX_OK;
}

void ax_corpus_free(struct ax_corpus *c) {
    ax_free(c->refs);
    *c = (struct ax_corpus){0};
}
