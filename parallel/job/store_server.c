/* The store: what a connection may ask; sockets. Read serve first, then ax_store_core_feed. */
#include "parallel/job/store_server.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fit.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/threads.h"
#include "parallel/job/store.h"
#include "parallel/job/token.h"

/* ---- connections ---- */

enum ax_status ax_store_core_create(struct ax_store_core *c, int world,
                                    const unsigned char key[AX_STORE_KEY_BYTES], double timeout) {
    memset(c, 0, sizeof *c);
    memcpy(c->key, key, sizeof c->key);
    c->timeout = timeout;
    const double now = ax_clock_now();
    c->deadline = now + timeout;
    c->told_at = now + fmin(AX_STORE_PATIENCE_SECONDS, timeout / 2);
    return ax_store_table_create(&c->table, world);
}

static void conn_free(struct ax_store_conn *conn) {
    ax_buf_free(&conn->in);
    ax_buf_free(&conn->out);
    ax_free(conn);
}

void ax_store_core_free(struct ax_store_core *c) {
    while (c->conns) {
        struct ax_store_conn *conn = c->conns;
        c->conns = conn->next;
        conn_free(conn);
    }
    ax_store_table_free(&c->table);
    memset(c, 0, sizeof *c);
}

/* A stranger is told nothing, and a few of them are logged. */
static void refuse(struct ax_store_core *c, struct ax_store_conn *conn, const char *why) {
    if (conn->closing)
        return;
    conn->closing = true;
    ax_net_log_refused(&c->refused, conn->address, "", why);
}

static void send_frame(struct ax_store_conn *conn, enum ax_store_type type, const void *body,
                       size_t n) {
    if (ax_store_put_frame(&conn->out, type, body, n) != AX_OK)
        conn->closing = true; /* out of memory: its rank sees the connection close */
}

static void reply(struct ax_store_conn *conn, enum ax_status st, const void *data, size_t n,
                  int done) {
    struct ax_buf body = {0};
    conn->wait.type = 0;
    if (ax_store_put_int(&body, (uint64_t)st, 4) == AX_OK &&
        ax_store_put_blob(&body, data, n) == AX_OK &&
        ax_store_put_int(&body, (uint64_t)(uint32_t)done, 4) == AX_OK)
        send_frame(conn, AX_STORE_REPLY, body.data, body.len);
    else
        conn->closing = true;
    ax_buf_free(&body);
}

static void reply_text(struct ax_store_conn *conn, enum ax_status st, const char *text) {
    reply(conn, st, text, strlen(text), -1);
}

enum ax_status ax_store_core_accept(struct ax_store_core *c, const char *address,
                                    struct ax_store_conn **out) {
    struct ax_store_conn *conn, *oldest = NULL;
    enum ax_status st;
    for (struct ax_store_conn *o = c->conns; o; o = o->next)
        if (!o->member && !o->closing && (!oldest || o->since <= oldest->since))
            oldest = o;
    if (c->strangers >= AX_STORE_STRANGERS && oldest)
        refuse(c, oldest, "it said nothing, and others are waiting");
    AX_TRY(ax_alloc(&conn, 1, sizeof *conn));
    conn->fd = conn->rank = -1;
    conn->since = ax_clock_now();
    snprintf(conn->address, sizeof conn->address, "%s", address);
    AX_TRY_GOTO(ax_random_bytes(conn->nonce, sizeof conn->nonce), st, fail);
    AX_TRY_GOTO(ax_store_put_frame(&conn->out, AX_STORE_CHALLENGE, conn->nonce, sizeof conn->nonce),
                st, fail);
    conn->next = c->conns;
    c->conns = conn;
    c->strangers++;
    *out = conn;
    return AX_OK;
fail:
    conn_free(conn);
    return st;
}

