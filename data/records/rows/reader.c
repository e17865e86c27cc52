/* A file as a stream of bytes, and the records that are cut from it: lines, paragraphs, JSON, CSV. */
#include "data/records/rows/reader.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/io.h"
#include "base/text/json.h"
#include "data/records/rows/rows.h"

/* ---- bytes ----
 *
 * Plain, gzip or zstd (detected from the first bytes, so a pipe may be compressed too), or standard
 * input. Memory is bounded for any input: one input buffer; for compressed files one output buffer and
 * a decoder. */

#define PIECE ((size_t)256 * 1024)
/* Bytes of the first piece, unless the file has fewer: a magic number, or a byte order mark and one more. */
#define FIRST 4

enum packing { PLAIN, GZIP, ZSTD };

struct ax_bytes {
    struct ax_file file;
    enum packing packing;
    char *in, *out;     /* [PIECE]; out only for compressed files */
    size_t in_at, in_n; /* unread part of in */
    bool in_end;        /* the file has no more bytes */
    bool started;       /* the first piece has been read */
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

/* Loops, because a pipe may return its first bytes one by one. */
static enum ax_status fill_first(struct ax_bytes *b) {
    while (b->in_n < FIRST && !b->in_end) {
        size_t got;
        AX_TRY(ax_file_read(&b->file, b->in + b->in_n, PIECE - b->in_n, &got));
        b->in_n += got;
        b->in_end = got == 0;
    }
    return AX_OK;
}

/* What other programs pack files with, by FIRST bytes. */
static const struct {
    const char *first, *name, *unpack;
} others[] = {
    {"\xFD"
     "7zX",
     "xz", "xz -d"},
    {"BZh9", "bzip2", "bzip2 -d"},
    {"PK\3\4", "zip", "unzip"},
    {"7z\xBC\xAF", "7z", "7z x"},
    {"\x04\x22\x4D\x18", "lz4", "lz4 -d"},
};

static enum ax_status check_packing(const struct ax_bytes *b) {
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (b->in_n >= FIRST && memcmp(b->in, others[i].first, FIRST) == 0)
            return ax_error(
                AX_ERR_UNSUPPORTED,
                "%s data, which axtrain does not unpack: unpack the file with `%s`; files "
                "packed with gzip or zstd are read as they are",
                others[i].name, others[i].unpack);
    return AX_OK;
}

/* Finds out how the file is packed, and makes its decoder. */
static enum ax_status start(struct ax_bytes *b) {
    AX_TRY(fill_first(b));
    AX_TRY(check_packing(b));
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

/* Unpacks `least` bytes or more, fewer only at the end. A file may consist of several members; zeros
 * behind one, which fill a block of a tape, are skipped. */
static enum ax_status next_gzip(struct ax_bytes *b, size_t least, size_t *n) {
    *n = 0;
    while (*n < least) {
        AX_TRY(fill(b));
        while (!b->inside && b->in_at < b->in_n && b->in[b->in_at] == '\0')
            b->in_at++;
        const bool none = b->in_at == b->in_n;
        if (none && !b->inside && b->in_end)
            return AX_OK;
        if (none && !b->inside)
            continue;
        if (!b->inside)
            (void)inflateReset(&b->gzip);
        b->inside = true;
        b->gzip.next_in = (unsigned char *)b->in + b->in_at;
        b->gzip.avail_in = (unsigned)(b->in_n - b->in_at);
        b->gzip.next_out = (unsigned char *)b->out + *n;
        b->gzip.avail_out = (unsigned)(PIECE - *n);
        const size_t before = *n;
        const int rc = inflate(&b->gzip, Z_NO_FLUSH);
        b->in_at = b->in_n - b->gzip.avail_in;
        *n = PIECE - b->gzip.avail_out;
        if (rc == Z_STREAM_END)
            b->inside = false;
        else if (rc == Z_MEM_ERROR)
            return ax_error(AX_ERR_NOMEM, "%s: out of memory for gzip", b->file.path);
        else if (rc != Z_OK && rc != Z_BUF_ERROR)
            return damaged("gzip", b->gzip.msg ? b->gzip.msg : "not gzip");
        if (none && b->inside && *n == before)
            return cut_short("gzip");
    }
    return AX_OK;
}

static enum ax_status zstd_error(const struct ax_bytes *b, size_t rc) {
    const ZSTD_ErrorCode code = ZSTD_getErrorCode(rc);
    if (code == ZSTD_error_memory_allocation)
        return ax_error(AX_ERR_NOMEM, "%s: out of memory for zstd", b->file.path);
    if (code == ZSTD_error_frameParameter_windowTooLarge)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "the zstd data needs a window of more than 128 MiB of memory; compress it "
                        "again without --long, or decompress it (zstd -d --long=31)");
    return damaged("zstd", ZSTD_getErrorName(rc));
}

/* As next_gzip. The library's own limit of windows, 128 MiB, bounds memory. */
static enum ax_status next_zstd(struct ax_bytes *b, size_t least, size_t *n) {
    *n = 0;
    while (*n < least) {
        AX_TRY(fill(b));
        const bool end = b->in_at == b->in_n;
        if (end && !b->inside)
            return AX_OK;
        ZSTD_inBuffer in = {.src = b->in, .size = b->in_n, .pos = b->in_at};
        ZSTD_outBuffer out = {.dst = b->out, .size = PIECE, .pos = *n};
        const size_t rc = ZSTD_decompressStream(b->zstd, &out, &in);
        if (ZSTD_isError(rc))
            return zstd_error(b, rc);
        b->inside = rc != 0;
        b->in_at = in.pos;
        if (end && b->inside && out.pos == *n)
            return cut_short("zstd");
        *n = out.pos;
    }
    return AX_OK;
}

/* A piece of `least` bytes or more, fewer only at the end. A plain one is whatever a read returned, the
 * first one FIRST bytes or more. */
static enum ax_status unpack(struct ax_bytes *b, size_t least, const char **data, size_t *n) {
    *data = b->out;
    if (b->packing == GZIP)
        return next_gzip(b, least, n);
    if (b->packing == ZSTD)
        return next_zstd(b, least, n);
    AX_TRY(fill(b));
    *data = b->in + b->in_at;
    *n = b->in_n - b->in_at;
    b->in_at = b->in_n;
    return AX_OK;
}

/* The next piece, valid until the next call, without the byte order mark that a file may begin with;
 * *n = 0 at the end. AX_ERR_DATA and AX_ERR_UNSUPPORTED say why data cannot be read, without the
 * location. */
static enum ax_status next_bytes(struct ax_bytes *b, const char **data, size_t *n) {
    if (b->started)
        return unpack(b, 1, data, n);
    b->started = true;
    AX_TRY(start(b));
    AX_TRY(unpack(b, FIRST, data, n));
    if (*n >= 2 && (memcmp(*data, "\xFF\xFE", 2) == 0 || memcmp(*data, "\xFE\xFF", 2) == 0))
        return ax_error(AX_ERR_DATA, "UTF-16 text, as Windows' tools write it; convert the file to "
                                     "UTF-8, for example with `iconv -f UTF-16 -t UTF-8`");
    if (*n >= 3 && memcmp(*data, "\xEF\xBB\xBF", 3) == 0) {
        *data += 3;
        *n -= 3;
    }
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

/* Makes sure that a byte is available; *any = false at the end of the file. */
static enum ax_status need_byte(struct ax_reader *r, bool *any) {
    if (r->at == r->n) {
        r->at = 0;
        r->n = 0;
        const enum ax_status st = next_bytes(r->bytes, &r->piece, &r->n);
        if (st == AX_ERR_DATA || st == AX_ERR_UNSUPPORTED)
            return ax_error_prefix(st, "%s:%llu", r->path, (unsigned long long)r->line);
        AX_TRY(st);
    }
    *any = r->n > 0;
    return AX_OK;
}

/* Moves n bytes from the piece to the kept record. */
static enum ax_status keep_bytes(struct ax_reader *r, size_t n) {
    if (r->kept.len + n > AX_ROWS_MAX_BYTES)
        r->too_long = true;
    if (!r->too_long)
        AX_TRY(ax_buf_append(&r->kept, r->piece + r->at, n));
    r->at += n;
    return AX_OK;
}

/* Returns the kept record, which began on `line`; the next keep starts a new one. */
static void give_kept(struct ax_reader *r, uint64_t line, struct ax_row_cut *cut) {
    *cut = (struct ax_row_cut){.text = r->kept.data, .len = r->kept.len, .line = line};
    if (r->too_long)
        *cut = (struct ax_row_cut){.line = line, .problem = "a record of more than 16 MiB"};
    r->kept.len = 0;
    r->too_long = false;
}

/* ---- lines ---- */

/* One line without its end, blank or not: in the piece if it ends there, which has fewer bytes than a
 * record may, or else kept. */
static enum ax_status any_line(struct ax_reader *r, struct ax_row_cut *cut, bool *got) {
    const uint64_t line = r->line;
    for (bool found = false; !found;) {
        bool any = false;
        AX_TRY(need_byte(r, &any));
        *got = any || r->kept.len > 0 || r->too_long;
        if (!any)
            break;
        const char *here = r->piece + r->at;
        const char *end = memchr(here, '\n', r->n - r->at);
        const size_t n = end ? (size_t)(end - here) : r->n - r->at;
        found = end != NULL;
        r->line += found;
        if (found && r->kept.len == 0 && !r->too_long) {
            *cut = (struct ax_row_cut){.text = here, .len = n, .line = line};
            r->at += n + 1;
            return AX_OK;
        }
        AX_TRY(keep_bytes(r, n));
        r->at += found;
    }
    give_kept(r, line, cut);
    return AX_OK;
}

static bool is_blank(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (s[i] != ' ' && s[i] != '\t' && s[i] != '\r')
            return false;
    return true;
}

static enum ax_status cut_line(struct ax_reader *r, struct ax_row_cut *cut, bool *got) {
    do {
        AX_TRY(any_line(r, cut, got));
        if (cut->len > 0 && cut->text[cut->len - 1] == '\r')
            cut->len--;
    } while (*got && !cut->problem && is_blank(cut->text, cut->len));
    return AX_OK;
}

/* Adds a line of a block, without its end, to what is kept. *blank: it has no text; *more = false at the
 * end of the file. */
static enum ax_status keep_line(struct ax_reader *r, bool *blank, bool *more) {
    const size_t start = r->kept.len;
    *blank = true;
    for (bool found = false; !found;) {
        AX_TRY(need_byte(r, more));
        if (!*more)
            break;
        const char *here = r->piece + r->at;
        const char *end = memchr(here, '\n', r->n - r->at);
        const size_t n = end ? (size_t)(end - here) : r->n - r->at;
        found = end != NULL;
        r->line += found;
        *blank = *blank && is_blank(here, n);
        AX_TRY(keep_bytes(r, n));
        r->at += found;
    }
    if (!r->too_long && r->kept.len > start && r->kept.data[r->kept.len - 1] == '\r')
        r->kept.len--;
    return AX_OK;
}

/* Paragraphs and whole files. Line ends become \n; a paragraph has neither the blank lines around it nor
 * the end of its last line. */
static enum ax_status cut_block(struct ax_reader *r, struct ax_row_cut *cut, bool *got) {
    const bool paragraph = r->sample_by == AX_SAMPLE_PARAGRAPH;
    uint64_t first = r->line;
    bool any_text = false;
    for (bool more = true; more;) {
        const uint64_t line = r->line;
        const size_t start = r->kept.len;
        const bool was_too_long = r->too_long;
        bool blank;
        AX_TRY(keep_line(r, &blank, &more));
        if (blank && paragraph) { /* an end, or before the first line of the next one */
            r->kept.len = start;
            r->too_long = was_too_long;
            if (any_text)
                break;
        } else if (more && !r->too_long) {
            AX_TRY(ax_buf_append(&r->kept, "\n", 1));
        }
        if (!blank && !any_text && paragraph)
            first = line;
        any_text = any_text || !blank;
    }
    *got = any_text;
    give_kept(r, first, cut);
    if (paragraph && cut->len > 0 && cut->text[cut->len - 1] == '\n')
        cut->len--;
    return AX_OK;
}

static enum ax_status parse_line(const char *text, size_t len, json_t **out) {
    json_t *s;
    AX_TRY(ax_row_text(&s, text, len));
    *out = json_pack("{s:o}", "text", s);
    return *out ? AX_OK : ax_error(AX_ERR_NOMEM, "out of memory for a record of %zu bytes", len);
}

/* ---- JSON: a record per line, or the elements of one list ---- */

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

#define END (-1) /* of the file, where a byte is expected */

/* Skips white space, counting lines. *c = the next byte, or END. */
static enum ax_status skip_space(struct ax_reader *r, int *c) {
    for (;;) {
        bool any = false;
        AX_TRY(need_byte(r, &any));
        *c = any ? (unsigned char)r->piece[r->at] : END;
        if (!any || !is_space(r->piece[r->at]))
            return AX_OK;
        r->line += *c == '\n';
        r->at++;
    }
}

/* The state of scanning an element of a list. */
struct nesting {
    int64_t depth;
    bool string, escape, scalar, done;
};

/* Processes one byte; sets done after the element's last one. False if the byte is not part of
 * the element. */
static bool scan_byte(struct nesting *s, char c) {
    if (s->string) {
        if (s->escape)
            s->escape = false;
        else if (c == '\\')
            s->escape = true;
        else if (c == '"')
            s->string = false;
        s->done = !s->string && s->depth == 0;
        return true;
    }
    if (s->scalar && (c == ',' || c == ']' || c == '}' || is_space(c))) {
        s->done = true;
        return false;
    }
    if (c == '"')
        s->string = true;
    else if (c == '{' || c == '[')
        s->depth++;
    else if (c == '}' || c == ']')
        s->done = --s->depth == 0;
    else
        s->scalar = s->depth == 0;
    return true;
}

static enum ax_status cut_element(struct ax_reader *r, struct ax_row_cut *cut) {
    const uint64_t line = r->line;
    struct nesting s = {0};
    while (!s.done) {
        bool any = false;
        AX_TRY(need_byte(r, &any));
        if (!any)
            return ax_error(AX_ERR_DATA, "%s:%llu: the file ends inside this record", r->path,
                            (unsigned long long)line);
        size_t n = 0;
        while (!s.done && r->at + n < r->n) {
            const char c = r->piece[r->at + n];
            if (!scan_byte(&s, c))
                break;
            r->line += c == '\n';
            n++;
        }
        AX_TRY(keep_bytes(r, n));
    }
    give_kept(r, line, cut);
    return AX_OK;
}

static enum ax_status bad_list(const struct ax_reader *r, const char *expected, int c) {
    if (c == END)
        return ax_error(AX_ERR_DATA, "%s:%llu: the file ends before the list's \"]\"", r->path,
                        (unsigned long long)r->line);
    return ax_error(AX_ERR_DATA,
                    c < ' ' ? "%s:%llu: expected %s in the list of records, got the byte %d"
                            : "%s:%llu: expected %s in the list of records, got \"%c\"",
                    r->path, (unsigned long long)r->line, expected, c);
}

static enum ax_status next_element(struct ax_reader *r, struct ax_row_cut *cut, bool *got) {
    int c;
    AX_TRY(skip_space(r, &c));
    const bool first = r->state == AX_READ_LIST, comma = !first && c == ',';
    if (comma) {
        r->at++;
        AX_TRY(skip_space(r, &c));
    }
    if (c == ']' && !comma) {
        r->at++;
        r->state = AX_READ_DONE;
        AX_TRY(skip_space(r, &c));
        return c == END ? AX_OK
                        : ax_error(AX_ERR_DATA, "%s:%llu: text after the list of records", r->path,
                                   (unsigned long long)r->line);
    }
    if (!first && !comma)
        return bad_list(r, "\",\" or \"]\"", c);
    if (c < ' ' || c == ',' || c == ']' || c == '}')
        return bad_list(r, first ? "a record or \"]\"" : "a record", c);
    r->state = AX_READ_LIST_NEXT;
    *got = true;
    return cut_element(r, cut);
}

static enum ax_status start_json(struct ax_reader *r) {
    int c;
    AX_TRY(skip_space(r, &c));
    r->state = c == '[' ? AX_READ_LIST : AX_READ_LINES;
    r->at += c == '[';
    return AX_OK;
}

static enum ax_status cut_json(struct ax_reader *r, struct ax_row_cut *cut, bool *got) {
    *got = false;
    if (r->state == AX_READ_START)
        AX_TRY(start_json(r));
    if (r->state == AX_READ_LINES)
        return cut_line(r, cut, got);
    if (r->state == AX_READ_DONE)
        return AX_OK;
    return next_element(r, cut, got);
}

/* "row:LINE:COLUMN: why" → the position and why. */
static enum ax_status place_error(enum ax_status st, struct ax_row_place *place) {
    unsigned long long line;
    unsigned long long column;
    int n = 0;
    char why[256];
    const char *text = ax_error_text();
    if (st != AX_ERR_DATA || sscanf(text, "row:%llu:%llu: %n", &line, &column, &n) < 2 || n == 0)
        return st;
    snprintf(why, sizeof why, "%s", text + n);
    *place = (struct ax_row_place){.line = line - 1, .column = column};
    if (strstr(why, "near end of file")) /* an element of a list is cut where it ends */
        return ax_error(AX_ERR_DATA, "the record does not end on this line; write one record per "
                                     "line, or a list of records, [{…}, …]");
    return ax_error(AX_ERR_DATA, "%s", why);
}

static enum ax_status parse_json(const char *text, size_t len, json_t **out,
                                 struct ax_row_place *place) {
    struct ax_json_doc doc;
    enum ax_status st = ax_json_parse(&doc, "row", text, len);
    if (st != AX_OK)
        return place_error(st, place);
    *out = doc.root;
    doc.root = NULL;
    ax_json_free(&doc);
    if (json_is_object(*out))
        return AX_OK;
    json_decref(*out);
    *out = NULL;
    return ax_error(AX_ERR_DATA, "expected an object, {\"column\": value, …}");
}

/* ---- CSV: the fields are cut in csv.c ---- */

/* Cuts one record, which ends at the first line end outside of quotes. */
static enum ax_status cut_record(struct ax_reader *r, struct ax_row_cut *cut, bool *got) {
    const uint64_t line = r->line;
    enum ax_csv_place at = AX_CSV_START;
    *got = false;
    for (bool found = false; !found;) {
        bool any = false;
        AX_TRY(need_byte(r, &any));
        if (!any) {
            if (at == AX_CSV_QUOTED)
                return ax_error(AX_ERR_DATA, "%s:%llu: a quote opened in this row is never closed",
                                r->path, (unsigned long long)line);
            break;
        }
        *got = true;
        size_t n = 0;
        for (; r->at + n < r->n && !found; n += !found) {
            const char c = r->piece[r->at + n];
            found = c == '\n' && at != AX_CSV_QUOTED;
            r->line += c == '\n';
            at = ax_csv_next_place(at, c, r->delimiter);
        }
        AX_TRY(keep_bytes(r, n));
        r->at += found;
    }
    give_kept(r, line, cut);
    if (cut->len > 0 && cut->text[cut->len - 1] == '\r')
        cut->len--;
    return AX_OK;
}

static enum ax_status cut_csv(struct ax_reader *r, struct ax_row_cut *cut, bool *got) {
    do
        AX_TRY(cut_record(r, cut, got));
    while (*got && !cut->problem && cut->len == 0);
    return AX_OK;
}

/* ---- records of any kind ---- */

enum ax_status ax_reader_cut(struct ax_reader *r, enum ax_rows_kind kind, struct ax_row_cut *cut,
                             bool *got) {
    if (kind == AX_ROWS_JSON)
        return cut_json(r, cut, got);
    if (kind != AX_ROWS_TEXT)
        return cut_csv(r, cut, got);
    return r->sample_by == AX_SAMPLE_LINE ? cut_line(r, cut, got) : cut_block(r, cut, got);
}

enum ax_status ax_row_parse(enum ax_rows_kind kind, const struct ax_csv_header *h, const char *text,
                            size_t len, json_t **out, struct ax_row_place *place) {
    if (kind == AX_ROWS_JSON || kind == AX_ROWS_PARQUET)
        return parse_json(text, len, out, place);
    return kind == AX_ROWS_TEXT ? parse_line(text, len, out) : ax_csv_parse(h, text, len, out);
}
