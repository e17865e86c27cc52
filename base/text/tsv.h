/* Tables in tab-separated text, whose first line names the columns. */
#ifndef AX_BASE_TEXT_TSV_H
#define AX_BASE_TEXT_TSV_H

#include <stdbool.h>

#include "base/status.h"

struct ax_tsv {
    char *path, *text; /* owned */
    int n_columns, n_rows;
    const char **cells; /* [1 + n_rows][n_columns], the header first; owned, pointing into text */
};

/* At most 16 MiB. AX_ERR_CONFIG if it is empty, or names the line that has another number of columns. */
enum ax_status ax_tsv_read(struct ax_tsv *t, const char *path);
void ax_tsv_free(struct ax_tsv *t);
/* −1 if there is none. */
int ax_tsv_column(const struct ax_tsv *t, const char *name);
/* "" where the column is −1. */
const char *ax_tsv_cell(const struct ax_tsv *t, int row, int column);
/* The line of the file that a row is on. */
int ax_tsv_line(int row);
/* A number, perhaps followed by "?" (*inferred: whether; may be NULL). AX_ERR_CONFIG if it is none. */
enum ax_status ax_tsv_number(const struct ax_tsv *t, int row, int column, double *out,
                             bool *inferred);

#endif
