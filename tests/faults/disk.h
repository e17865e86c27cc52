/* A disk that may lose power: the calls that change files below `disk_root` are recorded while
 * `disk_recording` is set, and played again on a model which knows what is safe and what is not.
 *
 * Safe is what POSIX promises: a file's bytes once the file was synced, a folder's entries once the
 * folder was. Of all that is not safe any part may be there after a cut: a write whole, in part,
 * as zeros or not at all, an entry made, renamed, removed or not, each by itself. A rename within a
 * folder is one thing; from one folder to another it is two, an entry there and one less here. The
 * C library's calls are taken over by the functions at the end, so that nothing goes past the log,
 * in any thread. Include after cmocka.h, in one file only. */
#ifndef AX_TESTS_FAULTS_DISK_H
#define AX_TESTS_FAULTS_DISK_H

#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DISK_NODES  256 /* files and folders, in all that is recorded */
#define DISK_EVENTS 1024
#define DISK_NAME   64
#define DISK_FDS    256

enum disk_kind {
    DISK_CREATE,
    DISK_CUT,
    DISK_WRITE,
    DISK_SYNC,
    DISK_RENAME,
    DISK_LINK, /* of what is in another folder */
    DISK_UNLINK
};

struct disk_event {
    enum disk_kind kind;
    int node, folder;     /* what it is about; the folder whose entries change */
    char name[DISK_NAME]; /* the entry; */
    char to[DISK_NAME];   /* … its new name */
    bool is_folder;       /* CREATE */
    size_t at, n;         /* WRITE: bytes [at, at + n) */
    unsigned char *data;
};

static struct disk_event disk_events[DISK_EVENTS];
static int disk_n_events, disk_n_nodes;
static char disk_root[128];
static bool disk_recording;
static pthread_mutex_t disk_mutex = PTHREAD_MUTEX_INITIALIZER; /* a call and its record are one */

/* Where every node is at the moment, and what descriptors are open on: node 0 is the root. */
static struct {
    int parent; /* −1: removed */
    char name[DISK_NAME];
} disk_now[DISK_NODES];
static int disk_fd_node[DISK_FDS]; /* 0: not ours; else node + 1 */
static size_t disk_fd_at[DISK_FDS];

/* ---- recording ---- */

static void disk_start(const char *root) {
    for (int i = 0; i < disk_n_events; i++)
        free(disk_events[i].data);
    memset(disk_events, 0, sizeof disk_events);
    memset(disk_now, 0, sizeof disk_now);
    memset(disk_fd_node, 0, sizeof disk_fd_node);
    disk_n_events = 0;
    disk_n_nodes = 1;
    disk_now[0].parent = -1;
    snprintf(disk_root, sizeof disk_root, "%s", root);
    disk_recording = true;
}

static struct disk_event *disk_add(enum disk_kind kind, int node) {
    if (disk_n_events == DISK_EVENTS)
        abort();
    struct disk_event *e = &disk_events[disk_n_events++];
    e->kind = kind;
    e->node = node;
    return e;
}

static int disk_find(int folder, const char *name) {
    for (int i = 1; i < disk_n_nodes; i++)
        if (disk_now[i].parent == folder && strcmp(disk_now[i].name, name) == 0)
            return i;
    return -1;
}

/* The folder of a path and its last part; −1 where it is not below the root. */
static int disk_walk(int at, const char *path, char *last) {
    const size_t root = strlen(disk_root);
    int folder = 0;
    if (at != AT_FDCWD)
        folder = at < DISK_FDS ? disk_fd_node[at] - 1 : -1;
    else if (strncmp(path, disk_root, root) == 0 && path[root] == '/')
        path += root + 1;
    else
        return -1;
    for (const char *slash; folder >= 0 && (slash = strchr(path, '/')) != NULL; path = slash + 1) {
        snprintf(last, DISK_NAME, "%.*s", (int)(slash - path), path);
        folder = disk_find(folder, last);
    }
    snprintf(last, DISK_NAME, "%s", path);
    return folder;
}

