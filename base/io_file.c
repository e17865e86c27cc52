/* Files of io.h: open, exact reads and writes, full files, mappings. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/io.h"
#include "base/io_path.h"
#include "base/io_sys.h"
#include "base/term.h"

/* First read size for a file of unknown size (a pipe). */
#define FIRST_READ ((size_t)64 * 1024)

/* Errors call the file `path`, although it may be `at` first. */
static enum ax_status open_as(struct ax_file *f, const char *path, const char *at, int flags,
                              const char *what, mode_t mode) {
    *f = (struct ax_file){.fd = -1};
    char *copy;
    AX_TRY(ax_strdup(&copy, path));
    int fd = ax_sys_create(at, flags, mode);
    if (fd < 0) {
        enum ax_status st = ax_sys_cannot(path, what);
        ax_free(copy);
        return st;
    }
    *f = (struct ax_file){.fd = fd, .path = copy};
    return AX_OK;
}

static enum ax_status open_file(struct ax_file *f, const char *path, int flags, const char *what,
                                mode_t mode) {
    return open_as(f, path, path, flags, what, mode);
}

/* Streams that somebody has connected: a shell's "<(command)", standard input, /dev/null. A named pipe
 * may wait for a writer for ever, a device has no end. */
static bool is_stream(int fd, const struct stat *info) {
    const dev_t null = makedev(1, 3);
    struct statfs fs;
    struct stat input;
    if (S_ISFIFO(info->st_mode) && fstatfs(fd, &fs) == 0 && fs.f_type == PIPEFS_MAGIC)
        return true;
    if (S_ISCHR(info->st_mode) && info->st_rdev == null)
        return true;
    return fstat(STDIN_FILENO, &input) == 0 && input.st_dev == info->st_dev &&
           input.st_ino == info->st_ino;
}

