#include "base/rng.h"
#include "data/reward/sandbox/wasi_impl.h"

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
    args_get,
    args_sizes_get,
    environ_get,
    environ_sizes_get,
    clock_res_get,
    clock_time_get,
    refused,
    refused,
    ax_wasi_fd_close,
    refused,
    ax_wasi_fdstat,
    refused,
    ax_wasi_fd_stat,
    refused,
    refused,
    ax_wasi_fd_pread,
    ax_wasi_prestat_get,
    ax_wasi_prestat_name,
    refused,
    ax_wasi_fd_read,
    refused,
    ax_wasi_fd_seek,
    refused,
    ax_wasi_fd_tell,
    ax_wasi_fd_write,
    refused,
    ax_wasi_path_stat,
    refused,
    refused,
    ax_wasi_path_open,
    refused,
    refused,
    refused,
    refused,
    refused,
    poll_oneoff,
    proc_exit,
    nothing,
    random_get,
    refused,
    refused,
    refused,
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

void ax_wasi_free(struct ax_wasi *w) {
    ax_buf_free(&w->message);
}
