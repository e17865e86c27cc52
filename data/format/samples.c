#include "data/format/samples.h"

#include <string.h>

#include "base/mem.h"

static enum ax_status reserve(struct ax_samples *s, size_t more) {
    if (s->n + more <= s->cap)
        return AX_OK;
    size_t cap = s->cap ? s->cap : 1024;
    while (cap < s->n + more)
        cap *= 2;
    AX_TRY(ax_regrow(&s->ids, s->cap, cap, sizeof *s->ids));
    AX_TRY(ax_regrow(&s->labels, s->cap, cap, sizeof *s->labels));
    s->cap = cap;
    return AX_OK;
}

enum ax_status ax_samples_add(struct ax_samples *s, const int32_t *ids, const int32_t *labels,
                              size_t n, bool trained) {
    AX_TRY(reserve(s, n));
    for (size_t i = 0; i < n; i++) {
        s->ids[s->n + i] = ids[i];
        s->labels[s->n + i] = labels ? labels[i] : trained ? ids[i] : AX_NO_LABEL;
    }
    s->n += n;
    return AX_OK;
}

enum ax_status ax_samples_end(struct ax_samples *s, struct ax_origin origin) {
    if (s->n == s->open)
        return AX_OK;
    if (s->n_items == s->cap_items) {
        const size_t cap = s->cap_items ? 2 * s->cap_items : 64;
        AX_TRY(ax_regrow(&s->items, s->cap_items, cap, sizeof *s->items));
        s->cap_items = cap;
    }
    s->items[s->n_items++] =
        (struct ax_sample){.start = s->open, .n = s->n - s->open, .origin = origin};
    s->open = s->n;
    return AX_OK;
}

void ax_samples_cut(struct ax_samples *s, size_t n_items) {
    AX_ASSERT(n_items <= s->n_items);
    s->n_items = n_items;
    s->n = n_items ? s->items[n_items - 1].start + s->items[n_items - 1].n : 0;
    s->open = s->n;
}

void ax_samples_clear(struct ax_samples *s) {
    ax_samples_cut(s, 0);
}

void ax_samples_free(struct ax_samples *s) {
    ax_free(s->ids);
    ax_free(s->labels);
    ax_free(s->items);
    *s = (struct ax_samples){0};
}
