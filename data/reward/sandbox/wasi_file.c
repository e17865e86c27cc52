/* The interpreter's library: one file that can be read, in a root folder that contains nothing
 * else. Its parents are folders that can be looked up and not listed. */
#include "data/reward/sandbox/wasi_impl.h"

enum { UNKNOWN = 0, FOLDER = 3, REGULAR = 4 };
enum { OPEN_CREATE = 1, OPEN_FOLDER = 2, OPEN_EXCLUSIVE = 4, OPEN_TRUNCATE = 8 };
/* Rights: all that reading needs. fd_write is 1 << 6. */
#define MAY_READ  ((uint64_t)(1U << 1 | 1U << 2 | 1U << 5 | 1U << 21)) /* read, seek, tell, stat */
#define MAY_WRITE ((uint64_t)1U << 6)
#define MAY_OPEN  ((uint64_t)(1U << 13 | 1U << 18)) /* path_open, path_filestat_get */

int ax_wasi_handle(const struct ax_wasi *w, uint32_t fd) {
    const bool in_range = fd >= FIRST_HANDLE && fd < FIRST_HANDLE + AX_WASI_MAX_HANDLES;
    return in_range && w->handles[fd - FIRST_HANDLE].open ? (int)(fd - FIRST_HANDLE) : -1;
}

bool ax_wasi_is_root(const struct ax_wasi *w, uint32_t fd) {
    return fd == PREOPENED && w->library.data;
}

int ax_wasi_prestat_get(const struct call *c) {
    if (!ax_wasi_is_root(c->w, u32_arg(c, 0)))
        return BADF;
    const uint64_t folder_with_name_of_one_byte = (uint64_t)1 << 32;
    return store64(c, u32_arg(c, 1), folder_with_name_of_one_byte);
}

int ax_wasi_prestat_name(const struct call *c) {
    unsigned char *to = guest(c, u32_arg(c, 1), 1);
    if (!ax_wasi_is_root(c->w, u32_arg(c, 0)))
        return BADF;
    if (!to || u32_arg(c, 2) < 1)
        return FAULT;
    *to = '/';
    return OK;
}

/* What the path of a call is: REGULAR, FOLDER (a parent of the library), or UNKNOWN: nothing. No
 * part of a path is interpreted, so ".." is nothing, too. */
static int look_up(const struct call *c, int arg, int *kind) {
    const struct ax_wasi *w = c->w;
    const uint32_t n = u32_arg(c, arg + 1);
    const char *path = (const char *)guest(c, u32_arg(c, arg), n);
    if (!ax_wasi_is_root(w, u32_arg(c, 0)))
        return BADF;
    if (!path)
        return FAULT;
    const size_t all = strlen(w->library_path);
    const bool begins = n <= all && memcmp(path, w->library_path, n) == 0;
    *kind = begins && n == all ? REGULAR : UNKNOWN;
    if (n == 0 || (n == 1 && *path == '.') || (begins && w->library_path[n] == '/'))
        *kind = FOLDER;
    return *kind == UNKNOWN ? NOENT : OK;
}

int ax_wasi_path_open(const struct call *c) {
    struct ax_wasi *w = c->w;
    const uint64_t rights = (uint64_t)c->cells[5].i64;
    int kind, i = 0;
    const int bad = look_up(c, 2, &kind);
    if (bad)
        return bad;
    if (kind != REGULAR || u32_arg(c, 4) != 0 || (rights & MAY_WRITE))
        return NOTCAPABLE;
    while (i < AX_WASI_MAX_HANDLES && w->handles[i].open)
        i++;
    if (i == AX_WASI_MAX_HANDLES)
        return NOTCAPABLE;
    w->handles[i].open = true;
    w->handles[i].at = 0;
    return store32(c, u32_arg(c, 8), FIRST_HANDLE + (uint64_t)i);
}

/* struct filestat: 64 bytes. */
static int put_stat(const struct call *c, uint32_t at, int kind) {
    unsigned char *p = guest(c, at, 64);
    if (!p)
        return FAULT;
    const uint64_t one = 1, size = kind == REGULAR ? c->w->library.n : 0;
    memset(p, 0, 64);
    memcpy(p + 8, &one, 8); /* inode */
    p[16] = (unsigned char)kind;
    memcpy(p + 24, &one, 8); /* links */
    memcpy(p + 32, &size, 8);
    return OK;
}

