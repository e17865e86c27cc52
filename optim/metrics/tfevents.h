/* TensorBoard event files: scalars by step.
 *
 * A file is records of { u64 length, u32 masked CRC-32C of the length, bytes, u32 masked CRC-32C of
 * the bytes }, little-endian (TFRecord), each an Event message in protobuf encoding:
 *   Event { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5;
 *           SessionLog session_log = 7; }
 *   Summary { repeated Value { string tag = 1; float simple_value = 2; } value = 1; }
 *   SessionLog { Status status = 1; } */
#ifndef AX_OPTIM_METRICS_TFEVENTS_H
#define AX_OPTIM_METRICS_TFEVENTS_H

#include "optim/metrics/metrics_file.h"

struct ax_tfevents {
    struct ax_metrics_file file;
};

/* Starts a new file in `dir` (created if needed). Older event files there are truncated after
 * resume_step, or removed if it is 0; after a resume, a START record tells programs that are
 * reading them to drop later steps too. */
enum ax_status ax_tfevents_open(struct ax_tfevents *t, const char *dir, int64_t resume_step);
void ax_tfevents_close(struct ax_tfevents *t); /* t may be zeroed */

/* Bytes of a file's complete records before the first of a step after resume_step. */
uint64_t ax_tfevents_whole(const unsigned char *data, size_t n, int64_t resume_step);

struct ax_tf_scalar {
    const char *tag; /* "train/loss" */
    double value;
};
/* Writes one event; non-finite values are written as they are. Does nothing on a zeroed struct. */
void ax_tfevents_write(struct ax_tfevents *t, int64_t step, int n, const struct ax_tf_scalar *s);

/* Writes those of `count` values that are not NaN and have a name, with the tag OF/NAME. names may
 * be NULL, or end with NULL. */
void ax_tfevents_write_named(struct ax_tfevents *f, int64_t step, const char *of, int count,
                             const char *const *names, const double *values);

#endif
