/* A growing file of records that is truncated on resume; failed writes do not stop the run. Private
 * to optim/metrics and optim/tfevents. */
#ifndef AX_OPTIM_METRICS_METRICS_FILE_H
#define AX_OPTIM_METRICS_METRICS_FILE_H

#include "base/io.h"

struct ax_metrics_file {
    struct ax_file f;
    uint64_t end; /* end of the last complete record; anything after it is overwritten */
    int64_t lost; /* records that could not be written */
};

/* Opens or creates. `whole` returns how many of the file's bytes to keep (NULL = none); the rest is
 * removed. */
enum ax_status ax_metrics_file_open(struct ax_metrics_file *m, const char *path,
                                    uint64_t (*whole)(const unsigned char *data, size_t n,
                                                      int64_t resume_step),
                                    int64_t resume_step);
/* Adds a record. Warns on the first failure; each later record retries in the same place. */
void ax_metrics_file_append(struct ax_metrics_file *m, const void *data, size_t n);
/* Replaces all of it, whose text is `old`, by a longer one. If that fails (full disk), the file stays as
 * it was, and the answer is false. */
bool ax_metrics_file_replace(struct ax_metrics_file *m, const void *data, size_t n, const void *old,
                             size_t n_old);
void ax_metrics_file_close(struct ax_metrics_file *m); /* reports lost records; m may be zeroed */

/* The last line of a file, NUL-terminated, in `buf`; NULL if there is none or it does not fit. */
const char *ax_metrics_last_line(const char *path, char *buf, size_t size);

#endif
