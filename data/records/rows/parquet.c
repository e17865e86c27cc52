/* DuckDB: the library, and a query; records of Parquet files, each of which it turns into JSON, including
 * lists and structures, and back. */
#include "data/records/rows/parquet.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/dynlib.h"
#include "base/io.h"
#include "base/mem.h"
#include "data/records/rows/reader.h"
#include "data/records/rows/rows.h"

#define NPM_PACKAGE "@duckdb/node-bindings-linux-x64" /* also in tools/get-duckdb */

/* ---- the library: functions as DuckDB's C API documents them (1.0 and later) ---- */

/* duckdb_result */
struct result {
    uint64_t column_count, row_count, rows_changed;
    void *columns;
    char *error;
    void *internal;
};

/* duckdb_string_t: up to 12 bytes of text are stored in the value itself. */
union text {
    struct {
        uint32_t length;
        char text[12];
    } here;
    struct {
        uint32_t length;
        char prefix[4];
        const char *ptr;
    } there;
};
_Static_assert(sizeof(union text) == 16, "as in the library");

static struct {
    int (*create_config)(void **config);
    int (*set_config)(void *config, const char *name, const char *value);
    void (*destroy_config)(void **config);
    int (*open)(const char *path, void **database, void *config, char **error);
    void (*free)(void *p);
    int (*connect)(void *database, void **connection);
    int (*prepare)(void *connection, const char *sql, void **statement);
    const char *(*prepare_error)(void *statement);
    int (*pending)(void *statement, void **pending);
    const char *(*pending_error)(void *pending);
    int (*execute_pending)(void *pending, struct result *result);
    const char *(*result_error)(struct result *result);
    void *(*fetch_chunk)(struct result result);
    uint64_t (*chunk_size)(void *chunk);
    void *(*chunk_vector)(void *chunk, uint64_t column);
    void *(*vector_data)(void *vector);
    uint64_t *(*vector_validity)(void *vector);
    void (*destroy_chunk)(void **chunk);
    void (*destroy_result)(struct result *result);
    void (*destroy_pending)(void **pending);
    void (*destroy_statement)(void **statement);
    void (*disconnect)(void **connection);
    void (*close)(void **database);
} lib;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct ax_error_record opening; /* the result of opening the library, for every thread */

/* Where `npm install --prefix ~/.local/lib/axtrain` puts the library. */
static enum ax_status installed(char **path) {
    const char *home = getenv("HOME");
    return ax_sprintf(path, "%s/.local/lib/axtrain/node_modules/" NPM_PACKAGE "/libduckdb.so",
                      home ? home : "");
}

static enum ax_status open_library(void) {
    const char *named = getenv("AXTRAIN_DUCKDB");
    char *path;
    AX_TRY(installed(&path));
    const char *const chosen[] = {named, NULL};
    const char *const names[] = {"libduckdb.so", path, NULL};
    const struct ax_symbol symbols[] = {
        {"duckdb_create_config", &lib.create_config},
        {"duckdb_set_config", &lib.set_config},
        {"duckdb_destroy_config", &lib.destroy_config},
        {"duckdb_open_ext", &lib.open},
        {"duckdb_free", &lib.free},
        {"duckdb_connect", &lib.connect},
        {"duckdb_prepare", &lib.prepare},
        {"duckdb_prepare_error", &lib.prepare_error},
        {"duckdb_pending_prepared_streaming", &lib.pending},
        {"duckdb_pending_error", &lib.pending_error},
        {"duckdb_execute_pending", &lib.execute_pending},
        {"duckdb_result_error", &lib.result_error},
        {"duckdb_fetch_chunk", &lib.fetch_chunk},
        {"duckdb_data_chunk_get_size", &lib.chunk_size},
        {"duckdb_data_chunk_get_vector", &lib.chunk_vector},
        {"duckdb_vector_get_data", &lib.vector_data},
        {"duckdb_vector_get_validity", &lib.vector_validity},
        {"duckdb_destroy_data_chunk", &lib.destroy_chunk},
        {"duckdb_destroy_result", &lib.destroy_result},
        {"duckdb_destroy_pending", &lib.destroy_pending},
        {"duckdb_destroy_prepare", &lib.destroy_statement},
        {"duckdb_disconnect", &lib.disconnect},
        {"duckdb_close", &lib.close},
    };
    const enum ax_status st = ax_library_open(named && *named ? chosen : names, symbols,
                                              sizeof symbols / sizeof *symbols);
    ax_free(path);
    if (st == AX_OK)
        return AX_OK;
    return ax_error_prefix(
        st, "cannot open DuckDB's library (1.1 or later), which reads Parquet files. Install it "
            "with `npm install --prefix ~/.local/lib/axtrain " NPM_PACKAGE
            "`, or set AXTRAIN_DUCKDB to the path of a libduckdb.so");
}

