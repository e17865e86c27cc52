/* Checks JSON text before jansson parses it. Private to base/. */
#ifndef AX_BASE_TEXT_JSON_SCAN_H
#define AX_BASE_TEXT_JSON_SCAN_H

#include <stddef.h>

#include "base/status.h"

/* Rejects nesting deeper than AX_JSON_DEPTH_MAX and the NaN and Infinity that Python writes.
 * Integers beyond 64 bits (HF writes model_max_length as 10^30) would be an error in jansson; if
 * there are any, *rewritten is a copy of the text with reals of the same length instead, else NULL.
 * Free with ax_free. */
#define AX_JSON_DEPTH_MAX 512
enum ax_status ax_json_scan(const char *name, const char *text, size_t len, char **rewritten);

/* AX_ERR_DATA "name:line:column: …" for a byte offset; columns count characters from 1. */
enum ax_status ax_json_error_at(const char *name, const char *text, size_t offset,
                                const char *message);

#endif
