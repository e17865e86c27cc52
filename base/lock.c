/* flock: waits for it, or claims it with the holder's name in the file for others. */
#include "base/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "base/io_sys.h"
#include "base/log.h"
#include "base/mem.h"

static int open_lock(const char *path) {
    const int fd = ax_sys_create(path, O_RDWR | O_CREAT, AX_FILE_MODE);
    return fd >= 0 ? fd : ax_sys_create(path, O_RDONLY, 0);
}

/* False if its holder has removed it since it was opened: then a lock of it excludes nobody. */
static bool is_there(const char *path, int fd) {
    struct stat opened, named;
    return fstat(fd, &opened) == 0 && stat(path, &named) == 0 && opened.st_dev == named.st_dev &&
           opened.st_ino == named.st_ino;
}

void ax_lock_take(struct ax_lock *l, const char *path, enum ax_lock_mode mode) {
    const int operation = mode == AX_LOCK_SHARED ? LOCK_SH : LOCK_EX;
    *l = (struct ax_lock){.fd = open_lock(path)};
    if (l->fd < 0)
        return;
    int rc = ax_sys_flock(l->fd, operation | LOCK_NB);
    if (rc != 0 && errno == EWOULDBLOCK) {
        ax_log_info("waiting for another process that holds lock=%s", path);
        rc = ax_sys_flock(l->fd, operation);
    }
    l->held = rc == 0;
    if (l->held && !is_there(path, l->fd)) {
        (void)ax_sys_close(l->fd);
        ax_lock_take(l, path, mode);
        return;
    }
    if (l->held)
        (void)futimens(l->fd, NULL);
    else
        (void)ax_sys_close(l->fd);
}

bool ax_lock_try(struct ax_lock *l, const char *path) {
    *l = (struct ax_lock){.fd = ax_sys_create(path, O_RDONLY | O_CREAT, AX_FILE_MODE)};
    if (l->fd < 0)
        return false;
    l->held = ax_sys_flock(l->fd, LOCK_EX | LOCK_NB) == 0;
    if (l->held && is_there(path, l->fd))
        return true;
    (void)ax_sys_close(l->fd);
    return l->held && ax_lock_try(l, path);
}

void ax_lock_drop(struct ax_lock *l) {
    if (l->held) {
        (void)ax_sys_flock(l->fd, LOCK_UN); /* a forked child may still have the descriptor open */
        (void)ax_sys_close(l->fd);
    }
    *l = (struct ax_lock){0};
}

/* ---- claims ---- */

/* What the holder wrote: "process 12 on HOST since TIME". */
static enum ax_status held(const char *path, int fd) {
    char who[256] = "";
    const ssize_t n = ax_sys_pread(fd, who, sizeof who - 1, 0);
    who[n > 0 ? n : 0] = '\0';
    who[strcspn(who, "\n")] = '\0';
    return ax_error(AX_ERR_FAILED,
                    "%s: in use by %s; wait until it finishes, or choose another folder", path,
                    who[0] ? who : "another process");
}

/* Only for people; the lock works without it. */
static enum ax_status sign(const char *path, int fd) {
    char host[128] = "?", when[32] = "?", text[256];
    const time_t now = time(NULL);
    struct tm tm;
    (void)gethostname(host, sizeof host - 1);
    if (gmtime_r(&now, &tm))
        strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &tm);
    const int n =
        snprintf(text, sizeof text, "process %ld on %s since %s\n", (long)getpid(), host, when);
    if (ftruncate(fd, 0) != 0 || ax_sys_pwrite(fd, text, (size_t)n, 0) != n)
        return ax_error(ax_sys_status(), "%s: cannot write %d bytes: %m", path, n);
    return AX_OK;
}

enum ax_status ax_claim_take(struct ax_claim *l, const char *path) {
    *l = (struct ax_claim){.fd = -1};
    enum ax_status st;
    const int fd = ax_sys_create(path, O_RDWR | O_CREAT, AX_FILE_MODE);
    if (fd < 0)
        return ax_sys_cannot(path, "create the lock");
    const bool locked = ax_sys_flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (locked && !is_there(path, fd)) {
        (void)ax_sys_close(fd);
        return ax_claim_take(l, path);
    }
    if (locked)
        st = sign(path, fd);
    else if (errno == EWOULDBLOCK)
        st = held(path, fd);
    else
        st = ax_error(AX_ERR_IO, "%s: cannot lock: %m", path);
    if (st == AX_OK)
        st = ax_strdup(&l->path, path);
    if (st == AX_OK)
        l->fd = fd;
    else
        (void)ax_sys_close(fd);
    return st;
}

void ax_claim_release(struct ax_claim *l) {
    if (l->path) {
        (void)unlink(l->path); /* before others can lock it */
        (void)ax_sys_close(l->fd);
    }
    ax_free(l->path);
    *l = (struct ax_claim){.fd = -1};
}
