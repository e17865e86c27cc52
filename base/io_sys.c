#include "base/io_sys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"

/* Passes the fault point: true if the call must fail, with errno set. For calls that move bytes, a
 * short one halves `n`. */
static bool faulted(enum ax_fault_op op, size_t *n) {
    switch (ax_fault_point(op)) {
    case AX_FAULT_EIO:
        errno = EIO;
        return true;
    case AX_FAULT_ENOSPC:
        errno = ENOSPC;
        return true;
    case AX_FAULT_ENOMEM:
        errno = ENOMEM;
        return true;
    case AX_FAULT_EINTR:
        errno = EINTR;
        return true;
    case AX_FAULT_SHORT:
        if (n != NULL && *n > 1)
            *n /= 2;
        return false;
    default:
        return false;
    }
}

int ax_sys_openat(int at, const char *path, int flags, mode_t mode) {
    int fd;
    do {
        fd = faulted(AX_FAULT_OPEN, NULL) ? -1 : openat(at, path, flags | O_CLOEXEC, mode);
    } while (fd < 0 && errno == EINTR);
    return fd;
}

int ax_sys_create(const char *path, int flags, mode_t mode) {
    struct stat info;
    const int fd = ax_sys_openat(AT_FDCWD, path, flags | O_NOFOLLOW | O_NONBLOCK, mode);
    if (fd < 0 || fstat(fd, &info) != 0 || S_ISREG(info.st_mode))
        return fd;
    (void)close(fd);
    errno = ENXIO;
    return -1;
}

int ax_sys_open_input(const char *path, int flags, struct stat *info) {
    const int fd = ax_sys_openat(AT_FDCWD, path, flags | O_RDONLY | O_NONBLOCK, 0);
    if (fd >= 0 && fstat(fd, info) != 0) {
        const int why = errno;
        (void)close(fd);
        errno = why;
        return -1;
    }
    return fd;
}

enum ax_status ax_sys_cannot(const char *path, const char *what) {
    if (errno == ELOOP)
        return ax_error(AX_ERR_IO,
                        "%s: cannot %s: it is a symbolic link, and what it leads to would be "
                        "overwritten; remove the link",
                        path, what);
    if (errno == ENXIO)
        return ax_error(AX_ERR_IO, "%s: cannot %s: it is not a regular file; remove it", path,
                        what);
    return ax_error(ax_sys_status(), "%s: cannot %s: %m", path, what);
}

enum ax_status ax_sys_not_regular(const char *path, const struct stat *info) {
    static const struct {
        mode_t kind;
        const char *name;
    } kinds[] = {{S_IFIFO, "a named pipe"},
                 {S_IFCHR, "a device"},
                 {S_IFBLK, "a device"},
                 {S_IFSOCK, "a socket"},
                 {S_IFDIR, "a folder"}};
    const char *name = "something else";
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if ((info->st_mode & S_IFMT) == kinds[i].kind)
            name = kinds[i].name;
    return ax_error(AX_ERR_DATA,
                    "%s: not a regular file, but %s: put the file there, or name another", path,
                    name);
}

ssize_t ax_sys_read(int fd, void *data, size_t n) {
    ssize_t r;
    do {
        r = faulted(AX_FAULT_READ, &n) ? -1 : read(fd, data, n);
    } while (r < 0 && errno == EINTR);
    return r;
}

ssize_t ax_sys_pread(int fd, void *data, size_t n, uint64_t offset) {
    ssize_t r;
    do {
        r = faulted(AX_FAULT_READ, &n) ? -1 : pread(fd, data, n, (off_t)offset);
    } while (r < 0 && errno == EINTR);
    return r;
}

ssize_t ax_sys_write(int fd, const void *data, size_t n) {
    ssize_t r;
    do {
        r = faulted(AX_FAULT_WRITE, &n) ? -1 : write(fd, data, n);
    } while (r < 0 && errno == EINTR);
    return r;
}

ssize_t ax_sys_pwrite(int fd, const void *data, size_t n, uint64_t offset) {
    ssize_t r;
    do {
        r = faulted(AX_FAULT_WRITE, &n) ? -1 : pwrite(fd, data, n, (off_t)offset);
    } while (r < 0 && errno == EINTR);
    return r;
}

int ax_sys_fsync(int fd) {
    int r;
    do {
        r = faulted(AX_FAULT_FSYNC, NULL) ? -1 : fsync(fd);
    } while (r < 0 && errno == EINTR);
    return r;
}

int ax_sys_close(int fd) {
    /* An injected error stands for one that a network file system reports here: the descriptor is
     * closed anyway. Linux also closes on EINTR, and a second close could hit a descriptor that
     * another thread has just received. */
    const bool fail = faulted(AX_FAULT_CLOSE, NULL);
    const int r = close(fd);
    return (fail || r < 0) && errno != EINTR ? -1 : 0;
}

int ax_sys_rename(const char *from, const char *to) {
    int r;
    do {
        r = faulted(AX_FAULT_RENAME, NULL) ? -1 : rename(from, to);
    } while (r < 0 && errno == EINTR);
    return r;
}

int ax_sys_mkdir(const char *path, mode_t mode) {
    int r;
    do {
        r = faulted(AX_FAULT_MKDIR, NULL) ? -1 : mkdir(path, mode);
    } while (r < 0 && errno == EINTR);
    return r;
}

int ax_sys_unlinkat(int at, const char *name, int flags) {
    int r;
    do {
        r = faulted(AX_FAULT_UNLINK, NULL) ? -1 : unlinkat(at, name, flags);
    } while (r < 0 && errno == EINTR);
    return r;
}

struct dirent *ax_sys_readdir(DIR *dir) {
    struct dirent *e;
    do {
        errno = 0;
        e = faulted(AX_FAULT_LIST, NULL) ? NULL : readdir(dir);
    } while (e == NULL && errno == EINTR);
    return e;
}

int ax_sys_flock(int fd, int operation) {
    int rc;
    do {
        rc = flock(fd, operation);
    } while (rc != 0 && errno == EINTR);
    return rc;
}

enum ax_status ax_sys_status(void) {
    return errno == ENOSPC || errno == EDQUOT || errno == EFBIG ? AX_ERR_STORAGE : AX_ERR_IO;
}
