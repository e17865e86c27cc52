#include "ckpt/tensors/block.h"

struct ax_block ax_block_whole(int ndim, const int64_t *shape) {
    struct ax_block b = {.ndim = ndim, .n = 1};
    for (int d = 0; d < ndim; d++) {
        b.shape[d] = b.size[d] = shape[d];
        b.n *= shape[d];
    }
    return b;
}

static int64_t within(int64_t v, int64_t most) {
    return v < 0 ? 0 : v > most ? most : v;
}

int64_t ax_block_before(const struct ax_block *b, int64_t at) {
    int64_t coord[AX_ST_MAX_DIMS] = {0}, rest[AX_ST_MAX_DIMS + 1], before = 0;
    if (b->n == 0)
        return 0;
    rest[b->ndim] = 1; /* elements of the block per index of the dimension before */
    for (int d = b->ndim - 1; d >= 0; d--) {
        coord[d] = at % b->shape[d];
        at /= b->shape[d];
        rest[d] = rest[d + 1] * b->size[d];
    }
    if (at > 0)
        return b->n; /* beyond the tensor */
    for (int d = 0; d < b->ndim; d++) {
        const int64_t c = coord[d] - b->start[d];
        before += within(c, b->size[d]) * rest[d + 1];
        if (c < 0 || c >= b->size[d]) /* all of the dimensions that follow are before it, or none */
            break;
    }
    return within(before - b->first, b->n);
}

int64_t ax_block_index(const struct ax_block *b, int64_t i, int64_t *run) {
    int64_t at = b->first + i, index = 0, stride = 1, together = 1;
    bool gap = false; /* between consecutive indices of the dimension */
    for (int d = b->ndim - 1; d >= 0; d--) {
        const int64_t c = at % b->size[d];
        if (!gap)
            together = (b->size[d] - c - 1) * stride + together;
        gap = gap || b->size[d] < b->shape[d];
        index += (b->start[d] + c) * stride;
        stride *= b->shape[d];
        at /= b->size[d];
    }
    *run = together < b->n - i ? together : b->n - i;
    return index;
}

static int64_t most(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

struct ax_block_common ax_block_common(const struct ax_block *to, int64_t first, int64_t n,
                                       const struct ax_block *from) {
    struct ax_block_common c = {.to = *to, .from = *from};
    int64_t run;
    if (n == 0 || from->n == 0)
        return c;
    c.at = most(first, ax_block_before(to, ax_block_index(from, 0, &run)));
    c.end = least(first + n, ax_block_before(to, ax_block_index(from, from->n - 1, &run) + 1));
    return c;
}

bool ax_block_next(struct ax_block_common *c, int64_t *to, int64_t *from, int64_t *n) {
    while (c->k == c->k_end) {
        int64_t run;
        if (c->at >= c->end)
            return false;
        c->begin = ax_block_index(&c->to, c->at, &run);
        run = least(run, c->end - c->at);
        c->to_at = c->at;
        c->at += run;
        c->k = ax_block_before(&c->from, c->begin);
        c->k_end = ax_block_before(&c->from, c->begin + run);
    }
    const int64_t place = ax_block_index(&c->from, c->k, n);
    *n = least(*n, c->k_end - c->k);
    *to = c->to_at + place - c->begin;
    *from = c->k;
    c->k += *n;
    return true;
}
