/* Counter RNG: value = f(seed, step, tensor, global index), so any rank, thread or recompute gets
 * the same bits for number i of tensor t at step s. Philox4x32-10 (Salmon et al. 2011). */
#ifndef AX_BASE_RNG_H
#define AX_BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct ax_rng_key {
    uint64_t seed;
    uint32_t step;
    uint32_t tensor; /* a stable id, e.g. ax_hash32 of the HF name */
};

/* Four words for counter block `index`. */
void ax_rng_block(struct ax_rng_key key, uint64_t index, uint32_t out[4]);
uint32_t ax_rng_u32(struct ax_rng_key key, uint64_t index);
float ax_rng_uniform(struct ax_rng_key key, uint64_t index); /* [0, 1), 24 bits */
/* Standard normal: Box–Muller on the two words of pair index/2. */
float ax_rng_normal(struct ax_rng_key key, uint64_t index);
/* n normal numbers, from index `first` on. */
void ax_rng_normals(struct ax_rng_key key, uint64_t first, int64_t n, float *out);
/* Uniform in [0, n), without bias. n ≥ 1. */
uint64_t ax_rng_below(struct ax_rng_key key, uint64_t index, uint64_t n);

/* Bytes of the system's that nobody can foresee, for keys, ids and names. AX_ERR_IO: it gives none. */
enum ax_status ax_random_bytes(void *out, size_t n);

#endif
