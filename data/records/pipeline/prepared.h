/* A prepared data set: records → format → examples, or from the cache. */
#ifndef AX_DATA_RECORDS_PIPELINE_PREPARED_H
#define AX_DATA_RECORDS_PIPELINE_PREPARED_H

#include "data/records/pipeline/prepare.h"

struct ax_prepared_options {
    struct ax_rows *rows;
    const struct ax_format *format;
    int64_t max_bad_rows;
    int threads;
    int32_t bos;           /* AX_NO_TOKEN = none */
    const char *cache;     /* folder for prepared sets; NULL: none */
    const char *tokenizer; /* identifies the tokenizer in the cache key */
    bool refresh;          /* rebuilds the set even if it is cached */
};

/* Free with ax_examples_free. */
enum ax_status ax_prepared_open(struct ax_examples *out, const struct ax_prepared_options *o);

#endif
