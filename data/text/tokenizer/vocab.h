/* Token strings of one model: id → string and string → id.
 *
 * All strings are contiguous in one block; the map is a table of ids with open addressing. Ids may
 * have gaps, but the largest is bounded by the number of tokens (see ax_vocab_add). */
#ifndef AX_DATA_TEXT_TOKENIZER_VOCAB_H
#define AX_DATA_TEXT_TOKENIZER_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"
#include "data/text/tokenizer/tokenizer.h"

struct ax_vocab_entry {
    uint32_t at;  /* into text */
    uint32_t len; /* bytes */
};

struct ax_vocab {
    struct ax_buf text;
    struct ax_vocab_entry *entries; /* [n_ids]; at = UINT32_MAX if the id is unused */
    size_t n_ids, cap_ids;          /* largest id + 1 */
    size_t n_tokens;
    size_t max_len; /* length of the longest token */
    int32_t *slots; /* ids, AX_NO_TOKEN = free; the size is a power of two */
    size_t n_slots;
};

/* Adds a token. AX_ERR_DATA if the string or id exists, or the id is negative or far too large:
 * beyond 4 ids per `expected` token plus a million. */
enum ax_status ax_vocab_add(struct ax_vocab *v, const char *s, size_t len, int64_t id,
                            size_t expected);
int32_t ax_vocab_find(const struct ax_vocab *v, const char *s, size_t len); /* or AX_NO_TOKEN */
/* The string of an id (not NUL-terminated), or NULL. */
const char *ax_vocab_string(const struct ax_vocab *v, int32_t id, size_t *len);
void ax_vocab_free(struct ax_vocab *v);

#endif
