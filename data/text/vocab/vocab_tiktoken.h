/* tiktoken.model of Kimi's models (Moonlight, Kimi-VL, Kimi-K2, Kimi-Linear), which have no tokenizer.json. */
#ifndef AX_DATA_TEXT_VOCAB_VOCAB_TIKTOKEN_H
#define AX_DATA_TEXT_VOCAB_VOCAB_TIKTOKEN_H

#include "data/text/tokenizer/tokenizer_impl.h"

#define AX_TIKTOKEN "tiktoken.model"

/* True if the name is that of such a file. */
bool ax_tiktoken_is(const char *path);
/* With tokenizer_config.json beside it, if there is one. */
enum ax_status ax_tiktoken_load(struct ax_tokenizer *t, const char *path);
/* Without. */
enum ax_status ax_tiktoken_parse(struct ax_tokenizer *t, const char *name, const char *text,
                                 size_t len);

#endif
