/* Opens mesh, communicators, arena and queue together, and runs a body twice: plan, then do. */
#include "parallel/runtime.h"

#include <string.h>

#include "base/threads.h"

static enum ax_status open_common(struct ax_runtime *rt, const struct ax_runtime_options *o,
                                  bool planning) {
    struct ax_mesh_sizes sizes = o->sizes;
    const int world = o->world > 0 ? o->world : 1;
    int *each[] = {&sizes.pp, &sizes.dp_replicate, &sizes.dp_shard,
                   &sizes.cp, &sizes.tp,           &sizes.ep};
    for (size_t i = 0; i < sizeof each / sizeof *each; i++)
        if (*each[i] == 0)
            *each[i] = 1;
    AX_TRY(ax_mesh_create(&rt->mesh, sizes, world, o->rank));
    for (int role = 0; role < AX_ROLE_COUNT; role++) {
        if (rt->mesh.size[role] == 1)
            ax_comm_self_init(&rt->comms[role], (enum ax_role)role);
        else if (planning)
            ax_comm_meta_init(&rt->comms[role], (enum ax_role)role, rt->mesh.coord[role],
                              rt->mesh.size[role]);
        else
            return ax_error(
                AX_ERR_UNSUPPORTED,
                "mesh: a group of %d ranks (%s) can be planned, but this build runs one "
                "rank only",
                rt->mesh.size[role], ax_role_name((enum ax_role)role));
    }
    const int threads = o->threads > 0 ? o->threads : ax_cpu_count();
    return ax_queue_create(&rt->q, planning ? "meta" : o->backend, planning ? o->backend : NULL,
                           threads, &rt->arena.scratch);
}

enum ax_status ax_runtime_open_planning(struct ax_runtime *rt, const struct ax_runtime_options *o) {
    memset(rt, 0, sizeof *rt);
    enum ax_status st;
    AX_TRY_GOTO(ax_arena_create_planning(&rt->arena, o->n_slots > 0 ? o->n_slots : 1), st, fail);
    AX_TRY_GOTO(open_common(rt, o, true), st, fail);
    return AX_OK;
fail:
    ax_runtime_close(rt);
    return st;
}

enum ax_status ax_runtime_open(struct ax_runtime *rt, const struct ax_runtime_options *o,
                               const struct ax_arena_plan *plan) {
    memset(rt, 0, sizeof *rt);
    enum ax_status st;
    AX_TRY_GOTO(ax_arena_create(&rt->arena, plan), st, fail);
    AX_TRY_GOTO(open_common(rt, o, false), st, fail);
    return AX_OK;
fail:
    ax_runtime_close(rt);
    return st;
}

void ax_runtime_close(struct ax_runtime *rt) {
    for (int role = 0; role < AX_ROLE_COUNT; role++)
        ax_comm_free(&rt->comms[role]);
    ax_queue_free(rt->q);
    ax_arena_free(&rt->arena);
    memset(rt, 0, sizeof *rt);
}

bool ax_runtime_planning(const struct ax_runtime *rt) {
    return rt->arena.planning;
}

static bool same_marks(const struct ax_arena_plan *a, const struct ax_arena_plan *b) {
    if (a->persistent != b->persistent || a->n_slots != b->n_slots)
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

enum ax_status ax_runtime_run(const struct ax_runtime_options *o, ax_runtime_body body, void *ctx,
                              struct ax_arena_plan *plan_out) {
    struct ax_runtime rt;
    struct ax_arena_plan plan, reached;
    AX_TRY(ax_runtime_open_planning(&rt, o));
    enum ax_status st = body(&rt, ctx);
    ax_arena_measure(&rt.arena, &plan);
    ax_runtime_close(&rt);
    if (st != AX_OK)
        return st;
    if (plan_out)
        *plan_out = plan;
    AX_TRY(ax_runtime_open(&rt, o, &plan));
    st = body(&rt, ctx);
    ax_arena_measure(&rt.arena, &reached);
    if (st == AX_OK && !o->may_stay_below && !same_marks(&plan, &reached))
        st = ax_error(AX_ERR_FAILED,
                      "memory: the run reached other marks than its plan (persistent %zu of %zu, "
                      "train scratch %zu of %zu bytes); this is a bug in axtrain",
                      reached.persistent, plan.persistent, reached.scratch[AX_PHASE_TRAIN],
                      plan.scratch[AX_PHASE_TRAIN]);
    ax_runtime_close(&rt);
    return st;
}
