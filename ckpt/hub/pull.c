/* Downloads: one file, then many: checks disk space, and workers download one file after the other while this
 * thread shows the progress. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/free_space.h"
#include "base/hash/hash.h"
#include "base/io.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/term.h"
#include "base/threads.h"
#include "ckpt/hub/impl.h"

#define PIECE        ((size_t)1 << 20)
#define MAX_WORKERS  16
#define SHOW_SECONDS 0.25 /* on a terminal */
#define LOG_SECONDS  10.0 /* in a log file */

/* ---- places in the cache ---- */

/* FOLDER/NAMEsuffix; creates FOLDER. */
static enum ax_status path_in(char **out, const char *folder, const char *name,
                              const char *suffix) {
    AX_TRY(ax_mkdir_parents_private(folder));
    return ax_sprintf(out, "%s/%s%s", folder, name, suffix);
}

/* BLOBS/ID; creates the folder. */
static enum ax_status place_of_blob(char **out, const struct ax_hub_snapshot *s, const char *blob) {
    char *folder;
    AX_TRY(ax_path_join(&folder, s->repo_folder, "blobs"));
    const enum ax_status st = path_in(out, folder, blob, "");
    ax_free(folder);
    return st;
}

/* CACHE/.locks/…/ID.lock; creates its folder. */
static enum ax_status place_of_lock(char **out, const struct ax_hub_snapshot *s, const char *blob) {
    const char *name = strrchr(s->repo_folder, '/');
    char *folder;
    AX_TRY(
        ax_sprintf(&folder, "%.*s/.locks%s", (int)(name - s->repo_folder), s->repo_folder, name));
    const enum ax_status st = path_in(out, folder, blob, ".lock");
    ax_free(folder);
    return st;
}

/* Creates the folders of `path` in the snapshot. Each must be a real folder: through a link, the
 * file would be written elsewhere. *depth += their number. */
static enum ax_status make_folders(const struct ax_hub_snapshot *s, const char *path, int *depth) {
    char *full;
    enum ax_status st = AX_OK;
    struct stat info;
    AX_TRY(ax_mkdir_parents_private(s->folder));
    AX_TRY(ax_sprintf(&full, "%s/%s", s->folder, path));
    for (char *p = full + strlen(s->folder) + 1; st == AX_OK && (p = strchr(p, '/')); p++) {
        *p = '\0';
        if (lstat(full, &info) != 0)
            st = ax_mkdir_private(full);
        else if (!S_ISDIR(info.st_mode))
            st = ax_error(AX_ERR_DATA, "%s: refusing to write \"%s\" through it: not a folder",
                          full, path);
        *p = '/';
        ++*depth;
    }
    ax_free(full);
    return st;
}

/* snapshots/COMMIT/PATH → ../../blobs/ID. AX_ERR_DATA if a part of PATH is not a folder. */
static enum ax_status link_blob(const struct ax_hub_snapshot *s, const struct ax_hub_file *f) {
    struct ax_buf target = {0};
    char *path = NULL;
    int depth = 2; /* snapshots/COMMIT */
    enum ax_status st;
    AX_TRY(make_folders(s, f->path, &depth));
    for (int i = 0; i < depth; i++)
        AX_TRY_GOTO(ax_buf_puts(&target, "../"), st, done);
    AX_TRY_GOTO(ax_buf_printf(&target, "blobs/%s", f->blob), st, done);
    AX_TRY_GOTO(ax_sprintf(&path, "%s/%s", s->folder, f->path), st, done);
    if (ax_path_is_dir(path))
        st = ax_error(AX_ERR_DATA, "%s: a folder exists where a file is needed", path);
    else
        st = ax_symlink(target.data, path);
done:
    ax_free(path);
    ax_buf_free(&target);
    return st;
}

/* ---- one file ---- */

/* BLOBS/ID.incomplete grows until it is complete, is checked, and renamed.
 *
 * Data from an earlier attempt is read once for the checksum and continued by a range request. The
 * blob's lock keeps others waiting, also a worker that downloads the same bytes under another path; on
 * file systems without locks, each writes a file of its own. */

struct transfer {
    const struct ax_hub *h;
    const struct ax_hub_repo *repo;
    const struct ax_hub_snapshot *snapshot;
    _Atomic bool stop;           /* one file failed: stops the others */
    _Atomic uint64_t done;       /* bytes of all files that are present */
    _Atomic uint64_t downloaded; /* bytes from the network */
};

