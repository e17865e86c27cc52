/* Documents and corpora: filters, shards, duplicates, the evaluation tail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/data/corpus_case.h"

static void corpora(void **state) {
    (void)state;
    struct ax_corpus c;
    struct ax_corpus tail = {0};
    struct ax_corpus_report r = {0};
    struct ax_corpus_options o = corpus_options();
    int64_t short_ = 0;
    int64_t long_ = 0;
    int64_t untrained = 0;
    for (int s = 0; s < 2; s++)
        for (size_t i = 0; i < sets[s].n; i++) {
            const uint32_t n = sets[s].list[i].n;
            short_ += n < 2;
            long_ += n > 80;
            untrained += n >= 2 && n <= 80 && sets[s].list[i].n_trained == 0;
        }
    assert_ok(ax_corpus_build(&c, sets, 2, &o, &r));
    assert_true(short_ > 0 && long_ > 0 && untrained > 0);
    assert_int_equal(r.too_short, short_);
    assert_int_equal(r.too_long, long_);
    assert_int_equal(r.untrained, untrained);
    assert_int_equal(c.n, 400 - short_ - long_ - untrained);
    /* the tail: a share is rounded up, a number is taken as it is */
    const size_t n = c.n;
    const struct ax_example_ref last = c.refs[n - 1];
    assert_ok(ax_corpus_take_tail(&c, 0.01, &tail));
    assert_int_equal(tail.n, (n + 99) / 100);
    assert_memory_equal(&tail.refs[tail.n - 1], &last, sizeof last);
    assert_int_equal(c.n + tail.n, n);
    ax_corpus_free(&tail);
    assert_ok(ax_corpus_take_tail(&c, 5, &tail));
    assert_int_equal(tail.n, 5);
    assert_error(ax_corpus_take_tail(&c, 1000, &tail), AX_ERR_DATA, "leaves none");
    assert_error(ax_corpus_take_tail(&c, (double)c.n, &tail), AX_ERR_DATA, "leaves none");
    ax_corpus_free(&tail);
    ax_corpus_free(&c);
    /* cut instead of dropped; what is cut may have no trained token left */
    o.rule.excess = AX_EXCESS_TRUNCATE;
    o.rule.max = 2;
    r = (struct ax_corpus_report){0};
    assert_ok(ax_corpus_build(&c, sets, 2, &o, &r));
    assert_int_equal(r.too_long, 0);
    assert_true(r.cut > 300);
    for (size_t i = 0; i < c.n; i++)
        assert_int_equal(c.refs[i].n, 2);
    ax_corpus_free(&c);
    o.rule.excess = AX_EXCESS_RAISE;
    assert_error(ax_corpus_build(&c, sets, 2, &o, &r), AX_ERR_DATA, "but sequence_len is 2");
    /* in order, without any rule; one of three shards; each set shuffled for itself */
    o = (struct ax_corpus_options){.rule = {.max = INT64_MAX}};
    assert_ok(ax_corpus_build(&c, sets, 2, &o, &r));
    for (size_t i = 0; i < 400; i++)
        assert_true(c.refs[i].set == i / 200 && c.refs[i].index == i % 200);
    ax_corpus_free(&c);
    o.n_shards = 3;
    o.shard = 1;
    assert_ok(ax_corpus_build(&c, sets, 2, &o, &r));
    assert_int_equal(c.n, 133);
    assert_int_equal(c.refs[0].index, 134);
    ax_corpus_free(&c);
    o.n_shards = 0;
    o.deduplicate = true; /* they are all different */
    assert_ok(ax_corpus_build(&c, sets, 2, &o, &r));
    assert_int_equal(c.n, 400);
    assert_int_equal(r.duplicates, 0);
    ax_corpus_free(&c);
    o.deduplicate = false;
    o.shuffle_each = true;
    assert_ok(ax_corpus_build(&c, sets, 2, &o, &r));
    int in_place = 0;
    for (size_t i = 0; i < 400; i++) {
        assert_int_equal(c.refs[i].set, i / 200);
        in_place += c.refs[i].index == i % 200;
    }
    assert_true(in_place < 20);
    ax_corpus_free(&c);
}

