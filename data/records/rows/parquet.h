/* Writing Parquet, through DuckDB (duckdb.h). Reading it: reader.h. */
#ifndef AX_DATA_RECORDS_ROWS_PARQUET_H
#define AX_DATA_RECORDS_ROWS_PARQUET_H

#include "base/status.h"

/* Writes the records of a file of JSON lines, each with the columns that are named, in SQL: "step:
 * 'BIGINT', …". The file appears complete or not at all. AX_ERR_UNSUPPORTED if the library is missing;
 * AX_ERR_DATA with DuckDB's message. */
enum ax_status ax_parquet_from_jsonl(const char *jsonl, const char *columns, const char *to);

#endif
