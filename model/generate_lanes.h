/* Private to generate*.c: lanes and passes of a generator. */
#ifndef AX_MODEL_GENERATE_LANES_H
#define AX_MODEL_GENERATE_LANES_H

#include "model/generate.h"

/* The cache holds ids[0 … length); the tokens from there to `known` go through the model next. */
struct ax_lane {
    struct ax_sequence *seq; /* NULL: idle */
    int32_t *ids;            /* [cap] */
    int64_t known;
    /* with a repetition penalty: the distinct tokens of ids[0 … known) */
    int32_t *context; /* [cap] */
    int64_t n_context;
    uint64_t *seen; /* bit per token of the vocabulary */
};

enum ax_status ax_lanes_create(struct ax_generator *d);
void ax_lanes_free(struct ax_generator *d);
/* Puts waiting sequences of seqs[0 … n) on idle lanes; *waiting = how many are left. `admitted` has
 * a flag for each. */
enum ax_status ax_lanes_admit(struct ax_generator *d, int64_t n, struct ax_sequence *seqs,
                              bool *admitted, int64_t *waiting);
/* The sequence length that rope assumes for a lane with this many tokens. The frequencies of
 * dynamic rope depend on the sequence's length once that exceeds max_position_embeddings, so
 * sequences of different lengths share neither passes nor keys. Other rope kinds always use the
 * same length. */
int64_t ax_lane_row_length(const struct ax_generator *d, int64_t known);
/* Appends a token to the lane. */
void ax_lane_push(struct ax_generator *d, struct ax_lane *l, int32_t id);

/* One pass over the pending tokens (while planning: over `planned` tokens). *n_rows = how many
 * lanes then have logits; lanes[i] is the lane of row i. */
enum ax_status ax_generate_pass(struct ax_generator *d, int64_t planned, int64_t *n_rows,
                                int32_t *lanes);
enum ax_status ax_generate_work_create(struct ax_generator *d);
void ax_generate_work_free(struct ax_generator *d);
/* Allocates a pass's buffers from the scratch stack of the rollout phase. */
void ax_generate_allocate(struct ax_generator *d, struct ax_stack *stack);

#endif
