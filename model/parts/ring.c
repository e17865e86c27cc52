#include "model/parts/ring.h"

#include "model/core/pass.h"

/* ---- pieces ---- */

/* Keys and values of a run, [length][Hk][…] each, or their gradients: contiguous, one message. */
struct ring_piece {
    struct ax_tensor k, v;
};
/* The pieces of a rank's two runs. */
struct ring_pieces {
    struct ring_piece run[2];
};

struct ring {
    struct ax_pass *p;
    struct ax_runtime *rt;
    const struct ax_attention *a; /* attention of all of this rank's rows */
    int cp, rank;
    int64_t length; /* tokens of a run */
};

/* Messages of a hop, one per run; 0: none. */
struct ring_tickets {
    struct ax_ticket sent[2], received[2];
};

static struct ring ring_of(struct ax_pass *p, const struct ax_attention *a) {
    const struct ax_mesh *mesh = &p->model->rt->mesh;
    AX_ASSERT(!p->cache && p->batch->n_runs == 2 && p->batch->reach.runs > 0);
    return (struct ring){.p = p,
                         .rt = p->model->rt,
                         .a = a,
                         .cp = mesh->size[AX_ROLE_CP],
                         .rank = mesh->coord[AX_ROLE_CP],
                         .length = p->batch->T / 2};
}

/* The rank to which this one sends keys in a hop; and the one from which it receives keys. */
static int ring_to(const struct ring *r, int hop) {
    return (r->rank + hop) % r->cp;
}

static int ring_from(const struct ring *r, int hop) {
    return (r->rank + r->cp - hop) % r->cp;
}

/* Run i of a rank, as a run of the sequence. */
static int ring_run(const struct ring *r, int rank, int i) {
    return i == 0 ? rank : 2 * r->cp - 1 - rank;
}

/* Rows of run i. */
static struct ax_tensor ring_rows(const struct ring *r, const struct ax_tensor *t, int i) {
    return ax_tensor_rows(t, i * r->length, r->length);
}

/* True if a rank's queries attend to keys of a run. */
static bool ring_reads(const struct ring *r, int rank, int run) {
    const struct ax_reach *reach = &r->p->batch->reach;
    return ax_reach_sees(reach, ring_run(r, rank, 0), run, r->a->window) ||
           ax_reach_sees(reach, ring_run(r, rank, 1), run, r->a->window);
}

/* Allocate one piece, or those of two runs, in scratch. */
static struct ring_piece ring_take(const struct ring *r, const char *name, enum ax_dtype dtype) {
    const struct ax_tensor *k = &r->a->k, *v = &r->a->v;
    struct ring_piece piece = {ax_tensor_3d(dtype, NULL, r->length, k->shape[1], k->shape[2]),
                               ax_tensor_3d(dtype, NULL, r->length, v->shape[1], v->shape[2])};
    const size_t keys = ax_tensor_bytes(&piece.k);
    char AX_DEVICE *data =
        ax_stack_push(&r->rt->arena.scratch, name, keys + ax_tensor_bytes(&piece.v));
    piece.k.data = data;
    piece.v.data = data + keys;
    return piece;
}

static struct ring_pieces ring_take_both(const struct ring *r, const char *name) {
    struct ring_pieces both;
    for (int i = 0; i < 2; i++)
        both.run[i] = ring_take(r, name, r->a->k.dtype);
    return both;
}

/* This rank's keys and values. */
static enum ax_status ring_pack(const struct ring *r, struct ring_pieces *mine) {
    *mine = ring_take_both(r, "keys and values to send");
    for (int i = 0; i < 2; i++) {
        const struct ring_piece *to = &mine->run[i];
        AX_TRY(ax_run_copy(r->rt->q, &(struct ax_copy){to->k, ring_rows(r, &r->a->k, i)}));
        AX_TRY(ax_run_copy(r->rt->q, &(struct ax_copy){to->v, ring_rows(r, &r->a->v, i)}));
    }
    return AX_OK;
}

/* ---- messages ---- */

/* Pieces of the owner's runs that the reader's queries may see. `to` or `from`: the other rank. */
static enum ax_status post(const struct ring *r, int reader, int owner, int to, int from,
                           const struct ring_pieces *pieces, struct ax_ticket t[2]) {
    struct ax_comm *c = &r->rt->comms[AX_ROLE_CP];
    for (int i = 0; i < 2; i++) {
        const struct ring_piece *piece = &pieces->run[i];
        const int run = ring_run(r, owner, i);
        const struct ax_collective what = {.kind = AX_SEND_RECV,
                                           .dtype = piece->k.dtype,
                                           .send = to < 0 ? NULL : piece->k.data,
                                           .recv = from < 0 ? NULL : piece->k.data,
                                           .count = ax_tensor_numel(&piece->k) +
                                                    ax_tensor_numel(&piece->v),
                                           .send_peer = to,
                                           .recv_peer = from};
        if (run >= ring_run(r, reader, 1)) /* later than all its queries */
            continue;
        if (ring_reads(r, reader, run))
            AX_TRY(ax_comm_start(c, r->rt->q, &what, &t[i]));
        else
            AX_TRY(ax_comm_skip(c, &what));
    }
    return AX_OK;
}

