/* Which part of each parameter is stored here, its state, and where its random numbers come
 * from. */
#include "optim/step/state.h"

#include <string.h>

#include "base/hash/hash.h"
#include "base/mem.h"

/* ---- state in the host tier ---- */

/* Operands of an update that are in the host tier. */
struct ax_state_streamed {
    int n, buffer;
    struct {
        struct ax_tensor *operand;
        void AX_DEVICE *home;
    } moved[1 + AX_MAX_STATE];
};

/* Elements of a piece: the copies are long, the buffers small. */
#define PIECE ((int64_t)1 << 20)

/* How many elements of `whole` the piece that begins at element `first` has: pieces end with an
 * 8-bit block. */
static int64_t stream_piece(const struct ax_state_stream *s, const struct ax_piece *whole,
                            int64_t first) {
    const int64_t left = whole->n - first;
    if (!s || s->full)
        return left;
    const int64_t n = PIECE - (whole->phase + first) % AX_8BIT_BLOCK;
    return n < left ? n : left;
}

/* The operands that are in the host tier. */
static void list_streamed(const struct ax_segment *seg, struct ax_update *u,
                          struct ax_state_streamed *out) {
    out->n = 0;
    if (seg->host_master)
        out->moved[out->n++].operand = &u->master;
    for (int k = 0; k < AX_MAX_STATE; k++)
        if (u->state[k].data)
            out->moved[out->n++].operand = &u->state[k];
}

/* Enlarges the buffers for an update whose operands have these shapes. */
static void fit_stream(struct ax_state_stream *s, const struct ax_segment *seg,
                       const struct ax_update *u) {
    struct ax_update copy = *u;
    struct ax_state_streamed all;
    size_t bytes = 0;
    list_streamed(seg, &copy, &all);
    for (int i = 0; i < all.n; i++)
        bytes += ax_arena_round(ax_tensor_bytes(all.moved[i].operand));
    s->bytes = bytes > s->bytes ? bytes : s->bytes;
}

static void allocate_stream(struct ax_state_stream *s, struct ax_stack *stack) {
    for (int i = 0; i < 2; i++)
        s->buffer[i] = ax_stack_push(stack, "optimizer state stream", s->bytes);
}

/* Copies the operands into a buffer beside ops; u then points there. s NULL: does nothing. */
static enum ax_status begin_stream(struct ax_state_stream *s, struct ax_queue *q,
                                   const struct ax_segment *seg, struct ax_update *u,
                                   struct ax_state_streamed *out) {
    *out = (struct ax_state_streamed){0};
    if (!s)
        return AX_OK;
    char AX_DEVICE *at = s->buffer[s->next];
    AX_TRY(ax_queue_after(q, s->moved[s->next])); /* those that were there before have left */
    list_streamed(seg, u, out);
    out->buffer = s->next;
    s->next ^= 1;
    for (int i = 0; i < out->n; i++) {
        struct ax_tensor *t = out->moved[i].operand;
        out->moved[i].home = t->data;
        t->data = at;
        at += ax_arena_round(ax_tensor_bytes(t));
        AX_TRY(ax_queue_copy_beside(q, AX_TIER_DEVICE, t->data, out->moved[i].home,
                                    ax_tensor_bytes(t), &s->moved[out->buffer]));
    }
    return AX_OK;
}

/* What is enqueued from here on finds the operands in the buffer. */
static enum ax_status await_stream(const struct ax_state_stream *s, struct ax_queue *q,
                                   const struct ax_state_streamed *streamed) {
    return s ? ax_queue_after(q, s->moved[streamed->buffer]) : AX_OK;
}

/* Copies the operands back to the host tier, beside ops. */
static enum ax_status end_stream(struct ax_state_stream *s, struct ax_queue *q,
                                 const struct ax_state_streamed *streamed) {
    for (int i = 0; i < streamed->n; i++) {
        const struct ax_tensor *t = streamed->moved[i].operand;
        AX_TRY(ax_queue_copy_beside(q, AX_TIER_HOST, streamed->moved[i].home, t->data,
                                    ax_tensor_bytes(t), &s->moved[streamed->buffer]));
    }
    return AX_OK;
}

