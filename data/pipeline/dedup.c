#include "data/pipeline/dedup.h"

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

bool ax_dedup_is_new(struct ax_dedup *d, const struct ax_docs *const *sets,
                     struct ax_corpus_doc doc) {
    const struct ax_docs *set = sets[doc.set];
    const uint64_t hash = ax_docs_hash(set, doc.doc, doc.n);
    size_t i = (size_t)hash & d->mask;
    for (; d->table[i].set; i = (i + 1) & d->mask) {
        const struct ax_dedup_entry *e = &d->table[i];
        if (e->hash == hash && e->n == doc.n && ax_docs_equal(e->set, e->doc, set, doc.doc, doc.n))
            return false;
    }
    d->table[i] = (struct ax_dedup_entry){.hash = hash, .set = set, .doc = doc.doc, .n = doc.n};
    return true;
}
