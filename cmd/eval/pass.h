/* `axtrain eval --samples N`: several sampled answers per example, and their pass@k. Private to
 * cmd/eval/ and cmd/eval.c. */
#ifndef AX_CMD_EVAL_PASS_H
#define AX_CMD_EVAL_PASS_H

#include "base/text/json.h"
#include "optim/evaluate/answers.h"

struct ax_eval;

/* Checks the options and reads their lists. */
enum ax_status ax_eval_pass_check(struct ax_eval *e);
json_t *ax_eval_pass_json(const struct ax_eval *e, const struct ax_sampled *p);
enum ax_status ax_eval_pass_put(const struct ax_eval *e, const struct ax_sampled *p,
                                struct ax_buf *out);
/* The same, as part of a line. */
enum ax_status ax_eval_pass_put_short(const struct ax_eval *e, const struct ax_sampled *p,
                                      struct ax_buf *out);

#endif
