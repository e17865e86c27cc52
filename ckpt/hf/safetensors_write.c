/* Writing: header from the descriptions, then the data window by window. */
#include <stdlib.h>
#include <string.h>

#include "base/text/json.h"
#include "base/direct_io.h"
#include "base/mem.h"
#include "ckpt/hf/safetensors.h"
#include "ckpt/hf/safetensors_types.h"

#define WINDOW ((size_t)4 << 20) /* bytes of the file */
#define PIECE  (1 << 16)         /* elements per call of fill */

/* Windows that other ranks fill are then pieces of zeros, whose checksum is known. */
_Static_assert(WINDOW % AX_SUM_PIECE == 0, "a window is whole pieces of checksums");

static enum ax_status no_memory(int n) {
    return ax_error(AX_ERR_NOMEM, "out of memory for the header of %d tensors", n);
}

/* {"dtype", "shape", "data_offsets"}; NULL when out of memory. */
static json_t *describe(const struct ax_st_output *t, int64_t begin, int64_t end) {
    json_t *shape = json_array();
    for (int d = 0; shape && d < t->ndim; d++) {
        if (json_array_append_new(shape, json_integer(t->shape[d])) != 0) {
            json_decref(shape);
            shape = NULL;
        }
    }
    if (!shape)
        return NULL;
    json_t *entry = json_pack("{ss sO s[II]}", "dtype",
                              t->e4m3   ? AX_ST_E4M3
                              : t->e8m0 ? AX_ST_E8M0
                                        : ax_dtype_info(t->dtype)->safetensors,
                              "shape", shape, "data_offsets", (json_int_t)begin, (json_int_t)end);
    json_decref(shape);
    return entry;
}

/* Adds {"__metadata__": {"format": "pt"}, NAME: {…}, …} to root. */
static enum ax_status fill_header(json_t *root, int n, const struct ax_st_output *tensors,
                                  const uint64_t *begin) {
    if (json_object_set_new(root, "__metadata__", json_pack("{ss}", "format", "pt")) != 0)
        return no_memory(n);
    for (int i = 0; i < n; i++) {
        const struct ax_st_output *t = &tensors[i];
        AX_ASSERT(!json_object_get(root, t->name)); /* a duplicate would hide it */
        if (json_object_set_new(root, t->name,
                                describe(t, (int64_t)begin[i], (int64_t)begin[i + 1])) != 0)
            return no_memory(n);
    }
    return AX_OK;
}

/* jansson ignores a failure to store a piece, so it is recorded here. */
struct sink {
    struct ax_buf text;
    enum ax_status st;
};
static int put_piece(const char *piece, size_t n, void *ctx) {
    struct sink *sink = ctx;
    if (sink->st == AX_OK)
        sink->st = ax_buf_append(&sink->text, piece, n);
    return sink->st == AX_OK ? 0 : -1;
}

static enum ax_status build_header(int n, const struct ax_st_output *tensors, const uint64_t *begin,
                                   struct ax_buf *text) {
    struct sink sink = {0};
    json_t *root = json_object();
    enum ax_status st = root ? fill_header(root, n, tensors, begin) : no_memory(n);
    if (st == AX_OK && json_dump_callback(root, put_piece, &sink, JSON_COMPACT) != 0)
        st = sink.st != AX_OK ? sink.st : no_memory(n);
    json_decref(root);
    *text = sink.text;
    return st != AX_OK ? st : sink.st;
}

/* ---- the data ---- */

/* The file as it is written: a window of it at a time, of which this rank fills what it has. */
struct writer {
    struct ax_file f;
    int n;
    const struct ax_st_output *tensors;
    struct ax_buf header; /* with its length; empty where another rank writes it */
    uint64_t
        *begin; /* [n + 1] byte at which a tensor begins; until the header is made, of the data */
    struct ax_checksums *sums;
    int tensor;  /* the first that ends after `at` */
    uint64_t at; /* the window's first byte */
    void *heap;
    unsigned char *window; /* [WINDOW], and the rest of an element that begins in it */
    void *piece;
    size_t n_ranges, cap;
    struct range {
        size_t begin, end;
    } *ranges; /* filled bytes of the window */
};

static enum ax_status mark(struct writer *w, size_t begin, size_t end) {
    if (w->n_ranges > 0 && w->ranges[w->n_ranges - 1].end == begin) {
        w->ranges[w->n_ranges - 1].end = end;
        return AX_OK;
    }
    AX_TRY(ax_grow(&w->ranges, w->n_ranges, &w->cap, sizeof *w->ranges));
    w->ranges[w->n_ranges++] = (struct range){begin, end};
    return AX_OK;
}

/* Where element `index` of a tensor is in the window. */
static size_t place(const struct writer *w, int tensor, int64_t index) {
    return (size_t)(w->begin[tensor] - w->at +
                    (uint64_t)index * ax_dtype_size(w->tensors[tensor].dtype));
}

