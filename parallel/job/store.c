/* A rank's connection to the store: one request at a time, from any thread. */
#include "parallel/job/store.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"
#include "parallel/job/token.h"

static const double CONNECT_SECONDS = 2, GREETING_SECONDS = 2;
/* Beyond what the server waits for, the network has this long; less if it may be cut, so that a lost
 * host is named soon after the timeout. */
static const double GRACE_SECONDS = 20, DOUBT_SECONDS = 0.4;

struct ax_store_client {
    int fd, rank, world;
    bool broken, left;
    int told;      /* see ax_store_told */
    bool in_doubt; /* somebody was not heard of in time: perhaps nobody can be */
    unsigned char key[AX_STORE_KEY_BYTES];
    char address[AX_NET_ADDRESS];
    struct ax_buf in;
    size_t used; /* bytes of `in` that the last frame took */
    pthread_mutex_t lock;
};

/* ---- frames ---- */

static bool send_all(struct ax_store_client *s, const char *data, size_t n, double deadline) {
    while (n > 0 && !s->broken) {
        const ssize_t sent = send(s->fd, data, n, MSG_NOSIGNAL);
        if (sent > 0) {
            data += sent;
            n -= (size_t)sent;
        } else if (errno == EAGAIN) {
            s->broken = !ax_net_ready(s->fd, true, deadline - ax_clock_now());
        } else {
            s->broken = errno != EINTR;
        }
    }
    return !s->broken;
}

/* The frame's body stays valid until the next call. */
static bool receive(struct ax_store_client *s, struct ax_store_frame *f, double deadline) {
    char chunk[4096];
    if (s->used > 0) {
        memmove(s->in.data, s->in.data + s->used, s->in.len - s->used);
        s->in.len -= s->used;
        s->used = 0;
    }
    while (!s->broken) {
        const long n = ax_store_frame_next(s->in.data, s->in.len, AX_STORE_FRAME_MAX, f);
        if (n > 0) {
            s->used = (size_t)n;
            return true;
        }
        if (n < 0 || !ax_net_ready(s->fd, false, deadline - ax_clock_now())) {
            s->broken = true;
            break;
        }
        const ssize_t got = recv(s->fd, chunk, sizeof chunk, 0);
        if (got > 0)
            s->broken = ax_buf_append(&s->in, chunk, (size_t)got) != AX_OK;
        else
            s->broken = got == 0 || (errno != EAGAIN && errno != EINTR);
    }
    return false;
}

/* ---- joining ---- */

/* False with the reason why what listens there is not this job's store. */
static bool greet(struct ax_store_client *s, const struct ax_store_options *o, const char **why) {
    const double deadline = ax_clock_now() + GREETING_SECONDS;
    struct ax_store_member me = {o->rank, o->world, o->binary, o->config, (int)getpid(), ""};
    unsigned char nonces[2 * AX_STORE_NONCE], mac[AX_MAC_BYTES];
    struct ax_buf rest = {0}, body = {0}, frame = {0};
    struct ax_store_frame f;
    *why = "what listens there is not the store of an axtrain job";
    if (!receive(s, &f, deadline) || f.type != AX_STORE_CHALLENGE || f.len != AX_STORE_NONCE)
        return false;
    memcpy(nonces, f.body, AX_STORE_NONCE);
    gethostname(me.host, sizeof me.host - 1);
    bool ok = ax_random_bytes(nonces + AX_STORE_NONCE, AX_STORE_NONCE) == AX_OK &&
              ax_buf_append(&rest, nonces + AX_STORE_NONCE, AX_STORE_NONCE) == AX_OK &&
              ax_store_put_member(&rest, &me) == AX_OK;
    ax_store_proof(o->key, "rank", nonces, rest.data, rest.len, mac);
    ok = ok && ax_buf_append(&body, mac, sizeof mac) == AX_OK &&
         ax_buf_append(&body, rest.data, rest.len) == AX_OK &&
         ax_store_put_frame(&frame, AX_STORE_JOIN, body.data, body.len) == AX_OK &&
         send_all(s, frame.data, frame.len, deadline);
    ax_buf_free(&rest);
    ax_buf_free(&body);
    ax_buf_free(&frame);
    *why = "the store there does not accept this rank's token";
    /* A slow store may have let this rank in already. If the rank gave up here, the store would find it
     * lost, and end the job. */
    if (!ok || !receive(s, &f, ax_clock_now() + GRACE_SECONDS) || f.type != AX_STORE_WELCOME ||
        f.len != sizeof mac)
        return false;
    ax_store_proof(o->key, "store", nonces, nonces + AX_STORE_NONCE, AX_STORE_NONCE, mac);
    *why = "the store there does not know this job's token";
    return ax_mac_equal(mac, f.body);
}

