/* Which groups have been seen: by hash, then by comparing their examples. */
#ifndef AX_DATA_RECORDS_PIPELINE_DEDUP_H
#define AX_DATA_RECORDS_PIPELINE_DEDUP_H

#include "data/records/pipeline/corpus.h"

struct ax_dedup {
    struct ax_dedup_entry {
        uint64_t hash;
        const struct ax_corpus *corpus; /* NULL: free */
        size_t first, n;                /* corpus->refs */
    } *table;                           /* [mask + 1], open addressing */
    size_t mask;
};

/* Capacity for n groups. */
enum ax_status ax_dedup_init(struct ax_dedup *d, size_t n);
void ax_dedup_free(struct ax_dedup *d);
/* Adds the group c->refs[first, first + n), which must not move if it is new. Returns false if
 * an equal one is already there. */
bool ax_dedup_is_new(struct ax_dedup *d, const struct ax_corpus *c, size_t first, size_t n);

#endif
