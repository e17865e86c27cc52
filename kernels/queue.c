/* Queues: a backend, its device, and counters. */
#include "kernels/queue.h"

#include <string.h>

#include "base/mem.h"
#include "kernels/backend.h"
#include "kernels/recording.h"
#include "kernels/ring.h"

enum ax_status ax_queue_create(struct ax_queue **out, const char *backend, const char *planned,
                               int threads, struct ax_stack *scratch) {
    AX_ASSERT(threads >= 1 && scratch != NULL);
    bool meta = strcmp(backend, "meta") == 0;
    AX_ASSERT(!meta || planned != NULL);
    const struct ax_ops *model = NULL;
    if (meta && strcmp(planned, ax_ops_sheet.name) == 0)
        model = &ax_ops_sheet;
    else
        AX_TRY(ax_backend_find(meta ? planned : backend, &model));
    struct ax_queue *q;
    AX_TRY(ax_alloc(&q, 1, sizeof(*q)));
    q->ops = meta ? &ax_ops_meta : model;
    q->model = model;
    if (model != &ax_ops_ref && model->device == ax_ops_ref.device)
        q->fallback = &ax_ops_ref;
    q->threads = threads;
    q->scratch = scratch;
    enum ax_status st = AX_OK;
    if (model->open != NULL) /* also on a meta queue: workspace() and supports() may need state */
        st = model->open(q);
    if (st == AX_OK && q->ops->device->open != NULL) {
        st = q->ops->device->open(q);
        if (st != AX_OK && model->close != NULL)
            model->close(q);
    }
    if (st != AX_OK) {
        ax_error_add_trace(__FILE__, __LINE__);
        ax_free(q);
        return st;
    }
    *out = q;
    return AX_OK;
}

void ax_queue_free(struct ax_queue *q) {
    if (q == NULL)
        return;
    ax_ring_free(q->ring);
    if (q->ops->device->close != NULL)
        q->ops->device->close(q);
    if (q->model->close != NULL)
        q->model->close(q);
    ax_free(q);
}

double ax_queue_product_flops(const struct ax_queue_counters *c) {
    static const enum ax_op products[] = {AX_OP_gemm,
                                          AX_OP_grouped_gemm,
                                          AX_OP_attention_forward,
                                          AX_OP_attention_backward,
                                          AX_OP_delta_forward,
                                          AX_OP_delta_backward,
                                          AX_OP_fp8_gemm};
    double sum = 0;
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        sum += c->flops[products[i]];
    return sum;
}

bool ax_queue_is_meta(const struct ax_queue *q) {
    return q->ops == &ax_ops_meta;
}

enum ax_status ax_queue_open_ring(struct ax_queue *q) {
    if (!ax_queue_has_host_tier(q))
        return AX_OK;
    void *memory = ax_stack_push(&q->scratch->arena->host, "write ring", AX_QUEUE_RING);
    return ax_queue_is_meta(q) ? AX_OK : ax_ring_create(&q->ring, q, memory);
}

enum ax_status ax_queue_finish(struct ax_queue *q) {
    q->counters.waits++;
    return q->ops->device->finish(q);
}

static const struct ax_device *device_of(const struct ax_queue *q) {
    return q ? q->ops->device : &ax_device_host;
}

/* 0 is for nothing, as where everything is done already. */
static enum ax_status wait_for(struct ax_queue *q, uint64_t ticket) {
    bool slept;
    return ticket > 0 ? q->ops->device->wait(q, ticket, &slept) : AX_OK;
}

enum ax_status ax_queue_read(struct ax_queue *q, const void *device, void *out, size_t bytes,
                             const void *cap) {
    if (bytes == 0)
        return AX_OK;
    if (q)
        q->counters.waits++;
    uint64_t ticket;
    AX_TRY(device_of(q)->read_later(q, device, out, bytes, cap, &ticket));
    return q ? wait_for(q, ticket) : AX_OK; /* the host's memory has been read */
}

enum ax_status ax_queue_read_later(struct ax_queue *q, const void *device, size_t bytes,
                                   const void *cap, uint64_t *ticket) {
    AX_ASSERT(bytes <= AX_QUEUE_LATE_BYTES);
    *ticket = q->tickets++;
    struct ax_late *late = &q->late[*ticket % AX_QUEUE_LATE];
    return device_of(q)->read_later(q, device, late->value, bytes, cap, &late->ticket);
}

enum ax_status ax_queue_settle(struct ax_queue *q, uint64_t ticket, void *out, size_t bytes) {
    const struct ax_late *late = &q->late[ticket % AX_QUEUE_LATE];
    AX_ASSERT(q->tickets - ticket <= AX_QUEUE_LATE);
    q->counters.waits++;
    AX_TRY(wait_for(q, late->ticket));
    memcpy(out, late->value, bytes);
    return AX_OK;
}

enum ax_status ax_queue_mirrored(struct ax_queue *q, struct ax_mirror *m, const void *device,
                                 const void **host) {
    *host = NULL;
    if (!m || !m->device)
        return AX_OK;
    if (!m->known)
        AX_TRY(ax_queue_read(q, m->device, m->host, m->bytes, NULL));
    m->known = true;
    *host = (const char *)m->host + ((const char *)device - (const char *)m->device);
    return AX_OK;
}

