/* Messages between a worker and its owner: a length, six numbers, and parts. Both sides check
 * everything: the owner does not trust a worker, which runs untrusted programs.
 *
 *            numbers (the others are 0)                          parts
 *   job      kind, seed, most of: fuel, memory, out, err         those of the job (run.h)
 *   result   verdict, exit code, fuel, nanoseconds               out, err, passed
 *   ready    status of the start, AX_OK or an error              the error's text
 *
 * A worker's first frame is "ready"; then results follow jobs. */
#ifndef AX_DATA_REWARD_SANDBOX_FRAME_H
#define AX_DATA_REWARD_SANDBOX_FRAME_H

#include "data/reward/sandbox/run.h"

#define AX_FRAME_NUMBERS 6
#define AX_FRAME_MAX     ((size_t)64 << 20)

struct ax_frame {
    uint64_t numbers[AX_FRAME_NUMBERS];
    size_t n_parts;
    struct ax_bytes parts[AX_SANDBOX_MAX_PARTS];
};

/* Appends a frame. AX_ERR_DATA if it would be too long. */
enum ax_status ax_frame_put(struct ax_buf *out, const struct ax_frame *f);
/* The bytes of the frame that begins at `data`, of which n are there: 0 if more are needed to know;
 * AX_FRAME_MAX + 1 if no frame has the length that it says, too long or shorter than a header. */
size_t ax_frame_size(const char *data, size_t n);
/* Reads a frame of n bytes, whose parts point into it. AX_ERR_DATA if it is not one. */
enum ax_status ax_frame_get(struct ax_frame *f, const char *data, size_t n);

/* A job and its result. The job's parts borrow the frame's. */
enum ax_status ax_frame_put_job(struct ax_buf *out, const struct ax_sandbox_job *job);
enum ax_status ax_frame_get_job(struct ax_sandbox_job *job, const struct ax_frame *f);
enum ax_status ax_frame_put_result(struct ax_buf *out, const struct ax_sandbox_result *r);
/* The result of `job`, copied. */
enum ax_status ax_frame_get_result(struct ax_sandbox_result *r, const struct ax_frame *f,
                                   const struct ax_sandbox_job *job);

#endif
