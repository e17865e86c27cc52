/* Reads cpuid and selects the op table. */
#include "kernels/cpu/isa.h"

#include <cpuid.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "kernels/ops.h"

static const char *const names[] = {"none", "avx2", "avx512", "avx512bf16"};
#define N_ISAS (int)(sizeof names / sizeof *names)

const char *ax_cpu_isa_name(enum ax_cpu_isa isa) {
    return names[isa];
}

/* Registers the operating system saves: bits 1–2 SSE and AVX, 5–7 the AVX-512 state. */
static unsigned saved_state(void) {
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static bool has(unsigned reg, unsigned bits) {
    return (reg & bits) == bits;
}

static enum ax_cpu_isa detect(void) {
    unsigned a, b, c, d;
    const unsigned xsave_avx_fma_f16c = bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !has(c, xsave_avx_fma_f16c) || !has(saved_state(), 0x06))
        return AX_CPU_NONE;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !has(b, bit_AVX2))
        return AX_CPU_NONE;
    const unsigned avx512 = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
    if (!has(b, avx512) || !has(saved_state(), 0xe6))
        return AX_CPU_AVX2;
    const unsigned avx512_bf16 = 1u << 5;
    if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || !has(a, avx512_bf16))
        return AX_CPU_AVX512;
    return AX_CPU_AVX512BF16;
}

/* AXTRAIN_CPU can only lower the instruction set; an unknown value is ignored with a warning. */
static enum ax_cpu_isa masked(enum ax_cpu_isa isa) {
    const char *mask = getenv("AXTRAIN_CPU");
    if (mask == NULL || *mask == '\0')
        return isa;
    for (int i = AX_CPU_AVX2; i < N_ISAS; i++)
        if (strcmp(mask, names[i]) == 0)
            return i < (int)isa ? (enum ax_cpu_isa)i : isa;
    ax_log_warn("AXTRAIN_CPU=%s is not one of avx2, avx512, avx512bf16; ignored", mask);
    return isa;
}

static enum ax_cpu_isa chosen;

static void choose(void) {
    chosen = masked(detect());
}

enum ax_cpu_isa ax_cpu_isa(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, choose);
    return chosen;
}

bool ax_cpu_has_bf16(void) {
    return ax_cpu_isa() == AX_CPU_AVX512BF16;
}

extern const struct ax_ops ax_ops_cpu_avx2, ax_ops_cpu_avx512,
    ax_ops_cpu_avx512bf16; /* vec/table.c */

const struct ax_ops *ax_ops_cpu(void) {
    static const struct ax_ops *const tables[] = {NULL, &ax_ops_cpu_avx2, &ax_ops_cpu_avx512,
                                                  &ax_ops_cpu_avx512bf16};
    return tables[ax_cpu_isa()];
}
