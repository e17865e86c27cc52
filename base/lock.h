/* Locks between processes. The kernel releases a lock when its holder exits for any reason, so it
 * is never stale and needs no cleanup. */
#ifndef AX_BASE_LOCK_H
#define AX_BASE_LOCK_H

#include <stdbool.h>

#include "base/status.h"

/* ---- locks: others wait for the holder ---- */

enum ax_lock_mode { AX_LOCK_SHARED, AX_LOCK_EXCLUSIVE };

struct ax_lock {
    int fd;
    bool held;
};

/* Waits for the lock of the file at `path`, which is created if it does not exist; a log line says
 * so if another process has it. held = false if it cannot be locked: no such folder, no write
 * permission, a file system without locks. That is not an error, because a lock only saves work;
 * struct ax_folder is what keeps files complete. A holder may remove the file: whoever waits then locks
 * the file that is there now. Sets the file's date to now, as the time of the
 * last use. Zero-initialize. */
void ax_lock_take(struct ax_lock *l, const char *path, enum ax_lock_mode mode);
/* Takes the exclusive lock without waiting and without setting the date; false if another process
 * has it. */
bool ax_lock_try(struct ax_lock *l, const char *path);
void ax_lock_drop(struct ax_lock *l); /* safe on zeroed or dropped */

/* ---- claims: one process at a time works in a folder, and says so in its lock file ---- */

struct ax_claim {
    int fd;     /* −1: not held */
    char *path; /* owned */
};

/* Takes the lock or says who holds it: "PATH: in use by process 12 on HOST since TIME". Releasing
 * it removes the file. */
enum ax_status ax_claim_take(struct ax_claim *l, const char *path);
void ax_claim_release(struct ax_claim *l); /* safe on one that is not held or zeroed */

#endif
