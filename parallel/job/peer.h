/* Connections between the ranks of a group, of which each side proves to the other that it knows the
 * job's key before anything else is sent. A caller that does not is refused, and one that is called
 * and does not is called again; both are named in the log, and change nothing. A port listens only
 * until its group has connected.
 *
 *     called  its nonce
 *     caller  its nonce, its number, MAC(key, "caller" ‖ both nonces ‖ both numbers ‖ group)
 *     called  MAC(key, "called" ‖ the same)
 *
 * All nonces are new, so that what was overheard is of no use. The member with the higher number is
 * the caller. Private to the fabrics of processes. */
#ifndef AX_PARALLEL_JOB_PEER_H
#define AX_PARALLEL_JOB_PEER_H

#include "parallel/job/store.h"

struct ax_peer_group {
    struct ax_store_client *store;
    const unsigned char *key; /* the key of the store */
    const char *name; /* the name of this group among those of the job; less than AX_STORE_NAME */
    const int *ranks; /* [n] ranks of the members, for messages and for the store */
    int n, rank;      /* members, and which of them this process is */
};

struct ax_peer_address {
    int port;
    char host[AX_NET_ADDRESS];
};

/* Listens for the members of a group, on the interface by which this rank reaches the store. The
 * caller closes *listening, and sends the others *address. */
enum ax_status ax_peer_listen(struct ax_store_client *store, int *listening,
                              struct ax_peer_address *address);
/* Connects to all members, which have listened before anyone calls this; addresses[n]. fds[n] are
 * connected sockets that do not block, −1 at the own place; the caller closes them. AX_ERR_PEER says
 * which member has ended or did not connect within `timeout` seconds; AX_ERR_IO: the port takes no
 * connections. */
enum ax_status ax_peer_connect(const struct ax_peer_group *g, int listening,
                               const struct ax_peer_address *addresses, double timeout, int *fds);

/* ---- private ---- */

enum {
    AX_PEER_NONCE = AX_STORE_NONCE,
    AX_PEER_HELLO = AX_PEER_NONCE + 4 + AX_MAC_BYTES, /* what a caller says */
};
/* Makes a caller's words. */
void ax_peer_say_hello(const struct ax_peer_group *g, int called,
                       const unsigned char called_nonce[AX_PEER_NONCE],
                       const unsigned char caller_nonce[AX_PEER_NONCE],
                       unsigned char hello[AX_PEER_HELLO]);
/* The number of the member that said hello, and the answer that it expects; −1: it is none, or none
 * that calls this one. */
int ax_peer_hear_hello(const struct ax_peer_group *g,
                       const unsigned char called_nonce[AX_PEER_NONCE],
                       const unsigned char hello[AX_PEER_HELLO],
                       unsigned char answer[AX_MAC_BYTES]);
/* The answer of the member that was called. */
void ax_peer_expect_answer(const struct ax_peer_group *g, int called,
                           const unsigned char called_nonce[AX_PEER_NONCE],
                           const unsigned char caller_nonce[AX_PEER_NONCE],
                           unsigned char answer[AX_MAC_BYTES]);

#endif
