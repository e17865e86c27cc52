/* Messages between pipeline stages. */
#ifndef AX_MODEL_CORE_PIPELINE_H
#define AX_MODEL_CORE_PIPELINE_H

#include "model/core/batch.h"
#include "parallel/runtime.h"

#define AX_MESSAGE_PARTS 6

/* Tensors that this rank sends to another stage, or receives from it; each travels by itself. */
struct ax_message {
    int n;
    struct ax_tensor parts[AX_MESSAGE_PARTS];
    /* the batch whose length the tensors have; NULL: the length never changes */
    const struct ax_batch *batch;
};
struct ax_message_tickets {
    int n;
    struct ax_ticket parts[AX_MESSAGE_PARTS];
};

/* Bytes of memory for a message; and the same message in that memory. */
size_t ax_message_bytes(const struct ax_message *what);
struct ax_message ax_message_at(const struct ax_message *what, void AX_DEVICE *memory);
/* Copies the tensors of `from` over those of `to`, which have the same shapes. */
enum ax_status ax_message_copy(struct ax_queue *q, const struct ax_message *to,
                               const struct ax_message *from);

/* The stage `steps` after this one; the first follows the last. */
int ax_pipe_peer(const struct ax_runtime *rt, int steps);
/* Two stages must start their messages in the same order, but neither has to wait for another
 * message. Messages travel from ax_pipe_travel on, or when one is waited for. */
enum ax_status ax_pipe_send(struct ax_runtime *rt, int peer, const struct ax_message *what,
                            struct ax_message_tickets *tickets);
enum ax_status ax_pipe_receive(struct ax_runtime *rt, int peer, const struct ax_message *what,
                               struct ax_message_tickets *tickets);
enum ax_status ax_pipe_travel(struct ax_runtime *rt);
enum ax_status ax_pipe_wait(struct ax_runtime *rt, const struct ax_message_tickets *tickets);

#endif
