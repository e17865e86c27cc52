/* Removes a folder while holding its lock, so that no process starts to use it meanwhile. */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "base/dir.h"
#include "base/io.h"
#include "base/io_path.h"
#include "base/lock.h"
#include "cmd/cache/cache.h"

/* True if another process holds a lock in the folder, e.g. a download by Hugging Face's own
 * tools. */
static enum ax_status any_locked(const char *folder, const char *except, bool *locked) {
    struct ax_dir d;
    enum ax_status st = AX_OK;
    ax_dir_open(&d, folder);
    for (const char *name; !*locked && (name = ax_dir_next(&d)) != NULL;) {
        struct ax_lock lock;
        char *path;
        if (!ax_path_ends_in(name, ".lock"))
            continue;
        AX_TRY_GOTO(ax_path_join(&path, folder, name), st, done);
        *locked = strcmp(path, except) != 0 && !ax_lock_try(&lock, path);
        if (!*locked && strcmp(path, except) != 0)
            ax_lock_drop(&lock);
        ax_free(path);
    }
done:
    return ax_dir_end(&d, st);
}

/* Takes the lock, if there is one; without a lock file the entry was never used. What a process still
 * writes is in use. */
static enum ax_status take(const struct ax_cache_entry *e, struct ax_lock *lock, bool *locked) {
    *lock = (struct ax_lock){0};
    *locked = e->owner != 0 && (kill(e->owner, 0) == 0 || errno != ESRCH);
    if (*locked)
        return AX_OK;
    *locked = ax_path_exists(e->lock) && !ax_lock_try(lock, e->lock);
    if (*locked || !e->more)
        return AX_OK;
    const enum ax_status st = any_locked(e->more, e->lock, locked);
    if (st != AX_OK || *locked)
        ax_lock_drop(lock);
    return st;
}

bool ax_cache_in_use(const struct ax_cache_entry *e) {
    struct ax_lock lock;
    bool locked;
    if (take(e, &lock, &locked) != AX_OK) {
        ax_error_clear();
        return true;
    }
    if (!locked)
        ax_lock_drop(&lock);
    return locked;
}

enum ax_status ax_cache_remove(const struct ax_cache_entry *e, bool *done) {
    struct ax_lock lock;
    bool locked;
    AX_TRY(take(e, &lock, &locked));
    *done = !locked;
    if (locked)
        return AX_OK;
    enum ax_status st = ax_remove_tree(e->path);
    if (st == AX_OK && e->more && ax_path_exists(e->more))
        st = ax_remove_tree(e->more);
    else if (st == AX_OK && e->owner == 0 && ax_path_exists(e->lock))
        st = ax_unlink(e->lock);
    ax_lock_drop(&lock);
    return st;
}
