/* Records as documents for a scorer, tokenized as training does it.
 *
 * Reward model: {prompt, chosen, rejected} gives two scores, {prompt, completion}, {messages} and
 * {text} one. Process reward model: {prompt, completions}, with labels if known, one per step. */
#ifndef AX_OPTIM_EVALUATE_SCORE_RECORDS_H
#define AX_OPTIM_EVALUATE_SCORE_RECORDS_H

#include "model/text/text_scorer.h"
#include "data/records/format/format.h"

struct ax_score_row {
    struct ax_origin origin;
    size_t first, n;              /* range of the document's scores */
    size_t first_label, n_labels; /* range of the labels of its steps; n_labels 0: unknown */
};

/* Must not move while it is open. */
struct ax_score_set {
    struct ax_text_scorer *scorer; /* borrowed */
    struct ax_format *format;
    struct ax_format_work work;
    struct ax_format_chat chat; /* borrowed by the format */
    struct ax_format_answers answers;
    struct ax_format_steps by_step;
    struct ax_example_list list; /* examples of all records */
    size_t n_rows, cap_rows, n_labels, cap_labels, n_scores;
    struct ax_score_row *rows;            /* [n_rows] */
    struct ax_oddities lost[AX_ODDITIES]; /* records whose tools the template leaves out */
    double *labels;                       /* [n_labels]: probability that a step is right */
    double *scores; /* [n_scores]: of an answer, or probability that a step is right */
};
enum ax_status ax_score_set_open(struct ax_score_set *s, struct ax_text_scorer *scorer);
void ax_score_set_close(struct ax_score_set *s); /* safe on a zeroed one */

/* Adds a record, an object that is changed. *too_long: tokens for which the scorer lacks positions;
 * then nothing is added (0: added). NULL: that is AX_ERR_DATA. */
enum ax_status ax_score_set_add(struct ax_score_set *s, json_t *record, struct ax_origin origin,
                                size_t *too_long);
/* Fills `scores`, once. */
enum ax_status ax_score_set_run(struct ax_score_set *s);

#endif
