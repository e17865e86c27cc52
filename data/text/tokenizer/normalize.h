/* Normalizers: a chain of rewrites applied to text before it is split. */
#ifndef AX_DATA_TEXT_TOKENIZER_NORMALIZE_H
#define AX_DATA_TEXT_TOKENIZER_NORMALIZE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "data/text/tokenizer/aligned.h"
#include "base/text/regex.h"

/* Unicode normal forms C, D, KC, KD of aligned text, as in HF's normalizers: characters newer than
 * their Unicode version (ax_unicode_is_inert) are unchanged. */

enum ax_unicode_form { AX_NFC, AX_NFD, AX_NFKC, AX_NFKD };

struct ax_nfc_char;

/* Scratch; zero-initialize. */
struct ax_nfc_work {
    struct ax_nfc_char *chars;
    size_t n, cap;
};
void ax_nfc_work_free(struct ax_nfc_work *w);

/* True if a quick look at the characters shows that the text is in this form. */
bool ax_nfc_is_plain(enum ax_unicode_form form, const char *s, size_t len);
/* Appends the text in the given form to out. A composed character covers all its sources. */
enum ax_status ax_nfc_write(struct ax_nfc_work *w, enum ax_unicode_form form,
                            const struct ax_piece *in, struct ax_aligned *out);

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

/* Text becomes at most that many times as long, and AX_NORM_SLACK bytes: Unicode's forms make 11 bytes of one,
 * and a step that gives each blank three bytes makes 3. */
#define AX_NORM_GROWTH 64
#define AX_NORM_SLACK  256

/* AX_ERR_DATA: it would become longer. *out is `in` itself if nothing changes, else text in w, valid until the next call. */
enum ax_status ax_normalize(const struct ax_normalizer *n, struct ax_norm_work *w,
                            const struct ax_piece *in, bool track, struct ax_piece *out);

#endif
