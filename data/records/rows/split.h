/* Split expressions of data sets: "train", "train[:10%]", "train[-500:]+validation[5:20]"; "train[10:20%]" is
 * "train[10%:20%]". */
#ifndef AX_DATA_RECORDS_ROWS_SPLIT_H
#define AX_DATA_RECORDS_ROWS_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define AX_SPLIT_PARTS_MAX 16

struct ax_split_bound {
    bool set, percent;
    int64_t value; /* negative: from the end */
};

struct ax_split {
    char name[64];
    struct ax_split_bound from, to;
};

/* Up to AX_SPLIT_PARTS_MAX parts. AX_ERR_CONFIG says what is wrong with the text. */
enum ax_status ax_split_parse(const char *text, struct ax_split *parts, size_t *n);
/* True if the bounds depend on the number of records. */
bool ax_split_needs_count(const struct ax_split *s);
/* The records [*from, *to); n_rows is used only if needed. Percentages round to the nearest record,
 * halves to even. */
void ax_split_resolve(const struct ax_split *s, int64_t n_rows, int64_t *from, int64_t *to);

#endif
