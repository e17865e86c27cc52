/* Completions as a teacher with another tokenizer reads them. */
#ifndef AX_OPTIM_ROLLOUT_REREAD_H
#define AX_OPTIM_ROLLOUT_REREAD_H

#include "optim/rollout/rollout.h"

/* Sets the teacher's log-probs of all completions' tokens such that each of a span (spans.h) has the same advantage: with
 * s and t what the model and the teacher say of the span, the sums of their tokens' log-probs,
 *
 *   A = log t(span) − log s(span)
 *
 * which is the reward of a policy gradient whose action is the span: its log-prob is the sum of its tokens', each of
 * which so gets the whole A. The end of an answer is a span, too. What is in no span has the advantage 0. */
enum ax_status ax_rollout_reread(struct ax_rollout *r, struct ax_model *teacher, bool *stopped);

#endif
