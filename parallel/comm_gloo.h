/* Ranks as processes on one machine, over Gloo's TCP transport. Sums are computed here, in rank
 * order, so their bits equal those of the local fabric. */
#ifndef AX_PARALLEL_COMM_GLOO_H
#define AX_PARALLEL_COMM_GLOO_H

#include "parallel/fabric.h"

/* Whether ax_gloo_open can work here; call it before starting processes. AX_ERR_UNSUPPORTED says
 * what is missing and how to install it. */
enum ax_status ax_gloo_available(void);

/* Connects this process as `rank` of `world`. Processes rendezvous in `folder`, which must exist
 * and be new for every run. No wait exceeds `timeout` seconds. Free with f->ops->free.
 *
 * AX_ERR_PEER names the ranks that do not arrive. From then on SIGPIPE is ignored. All-reduces in
 * flight together are completed in the order they were started. */
enum ax_status ax_gloo_open(struct ax_fabric *f, const char *folder, int rank, int world,
                            double timeout);

#endif
