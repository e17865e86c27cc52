/* The order in which the stages of a pipeline compute: passes, each forward or backward of one chunk
 * for one micro-batch.
 *
 * A stage is a rank of the pipeline. It has chunks, contiguous ranges of the model's units: number k
 * of all chunks is on stage k mod p, so that a micro-batch goes around v times (chunks.h).
 *
 *   1f1b         one chunk per stage. Stage r first runs p − r − 1 forwards, then alternates one
 *                forward and one backward (Narayanan et al. 2021)
 *   afab         all forwards, then all backwards: keeps the activations of all micro-batches
 *                ("GPipe")
 *   interleaved  v chunks per stage. Groups of p micro-batches go through all its chunks (of p or
 *                more, as even as possible, if p does not divide their number). With the largest
 *                group of g, 2 (p − r − 1) + (v − 1) g forwards come first. The idle time is a v-th
 *                of the others', for v times the messages
 *
 * With one stage all three are the first. A chunk's micro-batches run in ascending order in each direction, so that their gradients add up
 * in the same order in all of them. */
#ifndef AX_PARALLEL_ORDER_H
#define AX_PARALLEL_ORDER_H

#include <stdbool.h>

#include "base/status.h"

enum ax_pipeline_kind { AX_PIPELINE_1F1B, AX_PIPELINE_AFAB, AX_PIPELINE_INTERLEAVED };
/* 1f1b, afab, interleaved; AX_ERR_CONFIG lists them. */
enum ax_status ax_pipeline_parse(const char *name, enum ax_pipeline_kind *out);
const char *ax_pipeline_name(enum ax_pipeline_kind kind);

struct ax_pipeline {
    enum ax_pipeline_kind kind;
    int virtual_stages; /* chunks per stage; 0 = 2 if interleaved, else 1 */
    int stages;
    int n_microbatches;
};
/* v: 1 if there is one stage, because its chunks would follow each other. */
int ax_pipeline_chunks(const struct ax_pipeline *p);
/* Passes of a stage whose activations are kept at the same time: stashes that it needs.
 * AX_ERR_CONFIG if an arena has not as many. */
enum ax_status ax_pipeline_slots(const struct ax_pipeline *p, int stage, int *slots);

struct ax_chunk_pass {
    int chunk; /* of all chunks; −1 = the stage waits */
    int microbatch;
    bool backward;
};

/* A clock for which every pass takes one tick, and its result is there in the next one. */
struct ax_order {
    struct ax_pipeline pipeline;
    int chunks;                /* per stage */
    struct ax_chunk_pass *now; /* [stages]: what they do in this tick */
    int *at;                   /* [stages]: passes of each, this tick's included */
    int *forwards, *backwards; /* [chunks · stages]: micro-batches done, likewise */
};
enum ax_status ax_order_create(struct ax_order *o, const struct ax_pipeline *p);
/* The next tick; false: all is done, and nobody does anything any more. */
bool ax_order_tick(struct ax_order *o);
/* The stage's pass after this tick; chunk −1: none is left. */
struct ax_chunk_pass ax_order_next(const struct ax_order *o, int stage);
void ax_order_free(struct ax_order *o);

/* The share of the stages' time in which they wait for each other, if forward of chunk k of all takes
 * cost[k], backward twice as long, and messages no time. */
enum ax_status ax_order_idle(const struct ax_pipeline *p, const double *cost, double *idle);

#endif
