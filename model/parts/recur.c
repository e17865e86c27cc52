/* With cp, runs of the sequence are computed in their order: ranks hand on the state of the document that goes on
 * in the next run, and in backward its gradient. */
#include "model/parts/recur.h"

void ax_recur_declare(const struct ax_pass *p, struct ax_saved *s, int64_t state_elements) {
    if (p->batch->n_runs > 1)
        ax_saved_declare(s, "states of runs", AX_KEEP_COSTLY,
                         ax_tensor_2d(p->model->accum, NULL, 2, state_elements));
}

/* States of a run, [2][Hv·dk·dv]: that of the document that enters it, and that of the one that leaves; and the
 * one that ranks hand on, [1][Hv·dk·dv]. */
struct border {
    struct ax_runtime *rt;
    struct ax_tensor both, handed;
    int64_t heads, dk, dv;
};

static int64_t size_of(const struct border *b) {
    return b->heads * b->dk * b->dv;
}

static struct ax_tensor take(const struct border *b, enum ax_dtype dtype, int64_t rows) {
    return ax_stack_take(&b->rt->arena.scratch, "states of a run",
                         ax_tensor_2d(dtype, NULL, rows, size_of(b)));
}

static enum ax_status start_border(const struct ax_pass *p, const struct ax_delta_rule *a,
                                   struct border *b) {
    *b = (struct border){
        .rt = p->model->rt, .heads = a->v.shape[1], .dk = a->q.shape[2], .dv = a->v.shape[2]};
    b->both = take(b, p->model->accum, 2);
    b->handed = take(b, p->model->accum, 1);
    return ax_run_fill(b->rt->q, &(struct ax_fill){b->handed, 0});
}

static struct ax_tensor as_slots(const struct border *b, const struct ax_tensor *both) {
    return ax_tensor_nd(both->dtype, both->data, 4,
                        (const int64_t[]){both->shape[0], b->heads, b->dk, b->dv});
}

static int runs_of(const struct ax_runtime *rt) {
    return 2 * rt->mesh.size[AX_ROLE_CP];
}

/* Which of this rank's runs is run i of the sequence, or −1. */
static int own_run(const struct ax_runtime *rt, int i) {
    const int rank = rt->mesh.coord[AX_ROLE_CP];
    return i == rank ? 0 : i == runs_of(rt) - 1 - rank ? 1 : -1;
}

/* handed = slot `slot` of `both`, from the rank that has the run; all ranks call it. */
static enum ax_status hand_on(const struct border *b, int run, int64_t slot) {
    struct ax_queue *q = b->rt->q;
    AX_TRY(run < 0
               ? ax_run_fill(q, &(struct ax_fill){b->handed, 0})
               : ax_run_copy(q, &(struct ax_copy){b->handed, ax_tensor_rows(&b->both, slot, 1)}));
    return ax_cp_sum(b->rt, &b->handed);
}

/* Narrows tensors of a row for each token to those of a run. */
static void cut(const struct ax_pass *p, int run, struct ax_tensor *const *all, int count) {
    const int64_t n = p->batch->T / p->batch->n_runs;
    for (int i = 0; i < count; i++)
        if (all[i]->ndim > 0)
            *all[i] = ax_tensor_rows(all[i], run * n, n);
}

static struct ax_delta_rule rule_of_run(const struct ax_pass *p, const struct border *b,
                                        const struct ax_delta_rule *all, int run,
                                        const struct ax_tensor *states) {
    struct ax_delta_rule a = *all;
    cut(p, run, (struct ax_tensor *const[]){&a.q, &a.k, &a.v, &a.g, &a.beta, &a.out}, 6);
    a.cu = p->batch->runs[run].cu_q;
    a.enters = p->batch->runs[run].enters;
    a.leaves = p->batch->runs[run].leaves;
    a.states = as_slots(b, states);
    return a;
}

static enum ax_status forward_of_runs(const struct ax_pass *p, const struct ax_delta_rule *all,
                                      const struct ax_saved *entered) {
    struct ax_runtime *rt = p->model->rt;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    struct border b;
    AX_TRY(start_border(p, all, &b));
    for (int i = 0; i < runs_of(rt); i++) {
        const int run = own_run(rt, i);
        if (run >= 0) {
            const struct ax_delta_forward f = {.a = rule_of_run(p, &b, all, run, &b.both)};
            const struct ax_tensor first = ax_tensor_rows(&entered->t, run, 1);
            AX_TRY(ax_run_copy(rt->q, &(struct ax_copy){first, b.handed}));
            AX_TRY(ax_run_copy(rt->q, &(struct ax_copy){ax_tensor_rows(&b.both, 0, 1), b.handed}));
            AX_TRY(ax_run_fill(rt->q, &(struct ax_fill){ax_tensor_rows(&b.both, 1, 1), 0}));
            AX_TRY(ax_run_delta_forward(rt->q, &f));
        }
        AX_TRY(hand_on(&b, run, 1));
    }
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

enum ax_status ax_recur_forward(const struct ax_pass *p, const struct ax_layer *l,
                                const struct ax_delta_rule *a, const struct ax_saved *entered) {
    if (p->batch->n_runs > 1)
        return forward_of_runs(p, a, entered);
    struct ax_delta_forward f = {.a = *a};
    f.a.cu = p->batch->runs[0].cu_q;
    if (p->cache)
        ax_states_describe(&p->cache->states, l->nth_state, &f);
    return ax_run_delta_forward(p->model->rt->q, &f);
}

static enum ax_status backward_of_runs(const struct ax_pass *p, const struct ax_delta_backward *all,
                                       const struct ax_saved *entered) {
    struct ax_runtime *rt = p->model->rt;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    struct border b;
    AX_TRY(start_border(p, &all->a, &b));
    const struct ax_tensor states = take(&b, b.both.dtype, 2);
    AX_TRY(ax_run_fill(rt->q, &(struct ax_fill){states, 0}));
    for (int i = runs_of(rt) - 1; i >= 0; i--) {
        const int run = own_run(rt, i);
        if (run >= 0) {
            struct ax_delta_backward back = *all;
            back.a = rule_of_run(p, &b, &all->a, run, &states);
            back.dstates = as_slots(&b, &b.both);
            cut(p, run,
                (struct ax_tensor *const[]){&back.dout, &back.dq, &back.dk, &back.dv, &back.dg,
                                            &back.dbeta, &back.dskip},
                7);
            AX_TRY(ax_run_copy(rt->q, &(struct ax_copy){ax_tensor_rows(&states, 0, 1),
                                                        ax_tensor_rows(&entered->t, run, 1)}));
            AX_TRY(ax_run_copy(rt->q, &(struct ax_copy){ax_tensor_rows(&b.both, 1, 1), b.handed}));
            AX_TRY(ax_run_fill(rt->q, &(struct ax_fill){ax_tensor_rows(&b.both, 0, 1), 0}));
            AX_TRY(ax_run_delta_backward(rt->q, &back));
        }
        AX_TRY(hand_on(&b, run, 0));
    }
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

enum ax_status ax_recur_backward(const struct ax_pass *p, const struct ax_delta_backward *b,
                                 const struct ax_saved *entered) {
    if (p->batch->n_runs > 1)
        return backward_of_runs(p, b, entered);
    struct ax_delta_backward back = *b;
    back.a.cu = p->batch->runs[0].cu_q;
    return ax_run_delta_backward(p->model->rt->q, &back);
}
