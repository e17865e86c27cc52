/* The fabric of GPUs: NCCL moves tensors from device to device. What the host tells other ranks goes over
 * the host's fabric, which also brings the groups' names round. */
#ifndef AX_PARALLEL_FABRIC_COMM_NCCL_H
#define AX_PARALLEL_FABRIC_COMM_NCCL_H

#include "parallel/fabric/fabric.h"

/* Beside `host`, which must outlive it, as `memory` must, which contains all that collectives move on GPUs.
 * Communicators of `roles` (bits) are NCCL's from the beginning, those of others when their first collective on a
 * GPU starts: NCCL takes memory and time for each. After the host's timeout transfers are given up, and what
 * is started afterwards is AX_ERR_PEER. Collectives on a queue of the host's memory use the host's fabric. */
enum ax_status ax_nccl_fabric_open(struct ax_fabric *f, struct ax_fabric *host,
                                   const struct ax_memory *memory, unsigned roles);

#endif