/* Reads of a folder fail with a message of their own. */
static enum ax_status check_input(int fd, const char *path, const struct stat *info) {
    if (S_ISREG(info->st_mode) || S_ISDIR(info->st_mode))
        return AX_OK;
    if (!is_stream(fd, info))
        return ax_sys_not_regular(path, info);
    (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    return AX_OK;
}

enum ax_status ax_file_open_read(struct ax_file *f, const char *path) {
    struct stat info;
    *f = (struct ax_file){.fd = -1};
    char *copy;
    AX_TRY(ax_strdup(&copy, path));
    const int fd = ax_sys_open_input(path, 0, &info);
    enum ax_status st = AX_OK;
    if (fd < 0)
        st = ax_error(AX_ERR_IO, "%s: cannot open: %m", path);
    else
        st = check_input(fd, path, &info);
    if (st == AX_OK) {
        *f = (struct ax_file){.fd = fd, .path = copy};
        return AX_OK;
    }
    if (fd >= 0)
        (void)close(fd);
    ax_free(copy);
    return st;
}

enum ax_status ax_file_create(struct ax_file *f, const char *path) {
    return open_file(f, path, O_WRONLY | O_CREAT | O_TRUNC, "create", AX_FILE_MODE);
}

enum ax_status ax_file_open_update(struct ax_file *f, const char *path) {
    return open_file(f, path, O_RDWR | O_CREAT, "open for writing", AX_FILE_MODE);
}

/* Where links lead, if there is something. */
static enum ax_status resolve(char **out, const char *path) {
    char real[PATH_MAX];
    return ax_strdup(out, realpath(path, real) ? real : path);
}

enum ax_status ax_file_open_append_private(struct ax_file *f, const char *path) {
    *f = (struct ax_file){.fd = -1};
    char *real;
    AX_TRY(resolve(&real, path));
    const enum ax_status st =
        open_file(f, real, O_RDWR | O_CREAT | O_APPEND, "open for writing", 0600);
    ax_free(real);
    return st;
}

enum ax_status ax_file_truncate(struct ax_file *f, uint64_t size) {
    if (size > (uint64_t)INT64_MAX || ftruncate(f->fd, (off_t)size) != 0) {
        return ax_error(ax_sys_status(), "%s: cannot truncate to %llu bytes: %m", f->path,
                        (unsigned long long)size);
    }
    return AX_OK;
}

enum ax_status ax_file_write(struct ax_file *f, const void *data, size_t n) {
    const char *p = data;
    for (size_t done = 0; done < n;) {
        ssize_t w = ax_sys_write(f->fd, p + done, n - done);
        if (w < 0) {
            return ax_error(ax_sys_status(), "%s: cannot write %zu bytes (%zu written): %m",
                            f->path, n, done);
        }
        done += (size_t)w;
    }
    return AX_OK;
}

enum ax_status ax_file_pwrite(struct ax_file *f, const void *data, size_t n, uint64_t offset) {
    if (offset > (uint64_t)INT64_MAX - n)
        return ax_error(AX_ERR_IO, "%s: cannot write beyond byte 2^63", f->path);
    const char *p = data;
    for (size_t done = 0; done < n;) {
        ssize_t w = ax_sys_pwrite(f->fd, p + done, n - done, offset + done);
        if (w < 0) {
            return ax_error(ax_sys_status(),
                            "%s: cannot write %zu bytes at byte %llu (%zu written): %m", f->path, n,
                            (unsigned long long)offset, done);
        }
        done += (size_t)w;
    }
    return AX_OK;
}

enum ax_status ax_file_pread(struct ax_file *f, void *data, size_t n, uint64_t offset) {
    if (offset > (uint64_t)INT64_MAX - n)
        return ax_error(AX_ERR_DATA, "%s: cannot read beyond byte 2^63", f->path);
    char *p = data;
    for (size_t done = 0; done < n;) {
        ssize_t r = ax_sys_pread(f->fd, p + done, n - done, offset + done);
        if (r < 0) {
            return ax_error(AX_ERR_IO, "%s: cannot read %zu bytes at byte %llu: %m", f->path, n,
                            (unsigned long long)offset);
        }
        if (r == 0) {
            return ax_error(AX_ERR_DATA,
                            "%s: ends at byte %llu, but %zu bytes were expected from byte %llu; "
                            "the file is truncated",
                            f->path, (unsigned long long)(offset + done), n,
                            (unsigned long long)offset);
        }
        done += (size_t)r;
    }
    return AX_OK;
}

enum ax_status ax_file_read(struct ax_file *f, void *data, size_t n, size_t *got) {
    ssize_t r = ax_sys_read(f->fd, data, n);
    if (r < 0)
        return ax_error(AX_ERR_IO, "%s: cannot read: %m", f->path);
    *got = (size_t)r;
    return AX_OK;
}

enum ax_status ax_file_size(struct ax_file *f, uint64_t *size) {
    struct stat st;
    if (fstat(f->fd, &st) != 0)
        return ax_error(AX_ERR_IO, "%s: cannot determine its size: %m", f->path);
    *size = (uint64_t)st.st_size;
    return AX_OK;
}

enum ax_status ax_file_sync(struct ax_file *f) {
    if (ax_sys_fsync(f->fd) != 0)
        return ax_error(ax_sys_status(), "%s: cannot sync to disk: %m", f->path);
    return AX_OK;
}

enum ax_status ax_file_close(struct ax_file *f) {
    enum ax_status st = AX_OK;
    if (f->path != NULL && ax_sys_close(f->fd) != 0)
        st = ax_error(ax_sys_status(), "%s: cannot close: %m", f->path);
    ax_free(f->path);
    *f = (struct ax_file){.fd = -1};
    return st;
}

enum ax_status ax_file_end(struct ax_file *f, enum ax_status st) {
    struct ax_error_record first;
    ax_error_save(&first, st);
    const enum ax_status closed = ax_file_close(f);
    return st != AX_OK ? ax_error_restore(&first) : closed;
}

static enum ax_status too_large(const struct ax_file *f, size_t max_bytes) {
    return ax_error(AX_ERR_DATA, "%s: exceeds the limit of %zu bytes", f->path, max_bytes);
}

/* Reads to the end. Requests one byte beyond max_bytes, to tell "just fits" from "too long". */
static enum ax_status read_to_end(struct ax_file *f, size_t max_bytes, char **data, size_t *len) {
    struct stat info;
    size_t cap = FIRST_READ;
    if (fstat(f->fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0) {
        if ((size_t)info.st_size > max_bytes)
            return too_large(f, max_bytes);
        cap = (size_t)info.st_size + 1;
    }
    cap = cap <= max_bytes ? cap : max_bytes + 1;
    char *buf = NULL;
    size_t n = 0;
    enum ax_status st;
    AX_TRY(ax_alloc(&buf, cap + 1, 1));
    for (;;) {
        ssize_t r = ax_sys_read(f->fd, buf + n, cap - n);
        if (r < 0) {
            st = ax_error(AX_ERR_IO, "%s: cannot read: %m", f->path);
            goto fail;
        }
        if (r == 0)
            break;
        n += (size_t)r;
        if (n > max_bytes) {
            st = too_large(f, max_bytes);
            goto fail;
        }
        if (n == cap) {
            size_t grown = cap <= max_bytes / 2 ? 2 * cap : max_bytes + 1;
            AX_TRY_GOTO(ax_regrow(&buf, cap + 1, grown + 1, 1), st, fail);
            cap = grown;
        }
    }
    buf[n] = '\0';
    *data = buf;
    *len = n;
    return AX_OK;
fail:
    ax_free(buf);
    return st;
}

enum ax_status ax_read_file(const char *path, size_t max_bytes, char **data, size_t *len) {
    AX_ASSERT(max_bytes <= (size_t)PTRDIFF_MAX - 2);
    struct ax_file f;
    AX_TRY(ax_file_open_read(&f, path));
    char *text = NULL;
    enum ax_status st;
    AX_TRY_GOTO(read_to_end(&f, max_bytes, &text, len), st, fail);
    AX_TRY_GOTO(ax_file_close(&f), st, fail);
    *data = text;
    return AX_OK;
fail:
    ax_free(text);
    return f.path != NULL ? ax_file_end(&f, st) : st;
}

enum ax_status ax_write_file_atomic(const char *path, const void *data, size_t len) {
    struct ax_file f = {0};
    char *tmp = NULL;
    char *dir = NULL;
    enum ax_status st;
    AX_TRY_GOTO(ax_path_check_replaceable(path), st, done);
    AX_TRY_GOTO(ax_path_parent(&dir, path), st, done);
    AX_TRY_GOTO(ax_sprintf(&tmp, "%s.tmp-%ld", path, (long)gettid()), st, done);
    AX_TRY_GOTO(open_as(&f, path, tmp, O_WRONLY | O_CREAT | O_TRUNC, "create", AX_FILE_MODE), st,
                done);
    AX_TRY_GOTO(ax_file_write(&f, data, len), st, done);
    AX_TRY_GOTO(ax_file_sync(&f), st, done);
    AX_TRY_GOTO(ax_file_close(&f), st, done);
    if (ax_sys_rename(tmp, path) != 0) {
        st = ax_error(ax_sys_status(), "%s: cannot rename %s to it: %m", path, tmp);
        goto done;
    }
    AX_TRY_GOTO(ax_sync_dir(dir), st, done);
done:
    if (st != AX_OK) {
        struct ax_error_record first;
        ax_error_save(&first, st);
        (void)ax_file_close(&f);
        if (tmp != NULL)
            (void)ax_sys_unlinkat(AT_FDCWD, tmp, 0); /* absent if the rename succeeded */
        (void)ax_error_restore(&first);
    }
    ax_free(tmp);
    ax_free(dir);
    return st;
}

enum ax_status ax_write_result(const char *path, const void *data, size_t len) {
    if (path)
        return ax_write_file_atomic(path, data, len);
    (void)fwrite(data, 1, len, stdout);
    return ax_flush_stdout();
}

enum ax_status ax_map_file(struct ax_mapping *m, const char *path) {
    *m = (struct ax_mapping){0};
    struct stat info;
    int fd = ax_sys_open_input(path, 0, &info);
    if (fd < 0)
        return ax_error(AX_ERR_IO, "%s: cannot open: %m", path);
    enum ax_status st = AX_OK;
    if (!S_ISREG(info.st_mode)) {
        st = ax_sys_not_regular(path, &info);
    } else if (info.st_size > 0) {
        void *p = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) {
            st =
                ax_error(AX_ERR_IO, "%s: cannot map %lld bytes: %m", path, (long long)info.st_size);
        } else {
            m->data = p;
            m->len = (size_t)info.st_size;
        }
    }
    if (ax_sys_close(fd) != 0 && st == AX_OK) {
        st = ax_error(ax_sys_status(), "%s: cannot close: %m", path);
        ax_unmap_file(m);
    }
    return st;
}

void ax_unmap_file(struct ax_mapping *m) {
    if (m->data != NULL)
        munmap((void *)(uintptr_t)m->data, m->len);
    *m = (struct ax_mapping){0};
}

void ax_map_drop(const void *data, size_t len) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t first = ((uintptr_t)data + page - 1) / page * page;
    const uintptr_t end = ((uintptr_t)data + len) / page * page;
    if (first < end)
        madvise((void *)first, end - first, MADV_DONTNEED); /* a hint: failing costs nothing */
}
