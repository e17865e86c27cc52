/* What ranks tell their launcher: notes in memory that they inherit from it, so that they survive the ranks. Where no
 * launcher passed that memory, writing does nothing and reading finds zeros. A lost note costs a restart, or steps,
 * nothing else. */
#ifndef AX_PARALLEL_JOB_NOTES_H
#define AX_PARALLEL_JOB_NOTES_H

#include <stdbool.h>
#include <stdint.h>

#define AX_NOTES_RANKS  1024 /* notes of ranks with higher numbers are lost */
#define AX_NOTES_MESHES 64

/* A smaller job that can go on where this one ends. */
struct ax_notes_mesh {
    int32_t ranks;   /* number of the job's; 0: the list has ended */
    char words[252]; /* what its command gets besides this one's, with a space between words */
};

struct ax_notes {
    int64_t saved; /* step of the newest checkpoint */
    /* written by the launcher: the most steps that a rank had done in earlier attempts */
    int64_t reached;
    int32_t elastic;                /* 1: the job goes on without lost ranks */
    int32_t reserved;               /* 0 */
    int64_t done[AX_NOTES_RANKS];   /* steps that a rank has done */
    int32_t writes[AX_NOTES_RANKS]; /* 1: a rank that lost another is writing its state */
    struct ax_notes_mesh meshes[AX_NOTES_MESHES]; /* largest first */
};

/* ---- ranks ---- */

void ax_note_saved(int64_t step);
void ax_note_done(int rank, int64_t step);
void ax_note_writes(int rank, bool writes);
/* The job is elastic, and these n smaller ones could follow it. */
void ax_note_elastic(int n, const struct ax_notes_mesh *meshes);
int64_t ax_notes_reached(void);
/* True in a job that its launcher has started again. */
bool ax_notes_restarted(void);

/* ---- the launcher ---- */

/* A descriptor for the ranks; −1: not possible. */
int ax_notes_create(void);
void ax_notes_read(int fd, struct ax_notes *out);
void ax_notes_write(int fd, const struct ax_notes *notes);

#endif