static int disk_make(int folder, const char *name, bool is_folder) {
    if (disk_n_nodes == DISK_NODES)
        abort();
    const int node = disk_n_nodes++;
    disk_now[node].parent = folder;
    snprintf(disk_now[node].name, DISK_NAME, "%s", name);
    struct disk_event *e = disk_add(DISK_CREATE, node);
    e->folder = folder;
    e->is_folder = is_folder;
    snprintf(e->name, sizeof e->name, "%s", name);
    return node;
}

static void disk_opened(int fd, int at, const char *path, int flags) {
    char name[DISK_NAME];
    if (!disk_recording || fd < 0 || fd >= DISK_FDS)
        return;
    const int folder = disk_walk(at, path, name);
    int node = folder < 0 ? -1 : disk_find(folder, name);
    if (at == AT_FDCWD && strcmp(path, disk_root) == 0)
        node = 0;
    if (folder >= 0 && node < 0 && (flags & O_CREAT))
        node = disk_make(folder, name, false);
    else if (node > 0 && (flags & O_TRUNC))
        (void)disk_add(DISK_CUT, node);
    disk_fd_node[fd] = node + 1;
    disk_fd_at[fd] = 0;
}

static void disk_wrote(int fd, const void *data, size_t n, size_t at) {
    if (!disk_recording || fd < 0 || fd >= DISK_FDS || disk_fd_node[fd] == 0 || n == 0)
        return;
    struct disk_event *e = disk_add(DISK_WRITE, disk_fd_node[fd] - 1);
    e->at = at;
    e->n = n;
    e->data = malloc(n);
    if (!e->data)
        abort();
    memcpy(e->data, data, n);
}

static void disk_renamed(const char *from, const char *to) {
    char a[DISK_NAME], b[DISK_NAME];
    const int folder = disk_recording ? disk_walk(AT_FDCWD, from, a) : -1;
    if (folder < 0)
        return;
    const int node = disk_find(folder, a), new_folder = disk_walk(AT_FDCWD, to, b);
    if (node < 0 || new_folder < 0)
        abort(); /* the model knows nothing of what is outside */
    const int over = disk_find(new_folder, b);
    if (over >= 0)
        disk_now[over].parent = -1;
    struct disk_event *e = disk_add(new_folder == folder ? DISK_RENAME : DISK_LINK, node);
    e->folder = new_folder;
    memcpy(e->name, a, sizeof a);
    memcpy(e->to, b, sizeof b);
    disk_now[node].parent = new_folder;
    memcpy(disk_now[node].name, b, sizeof b);
    if (new_folder != folder) {
        e = disk_add(DISK_UNLINK, node);
        e->folder = folder;
        memcpy(e->name, a, sizeof a);
    }
}

static void disk_unlinked(int at, const char *path) {
    char name[DISK_NAME];
    const int folder = disk_recording ? disk_walk(at, path, name) : -1;
    const int node = folder < 0 ? -1 : disk_find(folder, name);
    if (node < 0)
        return;
    struct disk_event *e = disk_add(DISK_UNLINK, node);
    e->folder = folder;
    memcpy(e->name, name, sizeof name);
    disk_now[node].parent = -1;
}

/* ---- the disk after a cut ---- */

/* How a cut treats what is not safe. */
struct disk_cut {
    uint64_t random; /* state of the generator */
    unsigned keep;   /* of 100; 0: nothing stays, 100: all of it */
    int odd;         /* a file or folder for which it is another share; −1: none */
    unsigned odd_keep;
    bool syncs_count; /* false: as if nothing had ever been synced */
    int ignored;      /* a sync that is as if it were not there; −1: none */
};

static unsigned disk_below(struct disk_cut *c, unsigned n) {
    c->random ^= c->random << 13;
    c->random ^= c->random >> 7;
    c->random ^= c->random << 17;
    return (unsigned)(c->random >> 33) % n;
}

/* Index of the last sync of a node among the first n events; −1: none. */
static int disk_safe_until(const struct disk_cut *c, int node, int n) {
    for (int i = n - 1; c->syncs_count && i >= 0; i--)
        if (disk_events[i].kind == DISK_SYNC && disk_events[i].node == node && i != c->ignored)
            return i;
    return -1;
}