static void join(struct ax_store_core *c, struct ax_store_conn *conn,
                 const struct ax_store_frame *f) {
    struct ax_store_reader r = {f->body, f->body + f->len, false};
    const unsigned char *mac = ax_store_read_bytes(&r, AX_MAC_BYTES), *rest = r.at;
    const unsigned char *nonce = ax_store_read_bytes(&r, AX_STORE_NONCE);
    unsigned char expected[AX_MAC_BYTES];
    struct ax_store_member m;
    if (!nonce) {
        refuse(c, conn, "it does not speak the protocol of this store");
        return;
    }
    ax_store_proof(c->key, "rank", conn->nonce, rest, (size_t)(r.end - rest), expected);
    if (!ax_mac_equal(mac, expected)) {
        refuse(c, conn, "its token is not that of this job");
        return;
    }
    conn->member = true;
    c->strangers--;
    ax_store_proof(c->key, "store", conn->nonce, nonce, AX_STORE_NONCE, expected);
    send_frame(conn, AX_STORE_WELCOME, expected, sizeof expected);
    enum ax_status st = AX_ERR_CONFIG;
    if (ax_store_read_member(&r, &m))
        st = ax_store_seat_take(&c->table, &m);
    else
        (void)ax_error(st,
                       "a rank from %s describes itself in a way that this build of axtrain "
                       "does not know: install the same one on all hosts",
                       conn->address);
    if (st == AX_OK) {
        conn->rank = m.rank;
        conn->wait.type = AX_STORE_JOIN;
        return;
    }
    const bool runs = ax_store_complete(&c->table); /* then its ranks are not told */
    if (runs)
        ax_log_warn("refused %s", ax_error_text());
    reply(conn, st, ax_error_text(), strlen(ax_error_text()), runs ? m.rank : c->table.twice);
    conn->closing = true;
}

static bool read_request(struct ax_store_conn *conn, const struct ax_store_frame *f,
                         const unsigned char **data, size_t *n) {
    struct ax_store_reader r = {f->body, f->body + f->len, false};
    struct ax_store_wait *w = &conn->wait;
    if (f->type == AX_STORE_SET || f->type == AX_STORE_GET)
        ax_store_read_text(&r, w->key, sizeof w->key);
    if (f->type == AX_STORE_SET || f->type == AX_STORE_LEAVE)
        *data = ax_store_read_blob(&r, n);
    if (f->type == AX_STORE_GET)
        w->owner = (int)(int32_t)ax_store_read_int(&r, 4);
    if (f->type == AX_STORE_CAUSE || f->type == AX_STORE_LEAVE) {
        w->first = (int)(int32_t)ax_store_read_int(&r, 4);
        w->end = (int)(int32_t)ax_store_read_int(&r, 4);
    }
    w->until = ax_clock_now() + 1e-3 * (double)ax_store_read_int(&r, 4);
    return ax_store_read_end(&r);
}

static void leave(struct ax_store_core *c, struct ax_store_conn *conn, const char *words,
                  size_t n) {
    char text[AX_ERROR_TEXT], others[AX_ERROR_TEXT];
    const int st = conn->wait.first;
    const enum ax_status why = ax_store_cause(&c->table, conn->rank, others, sizeof others);
    ax_fit(text, sizeof text, "%.*s", (int)n, words ? words : "");
    ax_store_seat_leave(&c->table, conn->rank,
                        st >= 0 && st < AX_STATUS_COUNT ? (enum ax_status)st : AX_ERR_FAILED, text);
    reply(conn, AX_OK, "", 0, why == AX_OK ? 0 : why == AX_ERR_PEER ? 1 : 2);
}

static void request(struct ax_store_core *c, struct ax_store_conn *conn,
                    const struct ax_store_frame *f) {
    const unsigned char *data = NULL;
    size_t n = 0;
    if (conn->wait.type != 0 || f->type < AX_STORE_SET || f->type > AX_STORE_LEAVE ||
        !read_request(conn, f, &data, &n)) {
        ax_log_warn("rank %d (%s) sent what no rank sends; it is disconnected", conn->rank,
                    conn->address);
        conn->closing = true;
        return;
    }
    if (f->type == AX_STORE_SET) {
        const enum ax_status st = ax_store_put(&c->table, conn->wait.key, data, n);
        reply_text(conn, st, st == AX_OK ? "" : ax_error_text());
    } else if (f->type == AX_STORE_LEAVE) {
        leave(c, conn, (const char *)data, n < AX_ERROR_TEXT ? n : AX_ERROR_TEXT);
    } else {
        conn->wait.type = f->type;
    }
}

void ax_store_core_feed(struct ax_store_core *c, struct ax_store_conn *conn, const void *data,
                        size_t n) {
    struct ax_store_frame f;
    long used = 0;
    if (conn->closing)
        return;
    if (ax_buf_append(&conn->in, data, n) != AX_OK) {
        conn->closing = true;
        return;
    }
    size_t at = 0;
    while (!conn->closing) {
        const size_t limit = conn->member ? AX_STORE_FRAME_MAX : AX_STORE_STRANGER_MAX;
        used = ax_store_frame_next(conn->in.data + at, conn->in.len - at, limit, &f);
        if (used <= 0)
            break;
        if (conn->member)
            request(c, conn, &f);
        else if (f.type == AX_STORE_JOIN)
            join(c, conn, &f);
        else
            used = -1;
        if (used < 0)
            break;
        at += (size_t)used;
    }
    if (used < 0 && conn->member)
        conn->closing = true;
    else if (used < 0)
        refuse(c, conn, "it does not speak the protocol of this store");
    memmove(conn->in.data, conn->in.data + at, conn->in.len - at);
    conn->in.len -= at;
}

