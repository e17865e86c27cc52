/* One thread, one poll: the port, calls in both directions, and members that have connected. Read
 * ax_peer_connect first. */
#include "parallel/job/peer.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "parallel/job/token.h"

/* ---- what both sides say ---- */

static void prove(const struct ax_peer_group *g, const char *who, int caller, int called,
                  const unsigned char called_nonce[AX_PEER_NONCE],
                  const unsigned char caller_nonce[AX_PEER_NONCE],
                  unsigned char mac[AX_MAC_BYTES]) {
    unsigned char rest[AX_PEER_NONCE + 8 + AX_STORE_NAME];
    const size_t name = strlen(g->name);
    const int numbers[] = {caller, called};
    AX_ASSERT(name < AX_STORE_NAME);
    memcpy(rest, caller_nonce, AX_PEER_NONCE);
    for (int i = 0; i < 8; i++)
        rest[AX_PEER_NONCE + i] = (unsigned char)((unsigned)numbers[i / 4] >> (8 * (i % 4)));
    memcpy(rest + AX_PEER_NONCE + 8, g->name, name);
    ax_store_proof(g->key, who, called_nonce, rest, AX_PEER_NONCE + 8 + name, mac);
}

void ax_peer_say_hello(const struct ax_peer_group *g, int called,
                       const unsigned char called_nonce[AX_PEER_NONCE],
                       const unsigned char caller_nonce[AX_PEER_NONCE],
                       unsigned char hello[AX_PEER_HELLO]) {
    memcpy(hello, caller_nonce, AX_PEER_NONCE);
    for (int i = 0; i < 4; i++)
        hello[AX_PEER_NONCE + i] = (unsigned char)((unsigned)g->rank >> (8 * i));
    prove(g, "caller", g->rank, called, called_nonce, caller_nonce, hello + AX_PEER_NONCE + 4);
}

int ax_peer_hear_hello(const struct ax_peer_group *g,
                       const unsigned char called_nonce[AX_PEER_NONCE],
                       const unsigned char hello[AX_PEER_HELLO],
                       unsigned char answer[AX_MAC_BYTES]) {
    struct ax_store_reader r = {hello, hello + AX_PEER_HELLO, false};
    unsigned char expected[AX_MAC_BYTES];
    const unsigned char *caller_nonce = ax_store_read_bytes(&r, AX_PEER_NONCE);
    const uint64_t caller = ax_store_read_int(&r, 4);
    if (caller <= (uint64_t)g->rank || caller >= (uint64_t)g->n)
        return -1;
    prove(g, "caller", (int)caller, g->rank, called_nonce, caller_nonce, expected);
    if (!ax_mac_equal(expected, ax_store_read_bytes(&r, AX_MAC_BYTES)))
        return -1;
    prove(g, "called", (int)caller, g->rank, called_nonce, caller_nonce, answer);
    return (int)caller;
}

void ax_peer_expect_answer(const struct ax_peer_group *g, int called,
                           const unsigned char called_nonce[AX_PEER_NONCE],
                           const unsigned char caller_nonce[AX_PEER_NONCE],
                           unsigned char answer[AX_MAC_BYTES]) {
    prove(g, "called", g->rank, called, called_nonce, caller_nonce, answer);
}

/* ---- calls ---- */

enum { TICK_MS = 50, LOOK_MS = 250, RETRY_MS = 20, ACCEPTS = 32 };

/* A connection that is not proved yet. */
struct call {
    int fd;       /* −1: none */
    int member;   /* whom we called; −1: who calls us is unknown */
    bool said;    /* we have said hello, and expect the answer */
    bool doubted; /* a wrong answer of the member is in the log */
    /* when a caller was accepted; when a call of ours that has no socket is made again */
    double since;
    size_t got;
    unsigned char in[AX_PEER_HELLO]; /* what the other side has said of what is expected */
    unsigned char nonce[AX_PEER_NONCE], theirs[AX_PEER_NONCE];
    char from[AX_NET_ADDRESS];
};

