/* Mistral's own tokenizer files, tekken.json (versions v3 to v15). */
#ifndef AX_DATA_TEXT_VOCAB_VOCAB_TEKKEN_H
#define AX_DATA_TEXT_VOCAB_VOCAB_TEKKEN_H

#include "data/text/tokenizer/tokenizer_impl.h"

#define AX_TEKKEN "tekken.json"

/* True if the name is that of a tekken file. */
bool ax_tekken_is(const char *path);
/* Each fills an empty tokenizer; `name` is for messages. */
enum ax_status ax_tekken_load(struct ax_tokenizer *t, const char *path);
enum ax_status ax_tekken_parse(struct ax_tokenizer *t, const char *name, const char *text,
                               size_t len);

#endif
