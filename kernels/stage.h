/* A stage: memory of the host tier to which a device copies in its queue's order, and which any
 * thread of the host can read afterwards. So later work in the queue may change the original while
 * nobody waits. Exists only if the device has a host tier. */
#ifndef AX_KERNELS_STAGE_H
#define AX_KERNELS_STAGE_H

#include "kernels/queue.h"

struct ax_stage {
    struct ax_queue *q; /* borrowed; NULL: there is no stage */
    char AX_DEVICE *memory;
    size_t bytes, used;
};

/* Takes its memory from the host tier of the queue's arena; on a meta queue plans it. */
void ax_stage_create(struct ax_stage *s, struct ax_queue *q, const char *name, size_t bytes);
/* Copies device memory, after everything enqueued so far. *host: where the host can read the copy
 * after ax_stage_wait; NULL if the stage is full. */
enum ax_status ax_stage_copy(struct ax_stage *s, const void AX_DEVICE *device, size_t bytes,
                             const void **host);
/* A ticket for the copies so far; and waits for them, on any thread. */
uint64_t ax_stage_ticket(const struct ax_stage *s);
enum ax_status ax_stage_wait(const struct ax_stage *s, uint64_t ticket);
/* Makes all of the stage's memory available again, once the host has read the copies. */
void ax_stage_clear(struct ax_stage *s);

#endif
