/* The meaning of tokenizer.ggml.pre in a GGUF file: how text is split before byte-level BPE.
 *
 * Each rule in turn splits every piece into its matches and the text between them. The regular
 * expressions are in Oniguruma's syntax, as in tokenizer.json. */
#ifndef AX_DATA_TEXT_TOKENIZER_SPLIT_RULES_H
#define AX_DATA_TEXT_TOKENIZER_SPLIT_RULES_H

#include <stdbool.h>
#include <stddef.h>

enum { AX_SPLIT_NAMES_MAX = 9, AX_SPLIT_RULES_MAX = 7 };

struct ax_split_rules {
    const char *names[AX_SPLIT_NAMES_MAX]; /* NULL-terminated */
    const char *rules[AX_SPLIT_RULES_MAX]; /* NULL-terminated */
    bool whole_word;                       /* a piece that is a token is not merged */
    bool add_bos;                          /* if the file does not say */
};

extern const struct ax_split_rules ax_split_rules[];
extern const size_t ax_split_rules_count;

const struct ax_split_rules *ax_split_rules_find(const char *pre); /* NULL: unknown name */

#endif
