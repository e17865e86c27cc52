/* UTF-8 checking and repair, and character classes. See unicode.h. */
#include "base/text/unicode.h"

#include <string.h>
#include <utf8proc.h>

#include "base/text/unicode_tables.h"

#define O AX_CHAR_OTHER
#define L AX_CHAR_LETTER
#define N AX_CHAR_NUMBER
#define S AX_CHAR_SPACE
const unsigned char ax_ascii_class[128] = {
    O, O, O, O, O, O, O, O, O, S, S, S, S, S, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O,
    S, O, O, O, O, O, O, O, O, O, O, O, O, O, O, O, N, N, N, N, N, N, N, N, N, N, O, O, O, O, O, O,
    O, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, O, O, O, O, O,
    O, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, O, O, O, O, O,
};
#undef O
#undef L
#undef N
#undef S

/* Bytes after the first for each lead byte, and the range of the second (Unicode table 3-7). */
static int lead_byte(unsigned char c, unsigned char *low, unsigned char *high) {
    *low = 0x80;
    *high = 0xbf;
    if (c >= 0xc2 && c <= 0xdf)
        return 1;
    if (c >= 0xe0 && c <= 0xef) {
        if (c == 0xe0)
            *low = 0xa0;
        if (c == 0xed)
            *high = 0x9f;
        return 2;
    }
    if (c >= 0xf0 && c <= 0xf4) {
        if (c == 0xf0)
            *low = 0x90;
        if (c == 0xf4)
            *high = 0x8f;
        return 3;
    }
    return -1;
}

enum ax_utf8_kind ax_utf8_next(const unsigned char *s, size_t n, size_t *len) {
    unsigned char low, high;
    *len = 1;
    if (s[0] < 0x80)
        return AX_UTF8_VALID;
    int more = lead_byte(s[0], &low, &high);
    if (more < 0)
        return AX_UTF8_INVALID;
    for (int i = 1; i <= more; i++) {
        if ((size_t)i == n)
            return AX_UTF8_CUT;
        if (s[i] < low || s[i] > high)
            return AX_UTF8_INVALID;
        low = 0x80;
        high = 0xbf;
        (*len)++;
    }
    return AX_UTF8_VALID;
}

size_t ax_utf8_check(const char *s, size_t n) {
    const unsigned char *p = (const unsigned char *)s;
    size_t i = 0;
    while (i < n) {
        uint64_t word;
        if (i + sizeof word <= n) {
            memcpy(&word, p + i, sizeof word);
            if ((word & 0x8080808080808080U) == 0) {
                i += sizeof word;
                continue;
            }
        }
        size_t len;
        if (ax_utf8_next(p + i, n - i, &len) != AX_UTF8_VALID)
            return i;
        i += len;
    }
    return n;
}

enum ax_status ax_utf8_repair(struct ax_buf *out, const char *s, size_t n) {
    size_t i = 0;
    AX_TRY(ax_buf_append(out, "", 0)); /* a string even if there is nothing to repair */
    while (i < n) {
        size_t good = ax_utf8_check(s + i, n - i);
        AX_TRY(ax_buf_append(out, s + i, good));
        i += good;
        if (i == n)
            break;
        size_t len;
        (void)ax_utf8_next((const unsigned char *)s + i, n - i, &len);
        AX_TRY(ax_buf_append(out, "\xef\xbf\xbd", 3));
        i += len;
    }
    return AX_OK;
}

enum ax_status ax_utf8_repaired(char **out, const char *s, size_t n) {
    struct ax_buf text = {0};
    const enum ax_status st = ax_utf8_repair(&text, s, n);
    if (st != AX_OK)
        ax_buf_free(&text);
    *out = text.data;
    return st;
}

size_t ax_utf8_encode(uint32_t cp, char out[4]) {
    return (size_t)utf8proc_encode_char((utf8proc_int32_t)cp, (utf8proc_uint8_t *)out);
}

static bool in_ranges(const struct ax_code_range *r, size_t n, uint32_t cp) {
    size_t low = 0, high = n;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (cp > r[mid].last)
            low = mid + 1;
        else
            high = mid;
    }
    return low < n && cp >= r[low].first;
}

