/* A stand-in for DuckDB's library: the functions that axtrain uses, with the types of its header,
 * written from its documentation and strict about how they are called. Read fetch_chunk first.
 *
 * It knows the two queries of data/records/rows/parquet.c, of which that of the columns has no rows, and
 * reads files of this form:
 *
 *   PAR1              the first line
 *   null              a record that is null
 *   *100              a row of a hundred bytes
 *   --                a chunk ends here; twice: one without rows
 *   ! why             the query fails here
 *   anything else     a row of this text
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ROWS 2048 /* of a chunk */

/* For the test: the stage that shall fail, with the text it gives; objects not yet destroyed. */
char stub_fails[32];
const char *stub_why = "IO Error: as asked\nand more of it";
int stub_live;

enum kind { FREED = 0x0DEAD000, CONFIG, DATABASE, CONNECTION, STATEMENT, PENDING, RESULT, CHUNK };

struct object {
    enum kind kind;
    const char *error;
    /* database: settings so far; statement and result: the text of the file; chunk: its rows */
    char *text;
    size_t at;
    int n_settings;
    uint64_t n, *validity;
    union duckdb_text *values;
};

/* duckdb_string_t */
union duckdb_text {
    struct {
        uint32_t length;
        char prefix[4];
        char *ptr;
    } pointer;
    struct {
        uint32_t length;
        char inlined[12];
    } inlined;
};

/* duckdb_result, passed by value */
struct duckdb_result {
    uint64_t deprecated_column_count, deprecated_row_count, deprecated_rows_changed;
    void *deprecated_columns;
    char *deprecated_error_message;
    void *internal_data;
};

static void must(int ok, const char *what) {
    if (ok)
        return;
    fprintf(stderr, "stub of DuckDB: %s\n", what);
    abort();
}

static struct object *make(enum kind kind) {
    struct object *o = calloc(1, sizeof *o);
    must(o != NULL, "out of memory");
    o->kind = kind;
    stub_live++;
    return o;
}

static struct object *as(enum kind kind, void *p) {
    struct object *o = p;
    must(o != NULL && o->kind == kind, "an object of another kind, or destroyed before");
    return o;
}

static void destroy(enum kind kind, void **p) {
    struct object *o = as(kind, *p);
    free(o->text);
    memset(o, 0, sizeof *o);
    o->kind = FREED;
    free(o);
    *p = NULL;
    stub_live--;
}

/* Whether this stage shall fail; its error then belongs to the object. */
static int fails(const char *stage, struct object *o) {
    const int now = strcmp(stub_fails, stage) == 0;
    if (now && o)
        o->error = stub_why;
    return now;
}

/* ---- configuration and connection ---- */

int duckdb_create_config(void **config) {
    if (fails("config", NULL))
        return 1;
    *config = make(CONFIG);
    return 0;
}

/* Everything that keeps a query small, offline and without files of its own. */
int duckdb_set_config(void *config, const char *name, const char *value) {
    static const char *const settings[][2] = {{"threads", "1"},
                                              {"memory_limit", "1GiB"},
                                              {"temp_directory", ""},
                                              {"autoinstall_known_extensions", "false"},
                                              {"autoload_known_extensions", "false"}};
    for (size_t i = 0; i < 5; i++)
        if (strcmp(name, settings[i][0]) == 0 && strcmp(value, settings[i][1]) == 0)
            as(CONFIG, config)->n_settings |= 1 << i;
    return 0;
}

void duckdb_destroy_config(void **config) {
    destroy(CONFIG, config);
}

int duckdb_open_ext(const char *path, void **database, void *config, char **error) {
    must(strcmp(path, ":memory:") == 0, "not a database in memory");
    must(as(CONFIG, config)->n_settings == 31, "a setting is missing");
    if (fails("open", NULL)) {
        *error = malloc(strlen(stub_why) + 1);
        must(*error != NULL, "out of memory");
        strcpy(*error, stub_why);
        stub_live++;
        return 1;
    }
    *database = make(DATABASE);
    return 0;
}

