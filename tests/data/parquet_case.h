/* What the tests of Parquet files share: their rows as text. Include after cmocka.h. */
#ifndef AX_TESTS_DATA_PARQUET_CASE_H
#define AX_TESTS_DATA_PARQUET_CASE_H

#include "data/records/rows/rows.h"
#include "tests/data/scratch.h"

/* Appends "LINE JSON" of every row. */
static inline enum ax_status list_rows(const struct ax_rows_options *o, struct ax_buf *out) {
    struct ax_rows *r;
    struct ax_raw_row row;
    bool got = true;
    AX_TRY(ax_rows_open(&r, o));
    enum ax_status st = AX_OK;
    while (st == AX_OK && (st = ax_rows_next(r, &row, &got)) == AX_OK && got) {
        json_t *v = NULL;
        st = ax_rows_parse(r, &row, &v);
        char *text = st == AX_OK ? json_dumps(v, JSON_COMPACT) : NULL;
        if (text)
            st = ax_buf_printf(out, "%llu %s\n", (unsigned long long)row.line, text);
        ax_free(text);
        json_decref(v);
    }
    ax_rows_close(r);
    return st;
}

/* The same, and nothing of it stays in memory. */
static inline void check(const struct ax_rows_options *o, const char *want) {
    const uint64_t live = ax_mem_live_blocks();
    struct ax_buf got = {0};
    if (list_rows(o, &got) != AX_OK)
        fail_msg("%s", ax_error_text());
    assert_string_equal(got.data ? got.data : "", want);
    ax_buf_free(&got);
    assert_int_equal(ax_mem_live_blocks(), live);
}

#endif
