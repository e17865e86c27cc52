/* Python literals, as ast.literal_eval reads them: lists, tuples and dicts of texts, numbers, True,
 * False and None. What Jinja spells in the same way is known; bytes, sets, numbers of more than 64
 * bits and prefixed strings are not. */
#ifndef AX_DATA_JINJA_LITERAL_H
#define AX_DATA_JINJA_LITERAL_H

#include <jansson.h>
#include <stddef.h>

#include "base/status.h"

/* *out: the value as JSON (tuples are lists), owned by the caller, or NULL where the text is no
 * such literal. Fails only without memory. */
enum ax_status ax_jinja_literal(const char *text, size_t len, json_t **out);

#endif
