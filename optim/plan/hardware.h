/* Machines by their data sheets, as far as a plan of time knows them. */
#ifndef AX_OPTIM_PLAN_HARDWARE_H
#define AX_OPTIM_PLAN_HARDWARE_H

#include "base/status.h"

#define AX_HARDWARE_NAME 48

/* One GPU, and how it reaches others. Speeds are of data sheets, dense, in one direction. */
struct ax_hardware {
    char name[AX_HARDWARE_NAME];
    double bf16, fp8; /* FLOP/s of matrix products; fp8 0: none */
    double memory;    /* bytes */
    double bandwidth; /* bandwidth of its memory, bytes/s */
    double node_link; /* bytes/s to GPUs of its node, all links together */
    double network;   /* bytes/s to other nodes */
    double host;      /* bytes/s to and from the host's memory */
    int node;         /* GPUs that reach each other by node_link; 0: 8 */
    const char *source;
};

/* Finds a machine by name. AX_ERR_CONFIG names the nearest name, or lists all. */
enum ax_status ax_hardware_find(const char *name, struct ax_hardware *out);

#endif
