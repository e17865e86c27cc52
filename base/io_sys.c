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

int ax_sys_flock(int fd, int operation) {
    int rc;
    do {
        rc = flock(fd, operation);
    } while (rc != 0 && errno == EINTR);
    return rc;
}

enum ax_status ax_sys_status(void) {
    return errno == ENOSPC || errno == EDQUOT ? AX_ERR_STORAGE : AX_ERR_IO;
}
