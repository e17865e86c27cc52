/* SentencePiece's models, tokenizer.model, as Mistral has them: BPE on unchanged text.
 * AX_ERR_UNSUPPORTED for unigram models, and for those that normalize text. */
#ifndef AX_DATA_TEXT_VOCAB_VOCAB_SENTENCEPIECE_H
#define AX_DATA_TEXT_VOCAB_VOCAB_SENTENCEPIECE_H

#include "data/text/tokenizer/tokenizer_impl.h"

/* True if the name is that of a SentencePiece file: NAME.model, or NAME.model.VERSION. */
bool ax_sentencepiece_is(const char *path);
enum ax_status ax_sentencepiece_load(struct ax_tokenizer **out, const char *path);
/* The same from a file's bytes (borrowed); `name` is for messages. */
enum ax_status ax_sentencepiece_parse(struct ax_tokenizer **out, const char *name,
                                      const void *bytes, size_t len);

#endif
