/* The ring: memory of the host tier through which the host writes to a device. The host fills a
 * slot, the device copies from it in the queue's order, and the slot is used again when those copies
 * are done; only then, if at all, does the host wait, and the wait is counted. Any thread may
 * call. */
#ifndef AX_KERNELS_RING_H
#define AX_KERNELS_RING_H

#include "kernels/queue.h"

#define AX_RING_SLOTS (AX_QUEUE_RING / AX_QUEUE_STAGE)

/* `memory`: AX_QUEUE_RING bytes of the host tier. */
enum ax_status ax_ring_create(struct ax_ring **r, struct ax_queue *q, void AX_DEVICE *memory);
void ax_ring_free(struct ax_ring *r);

/* See the functions of the same name in kernels/queue.h. */
enum ax_status ax_ring_write(struct ax_ring *r, void AX_DEVICE *device, const void *host,
                             size_t bytes);
enum ax_status ax_ring_begin_write(struct ax_ring *r, int n, struct ax_queue_piece *pieces);
enum ax_status ax_ring_end_write(struct ax_ring *r, int n, const struct ax_queue_piece *pieces);

#endif
