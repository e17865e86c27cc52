/* Spans of two tokenizations of one text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "optim/rollout/spans.h"

#define MOST 12

static void by_hand(void **state) {
    (void)state;
    /* "ab|c|def" and "a|bc|d|e|f"; then bytes of one character, and a token after the last shared end */
    const int64_t own[] = {2, 3, 6, 7, 8, 9, 9, 12}, other[] = {1, 3, 4, 5, 6, 9, 9, 11};
    struct ax_text_span s[8];
    assert_int_equal(ax_text_spans(8, own, 8, other, s), 3);
    const struct ax_text_span want[] = {{0, 2, 0, 2}, {2, 3, 2, 5}, {3, 7, 5, 7}};
    assert_memory_equal(s, want, sizeof want);
    assert_int_equal(ax_text_spans(0, own, 8, other, s), 0);
    assert_int_equal(ax_text_spans(8, own, 0, other, s), 0);
}

static int64_t draw_ends(int64_t *ends, struct ax_rng_key key, uint64_t *next) {
    const int64_t n = (int64_t)ax_rng_below(key, (*next)++, MOST + 1);
    int64_t at = 0;
    for (int64_t i = 0; i < n; i++)
        ends[i] = at += (int64_t)ax_rng_below(key, (*next)++, 4);
    return n;
}

static int ends_at(int64_t n, const int64_t *ends, int64_t at) {
    int found = 0;
    for (int64_t i = 0; i < n; i++)
        found += ends[i] == at;
    return found;
}

static int upto(int64_t n, const int64_t *ends, int64_t at) {
    int found = 0;
    for (int64_t i = 0; i < n; i++)
        found += ends[i] <= at;
    return found;
}

/* Each byte where tokens of both end closes a span, of all tokens that end up to it and are in none before. */
static void at_random(void **state) {
    (void)state;
    const struct ax_rng_key key = {7, 0, 0};
    uint64_t next = 0;
    int64_t spans = 0;
    for (int k = 0; k < 20000; k++) {
        int64_t own[MOST], other[MOST];
        struct ax_text_span s[MOST];
        const int64_t n = draw_ends(own, key, &next), m = draw_ends(other, key, &next);
        const int64_t found = ax_text_spans(n, own, m, other, s);
        int64_t i = 0;
        for (int64_t at = 0; at <= 4 * MOST; at++) {
            if (!ends_at(n, own, at) || !ends_at(m, other, at))
                continue;
            assert_true(i < found);
            assert_int_equal(s[i].own, i > 0 ? s[i - 1].own_end : 0);
            assert_int_equal(s[i].other, i > 0 ? s[i - 1].other_end : 0);
            assert_int_equal(s[i].own_end, upto(n, own, at));
            assert_int_equal(s[i++].other_end, upto(m, other, at));
        }
        assert_int_equal(i, found);
        spans += found;
    }
    assert_true(spans > 20000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_hand),
        cmocka_unit_test(at_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
