/* Units: what is gathered, used and released together (one layer; the embedding; norm and head). A
 * unit is a list of segments; a segment is a flat run of parameters that are sharded and summed
 * over the same roles.
 *
 *   full        compute dtype       [numel]        what layers read; gathered over `gather`. Of
 *                                                  buffers: accumulation dtype
 *   shard       compute dtype       [shard_numel]  this rank's part of it
 *   master      accumulation dtype  [shard_numel]  what the optimizer updates
 *   grad_full   accumulation dtype  [numel]        gradients of one micro-batch accumulate here
 *   grad        accumulation dtype  [shard_numel]  their sum over reduce roles and micro-batches
 *   remainder   I16                 [shard_numel]  with master = shard in BF16: its low bits
 *
 * Buffers with equal contents share memory: in a gather group of one, full = shard and grad_full =
 * grad; if compute dtype = accumulation dtype, shard = master. A frozen segment has only shard and
 * full. A coded segment (unit_move.c) may be gathered as e4m3 codes, which are then where full is.
 * A packed segment (packed.h) instead has `packed` and `packed_shard`, the buffers of codes
 * and scales, which are gathered as they are. The flat run is split evenly: shard r is elements
 * [r·shard_numel, (r+1)·shard_numel).
 *
 * Layers' units stream (FSDP2): what they do not keep (ax_sharding) of full and grad_full alternates
 * between two pool buffers, so that one can be gathered while its neighbor computes. The embedding
 * and the head have their own. */
#ifndef AX_PARALLEL_UNITS_UNIT_H
#define AX_PARALLEL_UNITS_UNIT_H

#include "parallel/units/packed.h"

#define AX_MAX_SEGMENTS 8
#define AX_MAX_CODED    24 /* most parameters of a coded segment */
#define AX_MAX_PRODUCTS 30 /* most matrices of a segment that products write first */

/* How the weights that the optimizer updates are kept if compute is BF16 (else always
 * AX_MASTERS_ACCUM): separate from the shard, in accumulation dtype; as the shard plus 16 remainder
 * bits, exactly (ax_f32_join); or as the shard alone, rounded stochastically. */
enum ax_masters { AX_MASTERS_ACCUM, AX_MASTERS_REMAINDER, AX_MASTERS_STOCHASTIC };
/* float32, bf16_remainder, bf16_sr; AX_ERR_CONFIG lists them. */
enum ax_status ax_masters_parse(const char *name, enum ax_masters *out);
/* The i-th name; NULL after the last. */
const char *ax_masters_name(size_t i);

struct ax_segment {
    enum ax_role gather;   /* parameters are sharded over this role */
    uint32_t reduce_roles; /* bits: gradients are summed over these (the gather role included) */
    enum ax_dtype compute, accum;
    int64_t align; /* elements: parameters and shards start at multiples of it */
    bool trainable, buffer;
    bool uncopied; /* its parameters are absent from a copy of the unit */
    bool adapters; /* frozen parameters of adapters, which have segments apart from the base's */
    bool bf16_sums;
    bool has_codes; /* the last gather brought codes */
    bool begun;     /* grad_full has gradients that are not in a sum, nor in an update */
    bool summed;    /* grad has a sum that is not in an update */
    int n_coded;    /* number of parameters of a coded segment; 0: not coded */
    const struct ax_param *coded[AX_MAX_CODED];
    int n_products; /* number of matrices whose part of grad_full a product writes first */
    struct ax_param *products[AX_MAX_PRODUCTS];
    struct ax_packing packing;  /* packing.store AX_STORAGE_PLAIN: not packed */
    int64_t numel, shard_numel; /* numel = shard_numel · group size, padding included */
    struct ax_tensor full, shard, master, grad_full, grad;
    struct ax_tensor remainder;
    bool host_master, host_shard; /* the separate master, the frozen shard is in the host tier */
    /* segment of another model whose shard this one reads in place of its own; or NULL */
    const struct ax_segment *lender;
    struct ax_tensor packed[AX_PACKED_BUFFERS], packed_shard[AX_PACKED_BUFFERS];
    /* gathers in flight; a plain segment uses the first */
    struct ax_ticket gathers[AX_PACKED_BUFFERS];
};

struct ax_unit {
    char name[AX_NAME_MAX];
    int gathered;    /* number of users that need it unsharded now */
    bool arriving;   /* gathers have been started and not waited for */
    uint64_t copied; /* ticket of the last copy from the host tier */
    /* it has the copy of a tied matrix whose original is on the first stage; set before layout */
    bool copy;
    struct ax_unit_pool *pool;
    struct ax_unit_pool *away; /* its pool, while ax_unit_hold keeps it outside */
    int buffer;                /* index of its buffer in the pool; −1: it has its own */
    int n_segments;
    struct ax_segment segments[AX_MAX_SEGMENTS];
};

/* What is kept in the device's host tier while idle. No effect on a device without one, whose
 * memory is the host's. */
struct ax_offload {
    bool optimizer;   /* optimizer state, and masters that are kept separately */
    bool layers;      /* this rank's shards of the frozen weights of layers */
    bool activations; /* the residual stream between layers, from forward to backward */
};