static void answer(struct ax_store_core *c, struct ax_store_conn *conn, double now) {
    const struct ax_store_wait *w = &conn->wait;
    struct ax_store_table *t = &c->table;
    char words[AX_ERROR_TEXT] = "";
    if (w->type == AX_STORE_JOIN && t->failed != AX_OK) {
        reply(conn, t->failed, t->failure, strlen(t->failure), t->twice);
        conn->closing = true;
    } else if (w->type == AX_STORE_JOIN && ax_store_complete(t)) {
        reply_text(conn, AX_OK, "");
    } else if (w->type == AX_STORE_GET) {
        const struct ax_store_entry *e = ax_store_find(t, w->key);
        if (e)
            reply(conn, AX_OK, e->data, e->n, -1);
        else if (ax_store_hopeless(t, conn->rank, w->owner, words, sizeof words))
            reply_text(conn, AX_ERR_PEER, words);
        else if (now >= w->until)
            reply_text(conn, AX_ERR_PEER, "it did not arrive in time");
    } else if (w->type == AX_STORE_CAUSE) {
        const enum ax_status st = ax_store_cause(t, conn->rank, words, sizeof words);
        const int done =
            st == AX_OK ? ax_store_done(t, conn->rank, w->first, w->end, words, sizeof words) : -1;
        if (st != AX_OK || done >= 0 || now >= w->until)
            reply(conn, st, words, strlen(words), done);
    }
}

void ax_store_core_tick(struct ax_store_core *c, double now) {
    const bool open = !ax_store_complete(&c->table) && c->table.failed == AX_OK;
    if (open && now >= c->told_at) {
        ax_store_seats_tell(&c->table, c->timeout);
        c->told_at = INFINITY;
    }
    if (open && now >= c->deadline)
        ax_store_seats_expire(&c->table, c->timeout);
    for (struct ax_store_conn *conn = c->conns; conn; conn = conn->next) {
        if (!conn->member && now - conn->since > AX_STORE_STRANGER_SECONDS)
            refuse(c, conn, "it did not say in time who it is");
        answer(c, conn, now);
    }
}

void ax_store_core_close(struct ax_store_core *c, struct ax_store_conn *conn) {
    struct ax_store_conn **at = &c->conns;
    while (*at != conn)
        at = &(*at)->next;
    *at = conn->next;
    if (conn->rank >= 0)
        ax_store_seat_lose(&c->table, conn->rank);
    c->strangers -= !conn->member;
    conn_free(conn);
}

/* ---- sockets: one thread, one poll ---- */

enum { READ_BYTES = 1 << 16, TICK_MS = 50 };

struct ax_store_server {
    struct ax_store_core core;
    int listening, wake;
    struct ax_worker worker;
    struct pollfd *polls;
    struct ax_store_conn **polled;
    size_t capacity;
    bool full; /* no room for a connection: nobody is let in until the next tick */
    _Atomic bool stopping;
    _Atomic double linger_until;
    char buffer[READ_BYTES];
};

/* There is no room for a connection. Strangers soon give theirs back; ranks do not. */
static void note_full(struct ax_store_server *s, int error) {
    char text[256];
    s->full = true;
    if (s->core.strangers > 0)
        return;
    snprintf(text, sizeof text,
             "the store of the job cannot take a connection: %s. Raise the limit of open files "
             "(ulimit -n) where rank 0 or the launcher runs.",
             strerrordesc_np(error));
    ax_store_fail_all(&s->core.table, AX_ERR_CONFIG, text);
}

static void accept_all(struct ax_store_server *s) {
    for (int i = 0; i < 64; i++) {
        char address[AX_NET_ADDRESS];
        struct ax_store_conn *conn;
        const int fd = ax_net_accept(s->listening, address);
        if (fd < 0 && errno != EAGAIN)
            note_full(s, errno);
        if (fd < 0)
            return;
        if (ax_store_core_accept(&s->core, address, &conn) == AX_OK)
            conn->fd = fd;
        else
            close(fd);
    }
}

/* False: the connection has ended. */
static bool receive(struct ax_store_server *s, struct ax_store_conn *conn) {
    const ssize_t n = recv(conn->fd, s->buffer, sizeof s->buffer, 0);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    if (n > 0)
        ax_store_core_feed(&s->core, conn, s->buffer, (size_t)n);
    return n > 0;
}