struct blob {
    struct transfer *t;
    const struct ax_hub_file *want;
    char *path, *part; /* BLOBS/ID and BLOBS/ID.incomplete */
    struct ax_file file;
    uint64_t at;    /* bytes present */
    bool continued; /* some of them were written by an earlier process */
    bool large;     /* named by its SHA-256, else by git's SHA-1 */
    struct ax_sha256 sha256;
    struct ax_sha1 sha1;
    const struct ax_http_head *answer; /* of the response that is being received */
    uint64_t furthest; /* most bytes this process has had; progress is only beyond it */
    int attempt;       /* since the last progress */
};

/* ---- its checksum ---- */

static void digest_start(struct blob *b) {
    char head[40];
    b->large = strlen(b->want->blob) == 64;
    ax_sha256_init(&b->sha256);
    ax_sha1_init(&b->sha1);
    const int n = snprintf(head, sizeof head, "blob %llu", (unsigned long long)b->want->size);
    if (!b->large)
        ax_sha1_update(&b->sha1, head, (size_t)n + 1); /* including its NUL */
}

static void digest_add(struct blob *b, const void *data, size_t n) {
    if (b->large)
        ax_sha256_update(&b->sha256, data, n);
    else
        ax_sha1_update(&b->sha1, data, n);
}

static bool digest_fits(struct blob *b) {
    unsigned char digest[32];
    char hex[65];
    if (b->large)
        ax_sha256_final(&b->sha256, digest);
    else
        ax_sha1_final(&b->sha1, digest);
    ax_hex(hex, digest, b->large ? 32 : 20);
    return strcmp(hex, b->want->blob) == 0;
}

/* ---- the file while it is partial ---- */

static uint64_t size_of(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode) ? (uint64_t)info.st_size : 0;
}

static bool is_there(const char *path, const struct ax_hub_file *f) {
    return ax_path_exists(path) && size_of(path) == f->size;
}

/* Bytes of the file on disk: all if another commit has it, or those that an earlier attempt left. */
static uint64_t bytes_begun(const struct ax_hub_snapshot *s, const struct ax_hub_file *f) {
    char path[4096];
    snprintf(path, sizeof path, "%s/blobs/%s", s->repo_folder, f->blob);
    if (is_there(path, f))
        return f->size;
    snprintf(path, sizeof path, "%s/blobs/%s.incomplete", s->repo_folder, f->blob);
    const uint64_t n = size_of(path);
    return n <= f->size ? n : 0;
}

static void count(struct blob *b, uint64_t at) {
    b->t->done += at - b->at; /* wraps to a subtraction if at is smaller */
    b->at = at;
}

static enum ax_status start_again(struct blob *b) {
    count(b, 0);
    b->continued = false;
    digest_start(b);
    return ax_file_truncate(&b->file, 0);
}

/* Adds what an earlier attempt left to the checksum. */
static enum ax_status take_up(struct blob *b) {
    uint64_t size;
    char *piece;
    digest_start(b);
    AX_TRY(ax_file_size(&b->file, &size));
    if (size > b->want->size)
        return start_again(b);
    AX_TRY(ax_alloc(&piece, PIECE, 1));
    enum ax_status st = AX_OK;
    while (b->at < size && st == AX_OK) {
        const size_t n = size - b->at < PIECE ? (size_t)(size - b->at) : PIECE;
        st = ax_file_pread(&b->file, piece, n, b->at);
        if (st == AX_OK) {
            digest_add(b, piece, n);
            count(b, b->at + n);
        }
    }
    ax_free(piece);
    b->continued = size > 0;
    return st;
}

/* ---- the network ---- */

/* On the first piece of a response: checks that its bytes follow those present. */
static enum ax_status check_place(struct blob *b, const struct ax_http_head *h) {
    const uint64_t total = b->want->size;
    if (h->status == 200 && b->at > 0)
        return start_again(b); /* the server does not support ranges */
    if (h->status == 206 && (h->range_from < 0 || (uint64_t)h->range_from != b->at ||
                             (h->range_total >= 0 && (uint64_t)h->range_total != total)))
        return ax_error(AX_ERR_DATA, "%s: the server sent a different range than requested",
                        b->want->path);
    return AX_OK;
}

