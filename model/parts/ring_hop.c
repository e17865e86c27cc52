#include "model/parts/ring_hop.h"

struct ax_ring ax_ring_of(struct ax_pass *p, const struct ax_attention *a) {
    const struct ax_mesh *mesh = &p->model->rt->mesh;
    AX_ASSERT(!p->cache && p->batch->n_runs == 2 && p->batch->reach.runs > 0);
    return (struct ax_ring){.p = p,
                            .rt = p->model->rt,
                            .a = a,
                            .cp = mesh->size[AX_ROLE_CP],
                            .rank = mesh->coord[AX_ROLE_CP],
                            .length = p->batch->T / 2};
}

int ax_ring_to(const struct ax_ring *r, int hop) {
    return (r->rank + hop) % r->cp;
}

int ax_ring_from(const struct ax_ring *r, int hop) {
    return (r->rank + r->cp - hop) % r->cp;
}

int ax_ring_run(const struct ax_ring *r, int rank, int i) {
    return i == 0 ? rank : 2 * r->cp - 1 - rank;
}

bool ax_ring_reads(const struct ax_ring *r, int rank, int run) {
    const struct ax_reach *reach = &r->p->batch->reach;
    return ax_reach_sees(reach, ax_ring_run(r, rank, 0), run, r->a->window) ||
           ax_reach_sees(reach, ax_ring_run(r, rank, 1), run, r->a->window);
}

struct ax_ring_piece ax_ring_take(const struct ax_ring *r, const char *name, enum ax_dtype dtype) {
    const struct ax_tensor *k = &r->a->k, *v = &r->a->v;
    struct ax_ring_piece piece = {ax_tensor_3d(dtype, NULL, r->length, k->shape[1], k->shape[2]),
                                  ax_tensor_3d(dtype, NULL, r->length, v->shape[1], v->shape[2])};
    const size_t keys = ax_tensor_bytes(&piece.k);
    char AX_DEVICE *data =
        ax_stack_push(&r->rt->arena.scratch, name, keys + ax_tensor_bytes(&piece.v));
    piece.k.data = data;
    piece.v.data = data + keys;
    return piece;
}

struct ax_ring_pieces ax_ring_take_both(const struct ax_ring *r, const char *name) {
    struct ax_ring_pieces both;
    for (int i = 0; i < 2; i++)
        both.run[i] = ax_ring_take(r, name, r->a->k.dtype);
    return both;
}

enum ax_status ax_ring_pack(const struct ax_ring *r, struct ax_ring_pieces *mine) {
    *mine = ax_ring_take_both(r, "keys and values to send");
    for (int i = 0; i < 2; i++) {
        const struct ax_ring_piece *to = &mine->run[i];
        AX_TRY(ax_run_copy(r->rt->q, &(struct ax_copy){to->k, ax_ring_rows(r, &r->a->k, i)}));
        AX_TRY(ax_run_copy(r->rt->q, &(struct ax_copy){to->v, ax_ring_rows(r, &r->a->v, i)}));
    }
    return AX_OK;
}

/* ---- messages ---- */

/* Pieces of the owner's runs that the reader's queries may see. `to` or `from`: the other rank. */
static enum ax_status post(const struct ax_ring *r, int reader, int owner, int to, int from,
                           const struct ax_ring_pieces *pieces, struct ax_ticket t[2]) {
    struct ax_comm *c = &r->rt->comms[AX_ROLE_CP];
    for (int i = 0; i < 2; i++) {
        const struct ax_ring_piece *piece = &pieces->run[i];
        const int run = ax_ring_run(r, owner, i);
        const struct ax_collective what = {.kind = AX_SEND_RECV,
                                           .dtype = piece->k.dtype,
                                           .send = to < 0 ? NULL : piece->k.data,
                                           .recv = from < 0 ? NULL : piece->k.data,
                                           .count = ax_tensor_numel(&piece->k) +
                                                    ax_tensor_numel(&piece->v),
                                           .send_peer = to,
                                           .recv_peer = from};
        if (run >= ax_ring_run(r, reader, 1)) /* later than all its queries */
            continue;
        if (ax_ring_reads(r, reader, run))
            AX_TRY(ax_comm_start(c, r->rt->q, &what, &t[i]));
        else
            AX_TRY(ax_comm_skip(c, &what));
    }
    return AX_OK;
}

