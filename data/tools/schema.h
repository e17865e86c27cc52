/* Definitions of tools, and calls that do or do not fit them. */
#ifndef AX_DATA_TOOLS_SCHEMA_H
#define AX_DATA_TOOLS_SCHEMA_H

#include <jansson.h>
#include <stdbool.h>

#include "base/mem.h"

/* The "function" of the definition with this name; NULL: there is none. */
const json_t *ax_tool_function(const json_t *tools, const char *name);
/* The schema of a parameter, also where it is a reference to one of the parameters' definitions; NULL: none. */
const json_t *ax_tool_schema_of(const json_t *parameters, const char *name);
/* Arguments of calls that are text become what their schema says, where the text is that. False: no memory. */
bool ax_tool_coerce(json_t *calls, const json_t *tools);
/* Appends why the arguments do not fit the function, in Python's words where it has some; nothing if they do. */
enum ax_status ax_tool_misfit(const json_t *function, const json_t *arguments, struct ax_buf *why);
/* Appends str({"error": text}) as Python writes it: what a model is told of a failed call. */
enum ax_status ax_tool_error_text(struct ax_buf *out, const char *text);

#endif
