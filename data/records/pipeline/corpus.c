/* Which groups have been seen; lengths; building. Read ax_corpus_build first. */
#include "data/records/pipeline/corpus.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/hash/hash.h"

enum ax_status ax_corpus_add(struct ax_corpus *c, struct ax_example_ref ref) {
    AX_TRY(ax_grow(&c->refs, c->n, &c->cap, sizeof *c->refs));
    c->refs[c->n++] = ref;
    return AX_OK;
}

/* ---- which groups have been seen: by hash, then by comparing their examples ---- */

struct dedup {
    struct dedup_entry {
        uint64_t hash;
        const struct ax_corpus *corpus; /* NULL: free */
        size_t first, n;                /* corpus->refs */
    } *table;                           /* [mask + 1], open addressing */
    size_t mask;
};

/* Capacity for n groups. */
static enum ax_status init_dedup(struct dedup *d, size_t n) {
    size_t slots = 16;
    while (slots < 2 * n)
        slots *= 2;
    *d = (struct dedup){.mask = slots - 1};
    return ax_alloc(&d->table, slots, sizeof *d->table);
}

static void free_dedup(struct dedup *d) {
    ax_free(d->table);
    *d = (struct dedup){0};
}

static uint64_t hash_group(const struct ax_corpus *c, size_t first, size_t n) {
    uint64_t hash = 0;
    for (size_t i = first; i < first + n; i++) {
        const struct ax_example_ref *r = &c->refs[i];
        const uint64_t own = ax_examples_hash(&c->sets[r->set], r->index, r->n);
        hash = i > first ? ax_hash64(&own, sizeof own, hash) : own;
    }
    return hash;
}

static bool is_same_group(const struct dedup_entry *e, const struct ax_corpus *c, size_t first,
                          size_t n) {
    if (e->n != n)
        return false;
    for (size_t i = 0; i < n; i++) {
        const struct ax_example_ref *a = &e->corpus->refs[e->first + i];
        const struct ax_example_ref *b = &c->refs[first + i];
        if (a->n != b->n || !ax_examples_equal(&e->corpus->sets[a->set], a->index, &c->sets[b->set],
                                               b->index, b->n))
            return false;
    }
    return true;
}

/* Adds the group c->refs[first, first + n), which must not move if it is new. Returns false if
 * an equal one is already there. */
static bool is_new_group(struct dedup *d, const struct ax_corpus *c, size_t first, size_t n) {
    const uint64_t hash = hash_group(c, first, n);
    size_t i = (size_t)hash & d->mask;
    for (; d->table[i].corpus; i = (i + 1) & d->mask)
        if (d->table[i].hash == hash && is_same_group(&d->table[i], c, first, n))
            return false;
    d->table[i] = (struct dedup_entry){.hash = hash, .corpus = c, .first = first, .n = n};
    return true;
}

/* ---- lengths ---- */

static enum ax_status too_long(const struct ax_length_rule *rule, const struct ax_examples *set,
                               const struct ax_example_ref *ref) {
    char where[512], room[80] = "";
    if (rule->reserved > 0)
        snprintf(room, sizeof room, ", of which a completion may take %lld",
                 (long long)rule->reserved);
    return ax_error(AX_ERR_DATA,
                    "%s: a document has %u tokens, but sequence_len is %lld%s "
                    "(excess_length_strategy: raise)",
                    ax_examples_where(set, ref->index, where, sizeof where), ref->n,
                    (long long)(rule->max + rule->reserved), room);
}

/* Decides about one example: *keep, and how many of its tokens. One that is truncated to a prompt has
 * nothing to learn from, as in TRL. */
