/* How long a recorded op or transfer takes on a machine: shares of its data sheet that published
 * measurements reach, by kind and size (rates.c has the tables and their sources).
 *
 *   product     start + max(FLOPs / (peak · best · sustained), bytes / (bandwidth · streamed))
 *   attention   start + max(FLOPs / (peak · share(keys per query, head size)), bytes / …)
 *   others      start + max(bytes / (bandwidth · share), FLOPs / (peak · share))
 *   copies      start + bytes / (host link · payload)
 *
 * Values that fake_quantize makes have 8 bits there: what it writes, and products read, is half of bf16's.
 *
 *   transfer    latency + max(bytes in the node / link, bytes between nodes / network)
 *
 * A ring of n ranks, k of them per node, passes (n − 1)/n of its data over each link of a node, and
 * (n − k)/n of it through the k ranks' network adapters together. */
#ifndef AX_OPTIM_PLAN_RATES_H
#define AX_OPTIM_PLAN_RATES_H

#include "kernels/recording.h"
#include "optim/plan/hardware.h"
#include "parallel/fabric/comm.h"
#include "parallel/schedule/simulate.h"

/* How fast an op is: shares of the data sheet. */
struct ax_op_rate {
    double bytes; /* share of the memory's bandwidth */
    double flops; /* share of the peak; 0: as products or attention, or limited by bytes alone */
};

/* The rates of one machine. Shares are of its data sheet. */
struct ax_rates {
    struct ax_hardware hardware;
    const char *source;  /* where shares are from, for people */
    const char *backend; /* whose ops a step has: "cuda", or "sheet" (ax_queue_init) */
    struct ax_op_rate ops[AX_OP_COUNT];
    double bf16, fp8; /* FLOP/s of large products, sustained */
    double grouped;   /* grouped ones: those of all experts in one launch */
    /* products of values of 8 bits are what runs, in the compute dtype; else they stand for those of codes */
    bool emulates;
    /* factors of the table's shares of the peak, [backward][heads of up to 64 elements]: newer machines
     * have faster products beside the same exponentials */
    double attention[2][2];
    double least_attention;      /* least share of the peak, at any length */
    double product_start, start; /* seconds that a kernel takes besides its work */
    /* shares of the data sheet's links and network that transfers reach */
    double links[AX_COLLECTIVE_COUNT], network;
    double hop, far_hop, transfer_start; /* seconds of a transfer's latency: per step of a ring */
    double contention;                   /* see struct ax_sim_options */
};
struct ax_rates ax_rates_of(const struct ax_hardware *h);
/* Rates of the backend cuda (rates_cuda.c): on Hopper those that were measured there, else ax_rates_of's. */
struct ax_rates ax_rates_cuda(const struct ax_hardware *h);
/* Speed of products as a share of that in bf16, by the data sheets of GPUs. */
double ax_rates_dtype_share(enum ax_dtype dtype);
/* Rates for a machine whose speeds were measured by ax_plan_measure, h->bf16 with products in `dtype`: products in that
 * dtype and whatever streams memory reach the measured values. */
struct ax_rates ax_rates_measured(const struct ax_hardware *h, enum ax_dtype dtype);
/* Rates that do not depend on the machine, only on the backend, for choices on which a plan, its
 * run and all ranks must agree: an H100's for a GPU, else those of two cores. */
struct ax_rates ax_rates_agreed(const char *backend);

/* What the time of an op is spent on. */
enum ax_time_kind {
    AX_TIME_PRODUCTS,
    AX_TIME_ATTENTION,
    AX_TIME_MEMORY,
    AX_TIME_UPDATES,
    AX_TIME_COPIES, /* to and from the host tier, in the order of ops */
    AX_TIME_KINDS
};
enum ax_time_kind ax_rates_kind(enum ax_op op);
double ax_rates_seconds(const struct ax_rates *r, const struct ax_op_event *e);
double ax_rates_copy(const struct ax_rates *r, double bytes);

/* The ranks that take part in a role's transfers, by node: ranks of a node have consecutive
 * numbers. */
struct ax_rates_group {
    int size, local; /* number of ranks; of those on this rank's node */
};
enum ax_status ax_rates_group_of(const struct ax_rates *r, const struct ax_mesh *mesh,
                                 enum ax_role role, struct ax_rates_group *out);
/* Sets the latency and links of a START. `far`: a message leaves the node. */
void ax_rates_transfer(const struct ax_rates *r, const struct ax_rates_group *g, bool far,
                       const struct ax_transfer_event *t, struct ax_sim_item *item);

#endif