enum ax_status ax_state_stream_end(const struct ax_state_stream *s, struct ax_queue *q) {
    AX_TRY(ax_queue_after(q, s->moved[0]));
    return ax_queue_after(q, s->moved[1]);
}

/* ---- state of a parameter ---- */

/* True for a matrix inside a layer; the first and last units are the embedding and the head. */
static bool is_hidden(const struct ax_model *m, const struct ax_param *p) {
    return p->ndim == 2 && p->decay && p->unit > 0 && p->unit < m->n_units - 1;
}

/* True if its pipeline stage is on this rank. */
static bool is_here(const struct ax_model *m, const struct ax_param *p) {
    return ax_unit_present(&m->units[p->unit]);
}

static bool wants_whole(const struct ax_model *m, const struct ax_param *p,
                        const struct ax_optimizer *optimizer) {
    return optimizer->scope == AX_SCOPE_MATRIX && is_here(m, p) && p->trainable &&
           (optimizer != &ax_optimizer_muon || is_hidden(m, p));
}

static enum ax_status refuse_cut(const struct ax_model *m, const struct ax_param *p,
                                 const struct ax_optimizer *optimizer) {
    const struct ax_segment *seg = &m->units[p->unit].segments[p->segment];
    const int parts = m->rt->mesh.size[seg->gather];
    const int64_t local = ax_param_local_numel(p), all = ax_param_numel(p);
    if (local == 0 || (parts == 1 && local == all)) /* 0: the expert is stored elsewhere */
        return AX_OK;
    return ax_error(AX_ERR_CONFIG,
                    "optimizer: %s updates full matrices, but %s is sharded over %lld ranks. Use "
                    "dp_replicate in place of sharding, or adamw_torch.",
                    optimizer->name, p->name, (long long)parts * (long long)(all / local));
}

static void place(struct ax_param_state *s, const struct ax_model *m, const struct ax_param *p) {
    const struct ax_unit *unit = &m->units[p->unit];
    const struct ax_segment *seg = &unit->segments[p->segment];
    ax_unit_owned(unit, &m->rt->mesh, p, &s->first, &s->piece.n, &s->at);
    if (!seg->trainable)
        s->piece.n = 0;
    s->piece.accum = seg->accum;
    s->piece.phase = s->at % AX_8BIT_BLOCK;
    s->piece.hidden = is_hidden(m, p);
    if (p->ndim == 2) {
        s->piece.rows = p->local_shape[0];
        s->piece.cols = p->local_shape[1];
    }
}

static void take(struct ax_param_state *s, const struct ax_model *m,
                 const struct ax_optimizer *optimizer, const struct ax_optimizer_options *o) {
    struct ax_arena *arena = &m->rt->arena;
    struct ax_slot_size sizes[AX_MAX_STATE];
    s->n = optimizer->slots(o, &s->piece, sizes);
    for (int k = 0; k < s->n; k++) {
        struct ax_state_slot *slot = &s->slots[k];
        *slot = (struct ax_state_slot){.name = sizes[k].name,
                                       .layout = sizes[k].layout,
                                       .value = ax_tensor_1d(sizes[k].dtype, NULL, sizes[k].numel)};
        slot->value.data = ax_stack_push(s->stream ? &arena->host : &arena->persistent, slot->name,
                                         ax_tensor_bytes(&slot->value));
    }
}

/* The random numbers' indices of the piece's elements within the full parameter. If the slice has a
 * part of every row (split along dimension d > 0), its rows are not contiguous there. */
static struct ax_draw draw_of(const struct ax_param *p, const struct ax_mesh *mesh, int64_t first) {
    int64_t run, inner = 1;
    struct ax_draw draw = {.stream = ax_hash32(p->name),
                           .first = ax_param_global_index(p, mesh, first, &run)};
    for (int d = p->ndim - 1; d > 0; d--) {
        if (p->local_shape[d] != p->shape[d]) {
            draw.row = p->local_shape[d] * inner;
            draw.gap = (p->shape[d] - p->local_shape[d]) * inner;
            draw.column = first % draw.row;
            break;
        }
        inner *= p->local_shape[d];
    }
    return draw;
}

