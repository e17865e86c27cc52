/* Optimizer state and masters in the device's host tier: an update brings them in pieces into two
 * alternating buffers and takes them back, so that one piece is copied while another is computed. */
#ifndef AX_OPTIM_STEP_STATE_STREAM_H
#define AX_OPTIM_STEP_STATE_STREAM_H

#include "optim/optimizers/optimizer.h"
#include "parallel/units/unit.h"

struct ax_state_stream {
    bool full; /* an update needs a full parameter: Muon, Adafactor */
    size_t bytes;
    void AX_DEVICE *buffer[2];
    int next;
};

/* How many elements of `whole` the piece that begins at element `first` has: pieces end with an
 * 8-bit block. */
int64_t ax_state_stream_piece(const struct ax_state_stream *s, const struct ax_piece *whole,
                              int64_t first);

/* Operands of an update that are in the host tier. */
struct ax_state_streamed {
    int n;
    struct {
        struct ax_tensor *operand;
        void AX_DEVICE *home;
    } moved[1 + AX_MAX_STATE];
};
/* Enlarges the buffers for an update whose operands have these shapes. */
void ax_state_stream_fit(struct ax_state_stream *s, const struct ax_segment *seg,
                         const struct ax_update *u);
void ax_state_stream_allocate(struct ax_state_stream *s, struct ax_stack *stack);
/* Copies the operands into a buffer, to which u then points. s NULL: does nothing. */
enum ax_status ax_state_stream_begin(struct ax_state_stream *s, struct ax_queue *q,
                                     const struct ax_segment *seg, struct ax_update *u,
                                     struct ax_state_streamed *out);
/* Copies the operands back to the host tier. */
enum ax_status ax_state_stream_end(struct ax_queue *q, const struct ax_state_streamed *streamed);

#endif
