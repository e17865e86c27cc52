/* How processes rendezvous, and tell each other why they exit.
 *
 * In the folder: rank-N.here, written by each rank when it arrives; rank-N.done on clean exit;
 * rank-N.failed (status number, error text) before it breaks its connections. Gloo keeps its
 * addresses in the folder `store` next to them. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/io.h"
#include "parallel/gloo.h"

static enum ax_status path_of(const struct ax_gloo_world *w, int rank, const char *what,
                              char **path) {
    return ax_sprintf(path, "%s/rank-%d.%s", w->folder, rank, what);
}

static enum ax_status write_mark(const struct ax_gloo_world *w, const char *what,
                                 const char *text) {
    char *path;
    AX_TRY(path_of(w, w->rank, what, &path));
    const enum ax_status st = ax_write_file_atomic(path, text, strlen(text));
    ax_free(path);
    return st;
}

/* Also false if out of memory. */
static bool has_mark(const struct ax_gloo_world *w, int rank, const char *what) {
    char *path;
    if (path_of(w, rank, what, &path) != AX_OK)
        return false;
    const bool there = ax_path_exists(path);
    ax_free(path);
    return there;
}

/* A rank's failure message, worded for the other ranks, and its status; AX_OK if it left none. */
static enum ax_status last_words(const struct ax_gloo_world *w, int rank, char *text, size_t size) {
    char *path, *data = NULL;
    size_t len;
    enum ax_status st = AX_OK;
    if (!has_mark(w, rank, "failed") || path_of(w, rank, "failed", &path) != AX_OK)
        return AX_OK;
    if (ax_read_file(path, 4096, &data, &len) == AX_OK) {
        char *words;
        const long number = strtol(data, &words, 10);
        st = number > 0 && number < AX_STATUS_COUNT ? (enum ax_status)number : AX_ERR_FAILED;
        words += *words == '\n';
        if (st == AX_ERR_PEER) /* already names the rank */
            snprintf(text, size, "%s", words);
        else
            snprintf(text, size, "rank %d failed: %s", rank, words);
    }
    ax_free(data);
    ax_free(path);
    return st;
}

/* The message of the rank that failed first takes precedence over those of ranks that only
 * noticed. */
static enum ax_status words_of_any(const struct ax_gloo_world *w, char *words, size_t size) {
    enum ax_status st = AX_OK;
    char more[2048];
    for (int r = 0; r < w->world; r++) {
        const enum ax_status said = r == w->rank ? AX_OK : last_words(w, r, more, sizeof more);
        if (said == AX_OK || (st != AX_OK && (st != AX_ERR_PEER || said == AX_ERR_PEER)))
            continue;
        snprintf(words, size, "%s", more);
        st = said;
    }
    return st;
}

/* Waits half a second, or looks `once`, for messages of ranks that failed: a connection may break
 * before they have been written. As words_of_any. A rank of [first, end) that has ended well is
 * *done and ends the waiting; −1: none. */
static enum ax_status hear(const struct ax_gloo_world *w, bool once, int first, int end,
                           char *words, size_t size, int *done) {
    const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
    *done = -1;
    for (int tries = 0; tries < 25; tries++, nanosleep(&pause, NULL)) {
        const enum ax_status st = words_of_any(w, words, size);
        if (st != AX_OK)
            return st;
        for (int r = first; r < end && *done < 0; r++)
            if (r != w->rank && has_mark(w, r, "done"))
                *done = r;
        if (once || *done >= 0)
            break;
    }
    return AX_OK;
}

enum ax_status ax_gloo_lost(const struct ax_gloo_world *w, const struct ax_comm_place *place,
                            const struct ax_comm_part *part, const int *ranks, int n,
                            enum ax_gloo_result how, const char *text) {
    char words[2048], why[AX_GLOO_TEXT + 128];
    int done;
    if (hear(w, how == AX_GLOO_LATE, ranks[0], ranks[0] + 1, words, sizeof words, &done) != AX_OK)
        return ax_error(AX_ERR_PEER, "%s", words);
    if (how == AX_GLOO_LATE)
        snprintf(why, sizeof why, "did not arrive within %g s", w->timeout);
    else if (done >= 0)
        snprintf(why, sizeof why, "ended without it");
    else
        snprintf(why, sizeof why, "is gone: its process ended, or the connection broke (%s)", text);
    return ax_comm_missing(place, part, ranks, n, why);
}

/* Tells the others; without it they only see connections break. */
static void say_failed(const struct ax_gloo_world *w, enum ax_status st) {
    char text[2100];
    struct ax_error_record own; /* kept unchanged, whatever happens to the file */
    ax_error_save(&own, st);
    snprintf(text, sizeof text, "%d\n%s", (int)st, own.text);
    (void)write_mark(w, "failed", text);
    (void)ax_error_restore(&own);
}

