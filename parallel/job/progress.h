/* What a launcher hears of its ranks' progress, in a few bytes of memory that they inherit: the newest
 * checkpoint's step. */
#ifndef AX_PARALLEL_JOB_PROGRESS_H
#define AX_PARALLEL_JOB_PROGRESS_H

#include <stdint.h>

/* The launcher's side: a descriptor for the ranks, −1 if there is none; and what they noted. */
int ax_progress_create(void);
int64_t ax_progress_read(int fd);
/* A rank's side; nothing if the launcher does not want to know. */
void ax_progress_note(int64_t step);

#endif
