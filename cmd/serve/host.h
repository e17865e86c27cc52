/* Which Host a request may name where only this machine is served: a page of some other site, whose name
 * has been made to resolve to this machine (DNS rebinding), names its own. */
#ifndef AX_CMD_SERVE_HOST_H
#define AX_CMD_SERVE_HOST_H

#include <stdbool.h>

/* True for localhost, 127.0.0.1, [::1] and `own`, the --host, each with or without a port. */
bool ax_serve_host_is_local(const char *given, const char *own);

#endif