/* Elements of a flat buffer; an absent one stays absent. */
static struct ax_tensor part(const struct ax_tensor *flat, const struct ax_param_state *s) {
    return flat->data ? ax_tensor_rows(flat, s->at, s->piece.n) : *flat;
}

/* The update of one piece of a parameter, without the optimizer's state. */
static struct ax_update update_of(const struct ax_model *m, const struct ax_param *p,
                                  const struct ax_param_state *state,
                                  const struct ax_step_scalars AX_DEVICE *scalars) {
    const struct ax_segment *seg = &m->units[p->unit].segments[p->segment];
    struct ax_update u = {.master = part(&seg->master, state),
                          .grad = part(&seg->grad, state),
                          .remainder = part(&seg->remainder, state),
                          .piece = state->piece,
                          .draw = draw_of(p, &m->rt->mesh, state->first),
                          .scalars = scalars};
    if (seg->shard.data != seg->master.data)
        u.copy = part(&seg->shard, state);
    return u;
}

/* Elements [first, first + n); first is 0 or at the start of an 8-bit block. */
static struct ax_param_state cut(const struct ax_param_state *s, int64_t first, int64_t n) {
    struct ax_param_state c = *s;
    c.first += first;
    c.at += first;
    c.piece.n = n;
    c.piece.phase = c.at % AX_8BIT_BLOCK;
    for (int k = 0; k < s->n && n < s->piece.n; k++) {
        struct ax_tensor *value = &c.slots[k].value;
        const int64_t block = (s->piece.phase + first) / AX_8BIT_BLOCK;
        const int64_t blocks = (c.piece.phase + n + AX_8BIT_BLOCK - 1) / AX_8BIT_BLOCK;
        const bool by_blocks = c.slots[k].layout == AX_STATE_BLOCKS;
        *value = by_blocks ? ax_tensor_rows(value, block, blocks) : ax_tensor_rows(value, first, n);
    }
    return c;
}

/* One after the other, the pieces of a parameter's update. */
struct pieces {
    const struct ax_model *m;
    const struct ax_param *p;
    const struct ax_param_state *state;
    const struct ax_step_scalars AX_DEVICE *scalars;
    int64_t next;                 /* element */
    const struct ax_segment *seg; /* of the parameter */
    struct ax_update u;           /* of this piece, without the optimizer's state */
    struct ax_param_state piece;
};

static struct pieces pieces_of(const struct ax_model *m, int index,
                               const struct ax_param_state *state,
                               const struct ax_step_scalars AX_DEVICE *scalars) {
    const struct ax_param *p = &m->params[index];
    return (struct pieces){.m = m,
                           .p = p,
                           .state = state,
                           .scalars = scalars,
                           .seg = &m->units[p->unit].segments[p->segment]};
}

static bool next_piece(struct pieces *at) {
    const struct ax_piece *whole = &at->state->piece;
    if (at->next >= whole->n)
        return false;
    const int64_t n = stream_piece(at->state->stream, whole, at->next);
    at->piece = cut(at->state, at->next, n);
    at->u = update_of(at->m, at->p, &at->piece, at->scalars);
    at->next += n;
    return true;
}

static void add_state(struct pieces *at) {
    for (int k = 0; k < at->piece.n; k++)
        at->u.state[k] = at->piece.slots[k].value;
}

/* Buffers as large as the largest piece of any update. */
static void make_stream(struct ax_state_stream *stream, const struct ax_model *m,
                        const struct ax_param_state *states) {
    for (int i = 0; i < m->n_params; i++)
        for (struct pieces at = pieces_of(m, i, &states[i], NULL); next_piece(&at);) {
            add_state(&at);
            fit_stream(stream, at.seg, &at.u);
        }
    allocate_stream(stream, &m->rt->arena.persistent);
}