/* Starts the hop's messages of keys: `mine` to those who read them, theirs into `in`. */
static enum ax_status ring_post_keys(const struct ring *r, int hop, const struct ring_pieces *mine,
                                     const struct ring_pieces *in, struct ring_tickets *t) {
    const int to = ring_to(r, hop), from = ring_from(r, hop);
    AX_TRY(post(r, to, r->rank, to, -1, mine, t->sent));
    return post(r, r->rank, from, -1, from, in, t->received);
}

/* Starts the hop's messages of gradients, which go the other way: `back` to the ranks that own the
 * keys, those of this rank's keys into `got`. */
static enum ax_status ring_post_gradients(const struct ring *r, int hop,
                                          const struct ring_pieces *back,
                                          const struct ring_pieces *got, struct ring_tickets *t) {
    const int to = ring_to(r, hop), from = ring_from(r, hop);
    AX_TRY(post(r, r->rank, from, from, -1, back, t->sent));
    return post(r, to, r->rank, -1, to, got, t->received);
}

/* Waits for the messages in flight. */
static enum ax_status ring_wait(const struct ring *r, struct ax_ticket t[2]) {
    for (int i = 0; i < 2; i++) {
        if (t[i].id > 0)
            AX_TRY(ax_comm_wait(&r->rt->comms[AX_ROLE_CP], r->rt->q, t[i]));
        t[i].id = 0;
    }
    return AX_OK;
}

/* ---- attention of a run to the keys of one ---- */

static struct ax_attention ring_own(const struct ring *r, int i) {
    const struct ax_batch *b = r->p->batch;
    struct ax_attention one = *r->a;
    one.q = ring_rows(r, &r->a->q, i);
    one.k = ring_rows(r, &r->a->k, i);
    one.v = ring_rows(r, &r->a->v, i);
    one.out = ring_rows(r, &r->a->out, i);
    one.lse = ring_rows(r, &r->a->lse, i);
    one.cu_q = one.cu_k = b->runs[i].cu_q;
    one.max_q = one.max_k = b->max_queries;
    one.causal = true;
    return one;
}

static struct ax_attention ring_earlier(const struct ring *r, int i, int run,
                                        const struct ring_piece *keys) {
    const struct ax_reach *reach = &r->p->batch->reach;
    struct ax_attention one = ring_own(r, i);
    one.k = keys->k;
    one.v = keys->v;
    one.sink = (struct ax_tensor){0}; /* once, with the run's own keys */
    one.cu_q = ax_reach_queries(reach, i);
    one.cu_k = ax_reach_keys(reach, i, run);
    one.max_q = one.max_k = r->length;
    one.ahead = ax_reach_ahead(reach, ring_run(r, r->rank, i), run);
    return one;
}

/* ---- sums ---- */

/* _sum: a tensor to accumulate t in: t itself if its dtype allows, else scratch in accumulation
 * dtype. _put: t = the sum. */
static struct ax_tensor ring_sum(const struct ring *r, const struct ax_tensor *t) {
    const enum ax_dtype accum = ax_dtype_accum(t->dtype);
    if (t->dtype == accum)
        return *t;
    struct ax_tensor sum = ax_tensor_3d(accum, NULL, t->shape[0], t->shape[1], t->shape[2]);
    sum.data = ax_stack_push(&r->rt->arena.scratch, "sums of hops", ax_tensor_bytes(&sum));
    return sum;
}

static enum ax_status ring_put(const struct ring *r, const struct ax_tensor *t,
                               const struct ax_tensor *sum) {
    return t->data == sum->data ? AX_OK : ax_run_copy(r->rt->q, &(struct ax_copy){*t, *sum});
}

/* ---- forward ---- */

struct forward {
    struct ring r;
    struct ax_tensor out;            /* of all rows, in accumulation dtype */
    struct ax_tensor part, part_lse; /* of a run */
};

static enum ax_status attend_earlier(const struct forward *f, int i, int run,
                                     const struct ring_piece *keys) {
    const struct ring *r = &f->r;
    struct ax_attention_forward one = {ring_earlier(r, i, run, keys)};
    const struct ax_attention_merge merge = {.out = ring_rows(r, &f->out, i),
                                             .lse = one.a.lse,
                                             .part = f->part,
                                             .part_lse = f->part_lse};
    one.a.out = f->part;
    one.a.lse = f->part_lse;
    AX_TRY(ax_run_attention_forward(r->rt->q, &one));
    return ax_run_attention_merge(r->rt->q, &merge);
}

