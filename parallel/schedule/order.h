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
 *   zero_bubble  1f1b whose backwards are in two halves: gradients of inputs, for which the stage
 *                before waits, and of weights, which run where stages would wait, in stage r those of
 *                r micro-batches late. p micro-batches are begun and not done, on every stage, as on
 *                1f1b's first ("ZB-H1", Qi et al. 2024)
 *
 * With one stage all of them are 1f1b. A chunk's micro-batches run in ascending order in each direction, so
 * that their gradients add up in the same order in all of them. */
#ifndef AX_PARALLEL_SCHEDULE_ORDER_H
#define AX_PARALLEL_SCHEDULE_ORDER_H

#include <stdbool.h>

#include "base/status.h"

enum ax_pipeline_kind {
    AX_PIPELINE_1F1B,
    AX_PIPELINE_AFAB,
    AX_PIPELINE_INTERLEAVED,
    AX_PIPELINE_ZERO_BUBBLE
};
/* Finds a kind by its name above; AX_ERR_CONFIG lists the names. */
enum ax_status ax_pipeline_parse(const char *name, enum ax_pipeline_kind *out);
/* NULL past the last kind. */
const char *ax_pipeline_name(enum ax_pipeline_kind kind);

struct ax_pipeline {
    enum ax_pipeline_kind kind;
    int virtual_stages; /* chunks per stage; 0 = 2 if interleaved, else 1 */
    int stages;
    int n_microbatches;
};
/* Chunks per stage, v; 1 if there is one stage, because its chunks would follow each other. */
int ax_pipeline_chunks(const struct ax_pipeline *p);
/* True if the backwards of stages are in two halves. (The first stage runs both halves as one,
 * because no stage waits for its first half.) */
bool ax_pipeline_halves(const struct ax_pipeline *p);
/* The number of passes of a stage whose activations are kept at the same time: stashes that it
 * needs. AX_ERR_CONFIG if an arena has fewer. */
enum ax_status ax_pipeline_slots(const struct ax_pipeline *p, int stage, int *slots);

enum ax_pass_kind {
    AX_PASS_FORWARD,
    AX_PASS_BACKWARD, /* if backwards are halved, only gradients of inputs */
    AX_PASS_WEIGHTS,
    AX_PASS_KINDS
};

struct ax_chunk_pass {
    int chunk; /* index among all chunks; −1 = the stage waits */
    int microbatch;
    enum ax_pass_kind kind;
};

/* A clock in which every pass takes one tick and its result is available in the next. */
struct ax_order {
    struct ax_pipeline pipeline;
    int chunks;                   /* per stage */
    int n_passes;                 /* passes per stage */
    struct ax_chunk_pass *passes; /* [stages][n_passes]: in their order */
    struct ax_chunk_pass *now;    /* [stages]: what they do in this tick */
    int *at; /* [stages]: passes that each stage has run, this tick's included */
    /* [chunks · stages]: micro-batches that each chunk has run, this tick's included */
    int *done[AX_PASS_KINDS];
};
enum ax_status ax_order_create(struct ax_order *o, const struct ax_pipeline *p);
/* Advances to the next tick; false if all passes are done. */
bool ax_order_tick(struct ax_order *o);
void ax_order_free(struct ax_order *o);

/* All ticks of an order. */
struct ax_ticks {
    int stages, n;
    struct ax_chunk_pass *passes; /* [n][stages] */
};
enum ax_status ax_ticks_create(struct ax_ticks *t, const struct ax_pipeline *p);
/* Chunk −1 also before the first tick and after the last. */
struct ax_chunk_pass ax_ticks_at(const struct ax_ticks *t, int tick, int stage);
void ax_ticks_free(struct ax_ticks *t);

/* The share of their time in which stages wait for each other, if forward of chunk k of the model
 * takes cost[k], backward twice as long (each half as long as forward), and messages no time. */
enum ax_status ax_order_idle(const struct ax_pipeline *p, const double *cost, double *idle);

#endif
