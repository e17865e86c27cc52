/* The devices plugged into this machine, whether or not they can be used. */
#ifndef AX_KERNELS_BUS_H
#define AX_KERNELS_BUS_H

#include <stdbool.h>

/* True if an NVIDIA GPU is on the PCI bus. AX_PCI_DEVICES, for tests, is a folder in place of
 * /sys/bus/pci/devices. */
bool ax_bus_has_nvidia(void);

#endif
