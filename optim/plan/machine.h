/* The machine of a plan of time. */
#ifndef AX_OPTIM_PLAN_MACHINE_H
#define AX_OPTIM_PLAN_MACHINE_H

#include "optim/plan/hardware.h"
#include "parallel/runtime.h"

/* A name of optim/plan/hardware.h, or FILE.tsv[:NAME] with the columns name, bf16_fp16_dense_tflops,
 * fp8_dense_tflops (may be empty), memory_gib, hbm_gb_s, nvlink_gb_s_per_direction_per_gpu (0: PCIe),
 * internode_gbit_s_per_gpu, and perhaps gpus_per_node (default 8) and host_gb_s (default 31, PCIe 4.0).
 * AX_ERR_CONFIG names what is missing. */
enum ax_status ax_plan_hardware(const char *text, struct ax_hardware *h);
/* This machine's products and memory, about 0.5 s; memory is 0: unknown. */
enum ax_status ax_plan_measure(const struct ax_runtime_options *here, enum ax_dtype dtype,
                               struct ax_hardware *h);

#endif