static void duplicates(void **state) {
    (void)state;
    struct ax_examples d = {0};
    struct ax_examples e = {0};
    add_document(&d, 1, 5, 2);
    add_document(&d, 2, 5, 2);
    add_document(&d, 1, 5, 2); /* again */
    add_document(&d, 1, 5, 0); /* the same ids, other labels */
    add_document(&d, 1, 9, 2); /* the same when cut to 5 */
    add_document(&e, 3, 5, 2);
    add_document(&e, 2, 5, 2);
    struct ax_corpus c;
    struct ax_corpus eval;
    struct ax_corpus_report r = {0};
    struct ax_corpus_options o = {.rule = {.max = 9}, .deduplicate = true};
    assert_ok(ax_corpus_build(&c, &d, 1, &o, &r));
    assert_int_equal(c.n, 4);
    assert_int_equal(r.duplicates, 1);
    assert_int_equal(c.refs[2].index, 3); /* the first one stays */
    o.also = &c;
    assert_ok(ax_corpus_build(&eval, &e, 1, &o, &r));
    assert_int_equal(eval.n, 1);
    assert_int_equal(eval.refs[0].index, 0);
    ax_corpus_free(&eval);
    ax_corpus_free(&c);
    o = (struct ax_corpus_options){.rule = {.max = 5, .excess = AX_EXCESS_TRUNCATE},
                                   .deduplicate = true};
    assert_ok(ax_corpus_build(&c, &d, 1, &o, &r));
    assert_int_equal(c.n, 3);
    ax_corpus_free(&c);
    ax_examples_free(&d);
    ax_examples_free(&e);
}

static void own_labels(void **state) {
    (void)state;
    struct ax_examples d = {0};
    const int32_t ids[] = {5, 6, 7};
    const int32_t labels[] = {AX_NO_LABEL, 9, 7};
    assert_ok(ax_examples_add(&d, &(struct ax_example){.tokens = ids, .labels = labels, .n = 3}));
    assert_int_equal(d.list[0].n_trained, 2);
    assert_int_equal(d.n_words, 6);
    const uint32_t *words = ax_examples_words(&d, 0);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(ax_word_token(words, i), ids[i]);
        assert_int_equal(ax_word_label(&d.list[0], words, i), labels[i]);
    }
    const uint64_t hash = d.list[0].hash;
    ax_examples_cut(&d, d.n - 1);
    const int32_t other_labels[] = {AX_NO_LABEL, 8, 7};
    assert_ok(
        ax_examples_add(&d, &(struct ax_example){.tokens = ids, .labels = other_labels, .n = 3}));
    assert_true(d.list[0].hash != hash);
    ax_examples_cut(&d, d.n - 1);
    assert_int_equal(d.n_words, 0);
    assert_int_equal(d.n_tokens, 0);
    assert_int_equal(d.n_trained, 0);
    assert_int_equal(d.longest, 3);
    ax_examples_clear(&d);
    assert_int_equal(d.longest, 0);
    int32_t *many;
    const size_t n = AX_EXAMPLES_BLOCK + 1;
    assert_ok(ax_alloc(&many, n, sizeof *many));
    assert_error(ax_examples_add(&d, &(struct ax_example){.tokens = many, .labels = many, .n = n}),
                 AX_ERR_DATA, "a document has 4194305 tokens; at most 4194304 are supported");
    many[0] = 1; /* labels of its own take as much room again */
    assert_error(ax_examples_add(&d, &(struct ax_example){.tokens = many,
                                                          .labels = many + 1,
                                                          .n = AX_EXAMPLES_BLOCK / 2 + 1}),
                 AX_ERR_DATA, "a document has 2097153 tokens; at most 2097152 are supported");
    many[0] = 0;
    /* a document that does not fit the rest of a block begins the next one */
    assert_ok(ax_examples_add(&d, &(struct ax_example){.tokens = many, .labels = many, .n = 10}));
    assert_ok(ax_examples_add(
        &d, &(struct ax_example){.tokens = many, .labels = many, .n = AX_EXAMPLES_BLOCK}));
    assert_ok(ax_examples_add(&d, &(struct ax_example){.tokens = ids, .labels = ids, .n = 3}));
    assert_int_equal(d.list[1].start, AX_EXAMPLES_BLOCK);
    assert_int_equal(d.list[2].start, 2 * AX_EXAMPLES_BLOCK);
    assert_int_equal(ax_word_token(ax_examples_words(&d, 2), 2), 7);
    ax_free(many);
    ax_examples_free(&d);
}

/* A cut document is what is left of it, to the last token: whether it is trained, and whether it is
 * another one's duplicate. */
