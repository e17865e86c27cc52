/* Running the chain of normalizers. See normalize.h. */
#include "data/text/tokenizer/normalize.h"

#include <string.h>

#include "data/text/tokenizer/byte_level.h"
#include "base/text/unicode.h"

enum ax_status ax_normalizer_add(struct ax_normalizer *n, enum ax_norm_kind kind,
                                 struct ax_norm_step **step) {
    if (n->n == AX_NORM_MAX)
        return ax_error(AX_ERR_UNSUPPORTED, "normalizer: more than %d steps", AX_NORM_MAX);
    *step = &n->steps[n->n++];
    **step = (struct ax_norm_step){.kind = kind};
    return AX_OK;
}

void ax_normalizer_free(struct ax_normalizer *n) {
    for (size_t i = 0; i < n->n; i++) {
        ax_regex_free(n->steps[i].regex);
        ax_free(n->steps[i].text);
    }
    *n = (struct ax_normalizer){.n = 0};
}

void ax_norm_work_free(struct ax_norm_work *w) {
    ax_aligned_free(&w->texts[0]);
    ax_aligned_free(&w->texts[1]);
    ax_nfc_work_free(&w->nfc);
    ax_regex_work_free(&w->regex);
}

static enum ax_status write_lower(const struct ax_piece *in, struct ax_aligned *out) {
    for (size_t i = 0, n; i < in->len; i += n) {
        uint32_t cp = ax_utf8_decode((const unsigned char *)in->s + i, &n), low[2];
        int count = ax_unicode_lower(cp, low);
        for (int k = 0; k < count; k++) {
            char text[4];
            AX_TRY(ax_aligned_put(out, text, ax_utf8_encode(low[k], text),
                                  ax_piece_span(in, i, i + n)));
        }
    }
    return AX_OK;
}

static struct ax_piece stripped(const struct ax_norm_step *step, const struct ax_piece *in) {
    const unsigned char *s = (const unsigned char *)in->s;
    size_t start = 0, end = in->len, n;
    while (step->left && start < end && ax_unicode_is_space(ax_utf8_decode(s + start, &n)))
        start += n;
    while (step->right && end > start && ax_unicode_is_space(ax_utf8_decode_before(s + end, &n)))
        end -= n;
    return ax_piece_part(in, start, end);
}

static enum ax_status write_unaccented(const struct ax_piece *in, struct ax_aligned *out) {
    for (size_t i = 0, n; i < in->len; i += n)
        if (!ax_unicode_is_accent(ax_utf8_decode((const unsigned char *)in->s + i, &n)))
            AX_TRY(ax_aligned_copy(out, in, i, i + n));
    return AX_OK;
}

/* Replaces matches; the replacement's origin is the match's last character. */
static enum ax_status write_replaced(const struct ax_norm_step *step, struct ax_regex_work *w,
                                     const struct ax_piece *in, struct ax_aligned *out) {
    struct ax_regex_iter it = ax_regex_search(step->regex, w, in->s, in->len);
    size_t done = 0;
    for (;;) {
        bool found;
        size_t start, end;
        AX_TRY(ax_regex_next(&it, &found, &start, &end));
        if (!found)
            break;
        AX_TRY(ax_aligned_copy(out, in, done, start));
        struct ax_span from = {0, 0};
        if (end > 0 && in->len > 0)
            from = ax_piece_span(in, end - 1, end);
        AX_TRY(ax_aligned_put(out, step->text, step->text_len, from));
        done = end;
    }
    return ax_aligned_copy(out, in, done, in->len);
}

static enum ax_status write_bytes(const struct ax_piece *in, struct ax_aligned *out) {
    for (size_t i = 0; i < in->len; i++) {
        char c[2];
        size_t n = ax_byte_to_char((unsigned char)in->s[i], c);
        AX_TRY(ax_aligned_put(out, c, n, ax_piece_span(in, i, i + 1)));
    }
    return AX_OK;
}

/* Runs one step. *next is either `in`, if nothing changed, or the text written to out. */
static enum ax_status run_step(const struct ax_norm_step *step, struct ax_norm_work *w,
                               const struct ax_piece *in, struct ax_aligned *out,
                               struct ax_piece *next) {
    *next = *in;
    switch (step->kind) {
    case AX_NORM_UNICODE:
        if (ax_nfc_is_plain(step->form, in->s, in->len))
            return AX_OK;
        AX_TRY(ax_nfc_write(&w->nfc, step->form, in, out));
        break;
    case AX_NORM_LOWERCASE:
        AX_TRY(write_lower(in, out));
        break;
    case AX_NORM_STRIP:
        *next = stripped(step, in);
        return AX_OK;
    case AX_NORM_ACCENTS:
        AX_TRY(write_unaccented(in, out));
        break;
    case AX_NORM_PREPEND:
        AX_TRY(ax_aligned_put(out, step->text, step->text_len, ax_piece_span(in, 0, 1)));
        AX_TRY(ax_aligned_copy(out, in, 0, in->len));
        break;
    case AX_NORM_REPLACE:
        AX_TRY(write_replaced(step, &w->regex, in, out));
        break;
    case AX_NORM_BYTES:
        AX_TRY(write_bytes(in, out));
        break;
    }
    *next = ax_aligned_piece(out);
    return AX_OK;
}

enum ax_status ax_normalize(const struct ax_normalizer *n, struct ax_norm_work *w,
                            const struct ax_piece *in, bool track, struct ax_piece *out) {
    *out = *in;
    for (size_t i = 0, turn = 0; i < n->n && out->len > 0; i++) {
        struct ax_aligned *to = &w->texts[turn];
        struct ax_piece from = *out;
        ax_aligned_start(to, track);
        AX_TRY(run_step(&n->steps[i], w, &from, to, out));
        if (to->len > 0)
            turn = 1 - turn; /* the text is in `to` now */
    }
    return AX_OK;
}
