/* The parts of a tokenizer.json and its companion files. hf_parts.c reads them for the
 * loader, vocab_hf.c. */
#ifndef AX_DATA_TEXT_VOCAB_VOCAB_HF_H
#define AX_DATA_TEXT_VOCAB_VOCAB_HF_H

#include "base/text/json.h"
#include "base/status.h"
#include "data/text/tokenizer/tokenizer_impl.h"

/* Reads all parts of a tokenizer.json but vocab and merges of its model, which were read and blanked
 * out before, if the file has them. What `parts` has (hf_class.h) is taken from there. */
enum ax_status ax_hf_read_parts(struct ax_tokenizer *t, const struct ax_json_doc *doc,
                                const struct ax_json_doc *parts, bool has_vocab, bool has_merges);

/* tokenizer_config.json and special_tokens_map.json in `dir`, if present: named special tokens and
 * more added tokens. */
enum ax_status ax_hf_read_config(const char *dir, struct ax_tokenizer *t);

#endif
