/* Writes the file sequentially: start, keys, tensor infos, padding, and each tensor in pieces of
 * complete rows, which threads quantize. Read ax_gguf_write first. */
#include "ckpt/gguf/write.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/direct_io.h"
#include "base/io_path.h"
#include "base/free_space.h"

#define PIECE ((int64_t)1 << 21) /* elements per piece; at least one run of rows */
#define SLICE 8192               /* elements that a thread takes at a time, approximately */

/* --- numbers and keys --- */

static enum ax_status put_number(struct ax_buf *b, uint64_t v, int bytes) {
    unsigned char out[8];
    for (int i = 0; i < bytes; i++)
        out[i] = (unsigned char)(v >> (8 * i));
    return ax_buf_append(b, out, (size_t)bytes);
}

static enum ax_status put_text(struct ax_buf *b, const char *s, size_t len) {
    AX_TRY(put_number(b, len, 8));
    return ax_buf_append(b, s, len);
}

static enum ax_status put_float(struct ax_buf *b, float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return put_number(b, bits, 4);
}

static enum ax_status put_key(struct ax_gguf_keys *k, const char *name, enum ax_gguf_type type) {
    k->n++;
    AX_TRY(put_text(&k->bytes, name, strlen(name)));
    return put_number(&k->bytes, (uint64_t)type, 4);
}

enum ax_status ax_gguf_put_u32(struct ax_gguf_keys *k, const char *name, uint32_t v) {
    AX_TRY(put_key(k, name, AX_GGUF_U32));
    return put_number(&k->bytes, v, 4);
}

enum ax_status ax_gguf_put_f32(struct ax_gguf_keys *k, const char *name, float v) {
    AX_TRY(put_key(k, name, AX_GGUF_F32));
    return put_float(&k->bytes, v);
}

enum ax_status ax_gguf_put_bool(struct ax_gguf_keys *k, const char *name, bool v) {
    AX_TRY(put_key(k, name, AX_GGUF_BOOL));
    return put_number(&k->bytes, v, 1);
}

enum ax_status ax_gguf_put_string(struct ax_gguf_keys *k, const char *name, const char *s,
                                  size_t len) {
    AX_TRY(put_key(k, name, AX_GGUF_STRING));
    return put_text(&k->bytes, s, len);
}

enum ax_status ax_gguf_put_array(struct ax_gguf_keys *k, const char *name, enum ax_gguf_type type,
                                 uint64_t n) {
    AX_TRY(put_key(k, name, AX_GGUF_ARRAY));
    AX_TRY(put_number(&k->bytes, (uint64_t)type, 4));
    return put_number(&k->bytes, n, 8);
}

enum ax_status ax_gguf_add_i32(struct ax_gguf_keys *k, int32_t v) {
    return put_number(&k->bytes, (uint32_t)v, 4);
}

enum ax_status ax_gguf_add_bool(struct ax_gguf_keys *k, bool v) {
    return put_number(&k->bytes, v, 1);
}

enum ax_status ax_gguf_add_f32(struct ax_gguf_keys *k, float v) {
    return put_float(&k->bytes, v);
}

enum ax_status ax_gguf_add_string(struct ax_gguf_keys *k, const char *s, size_t len) {
    return put_text(&k->bytes, s, len);
}

/* --- sizes --- */

static uint64_t aligned(uint64_t at) {
    return (at + AX_GGUF_ALIGNMENT - 1) / AX_GGUF_ALIGNMENT * AX_GGUF_ALIGNMENT;
}

static int64_t columns(const struct ax_gguf_output *t) {
    return t->shape[t->ndim - 1];
}

static size_t row_bytes(const struct ax_gguf_output *t) {
    AX_ASSERT(columns(t) % t->type->elements == 0);
    return (size_t)(columns(t) / t->type->elements) * (size_t)t->type->bytes;
}

static enum ax_status tensor_bytes(const struct ax_gguf_output *t, uint64_t *bytes) {
    int64_t numel, product;
    AX_TRY(ax_product(t->shape, t->ndim, &numel));
    const int64_t sizes[] = {numel / t->type->elements, t->type->bytes};
    AX_TRY(ax_product(sizes, 2, &product));
    *bytes = (uint64_t)product;
    return AX_OK;
}

