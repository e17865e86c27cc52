/* Ranks as processes, over Gloo's TCP transport. Sums are computed here, in rank
 * order, so their bits equal those of the local fabric. */
#ifndef AX_PARALLEL_FABRIC_COMM_GLOO_H
#define AX_PARALLEL_FABRIC_COMM_GLOO_H

#include "parallel/fabric/fabric.h"

/* AX_OK if ax_gloo_open can work on this machine; call it before starting processes.
 * AX_ERR_UNSUPPORTED says what is missing and how to install it. */
enum ax_status ax_gloo_available(void);

/* A fabric of the ranks of a store (parallel/job/store.h), which must outlive it. The first
 * communicator of some ranks connects them when it is opened, over the interface by which they
 * reach the store; later ones of the same ranks share these connections. No wait exceeds `timeout`
 * seconds. f->ops->free leaves the store, and f->ops->fail does so with the error.
 *
 * From then on SIGPIPE is ignored. All-reduces in flight at the same time are completed in the
 * order they were started. */
struct ax_store_client;
enum ax_status ax_gloo_open(struct ax_fabric *f, struct ax_store_client *store, int local_world,
                            double timeout);

#endif
