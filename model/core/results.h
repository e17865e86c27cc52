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

/* What n values of a dtype take of `cap`. */
size_t ax_results_bytes(enum ax_dtype dtype, int64_t n);
/* Device memory from `stack`. The host's grows to what is read. */
void ax_results_create(struct ax_results *r, struct ax_queue *q, struct ax_stack *stack,
                       size_t cap);
void ax_results_free(struct ax_results *r); /* safe on a zeroed one */
/* A tensor [n] for an op to write. The caller has counted what fits. */
struct ax_tensor ax_results_take(struct ax_results *r, enum ax_dtype dtype, int64_t n);
/* Waits, once, for everything taken; all of it can then be taken again. */
enum ax_status ax_results_read(struct ax_results *r);
/* Element i of a tensor that the last ax_results_read read. */
double ax_results_get(const struct ax_results *r, const struct ax_tensor *t, int64_t i);
void ax_results_drop(struct ax_results *r); /* instead of reading them */

#endif