/* Everything before the data: "GGUF", version, counts, keys, infos, padding. */
static enum ax_status build_header(const struct ax_gguf_save *save, struct ax_buf *b) {
    uint64_t at = 0, bytes;
    AX_TRY(ax_buf_append(b, "GGUF", 4));
    AX_TRY(put_number(b, 3, 4));
    AX_TRY(put_number(b, (uint64_t)save->n, 8));
    AX_TRY(put_number(b, save->keys->n, 8));
    AX_TRY(ax_buf_append(b, save->keys->bytes.data, save->keys->bytes.len));
    for (int i = 0; i < save->n; i++) {
        const struct ax_gguf_output *t = &save->tensors[i];
        AX_TRY(put_text(b, t->name, strlen(t->name)));
        AX_TRY(put_number(b, (uint64_t)t->ndim, 4));
        for (int d = t->ndim - 1; d >= 0; d--)
            AX_TRY(put_number(b, (uint64_t)t->shape[d], 8));
        AX_TRY(put_number(b, t->type->id, 4));
        AX_TRY(put_number(b, at, 8));
        AX_TRY(tensor_bytes(t, &bytes));
        at = aligned(at + bytes);
    }
    while (b->len % AX_GGUF_ALIGNMENT != 0)
        AX_TRY(put_number(b, 0, 1));
    return AX_OK;
}

enum ax_status ax_gguf_file_bytes(const struct ax_gguf_save *save, uint64_t *bytes) {
    struct ax_buf header = {0};
    enum ax_status st;
    uint64_t one;
    AX_TRY_GOTO(build_header(save, &header), st, done);
    *bytes = header.len;
    for (int i = 0; i < save->n; i++) {
        AX_TRY_GOTO(tensor_bytes(&save->tensors[i], &one), st, done);
        *bytes += aligned(one);
    }
done:
    ax_buf_free(&header);
    return st;
}

static enum ax_status check_room(const struct ax_gguf_save *save, const char *dir) {
    uint64_t wanted, is_free;
    char a[32], b[32];
    AX_TRY(ax_gguf_file_bytes(save, &wanted));
    AX_TRY(ax_disk_free(dir, &is_free));
    if (wanted <= is_free)
        return AX_OK;
    return ax_error(AX_ERR_STORAGE,
                    "%s: the file needs %s, but the disk has only %s free. Choose another "
                    "location, or a smaller --quant.",
                    save->path, ax_format_bytes(a, sizeof a, (double)wanted),
                    ax_format_bytes(b, sizeof b, (double)is_free));
}

/* --- data --- */

struct output {
    const struct ax_gguf_save *save;
    struct ax_direct_io f;
    float *values;         /* a piece as floats */
    unsigned char *blocks; /* and encoded */
};

static int64_t piece_rows(const struct ax_gguf_output *t) {
    const int64_t cols = columns(t) > 0 ? columns(t) : 1;
    const int64_t runs = PIECE / cols / t->run;
    return (runs > 0 ? runs : 1) * t->run;
}

static enum ax_status check_value(const struct ax_gguf_save *save, const struct ax_gguf_output *t,
                                  const float *values, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(values[i]))
            return ax_error(AX_ERR_DATA, "%s: tensor %s contains %g", save->path, t->name,
                            (double)values[i]);
        if (fabsf(values[i]) > t->type->largest)
            return ax_error(AX_ERR_DATA,
                            "%s: tensor %s contains %g, which is too large for %s. Choose --quant "
                            "bf16 or f32.",
                            save->path, t->name, (double)values[i], t->type->name);
    }
    return AX_OK;
}

/* Rows of a piece → blocks, on all threads. */
static enum ax_status encode(const struct output *o, const struct ax_gguf_output *t, int64_t rows) {
    const int64_t cols = columns(t), step = cols < SLICE ? SLICE / (cols > 0 ? cols : 1) : 1;
    const size_t bytes = row_bytes(t);
    bool good = true;
#pragma omp parallel for schedule(dynamic) num_threads(o->save->threads) reduction(&& : good)
    for (int64_t r = 0; r < rows; r += step) {
        const int64_t n = (r + step < rows ? step : rows - r) * cols;
        const float *x = o->values + r * cols;
        bool fits = true;
        for (int64_t i = 0; i < n; i++)
            fits &= fabsf(x[i]) <= t->type->largest; /* false for NaN */
        if (fits)
            t->type->quantize(x, n / t->type->elements, o->blocks + (size_t)r * bytes);
        good = good && fits;
    }
    return good ? AX_OK : check_value(o->save, t, o->values, rows * cols);
}

