/* Character classes and case mappings of unicode.h. */
#include "data/text/jinja/unicode.h"

#include <utf8proc.h>

static utf8proc_category_t category(uint32_t c) {
    return utf8proc_category((utf8proc_int32_t)c);
}

struct range {
    uint32_t first, last;
};

/* The ranges are in order. */
static bool is_in(const struct range *ranges, size_t n, uint32_t c) {
    size_t i = 0;
    while (i < n && c > ranges[i].last)
        i++;
    return i < n && c >= ranges[i].first;
}

#define IS_IN(ranges, c) is_in(ranges, sizeof(ranges) / sizeof *(ranges), c)

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

/* Decimal digits, superscripts, subscripts, and those in circles or brackets (Numeric_Type=Digit). */
bool ax_python_is_digit(uint32_t c) {
    static const struct range others[] = {
        {0xb2, 0xb3},       {0xb9, 0xb9},       {0x1369, 0x1371},   {0x19da, 0x19da},
        {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
        {0x2474, 0x247c},   {0x2488, 0x2490},   {0x24ea, 0x24ea},   {0x24f5, 0x24fd},
        {0x24ff, 0x24ff},   {0x2776, 0x277e},   {0x2780, 0x2788},   {0x278a, 0x2792},
        {0x10a40, 0x10a43}, {0x10e60, 0x10e68}, {0x11052, 0x1105a}, {0x1f100, 0x1f10a}};
    return ax_python_is_decimal(c) || IS_IN(others, c);
}

bool ax_python_is_decimal(uint32_t c) {
    return category(c) == UTF8PROC_CATEGORY_ND;
}

/* Letters with case, and modifiers and symbols that look like them (Other_Lowercase, Other_Uppercase). */
bool ax_python_is_cased(uint32_t c) {
    static const struct range others[] = {
        {0xaa, 0xaa},       {0xba, 0xba},       {0x2b0, 0x2b8},     {0x2c0, 0x2c1},
        {0x2e0, 0x2e4},     {0x345, 0x345},     {0x37a, 0x37a},     {0x1d2c, 0x1d6a},
        {0x1d78, 0x1d78},   {0x1d9b, 0x1dbf},   {0x2071, 0x2071},   {0x207f, 0x207f},
        {0x2090, 0x209c},   {0x2160, 0x217f},   {0x24b6, 0x24e9},   {0x2c7c, 0x2c7d},
        {0xa69c, 0xa69d},   {0xa770, 0xa770},   {0xa7f8, 0xa7f9},   {0xab5c, 0xab5f},
        {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107b0}, {0x107b2, 0x107ba},
        {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}};
    const utf8proc_category_t k = category(c);
    return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LT) || IS_IN(others, c);
}

bool ax_python_is_case_ignorable(uint32_t c) {
    static const struct range others[] = {
        {0x27, 0x27},     {0x2e, 0x2e},     {0x3a, 0x3a},     {0xb7, 0xb7},
        {0x387, 0x387},   {0x55f, 0x55f},   {0x5f4, 0x5f4},   {0x2018, 0x2019},
        {0x2024, 0x2024}, {0x2027, 0x2027}, {0xfe13, 0xfe13}, {0xfe52, 0xfe52},
        {0xfe55, 0xfe55}, {0xff07, 0xff07}, {0xff0e, 0xff0e}, {0xff1a, 0xff1a}};
    const utf8proc_category_t k = category(c);
    return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_ME || k == UTF8PROC_CATEGORY_CF ||
           k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_SK || IS_IN(others, c);
}

/* Characters whose upper or title case has several characters (Unicode's SpecialCasing). Those with an
 * iota below have a title case of one. */
static bool is_special(enum ax_jcase to, uint32_t c) {
    static const struct range both[] = {
        {0x149, 0x149},   {0x1f0, 0x1f0},   {0x390, 0x390},   {0x3b0, 0x3b0},   {0x587, 0x587},
        {0x1e96, 0x1e9a}, {0x1f50, 0x1f50}, {0x1f52, 0x1f52}, {0x1f54, 0x1f54}, {0x1f56, 0x1f56},
        {0x1fb2, 0x1fb2}, {0x1fb4, 0x1fb4}, {0x1fb6, 0x1fb7}, {0x1fc2, 0x1fc2}, {0x1fc4, 0x1fc4},
        {0x1fc6, 0x1fc7}, {0x1fd2, 0x1fd3}, {0x1fd6, 0x1fd7}, {0x1fe2, 0x1fe4}, {0x1fe6, 0x1fe7},
        {0x1ff2, 0x1ff2}, {0x1ff4, 0x1ff4}, {0x1ff6, 0x1ff7}, {0xfb00, 0xfb06}, {0xfb13, 0xfb17}};
    static const struct range iotas[] = {{0x1f80, 0x1faf}, {0x1fb3, 0x1fb3}, {0x1fbc, 0x1fbc},
                                         {0x1fc3, 0x1fc3}, {0x1fcc, 0x1fcc}, {0x1ff3, 0x1ff3},
                                         {0x1ffc, 0x1ffc}};
    return IS_IN(both, c) || (to == AX_JCASE_UPPER && IS_IN(iotas, c));
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
    return !is_special(to, c);
}
