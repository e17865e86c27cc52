/* TCP sockets with deadlines. Names resolve to the first address that works; every socket is closed
 * on exec. Private to the store and the connections between ranks. */
#ifndef AX_PARALLEL_JOB_NET_H
#define AX_PARALLEL_JOB_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include "base/status.h"

enum { AX_NET_ADDRESS = 64 }; /* "fe80::1" as text, also with a port */

/* True for the addresses that stand for all interfaces of a host (0.0.0.0, ::). */
bool ax_net_is_any(const char *address);
/* Listens on `host` at the first free of `ports` ports from `port` on; 0: any port. AX_ERR_CONFIG if
 * the host is unknown, none of this machine's, or all interfaces, or if it can listen on none of
 * the ports. */
enum ax_status ax_net_listen(const char *host, int port, int ports, int *fd, int *bound);
/* Returns a connected socket that does not block, or −1 with a static text in *why if it cannot
 * connect within `seconds`. */
int ax_net_connect(const char *host, int port, double seconds, const char **why);
/* Begins to connect to a numeric address: a socket that can be read or written once it is connected, or
 * has failed (then recv says why). −1 with errno. */
int ax_net_dial(const char *address, int port);
/* The next connection that waits at a listening socket, and who it is from, with the port; −1 with
 * errno EAGAIN: none; −1 with another errno: the process or the system has no room for one. It does
 * not block. */
int ax_net_accept(int listening, char from[AX_NET_ADDRESS]);
/* Warns of a refused connection, the `*refused`th, if it is one of the first. `where` is who
 * listens, "" or " at …". */
void ax_net_log_refused(int *refused, const char *from, const char *where, const char *why);
/* True if a name or address belongs to this machine's loopback interface. *known: whether the name
 * resolves. */
bool ax_net_is_loopback(const char *host, bool *known);
/* True for a text that says so itself: localhost, 127.0.0.1, ::1. */
bool ax_net_says_loopback(const char *host);
/* Warns if rank 0's host, this one, has another name for its loopback interface, as /etc/hosts may say
 * of the host's own name: ranks of other hosts cannot reach it there. */
void ax_net_warn_loopback(const char *host);
/* The socket's own address as text, without its port. */
void ax_net_own_address(int fd, char out[AX_NET_ADDRESS]);
/* Waits until the socket can be read (or written); false when the time is over. */
bool ax_net_ready(int fd, bool write, double seconds);

#endif
