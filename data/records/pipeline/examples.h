/* The stored examples of one data set: tokens, which of them are trained on, and the record each
 * example comes from. In memory, or mapped from cache files.
 *
 * A token is one 32-bit word whose top bit is set if it is trained on as its own label. Examples
 * with other labels (possible in tokenized records) store them after the tokens. Column values
 * follow, then the text of an example that has one: the number of its bytes, and the bytes, padded
 * with zeros. Words are stored in blocks; an example never crosses a block. */
#ifndef AX_DATA_RECORDS_PIPELINE_EXAMPLES_H
#define AX_DATA_RECORDS_PIPELINE_EXAMPLES_H

#include "base/io.h"
#include "data/records/format/example.h"

#define AX_EXAMPLES_BLOCK ((size_t)1 << 22) /* words */
#define AX_WORD_TRAINED   0x80000000U

struct ax_stored {
    uint64_t start; /* word index over all blocks */
    uint64_t hash;  /* hash of tokens, labels, columns and text */
    uint64_t line;
    int64_t record; /* index of its record: those of a JSON list may all be on one line */
    uint32_t file, n, n_trained;
    uint8_t own_labels; /* 1: the labels are n words after the tokens */
    uint8_t joined;     /* 1: same group as the previous example */
    uint8_t has_text;   /* 1: a text follows the columns */
    uint8_t unused;     /* 0; the struct is a cache's file */
};

/* Unusable records, and empty ones. */
#define AX_BAD_RECORDS_LISTED 20
struct ax_bad_records {
    int64_t allowed; /* more than this many is an error */
    int64_t n;
    char *texts[AX_BAD_RECORDS_LISTED]; /* the first ones: "FILE:LINE: why" */
    int64_t n_empty;   /* skipped, as they have nothing to learn from; any number is allowed */
    char *first_empty; /* "FILE:LINE: why"; NULL if there is none */
    struct ax_oddities skipped[AX_ODDITIES]; /* oddities of empty records */
};
void ax_bad_records_free(struct ax_bad_records *b);

/* Statistics gathered while preparing (data/records/pipeline/prepared.h). */
struct ax_examples_info {
    struct ax_bad_records bad;
    int64_t ends, ends_trained; /* tokens that end a turn or text; how many are trained on */
    int64_t double_bos;         /* examples that begin with BOS twice */
    struct ax_oddities oddities[AX_ODDITIES];
    bool from_cache;
};

struct ax_examples {
    struct ax_stored *list; /* [n] */
    size_t n, cap;
    const uint32_t **blocks;
    size_t n_blocks;
    uint64_t n_words; /* words in use, including the unused ends of blocks */
    uint64_t n_tokens, n_trained;
    uint32_t longest;
    char **files; /* [n_files], indexed by ax_stored.file */
    size_t n_files;
    struct ax_mapping list_map, words_map; /* mappings of a cache; zero otherwise */
    const struct ax_columns *columns;      /* columns of every example; borrowed; NULL: none */
    struct ax_examples_info info;
};

/* Zero-initialize. AX_ERR_DATA for an example larger than a block. */
enum ax_status ax_examples_add(struct ax_examples *e, const struct ax_example *x);
/* Removes the examples from index n on. */
void ax_examples_cut(struct ax_examples *e, size_t n);
enum ax_status ax_examples_add_file(struct ax_examples *e, const char *name);
void ax_examples_clear(struct ax_examples *e); /* removes all, resets longest; keeps the memory */
void ax_examples_free(struct ax_examples *e);

/* The words of example i: [n], or [2n] with own labels; then its columns and its text. */
static inline const uint32_t *ax_examples_words(const struct ax_examples *e, size_t i) {
    const uint64_t start = e->list[i].start;
    return e->blocks[start / AX_EXAMPLES_BLOCK] + start % AX_EXAMPLES_BLOCK;
}

/* Token t of an example with these words; its label, AX_NO_LABEL if it is not trained on. */
static inline int32_t ax_word_token(const uint32_t *words, size_t t) {
    return (int32_t)(words[t] & ~AX_WORD_TRAINED);
}
static inline int32_t ax_word_label(const struct ax_stored *x, const uint32_t *words, size_t t) {
    if (x->own_labels)
        return (int32_t)words[x->n + t];
    return words[t] & AX_WORD_TRAINED ? ax_word_token(words, t) : AX_NO_LABEL;
}

/* The values of column c: [1] or [n], times its width. */
static inline const uint32_t *ax_examples_column(const struct ax_examples *e, size_t i, int c) {
    const struct ax_stored *x = &e->list[i];
    return ax_examples_words(e, i) + (size_t)x->n * (1U + x->own_labels) +
           ax_columns_words(e->columns, c, x->n);
}

/* Words of an example before its text. */
static inline size_t ax_stored_words(const struct ax_examples *e, const struct ax_stored *x) {
    return (size_t)x->n * (1U + x->own_labels) +
           ax_columns_words(e->columns, ax_columns_count(e->columns), x->n);
}
/* Words of a text of n bytes, with the one that says so. */
static inline size_t ax_text_words(size_t n) {
    return 1 + (n + sizeof(uint32_t) - 1) / sizeof(uint32_t);
}
/* The text of example i and its number of bytes; NULL if it has none. No NUL follows. */
const char *ax_examples_text(const struct ax_examples *e, size_t i, size_t *n);

/* "FILE:LINE" of example i's record, written to buf and returned. */
const char *ax_examples_where(const struct ax_examples *e, size_t i, char *buf, size_t size);
/* Hash of the first n tokens, their labels and their columns, and of the text. */
uint64_t ax_examples_hash(const struct ax_examples *e, size_t i, uint32_t n);
/* Number of labels among the n tokens of example i that begin at token `from`. */
uint32_t ax_examples_trained(const struct ax_examples *e, size_t i, uint32_t from, uint32_t n);
/* True if the first n tokens of two examples are equal, with their labels and columns, and the
 * texts. */
bool ax_examples_equal(const struct ax_examples *a, size_t i, const struct ax_examples *b, size_t k,
                       uint32_t n);

#endif
