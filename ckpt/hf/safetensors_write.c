/* Writing: header from the descriptions, then each tensor in pieces of bounded size. */
#include <string.h>

#include "base/json.h"
#include "base/direct_io.h"
#include "ckpt/hf/safetensors.h"
#include "ckpt/hf/safetensors_types.h"

/* Elements per call of fill: summed and copied while in the cache. */
#define PIECE (1 << 16)

bool ax_st_dtype_parse(const char *name, enum ax_dtype *out) {
    for (int d = 0; d < AX_DTYPE_COUNT; d++) {
        if (strcmp(name, ax_dtype_info((enum ax_dtype)d)->safetensors) != 0)
            continue;
        *out = (enum ax_dtype)d;
        return true;
    }
    *out = AX_U8;
    return strcmp(name, "BOOL") == 0;
}

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
    json_t *entry = json_pack("{ss sO s[II]}", "dtype", ax_dtype_info(t->dtype)->safetensors,
                              "shape", shape, "data_offsets", (json_int_t)begin, (json_int_t)end);
    json_decref(shape);
    return entry;
}

/* Adds {"__metadata__": {"format": "pt"}, NAME: {…}, …} to root. */
static enum ax_status fill_header(json_t *root, int n, const struct ax_st_output *tensors) {
    int64_t begin = 0;
    if (json_object_set_new(root, "__metadata__", json_pack("{ss}", "format", "pt")) != 0)
        return no_memory(n);
    for (int i = 0; i < n; i++) {
        const struct ax_st_output *t = &tensors[i];
        int64_t numel;
        AX_ASSERT(!json_object_get(root, t->name)); /* a duplicate would hide it */
        AX_TRY(ax_product(t->shape, t->ndim, &numel));
        const int64_t end = begin + numel * (int64_t)ax_dtype_size(t->dtype);
        if (json_object_set_new(root, t->name, describe(t, begin, end)) != 0)
            return no_memory(n);
        begin = end;
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

static enum ax_status build_header(int n, const struct ax_st_output *tensors, struct ax_buf *text) {
    struct sink sink = {0};
    json_t *root = json_object();
    enum ax_status st = root ? fill_header(root, n, tensors) : no_memory(n);
    if (st == AX_OK && json_dump_callback(root, put_piece, &sink, JSON_COMPACT) != 0)
        st = sink.st != AX_OK ? sink.st : no_memory(n);
    json_decref(root);
    *text = sink.text;
    return st != AX_OK ? st : sink.st;
}

struct output {
    struct ax_direct_io f;
    struct ax_checksums *sums;
};

static enum ax_status put(struct output *o, const void *data, size_t n) {
    AX_TRY(ax_checksums_add(o->sums, data, n));
    return ax_direct_io_write(&o->f, data, n);
}

static enum ax_status write_header(struct output *f, int n, const struct ax_st_output *tensors) {
    struct ax_buf text;
    enum ax_status st;
    AX_TRY_GOTO(build_header(n, tensors, &text), st, done);
    static const char spaces[8] = "        ";
    const size_t pad = (8 - text.len % 8) % 8;
    unsigned char size[8];
    for (int i = 0; i < 8; i++)
        size[i] = (unsigned char)((uint64_t)(text.len + pad) >> (8 * i));
    AX_TRY_GOTO(put(f, size, sizeof size), st, done);
    AX_TRY_GOTO(put(f, text.data, text.len), st, done);
    AX_TRY_GOTO(put(f, spaces, pad), st, done);
done:
    ax_buf_free(&text);
    return st;
}

static enum ax_status write_tensor(struct output *f, const struct ax_st_output *t, void *piece) {
    int64_t numel;
    AX_TRY(ax_product(t->shape, t->ndim, &numel));
    for (int64_t first = 0; first < numel; first += PIECE) {
        const int64_t n = numel - first < PIECE ? numel - first : PIECE;
        AX_TRY(t->fill(t->ctx, first, n, piece));
        AX_TRY(put(f, piece, (size_t)n * ax_dtype_size(t->dtype)));
    }
    return AX_OK;
}

/* Bytes of the largest piece that will be written. */
static enum ax_status largest_piece(int n, const struct ax_st_output *tensors, size_t *bytes) {
    *bytes = 0;
    for (int i = 0; i < n; i++) {
        int64_t numel;
        AX_TRY(ax_product(tensors[i].shape, tensors[i].ndim, &numel));
        const size_t piece =
            (size_t)(numel < PIECE ? numel : PIECE) * ax_dtype_size(tensors[i].dtype);
        *bytes = piece > *bytes ? piece : *bytes;
    }
    return AX_OK;
}

enum ax_status ax_safetensors_write_summed(const char *path, int n,
                                           const struct ax_st_output *tensors,
                                           struct ax_checksums *sums) {
    struct output o = {.sums = sums};
    void *piece = NULL;
    size_t bytes;
    enum ax_status st;
    AX_TRY(largest_piece(n, tensors, &bytes));
    AX_TRY(ax_alloc(&piece, bytes, 1));
    AX_TRY_GOTO(ax_direct_io_create(&o.f, path), st, done);
    AX_TRY_GOTO(write_header(&o, n, tensors), st, done);
    for (int i = 0; i < n; i++)
        AX_TRY_GOTO(write_tensor(&o, &tensors[i], piece), st, done);
    AX_TRY_GOTO(ax_direct_io_finish(&o.f), st, done);
done:
    st = ax_direct_io_end(&o.f, st);
    ax_free(piece);
    return st;
}

enum ax_status ax_st_fill(void *source, int64_t first, int64_t n, void *out) {
    const struct ax_st_source *s = source;
    const struct ax_concat_source from = {.concat = s->concat,
                                          .dtype = s->value.dtype,
                                          .data = s->value.data,
                                          .q = s->q,
                                          .other_q = s->q};
    return ax_delta_convert(&s->delta, &from, s->dtype, first, n, out);
}

enum ax_status ax_safetensors_write(const char *path, int n, const struct ax_st_output *tensors) {
    return ax_safetensors_write_summed(path, n, tensors, NULL);
}
