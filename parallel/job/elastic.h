/* A job that goes on without the ranks it has lost (docs/launch.md). The launcher's part: a folder in memory for the
 * ranks' state, the places where ranks run, and which job is next. */
#ifndef AX_PARALLEL_JOB_ELASTIC_H
#define AX_PARALLEL_JOB_ELASTIC_H

#include "parallel/job/launch.h"
#include "parallel/job/notes.h"

struct ax_elastic {
    char *dir; /* in memory, private; NULL: there is none */
    int lock;  /* the folder's descriptor, whose lock says that it is in use; −1: none */
    int *places, n_places; /* numbers of the host's devices; without those of lost ranks */
};

/* Places for `ranks` and `spares` more, and a folder if the job could need one; removes those that killed launchers have
 * left. That there can be no folder is no error: then ranks say so if they need one. */
enum ax_status ax_elastic_open(struct ax_elastic *e, int ranks, int spares, bool folder);
/* Removes the folder. Safe on {.lock = −1}. */
void ax_elastic_close(struct ax_elastic *e);

/* After n ranks have ended, some of them because others were lost: gives up the places of those lost.
 * Returns how many were. */
int ax_elastic_lose(struct ax_elastic *e, int n, const struct ax_launch_rank *ranks);
/* The job for the places that are left: of *ranks ranks as before, if there are enough (*words NULL), or the largest
 * of the notes'. False: there is none. */
bool ax_elastic_next(const struct ax_elastic *e, const struct ax_notes *notes, int *ranks,
                     const char **words);

#endif
