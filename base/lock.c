/* flock, waited for. */
#include "base/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>

#include "base/io_sys.h"
#include "base/log.h"

static int open_lock(const char *path) {
    const int fd = ax_sys_openat(AT_FDCWD, path, O_RDWR | O_CREAT, 0640);
    return fd >= 0 ? fd : ax_sys_openat(AT_FDCWD, path, O_RDONLY, 0);
}

void ax_lock_take(struct ax_lock *l, const char *path, enum ax_lock_mode mode) {
    const int operation = mode == AX_LOCK_SHARED ? LOCK_SH : LOCK_EX;
    *l = (struct ax_lock){.fd = open_lock(path)};
    if (l->fd < 0) {
        return;
    }
    int rc = ax_sys_flock(l->fd, operation | LOCK_NB);
    if (rc != 0 && errno == EWOULDBLOCK) {
        ax_log_info("waiting for another process, which holds lock=%s", path);
        rc = ax_sys_flock(l->fd, operation);
    }
    l->held = rc == 0;
    if (!l->held) {
        (void)ax_sys_close(l->fd);
    }
}

void ax_lock_drop(struct ax_lock *l) {
    if (l->held) {
        (void)ax_sys_flock(l->fd, LOCK_UN); /* a forked child may have the descriptor open still */
        (void)ax_sys_close(l->fd);
    }
    *l = (struct ax_lock){0};
}
