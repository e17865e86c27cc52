#include "model/parts/ring.h"

#include "model/parts/ring_hop.h"

/* ---- forward ---- */

struct forward {
    struct ax_ring r;
    struct ax_tensor out;            /* of all rows, in accumulation dtype */
    struct ax_tensor part, part_lse; /* of a run */
};

static enum ax_status attend_earlier(const struct forward *f, int i, int run,
                                     const struct ax_ring_piece *keys) {
    const struct ax_ring *r = &f->r;
    struct ax_attention_forward one = {ax_ring_earlier(r, i, run, keys)};
    const struct ax_attention_merge merge = {.out = ax_ring_rows(r, &f->out, i),
                                             .lse = one.a.lse,
                                             .part = f->part,
                                             .part_lse = f->part_lse};
    one.a.out = f->part;
    one.a.lse = f->part_lse;
    AX_TRY(ax_run_attention_forward(r->rt->q, &one));
    return ax_run_attention_merge(r->rt->q, &merge);
}

/* Hop 0: each run to its own keys, then the tail to the head's. */
static enum ax_status attend_own(const struct forward *f, const struct ax_ring_pieces *mine) {
    const struct ax_ring *r = &f->r;
    for (int i = 0; i < 2; i++)
        AX_TRY(
            ax_run_attention_forward(r->rt->q, &(struct ax_attention_forward){ax_ring_own(r, i)}));
    if (f->out.data != r->a->out.data)
        AX_TRY(ax_run_copy(r->rt->q, &(struct ax_copy){f->out, r->a->out}));
    const int head = ax_ring_run(r, r->rank, 0), tail = ax_ring_run(r, r->rank, 1);
    return ax_reach_sees(&r->p->batch->reach, tail, head, r->a->window)
               ? attend_earlier(f, 1, head, &mine->run[0])
               : AX_OK;
}

static enum ax_status attend_hop(const struct forward *f, int hop,
                                 const struct ax_ring_pieces *in) {
    const struct ax_ring *r = &f->r;
    for (int k = 0; k < 2; k++) {
        const int run = ax_ring_run(r, ax_ring_from(r, hop), k);
        for (int i = 0; i < 2; i++)
            if (ax_reach_sees(&r->p->batch->reach, ax_ring_run(r, r->rank, i), run, r->a->window))
                AX_TRY(attend_earlier(f, i, run, &in->run[k]));
    }
    return AX_OK;
}

enum ax_status ax_ring_forward(struct ax_pass *p, const struct ax_attention *a) {
    struct forward f = {.r = ax_ring_of(p, a)};
    const struct ax_ring *r = &f.r;
    struct ax_stack *scratch = &r->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    struct ax_ring_pieces mine, in[2];
    struct ax_ring_tickets t[2] = {0};
    AX_TRY(ax_ring_pack(r, &mine));
    for (int k = 0; k < 2; k++)
        in[k] = ax_ring_take_both(r, "keys and values of a hop");
    f.out = ax_ring_sum(r, &a->out);
    f.part = ax_tensor_3d(a->out.dtype, NULL, r->length, a->out.shape[1], a->out.shape[2]);
    f.part.data = ax_stack_push(scratch, "attention of a hop", ax_tensor_bytes(&f.part));
    f.part_lse = ax_tensor_2d(a->lse.dtype, NULL, r->length, a->lse.shape[1]);
    f.part_lse.data = ax_stack_push(scratch, "attention of a hop", ax_tensor_bytes(&f.part_lse));

