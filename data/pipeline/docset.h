/* A data set made ready: rows → format → documents, from the cache where it has them already. */
#ifndef AX_DATA_PIPELINE_DOCSET_H
#define AX_DATA_PIPELINE_DOCSET_H

#include "data/pipeline/docs.h"
#include "data/pipeline/prepare.h"

/* What was seen while the documents were made. */
struct ax_docset_info {
    struct ax_bad_rows bad;
    int64_t ends, ends_trained; /* tokens that end a turn or document, and how many are trained */
    int64_t double_bos;         /* documents that begin with BOS twice */
    int64_t pads_trained;       /* trained tokens with the id of the pad token */
};

struct ax_docset {
    struct ax_docs docs;
    struct ax_docset_info info;
    bool from_cache;
};

struct ax_docset_options {
    struct ax_rows *rows;
    const struct ax_format *format;
    int64_t max_bad_rows;
    int threads;
    int32_t bos, pad;      /* AX_NO_TOKEN = none */
    const char *cache;     /* folder for prepared sets; NULL: none */
    const char *tokenizer; /* tells tokenizers apart, for the cache's key */
    bool refresh;          /* makes the set anew even where the cache has it */
};

enum ax_status ax_docset_open(struct ax_docset *out, const struct ax_docset_options *o);
void ax_docset_close(struct ax_docset *d);

#endif
