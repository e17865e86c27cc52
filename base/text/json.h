/* JSON through jansson: typed getters that name file and key path; syntax errors with line:column.
 *
 * A struct ax_json points at one node and knows its path ("config.json: rope_parameters.factor"),
 * so an error can say where. Children borrow from the document. Duplicate keys are errors. */
#ifndef AX_BASE_TEXT_JSON_H
#define AX_BASE_TEXT_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"

struct ax_json_doc {
    json_t *root;
    char *name; /* file name for messages */
};

/* max_bytes bounds the file; nesting deeper than 512 is an error. AX_ERR_DATA on bad syntax. A file may have Infinity,
 * as Python writes it: it is read as {"__float__": "Infinity"}, as transformers 5 does. */
enum ax_status ax_json_load(struct ax_json_doc *doc, const char *path, size_t max_bytes);
enum ax_status ax_json_parse(struct ax_json_doc *doc, const char *name, const char *text,
                             size_t len);
/* The text of a file, as ax_json_load reads it. */
enum ax_status ax_json_parse_file(struct ax_json_doc *doc, const char *name, const char *text,
                                  size_t len);
void ax_json_free(struct ax_json_doc *doc);
/* The value that a text begins with, after which there may be anything; of equal keys the last one counts. */
struct ax_json_first {
    json_t *v;   /* NULL: there is none */
    size_t used; /* bytes up to its end */
    char why[JSON_ERROR_TEXT_LENGTH];
};
/* Only memory is an error. */
enum ax_status ax_json_first(const char *text, size_t len, struct ax_json_first *out);
/* A new JSON number; null for NaN and infinities. */
json_t *ax_json_number(double x);
/* A new JSON string of bytes that may be no text, as names of files are on Linux: what is no UTF-8 is U+FFFD.
 * NULL: out of memory. */
json_t *ax_json_repaired(const char *bytes);
/* Pretty (2 spaces, keys in file order, like Python's json.dumps(indent=2)); free with ax_free. */
enum ax_status ax_json_dump(const json_t *v, char **text, size_t *len);
/* x as in Python's repr: the fewest digits that read back as x, with an exponent from 1e16 up and
 * below 1e-4; nan, inf. Returns text. */
#define AX_REAL_TEXT 40
char *ax_real_repr(double x, char text[AX_REAL_TEXT]);

struct ax_json {
    const json_t *v; /* NULL = absent */
    const char *doc; /* document name */
    char path[160];  /* key path within it */
};

struct ax_json ax_json_root(const struct ax_json_doc *doc);
struct ax_json ax_json_get(struct ax_json parent, const char *key); /* absent or null → v = NULL */
struct ax_json ax_json_at(struct ax_json parent, size_t index);
size_t ax_json_size(struct ax_json a); /* elements of an array or object, else 0 */

/* Required values: AX_ERR_DATA "config.json: hidden_size: expected an integer, got "x"". */
enum ax_status ax_json_i64(struct ax_json v, int64_t min, int64_t max, int64_t *out);
enum ax_status ax_json_f64(struct ax_json v, double *out); /* integers accepted; finite */
enum ax_status ax_json_bool(struct ax_json v, bool *out);
enum ax_status ax_json_str(struct ax_json v, const char **out); /* borrowed, no embedded NUL */
/* Optional values: absent or null gives the default. */
enum ax_status ax_json_i64_or(struct ax_json v, int64_t min, int64_t max, int64_t def,
                              int64_t *out);
enum ax_status ax_json_f64_or(struct ax_json v, double def, double *out);
enum ax_status ax_json_bool_or(struct ax_json v, bool def, bool *out);
enum ax_status ax_json_str_or(struct ax_json v, const char *def, const char **out);

/* AX_ERR_DATA that begins with "doc: path: ". */
enum ax_status ax_json_error(struct ax_json v, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
