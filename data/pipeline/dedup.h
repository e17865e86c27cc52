/* Which examples have been seen: by hash, then by comparing their tokens. */
#ifndef AX_DATA_PIPELINE_DEDUP_H
#define AX_DATA_PIPELINE_DEDUP_H

#include "data/pipeline/corpus.h"

struct ax_dedup {
    struct ax_dedup_entry {
        uint64_t hash;
        const struct ax_examples *set; /* NULL: free */
        uint32_t index, n;
    } *table; /* [mask + 1], open addressing */
    size_t mask;
};

/* Room for n examples. */
enum ax_status ax_dedup_init(struct ax_dedup *d, size_t n);
void ax_dedup_free(struct ax_dedup *d);
/* Notes the example; false when one with the same tokens and labels was there. */
bool ax_dedup_is_new(struct ax_dedup *d, const struct ax_examples *sets, struct ax_example_ref ref);

#endif
