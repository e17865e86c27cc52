/* Splits the bytes of one file into records. Private to data/records/rows/. */
#ifndef AX_DATA_RECORDS_ROWS_READER_H
#define AX_DATA_RECORDS_ROWS_READER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "data/records/rows/rows.h"

enum ax_rows_kind { AX_ROWS_JSON, AX_ROWS_CSV, AX_ROWS_TSV, AX_ROWS_TEXT, AX_ROWS_PARQUET };

/* A record as it is in its file, valid until the next one is cut. */
struct ax_row_cut {
    const char *text; /* [len]; NULL if there is a problem */
    size_t len;
    uint64_t line;       /* its first line, from 1; of Parquet, its number */
    const char *problem; /* why it cannot be read; NULL: it can */
};

struct ax_bytes;

struct ax_reader {
    const char *path; /* borrowed */
    struct ax_bytes *bytes;
    const char *piece; /* current buffer: piece[at … n) is unread */
    size_t at, n;
    uint64_t line;               /* line of the next byte, from 1 */
    char delimiter;              /* separator of CSV; 0: a header, of which it is not known yet */
    enum ax_sample_by sample_by; /* what a record of text is */
    struct ax_buf kept;          /* a record that spans several pieces */
    bool too_long; /* the current record exceeds AX_ROWS_MAX_BYTES: its bytes are dropped */
    /* JSON's next part: its start; a line; a list's first element, one behind it, nothing more */
    enum { AX_READ_START, AX_READ_LINES, AX_READ_LIST, AX_READ_LIST_NEXT, AX_READ_DONE } state;
};

enum ax_status ax_reader_open(struct ax_reader *r, const char *path);
void ax_reader_close(struct ax_reader *r); /* safe on a zeroed one */
/* The next record; *got = false at the end. Not for Parquet. */
enum ax_status ax_reader_cut(struct ax_reader *r, enum ax_rows_kind kind, struct ax_row_cut *cut,
                             bool *got);

/* ---- CSV ---- */

/* Where in a record's fields the next byte is. Quoted fields may contain delimiters, line ends and
 * doubled quotes. */
enum ax_csv_place { AX_CSV_START, AX_CSV_UNQUOTED, AX_CSV_QUOTED, AX_CSV_QUOTE_SEEN };
/* The place after the byte c. delimiter 0: any that a header may have. */
enum ax_csv_place ax_csv_next_place(enum ax_csv_place at, char c, char delimiter);

struct ax_csv_header {
    char **names;
    size_t n;
    char delimiter; /* 0: unset */
    char other; /* another one that the header has outside of quotes, if it was not set; else 0 */
};
/* Reads the names from the first record, and the delimiter if it is unset. AX_ERR_DATA if two are
 * equal. */
enum ax_status ax_csv_header_parse(struct ax_csv_header *h, enum ax_rows_kind kind,
                                   const char *path, const struct ax_row_cut *cut);
/* A record's object; errors as those of ax_row_parse. */
enum ax_status ax_csv_parse(const struct ax_csv_header *h, const char *text, size_t len,
                            json_t **out);
void ax_csv_header_free(struct ax_csv_header *h);

/* ---- Parquet ---- */

/* Records of a Parquet file, each converted to JSON text; `line` is the record's number. */
struct ax_parquet;
enum ax_status ax_parquet_open(struct ax_parquet **out, const char *path); /* borrows path */
void ax_parquet_close(struct ax_parquet *p);
enum ax_status ax_parquet_next(struct ax_parquet *p, struct ax_row_cut *cut, bool *got);

/* ---- any kind ---- */

/* Text of a record → object. Errors give only the reason, such as "not UTF-8"; the caller adds the
 * location. *place: the position inside the record (else 0). `h` is for CSV. */
struct ax_row_place {
    uint64_t line;   /* lines after the record's first */
    uint64_t column; /* column of the problem, from 1; 0 = none */
};
enum ax_status ax_row_parse(enum ax_rows_kind kind, const struct ax_csv_header *h, const char *text,
                            size_t len, json_t **out, struct ax_row_place *place);
/* A JSON string of a record's bytes; AX_ERR_DATA "not UTF-8 text". */
enum ax_status ax_row_text(json_t **out, const char *text, size_t len);

#endif
