/* Queues of the CPU backends: an op is done when its call returns, so tickets only count. */
#include "kernels/queue.h"

#include <string.h>

#include "base/mem.h"

static enum ax_status find_backend(const char *name, const struct ax_ops **out) {
    const struct ax_ops *cpu = ax_ops_cpu();
    if (strcmp(name, "ref") == 0) {
        *out = &ax_ops_ref;
        return AX_OK;
    }
    if (strcmp(name, "cpu") == 0 && cpu != NULL) {
        *out = cpu;
        return AX_OK;
    }
    if (strcmp(name, "cpu") == 0) {
        return ax_error(AX_ERR_UNSUPPORTED,
                        "backend cpu: this machine's processor has no AVX2. Use backend ref (slow, "
                        "double precision) or another machine.");
    }
    return ax_error(AX_ERR_CONFIG, "backend: no backend is called \"%.40s\". Choose cpu or ref.",
                    name);
}

enum ax_status ax_queue_create(struct ax_queue **out, const char *backend, const char *planned,
                               int threads, struct ax_stack *scratch) {
    AX_ASSERT(threads >= 1 && scratch != NULL);
    bool meta = strcmp(backend, "meta") == 0;
    AX_ASSERT(!meta || planned != NULL);
    const struct ax_ops *model = NULL;
    AX_TRY(find_backend(meta ? planned : backend, &model));
    struct ax_queue *q;
    AX_TRY(ax_alloc(&q, 1, sizeof(*q)));
    q->ops = meta ? &ax_ops_meta : model;
    q->model = model;
    q->fallback = model == &ax_ops_ref ? NULL : &ax_ops_ref;
    q->threads = threads;
    q->scratch = scratch;
    if (model->open != NULL) { /* also on a meta queue: workspace() and supports() may need state */
        enum ax_status st = model->open(q);
        if (st != AX_OK) {
            ax_error_add_trace(__FILE__, __LINE__);
            ax_free(q);
            return st;
        }
    }
    *out = q;
    return AX_OK;
}

void ax_queue_free(struct ax_queue *q) {
    if (q == NULL)
        return;
    if (q->model->close != NULL)
        q->model->close(q);
    ax_free(q);
}

bool ax_queue_is_meta(const struct ax_queue *q) {
    return q->ops == &ax_ops_meta;
}

struct ax_ticket ax_queue_signal(struct ax_queue *q) {
    return (struct ax_ticket){++q->ticket};
}

/* The ticket may be another queue's; its work was already done when it was issued. */
void ax_queue_wait(struct ax_queue *q, struct ax_ticket ticket) {
    (void)q;
    (void)ticket;
}

enum ax_status ax_queue_finish(struct ax_queue *q) {
    (void)q;
    return AX_OK;
}

enum ax_status ax_queue_read(struct ax_queue *q, const void *device, void *out, size_t bytes,
                             const void *cap) {
    const void *from = ax_queue_is_meta(q) ? cap : device;
    if (bytes == 0)
        return AX_OK;
    if (from == NULL)
        memset(out, 0, bytes);
    else
        memcpy(out, from, bytes);
    return AX_OK;
}

enum ax_status ax_queue_write(struct ax_queue *q, void *device, const void *host, size_t bytes) {
    if (!ax_queue_is_meta(q) && bytes > 0)
        memcpy(device, host, bytes);
    return AX_OK;
}
