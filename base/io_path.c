/* Paths and folders of io.h. */
#include "base/io_path.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/io.h"
#include "base/io_sys.h"
#include "base/term.h"

bool ax_path_exists(const char *path) {
    struct stat info;
    return stat(path, &info) == 0;
}

bool ax_path_has(const char *dir, const char *name) {
    char *path;
    if (ax_path_join(&path, dir, name) != AX_OK) {
        ax_error_clear();
        return false;
    }
    const bool has = ax_path_exists(path);
    ax_free(path);
    return has;
}

bool ax_path_is_gone(const char *path, double seconds) {
    for (double waited = 0; waited < seconds && ax_path_exists(path); waited += 0.01)
        (void)usleep(10000);
    return !ax_path_exists(path);
}

bool ax_path_is_dir(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

bool ax_path_is_remote(const char *path) {
    static const long magics[] = {NFS_SUPER_MAGIC,  SMB_SUPER_MAGIC, SMB2_SUPER_MAGIC,
                                  CIFS_SUPER_MAGIC, V9FS_MAGIC,      AFS_SUPER_MAGIC,
                                  CEPH_SUPER_MAGIC, FUSE_SUPER_MAGIC};
    struct statfs info;
    bool found = false;
    if (statfs(path, &info) != 0)
        return false;
    for (size_t i = 0; i < sizeof magics / sizeof *magics; i++)
        found = found || info.f_type == magics[i];
    return found;
}

enum ax_status ax_path_join(char **out, const char *dir, const char *name) {
    size_t n = strlen(dir);
    const char *separator = n == 0 || dir[n - 1] == '/' ? "" : "/";
    return ax_sprintf(out, "%s%s%s", dir, separator, name);
}

enum ax_status ax_path_expand(char **out, const char *path) {
    const char *home = getenv("HOME");
    if (home && *home && path[0] == '~' && (path[1] == '/' || path[1] == '\0'))
        return ax_sprintf(out, "%s%s", home, path + 1);
    return ax_strdup(out, path);
}

enum ax_status ax_path_parent(char **out, const char *path) {
    const char *slash = strrchr(path, '/');
    if (slash == NULL)
        return ax_strdup(out, ".");
    return ax_strndup(out, path, slash == path ? 1 : (size_t)(slash - path));
}

const char *ax_path_last(const char *path, size_t *len) {
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    if (begin == end && end > 0)
        begin--; /* the root */
    *len = end - begin;
    return path + begin;
}

enum ax_status ax_temp_folder(char **out, const char *base, const char *what) {
    const char *given = base != NULL ? base : getenv("TMPDIR");
    char *path;
    AX_TRY(ax_sprintf(&path, "%s/axtrain-%s-XXXXXX", given && *given ? given : "/tmp", what));
    if (mkdtemp(path) != NULL) {
        *out = path;
        return AX_OK;
    }
    const enum ax_status st =
        ax_error(ax_sys_status(), "%s: cannot create a folder: %m. %s", path,
                 base != NULL ? "Choose another location." : "Set TMPDIR to a writable folder.");
    ax_free(path);
    return st;
}

bool ax_path_ends_in(const char *path, const char *ending) {
    const size_t n = strlen(path), m = strlen(ending);
    return n > m && strcmp(path + n - m, ending) == 0;
}

bool ax_is_plain_name(const char *name) {
    if (name[0] == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return false;
    for (const char *p = name; *p != '\0'; p++) {
        unsigned char c = (unsigned char)*p;
        if (c == '/' || c == '\\' || c < 0x20 || c == 0x7F)
            return false;
    }
    return true;
}

#define PRIVATE_MODE 0750

/* What exists is a folder. */
static enum ax_status expect_dir(const char *path) {
    return ax_path_is_dir(path)
               ? AX_OK
               : ax_error(AX_ERR_IO, "%s: cannot create the folder: a file with this name exists",
                          path);
}

static enum ax_status make(const char *path, mode_t mode) {
    if (ax_sys_mkdir(path, mode) == 0)
        return AX_OK;
    if (errno == EEXIST)
        return expect_dir(path);
    return ax_error(ax_sys_status(), "%s: cannot create the folder: %m", path);
}

enum ax_status ax_mkdir(const char *path) {
    return make(path, AX_FOLDER_MODE);
}

enum ax_status ax_mkdir_private(const char *path) {
    return make(path, PRIVATE_MODE);
}

/* In a power failure, data synced inside a new folder is lost with the folder's own entry. */
static enum ax_status make_lasting(const char *path, mode_t mode) {
    char *parent;
    if (ax_path_is_dir(path))
        return AX_OK;
    AX_TRY(make(path, mode));
    AX_TRY(ax_path_parent(&parent, path));
    enum ax_status st = ax_sync_dir(parent);
    ax_free(parent);
    return st;
}

static enum ax_status make_parents(const char *path, mode_t mode) {
    char *part;
    AX_TRY(ax_strdup(&part, path));
    enum ax_status st = AX_OK;
    for (char *p = part + (part[0] == '/'); *p != '\0'; p++) {
        if (*p == '/') {
            *p = '\0';
            AX_TRY_GOTO(make_lasting(part, mode), st, done);
            *p = '/';
        }
    }
    AX_TRY_GOTO(make_lasting(part, mode), st, done);
done:
    ax_free(part);
    return st;
}

enum ax_status ax_mkdir_parents(const char *path) {
    return make_parents(path, AX_FOLDER_MODE);
}

enum ax_status ax_mkdir_parents_private(const char *path) {
    return make_parents(path, PRIVATE_MODE);
}

enum ax_status ax_mkdir_for(const char *path) {
    char *parent;
    AX_TRY(ax_path_parent(&parent, path));
    const enum ax_status st = ax_mkdir_parents(parent);
    ax_free(parent);
    return st;
}

enum ax_status ax_mkdir_check(const char *path) {
    char *part, *parent;
    AX_TRY(ax_strdup(&part, path));
    enum ax_status st = AX_OK;
    while (!ax_path_exists(part)) { /* "/" and "." do */
        AX_TRY_GOTO(ax_path_parent(&parent, part), st, done);
        ax_free(part);
        part = parent;
    }
    AX_TRY_GOTO(expect_dir(part), st, done);
    if (access(part, W_OK | X_OK) != 0)
        st = ax_error(AX_ERR_IO, "%s: cannot write to %s: %m", path, part);
done:
    ax_free(part);
    return st;
}

enum ax_status ax_unlink(const char *path) {
    if (ax_sys_unlinkat(AT_FDCWD, path, 0) != 0)
        return ax_error(AX_ERR_IO, "%s: cannot remove: %m", path);
    return AX_OK;
}

enum ax_status ax_path_check_replaceable(const char *path) {
    struct stat info;
    if (stat(path, &info) != 0 || S_ISREG(info.st_mode) || S_ISDIR(info.st_mode))
        return AX_OK;
    return ax_error(AX_ERR_CONFIG,
                    "%s: not a regular file, and it would be replaced by one; name a file, or "
                    "redirect standard output",
                    path);
}

enum ax_status ax_rename(const char *from, const char *to) {
    AX_TRY(ax_path_check_replaceable(to));
    if (ax_sys_rename(from, to) != 0)
        return ax_error(ax_sys_status(), "%s: cannot rename to %s: %m", from, to);
    return AX_OK;
}

enum ax_status ax_symlink(const char *target, const char *path) {
    char *tmp;
    AX_TRY(ax_sprintf(&tmp, "%s.link-%d", path, (int)gettid()));
    enum ax_status st = AX_OK;
    (void)unlink(tmp); /* left by a killed thread with this id */
    if (symlink(target, tmp) != 0)
        st = ax_error(ax_sys_status(), "%s: cannot create a symbolic link: %m", path);
    else if ((st = ax_rename(tmp, path)) != AX_OK)
        (void)unlink(tmp);
    ax_free(tmp);
    return st;
}

static int remove_entry(int at, const char *name);

/* Empties the open folder; takes fd. Removing while reading may hide entries from readdir on some
 * file systems, so it repeats until a pass finds nothing. */
static int empty_folder(int fd) {
    DIR *dir = fdopendir(fd);
    if (dir == NULL) {
        int err = errno;
        (void)ax_sys_close(fd);
        errno = err;
        return -1;
    }
    int failed = 0;
    bool found = true;
    while (found && failed == 0) {
        found = false;
        rewinddir(dir);
        struct dirent *e;
        while (failed == 0 && (e = ax_sys_readdir(dir)) != NULL) {
            if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
                found = true;
                failed = remove_entry(fd, e->d_name);
            }
        }
        if (failed == 0 && errno != 0)
            failed = -1;
    }
    int err = errno;
    closedir(dir);
    errno = err;
    return failed;
}

/* Removes a file, link or folder called `name` in folder `at`. */
static int remove_entry(int at, const char *name) {
    struct stat info;
    if (fstatat(at, name, &info, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? 0 : -1;
    if (!S_ISDIR(info.st_mode))
        return ax_sys_unlinkat(at, name, 0);
    int fd = ax_sys_openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
    if (fd < 0 || empty_folder(fd) != 0)
        return -1;
    return ax_sys_unlinkat(at, name, AT_REMOVEDIR);
}

enum ax_status ax_remove_tree(const char *path) {
    if (remove_entry(AT_FDCWD, path) != 0)
        return ax_error(AX_ERR_IO, "%s: cannot remove: %m", path);
    return AX_OK;
}

enum ax_status ax_sync_dir(const char *path) {
    int fd = ax_sys_openat(AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return ax_error(AX_ERR_IO, "%s: cannot open the folder: %m", path);
    enum ax_status st = AX_OK;
    /* EINVAL: the file system cannot sync folders; nothing more can be done. */
    if (ax_sys_fsync(fd) != 0 && errno != EINVAL)
        st = ax_error(ax_sys_status(), "%s: cannot sync the folder to disk: %m", path);
    if (ax_sys_close(fd) != 0 && st == AX_OK)
        st = ax_error(ax_sys_status(), "%s: cannot close the folder: %m", path);
    return st;
}

enum ax_status ax_path_refuse_links(const char *dir, const char *name) {
    char *path;
    struct stat info;
    enum ax_status st = AX_OK;
    AX_TRY(ax_path_join(&path, dir, name));
    char *slash = path + strlen(path) - strlen(name);
    while (slash && st == AX_OK) {
        slash = strchr(slash + 1, '/');
        if (slash)
            *slash = '\0';
        if (lstat(path, &info) == 0 && S_ISLNK(info.st_mode))
            st = ax_error(AX_ERR_DATA,
                          "%s: a symbolic link, but this folder has its files itself; replace the "
                          "link by what it leads to",
                          path);
        if (slash)
            *slash = '/';
    }
    ax_free(path);
    return st;
}
