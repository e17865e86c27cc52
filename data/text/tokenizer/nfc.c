/* Unicode normalization that tracks origins (Unicode Standard Annex 15). libutf8proc supplies
 * character data and pairwise composition; its own loops neither track origins nor sort long runs
 * of marks in less than quadratic time. */
#include "data/text/tokenizer/nfc.h"

#include <utf8proc.h>

#include "base/text/unicode.h"

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
    if (w->n == w->cap) {
        size_t cap = w->cap > 0 ? 2 * w->cap : 64;
        AX_TRY(ax_regrow(&w->chars, w->n, cap, sizeof *w->chars));
        w->cap = cap;
    }
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