static unsigned disk_share(const struct disk_cut *c, int node) {
    return node == c->odd ? c->odd_keep : c->keep;
}

static bool disk_stays(struct disk_cut *c, int node) {
    return disk_below(c, 100) < disk_share(c, node);
}

struct disk_bytes {
    unsigned char *data;
    size_t n;
};

static void disk_apply_write(struct disk_cut *c, struct disk_bytes *b, const struct disk_event *e,
                             bool safe) {
    size_t n = e->n;
    bool zeros = false;
    if (!safe && !disk_stays(c, e->node)) {
        const unsigned how =
            disk_share(c, e->node) == 0 ? 0 : disk_below(c, 3); /* lost, truncated, zeros */
        n = how == 0 ? 0 : how == 1 ? disk_below(c, (unsigned)n) : n;
        zeros = how == 2;
    }
    if (n == 0)
        return;
    if (e->at + n > b->n) {
        b->data = realloc(b->data, e->at + n);
        if (!b->data)
            abort();
        memset(b->data + b->n, 0, e->at + n - b->n);
        b->n = e->at + n;
    }
    if (zeros)
        memset(b->data + e->at, 0, n);
    else
        memcpy(b->data + e->at, e->data, n);
}

static void disk_put_file(struct disk_cut *c, int node, int n, const char *path) {
    const int safe = disk_safe_until(c, node, n);
    struct disk_bytes b = {0};
    for (int i = 0; i < n; i++) {
        const struct disk_event *e = &disk_events[i];
        if (e->node == node && e->kind == DISK_WRITE)
            disk_apply_write(c, &b, e, i < safe);
        else if (e->node == node && e->kind == DISK_CUT && (i < safe || disk_stays(c, node)))
            b.n = 0;
    }
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(b.data ? (const void *)b.data : "", 1, b.n, f) != b.n || fclose(f) != 0)
        abort();
    free(b.data);
}

struct disk_entry {
    char name[DISK_NAME];
    int node;
};

static int disk_entry_of(const struct disk_entry *list, int n, const char *name) {
    for (int i = 0; i < n; i++)
        if (strcmp(list[i].name, name) == 0)
            return i;
    return n;
}

static int disk_link(struct disk_entry *list, int n, const char *name, int node) {
    const int at = disk_entry_of(list, n, name);
    snprintf(list[at].name, DISK_NAME, "%s", name);
    list[at].node = node;
    return at == n ? n + 1 : n;
}

static int disk_drop(struct disk_entry *list, int n, const char *name, int node) {
    const int at = disk_entry_of(list, n, name);
    if (at == n || list[at].node != node)
        return n;
    list[at] = list[n - 1];
    return n - 1;
}

static bool disk_is_entry(const struct disk_event *e) {
    return e->kind == DISK_CREATE || e->kind == DISK_RENAME || e->kind == DISK_LINK ||
           e->kind == DISK_UNLINK;
}

static int disk_entries(struct disk_cut *c, int folder, int n, struct disk_entry *list) {
    const int safe = disk_safe_until(c, folder, n);
    int count = 0;
    for (int i = 0; i < n; i++) {
        const struct disk_event *e = &disk_events[i];
        if (!disk_is_entry(e) || e->folder != folder || !(i < safe || disk_stays(c, folder)))
            continue;
        if (e->kind == DISK_RENAME || e->kind == DISK_UNLINK)
            count = disk_drop(list, count, e->name, e->node);
        if (e->kind != DISK_UNLINK)
            count = disk_link(list, count, e->kind == DISK_CREATE ? e->name : e->to, e->node);
    }
    return count;
}

static bool disk_is_folder(int node) {
    for (int i = 0; i < disk_n_events; i++)
        if (disk_events[i].kind == DISK_CREATE && disk_events[i].node == node)
            return disk_events[i].is_folder;
    return true; /* the root */
}

