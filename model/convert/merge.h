/* Merges an adapter into its base model. */
#ifndef AX_MODEL_CONVERT_MERGE_H
#define AX_MODEL_CONVERT_MERGE_H

#include <stdint.h>

#include "model/convert/to_gguf.h"
#include "kernels/dtype.h"

struct ax_merge {
    const char *base, *adapter; /* folders */
    const char *base_name;      /* the base's name as given by the user; NULL: `base` */
    const char *dst;            /* the new folder; must be empty or missing */
    const char *dtype;          /* dtype of the weights; NULL: the base's */
    int threads;
    bool to_gguf; /* dst is one GGUF file instead, made from that folder */
    /* options (quant NULL: as the weights are) and results of writing GGUF */
    struct ax_to_gguf gguf;
    /* out */
    enum ax_dtype written;
    int tensors, matrices; /* tensors written; those with an adapter or saved in full */
    int64_t changed;       /* elements that differ from the base model's */
    double effect, error,
        largest; /* logits of a random batch: max |adapter − base|, max |merged − adapter|,
                                      max |adapter| */
};
/* AX_ERR_CONFIG if the adapter would change nothing or is already merged. AX_ERR_FAILED if the
 * merged model's logits differ from the adapter's. */
enum ax_status ax_merge_run(struct ax_merge *m);

#endif