bool ax_queue_is_late(const struct ax_queue *q) {
    return q->ops->device->late;
}

enum ax_status ax_queue_begin_read(struct ax_queue *q, const void *device, size_t bytes,
                                   const void **host) {
    AX_ASSERT(bytes <= AX_QUEUE_PIECE && device_of(q) != &ax_device_meta);
    *host = device;
    if (device_of(q) == &ax_device_host)
        return q ? ax_queue_finish(q) : AX_OK;
    void *copy;
    AX_TRY(ax_alloc(&copy, bytes, 1));
    *host = copy;
    const enum ax_status st = ax_queue_read(q, device, copy, bytes, NULL);
    if (st != AX_OK)
        ax_free(copy);
    return st;
}

void ax_queue_end_read(struct ax_queue *q, const void *host) {
    if (device_of(q) != &ax_device_host)
        ax_free((void *)(uintptr_t)host);
}

enum ax_status ax_queue_write(struct ax_queue *q, void *device, const void *host, size_t bytes) {
    if (bytes == 0)
        return AX_OK;
    if (q && q->ring)
        return ax_ring_write(q->ring, device, host, bytes);
    AX_ASSERT(!device_of(q)->has_host_tier);
    return device_of(q)->copy(q, device, host, bytes);
}

enum ax_status ax_queue_call(struct ax_queue *q, ax_queue_fn *fn, const void *args, size_t size,
                             const struct ax_view *views, int n_views) {
    AX_ASSERT(size <= AX_QUEUE_ARGS && n_views <= AX_QUEUE_VIEWS);
    return q->ops->device->call(q, fn, args, size, views, n_views);
}

struct ax_view ax_view_of(const struct ax_tensor *t, enum ax_view_use use) {
    AX_ASSERT(t->data == NULL || ax_tensor_is_dense(t));
    return (struct ax_view){t->data, t->data ? ax_tensor_bytes(t) : 0, use};
}

enum ax_status ax_queue_time(struct ax_queue *q, struct ax_times *t, int into) {
    AX_ASSERT(into >= -1 && into < AX_TIMES);
    return q->ops->device->time(q, t, into);
}

void *ax_queue_address(struct ax_queue *q, const void *device) {
    return q->ops->device->address(q, device);
}

enum ax_status ax_queue_begin_write(struct ax_queue *q, int n, struct ax_queue_piece *pieces) {
    if (q->ring)
        return ax_ring_begin_write(q->ring, n, pieces);
    AX_ASSERT(q->ops->device == &ax_device_host);
    for (int i = 0; i < n; i++)
        pieces[i].host = pieces[i].bytes > 0 ? pieces[i].device : NULL;
    return AX_OK;
}

enum ax_status ax_queue_end_write(struct ax_queue *q, int n, const struct ax_queue_piece *pieces) {
    return q->ring ? ax_ring_end_write(q->ring, n, pieces) : AX_OK;
}

enum ax_status ax_queue_copy(struct ax_queue *q, void *to, const void *from, size_t bytes) {
    if (bytes == 0)
        return AX_OK;
    if (q->recording)
        AX_TRY(ax_record_copy(q->recording, bytes, 0));
    return q->ops->device->copy(q, to, from, bytes);
}

enum ax_status ax_queue_copy_beside(struct ax_queue *q, enum ax_tier into, void *to,
                                    const void *from, size_t bytes, uint64_t *ticket) {
    AX_ASSERT(ax_queue_has_host_tier(q));
    *ticket = 0;
    if (bytes == 0)
        return AX_OK;
    const uint64_t n = ++q->beside[into].copies;
    *ticket = n * AX_TIERS + (uint64_t)into;
    if (q->recording)
        AX_TRY(ax_record_copy(q->recording, bytes, *ticket));
    return ax_queue_is_meta(q) ? AX_OK : q->ops->device->copy_beside(q, into, n, to, from, bytes);
}

enum ax_status ax_queue_after(struct ax_queue *q, uint64_t ticket) {
    const enum ax_tier into = ax_queue_into(ticket);
    const uint64_t n = ticket / AX_TIERS;
    if (n <= q->beside[into].awaited)
        return AX_OK;
    q->beside[into].awaited = n;
    if (q->recording)
        AX_TRY(ax_record_after(q->recording, ticket));
    return ax_queue_is_meta(q) ? AX_OK : q->ops->device->after(q, into, n);
}

bool ax_queue_has_host_tier(const struct ax_queue *q) {
    return q->model->device->has_host_tier;
}

enum ax_status ax_queue_choices(struct ax_queue *q, struct ax_buf *out) {
    return q->ops->choices ? q->ops->choices(q, out) : AX_OK;
}

enum ax_status ax_queue_choose(struct ax_queue *q, const char *text) {
    return q->ops->choose ? q->ops->choose(q, text) : AX_OK;
}
