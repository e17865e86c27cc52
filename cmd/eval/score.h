/* `axtrain eval --task reward|prm`: scores of records by a reward model or a process reward model.
 * Private to cmd/eval/ and cmd/eval.c.
 *
 * Records are tokenized as training does it. Reward model: {prompt, chosen, rejected} gives two scores,
 * {prompt, completion}, {messages} and {text} one. Process reward model: {prompt, completions}, with
 * labels if known; the text after each step is what the folder says (AX_STEPS_FILE).
 *
 * Reading order: score_records.c (records → tokens), score.c (the model), score_print.c,
 * score_metrics.c. */
#ifndef AX_CMD_EVAL_SCORE_H
#define AX_CMD_EVAL_SCORE_H

#include "cmd/eval/eval.h"
#include "cmd/eval/score_metrics.h"
#include "cmd/generate/text_side.h"
#include "data/format/format.h"
#include "data/rows/rows.h"
#include "model/classifier.h"

struct ax_score_row {
    uint32_t file; /* for ax_rows_file */
    uint64_t line;
    size_t first, n;              /* its scores: tokens of `scores` */
    size_t first_label, n_labels; /* of its steps; 0: unknown */
};

struct ax_score {
    struct ax_eval *e; /* options, and the open model; borrowed */
    const struct ax_classifier *kind;
    struct ax_text_side side;
    char *separator;
    struct ax_rows *rows;
    struct ax_example_list list; /* of all records */
    size_t n_rows, cap_rows, n_labels, cap_labels, n_scores;
    struct ax_score_row *row; /* [n_rows] */
    double *labels;           /* [n_labels]: probability that a step is right */
    double *scores;           /* [n_scores]: of an answer, or probability that a step is right */
};

/* score_records.c: reads e->data into `list`, `row` and `labels`; `side` is open. */
enum ax_status ax_score_read(struct ax_score *s);
/* score_print.c: a line of JSON per record; the total. */
enum ax_status ax_score_put_rows(const struct ax_score *s, struct ax_buf *out);
enum ax_status ax_score_put_total(const struct ax_score *s, bool json, struct ax_buf *out);

/* All of it, from an eval whose options are set: writes rows to -o, and to `out` what is printed. */
enum ax_status ax_eval_score(struct ax_eval *e, const struct ax_classifier *kind,
                             struct ax_buf *out);

#endif
