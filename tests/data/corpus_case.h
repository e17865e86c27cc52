/* Documents that the tests of packing, corpora and loaders share. Include after cmocka.h. */
#ifndef AX_TESTS_DATA_CORPUS_CASE_H
#define AX_TESTS_DATA_CORPUS_CASE_H

#include "base/rng.h"
#include "data/records/pipeline/corpus.h"
#include "tests/data/scratch.h"

#define N_RANDOM 500

static inline void random_lengths(uint32_t *lengths, size_t n, uint64_t max, uint64_t seed) {
    const struct ax_rng_key key = {.seed = seed};
    for (size_t i = 0; i < n; i++)
        lengths[i] = 1 + (uint32_t)ax_rng_below(key, i, i % 3 == 0 ? max : max / 4 + 1);
}

/* n times the same id; each `every`-th of them is trained, or none for 0. */
static inline void add_document(struct ax_examples *d, int32_t id, size_t n, size_t every) {
    int32_t ids[512];
    int32_t labels[512];
    assert_true(n <= 512);
    for (size_t i = 0; i < n; i++) {
        ids[i] = id;
        labels[i] = every > 0 && i % every == every - 1 ? id : AX_NO_LABEL;
    }
    const struct ax_example x = {.tokens = ids,
                                 .labels = labels,
                                 .n = n,
                                 .origin = {.line = (uint64_t)id, .record = id % 1000}};
    assert_ok(ax_examples_add(d, &x));
}

/* Document i of set s has the ids 1000·s + i. */
static struct ax_examples sets[2];

static inline int make_sets(void **state) {
    uint32_t lengths[N_RANDOM];
    for (int32_t s = 0; s < 2; s++) {
        assert_ok(ax_examples_add_file(&sets[s], s == 0 ? "a.jsonl" : "b.jsonl"));
        random_lengths(lengths, 200, 100, (uint64_t)s);
        for (int32_t i = 0; i < 200; i++)
            add_document(&sets[s], 1000 * s + i, lengths[i], i % 10 != 0 ? 2 : 0);
    }
    return scratch_make(state);
}

static inline int free_sets(void **state) {
    ax_examples_free(&sets[0]);
    ax_examples_free(&sets[1]);
    return scratch_remove(state);
}

static inline struct ax_corpus_options corpus_options(void) {
    return (struct ax_corpus_options){
        .shuffle = true, .seed = 42, .rule = {.min = 2, .max = 80, .drop_untrained = true}};
}

#endif
