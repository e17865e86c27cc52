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

bool ax_dedup_is_new(struct ax_dedup *d, const struct ax_examples *sets,
                     struct ax_example_ref ref) {
    const struct ax_examples *set = &sets[ref.set];
    const uint64_t hash = ax_examples_hash(set, ref.index, ref.n);
    size_t i = (size_t)hash & d->mask;
    for (; d->table[i].set; i = (i + 1) & d->mask) {
        const struct ax_dedup_entry *e = &d->table[i];
        if (e->hash == hash && e->n == ref.n &&
            ax_examples_equal(e->set, e->index, set, ref.index, ref.n))
            return false;
    }
    d->table[i] = (struct ax_dedup_entry){.hash = hash, .set = set, .index = ref.index, .n = ref.n};
    return true;
}
