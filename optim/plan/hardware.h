/* Machines by their data sheets, as far as a plan of time knows them. */
#ifndef AX_OPTIM_PLAN_HARDWARE_H
#define AX_OPTIM_PLAN_HARDWARE_H

#include "base/status.h"
#include "parallel/runtime.h"

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
    int node;         /* GPUs that reach each other by node_link */
    const char *source;
    int gpu; /* NVIDIA's compute capability, 90 for 9.0; 0: unknown */
};

/* The i-th machine's name; NULL after the last. */
const char *ax_hardware_name(size_t i);
/* Finds a machine by name. AX_ERR_CONFIG names the nearest name, or lists all. */
enum ax_status ax_hardware_find(const char *name, struct ax_hardware *out);

/* By the capability, or, of a row of a file, by the name. */
bool ax_hardware_is_hopper(const struct ax_hardware *h);

/* A name, or FILE.tsv[:NAME] with the columns name, bf16_fp16_dense_tflops,
 * fp8_dense_tflops (may be empty), memory_gib, hbm_gb_s, nvlink_gb_s_per_direction_per_gpu (0: PCIe),
 * internode_gbit_s_per_gpu, and perhaps gpus_per_node (default 8) and host_gb_s (default 31, PCIe 4.0).
 * AX_ERR_CONFIG names what is missing. */
enum ax_status ax_plan_hardware(const char *text, struct ax_hardware *h);
/* This machine's products, which h->bf16 has whatever the dtype, and its memory's speed, about 0.5 s; memory is 0:
 * unknown. */
enum ax_status ax_plan_measure(const struct ax_runtime_options *here, enum ax_dtype dtype,
                               struct ax_hardware *h);

#endif