static enum ax_status write_piece(void *ctx, const struct ax_http_head *h, const void *data,
                                  size_t n) {
    struct blob *b = ctx;
    if (b->answer != h) {
        b->answer = h;
        AX_TRY(check_place(b, h));
    }
    if (n > b->want->size - b->at)
        return ax_error(AX_ERR_DATA, "%s: the server sent more than the expected %llu bytes",
                        b->want->path, (unsigned long long)b->want->size);
    AX_TRY(ax_file_pwrite(&b->file, data, n, b->at));
    digest_add(b, data, n);
    count(b, b->at + n);
    b->t->downloaded += n;
    if (b->at > b->furthest) {
        b->furthest = b->at;
        b->attempt = 0;
    }
    return AX_OK;
}

/* Checks that the hub's response agrees with its list about the file. */
static enum ax_status check_linked(const struct blob *b, const struct ax_http_head *first) {
    const struct ax_hub_file *f = b->want;
    if (b->large && strlen(first->linked_etag) == 64 && strcmp(first->linked_etag, f->blob) != 0)
        return ax_error(AX_ERR_DATA,
                        "%s: the hub's file list and its response disagree about the checksum",
                        f->path);
    if (first->linked_size >= 0 && (uint64_t)first->linked_size != f->size)
        return ax_error(AX_ERR_DATA,
                        "%s: the hub's file list and its response disagree about the size",
                        f->path);
    if (first->repo_commit[0] && strcmp(first->repo_commit, b->t->snapshot->commit) != 0)
        return ax_error(AX_ERR_DATA, "%s: the hub returned commit %.40s instead of %s", f->path,
                        first->repo_commit, b->t->snapshot->commit);
    return AX_OK;
}

/* One request. AX_OK also if another one is needed. */
static enum ax_status request(struct blob *b, const char *url) {
    struct ax_http_response a;
    const struct ax_http_request q = {.url = url,
                                      .token = b->t->h->token,
                                      .from = b->at,
                                      .max_bytes = b->want->size,
                                      .stop = &b->t->stop,
                                      .body = write_piece,
                                      .ctx = b};
    b->answer = NULL;
    enum ax_status st = ax_http_get(&q, &a);
    if (st == AX_OK)
        AX_TRY(check_linked(b, &a.first));
    if (st == AX_OK && (a.head.status == 200 || a.head.status == 206)) {
        if (b->at == b->want->size)
            return AX_OK;
        a.again = true; /* complete for the server, but too short */
        st = ax_error(AX_ERR_IO, "%s: the server sent only %llu of %llu bytes", b->want->path,
                      (unsigned long long)b->at, (unsigned long long)b->want->size);
    }
    if (st == AX_OK && a.head.status == 416 && b->at > 0)
        return start_again(b);
    struct ax_hub_patience p = {.attempt = b->attempt, .stop = &b->t->stop};
    AX_TRY(ax_hub_again(b->t->h, b->t->repo, &p, st, &a, b->want->path));
    b->attempt = p.attempt;
    return AX_OK;
}

static enum ax_status receive(struct blob *b, const char *url) {
    while (b->at < b->want->size)
        AX_TRY(request(b, url));
    return AX_OK;
}

/* If the checksum is wrong and another process wrote some of the bytes, starts over once. */
static enum ax_status receive_checked(struct blob *b, const char *url) {
    AX_TRY(receive(b, url));
    if (digest_fits(b))
        return AX_OK;
    if (b->continued) {
        ax_log_warn("an earlier partial download does not match; starting over file=%s",
                    b->want->path);
        AX_TRY(start_again(b));
        AX_TRY(receive(b, url));
        if (digest_fits(b))
            return AX_OK;
    }
    AX_TRY(start_again(b));
    AX_TRY(ax_unlink(b->part));
    return ax_error(AX_ERR_DATA,
                    "%s: the download of %s does not match the checksum %s and was removed. Try "
                    "again; a proxy may have modified it.",
                    b->t->repo->id, b->want->path, b->want->blob);
}

