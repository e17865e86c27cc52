/* A file as a stream of bytes: plain, gzip or zstd (detected from its first bytes, so a pipe may be
 * compressed too), or standard input. Memory is bounded for any input. Private to data/records/rows/. */
#ifndef AX_DATA_RECORDS_ROWS_BYTES_H
#define AX_DATA_RECORDS_ROWS_BYTES_H

#include <stddef.h>

#include "base/status.h"

struct ax_bytes;

/* "-" is standard input. */
enum ax_status ax_bytes_open(struct ax_bytes **out, const char *path);
/* The next piece, valid until the next call; *n = 0 at the end. AX_ERR_DATA says why compressed
 * data is corrupted or truncated, without the location. */
enum ax_status ax_bytes_next(struct ax_bytes *b, const char **data, size_t *n);
void ax_bytes_close(struct ax_bytes *b);

#endif
