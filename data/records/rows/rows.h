/* Records of data sets: JSON lines, JSON lists, CSV, Parquet and plain text, each a JSON object
 * with its file and line. Files may be compressed (gzip, zstd) and are streamed: memory depends on
 * the longest record allowed, not on the file.
 *
 * Two steps, so that several threads can share the work: ax_rows_next reads the next record's text,
 * ax_rows_parse turns it into an object.
 *
 *   JSON     one object per line, or one list of objects
 *   CSV      RFC 4180 with a header line; fields are strings; the header says whether they are separated
 *            by a comma, a tab, ";" or "|"; if several of them are in it, the first in this order, but
 *            in .tsv the tab
 *   Parquet  lists and structures become JSON lists and objects; "line" is the record's number
 *   text     each line that is not blank is {"text": line}, or each paragraph, or the file
 *
 * Read on: find.c (which files), source.c (files, slices), reader.c, csv.c, parquet.c
 * (splitting and parsing). */
#ifndef AX_DATA_RECORDS_ROWS_ROWS_H
#define AX_DATA_RECORDS_ROWS_ROWS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"

#define AX_ROWS_MAX_BYTES ((size_t)16 << 20) /* per record */

/* What a record of a text file is; lines or blocks that are blank are none. */
enum ax_sample_by {
    AX_SAMPLE_LINE,
    AX_SAMPLE_PARAGRAPH, /* lines up to a blank one */
    AX_SAMPLE_DOCUMENT,  /* the file */
};

struct ax_rows_options {
    /* A file, a folder, a glob, a data set in the hub's local cache ("owner/name", downloaded by
     * ax_hub_dataset_get), or "-" for standard input. A folder means its files with a known
     * extension, subfolders included, in name order, or the files that its README.md lists. */
    const char *path;
    /* for a hub data set: its configuration; branch, tag or commit */
    const char *name, *revision;
    const char *const *data_files; /* these files of the folder instead */
    size_t n_data_files;
    const char *format; /* "json", "csv", "parquet" or "text"; NULL: by file extension */
    char delimiter; /* separator of CSV; 0: as the header says. AX_ERR_CONFIG if no file is CSV */
    enum ax_sample_by sample_by;
    bool sample_by_set; /* AX_ERR_CONFIG if no file is text */
    /* "train[:10%]+test[5:]". Names select among a folder's files by a word in the file name; a
     * single file is "train". Percentages are rounded to the nearest record. NULL: all of
     * `default_split`. */
    const char *split;
    const char *default_split; /* NULL = "train" */
    int64_t skip;              /* records to skip at the start */
    /* n_shards > 1: assigns the records at random (by seed) to this many shards of equal size and
     * keeps those of shard `shard`, in file order. */
    int64_t n_shards, shard;
    uint64_t seed;
    int64_t empty_rows; /* > 0: this many records {} instead of files */
};

/* The split expression in effect. */
static inline const char *ax_rows_split(const struct ax_rows_options *o) {
    return o->split ? o->split : o->default_split ? o->default_split : "train";
}

struct ax_rows;

/* AX_ERR_CONFIG for a bad split, AX_ERR_DATA if there are no files, AX_ERR_UNSUPPORTED for formats
 * and locations that axtrain cannot read. Counts the records first if a slice or shard needs it. */
enum ax_status ax_rows_open(struct ax_rows **out, const struct ax_rows_options *o);
void ax_rows_close(struct ax_rows *r);

/* A record as it is in the file. */
struct ax_raw_row {
    const char *text; /* [len], valid until the next call; JSON, CSV record or line */
    size_t len;
    uint32_t file;  /* for ax_rows_file */
    uint64_t line;  /* line of the record, from 1 */
    int64_t index;  /* among all records, before slices */
    int64_t number; /* among those that are read */
    /* why the record cannot be read, and then there is no text; NULL: it can */
    const char *problem;
};
/* *got = false at the end. Errors concern the file, not the record: the rest of it is lost. */
enum ax_status ax_rows_next(struct ax_rows *r, struct ax_raw_row *row, bool *got);
/* Seeks: the next record is the one with this index, or the first selected one after it. */
enum ax_status ax_rows_seek(struct ax_rows *r, int64_t index);
/* The same for the record with this number. */
enum ax_status ax_rows_seek_number(struct ax_rows *r, int64_t number);

/* An object, owned by the caller. AX_ERR_DATA "FILE:LINE: why" for a bad record. Thread-safe, also
 * while another thread calls ax_rows_next. */
enum ax_status ax_rows_parse(const struct ax_rows *r, const struct ax_raw_row *row, json_t **out);

size_t ax_rows_n_files(const struct ax_rows *r);
const char *ax_rows_file(const struct ax_rows *r, size_t file); /* path of a file; "-": stdin */

bool ax_rows_are_text(const struct ax_rows *r); /* every file */
/* Appends a line on how the first CSV or text file is divided, "FILE: fields are separated by ";", columns
 * "q", "a"" or "FILE: a record per line (sample_by: line)"; nothing for other data, or if its header
 * cannot be read. `doubts`: instead a line if files are not read for lack of a split in their names while
 * others have one, and a line if the header has several delimiters. */
enum ax_status ax_rows_put_form(const struct ax_rows *r, bool doubts, struct ax_buf *out);

/* Identifies the records for a cache key: the selection, and files with size and time. *out = NULL
 * if unknown (standard input, pipes). Free with json_decref. */
enum ax_status ax_rows_describe(const struct ax_rows *r, json_t **out);

#endif
