/* Orders that depend only on a seed: the same on every machine, mesh and thread count. */
#ifndef AX_DATA_RECORDS_ROWS_SHUFFLE_H
#define AX_DATA_RECORDS_ROWS_SHUFFLE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct ax_shuffle_key {
    uint64_t seed;
    uint32_t epoch;
    const char *what; /* orders for different purposes are unrelated */
};

/* *out = a random permutation of 0 … n − 1 (Fisher–Yates over the counter RNG); free with ax_free.
 * AX_ERR_DATA for n beyond 2^32 − 1. */
enum ax_status ax_shuffled(uint32_t **out, size_t n, struct ax_shuffle_key key);

/* First of the n records of a shard, when split into n_shards contiguous runs whose lengths differ
 * by at most one, longer ones first. */
int64_t ax_shard_start(int64_t n, int64_t n_shards, int64_t shard);

#endif
