/* A file as a stream of bytes, what all readers share, and records that are lines. */
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "base/io.h"
#include "data/records/rows/reader.h"
#include "data/records/rows/rows.h"

/* ---- bytes ----
 *
 * Plain, gzip or zstd (detected from the first bytes, so a pipe may be compressed too), or standard
 * input. Memory is bounded for any input: one input buffer; for compressed files one output buffer and
 * a decoder. */

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

static void close_bytes(struct ax_bytes *b) {
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

/* "-" is standard input. */
static enum ax_status open_bytes(struct ax_bytes **out, const char *path) {
    struct ax_bytes *b;
    AX_TRY(ax_alloc(&b, 1, sizeof *b));
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&b->in, PIECE, 1), st, fail);
    AX_TRY_GOTO(ax_file_open_read(&b->file, strcmp(path, "-") == 0 ? "/dev/stdin" : path), st,
                fail);
    *out = b;
    return AX_OK;
fail:
    close_bytes(b);
    return st;
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

/* The next piece, valid until the next call; *n = 0 at the end. AX_ERR_DATA says why compressed
 * data is corrupted or truncated, without the location. */
static enum ax_status next_bytes(struct ax_bytes *b, const char **data, size_t *n) {
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

/* ---- readers ---- */

enum ax_status ax_reader_open(struct ax_reader *r, const char *path) {
    *r = (struct ax_reader){.path = path, .line = 1};
    return open_bytes(&r->bytes, path);
}

void ax_reader_close(struct ax_reader *r) {
    close_bytes(r->bytes);
    ax_buf_free(&r->kept);
    *r = (struct ax_reader){0};
}

enum ax_status ax_reader_more(struct ax_reader *r, bool *any) {
    if (r->at == r->n) {
        r->at = 0;
        r->n = 0;
        const enum ax_status st = next_bytes(r->bytes, &r->piece, &r->n);
        if (st == AX_ERR_DATA)
            return ax_error_prefix(st, "%s:%llu", r->path, (unsigned long long)r->line);
        AX_TRY(st);
    }
    *any = r->n > 0;
    return AX_OK;
}

enum ax_status ax_reader_keep(struct ax_reader *r, size_t n) {
    if (r->kept.len + n > AX_ROWS_MAX_BYTES)
        r->too_long = true;
    if (!r->too_long)
        AX_TRY(ax_buf_append(&r->kept, r->piece + r->at, n));
    r->at += n;
    return AX_OK;
}

void ax_reader_give(struct ax_reader *r, uint64_t line, struct ax_row_cut *cut) {
    *cut = (struct ax_row_cut){.text = r->kept.data, .len = r->kept.len, .line = line};
    if (r->too_long)
        *cut = (struct ax_row_cut){.line = line, .problem = "a record of more than 16 MiB"};
    r->kept.len = 0;
    r->too_long = false;
}

/* ---- lines ---- */

/* One line, with or without a line end, blank or not. */
static enum ax_status any_line(struct ax_reader *r, struct ax_row_cut *cut, bool *got) {
    const uint64_t line = r->line;
    for (bool found = false; !found;) {
        bool any = false;
        AX_TRY(ax_reader_more(r, &any));
        *got = any || r->kept.len > 0 || r->too_long;
        if (!any)
            break;
        const char *here = r->piece + r->at;
        const char *end = memchr(here, '\n', r->n - r->at);
        const size_t n = end ? (size_t)(end - here) : r->n - r->at;
        found = end != NULL;
        r->line += found;
        if (found && r->kept.len == 0 && !r->too_long && n <= AX_ROWS_MAX_BYTES) {
            *cut = (struct ax_row_cut){.text = here, .len = n, .line = line};
            r->at += n + 1;
            return AX_OK;
        }
        AX_TRY(ax_reader_keep(r, n));
        r->at += found;
    }
    ax_reader_give(r, line, cut);
    return AX_OK;
}

static bool is_blank(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (s[i] != ' ' && s[i] != '\t' && s[i] != '\r')
            return false;
    return true;
}

enum ax_status ax_cut_line(struct ax_reader *r, struct ax_row_cut *cut, bool *got) {
    do {
        AX_TRY(any_line(r, cut, got));
        if (cut->line == 1 && cut->len >= 3 && memcmp(cut->text, "\xEF\xBB\xBF", 3) == 0) {
            cut->text += 3; /* byte order mark */
            cut->len -= 3;
        }
        if (cut->len > 0 && cut->text[cut->len - 1] == '\r')
            cut->len--;
    } while (*got && !cut->problem && is_blank(cut->text, cut->len));
    return AX_OK;
}

enum ax_status ax_parse_line(const char *text, size_t len, json_t **out) {
    json_t *s = json_stringn(text, len);
    if (!s)
        return ax_error(AX_ERR_DATA, "not UTF-8 text");
    *out = json_pack("{s:o}", "text", s);
    return *out ? AX_OK : ax_error(AX_ERR_NOMEM, "out of memory for a record of %zu bytes", len);
}
