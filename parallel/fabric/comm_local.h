/* Ranks as threads of one process: the fabric for tests, for `check`, and for trying a mesh on one
 * machine. Errors of any rank reach all others; every wait has a timeout. */
#ifndef AX_PARALLEL_FABRIC_COMM_LOCAL_H
#define AX_PARALLEL_FABRIC_COMM_LOCAL_H

#include "parallel/fabric/fabric.h"

#define AX_LOCAL_TIMEOUT 60.0 /* seconds */
struct ax_local_options {
    double timeout; /* seconds a rank waits for others before it names them; 0 = AX_LOCAL_TIMEOUT */
};

typedef enum ax_status (*ax_local_body)(struct ax_fabric *fabric, void *ctx);
/* Runs body once per rank, each in a thread, with the same ctx, and joins them. Of several failures
 * it returns the first that is not AX_ERR_PEER, else the first; its text names the rank. Ranks
 * waiting for one that has returned without error name it in their error. o may be NULL. */
enum ax_status ax_local_run(int world, const struct ax_local_options *o, ax_local_body body,
                            void *ctx);

#endif
