/* The examples of a run in order: several data sets concatenated, shuffled, filtered, deduplicated,
 * and split into training and evaluation. Contains only references; the tokens stay in the sets.
 *
 * The unit of all these is the group, such as a pair of answers. Its examples are contiguous, here
 * as in their set. Most groups have one example.
 *
 * Reading order: corpus.c (which groups), corpus_order.c (in which order), corpus_weigh.c (how
 * often). */
#ifndef AX_DATA_RECORDS_PIPELINE_CORPUS_H
#define AX_DATA_RECORDS_PIPELINE_CORPUS_H

#include "data/records/pipeline/examples.h"
#include "data/records/rows/shuffle.h"

struct ax_example_ref {
    uint16_t set;    /* sets[set].list[index] */
    uint16_t joined; /* 1: same group as the previous reference */
    uint32_t index;
    uint32_t n; /* tokens used: fewer than the example has if truncated */
};

struct ax_corpus {
    const struct ax_examples *sets; /* borrowed; all with the same columns */
    struct ax_example_ref *refs;    /* [n] */
    size_t n, cap;
};

/* End of the group that begins at refs[first]. */
static inline size_t ax_corpus_group_end(const struct ax_corpus *c, size_t first) {
    size_t end = first + 1;
    while (end < c->n && c->refs[end].joined)
        end++;
    return end;
}

enum ax_excess { AX_EXCESS_DROP, AX_EXCESS_TRUNCATE, AX_EXCESS_RAISE };

/* A group is dropped if any of its examples is. */
struct ax_length_rule {
    int64_t min, max; /* tokens; max INT64_MAX = no limit */
    enum ax_excess excess;
    bool drop_untrained; /* examples without a trained token */
    int64_t reserved;    /* max is this much below sequence_len: prompts, for the completion */
};

/* Counts groups, except `cut`: examples. */
struct ax_corpus_report {
    int64_t too_short, too_long, cut, untrained, duplicates;
    int64_t other_shards; /* groups assigned to other shards */
};

enum ax_status ax_corpus_add(struct ax_corpus *c, struct ax_example_ref ref);
/* Applies the rule to refs[start …], which are complete groups. AX_ERR_DATA for an example that is
 * too long if the rule says so. */
enum ax_status ax_corpus_filter(struct ax_corpus *c, size_t start,
                                const struct ax_length_rule *rule, struct ax_corpus_report *r);

/* First reference of each group in refs[start …]; free *firsts with ax_free. */
enum ax_status ax_corpus_groups(const struct ax_corpus *c, size_t start, uint32_t **firsts,
                                size_t *n);
/* Shuffles the groups from `start` on. */
enum ax_status ax_corpus_shuffle(struct ax_corpus *c, size_t start, struct ax_shuffle_key key);
/* Sorts each run of `run` groups by longest example, longest first. */
enum ax_status ax_corpus_sort_runs(struct ax_corpus *c, size_t run);

struct ax_corpus_options {
    bool shuffle_each, shuffle; /* each set before concatenation; all of them after */
    uint64_t seed;
    int64_t n_shards, shard; /* n_shards > 1: keeps one contiguous part of the groups */
    struct ax_length_rule rule;
    bool deduplicate;
    const struct ax_corpus *also; /* also drops duplicates of these groups; or NULL */
};

/* Applies the options in this order: concatenate, shuffle, shard, lengths, untrained,
 * duplicates. */
enum ax_status ax_corpus_build(struct ax_corpus *out, const struct ax_examples *sets, size_t n_sets,
                               const struct ax_corpus_options *o, struct ax_corpus_report *r);
/* Moves the last groups of c to the end of `tail`: ⌈size · n⌉ of them if size < 1, else `size`.
 * AX_ERR_DATA if none would be left. */
enum ax_status ax_corpus_take_tail(struct ax_corpus *c, double size, struct ax_corpus *tail);

/* How much of each data set an epoch contains. `list` has either factors: 0.5 uses a random half
 * of the groups, 2.5 uses all of them twice and a random half once more. Or, with `shares`, it
 * has proportions between the sets: uses as many groups as possible without repeating any.
 * Counts are rounded to the nearest group; the seed decides which groups are used. */
struct ax_corpus_weights {
    const double *list; /* [n] one per set, above 0 */
    size_t n;
    bool shares;
    bool shuffle; /* shuffles the result; otherwise each repetition has the original order */
    uint64_t seed;
};
/* AX_ERR_DATA if nothing would be left of a set. */
enum ax_status ax_corpus_weigh(struct ax_corpus *c, const struct ax_corpus_weights *w);
void ax_corpus_free(struct ax_corpus *c);

#endif
