/* One input buffer; for compressed files one output buffer and a decoder. */
#include "data/records/rows/bytes.h"

#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "base/io.h"

#define PIECE ((size_t)256 * 1024)

enum packing { PLAIN, GZIP, ZSTD };

struct ax_bytes {
    struct ax_file file;
    enum packing packing;
    char *in, *out;     /* [PIECE]; out only for compressed files */
    size_t in_at, in_n; /* unread part of in */
    bool in_end;        /* the file has no more bytes */
    bool started;       /* the first bytes have been inspected */
    bool inside;        /* between the start and the end of a compressed member */
    z_stream gzip;
    ZSTD_DStream *zstd;
};

static void *zlib_alloc(void *opaque, unsigned n, unsigned size) {
    (void)opaque;
    size_t bytes;
    return ax_mul_overflow(n, size, &bytes) ? NULL : ax_malloc_hook(bytes);
}

static void zlib_free(void *opaque, void *p) {
    (void)opaque;
    ax_free_hook(p);
}

enum ax_status ax_bytes_open(struct ax_bytes **out, const char *path) {
    struct ax_bytes *b;
    AX_TRY(ax_alloc(&b, 1, sizeof *b));
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&b->in, PIECE, 1), st, fail);
    AX_TRY_GOTO(ax_file_open_read(&b->file, strcmp(path, "-") == 0 ? "/dev/stdin" : path), st,
                fail);
    *out = b;
    return AX_OK;
fail:
    ax_bytes_close(b);
    return st;
}

void ax_bytes_close(struct ax_bytes *b) {
    if (!b)
        return;
    if (b->packing == GZIP)
        (void)inflateEnd(&b->gzip);
    ZSTD_freeDStream(b->zstd);
    if (b->file.path)
        (void)ax_file_close(&b->file); /* opened for reading, so an error loses nothing */
    ax_free(b->in);
    ax_free(b->out);
    ax_free(b);
}

/* Refills `in` if it is empty. */
static enum ax_status fill(struct ax_bytes *b) {
    if (b->in_at < b->in_n || b->in_end)
        return AX_OK;
    b->in_at = 0;
    b->in_n = 0;
    AX_TRY(ax_file_read(&b->file, b->in, PIECE, &b->in_n));
    b->in_end = b->in_n == 0;
    return AX_OK;
}

/* Reads until the magic number is complete: a pipe may return its first bytes one by one. */
static enum ax_status fill_magic(struct ax_bytes *b) {
    while (b->in_n < 4 && !b->in_end) {
        size_t got;
        AX_TRY(ax_file_read(&b->file, b->in + b->in_n, PIECE - b->in_n, &got));
        b->in_n += got;
        b->in_end = got == 0;
    }
    return AX_OK;
}

static enum ax_status start(struct ax_bytes *b) {
    AX_TRY(fill_magic(b));
    b->started = true;
    if (b->in_n >= 2 && memcmp(b->in, "\x1F\x8B", 2) == 0) {
        b->gzip.zalloc = zlib_alloc;
        b->gzip.zfree = zlib_free;
        if (inflateInit2(&b->gzip, 15 + 16) != Z_OK)
            return ax_error(AX_ERR_NOMEM, "%s: out of memory for gzip", b->file.path);
        b->packing = GZIP;
    } else if (b->in_n >= 4 && memcmp(b->in, "\x28\xB5\x2F\xFD", 4) == 0) {
        b->zstd = ZSTD_createDStream();
        if (!b->zstd)
            return ax_error(AX_ERR_NOMEM, "%s: out of memory for zstd", b->file.path);
        b->packing = ZSTD;
    } else {
        return AX_OK;
    }
    return ax_alloc(&b->out, PIECE, 1);
}

static enum ax_status cut_short(const char *kind) {
    return ax_error(AX_ERR_DATA, "the %s data ends early: the file is truncated; copy it again",
                    kind);
}

static enum ax_status damaged(const char *kind, const char *why) {
    return ax_error(AX_ERR_DATA, "corrupted %s data (%s); copy the file again", kind, why);
}

/* A file may consist of several members. */
static enum ax_status next_gzip(struct ax_bytes *b, size_t *n) {
    *n = 0;
    while (*n == 0) {
        AX_TRY(fill(b));
        const bool end = b->in_at == b->in_n;
        if (end && !b->inside)
            return AX_OK;
        if (!b->inside)
            (void)inflateReset(&b->gzip);
        b->inside = true;
        b->gzip.next_in = (unsigned char *)b->in + b->in_at;
        b->gzip.avail_in = (unsigned)(b->in_n - b->in_at);
        b->gzip.next_out = (unsigned char *)b->out;
        b->gzip.avail_out = (unsigned)PIECE;
        const int rc = inflate(&b->gzip, Z_NO_FLUSH);
        b->in_at = b->in_n - b->gzip.avail_in;
        *n = PIECE - b->gzip.avail_out;
        if (rc == Z_STREAM_END)
            b->inside = false;
        else if (rc == Z_MEM_ERROR)
            return ax_error(AX_ERR_NOMEM, "%s: out of memory for gzip", b->file.path);
        else if (rc != Z_OK && rc != Z_BUF_ERROR)
            return damaged("gzip", b->gzip.msg ? b->gzip.msg : "not gzip");
        if (end && b->inside && *n == 0)
            return cut_short("gzip");
    }
    return AX_OK;
}

/* The library rejects windows above 128 MiB. */
static enum ax_status next_zstd(struct ax_bytes *b, size_t *n) {
    *n = 0;
    while (*n == 0) {
        AX_TRY(fill(b));
        const bool end = b->in_at == b->in_n;
        if (end && !b->inside)
            return AX_OK;
        ZSTD_inBuffer in = {.src = b->in, .size = b->in_n, .pos = b->in_at};
        ZSTD_outBuffer out = {.dst = b->out, .size = PIECE, .pos = 0};
        const size_t rc = ZSTD_decompressStream(b->zstd, &out, &in);
        if (ZSTD_isError(rc))
            return damaged("zstd", ZSTD_getErrorName(rc));
        b->inside = rc != 0;
        b->in_at = in.pos;
        *n = out.pos;
        if (end && b->inside && *n == 0)
            return cut_short("zstd");
    }
    return AX_OK;
}

enum ax_status ax_bytes_next(struct ax_bytes *b, const char **data, size_t *n) {
    if (!b->started)
        AX_TRY(start(b));
    *data = b->out;
    if (b->packing == GZIP)
        return next_gzip(b, n);
    if (b->packing == ZSTD)
        return next_zstd(b, n);
    AX_TRY(fill(b));
    *data = b->in + b->in_at;
    *n = b->in_n - b->in_at;
    b->in_at = b->in_n;
    return AX_OK;
}
