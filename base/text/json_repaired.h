/* JSON of bytes that may be no text, as names of files are on Linux. */
#ifndef AX_BASE_TEXT_JSON_REPAIRED_H
#define AX_BASE_TEXT_JSON_REPAIRED_H

#include <jansson.h>

/* A new JSON string, in which bytes that are no UTF-8 are U+FFFD; NULL: out of memory. */
json_t *ax_json_repaired(const char *bytes);

#endif