/* Has a file or folder anything to lose when the power goes after n events? */
static bool disk_may_lose(const struct disk_cut *c, int node, int n) {
    for (int i = disk_safe_until(c, node, n) + 1; i < n; i++) {
        const struct disk_event *e = &disk_events[i];
        if (disk_is_entry(e) ? e->folder == node : e->node == node && e->kind != DISK_SYNC)
            return true;
    }
    return false;
}

/* What is there when the power goes after n events, into an empty folder. */
static void disk_put(struct disk_cut *c, int folder, int n, const char *path) {
    struct disk_entry list[DISK_NODES];
    const int count = disk_entries(c, folder, n, list);
    for (int i = 0; i < count; i++) {
        char at[512];
        snprintf(at, sizeof at, "%.400s/%.63s", path, list[i].name);
        if (!disk_is_folder(list[i].node)) {
            disk_put_file(c, list[i].node, n, at);
        } else {
            if (mkdir(at, 0750) != 0)
                abort();
            disk_put(c, list[i].node, n, at);
        }
    }
}

/* ---- the calls ---- */

int openat(int at, const char *path, int flags, ...) {
    va_list ap;
    va_start(ap, flags);
    const unsigned mode = flags & O_CREAT ? va_arg(ap, unsigned) : 0;
    va_end(ap);
    pthread_mutex_lock(&disk_mutex);
    const int fd = (int)syscall(SYS_openat, at, path, flags, mode);
    disk_opened(fd, at, path, flags);
    pthread_mutex_unlock(&disk_mutex);
    return fd;
}

ssize_t write(int fd, const void *data, size_t n) {
    pthread_mutex_lock(&disk_mutex);
    const ssize_t w = syscall(SYS_write, fd, data, n);
    if (w > 0 && fd < DISK_FDS) {
        disk_wrote(fd, data, (size_t)w, disk_fd_at[fd]);
        disk_fd_at[fd] += (size_t)w;
    }
    pthread_mutex_unlock(&disk_mutex);
    return w;
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t offset) {
    pthread_mutex_lock(&disk_mutex);
    const ssize_t w = syscall(SYS_pwrite64, fd, data, n, offset);
    if (w > 0)
        disk_wrote(fd, data, (size_t)w, (size_t)offset);
    pthread_mutex_unlock(&disk_mutex);
    return w;
}

int fsync(int fd) {
    pthread_mutex_lock(&disk_mutex);
    if (disk_recording && fd < DISK_FDS && disk_fd_node[fd] > 0)
        (void)disk_add(DISK_SYNC, disk_fd_node[fd] - 1);
    const int rc = (int)syscall(SYS_fsync, fd);
    pthread_mutex_unlock(&disk_mutex);
    return rc;
}

int close(int fd) {
    pthread_mutex_lock(&disk_mutex);
    if (fd >= 0 && fd < DISK_FDS)
        disk_fd_node[fd] = 0;
    const int rc = (int)syscall(SYS_close, fd);
    pthread_mutex_unlock(&disk_mutex);
    return rc;
}

int mkdir(const char *path, mode_t mode) {
    char name[DISK_NAME];
    pthread_mutex_lock(&disk_mutex);
    const int rc = (int)syscall(SYS_mkdir, path, mode);
    const int folder = rc == 0 && disk_recording ? disk_walk(AT_FDCWD, path, name) : -1;
    if (folder >= 0)
        (void)disk_make(folder, name, true);
    pthread_mutex_unlock(&disk_mutex);
    return rc;
}

int rename(const char *from, const char *to) {
    pthread_mutex_lock(&disk_mutex);
    const int rc = (int)syscall(SYS_rename, from, to);
    if (rc == 0)
        disk_renamed(from, to);
    pthread_mutex_unlock(&disk_mutex);
    return rc;
}

int unlinkat(int at, const char *name, int flags) {
    pthread_mutex_lock(&disk_mutex);
    const int rc = (int)syscall(SYS_unlinkat, at, name, flags);
    if (rc == 0)
        disk_unlinked(at, name);
    pthread_mutex_unlock(&disk_mutex);
    return rc;
}

#endif
