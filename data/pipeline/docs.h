/* Documents ready for training, many of them: tokens, which of them are trained, and where each
 * document comes from. In memory, or mapped from the files of a cache.
 *
 * A token is one 32-bit word, its top bit set where it is trained on itself. A document whose
 * labels are other ids (rows that were tokens already may have such) has its labels behind its
 * tokens. Words lie in blocks; a document lies in one block. */
#ifndef AX_DATA_PIPELINE_DOCS_H
#define AX_DATA_PIPELINE_DOCS_H

#include "base/io.h"
#include "data/format/samples.h"

#define AX_DOCS_BLOCK  ((size_t)1 << 22) /* words */
#define AX_DOC_TRAINED 0x80000000U

struct ax_doc {
    uint64_t start; /* word, counted over all blocks */
    uint64_t hash;  /* of ids and labels */
    uint64_t line;
    uint32_t file, n, n_trained;
    uint32_t own_labels; /* 1: labels are n words behind the tokens */
};

struct ax_docs {
    struct ax_doc *list; /* [n] */
    size_t n, cap;
    const uint32_t **blocks;
    size_t n_blocks;
    uint64_t n_words; /* in use, the unused ends of blocks included */
    uint64_t n_tokens, n_trained;
    uint32_t longest;
    char **files; /* [n_files], names for ax_doc.file */
    size_t n_files;
    struct ax_mapping list_map, words_map; /* of a cache; else zero */
};

/* Zero-initialise. Appends a document, with labels as in struct ax_samples. AX_ERR_DATA for one
 * that has more words than a block. */
enum ax_status ax_docs_add(struct ax_docs *d, const int32_t *ids, const int32_t *labels, size_t n,
                           struct ax_origin origin);
/* Takes the document that was added last away again. */
void ax_docs_drop_last(struct ax_docs *d);
enum ax_status ax_docs_add_file(struct ax_docs *d, const char *name);
void ax_docs_clear(struct ax_docs *d); /* forgets the documents, keeps the memory */
void ax_docs_free(struct ax_docs *d);

/* The words of a document: [n], or [2n] with own labels. */
static inline const uint32_t *ax_docs_words(const struct ax_docs *d, size_t doc) {
    const uint64_t start = d->list[doc].start;
    return d->blocks[start / AX_DOCS_BLOCK] + start % AX_DOCS_BLOCK;
}

/* Token i and its label, AX_NO_LABEL where it is not trained. */
static inline int32_t ax_docs_id(const uint32_t *words, size_t i) {
    return (int32_t)(words[i] & ~AX_DOC_TRAINED);
}
static inline int32_t ax_docs_label(const struct ax_doc *doc, const uint32_t *words, size_t i) {
    if (doc->own_labels)
        return (int32_t)words[doc->n + i];
    return words[i] & AX_DOC_TRAINED ? ax_docs_id(words, i) : AX_NO_LABEL;
}

/* "FILE:LINE" of a document, written to buf, returned. */
const char *ax_docs_where(const struct ax_docs *d, size_t doc, char *buf, size_t size);
/* Hash of the first n tokens and their labels. */
uint64_t ax_docs_hash(const struct ax_docs *d, size_t doc, uint32_t n);
/* Trained tokens among the first n of a document. */
uint32_t ax_docs_trained(const struct ax_docs *d, size_t doc, uint32_t n);
/* Whether the first n tokens of two documents and their labels are the same. */
bool ax_docs_equal(const struct ax_docs *a, size_t doc_a, const struct ax_docs *b, size_t doc_b,
                   uint32_t n);

#endif
