/* The examples of a run in their order: several data sets joined, shuffled, filtered, without
 * duplicates, and split into training and evaluation. Holds references only; the tokens stay in the
 * sets. */
#ifndef AX_DATA_PIPELINE_CORPUS_H
#define AX_DATA_PIPELINE_CORPUS_H

#include "data/pipeline/examples.h"
#include "data/rows/shuffle.h"

struct ax_example_ref {
    uint32_t set, index; /* sets[set].list[index] */
    uint32_t n;          /* tokens in use: less than the example has where it was cut */
};

struct ax_corpus {
    const struct ax_examples *sets; /* borrowed */
    struct ax_example_ref *refs;    /* [n] */
    size_t n, cap;
};

enum ax_excess { AX_EXCESS_DROP, AX_EXCESS_TRUNCATE, AX_EXCESS_RAISE };

struct ax_length_rule {
    int64_t min, max; /* tokens; max INT64_MAX = any length */
    enum ax_excess excess;
    bool drop_untrained; /* examples without any trained token */
};

struct ax_corpus_report {
    int64_t too_short, too_long, cut, untrained, duplicates;
    int64_t other_shards; /* examples that belong to other shards */
};

/* What becomes of one example of `set`: *keep, and how many of its tokens. AX_ERR_DATA for one that
 * is too long where the rule says so. */
enum ax_status ax_corpus_admit(const struct ax_length_rule *rule, const struct ax_examples *set,
                               struct ax_example_ref *ref, bool *keep, struct ax_corpus_report *r);
enum ax_status ax_corpus_add(struct ax_corpus *c, struct ax_example_ref ref);

/* Puts the examples from `start` on into a random order. */
enum ax_status ax_corpus_shuffle(struct ax_corpus *c, size_t start, struct ax_shuffle_key key);

struct ax_corpus_options {
    bool shuffle_each, shuffle; /* each set before they are joined; all of them after */
    uint64_t seed;
    int64_t n_shards, shard; /* n_shards > 1: keeps one run of the joined examples */
    struct ax_length_rule rule;
    bool deduplicate;
    const struct ax_corpus *also; /* examples of this corpus count as duplicates too; or NULL */
};

/* Order of work: join, shuffle, shard, lengths, untrained, duplicates. */
enum ax_status ax_corpus_build(struct ax_corpus *out, const struct ax_examples *sets, size_t n_sets,
                               const struct ax_corpus_options *o, struct ax_corpus_report *r);
/* Moves the last examples of c to the end of `tail`: ⌈size · n⌉ of them, or `size` from 1 on.
 * AX_ERR_DATA when nothing would be left. */
enum ax_status ax_corpus_take_tail(struct ax_corpus *c, double size, struct ax_corpus *tail);
/* Applies another rule to what is there. */
enum ax_status ax_corpus_filter(struct ax_corpus *c, const struct ax_length_rule *rule,
                                struct ax_corpus_report *r);
void ax_corpus_free(struct ax_corpus *c);

#endif
