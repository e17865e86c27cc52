/* Values that passes leave on the device until the host reads all of them with one wait: chosen
 * tokens, log-probs, scores. */
#ifndef AX_MODEL_CORE_RESULTS_H
#define AX_MODEL_CORE_RESULTS_H

#include "kernels/queue.h"

struct ax_results {
    struct ax_queue *q;
    char AX_DEVICE *device;
    char *host;
    size_t used, cap, host_cap; /* bytes */
};

/* How many bytes of `cap` n values of a dtype take. */
size_t ax_results_bytes(enum ax_dtype dtype, int64_t n);
/* Takes device memory from `stack`. Host memory grows as needed. */
void ax_results_create(struct ax_results *r, struct ax_queue *q, struct ax_stack *stack,
                       size_t cap);
void ax_results_free(struct ax_results *r); /* safe on a zeroed one */
/* Takes a tensor [n] for an op to write. The caller must not take more than `cap` bytes. */
struct ax_tensor ax_results_take(struct ax_results *r, enum ax_dtype dtype, int64_t n);
/* Waits, once, for the values of all tensors taken; afterwards their memory can be taken again. */
enum ax_status ax_results_read(struct ax_results *r);
/* Element i of a tensor that the last ax_results_read read. */
double ax_results_get(const struct ax_results *r, const struct ax_tensor *t, int64_t i);
void ax_results_drop(struct ax_results *r); /* discards the values instead of reading them */

#endif
