#include "parallel/job/notes.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void put(size_t at, const void *data, size_t n) {
    const char *fd = getenv("AXTRAIN_PROGRESS_FD");
    if (fd)
        (void)!pwrite(atoi(fd), data, n, (off_t)at);
}

void ax_note_saved(int64_t step) {
    put(offsetof(struct ax_notes, saved), &step, sizeof step);
}

void ax_note_done(int rank, int64_t step) {
    if (rank < AX_NOTES_RANKS)
        put(offsetof(struct ax_notes, done) + (size_t)rank * sizeof step, &step, sizeof step);
}

void ax_note_writes(int rank, bool writes) {
    const int32_t v = writes;
    if (rank < AX_NOTES_RANKS)
        put(offsetof(struct ax_notes, writes) + (size_t)rank * sizeof v, &v, sizeof v);
}

void ax_note_elastic(int n, const struct ax_notes_mesh *meshes) {
    const int32_t on = 1;
    struct ax_notes_mesh all[AX_NOTES_MESHES] = {0};
    for (int i = 0; i < n && i < AX_NOTES_MESHES; i++)
        all[i] = meshes[i];
    put(offsetof(struct ax_notes, meshes), all, sizeof all);
    put(offsetof(struct ax_notes, elastic), &on, sizeof on);
}

int64_t ax_notes_reached(void) {
    const char *fd = getenv("AXTRAIN_PROGRESS_FD");
    int64_t step = 0;
    if (fd && pread(atoi(fd), &step, sizeof step, offsetof(struct ax_notes, reached)) !=
                  (ssize_t)sizeof step)
        step = 0;
    return step;
}

bool ax_notes_restarted(void) {
    const char *count = getenv("AXTRAIN_RESTART_COUNT");
    return count && atoi(count) > 0;
}

int ax_notes_create(void) {
    return memfd_create("progress", 0);
}

void ax_notes_read(int fd, struct ax_notes *out) {
    memset(out, 0, sizeof *out);
    (void)!pread(fd, out, sizeof *out, 0); /* what was not written is 0 */
    for (int i = 0; i < AX_NOTES_MESHES; i++)
        out->meshes[i].words[sizeof out->meshes[i].words - 1] = '\0';
}

void ax_notes_write(int fd, const struct ax_notes *notes) {
    (void)!pwrite(fd, notes, sizeof *notes, 0);
}
