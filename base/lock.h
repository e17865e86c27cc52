/* Locks between processes: whoever holds one keeps the others waiting. The kernel takes it back
 * when its holder ends, however it ends, so there is nothing to clean up. */
#ifndef AX_BASE_LOCK_H
#define AX_BASE_LOCK_H

#include <stdbool.h>

enum ax_lock_mode { AX_LOCK_SHARED, AX_LOCK_EXCLUSIVE };

struct ax_lock {
    int fd;
    bool held;
};

/* Waits for the lock of the file at `path`, which is made where it is not there; a log line says so
 * when somebody else has it. held = false where the place can hold no lock: no such folder, nothing
 * may be written there, a file system without locks. Never fails for that, because a lock saves
 * work but is not what makes files whole (struct ax_folder is). Zero-initialise. */
void ax_lock_take(struct ax_lock *l, const char *path, enum ax_lock_mode mode);
void ax_lock_drop(struct ax_lock *l); /* safe on zeroed or dropped */

#endif
