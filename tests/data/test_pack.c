/* Packing: every token once, no row too full; first-fit as a slow loop does it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/records/pipeline/pack.h"
#include "tests/data/corpus_case.h"

/* "0 1 | 2": the documents of each row; "2[4+3]" where it is a part. */
static void show(const struct ax_pack *p, const uint32_t *lengths, char *out) {
    *out = '\0';
    for (size_t r = 0; r < p->n; r++) {
        for (size_t i = p->firsts[r]; i < p->firsts[r + 1]; i++) {
            const struct ax_pack_piece *piece = &p->pieces[i];
            out += sprintf(out, "%s%u",
                           i > p->firsts[r] ? " "
                           : r > 0          ? " | "
                                            : "",
                           piece->example);
            if (piece->n != lengths[piece->example])
                out += sprintf(out, "[%u+%u]", piece->from, piece->n);
        }
    }
}

/* Groups of one. */
static void pack(struct ax_pack *p, const struct ax_pack_options *o, const uint32_t *lengths,
                 size_t n) {
    struct ax_corpus c = {0};
    for (size_t i = 0; i < n; i++)
        assert_ok(ax_corpus_add(&c, (struct ax_example_ref){.n = lengths[i]}));
    assert_ok(ax_pack_chunk(p, o, &c));
    ax_corpus_free(&c);
}

static void check(enum ax_pack_mode mode, int64_t capacity, int64_t max_docs,
                  const uint32_t *lengths, size_t n, const char *want) {
    const struct ax_pack_options o = {.mode = mode, .capacity = capacity, .max_docs = max_docs};
    struct ax_pack p = {0};
    char got[4096];
    pack(&p, &o, lengths, n);
    show(&p, lengths, got);
    assert_string_equal(got, want);
    ax_pack_free(&p);
}

static void by_hand(void **state) {
    (void)state;
    static const uint32_t l[] = {3, 8, 2, 5, 7, 1, 4};
    check(AX_PACK_PLAIN, 10, 9, l, 7, "0 | 1 | 2 | 3 | 4 | 5 | 6");
    /* falling: 8 7 5 4 3 2 1 → {8 2} {7 3} {5 4 1}; rows by their first documents */
    check(AX_PACK_FIT, 10, 9, l, 7, "0 4 | 1 2 | 3 5 6");
    /* two documents a row at most: the 1 needs a row of its own */
    check(AX_PACK_FIT, 10, 2, l, 7, "0 4 | 1 2 | 3 6 | 5");
    check(AX_PACK_IN_ORDER, 10, 9, l, 7, "0 | 1 2 | 3 | 4 5 | 6");
    check(AX_PACK_IN_ORDER, 10, 1, l, 7, "0 | 1 | 2 | 3 | 4 | 5 | 6");
    check(AX_PACK_WRAP, 10, 9, l, 7, "0 1[0+7] | 1[7+1] 2 3 4[0+2] | 4[2+5] 5 6");
    check(AX_PACK_WRAP, 10, 2, l, 7, "0 1[0+7] | 1[7+1] 2 | 3 4[0+5] | 4[5+2] 5 | 6");
    static const uint32_t whole[] = {30, 10};
    check(AX_PACK_WRAP, 10, 9, whole, 2, "0[0+10] | 0[10+10] | 0[20+10] | 1");
    /* each into the fullest; sequences as they were opened, the longest document first */
    check(AX_PACK_BEST, 10, 9, l, 7, "1 2 | 4 0 | 3 6 5");
    check(AX_PACK_BEST, 10, 2, l, 7, "1 2 | 4 0 | 3 6 | 5");
    static const uint32_t falling[] = {6, 4, 5, 3, 2, 0};
    check(AX_PACK_BEST, 10, 9, falling, 6, "0 1 | 2 3 4");
    static const uint32_t equal[] = {7, 7, 3, 3, 13};
    check(AX_PACK_BEST, 10, 9, equal, 5, "4[0+10] | 0 2 | 1 3");
    check(AX_PACK_BEST_SPLIT, 10, 9, equal, 5, "4[0+10] | 0 2 | 1 3 | 4[10+3]");
    check(AX_PACK_BEST_SPLIT, 10, 9, whole, 2, "0[0+10] | 0[10+10] | 0[20+10] | 1");
    for (int mode = AX_PACK_PLAIN; mode <= AX_PACK_BEST_SPLIT; mode++)
        check((enum ax_pack_mode)mode, 10, 9, l, 0, "");
    check(AX_PACK_FIT, 10, 9, l, 1, "0");
    static const uint32_t full[] = {10, 10, 10};
    check(AX_PACK_FIT, 10, 9, full, 3, "0 | 1 | 2");
    assert_int_equal(ax_pack_padded(65, 64), 128);
    assert_int_equal(ax_pack_padded(64, 64), 64);
    assert_int_equal(ax_pack_padded(65, 1), 65);
    assert_int_equal(ax_pack_padded(0, 64), 0);
}

