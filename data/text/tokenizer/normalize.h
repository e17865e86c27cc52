/* Normalizers: a chain of rewrites applied to text before it is split. */
#ifndef AX_DATA_TEXT_TOKENIZER_NORMALIZE_H
#define AX_DATA_TEXT_TOKENIZER_NORMALIZE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "data/text/tokenizer/aligned.h"
#include "data/text/tokenizer/nfc.h"
#include "base/text/regex.h"

enum ax_norm_kind {
    AX_NORM_UNICODE, /* one of the four normal forms */
    AX_NORM_LOWERCASE,
    AX_NORM_STRIP,   /* white space at the left and right end */
    AX_NORM_ACCENTS, /* drops combining marks */
    AX_NORM_PREPEND, /* prepends text to text that is not empty */
    AX_NORM_REPLACE, /* every match of regex becomes text */
    AX_NORM_BYTES    /* each byte becomes its character of the byte alphabet */
};

struct ax_norm_step {
    enum ax_norm_kind kind;
    enum ax_unicode_form form;
    bool left, right; /* STRIP */
    struct ax_regex *regex;
    char *text; /* PREPEND, REPLACE; owned */
    size_t text_len;
};

enum { AX_NORM_MAX = 16 };

struct ax_normalizer {
    struct ax_norm_step steps[AX_NORM_MAX];
    size_t n;
};

/* Adds a step for the caller to fill in; AX_ERR_UNSUPPORTED beyond AX_NORM_MAX. */
enum ax_status ax_normalizer_add(struct ax_normalizer *n, enum ax_norm_kind kind,
                                 struct ax_norm_step **step);
void ax_normalizer_free(struct ax_normalizer *n);

/* Per-thread scratch; zero-initialize. */
struct ax_norm_work {
    struct ax_aligned texts[2];
    struct ax_nfc_work nfc;
    struct ax_regex_work regex;
};
void ax_norm_work_free(struct ax_norm_work *w);

/* *out is `in` itself if nothing changes, else text in w, valid until the next call. */
enum ax_status ax_normalize(const struct ax_normalizer *n, struct ax_norm_work *w,
                            const struct ax_piece *in, bool track, struct ax_piece *out);

#endif
