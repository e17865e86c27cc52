/* Writes a large file once, sequentially, bypassing the page cache if the file system can: several
 * times less CPU work, and nothing else is evicted from memory. Writes are buffered: data is on
 * disk only after finish. */
#ifndef AX_BASE_DIRECT_IO_H
#define AX_BASE_DIRECT_IO_H

#include "base/io.h"

struct ax_direct_io {
    struct ax_file f;
    bool direct;         /* O_DIRECT is on */
    unsigned char *heap; /* owned, holds buffer */
    unsigned char *buffer;
    size_t filled;
};

enum ax_status ax_direct_io_create(struct ax_direct_io *s, const char *path);
enum ax_status ax_direct_io_write(struct ax_direct_io *s, const void *data, size_t n);
/* Writes the rest and syncs. */
enum ax_status ax_direct_io_finish(struct ax_direct_io *s);
/* Closes and frees, finished or not, at the end of a function with status `st`, whose error keeps its
 * text; safe on a zeroed one. */
enum ax_status ax_direct_io_end(struct ax_direct_io *s, enum ax_status st);

/* Opens an existing file for writing parts of it with ax_file_pwrite_direct. */
enum ax_status ax_file_open_direct_update(struct ax_file *f, const char *path);
/* Writes n bytes at offset: past the page cache if the file system can and data, n and offset are
 * multiples of AX_DIRECT_IO_ALIGN. From one thread per file. */
enum ax_status ax_file_pwrite_direct(struct ax_file *f, const void *data, size_t n,
                                     uint64_t offset);

/* Opens for reading past the page cache if possible. Reads must then be of full AX_DIRECT_IO_ALIGN
 * blocks, at aligned offsets into aligned memory; the last may be short. */
#define AX_DIRECT_IO_ALIGN ((size_t)4096)
enum ax_status ax_file_open_direct(struct ax_file *f, const char *path);
/* Up to n bytes at offset, in one or several reads; *got < n only at the end of the file. */
enum ax_status ax_file_pread_some(struct ax_file *f, void *data, size_t n, uint64_t offset,
                                  size_t *got);
/* *(void **)out = n bytes aligned to AX_DIRECT_IO_ALIGN, inside *heap, which is what to free. */
enum ax_status ax_alloc_direct(void **heap, void **out, size_t n);

#endif
