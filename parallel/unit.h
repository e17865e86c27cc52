/* Units: what is gathered, computed with, and given back together (one block; the embedding; norm
 * and head). A unit is a list of segments; a segment is a flat run of parameters with one set of
 * roles.
 *
 *   whole      compute dtype [numel]        what blocks read; gathered over `gather` before use
 *   shard      compute dtype [shard_numel]  this rank's part of it
 *   master     accum dtype   [shard_numel]  what the optimizer updates
 *   grad_whole accum dtype   [numel]        gradients accumulate here
 *   grad       accum dtype   [shard_numel]  their sum over the reduce roles
 *   state[k]   accum dtype   [shard_numel]  optimizer state slots
 *   remainder  I16           [shard_numel]  with master = shard in BF16: the masters' low bits
 *
 * Buffers that would hold the same values are the same memory: in a gather group of one, whole =
 * shard and grad_whole = grad; where compute dtype = accum dtype, shard = master. A frozen segment
 * has only shard and whole. The flat run is cut evenly: shard r is elements [r·shard_numel,
 * (r+1)·shard_numel). */
#ifndef AX_PARALLEL_UNIT_H
#define AX_PARALLEL_UNIT_H

#include "parallel/param.h"
#include "parallel/runtime.h"

#define AX_MAX_SEGMENTS 4
#define AX_MAX_STATE    4

/* How the weights that the optimizer updates are kept where compute is BF16 (else always as
 * AX_MASTERS_ACCUM): beside the shard in accum dtype; as the shard and 16 remainder bits, exactly
 * (ax_f32_join); or as the shard alone, rounded stochastically. */
enum ax_masters { AX_MASTERS_ACCUM, AX_MASTERS_REMAINDER, AX_MASTERS_STOCHASTIC };
/* float32, bf16_remainder, bf16_sr; AX_ERR_CONFIG lists them. */
enum ax_status ax_masters_parse(const char *name, enum ax_masters *out);

struct ax_state_slot {
    const char *name; /* "exp_avg" */
    enum ax_dtype dtype;
};

struct ax_segment {
    enum ax_role gather;   /* parameters are sharded over this role */
    uint32_t reduce_roles; /* bits: gradients are summed over these (the gather role included) */
    enum ax_dtype compute, accum;
    int64_t align; /* elements: parameters and shards start at multiples of it */
    bool trainable;
    int64_t numel, shard_numel; /* numel = shard_numel · group size, padding included */
    int n_state;
    struct ax_state_slot slots[AX_MAX_STATE];
    struct ax_tensor whole, shard, master, grad_whole, grad, state[AX_MAX_STATE];
    struct ax_tensor remainder;
};

struct ax_unit {
    char name[AX_NAME_MAX];
    int gathered; /* users that need it whole now */
    int n_segments;
    struct ax_segment segments[AX_MAX_SEGMENTS];
};

/* What a run needs of its parameters. */
struct ax_unit_options {
    enum ax_dtype compute;
    bool train; /* gradients, masters and state; else only what forward reads */
    int n_state;
    struct ax_state_slot slots[AX_MAX_STATE];
    enum ax_masters masters;
};

/* Gives each of the n parameters that belong to unit `index` its segment and offset, in the order
 * given. Parameters marked `glue` with their predecessor follow it without padding, so that several
 * can be read as one matrix. */
void ax_unit_layout(struct ax_unit *unit, int index, const struct ax_mesh *mesh,
                    const struct ax_unit_options *o, int n, struct ax_param **params,
                    const bool *glue);
/* Takes the buffers from the persistent stack. */
void ax_unit_allocate(struct ax_unit *unit, struct ax_runtime *rt, const struct ax_unit_options *o);

/* Between gather and release `whole` is valid; pairs nest, reading it outside is a bug. */
enum ax_status ax_unit_gather(struct ax_unit *unit, struct ax_runtime *rt);
void ax_unit_release(struct ax_unit *unit);
/* After the last backward of a step: grad = Σ over the reduce roles. */
enum ax_status ax_unit_reduce(struct ax_unit *unit, struct ax_runtime *rt);

/* The parameter inside a gathered unit, in its local shape; and where its gradient accumulates
 * (data NULL when frozen). */
struct ax_tensor ax_unit_weight(const struct ax_unit *unit, const struct ax_param *p);
struct ax_tensor ax_unit_grad(const struct ax_unit *unit, const struct ax_param *p);

/* The part of [0, local numel) of a parameter that lies in this rank's shard: local elements
 * [*first, *first + *n) at shard offset *at. n = 0: none. */
void ax_unit_owned(const struct ax_unit *unit, const struct ax_mesh *mesh, const struct ax_param *p,
                   int64_t *first, int64_t *n, int64_t *at);

/* Reads the owned part from the global tensor (any float dtype) into shard, master and remainder.
 */
void ax_unit_load(struct ax_unit *unit, const struct ax_mesh *mesh, const struct ax_param *p,
                  enum ax_dtype dtype, const void *global);

#endif