/* Two letters of the general category; "Cn" when unassigned. */
static const char *category(uint32_t cp) {
    const char *cat = utf8proc_category_string((utf8proc_int32_t)cp);
    if (cat[1] != 'n' || cat[0] != 'C')
        return cat;
    size_t low = 0, high = ax_unicode_newer_count;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (cp > ax_unicode_newer[mid].last)
            low = mid + 1;
        else
            high = mid;
    }
    bool found = low < ax_unicode_newer_count && cp >= ax_unicode_newer[low].first;
    return found ? ax_unicode_newer[low].category : cat;
}

enum ax_char_class ax_unicode_class(uint32_t cp) {
    if (cp < 128)
        return (enum ax_char_class)ax_ascii_class[cp];
    switch (category(cp)[0]) {
    case 'L':
        return AX_CHAR_LETTER;
    case 'N':
        return AX_CHAR_NUMBER;
    case 'Z':
        return AX_CHAR_SPACE;
    default:
        return cp == 0x85 ? AX_CHAR_SPACE : AX_CHAR_OTHER;
    }
}

unsigned ax_unicode_case(uint32_t cp) {
    const char *cat = category(cp);
    if (cat[0] == 'M')
        return 3;
    if (cat[0] != 'L')
        return 0;
    return cat[1] == 'u' || cat[1] == 't' ? 1 : cat[1] == 'l' ? 2 : 3;
}

bool ax_unicode_is_space(uint32_t cp) {
    return ax_unicode_class(cp) == AX_CHAR_SPACE;
}

bool ax_unicode_is_word(uint32_t cp) {
    if (cp < 128)
        return cp == '_' || ax_ascii_class[cp] == AX_CHAR_LETTER ||
               ax_ascii_class[cp] == AX_CHAR_NUMBER;
    const char *cat = category(cp);
    if (cat[0] == 'L' || cat[0] == 'M' || (cat[0] == 'N' && cat[1] != 'o') ||
        (cat[0] == 'P' && cat[1] == 'c'))
        return true;
    /* Joiners, and circled and squared letters, which are alphabetic symbols. */
    static const struct ax_code_range more[] = {{0x200c, 0x200d},
                                                {0x24b6, 0x24e9},
                                                {0x1f130, 0x1f149},
                                                {0x1f150, 0x1f169},
                                                {0x1f170, 0x1f189}};
    return in_ranges(more, sizeof(more) / sizeof(more[0]), cp);
}

bool ax_unicode_is_numeric(uint32_t cp) {
    return ax_unicode_class(cp) == AX_CHAR_NUMBER ||
           (cp >= 128 && in_ranges(ax_unicode_newer_numbers, ax_unicode_newer_numbers_count, cp));
}

bool ax_unicode_is_punct(uint32_t cp) {
    if (cp < 128)
        return cp > ' ' && cp < 127 && ax_ascii_class[cp] == AX_CHAR_OTHER;
    if (category(cp)[0] == 'P')
        return !in_ranges(ax_unicode_not_punct, ax_unicode_not_punct_count, cp);
    return cp == 0x166d || cp == 0x111c9; /* no longer punctuation in later versions */
}

bool ax_unicode_is_inert(uint32_t cp) {
    return cp >= 0x7fd && in_ranges(ax_unicode_inert, ax_unicode_inert_count, cp);
}

bool ax_unicode_is_accent(uint32_t cp) {
    if (cp == 0x1cf2 || cp == 0x1cf3) /* no longer marks in later versions */
        return true;
    return cp >= 0x300 && category(cp)[0] == 'M' && !ax_unicode_is_inert(cp);
}

int ax_unicode_lower(uint32_t cp, uint32_t out[2]) {
    out[0] = cp;
    if (cp == 0x130) { /* dotted capital I: the only one that maps to two */
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    for (size_t i = 0; i < ax_unicode_newer_lower_count; i++) {
        const struct ax_code_shift *s = &ax_unicode_newer_lower[i];
        if (cp >= s->first && cp <= s->last && (cp - s->first) % s->step == 0) {
            out[0] = (uint32_t)((int32_t)cp + s->shift);
            return 1;
        }
    }
    out[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
    return 1;
}
