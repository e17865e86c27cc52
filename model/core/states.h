/* States: what layers without keys and values keep of the sequences of a KV cache for their next token.
 *
 * A layer's state is the last `rows` inputs of its convolution, and what the delta rule goes on with (struct
 * ax_delta_forward). A sequence has two slots of them: the running one, after all of its tokens in the cache, and
 * one that was kept at an earlier place, where sequences that begin alike go on. For unlike keys, states cannot be cut: a sequence can only be continued, or copied, at
 * these two places (and from its start). */
#ifndef AX_MODEL_CORE_STATES_H
#define AX_MODEL_CORE_STATES_H

#include "kernels/delta_ops.h"
#include "model/arch/part.h"

struct ax_delta_forward;
struct ax_queue;
struct ax_stack;

/* What a slot has for the delta rule. */
enum ax_rule_tensor {
    AX_RULE_STATES,
    AX_RULE_KEYS,
    AX_RULE_UPDATES,
    AX_RULE_DECAYS,
    AX_RULE_TENSORS
};

struct ax_states {
    int64_t n_seqs;
    int64_t n_layers; /* none: nothing is kept, and any place of a sequence is as good */
    struct ax_state_size size;
    bool planning;
    /* compute [n_layers][2·n_seqs·rows·channels]: row p % rows of a slot has the input at position p. The
     * kept slots come after the running ones */
    struct ax_tensor windows;
    /* a row per layer, slot by slot: states accumulation, keys compute, updates and decays accumulation; no data
     * without the delta rule */
    struct ax_tensor rule[AX_RULE_TENSORS];
    int64_t *at, *kept; /* [n_seqs], host: tokens before the place of each slot; −1: no place */
    /* indices of this pass: i32 [documents·rows], rows of a layer's windows that precede each document, −1 before
     * the sequence; i32 [T], the row to which each token's input goes, or −1 */
    struct ax_tensor before, to;
    struct ax_tensor slots,
        past; /* i32 [documents]: its slot; its tokens that have been computed */
    int32_t *host;
    int64_t T; /* capacity of `to` */
};

struct ax_states_options {
    enum ax_dtype dtype;
    int64_t n_seqs, n_layers;
    struct ax_state_size size;
    int64_t T;
    bool planning;
};
enum ax_status ax_states_create(struct ax_states *s, struct ax_stack *stack,
                                const struct ax_states_options *o);
void ax_states_free(struct ax_states *s);
void ax_states_clear(struct ax_states *s);

/* The most tokens, of n at most, after which a sequence of the cache can be continued. */
int64_t ax_states_place(const struct ax_states *s, int64_t seq, int64_t n);
/* Makes the running slot of `to` the state after the first n tokens of `from`, which must be such a place. */
enum ax_status ax_states_fork(struct ax_states *s, struct ax_queue *q, int64_t from, int64_t to,
                              int64_t n);
/* Keeps the running slot. */
enum ax_status ax_states_keep(struct ax_states *s, struct ax_queue *q, int64_t seq);
/* The cache has only the first n tokens of a sequence from now on. */
void ax_states_cut(struct ax_states *s, int64_t seq, int64_t n);

/* Before a pass of T tokens: n_new[d] tokens follow the first start[seqs[d]] of sequence seqs[d]. */
enum ax_status ax_states_advance(struct ax_states *s, struct ax_queue *q, int64_t T, int64_t n_docs,
                                 const int32_t *seqs, const int64_t *start, const int64_t *n_new);
/* Within a pass, of the layer-th layer with a state, and of its channels [first, first + n): takes
 * [documents·rows][n] for the inputs before each document; reads them; writes those of the pass, x [T][n]. */
struct ax_tensor ax_states_rows(const struct ax_states *s, struct ax_stack *stack, int64_t n);
enum ax_status ax_states_read(const struct ax_states *s, struct ax_queue *q, int layer,
                              int64_t first, const struct ax_tensor *rows);
enum ax_status ax_states_write(const struct ax_states *s, struct ax_queue *q, int layer,
                               int64_t first, const struct ax_tensor *x);
/* Points the delta rule at the layer's slots. */
void ax_states_describe(const struct ax_states *s, int layer, struct ax_delta_forward *f);

#endif
