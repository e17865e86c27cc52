/* Which instruction set this process uses. */
#ifndef AX_KERNELS_CPU_ISA_H
#define AX_KERNELS_CPU_ISA_H

#include <stdbool.h>

#include "base/status.h"

struct ax_ops;

/* AMX: products of bf16 on tiles, all else as AVX512BF16. AMX_EMULATED: the same bits without tiles,
 * for tests; slow. NEON: 64-bit ARM's; the others are x86's. */
enum ax_cpu_isa {
    AX_CPU_NONE,
    AX_CPU_AVX2,
    AX_CPU_AVX512,
    AX_CPU_AVX512BF16,
    AX_CPU_AMX,
    AX_CPU_AMX_EMULATED,
    AX_CPU_NEON,
    AX_CPU_ISAS
};

/* The set that the environment variable AXTRAIN_CPU names, or ax_cpu_default_isa; once. NONE: x86
 * without AVX2, FMA or F16C. */
enum ax_cpu_isa ax_cpu_isa(void);
/* An error if AXTRAIN_CPU names a set that does not exist or that this machine lacks; ax_cpu_isa is
 * then the default. */
enum ax_status ax_cpu_check(void);
bool ax_cpu_has(enum ax_cpu_isa isa);             /* this machine, whatever AXTRAIN_CPU is */
const char *ax_cpu_isa_name(enum ax_cpu_isa isa); /* "avx512bf16" */
bool ax_cpu_has_bf16(void);                       /* computes in BF16 rather than converting */
/* This machine looks bytes up in registers, which not all with BF16 do. */
static inline bool ax_cpu_has_vbmi(void) {
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx512vbmi");
#else
    return false;
#endif
}
/* Training with this set is faster in BF16 than in float32: by a table, never timed. */
bool ax_cpu_prefers_bf16(enum ax_cpu_isa isa);
bool ax_cpu_bf16_is_faster(const char *vendor, enum ax_cpu_isa isa); /* vendor: as cpuid names it */
/* The set used if AXTRAIN_CPU is unset: the best that this machine has, by cpuid and xgetbv
 * (whether the OS saves the registers); AMX only if its tiles compute correctly (tile_check.h). */
enum ax_cpu_isa ax_cpu_default_isa(void);
/* the rule alone */
enum ax_cpu_isa ax_cpu_standard_isa(enum ax_cpu_isa best_isa, bool right_tiles);
/* The message when they do not: AMX is present, and is not the default. */
extern const char ax_cpu_wrong_tiles[];
/* The op table of an instruction set; NULL: none. */
const struct ax_ops *ax_cpu_ops(enum ax_cpu_isa isa);

#endif
