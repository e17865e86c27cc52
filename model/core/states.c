#include "model/core/states.h"

#include <string.h>

#include "base/mem.h"
#include "kernels/arena.h"
#include "kernels/queue.h"

static int64_t window_elements(const struct ax_states *s) {
    return s->size.rows * s->size.channels;
}

/* Elements of a slot for the delta rule. */
static int64_t rule_elements(const struct ax_states *s, int which) {
    const struct ax_state_size *z = &s->size;
    const int64_t n[] = {[AX_RULE_STATES] = z->value_heads * z->key_dim * z->value_dim,
                         [AX_RULE_KEYS] = AX_DELTA_CHUNK * z->key_heads * z->key_dim,
                         [AX_RULE_UPDATES] = AX_DELTA_CHUNK * z->value_heads * z->value_dim,
                         [AX_RULE_DECAYS] = AX_DELTA_CHUNK * z->value_heads *
                                            (z->channel_decays ? z->key_dim : 1)};
    return n[which];
}

static int64_t indices(const struct ax_states *s) {
    return s->n_seqs * s->size.rows + s->T + 2 * s->n_seqs;
}

static enum ax_status create_host(struct ax_states *s) {
    AX_TRY(ax_alloc(&s->at, (size_t)s->n_seqs, sizeof *s->at));
    AX_TRY(ax_alloc(&s->kept, (size_t)s->n_seqs, sizeof *s->kept));
    return ax_alloc(&s->host, (size_t)indices(s), sizeof *s->host);
}

enum ax_status ax_states_create(struct ax_states *s, struct ax_stack *stack,
                                const struct ax_states_options *o) {
    *s = (struct ax_states){.n_seqs = o->n_seqs,
                            .n_layers = o->n_layers,
                            .size = o->size,
                            .planning = o->planning,
                            .T = o->T};
    if (o->n_layers == 0)
        return AX_OK;
    const enum ax_status st = create_host(s);
    if (st != AX_OK) {
        ax_states_free(s);
        return st;
    }
    s->windows = ax_stack_take(
        stack, "states",
        ax_tensor_2d(o->dtype, NULL, s->n_layers, 2 * s->n_seqs * window_elements(s)));
    for (int k = 0; o->size.value_heads > 0 && k < AX_RULE_TENSORS; k++) {
        const enum ax_dtype dtype = k == AX_RULE_KEYS ? o->dtype : ax_dtype_accum(o->dtype);
        s->rule[k] = ax_stack_take(
            stack, "states",
            ax_tensor_2d(dtype, NULL, s->n_layers, 2 * s->n_seqs * rule_elements(s, k)));
    }
    int32_t AX_DEVICE *ints =
        ax_stack_push(stack, "states index", (size_t)indices(s) * sizeof *ints);
    s->before = ax_tensor_1d(AX_I32, ints, s->n_seqs * s->size.rows);
    s->to = ax_tensor_1d(AX_I32, ints + s->n_seqs * s->size.rows, s->T);
    s->slots = ax_tensor_1d(AX_I32, ints + s->n_seqs * s->size.rows + s->T, s->n_seqs);
    s->past = ax_tensor_1d(AX_I32, ints + s->n_seqs * s->size.rows + s->T + s->n_seqs, s->n_seqs);
    ax_states_clear(s);
    return AX_OK;
}

void ax_states_free(struct ax_states *s) {
    ax_free(s->at);
    ax_free(s->kept);
    ax_free(s->host);
    *s = (struct ax_states){0};
}

void ax_states_clear(struct ax_states *s) {
    for (int64_t i = 0; s->n_layers > 0 && i < s->n_seqs; i++) {
        s->at[i] = 0;
        s->kept[i] = -1;
    }
}

/* ---- places ---- */

int64_t ax_states_place(const struct ax_states *s, int64_t seq, int64_t n) {
    if (s->n_layers == 0)
        return n;
    if (s->at[seq] >= 0 && s->at[seq] <= n)
        return s->at[seq];
    return s->kept[seq] >= 0 && s->kept[seq] <= n ? s->kept[seq] : 0;
}

static enum ax_status copy_slot(const struct ax_states *s, struct ax_queue *q, int64_t from,
                                int64_t to) {
    for (int k = -1; k < AX_RULE_TENSORS; k++) {
        const struct ax_tensor *all = k < 0 ? &s->windows : &s->rule[k];
        const int64_t n = k < 0 ? window_elements(s) : rule_elements(s, k);
        if (n > 0)
            AX_TRY(ax_run_copy(q, &(struct ax_copy){.dst = ax_tensor_cols(all, to * n, n),
                                                    .src = ax_tensor_cols(all, from * n, n)}));
    }
    return AX_OK;
}

enum ax_status ax_states_fork(struct ax_states *s, struct ax_queue *q, int64_t from, int64_t to,
                              int64_t n) {
    if (s->n_layers == 0)
        return AX_OK;
    const bool running = n == s->at[from];
    AX_ASSERT(n == 0 || running || n == s->kept[from]);
    if (n > 0 && !(running && from == to))
        AX_TRY(copy_slot(s, q, running ? from : s->n_seqs + from, to));
    s->at[to] = n;
    if (from != to || s->kept[to] > n)
        s->kept[to] = -1;
    return AX_OK;
}

