/* The store's sockets: one thread, one poll. */
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/threads.h"
#include "parallel/job/store.h"
#include "parallel/job/store_core.h"

enum { READ_BYTES = 1 << 16, TICK_MS = 50 };

struct ax_store_server {
    struct ax_store_core core;
    int listening, wake;
    struct ax_worker worker;
    struct pollfd *polls;
    struct ax_store_conn **polled;
    size_t capacity;
    _Atomic bool stopping;
    _Atomic double linger_until;
    char buffer[READ_BYTES];
};

static void accept_all(struct ax_store_server *s) {
    for (int i = 0; i < 64; i++) {
        struct sockaddr_storage from;
        socklen_t n = sizeof from;
        char address[AX_NET_ADDRESS];
        struct ax_store_conn *conn;
        const int fd =
            accept4(s->listening, (struct sockaddr *)&from, &n, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0)
            return;
        ax_net_address_text(&from, address);
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
    s->polls[1] = (struct pollfd){.fd = s->listening, .events = POLLIN};
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
