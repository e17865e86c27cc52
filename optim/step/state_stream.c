#include "optim/step/state_stream.h"

/* Elements of a piece: the copies are long, the buffers small. */
#define PIECE ((int64_t)1 << 20)

int64_t ax_state_stream_piece(const struct ax_state_stream *s, const struct ax_piece *whole,
                              int64_t first) {
    const int64_t left = whole->n - first;
    if (!s || s->full)
        return left;
    const int64_t n = PIECE - (whole->phase + first) % AX_8BIT_BLOCK;
    return n < left ? n : left;
}

/* The operands that are in the host tier. */
static void list(const struct ax_segment *seg, struct ax_update *u, struct ax_state_streamed *out) {
    out->n = 0;
    if (seg->host_master)
        out->moved[out->n++].operand = &u->master;
    for (int k = 0; k < AX_MAX_STATE; k++)
        if (u->state[k].data)
            out->moved[out->n++].operand = &u->state[k];
}

void ax_state_stream_fit(struct ax_state_stream *s, const struct ax_segment *seg,
                         const struct ax_update *u) {
    struct ax_update copy = *u;
    struct ax_state_streamed all;
    size_t bytes = 0;
    list(seg, &copy, &all);
    for (int i = 0; i < all.n; i++)
        bytes += ax_arena_round(ax_tensor_bytes(all.moved[i].operand));
    s->bytes = bytes > s->bytes ? bytes : s->bytes;
}

void ax_state_stream_allocate(struct ax_state_stream *s, struct ax_stack *stack) {
    for (int i = 0; i < 2; i++)
        s->buffer[i] = ax_stack_push(stack, "optimizer state stream", s->bytes);
}

enum ax_status ax_state_stream_begin(struct ax_state_stream *s, struct ax_queue *q,
                                     const struct ax_segment *seg, struct ax_update *u,
                                     struct ax_state_streamed *out) {
    *out = (struct ax_state_streamed){0};
    if (!s)
        return AX_OK;
    char AX_DEVICE *at = s->buffer[s->next];
    s->next ^= 1;
    list(seg, u, out);
    for (int i = 0; i < out->n; i++) {
        struct ax_tensor *t = out->moved[i].operand;
        out->moved[i].home = t->data;
        t->data = at;
        at += ax_arena_round(ax_tensor_bytes(t));
        AX_TRY(ax_queue_copy(q, t->data, out->moved[i].home, ax_tensor_bytes(t)));
    }
    return AX_OK;
}

enum ax_status ax_state_stream_end(struct ax_queue *q, const struct ax_state_streamed *streamed) {
    for (int i = 0; i < streamed->n; i++) {
        const struct ax_tensor *t = streamed->moved[i].operand;
        AX_TRY(ax_queue_copy(q, streamed->moved[i].home, t->data, ax_tensor_bytes(t)));
    }
    return AX_OK;
}
