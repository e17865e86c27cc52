/* Records of all files of a data set: opens one file after the other, and keeps the records that
 * slices and shards select. Read ax_rows_open, then ax_rows_next. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash/hash.h"
#include "base/io.h"
#include "base/lock.h"
#include "base/text/json.h"
#include "base/text/lfs_pointer.h"
#include "data/records/rows/rows.h"
#include "data/records/rows/find.h"
#include "data/records/rows/shuffle.h"
#include "data/records/rows/split.h"

#define NAMED_COLUMNS 20 /* of a header, for people */

struct source_file {
    char *path;
    enum ax_rows_kind kind;
    struct ax_csv_header header; /* read when the file is first opened; never changes after */
    char delimiter;              /* as configured */
    enum ax_sample_by sample_by;
};

/* The records [from, to) of files [first, end), counted from the first file's first record. */
struct part {
    size_t first, end;
    int64_t from, to;
};

struct ax_rows {
    struct source_file *files;
    size_t n_files;
    struct part parts[AX_SPLIT_PARTS_MAX];
    size_t n_parts;
    int64_t skip, empty_rows;
    uint64_t *kept;  /* a bit per record, by its index among the selected ones; NULL = all */
    char *split;     /* as configured, for ax_rows_describe */
    size_t n_unread; /* files that are in no split, as their names say none and others' do */
    char *unread;    /* the first of them */
    int64_t n_shards, shard;
    uint64_t seed;
    struct ax_lock use; /* of a hub data set */

    struct ax_reader reader;    /* for files[file], … */
    struct ax_parquet *parquet; /* … or this one */
    bool open;
    size_t part, file;
    int64_t in_part;  /* records of the part seen so far */
    int64_t index;    /* of the next record among those of all parts */
    int64_t selected; /* records that slices have selected so far */
    int64_t number;   /* of the next record that is read */
};

static enum ax_status cut_row(struct ax_rows *r, struct ax_row_cut *cut, bool *got) {
    const enum ax_rows_kind kind = r->files[r->file].kind;
    return kind == AX_ROWS_PARQUET ? ax_parquet_next(r->parquet, cut, got)
                                   : ax_reader_cut(&r->reader, kind, cut, got);
}

static bool is_csv(const struct source_file *f) {
    return f->kind == AX_ROWS_CSV || f->kind == AX_ROWS_TSV;
}

/* Skips a CSV file's header; *h gets it if it was not read before. */
static enum ax_status read_header(struct ax_reader *r, const struct source_file *f,
                                  struct ax_csv_header *h) {
    struct ax_row_cut cut;
    bool got;
    r->delimiter = f->delimiter;
    AX_TRY(ax_reader_cut(r, f->kind, &cut, &got));
    if (got && h->n == 0) {
        if (cut.problem)
            return ax_error(AX_ERR_DATA, "%s:1: a header line of more than 16 MiB", f->path);
        h->delimiter = f->delimiter;
        AX_TRY(ax_csv_header_parse(h, f->kind, f->path, &cut));
    }
    r->delimiter = h->delimiter;
    return AX_OK;
}

static enum ax_status open_file(struct ax_rows *r) {
    struct source_file *f = &r->files[r->file];
    AX_TRY(ax_lfs_refuse_file(f->path));
    AX_TRY(f->kind == AX_ROWS_PARQUET ? ax_parquet_open(&r->parquet, f->path)
                                      : ax_reader_open(&r->reader, f->path));
    r->open = true;
    r->reader.sample_by = f->sample_by;
    return is_csv(f) ? read_header(&r->reader, f, &f->header) : AX_OK;
}

static void close_file(struct ax_rows *r) {
    if (r->open)
        ax_reader_close(&r->reader);
    ax_parquet_close(r->parquet);
    r->parquet = NULL;
    r->open = false;
}

static void go_to_part(struct ax_rows *r, size_t part) {
    close_file(r);
    r->part = part;
    r->file = part < r->n_parts ? r->parts[part].first : 0;
    r->in_part = 0;
}

/* The next record of the part, selected or not; *got = false at its end. */
static enum ax_status next_of_part(struct ax_rows *r, struct ax_row_cut *cut, bool *got) {
    for (*got = false; r->file < r->parts[r->part].end; r->file++) {
        if (!r->open)
            AX_TRY(open_file(r));
        AX_TRY(cut_row(r, cut, got));
        if (*got)
            return AX_OK;
        close_file(r);
    }
    return AX_OK;
}

static bool is_kept(const struct ax_rows *r, int64_t selected) {
    return !r->kept || (r->kept[selected / 64] >> (selected % 64) & 1U);
}