static enum ax_status download(struct blob *b) {
    char *url;
    AX_TRY(ax_hub_file_url(&url, b->t->h, b->t->repo, b->t->snapshot->commit, b->want->path));
    enum ax_status st;
    AX_TRY_GOTO(ax_file_open_update(&b->file, b->part), st, done);
    AX_TRY_GOTO(take_up(b), st, close);
    AX_TRY_GOTO(receive_checked(b, url), st, close);
    AX_TRY_GOTO(ax_file_sync(&b->file), st, close);
close:
    st = ax_file_end(&b->file, st);
    if (st == AX_OK)
        st = ax_rename(b->part, b->path);
done:
    ax_free(url);
    return st;
}

/* BLOBS/ID.incomplete, which others wait for; without locks, a file with a name of its own. */
static enum ax_status name_part(struct blob *b, bool locked) {
    uint64_t own;
    if (locked)
        return ax_sprintf(&b->part, "%s.incomplete", b->path);
    AX_TRY(ax_random_bytes(&own, sizeof own));
    return ax_sprintf(&b->part, "%s.%016llx.incomplete", b->path, (unsigned long long)own);
}

/* Downloads one file into the cache and links it. */
static enum ax_status get_file(struct transfer *t, const struct ax_hub_file *f) {
    struct blob b = {.t = t, .want = f};
    struct ax_lock lock = {0};
    char *lock_path = NULL;
    enum ax_status st;
    AX_TRY_GOTO(place_of_blob(&b.path, t->snapshot, f->blob), st, done);
    AX_TRY_GOTO(place_of_lock(&lock_path, t->snapshot, f->blob), st, done);
    if (!is_there(b.path, f))
        ax_lock_take(&lock, lock_path, AX_LOCK_EXCLUSIVE);
    if (is_there(b.path, f)) {
        t->done += f->size;
    } else {
        AX_TRY_GOTO(name_part(&b, lock.held), st, done);
        AX_TRY_GOTO(download(&b), st, done);
    }
    st = link_blob(t->snapshot, f);
done:
    ax_lock_drop(&lock);
    ax_free(lock_path);
    ax_free(b.part);
    ax_free(b.path);
    return st;
}

/* ---- many files ---- */

struct pull {
    struct transfer transfer;
    const struct ax_hub_file **files; /* [n] the missing ones */
    size_t n;
    uint64_t bytes, begun; /* of all these files; already on disk */
    _Atomic size_t next;
    _Atomic int running;
    pthread_mutex_t mutex; /* guards the next two */
    bool failed;
    struct ax_error_record error; /* the first error; the others follow from it */
};

/* ---- workers ---- */

static void note_failure(struct pull *p, enum ax_status st) {
    (void)pthread_mutex_lock(&p->mutex);
    if (!p->failed)
        ax_error_save(&p->error, st);
    p->failed = true;
    p->transfer.stop = true;
    (void)pthread_mutex_unlock(&p->mutex);
}

static enum ax_status work(void *arg) {
    struct pull *p = arg;
    while (!p->transfer.stop) {
        const size_t i = atomic_fetch_add(&p->next, 1);
        if (i >= p->n)
            break;
        const enum ax_status st = get_file(&p->transfer, p->files[i]);
        if (st != AX_OK)
            note_failure(p, st);
    }
    atomic_fetch_sub(&p->running, 1);
    return AX_OK;
}

/* ---- progress ---- */

static void show(const struct pull *p, const char *id, double seconds, bool bar) {
    char done[32], all[32], speed[32], left[32];
    const uint64_t now = p->transfer.done, got = p->transfer.downloaded;
    const double rate = seconds > 0 ? (double)got / seconds : 0;
    ax_format_bytes(done, sizeof done, (double)now);
    ax_format_bytes(all, sizeof all, (double)p->bytes);
    ax_format_bytes(speed, sizeof speed, rate);
    ax_format_seconds(left, sizeof left, rate > 0 ? (double)(p->bytes - now) / rate : 0);
    if (!bar) {
        ax_log_info("fetching repository=%s done=\"%s\" of=\"%s\" speed=\"%s/s\" left=\"%s\"", id,
                    done, all, speed, left);
        return;
    }
    char line[256];
    const int width = ax_term_width(STDERR_FILENO) - 1;
    const int n = snprintf(line, sizeof line, "fetching %s  %s of %s  %s/s  %s left", id, done, all,
                           speed, left);
    fprintf(stderr, "\r\x1b[K%.*s", width < n ? width : n, line);
    fflush(stderr);
}

