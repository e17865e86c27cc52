/* What the forms of quantized folders read and check alike. */
#include "ckpt/hf/compressed_matrix.h"

#include <string.h>

const struct ax_st_entry *ax_compressed_sibling(const struct ax_compressed_folder *in,
                                                const char *name, size_t stem, const char *what) {
    for (int first = 0, end = in->n; first < end;) {
        const int middle = first + (end - first) / 2;
        const struct ax_st_entry *e = in->sorted[middle];
        const int begins = strncmp(name, e->name, stem);
        const int order = begins != 0 ? begins : strcmp(what, e->name + stem);
        if (order == 0)
            return e;
        if (order < 0)
            end = middle;
        else
            first = middle + 1;
    }
    return NULL;
}

enum ax_status ax_compressed_wrong(const struct ax_compressed_folder *in,
                                   const struct ax_st_entry *e, const char *why) {
    return ax_error(AX_ERR_DATA, "%s: %s %s; quantize the model again", in->dir, e->name, why);
}

uint32_t ax_compressed_word(const struct ax_st_entry *e, int64_t word) {
    uint32_t w;
    memcpy(&w, (const char *)e->data + word * (int64_t)sizeof w, sizeof w);
    return w;
}

bool ax_compressed_has_shape(const struct ax_st_entry *e, int64_t rows, int64_t cols) {
    return e->ndim == 2 && e->shape[0] == rows && e->shape[1] == cols;
}

int64_t ax_compressed_group(const struct ax_compressed_matrix *m, int64_t col) {
    return m->order ? (int64_t)ax_load(AX_I32, m->order->data, col) : col / m->block;
}

enum ax_status ax_compressed_check_order(struct ax_compressed_matrix *m,
                                         const struct ax_compressed_folder *in) {
    bool contiguous = true;
    if (m->order->ndim != 1 || m->order->numel != m->cols || m->order->dtype != AX_I32)
        return ax_compressed_wrong(in, m->order, "has no group for each column");
    for (int64_t col = 0; col < m->cols; col++) {
        const int64_t group = ax_compressed_group(m, col);
        if (group < 0 || group >= m->across)
            return ax_compressed_wrong(in, m->order, "names a group that has no scales");
        contiguous = contiguous && group == col / m->block;
    }
    if (contiguous)
        m->order = NULL;
    return AX_OK;
}
