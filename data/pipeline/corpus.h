/* The documents of a run in their order: several data sets joined, shuffled, filtered, without
 * duplicates, and split into training and evaluation. Holds places only; the tokens stay in the
 * sets. */
#ifndef AX_DATA_PIPELINE_CORPUS_H
#define AX_DATA_PIPELINE_CORPUS_H

#include "data/pipeline/docs.h"

struct ax_corpus_doc {
    uint32_t set, doc; /* sets[set]->list[doc] */
    uint32_t n;        /* tokens in use: less than the document has where it was cut */
};

struct ax_corpus {
    const struct ax_docs *const *sets; /* borrowed */
    size_t n_sets;
    struct ax_corpus_doc *docs; /* [n] */
    size_t n, cap;
};

enum ax_excess { AX_EXCESS_DROP, AX_EXCESS_TRUNCATE, AX_EXCESS_RAISE };

struct ax_length_rule {
    int64_t min, max; /* tokens; max INT64_MAX = any length */
    enum ax_excess excess;
    bool drop_untrained; /* documents without any trained token */
};

struct ax_corpus_report {
    int64_t too_short, too_long, cut, untrained, duplicates;
    int64_t other_shards; /* documents that belong to other shards */
};

/* What becomes of one document: *keep, and how many of its tokens. AX_ERR_DATA for one that is too
 * long where the rule says so. */
enum ax_status ax_corpus_admit(const struct ax_length_rule *rule, const struct ax_docs *set,
                               struct ax_corpus_doc *doc, bool *keep, struct ax_corpus_report *r);
enum ax_status ax_corpus_add(struct ax_corpus *c, struct ax_corpus_doc doc);

struct ax_corpus_options {
    bool shuffle_each, shuffle; /* each set before they are joined; all of them after */
    uint64_t seed;
    int64_t n_shards, shard; /* n_shards > 1: keeps one run of the joined documents */
    struct ax_length_rule rule;
    bool deduplicate;
    const struct ax_corpus *also; /* documents of this corpus count as duplicates too; or NULL */
};

/* Order of work: join, shuffle, shard, lengths, untrained, duplicates. */
enum ax_status ax_corpus_build(struct ax_corpus *out, const struct ax_docs *const *sets,
                               size_t n_sets, const struct ax_corpus_options *o,
                               struct ax_corpus_report *r);
/* Moves the last documents of c to the end of `tail`: ⌈size · n⌉ of them, or `size` from 1 on.
 * AX_ERR_DATA when nothing would be left. */
enum ax_status ax_corpus_take_tail(struct ax_corpus *c, double size, struct ax_corpus *tail);
/* Applies another rule to what is there. */
enum ax_status ax_corpus_filter(struct ax_corpus *c, const struct ax_length_rule *rule,
                                struct ax_corpus_report *r);
void ax_corpus_free(struct ax_corpus *c);

#endif
