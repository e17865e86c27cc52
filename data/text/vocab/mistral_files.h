/* Mistral's own tokenizers: which file of a folder is one, and of which version it is. */
#ifndef AX_DATA_TEXT_VOCAB_MISTRAL_FILES_H
#define AX_DATA_TEXT_VOCAB_MISTRAL_FILES_H

#include <stdbool.h>

#include "base/status.h"

/* DIR/tekken.json, else the latest DIR/tokenizer.model.vN; else DIR/tokenizer.model, which has no version
 * and many models have, if `bare` or beside a params.json. NULL: none. Free with ax_free. */
enum ax_status ax_mistral_tokenizer_in(const char *dir, bool bare, char **path);
/* "v3" of such a file: in tekken.json, or in its name; without, "v1". */
#define AX_MISTRAL_VERSION 16
enum ax_status ax_mistral_version(const char *path, char version[AX_MISTRAL_VERSION]);

#endif
