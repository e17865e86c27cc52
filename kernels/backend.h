/* Which backend computes: backends by their names, and what `device: auto|cuda|cpu` means on this machine. */
#ifndef AX_KERNELS_BACKEND_H
#define AX_KERNELS_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct ax_ops;

/* name: "ref", "cpu", "cuda", an instruction set that the cpu has ("avx2"), or a backend that was added.
 * AX_ERR_UNSUPPORTED: this machine or build has it not. AX_ERR_CONFIG lists the backends. */
enum ax_status ax_backend_find(const char *name, const struct ax_ops **ops);
/* The i-th of ref, cpu and cuda; NULL after the last. */
const char *ax_backend_name(size_t i);
/* From now on `ops` are found by their name. Once, for tests: the product has no such backend. */
void ax_backend_add(const struct ax_ops *ops);

/* The backend's name for ax_queue_create, a literal. NULL and "auto": what AXTRAIN_DEVICE says, or else
 * cuda where a GPU can be used, or else cpu; if there is a GPU all the same (ax_bus_has_nvidia), the log says why it
 * is not used. "cuda": or AX_ERR_UNSUPPORTED says what is missing; a plan needs no GPU. AX_ERR_CONFIG:
 * another word. */
enum ax_status ax_backend_choose(const char *device, bool only_plans, const char **backend);
/* True if an NVIDIA GPU is on the PCI bus, whether or not it can be used. AX_PCI_DEVICES, for tests, is a folder in
 * place of /sys/bus/pci/devices. */
bool ax_bus_has_nvidia(void);
/* The i-th word that `device` may be; NULL after the last. */
const char *ax_device_word(size_t i);
/* The GPUs of this host that `device` may compute on, one per rank; 0: it computes elsewhere, or cannot. */
int ax_backend_gpus(const char *device);
/* False for cuda where a GPU cannot be used: there it only plans. */
bool ax_backend_runs(const char *backend);
/* Free bytes where the backend computes, for each of `ranks` ranks on this host; 0 = unknown. Memory that
 * others use does not count. They share the host's; a GPU is one rank's, as NCCL refuses two on one. */
uint64_t ax_backend_memory(const char *backend, int ranks);
/* Bytes that a rank takes there beside what it plans, about: with `groups` groups of ranks whose transfers move
 * the device's memory. "sheet": a GPU by its data sheet. */
uint64_t ax_backend_beside(const char *backend, int groups);
/* True if it trains faster in bfloat16. */
bool ax_backend_prefers_bf16(const char *backend);

#endif
