#include "kernels/stage.h"

void ax_stage_create(struct ax_stage *s, struct ax_queue *q, const char *name, size_t bytes) {
    *s = (struct ax_stage){0};
    if (!ax_queue_has_host_tier(q))
        return;
    s->q = q;
    s->bytes = ax_arena_round(bytes);
    s->memory = ax_stack_push(&q->scratch->arena->host, name, s->bytes);
}

enum ax_status ax_stage_copy(struct ax_stage *s, const void *device, size_t bytes,
                             const void **host) {
    char AX_DEVICE *to = s->memory + s->used;
    *host = NULL;
    if (bytes > s->bytes - s->used)
        return AX_OK;
    AX_TRY(ax_queue_copy(s->q, to, device, bytes));
    s->used += ax_arena_round(bytes);
    *host = s->q->ops->device->host(s->q, to);
    return AX_OK;
}

uint64_t ax_stage_ticket(const struct ax_stage *s) {
    return s->q->ops->device->signal(s->q);
}

enum ax_status ax_stage_wait(const struct ax_stage *s, uint64_t ticket) {
    bool slept;
    return s->q->ops->device->wait(s->q, ticket, &slept);
}

void ax_stage_clear(struct ax_stage *s) {
    s->used = 0;
}
