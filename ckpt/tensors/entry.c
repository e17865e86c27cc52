#include "ckpt/tensors/entry.h"

#include <stdlib.h>
#include <string.h>

#include "base/io.h"

struct ax_elements ax_st_elements(const struct ax_st_entry *e) {
    return (struct ax_elements){.dtype = e->dtype,
                                .data = e->data,
                                .read = e->read,
                                .ctx = e->ctx,
                                .codes = e->codes,
                                .file = e->file,
                                .name = e->name};
}

enum ax_status ax_st_read(const struct ax_st_entry *e, int64_t first, int64_t n,
                          enum ax_dtype wanted, void *out) {
    const struct ax_elements elements = ax_st_elements(e);
    return ax_elements_read(&elements, first, n, wanted, out);
}

void ax_st_drop(const struct ax_st_entry *e, int64_t first, int64_t n) {
    const size_t size = ax_dtype_size(e->dtype);
    if (!e->read)
        ax_map_drop((const char *)e->data + (size_t)first * size, (size_t)n * size);
    else if (first + n == e->numel)
        ax_map_drop(e->stored, e->stored_bytes);
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct ax_st_entry *)a)->name, ((const struct ax_st_entry *)b)->name);
}

void ax_st_sort(struct ax_st_entry *entries, int n) {
    if (n > 0)
        qsort(entries, (size_t)n, sizeof *entries, by_name);
}

const struct ax_st_entry *ax_st_find(const struct ax_st_entry *entries, int n, const char *name) {
    int lo = 0, hi = n;
    while (lo < hi) {
        const int mid = lo + (hi - lo) / 2;
        const int cmp = strcmp(entries[mid].name, name);
        if (cmp == 0)
            return &entries[mid];
        if (cmp < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}
