#include "model/core/states.h"

#include <string.h>

#include "base/mem.h"
#include "kernels/arena.h"
#include "kernels/queue.h"

static int64_t slot_elements(const struct ax_states *s) {
    return s->size.rows * s->size.channels;
}

static int64_t indices(const struct ax_states *s) {
    return s->n_seqs * s->size.rows + s->T;
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
    s->windows = ax_tensor_2d(o->dtype, NULL, s->n_layers, 2 * s->n_seqs * slot_elements(s));
    s->windows.data = ax_stack_push(stack, "states", ax_tensor_bytes(&s->windows));
    int32_t AX_DEVICE *ints =
        ax_stack_push(stack, "states index", (size_t)indices(s) * sizeof *ints);
    s->before = ax_tensor_1d(AX_I32, ints, s->n_seqs * s->size.rows);
    s->to = ax_tensor_1d(AX_I32, ints + s->n_seqs * s->size.rows, s->T);
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
    const int64_t n = slot_elements(s);
    return ax_run_copy(q, &(struct ax_copy){.dst = ax_tensor_cols(&s->windows, to * n, n),
                                            .src = ax_tensor_cols(&s->windows, from * n, n)});
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
    int32_t *before = s->host, *to = before + s->n_seqs * R;
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
        s->at[seq] = end;
    }
    while (t < T)
        to[t++] = -1;
    s->before.shape[0] = n_docs * R;
    AX_TRY(ax_queue_write(q, s->before.data, before, (size_t)(n_docs * R) * sizeof *before));
    return ax_queue_write(q, s->to.data, to, (size_t)T * sizeof *to);
}

/* A layer's windows, [2·n_seqs·rows][channels]. */
static struct ax_tensor of_layer(const struct ax_states *s, int layer) {
    return ax_tensor_2d(s->windows.dtype, ax_tensor_row(&s->windows, layer),
                        2 * s->n_seqs * s->size.rows, s->size.channels);
}

struct ax_tensor ax_states_rows(const struct ax_states *s, struct ax_stack *stack) {
    struct ax_tensor t = ax_tensor_2d(s->windows.dtype, NULL, s->before.shape[0], s->size.channels);
    t.data = ax_stack_push(stack, "inputs before", ax_tensor_bytes(&t));
    return t;
}

enum ax_status ax_states_read(const struct ax_states *s, struct ax_queue *q, int layer,
                              const struct ax_tensor *rows) {
    return ax_run_embedding_forward(q, &(struct ax_embedding_forward){.weight = of_layer(s, layer),
                                                                      .tokens = s->before,
                                                                      .out = *rows});
}

enum ax_status ax_states_write(const struct ax_states *s, struct ax_queue *q, int layer,
                               const struct ax_tensor *x) {
    const struct ax_tensor to = ax_tensor_rows(&s->to, 0, x->shape[0]);
    return ax_run_scatter_rows(q, &(struct ax_scatter_rows){of_layer(s, layer), *x, to});
}
