/* Log-probs of a teacher that a server has, for documents whose objective needs them: they become the columns that
 * stored log-probs have (optim/losses/distill.h). Of the ranks with the same documents, one asks. */
#ifndef AX_OPTIM_EVALUATE_ASKED_H
#define AX_OPTIM_EVALUATE_ASKED_H

#include "data/records/pipeline/sequence.h"
#include "data/remote/teacher.h"
#include "model/parts/head.h"

/* Fills the columns of n documents, where they have labels; all ranks together, each with its own documents. Sets
 * *stopped, on all ranks alike, if one of them was asked to stop: then columns are not filled. */
enum ax_status ax_asked_fill(struct ax_runtime *rt, const struct ax_remote_teacher *teacher,
                             const struct ax_distill_options *o, int64_t n,
                             const struct ax_document *const *docs, bool *stopped);
/* Log-probs of n texts alone, likewise; without texts, waits for the ranks that have some. */
enum ax_status ax_asked_read(struct ax_runtime *rt, const struct ax_remote_teacher *teacher,
                             int64_t n, const struct ax_remote_text *texts, bool *stopped);

#endif
