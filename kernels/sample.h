/* Shared by the backends' `sample`: which steps are enabled, and the random number of a row. */
#ifndef AX_KERNELS_SAMPLE_H
#define AX_KERNELS_SAMPLE_H

#include <string.h>

#include "base/hash/hash.h"
#include "base/rng.h"
#include "kernels/ops.h"

#define AX_SAMPLE_KEY 4 /* words of a row's key: stream and position, low words first */

static inline void ax_sample_key(uint64_t stream, int64_t position, int32_t out[AX_SAMPLE_KEY]) {
    const uint64_t at = (uint64_t)position;
    out[0] = (int32_t)(uint32_t)stream;
    out[1] = (int32_t)(uint32_t)(stream >> 32);
    out[2] = (int32_t)(uint32_t)at;
    out[3] = (int32_t)(uint32_t)(at >> 32);
}

/* Uniform in [0, 1), 53 bits: of seed, stream and position only. */
static inline double ax_sample_uniform(uint64_t seed, const int32_t key[AX_SAMPLE_KEY]) {
    uint32_t w[4];
    const struct ax_rng_key k = {
        .seed = seed, .step = (uint32_t)key[0], .tensor = (uint32_t)key[1] ^ ax_hash32("sample")};
    ax_rng_block(k, (uint64_t)(uint32_t)key[3] << 32 | (uint32_t)key[2], w);
    return (double)((uint64_t)w[0] << 21 | w[1] >> 11) * 0x1p-53;
}

static inline bool ax_sample_penalises(const struct ax_sample *a) {
    return a->repetition_penalty > 0 && a->repetition_penalty != 1;
}

static inline double ax_sample_penalised(const struct ax_sample *a, double z) {
    return z < 0 ? z * a->repetition_penalty : z / a->repetition_penalty;
}

static inline bool ax_sample_by_k(const struct ax_sample *a) {
    return a->top_k > 0 && a->top_k < a->logits.shape[1];
}

static inline bool ax_sample_by_p(const struct ax_sample *a) {
    return a->top_p > 0 && a->top_p < 1;
}

static inline bool ax_sample_filters(const struct ax_sample *a) {
    return ax_sample_by_k(a) || ax_sample_by_p(a) || a->min_p > 0;
}

/* The filters alone, of whole rows. */
static inline struct ax_sample ax_truncate_sample(const struct ax_truncate *a) {
    struct ax_sample as;
    memset(&as, 0, sizeof as);
    as.logits = a->all;
    as.temperature = a->temperature;
    as.top_k = a->top_k;
    as.top_p = a->top_p;
    as.min_p = a->min_p;
    return as;
}

/* The distinct tokens of row t's context, and their number. */
static inline const int32_t *ax_sample_context(const struct ax_sample *a, int64_t t, int64_t *n) {
    const int32_t *c = (const int32_t *)ax_tensor_row(&a->context, t);
    for (*n = 0; *n < a->context.shape[1] && c[*n] >= 0;)
        ++*n;
    return c;
}

#endif
