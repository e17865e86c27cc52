/* The texts of sampled answers, which --best-of scores and --log-steps writes. Private to cmd/eval/ and
 * cmd/eval.c. */
#ifndef AX_CMD_EVAL_SAMPLES_H
#define AX_CMD_EVAL_SAMPLES_H

#include "base/status.h"

struct ax_eval;

/* Reads the prompts of the questions from their records, and makes room for the answers; does nothing if
 * their texts are not wanted. */
enum ax_status ax_eval_samples_open(struct ax_eval *e);
void ax_eval_samples_close(struct ax_eval *e);
/* `--log-steps FILE`: a record of labeled steps for each wrong answer, after one of a right answer to the
 * same question; the first of these is the data's own. The steps are lines; whether one is right is not
 * known, so all have the answer's label. */
enum ax_status ax_eval_samples_write(const struct ax_eval *e);

#endif
