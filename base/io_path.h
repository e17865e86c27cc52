/* Path helpers of those who put files in place. */
#ifndef AX_BASE_IO_PATH_H
#define AX_BASE_IO_PATH_H

#include "base/status.h"

/* The folder that holds `path`: "." for a bare name, "/" at the top. Free with ax_free. */
enum ax_status ax_path_parent(char **out, const char *path);

/* Makes a new folder "BASE/axtrain-WHAT-…" that nobody else has; base NULL = TMPDIR, or /tmp. Free
 * with ax_free. */
enum ax_status ax_temp_folder(char **out, const char *base, const char *what);

#endif
