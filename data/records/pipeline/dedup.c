#include "data/records/pipeline/dedup.h"

#include "base/hash/hash.h"

enum ax_status ax_dedup_init(struct ax_dedup *d, size_t n) {
    size_t slots = 16;
    while (slots < 2 * n)
        slots *= 2;
    *d = (struct ax_dedup){.mask = slots - 1};
    return ax_alloc(&d->table, slots, sizeof *d->table);
}

void ax_dedup_free(struct ax_dedup *d) {
    ax_free(d->table);
    *d = (struct ax_dedup){0};
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

static bool equal(const struct ax_dedup_entry *e, const struct ax_corpus *c, size_t first,
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

bool ax_dedup_is_new(struct ax_dedup *d, const struct ax_corpus *c, size_t first, size_t n) {
    const uint64_t hash = hash_group(c, first, n);
    size_t i = (size_t)hash & d->mask;
    for (; d->table[i].corpus; i = (i + 1) & d->mask)
        if (d->table[i].hash == hash && equal(&d->table[i], c, first, n))
            return false;
    d->table[i] = (struct ax_dedup_entry){.hash = hash, .corpus = c, .first = first, .n = n};
    return true;
}
