/* A window of elements is filled from all shards, run by run; then its blocks are finished. */
#include "ckpt/state/codes.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/quant/dynamic_map.h"

#define BLOCKS ((int64_t)256) /* of a window */

struct window {
    const struct ax_state_codes *to;
    const struct ax_dynamic_map *map;
    struct ax_block at;
    int64_t first, n; /* elements of the part */
    int64_t lead;     /* elements of the first block before them */
    int64_t filled;
    uint8_t code[BLOCKS * AX_8BIT_BLOCK];
    double value[BLOCKS * AX_8BIT_BLOCK];
    struct {
        const char *source; /* the scale of the block that all elements so far come from */
        bool mixed;
    } block[BLOCKS];
    double scale[BLOCKS];
};

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Elements of the first block that are before the part. */
static int64_t lead_of(const struct ax_state_codes *c) {
    return (c->scales->start[1] + c->codes->first) % AX_8BIT_BLOCK;
}

static int64_t blocks_of(int64_t elements) {
    return (elements + AX_8BIT_BLOCK - 1) / AX_8BIT_BLOCK;
}

enum ax_status ax_state_codes_check(const struct ax_state_codes *c) {
    const struct ax_state_part *scales = c->scales;
    if (scales->ndim == 3 && scales->start[1] < AX_8BIT_BLOCK &&
        scales->n == blocks_of(lead_of(c) + c->codes->n))
        return AX_OK;
    return ax_error(AX_ERR_DATA, "%s of %s does not fit its codes", c->scales->slot,
                    c->scales->name);
}

static double scale_at(const struct ax_state_codes *c, const char *bytes) {
    char aligned[sizeof(double)];
    memcpy(aligned, bytes, ax_dtype_size(c->scales->dtype));
    return ax_load(c->scales->dtype, aligned, 0);
}

/* n elements of a shard, from its element k on, are the window's from i on. */
static void fill_run(struct window *w, const struct ax_state_codes *from, int64_t i, int64_t k,
                     int64_t n) {
    const uint8_t *codes = from->code_bytes;
    const char *scales = from->scale_bytes;
    w->filled += n;
    for (int64_t take; n > 0; i += take, k += take, n -= take) {
        const int64_t is = lead_of(from) + k, will = w->lead + i;
        take = least(AX_8BIT_BLOCK - is % AX_8BIT_BLOCK, AX_8BIT_BLOCK - will % AX_8BIT_BLOCK);
        take = least(take, n);
        const char *source =
            scales + (size_t)(is / AX_8BIT_BLOCK) * ax_dtype_size(from->scales->dtype);
        const double scale = scale_at(from, source);
        const char **one = &w->block[will / AX_8BIT_BLOCK].source;
        w->block[will / AX_8BIT_BLOCK].mixed |= *one && *one != source;
        *one = source;
        w->scale[will / AX_8BIT_BLOCK] = scale;
        for (int64_t e = 0; e < take; e++) {
            w->code[i + e] = codes[k + e];
            w->value[i + e] = (double)w->map->value[codes[k + e]] * scale;
        }
    }
}

/* What the shard has of the window. */
static void fill_from(struct window *w, const struct ax_state_codes *from) {
    const struct ax_block is = ax_state_part_block(from->codes);
    struct ax_block_common c = ax_block_common(&w->at, w->first, w->n, &is);
    for (int64_t i, k, n; ax_block_next(&c, &i, &k, &n);)
        fill_run(w, from, i - w->first, k, n);
}

static void encode(struct window *w, int64_t block) {
    const int64_t first = block * AX_8BIT_BLOCK - w->lead, begin = first < 0 ? 0 : first;
    const int64_t end = least(first + AX_8BIT_BLOCK, w->n);
    double largest = 1e-12; /* as after an update */
    for (int64_t i = begin; i < end; i++)
        largest = fmax(largest, fabs(w->value[i]));
    ax_store(w->to->scales->dtype, &w->scale[block], 0, largest);
    w->scale[block] = largest = ax_load(w->to->scales->dtype, &w->scale[block], 0); /* rounded */
    for (int64_t i = begin; i < end; i++)
        w->code[i] = ax_dynamic_encode(w->map, (float)(w->value[i] / largest));
}

/* Finishes the blocks, and writes codes and scales; the first scale is the part's number `at`. */
static enum ax_status write_window(struct window *w, struct ax_queue *q, int64_t at) {
    const struct ax_state_part *codes = w->to->codes, *scales = w->to->scales;
    const size_t size = ax_dtype_size(scales->dtype);
    const int64_t n = blocks_of(w->lead + w->n);
    for (int64_t b = 0; b < n; b++)
        if (w->block[b].mixed)
            encode(w, b);
    char *packed = (char *)w->value; /* no longer needed */
    for (int64_t b = 0; b < n; b++)
        ax_store(scales->dtype, packed, b, w->scale[b]);
    AX_TRY(ax_queue_write(q, (char AX_DEVICE *)codes->data + w->first, w->code, (size_t)w->n));
    return ax_queue_write(q, (char AX_DEVICE *)scales->data + (size_t)at * size, packed,
                          (size_t)n * size);
}

enum ax_status ax_state_codes_copy(struct ax_queue *q, const struct ax_state_codes *to, size_t n,
                                   const struct ax_state_codes *from, int64_t *copied) {
    struct window *w;
    enum ax_status st = AX_OK;
    AX_TRY(ax_alloc(&w, 1, sizeof *w));
    w->to = to;
    w->map = to->codes->layout == AX_STATE_SIGNED_CODES ? &ax_dynamic_signed : &ax_dynamic_unsigned;
    w->at = ax_state_part_block(to->codes);
    w->lead = lead_of(to);
    for (int64_t block = 0; st == AX_OK && w->first < to->codes->n; block += BLOCKS) {
        w->n = least(BLOCKS * AX_8BIT_BLOCK - w->lead, to->codes->n - w->first);
        memset(w->block, 0, sizeof w->block);
        for (size_t i = 0; i < n; i++)
            fill_from(w, &from[i]);
        st = write_window(w, q, block);
        w->first += w->n;
        w->lead = 0;
    }
    *copied = w->filled;
    ax_free(w);
    return st;
}