/* Hop 0: each run to its own keys, then the tail to the head's. */
static enum ax_status attend_own(const struct forward *f, const struct ring_pieces *mine) {
    const struct ring *r = &f->r;
    for (int i = 0; i < 2; i++)
        AX_TRY(ax_run_attention_forward(r->rt->q, &(struct ax_attention_forward){ring_own(r, i)}));
    if (f->out.data != r->a->out.data)
        AX_TRY(ax_run_copy(r->rt->q, &(struct ax_copy){f->out, r->a->out}));
    const int head = ring_run(r, r->rank, 0), tail = ring_run(r, r->rank, 1);
    return ax_reach_sees(&r->p->batch->reach, tail, head, r->a->window)
               ? attend_earlier(f, 1, head, &mine->run[0])
               : AX_OK;
}

static enum ax_status attend_hop(const struct forward *f, int hop, const struct ring_pieces *in) {
    const struct ring *r = &f->r;
    for (int k = 0; k < 2; k++) {
        const int run = ring_run(r, ring_from(r, hop), k);
        for (int i = 0; i < 2; i++)
            if (ax_reach_sees(&r->p->batch->reach, ring_run(r, r->rank, i), run, r->a->window))
                AX_TRY(attend_earlier(f, i, run, &in->run[k]));
    }
    return AX_OK;
}

enum ax_status ax_ring_forward(struct ax_pass *p, const struct ax_attention *a) {
    struct forward f = {.r = ring_of(p, a)};
    const struct ring *r = &f.r;
    struct ax_stack *scratch = &r->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    struct ring_pieces mine, in[2];
    struct ring_tickets t[2] = {0};
    AX_TRY(ring_pack(r, &mine));
    for (int k = 0; k < 2; k++)
        in[k] = ring_take_both(r, "keys and values of a hop");
    f.out = ring_sum(r, &a->out);
    f.part = ax_tensor_3d(a->out.dtype, NULL, r->length, a->out.shape[1], a->out.shape[2]);
    f.part.data = ax_stack_push(scratch, "attention of a hop", ax_tensor_bytes(&f.part));
    f.part_lse = ax_tensor_2d(a->lse.dtype, NULL, r->length, a->lse.shape[1]);
    f.part_lse.data = ax_stack_push(scratch, "attention of a hop", ax_tensor_bytes(&f.part_lse));

