#include "data/format/example.h"

#include "base/mem.h"

static enum ax_status reserve(struct ax_example_list *l, size_t more) {
    if (l->n_tokens + more <= l->cap_tokens)
        return AX_OK;
    size_t cap = l->cap_tokens ? l->cap_tokens : 1024;
    while (cap < l->n_tokens + more)
        cap *= 2;
    AX_TRY(ax_regrow(&l->tokens, l->cap_tokens, cap, sizeof *l->tokens));
    AX_TRY(ax_regrow(&l->labels, l->cap_tokens, cap, sizeof *l->labels));
    l->cap_tokens = cap;
    for (size_t i = 0, at = 0; i < l->n; at += l->items[i++].n) {
        l->items[i].tokens = l->tokens + at;
        l->items[i].labels = l->labels + at;
    }
    return AX_OK;
}

enum ax_status ax_example_list_add(struct ax_example_list *l, const int32_t *tokens,
                                   const int32_t *labels, size_t n, bool trained) {
    AX_TRY(reserve(l, n));
    for (size_t i = 0; i < n; i++) {
        l->tokens[l->n_tokens + i] = tokens[i];
        l->labels[l->n_tokens + i] = labels ? labels[i] : trained ? tokens[i] : AX_NO_LABEL;
    }
    l->n_tokens += n;
    l->n_open += n;
    return AX_OK;
}

enum ax_status ax_example_list_end(struct ax_example_list *l, struct ax_origin origin) {
    if (l->n_open == 0)
        return AX_OK;
    if (l->n == l->cap) {
        const size_t cap = l->cap ? 2 * l->cap : 64;
        AX_TRY(ax_regrow(&l->items, l->cap, cap, sizeof *l->items));
        l->cap = cap;
    }
    const size_t start = l->n_tokens - l->n_open;
    l->items[l->n++] = (struct ax_example){
        .tokens = l->tokens + start, .labels = l->labels + start, .n = l->n_open, .origin = origin};
    l->n_open = 0;
    return AX_OK;
}

void ax_example_list_group(struct ax_example_list *l, size_t first) {
    for (size_t i = first + 1; i < l->n; i++)
        l->items[i].joined = true;
}

void ax_example_list_cut(struct ax_example_list *l, size_t n) {
    AX_ASSERT(n <= l->n);
    l->n_tokens -= l->n_open;
    l->n_open = 0;
    while (l->n > n)
        l->n_tokens -= l->items[--l->n].n;
}

void ax_example_list_free(struct ax_example_list *l) {
    ax_free(l->tokens);
    ax_free(l->labels);
    ax_free(l->items);
    *l = (struct ax_example_list){0};
}
