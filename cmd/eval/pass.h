/* `axtrain eval --samples N`: several sampled answers per example, and their pass@k. Private to
 * cmd/eval/ and cmd/eval.c. */
#ifndef AX_CMD_EVAL_PASS_H
#define AX_CMD_EVAL_PASS_H

#include "base/text/json.h"
#include "cmd/args.h"
#include "model/model.h"
#include "model/core/sample.h"

#define AX_EVAL_MAX_PASS    8
#define AX_EVAL_MAX_SAMPLES 1024

struct ax_eval;

struct ax_eval_pass_options {
    int64_t samples;     /* per example; 0: one greedy answer */
    const char *at_text; /* "1,4,8" */
    int64_t seed;
    struct ax_sampling sampling; /* temperature < 0: not given */
    int n_at;
    int64_t at[AX_EVAL_MAX_PASS]; /* the k of pass@k */
};

struct ax_eval_pass {
    double at[AX_EVAL_MAX_PASS]; /* means over the examples that were asked */
    int64_t correct, cut, generated;
    double seconds;
};

/* Checks the options and reads their lists. */
enum ax_status ax_eval_pass_check(struct ax_eval_pass_options *o, bool solve);
/* Samples answers from a loaded model; called once to plan and once for real. Counts the correct
 * ones in the example's answer. Samples depend on seed, index and prompt, not batch or threads. */
enum ax_status ax_eval_pass_run(struct ax_eval *e, struct ax_eval_pass *p, struct ax_model *m);
json_t *ax_eval_pass_json(const struct ax_eval *e, const struct ax_eval_pass *p);
enum ax_status ax_eval_pass_put(const struct ax_eval *e, const struct ax_eval_pass *p,
                                struct ax_buf *out);
/* The same, as part of a line. */
enum ax_status ax_eval_pass_put_short(const struct ax_eval *e, const struct ax_eval_pass *p,
                                      struct ax_buf *out);

#endif
