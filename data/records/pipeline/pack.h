/* Packing: assigns examples to sequences, and sequences to micro-batches if groups must stay in
 * one. It sees only lengths and groups, one chunk at a time, so the result depends only on these
 * options and the order of the examples. */
#ifndef AX_DATA_RECORDS_PIPELINE_PACK_H
#define AX_DATA_RECORDS_PIPELINE_PACK_H

#include "data/records/pipeline/corpus.h"

enum ax_pack_mode {
    AX_PACK_PLAIN,    /* one example per sequence, or one group of `group` examples */
    AX_PACK_FIT,      /* first-fit decreasing: longest first, each into the first that fits */
    AX_PACK_IN_ORDER, /* next-fit: closes a sequence when the next example does not fit */
    /* Groups of one only; examples of any length: */
    AX_PACK_WRAP,      /* concatenates all, splits every `capacity` tokens */
    AX_PACK_BEST,      /* best-fit decreasing, as TRL: longest first, each into the fullest that it
                         fits, the earliest of equals; an example is cut after `capacity` tokens */
    AX_PACK_BEST_SPLIT /* the same, but the truncated ends are packed as well */
};

struct ax_pack_options {
    enum ax_pack_mode mode;
    int64_t capacity; /* tokens per sequence */
    int64_t max_docs; /* examples per sequence; PLAIN: see `group` */
    int64_t group;    /* PLAIN: how many all groups have; 0: one */
    int64_t chunk;    /* groups packed at a time */
    int64_t batch;    /* sequences per micro-batch, over which a group may spread; ≤ 1: one */
    int64_t step;     /* sequences over which a group too large for a micro-batch may spread,
                         beginning with a new micro-batch; a multiple of `batch`; 0: it may not */
};
static inline int64_t ax_pack_batch(const struct ax_pack_options *o) {
    return o->batch > 1 ? o->batch : 1;
}
/* Number of consecutive sequences that must stay together. */
static inline int64_t ax_pack_unit(const struct ax_pack_options *o) {
    return o->step > 0 ? o->step : ax_pack_batch(o);
}

/* Tokens [from, from + n) of the chunk's example `example`. */
struct ax_pack_piece {
    uint32_t example, from, n;
};

struct ax_pack {
    struct ax_pack_piece *pieces; /* [n_pieces], sequence by sequence */
    size_t n_pieces, cap_pieces;
    size_t *firsts; /* [n + 1] first piece of each sequence */
    size_t n, cap;  /* sequences: a multiple of ax_pack_unit; some may be empty */
};

/* Packs examples of at most `capacity` tokens, or any (see above). Units of sequences are ordered by
 * their first example, and examples keep their order within a sequence; with BEST sequences are in
 * the order in which they were opened, the longest example first. Overwrites `out` (zero-initialize
 * it). AX_ERR_DATA names the record of a group too large for a unit. */
enum ax_status ax_pack_chunk(struct ax_pack *out, const struct ax_pack_options *o,
                             const struct ax_corpus *c);
void ax_pack_free(struct ax_pack *p);
/* True if sequences are ordered by length, so that training has to shuffle them. */
bool ax_pack_sorts(enum ax_pack_mode mode);

/* `used` tokens padded to a multiple; 0 and 1 = no padding. */
int64_t ax_pack_padded(int64_t used, int64_t multiple);

#endif
