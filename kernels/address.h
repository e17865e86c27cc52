/* Marks what points to a device's memory. Host code passes such addresses on and computes with them,
 * but never follows them: that is the queue's (kernels/queue.h). `make check` compiles the modules
 * above kernels/ with AX_CHECK_DEVICE, where clang tells of each that is followed, or that loses the
 * mark without a cast. */
#ifndef AX_KERNELS_ADDRESS_H
#define AX_KERNELS_ADDRESS_H

#ifdef AX_CHECK_DEVICE
#define AX_DEVICE __attribute__((noderef))
#else
#define AX_DEVICE
#endif

#endif
