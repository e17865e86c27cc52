/* New texts of bounded length, for what steps do with text. Private to data/coding/. */
#ifndef AX_DATA_CODING_BUILDER_H
#define AX_DATA_CODING_BUILDER_H

#include <string.h>

#include "data/coding/ops.h"

struct ax_coding_builder {
    char text[AX_CODING_MAX_TEXT + 1];
    size_t n;
    bool full;
};

static inline void ax_coding_build(struct ax_coding_builder *b, const char *s, size_t n) {
    b->full = b->full || n > AX_CODING_MAX_TEXT - b->n;
    if (b->full)
        return;
    memcpy(b->text + b->n, s, n);
    b->n += n;
}

static inline void ax_coding_build_char(struct ax_coding_builder *b, char c) {
    ax_coding_build(b, &c, 1);
}

static inline bool ax_coding_built(const struct ax_coding_builder *b, struct ax_coding_value *v) {
    if (b->full)
        return false;
    memcpy(v->text, b->text, b->n);
    v->text[b->n] = '\0';
    v->n = b->n;
    return true;
}

#endif
