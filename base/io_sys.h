/* The system calls of base/io, each with its fault point. They retry EINTR and otherwise behave
 * like the calls they are named after: -1 and errno. Private to base/. */
#ifndef AX_BASE_IO_SYS_H
#define AX_BASE_IO_SYS_H

#include <dirent.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/status.h"

/* Paths are relative to folder `at`, or to the working folder with AT_FDCWD. */
int ax_sys_openat(int at, const char *path, int flags, mode_t mode); /* adds O_CLOEXEC */
ssize_t ax_sys_read(int fd, void *data, size_t n);
ssize_t ax_sys_pread(int fd, void *data, size_t n, uint64_t offset);
ssize_t ax_sys_write(int fd, const void *data, size_t n);
ssize_t ax_sys_pwrite(int fd, const void *data, size_t n, uint64_t offset);
int ax_sys_fsync(int fd);
int ax_sys_close(int fd); /* the descriptor is closed whatever is returned */
int ax_sys_rename(const char *from, const char *to);
int ax_sys_mkdir(const char *path, mode_t mode);
int ax_sys_flock(int fd, int operation); /* no fault point: a lock writes no data */
int ax_sys_unlinkat(int at, const char *name, int flags);
/* Sets errno to 0 at the end of the folder. */
struct dirent *ax_sys_readdir(DIR *dir);

/* Opens a file of ours for writing: neither through a symbolic link (errno ELOOP), nor anything but a
 * regular file (errno ENXIO), for which it never waits. */
int ax_sys_create(const char *path, int flags, mode_t mode);
/* Opens a file for reading, without waiting, and puts what it is into *info. */
int ax_sys_open_input(const char *path, int flags, struct stat *info);

/* What is wrong with a file that ax_sys_create did not open, which was asked to `what` ("create"). */
enum ax_status ax_sys_cannot(const char *path, const char *what);
/* AX_ERR_DATA: it would not end, or not be there a second time. */
enum ax_status ax_sys_not_regular(const char *path, const struct stat *info);

/* What errno means after a failed call: AX_ERR_STORAGE for a full disk or quota, else AX_ERR_IO. */
enum ax_status ax_sys_status(void);

#endif
