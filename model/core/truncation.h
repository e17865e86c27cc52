/* Filters logits in training as sampling with top-k, top-p or min-p does, so that a policy's
 * log-probs belong to the distribution from which its tokens were drawn. A label that the filters
 * would remove stays, because the policy may have changed since it was drawn. */
#ifndef AX_MODEL_CORE_TRUNCATION_H
#define AX_MODEL_CORE_TRUNCATION_H

#include "model/core/sample.h"
#include "parallel/runtime.h"

/* logits [n][its columns of `vocab`, from first_col on], labels i32 [n], in place; unchanged if the
 * sampling does not truncate. */
enum ax_status ax_truncate_logits(struct ax_runtime *rt, const struct ax_sampling *sampling,
                                  int64_t vocab, int64_t first_col, const struct ax_tensor *labels,
                                  const struct ax_tensor *logits);

#endif
