#include "base/direct_io.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/io_sys.h"

#define BUFFER ((size_t)4 << 20)

enum ax_status ax_alloc_direct(void **heap, void **out, size_t n) {
    AX_TRY(ax_alloc(heap, n + AX_DIRECT_IO_ALIGN, 1));
    const uintptr_t at = (uintptr_t)*heap;
    const size_t up = (AX_DIRECT_IO_ALIGN - at % AX_DIRECT_IO_ALIGN) % AX_DIRECT_IO_ALIGN;
    *out = (char *)*heap + up;
    return AX_OK;
}

static int open_plain(const char *path, int flags, struct stat *info) {
    *info = (struct stat){.st_mode = S_IFREG};
    return (flags & O_ACCMODE) == O_RDONLY ? ax_sys_open_input(path, flags, info)
                                           : ax_sys_create(path, flags, AX_FILE_MODE);
}

static enum ax_status open_file(struct ax_file *f, const char *path, int flags, const char *what) {
    *f = (struct ax_file){.fd = -1};
    char *copy;
    AX_TRY(ax_strdup(&copy, path));
    struct stat info;
    const int fd = open_plain(path, flags, &info);
    if (fd < 0 || !S_ISREG(info.st_mode)) {
        enum ax_status st;
        if (fd >= 0)
            st = ax_sys_not_regular(path, &info);
        else if ((flags & O_ACCMODE) == O_RDONLY)
            st = ax_error(AX_ERR_IO, "%s: cannot %s: %m", path, what);
        else
            st = ax_sys_cannot(path, what);
        if (fd >= 0)
            (void)ax_sys_close(fd);
        ax_free(copy);
        return st;
    }
    *f = (struct ax_file){.fd = fd, .path = copy};
    return AX_OK;
}

/* Returns whether O_DIRECT is on. File systems that need the page cache reject it. */
static bool set_direct(int fd, bool on) {
    const int flags = fcntl(fd, F_GETFL);
    if (flags >= 0 && ((flags & O_DIRECT) != 0) != on)
        (void)fcntl(fd, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT);
    return (fcntl(fd, F_GETFL) & O_DIRECT) != 0;
}

static void leave_direct(struct ax_direct_io *s) {
    s->direct = set_direct(s->f.fd, false);
}

/* Writes full blocks directly; a tail, and the rest after a short write, through the cache. */
static enum ax_status flush(struct ax_direct_io *s) {
    size_t done = 0;
    while (done < s->filled) {
        const size_t left = s->filled - done;
        if (s->direct && (left < AX_DIRECT_IO_ALIGN || done % AX_DIRECT_IO_ALIGN != 0))
            leave_direct(s);
        const size_t n = s->direct ? left - left % AX_DIRECT_IO_ALIGN : left;
        const ssize_t w = ax_sys_write(s->f.fd, s->buffer + done, n);
        if (w < 0 && errno == EINVAL && s->direct) {
            leave_direct(s);
            continue;
        }
        if (w < 0)
            return ax_error(ax_sys_status(), "%s: cannot write %zu bytes (%zu written): %m",
                            s->f.path, s->filled, done);
        done += (size_t)w;
    }
    s->filled = 0;
    return AX_OK;
}

enum ax_status ax_direct_io_create(struct ax_direct_io *s, const char *path) {
    *s = (struct ax_direct_io){.f = {.fd = -1}};
    void *heap, *buffer;
    AX_TRY(ax_alloc_direct(&heap, &buffer, BUFFER));
    s->heap = heap;
    s->buffer = buffer;
    const enum ax_status st = open_file(&s->f, path, O_WRONLY | O_CREAT | O_TRUNC, "create");
    if (st != AX_OK)
        return ax_direct_io_end(s, st);
    s->direct = set_direct(s->f.fd, true);
    return AX_OK;
}

enum ax_status ax_direct_io_write(struct ax_direct_io *s, const void *data, size_t n) {
    const unsigned char *p = data;
    while (n > 0) {
        const size_t room = BUFFER - s->filled, take = n < room ? n : room;
        memcpy(s->buffer + s->filled, p, take);
        s->filled += take;
        p += take;
        n -= take;
        if (s->filled == BUFFER)
            AX_TRY(flush(s));
    }
    return AX_OK;
}

enum ax_status ax_direct_io_finish(struct ax_direct_io *s) {
    AX_TRY(flush(s));
    return ax_file_sync(&s->f);
}

static enum ax_status close_direct(struct ax_direct_io *s) {
    const enum ax_status st = ax_file_close(&s->f);
    ax_free(s->heap);
    *s = (struct ax_direct_io){.f = {.fd = -1}};
    return st;
}

enum ax_status ax_direct_io_end(struct ax_direct_io *s, enum ax_status st) {
    struct ax_error_record first;
    if (st == AX_OK)
        return close_direct(s);
    ax_error_save(&first, st);
    (void)close_direct(s);
    return ax_error_restore(&first);
}

enum ax_status ax_file_open_direct(struct ax_file *f, const char *path) {
    AX_TRY(open_file(f, path, O_RDONLY, "open"));
    (void)set_direct(f->fd, true);
    return AX_OK;
}

enum ax_status ax_file_open_direct_update(struct ax_file *f, const char *path) {
    return open_file(f, path, O_WRONLY, "write to");
}

static bool is_aligned(const void *data, uint64_t offset) {
    return (uintptr_t)data % AX_DIRECT_IO_ALIGN == 0 && offset % AX_DIRECT_IO_ALIGN == 0;
}

enum ax_status ax_file_pwrite_direct(struct ax_file *f, const void *data, size_t n,
                                     uint64_t offset) {
    const char *p = data;
    const size_t blocks = is_aligned(data, offset) ? n - n % AX_DIRECT_IO_ALIGN : 0;
    size_t done = 0;
    while (done < blocks && done % AX_DIRECT_IO_ALIGN == 0 && set_direct(f->fd, true)) {
        const ssize_t w = ax_sys_pwrite(f->fd, p + done, blocks - done, offset + done);
        if (w < 0 && errno == EINVAL)
            break;
        if (w < 0)
            return ax_error(ax_sys_status(),
                            "%s: cannot write %zu bytes at byte %llu (%zu written): %m", f->path, n,
                            (unsigned long long)offset, done);
        done += (size_t)w;
    }
    if (done == n)
        return AX_OK;
    (void)set_direct(f->fd, false);
    return ax_file_pwrite(f, p + done, n - done, offset + done);
}

enum ax_status ax_file_pread_some(struct ax_file *f, void *data, size_t n, uint64_t offset,
                                  size_t *got) {
    for (*got = 0; *got < n;) {
        const ssize_t r = ax_sys_pread(f->fd, (char *)data + *got, n - *got, offset + *got);
        if (r < 0)
            return ax_error(AX_ERR_IO, "%s: cannot read %zu bytes at byte %llu: %m", f->path, n,
                            (unsigned long long)offset);
        *got += (size_t)r;
        if (r == 0 || *got % AX_DIRECT_IO_ALIGN != 0)
            return AX_OK; /* a partial block: the end of the file */
    }
    return AX_OK;
}