static enum ax_status admit(const struct ax_length_rule *rule, const struct ax_examples *set,
                            struct ax_example_ref *ref, bool *keep, struct ax_corpus_report *r) {
    const bool cut = (int64_t)ref->n > rule->max;
    *keep = false;
    if (cut) {
        if (rule->excess == AX_EXCESS_RAISE)
            return too_long(rule, set, ref);
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
    *keep = (!rule->drop_untrained && !cut) || ax_examples_trained(set, ref->index, 0, ref->n) > 0;
    r->untrained += !*keep;
    return AX_OK;
}

enum ax_status ax_corpus_filter(struct ax_corpus *c, size_t start,
                                const struct ax_length_rule *rule, struct ax_corpus_report *r) {
    size_t kept = start;
    AX_ASSERT(c->refs || c->n == 0);
    for (size_t i = start; i < c->n;) {
        const size_t end = ax_corpus_group_end(c, i), first = kept;
        bool keep = true;
        for (; i < end && keep; i++) {
            struct ax_example_ref ref = c->refs[i];
            AX_TRY(admit(rule, &c->sets[ref.set], &ref, &keep, r));
            c->refs[kept++] = ref;
        }
        kept = keep ? kept : first;
        i = end;
    }
    c->n = kept;
    return AX_OK;
}

/* ---- building ---- */

static enum ax_status drop_duplicates(struct ax_corpus *c, const struct ax_corpus *also,
                                      struct ax_corpus_report *r) {
    struct dedup d;
    AX_TRY(init_dedup(&d, c->n + (also ? also->n : 0)));
    for (size_t i = 0; also && i < also->n; i = ax_corpus_group_end(also, i))
        (void)is_new_group(&d, also, i, ax_corpus_group_end(also, i) - i);
    size_t kept = 0;
    for (size_t i = 0; i < c->n;) {
        const size_t n = ax_corpus_group_end(c, i) - i;
        memmove(c->refs + kept, c->refs + i, n * sizeof *c->refs);
        const bool is_new = is_new_group(&d, c, kept, n);
        kept += is_new ? n : 0;
        r->duplicates += !is_new;
        i += n;
    }
    c->n = kept;
    free_dedup(&d);
    return AX_OK;
}

static enum ax_status join(struct ax_corpus *c, size_t n_sets, const struct ax_corpus_options *o) {
    if (n_sets > UINT16_MAX)
        return ax_error(AX_ERR_UNSUPPORTED, "%zu data sets; at most %d are supported", n_sets,
                        UINT16_MAX);
    for (size_t s = 0; s < n_sets; s++) {
        const struct ax_examples *set = &c->sets[s];
        const size_t start = c->n;
        for (size_t i = 0; i < set->n; i++)
            AX_TRY(ax_corpus_add(c, (struct ax_example_ref){.set = (uint16_t)s,
                                                            .joined = set->list[i].joined,
                                                            .index = (uint32_t)i,
                                                            .n = set->list[i].n}));
        if (o->shuffle_each)
            AX_TRY(ax_corpus_shuffle(c, start,
                                     (struct ax_shuffle_key){o->seed, (uint32_t)s, "data.set"}));
    }
    return o->shuffle ? ax_corpus_shuffle(c, 0, (struct ax_shuffle_key){o->seed, 0, "data.sets"})
                      : AX_OK;
}

static enum ax_status keep_shard(struct ax_corpus *c, const struct ax_corpus_options *o,
                                 struct ax_corpus_report *r) {
    uint32_t *firsts;
    size_t n;
    AX_TRY(ax_corpus_groups(c, 0, &firsts, &n));
    const size_t first = (size_t)ax_shard_start((int64_t)n, o->n_shards, o->shard);
    const size_t last = (size_t)ax_shard_start((int64_t)n, o->n_shards, o->shard + 1);
    const size_t from = first < n ? firsts[first] : c->n, to = last < n ? firsts[last] : c->n;
    ax_free(firsts);
    AX_ASSERT(c->refs || to == from);
    if (to > from)
        memmove(c->refs, c->refs + from, (to - from) * sizeof *c->refs);
    c->n = to - from;
    r->other_shards += (int64_t)(n - (last - first));
    return AX_OK;
}

enum ax_status ax_corpus_build(struct ax_corpus *out, const struct ax_examples *sets, size_t n_sets,
                               const struct ax_corpus_options *o, struct ax_corpus_report *r) {
    *out = (struct ax_corpus){.sets = sets};
    enum ax_status st;
    AX_TRY_GOTO(join(out, n_sets, o), st, fail);
    if (o->n_shards > 1)
        AX_TRY_GOTO(keep_shard(out, o, r), st, fail);
    AX_TRY_GOTO(ax_corpus_filter(out, 0, &o->rule, r), st, fail);
    if (o->deduplicate)
        AX_TRY_GOTO(drop_duplicates(out, o->also, r), st, fail);
    return AX_OK;
fail:
    ax_corpus_free(out);
    return st;
}

enum ax_status ax_corpus_take_tail(struct ax_corpus *c, double size, struct ax_corpus *tail) {
    uint32_t *firsts;
    size_t n;
    AX_TRY(ax_corpus_groups(c, 0, &firsts, &n));
    const double wanted = size < 1 ? ceil(size * (double)n) : size;
    const bool any_left = wanted < (double)n;
    const size_t from = any_left && wanted > 0 ? firsts[n - (size_t)wanted] : c->n;
    ax_free(firsts);
    if (!any_left)
        return ax_error(AX_ERR_DATA,
                        "val_set_size: holding out %.0f of %zu documents for evaluation leaves "
                        "none for training",
                        wanted, n);
    tail->sets = c->sets;
    for (size_t i = from; i < c->n; i++)
        AX_TRY(ax_corpus_add(tail, c->refs[i]));
    c->n = from;
    return AX_OK;
}

void ax_corpus_free(struct ax_corpus *c) {
    ax_free(c->refs);
    *c = (struct ax_corpus){0};
}
