/* Many files: checks disk space, then workers download one file after the other while this thread
 * shows the progress. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/free_space.h"
#include "base/term.h"
#include "base/threads.h"
#include "ckpt/hub/impl.h"

#define MAX_WORKERS  16
#define SHOW_SECONDS 0.25 /* on a terminal */
#define LOG_SECONDS  10.0 /* in a log file */

struct pull {
    struct ax_hub_transfer transfer;
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
        const enum ax_status st = ax_hub_blob_get(&p->transfer, p->files[i]);
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
    return ax_error(AX_ERR_IO,
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
        p->begun += ax_hub_blob_begun(s, f);
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