enum ax_status ax_states_keep(struct ax_states *s, struct ax_queue *q, int64_t seq) {
    if (s->n_layers == 0 || s->kept[seq] == s->at[seq])
        return AX_OK;
    s->kept[seq] = s->at[seq];
    return copy_slot(s, q, seq, s->n_seqs + seq);
}

void ax_states_cut(struct ax_states *s, int64_t seq, int64_t n) {
    if (s->n_layers == 0)
        return;
    if (s->at[seq] > n)
        s->at[seq] = n == 0 ? 0 : -1;
    if (s->kept[seq] > n)
        s->kept[seq] = -1;
}

/* ---- a pass ---- */

enum ax_status ax_states_advance(struct ax_states *s, struct ax_queue *q, int64_t T, int64_t n_docs,
                                 const int32_t *seqs, const int64_t *start, const int64_t *n_new) {
    if (s->n_layers == 0)
        return AX_OK;
    AX_ASSERT(n_docs <= s->n_seqs && T <= s->T);
    const int64_t R = s->size.rows;
    int32_t *before = s->host, *to = before + s->n_seqs * R, *slots = to + s->T;
    int32_t *past = slots + s->n_seqs;
    int64_t t = 0;
    for (int64_t d = 0; d < n_docs; d++) {
        const int64_t seq = seqs[d], first = start[seq], end = first + n_new[d];
        AX_ASSERT(s->planning || s->at[seq] == first);
        for (int64_t i = 0; i < R; i++) {
            const int64_t at = first - R + i;
            before[d * R + i] = (int32_t)(at < 0 ? -1 : seq * R + at % R);
        }
        for (int64_t at = first; at < end; at++) /* of two inputs at one row the last stays */
            to[t++] = (int32_t)(at < end - R ? -1 : seq * R + at % R);
        slots[d] = (int32_t)seq;
        past[d] = (int32_t)first;
        s->at[seq] = end;
    }
    while (t < T)
        to[t++] = -1;
    s->before.shape[0] = n_docs * R;
    s->slots.shape[0] = s->past.shape[0] = n_docs;
    const size_t docs = (size_t)n_docs * sizeof *slots;
    AX_TRY(ax_queue_write(q, s->slots.data, slots, docs));
    AX_TRY(ax_queue_write(q, s->past.data, past, docs));
    AX_TRY(ax_queue_write(q, s->before.data, before, (size_t)(n_docs * R) * sizeof *before));
    return ax_queue_write(q, s->to.data, to, (size_t)T * sizeof *to);
}

/* A layer's windows, [2·n_seqs·rows][channels]. */
static struct ax_tensor of_layer(const struct ax_states *s, int layer) {
    return ax_tensor_2d(s->windows.dtype, ax_tensor_row(&s->windows, layer),
                        2 * s->n_seqs * s->size.rows, s->size.channels);
}

struct ax_tensor ax_states_rows(const struct ax_states *s, struct ax_stack *stack, int64_t n) {
    return ax_stack_take(stack, "inputs before",
                         ax_tensor_2d(s->windows.dtype, NULL, s->before.shape[0], n));
}

enum ax_status ax_states_read(const struct ax_states *s, struct ax_queue *q, int layer,
                              int64_t first, const struct ax_tensor *rows) {
    const struct ax_tensor all = of_layer(s, layer);
    return ax_run_embedding_forward(
        q, &(struct ax_embedding_forward){.weight = ax_tensor_cols(&all, first, rows->shape[1]),
                                          .tokens = s->before,
                                          .out = *rows});
}

enum ax_status ax_states_write(const struct ax_states *s, struct ax_queue *q, int layer,
                               int64_t first, const struct ax_tensor *x) {
    const struct ax_tensor all = of_layer(s, layer), to = ax_tensor_rows(&s->to, 0, x->shape[0]);
    return ax_run_scatter_rows(
        q, &(struct ax_scatter_rows){ax_tensor_cols(&all, first, x->shape[1]), *x, to});
}

void ax_states_describe(const struct ax_states *s, int layer, struct ax_delta_forward *f) {
    const struct ax_state_size *z = &s->size;
    const int64_t slots = 2 * s->n_seqs, C = AX_DELTA_CHUNK;
    const int64_t shapes[AX_RULE_TENSORS][4] = {
        [AX_RULE_STATES] = {slots, z->value_heads, z->key_dim, z->value_dim},
        [AX_RULE_KEYS] = {slots, C, z->key_heads, z->key_dim},
        [AX_RULE_UPDATES] = {slots, C, z->value_heads, z->value_dim},
        [AX_RULE_DECAYS] = {slots, C, z->value_heads, z->key_dim}};
    struct ax_tensor *to[] = {&f->a.states, &f->keys, &f->updates, &f->decays};
    for (int k = 0; k < AX_RULE_TENSORS; k++)
        *to[k] = ax_tensor_nd(s->rule[k].dtype, ax_tensor_row(&s->rule[k], layer),
                              k == AX_RULE_DECAYS && !z->channel_decays ? 3 : 4, shapes[k]);
    f->a.enters = f->a.leaves = s->slots;
    f->past = s->past;
}