    AX_TRY(ax_ring_post_keys(r, 1, &mine, &in[1], &t[1]));
    AX_TRY(attend_own(&f, &mine));
    for (int hop = 1; hop < r->cp; hop++) {
        const int now = hop % 2, next = 1 - now;
        AX_TRY(ax_ring_wait(r, t[now].received));
        AX_TRY(ax_ring_wait(r, t[next].sent));
        if (hop + 1 < r->cp)
            AX_TRY(ax_ring_post_keys(r, hop + 1, &mine, &in[next], &t[next]));
        AX_TRY(attend_hop(&f, hop, &in[now]));
    }
    for (int k = 0; k < 2; k++)
        AX_TRY(ax_ring_wait(r, t[k].sent));
    AX_TRY(ax_ring_put(r, &a->out, &f.out));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

/* ---- backward ---- */

struct backward {
    struct ax_ring r;
    const struct ax_attention_backward *b;
    struct ax_tensor dq, dk, dv; /* of this rank's rows, in accumulation dtype */
    struct ax_tensor dq_part;    /* of a run */
    struct ax_ring_piece part;   /* gradients of a run's keys */
    struct ax_ring_piece sum;    /* their sum over this rank's runs, in accumulation dtype */
};

static enum ax_status add(const struct ax_ring *r, const struct ax_tensor *to,
                          const struct ax_tensor *from, bool first) {
    return first ? ax_run_copy(r->rt->q, &(struct ax_copy){*to, *from})
                 : ax_run_add(r->rt->q, &(struct ax_add){*to, *from, 1});
}

static struct ax_ring_piece own_sum(const struct backward *g, int i) {
    return (struct ax_ring_piece){ax_ring_rows(&g->r, &g->dk, i), ax_ring_rows(&g->r, &g->dv, i)};
}

/* Adds run i's part of dq, and that of `keys` (first: it is the first). */
static enum ax_status differentiate(const struct backward *g, int i, const struct ax_attention *one,
                                    bool first_query, const struct ax_ring_piece *keys,
                                    bool first_key) {
    const struct ax_ring *r = &g->r;
    const struct ax_tensor dq = ax_ring_rows(r, &g->dq, i);
    struct ax_attention_backward back = {.a = *one,
                                         .dout = ax_ring_rows(r, &g->b->dout, i),
                                         .dq = g->dq_part,
                                         .dk = g->part.k,
                                         .dv = g->part.v};
    if (one->sink.data)
        back.dsink = g->b->dsink;
    AX_TRY(ax_run_attention_backward(r->rt->q, &back));
    AX_TRY(add(r, &dq, &g->dq_part, first_query));
    AX_TRY(add(r, &keys->k, &g->part.k, first_key));
    return add(r, &keys->v, &g->part.v, first_key);
}

static enum ax_status differentiate_own(const struct backward *g,
                                        const struct ax_ring_pieces *mine) {
    const struct ax_ring *r = &g->r;
    for (int i = 0; i < 2; i++) {
        const struct ax_attention one = ax_ring_own(r, i);
        const struct ax_ring_piece sum = own_sum(g, i);
        AX_TRY(differentiate(g, i, &one, true, &sum, true));
    }
    const int head = ax_ring_run(r, r->rank, 0), tail = ax_ring_run(r, r->rank, 1);
    if (!ax_reach_sees(&r->p->batch->reach, tail, head, r->a->window))
        return AX_OK;
    const struct ax_attention one = ax_ring_earlier(r, 1, head, &mine->run[0]);
    const struct ax_ring_piece sum = own_sum(g, 0);
    return differentiate(g, 1, &one, false, &sum, false);
}

/* Of the keys in `in`, into `back`. */
static enum ax_status differentiate_hop(const struct backward *g, int hop,
                                        const struct ax_ring_pieces *in,
                                        const struct ax_ring_pieces *back) {
    const struct ax_ring *r = &g->r;
    for (int k = 0; k < 2; k++) {
        const int run = ax_ring_run(r, ax_ring_from(r, hop), k);
        bool first = true;
        for (int i = 0; i < 2; i++) {
            if (!ax_reach_sees(&r->p->batch->reach, ax_ring_run(r, r->rank, i), run, r->a->window))
                continue;
            const struct ax_attention one = ax_ring_earlier(r, i, run, &in->run[k]);
            AX_TRY(differentiate(g, i, &one, false, &g->sum, first));
            first = false;
        }
        if (first)
            continue;
        AX_TRY(ax_run_copy(r->rt->q, &(struct ax_copy){back->run[k].k, g->sum.k}));
        AX_TRY(ax_run_copy(r->rt->q, &(struct ax_copy){back->run[k].v, g->sum.v}));
    }
    return AX_OK;
}

/* What the readers of a hop have sent of this rank's keys. */
static enum ax_status receive(const struct backward *g, int hop, const struct ax_ring_pieces *got,
                              struct ax_ring_tickets *t) {
    const struct ax_ring *r = &g->r;
    AX_TRY(ax_ring_wait(r, t->received));
    for (int i = 0; hop > 0 && i < 2; i++) {
        if (!ax_ring_reads(r, ax_ring_to(r, hop), ax_ring_run(r, r->rank, i)))
            continue;
        const struct ax_ring_piece sum = own_sum(g, i);
        AX_TRY(add(r, &sum.k, &got->run[i].k, false));
        AX_TRY(add(r, &sum.v, &got->run[i].v, false));
    }
    return AX_OK;
}

static struct backward start_backward(struct ax_pass *p, const struct ax_attention_backward *b) {
    struct backward g = {.r = ax_ring_of(p, &b->a), .b = b};
    const struct ax_tensor *q = &b->a.q;
    g.dq = ax_ring_sum(&g.r, &b->dq);
    g.dk = ax_ring_sum(&g.r, &b->dk);
    g.dv = ax_ring_sum(&g.r, &b->dv);
    g.dq_part = ax_tensor_3d(q->dtype, NULL, g.r.length, q->shape[1], q->shape[2]);
    g.dq_part.data =
        ax_stack_push(&g.r.rt->arena.scratch, "gradients of a hop", ax_tensor_bytes(&g.dq_part));
    g.part = ax_ring_take(&g.r, "gradients of a hop", q->dtype);
    g.sum = ax_ring_take(&g.r, "gradients of a hop", ax_dtype_accum(q->dtype));
    return g;
}

enum ax_status ax_ring_backward(struct ax_pass *p, const struct ax_attention_backward *b) {
    struct ax_stack *scratch = &p->model->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    const struct backward g = start_backward(p, b);
    const struct ax_ring *r = &g.r;
    struct ax_ring_pieces mine, in[2], back[2], got[2];
    struct ax_ring_tickets t[2] = {0}, home[2] = {0}; /* of keys, of gradients */
    AX_TRY(ax_ring_pack(r, &mine));
    for (int k = 0; k < 2; k++) {
        in[k] = ax_ring_take_both(r, "keys and values of a hop");
        back[k] = ax_ring_take_both(r, "gradients to send");
        got[k] = ax_ring_take_both(r, "gradients from readers");
    }
    AX_TRY(ax_ring_post_keys(r, 1, &mine, &in[1], &t[1]));
    AX_TRY(differentiate_own(&g, &mine));
    for (int hop = 1; hop < r->cp; hop++) {
        const int now = hop % 2, next = 1 - now;
        AX_TRY(ax_ring_wait(r, t[now].received));
        AX_TRY(ax_ring_wait(r, t[next].sent));
        if (hop + 1 < r->cp)
            AX_TRY(ax_ring_post_keys(r, hop + 1, &mine, &in[next], &t[next]));
        AX_TRY(ax_ring_wait(r, home[now].sent));
        AX_TRY(differentiate_hop(&g, hop, &in[now], &back[now]));
        AX_TRY(ax_ring_post_gradients(r, hop, &back[now], &got[now], &home[now]));
        AX_TRY(receive(&g, hop - 1, &got[next], &home[next]));
    }
    AX_TRY(receive(&g, r->cp - 1, &got[(r->cp - 1) % 2], &home[(r->cp - 1) % 2]));
    for (int k = 0; k < 2; k++) {
        AX_TRY(ax_ring_wait(r, t[k].sent));
        AX_TRY(ax_ring_wait(r, home[k].sent));
    }
    AX_TRY(ax_ring_put(r, &b->dq, &g.dq));
    AX_TRY(ax_ring_put(r, &b->dk, &g.dk));
    AX_TRY(ax_ring_put(r, &b->dv, &g.dv));
    ax_stack_release(scratch, mark);
    return AX_OK;
}
