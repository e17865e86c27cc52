/* Character classes and case mappings of unicode.h. */
#include "data/text/jinja/unicode.h"

#include <utf8proc.h>

static utf8proc_category_t category(uint32_t c) {
    return utf8proc_category((utf8proc_int32_t)c);
}

size_t ax_python_count(const char *s, size_t len) {
    size_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += ((unsigned char)s[i] & 0xc0) != 0x80;
    return n;
}

size_t ax_python_offset(const char *s, size_t len, size_t n) {
    size_t i = 0;
    while (n > 0 && i < len) {
        i++;
        while (i < len && ((unsigned char)s[i] & 0xc0) == 0x80)
            i++;
        n--;
    }
    return i;
}

bool ax_python_is_space(uint32_t c) {
    if (c < 0x80)
        return c == ' ' || (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x1f);
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
           c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool ax_python_is_printable(uint32_t c) {
    if (c < 0x7f)
        return c >= 0x20;
    utf8proc_category_t k = category(c);
    return k != UTF8PROC_CATEGORY_CN && k < UTF8PROC_CATEGORY_ZS;
}

bool ax_python_is_digit(uint32_t c) {
    return category(c) == UTF8PROC_CATEGORY_ND || c == 0xb2 || c == 0xb3 || c == 0xb9 ||
           c == 0x2070 || (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089);
}

bool ax_python_is_cased(uint32_t c) {
    utf8proc_category_t k = category(c);
    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LT;
}

/* Characters whose upper or title case has several characters (Unicode's SpecialCasing). */
static bool is_special(uint32_t c) {
    static const uint32_t ranges[][2] = {{0x149, 0x149},   {0x1f0, 0x1f0},   {0x390, 0x390},
                                         {0x3b0, 0x3b0},   {0x587, 0x587},   {0x1e96, 0x1e9a},
                                         {0x1f50, 0x1f56}, {0x1f80, 0x1fff}, {0xfb00, 0xfb17}};
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        if (c >= ranges[i][0] && c <= ranges[i][1])
            return true;
    return false;
}

size_t ax_python_map(enum ax_jcase to, uint32_t c, uint32_t out[2]) {
    if (to == AX_JCASE_LOWER) {
        out[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
        return c != 0x130; /* U+0130 becomes i and a combining dot */
    }
    if (c == 0xdf) {
        out[0] = 'S';
        out[1] = to == AX_JCASE_UPPER ? 'S' : 's';
        return 2;
    }
    out[0] = (uint32_t)(to == AX_JCASE_UPPER ? utf8proc_toupper((utf8proc_int32_t)c)
                                             : utf8proc_totitle((utf8proc_int32_t)c));
    return !is_special(c);
}
