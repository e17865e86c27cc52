/* Path helpers of those who put files in place. */
#ifndef AX_BASE_IO_PATH_H
#define AX_BASE_IO_PATH_H

#include <stddef.h>

#include "base/status.h"

/* The folder that holds `path`: "." for a bare name, "/" at the top. Free with ax_free. */
enum ax_status ax_path_parent(char **out, const char *path);

/* Where the last part of `path` begins, and its length without slashes at the end: "b" of "a/b//",
 * "/" of "/", nothing of "". */
const char *ax_path_last(const char *path, size_t *len);

/* Makes a new folder "BASE/axtrain-WHAT-…" that nobody else has; base NULL = TMPDIR, or /tmp. Free
 * with ax_free. */
enum ax_status ax_temp_folder(char **out, const char *base, const char *what);

#endif
