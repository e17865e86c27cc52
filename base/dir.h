/* The names in a folder. One that cannot be read to its end is an error, never a shorter one:
 *
 *     ax_dir_open(&d, path);
 *     for (const char *name; st == AX_OK && (name = ax_dir_next(&d)) != NULL;)
 *         st = …;
 *     return ax_dir_end(&d, st);
 */
#ifndef AX_BASE_DIR_H
#define AX_BASE_DIR_H

#include <dirent.h>
#include <glob.h>
#include <limits.h>

#include "base/status.h"

struct ax_dir {
    DIR *dir; /* NULL: absent, or it cannot be opened */
    char *path;
    enum ax_status st;
};

/* Never fails: ax_dir_end says what did. An absent folder has no names. */
void ax_dir_open(struct ax_dir *d, const char *path);
/* The same, but an absent folder is an error. */
void ax_dir_open_existing(struct ax_dir *d, const char *path);
/* The next name but "." and "..", valid until the next call, in any order; NULL at the end, or when reading
 * failed. A fault point (list). */
const char *ax_dir_next(struct ax_dir *d);
/* Closes d at the end of a function with status `st`. Returns st, or what failed here if st is AX_OK
 * (AX_ERR_IO, AX_ERR_NOMEM). */
enum ax_status ax_dir_end(struct ax_dir *d, enum ax_status st);
/* The same for what is only tidied up: a warning in the log. */
void ax_dir_end_or_warn(struct ax_dir *d, enum ax_status st);

/* Paths that match a shell pattern, as of glob() with GLOB_MARK; none is no error, but a folder that cannot be
 * read is. Always globfree g. */
enum ax_status ax_dir_glob(glob_t *g, const char *pattern);

/* The name of a folder in this one that has the file, of several the longest, or else the last (checkpoint-10 of
 * checkpoint-9 and -10); "" if none has. */
enum ax_status ax_dir_with(const char *path, const char *file, char name[NAME_MAX + 1]);

#endif
