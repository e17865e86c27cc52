/* An adapter merged into its base model. */
#ifndef AX_CMD_CONVERT_MERGE_H
#define AX_CMD_CONVERT_MERGE_H

#include <stdint.h>

#include "cmd/convert/to_gguf.h"
#include "kernels/dtype.h"

struct ax_merge {
    const char *base, *adapter; /* folders */
    const char *dst;            /* the folder to be; it must not hold anything yet */
    const char *dtype;          /* of the weights; NULL: the base's */
    int threads;
    bool to_gguf;           /* dst is one GGUF file instead, made of that folder, */
    struct ax_to_gguf gguf; /* of this quant (NULL: as the weights); what was written */
    /* out */
    enum ax_dtype written;
    int tensors, matrices;         /* written; of these, with an adapter or saved whole */
    int64_t changed;               /* elements that differ from the base model's */
    double effect, error, largest; /* on the probe's logits: max |adapter − base|,
                                      max |merged − adapter|, max |adapter| */
};
/* AX_ERR_CONFIG: it would change nothing, or has been merged already. AX_ERR_FAILED: the merged
 * model does not answer as the adapter does. */
enum ax_status ax_merge_run(struct ax_merge *m);

#endif
