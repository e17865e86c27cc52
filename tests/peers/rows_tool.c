/* What tests/peers/rows_random.py drives: the records of a file, each a line of JSON.
 *
 *   rows_tool FILE    lines of JSON; exit code 1 with the reason if the file or a record cannot be read */
#include <stdio.h>

#include "data/records/rows/rows.h"

static enum ax_status put_row(const struct ax_rows *rows, const struct ax_raw_row *raw) {
    json_t *row;
    AX_TRY(ax_rows_parse(rows, raw, &row));
    const bool ok = json_dumpf(row, stdout, JSON_COMPACT) == 0 && putchar('\n') == '\n';
    json_decref(row);
    return ok ? AX_OK : ax_error(AX_ERR_IO, "cannot write a record");
}

static enum ax_status put_rows(const char *path) {
    const struct ax_rows_options o = {.path = path};
    struct ax_rows *rows;
    AX_TRY(ax_rows_open(&rows, &o));
    enum ax_status st;
    bool got;
    do {
        struct ax_raw_row raw;
        st = ax_rows_next(rows, &raw, &got);
        if (st == AX_OK && got)
            st = put_row(rows, &raw);
    } while (st == AX_OK && got);
    ax_rows_close(rows);
    return st;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "rows_tool FILE\n");
        return 2;
    }
    if (put_rows(argv[1]) == AX_OK)
        return 0;
    fprintf(stderr, "%s\n", ax_error_text());
    return 1;
}
