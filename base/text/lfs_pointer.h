/* Git LFS writes a short text, a pointer, in place of a large file that it has not fetched; so does a clone without it. */
#ifndef AX_BASE_TEXT_LFS_POINTER_H
#define AX_BASE_TEXT_LFS_POINTER_H

#include <stddef.h>

#include "base/status.h"

/* AX_ERR_DATA, naming `name` and the remedy, if these bytes are a pointer. */
enum ax_status ax_lfs_refuse(const char *name, const void *data, size_t len);
/* The same of a file, which may be missing or a pipe: these are no pointers. */
enum ax_status ax_lfs_refuse_file(const char *path);

#endif