/* First-fit decreasing, the slow way: row of each document. */
static size_t slow_fit(const uint32_t *lengths, size_t n, int64_t capacity, int64_t max_docs,
                       uint32_t *row) {
    static int64_t room[N_RANDOM];
    static int64_t docs[N_RANDOM];
    static bool done[N_RANDOM];
    size_t rows = 0;
    memset(done, 0, sizeof done);
    for (size_t k = 0; k < n; k++) {
        size_t longest = n;
        for (size_t i = 0; i < n; i++)
            if (!done[i] && (longest == n || lengths[i] > lengths[longest]))
                longest = i;
        done[longest] = true;
        size_t r = 0;
        while (r < rows && (room[r] < lengths[longest] || docs[r] == max_docs))
            r++;
        if (r == rows) {
            room[rows] = capacity;
            docs[rows++] = 0;
        }
        room[r] -= lengths[longest];
        docs[r]++;
        row[longest] = (uint32_t)r;
    }
    return rows;
}

static void fit_as_the_slow_way(void **state) {
    (void)state;
    uint32_t lengths[N_RANDOM];
    uint32_t row[N_RANDOM];
    uint32_t of_pack[N_RANDOM];
    for (uint64_t seed = 0; seed < 40; seed++) {
        const size_t n = seed * 12 + 1;
        const int64_t max_docs = seed % 4 == 0 ? 3 : 200;
        const struct ax_pack_options o = {
            .mode = AX_PACK_FIT, .capacity = 64, .max_docs = max_docs};
        struct ax_pack p = {0};
        random_lengths(lengths, n, 64, seed);
        pack(&p, &o, lengths, n);
        const size_t rows = slow_fit(lengths, n, 64, max_docs, row);
        assert_int_equal(p.n, rows);
        for (size_t r = 0; r < p.n; r++)
            for (size_t i = p.firsts[r]; i < p.firsts[r + 1]; i++)
                of_pack[p.pieces[i].example] = (uint32_t)r;
        for (size_t i = 0; i < n; i++)
            for (size_t k = 0; k < i; k++)
                assert_int_equal(row[i] == row[k], of_pack[i] == of_pack[k]);
        ax_pack_free(&p);
    }
}

/* In every mode each token of each document appears in exactly one sequence, in order. */
static void every_token_once(void **state) {
    (void)state;
    uint32_t lengths[N_RANDOM];
    for (uint64_t seed = 0; seed < 60; seed++) {
        const enum ax_pack_mode mode = (enum ax_pack_mode)(seed % 6);
        const struct ax_pack_options o = {.mode = mode, .capacity = 50, .max_docs = 7};
        uint32_t next[N_RANDOM] = {0};
        struct ax_pack p = {0};
        const bool cuts = mode == AX_PACK_WRAP || mode == AX_PACK_BEST_SPLIT;
        random_lengths(lengths, N_RANDOM, cuts ? 300 : 50, seed);
        pack(&p, &o, lengths, N_RANDOM);
        assert_int_equal(p.firsts[p.n], p.n_pieces);
        for (size_t r = 0; r < p.n; r++) {
            int64_t used = 0;
            assert_true(p.firsts[r + 1] > p.firsts[r]);
            assert_true(p.firsts[r + 1] - p.firsts[r] <= 7);
            for (size_t i = p.firsts[r]; i < p.firsts[r + 1]; i++) {
                assert_int_equal(p.pieces[i].from, next[p.pieces[i].example]);
                next[p.pieces[i].example] += p.pieces[i].n;
                used += p.pieces[i].n;
            }
            assert_true(used <= 50);
        }
        assert_memory_equal(next, lengths, sizeof lengths);
        ax_pack_free(&p);
    }
}

/* Modes whose sequences are ordered by length, so that training shuffles them. */
static void modes_that_sort(void **state) {
    (void)state;
    assert_true(ax_pack_sorts(AX_PACK_FIT));
    assert_true(ax_pack_sorts(AX_PACK_BEST));
    assert_true(ax_pack_sorts(AX_PACK_BEST_SPLIT));
    assert_false(ax_pack_sorts(AX_PACK_IN_ORDER));
    assert_false(ax_pack_sorts(AX_PACK_WRAP));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(modes_that_sort),
        cmocka_unit_test(by_hand),
        cmocka_unit_test(fit_as_the_slow_way),
        cmocka_unit_test(every_token_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
