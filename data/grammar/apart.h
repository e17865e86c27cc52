/* What schemas say, without nodes. Private to data/grammar/. */
#ifndef AX_DATA_GRAMMAR_APART_H
#define AX_DATA_GRAMMAR_APART_H

#include <jansson.h>
#include <stdbool.h>

enum {
    AX_TYPE_OBJECT = 1,
    AX_TYPE_ARRAY = 2,
    AX_TYPE_STRING = 4,
    AX_TYPE_INTEGER = 8,
    AX_TYPE_NUMBER = 16,
    AX_TYPE_BOOLEAN = 32,
    AX_TYPE_NULL = 64,
    AX_TYPES = 7,
    AX_TYPES_ALL = 127
};
/* By its name; 0: there is none. */
int ax_schema_type(const char *name);
/* Types of a value: an integer is a number, too. */
int ax_schema_type_of(const json_t *v);
/* What "#/path" points to in a document; NULL: there is nothing. */
const json_t *ax_schema_follow(const json_t *document, const char *path);
/* True if no value fits both schemas; false if one may. */
bool ax_schemas_apart(const json_t *document, const json_t *a, const json_t *b);

#endif