    AX_TRY(ring_post_keys(r, 1, &mine, &in[1], &t[1]));
    AX_TRY(attend_own(&f, &mine));
    for (int hop = 1; hop < r->cp; hop++) {
        const int now = hop % 2, next = 1 - now;
        AX_TRY(ring_wait(r, t[now].received));
        AX_TRY(ring_wait(r, t[next].sent));
        if (hop + 1 < r->cp)
            AX_TRY(ring_post_keys(r, hop + 1, &mine, &in[next], &t[next]));
        AX_TRY(attend_hop(&f, hop, &in[now]));
    }
    for (int k = 0; k < 2; k++)
        AX_TRY(ring_wait(r, t[k].sent));
    AX_TRY(ring_put(r, &a->out, &f.out));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

/* ---- backward ---- */

struct backward {
    struct ring r;
    const struct ax_attention_backward *b;
    struct ax_tensor dq, dk, dv; /* of this rank's rows, in accumulation dtype */
    struct ax_tensor dq_part;    /* of a run */
    struct ring_piece part;      /* gradients of a run's keys */
    struct ring_piece sum;       /* their sum over this rank's runs, in accumulation dtype */
};

static enum ax_status add(const struct ring *r, const struct ax_tensor *to,
                          const struct ax_tensor *from, bool first) {
    return first ? ax_run_copy(r->rt->q, &(struct ax_copy){*to, *from})
                 : ax_run_add(r->rt->q, &(struct ax_add){*to, *from, 1});
}

static struct ring_piece own_sum(const struct backward *g, int i) {
    return (struct ring_piece){ring_rows(&g->r, &g->dk, i), ring_rows(&g->r, &g->dv, i)};
}

/* Adds run i's part of dq, and that of `keys` (first: it is the first). */
static enum ax_status differentiate(const struct backward *g, int i, const struct ax_attention *one,
                                    bool first_query, const struct ring_piece *keys,
                                    bool first_key) {
    const struct ring *r = &g->r;
    const struct ax_tensor dq = ring_rows(r, &g->dq, i);
    struct ax_attention_backward back = {.a = *one,
                                         .dout = ring_rows(r, &g->b->dout, i),
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

static enum ax_status differentiate_own(const struct backward *g, const struct ring_pieces *mine) {
    const struct ring *r = &g->r;
    for (int i = 0; i < 2; i++) {
        const struct ax_attention one = ring_own(r, i);
        const struct ring_piece sum = own_sum(g, i);
        AX_TRY(differentiate(g, i, &one, true, &sum, true));
    }
    const int head = ring_run(r, r->rank, 0), tail = ring_run(r, r->rank, 1);
    if (!ax_reach_sees(&r->p->batch->reach, tail, head, r->a->window))
        return AX_OK;
    const struct ax_attention one = ring_earlier(r, 1, head, &mine->run[0]);
    const struct ring_piece sum = own_sum(g, 0);
    return differentiate(g, 1, &one, false, &sum, false);
}

/* Of the keys in `in`, into `back`. */
static enum ax_status differentiate_hop(const struct backward *g, int hop,
                                        const struct ring_pieces *in,
                                        const struct ring_pieces *back) {
    const struct ring *r = &g->r;
    for (int k = 0; k < 2; k++) {
        const int run = ring_run(r, ring_from(r, hop), k);
        bool first = true;
        for (int i = 0; i < 2; i++) {
            if (!ax_reach_sees(&r->p->batch->reach, ring_run(r, r->rank, i), run, r->a->window))
                continue;
            const struct ax_attention one = ring_earlier(r, i, run, &in->run[k]);
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
static enum ax_status receive(const struct backward *g, int hop, const struct ring_pieces *got,
                              struct ring_tickets *t) {
    const struct ring *r = &g->r;
    AX_TRY(ring_wait(r, t->received));
    for (int i = 0; hop > 0 && i < 2; i++) {
        if (!ring_reads(r, ring_to(r, hop), ring_run(r, r->rank, i)))
            continue;
        const struct ring_piece sum = own_sum(g, i);
        AX_TRY(add(r, &sum.k, &got->run[i].k, false));
        AX_TRY(add(r, &sum.v, &got->run[i].v, false));
    }
    return AX_OK;
}

static struct backward start_backward(struct ax_pass *p, const struct ax_attention_backward *b) {
    struct backward g = {.r = ring_of(p, &b->a), .b = b};
    const struct ax_tensor *q = &b->a.q;
    g.dq = ring_sum(&g.r, &b->dq);
    g.dk = ring_sum(&g.r, &b->dk);
    g.dv = ring_sum(&g.r, &b->dv);
    g.dq_part = ax_tensor_3d(q->dtype, NULL, g.r.length, q->shape[1], q->shape[2]);
    g.dq_part.data =
        ax_stack_push(&g.r.rt->arena.scratch, "gradients of a hop", ax_tensor_bytes(&g.dq_part));
    g.part = ring_take(&g.r, "gradients of a hop", q->dtype);
    g.sum = ring_take(&g.r, "gradients of a hop", ax_dtype_accum(q->dtype));
    return g;
}

enum ax_status ax_ring_backward(struct ax_pass *p, const struct ax_attention_backward *b) {
    struct ax_stack *scratch = &p->model->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    const struct backward g = start_backward(p, b);
    const struct ring *r = &g.r;
    struct ring_pieces mine, in[2], back[2], got[2];
    struct ring_tickets t[2] = {0}, home[2] = {0}; /* of keys, of gradients */
    AX_TRY(ring_pack(r, &mine));
    for (int k = 0; k < 2; k++) {
        in[k] = ring_take_both(r, "keys and values of a hop");
        back[k] = ring_take_both(r, "gradients to send");
        got[k] = ring_take_both(r, "gradients from readers");
    }
    AX_TRY(ring_post_keys(r, 1, &mine, &in[1], &t[1]));
    AX_TRY(differentiate_own(&g, &mine));
    for (int hop = 1; hop < r->cp; hop++) {
        const int now = hop % 2, next = 1 - now;
        AX_TRY(ring_wait(r, t[now].received));
        AX_TRY(ring_wait(r, t[next].sent));
        if (hop + 1 < r->cp)
            AX_TRY(ring_post_keys(r, hop + 1, &mine, &in[next], &t[next]));
        AX_TRY(ring_wait(r, home[now].sent));
        AX_TRY(differentiate_hop(&g, hop, &in[now], &back[now]));
        AX_TRY(ring_post_gradients(r, hop, &back[now], &got[now], &home[now]));
        AX_TRY(receive(&g, hop - 1, &got[next], &home[next]));
    }
    AX_TRY(receive(&g, r->cp - 1, &got[(r->cp - 1) % 2], &home[(r->cp - 1) % 2]));
    for (int k = 0; k < 2; k++) {
        AX_TRY(ring_wait(r, t[k].sent));
        AX_TRY(ring_wait(r, home[k].sent));
    }
    AX_TRY(ring_put(r, &b->dq, &g.dq));
    AX_TRY(ring_put(r, &b->dk, &g.dk));
    AX_TRY(ring_put(r, &b->dv, &g.dv));
    ax_stack_release(scratch, mark);
    return AX_OK;
}
