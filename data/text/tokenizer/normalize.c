/* Normal forms, and the chain of normalizers. Read ax_normalize first. */
#include "data/text/tokenizer/normalize.h"

#include <string.h>
#include <utf8proc.h>

#include "base/mem.h"
#include "base/text/unicode.h"
#include "data/text/tokenizer/byte_level.h"

/* ---- normal forms ----
 *
 * Unicode normalization that tracks origins (Unicode Standard Annex 15). libutf8proc supplies
 * character data and pairwise composition; its own loops neither track origins nor sort long runs
 * of marks in less than quadratic time. */

struct ax_nfc_char {
    uint32_t cp;
    uint32_t ccc; /* canonical combining class; 0 = starter */
    bool inert;
    struct ax_span from;
};

static bool composes(enum ax_unicode_form form) {
    return form == AX_NFC || form == AX_NFKC;
}

/* Starters that are their own normal form and never compose with a preceding character, so that
 * a text may be split before each of them. Only ranges that are worth checking; other characters
 * are normalized in full. */
static bool stable(enum ax_unicode_form form, uint32_t cp) {
    static const struct {
        uint32_t first, last;
        unsigned forms; /* bit per form */
    } ranges[] = {
        {0x0, 0x9f, 15},      {0xa0, 0xbf, 3},      {0xc0, 0x2ff, 1},    {0x400, 0x482, 5},
        {0x1e00, 0x1eff, 1},  {0x2010, 0x2027, 1},  {0x3041, 0x3096, 5}, {0x30a1, 0x30fa, 5},
        {0x3400, 0x4dbf, 15}, {0x4e00, 0x9fff, 15}, {0xac00, 0xd7a3, 5}, {0x1f300, 0x1faff, 15},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0] && cp >= ranges[i].first; i++)
        if (cp <= ranges[i].last)
            return (ranges[i].forms >> form & 1) != 0;
    return false;
}

bool ax_nfc_is_plain(enum ax_unicode_form form, const char *s, size_t len) {
    size_t n;
    for (size_t i = 0; i < len; i += n) {
        n = 1;
        if ((unsigned char)s[i] >= 0x80 &&
            !stable(form, ax_utf8_decode((const unsigned char *)s + i, &n)))
            return false;
    }
    return true;
}

static enum ax_status add_char(struct ax_nfc_work *w, uint32_t cp, bool inert,
                               struct ax_span from) {
    AX_TRY(ax_grow(&w->chars, w->n, &w->cap, sizeof *w->chars));
    int ccc = inert ? 0 : utf8proc_get_property((utf8proc_int32_t)cp)->combining_class;
    w->chars[w->n++] = (struct ax_nfc_char){cp, (uint32_t)ccc, inert, from};
    return AX_OK;
}

/* Appends the full decomposition of a character. */
static enum ax_status decompose(struct ax_nfc_work *w, enum ax_unicode_form form, uint32_t cp,
                                struct ax_span from) {
    if (ax_unicode_is_inert(cp))
        return add_char(w, cp, true, from);
    utf8proc_int32_t parts[32]; /* the longest has 18 */
    bool compat = form == AX_NFKC || form == AX_NFKD;
    int options = UTF8PROC_DECOMPOSE | (compat ? UTF8PROC_COMPAT : 0), class = 0;
    utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)cp, parts, 32,
                                                 (utf8proc_option_t)options, &class);
    for (utf8proc_ssize_t i = 0; i < n; i++)
        AX_TRY(add_char(w, (uint32_t)parts[i], false, from));
    return AX_OK;
}

/* Sorts a run of marks by class, keeping the order of equals: by insertion, or by 256 counters when
 * the run is long. */
static enum ax_status sort_marks(struct ax_nfc_char *c, size_t n) {
    if (n <= 32) {
        for (size_t i = 1; i < n; i++) {
            struct ax_nfc_char x = c[i];
            size_t j = i;
            for (; j > 0 && c[j - 1].ccc > x.ccc; j--)
                c[j] = c[j - 1];
            c[j] = x;
        }
        return AX_OK;
    }
    size_t begin[257] = {0};
    struct ax_nfc_char *sorted;
    AX_TRY(ax_alloc(&sorted, n, sizeof *sorted));
    for (size_t i = 0; i < n; i++)
        begin[c[i].ccc + 1]++;
    for (size_t i = 1; i < 257; i++)
        begin[i] += begin[i - 1];
    for (size_t i = 0; i < n; i++)
        sorted[begin[c[i].ccc]++] = c[i];
    for (size_t i = 0; i < n; i++)
        c[i] = sorted[i];
    ax_free(sorted);
    return AX_OK;
}

