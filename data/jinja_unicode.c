/* Stepping through UTF-8 and character classes; the case mappings are in jinja_unicode_case.c. */
#include "data/jinja_unicode.h"

#include <utf8proc.h>

struct range {
    uint32_t first, last;
};

/* Lowercase, but not of category Ll. */
static const struct range other_lowercase[] = {
    {0xaa, 0xaa},       {0xba, 0xba},       {0x2b0, 0x2b8},     {0x2c0, 0x2c1},    {0x2e0, 0x2e4},
    {0x345, 0x345},     {0x37a, 0x37a},     {0x1d2c, 0x1d6a},   {0x1d78, 0x1d78},  {0x1d9b, 0x1dbf},
    {0x2071, 0x2071},   {0x207f, 0x207f},   {0x2090, 0x209c},   {0x2170, 0x217f},  {0x24d0, 0x24e9},
    {0x2c7c, 0x2c7d},   {0xa69c, 0xa69d},   {0xa770, 0xa770},   {0xa7f8, 0xa7f9},  {0xab5c, 0xab5f},
    {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107b0}, {0x107b2, 0x107ba}};

/* Uppercase, but not of category Lu. */
static const struct range other_uppercase[] = {
    {0x2160, 0x216f}, {0x24b6, 0x24cf}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}};

/* Numeric_Type Digit outside category Nd. */
static const struct range other_digit[] = {
    {0xb2, 0xb3},       {0xb9, 0xb9},       {0x1369, 0x1371},   {0x19da, 0x19da},
    {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
    {0x2474, 0x247c},   {0x2488, 0x2490},   {0x24ea, 0x24ea},   {0x24f5, 0x24fd},
    {0x24ff, 0x24ff},   {0x2776, 0x277e},   {0x2780, 0x2788},   {0x278a, 0x2792},
    {0x10a40, 0x10a43}, {0x10e60, 0x10e68}, {0x11052, 0x1105a}, {0x1f100, 0x1f10a}};

/* Numeric_Type Numeric outside the number categories: CJK numerals. */
static const struct range other_numeric[] = {
    {0x3405, 0x3405},   {0x3483, 0x3483},   {0x382a, 0x382a},   {0x3b4d, 0x3b4d},
    {0x4e00, 0x4e00},   {0x4e03, 0x4e03},   {0x4e07, 0x4e07},   {0x4e09, 0x4e09},
    {0x4e5d, 0x4e5d},   {0x4e8c, 0x4e8c},   {0x4e94, 0x4e94},   {0x4e96, 0x4e96},
    {0x4ebf, 0x4ec0},   {0x4edf, 0x4edf},   {0x4ee8, 0x4ee8},   {0x4f0d, 0x4f0d},
    {0x4f70, 0x4f70},   {0x5104, 0x5104},   {0x5146, 0x5146},   {0x5169, 0x5169},
    {0x516b, 0x516b},   {0x516d, 0x516d},   {0x5341, 0x5341},   {0x5343, 0x5345},
    {0x534c, 0x534c},   {0x53c1, 0x53c4},   {0x56db, 0x56db},   {0x58f1, 0x58f1},
    {0x58f9, 0x58f9},   {0x5e7a, 0x5e7a},   {0x5efe, 0x5eff},   {0x5f0c, 0x5f0e},
    {0x5f10, 0x5f10},   {0x62fe, 0x62fe},   {0x634c, 0x634c},   {0x67d2, 0x67d2},
    {0x6f06, 0x6f06},   {0x7396, 0x7396},   {0x767e, 0x767e},   {0x8086, 0x8086},
    {0x842c, 0x842c},   {0x8cae, 0x8cae},   {0x8cb3, 0x8cb3},   {0x8d30, 0x8d30},
    {0x9621, 0x9621},   {0x9646, 0x9646},   {0x964c, 0x964c},   {0x9678, 0x9678},
    {0x96f6, 0x96f6},   {0xf96b, 0xf96b},   {0xf973, 0xf973},   {0xf978, 0xf978},
    {0xf9b2, 0xf9b2},   {0xf9d1, 0xf9d1},   {0xf9d3, 0xf9d3},   {0xf9fd, 0xf9fd},
    {0x20001, 0x20001}, {0x20064, 0x20064}, {0x200e2, 0x200e2}, {0x20121, 0x20121},
    {0x2092a, 0x2092a}, {0x20983, 0x20983}, {0x2098c, 0x2098c}, {0x2099c, 0x2099c},
    {0x20aea, 0x20aea}, {0x20afd, 0x20afd}, {0x20b19, 0x20b19}, {0x22390, 0x22390},
    {0x22998, 0x22998}, {0x23b1b, 0x23b1b}, {0x2626d, 0x2626d}, {0x2f890, 0x2f890}};

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

static bool in_ranges(const struct range *r, size_t n, uint32_t c) {
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (c > r[mid].last) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo < n && c >= r[lo].first;
}

static utf8proc_category_t category(uint32_t c) {
    return utf8proc_category((utf8proc_int32_t)c);
}

uint32_t ax_python_next(const char *s, size_t *pos) {
    const unsigned char *p = (const unsigned char *)s + *pos;
    if (p[0] < 0x80) {
        *pos += 1;
        return p[0];
    }
    if (p[0] < 0xe0) {
        *pos += 2;
        return (uint32_t)(p[0] & 0x1f) << 6 | (p[1] & 0x3f);
    }
    if (p[0] < 0xf0) {
        *pos += 3;
        return (uint32_t)(p[0] & 0x0f) << 12 | (uint32_t)(p[1] & 0x3f) << 6 | (p[2] & 0x3f);
    }
    *pos += 4;
    return (uint32_t)(p[0] & 0x07) << 18 | (uint32_t)(p[1] & 0x3f) << 12 |
           (uint32_t)(p[2] & 0x3f) << 6 | (p[3] & 0x3f);
}

uint32_t ax_python_prev(const char *s, size_t *pos) {
    size_t start = *pos - 1;
    while (start > 0 && ((unsigned char)s[start] & 0xc0) == 0x80) {
        start--;
    }
    *pos = start;
    size_t p = start;
    return ax_python_next(s, &p);
}

size_t ax_python_put(char *out, uint32_t c) {
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3f));
        out[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3f));
    out[2] = (char)(0x80 | (c >> 6 & 0x3f));
    out[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

size_t ax_python_count(const char *s, size_t len) {
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        n += ((unsigned char)s[i] & 0xc0) != 0x80;
    }
    return n;
}