void duckdb_free(void *p) {
    stub_live -= p != NULL;
    free(p);
}

int duckdb_connect(void *database, void **connection) {
    as(DATABASE, database);
    if (fails("connect", NULL))
        return 1;
    *connection = make(CONNECTION);
    return 0;
}

void duckdb_disconnect(void **connection) {
    destroy(CONNECTION, connection);
}

void duckdb_close(void **database) {
    destroy(DATABASE, database);
}

/* ---- the query ---- */

static char *read_whole(const char *path) {
    FILE *f = fopen(path, "rb");
    char *text = calloc(1, 1 << 20);
    must(f != NULL && text != NULL, "the file of the query is not there");
    must(fread(text, 1, (1 << 20) - 1, f) < (1 << 20) - 1, "a file of more than 1 MiB");
    fclose(f);
    return text;
}

/* The path inside the quotes: two quotes are one, and what would be a pattern is in brackets. Returns
 * whether the query is that of the records. */
static int path_of(const char *sql, char *path, size_t size) {
    static const char *const queries[][2] = {
        {"SELECT concat(coalesce(num_children, 0), ' ', coalesce(precision, 0), ' ', name) FROM "
         "parquet_schema('",
         "')"},
        {"SELECT to_json(\"a record of the file\")::VARCHAR FROM read_parquet('",
         "', hive_partitioning = false) AS \"a record of the file\""}};
    const int rows = strncmp(sql, queries[1][0], strlen(queries[1][0])) == 0;
    must(rows || strncmp(sql, queries[0][0], strlen(queries[0][0])) == 0, "another query");
    const char *at = sql + strlen(queries[rows][0]);
    size_t n = 0;
    while (*at && n + 1 < size) {
        const int quoted = at[0] == '\'' && at[1] == '\'';
        const int bracketed = at[0] == '[' && at[1] && at[2] == ']';
        if (*at == '\'' && !quoted)
            break;
        must(bracketed || !strchr("*?[", *at), "a pattern instead of a path");
        path[n++] = bracketed ? at[1] : at[0];
        at += bracketed ? 3 : quoted ? 2 : 1;
    }
    path[n] = '\0';
    must(strcmp(at, queries[rows][1]) == 0, "another query");
    return rows;
}

int duckdb_prepare(void *connection, const char *sql, void **statement) {
    char path[512];
    struct object *s = make(STATEMENT);
    as(CONNECTION, connection);
    *statement = s;
    if (fails("prepare", s))
        return 1;
    const int rows = path_of(sql, path, sizeof path);
    s->text = read_whole(path);
    if (strncmp(s->text, "PAR1\n", 5) != 0)
        s->error = "Invalid Input Error: No magic bytes found";
    if (!rows && !s->error)
        s->text[5] = '\0';
    return s->error != NULL;
}

const char *duckdb_prepare_error(void *statement) {
    return as(STATEMENT, statement)->error;
}

void duckdb_destroy_prepare(void **statement) {
    destroy(STATEMENT, statement);
}

int duckdb_pending_prepared_streaming(void *statement, void **pending) {
    struct object *p = make(PENDING), *s = as(STATEMENT, statement);
    *pending = p;
    p->text = s->text;
    s->text = NULL;
    return fails("pending", p);
}

const char *duckdb_pending_error(void *pending) {
    return as(PENDING, pending)->error;
}

void duckdb_destroy_pending(void **pending) {
    destroy(PENDING, pending);
}

int duckdb_execute_pending(void *pending, struct duckdb_result *result) {
    struct object *r = make(RESULT), *p = as(PENDING, pending);
    r->text = p->text;
    p->text = NULL;
    r->at = 5; /* after PAR1 */
    *result = (struct duckdb_result){.internal_data = r};
    return fails("execute", r);
}

const char *duckdb_result_error(struct duckdb_result *result) {
    return as(RESULT, result->internal_data)->error;
}

