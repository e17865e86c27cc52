/* Finds the tokenizer.ggml.pre of a byte-level tokenizer. */
#ifndef AX_DATA_TEXT_GGUF_PRE_H
#define AX_DATA_TEXT_GGUF_PRE_H

#include "data/text/tokenizer/tokenizer.h"

/* Sets *name by what the tokenizer does to text, not by its name: the regular expressions of its
 * splits in order, and whether words that are tokens skip merging. AX_ERR_UNSUPPORTED if no name
 * matches: a different one would give wrong ids. `where` is for messages. */
enum ax_status ax_gguf_pre(const char **name, const struct ax_tokenizer *t, const char *where);

#endif
