/* Between a device and the host: the values of a tensor, and ops on the host's memory. */
#ifndef AX_KERNELS_TRANSFER_H
#define AX_KERNELS_TRANSFER_H

#include "kernels/queue.h"

/* All elements of a dense tensor, converted; `out` and `values` have room for that many. Reading
 * waits for the queue; on a meta queue it gives zeros. */
enum ax_status ax_tensor_read(struct ax_queue *q, const struct ax_tensor *t, enum ax_dtype wanted,
                              void *out);
enum ax_status ax_tensor_write(struct ax_queue *q, const struct ax_tensor *t, enum ax_dtype dtype,
                               const void *values);

/* Opens a queue that runs ops on host memory: q itself if its device's memory is the host's. Both
 * share q's scratch stack. Close *host in any case. */
enum ax_status ax_host_queue_open(struct ax_queue *q, struct ax_queue **host);
void ax_host_queue_close(struct ax_queue *q, struct ax_queue *host);

#endif