int ax_wasi_path_stat(const struct call *c) {
    int kind;
    const int bad = look_up(c, 2, &kind);
    return bad ? bad : put_stat(c, u32_arg(c, 4), kind);
}

/* The kind of an open descriptor; −1: it is not open. */
static int kind_of(const struct ax_wasi *w, uint32_t fd) {
    if (fd == 0 || (fd == 1 && !w->out.closed) || (fd == 2 && !w->err.closed))
        return UNKNOWN;
    if (ax_wasi_is_root(w, fd))
        return FOLDER;
    return ax_wasi_handle(w, fd) >= 0 ? REGULAR : -1;
}

int ax_wasi_fd_stat(const struct call *c) {
    const int kind = kind_of(c->w, u32_arg(c, 0));
    return kind < 0 ? BADF : put_stat(c, u32_arg(c, 1), kind);
}

/* struct fdstat: 24 bytes. Streams are of unknown kind, so that they do not count as terminals. */
int ax_wasi_fdstat(const struct call *c) {
    static const uint64_t rights[] = {
        [UNKNOWN] = 1U << 1 | 1U << 6 | 1U << 21, [FOLDER] = MAY_OPEN, [REGULAR] = MAY_READ};
    const int kind = kind_of(c->w, u32_arg(c, 0));
    unsigned char *p = guest(c, u32_arg(c, 1), 24);
    if (kind < 0)
        return BADF;
    if (!p)
        return FAULT;
    memset(p, 0, 24);
    p[0] = (unsigned char)kind;
    memcpy(p + 8, &rights[kind], 8);
    const uint64_t inherited = kind == FOLDER ? MAY_READ : 0;
    memcpy(p + 16, &inherited, 8);
    return OK;
}

int ax_wasi_fd_close(const struct call *c) {
    struct ax_wasi *w = c->w;
    const uint32_t fd = u32_arg(c, 0);
    const int handle = ax_wasi_handle(w, fd);
    if (kind_of(w, fd) < 0)
        return BADF;
    if (handle >= 0)
        w->handles[handle].open = false;
    w->out.closed = w->out.closed || fd == 1;
    w->err.closed = w->err.closed || fd == 2;
    return OK;
}

static int tell(const struct call *c, int handle, int result) {
    return store64(c, u32_arg(c, result), c->w->handles[handle].at);
}

int ax_wasi_fd_seek(const struct call *c) {
    struct ax_wasi *w = c->w;
    const int handle = ax_wasi_handle(w, u32_arg(c, 0));
    const uint32_t whence = u32_arg(c, 2);
    if (handle < 0)
        return kind_of(w, u32_arg(c, 0)) < 0 ? BADF : SPIPE;
    const uint64_t from[] = {0, w->handles[handle].at, w->library.n};
    if (whence > 2)
        return INVAL;
    const uint64_t at = from[whence] + (uint64_t)c->cells[1].i64;
    if (at > INT64_MAX)
        return INVAL;
    w->handles[handle].at = at;
    return tell(c, handle, 3);
}

int ax_wasi_fd_tell(const struct call *c) {
    const int handle = ax_wasi_handle(c->w, u32_arg(c, 0));
    return handle < 0 ? BADF : tell(c, handle, 1);
}

/* As a seek, a read and a seek back. */
int ax_wasi_fd_pread(const struct call *c) {
    struct ax_wasi *w = c->w;
    const int handle = ax_wasi_handle(w, u32_arg(c, 0));
    if (handle < 0)
        return BADF;
    const uint64_t at = w->handles[handle].at;
    const union ax_wasm_cell cells[4] = {c->cells[0], c->cells[1], c->cells[2], c->cells[4]};
    const struct call read = {w, cells, c->memory, c->size};
    w->handles[handle].at = (uint64_t)c->cells[3].i64;
    const int result = ax_wasi_fd_read(&read);
    w->handles[handle].at = at;
    return result;
}
