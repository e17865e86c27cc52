/* The bytes of a tokenizer's tokens, in order, so that tokens that begin alike are read once. */
#ifndef AX_DATA_GRAMMAR_VOCABULARY_H
#define AX_DATA_GRAMMAR_VOCABULARY_H

#include "data/text/tokenizer/tokenizer.h"

#define AX_GRAMMAR_TOKEN 64 /* bytes of a token; longer ones are never chosen */

struct ax_grammar_token {
    int32_t id;
    uint8_t n, shared; /* bytes, and how many of them it shares with the one before in the list */
    const unsigned char *bytes;
};
struct ax_grammar_list {
    struct ax_grammar_token *tokens; /* sorted by their bytes */
    int32_t n;
};

/* Constant. Special tokens are not in it. */
struct ax_grammar_vocabulary {
    int64_t size; /* tokens of the model: bits of a mask */
    struct ax_grammar_list all;
    /* tokens of whole characters that may be anywhere in a string, as bits; and the list of the others */
    uint64_t *plain;
    struct ax_grammar_list others;
    /* bytes that are tokens of their own; of those that begin longer characters, if the others are, too */
    bool alone[256];
    unsigned char *bytes;
    size_t *
        from; /* [size + 1]: bytes [from[id], from[id + 1]) are the token's; none: it may not be chosen */
};
static inline size_t ax_grammar_words(int64_t size) {
    return (size_t)(size + 63) / 64;
}
/* AX_ERR_UNSUPPORTED if a byte of JSON has no token of its own, so that a text might come to no end. */
enum ax_status ax_grammar_vocabulary_open(struct ax_grammar_vocabulary *v,
                                          const struct ax_tokenizer *t, int64_t size);
void ax_grammar_vocabulary_close(struct ax_grammar_vocabulary *v); /* safe on a zeroed one */

#endif
