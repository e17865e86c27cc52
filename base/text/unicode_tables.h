/* Character data that the libraries lack; the tables are generated (see unicode_tables.c). */
#ifndef AX_BASE_TEXT_UNICODE_TABLES_H
#define AX_BASE_TEXT_UNICODE_TABLES_H

#include <stddef.h>
#include <stdint.h>

struct ax_code_range {
    uint32_t first, last;
};

struct ax_code_category {
    uint32_t first, last;
    char category[3]; /* "Lu" */
};

struct ax_code_shift {
    uint32_t first, last;
    int32_t shift;
    uint32_t step;
};

extern const struct ax_code_category ax_unicode_newer[];
extern const size_t ax_unicode_newer_count;
extern const struct ax_code_range ax_unicode_newer_numbers[];
extern const size_t ax_unicode_newer_numbers_count;
extern const struct ax_code_range ax_unicode_not_punct[];
extern const size_t ax_unicode_not_punct_count;
extern const struct ax_code_range ax_unicode_inert[];
extern const size_t ax_unicode_inert_count;
extern const struct ax_code_shift ax_unicode_newer_lower[];
extern const size_t ax_unicode_newer_lower_count;

#endif
