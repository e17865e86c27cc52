/* The fabric of GPUs: NCCL moves tensors from device to device. Host data, and the ids with which
 * NCCL connects groups, travel over the host's fabric. */
#ifndef AX_PARALLEL_FABRIC_COMM_NCCL_H
#define AX_PARALLEL_FABRIC_COMM_NCCL_H

#include "parallel/fabric/fabric.h"

/* Opens the fabric beside `host`. `host` and `memory` must outlive it; `memory` contains everything
 * that collectives move on GPUs. Communicators of `roles` (bits) use NCCL from the beginning,
 * others from their first collective on a GPU: NCCL takes memory and time for each. After the
 * host's timeout transfers are abandoned, and whatever is started afterwards fails with
 * AX_ERR_PEER. Collectives on a queue of the host's memory use the host's fabric. */
enum ax_status ax_nccl_fabric_open(struct ax_fabric *f, struct ax_fabric *host,
                                   const struct ax_memory *memory, unsigned roles);

#endif
