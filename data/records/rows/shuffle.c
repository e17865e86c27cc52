/* R. Durstenfeld, "Algorithm 235: Random permutation", 1964, from the top down. */
#include "data/records/rows/shuffle.h"

#include "base/hash/hash.h"
#include "base/mem.h"
#include "base/rng.h"

enum ax_status ax_shuffled(uint32_t **out, size_t n, struct ax_shuffle_key key) {
    if (n > UINT32_MAX)
        return ax_error(AX_ERR_DATA, "cannot shuffle %zu records; at most 2^32 − 1 are supported",
                        n);
    uint32_t *order;
    AX_TRY(ax_alloc(&order, n, sizeof *order));
    for (size_t i = 0; i < n; i++)
        order[i] = (uint32_t)i;
    const struct ax_rng_key rng = {
        .seed = key.seed, .step = key.epoch, .tensor = ax_hash32(key.what)};
    for (size_t i = n; i > 1; i--) {
        const size_t j = (size_t)ax_rng_below(rng, i, i);
        const uint32_t swapped = order[i - 1];
        order[i - 1] = order[j];
        order[j] = swapped;
    }
    *out = order;
    return AX_OK;
}

int64_t ax_shard_start(int64_t n, int64_t n_shards, int64_t shard) {
    const int64_t each = n / n_shards;
    const int64_t longer = n % n_shards;
    return shard * each + (shard < longer ? shard : longer);
}