/* Record {} number i is on line i. */
static void next_empty(struct ax_rows *r, struct ax_raw_row *row, bool *got) {
    *got = r->index < r->empty_rows;
    *row = (struct ax_raw_row){
        .text = "{}", .len = 2, .line = (uint64_t)r->index + 1, .index = r->index};
    row->number = r->index;
    r->index += *got;
}

/* The next record of this part as it is in the file; at the part's end, moves to the next part. */
static enum ax_status next_here(struct ax_rows *r, struct ax_row_cut *cut, bool *any) {
    *any = false;
    if (r->in_part < r->parts[r->part].to)
        AX_TRY(next_of_part(r, cut, any));
    if (!*any)
        go_to_part(r, r->part + 1);
    return AX_OK;
}

/* Counts the record that next_here has found. True: it is read, and not left out. */
static bool count(struct ax_rows *r) {
    r->index++;
    if (r->in_part++ < r->parts[r->part].from)
        return false;
    const int64_t selected = r->selected++;
    if (selected < r->skip || !is_kept(r, selected))
        return false;
    r->number++;
    return true;
}

enum ax_status ax_rows_next(struct ax_rows *r, struct ax_raw_row *row, bool *got) {
    if (r->empty_rows > 0) {
        next_empty(r, row, got);
        return AX_OK;
    }
    for (*got = false; r->part < r->n_parts;) {
        struct ax_row_cut cut;
        bool any;
        AX_TRY(next_here(r, &cut, &any));
        if (!any || !count(r))
            continue;
        *row = (struct ax_raw_row){.text = cut.text,
                                   .len = cut.len,
                                   .file = (uint32_t)r->file,
                                   .line = cut.line,
                                   .index = r->index - 1,
                                   .number = r->number - 1,
                                   .problem = cut.problem};
        *got = true;
        return AX_OK;
    }
    return AX_OK;
}

static bool reads_stdin(const struct ax_rows *r) {
    for (size_t i = 0; i < r->n_files; i++)
        if (strcmp(r->files[i].path, "-") == 0)
            return true;
    return false;
}

/* Goes on, or begins again, until *at, one of r's counts, is `to`. */
static enum ax_status seek(struct ax_rows *r, const int64_t *at, int64_t to) {
    if (r->empty_rows > 0) {
        r->index = to;
        return AX_OK;
    }
    if (to < *at && reads_stdin(r))
        return ax_error(AX_ERR_DATA, "standard input cannot be read twice; give a file");
    if (to < *at) {
        go_to_part(r, 0);
        r->index = r->selected = r->number = 0;
    }
    while (*at < to && r->part < r->n_parts) {
        struct ax_row_cut cut;
        bool any;
        AX_TRY(next_here(r, &cut, &any));
        if (any)
            (void)count(r);
    }
    return AX_OK;
}

enum ax_status ax_rows_seek(struct ax_rows *r, int64_t index) {
    return seek(r, &r->index, index);
}

enum ax_status ax_rows_seek_number(struct ax_rows *r, int64_t number) {
    return seek(r, &r->number, number);
}

/* ---- opening ---- */

static enum ax_status count_part(struct ax_rows *r, size_t part, int64_t *n) {
    if (reads_stdin(r))
        return ax_error(AX_ERR_CONFIG, "standard input: percentages, bounds from the end and "
                                       "shards need the number of records; give a file");
    go_to_part(r, part);
    struct ax_row_cut cut;
    *n = 0;
    for (bool got = true; got; *n += got)
        AX_TRY(next_of_part(r, &cut, &got));
    go_to_part(r, 0);
    return AX_OK;
}

static enum ax_status add_file(struct ax_rows *r, const struct ax_rows_options *o,
                               const struct ax_found_file *f) {
    AX_TRY(ax_regrow(&r->files, r->n_files, r->n_files + 1, sizeof *r->files));
    r->files[r->n_files] =
        (struct source_file){.kind = f->kind, .delimiter = o->delimiter, .sample_by = o->sample_by};
    AX_TRY(ax_strdup(&r->files[r->n_files].path, f->path));
    r->n_files++;
    return AX_OK;
}

