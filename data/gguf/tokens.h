/* The tokenizer and the chat templates of a model folder as keys of a GGUF file. */
#ifndef AX_DATA_GGUF_TOKENS_H
#define AX_DATA_GGUF_TOKENS_H

#include "ckpt/gguf/write.h"
#include "data/tokenizer/tokenizer.h"

/* tokenizer.ggml.* for the tokenizer in `dir` (ax_tokenizer_load_gguf reads it back), and
 * tokenizer.chat_template where there is one. `rows` of the embedding are listed: those without a
 * token as unused ones. Byte-level BPE is written as gpt2, SentencePiece BPE as llama.
 *
 * AX_ERR_UNSUPPORTED for a tokenizer that readers of GGUF would not follow; a warning for what they
 * leave out but that rarely matters. */
enum ax_status ax_gguf_put_tokenizer(struct ax_gguf_keys *keys, const char *dir, int64_t rows);

/* The scores of a SentencePiece vocabulary, [t's ids], for which merging by score does what the
 * tokenizer's list of merges does. AX_ERR_UNSUPPORTED where there are none. Free with ax_free. */
enum ax_status ax_gguf_scores(float **scores, const struct ax_tokenizer *t, const char *where);

/* The tokenizer's merges in the order of their ranks. Free with ax_free. */
struct ax_bpe_pair;
enum ax_status ax_gguf_sorted_merges(struct ax_bpe_pair **pairs, size_t *n,
                                     const struct ax_tokenizer *t);

#endif
