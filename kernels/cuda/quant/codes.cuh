/* Values of packed numbers, without the scale of their block. Each way that codes are in memory has a struct: with
 * `load`, of a group of eight neighbors, `load_two`, of two groups, which follow each other, `values`, which makes
 * numbers of a group, and `value_at`, of one element. */
#ifndef AX_KERNELS_CUDA_QUANT_CODES_CUH
#define AX_KERNELS_CUDA_QUANT_CODES_CUH

#include "kernels/cuda/vector.cuh"

extern "C" {
#include "kernels/quant/quant_block.h"
#include "kernels/quant/scheme.h"
}

/* A table in shared memory, where threads read different elements at a time. All threads. */
template <class Table> __device__ static inline const Table &share(const Table &table) {
    AX_SHARED(Table, shared, [1]);
    for (int i = threadIdx.x; i < (int)(sizeof table / sizeof(float)); i += blockDim.x)
        ((float *)shared)[i] = ((const float *)&table)[i];
    __syncthreads();
    return shared[0];
}

/* Two codes of four bits in a byte, the first one above: NF4, INT4X2. 16 banks have the table, so that threads read it
 * at the same time. */
struct half_codes {
    float table[16];
    typedef uint32_t group;
    __device__ static group load(const uint8_t *codes, int64_t g) {
        return __ldca((const uint32_t *)codes + g);
    }
    __device__ static void load_two(const uint8_t *codes, int64_t g, group (&two)[2]) {
        const uint2 v = __ldg((const uint2 *)((const uint32_t *)codes + g));
        two[0] = v.x;
        two[1] = v.y;
    }
    __device__ void values(group from, float (&v)[AX_NEIGHBORS]) const {
        AX_UNROLL
        for (int i = 0; i < 4; i++) {
            v[2 * i] = table[from >> (8 * i + 4) & 15];
            v[2 * i + 1] = table[from >> 8 * i & 15];
        }
    }
    __device__ float value_at(const uint8_t *codes, int64_t i) const {
        return table[i % 2 == 0 ? codes[i / 2] >> 4 : codes[i / 2] & 15];
    }
};

/* A byte each. */
template <class Codes> struct byte_codes {
    typedef uint2 group;
    __device__ static group load(const uint8_t *codes, int64_t g) {
        return __ldca((const uint2 *)codes + g);
    }
    __device__ static void load_two(const uint8_t *codes, int64_t g, group (&two)[2]) {
        const uint4 v = __ldg((const uint4 *)((const uint2 *)codes + g));
        two[0] = {v.x, v.y};
        two[1] = {v.z, v.w};
    }
    __device__ void values(const group &from, float (&v)[AX_NEIGHBORS]) const {
        AX_UNROLL
        for (int i = 0; i < 4; i++) {
            v[i] = ((const Codes *)this)->value(from.x >> 8 * i & 255);
            v[4 + i] = ((const Codes *)this)->value(from.y >> 8 * i & 255);
        }
    }
    __device__ float value_at(const uint8_t *codes, int64_t i) const {
        return ((const Codes *)this)->value(codes[i]);
    }
};
struct integer_codes : byte_codes<integer_codes> { /* INT8, INT4 */
    __device__ static float
    value(uint32_t code) { /* 2²³ + 128 + the integer, exactly, is a float's bits */
        return __uint_as_float(0x4b000000u | (code ^ 0x80u)) - 8388736.0f;
    }
};
struct e4m3_codes : byte_codes<e4m3_codes> {
    __device__ static float value(uint32_t code) {
        return ax_e4m3_value(code);
    }
};
struct map8_codes : byte_codes<map8_codes> {
    float table[256];
    __device__ float value(uint32_t code) const {
        return table[code];
    }
};
struct any_codes : byte_codes<any_codes> {
    enum ax_quant kind;
    __device__ float value(uint32_t code) const {
        return ax_quant_of_code(kind, code);
    }
};

static inline half_codes half_codes_of(enum ax_quant kind) {
    half_codes c;
    memcpy(c.table, ax_quant_info(kind)->values, sizeof c.table);
    return c;
}

#endif
