/* What tokenizer.ggml.pre a byte-level tokenizer has. */
#ifndef AX_DATA_GGUF_PRE_H
#define AX_DATA_GGUF_PRE_H

#include "data/tokenizer/tokenizer.h"

/* *name is found by what the tokenizer does to text, not by what it is called: the regular
 * expressions of its splits in their order, and whether words that are tokens are taken whole.
 * AX_ERR_UNSUPPORTED where no name stands for that: another one would still give ids, but wrong
 * ones. `where` is for messages. */
enum ax_status ax_gguf_pre(const char **name, const struct ax_tokenizer *t, const char *where);

#endif