static enum ax_status order(struct ax_nfc_work *w) {
    for (size_t i = 0, end; i < w->n; i = end) {
        for (end = i + 1; end < w->n && w->chars[i].ccc != 0 && w->chars[end].ccc != 0;)
            end++;
        AX_TRY(sort_marks(w->chars + i, end - i));
    }
    return AX_OK;
}

/* The character that a and b compose to; 0 if there is none. */
static uint32_t composite(const struct ax_nfc_char *a, const struct ax_nfc_char *b) {
    utf8proc_int32_t pair[2] = {(utf8proc_int32_t)a->cp, (utf8proc_int32_t)b->cp};
    if (a->inert || b->inert)
        return 0;
    utf8proc_ssize_t n =
        utf8proc_normalize_utf32(pair, 2, (utf8proc_option_t)(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    return n == 1 && !ax_unicode_is_inert((uint32_t)pair[0]) ? (uint32_t)pair[0] : 0;
}

/* A mark composes with the last starter unless another starter, or a mark of the same or a
 * higher class, is between them. */
static void compose(struct ax_nfc_work *w) {
    struct ax_nfc_char *c = w->chars;
    size_t kept = 0, starter = SIZE_MAX;
    for (size_t i = 0; i < w->n; i++) {
        bool blocked =
            starter == SIZE_MAX ||
            (kept > starter + 1 && (c[kept - 1].ccc == 0 || c[kept - 1].ccc >= c[i].ccc));
        uint32_t whole = blocked ? 0 : composite(&c[starter], &c[i]);
        if (whole != 0) {
            c[starter].cp = whole;
            if (c[i].from.end > c[starter].from.end)
                c[starter].from.end = c[i].from.end;
            continue;
        }
        if (c[i].ccc == 0)
            starter = kept;
        c[kept++] = c[i];
    }
    w->n = kept;
}

static enum ax_status write_run(struct ax_nfc_work *w, enum ax_unicode_form form,
                                const struct ax_piece *in, size_t start, size_t end,
                                struct ax_aligned *out) {
    w->n = 0;
    for (size_t i = start, n; i < end; i += n) {
        uint32_t cp = ax_utf8_decode((const unsigned char *)in->s + i, &n);
        AX_TRY(decompose(w, form, cp, ax_piece_span(in, i, i + n)));
    }
    AX_TRY(order(w));
    if (composes(form))
        compose(w);
    for (size_t i = 0; i < w->n; i++) {
        char text[4];
        size_t n = ax_utf8_encode(w->chars[i].cp, text);
        AX_TRY(ax_aligned_put(out, text, n, w->chars[i].from));
    }
    return AX_OK;
}

enum ax_status ax_nfc_write(struct ax_nfc_work *w, enum ax_unicode_form form,
                            const struct ax_piece *in, struct ax_aligned *out) {
    const unsigned char *s = (const unsigned char *)in->s;
    size_t done = 0, n;
    for (size_t i = 0; i < in->len;) {
        /* A run: one character and all unstable ones that follow it. */
        bool plain = stable(form, ax_utf8_decode(s + i, &n));
        size_t end = i + n;
        for (; end < in->len && !stable(form, ax_utf8_decode(s + end, &n)); end += n)
            plain = false;
        if (!plain) {
            AX_TRY(ax_aligned_copy(out, in, done, i));
            AX_TRY(write_run(w, form, in, i, end, out));
            done = end;
        }
        i = end;
    }
    return ax_aligned_copy(out, in, done, in->len);
}

void ax_nfc_work_free(struct ax_nfc_work *w) {
    ax_free(w->chars);
    *w = (struct ax_nfc_work){0};
}

/* ---- the chain of normalizers ---- */

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
    const size_t most = in->len * AX_NORM_GROWTH + AX_NORM_SLACK;
    *out = *in;
    for (size_t i = 0, turn = 0; i < n->n && out->len > 0; i++) {
        struct ax_aligned *to = &w->texts[turn];
        struct ax_piece from = *out;
        ax_aligned_start(to, track);
        to->most = most;
        const enum ax_status st = run_step(&n->steps[i], w, &from, to, out);
        if (st == AX_ERR_DATA)
            return ax_error_prefix(st,
                                   "tokenizer.json: step %zu of the normalizer makes of %zu bytes "
                                   "of text",
                                   i + 1, in->len);
        AX_TRY(st);
        if (to->len > 0)
            turn = 1 - turn; /* the text is in `to` now */
    }
    return AX_OK;
}
