/* Columns: what an objective needs for an example besides tokens and labels. Each objective
 * declares its columns in a table; they are stored, packed and passed to its batches unchanged. A
 * value is a 32-bit word: an int32_t or a float. */
#ifndef AX_DATA_RECORDS_FORMAT_COLUMNS_H
#define AX_DATA_RECORDS_FORMAT_COLUMNS_H

#include <stdbool.h>
#include <stddef.h>

#define AX_COLUMNS_MAX 6

enum ax_column_of {
    AX_OF_EXAMPLE, /* one value */
    AX_OF_TOKEN,   /* one per token */
    AX_OF_LABEL    /* one per token, shifted with the labels */
};

struct ax_column {
    const char *name;
    bool is_float;
    enum ax_column_of of;
    int width; /* values in place of each one; 0 = 1 */
};

struct ax_columns {
    struct ax_column list[AX_COLUMNS_MAX];
    int n;
};

static inline size_t ax_column_width(const struct ax_columns *columns, int c) {
    return columns->list[c].width > 0 ? (size_t)columns->list[c].width : 1;
}

/* The widths of the first `end` columns together; columns may be NULL if end is 0. */
static inline size_t ax_columns_width(const struct ax_columns *columns, int end) {
    size_t width = 0;
    for (int c = 0; c < end; c++)
        width += ax_column_width(columns, c);
    return width;
}

/* Words of column c for an example of n tokens. */
static inline size_t ax_column_words(const struct ax_columns *columns, int c, size_t n) {
    return (columns->list[c].of == AX_OF_EXAMPLE ? 1 : n) * ax_column_width(columns, c);
}

/* Words of the first `end` columns; columns may be NULL if end is 0. */
static inline size_t ax_columns_words(const struct ax_columns *columns, int end, size_t n) {
    size_t words = 0;
    for (int c = 0; c < end; c++)
        words += ax_column_words(columns, c, n);
    return words;
}

/* 0 if columns is NULL. */
static inline int ax_columns_count(const struct ax_columns *columns) {
    return columns ? columns->n : 0;
}

#endif