static void cut_documents(void **state) {
    (void)state;
    struct ax_examples d = {0};
    int32_t ids[] = {7, 7, 7, 7, 7, 7, 7, 7, 7, 8};
    add_document(&d, 7, 10, 10); /* trained at the end alone */
    add_document(&d, 7, 10, 9);
    assert_ok(ax_examples_add(&d, &(struct ax_example){.tokens = ids, .labels = ids, .n = 10}));
    assert_ok(ax_examples_add(&d, &(struct ax_example){.tokens = ids, .labels = ids, .n = 9}));
    struct ax_corpus c;
    struct ax_corpus_options o = {
        .rule = {.max = 9, .excess = AX_EXCESS_TRUNCATE, .drop_untrained = true},
        .deduplicate = true};
    struct ax_corpus_report r = {0};
    assert_ok(ax_corpus_build(&c, &d, 1, &o, &r));
    assert_int_equal(r.cut, 3);
    assert_int_equal(r.untrained, 1);
    assert_int_equal(r.duplicates, 1);
    assert_int_equal(c.n, 2);
    assert_int_equal(c.refs[0].index, 1);
    assert_int_equal(c.refs[1].index, 2);
    ax_corpus_free(&c);
    o.rule.max = 10;
    assert_ok(ax_corpus_build(&c, &d, 1, &o, &r));
    assert_int_equal(c.n, 4);
    ax_corpus_free(&c);
    /* of documents that may be untrained, one that lost its trained tokens goes */
    add_document(&d, 3, 9, 0);
    o.rule = (struct ax_length_rule){.max = 9, .excess = AX_EXCESS_TRUNCATE};
    o.deduplicate = false;
    assert_ok(ax_corpus_build(&c, &d, 1, &o, &r));
    assert_int_equal(r.untrained, 2);
    assert_int_equal(c.n, 4);
    assert_int_equal(c.refs[0].index, 1);
    assert_int_equal(c.refs[3].index, 4);
    ax_corpus_free(&c);
    ax_examples_free(&d);
}

/* Equal hashes are no proof: not of equal tokens, and not of equal lengths. */
static void hashes_may_collide(void **state) {
    (void)state;
    struct ax_examples d = {0};
    static const int32_t ids[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    assert_ok(ax_examples_add(&d, &(struct ax_example){.tokens = ids, .labels = ids, .n = 5}));
    assert_ok(ax_examples_add(
        &d,
        &(struct ax_example){.tokens = ids + 5, .labels = ids + 5, .n = 4})); /* directly behind */
    assert_ok(ax_examples_add(
        &d, &(struct ax_example){.tokens = ids, .labels = ids, .n = 9})); /* both together */
    assert_ok(
        ax_examples_add(&d, &(struct ax_example){.tokens = ids + 1, .labels = ids + 1, .n = 5}));
    for (size_t i = 0; i < d.n; i++)
        d.list[i].hash = 42;
    struct ax_corpus c;
    struct ax_corpus_options o = {.rule = {.max = 9}, .deduplicate = true};
    struct ax_corpus_report r = {0};
    assert_ok(ax_corpus_build(&c, &d, 1, &o, &r));
    assert_int_equal(c.n, 4);
    ax_corpus_free(&c);
    ax_examples_free(&d);
}

/* The shards of a corpus are runs of it that follow directly, of lengths that differ by one at
 * most.
 */
static void shards_are_the_corpus(void **state) {
    (void)state;
    for (int64_t n_shards = 2; n_shards < 12; n_shards += 3) {
        size_t next = 0;
        for (int64_t shard = 0; shard < n_shards; shard++) {
            struct ax_corpus c;
            struct ax_corpus_report r = {0};
            const struct ax_corpus_options o = {
                .rule = {.max = INT64_MAX}, .n_shards = n_shards, .shard = shard};
            assert_ok(ax_corpus_build(&c, sets, 2, &o, &r));
            assert_in_range(c.n, 400 / n_shards, 400 / n_shards + 1);
            assert_int_equal(r.other_shards, 400 - c.n);
            for (size_t i = 0; i < c.n; i++, next++)
                assert_true(c.refs[i].set == next / 200 && c.refs[i].index == next % 200);
            ax_corpus_free(&c);
        }
        assert_int_equal(next, 400);
    }
}

static void build_order(uint64_t seed, bool each, bool all, uint32_t *order) {
    struct ax_corpus c;
    struct ax_corpus_report r = {0};
    const struct ax_corpus_options o = {
        .rule = {.max = INT64_MAX}, .seed = seed, .shuffle_each = each, .shuffle = all};
    assert_ok(ax_corpus_build(&c, sets, 2, &o, &r));
    for (size_t i = 0; i < 400; i++)
        order[i] = each ? c.refs[i].index : 200 * c.refs[i].set + c.refs[i].index;
    ax_corpus_free(&c);
}

/* Either shuffle follows from the seed, and each set has an order of its own. */
static void shuffled_by_the_seed(void **state) {
    (void)state;
    static uint32_t first[400];
    static uint32_t other[400];
    for (int each = 0; each < 2; each++) {
        build_order(1, each, !each, first);
        build_order(1, each, !each, other);
        assert_memory_equal(first, other, sizeof first);
        build_order(2, each, !each, other);
        assert_memory_not_equal(first, other, sizeof first);
    }
    assert_memory_not_equal(first, first + 200, sizeof first / 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(corpora),
        cmocka_unit_test(duplicates),
        cmocka_unit_test(cut_documents),
        cmocka_unit_test(hashes_may_collide),
        cmocka_unit_test(shards_are_the_corpus),
        cmocka_unit_test(shuffled_by_the_seed),
        cmocka_unit_test(own_labels),
    };
    return cmocka_run_group_tests(tests, make_sets, free_sets);
}
