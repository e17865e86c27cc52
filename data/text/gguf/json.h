/* A GGUF vocabulary as a tokenizer.json.
 *
 * This folder turns vocabularies into and out of GGUF: json.c (out), tokens.c
 * (in: tokens, scores, split rules). */
#ifndef AX_DATA_TEXT_GGUF_JSON_H
#define AX_DATA_TEXT_GGUF_JSON_H

#include "ckpt/gguf/gguf.h"
#include "data/text/tokenizer/tokenizer.h"

/* Appends a tokenizer.json that HF tokenizers (0.20 and newer) and ax_tokenizer_parse read as `t`,
 * the tokenizer of `file` (ax_tokenizer_load_gguf). Split rules are spelled out, so nothing depends
 * on the name of a tokenizer class. AX_ERR_DATA for a token that is not UTF-8: JSON cannot contain
 * it. */
enum ax_status ax_gguf_tokenizer_json(const struct ax_gguf *file, const struct ax_tokenizer *t,
                                      struct ax_buf *out);

#endif
