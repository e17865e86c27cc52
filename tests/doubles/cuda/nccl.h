/* For tests: what the stand-in for NCCL has seen of groups, and of registered memory. */
#ifndef AX_TESTS_DOUBLES_CUDA_NCCL_H
#define AX_TESTS_DOUBLES_CUDA_NCCL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* From now on, registering fails on this rank of each group; −1: on none. */
void ax_emulated_refuse(int rank);
/* How many ranks have joined a group, once per group, since the last call. */
uint64_t ax_emulated_members(void);
/* How many buffers of transfers of all ranks were registered, and how many not, since the last call. */
void ax_emulated_transfers(uint64_t *registered, uint64_t *others);

#ifdef __cplusplus
}
#endif

#endif
