/* base/rng.h's numbers, a register of counter blocks at a time. */
#ifndef AX_KERNELS_CPU_VEC_PHILOX_H
#define AX_KERNELS_CPU_VEC_PHILOX_H

#include "base/rng.h"
#include "kernels/cpu/vec/simd_int.h"

/* Room for the words of n numbers, wherever they start. */
#define RANDOM_ROOM(n) ((n) + 5 * AX_LANES)

/* AX_LANES blocks of four words from `block` on, in the order of the numbers. */
AX_INLINE void random_blocks(struct ax_rng_key key, uint64_t block, uint32_t *words) {
    uint32_t low[AX_LANES], high[AX_LANES];
    for (int lane = 0; lane < AX_LANES; lane++) {
        low[lane] = (uint32_t)(block + (uint64_t)lane);
        high[lane] = (uint32_t)((block + (uint64_t)lane) >> 32);
    }
    v_int c0 = v_load_int(low), c1 = v_load_int(high);
    v_int c2 = v_set_int(key.step), c3 = v_set_int(key.tensor);
    uint32_t k0 = (uint32_t)key.seed, k1 = (uint32_t)(key.seed >> 32);
    for (int round = 0; round < 10; round++) {
        v_int high0, low0, high1, low1;
        v_mul_wide(c0, 0xD2511F53u, &high0, &low0);
        v_mul_wide(c2, 0xCD9E8D57u, &high1, &low1);
        c0 = v_xor(v_xor(high1, c1), v_set_int(k0));
        c2 = v_xor(v_xor(high0, c3), v_set_int(k1));
        c1 = low1;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    uint32_t by_word[4][AX_LANES];
    v_store_int(by_word[0], c0);
    v_store_int(by_word[1], c1);
    v_store_int(by_word[2], c2);
    v_store_int(by_word[3], c3);
    for (int lane = 0; lane < AX_LANES; lane++) {
        for (int w = 0; w < 4; w++) {
            words[4 * lane + w] = by_word[w][lane];
        }
    }
}

/* Where in words[RANDOM_ROOM(n)] number `first` is; those behind it follow. */
static inline const uint32_t *random_words(struct ax_rng_key key, int64_t first, int64_t n,
                                           uint32_t *words) {
    int64_t skip = first % 4;
    for (int64_t done = 0; done < n + skip; done += 4 * AX_LANES) {
        random_blocks(key, (uint64_t)((first + done) / 4), words + done);
    }
    return words + skip;
}

#endif
