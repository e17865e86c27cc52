/* Added tokens: strings matched in the text before the model sees it.
 *
 * Tokens with `normalized` are matched in the normalized text, in their normalized form; the others
 * earlier, in the raw text. The leftmost match wins, and the longest of those. */
#ifndef AX_DATA_TEXT_TOKENIZER_ADDED_TOKENS_H
#define AX_DATA_TEXT_TOKENIZER_ADDED_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/text/tokenizer/tokenizer.h"
#include "data/text/tokenizer/vocab.h"

struct ax_added_token {
    int32_t id;
    bool single_word; /* only if neither neighbor is a word character */
    bool lstrip;      /* consumes the white space before it */
    bool rstrip;      /* white space after it, too */
    bool normalized;
    bool special;  /* can be skipped in decoding; not matched in plain text */
    char *content; /* owned */
    char *form;    /* normalized form; NULL if equal to content; owned */
    size_t content_len, form_len;
};

struct ax_trie_node {
    uint32_t child, sibling; /* 0 = none */
    int32_t token;           /* index into tokens, AX_NO_TOKEN if no token ends here */
    unsigned char byte;
};

struct ax_trie {
    struct ax_trie_node *nodes; /* [0] is unused */
    size_t n, cap;
    uint32_t roots[256];
};

/* The child of a node by this byte; 0 = none. */
static inline uint32_t ax_trie_child(const struct ax_trie *t, uint32_t node, unsigned char byte) {
    uint32_t c = t->nodes[node].child;
    while (c != 0 && t->nodes[c].byte != byte)
        c = t->nodes[c].sibling;
    return c;
}

struct ax_added_tokens {
    struct ax_added_token *tokens;
    size_t n, cap;
    struct ax_vocab contents; /* content → index */
    int32_t *by_id;           /* [n_ids] index of the token with this id, or AX_NO_TOKEN */
    size_t n_ids;
    struct ax_trie raw, normalized;
};

/* Adds a token, or replaces the one with the same content. Copies both strings; form may be NULL.
 * AX_ERR_DATA for an empty content or a string over 4 KiB. Call ax_added_index afterwards. */
enum ax_status ax_added_put(struct ax_added_tokens *a, const struct ax_added_token *token);
/* Replaces tokens[index]; the content must be new or the same. */
enum ax_status ax_added_replace(struct ax_added_tokens *a, size_t index,
                                const struct ax_added_token *token);
/* Rebuilds the lookup tables. */
enum ax_status ax_added_index(struct ax_added_tokens *a);
const struct ax_added_token *ax_added_by_id(const struct ax_added_tokens *a, int32_t id);
const struct ax_added_token *ax_added_by_content(const struct ax_added_tokens *a, const char *s,
                                                 size_t len);
void ax_added_free(struct ax_added_tokens *a);

#endif
