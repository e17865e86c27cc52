/* Every op against the reference, and meshes of ranks against one rank. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "optim/check/mesh.h"
#include "optim/check/self.h"
#include "kernels/compare.h"
#include "kernels/operands.h"

/* ---- ops ---- */

/* A case: what the reference leaves behind, and the backend; which may not have the op. */
struct pair {
    struct ax_case got, want;
    bool absent;
};

/* All cases of a family. */
struct family {
    const struct ax_self *s;
    char name[32];
    int n, absent;
    struct pair *pairs; /* [n] */
    struct ax_case_difference d;
};

static bool belongs(const struct family *f, enum ax_op op) {
    char name[sizeof f->name];
    ax_op_family(op, name, sizeof name);
    return strcmp(name, f->name) == 0;
}

/* Adds an op's cases, but for those that are only for timing. */
static enum ax_status add(struct family *f, enum ax_op op, int room) {
    int n;
    const struct ax_shape *shapes = ax_op_shapes(op, &n);
    for (int i = 0; i < n; i++) {
        if (shapes[i].big)
            continue;
        AX_ASSERT(f->n < room);
        struct pair *p = &f->pairs[f->n++];
        AX_TRY(ax_case_create(&p->want, op, &shapes[i], f->s->dtype, 11));
        AX_TRY(ax_case_create(&p->got, op, &shapes[i], f->s->dtype, 11));
    }
    return AX_OK;
}

static enum ax_status create(struct family *f) {
    int room = 0, n;
    for (int op = 0; op < AX_OP_COUNT; op++)
        if (belongs(f, (enum ax_op)op) && ax_op_shapes((enum ax_op)op, &n))
            room += n;
    AX_TRY(ax_alloc(&f->pairs, (size_t)room, sizeof *f->pairs));
    for (int op = 0; op < AX_OP_COUNT; op++)
        if (belongs(f, (enum ax_op)op))
            AX_TRY(add(f, (enum ax_op)op, room));
    return AX_OK;
}

/* The backend gets the inputs that the reference completed. */
static enum ax_status run_reference(struct ax_runtime *rt, void *ctx) {
    struct family *f = ctx;
    for (struct pair *p = f->pairs; p < f->pairs + f->n; p++) {
        AX_TRY(ax_case_prepare(&p->want, rt->q));
        memcpy(p->got.memory, p->want.memory, p->want.bytes);
        AX_TRY(ax_case_run(&p->want, rt->q));
    }
    return AX_OK;
}

static bool is_there(const struct ax_queue *q, const struct ax_case *c) {
    return q->fallback || !q->model->supports || q->model->supports(q, c->op, c->args);
}

static enum ax_status run_backend(struct ax_runtime *rt, void *ctx) {
    struct family *f = ctx;
    f->absent = 0;
    for (struct pair *p = f->pairs; p < f->pairs + f->n; p++) {
        const size_t mark = ax_stack_mark(&rt->arena.scratch);
        p->absent = !is_there(rt->q, &p->got);
        f->absent += p->absent;
        if (p->absent)
            continue;
        AX_TRY(ax_case_send(&p->got, rt->q));
        AX_TRY(ax_case_run(&p->got, rt->q));
        AX_TRY(ax_queue_finish(rt->q));
        AX_TRY(ax_case_fetch(&p->got, rt->q));
        ax_stack_release(&rt->arena.scratch, mark);
    }
    return AX_OK;
}

static enum ax_status compare_family(struct family *f) {
    const struct ax_runtime_options ref = {.backend = "ref", .threads = 1};
    const struct ax_runtime_options ro = {.backend = f->s->backend, .threads = f->s->threads};
    AX_TRY(create(f));
    AX_TRY(ax_runtime_run(&ref, run_reference, f, NULL));
    AX_TRY(ax_runtime_run(&ro, run_backend, f, NULL));
    for (const struct pair *p = f->pairs; p < f->pairs + f->n; p++)
        if (!p->absent)
            ax_case_compare(&p->got, &p->want, &f->d);
    return AX_OK;
}

