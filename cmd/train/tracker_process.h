/* A child process that is told things and may die, hang or be slow: nothing here waits for it
 * longer than it was allowed to.
 *
 * Lines go to it through a socket (its descriptor 3), and lines come back. What it cannot take now
 * is kept, up to a limit. It is in a process group of its own, and SIGINT, SIGTERM and SIGUSR1 are
 * blocked in it: these are for the run, which says when it ends. */
#ifndef AX_CMD_TRAIN_TRACKER_PROCESS_H
#define AX_CMD_TRAIN_TRACKER_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/mem.h"

#define AX_TRACKER_PENDING ((size_t)1 << 20) /* bytes that may wait for it */
#define AX_TRACKER_LINE    8192              /* longest line that it may send */

struct ax_tracker_process {
    pid_t pid; /* 0 = none */
    int socket;
    struct ax_buf pending;
    char said[AX_TRACKER_LINE];
    size_t n_said, taken; /* bytes in said; of these, in lines that were given out */
};

/* argv[0] is looked up in PATH. AX_ERR_CONFIG if there is no such program. */
enum ax_status ax_tracker_process_start(struct ax_tracker_process *p, const char *const *argv);
/* Sends what it takes now, and keeps the rest. False if that would be too much: then nothing of
 * `data` is sent. */
bool ax_tracker_process_send(struct ax_tracker_process *p, const void *data, size_t n);
/* Its next line (valid until the next call), after at most `seconds`; pending data are sent
 * meanwhile. NULL: none yet; *gone: none will come. */
const char *ax_tracker_process_line(struct ax_tracker_process *p, double seconds, bool *gone);
/* Waits at most `seconds` for its end, then ends its process group; frees everything. True if it
 * ended by itself with exit code 0. Fine without a process. */
bool ax_tracker_process_end(struct ax_tracker_process *p, double seconds);

#endif
