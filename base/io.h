/* Counted file operations (each passes a fault point) and atomic commit of files and folders.
 *
 * Errors name the path, the operation, errno's text and, for writes, the number of bytes. EINTR is
 * retried, short reads and writes are continued. Paths are NUL-terminated UTF-8. */
#ifndef AX_BASE_IO_H
#define AX_BASE_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"

/* New files and folders follow the umask, but are never writable by everybody. */
#define AX_FILE_MODE   0664
#define AX_FOLDER_MODE 0775

struct ax_file {
    int fd;
    char *path; /* owned, for messages */
};

/* AX_ERR_DATA, without waiting: a named pipe, a device or a socket. A stream that is connected to this process is
 * read: standard input, and a shell's "<(command)". */
enum ax_status ax_file_open_read(struct ax_file *f, const char *path);
/* Files are written where their names are: a symbolic link, or anything but a regular file, is an
 * error. */
enum ax_status ax_file_create(struct ax_file *f, const char *path); /* truncates */
/* For reading and writing; keeps an existing file, creates a missing one. */
enum ax_status ax_file_open_update(struct ax_file *f, const char *path);
/* The same, but every write appends, links are followed, and only the owner can access a new file
 * (0600). */
enum ax_status ax_file_open_append_private(struct ax_file *f, const char *path);
enum ax_status ax_file_truncate(struct ax_file *f, uint64_t size);
enum ax_status ax_file_write(struct ax_file *f, const void *data, size_t n);
enum ax_status ax_file_pwrite(struct ax_file *f, const void *data, size_t n, uint64_t offset);
/* Reads exactly n bytes at offset, or AX_ERR_DATA ("ends at byte …"). */
enum ax_status ax_file_pread(struct ax_file *f, void *data, size_t n, uint64_t offset);
/* Reads up to n bytes from where the last such read ended, pipes too; *got = 0 only at the end. */
enum ax_status ax_file_read(struct ax_file *f, void *data, size_t n, size_t *got);
enum ax_status ax_file_size(struct ax_file *f, uint64_t *size);
enum ax_status ax_file_sync(struct ax_file *f);
/* Closes and frees; safe on a zeroed or already closed file. Errors of close are returned. */
enum ax_status ax_file_close(struct ax_file *f);
/* Closes f at the end of a function with status `st`. Returns st, or close's status if st is AX_OK.
 * An earlier error keeps its text. */
enum ax_status ax_file_end(struct ax_file *f, enum ax_status st);

/* Reads a file into memory and appends a NUL. AX_ERR_DATA if larger than max_bytes. Free with
 * ax_free. */
enum ax_status ax_read_file(const char *path, size_t max_bytes, char **data, size_t *len);
/* Writes a temporary file in the same folder, fsyncs it, renames it over the target, fsyncs the
 * folder. Threads and processes may write the same file concurrently: one of them wins. */
enum ax_status ax_write_file_atomic(const char *path, const void *data, size_t len);
/* Writes a command's result: to the file, or with NULL to standard output. */
enum ax_status ax_write_result(const char *path, const void *data, size_t len);

/* Read-only mapping of a regular file. */
struct ax_mapping {
    const unsigned char *data;
    size_t len;
};
enum ax_status ax_map_file(struct ax_mapping *m, const char *path);
void ax_unmap_file(struct ax_mapping *m);
/* Releases the memory of a mapping's bytes to the system (they are read again if needed), so that a
 * file copied piecewise does not count as resident. */
void ax_map_drop(const void *data, size_t len);

bool ax_path_exists(const char *path);
bool ax_path_has(const char *dir, const char *name); /* does the folder have this file? */
bool ax_path_is_dir(const char *path);
/* True if it is on a file system that several hosts write to, each through pages of its own. */
bool ax_path_is_remote(const char *path);
/* AX_ERR_DATA if a part of `name`, a path below dir, is a symbolic link: what it leads to may change, or be gone,
 * without the folder. */
enum ax_status ax_path_refuse_links(const char *dir, const char *name);
enum ax_status ax_path_join(char **out, const char *dir, const char *name);
enum ax_status ax_path_expand(char **out, const char *path); /* "~" and "~/x" are HOME and HOME/x */
/* One plain file name: no separator, not "." or "..", not empty, no control bytes. */
bool ax_is_plain_name(const char *name);
/* Private folders (0750) are closed to other users: they hold what only this program reads
 * (training states, caches). An existing folder is fine and is left unchanged. */
enum ax_status ax_mkdir(const char *path);
enum ax_status ax_mkdir_private(const char *path);
enum ax_status ax_mkdir_parents(const char *path); /* mkdir -p; syncs folders that it creates */
enum ax_status ax_mkdir_parents_private(const char *path);
enum ax_status ax_mkdir_for(const char *path); /* the folder of a file that is then created */
/* AX_ERR_IO if a folder of this path could not be written to, or made; makes nothing. */
enum ax_status ax_mkdir_check(const char *path);
enum ax_status ax_unlink(const char *path);
enum ax_status ax_rename(const char *from, const char *to); /* within a file system */
/* Makes `path` a symbolic link to `target` (stored as is, so relative to the link's folder);
 * atomically replaces an existing file or link. */
enum ax_status ax_symlink(const char *target, const char *path);
enum ax_status ax_remove_tree(const char *path); /* absent is fine; never follows links */
enum ax_status ax_sync_dir(const char *path);
enum ax_status ax_sync_parent(const char *path); /* the folder that contains it */

/* A folder that appears complete or not at all: begin returns "PATH.tmp-<pid>" to write files into;
 * commit fsyncs it, renames it to PATH (an old PATH is moved aside first and removed after) and
 * fsyncs the parent; abort removes it. */
struct ax_folder {
    char *path, *tmp;
};
enum ax_status ax_folder_begin(struct ax_folder *d, const char *path);
/* AX_ERR_CONFIG if PATH exists and is not empty: a new folder would replace it. */
enum ax_status ax_folder_check_new(const char *path);
enum ax_status ax_folder_commit(struct ax_folder *d);
void ax_folder_abort(struct ax_folder *d); /* safe on zeroed or committed */
/* Repairs after a crash: removes stale "PATH.tmp-*", and restores an old PATH if the crash was
 * between the two renames. Called by ax_folder_begin, before loading PATH, and before a large file of
 * this name is written. */
enum ax_status ax_folder_recover(const char *path);
/* The same, of leftovers of processes that still run, too: for a caller whose lock proves that no
 * process works on PATH. */
enum ax_status ax_folder_recover_alone(const char *path);

#endif