/* Copies n elements of the piece, from `first` on, to their places. */
static enum ax_status scatter(struct writer *w, int tensor, const struct ax_block *block,
                              int64_t first, int64_t n) {
    const size_t size = ax_dtype_size(w->tensors[tensor].dtype);
    const char *from = w->piece;
    for (int64_t i = 0, run; i < n; i += run) {
        const size_t to = place(w, tensor, ax_block_index(block, first + i, &run));
        run = run < n - i ? run : n - i;
        memcpy(w->window + to, from, (size_t)run * size);
        from += (size_t)run * size;
        AX_TRY(mark(w, to, to + (size_t)run * size));
    }
    return AX_OK;
}

/* The number of the tensor's elements that begin before this byte of the file. */
static int64_t elements_before(const struct writer *w, int tensor, uint64_t byte) {
    const uint64_t size = ax_dtype_size(w->tensors[tensor].dtype);
    const uint64_t end = byte < w->begin[tensor + 1] ? byte : w->begin[tensor + 1];
    return end > w->begin[tensor] ? (int64_t)((end - w->begin[tensor] + size - 1) / size) : 0;
}

/* Fills what the window has of a part, in pieces: right in its place if a piece is contiguous and
 * aligned there, else by way of a buffer. */
static enum ax_status fill_part(struct writer *w, int tensor, const struct ax_st_part *part) {
    const struct ax_block *block = &part->block;
    const size_t size = ax_dtype_size(w->tensors[tensor].dtype);
    const int64_t begin = ax_block_before(block, elements_before(w, tensor, w->at)),
                  end = ax_block_before(block, elements_before(w, tensor, w->at + WINDOW));
    for (int64_t first = begin, n; first < end; first += n) {
        int64_t run;
        n = end - first < PIECE ? end - first : PIECE;
        const size_t to = place(w, tensor, ax_block_index(block, first, &run));
        const bool together = run >= n && to % size == 0;
        AX_TRY(part->fill(part->ctx, first, n, together ? w->window + to : w->piece));
        if (together)
            AX_TRY(mark(w, to, to + (size_t)n * size));
        else
            AX_TRY(scatter(w, tensor, block, first, n));
    }
    return AX_OK;
}

static enum ax_status fill_tensor(struct writer *w, int tensor) {
    const struct ax_st_output *t = &w->tensors[tensor];
    const struct ax_st_part all = {
        .block = ax_block_whole(t->ndim, t->shape), .fill = t->fill, .ctx = t->ctx};
    if (t->fill)
        return fill_part(w, tensor, &all);
    for (int i = 0; i < t->n_parts; i++)
        AX_TRY(fill_part(w, tensor, &t->parts[i]));
    return AX_OK;
}

static enum ax_status fill_header_bytes(struct writer *w) {
    if (w->at >= w->header.len)
        return AX_OK;
    const size_t left = w->header.len - (size_t)w->at, n = left < WINDOW ? left : WINDOW;
    memcpy(w->window, w->header.data + w->at, n);
    return mark(w, 0, n);
}

