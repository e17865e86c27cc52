/* Byte-level BPE in tiktoken's form: byte strings by rank. Two neighbors are merged if the result is one of them, the
 * lowest rank first; a piece that is one is not merged at all. */
#ifndef AX_DATA_TEXT_VOCAB_RANKS_H
#define AX_DATA_TEXT_VOCAB_RANKS_H

#include "data/text/tokenizer/tokenizer_impl.h"

enum { AX_RANK_BYTES = 512 }; /* bytes of a token, at most */

/* Base64 with padding → out [AX_RANK_BYTES + 3]; 0: it is none, or of no bytes, or of more than AX_RANK_BYTES. */
size_t ax_rank_decode(const char *s, size_t len, unsigned char *out);
/* Adds a token under its spelling in the byte alphabet. */
enum ax_status ax_rank_add(struct ax_tokenizer *t, const unsigned char *bytes, size_t n, int64_t id,
                           size_t expected);
/* Completes a tokenizer whose tokens, from id `first` on, and special tokens are there: texts are split by `pattern`, and
 * ranks rise with ids. */
enum ax_status ax_ranks_finish(struct ax_tokenizer *t, const char *pattern, int64_t first);

#endif
