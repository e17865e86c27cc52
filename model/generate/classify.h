/* What a classifier says of given documents: the logits at their labeled tokens. */
#ifndef AX_MODEL_GENERATE_CLASSIFY_H
#define AX_MODEL_GENERATE_CLASSIFY_H

#include "data/records/pipeline/sequence.h"
#include "model/model.h"

struct ax_classify_options {
    int64_t tokens;  /* per pass: at least the longest document */
    int max_docs;    /* per pass */
    int64_t max_len; /* longest document */
    bool shared; /* data ranks have documents of their own, of one work: all are called together */
};

/* out [labeled tokens of all documents, in order][n_labels]; labels themselves do not matter.
 * Documents are packed in order, which does not change their values; labels are read where they are
 * (not shifted). On a mesh without stages and context parallelism every rank gets all of its own. Enters
 * AX_PHASE_EVAL; scratch and slots must be empty. While planning runs one full pass, and reads and
 * writes nothing. */
enum ax_status ax_classify(struct ax_model *m, const struct ax_classify_options *o, int n,
                           const struct ax_document *docs, double *out);

#endif
