/* The two large members of a tokenizer.json, model.vocab and model.merges, read without a JSON
 * tree.
 *
 * A tree of 250,000 small lists takes ten times the file's size and most of the startup time. So
 * these two are read directly from the text and then blanked out ("{}", "[]", the rest spaces).
 * base/json parses what is left, with the file's lines and columns. */
#ifndef AX_DATA_TEXT_VOCAB_VOCAB_JSON_H
#define AX_DATA_TEXT_VOCAB_VOCAB_JSON_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "data/text/tokenizer/bpe.h"
#include "data/text/tokenizer/vocab.h"

struct ax_json_stretch {
    size_t start, end; /* range of a value in the text; 0, 0 = missing */
};

struct ax_vocab_json {
    const char *name; /* file name for messages */
    char *text;       /* borrowed, UTF-8 */
    size_t len;
    struct ax_json_stretch vocab, merges; /* object, list; other types are left to base/json */
};

/* Finds them; false if the text is not JSON (base/json then says where). */
bool ax_vocab_json_find(struct ax_vocab_json *j);
/* {"token": id, …} → vocab */
enum ax_status ax_vocab_json_read_vocab(const struct ax_vocab_json *j, struct ax_vocab *vocab);
/* ["a b", …] or [["a", "b"], …] → merges; every token in them must be in vocab. */
enum ax_status ax_vocab_json_read_merges(const struct ax_vocab_json *j,
                                         const struct ax_vocab *vocab, struct ax_bpe *bpe);
void ax_vocab_json_blank(struct ax_vocab_json *j);

#endif
