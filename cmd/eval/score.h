/* `axtrain eval --task reward|prm`: scores of records by a reward model or a process reward model.
 * Private to cmd/eval/ and cmd/eval.c.
 *
 * Reading order: model/text/text_scorer.h (the model and its documents), score.c (the command),
 * score_print.c, score_metrics.c. */
#ifndef AX_CMD_EVAL_SCORE_H
#define AX_CMD_EVAL_SCORE_H

#include "cmd/eval/eval.h"
#include "optim/evaluate/score/steps.h"
#include "optim/evaluate/score/records.h"
#include "data/records/rows/rows.h"

struct ax_score {
    const struct ax_eval *e; /* the evaluation's options */
    struct ax_text_scorer scorer;
    struct ax_rows *rows;
    struct ax_score_set set; /* scores of all records */
};

/* score_print.c: a line of JSON per record; the total. */
enum ax_status ax_score_put_rows(const struct ax_score *s, struct ax_buf *out);
enum ax_status ax_score_put_total(const struct ax_score *s, bool json, struct ax_buf *out);

/* Runs the scoring of an eval whose options are set: writes rows to -o, and the printed results to
 * `out`. */
enum ax_status ax_eval_score(struct ax_eval *e, const struct ax_classifier *kind,
                             struct ax_buf *out);

#endif
