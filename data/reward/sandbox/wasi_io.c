/* Reading and writing. */
#include "data/reward/sandbox/wasi_impl.h"

/* A list of the guest's buffers: [n] {pointer, length}. */
struct vectors {
    const unsigned char *list;
    uint32_t n;
};

static int vectors(const struct call *c, struct vectors *v) {
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

int ax_wasi_fd_read(const struct call *c) {
    struct ax_wasi *w = c->w;
    const uint32_t fd = u32_arg(c, 0);
    const int handle = ax_wasi_handle(w, fd);
    const bool channel = fd == 0 && w->ask && (w->asked || w->message.len > 0);
    struct vectors v;
    if (fd != 0 && handle < 0)
        return BADF;
    const int bad = vectors(c, &v);
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

static int put(struct ax_wasi *w, uint32_t fd, const unsigned char *from, size_t n) {
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

int ax_wasi_fd_write(const struct call *c) {
    struct ax_wasi *w = c->w;
    const uint32_t fd = u32_arg(c, 0);
    struct vectors v;
    if (!may_write(w, fd))
        return BADF;
    const int bad = vectors(c, &v);
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
        const int refused = fd == 1 && w->ask ? put_message(w, from, n) : put(w, fd, from, n);
        if (refused)
            return refused;
        total += n;
    }
    return store32(c, u32_arg(c, 3), total);
}
