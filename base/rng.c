/* Philox4x32-10: J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2,
 * 3", SC 2011. Counter = (index, step, tensor), key = seed. */
#include "base/rng.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/random.h>

void ax_rng_block(struct ax_rng_key key, uint64_t index, uint32_t out[4]) {
    uint32_t c0 = (uint32_t)index;
    uint32_t c1 = (uint32_t)(index >> 32);
    uint32_t c2 = key.step;
    uint32_t c3 = key.tensor;
    uint32_t k0 = (uint32_t)key.seed;
    uint32_t k1 = (uint32_t)(key.seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53U * c0;
        uint64_t p1 = (uint64_t)0xCD9E8D57U * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        uint32_t n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9U; /* golden ratio */
        k1 += 0xBB67AE85U; /* sqrt(3) - 1 */
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* Number `index` of the tensor's stream: word index mod 4 of block index / 4. */
uint32_t ax_rng_u32(struct ax_rng_key key, uint64_t index) {
    uint32_t w[4];
    ax_rng_block(key, index / 4, w);
    return w[index % 4];
}

float ax_rng_uniform(struct ax_rng_key key, uint64_t index) {
    return (float)(ax_rng_u32(key, index) >> 8) * 0x1p-24F;
}

/* In double: float log and cos differ between math libraries, doubles rounded to float do not
 * in practice. */
/* The cosine (turn 0) or sine (1) of the Box-Muller pair at w. */
static float box_muller(const uint32_t *w, uint64_t turn) {
    const double u = ((double)w[0] + 1.0) * 0x1p-32; /* (0, 1], so that the logarithm is finite */
    const double angle = 6.283185307179586477 * (double)w[1] * 0x1p-32;
    const double radius = sqrt(-2.0 * log(u));
    return (float)(radius * (turn == 0 ? cos(angle) : sin(angle)));
}

float ax_rng_normal(struct ax_rng_key key, uint64_t index) {
    uint32_t w[4];
    ax_rng_block(key, index / 4, w);
    return box_muller(w + (index % 4 & 2U), index % 2);
}

void ax_rng_normals(struct ax_rng_key key, uint64_t first, int64_t n, float *out) {
    uint32_t w[4];
    for (int64_t i = 0; i < n; i++) {
        const uint64_t index = first + (uint64_t)i;
        if (i == 0 || index % 4 == 0)
            ax_rng_block(key, index / 4, w);
        out[i] = box_muller(w + (index % 4 & 2U), index % 2);
    }
}

/* D. Lemire, "Fast random integer generation in an interval", 2019: the high word of x·n, rejecting
 * low words below 2^64 mod n. Every rejection moves to another key, because neighboring blocks
 * belong to other numbers. */
uint64_t ax_rng_below(struct ax_rng_key key, uint64_t index, uint64_t n) {
    AX_ASSERT(n >= 1);
    uint64_t refused = (0 - n) % n;
    for (;;) {
        uint32_t w[4];
        ax_rng_block(key, index, w);
        uint64_t x = (uint64_t)w[1] << 32 | w[0];
        __extension__ unsigned __int128 product = (unsigned __int128)x * n;
        if ((uint64_t)product >= refused)
            return (uint64_t)(product >> 64);
        key.seed += 0x9E3779B97F4A7C15U;
    }
}

enum ax_status ax_random_bytes(void *out, size_t n) {
    size_t got = 0;
    while (got < n) {
        const ssize_t r = getrandom((char *)out + got, n - got, 0);
        if (r < 0 && errno != EINTR)
            return ax_error(AX_ERR_IO, "the system gives no random numbers: %s", strerror(errno));
        got += r > 0 ? (size_t)r : 0;
    }
    return AX_OK;
}
