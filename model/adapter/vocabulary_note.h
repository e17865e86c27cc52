/* Whether an adapter means its base's tokens: a folder of PEFT may have a tokenizer of its own, or
 * embeddings of more tokens. */
#ifndef AX_MODEL_ADAPTER_VOCABULARY_NOTE_H
#define AX_MODEL_ADAPTER_VOCABULARY_NOTE_H

#include "ckpt/hf/peft.h"

/* Warns if the tokenizer in the adapter's folder has other tokens than that of `base`, a folder or a GGUF
 * file, or lacks some, and if it has more that the adapter does not train; also if the adapter has more
 * embeddings and no tokenizer. Tokens whose embeddings it has in full are its own. */
enum ax_status ax_vocabulary_note_check(const char *base, const struct ax_peft *peft);

#endif
