#include "model/parts/attend.h"

#include "model/parallel/context_parallel.h"

double ax_attention_flops(const struct ax_arch *a, const struct ax_layer_spec *spec, int64_t seq) {
    const int64_t both = spec->head_dim > 0 ? 2 * spec->head_dim : a->head_dim + a->v_head_dim;
    return (double)(a->n_heads * both * seq);
}

struct ax_tensor ax_own_kv_heads(const struct ax_pass *p, const struct ax_layer *l,
                                 const struct ax_tensor *t) {
    const struct ax_mesh *mesh = &p->model->rt->mesh;
    const int64_t heads = ax_layer_kv_heads(&p->model->arch, &l->spec), hd = t->shape[2];
    if (!ax_tp_kv_replicated(mesh, heads))
        return *t;
    struct ax_tensor own = *t;
    own.data = (char AX_DEVICE *)t->data +
               (size_t)(ax_tp_first_kv_head(mesh, heads) * hd) * ax_dtype_size(t->dtype);
    own.shape[1] = 1;
    return own;
}

/* Which of this rank's queries, and which keys, belong together: those of a document, or of a chunk of one. */
struct spans {
    struct ax_tensor cu_q[2], cu_k[2]; /* of each run */
    const struct ax_reach *reach;
    int64_t max_q, max_k;
};

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static struct spans spans_of(const struct ax_pass *p, const struct ax_layer *l) {
    const struct ax_batch *b = p->batch;
    const struct ax_batch_chunks *c = &b->chunks;
    struct spans s = {.reach = &b->reach, .max_q = b->max_queries, .max_k = b->max_len};
    for (int r = 0; r < b->n_runs; r++) {
        s.cu_q[r] = l->spec.chunked ? c->cu_q[r] : b->runs[r].cu_q;
        s.cu_k[r] = l->spec.chunked ? c->cu_k[r] : b->runs[r].cu_k;
    }
    if (!l->spec.chunked || p->cache)
        return s;
    AX_ASSERT(c->size == p->model->arch.chunk);
    s.reach = &c->reach;
    s.max_q = least(s.max_q, c->size);
    s.max_k = least(s.max_k, c->size);
    return s;
}

/* Ring attention (Liu et al. 2023): the other way to attend on ranks of cp, with the same split of the
 * sequence (model/core/batch.h) as context_parallel.h's gather.
 *
 * In hop h of cp − 1, each rank sends the keys and values of its runs to the rank h further on, while it
 * attends to those that it got in the hop before; hop 0 is its own. What the hops give is merged in
 * accumulation dtype (op attention_merge). In backward keys and values travel again, and their
 * gradients back to whose they are, behind the next hop's work. Every message is one run, straight
 * from its owner, so those that no query sees are not sent: half of the tail ones under a causal mask,
 * and whatever documents and windows leave out.
 *
 * Per rank there are two hops' keys and values (in backward also two hops' gradients, and those on their
 * way back), however many ranks share the sequence. */

/* ---- a ring: pieces ---- */

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
    struct spans spans;
    int cp, rank;
    int64_t length; /* tokens of a run */
};

/* Messages of a hop, one per run; 0: none. */
struct ring_tickets {
    struct ax_ticket sent[2], received[2];
};