struct peers {
    const struct ax_peer_group *g;
    const struct ax_peer_address *addresses;
    int listening, *fds;
    struct call *calls; /* [rank + incoming]: ours to member i, then those of others */
    int n_calls, connected, refused;
    /* [1 + n_calls + n]: what has come at the port, from calls and from members; and of those with a connection, which
     * poll waits for, the index in `events`. poll takes no more entries than the limit of open files. */
    short *events;
    struct pollfd *polls;
    int *polled;
    double looked_at;
    int looked_for; /* member */
    char where[64];
};

static void close_fd(int *fd) {
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* Closes a caller's connection with a warning here. The caller is told nothing: a rank is named by
 * the store if it ends, and a stranger has no use for the reason. */
static void refuse(struct peers *p, struct call *c, const char *why) {
    ax_net_log_refused(&p->refused, c->from, p->where, why);
    close_fd(&c->fd);
}

/* False: the connection has ended. What is said fits in an empty socket, so it is sent whole. */
static bool say(const struct call *c, const void *data, size_t n) {
    return send(c->fd, data, n, MSG_NOSIGNAL) == (ssize_t)n;
}

static enum ax_status place_call(struct peers *p, struct call *c) {
    const struct ax_peer_address *to = &p->addresses[c->member];
    c->got = 0;
    c->said = false;
    c->fd = ax_net_dial(to->host, to->port);
    if (c->fd < 0 && (errno == EMFILE || errno == ENFILE))
        return ax_error(AX_ERR_IO,
                        "no socket to call rank %d with: %s. Raise the limit of open files "
                        "(ulimit -n).",
                        p->g->ranks[c->member], strerrordesc_np(errno));
    if (c->fd < 0)
        return ax_error(AX_ERR_PEER, "rank %d, at %s: %s", p->g->ranks[c->member], to->host,
                        strerrordesc_np(errno));
    return ax_random_bytes(c->nonce, sizeof c->nonce);
}

/* Makes a call of ours again after a moment: a member whose port is full of strangers closes calls
 * that are not proved. */
static void call_again(struct call *c, double now) {
    close_fd(&c->fd);
    c->since = now + 1e-3 * RETRY_MS;
}

static void connect_member(struct peers *p, int member, struct call *c) {
    p->connected++;
    p->fds[member] = c->fd;
    c->fd = -1;
}

static void hear_caller(struct peers *p, struct call *c) {
    unsigned char answer[AX_MAC_BYTES];
    const int member = ax_peer_hear_hello(p->g, c->nonce, c->in, answer);
    if (member < 0)
        refuse(p, c, "it is no rank of this job");
    else if (p->fds[member] >= 0)
        refuse(p, c, "this rank is connected already");
    else if (!say(c, answer, sizeof answer))
        close_fd(&c->fd); /* it calls again */
    else
        connect_member(p, member, c);
}

static void hear_called(struct peers *p, struct call *c, double now) {
    unsigned char hello[AX_PEER_HELLO], answer[AX_MAC_BYTES];
    if (!c->said) {
        memcpy(c->theirs, c->in, sizeof c->theirs);
        ax_peer_say_hello(p->g, c->member, c->theirs, c->nonce, hello);
        c->said = true;
        c->got = 0;
        if (!say(c, hello, sizeof hello))
            call_again(c, now);
        return;
    }
    ax_peer_expect_answer(p->g, c->member, c->theirs, c->nonce, answer);
    if (ax_mac_equal(answer, c->in)) {
        connect_member(p, c->member, c);
        return;
    }
    if (!c->doubted)
        ax_log_warn(
            "rank %d, at %s, port %d: the answer is not that of a rank of this job; calling "
            "again",
            p->g->ranks[c->member], p->addresses[c->member].host, p->addresses[c->member].port);
    c->doubted = true;
    call_again(c, now);
}

/* Reads no byte more than is expected: what follows is for who uses the connection. */
static enum ax_status hear(struct peers *p, struct call *c, double now) {
    const size_t whole = c->member < 0 ? AX_PEER_HELLO : c->said ? AX_MAC_BYTES : AX_PEER_NONCE;
    const ssize_t n = recv(c->fd, c->in + c->got, whole - c->got, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return AX_OK;
    c->got += n > 0 ? (size_t)n : 0;
    if (n <= 0 && c->member < 0) {
        refuse(p, c, "it closed the connection without saying who it is");
    } else if (n < 0 && errno != ECONNRESET) {
        return ax_error(AX_ERR_PEER, "rank %d, at %s: %s", p->g->ranks[c->member],
                        p->addresses[c->member].host, strerrordesc_np(errno));
    } else if (n <= 0) {
        call_again(c, now);
    } else if (c->got == whole) {
        if (c->member < 0)
            hear_caller(p, c);
        else
            hear_called(p, c, now);
    }
    return AX_OK;
}

/* A place for one more caller: the one that has said nothing for longest gives up its own. */
static struct call *find_place(struct peers *p) {
    struct call *oldest = &p->calls[p->g->rank];
    for (int i = p->g->rank; i < p->n_calls; i++) {
        struct call *c = &p->calls[i];
        if (c->fd < 0)
            return c;
        oldest = c->since < oldest->since ? c : oldest;
    }
    refuse(p, oldest, "it said nothing, and others are waiting");
    return oldest;
}

static enum ax_status take_callers(struct peers *p, double now) {
    char from[AX_NET_ADDRESS];
    for (int i = 0; i < ACCEPTS; i++) {
        const int fd = ax_net_accept(p->listening, from);
        if (fd < 0 && errno == EAGAIN)
            return AX_OK;
        if (fd < 0)
            return ax_error(AX_ERR_IO, "cannot take a connection%s: %s%s", p->where,
                            strerrordesc_np(errno),
                            errno == EMFILE ? ". Raise the limit of open files (ulimit -n)." : "");
        struct call *c = find_place(p);
        *c = (struct call){.fd = fd, .member = -1, .since = now};
        memcpy(c->from, from, sizeof from);
        AX_TRY(ax_random_bytes(c->nonce, sizeof c->nonce));
        if (!say(c, c->nonce, sizeof c->nonce))
            refuse(p, c, "it closed the connection without saying who it is");
    }
    return AX_OK;
}

/* Asks the store whether a member that is missing has ended; one after the other. */
static enum ax_status look_for_missing(struct peers *p, double now) {
    char words[AX_ERROR_TEXT];
    int done;
    if (now - p->looked_at < 1e-3 * LOOK_MS)
        return AX_OK;
    p->looked_at = now;
    do
        p->looked_for = (p->looked_for + 1) % p->g->n;
    while (p->looked_for == p->g->rank || p->fds[p->looked_for] >= 0);
    const int rank = p->g->ranks[p->looked_for];
    if (ax_store_ask_cause(p->g->store, rank, rank + 1, 1e-3, words, sizeof words, &done) !=
            AX_OK ||
        (done >= 0 && *words))
        return ax_error(AX_ERR_PEER, "%s", words);
    return done < 0 ? AX_OK : ax_error(AX_ERR_PEER, "rank %d has ended", rank);
}

static enum ax_status is_late(const struct peers *p, double timeout) {
    int first = 0;
    while (first == p->g->rank || p->fds[first] >= 0)
        first++;
    return ax_error(AX_ERR_PEER, "rank %d did not connect within %g s", p->g->ranks[first],
                    timeout);
}

static void await(struct peers *p, int *n, int index, int fd, short events) {
    p->events[index] = 0;
    if (fd < 0)
        return;
    p->polled[*n] = index;
    p->polls[(*n)++] = (struct pollfd){.fd = fd, .events = events};
}

/* Waits until something comes, or for a moment. */
static enum ax_status wait_for_any(struct peers *p) {
    int n = 0;
    await(p, &n, 0, p->listening, POLLIN);
    for (int i = 0; i < p->n_calls; i++)
        await(p, &n, 1 + i, p->calls[i].fd, POLLIN);
    for (int i = 0; i < p->g->n; i++)
        await(p, &n, 1 + p->n_calls + i, p->fds[i], POLLRDHUP);
    const int ready = poll(p->polls, (nfds_t)n, TICK_MS);
    if (ready < 0 && errno != EINTR)
        return ax_error(AX_ERR_IO, "cannot wait for connections%s: %s", p->where,
                        strerrordesc_np(errno));
    for (int i = 0; i < n && ready > 0; i++)
        p->events[p->polled[i]] = p->polls[i].revents;
    return AX_OK;
}

static enum ax_status take_events(struct peers *p, double now) {
    for (int i = 0; i < p->n_calls; i++) {
        struct call *c = &p->calls[i];
        if (p->events[1 + i] != 0)
            AX_TRY(hear(p, c, now));
        else if (c->member < 0 && c->fd >= 0 && now - c->since > AX_STORE_STRANGER_SECONDS)
            refuse(p, c, "it did not say in time who it is");
        else if (c->member >= 0 && c->fd < 0 && p->fds[c->member] < 0 && now >= c->since)
            AX_TRY(place_call(p, c));
    }
    for (int i = 0; i < p->g->n; i++)
        if (p->events[1 + p->n_calls + i] != 0)
            return ax_error(AX_ERR_PEER, "rank %d closed its connection", p->g->ranks[i]);
    return p->events[0] != 0 ? take_callers(p, now) : AX_OK;
}

static enum ax_status connect_all(struct peers *p, double timeout) {
    const double until = ax_clock_now() + timeout;
    p->looked_at = until - timeout;
    for (int i = 0; i < p->g->rank; i++)
        AX_TRY(place_call(p, &p->calls[i]));
    while (p->connected < p->g->n - 1) {
        AX_TRY(wait_for_any(p));
        const double now = ax_clock_now();
        AX_TRY(take_events(p, now));
        if (p->connected == p->g->n - 1)
            break;
        if (now >= until)
            return is_late(p, timeout);
        AX_TRY(look_for_missing(p, now));
    }
    return AX_OK;
}

enum ax_status ax_peer_listen(struct ax_store_client *store, int *listening,
                              struct ax_peer_address *address) {
    *address = (struct ax_peer_address){.port = 0};
    snprintf(address->host, sizeof address->host, "%s", ax_store_address(store));
    return ax_net_listen(address->host, 0, 1, listening, &address->port);
}

enum ax_status ax_peer_connect(const struct ax_peer_group *g, int listening,
                               const struct ax_peer_address *addresses, double timeout, int *fds) {
    struct peers p = {.g = g, .addresses = addresses, .listening = listening, .fds = fds};
    enum ax_status st;
    p.n_calls = g->n + AX_STORE_STRANGERS;
    snprintf(p.where, sizeof p.where, " at the port of rank %d", g->ranks[g->rank]);
    for (int i = 0; i < g->n; i++)
        fds[i] = -1;
    AX_TRY_GOTO(ax_alloc(&p.calls, (size_t)p.n_calls, sizeof *p.calls), st, done);
    for (int i = 0; i < p.n_calls; i++)
        p.calls[i] = (struct call){.fd = -1, .member = i < g->rank ? i : -1};
    const size_t slots = 1 + (size_t)p.n_calls + (size_t)g->n;
    AX_TRY_GOTO(ax_alloc(&p.events, slots, sizeof *p.events), st, done);
    AX_TRY_GOTO(ax_alloc(&p.polls, slots, sizeof *p.polls), st, done);
    AX_TRY_GOTO(ax_alloc(&p.polled, slots, sizeof *p.polled), st, done);
    st = connect_all(&p, timeout);
    for (int i = 0; i < p.n_calls; i++)
        if (p.calls[i].member < 0 && p.calls[i].fd >= 0)
            refuse(&p, &p.calls[i],
                   st == AX_OK ? "it did not say who it is before all ranks had connected"
                               : "it did not say who it is before this rank gave up");
        else
            close_fd(&p.calls[i].fd);
done:
    for (int i = 0; i < g->n && st != AX_OK; i++)
        close_fd(&fds[i]);
    ax_free(p.calls);
    ax_free(p.events);
    ax_free(p.polls);
    ax_free(p.polled);
    return st;
}
