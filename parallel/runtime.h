/* Everything that a program part runs on: mesh, communicators, queue and arena. The plan is the
 * program.
 *
 * ax_runtime_run calls `body` twice. The first call has a planning arena, a meta queue and meta
 * communicators: nothing is computed, and the high-water marks become the plan. The second call has
 * an arena of exactly that size, and checks each collective between ax_contract_enter and
 * ax_contract_leave. The body asks ax_runtime_planning() only where it would read or write host
 * data. */
#ifndef AX_PARALLEL_RUNTIME_H
#define AX_PARALLEL_RUNTIME_H

#include "parallel/choices.h"
#include "parallel/fabric/contract.h"
#include "parallel/fabric/fabric.h"

struct ax_runtime_options {
    const char *backend;         /* "cpu", "cuda" or "ref" (kernels/backend.h) */
    bool tf32, attention_varies; /* see struct ax_queue */
    int threads;                 /* 0 = ax_cpu_count(), shared by the fabric's ranks on this host */
    int n_slots;                 /* activation stashes; 1 without pipeline stages */
    int gpu;                     /* compute capability of a plan's GPU (struct ax_queue) */
    bool may_stay_below; /* the plan covers the largest possible work: the run may need less */
    struct ax_mesh_sizes sizes; /* all 0 = one rank */
    int world, rank;            /* for a plan without a fabric; 0 ranks = 1 */
    int local_world;            /* ranks that share this host; 0 = the fabric's */
    struct ax_fabric *fabric;   /* NULL = one rank, or only a plan */
    /* folder for measured choices of algorithms (choices.h); NULL: nothing is measured */
    const char *choices;
};

struct ax_runtime {
    struct ax_mesh mesh;
    struct ax_fabric *fabric;    /* connects the ranks; NULL: one rank, or a plan */
    struct ax_fabric own_fabric; /* the device's own fabric beside the host's; zeroed: none */
    struct ax_comm comms[AX_ROLE_COUNT];
    struct ax_arena arena;
    struct ax_queue *q;
    struct ax_choices choices;
    struct ax_contracts contracts;
    struct ax_flight *flight; /* NULL: not recorded */
    int n_steps;              /* steps created so far: each has a contract of its own */
    bool held;                /* a generation gathered all weights once */
};

/* CPU threads of a rank: the requested number, or its share of the host's. */
int ax_runtime_threads(const struct ax_runtime_options *o);
enum ax_status ax_runtime_open_planning(struct ax_runtime *rt, const struct ax_runtime_options *o);
/* `roles`: bits of the roles that move device memory in the plan. The others connect their devices
 * when they first do. */
enum ax_status ax_runtime_open(struct ax_runtime *rt, const struct ax_runtime_options *o,
                               const struct ax_arena_plan *plan, unsigned roles);
void ax_runtime_close(struct ax_runtime *rt);
bool ax_runtime_planning(const struct ax_runtime *rt);
/* The roles whose groups of several ranks have moved a device's memory so far, and did so in the plan. */
int ax_runtime_groups(const struct ax_runtime *rt);
/* values[n] (host memory) = their sum or maximum over the ranks of a role. Ops on them run as they
 * are called. */
enum ax_status ax_runtime_combine(struct ax_runtime *rt, enum ax_role role,
                                  enum ax_reduction reduction, double *values, int64_t n);

typedef enum ax_status (*ax_runtime_body)(struct ax_runtime *rt, void *ctx);
/* A failed body is reported to the fabric's other ranks. plan_out (may be NULL) receives the
 * plan. The real run must end with exactly the plan's high-water marks (unless it may stay
 * below); anything else is our bug, reported as AX_ERR_FAILED. */
enum ax_status ax_runtime_run(const struct ax_runtime_options *o, ax_runtime_body body, void *ctx,
                              struct ax_arena_plan *plan_out);

#endif