static void open_once(void) {
    ax_error_save(&opening, open_library());
}

/* ---- a query ---- */

struct ax_duckdb {
    void *database, *connection, *statement, *pending, *chunk;
    struct result result;
    bool has_result;
    uint64_t row, n; /* of the chunk */
};

static enum ax_status refuse(const char *why) {
    const size_t n = why ? strcspn(why, "\n") : 0;
    return ax_error(AX_ERR_DATA, "%.*s", (int)n, why ? why : "");
}

static enum ax_status open_database(struct ax_duckdb *d) {
    static const char *const settings[][2] = {
        {"threads", "1"},
        {"memory_limit", "1GiB"},
        {"temp_directory", ""},
        {"autoinstall_known_extensions", "false"},
        {"autoload_known_extensions", "false"},
    };
    void *config;
    char *error = NULL;
    if (lib.create_config(&config) != 0)
        return ax_error(AX_ERR_NOMEM, "out of memory for DuckDB");
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        (void)lib.set_config(config, settings[i][0], settings[i][1]);
    enum ax_status st = AX_OK;
    if (lib.open(":memory:", &d->database, config, &error) != 0)
        st = refuse(error);
    lib.free(error);
    lib.destroy_config(&config);
    AX_TRY(st);
    if (lib.connect(d->database, &d->connection) != 0)
        return ax_error(AX_ERR_FAILED, "cannot connect to DuckDB");
    return AX_OK;
}

static enum ax_status start(struct ax_duckdb *d, const char *sql) {
    AX_TRY(open_database(d));
    if (lib.prepare(d->connection, sql, &d->statement) != 0)
        return refuse(lib.prepare_error(d->statement));
    if (lib.pending(d->statement, &d->pending) != 0)
        return refuse(lib.pending_error(d->pending));
    d->has_result = true;
    if (lib.execute_pending(d->pending, &d->result) != 0)
        return refuse(lib.result_error(&d->result));
    return AX_OK;
}

enum ax_status ax_duckdb_open(struct ax_duckdb **out, const char *sql) {
    struct ax_duckdb *d;
    (void)pthread_once(&once, open_once);
    const enum ax_status library = opening.st;
    if (library != AX_OK) {
        (void)ax_error_restore(&opening);
        return library;
    }
    AX_TRY(ax_alloc(&d, 1, sizeof *d));
    const enum ax_status st = start(d, sql);
    if (st == AX_OK)
        *out = d;
    else
        ax_duckdb_close(d);
    return st;
}

void ax_duckdb_close(struct ax_duckdb *d) {
    if (!d)
        return;
    if (d->chunk)
        lib.destroy_chunk(&d->chunk);
    if (d->has_result)
        lib.destroy_result(&d->result);
    if (d->pending)
        lib.destroy_pending(&d->pending);
    if (d->statement)
        lib.destroy_statement(&d->statement);
    if (d->connection)
        lib.disconnect(&d->connection);
    if (d->database)
        lib.close(&d->database);
    ax_free(d);
}

/* The next nonempty chunk; d->chunk = NULL at the end. */
static enum ax_status next_chunk(struct ax_duckdb *d) {
    do {
        if (d->chunk)
            lib.destroy_chunk(&d->chunk);
        d->row = 0;
        d->chunk = lib.fetch_chunk(d->result);
        d->n = d->chunk ? lib.chunk_size(d->chunk) : 0;
    } while (d->chunk && d->n == 0);
    const char *why = d->chunk ? NULL : lib.result_error(&d->result);
    return why ? refuse(why) : AX_OK;
}

/* Carries out a statement, and drops what it answers. Errors as above. */
static enum ax_status run_statement(const char *sql) {
    struct ax_duckdb *d;
    enum ax_status st = ax_duckdb_open(&d, sql);
    if (st != AX_OK)
        return st;
    do
        st = next_chunk(d);
    while (st == AX_OK && d->chunk);
    ax_duckdb_close(d);
    return st;
}

enum ax_status ax_duckdb_next(struct ax_duckdb *d, const char **text, size_t *len, bool *got) {
    if (d->row == d->n)
        AX_TRY(next_chunk(d));
    *got = d->chunk != NULL;
    if (!*got)
        return AX_OK;
    void *vector = lib.chunk_vector(d->chunk, 0);
    const union text *value = (const union text *)lib.vector_data(vector) + d->row;
    const uint64_t *valid = lib.vector_validity(vector); /* NULL: no nulls */
    const bool is_null = valid && !(valid[d->row / 64] >> (d->row % 64) & 1U);
    *len = is_null ? 0 : value->here.length;
    *text = is_null ? NULL : *len <= sizeof value->here.text ? value->here.text : value->there.ptr;
    d->row++;
    return AX_OK;
}

