/* The units of a model that a stage of a pipeline has: a list of chunks, contiguous ranges. With p
 * stages, chunk number k of the model is on stage k mod p, so the chunk after the last stage's is
 * on the first. */
#ifndef AX_PARALLEL_SCHEDULE_CHUNKS_H
#define AX_PARALLEL_SCHEDULE_CHUNKS_H

#include <stdbool.h>

#include "base/status.h"

#define AX_MAX_CHUNKS 32

struct ax_chunk {
    int first, end; /* units */
};

struct ax_chunks {
    int n;
    struct ax_chunk list[AX_MAX_CHUNKS];
};

/* Splits n units of these costs into contiguous ranges, none empty: range k is units [bounds[k],
 * bounds[k + 1]). The most expensive range is as cheap as possible, because all others wait for it;
 * of such splits it is the most even one (least sum of squares), and then the one whose later ranges
 * have more units, because earlier stages keep more activations. */
enum ax_status ax_chunks_split(const double *cost, int n, int ranges, int *bounds);
/* A stage's part of stages · chunks ranges. */
struct ax_chunks ax_chunks_of(const int *bounds, int stages, int chunks, int stage);
bool ax_chunks_have(const struct ax_chunks *s, int unit);

#endif