enum ax_status ax_param_states_create(struct ax_param_state **out, const struct ax_model *m,
                                      const struct ax_optimizer *optimizer,
                                      const struct ax_optimizer_options *o,
                                      struct ax_state_stream *stream) {
    *out = NULL;
    AX_TRY(ax_optimizer_check(optimizer, o));
    for (int i = 0; i < m->n_params; i++)
        if (wants_whole(m, &m->params[i], optimizer))
            AX_TRY(refuse_cut(m, &m->params[i], optimizer));
    AX_TRY(ax_alloc(out, (size_t)m->n_params, sizeof **out));
    for (int i = 0; i < m->n_params; i++) {
        if (!is_here(m, &m->params[i]))
            continue;
        (*out)[i].stream = stream;
        place(&(*out)[i], m, &m->params[i]);
        if ((*out)[i].piece.n > 0)
            take(&(*out)[i], m, optimizer, o);
    }
    if (stream) {
        stream->full = optimizer->scope == AX_SCOPE_MATRIX;
        make_stream(stream, m, *out);
    }
    return AX_OK;
}

enum ax_status ax_param_states_parts(const struct ax_model *m, const struct ax_param_state *states,
                                     struct ax_state_parts *out) {
    AX_TRY(ax_state_parts_create(out, m->n_params, AX_MAX_STATE));
    out->q = m->rt->q;
    for (int i = 0; i < m->n_params; i++)
        ax_state_parts_add(out, &m->rt->mesh, &m->units[m->params[i].unit], &m->params[i],
                           states[i].n, states[i].slots);
    return AX_OK;
}

/* Rounds one piece. */
static enum ax_status round_piece(struct ax_queue *q, const struct ax_update *u) {
    if (!u->scalars)
        return ax_run_copy(q, &(struct ax_copy){u->copy, u->master});
    /* an update that changes nothing: the gradient is zero */
    return ax_run_sgd(q, &(struct ax_sgd){.master = u->master,
                                          .grad = u->grad,
                                          .copy = u->copy,
                                          .draw = u->draw,
                                          .scalars = u->scalars});
}

enum ax_status ax_param_round(const struct ax_model *m, int index,
                              const struct ax_param_state *state,
                              const struct ax_step_scalars AX_DEVICE *scalars) {
    for (struct pieces at = pieces_of(m, index, state, scalars); next_piece(&at);) {
        struct ax_state_streamed streamed;
        if (!at.u.copy.data)
            return AX_OK;
        AX_TRY(begin_stream(state->stream, m->rt->q, at.seg, &at.u, &streamed));
        AX_TRY(await_stream(state->stream, m->rt->q, &streamed));
        AX_TRY(round_piece(m->rt->q, &at.u));
    }
    return AX_OK;
}

/* The next piece of an update, with its operands on their way; false: there is none. */
struct updated {
    struct ax_update u;
    struct ax_state_streamed streamed;
};
/* By names, as axolotl does. */
static bool is_table(const struct ax_param *p) {
    return strstr(p->name, "embed_tokens") || strstr(p->name, "lm_head");
}

static bool decays(const struct ax_param *p, const struct ax_optimizer_options *o) {
    return p->decay && !(o->keeps_tables && is_table(p));
}

static enum ax_status begin_update(struct pieces *at, const struct ax_optimizer_options *o,
                                   struct updated *next, bool *is_one) {
    *is_one = next_piece(at);
    if (!*is_one)
        return AX_OK;
    at->u.weight_decay = decays(at->p, o) ? o->weight_decay : 0;
    add_state(at);
    next->u = at->u;
    return begin_stream(at->state->stream, at->m->rt->q, at->seg, &next->u, &next->streamed);
}

/* A piece comes while the one before it is updated, and that one leaves while the next is. */
enum ax_status ax_param_update(const struct ax_model *m, int index, struct ax_param_state *state,
                               const struct ax_optimizer *optimizer,
                               const struct ax_optimizer_options *o,
                               const struct ax_step_scalars AX_DEVICE *scalars) {
    struct pieces at = pieces_of(m, index, state, scalars);
    struct updated pieces[2];
    bool more;
    AX_TRY(begin_update(&at, o, &pieces[0], &more));
    for (int i = 0; more; i ^= 1) {
        AX_TRY(begin_update(&at, o, &pieces[i ^ 1], &more));
        AX_TRY(await_stream(state->stream, m->rt->q, &pieces[i].streamed));
        AX_TRY(optimizer->update(m->rt->q, o, &pieces[i].u));
        AX_TRY(end_stream(state->stream, m->rt->q, &pieces[i].streamed));
    }
    return AX_OK;
}
