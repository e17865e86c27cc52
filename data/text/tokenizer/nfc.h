/* Unicode normal forms C, D, KC, KD of aligned text, as in HF's normalizers: characters newer than
 * their Unicode version (ax_unicode_is_inert) are unchanged. */
#ifndef AX_DATA_TEXT_TOKENIZER_NFC_H
#define AX_DATA_TEXT_TOKENIZER_NFC_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "data/text/tokenizer/aligned.h"

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

#endif
