/* Ranks as threads of one process: the fabric for tests, for `check`, and for finding out on one
 * machine what a mesh does. Errors of any rank reach all others; no wait is endless. */
#ifndef AX_PARALLEL_COMM_LOCAL_H
#define AX_PARALLEL_COMM_LOCAL_H

#include "parallel/fabric.h"

/* Zero-initialized: no delay, 60 s. */
struct ax_local_options {
    double latency;          /* seconds from the last rank's start to the first possible wait */
    double bytes_per_second; /* of a link; 0 = unlimited. Transfers on a communicator queue up. */
    double timeout;          /* seconds a rank waits for others before it names them; 0 = 60 */
};

typedef enum ax_status (*ax_local_body)(struct ax_fabric *fabric, void *ctx);
/* Runs body once per rank, each in a thread, with the same ctx, and joins them. Of several failures
 * it returns the first that is not AX_ERR_PEER, else the first; its text names the rank. A rank
 * that returns without error while others wait for it is named in theirs. o may be NULL. */
enum ax_status ax_local_run(int world, const struct ax_local_options *o, ax_local_body body,
                            void *ctx);

#endif
