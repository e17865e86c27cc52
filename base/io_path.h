/* Path helpers for code that creates files and folders. */
#ifndef AX_BASE_IO_PATH_H
#define AX_BASE_IO_PATH_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* The folder that holds `path`: "." for a bare name, "/" at the top. Free with ax_free. */
enum ax_status ax_path_parent(char **out, const char *path);

/* Start of the last part of `path`, and its length without trailing slashes: "b" of "a/b//", "/" of
 * "/", empty for "". */
const char *ax_path_last(const char *path, size_t *len);

/* Does the name end in `ending` (".gguf"), with something before it? */
bool ax_path_ends_in(const char *path, const char *ending);

/* AX_ERR_CONFIG: a device, a named pipe or a socket is there, in whose place a rename would put a file. */
enum ax_status ax_path_check_replaceable(const char *path);

/* Does nothing exist there, now or within that time? */
bool ax_path_is_gone(const char *path, double seconds);

/* Creates a new, unique folder "BASE/axtrain-WHAT-…"; base NULL = TMPDIR, or /tmp. Free with
 * ax_free. */
enum ax_status ax_temp_folder(char **out, const char *base, const char *what);

#endif