static void free_family(struct family *f) {
    for (int i = 0; i < f->n; i++) {
        ax_case_free(&f->pairs[i].got);
        ax_case_free(&f->pairs[i].want);
    }
    ax_free(f->pairs);
}

enum ax_status ax_self_ops(struct ax_self *s) {
    if (strcmp(s->backend, "ref") == 0) {
        s->skip(s, "kernels", "ref is the reference");
        return AX_OK;
    }
    char done[AX_OP_COUNT][32] = {{0}};
    for (int op = 0; op < AX_OP_COUNT; op++) {
        struct family f = {.s = s, .d.by_library = strcmp(s->backend, "cuda") == 0};
        char compared[80];
        bool before = false;
        ax_op_family((enum ax_op)op, f.name, sizeof f.name);
        for (int i = 0; i < op && !before; i++)
            before = strcmp(done[i], f.name) == 0;
        memcpy(done[op], f.name, sizeof f.name);
        if (before)
            continue;
        const enum ax_status st = compare_family(&f);
        snprintf(compared, sizeof compared, "%s: %d of %d cases and ref", f.name, f.n - f.absent,
                 f.n);
        if (st == AX_OK)
            s->note(s, "kernels", compared, f.d.worst, 1, f.d.where);
        free_family(&f);
        AX_TRY(st);
    }
    return AX_OK;
}

/* ---- meshes ---- */

static const struct {
    const char *name;
    struct ax_mesh_sizes sizes; /* pp, dp_replicate, dp_shard, cp, tp, ep */
} meshes[] = {{"dp_shard=2", {1, 1, 2, 1, 1, 1}}, {"tp=2", {1, 1, 1, 1, 2, 1}},
              {"pp=2", {2, 1, 1, 1, 1, 1}},       {"cp=2", {1, 1, 1, 2, 1, 1}},
              {"ep=2", {1, 1, 2, 1, 1, 2}},       {"dp_replicate=2", {1, 2, 1, 1, 1, 1}}};

/* The figure that is nearest to its tolerance, or farthest beyond it. */
static const struct ax_golden_group *worst(const struct ax_golden_report *r) {
    const struct ax_golden_group *g = &r->groups[0];
    for (int i = 1; i < r->n; i++)
        if (r->groups[i].worst * g->tolerance > g->worst * r->groups[i].tolerance)
            g = &r->groups[i];
    return g;
}

enum ax_status ax_self_meshes(struct ax_self *s) {
    if (!s->by_row) {
        s->skip(s, "mesh", "ranks of one process compute on the host: see --backend cpu");
        return AX_OK;
    }
    struct ax_golden_report *r;
    AX_TRY(ax_alloc(&r, 1, sizeof *r));
    enum ax_status st = AX_OK;
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes && st == AX_OK; i++) {
        struct ax_mesh_check c = {.arch = meshes[i].sizes.ep > 1 ? &s->experts : &s->dense,
                                  .sizes = meshes[i].sizes,
                                  .backend = s->backend,
                                  .step.n_microbatches = 3,
                                  .step.tokens = 64,
                                  .bf16 = s->dtype == AX_BF16,
                                  .step.model.tp_overlap = true,
                                  .step.model.expert_overlap = true};
        char compared[64], where[192];
        bool here;
        r->n = 0;
        st = ax_mesh_check_run(&c, r, &here);
        if (st != AX_OK)
            break;
        const struct ax_golden_group *g = worst(r);
        snprintf(compared, sizeof compared, "2 steps on %s and on one rank", meshes[i].name);
        snprintf(where, sizeof where, "%s, %s", g->name, g->where);
        s->note(s, "mesh", compared, g->worst, g->tolerance, where);
    }
    ax_free(r);
    return st;
}
