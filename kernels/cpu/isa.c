/* Finds out what the processor has (x86: by cpuid) and selects the op table. */
#include "kernels/cpu/isa.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "kernels/cpu/tile_check.h"
#include "kernels/ops.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* vec/table.c, vec/table_tiles.c */
#if defined(__x86_64__)
extern const struct ax_ops ax_ops_cpu_avx2, ax_ops_cpu_avx512, ax_ops_cpu_avx512bf16,
    ax_ops_cpu_amx, ax_ops_cpu_amx_emulated;
#else
extern const struct ax_ops ax_ops_cpu_neon;
#endif

/* Those of other processors are not in this build. */
static const struct ax_ops *const tables[AX_CPU_ISAS] = {
#if defined(__x86_64__)
    [AX_CPU_AVX2] = &ax_ops_cpu_avx2,
    [AX_CPU_AVX512] = &ax_ops_cpu_avx512,
    [AX_CPU_AVX512BF16] = &ax_ops_cpu_avx512bf16,
    [AX_CPU_AMX] = &ax_ops_cpu_amx,
    [AX_CPU_AMX_EMULATED] = &ax_ops_cpu_amx_emulated,
#else
    [AX_CPU_NEON] = &ax_ops_cpu_neon,
#endif
};

static const char *const names[AX_CPU_ISAS] = {
    [AX_CPU_NONE] = "none",     [AX_CPU_AVX2] = "avx2",
    [AX_CPU_AVX512] = "avx512", [AX_CPU_AVX512BF16] = "avx512bf16",
    [AX_CPU_AMX] = "amx",       [AX_CPU_AMX_EMULATED] = "amx-emulated",
    [AX_CPU_NEON] = "neon",
};

const char *ax_cpu_isa_name(enum ax_cpu_isa isa) {
    return names[isa];
}

#if defined(__x86_64__)

/* Registers the operating system saves: bits 1–2 SSE and AVX, 5–7 the AVX-512 state, 17–18 tiles. */
static unsigned saved_state(void) {
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static bool has(unsigned reg, unsigned bits) {
    return (reg & bits) == bits;
}

/* Linux saves tiles only for processes that ask for it, which holds for all their threads. */
static bool may_use_tiles(void) {
    const long request_permission = 0x1023, tile_data = 18; /* ARCH_REQ_XCOMP_PERM */
    return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
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
    const unsigned avx512_bf16 = 1u << 5, amx_bf16_and_tile = 1u << 22 | 1u << 24;
    const bool amx = has(d, amx_bf16_and_tile) && has(saved_state(), 0x600e6);
    if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || !has(a, avx512_bf16))
        return AX_CPU_AVX512;
    return amx && may_use_tiles() ? AX_CPU_AMX : AX_CPU_AVX512BF16;
}

static bool tiles_are_right(void) {
    return ax_tile_products_agree(ax_cpu_tile_product_amx, ax_cpu_tile_product_amx_emulated);
}

/* Twelve letters: ebx, edx, ecx. */
static void read_vendor(char name[13]) {
    unsigned a, b = 0, c = 0, d = 0;
    __get_cpuid(0, &a, &b, &c, &d);
    memcpy(name, &b, 4);
    memcpy(name + 4, &d, 4);
    memcpy(name + 8, &c, 4);
    name[12] = '\0';
}

#else

static enum ax_cpu_isa detect(void) {
    return AX_CPU_NEON; /* all processors of 64 bits have it */
}

static bool tiles_are_right(void) {
    return false; /* there are none */
}

static void read_vendor(char name[13]) {
    *name = '\0';
}

#endif

const char ax_cpu_wrong_tiles[] =
    "amx is not used: this machine's tiles do not give the bits of the manual's formula "
    "(AXTRAIN_CPU=amx uses them nevertheless)";

static enum ax_cpu_isa best, standard, chosen;
static const char *unknown; /* AXTRAIN_CPU, if it cannot be chosen */

