/* Strings with ids: id → string and string → id, for the tokens of one model.
 *
 * All strings lie back to back in one block; the map is a table of ids with open addressing. Ids
 * need not be dense, but their largest is bounded by the number of tokens (see ax_vocab_add). */
#ifndef AX_DATA_TOKENIZER_VOCAB_H
#define AX_DATA_TOKENIZER_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"
#include "data/tokenizer/tokenizer.h"

struct ax_vocab_entry {
    uint32_t at;  /* into text */
    uint32_t len; /* bytes */
};

struct ax_vocab {
    struct ax_buf text;
    struct ax_vocab_entry *entries; /* [n_ids]; at = UINT32_MAX where the id is not used */
    size_t n_ids, cap_ids;          /* largest id + 1 */
    size_t n_tokens;
    size_t max_len; /* of the longest token */
    int32_t *slots; /* ids, AX_NO_TOKEN = free; a power of two of them */
    size_t n_slots;
};

/* Adds a token. AX_ERR_DATA when the string or the id is there already, or when the id is negative
 * or absurdly large: beyond 4 ids per token of the `expected` number plus a million. */
enum ax_status ax_vocab_add(struct ax_vocab *v, const char *s, size_t len, int64_t id,
                            size_t expected);
int32_t ax_vocab_find(const struct ax_vocab *v, const char *s, size_t len); /* or AX_NO_TOKEN */
/* The string of an id (not NUL-terminated), NULL when there is none. */
const char *ax_vocab_string(const struct ax_vocab *v, int32_t id, size_t *len);
void ax_vocab_free(struct ax_vocab *v);

#endif