/* Adds the files of a split in `found` as a part. */
static enum ax_status add_part(struct ax_rows *r, const struct ax_found *found,
                               const struct ax_rows_options *o, const struct ax_split *s) {
    const size_t first = r->n_files;
    bool *chosen;
    AX_TRY(ax_alloc(&chosen, found->n, sizeof *chosen));
    enum ax_status st = ax_found_in_split(found, o->path, s->name, !o->split, chosen);
    for (size_t i = 0; i < found->n && st == AX_OK; i++)
        if (chosen[i])
            st = add_file(r, o, &found->files[i]);
    ax_free(chosen);
    AX_TRY(st);
    const size_t part = r->n_parts++;
    r->parts[part] = (struct part){.first = first, .end = r->n_files};
    int64_t n = 0;
    if (ax_split_needs_count(s))
        AX_TRY(count_part(r, part, &n));
    ax_split_resolve(s, n, &r->parts[part].from, &r->parts[part].to);
    return AX_OK;
}

static enum ax_status note_unread(struct ax_rows *r, const struct ax_found *found) {
    size_t n = 0, first = 0;
    for (size_t i = found->n; i-- > 0;) {
        if (!found->files[i].split[0]) {
            first = i;
            n++;
        }
    }
    if (n == 0 || n == found->n)
        return AX_OK;
    r->n_unread = n;
    return ax_strdup(&r->unread, found->files[first].path);
}

/* Assigns the selected records at random to shards: a record's shard depends on its position in
 * the shuffled order. */
static enum ax_status choose_shard(struct ax_rows *r, const struct ax_rows_options *o) {
    int64_t n = 0;
    for (size_t i = 0; i < r->n_parts; i++) {
        int64_t rows;
        AX_TRY(count_part(r, i, &rows));
        const int64_t to = r->parts[i].to < rows ? r->parts[i].to : rows;
        n += to > r->parts[i].from ? to - r->parts[i].from : 0;
    }
    uint64_t *kept;
    uint32_t *order;
    AX_TRY(ax_alloc(&kept, (size_t)n / 64 + 1, sizeof *kept));
    r->kept = kept;
    AX_TRY(ax_shuffled(&order, (size_t)n, (struct ax_shuffle_key){o->seed, 0, "shards"}));
    const int64_t from = ax_shard_start(n, o->n_shards, o->shard);
    const int64_t to = ax_shard_start(n, o->n_shards, o->shard + 1);
    for (int64_t i = from; i < to; i++)
        kept[order[i] / 64] |= (uint64_t)1 << (order[i] % 64);
    ax_free(order);
    return AX_OK;
}

/* An option that no file heeds was meant for another kind of file. */
static enum ax_status check_form(const struct ax_rows *r, const struct ax_rows_options *o) {
    bool csv = false, text = false;
    for (size_t i = 0; i < r->n_files; i++) {
        csv = csv || is_csv(&r->files[i]);
        text = text || r->files[i].kind == AX_ROWS_TEXT;
    }
    if (o->delimiter && !csv)
        return ax_error(AX_ERR_CONFIG,
                        "delimiter: %s is not CSV; remove the key, or set ds_type: csv", o->path);
    if (o->sample_by_set && !text)
        return ax_error(AX_ERR_CONFIG,
                        "sample_by: %s is not text; remove the key, or set ds_type: text", o->path);
    return AX_OK;
}

static enum ax_status open_rows(struct ax_rows *r, const struct ax_rows_options *o) {
    r->n_shards = o->n_shards;
    r->shard = o->shard;
    r->seed = o->seed;
    r->skip = o->skip;
    r->empty_rows = o->empty_rows;
    if (o->empty_rows > 0)
        return AX_OK;
    const char *split = ax_rows_split(o);
    AX_TRY(ax_strdup(&r->split, split));
    struct ax_split parts[AX_SPLIT_PARTS_MAX];
    size_t n_parts;
    AX_TRY(ax_split_parse(split, parts, &n_parts));
    struct ax_found found;
    AX_TRY(ax_hub_dataset_use(&r->use, o));
    AX_TRY(ax_rows_find(&found, o));
    enum ax_status st = AX_OK;
    for (size_t i = 0; i < n_parts && st == AX_OK; i++)
        st = add_part(r, &found, o, &parts[i]);
    if (st == AX_OK)
        st = note_unread(r, &found);
    ax_found_free(&found);
    AX_TRY(st);
    AX_TRY(check_form(r, o));
    if (o->n_shards > 1)
        AX_TRY(choose_shard(r, o));
    go_to_part(r, 0);
    return AX_OK;
}

enum ax_status ax_rows_open(struct ax_rows **out, const struct ax_rows_options *o) {
    struct ax_rows *r;
    AX_TRY(ax_alloc(&r, 1, sizeof *r));
    enum ax_status st = open_rows(r, o);
    if (st == AX_OK)
        *out = r;
    else
        ax_rows_close(r);
    return st;
}

