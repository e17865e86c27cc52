/* Packing: which documents share a row. Works on lengths alone, one group of documents at a time;
 * so the result depends on nothing but the order of the documents and these options. */
#ifndef AX_DATA_PIPELINE_PACK_H
#define AX_DATA_PIPELINE_PACK_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum ax_pack_mode {
    AX_PACK_PLAIN, /* a document is a row */
    AX_PACK_FIT,   /* first-fit decreasing: the longest first, each into the first row with room */
    AX_PACK_IN_ORDER, /* next-fit: in order; a row is closed when the next document does not fit */
    AX_PACK_WRAP      /* all documents joined and cut every `capacity` tokens */
};

struct ax_pack_options {
    enum ax_pack_mode mode;
    int64_t capacity; /* tokens of a row */
    int64_t max_docs; /* documents of a row */
    int64_t group;    /* documents packed at a time */
};

/* Tokens [from, from + n) of document `doc` of the group. */
struct ax_pack_piece {
    uint32_t doc, from, n;
};

struct ax_pack {
    struct ax_pack_piece *pieces; /* [n_pieces], row by row */
    size_t n_pieces, cap_pieces;
    size_t *rows; /* [n_rows + 1] first piece of each row */
    size_t n_rows, cap_rows;
};

/* Packs documents of these lengths, each at most `capacity` (WRAP: any). Rows stand in the order of
 * their first documents, documents of a row in theirs. Overwrites `out` (zero-initialise it). */
enum ax_status ax_pack_group(struct ax_pack *out, const struct ax_pack_options *o,
                             const uint32_t *lengths, size_t n);
void ax_pack_free(struct ax_pack *p);

/* A row of `used` tokens padded to a multiple; 0 and 1 = no padding. */
int64_t ax_pack_padded(int64_t used, int64_t multiple);

#endif
