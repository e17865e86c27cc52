/* Opens mesh, communicators, arena and queue together, and runs a body twice: planning, then for
 * real. */
#include "parallel/runtime.h"

#include <string.h>

#include "base/mem.h"
#include "base/threads.h"
#include "kernels/backend.h"
#include "kernels/transfer.h"
#include "parallel/fabric/comm_nccl.h"
#include "parallel/fabric/flight.h"

/* What connects ranks of this backend: the host's fabric, or one of the device's beside it. */
static enum ax_status choose_fabric(struct ax_runtime *rt, const struct ax_runtime_options *o,
                                    bool planning, unsigned roles) {
    rt->fabric = o->fabric;
    if (!o->fabric || planning || !rt->q->model->device->own_fabric)
        return AX_OK;
    AX_TRY(ax_nccl_fabric_open(&rt->own_fabric, o->fabric, &rt->arena.memory, roles));
    rt->fabric = &rt->own_fabric;
    return AX_OK;
}

static enum ax_status open_comm(struct ax_runtime *rt, enum ax_role role, bool planning) {
    struct ax_fabric *fabric = rt->fabric;
    struct ax_comm *c = &rt->comms[role];
    const int n = rt->mesh.size[role];
    if (n == 1) {
        ax_comm_self_init(c, role);
        return AX_OK;
    }
    if (planning) {
        ax_comm_meta_init(c, role, rt->mesh.coord[role], n);
        c->contracts = &rt->contracts;
        /* processes would be connected by Gloo */
        c->stages = !rt->q->model->device->own_fabric && (fabric ? fabric->ops->stages : true);
        return AX_OK;
    }
    if (!fabric)
        return ax_error(
            AX_ERR_UNSUPPORTED,
            "mesh: %d ranks can be planned in one process, but they only run when connected",
            rt->mesh.world);
    int *ranks;
    AX_TRY(ax_alloc(&ranks, (size_t)n, sizeof *ranks));
    ax_mesh_group(&rt->mesh, role, ranks);
    const enum ax_status st = fabric->ops->open(fabric, c, role, ranks, n, false);
    c->group = ranks[0];
    c->flight = rt->flight;
    ax_free(ranks);
    c->contracts = &rt->contracts;
    c->stages = fabric->ops->stages;
    return st;
}

static enum ax_status open_common(struct ax_runtime *rt, const struct ax_runtime_options *o,
                                  bool planning, unsigned roles) {
    struct ax_mesh_sizes sizes = o->sizes;
    const int world = o->fabric ? o->fabric->world : o->world > 0 ? o->world : 1;
    const int rank = o->fabric ? o->fabric->rank : o->rank;
    int *each[] = {&sizes.pp, &sizes.dp_replicate, &sizes.dp_shard,
                   &sizes.cp, &sizes.tp,           &sizes.ep};
    for (size_t i = 0; i < sizeof each / sizeof *each; i++)
        if (*each[i] == 0)
            *each[i] = 1;
    AX_TRY(ax_mesh_create(&rt->mesh, sizes, world, rank));
    rt->contracts.rank = rank;
    if (!planning)
        AX_TRY(ax_flight_create(&rt->flight, rank, world));
    AX_TRY(ax_queue_create(&rt->q, planning ? "meta" : o->backend, planning ? o->backend : NULL,
                           ax_runtime_threads(o), &rt->arena.scratch));
    rt->q->tf32 = o->tf32;
    rt->q->attention_varies = o->attention_varies;
    rt->q->gpu = o->gpu;
    AX_TRY(choose_fabric(rt, o, planning, roles));
    for (int role = 0; role < AX_ROLE_COUNT; role++)
        AX_TRY(open_comm(rt, (enum ax_role)role, planning));
    return ax_queue_open_ring(rt->q);
}

int ax_runtime_threads(const struct ax_runtime_options *o) {
    const int share = ax_cpu_count() / (o->fabric ? o->fabric->local_world : 1);
    return o->threads > 0 ? o->threads : share > 1 ? share : 1;
}

enum ax_status ax_runtime_open_planning(struct ax_runtime *rt, const struct ax_runtime_options *o) {
    memset(rt, 0, sizeof *rt);
    enum ax_status st;
    AX_TRY_GOTO(ax_arena_create_planning(&rt->arena, o->n_slots > 0 ? o->n_slots : 1), st, fail);
    AX_TRY_GOTO(open_common(rt, o, true, 0), st, fail);
    return AX_OK;
fail:
    ax_runtime_close(rt);
    return st;
}

enum ax_status ax_runtime_open(struct ax_runtime *rt, const struct ax_runtime_options *o,
                               const struct ax_arena_plan *plan, unsigned roles) {
    const struct ax_ops *ops;
    memset(rt, 0, sizeof *rt);
    enum ax_status st;
    AX_TRY_GOTO(ax_backend_find(o->backend, &ops), st, fail);
    AX_TRY_GOTO(ax_arena_create(&rt->arena, plan, ops->device), st, fail);
    AX_TRY_GOTO(open_common(rt, o, false, roles), st, fail);
    return AX_OK;
fail:
    ax_runtime_close(rt);
    return st;
}

