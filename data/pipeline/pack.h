/* Packing: which examples share a sequence, and which sequences a micro-batch, where groups are to
 * stay in one. Works on lengths and groups alone, a chunk of examples at a time; so the result
 * depends on nothing but the order of the examples and these options. */
#ifndef AX_DATA_PIPELINE_PACK_H
#define AX_DATA_PIPELINE_PACK_H

#include "data/pipeline/corpus.h"

enum ax_pack_mode {
    AX_PACK_PLAIN,    /* an example is a sequence */
    AX_PACK_FIT,      /* first-fit decreasing: the longest first, each into the first with room */
    AX_PACK_IN_ORDER, /* next-fit: a sequence is closed when the next example does not fit */
    AX_PACK_WRAP      /* all examples joined and cut every `capacity` tokens: groups of one only */
};

struct ax_pack_options {
    enum ax_pack_mode mode;
    int64_t capacity; /* tokens of a sequence */
    int64_t max_docs; /* examples of a sequence */
    int64_t chunk;    /* groups packed at a time */
    int64_t batch; /* sequences of a micro-batch, in any of which a group's examples may be; 0 and
                      1: they are in one */
};
static inline int64_t ax_pack_batch(const struct ax_pack_options *o) {
    return o->batch > 1 ? o->batch : 1;
}

/* Tokens [from, from + n) of example `example` of the chunk. */
struct ax_pack_piece {
    uint32_t example, from, n;
};

struct ax_pack {
    struct ax_pack_piece *pieces; /* [n_pieces], sequence by sequence */
    size_t n_pieces, cap_pieces;
    size_t *firsts; /* [n + 1] first piece of each sequence */
    size_t n, cap;  /* sequences: a multiple of `batch`, of which some may be empty */
};

/* Packs examples, each at most `capacity` tokens (WRAP: any). Sequences (with `batch`:
 * micro-batches) are in the order of their first examples, examples of a sequence in theirs.
 * Overwrites `out` (zero-initialize it). AX_ERR_DATA names the record of a group that no
 * micro-batch can hold. */
enum ax_status ax_pack_chunk(struct ax_pack *out, const struct ax_pack_options *o,
                             const struct ax_corpus *c);
void ax_pack_free(struct ax_pack *p);

/* A sequence of `used` tokens padded to a multiple; 0 and 1 = no padding. */
int64_t ax_pack_padded(int64_t used, int64_t multiple);

#endif
