/* The tokenizer and the chat templates of a model folder as keys of a GGUF file. */
#ifndef AX_DATA_TEXT_GGUF_TOKENS_H
#define AX_DATA_TEXT_GGUF_TOKENS_H

#include "ckpt/gguf/write.h"
#include "data/text/tokenizer/tokenizer.h"

/* tokenizer.ggml.* for the tokenizer in `dir` (ax_tokenizer_load_gguf reads it back), and
 * tokenizer.chat_template if there is one. Lists `rows` ids, one per embedding row; those without a
 * token are marked unused. Byte-level BPE is written as gpt2, SentencePiece BPE as llama.
 *
 * AX_ERR_UNSUPPORTED for a tokenizer that GGUF readers would not reproduce; a warning for features
 * that they ignore but that rarely matter. */
enum ax_status ax_gguf_put_tokenizer(struct ax_gguf_keys *keys, const char *dir, int64_t rows);

#endif