static void watch(const struct pull *p, const char *id, bool quiet) {
    const bool bar = ax_term_has_cursor(STDERR_FILENO);
    const struct timespec slice = {.tv_nsec = 10000000};
    const double start = ax_clock_now();
    double shown = start;
    while (p->running > 0) {
        (void)nanosleep(&slice, NULL);
        const double now = ax_clock_now();
        if (!quiet && now - shown >= (bar ? SHOW_SECONDS : LOG_SECONDS)) {
            show(p, id, now - start, bar);
            shown = now;
        }
    }
    if (bar && shown > start)
        fprintf(stderr, "\r\x1b[K");
}

/* ---- all ---- */

static enum ax_status check_room(const struct pull *p, const struct ax_hub_snapshot *s,
                                 const char *id) {
    uint64_t free;
    char need[32], have[32];
    const uint64_t missing = p->bytes - p->begun;
    AX_TRY(ax_mkdir_parents_private(s->repo_folder));
    AX_TRY(ax_disk_free(s->repo_folder, &free));
    if (missing + missing / 64 <= free)
        return AX_OK;
    return ax_error(AX_ERR_STORAGE,
                    "%s: %s still have to be downloaded, but the disk of %s has only %s free. Free "
                    "some space, or set "
                    "HF_HUB_CACHE to a folder on another disk.",
                    id, ax_format_bytes(need, sizeof need, (double)missing), s->repo_folder,
                    ax_format_bytes(have, sizeof have, (double)free));
}

static enum ax_status run(struct pull *p, const char *id) {
    struct ax_worker workers[MAX_WORKERS];
    const struct ax_hub *h = p->transfer.h;
    const int most = h->workers < MAX_WORKERS ? h->workers : MAX_WORKERS;
    int n = 0;
    enum ax_status st = AX_OK;
    for (; n < most && (size_t)n < p->n && st == AX_OK; n++) {
        atomic_fetch_add(&p->running, 1);
        st = ax_worker_start(&workers[n], work, p);
    }
    if (st != AX_OK) { /* the last worker did not start; joining it does nothing */
        atomic_fetch_sub(&p->running, 1);
        note_failure(p, st);
    }
    watch(p, id, h->quiet);
    for (int i = 0; i < n; i++)
        (void)ax_worker_join(&workers[i]);
    return p->failed ? ax_error_restore(&p->error) : AX_OK;
}

static enum ax_status choose(struct pull *p, const struct ax_hub_snapshot *s,
                             const struct ax_hub_repo *r, const char *const *paths, size_t n,
                             struct ax_hub_report *report) {
    for (size_t i = 0; i < n; i++) {
        const struct ax_hub_file *f = ax_hub_list_find(&s->list, paths[i]);
        if (!f)
            return ax_error(AX_ERR_DATA, "%s: contains no file %s", r->id, paths[i]);
        report->files++;
        report->bytes += f->size;
        if (ax_hub_snapshot_has(s, paths[i])) {
            report->present++;
            continue;
        }
        p->files[p->n++] = f;
        p->bytes += f->size;
        p->begun += bytes_begun(s, f);
    }
    return AX_OK;
}

enum ax_status ax_hub_pull(struct ax_hub_snapshot *s, const struct ax_hub *h,
                           const struct ax_hub_repo *r, const char *const *paths, size_t n,
                           struct ax_hub_report *report) {
    struct pull p = {.transfer = {.h = h, .repo = r, .snapshot = s}};
    struct ax_lock use;
    enum ax_status st;
    AX_TRY(ax_alloc(&p.files, n, sizeof *p.files));
    st = ax_hub_use(&use, r);
    if (st != AX_OK) {
        ax_free(p.files);
        return st;
    }
    (void)pthread_mutex_init(&p.mutex, NULL);
    AX_TRY_GOTO(choose(&p, s, r, paths, n, report), st, done);
    if (p.n > 0) {
        AX_TRY_GOTO(check_room(&p, s, r->id), st, done);
        st = run(&p, r->id);
        report->downloaded += p.transfer.downloaded;
    }
done:
    (void)pthread_mutex_destroy(&p.mutex);
    ax_lock_drop(&use);
    ax_free(p.files);
    return st;
}
