#include "model/core/results.h"

#include "base/mem.h"

size_t ax_results_bytes(enum ax_dtype dtype, int64_t n) {
    return ax_arena_round((size_t)n * ax_dtype_size(dtype));
}

void ax_results_create(struct ax_results *r, struct ax_queue *q, struct ax_stack *stack,
                       size_t cap) {
    *r = (struct ax_results){.q = q, .cap = cap};
    r->device = ax_stack_push(stack, "results", cap);
}

void ax_results_free(struct ax_results *r) {
    ax_free(r->host);
    *r = (struct ax_results){0};
}

struct ax_tensor ax_results_take(struct ax_results *r, enum ax_dtype dtype, int64_t n) {
    const struct ax_tensor t = ax_tensor_1d(dtype, r->device + r->used, n);
    r->used += ax_results_bytes(dtype, n);
    AX_ASSERT(r->used <= r->cap);
    return t;
}

enum ax_status ax_results_read(struct ax_results *r) {
    const size_t bytes = r->used;
    r->used = 0;
    if (bytes > r->host_cap) {
        AX_TRY(ax_regrow(&r->host, r->host_cap, bytes, 1));
        r->host_cap = bytes;
    }
    return ax_queue_read(r->q, r->device, r->host, bytes, NULL);
}

double ax_results_get(const struct ax_results *r, const struct ax_tensor *t, int64_t i) {
    return ax_load(t->dtype, r->host + ((char AX_DEVICE *)t->data - r->device), i);
}

void ax_results_drop(struct ax_results *r) {
    r->used = 0;
}