void ax_rows_close(struct ax_rows *r) {
    if (!r)
        return;
    close_file(r);
    for (size_t i = 0; i < r->n_files; i++) {
        ax_free(r->files[i].path);
        ax_csv_header_free(&r->files[i].header);
    }
    ax_free(r->files);
    ax_free(r->kept);
    ax_free(r->split);
    ax_free(r->unread);
    ax_lock_drop(&r->use);
    ax_free(r);
}

/* ---- rows and files ---- */

enum ax_status ax_rows_parse(const struct ax_rows *r, const struct ax_raw_row *row, json_t **out) {
    if (r->empty_rows > 0) {
        *out = json_object();
        return *out ? AX_OK : ax_error(AX_ERR_NOMEM, "out of memory for a record");
    }
    struct ax_row_place place = {0};
    const struct source_file *f = &r->files[row->file];
    enum ax_status st;
    if (row->problem)
        st = ax_error(AX_ERR_DATA, "%s", row->problem);
    else
        st = ax_row_parse(f->kind, &f->header, row->text, row->len, out, &place);
    if (st == AX_OK)
        return AX_OK;
    const unsigned long long line = row->line + place.line;
    if (st == AX_ERR_DATA && place.column > 0)
        return ax_error_prefix(st, "%s:%llu:%llu", f->path, line, (unsigned long long)place.column);
    return ax_error_prefix(st, "%s:%llu", f->path, line);
}

size_t ax_rows_n_files(const struct ax_rows *r) {
    return r->empty_rows > 0 ? 1 : r->n_files;
}

const char *ax_rows_file(const struct ax_rows *r, size_t file) {
    return r->empty_rows > 0 ? "synthetic" : r->files[file].path;
}

bool ax_rows_are_text(const struct ax_rows *r) {
    for (size_t i = 0; i < r->n_files; i++)
        if (r->files[i].kind != AX_ROWS_TEXT)
            return false;
    return r->n_files > 0;
}

/* ---- how they are divided ---- */

static enum ax_status put_delimiter(struct ax_buf *out, char c) {
    return c == '\t' ? ax_buf_puts(out, "a tab") : ax_buf_printf(out, "\"%c\"", c);
}

static enum ax_status put_csv_form(const struct source_file *f, const struct ax_csv_header *h,
                                   bool doubts, struct ax_buf *out) {
    if (h->n == 0 || (doubts && !h->other))
        return AX_OK;
    AX_TRY(ax_buf_printf(out, "%s: ", f->path));
    if (doubts) {
        AX_TRY(ax_buf_puts(out, "the header has "));
        AX_TRY(put_delimiter(out, h->delimiter));
        AX_TRY(ax_buf_puts(out, " and "));
        AX_TRY(put_delimiter(out, h->other));
        AX_TRY(ax_buf_puts(out, "; fields are read as separated by "));
        AX_TRY(put_delimiter(out, h->delimiter));
        return ax_buf_puts(out, ": if they are not, set delimiter\n");
    }
    AX_TRY(ax_buf_puts(out, "fields are separated by "));
    AX_TRY(put_delimiter(out, h->delimiter));
    AX_TRY(ax_buf_printf(out, ", %zu column%s:", h->n, h->n == 1 ? "" : "s"));
    for (size_t i = 0; i < h->n && i < NAMED_COLUMNS; i++)
        AX_TRY(ax_buf_printf(out, "%s \"%.80s\"", i ? "," : "", h->names[i]));
    return ax_buf_puts(out, h->n > NAMED_COLUMNS ? ", …\n" : "\n");
}

/* A file that was not opened yet is opened beside the records; a pipe is not. */
static enum ax_status put_csv(const struct source_file *f, bool doubts, struct ax_buf *out) {
    struct ax_csv_header read = {0};
    struct ax_reader reader;
    struct stat info;
    if (f->header.n > 0 || stat(f->path, &info) != 0 || !S_ISREG(info.st_mode))
        return put_csv_form(f, &f->header, doubts, out);
    enum ax_status st = ax_reader_open(&reader, f->path);
    if (st == AX_OK) {
        st = read_header(&reader, f, &read);
        ax_reader_close(&reader);
    }
    if (st == AX_OK)
        st = put_csv_form(f, &read, doubts, out);
    ax_csv_header_free(&read);
    if (st == AX_OK || st == AX_ERR_NOMEM)
        return st;
    ax_error_clear(); /* whoever reads the records says what is wrong */
    return AX_OK;
}