static bool send_out(struct ax_store_conn *conn) {
    while (conn->sent < conn->out.len) {
        const ssize_t n =
            send(conn->fd, conn->out.data + conn->sent, conn->out.len - conn->sent, MSG_NOSIGNAL);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR;
        conn->sent += (size_t)n;
    }
    conn->out.len = conn->sent = 0;
    return !conn->closing;
}

static void close_conn(struct ax_store_server *s, struct ax_store_conn *conn) {
    close(conn->fd);
    ax_store_core_close(&s->core, conn);
}

static enum ax_status make_polls(struct ax_store_server *s, size_t *n) {
    size_t count = 2;
    for (const struct ax_store_conn *c = s->core.conns; c; c = c->next)
        count++;
    if (count > s->capacity) {
        AX_TRY(ax_regrow(&s->polls, s->capacity, 2 * count, sizeof *s->polls));
        AX_TRY(ax_regrow(&s->polled, s->capacity, 2 * count, sizeof *s->polled));
        s->capacity = 2 * count;
    }
    s->polls[0] = (struct pollfd){.fd = s->wake, .events = POLLIN};
    s->polls[1] = (struct pollfd){.fd = s->full ? -1 : s->listening, .events = POLLIN};
    s->full = false;
    *n = 2;
    for (struct ax_store_conn *c = s->core.conns; c; c = c->next, ++*n) {
        const short out = c->sent < c->out.len ? POLLOUT : 0;
        s->polls[*n] = (struct pollfd){.fd = c->fd, .events = (short)(POLLIN | out)};
        s->polled[*n] = c;
    }
    return AX_OK;
}

/* A rank is connected, or one that starts late has not heard how it ends. */
static bool is_needed(const struct ax_store_server *s) {
    if (ax_store_awaits(&s->core.table))
        return true;
    for (const struct ax_store_conn *c = s->core.conns; c; c = c->next)
        if (c->member)
            return true;
    return false;
}

static enum ax_status serve(void *arg) {
    struct ax_store_server *s = arg;
    while (!atomic_load(&s->stopping) ||
           (is_needed(s) && ax_clock_now() < atomic_load(&s->linger_until))) {
        size_t n;
        AX_TRY(make_polls(s, &n));
        if (poll(s->polls, (nfds_t)n, TICK_MS) < 0 && errno != EINTR)
            return ax_error(AX_ERR_IO, "store: cannot wait for connections: %s", strerror(errno));
        if (s->polls[0].revents) {
            uint64_t ignored;
            (void)!read(s->wake, &ignored, sizeof ignored);
        }
        for (size_t i = 2; i < n; i++)
            if ((s->polls[i].revents & (POLLIN | POLLHUP | POLLERR)) && !receive(s, s->polled[i])) {
                close_conn(s, s->polled[i]);
                s->polled[i] = NULL;
            }
        if (s->polls[1].revents)
            accept_all(s);
        ax_store_core_tick(&s->core, ax_clock_now());
        for (struct ax_store_conn *c = s->core.conns, *next; c; c = next) {
            next = c->next;
            if (!send_out(c))
                close_conn(s, c);
        }
    }
    return AX_OK;
}

static void server_free(struct ax_store_server *s) {
    while (s->core.conns)
        close_conn(s, s->core.conns);
    ax_store_core_free(&s->core);
    close(s->listening);
    if (s->wake >= 0)
        close(s->wake);
    ax_free(s->polls);
    ax_free(s->polled);
    ax_free(s);
}

enum ax_status ax_store_serve(struct ax_store_server **out, int listening, int world,
                              const unsigned char key[AX_STORE_KEY_BYTES], double timeout) {
    struct ax_store_server *s;
    enum ax_status st = ax_alloc(&s, 1, sizeof *s);
    if (st != AX_OK) {
        close(listening);
        return st;
    }
    s->listening = listening;
    s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->wake < 0)
        st = ax_error(AX_ERR_IO, "store: no event descriptor: %s", strerror(errno));
    if (st == AX_OK)
        st = ax_store_core_create(&s->core, world, key, timeout);
    if (st == AX_OK)
        st = ax_worker_start(&s->worker, serve, s);
    if (st != AX_OK) {
        server_free(s);
        return st;
    }
    *out = s;
    return AX_OK;
}

void ax_store_stop(struct ax_store_server *s, double linger) {
    struct ax_error_record own;
    const uint64_t one = 1;
    if (!s)
        return;
    ax_error_save(&own, AX_OK);
    atomic_store(&s->linger_until, ax_clock_now() + linger);
    atomic_store(&s->stopping, true);
    (void)!write(s->wake, &one, sizeof one);
    (void)ax_worker_join(&s->worker);
    server_free(s);
    (void)ax_error_restore(&own);
}
