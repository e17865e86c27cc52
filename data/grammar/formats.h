/* Formats of JSON schemas as regular expressions. Private to data/grammar/. */
#ifndef AX_DATA_GRAMMAR_FORMATS_H
#define AX_DATA_GRAMMAR_FORMATS_H

#include <stdbool.h>

/* Names of all, for errors. */
extern const char ax_grammar_format_names[];
/* False: there is no such format. *pattern: what its texts match as a whole; NULL for one that says nothing about them. */
bool ax_grammar_find_format(const char *name, const char **pattern);

#endif
