/* The backend `far`: the cpu ops (ref without AVX2) on memory that the host cannot touch, done as late as
 * possible, on another thread. Every test has it, and finds it by its name. Whatever follows a device address
 * on the host crashes here; whatever does not wait for a result reads the old one. Bits equal cpu's. */
#ifndef AX_TESTS_DOUBLES_FAR_H
#define AX_TESTS_DOUBLES_FAR_H

#include "kernels/device.h"

extern const struct ax_device ax_device_far;

#endif