void duckdb_destroy_result(struct duckdb_result *result) {
    destroy(RESULT, &result->internal_data);
}

/* ---- chunks ---- */

/* A text, in the value itself or, of more than 12 bytes, elsewhere. '*' repeats 'x'. */
static void put_value(union duckdb_text *v, const char *line, size_t n) {
    const int repeated = line[0] == '*';
    const size_t length = repeated ? strtoul(line + 1, NULL, 10) : n;
    char *to = v->inlined.inlined;
    v->inlined.length = (uint32_t)length;
    if (length > sizeof v->inlined.inlined) {
        to = v->pointer.ptr = malloc(length);
        must(to != NULL, "out of memory");
    }
    if (repeated)
        memset(to, 'x', length);
    else
        memcpy(to, line, n);
    if (length > sizeof v->inlined.inlined)
        memcpy(v->pointer.prefix, to, sizeof v->pointer.prefix);
}

/* A null has no value: what lies there must not be read. Chunks without nulls have no mask, and the
 * masks of others say nothing about rows beyond the last. */
static void put_null(struct object *c) {
    if (!c->validity) {
        c->validity = malloc(MOST_ROWS / 8);
        must(c->validity != NULL, "out of memory");
        memset(c->validity, 0xFF, MOST_ROWS / 8);
    }
    c->validity[c->n / 64] &= ~((uint64_t)1 << (c->n % 64));
    memset(&c->values[c->n], 0xFF, sizeof *c->values);
}

/* Lines up to the next "--"; NULL at the end of the file, and where the query fails. */
void *duckdb_fetch_chunk(struct duckdb_result result) {
    struct object *r = as(RESULT, result.internal_data);
    const char *line = r->text + r->at;
    if (*line == '!')
        r->error = line + strspn(line, "! ");
    if (*line == '!' || *line == '\0')
        return NULL;
    struct object *c = make(CHUNK);
    c->values = calloc(MOST_ROWS, sizeof *c->values);
    must(c->values != NULL, "out of memory");
    while (*line && *line != '!') {
        const size_t n = strcspn(line, "\n");
        const int end = n == 2 && strncmp(line, "--", n) == 0;
        if (!end) {
            must(c->n < MOST_ROWS, "a chunk of too many rows");
            if (n == 4 && strncmp(line, "null", n) == 0)
                put_null(c);
            else
                put_value(&c->values[c->n], line, n);
            c->n++;
        }
        line += n + (line[n] == '\n');
        if (end)
            break;
    }
    if (c->validity && c->n < MOST_ROWS)
        c->validity[c->n / 64] &= ((uint64_t)1 << (c->n % 64)) - 1;
    r->at = (size_t)(line - r->text);
    return c;
}

static int is_null(const struct object *c, uint64_t row) {
    return c->validity && !(c->validity[row / 64] >> (row % 64) & 1U);
}

/* Texts are overwritten first, so that one read later is not what it was. */
void duckdb_destroy_data_chunk(void **chunk) {
    struct object *c = as(CHUNK, *chunk);
    for (uint64_t i = 0; i < c->n; i++) {
        const union duckdb_text *v = &c->values[i];
        if (is_null(c, i) || v->inlined.length <= sizeof v->inlined.inlined)
            continue;
        memset(v->pointer.ptr, '?', v->pointer.length);
        free(v->pointer.ptr);
    }
    memset(c->values, '?', MOST_ROWS * sizeof *c->values);
    free(c->values);
    free(c->validity);
    destroy(CHUNK, chunk);
}

uint64_t duckdb_data_chunk_get_size(void *chunk) {
    return as(CHUNK, chunk)->n;
}

void *duckdb_data_chunk_get_vector(void *chunk, uint64_t column) {
    must(column == 0, "there is one column");
    return as(CHUNK, chunk);
}

void *duckdb_vector_get_data(void *vector) {
    return as(CHUNK, vector)->values;
}

uint64_t *duckdb_vector_get_validity(void *vector) {
    return as(CHUNK, vector)->validity;
}
