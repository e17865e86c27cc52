/* Which algorithms a device's library measured as fastest (ax_queue_choices), kept on disk and the
 * same on all ranks: rank 0 measures, and its choices hold for all ranks. With a backend that has
 * no such choice, nothing happens here. */
#ifndef AX_PARALLEL_CHOICES_H
#define AX_PARALLEL_CHOICES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct ax_runtime;

/* A runtime's choices. Zeroed: nothing is measured. */
struct ax_choices {
    char *file;      /* the file of this GPU and library; owned, rank 0 only */
    uint64_t agreed; /* q->counters.measured when ranks last agreed */
    bool resumed;    /* the choices come from a checkpoint, so the file is not written */
};

/* Rank 0 begins to measure, starting from the choices in a file of the folder `dir`, which need not
 * exist. A file that cannot be used is ignored with a warning. All ranks call it; `dir` NULL: does
 * nothing. */
enum ax_status ax_choices_open(struct ax_runtime *rt, const char *dir);
/* True if this rank is rank 0 and has measured something since ranks last agreed. */
bool ax_choices_are_new(const struct ax_runtime *rt);
/* From now on all ranks compute with rank 0's choices; they call it together. */
enum ax_status ax_choices_agree(struct ax_runtime *rt);
/* The same with the choices in a checkpoint, which every rank has read. Choices for another GPU or
 * library are not used, and a log line says so. */
enum ax_status ax_choices_resume(struct ax_runtime *rt, const char *text);
/* Writes the file, on rank 0, if there is anything new; a failure is a warning. */
void ax_choices_close(struct ax_runtime *rt);

#endif
