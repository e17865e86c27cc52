/* The line that a child answers: {"rewards": [1, null, 0.5]}, or {"error": "…", "at": "file:line"}. That of Python may
 * also have what is logged (struct ax_reward_outcome).
 *
 * null is TRL's None; "nan", "inf" and "-inf" are numbers that JSON lacks. Other keys are ignored.
 * The line comes from a program that nobody has tested: any bytes are an answer or a failure.
 * Private to data/reward/. */
#ifndef AX_DATA_REWARD_ANSWER_H
#define AX_DATA_REWARD_ANSWER_H

#include "data/reward/function.h"

/* A longer line is no answer to a call with n completions. */
#define AX_REWARD_ANSWER_MAX(n) (((size_t)1 << 16) + 64 * (size_t)(n))
/* Bytes that what is logged may add: python.py's bounds. */
#define AX_REWARD_LOGGED_MAX(n) (((size_t)(n) + 2) << 18)

/* out: [n]; NaN for null and numbers that are not finite, all NaN after a failure. *not_finite
 * counts those. `logs`: what is logged is read, too. Only memory is an error. */
enum ax_status ax_reward_answer_read(const char *line, size_t len, size_t n, bool logs, double *out,
                                     size_t *not_finite, struct ax_reward_outcome *outcome);

/* Sets the outcome; the text's control characters become blanks. */
void ax_reward_fail(struct ax_reward_outcome *outcome, enum ax_reward_failure failure,
                    const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
