/* How far documents reach back from one run of a split sequence (model/core/batch.h) into earlier ones:
 * which keys elsewhere a run's queries attend to. Only the document of a run's first token has any. */
#ifndef AX_MODEL_PARALLEL_REACH_H
#define AX_MODEL_PARALLEL_REACH_H

#include "kernels/queue.h"

#define AX_REACH_RUNS 256 /* the most runs of a sequence: 128 parts */

struct ax_reach {
    /* number of runs of the sequence (0: more than AX_REACH_RUNS); the two of this part */
    int runs, own[2];
    int64_t length;                /* tokens of a run */
    int64_t begins[AX_REACH_RUNS]; /* where the document of each run's first token begins */
    /* i32 [2][runs + 1][3]: for each own run the tables of two documents, the tokens that do not
     * reach back and then the document that does: cu_q, then cu_k in each run of the sequence. */
    struct ax_tensor ends;
};

/* Allocates it for part `part` of a sequence in `parts` parts. */
void ax_reach_allocate(struct ax_reach *r, struct ax_stack *stack, int parts, int part);
/* While planning: documents reach back as far as documents of max_len tokens can. */
void ax_reach_plan(struct ax_reach *r, int64_t length, int64_t max_len);
/* Document d is tokens ends[d] … ends[d + 1] − 1. */
enum ax_status ax_reach_fill(struct ax_reach *r, struct ax_queue *q, int64_t length, int64_t n,
                             const int32_t *ends);

/* True if a query of `run` attends to a key of the run `earlier`. window 0: no limit. */
bool ax_reach_sees(const struct ax_reach *r, int run, int earlier, int64_t window);
/* cu_q of own run i (0, 1), and its cu_k in the run `earlier`, for an op on only these rows. */
struct ax_tensor ax_reach_queries(const struct ax_reach *r, int i);
struct ax_tensor ax_reach_keys(const struct ax_reach *r, int i, int earlier);
/* Number of tokens from the last key of `earlier` to the first query of `run` (struct
 * ax_attention). */
int64_t ax_reach_ahead(const struct ax_reach *r, int run, int earlier);

#endif