/* ---- records of Parquet files ---- */

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

/* A query about the file, whose path stands between two parts of it. */
static enum ax_status open_query(struct ax_duckdb **out, const char *before, const char *path,
                                 const char *after) {
    struct ax_buf sql = {0};
    enum ax_status st = ax_buf_puts(&sql, before);
    if (st == AX_OK)
        st = quote(&sql, path, true);
    if (st == AX_OK)
        st = ax_buf_puts(&sql, after);
    if (st == AX_OK)
        st = ax_duckdb_open(out, sql.data);
    ax_buf_free(&sql);
    return st;
}

/* ---- columns that DuckDB would change ----
 *
 * Of two names that differ only in case it gives the second a number, and it reads decimals of more than
 * 38 digits as other numbers. */

#define DECIMAL_DIGITS 38

struct column {
    char *name;
    size_t group;    /* the one it is a member of; the first column, which has all, is in itself */
    uint64_t n_left; /* members that are still to come */
};

struct schema {
    struct column *columns;
    size_t n, group; /* group: of the next one */
};

static enum ax_status check_column(const struct schema *s, const struct column *c,
                                   uint64_t digits) {
    if (digits > DECIMAL_DIGITS)
        return ax_error(AX_ERR_DATA,
                        "column \"%s\": decimals of %llu digits, of which DuckDB reads %d; convert "
                        "them to texts or floats",
                        c->name, (unsigned long long)digits, DECIMAL_DIGITS);
    for (const struct column *b = s->columns + 1; b < c; b++)
        if (b->group == c->group && strcasecmp(b->name, c->name) == 0)
            return ax_error(AX_ERR_DATA,
                            "the columns \"%s\" and \"%s\" have one name for DuckDB, which ignores "
                            "case; rename one of them",
                            b->name, c->name);
    return AX_OK;
}

/* Adds "MEMBERS DIGITS NAME"; groups come before their members. */
static enum ax_status add_column(struct schema *s, const char *text, size_t len) {
    char *at;
    AX_ASSERT(text); /* concat gives no NULL */
    const uint64_t n_members = strtoull(text, &at, 10), digits = strtoull(at, &at, 10);
    AX_TRY(ax_regrow(&s->columns, s->n, s->n + 1, sizeof *s->columns));
    struct column *c = &s->columns[s->n];
    *c = (struct column){.group = s->group, .n_left = n_members};
    AX_TRY(ax_strndup(&c->name, at + 1, (size_t)(text + len - at - 1)));
    s->n++;
    AX_TRY(check_column(s, c, digits));
    if (s->n > 1)
        s->columns[c->group].n_left--;
    if (n_members > 0)
        s->group = s->n - 1;
    while (s->group > 0 && s->columns[s->group].n_left == 0)
        s->group = s->columns[s->group].group;
    return AX_OK;
}

static enum ax_status check_columns(const char *path) {
    struct ax_duckdb *d;
    struct schema s = {0};
    const char *text;
    size_t len;
    bool got = true;
    AX_TRY(open_query(&d,
                      "SELECT concat(coalesce(num_children, 0), ' ', coalesce(precision, 0), ' ', "
                      "name) FROM parquet_schema('",
                      path, "')"));
    enum ax_status st = AX_OK;
    while (st == AX_OK && (st = ax_duckdb_next(d, &text, &len, &got)) == AX_OK && got)
        st = add_column(&s, text, len);
    for (size_t i = 0; i < s.n; i++)
        ax_free(s.columns[i].name);
    ax_free(s.columns);
    ax_duckdb_close(d);
    return st;
}

/* A column of the record's name would take its place. */
#define RECORD "\"a record of the file\""

enum ax_status ax_parquet_open(struct ax_parquet **out, const char *path) {
    struct ax_parquet *p;
    AX_TRY(ax_alloc(&p, 1, sizeof *p));
    p->path = path;
    enum ax_status st =
        open_query(&p->query, "SELECT to_json(" RECORD ")::VARCHAR FROM read_parquet('", path,
                   "', hive_partitioning = false) AS " RECORD);
    if (st == AX_OK)
        st = check_columns(path);
    if (st == AX_OK) {
        *out = p;
        return AX_OK;
    }
    ax_parquet_close(p);
    return ax_error_prefix(st, "%s", path);
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
        st = run_statement(sql.data);
    if (st == AX_OK)
        st = ax_rename(part, to);
    else
        (void)unlink(part);
    ax_buf_free(&sql);
    ax_free(part);
    return st;
}
