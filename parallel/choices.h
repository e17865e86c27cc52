/* What a device's library measured (ax_queue_choices), kept on disk and the same on all ranks: rank 0
 * measures, and its choices hold for all. Of a backend that has no choice, nothing happens here. */
#ifndef AX_PARALLEL_CHOICES_H
#define AX_PARALLEL_CHOICES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct ax_runtime;

/* Of a runtime. Zeroed: nothing is measured. */
struct ax_choices {
    char *file;      /* owned: of this GPU and library; rank 0's */
    uint64_t agreed; /* q->counters.measured when ranks last agreed */
    bool resumed;    /* they are a checkpoint's, so the file stays as it is */
};

/* Begins to measure on rank 0, with what is in a file of the folder `dir`, which need not exist. A file
 * that cannot be used is ignored with a warning. All ranks call it; `dir` NULL: does nothing. */
enum ax_status ax_choices_open(struct ax_runtime *rt, const char *dir);
/* True if rank 0, which this rank is, has measured since ranks last agreed. */
bool ax_choices_are_new(const struct ax_runtime *rt);
/* All ranks compute with rank 0's from now on; they call it together. */
enum ax_status ax_choices_agree(struct ax_runtime *rt);
/* The same with a checkpoint's, which every rank has; those of another GPU or library are not used, and
 * a line says so. */
enum ax_status ax_choices_resume(struct ax_runtime *rt, const char *text);
/* Writes the file, on rank 0, if there is anything new; a failure is a warning. */
void ax_choices_close(struct ax_runtime *rt);

#endif