static bool try_port(struct ax_store_client *s, const struct ax_store_options *o, int port,
                     double deadline, const char **why) {
    const double left = deadline - ax_clock_now();
    s->fd = ax_net_connect(o->host, port, left < CONNECT_SECONDS ? left : CONNECT_SECONDS, why);
    if (s->fd < 0)
        return false;
    s->broken = false;
    s->in.len = s->used = 0;
    if (greet(s, o, why))
        return true;
    close(s->fd);
    s->fd = -1;
    return false;
}

/* Another service may listen on a port, and rank 0 may start late: tries all ports until the
 * deadline. The reason kept is that of the first port, or that of a store that is not this job's. */
static enum ax_status find_server(struct ax_store_client *s, const struct ax_store_options *o,
                                  double deadline) {
    const char *kept = "", *refused = NULL;
    char ports[48];
    struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
    for (;;) {
        for (int p = o->port; p < o->port + o->ports; p++) {
            const char *why = "";
            if (try_port(s, o, p, deadline, &why))
                return AX_OK;
            kept = p == o->port ? why : kept;
            if (strncmp(why, "the store", 9) == 0)
                refused = why;
        }
        if (ax_clock_now() >= deadline)
            break;
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < 400 * 1000 * 1000)
            pause.tv_nsec *= 2;
    }
    snprintf(ports, sizeof ports, o->ports > 1 ? "ports %d to %d" : "port %d", o->port,
             o->port + o->ports - 1);
    return ax_error(AX_ERR_PEER,
                    "rank %d found no store of its job at %s, %s, within %g s: %s. See "
                    "whether rank 0 runs there.",
                    o->rank, o->host, ports, o->timeout, refused ? refused : kept);
}

static enum ax_status gone(struct ax_store_client *s) {
    s->broken = true;
    return ax_error(AX_ERR_PEER,
                    "rank %d: the connection to the store broke: rank 0 or the "
                    "launcher, which serves it, has ended",
                    s->rank);
}

/* Waits for a reply: its status with its text, or its bytes. */
static enum ax_status take_reply(struct ax_store_client *s, double deadline, const char **data,
                                 size_t *n, int *done) {
    struct ax_store_frame f;
    if (!receive(s, &f, deadline) || f.type != AX_STORE_REPLY)
        return gone(s);
    struct ax_store_reader r = {f.body, f.body + f.len, false};
    const uint64_t st = ax_store_read_int(&r, 4);
    *data = (const char *)ax_store_read_blob(&r, n);
    *done = (int)(int32_t)ax_store_read_int(&r, 4);
    if (!ax_store_read_end(&r) || st >= AX_STATUS_COUNT)
        return gone(s);
    if (st == AX_OK)
        return AX_OK;
    return ax_error((enum ax_status)st, "%.*s", (int)*n, *data);
}

enum ax_status ax_store_open(struct ax_store_client **out, const struct ax_store_options *o) {
    const double deadline = ax_clock_now() + o->timeout;
    struct ax_store_client *s;
    enum ax_status st;
    const char *data;
    size_t n;
    int done;
    AX_TRY(ax_alloc(&s, 1, sizeof *s));
    s->fd = -1;
    s->rank = o->rank;
    s->world = o->world;
    memcpy(s->key, o->key, sizeof s->key);
    pthread_mutex_init(&s->lock, NULL);
    AX_TRY_GOTO(find_server(s, o, deadline), st, fail);
    ax_net_own_address(s->fd, s->address);
    /* the server's deadline began before this rank's, or ends while this one waits */
    st = take_reply(s, deadline + o->timeout, &data, &n, &done);
    if (o->untold)
        *o->untold = st == AX_ERR_CONFIG && done == o->rank;
    AX_TRY_GOTO(st, st, fail);
    *out = s;
    return AX_OK;
fail:
    ax_store_close(s);
    return st;
}

void ax_store_close(struct ax_store_client *s) {
    if (!s)
        return;
    if (s->fd >= 0)
        close(s->fd);
    ax_buf_free(&s->in);
    pthread_mutex_destroy(&s->lock);
    ax_free(s);
}

int ax_store_rank(const struct ax_store_client *s) {
    return s->rank;
}

int ax_store_world(const struct ax_store_client *s) {
    return s->world;
}

const char *ax_store_address(const struct ax_store_client *s) {
    return s->address;
}

const unsigned char *ax_store_key(const struct ax_store_client *s) {
    return s->key;
}

/* ---- requests ---- */

