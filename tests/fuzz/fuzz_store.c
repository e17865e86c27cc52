/* The rendezvous store: any bytes on any connections, of strangers and of ranks, leave the table
 * consistent, keep memory within its bounds, and are answered with frames that parse. */
#include <stdint.h>
#include <string.h>

#include "base/log.h"
#include "parallel/job/store_server.h"

enum { WORLD = 3, CONNS = 4 };

static const unsigned char job_key[AX_STORE_KEY_BYTES] = "of this job";

/* What was sent is whole frames; takes them as a socket would. */
static void check_out(struct ax_store_conn *conn) {
    size_t at = 0;
    while (at < conn->out.len) {
        struct ax_store_frame f;
        const long n =
            ax_store_frame_next(conn->out.data + at, conn->out.len - at, AX_STORE_FRAME_MAX, &f);
        AX_ASSERT(n > 0);
        AX_ASSERT(f.type == AX_STORE_CHALLENGE || f.type == AX_STORE_WELCOME ||
                  f.type == AX_STORE_REPLY);
        at += (size_t)n;
    }
    conn->out.len = 0;
}

static void check(const struct ax_store_core *c) {
    int joined = 0, strangers = 0;
    for (int r = 0; r < WORLD; r++)
        joined += c->table.seats[r].state != AX_STORE_AWAITED;
    AX_ASSERT(joined == c->table.joined);
    for (struct ax_store_conn *conn = c->conns; conn; conn = conn->next) {
        strangers += !conn->member;
        AX_ASSERT(conn->rank < WORLD && (conn->rank < 0 || conn->member));
        AX_ASSERT(conn->member || conn->closing ||
                  conn->in.len < AX_STORE_STRANGER_MAX + AX_STORE_HEADER);
        check_out(conn);
    }
    AX_ASSERT(strangers == c->strangers);
}

/* Joins as a rank whose description is the input's, mutated or not. */
static void join(struct ax_store_core *c, struct ax_store_conn *conn, const uint8_t *data,
                 size_t n) {
    struct ax_buf rest = {0}, body = {0}, frame = {0};
    unsigned char mac[AX_MAC_BYTES];
    const struct ax_store_member me = {.rank = data[0] % 4, .world = WORLD, .host = "here"};
    AX_ASSERT(ax_buf_append(&rest, conn->nonce, AX_STORE_NONCE) == AX_OK);
    AX_ASSERT(ax_store_put_member(&rest, &me) == AX_OK);
    for (size_t i = 1; i + 1 < n && i < 5; i += 2) /* damage, within what the MAC covers */
        rest.data[AX_STORE_NONCE + data[i] % (rest.len - AX_STORE_NONCE)] ^= (char)data[i + 1];
    ax_store_proof(job_key, "rank", conn->nonce, rest.data, rest.len, mac);
    AX_ASSERT(ax_buf_append(&body, mac, sizeof mac) == AX_OK);
    AX_ASSERT(ax_buf_append(&body, rest.data, rest.len) == AX_OK);
    AX_ASSERT(ax_store_put_frame(&frame, AX_STORE_JOIN, body.data, body.len) == AX_OK);
    if (!conn->closing && !conn->member && conn->in.len == 0) {
        ax_store_core_feed(c, conn, frame.data, frame.len);
        AX_ASSERT(conn->member);
    }
    ax_buf_free(&rest);
    ax_buf_free(&body);
    ax_buf_free(&frame);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The input is commands: a byte that chooses connection and deed, a length, and that many bytes. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint64_t live = ax_mem_live_blocks();
    struct ax_store_core core;
    struct ax_store_conn *conns[CONNS] = {0};
    double now = 0;
    ax_log_set_level(AX_LOG_ERROR);
    AX_ASSERT(ax_store_core_create(&core, WORLD, job_key, 10) == AX_OK);
    now = core.deadline - 10;
    for (size_t at = 0; at + 2 <= size;) {
        struct ax_store_conn **conn = &conns[data[at] % CONNS];
        const int deed = data[at] / CONNS % 8;
        const size_t want = data[at + 1], left = size - at - 2, n = want < left ? want : left;
        const uint8_t *bytes = data + at + 2;
        if (!*conn)
            AX_ASSERT(ax_store_core_accept(&core, "here", conn) == AX_OK);
        if (deed == 0) {
            ax_store_core_close(&core, *conn);
            *conn = NULL;
        } else if (deed == 1 && n > 0) {
            join(&core, *conn, bytes, n);
        } else if (n > 0) {
            ax_store_core_feed(&core, *conn, bytes, n);
        }
        now += deed == 2 ? 1 : 0;
        ax_store_core_tick(&core, now);
        check(&core);
        at += 2 + n;
    }
    ax_store_core_free(&core);
    AX_ASSERT(ax_mem_live_blocks() == live);
    return 0;
}