enum ax_status ax_rows_put_form(const struct ax_rows *r, bool doubts, struct ax_buf *out) {
    static const char *const forms[] = {
        [AX_SAMPLE_LINE] = "a record per line (sample_by: line)",
        [AX_SAMPLE_PARAGRAPH] = "a record per paragraph (sample_by: paragraph)",
        [AX_SAMPLE_DOCUMENT] = "a record per file (sample_by: document)"};
    if (doubts && r->n_unread > 0)
        AX_TRY(
            ax_buf_printf(out,
                          "%zu file%s not read: the name says no split (train, test …), and those "
                          "of other files do; data_files reads any file; the first is %s\n",
                          r->n_unread, r->n_unread == 1 ? " is" : "s are", r->unread));
    for (size_t i = 0; i < r->n_files; i++) {
        const struct source_file *f = &r->files[i];
        if (is_csv(f))
            return put_csv(f, doubts, out);
        if (f->kind == AX_ROWS_TEXT)
            return doubts ? AX_OK : ax_buf_printf(out, "%s: %s\n", f->path, forms[f->sample_by]);
    }
    return AX_OK;
}

/* ---- what they are ---- */

#define BLOCK (16 << 10) /* bytes that are read at a time */
#define WHOLE (1 << 20)  /* bytes of the largest file that is read as a whole */
#define TESTS 16         /* blocks that are read of a larger one */

/* A checksum of the bytes, of a large file of some of them: an edit may leave size and date as they were. */
static enum ax_status digest(const char *path, uint64_t size, uint64_t *sum) {
    unsigned char block[BLOCK];
    const bool whole = size <= WHOLE;
    const uint64_t n = whole ? (size + BLOCK - 1) / BLOCK : TESTS;
    struct ax_file f;
    *sum = 0;
    AX_TRY(ax_file_open_read(&f, path));
    enum ax_status st = AX_OK;
    for (uint64_t i = 0; i < n && st == AX_OK; i++) {
        const uint64_t at = whole ? i * BLOCK : (size - BLOCK) * i / (TESTS - 1);
        const size_t len = size - at < BLOCK ? (size_t)(size - at) : BLOCK;
        st = ax_file_pread(&f, block, len, at);
        *sum = ax_hash64(block, len, *sum);
    }
    return ax_file_end(&f, st);
}

static bool put_digest(json_t *v, const char *path, uint64_t size) {
    uint64_t sum;
    char hex[32];
    if (digest(path, size, &sum) != AX_OK) {
        ax_error_clear(); /* whoever reads the records says what is wrong */
        return false;
    }
    snprintf(hex, sizeof hex, "%016llx", (unsigned long long)sum);
    return json_object_set_new(v, "bytes", json_string(hex)) == 0;
}

/* Whatever changes the records of a file. */
static json_t *describe_file(const struct source_file *f) {
    struct stat info;
    char path[PATH_MAX];
    const char delimiter[] = {f->delimiter, '\0'};
    if (stat(f->path, &info) != 0 || !S_ISREG(info.st_mode) || !realpath(f->path, path))
        return NULL;
    json_t *v = json_pack("{s:o, s:i, s:I, s:I, s:i}", "path", ax_json_repaired(path), "kind",
                          (int)f->kind, "size", (json_int_t)info.st_size, "mtime",
                          (json_int_t)info.st_mtim.tv_sec, "mtime_ns", (int)info.st_mtim.tv_nsec);
    const bool ok =
        v && put_digest(v, path, (uint64_t)info.st_size) &&
        (!is_csv(f) || json_object_set_new(v, "delimiter", json_string(delimiter)) == 0) &&
        (f->kind != AX_ROWS_TEXT ||
         json_object_set_new(v, "sample_by", json_integer(f->sample_by)) == 0);
    if (!ok)
        json_decref(v);
    return ok ? v : NULL;
}

enum ax_status ax_rows_describe(const struct ax_rows *r, json_t **out) {
    *out = NULL;
    json_t *files = json_array();
    for (size_t i = 0; i < r->n_files; i++) {
        json_t *file = describe_file(&r->files[i]);
        if (!file || json_array_append_new(files, file) != 0) {
            json_decref(files);
            return AX_OK; /* not a regular file, so nothing identifies its contents */
        }
    }
    json_t *v = json_pack("{s:o, s:s?, s:I, s:I, s:I, s:I, s:I}", "files", files, "split", r->split,
                          "skip", (json_int_t)r->skip, "shards", (json_int_t)r->n_shards, "shard",
                          (json_int_t)r->shard, "seed", r->n_shards > 1 ? (json_int_t)r->seed : 0,
                          "empty_rows", (json_int_t)r->empty_rows);
    if (!v)
        return ax_error(AX_ERR_NOMEM, "out of memory while describing a data set");
    *out = v;
    return AX_OK;
}
