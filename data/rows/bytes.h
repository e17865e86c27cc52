/* A file as a stream of bytes from front to back: plain, gzip or zstd (told by its first bytes, so
 * that a pipe may be compressed too), or standard input. Memory is bounded whatever the file says.
 * Private to rows_*.c. */
#ifndef AX_DATA_ROWS_BYTES_H
#define AX_DATA_ROWS_BYTES_H

#include <stddef.h>

#include "base/status.h"

struct ax_bytes;

/* "-" is standard input. */
enum ax_status ax_bytes_open(struct ax_bytes **out, const char *path);
/* The next piece, valid until the next call; *n = 0 at the end. AX_ERR_DATA for a damaged or cut
 * compressed file says why, without the place. */
enum ax_status ax_bytes_next(struct ax_bytes *b, const char **data, size_t *n);
void ax_bytes_close(struct ax_bytes *b);

#endif
