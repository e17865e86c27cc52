/* WASI: the guest's memory and fuel; then the calls: arguments, time, reading and writing, the library's
 * file, randomness and the end; the table. */
#include <string.h>

#include "base/rng.h"
#include "data/reward/sandbox/wasi.h"

/* errno of WASI */
enum {
    OK = 0,
    BADF = 8,
    FAULT = 21,
    INVAL = 28,
    NOENT = 44,
    NOMEM = 48,
    SPIPE = 70,
    NOTCAPABLE = 76
};

/* A call in progress. */
struct call {
    struct ax_wasi *w;
    const union ax_wasm_cell *cells;
    unsigned char *memory;
    size_t size;
};

static uint32_t u32_arg(const struct call *c, int i) {
    return (uint32_t)c->cells[i].i32;
}

/* n bytes of the guest at `at`; NULL if they are not all there. */
static unsigned char *guest(const struct call *c, uint64_t at, uint64_t n) {
    return at + n <= c->size ? c->memory + at : NULL;
}

/* Values of the guest, little-endian as the host. */
static uint32_t load32(const unsigned char *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
static uint64_t load64(const unsigned char *p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
static int store32(const struct call *c, uint32_t at, uint64_t value) {
    const uint32_t v = (uint32_t)value;
    unsigned char *p = guest(c, at, sizeof v);
    if (!p)
        return FAULT;
    memcpy(p, &v, sizeof v);
    return OK;
}
static int store64(const struct call *c, uint32_t at, uint64_t v) {
    unsigned char *p = guest(c, at, sizeof v);
    if (!p)
        return FAULT;
    memcpy(p, &v, sizeof v);
    return OK;
}

/* Takes fuel for work of the host; false, and the end, if there is not enough. */
static bool charge(struct ax_wasi *w, uint64_t fuel) {
    if (w->fuel < fuel) {
        w->fuel = 0;
        w->end = AX_WASI_FUEL;
        return false;
    }
    w->fuel -= fuel;
    return true;
}

/* What the host's work costs, in fuel. */
enum { CALL_FUEL = 500, RANDOM_FUEL = 8 /* a byte */, FUEL_PER_NS = 7 };
#define CLOCK_BASE 1700000000000000000ULL /* nanoseconds since 1970 when a run begins */

/* ---- arguments ---- */

static int sizes(const struct call *c, const char *const *list) {
    uint64_t n = 0, bytes = 0;
    for (; list && list[n]; n++)
        bytes += strlen(list[n]) + 1;
    const int bad = store32(c, u32_arg(c, 0), n);
    return bad ? bad : store32(c, u32_arg(c, 1), bytes);
}

/* Pointers to the texts at the first argument, the texts at the second. */
static int texts(const struct call *c, const char *const *list) {
    uint32_t pointers = u32_arg(c, 0), at = u32_arg(c, 1);
    for (size_t i = 0; list && list[i]; i++) {
        const size_t n = strlen(list[i]) + 1;
        unsigned char *to = guest(c, at, n);
        if (!to || store32(c, pointers, at) != OK)
            return FAULT;
        if (!charge(c->w, n))
            return OK;
        memcpy(to, list[i], n);
        at += (uint32_t)n;
        pointers += 4;
    }
    return OK;
}

static int args_sizes_get(const struct call *c) {
    return sizes(c, c->w->args);
}
static int args_get(const struct call *c) {
    return texts(c, c->w->args);
}
static int environ_sizes_get(const struct call *c) {
    return sizes(c, NULL);
}
static int environ_get(const struct call *c) {
    (void)c;
    return OK;
}

/* ---- time: the fuel used ---- */

static int clock_res_get(const struct call *c) {
    return store64(c, u32_arg(c, 1), 1);
}

static uint64_t now(const struct ax_wasi *w) {
    return CLOCK_BASE + (w->fuel_limit - w->fuel) / FUEL_PER_NS + w->slept;
}

static int clock_time_get(const struct call *c) {
    struct ax_wasi *w = c->w;
    if (w->stop_at_clock && w->out.n > 0)
        w->end = AX_WASI_CLOCK;
    return store64(c, u32_arg(c, 2), now(w));
}

/* A subscription and an event, of which a program may have a few. */
enum { SUBSCRIPTION = 48, EVENT = 32, MAX_SUBSCRIPTIONS = 64, CLOCK_TAG = 0, ABSOLUTE = 1 };

/* Sleeping takes no time: the clock is set forward to the first of the times waited for. */
static void sleep_until_first(struct ax_wasi *w, const unsigned char *in, uint32_t n) {
    uint64_t first = UINT64_MAX;
    for (uint32_t i = 0; i < n; i++, in += SUBSCRIPTION) {
        uint64_t wait = in[8] == CLOCK_TAG ? load64(in + 24) : 0;
        if (in[8] == CLOCK_TAG && (in[40] & ABSOLUTE))
            wait = wait > now(w) ? wait - now(w) : 0;
        first = wait < first ? wait : first;
    }
    w->slept = w->slept + first < w->slept ? UINT64_MAX / 2 : w->slept + first;
}

static int poll_oneoff(const struct call *c) {
    const uint32_t n = u32_arg(c, 2);
    if (n == 0 || n > MAX_SUBSCRIPTIONS)
        return INVAL;
    const unsigned char *in = guest(c, u32_arg(c, 0), (uint64_t)n * SUBSCRIPTION);
    unsigned char *out = guest(c, u32_arg(c, 1), (uint64_t)n * EVENT);
    if (!in || !out)
        return FAULT;
    unsigned char events[MAX_SUBSCRIPTIONS * EVENT] = {0}; /* the two may overlap */
    sleep_until_first(c->w, in, n);
    for (uint32_t i = 0; i < n; i++) {
        memcpy(events + i * EVENT, in + i * SUBSCRIPTION, 8); /* what the guest calls it */
        events[i * EVENT + 10] = in[i * SUBSCRIPTION + 8];
    }
    memcpy(out, events, (size_t)n * EVENT);
    return store32(c, u32_arg(c, 3), n);
}

/* ---- descriptors ---- */

/* Handles of the library's file are descriptors from FIRST_HANDLE; PREOPENED is the root. */
enum { PREOPENED = 3, FIRST_HANDLE = 4 };

/* Index in handles[]; −1 if the descriptor is not one that is open. */
static int handle_of(const struct ax_wasi *w, uint32_t fd) {
    const bool in_range = fd >= FIRST_HANDLE && fd < FIRST_HANDLE + AX_WASI_MAX_HANDLES;
    return in_range && w->handles[fd - FIRST_HANDLE].open ? (int)(fd - FIRST_HANDLE) : -1;
}

/* A list of the guest's buffers: [n] {pointer, length}. */
struct vectors {
    const unsigned char *list;
    uint32_t n;
};

static int get_vectors(const struct call *c, struct vectors *v) {
    v->n = u32_arg(c, 2);
    if (v->n > AX_WASI_MAX_VECTORS)
        return INVAL;
    v->list = guest(c, u32_arg(c, 1), (uint64_t)v->n * 8);
    return v->list ? OK : FAULT;
}

/* ---- reading ---- */

/* Copies up to n bytes of what is left of `from`, for a byte of fuel each; moves *at. */
static size_t copy_out(struct ax_wasi *w, struct ax_bytes from, size_t *at, unsigned char *to,
                       size_t n) {
    const size_t left = from.n - *at, take = n < left ? n : left;
    if (!charge(w, take))
        return 0;
    if (take > 0)
        memcpy(to, from.data + *at, take);
    *at += take;
    return take;
}

/* A read at the end of a segment is empty and moves to the next one. */
static size_t read_input(struct ax_wasi *w, unsigned char *to, size_t n, bool first) {
    if (w->segment >= w->n_input)
        return 0;
    const struct ax_bytes *s = &w->input[w->segment];
    if (w->at == s->n && n > 0 && first) {
        w->segment++;
        w->at = 0;
        return 0;
    }
    return copy_out(w, *s, &w->at, to, n);
}

/* The answer to the message written before it, followed by one empty read. */
static size_t read_channel(struct ax_wasi *w, unsigned char *to, size_t n, bool first) {
    if (!w->asked && first) {
        const struct ax_bytes message = {w->message.data, w->message.len};
        w->asked = true;
        w->reply = (struct ax_bytes){0};
        w->reply_at = 0;
        if (!w->ask(w->ask_ctx, message, &w->reply)) {
            w->end = AX_WASI_PEER;
            return 0;
        }
    } else if (first && n > 0 && w->reply_at == w->reply.n) {
        w->asked = false;
        w->message.len = 0;
        return 0;
    }
    return copy_out(w, w->reply, &w->reply_at, to, n);
}

static size_t read_library(struct ax_wasi *w, int handle, unsigned char *to, size_t n) {
    size_t at = (size_t)w->handles[handle].at;
    at = at < w->library.n ? at : w->library.n;
    const size_t got = copy_out(w, w->library, &at, to, n);
    w->handles[handle].at += got;
    return got;
}

static int fd_read(const struct call *c) {
    struct ax_wasi *w = c->w;
    const uint32_t fd = u32_arg(c, 0);
    const int handle = handle_of(w, fd);
    const bool channel = fd == 0 && w->ask && (w->asked || w->message.len > 0);
    struct vectors v;
    if (fd != 0 && handle < 0)
        return BADF;
    const int bad = get_vectors(c, &v);
    if (bad)
        return bad;
    size_t total = 0;
    bool first = true; /* of the buffers that are not empty */
    for (uint32_t i = 0; i < v.n && w->end == AX_WASI_RUNS; i++) {
        const uint32_t n = load32(v.list + 8 * (size_t)i + 4);
        unsigned char *to = guest(c, load32(v.list + 8 * (size_t)i), n);
        if (!to)
            return FAULT;
        if (n == 0)
            continue;
        const size_t got = channel   ? read_channel(w, to, n, first)
                           : fd == 0 ? read_input(w, to, n, first)
                                     : read_library(w, handle, to, n);
        total += got;
        first = false;
        if (got < n)
            break;
    }
    return store32(c, u32_arg(c, 3), total);
}

/* ---- writing ---- */

static int put_output(struct ax_wasi *w, uint32_t fd, const unsigned char *from, size_t n) {
    struct ax_wasi_output *out = fd == 1 ? &w->out : &w->err;
    const size_t room = out->cap - out->n, take = n < room ? n : room;
    if (take > 0)
        memcpy(out->data + out->n, from, take);
    out->n += take;
    if (fd == 1 && take < n)
        w->end = AX_WASI_OUTPUT;
    return OK;
}

static int put_message(struct ax_wasi *w, const unsigned char *from, size_t n) {
    if (w->asked || n > AX_WASI_MAX_MESSAGE - w->message.len)
        return INVAL;
    if (ax_buf_append(&w->message, from, n) == AX_OK)
        return OK;
    ax_error_clear();
    return NOMEM;
}

static bool may_write(const struct ax_wasi *w, uint32_t fd) {
    return (fd == 1 && !w->out.closed) || (fd == 2 && !w->err.closed);
}

static int fd_write(const struct call *c) {
    struct ax_wasi *w = c->w;
    const uint32_t fd = u32_arg(c, 0);
    struct vectors v;
    if (!may_write(w, fd))
        return BADF;
    const int bad = get_vectors(c, &v);
    if (bad)
        return bad;
    uint64_t total = 0;
    for (uint32_t i = 0; i < v.n && w->end == AX_WASI_RUNS; i++) {
        const uint32_t n = load32(v.list + 8 * (size_t)i + 4);
        const unsigned char *from = guest(c, load32(v.list + 8 * (size_t)i), n);
        if (!from)
            return FAULT;
        if (!charge(w, n))
            return OK;
        const int refused =
            fd == 1 && w->ask ? put_message(w, from, n) : put_output(w, fd, from, n);
        if (refused)
            return refused;
        total += n;
    }
    return store32(c, u32_arg(c, 3), total);
}

/* ---- the library's file ----
 *
 * One file that can be read, in a root folder that contains nothing else. Its parents are folders that
 * can be looked up and not listed. */

enum { UNKNOWN = 0, FOLDER = 3, REGULAR = 4 };
enum { OPEN_CREATE = 1, OPEN_FOLDER = 2, OPEN_EXCLUSIVE = 4, OPEN_TRUNCATE = 8 };
/* Rights: all that reading needs. fd_write is 1 << 6. */
#define MAY_READ  ((uint64_t)(1U << 1 | 1U << 2 | 1U << 5 | 1U << 21)) /* read, seek, tell, stat */
#define MAY_WRITE ((uint64_t)1U << 6)
#define MAY_OPEN  ((uint64_t)(1U << 13 | 1U << 18)) /* path_open, path_filestat_get */

static bool is_root(const struct ax_wasi *w, uint32_t fd) {
    return fd == PREOPENED && w->library.data;
}

static int fd_prestat_get(const struct call *c) {
    if (!is_root(c->w, u32_arg(c, 0)))
        return BADF;
    const uint64_t folder_with_name_of_one_byte = (uint64_t)1 << 32;
    return store64(c, u32_arg(c, 1), folder_with_name_of_one_byte);
}

static int fd_prestat_dir_name(const struct call *c) {
    unsigned char *to = guest(c, u32_arg(c, 1), 1);
    if (!is_root(c->w, u32_arg(c, 0)))
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
    if (!is_root(w, u32_arg(c, 0)))
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

static int path_open(const struct call *c) {
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

static int path_filestat_get(const struct call *c) {
    int kind;
    const int bad = look_up(c, 2, &kind);
    return bad ? bad : put_stat(c, u32_arg(c, 4), kind);
}

/* The kind of an open descriptor; −1: it is not open. */
static int kind_of(const struct ax_wasi *w, uint32_t fd) {
    if (fd == 0 || (fd == 1 && !w->out.closed) || (fd == 2 && !w->err.closed))
        return UNKNOWN;
    if (is_root(w, fd))
        return FOLDER;
    return handle_of(w, fd) >= 0 ? REGULAR : -1;
}

static int fd_filestat_get(const struct call *c) {
    const int kind = kind_of(c->w, u32_arg(c, 0));
    return kind < 0 ? BADF : put_stat(c, u32_arg(c, 1), kind);
}

/* struct fdstat: 24 bytes. Streams are of unknown kind, so that they do not count as terminals. */
static int fd_fdstat_get(const struct call *c) {
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

static int fd_close(const struct call *c) {
    struct ax_wasi *w = c->w;
    const uint32_t fd = u32_arg(c, 0);
    const int handle = handle_of(w, fd);
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

static int fd_seek(const struct call *c) {
    struct ax_wasi *w = c->w;
    const int handle = handle_of(w, u32_arg(c, 0));
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

static int fd_tell(const struct call *c) {
    const int handle = handle_of(c->w, u32_arg(c, 0));
    return handle < 0 ? BADF : tell(c, handle, 1);
}

/* As a seek, a read and a seek back. */
static int fd_pread(const struct call *c) {
    struct ax_wasi *w = c->w;
    const int handle = handle_of(w, u32_arg(c, 0));
    if (handle < 0)
        return BADF;
    const uint64_t at = w->handles[handle].at;
    const union ax_wasm_cell cells[4] = {c->cells[0], c->cells[1], c->cells[2], c->cells[4]};
    const struct call read = {w, cells, c->memory, c->size};
    w->handles[handle].at = (uint64_t)c->cells[3].i64;
    const int result = fd_read(&read);
    w->handles[handle].at = at;
    return result;
}

/* ---- the rest ---- */

static int random_get(const struct call *c) {
    const uint32_t n = u32_arg(c, 1);
    unsigned char *to = guest(c, u32_arg(c, 0), n);
    if (!to)
        return FAULT;
    if (!charge(c->w, (uint64_t)n * RANDOM_FUEL))
        return OK;
    const struct ax_rng_key key = {.seed = c->w->seed};
    for (uint32_t i = 0; i < n; i += 16) {
        uint32_t block[4];
        ax_rng_block(key, c->w->drawn++, block);
        memcpy(to + i, block, n - i < 16 ? n - i : 16);
    }
    return OK;
}

static int proc_exit(const struct call *c) {
    const uint32_t code = u32_arg(c, 0);
    c->w->end = AX_WASI_EXIT;
    c->w->exit_code = code <= 125 ? (int)code : 1;
    return OK;
}

static int nothing(const struct call *c) {
    (void)c;
    return OK;
}

static int refused(const struct call *c) {
    (void)c;
    return BADF;
}

/* ---- the table ---- */

const struct ax_wasi_import ax_wasi_imports[AX_WASI_IMPORTS] = {
    {"args_get", "ii"},
    {"args_sizes_get", "ii"},
    {"environ_get", "ii"},
    {"environ_sizes_get", "ii"},
    {"clock_res_get", "ii"},
    {"clock_time_get", "ili"},
    {"fd_advise", "illi"},
    {"fd_allocate", "ill"},
    {"fd_close", "i"},
    {"fd_datasync", "i"},
    {"fd_fdstat_get", "ii"},
    {"fd_fdstat_set_flags", "ii"},
    {"fd_filestat_get", "ii"},
    {"fd_filestat_set_size", "il"},
    {"fd_filestat_set_times", "illi"},
    {"fd_pread", "iiili"},
    {"fd_prestat_get", "ii"},
    {"fd_prestat_dir_name", "iii"},
    {"fd_pwrite", "iiili"},
    {"fd_read", "iiii"},
    {"fd_readdir", "iiili"},
    {"fd_seek", "ilii"},
    {"fd_sync", "i"},
    {"fd_tell", "ii"},
    {"fd_write", "iiii"},
    {"path_create_directory", "iii"},
    {"path_filestat_get", "iiiii"},
    {"path_filestat_set_times", "iiiilli"},
    {"path_link", "iiiiiii"},
    {"path_open", "iiiiillii"},
    {"path_readlink", "iiiiii"},
    {"path_remove_directory", "iii"},
    {"path_rename", "iiiiii"},
    {"path_symlink", "iiiii"},
    {"path_unlink_file", "iii"},
    {"poll_oneoff", "iiii"},
    {"proc_exit", "i"},
    {"sched_yield", ""},
    {"random_get", "ii"},
    {"sock_accept", "iii"},
    {"sock_recv", "iiiiii"},
    {"sock_send", "iiiii"},
    {"sock_shutdown", "ii"},
};

/* In the order of the imports. */
static int (*const functions[AX_WASI_IMPORTS])(const struct call *c) = {
    args_get,          args_sizes_get, environ_get,
    environ_sizes_get, clock_res_get,  clock_time_get,
    refused,           refused,        fd_close,
    refused,           fd_fdstat_get,  refused,
    fd_filestat_get,   refused,        refused,
    fd_pread,          fd_prestat_get, fd_prestat_dir_name,
    refused,           fd_read,        refused,
    fd_seek,           refused,        fd_tell,
    fd_write,          refused,        path_filestat_get,
    refused,           refused,        path_open,
    refused,           refused,        refused,
    refused,           refused,        poll_oneoff,
    proc_exit,         nothing,        random_get,
    refused,           refused,        refused,
    refused,
};

void ax_wasi_call(struct ax_wasi *w, int which, union ax_wasm_cell *cells, unsigned char *memory,
                  size_t size) {
    const struct call c = {w, cells, memory, size};
    if (!charge(w, CALL_FUEL))
        return;
    const int result = functions[which](&c);
    cells[0] = (union ax_wasm_cell){.i32 = result};
}

void ax_wasi_restart(struct ax_wasi *w, const struct ax_bytes *input, size_t n) {
    w->input = input;
    w->n_input = n;
    w->segment = w->at = 0;
    w->message.len = 0;
    w->reply = (struct ax_bytes){0};
    w->reply_at = 0;
    w->asked = false;
}

void ax_wasi_free(struct ax_wasi *w) {
    ax_buf_free(&w->message);
}