/* A set includes those before it; emulated tiles need what AMX comes with. NEON is alone. */
static bool best_has(enum ax_cpu_isa isa) {
    if (isa == AX_CPU_NEON || best == AX_CPU_NEON)
        return isa == best;
    return isa == AX_CPU_AMX_EMULATED ? best >= AX_CPU_AVX512BF16 : isa <= best;
}

enum ax_cpu_isa ax_cpu_standard_isa(enum ax_cpu_isa best_isa, bool right_tiles) {
    return best_isa == AX_CPU_AMX && !right_tiles ? AX_CPU_AVX512BF16 : best_isa;
}

static void choose(void) {
    const char *name = getenv("AXTRAIN_CPU");
    best = detect();
    chosen = standard = ax_cpu_standard_isa(best, best == AX_CPU_AMX && tiles_are_right());
    if (name == NULL || *name == '\0') {
        if (standard != best)
            ax_log_warn("%s", ax_cpu_wrong_tiles);
        return;
    }
    unknown = name;
    for (int i = AX_CPU_AVX2; i < AX_CPU_ISAS; i++) {
        if (strcmp(name, names[i]) == 0 && best_has((enum ax_cpu_isa)i)) {
            chosen = (enum ax_cpu_isa)i;
            unknown = NULL;
        }
    }
}

static void choose_once(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, choose);
}

enum ax_cpu_isa ax_cpu_isa(void) {
    choose_once();
    return chosen;
}

bool ax_cpu_has(enum ax_cpu_isa isa) {
    choose_once();
    return best_has(isa);
}

enum ax_status ax_cpu_check(void) {
    choose_once();
    if (unknown == NULL)
        return AX_OK;
    char here[128] = "";
    size_t used = 0;
    for (int i = AX_CPU_AVX2; i < AX_CPU_ISAS; i++)
        if (best_has((enum ax_cpu_isa)i))
            used += (size_t)snprintf(here + used, sizeof here - used, "%s%s", used > 0 ? ", " : "",
                                     names[i]);
    return ax_error(AX_ERR_CONFIG,
                    "AXTRAIN_CPU: expected an instruction set of this machine (%s), got \"%s\"",
                    used > 0 ? here : "none", unknown);
}

bool ax_cpu_has_bf16(void) {
    return ax_cpu_isa() >= AX_CPU_AVX512BF16 && ax_cpu_isa() != AX_CPU_NEON;
}

enum ax_cpu_isa ax_cpu_default_isa(void) {
    choose_once();
    return standard;
}

/* Measured (docs/results/gemm.md). On Intel products of BF16 pairs are slower than float32's, unless
 * on tiles; sets without such products convert first. */
static const struct {
    const char *vendor; /* NULL: any */
    enum ax_cpu_isa isa;
} bf16_is_faster[] = {
    {"AuthenticAMD", AX_CPU_AVX512BF16},
    {NULL, AX_CPU_AMX},
    {NULL, AX_CPU_AMX_EMULATED}, /* tests train as on tiles */
};

bool ax_cpu_bf16_is_faster(const char *vendor, enum ax_cpu_isa isa) {
    for (size_t i = 0; i < sizeof bf16_is_faster / sizeof *bf16_is_faster; i++)
        if (bf16_is_faster[i].isa == isa &&
            (!bf16_is_faster[i].vendor || strcmp(bf16_is_faster[i].vendor, vendor) == 0))
            return true;
    return false;
}

bool ax_cpu_prefers_bf16(enum ax_cpu_isa isa) {
    char vendor[13];
    read_vendor(vendor);
    return ax_cpu_bf16_is_faster(vendor, isa);
}

const struct ax_ops *ax_cpu_ops(enum ax_cpu_isa isa) {
    return tables[isa];
}

const struct ax_ops *ax_ops_cpu(void) {
    return ax_cpu_ops(ax_cpu_isa());
}
