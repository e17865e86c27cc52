/* Which instruction set this process uses. */
#ifndef AX_KERNELS_CPU_ISA_H
#define AX_KERNELS_CPU_ISA_H

#include <stdbool.h>

enum ax_cpu_isa { AX_CPU_NONE, AX_CPU_AVX2, AX_CPU_AVX512, AX_CPU_AVX512BF16 };

/* By cpuid and xgetbv (whether the OS saves the registers), once; then lowered by the environment
 * variable AXTRAIN_CPU=avx2|avx512|avx512bf16. NONE: lacks AVX2, FMA or F16C. */
enum ax_cpu_isa ax_cpu_isa(void);
const char *ax_cpu_isa_name(enum ax_cpu_isa isa); /* "avx512bf16" */
bool ax_cpu_has_bf16(void);                       /* computes in BF16 rather than converting */

#endif
