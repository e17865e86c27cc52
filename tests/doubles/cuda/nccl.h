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

/* The least number of seconds from a transfer's call, which is in progress when it returns, to its rank's first
 * look whether it is through; since the last call. Infinite: no rank has looked. */
double ax_emulated_first_look(void);

#ifdef __cplusplus
}
#endif

#endif