static enum ax_status write_tensor(struct output *o, const struct ax_gguf_output *t) {
    static const unsigned char zeros[AX_GGUF_ALIGNMENT] = {0};
    int64_t rows;
    uint64_t bytes;
    AX_TRY(ax_product(t->shape, t->ndim - 1, &rows));
    AX_TRY(tensor_bytes(t, &bytes));
    for (int64_t first = 0, step = piece_rows(t); first < rows; first += step) {
        const int64_t n = rows - first < step ? rows - first : step;
        AX_TRY(t->fill(t->ctx, first, n, o->values));
        AX_TRY(encode(o, t, n));
        AX_TRY(ax_direct_io_write(&o->f, o->blocks, (size_t)n * row_bytes(t)));
    }
    return ax_direct_io_write(&o->f, zeros, aligned(bytes) - bytes);
}

static enum ax_status allocate(struct output *o) {
    size_t values = 0, blocks = 0;
    for (int i = 0; i < o->save->n; i++) {
        const struct ax_gguf_output *t = &o->save->tensors[i];
        int64_t rows, numel;
        size_t bytes;
        AX_TRY(ax_product(t->shape, t->ndim - 1, &rows));
        rows = rows < piece_rows(t) ? rows : piece_rows(t);
        const int64_t sizes[] = {rows, columns(t)};
        AX_TRY(ax_product(sizes, 2, &numel));
        if (ax_mul_overflow((size_t)rows, row_bytes(t), &bytes))
            return ax_error(AX_ERR_DATA, "%s: tensor %s is too large", o->save->path, t->name);
        values = (size_t)numel > values ? (size_t)numel : values;
        blocks = bytes > blocks ? bytes : blocks;
    }
    AX_TRY(ax_alloc(&o->values, values, sizeof *o->values));
    return ax_alloc(&o->blocks, blocks, 1);
}

static enum ax_status write_all(const struct ax_gguf_save *save, const char *tmp) {
    struct output o = {.save = save};
    struct ax_buf header = {0};
    enum ax_status st;
    AX_TRY_GOTO(build_header(save, &header), st, done);
    AX_TRY_GOTO(allocate(&o), st, done);
    AX_TRY_GOTO(ax_direct_io_create(&o.f, tmp), st, done);
    AX_TRY_GOTO(ax_direct_io_write(&o.f, header.data, header.len), st, done);
    for (int i = 0; i < save->n; i++)
        AX_TRY_GOTO(write_tensor(&o, &save->tensors[i]), st, done);
    AX_TRY_GOTO(ax_direct_io_finish(&o.f), st, done);
done:
    st = ax_direct_io_end(&o.f, st);
    ax_buf_free(&header);
    ax_free(o.values);
    ax_free(o.blocks);
    return st;
}

enum ax_status ax_gguf_write(const struct ax_gguf_save *save) {
    char *tmp = NULL, *dir = NULL;
    enum ax_status st;
    struct ax_error_record first;
    AX_TRY_GOTO(ax_path_parent(&dir, save->path), st, done);
    AX_TRY_GOTO(ax_folder_recover(save->path), st, done);
    AX_TRY_GOTO(check_room(save, dir), st, done);
    AX_TRY_GOTO(ax_sprintf(&tmp, "%s.tmp-%ld", save->path, (long)getpid()), st, done);
    AX_TRY_GOTO(write_all(save, tmp), st, fail);
    AX_TRY_GOTO(ax_rename(tmp, save->path), st, fail);
    AX_TRY_GOTO(ax_sync_dir(dir), st, done);
    goto done;
fail: /* reports the first error, not that of removing tmp */
    ax_error_save(&first, st);
    (void)ax_unlink(tmp);
    st = ax_error_restore(&first);
done:
    ax_free(tmp);
    ax_free(dir);
    return st;
}