static int ascending(const void *a, const void *b) {
    const struct range *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* Joins neighbors. */
static void merge(struct writer *w) {
    size_t n = 0;
    if (w->n_ranges > 1)
        qsort(w->ranges, w->n_ranges, sizeof *w->ranges, ascending);
    for (size_t i = 0; i < w->n_ranges; i++)
        if (n > 0 && w->ranges[n - 1].end == w->ranges[i].begin)
            w->ranges[n - 1].end = w->ranges[i].end;
        else
            w->ranges[n++] = w->ranges[i];
    w->n_ranges = n;
}

/* Bytes that other ranks write count as zeros: see ax_sum_list_merge_last. */
static enum ax_status sum(struct writer *w, size_t len) {
    size_t at = 0;
    if (w->n_ranges == 0)
        return ax_checksums_add_zeros(w->sums, len);
    for (size_t i = 0; i < w->n_ranges && at < len; i++) {
        memset(w->window + at, 0, w->ranges[i].begin - at);
        at = w->ranges[i].end;
    }
    if (at < len)
        memset(w->window + at, 0, len - at);
    return ax_checksums_add(w->sums, w->window, len);
}

/* Writes the window and goes on to the next one. */
static enum ax_status flush(struct writer *w) {
    const uint64_t left = w->begin[w->n] - w->at;
    const size_t len = left < WINDOW ? (size_t)left : WINDOW;
    size_t over = 0; /* bytes of an element that ends in the next window */
    merge(w);
    AX_TRY(sum(w, len));
    for (size_t i = 0; i < w->n_ranges; i++) {
        const struct range r = w->ranges[i];
        const size_t end = r.end < len ? r.end : len;
        over = r.end - end;
        AX_TRY(ax_file_pwrite_direct(&w->f, w->window + r.begin, end - r.begin, w->at + r.begin));
    }
    w->n_ranges = 0;
    w->at += len;
    memcpy(w->window, w->window + WINDOW, over);
    return over > 0 ? mark(w, 0, over) : AX_OK;
}

static enum ax_status write_windows(struct writer *w) {
    while (w->at < w->begin[w->n]) {
        AX_TRY(fill_header_bytes(w));
        while (w->tensor < w->n && w->begin[w->tensor + 1] <= w->at)
            w->tensor++;
        for (int t = w->tensor; t < w->n && w->begin[t] < w->at + WINDOW; t++)
            AX_TRY(fill_tensor(w, t));
        AX_TRY(flush(w));
    }
    return AX_OK;
}

/* The header as the file has it: its length, its text, spaces. */
static enum ax_status make_header(struct writer *w) {
    struct ax_buf text;
    enum ax_status st;
    AX_TRY_GOTO(build_header(w->n, w->tensors, w->begin, &text), st, done);
    const size_t pad = (8 - text.len % 8) % 8;
    char size[8];
    for (int i = 0; i < 8; i++)
        size[i] = (char)((uint64_t)(text.len + pad) >> (8 * i));
    AX_TRY_GOTO(ax_buf_append(&w->header, size, sizeof size), st, done);
    AX_TRY_GOTO(ax_buf_append(&w->header, text.data, text.len), st, done);
    AX_TRY_GOTO(ax_buf_append(&w->header, "       ", pad), st, done);
done:
    ax_buf_free(&text);
    return st;
}

/* Finds where tensors begin in the data. */
static enum ax_status place_tensors(struct writer *w) {
    int64_t at = 0;
    for (int i = 0; i < w->n; i++) {
        const struct ax_st_output *t = &w->tensors[i];
        int64_t sizes[AX_ST_MAX_DIMS + 1], bytes;
        memcpy(sizes, t->shape, sizeof t->shape);
        sizes[t->ndim] = (int64_t)ax_dtype_size(t->dtype);
        const enum ax_status st = ax_product(sizes, t->ndim + 1, &bytes);
        if (st != AX_OK)
            return ax_error_prefix(st, "tensor %s: its bytes", t->name);
        if (__builtin_add_overflow(at, bytes, &at))
            return ax_error(AX_ERR_DATA,
                            "tensor %s: it would end at more than 2^63 bytes; write "
                            "fewer tensors to a file",
                            t->name);
        w->begin[i + 1] = (uint64_t)at;
    }
    return AX_OK;
}

static enum ax_status prepare(struct writer *w, bool header) {
    void *window;
    AX_TRY(ax_alloc(&w->begin, (size_t)w->n + 1, sizeof *w->begin));
    AX_TRY(place_tensors(w));
    AX_TRY(make_header(w));
    for (int i = 0; i <= w->n; i++)
        w->begin[i] += w->header.len;
    if (!header)
        w->header.len = 0;
    AX_TRY(ax_alloc_direct(&w->heap, &window, WINDOW + AX_DIRECT_IO_ALIGN));
    w->window = window;
    return ax_alloc(&w->piece, PIECE, sizeof(double));
}

enum ax_status ax_safetensors_create(const char *path) {
    struct ax_file f;
    AX_TRY(ax_file_create(&f, path));
    return ax_file_close(&f);
}

enum ax_status ax_safetensors_write_part(const char *path, int n,
                                         const struct ax_st_output *tensors, bool header,
                                         struct ax_checksums *sums) {
    struct writer w = {.f = {.fd = -1}, .n = n, .tensors = tensors, .sums = sums};
    enum ax_status st;
    AX_TRY_GOTO(prepare(&w, header), st, done);
    AX_TRY_GOTO(ax_file_open_direct_update(&w.f, path), st, done);
    AX_TRY_GOTO(write_windows(&w), st, done);
    AX_TRY_GOTO(ax_file_sync(&w.f), st, done);
done:
    st = ax_file_end(&w.f, st);
    ax_buf_free(&w.header);
    ax_free(w.begin);
    ax_free(w.heap);
    ax_free(w.piece);
    ax_free(w.ranges);
    return st;
}

enum ax_status ax_st_fill(void *source, int64_t first, int64_t n, void *out) {
    const struct ax_st_source *s = source;
    const struct ax_live from = {.dtype = s->value.dtype, .data = s->value.data, .q = s->q};
    return ax_delta_convert(&s->delta, &from, s->dtype, first, n, out);
}

enum ax_status ax_safetensors_write(const char *path, int n, const struct ax_st_output *tensors) {
    AX_TRY(ax_safetensors_create(path));
    return ax_safetensors_write_part(path, n, tensors, true, NULL);
}
