#include "parallel/job/elastic.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/dir.h"
#include "base/io.h"
#include "base/log.h"

/* ---- the folder in memory ----
 *
 * It is in use as long as its descriptor is locked: the kernel drops the lock with the launcher, however that ends. */

#define MEMORY "/dev/shm"
#define PREFIX "axtrain-elastic-"

/* Locks the folder, if it is this user's and nobody has locked it. −1: no. */
static int lock_folder(const char *path) {
    struct stat is, at;
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -1;
    if (fstat(fd, &is) == 0 && is.st_uid == geteuid() && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
        lstat(path, &at) == 0 && at.st_ino == is.st_ino) /* else removed since it was opened */
        return fd;
    close(fd);
    return -1;
}

static void remove_folder(const char *path) {
    if (ax_remove_tree(path) == AX_OK)
        return;
    ax_log_warn("%s: a run's state stays in memory there until it is removed", ax_error_text());
    ax_error_clear();
}

static void sweep_folders(void) {
    struct ax_dir d;
    ax_dir_open(&d, MEMORY);
    for (const char *name; (name = ax_dir_next(&d)) != NULL;) {
        char path[sizeof MEMORY + NAME_MAX + 1];
        if (strncmp(name, PREFIX, sizeof PREFIX - 1) != 0)
            continue;
        snprintf(path, sizeof path, MEMORY "/%s", name);
        const int lock = lock_folder(path);
        if (lock < 0)
            continue;
        remove_folder(path);
        close(lock);
    }
    ax_dir_end_or_warn(&d, AX_OK);
}

/* Another launcher may sweep a folder before it is locked: then a new one is made. */
static enum ax_status make_folder(struct ax_elastic *e) {
    for (int i = 0; i < 10 && !e->dir; i++) {
        char path[] = MEMORY "/" PREFIX "XXXXXX";
        if (!mkdtemp(path)) /* 0700 */
            return AX_OK;
        e->lock = lock_folder(path);
        if (e->lock >= 0)
            AX_TRY(ax_strdup(&e->dir, path));
    }
    return AX_OK;
}

enum ax_status ax_elastic_open(struct ax_elastic *e, int ranks, int spares, bool folder) {
    AX_TRY(ax_alloc(&e->places, (size_t)(ranks + spares), sizeof *e->places));
    for (int i = 0; i < ranks + spares; i++)
        e->places[e->n_places++] = i;
    if (!folder)
        return AX_OK;
    sweep_folders();
    return make_folder(e);
}

void ax_elastic_close(struct ax_elastic *e) {
    if (e->dir)
        remove_folder(e->dir);
    if (e->lock >= 0)
        close(e->lock);
    ax_free(e->dir);
    ax_free(e->places);
    *e = (struct ax_elastic){.lock = -1};
}

/* ---- lost ranks ---- */

static bool noticed_another(int status) {
    return WIFEXITED(status) && WEXITSTATUS(status) == ax_status_info(AX_ERR_PEER)->exit_code;
}

static bool ended_by_itself(const struct ax_launch_rank *r) {
    return !r->killed && !noticed_another(r->status) &&
           !(WIFEXITED(r->status) && WEXITSTATUS(r->status) == 0);
}

static void give_up(struct ax_elastic *e, int place) {
    int kept = 0;
    for (int i = 0; i < e->n_places; i++)
        if (e->places[i] != place)
            e->places[kept++] = e->places[i];
    e->n_places = kept;
}

/* A rank that the launcher had to end is lost only if no other is: it hung, and the others noticed. Else it was slow to
 * notice. */
int ax_elastic_lose(struct ax_elastic *e, int n, const struct ax_launch_rank *ranks) {
    int lost = 0, ended = 0;
    for (int i = 0; i < n; i++)
        ended += ended_by_itself(&ranks[i]);
    for (int i = 0; i < n; i++) {
        if (ended > 0 ? !ended_by_itself(&ranks[i]) : !ranks[i].killed)
            continue;
        give_up(e, ranks[i].place);
        lost++;
    }
    return lost;
}

bool ax_elastic_next(const struct ax_elastic *e, const struct ax_notes *notes, int *ranks,
                     const char **words) {
    *words = NULL;
    if (e->n_places >= *ranks)
        return true;
    for (int i = 0; i < AX_NOTES_MESHES && notes->meshes[i].ranks > 0; i++) {
        if (notes->meshes[i].ranks > e->n_places)
            continue;
        *ranks = notes->meshes[i].ranks;
        *words = notes->meshes[i].words;
        return true;
    }
    return false;
}
