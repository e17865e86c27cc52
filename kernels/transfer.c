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
    void *host;
    AX_ASSERT(ax_tensor_is_dense(t));
    AX_TRY(ax_queue_begin_write(q, t->data, ax_tensor_bytes(t), &host));
    ax_convert(t->dtype, host, dtype, values, ax_tensor_numel(t));
    return ax_queue_end_write(q, t->data, host, ax_tensor_bytes(t));
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
