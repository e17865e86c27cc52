#include "base/dir.h"

#include <errno.h>
#include <glob.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/io_sys.h"
#include "base/log.h"
#include "base/mem.h"

static void fail(struct ax_dir *d) {
    d->st = ax_error(AX_ERR_IO, "%s: cannot read the folder: %m", d->path);
}

static void open_as(struct ax_dir *d, const char *path, bool absent_is_empty) {
    *d = (struct ax_dir){0};
    d->st = ax_strdup(&d->path, path);
    if (d->st != AX_OK)
        return;
    d->dir = opendir(path);
    if (!d->dir && !(absent_is_empty && (errno == ENOENT || errno == ENOTDIR)))
        fail(d);
}

void ax_dir_open(struct ax_dir *d, const char *path) {
    open_as(d, path, true);
}

void ax_dir_open_existing(struct ax_dir *d, const char *path) {
    open_as(d, path, false);
}

const char *ax_dir_next(struct ax_dir *d) {
    const struct dirent *e;
    while (d->dir && (e = ax_sys_readdir(d->dir)) != NULL)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            return e->d_name;
    if (d->dir && errno != 0)
        fail(d);
    return NULL;
}

enum ax_status ax_dir_end(struct ax_dir *d, enum ax_status st) {
    if (d->dir)
        (void)closedir(d->dir);
    ax_free(d->path);
    const enum ax_status failed = d->st;
    *d = (struct ax_dir){0};
    return st != AX_OK ? st : failed;
}

void ax_dir_end_or_warn(struct ax_dir *d, enum ax_status st) {
    if (ax_dir_end(d, st) == AX_OK)
        return;
    ax_log_warn("%s", ax_error_text());
    ax_error_clear();
}

/* ---- patterns ---- */

/* glob() takes a read error for the end of a folder. */
static _Thread_local int unread;

static void *open_folder(const char *path) {
    return opendir(path);
}

static struct dirent *next_entry(void *dir) {
    struct dirent *e = ax_sys_readdir(dir);
    if (!e && errno != 0)
        unread = errno;
    return e;
}

static void close_folder(void *dir) {
    (void)closedir(dir);
}

static int cannot_open(const char *path, int why) {
    (void)path;
    if (why != ENOENT && why != ENOTDIR)
        unread = why;
    return 0;
}

enum ax_status ax_dir_glob(glob_t *g, const char *pattern) {
    *g = (glob_t){.gl_opendir = open_folder,
                  .gl_readdir = next_entry,
                  .gl_closedir = close_folder,
                  .gl_stat = stat,
                  .gl_lstat = lstat};
    unread = 0;
    const int rc = glob(pattern, GLOB_MARK | GLOB_ALTDIRFUNC, cannot_open, g);
    if (rc == GLOB_NOSPACE)
        return ax_error(AX_ERR_NOMEM, "%s: out of memory while looking for files", pattern);
    if (rc == 0 || rc == GLOB_NOMATCH) {
        errno = unread;
        return unread == 0
                   ? AX_OK
                   : ax_error(AX_ERR_IO, "%s: cannot read a folder of the pattern: %m", pattern);
    }
    return ax_error(AX_ERR_IO, "%s: cannot look for files", pattern);
}

enum ax_status ax_dir_with(const char *path, const char *file, char name[NAME_MAX + 1]) {
    struct ax_dir d;
    char inside[2 * NAME_MAX];
    name[0] = '\0';
    ax_dir_open(&d, path);
    for (const char *next; (next = ax_dir_next(&d)) != NULL;) {
        const size_t n = strlen(next), most = strlen(name);
        snprintf(inside, sizeof inside, "%s/%s", next, file);
        if (next[0] != '.' && n <= NAME_MAX &&
            (n > most || (n == most && strcmp(next, name) > 0)) && ax_path_has(path, inside))
            memcpy(name, next, n + 1);
    }
    return ax_dir_end(&d, AX_OK);
}