void ax_runtime_close(struct ax_runtime *rt) {
    for (int role = 0; role < AX_ROLE_COUNT; role++)
        ax_comm_free(&rt->comms[role]);
    if (rt->own_fabric.state)
        rt->own_fabric.ops->free(&rt->own_fabric);
    ax_queue_free(rt->q);
    ax_flight_free(rt->flight);
    ax_contracts_free(&rt->contracts);
    ax_arena_free(&rt->arena);
    memset(rt, 0, sizeof *rt);
}

bool ax_runtime_planning(const struct ax_runtime *rt) {
    return rt->arena.planning;
}

int ax_runtime_groups(const struct ax_runtime *rt) {
    int n = 0;
    for (int role = 0; role < AX_ROLE_COUNT; role++)
        n += rt->mesh.size[role] > 1 && rt->comms[role].moves;
    return n;
}

static bool same_marks(const struct ax_arena_plan *a, const struct ax_arena_plan *b) {
    if (a->persistent != b->persistent || a->host != b->host || a->n_slots != b->n_slots)
        return false;
    for (int phase = 0; phase < AX_PHASE_COUNT; phase++) {
        if (a->scratch[phase] != b->scratch[phase])
            return false;
        for (int s = 0; s < a->n_slots; s++)
            if (a->slot[s][phase] != b->slot[s][phase])
                return false;
    }
    return true;
}

static enum ax_status plan(const struct ax_runtime_options *o, ax_runtime_body body, void *ctx,
                           struct ax_arena_plan *out, struct ax_contracts *contracts,
                           unsigned *roles) {
    struct ax_runtime rt;
    *roles = 0;
    AX_TRY(ax_runtime_open_planning(&rt, o));
    const enum ax_status st = body(&rt, ctx);
    ax_arena_measure(&rt.arena, out);
    ax_contracts_hand_over(contracts, &rt.contracts);
    for (int role = 0; role < AX_ROLE_COUNT; role++)
        *roles |= (unsigned)rt.comms[role].moves << role;
    ax_runtime_close(&rt);
    return st;
}

/* The first failure counts; reporting again is a no-op. */
static void tell(const struct ax_runtime_options *o, enum ax_status st) {
    if (st != AX_OK && o->fabric)
        o->fabric->ops->fail(o->fabric, st);
}

static enum ax_status run(const struct ax_runtime_options *o, ax_runtime_body body, void *ctx,
                          const struct ax_arena_plan *planned, struct ax_contracts *contracts,
                          unsigned roles) {
    struct ax_runtime rt;
    struct ax_arena_plan reached;
    AX_TRY(ax_runtime_open(&rt, o, planned, roles));
    ax_contracts_hand_over(&rt.contracts, contracts);
    enum ax_status st = ax_choices_open(&rt, o->choices);
    if (st == AX_OK)
        st = body(&rt, ctx);
    struct ax_error_record own;
    ax_error_save(&own, st);
    ax_choices_close(&rt);
    st = ax_error_restore(&own);
    if (st == AX_OK)
        st = ax_contract_settled(&rt.contracts, rt.comms, "run");
    ax_arena_measure(&rt.arena, &reached);
    if (st == AX_OK && !o->may_stay_below && !same_marks(planned, &reached))
        st = ax_error(AX_ERR_FAILED,
                      "memory: the run reached different high-water marks than its plan "
                      "(persistent %zu of %zu, "
                      "train scratch %zu of %zu bytes); this is a bug in axtrain",
                      reached.persistent, planned->persistent, reached.scratch[AX_PHASE_TRAIN],
                      planned->scratch[AX_PHASE_TRAIN]);
    if (st == AX_ERR_FAILED || st == AX_ERR_PEER)
        ax_flight_write(rt.flight);
    tell(o, st); /* before its communicators are gone, which others would report instead */
    if (st != AX_OK && rt.own_fabric.state)
        rt.own_fabric.ops->fail(&rt.own_fabric, st);
    ax_runtime_close(&rt);
    return st;
}

enum ax_status ax_runtime_run(const struct ax_runtime_options *o, ax_runtime_body body, void *ctx,
                              struct ax_arena_plan *plan_out) {
    struct ax_arena_plan planned;
    struct ax_contracts contracts = {0};
    unsigned roles;
    enum ax_status st = plan(o, body, ctx, &planned, &contracts, &roles);
    if (st == AX_OK) {
        if (plan_out)
            *plan_out = planned;
        st = run(o, body, ctx, &planned, &contracts, roles);
    }
    tell(o, st);
    ax_contracts_free(&contracts); /* empty if the run took them */
    return st;
}

enum ax_status ax_runtime_combine(struct ax_runtime *rt, enum ax_role role,
                                  enum ax_reduction reduction, double *values, int64_t n) {
    struct ax_queue *host;
    const struct ax_collective what = {.kind = AX_ALL_REDUCE,
                                       .reduction = reduction,
                                       .dtype = AX_F64,
                                       .send = values,
                                       .recv = values,
                                       .count = n};
    struct ax_ticket ticket;
    AX_TRY(ax_host_queue_open(rt->q, &host));
    enum ax_status st =
        ax_comm_start(&rt->comms[role], host, &what, &ticket); /* n is not planned */
    if (st == AX_OK)
        st = ax_comm_wait(&rt->comms[role], host, ticket);
    ax_host_queue_close(rt->q, host);
    return st;
}
