/* Patterns of paths, as in a shell. */
#ifndef AX_DATA_RECORDS_ROWS_PATTERN_H
#define AX_DATA_RECORDS_ROWS_PATTERN_H

#include <stdbool.h>

/* Over a full path: * and ? stay within a part, ** crosses parts, [a-z] [!a-z]. */
bool ax_path_match(const char *pattern, const char *path);

#endif