/* What the ranks that share a unit's weights keep of it between its uses: nothing (ZeRO-3,
 * Rajbhandari et al. 2020), weights (ZeRO-2), or both (ZeRO-1). Masters and optimizer state are
 * always sharded. */
struct ax_sharding {
    bool keep_weights;   /* gathered once per step, not for each use */
    bool keep_gradients; /* reduced once per step, not after each backward */
    bool bf16_sums; /* gradients of several ranks are rounded to BF16 before and after their sum; no
                       effect on F64's */
    bool prefetch;  /* a unit's gather and sum travel while its neighbor computes */
    bool coded;     /* gathers for training passes bring codes of parameters that have them */
};

/* The sharding of a ZeRO stage, 1 to AX_ZERO_STAGES. */
#define AX_ZERO_STAGES 3
static inline struct ax_sharding ax_zero_stage(int64_t stage) {
    return (struct ax_sharding){
        .keep_weights = stage < 3, .keep_gradients = stage < 2, .prefetch = true};
}

/* How a run keeps its parameters. */
struct ax_unit_options {
    enum ax_dtype compute;
    bool train; /* gradients and masters; else only what forward reads */
    enum ax_masters masters;
    struct ax_offload offload; /* `layers` excludes sharding.keep_weights */
    struct ax_sharding sharding;
};

/* Assigns each of the n parameters of a unit its segment and offset, in the given order.
 * Dense parameters are gathered over FSDP, those with an ep_dim over EFSDP; gradients are summed
 * over that role, DP_REPLICATE, and the parameter's grad_partial_over. Frozen and trainable
 * parameters, buffers, and each storage format, have separate segments; packed ones are never glued. A
 * parameter marked `glue` follows its predecessor without padding if both are in one segment, so
 * that several can be read as one matrix. Of a copy, those that are `uncopied` have no elements. */
void ax_unit_layout(struct ax_unit *unit, const struct ax_mesh *mesh,
                    const struct ax_unit_options *o, int n, struct ax_param **params,
                    const bool *glue);

/* Two alternating buffers for the unsharded parameters and gradients of streamed units. */
struct ax_unit_pool {
    void AX_DEVICE *full[2];
    void AX_DEVICE *grad[2];
    const struct ax_unit *user[2]; /* the unit whose parameters each buffer holds now */
    bool prefetch;                 /* as in ax_sharding */
};
/* Allocates buffers for the largest of the n units; none if their gather groups have one rank and
 * nothing is offloaded. Decides which of their shards will be in the host tier. */
void ax_unit_pool_create(struct ax_unit_pool *pool, struct ax_runtime *rt,
                         const struct ax_unit_options *o, struct ax_unit *units, int n);
/* Shares frozen weights with another model; call it before the pool is created. A frozen segment of
 * `unit` reads the shard of a frozen segment of `of`, the other model's unit (allocated), if both
 * have the same parameters, by name, in the same places; but not one of adapters, which each model has of its own. The
 * first n (n_of) parameters are those of the two units. */
void ax_unit_borrow(struct ax_unit *unit, int n, const struct ax_param *params,
                    const struct ax_unit *of, int n_of, const struct ax_param *params_of);
/* Allocates the buffers from the persistent stack. Unless pool is NULL, the parts of full and
 * grad_full that are not kept are the pool's buffer `buffer` (0, 1). */
void ax_unit_allocate(struct ax_unit *unit, struct ax_runtime *rt, const struct ax_unit_options *o,
                      struct ax_unit_pool *pool, int buffer);

/* `full` is valid between gather and release; pairs nest, and reading it outside is a bug. Gather is
 * start and arrive: what is computed between them hides the transfer. With `codes`, coded segments bring
 * codes instead. */
enum ax_status ax_unit_start_gather(struct ax_unit *unit, struct ax_runtime *rt, bool codes);
enum ax_status ax_unit_arrive(struct ax_unit *unit, struct ax_runtime *rt);
enum ax_status ax_unit_gather(struct ax_unit *unit, struct ax_runtime *rt);
void ax_unit_release(struct ax_unit *unit);
/* After an error in the middle of its uses: forgets all but `kept` of the gathers that have not been released. */
void ax_unit_drop_gathers(struct ax_unit *unit, int kept);
/* Gathers a unit that has no users, and keeps it gathered until ax_unit_let_go: for many uses while
 * weights do not change. `at`: memory of ax_unit_hold_bytes (0 if it has a buffer of its own). */
size_t ax_unit_hold_bytes(const struct ax_unit *unit, const struct ax_runtime *rt);
enum ax_status ax_unit_hold(struct ax_unit *unit, struct ax_runtime *rt, void AX_DEVICE *at);
void ax_unit_let_go(struct ax_unit *unit, struct ax_runtime *rt);

/* One unit's sums in flight. They have memory in scratch: what is pushed after start is released
 * before finish. */
