/* The store's server without its sockets: ranks and keys, and the effect of each connection's bytes.
 * Private to store_table.c, store_server.c and their tests. */
#ifndef AX_PARALLEL_JOB_STORE_SERVER_H
#define AX_PARALLEL_JOB_STORE_SERVER_H

#include "parallel/job/store_wire.h"

/* ---- ranks and keys: store_table.c ---- */

enum ax_store_state { AX_STORE_AWAITED, AX_STORE_JOINED, AX_STORE_LEFT, AX_STORE_GONE };

struct ax_store_seat {
    enum ax_store_state state;
    struct ax_store_member who;
    enum ax_status left_with; /* AX_STORE_LEFT */
    char *words;              /* why it failed */
};

struct ax_store_entry {
    struct ax_store_entry *next;
    char *key, *data;
    size_t n;
};

enum { AX_STORE_BUCKETS = 1024 };

struct ax_store_table {
    int world, joined, turned_away;
    int twice;                   /* the last rank that a second process wanted to be; −1: none */
    struct ax_store_seat *seats; /* [world] */
    struct ax_store_entry *buckets[AX_STORE_BUCKETS];
    size_t entries, bytes;
    enum ax_status failed; /* the ranks cannot all join any more */
    char failure[AX_ERROR_TEXT];
};

enum ax_status ax_store_table_create(struct ax_store_table *t, int world);
void ax_store_table_free(struct ax_store_table *t);
bool ax_store_complete(const struct ax_store_table *t);
/* True if ranks are still to join, even if only to learn that the others have failed. */
bool ax_store_awaits(const struct ax_store_table *t);
/* Takes the member's seat. AX_ERR_CONFIG names what contradicts another rank; as long as not all
 * have joined, none of them can then. */
enum ax_status ax_store_seat_take(struct ax_store_table *t, const struct ax_store_member *m);
void ax_store_seat_leave(struct ax_store_table *t, int rank, enum ax_status st, const char *words);
void ax_store_seat_lose(struct ax_store_table *t, int rank); /* its connection has closed */
/* Unless all ranks have joined: none of them can, and is told why. Only the first cause counts. */
void ax_store_fail_all(struct ax_store_table *t, enum ax_status st, const char *text);
/* Call after `timeout` seconds: if not all ranks have joined, sets the failure to who is missing
 * and who is there. */
void ax_store_seats_expire(struct ax_store_table *t, double timeout);
/* Logs who is missing, before all have joined. */
void ax_store_seats_tell(const struct ax_store_table *t, double timeout);
/* Why a rank other than `own` failed, worded for others; the message of a rank that failed takes
 * precedence over those of ranks that only noticed. AX_OK: none has. */
enum ax_status ax_store_cause(const struct ax_store_table *t, int own, char *words, size_t size);
/* The first rank of [first, end), other than `own`, that has ended well, or is gone, which `words`
 * then says; −1 if none has. */
int ax_store_done(const struct ax_store_table *t, int own, int first, int end, char *words,
                  size_t size);
/* True if `owner` will set no more keys, because it has ended or any rank has failed; `words` says
 * why. */
bool ax_store_hopeless(const struct ax_store_table *t, int own, int owner, char *words,
                       size_t size);

/* AX_ERR_CONFIG beyond the limits of keys and bytes. */
enum ax_status ax_store_put(struct ax_store_table *t, const char *key, const void *data, size_t n);
const struct ax_store_entry *ax_store_find(const struct ax_store_table *t, const char *key);

/* ---- connections: store_server.c ---- */

struct ax_store_wait {
    enum ax_store_type type; /* JOIN, GET or CAUSE; 0: nothing is pending */
    char key[AX_STORE_NAME];
    int owner, first, end;
    double until;
};

struct ax_store_conn {
    struct ax_store_conn *next;
    int fd; /* the server's; −1: none */
    int rank;
    double since;
    char address[64];
    unsigned char nonce[AX_STORE_NONCE];
    bool member;  /* has proved that it knows the key */
    bool closing; /* to be closed when `out` has been sent */
    struct ax_buf in, out;
    size_t sent; /* bytes of `out` that have been sent */
    struct ax_store_wait wait;
};

struct ax_store_core {
    struct ax_store_table table;
    unsigned char key[AX_STORE_KEY_BYTES];
    double timeout, deadline; /* seconds; when they are over */
    double told_at;           /* when who is missing is told */
    struct ax_store_conn *conns;
    int strangers, refused;
};

enum ax_status ax_store_core_create(struct ax_store_core *c, int world,
                                    const unsigned char key[AX_STORE_KEY_BYTES], double timeout);
void ax_store_core_free(struct ax_store_core *c);
/* Adds a connection and queues the challenge to it. If there are too many strangers, the oldest is
 * closed. */
enum ax_status ax_store_core_accept(struct ax_store_core *c, const char *address,
                                    struct ax_store_conn **conn);
/* Takes bytes that have arrived. Requests are answered in conn->out, now or by a later tick. */
void ax_store_core_feed(struct ax_store_core *c, struct ax_store_conn *conn, const void *data,
                        size_t n);
/* Answers requests that can be answered, and ends those that have waited too long. */
void ax_store_core_tick(struct ax_store_core *c, double now);
/* Removes a connection that has closed. */
void ax_store_core_close(struct ax_store_core *c, struct ax_store_conn *conn);

#endif
