#include "parallel/job/store_core.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "parallel/job/token.h"

enum { MAX_STRANGERS = 256, MAX_LINES = 10 };
static const double STRANGER_SECONDS = 5;

enum ax_status ax_store_core_create(struct ax_store_core *c, int world,
                                    const unsigned char key[AX_STORE_KEY_BYTES], double timeout) {
    memset(c, 0, sizeof *c);
    memcpy(c->key, key, sizeof c->key);
    c->timeout = timeout;
    c->deadline = ax_clock_now() + timeout;
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
    if (++c->refused <= MAX_LINES)
        ax_log_warn("refused a connection from %s: %s", conn->address, why);
    if (c->refused == MAX_LINES)
        ax_log_warn("refused %d connections; more are not logged", MAX_LINES);
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
    if (c->strangers >= MAX_STRANGERS && oldest)
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
    reply_text(conn, st, ax_error_text());
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
    char text[1900], others[2048];
    const int st = conn->wait.first;
    const enum ax_status why = ax_store_cause(&c->table, conn->rank, others, sizeof others);
    snprintf(text, sizeof text, "%.*s", (int)n, words ? words : "");
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
        leave(c, conn, (const char *)data, n < 1800 ? n : 1800);
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
    char words[2048] = "";
    if (w->type == AX_STORE_JOIN && t->failed != AX_OK) {
        reply_text(conn, t->failed, t->failure);
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
        const int done = ax_store_done(t, conn->rank, w->first, w->end);
        if (st != AX_OK || done >= 0 || now >= w->until)
            reply(conn, st, words, strlen(words), done);
    }
}

void ax_store_core_tick(struct ax_store_core *c, double now) {
    if (now >= c->deadline && !ax_store_complete(&c->table) && c->table.failed == AX_OK)
        ax_store_seats_expire(&c->table, c->timeout);
    for (struct ax_store_conn *conn = c->conns; conn; conn = conn->next) {
        if (!conn->member && now - conn->since > STRANGER_SECONDS)
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
