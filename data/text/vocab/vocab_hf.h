/* The parts of a tokenizer.json and its companion files. Private to the loader, vocab_hf.c. */
#ifndef AX_DATA_TEXT_VOCAB_VOCAB_HF_H
#define AX_DATA_TEXT_VOCAB_VOCAB_HF_H

#include "base/text/json.h"
#include "base/status.h"
#include "data/text/tokenizer/tokenizer_impl.h"

/* Each reads one member of tokenizer.json; a missing one (null) is an empty chain. */
enum ax_status ax_hf_read_normalizer(struct ax_json v, struct ax_normalizer *n);
enum ax_status ax_hf_read_pretok(struct ax_json v, struct ax_pretok *p);
enum ax_status ax_hf_read_decoder(struct ax_json v, struct ax_decoder *d);
enum ax_status ax_hf_read_post_processor(struct ax_json v, struct ax_tokenizer *t);

/* AX_ERR_UNSUPPORTED: "… is not supported". */
enum ax_status ax_hf_unsupported(struct ax_json v, const char *what, const char *type);

/* An added token written as an object; missing members have AddedToken's defaults. The content is
 * borrowed from the document. */
enum ax_status ax_hf_read_added(struct ax_json v, struct ax_added_token *token);
/* tokenizer_config.json and special_tokens_map.json in `dir`, if present: named special tokens and
 * more added tokens. */
enum ax_status ax_hf_read_config(const char *dir, struct ax_tokenizer *t);

#endif