size_t ax_python_offset(const char *s, size_t len, size_t n) {
    size_t i = 0;
    while (n > 0 && i < len) {
        i++;
        while (i < len && ((unsigned char)s[i] & 0xc0) == 0x80) {
            i++;
        }
        n--;
    }
    return i;
}

size_t ax_python_check(const char *s, size_t len) {
    const unsigned char *p = (const unsigned char *)s;
    size_t i = 0;
    while (i < len) {
        size_t n = p[i] < 0x80 ? 1 : p[i] < 0xc2 ? 0 : p[i] < 0xe0 ? 2 : p[i] < 0xf0 ? 3 : 4;
        if (n == 0 || p[i] > 0xf4 || n > len - i) {
            return i;
        }
        for (size_t k = 1; k < n; k++) {
            if ((p[i + k] & 0xc0) != 0x80) {
                return i;
            }
        }
        if (n >= 3) {
            size_t pos = i;
            uint32_t c = ax_python_next(s, &pos);
            if (c < (n == 3 ? 0x800U : 0x10000U) || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) {
                return i;
            }
        }
        i += n;
    }
    return len;
}

bool ax_python_is_space(uint32_t c) {
    if (c < 0x80) {
        return c == ' ' || (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x1f);
    }
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
           c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool ax_python_is_printable(uint32_t c) {
    if (c < 0x7f) {
        return c >= 0x20;
    }
    utf8proc_category_t k = category(c);
    return k != UTF8PROC_CATEGORY_CN && k < UTF8PROC_CATEGORY_ZS;
}

bool ax_python_is_alpha(uint32_t c) {
    utf8proc_category_t k = category(c);
    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool ax_python_is_decimal(uint32_t c) {
    return category(c) == UTF8PROC_CATEGORY_ND;
}

int ax_python_decimal_value(uint32_t c) {
    if (c < 0x80) {
        return c >= '0' && c <= '9' ? (int)c - '0' : -1;
    }
    if (!ax_python_is_decimal(c)) {
        return -1;
    }
    int before = 0; /* decimal digits come in runs of ten, some runs side by side */
    while (ax_python_is_decimal(c - 1 - (uint32_t)before)) {
        before++;
    }
    return before % 10;
}

bool ax_python_is_digit(uint32_t c) {
    return ax_python_is_decimal(c) || in_ranges(other_digit, COUNT(other_digit), c);
}

bool ax_python_is_numeric(uint32_t c) {
    utf8proc_category_t k = category(c);
    return (k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO) ||
           in_ranges(other_numeric, COUNT(other_numeric), c);
}

bool ax_python_is_alnum(uint32_t c) {
    return ax_python_is_alpha(c) || ax_python_is_numeric(c);
}

bool ax_python_is_lower(uint32_t c) {
    return category(c) == UTF8PROC_CATEGORY_LL ||
           in_ranges(other_lowercase, COUNT(other_lowercase), c);
}

bool ax_python_is_upper(uint32_t c) {
    return category(c) == UTF8PROC_CATEGORY_LU ||
           in_ranges(other_uppercase, COUNT(other_uppercase), c);
}

bool ax_python_is_title(uint32_t c) {
    return category(c) == UTF8PROC_CATEGORY_LT;
}

bool ax_python_is_id_start(uint32_t c) {
    return c == '_' || ax_python_is_alpha(c) || category(c) == UTF8PROC_CATEGORY_NL;
}

bool ax_python_is_id_part(uint32_t c) {
    utf8proc_category_t k = category(c);
    return ax_python_is_id_start(c) || k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC ||
           k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_PC;
}
