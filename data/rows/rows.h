/* Rows of data sets: JSON lines, JSON lists, CSV, Parquet and plain text, each row one JSON object
 * that knows its file and line. Files may be compressed (gzip, zstd) and are read as streams:
 * memory depends on the longest row allowed, not on the file.
 *
 * Two steps, so that several threads can share the work: ax_rows_next cuts the next row out of the
 * stream, ax_rows_parse turns its text into an object.
 *
 *   JSON   an object on each line, or one list of objects
 *   CSV    RFC 4180 with a header line; fields are strings; .tsv is separated by tabs
 *   Parquet  lists and structures become JSON lists and objects; "line" is the row's number
 *   text   each line that is not blank is {"text": line}
 *
 * Read on: find.c (which files), source.c (files, slices), json.c, csv.c,
 * parquet.c, text.c (cutting and parsing). */
#ifndef AX_DATA_ROWS_ROWS_H
#define AX_DATA_ROWS_ROWS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define AX_ROWS_MAX_BYTES ((size_t)16 << 20) /* of one row */

struct ax_rows_options {
    /* A file, a folder, a glob, a data set in the hub's local cache ("owner/name"; brought there by
     * ax_hub_dataset_get), or "-" for standard input. A folder gives its files with a known ending,
     * below it too, in the order of their names, or those that its README.md tells. */
    const char *path;
    const char *name, *revision;   /* of a hub data set: its configuration; branch, tag or commit */
    const char *const *data_files; /* these files of the folder instead */
    size_t n_data_files;
    const char *format; /* "json", "csv", "parquet" or "text"; NULL: by each file's ending */
    /* "train[:10%]+test[5:]". Names choose among the files of a folder by the word in their names;
     * a lone file is "train". Percentages are rounded to the nearest row. NULL: all rows of
     * `default_split`. */
    const char *split;
    const char *default_split; /* NULL = "train" */
    int64_t skip;              /* rows to leave out at the start */
    /* n_shards > 1: the rows are dealt at random (by seed) into so many parts of equal size, and
     * those of part `shard` are kept, in file order. */
    int64_t n_shards, shard;
    uint64_t seed;
    int64_t empty_rows; /* > 0: so many rows {} instead of files */
};

/* The split expression that is in force. */
const char *ax_rows_split(const struct ax_rows_options *o);

struct ax_rows;

/* AX_ERR_CONFIG for a bad split, AX_ERR_DATA where there are no files, AX_ERR_UNSUPPORTED for
 * formats and places that axtrain cannot read. Counts the rows first where slice or shards need
 * it. */
enum ax_status ax_rows_open(struct ax_rows **out, const struct ax_rows_options *o);
void ax_rows_close(struct ax_rows *r);

/* A row as it stands in the file. */
struct ax_raw_row {
    const char *text; /* [len], valid until the next call; JSON, CSV record or line */
    size_t len;
    uint32_t file;       /* for ax_rows_file */
    uint64_t line;       /* from 1 */
    int64_t index;       /* of the row among all of these rows, before slices */
    const char *problem; /* not NULL: why the row cannot be read; there is no text */
};
/* *got = false at the end. Errors are the file's, not the row's: what follows is lost. */
enum ax_status ax_rows_next(struct ax_rows *r, struct ax_raw_row *row, bool *got);
/* Starts again so that the next row is the one with this index, or the first selected after it. */
enum ax_status ax_rows_seek(struct ax_rows *r, int64_t index);

/* An object, owned by the caller. AX_ERR_DATA "FILE:LINE: why" when the row is bad. Thread-safe,
 * and may run while another thread calls ax_rows_next. */
enum ax_status ax_rows_parse(const struct ax_rows *r, const struct ax_raw_row *row, json_t **out);

size_t ax_rows_n_files(const struct ax_rows *r);
const char *ax_rows_file(const struct ax_rows *r, size_t file); /* as it was found; "-": stdin */

/* What tells whether the rows are still the same, for the key of a cache: files with size and time,
 * and the selection. NULL value where that cannot be known (standard input, pipes). Free with
 * json_decref. */
enum ax_status ax_rows_describe(const struct ax_rows *r, json_t **out);

#endif
