/* Adapters of the embedding and the head. */
#ifndef AX_MODEL_ADAPTER_EMBED_H
#define AX_MODEL_ADAPTER_EMBED_H

#include "model/core/pass.h"

/* No-ops if the embedding has no adapter. out [T][D] += the adapter's contribution for tokens i32 [T],
 * before the sum over ranks. */
enum ax_status ax_adapter_embed_forward(const struct ax_pass *p, const struct ax_tensor *tokens,
                                        const struct ax_tensor *out);
enum ax_status ax_adapter_embed_backward(const struct ax_pass *p, const struct ax_tensor *tokens,
                                         const struct ax_tensor *stream);
/* For `rows` of the batch (i32; data NULL: no dropout): logits += and dhidden += the adapter's
 * contribution; w is the head's matrix. */
enum ax_status ax_adapter_head_forward(const struct ax_pass *p, const struct ax_tensor *rows,
                                       const struct ax_tensor *hidden, const struct ax_tensor *w,
                                       const struct ax_tensor *logits);
enum ax_status ax_adapter_head_backward(const struct ax_pass *p, const struct ax_tensor *rows,
                                        const struct ax_tensor *hidden, const struct ax_tensor *w,
                                        const struct ax_tensor *dlogits,
                                        const struct ax_tensor *dhidden);

#endif
