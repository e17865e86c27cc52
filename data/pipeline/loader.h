/* Sequences for training: examples packed, in an order that depends on the seed and nothing else.
 * Every rank of a mesh sees the same sequences and takes its own; where it stands can be saved and
 * restored exactly, on another mesh too.
 *
 * Examples come in chunks from a source: a corpus that is all there (ax_corpus_source), or a stream
 * (data/pipeline/stream.h). A chunk is packed at a time, so an epoch is chunks of sequences.
 *
 * Reading order of this folder: prepare.c (records to examples, in order, on several threads),
 * prepared.c with cache_load.c and cache_write.c, examples.c; corpus.c, corpus_order.c, dedup.c;
 * loader_corpus.c or stream.c, pack.c, pack_fit.c, loader.c. */
#ifndef AX_DATA_PIPELINE_LOADER_H
#define AX_DATA_PIPELINE_LOADER_H

#include <jansson.h>

#include "data/pipeline/sequence.h"

/* A place in a source: the first example of a chunk. */
struct ax_source_place {
    int64_t set, record; /* streams: data set, and index of the record in it; else 0 */
};

struct ax_example_source {
    void *ctx;
    /* Replaces *out by the examples of chunk `chunk` of an epoch, in training order; none: the
     * epoch is over. Streams give chunks in turn only, from *place on; *next = where the next chunk
     * begins. */
    enum ax_status (*chunk)(void *ctx, int64_t epoch, int64_t chunk, struct ax_source_place place,
                            struct ax_corpus *out, struct ax_source_place *next);
    uint64_t fingerprint; /* equal: the same examples */
    bool countable;       /* chunks may be asked for in any order */
};

/* The source of a corpus: chunks of `chunk` groups; shuffled anew for each epoch if asked. */
struct ax_corpus_source {
    const struct ax_corpus *corpus;
    int64_t chunk;
    bool shuffle;
    uint64_t seed;
    uint32_t *order; /* [n_groups] first references, of order_epoch */
    size_t n_groups;
    int64_t order_epoch;
};
void ax_corpus_source_init(struct ax_corpus_source *s, const struct ax_corpus *corpus,
                           struct ax_example_source *out);
void ax_corpus_source_free(struct ax_corpus_source *s);

struct ax_loader_options {
    struct ax_pack_options pack;
    bool shuffle;      /* mixes the sequences of a chunk, which first-fit has sorted by length */
    int64_t by_length; /* > 0, PLAIN: runs of so many groups are sorted, the longest first */
    bool mixed;        /* the examples of a sequence see each other, as one document */
    uint64_t seed;
};

struct ax_loader;

/* `source` is borrowed. */
enum ax_status ax_loader_new(struct ax_loader **out, const struct ax_example_source *source,
                             const struct ax_loader_options *o);
void ax_loader_free(struct ax_loader *l);

/* The next sequence of the epoch, valid until the next call; *got = false at the epoch's end. */
enum ax_status ax_loader_next(struct ax_loader *l, struct ax_packed_sequence *out, bool *got);
/* Passes over n sequences; *passed is less at the epoch's end. */
enum ax_status ax_loader_skip(struct ax_loader *l, int64_t n, int64_t *passed);
/* Goes to the first sequence of an epoch. */
void ax_loader_start_epoch(struct ax_loader *l, int64_t epoch);

/* What an epoch holds; AX_ERR_UNSUPPORTED for streams, whose length nobody knows. */
struct ax_loader_count {
    int64_t sequences, examples, tokens;
    int64_t padded; /* tokens of the sequences when each is padded to a multiple of `pad` */
};
enum ax_status ax_loader_count_epoch(struct ax_loader *l, int64_t epoch, int64_t pad,
                                     struct ax_loader_count *out);

/* Where the next sequence is, for a checkpoint. */
struct ax_loader_state {
    int64_t epoch, index;         /* next sequence of the epoch */
    int64_t chunk, in_chunk;      /* the same by chunk */
    struct ax_source_place place; /* of the chunk */
    uint64_t fingerprint;         /* of source and options */
};
void ax_loader_save(const struct ax_loader *l, struct ax_loader_state *st);
/* AX_ERR_DATA when the state is of other data or other options. */
enum ax_status ax_loader_restore(struct ax_loader *l, const struct ax_loader_state *st);
enum ax_status ax_loader_state_to_json(const struct ax_loader_state *st, json_t **out);
enum ax_status ax_loader_state_from_json(struct ax_loader_state *st, const json_t *v);

#endif
