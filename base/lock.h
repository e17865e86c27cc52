/* Locks between processes. The kernel takes a lock back when its holder ends, however it ends, so
 * it is never stale and there is nothing to clean up. */
#ifndef AX_BASE_LOCK_H
#define AX_BASE_LOCK_H

#include <stdbool.h>

#include "base/status.h"

/* ---- locks: whoever holds one keeps the others waiting ---- */

enum ax_lock_mode { AX_LOCK_SHARED, AX_LOCK_EXCLUSIVE };

struct ax_lock {
    int fd;
    bool held;
};

/* Waits for the lock of the file at `path`, which is created if it does not exist; a log line says
 * so when somebody else has it. held = false where the place can hold no lock: no such folder, no
 * permission to write, a file system without locks. Never fails for that, because a lock saves work
 * but is not what makes files complete (struct ax_folder is). Zero-initialize. */
void ax_lock_take(struct ax_lock *l, const char *path, enum ax_lock_mode mode);
void ax_lock_drop(struct ax_lock *l); /* safe on zeroed or dropped */

/* ---- claims: one process at a time works in a folder, and says so in its lock file ---- */

struct ax_claim {
    int fd;     /* −1: not held */
    char *path; /* owned */
};

/* Takes the lock or says who holds it: "PATH: in use by process 12 on HOST since TIME". The file
 * stays behind when the lock is given back. */
enum ax_status ax_claim_take(struct ax_claim *l, const char *path);
void ax_claim_release(struct ax_claim *l); /* safe on one that is not held, and on a zeroed one */

#endif
