/* Writing Parquet, and DuckDB, through which it is read and written. Reading it: reader.h. */
#ifndef AX_DATA_RECORDS_ROWS_PARQUET_H
#define AX_DATA_RECORDS_ROWS_PARQUET_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* Writes the records of a file of JSON lines, each with the columns that are named, in SQL: "step:
 * 'BIGINT', …". The file appears complete or not at all. AX_ERR_UNSUPPORTED if the library is missing;
 * AX_ERR_DATA with DuckDB's message. */
enum ax_status ax_parquet_from_jsonl(const char *jsonl, const char *columns, const char *to);

/* DuckDB through its C API, loaded when a Parquet file is read or written: a query whose first column
 * is text, row by row, in chunks of bounded size.
 *
 * The library is AXTRAIN_DUCKDB (a path), or libduckdb.so: beside the binary, on the loader's
 * path, or where npm installs it under ~/.local/lib/axtrain. It gets one thread, at most 1 GiB
 * of memory and no writable folder, and may not install or load extensions, so it never uses the
 * network. */
struct ax_duckdb;

/* AX_ERR_UNSUPPORTED with the remedy if the library is missing; AX_ERR_DATA with DuckDB's message
 * if the query fails. */
enum ax_status ax_duckdb_open(struct ax_duckdb **out, const char *sql);
void ax_duckdb_close(struct ax_duckdb *d);
/* *text is valid until the next call; NULL for a null. *got = false at the end. */
enum ax_status ax_duckdb_next(struct ax_duckdb *d, const char **text, size_t *len, bool *got);

#endif