static struct ring ring_of(struct ax_pass *p, const struct ax_layer *l,
                           const struct ax_attention *a) {
    const struct ax_mesh *mesh = &p->model->rt->mesh;
    AX_ASSERT(!p->cache && p->batch->n_runs == 2 && p->batch->reach.runs > 0);
    return (struct ring){.p = p,
                         .rt = p->model->rt,
                         .a = a,
                         .spans = spans_of(p, l),
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
    const struct ax_reach *reach = r->spans.reach;
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

/* ---- a ring: messages ---- */

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

/* ---- a ring: attention of a run to the keys of one ---- */

static struct ax_attention ring_own(const struct ring *r, int i) {
    struct ax_attention one = *r->a;
    one.q = ring_rows(r, &r->a->q, i);
    one.k = ring_rows(r, &r->a->k, i);
    one.v = ring_rows(r, &r->a->v, i);
    one.out = ring_rows(r, &r->a->out, i);
    one.lse = ring_rows(r, &r->a->lse, i);
    one.cu_q = one.cu_k = r->spans.cu_q[i];
    one.max_q = one.max_k = r->spans.max_q;
    one.causal = true;
    return one;
}

static struct ax_attention ring_earlier(const struct ring *r, int i, int run,
                                        const struct ring_piece *keys) {
    const struct ax_reach *reach = r->spans.reach;
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

/* ---- a ring: sums ---- */

/* _sum: a tensor to accumulate t in: t itself if its dtype allows, else scratch in accumulation
 * dtype. _put: t = the sum. */
static struct ax_tensor ring_sum(const struct ring *r, const struct ax_tensor *t) {
    const enum ax_dtype accum = ax_dtype_accum(t->dtype);
    if (t->dtype == accum)
        return *t;
    return ax_stack_take(&r->rt->arena.scratch, "sums of hops",
                         ax_tensor_3d(accum, NULL, t->shape[0], t->shape[1], t->shape[2]));
}

static enum ax_status ring_put(const struct ring *r, const struct ax_tensor *t,
                               const struct ax_tensor *sum) {
    return t->data == sum->data ? AX_OK : ax_run_copy(r->rt->q, &(struct ax_copy){*t, *sum});
}

/* ---- a ring: forward ---- */

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
    return ax_reach_sees(r->spans.reach, tail, head, r->a->window)
               ? attend_earlier(f, 1, head, &mine->run[0])
               : AX_OK;
}

static enum ax_status attend_hop(const struct forward *f, int hop, const struct ring_pieces *in) {
    const struct ring *r = &f->r;
    for (int k = 0; k < 2; k++) {
        const int run = ring_run(r, ring_from(r, hop), k);
        for (int i = 0; i < 2; i++)
            if (ax_reach_sees(r->spans.reach, ring_run(r, r->rank, i), run, r->a->window))
                AX_TRY(attend_earlier(f, i, run, &in->run[k]));
    }
    return AX_OK;
}

/* a: as for ax_attend_forward, for this rank's rows; max_q, max_k and cu are set here. */
static enum ax_status ring_forward(struct ax_pass *p, const struct ax_layer *l,
                                   const struct ax_attention *a) {
    struct forward f = {.r = ring_of(p, l, a)};
    const struct ring *r = &f.r;
    struct ax_stack *scratch = &r->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    struct ring_pieces mine, in[2];
    struct ring_tickets t[2] = {0};
    AX_TRY(ring_pack(r, &mine));
    for (int k = 0; k < 2; k++)
        in[k] = ring_take_both(r, "keys and values of a hop");
    f.out = ring_sum(r, &a->out);
    f.part = ax_stack_take(
        scratch, "attention of a hop",
        ax_tensor_3d(a->out.dtype, NULL, r->length, a->out.shape[1], a->out.shape[2]));
    f.part_lse = ax_stack_take(scratch, "attention of a hop",
                               ax_tensor_2d(a->lse.dtype, NULL, r->length, a->lse.shape[1]));

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

/* ---- a ring: backward ---- */

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
    if (!ax_reach_sees(r->spans.reach, tail, head, r->a->window))
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
            if (!ax_reach_sees(r->spans.reach, ring_run(r, r->rank, i), run, r->a->window))
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

static struct backward start_backward(struct ax_pass *p, const struct ax_layer *l,
                                      const struct ax_attention_backward *b) {
    struct backward g = {.r = ring_of(p, l, &b->a), .b = b};
    const struct ax_tensor *q = &b->a.q;
    g.dq = ring_sum(&g.r, &b->dq);
    g.dk = ring_sum(&g.r, &b->dk);
    g.dv = ring_sum(&g.r, &b->dv);
    g.dq_part = ax_stack_take(&g.r.rt->arena.scratch, "gradients of a hop",
                              ax_tensor_3d(q->dtype, NULL, g.r.length, q->shape[1], q->shape[2]));
    g.part = ring_take(&g.r, "gradients of a hop", q->dtype);
    g.sum = ring_take(&g.r, "gradients of a hop", ax_dtype_accum(q->dtype));
    return g;
}

static enum ax_status ring_backward(struct ax_pass *p, const struct ax_layer *l,
                                    const struct ax_attention_backward *b) {
    struct ax_stack *scratch = &p->model->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    const struct backward g = start_backward(p, l, b);
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

/* ---- shared prefixes: keys and values of documents ---- */

/* [T][H][hd] as [T][H·hd]. */
static struct ax_tensor heads_as_rows(const struct ax_tensor *heads) {
    struct ax_tensor rows =
        ax_tensor_2d(heads->dtype, heads->data, heads->shape[0], heads->shape[1] * heads->shape[2]);
    rows.row_stride = heads->row_stride;
    return rows;
}

/* A tensor for the gradient of the keys, in scratch; own itself if no documents share a prefix. */
static struct ax_tensor prefix_tensor(const struct ax_shared_prefix *s, struct ax_runtime *rt,
                                      const struct ax_tensor *own) {
    if (!s->any)
        return *own;
    return ax_stack_take(
        &rt->arena.scratch, "keys and values of documents",
        ax_tensor_3d(own->dtype, NULL, s->keys.shape[0], own->shape[1], own->shape[2]));
}

/* *keys [n_keys][H][hd], in scratch, from own [T][H][hd]; own itself if no documents share a
 * prefix. */
static enum ax_status prefix_keys(const struct ax_shared_prefix *s, struct ax_runtime *rt,
                                  const struct ax_tensor *own, struct ax_tensor *keys) {
    *keys = prefix_tensor(s, rt, own);
    if (!s->any)
        return AX_OK;
    const struct ax_combine_forward gather = {
        .src = heads_as_rows(own), .rows = s->keys, .out = heads_as_rows(keys)};
    return ax_run_combine_forward(rt->q, &gather);
}

/* own = the sum of the keys' gradient over the users of each row. */
static enum ax_status sum_prefix_gradient(const struct ax_shared_prefix *s, struct ax_runtime *rt,
                                          const struct ax_tensor *keys,
                                          const struct ax_tensor *own) {
    if (!s->any)
        return AX_OK;
    const struct ax_combine_forward sum = {
        .src = heads_as_rows(keys), .rows = s->users, .out = heads_as_rows(own)};
    return ax_run_combine_forward(rt->q, &sum);
}

/* ---- attention of a batch ---- */

/* The attention of one run of the batch's rows. */
static struct ax_attention of_run(const struct ax_pass *p, const struct spans *s,
                                  const struct ax_attention *all, int run) {
    const struct ax_batch *b = p->batch;
    const int64_t length = b->T / b->n_runs, first = run * length;
    struct ax_attention a = *all;
    a.q = ax_tensor_rows(&all->q, first, length);
    a.out = ax_tensor_rows(&all->out, first, length);
    a.lse = ax_tensor_rows(&all->lse, first, length);
    if (p->cache)
        return a;
    a.cu_q = s->cu_q[run];
    a.cu_k = s->cu_k[run];
    if (all->chosen.data)
        a.chosen = ax_tensor_rows(&all->chosen, first, length);
    if (b->parts > 1)
        a.max_k = least(a.max_k, b->runs[run].first + length);
    return a;
}

/* Those of other ranks, and of documents that begin with this rank's rows; in scratch. */
static enum ax_status gather_keys(const struct ax_pass *p, const struct ax_tensor *own,
                                  struct ax_tensor *all) {
    struct ax_tensor keys;
    AX_TRY(prefix_keys(&p->batch->prefix, p->model->rt, own, &keys));
    *all = keys;
    return p->batch->parts > 1 ? ax_cp_gather(p->model->rt, &keys, all) : AX_OK;
}

/* The attention of all rows, with all keys and values. */
static enum ax_status describe(const struct ax_pass *p, const struct ax_layer *l,
                               const struct spans *s, const struct ax_attention *own,
                               struct ax_attention *all) {
    *all = *own;
    all->max_q = s->max_q;
    all->max_k = s->max_k;
    all->causal = true;
    AX_TRY(gather_keys(p, &own->k, &all->k));
    AX_TRY(gather_keys(p, &own->v, &all->v));
    if (!p->cache)
        return AX_OK;
    all->cu_q = s->cu_q[0];
    ax_kvcache_describe(p->cache, l->nth_keys, l->spec.chunked, all);
    return AX_OK;
}

static bool in_a_ring(const struct ax_pass *p) {
    return p->batch->parts > 1 && p->model->cp_method == AX_CP_RING;
}

static enum ax_status run_all(struct ax_pass *p, const struct spans *spans,
                              const struct ax_attention *all) {
    for (int run = 0; run < p->batch->n_runs; run++)
        AX_TRY(ax_run_attention_forward(
            p->model->rt->q, &(struct ax_attention_forward){of_run(p, spans, all, run)}));
    return AX_OK;
}

enum ax_status ax_attend_forward(struct ax_pass *p, const struct ax_layer *l,
                                 const struct ax_attention *a) {
    if (in_a_ring(p))
        return ring_forward(p, l, a);
    struct ax_runtime *rt = p->model->rt;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    const struct spans spans = spans_of(p, l);
    struct ax_attention all;
    if (p->cache)
        AX_TRY(ax_kvcache_write(p->cache, rt->q, l->nth_keys, &a->k, &a->v));
    AX_TRY(describe(p, l, &spans, a, &all));
    AX_TRY(run_all(p, &spans, &all));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

enum ax_status ax_attend_cached(struct ax_pass *p, const struct ax_layer *l,
                                const struct ax_attention *a) {
    const struct spans spans = spans_of(p, l);
    struct ax_attention all = *a;
    all.max_q = spans.max_q;
    all.causal = true;
    all.cu_q = spans.cu_q[0];
    ax_kvcache_describe(p->cache, l->nth_keys, l->spec.chunked, &all);
    return run_all(p, &spans, &all);
}

enum ax_status ax_attend_backward(struct ax_pass *p, const struct ax_layer *l,
                                  const struct ax_attention_backward *b) {
    if (in_a_ring(p))
        return ring_backward(p, l, b);
    struct ax_runtime *rt = p->model->rt;
    const struct ax_shared_prefix *prefix = &p->batch->prefix;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    const struct spans spans = spans_of(p, l);
    const struct ax_tensor d_keys = prefix_tensor(prefix, rt, &b->dk);
    const struct ax_tensor d_values = prefix_tensor(prefix, rt, &b->dv);
    const struct ax_cp_gradient dk = ax_cp_gradient(rt, &d_keys),
                                dv = ax_cp_gradient(rt, &d_values);
    struct ax_attention all;
    AX_TRY(describe(p, l, &spans, &b->a, &all));
    for (int run = 0; run < p->batch->n_runs; run++) {
        const struct ax_attention one = of_run(p, &spans, &all, run);
        const int64_t length = one.q.shape[0], first = run * length;
        const struct ax_attention_backward back = {.a = one,
                                                   .dout = ax_tensor_rows(&b->dout, first, length),
                                                   .dq = ax_tensor_rows(&b->dq, first, length),
                                                   .dk = dk.run,
                                                   .dv = dv.run,
                                                   .dsink = b->dsink};
        AX_TRY(ax_run_attention_backward(rt->q, &back));
        AX_TRY(ax_cp_add(rt, &dk, run == 0));
        AX_TRY(ax_cp_add(rt, &dv, run == 0));
    }
    AX_TRY(ax_cp_reduce(rt, &dk));
    AX_TRY(ax_cp_reduce(rt, &dv));
    AX_TRY(sum_prefix_gradient(prefix, rt, &d_keys, &b->dk));
    AX_TRY(sum_prefix_gradient(prefix, rt, &d_values, &b->dv));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

/* ---- choosing keys ---- */

/* The choice of one run of the batch's rows. */
static struct ax_top_keys choice_of_run(const struct ax_pass *p, const struct ax_top_keys *all,
                                        int run) {
    const struct ax_batch *b = p->batch;
    const int64_t length = b->T / b->n_runs, first = run * length;
    struct ax_top_keys t = *all;
    t.q = ax_tensor_rows(&all->q, first, length);
    t.w = ax_tensor_rows(&all->w, first, length);
    t.cu_q = b->runs[run].cu_q;
    if (p->cache)
        return t;
    t.chosen = ax_tensor_rows(&all->chosen, first, length);
    t.cu_k = b->runs[run].cu_k;
    return t;
}

enum ax_status ax_attend_choose(struct ax_pass *p, int nth, const struct ax_top_keys *own) {
    struct ax_runtime *rt = p->model->rt;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    struct ax_top_keys all = *own;
    all.max_q = p->batch->max_queries;
    all.max_k = p->batch->max_len;
    if (p->cache)
        AX_TRY(ax_kvcache_index(p->cache, rt->q, nth, &all));
    else
        AX_TRY(gather_keys(p, &own->k, &all.k));
    for (int run = 0; run < p->batch->n_runs; run++) {
        const struct ax_top_keys t = choice_of_run(p, &all, run);
        AX_TRY(ax_run_top_keys(rt->q, &t));
    }
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}
