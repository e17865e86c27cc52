/* Claims: one process at a time works in a folder, and says so in its lock file. The kernel gives
 * it back when the process ends in whatever way, so a lock is never stale. */
#ifndef AX_BASE_CLAIM_H
#define AX_BASE_CLAIM_H

#include "base/status.h"

struct ax_claim {
    int fd;     /* −1: not held */
    char *path; /* owned */
};

/* Takes the lock or says who holds it: "PATH: in use by process 12 on HOST since TIME". The file
 * stays behind when the lock is given back. */
enum ax_status ax_claim_take(struct ax_claim *l, const char *path);
void ax_claim_release(struct ax_claim *l); /* safe on one that is not held, and on a zeroed one */

#endif
