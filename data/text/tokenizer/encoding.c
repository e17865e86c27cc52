/* The token list that encoding fills. See tokenizer.h. */
#include "data/text/tokenizer/encoding.h"

enum ax_status ax_encoding_reserve(struct ax_encoding *e, size_t more, bool spans) {
    size_t need = e->n + more;
    if (need > e->cap) {
        size_t cap = e->cap * 2 > need ? e->cap * 2 : need < 64 ? 64 : need;
        AX_TRY(ax_regrow(&e->ids, e->n, cap, sizeof *e->ids));
        e->cap = cap;
    }
    if (spans && need > e->cap_spans) {
        AX_TRY(ax_regrow(&e->spans, e->n < e->cap_spans ? e->n : e->cap_spans, e->cap,
                         sizeof *e->spans));
        e->cap_spans = e->cap;
    }
    return AX_OK;
}

void ax_encoding_free(struct ax_encoding *e) {
    ax_free(e->ids);
    ax_free(e->spans);
    *e = (struct ax_encoding){0};
}

size_t ax_encoding_covering(const struct ax_encoding *e, size_t from, size_t at) {
    for (size_t i = from; i < e->n; i++)
        if (e->spans[i].start <= at && at < e->spans[i].end)
            return i;
    return e->n;
}
