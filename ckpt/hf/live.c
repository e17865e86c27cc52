#include "ckpt/hf/live.h"

enum ax_status ax_live_convert(const struct ax_live *s, enum ax_dtype wanted, int64_t first,
                               int64_t n, void *out) {
    const size_t size = ax_dtype_size(s->dtype);
    const void *host;
    AX_TRY(ax_queue_begin_read(s->q,
                               (const char AX_DEVICE *)s->data + (size_t)(first - s->base) * size,
                               (size_t)n * size, &host));
    ax_convert(wanted, out, s->dtype, host, n);
    ax_queue_end_read(s->q, host);
    return AX_OK;
}