struct ax_unit_sum {
    struct ax_unit *unit; /* NULL: none */
    bool last;
    size_t mark;
    struct ax_segment_sum {
        struct ax_tensor sent, sum;
        enum ax_role over;
        struct ax_ticket ticket;
    } sums[AX_MAX_SEGMENTS];
};
/* Nothing zeroes gradients when they have been used: what is left of them is overwritten.
 *
 * _begin_ comes before anything adds to the gradients of a unit, for each backward. The first time after a sum or an update it
 * zeroes grad_full, except for matrices whose first product is to write them: true of ax_unit_grad_begins, once for each.
 * _drop_ forgets gradients, as after an update. */
enum ax_status ax_unit_begin_gradients(struct ax_unit *unit, struct ax_runtime *rt);
bool ax_unit_grad_begins(const struct ax_unit *unit, const struct ax_param *p);
void ax_unit_drop_gradients(struct ax_unit *unit);
/* After one or more backwards, also on one rank: what nothing has written or added to is zero, and
 * grad (+)= this rank's part of Σ grad_full over the gather role. After a step's `last` backward, also sums over the other
 * reduce roles.
 *
 * _start_ begins the first of these sums, _finish_ completes them all (a no-op if r->unit is NULL);
 * until then the unit's gradients must not change. _pass_ completes the first sum and starts the
 * second one in *next (whose own sums are completed before), so that it travels behind more work;
 * then r->unit is NULL. _finish_reduces completes both at the end. */
enum ax_status ax_unit_start_reduce(struct ax_unit_sum *r, struct ax_unit *unit,
                                    struct ax_runtime *rt, bool last);
enum ax_status ax_unit_finish_reduce(struct ax_unit_sum *r, struct ax_runtime *rt);
enum ax_status ax_unit_pass_reduce(struct ax_unit_sum *r, struct ax_unit_sum *next,
                                   struct ax_runtime *rt);
enum ax_status ax_unit_finish_reduces(struct ax_unit_sum *r, struct ax_unit_sum *next,
                                      struct ax_runtime *rt);

/* The parameter inside a gathered unit, in its local shape; and where its gradient accumulates
 * (data NULL when frozen), once it is known whether it begins. */
struct ax_tensor ax_unit_weight(const struct ax_unit *unit, const struct ax_param *p);
struct ax_tensor ax_unit_grad(const struct ax_unit *unit, const struct ax_param *p);
bool ax_unit_trains(const struct ax_unit *unit, const struct ax_param *p);

/* A parameter's value in accumulation dtype, in its local shape: the master, gathered. `gathered`
 * (zeroed before the first call) keeps the masters of each segment of the unit, in scratch or in
 * place. */
enum ax_status ax_unit_master(const struct ax_unit *unit, struct ax_runtime *rt,
                              const struct ax_param *p, struct ax_tensor gathered[AX_MAX_SEGMENTS],
                              struct ax_tensor *out);
/* Makes a change of a gathered unit's frozen weights permanent: this rank's part of them goes to
 * its shard. Every rank must have changed them alike. */
enum ax_status ax_unit_keep(const struct ax_unit *unit, struct ax_runtime *rt);

/* For a packed parameter, or one that was gathered as codes, ax_unit_packed returns what
 * ax_packed_read takes. */
bool ax_unit_is_packed(const struct ax_unit *unit, const struct ax_param *p);
bool ax_unit_has_codes(const struct ax_unit *unit, const struct ax_param *p);
struct ax_packed ax_unit_packed(const struct ax_unit *unit, const struct ax_param *p);
/* The same of n packed parameters from p on, each of which follows the one before (ax_param_follows). */
struct ax_packed ax_unit_packed_run(const struct ax_unit *unit, const struct ax_param *p,
                                    int64_t n);

/* True if this rank (its pipeline stage) has the unit's parameters. */
bool ax_unit_present(const struct ax_unit *unit);

/* If several ranks have the same parameter, one of them owns it: that one counts it in the norm and
 * saves it. Not owners are replicas of dp_replicate, other ranks of tp for a parameter that tp does
 * not split, and the last stage's copy of a tied embedding. Each element is in ax_unit_owned of
 * exactly one rank that owns the parameter. */
bool ax_unit_owns(const struct ax_unit *unit, const struct ax_mesh *mesh, const struct ax_param *p);
bool ax_segment_owned(const struct ax_segment *seg, const struct ax_mesh *mesh);

/* The part of [0, local numel) of a parameter in this rank's shard: local elements [*first, *first
 * + *n) at shard offset *at. n = 0: none. */
void ax_unit_owned(const struct ax_unit *unit, const struct ax_mesh *mesh, const struct ax_param *p,
                   int64_t *first, int64_t *n, int64_t *at);

/* Reads the owned part from the entire tensor (any float dtype) into shard, master and
 * remainder. */
enum ax_status ax_unit_load(struct ax_unit *unit, struct ax_runtime *rt, const struct ax_param *p,
                            const struct ax_elements *global);
/* Reads and quantizes the owned part of a packed parameter. */
enum ax_status ax_unit_load_packed(struct ax_unit *unit, struct ax_runtime *rt,
                                   const struct ax_param *p, const struct ax_elements *global);

#endif