static void gloo_fail(struct ax_fabric *f, enum ax_status st) {
    struct ax_gloo_world *w = f->state;
    if (w->failed)
        return;
    w->failed = w->stopped = true;
    say_failed(w, st);
    w->gloo->break_link(w->link);
}

static void world_free(struct ax_gloo_world *w) {
    if (w->link)
        w->gloo->close(w->link);
    ax_free(w->folder);
    ax_free(w);
}

static void gloo_free(struct ax_fabric *f) {
    struct ax_gloo_world *w = f->state;
    AX_ASSERT(!w->first); /* communicators go before their fabric */
    struct ax_error_record own;
    ax_error_save(&own, AX_OK);
    if (!w->failed)
        (void)write_mark(w, "done", ""); /* it only makes others' errors clearer */
    (void)ax_error_restore(&own);
    world_free(w);
    f->state = NULL;
}

static const struct ax_fabric_ops gloo_fabric_ops = {
    .name = "gloo", .open = ax_gloo_comm_open, .fail = gloo_fail, .free = gloo_free};

/* Waits until all have arrived. */
static enum ax_status assemble(const struct ax_gloo_world *w) {
    const double deadline = ax_clock_now() + w->timeout;
    const struct timespec pause = {.tv_nsec = 5 * 1000 * 1000};
    char missing[256] = "";
    int here = 0;
    if (has_mark(w, w->rank, "here"))
        return ax_error(AX_ERR_CONFIG,
                        "%s: rank %d has already arrived here. Use a new folder for every run and "
                        "a different rank for every process.",
                        w->folder, w->rank);
    AX_TRY(write_mark(w, "here", ""));
    while (here < w->world && ax_clock_now() < deadline)
        if (has_mark(w, here, "here"))
            here++;
        else
            nanosleep(&pause, NULL);
    if (here == w->world)
        return AX_OK;
    for (int r = here; r < w->world; r++) {
        const size_t n = strlen(missing);
        if (!has_mark(w, r, "here"))
            snprintf(missing + n, sizeof missing - n, "%s%d", n ? ", " : "", r);
    }
    return ax_error(AX_ERR_PEER, "%s: of %d ranks, these did not arrive within %g s: %s", w->folder,
                    w->world, w->timeout, missing);
}

/* A rank that leaves while others still connect only breaks connections. */
static enum ax_status not_connected(const struct ax_gloo_world *w, const char *text) {
    char words[2048];
    int done;
    if (hear(w, false, 0, w->world, words, sizeof words, &done) != AX_OK)
        return ax_error(AX_ERR_PEER, "%s", words);
    if (done >= 0)
        return ax_error(AX_ERR_PEER,
                        "rank %d ended before rank %d of %d was connected to it; its own output "
                        "says why",
                        done, w->rank, w->world);
    return ax_error(AX_ERR_PEER,
                    "rank %d of %d cannot connect to the others: the process of one ended, or the "
                    "connection broke (%s). See the output of the other ranks.",
                    w->rank, w->world, text);
}

static enum ax_status connect_all(struct ax_gloo_world *w) {
    char *store, text[AX_GLOO_TEXT];
    enum ax_status st;
    AX_TRY(ax_path_join(&store, w->folder, "store"));
    AX_TRY_GOTO(ax_mkdir_private(store), st, done);
    if (w->gloo->open(&w->link, store, w->rank, w->world, w->timeout, text) != AX_GLOO_DONE)
        st = not_connected(w, text);
    if (st != AX_OK)
        say_failed(w, st);
done:
    ax_free(store);
    return st;
}

enum ax_status ax_gloo_open(struct ax_fabric *f, const char *folder, int rank, int world,
                            double timeout) {
    struct ax_gloo_world *w;
    enum ax_status st;
    AX_ASSERT(rank >= 0 && rank < world && timeout > 0);
    AX_TRY(ax_alloc(&w, 1, sizeof *w));
    w->rank = rank;
    w->world = world;
    w->timeout = timeout;
    AX_TRY_GOTO(ax_gloo_library(&w->gloo), st, fail);
    AX_TRY_GOTO(ax_strdup(&w->folder, folder), st, fail);
    signal(SIGPIPE, SIG_IGN); /* Gloo writes to sockets that others may have closed */
    AX_TRY_GOTO(assemble(w), st, fail);
    AX_TRY_GOTO(connect_all(w), st, fail);
    *f = (struct ax_fabric){.ops = &gloo_fabric_ops, .world = world, .rank = rank, .state = w};
    return AX_OK;
fail:
    world_free(w);
    return st;
}