enum ax_status ax_ring_post_keys(const struct ax_ring *r, int hop,
                                 const struct ax_ring_pieces *mine, const struct ax_ring_pieces *in,
                                 struct ax_ring_tickets *t) {
    const int to = ax_ring_to(r, hop), from = ax_ring_from(r, hop);
    AX_TRY(post(r, to, r->rank, to, -1, mine, t->sent));
    return post(r, r->rank, from, -1, from, in, t->received);
}

enum ax_status ax_ring_post_gradients(const struct ax_ring *r, int hop,
                                      const struct ax_ring_pieces *back,
                                      const struct ax_ring_pieces *got, struct ax_ring_tickets *t) {
    const int to = ax_ring_to(r, hop), from = ax_ring_from(r, hop);
    AX_TRY(post(r, r->rank, from, from, -1, back, t->sent));
    return post(r, to, r->rank, -1, to, got, t->received);
}

enum ax_status ax_ring_wait(const struct ax_ring *r, struct ax_ticket t[2]) {
    for (int i = 0; i < 2; i++) {
        if (t[i].id > 0)
            AX_TRY(ax_comm_wait(&r->rt->comms[AX_ROLE_CP], r->rt->q, t[i]));
        t[i].id = 0;
    }
    return AX_OK;
}

/* ---- attention of a run to the keys of one ---- */

struct ax_attention ax_ring_own(const struct ax_ring *r, int i) {
    const struct ax_batch *b = r->p->batch;
    struct ax_attention one = *r->a;
    one.q = ax_ring_rows(r, &r->a->q, i);
    one.k = ax_ring_rows(r, &r->a->k, i);
    one.v = ax_ring_rows(r, &r->a->v, i);
    one.out = ax_ring_rows(r, &r->a->out, i);
    one.lse = ax_ring_rows(r, &r->a->lse, i);
    one.cu_q = one.cu_k = b->runs[i].cu_q;
    one.max_q = one.max_k = b->max_queries;
    one.causal = true;
    return one;
}

struct ax_attention ax_ring_earlier(const struct ax_ring *r, int i, int run,
                                    const struct ax_ring_piece *keys) {
    const struct ax_reach *reach = &r->p->batch->reach;
    struct ax_attention one = ax_ring_own(r, i);
    one.k = keys->k;
    one.v = keys->v;
    one.sink = (struct ax_tensor){0}; /* once, with the run's own keys */
    one.cu_q = ax_reach_queries(reach, i);
    one.cu_k = ax_reach_keys(reach, i, run);
    one.max_q = one.max_k = r->length;
    one.ahead = ax_reach_ahead(reach, ax_ring_run(r, r->rank, i), run);
    return one;
}

/* ---- sums ---- */

struct ax_tensor ax_ring_rows(const struct ax_ring *r, const struct ax_tensor *t, int i) {
    return ax_tensor_rows(t, i * r->length, r->length);
}

struct ax_tensor ax_ring_sum(const struct ax_ring *r, const struct ax_tensor *t) {
    const enum ax_dtype accum = ax_dtype_accum(t->dtype);
    if (t->dtype == accum)
        return *t;
    struct ax_tensor sum = ax_tensor_3d(accum, NULL, t->shape[0], t->shape[1], t->shape[2]);
    sum.data = ax_stack_push(&r->rt->arena.scratch, "sums of hops", ax_tensor_bytes(&sum));
    return sum;
}

enum ax_status ax_ring_put(const struct ax_ring *r, const struct ax_tensor *t,
                           const struct ax_tensor *sum) {
    return t->data == sum->data ? AX_OK : ax_run_copy(r->rt->q, &(struct ax_copy){*t, *sum});
}
