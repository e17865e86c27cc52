/* The two big members of a tokenizer.json, model.vocab and model.merges, read without a JSON tree.
 *
 * A tree of a quarter of a million small lists takes ten times the file's size and most of the
 * start time. So these two are read straight from the text and then blanked out in it ("{}", "[]",
 * the rest spaces), and what is left goes through base/json, with the lines and columns of the
 * file. */
#ifndef AX_DATA_TOKENIZER_VOCAB_JSON_H
#define AX_DATA_TOKENIZER_VOCAB_JSON_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/vocab.h"

struct ax_json_stretch {
    size_t start, end; /* of a value in the text; 0, 0 = absent */
};

struct ax_vocab_json {
    const char *name; /* of the file, for messages */
    char *text;       /* borrowed, UTF-8 */
    size_t len;
    struct ax_json_stretch vocab, merges; /* object, list; others are left to base/json */
};

/* Finds them; false when the text is not JSON (base/json then says where). */
bool ax_vocab_json_find(struct ax_vocab_json *j);
/* {"token": id, …} → vocab */
enum ax_status ax_vocab_json_read_vocab(const struct ax_vocab_json *j, struct ax_vocab *vocab);
/* ["a b", …] or [["a", "b"], …] → merges; every token in them must be in vocab. */
enum ax_status ax_vocab_json_read_merges(const struct ax_vocab_json *j,
                                         const struct ax_vocab *vocab, struct ax_bpe *bpe);
void ax_vocab_json_blank(struct ax_vocab_json *j);

#endif
