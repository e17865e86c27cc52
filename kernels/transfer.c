/* Tensors as arrays of the host, and the host as a device. */
#include "kernels/transfer.h"

#include "base/mem.h"

enum ax_status ax_tensor_read(struct ax_queue *q, const struct ax_tensor *t, enum ax_dtype wanted,
                              void *out) {
    const int64_t n = ax_tensor_numel(t);
    void *raw;
    AX_ASSERT(ax_tensor_is_dense(t));
    if (t->dtype == wanted)
        return ax_queue_read(q, t->data, out, ax_tensor_bytes(t), NULL);
    AX_TRY(ax_alloc(&raw, (size_t)n, ax_dtype_size(t->dtype)));
    const enum ax_status st = ax_queue_read(q, t->data, raw, ax_tensor_bytes(t), NULL);
    if (st == AX_OK)
        ax_convert(wanted, out, t->dtype, raw, n);
    ax_free(raw);
    return st;
}

enum ax_status ax_tensor_write(struct ax_queue *q, const struct ax_tensor *t, enum ax_dtype dtype,
                               const void *values) {
    const size_t size = ax_dtype_size(t->dtype);
    const int64_t n = ax_tensor_numel(t), most = (int64_t)(AX_QUEUE_STAGE / size);
    AX_ASSERT(ax_tensor_is_dense(t));
    for (int64_t first = 0; first < n && !ax_queue_is_meta(q); first += most) {
        const int64_t part = n - first < most ? n - first : most;
        struct ax_queue_piece to = {(char AX_DEVICE *)t->data + (size_t)first * size,
                                    (size_t)part * size, NULL};
        AX_TRY(ax_queue_begin_write(q, 1, &to));
        ax_convert(t->dtype, to.host, dtype,
                   (const char *)values + (size_t)first * ax_dtype_size(dtype), part);
        AX_TRY(ax_queue_end_write(q, 1, &to));
    }
    return AX_OK;
}

enum ax_status ax_host_queue_open(struct ax_queue *q, struct ax_queue **host) {
    *host = q;
    if (q->ops->device == &ax_device_host)
        return AX_OK;
    return ax_queue_create(host, ax_ops_cpu() ? "cpu" : "ref", NULL, q->threads, q->scratch);
}

void ax_host_queue_close(struct ax_queue *q, struct ax_queue *host) {
    if (host != q)
        ax_queue_free(host);
}
