/* A child process that receives lines and sends lines, but may die, hang or be slow: no function
 * here waits for it longer than the given time.
 *
 * Lines are exchanged through a socket (its descriptor 3). Data that it does not read yet is kept,
 * up to a limit. It has its own process group, and blocks SIGINT, SIGTERM and SIGUSR1: these are
 * meant for the run, which tells it when to end. */
#ifndef AX_CMD_TRACKER_TRACKER_PROCESS_H
#define AX_CMD_TRACKER_TRACKER_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/mem.h"

#define AX_TRACKER_PENDING ((size_t)1 << 20) /* most bytes waiting to be sent */
#define AX_TRACKER_LINE    8192              /* longest line received */

struct ax_tracker_process {
    pid_t pid; /* 0 = none */
    int socket;
    struct ax_buf pending;
    char said[AX_TRACKER_LINE];
    size_t n_said, taken; /* bytes in `said`; of these, bytes of lines already returned */
};

/* argv[0] is looked up in PATH. AX_ERR_CONFIG if there is no such program. */
enum ax_status ax_tracker_process_start(struct ax_tracker_process *p, const char *const *argv);
/* Sends as much as possible now, and keeps the rest. False if the rest would exceed the limit: then
 * nothing of `data` is sent. */
bool ax_tracker_process_send(struct ax_tracker_process *p, const void *data, size_t n);
/* The next line received (valid until the next call), waiting at most `seconds`; sends pending data
 * meanwhile. NULL if there is none yet, or, with *gone, if there will be none. */
const char *ax_tracker_process_line(struct ax_tracker_process *p, double seconds, bool *gone);
/* Waits at most `seconds` for the process to end, then kills its process group; frees everything.
 * True if it ended by itself with exit code 0, or there is no process. */
bool ax_tracker_process_end(struct ax_tracker_process *p, double seconds);

#endif
