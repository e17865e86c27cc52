/* A lock file: one process at a time works in a folder. The kernel gives it back when the process
 * ends in whatever way, so a lock is never stale. */
#ifndef AX_BASE_LOCK_H
#define AX_BASE_LOCK_H

#include "base/status.h"

struct ax_lock {
    int fd;     /* −1: not held */
    char *path; /* owned */
};

/* Takes the lock or says who holds it: "PATH: in use by process 12 on HOST since TIME". The file
 * stays behind when the lock is given back. */
enum ax_status ax_lock_take(struct ax_lock *l, const char *path);
void ax_lock_release(struct ax_lock *l); /* safe on one that is not held, and on a zeroed one */

#endif
