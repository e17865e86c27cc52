/* Connections whose request does not become complete: a client that sends a byte now and then is never silent, and
 * would keep its connection, and a thread, for hours. */
#ifndef AX_CMD_SERVE_DEADLINE_H
#define AX_CMD_SERVE_DEADLINE_H

#include <stdbool.h>

#include "base/status.h"

struct ax_deadlines;
struct ax_deadline; /* a connection */

/* Starts the thread that looks at them: connections that have been waiting for a request for longer than `seconds`
 * are shut down. */
enum ax_status ax_deadlines_start(struct ax_deadlines **out, double seconds);
/* No connection may be left. NULL is fine. */
void ax_deadlines_stop(struct ax_deadlines *d);

/* A connection begins by waiting. NULL: out of memory, and it has no deadline. */
struct ax_deadline *ax_deadline_add(struct ax_deadlines *d, int fd);
/* A request has arrived, or has been answered. NULL is fine, here and below. */
void ax_deadline_wait(struct ax_deadline *c, bool waits);
/* Before its socket is closed. */
void ax_deadline_remove(struct ax_deadline *c);

#endif