/* Appends what all requests end with: how long the server may wait. */
static enum ax_status ask(struct ax_store_client *s, enum ax_store_type type, struct ax_buf *body,
                          double wait, const char **data, size_t *n, int *done) {
    struct ax_buf frame = {0};
    const double deadline = ax_clock_now() + wait + (s->in_doubt ? DOUBT_SECONDS : GRACE_SECONDS);
    enum ax_status st;
    AX_TRY_GOTO(ax_store_put_int(body, wait > 1e6 ? 1000000000 : (uint64_t)(wait * 1000), 4), st,
                done_with_frame);
    AX_TRY_GOTO(ax_store_put_frame(&frame, type, body->data, body->len), st, done_with_frame);
    if (!send_all(s, frame.data, frame.len, deadline))
        st = gone(s);
    else
        st = take_reply(s, deadline, data, n, done);
done_with_frame:
    ax_buf_free(&frame);
    return st;
}

enum ax_status ax_store_set(struct ax_store_client *s, const char *key, const void *data,
                            size_t n) {
    struct ax_buf body = {0};
    const char *text;
    size_t len;
    int done;
    AX_ASSERT(strlen(key) < AX_STORE_NAME && n < AX_STORE_FRAME_MAX - 1024);
    enum ax_status st = ax_store_put_blob(&body, key, strlen(key));
    if (st == AX_OK)
        st = ax_store_put_blob(&body, data, n);
    pthread_mutex_lock(&s->lock);
    if (st == AX_OK)
        st = ask(s, AX_STORE_SET, &body, 0, &text, &len, &done);
    pthread_mutex_unlock(&s->lock);
    ax_buf_free(&body);
    return st;
}

enum ax_status ax_store_get(struct ax_store_client *s, const char *key, int owner, double timeout,
                            char **data, size_t *n) {
    struct ax_buf body = {0};
    const char *found;
    size_t len;
    int done;
    AX_ASSERT(strlen(key) < AX_STORE_NAME);
    enum ax_status st = ax_store_put_blob(&body, key, strlen(key));
    if (st == AX_OK)
        st = ax_store_put_int(&body, (uint32_t)owner, 4);
    pthread_mutex_lock(&s->lock);
    if (st == AX_OK)
        st = ask(s, AX_STORE_GET, &body, timeout, &found, &len, &done);
    if (st == AX_OK)
        st = ax_alloc(data, len + 1, 1);
    if (st == AX_OK) {
        memcpy(*data, found, len);
        *n = len;
    }
    pthread_mutex_unlock(&s->lock);
    ax_buf_free(&body);
    return st;
}

enum ax_status ax_store_ask_cause(struct ax_store_client *s, int first, int end, double timeout,
                                  char *words, size_t size, int *done) {
    struct ax_buf body = {0};
    struct ax_error_record own;
    const char *text = NULL;
    size_t n = 0;
    ax_error_save(&own, AX_OK);
    *done = -1;
    *words = '\0';
    enum ax_status st = ax_store_put_int(&body, (uint32_t)first, 4);
    if (st == AX_OK)
        st = ax_store_put_int(&body, (uint32_t)end, 4);
    pthread_mutex_lock(&s->lock);
    s->in_doubt |= timeout == 0;
    if (st == AX_OK)
        st = s->broken ? AX_ERR_PEER : ask(s, AX_STORE_CAUSE, &body, timeout, &text, &n, done);
    if (s->broken || !text) /* nobody can say */
        st = AX_OK;
    else
        snprintf(words, size, "%.*s", (int)n, text);
    pthread_mutex_unlock(&s->lock);
    ax_buf_free(&body);
    (void)ax_error_restore(&own);
    return st;
}

void ax_store_leave(struct ax_store_client *s, enum ax_status st) {
    struct ax_error_record own;
    struct ax_buf body = {0};
    const char *text;
    size_t n;
    int done = 0;
    ax_error_save(&own, st);
    pthread_mutex_lock(&s->lock);
    const char *words = st == AX_OK ? "" : own.text;
    if (!s->left && !s->broken && ax_store_put_blob(&body, words, strlen(words)) == AX_OK &&
        ax_store_put_int(&body, (uint64_t)st, 4) == AX_OK && ax_store_put_int(&body, 0, 4) == AX_OK)
        (void)ask(s, AX_STORE_LEAVE, &body, 0, &text, &n, &done); /* it only makes others' errors
                                                                     clearer */
    if (!s->left)
        s->told = st != AX_SAVED_REQUEUE && st != AX_INTERRUPTED ? done : s->rank > 0 ? 2 : 0;
    s->left = true;
    pthread_mutex_unlock(&s->lock);
    ax_buf_free(&body);
    (void)ax_error_restore(&own);
}

int ax_store_told(const struct ax_store_client *s) {
    return s->told;
}
