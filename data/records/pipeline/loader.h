/* Training sequences: packed examples in an order that depends only on the seed. Every rank of a
 * mesh sees the same sequences and takes its share. The position can be saved and restored exactly,
 * even on a different mesh.
 *
 * Examples come in chunks, each packed separately, from a source: a corpus (ax_corpus_source) or a
 * stream (data/records/pipeline/stream.h).
 *
 * Reading order of this folder: prepare.c (records to examples, in order, on several threads),
 * prepared.c (and their cache), examples.c; corpus.c, corpus_order.c; loader_corpus.c or stream.c, pack.c, loader.c. */
#ifndef AX_DATA_RECORDS_PIPELINE_LOADER_H
#define AX_DATA_RECORDS_PIPELINE_LOADER_H

#include <jansson.h>

#include "data/records/pipeline/sequence.h"

/* A position in a source: the first example of a chunk. */
struct ax_source_place {
    int64_t set, record; /* streams: data set, record index in it; else 0 */
};

struct ax_example_source {
    void *ctx;
    /* Replaces *out with the examples of chunk `chunk` of an epoch, in training order; none: the
     * epoch is over. Streams only support sequential access, from `place` on. *next = start of the
     * next chunk. */
    enum ax_status (*chunk)(void *ctx, int64_t epoch, int64_t chunk, struct ax_source_place place,
                            struct ax_corpus *out, struct ax_source_place *next);
    uint64_t fingerprint; /* equal: the same examples */
    bool countable;       /* chunks may be requested in any order */
};

/* A corpus as a source: chunks of `chunk` groups, optionally reshuffled every epoch. */
struct ax_corpus_source {
    const struct ax_corpus *corpus;
    int64_t chunk;
    bool shuffle;
    uint64_t seed;
    uint32_t *order; /* [n_groups] first references, for order_epoch */
    size_t n_groups;
    int64_t order_epoch;
};
void ax_corpus_source_init(struct ax_corpus_source *s, const struct ax_corpus *corpus,
                           struct ax_example_source *out);
void ax_corpus_source_free(struct ax_corpus_source *s);

struct ax_loader_options {
    struct ax_pack_options pack;
    bool shuffle;      /* shuffles a chunk's sequences, which first-fit sorts by length */
    int64_t by_length; /* > 0, PLAIN: sorts runs of this many groups, longest first */
    bool mixed;        /* the examples of a sequence attend to each other as one document */
    /* labels are classes of their own tokens: they, and columns of labels, are not shifted to
     * the token before */
    bool labels_in_place;
    uint64_t seed;
};

struct ax_loader;

/* `source` is borrowed. */
enum ax_status ax_loader_new(struct ax_loader **out, const struct ax_example_source *source,
                             const struct ax_loader_options *o);
void ax_loader_free(struct ax_loader *l);
/* The source's fingerprint. */
uint64_t ax_loader_examples(const struct ax_loader *l);

/* The next sequence of the epoch, valid until the next call; *got = false at the epoch's end. */
enum ax_status ax_loader_next(struct ax_loader *l, struct ax_packed_sequence *out, bool *got);
/* Skips n sequences; *passed is smaller if the epoch ends first. */
enum ax_status ax_loader_skip(struct ax_loader *l, int64_t n, int64_t *passed);
/* Moves to the first sequence of an epoch. */
void ax_loader_start_epoch(struct ax_loader *l, int64_t epoch);

/* Size of an epoch; AX_ERR_UNSUPPORTED for streams, whose length is unknown. */
struct ax_loader_count {
    int64_t sequences, examples, tokens;
    int64_t padded; /* tokens with each sequence padded to a multiple of `pad` */
};
enum ax_status ax_loader_count_epoch(struct ax_loader *l, int64_t epoch, int64_t pad,
                                     struct ax_loader_count *out);

/* Tokens of an epoch that are predicted and trained on; not of streams. */
enum ax_status ax_loader_count_trained(struct ax_loader *l, int64_t epoch, int64_t *out);
/* True if the first token of a sequence's piece is trained on, as far as its label says so: nothing
 * predicts that of a document. */
bool ax_loader_trains_first(const struct ax_loader *l, int piece);

/* Position of the next sequence, for a checkpoint. */
struct ax_loader_state {
    int64_t epoch, index;         /* next sequence of the epoch */
    int64_t chunk, in_chunk;      /* index of the chunk; of the next sequence in it */
    struct ax_source_place place; /* start of the chunk */
    uint64_t fingerprint;         /* hash of source and options */
};
void ax_loader_save(const struct ax_loader *l, struct ax_loader_state *st);
/* AX_ERR_DATA if the state belongs to other data or options. */
enum ax_status ax_loader_restore(struct ax_loader *l, const struct ax_loader_state *st);
enum ax_status ax_loader_state_to_json(const struct ax_loader_state *st, json_t **out);
enum ax_status ax_loader_state_from_json(struct ax_loader_state *st, const json_t *v);

#endif
