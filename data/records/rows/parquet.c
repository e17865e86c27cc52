/* Records of Parquet files: DuckDB turns each into JSON, including lists and structures, and back. */
#include "data/records/rows/parquet.h"

#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/mem.h"
#include "data/records/rows/duckdb.h"
#include "data/records/rows/rows.h"
#include "data/records/rows/reader.h"

struct ax_parquet {
    struct ax_duckdb *query;
    const char *path; /* borrowed */
    uint64_t row;
    struct ax_buf text; /* of a record whose numbers are not all JSON's */
};

/* The path in a string literal of SQL; with its wildcards escaped if it is one to read. */
static enum ax_status quote(struct ax_buf *b, const char *path, bool reads) {
    enum ax_status st = AX_OK;
    for (; *path && st == AX_OK; path++)
        if (*path == '\'')
            st = ax_buf_puts(b, "''");
        else if (reads && (*path == '*' || *path == '?' || *path == '['))
            st = ax_buf_printf(b, "[%c]", *path);
        else
            st = ax_buf_append(b, path, 1);
    return st;
}

enum ax_status ax_parquet_open(struct ax_parquet **out, const char *path) {
    struct ax_parquet *p;
    struct ax_buf sql = {0};
    enum ax_status st;
    AX_TRY(ax_alloc(&p, 1, sizeof *p));
    p->path = path;
    AX_TRY_GOTO(ax_buf_puts(&sql, "SELECT to_json(r)::VARCHAR FROM read_parquet('"), st, done);
    AX_TRY_GOTO(quote(&sql, path, true), st, done);
    AX_TRY_GOTO(ax_buf_puts(&sql, "', hive_partitioning = false) AS r"), st, done);
    st = ax_duckdb_open(&p->query, sql.data);
    if (st != AX_OK)
        st = ax_error_prefix(st, "%s", path);
done:
    ax_buf_free(&sql);
    if (st == AX_OK)
        *out = p;
    else
        ax_parquet_close(p);
    return st;
}

void ax_parquet_close(struct ax_parquet *p) {
    if (p) {
        ax_duckdb_close(p->query);
        ax_buf_free(&p->text);
    }
    ax_free(p);
}

/* Length of a number that JSON lacks, as DuckDB writes it; 0: none. */
static size_t no_number(const char *s) {
    static const char *const all[] = {"NaN", "-NaN", "Infinity", "-Infinity"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strncmp(s, all[i], strlen(all[i])) == 0)
            return strlen(all[i]);
    return 0;
}

/* Columns of floats often have some, be they read or not: they become null, as missing values are. */
static enum ax_status make_json(struct ax_parquet *p, struct ax_row_cut *cut) {
    bool text = false;
    size_t done = 0;
    p->text.len = 0;
    for (size_t i = 0, n; i < cut->len; i += n) {
        n = text && cut->text[i] == '\\' ? 2 : 1;
        text ^= cut->text[i] == '"';
        const size_t odd = text ? 0 : no_number(cut->text + i);
        if (odd == 0)
            continue;
        AX_TRY(ax_buf_append(&p->text, cut->text + done, i - done));
        AX_TRY(ax_buf_puts(&p->text, "null"));
        done = i + (n = odd);
    }
    if (done == 0)
        return AX_OK;
    AX_TRY(ax_buf_append(&p->text, cut->text + done, cut->len - done));
    cut->text = p->text.data;
    cut->len = p->text.len;
    return AX_OK;
}

enum ax_status ax_parquet_next(struct ax_parquet *p, struct ax_row_cut *cut, bool *got) {
    *cut = (struct ax_row_cut){.line = ++p->row};
    const enum ax_status st = ax_duckdb_next(p->query, &cut->text, &cut->len, got);
    if (st != AX_OK)
        return ax_error_prefix(st, "%s:%llu", p->path, (unsigned long long)p->row);
    if (*got && (!cut->text || cut->len > AX_ROWS_MAX_BYTES))
        *cut = (struct ax_row_cut){.line = p->row,
                                   .problem = cut->text ? "a record of more than 16 MiB"
                                                        : "a record that is null"};
    return *got && cut->text ? make_json(p, cut) : AX_OK;
}

static enum ax_status copy_statement(struct ax_buf *sql, const char *jsonl, const char *columns,
                                     const char *to) {
    AX_TRY(ax_buf_puts(sql, "COPY (SELECT * FROM read_json('"));
    AX_TRY(quote(sql, jsonl, true));
    AX_TRY(ax_buf_printf(sql,
                         "', format = 'newline_delimited', maximum_object_size = %zu, "
                         "columns = {%s})) TO '",
                         (size_t)AX_ROWS_MAX_BYTES, columns));
    AX_TRY(quote(sql, to, false));
    return ax_buf_puts(sql, "' (FORMAT parquet)");
}

enum ax_status ax_parquet_from_jsonl(const char *jsonl, const char *columns, const char *to) {
    struct ax_buf sql = {0};
    char *part;
    AX_TRY(ax_sprintf(&part, "%s.part", to));
    enum ax_status st = copy_statement(&sql, jsonl, columns, part);
    if (st == AX_OK)
        st = ax_duckdb_run(sql.data);
    if (st == AX_OK)
        st = ax_rename(part, to);
    else
        (void)unlink(part);
    ax_buf_free(&sql);
    ax_free(part);
    return st;
}
