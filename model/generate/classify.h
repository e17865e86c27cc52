/* A classifier's logits at the labeled tokens of given documents. */
#ifndef AX_MODEL_GENERATE_CLASSIFY_H
#define AX_MODEL_GENERATE_CLASSIFY_H

#include "data/records/pipeline/sequence.h"
#include "model/model.h"

struct ax_classify_options {
    int64_t tokens;  /* per pass: at least the longest document */
    int max_docs;    /* per pass */
    int64_t max_len; /* longest document */
    bool shared;     /* data ranks have different documents of one task, and all call it together */
    /* Asked before each pass, on any rank of a shared task; true ends it on all of them with
     * AX_INTERRUPTED. NULL: nobody is asked. */
    bool (*stop_now)(void *ctx);
    void *ctx;
};

/* out [labeled tokens of all documents, in order][n_labels]; which label a token has does not
 * matter. Documents are packed in order, which does not change their logits; a token's own label
 * marks it (labels are not shifted). Every rank gets the logits of all its documents, which those of
 * cp and of other stages have, too. Enters AX_PHASE_EVAL; scratch and slots must be empty.
 * While planning runs one full pass, and reads and writes nothing. */
enum ax_status ax_classify(struct ax_model *m, const struct ax_classify_options *o, int n,
                           const struct ax_document *docs, double *out);

#endif
