/* Which row of a file is which row of a folder. */
#include "ckpt/gguf/names.h"

static int64_t tiled(const struct ax_gguf_order *o, int64_t r) {
    if (r < o->from)
        return r;
    const int64_t head = (r - o->from) / o->head, in = (r - o->from) % o->head;
    return o->from + (head % o->values * o->keys + head / o->values) * o->head + in;
}

static int64_t ungrouped(const struct ax_gguf_order *o, int64_t r) {
    const int64_t size = 2 * (o->head + o->values), group = r / size, in = r % size;
    const int64_t z = in - 2 * o->head - o->values;
    if (o->kind == AX_GGUF_Z)
        return z < 0 ? -1 : group * o->values + z;
    if (in < 2 * o->head)
        return (in / o->head * o->keys + group) * o->head + in % o->head;
    return z < 0 ? 2 * o->keys * o->head + group * o->values + in - 2 * o->head : -1;
}

int64_t ax_gguf_row(const struct ax_gguf_order *o, int64_t r) {
    switch (o->kind) {
    case AX_GGUF_STRAIGHT:
        return r;
    case AX_GGUF_PAIRS: {
        const int64_t half = o->head / 2, t = r % o->head;
        return r - t + 2 * (t % half) + t / half;
    }
    case AX_GGUF_TILED:
        return tiled(o, r);
    case AX_GGUF_QKV:
    case AX_GGUF_Z:
        return ungrouped(o, r);
    }
    return r;
}

int64_t ax_gguf_rows_in_order(const struct ax_gguf_order *o, int64_t r, int64_t n) {
    if (o->kind == AX_GGUF_STRAIGHT)
        return n;
    if (o->kind != AX_GGUF_TILED)
        return 1;
    const int64_t left = r < o->from ? o->from - r : o->head - (r - o->from) % o->head;
    return left < n ? left : n;
}

int64_t ax_gguf_run(const struct ax_gguf_order *o, int64_t all) {
    return o->kind == AX_GGUF_STRAIGHT ? 1 : o->kind == AX_GGUF_PAIRS ? o->head : all;
}
