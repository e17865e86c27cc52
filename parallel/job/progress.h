/* The newest checkpoint's step, which ranks pass to their launcher in a few bytes of memory that
 * they inherit. */
#ifndef AX_PARALLEL_JOB_PROGRESS_H
#define AX_PARALLEL_JOB_PROGRESS_H

#include <stdint.h>

/* The launcher's side: creates a descriptor for the ranks (−1: not possible); reads the step that
 * they noted. */
int ax_progress_create(void);
int64_t ax_progress_read(int fd);
/* A rank's side; does nothing if the launcher did not pass a descriptor. */
void ax_progress_note(int64_t step);

#endif
