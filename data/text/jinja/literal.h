/* Python literals, as ast.literal_eval reads them: lists, tuples and dicts of strings, numbers,
 * True, False and None. Supports whatever Jinja spells in the same way, so no bytes, sets,
 * numbers of more than 64 bits or prefixed strings. */
#ifndef AX_DATA_TEXT_JINJA_LITERAL_H
#define AX_DATA_TEXT_JINJA_LITERAL_H

#include <jansson.h>
#include <stddef.h>

#include "base/status.h"

/* *out: the value as JSON (tuples become lists), owned by the caller, or NULL if the text is not
 * such a literal. Fails only if out of memory. */
enum ax_status ax_jinja_literal(const char *text, size_t len, json_t **out);

#endif
