/* Merging against the obvious quadratic algorithm, for merge lists and for scores: short and long
 * words, with and without cuts, cold and from the word cache; and the time that long words take. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fault.h"
#include "data/text/tokenizer/bpe.h"
#include "tests/data/random_text.h"
#include "tests/data/tokenizer_case.h"

enum { MAX_TOKENS = 400, MAX_TEXT = 700 };

/* A random model: characters, and tokens that are two others put together. */
struct model {
    struct ax_vocab vocab;
    struct ax_bpe bpe;
    float scores[MAX_TOKENS];
};

static const char *const letters[] = {"a", "b", "c", "d", "\xe2\x96\x81", "\xc3\xa9", "1"};

/* Ways of dealing with unknown characters. */
enum unknown { VANISH, UNK, FUSED, BYTES, SOME_BYTES, UNKNOWN_KINDS };

static void add(struct model *m, const char *token) {
    MUST(ax_vocab_add(&m->vocab, token, strlen(token), (int64_t)m->vocab.n_ids, MAX_TOKENS));
}

static void make_model(struct model *m, struct text_rng *r, bool scored, size_t letters_known,
                       int tokens, enum unknown unknown) {
    *m = (struct model){0};
    m->bpe.vocab = &m->vocab;
    m->bpe.unk = AX_NO_TOKEN;
    for (size_t i = 0; i < letters_known; i++)
        add(m, letters[i]);
    uint32_t rank = 0;
    for (int tries = 0; tries < 4 * tokens; tries++) {
        char text[64];
        size_t n, k;
        uint32_t count = (uint32_t)m->vocab.n_ids;
        int32_t a = (int32_t)below(r, count), b = (int32_t)below(r, count);
        const char *left = ax_vocab_string(&m->vocab, a, &n);
        const char *right = ax_vocab_string(&m->vocab, b, &k);
        if (n + k > 20 || count >= (uint32_t)tokens)
            continue;
        memcpy(text, left, n);
        memcpy(text + n, right, k);
        int32_t merged = ax_vocab_find(&m->vocab, text, n + k);
        if (merged == AX_NO_TOKEN) {
            merged = (int32_t)count;
            MUST(ax_vocab_add(&m->vocab, text, n + k, merged, MAX_TOKENS));
        }
        if (!scored)
            MUST(ax_bpe_add_merge(&m->bpe, a, b, merged, rank++, 0));
    }
    for (size_t i = 0; i < m->vocab.n_ids; i++) /* few values, so that many are equal */
        m->scores[i] = -(float)below(r, 20);
    if (scored)
        MUST(ax_bpe_set_scores(&m->bpe, m->scores, m->vocab.n_ids));
    if (unknown != VANISH) {
        m->bpe.unk = (int32_t)m->vocab.n_ids;
        add(m, "?");
    }
    m->bpe.fuse_unk = unknown == FUSED || unknown == SOME_BYTES;
    m->bpe.byte_fallback = unknown >= BYTES;
    if (unknown >= BYTES) {
        add(m, "<0xC3>");
        add(m, "<0xA9>");
        if (unknown == BYTES)
            add(m, "<0x31>");
    }
    MUST(ax_bpe_prepare(&m->bpe));
}

static void free_model(struct model *m) {
    ax_bpe_free(&m->bpe);
    ax_vocab_free(&m->vocab);
}

struct piece {
    int32_t id;
    size_t start, len;
};

/* Lower is sooner; false when the two do not merge. */
static bool naive_rank(const struct model *m, const char *s, const struct piece *a,
                       const struct piece *b, double *rank, int32_t *merged) {
    if (m->bpe.score_ranks != NULL) {
        *merged = ax_vocab_find(&m->vocab, s + a->start, a->len + b->len);
        *rank = *merged == AX_NO_TOKEN ? 0 : -(double)m->scores[*merged];
        return *merged != AX_NO_TOKEN;
    }
    for (size_t i = 0; i < m->bpe.n_slots; i++) {
        const struct ax_bpe_pair *p = &m->bpe.pairs[i];
        if (p->ids == ((uint64_t)(uint32_t)a->id << 32 | (uint32_t)b->id)) {
            *rank = p->rank;
            *merged = p->merged;
            return true;
        }
    }
    return false;
}

/* The pair with the lowest rank, the leftmost of equals, until there is none. */
static size_t naive_encode(const struct model *m, const char *s, size_t len, struct piece *out) {
    size_t n = 0;
    for (size_t i = 0, k; i < len; i += k) {
        (void)ax_utf8_decode((const unsigned char *)s + i, &k);
        int32_t id = ax_vocab_find(&m->vocab, s + i, k);
        if (id != AX_NO_TOKEN || m->bpe.score_ranks != NULL)
            out[n++] = (struct piece){id, i, k};
    }
    for (;;) {
        size_t best = n;
        double best_rank = 0, rank = 0;
        int32_t merged = AX_NO_TOKEN, best_merged = AX_NO_TOKEN;
        for (size_t i = 0; i + 1 < n; i++) {
            if (naive_rank(m, s, &out[i], &out[i + 1], &rank, &merged) &&
                (best == n || rank < best_rank)) {
                best = i;
                best_rank = rank;
                best_merged = merged;
            }
        }
        if (best == n)
            return n;
        out[best].id = best_merged;
        out[best].len += out[best + 1].len;
        memmove(&out[best + 1], &out[best + 2], (n - best - 2) * sizeof *out);
        n--;
    }
}

static size_t random_word(struct text_rng *r, char *out, size_t symbols) {
    size_t len = 0;
    for (size_t i = 0; i < symbols; i++) {
        const char *s = letters[below(r, sizeof letters / sizeof letters[0])];
        memcpy(out + len, s, strlen(s));
        len += strlen(s);
    }
    return len;
}

static void assert_equal_naive(const struct model *m, struct ax_bpe_work *w, const char *s,
                               size_t len) {
    struct piece want[MAX_TEXT];
    struct ax_encoding got = {0};
    size_t n = naive_encode(m, s, len, want), at = 0;
    MUST(ax_bpe_encode(&m->bpe, w, s, len, true, &got));
    for (size_t i = 0; i < n; i++) {
        if (want[i].id == AX_NO_TOKEN)
            continue; /* a character without a token, nor tokens for its bytes */
        if (at >= got.n || got.ids[at] != want[i].id || got.spans[at].start != want[i].start ||
            got.spans[at].end != want[i].start + want[i].len)
            fail_msg("token %zu of \"%.*s\" differs", at, (int)len, s);
        at++;
    }
    assert_int_equal(at, got.n);
    ax_encoding_free(&got);
}

static void compare_with_naive(bool scored) {
    struct text_rng r = {.key = {.seed = 11, .step = scored}};
    int with_cuts = 0;
    for (int round = 0; round < 40; round++) {
        struct model m;
        struct ax_bpe_work w = {0};
        size_t known = round % 3 == 0 ? 5 : sizeof letters / sizeof letters[0];
        make_model(&m, &r, scored, known, round % 2 ? MAX_TOKENS - 8 : 30, VANISH);
        for (int k = 0; k < 60; k++) {
            char text[3 * MAX_TEXT];
            size_t len = random_word(&r, text, 1 + below(&r, k % 4 == 0 ? 200 : 12));
            assert_equal_naive(&m, &w, text, len);
            assert_equal_naive(&m, &w, text, len); /* now from the cache */
        }
        for (unsigned i = 0; i < 256; i++)
            if (m.bpe.cuts != NULL && m.bpe.cuts->allowed[i][1] != 0) {
                with_cuts++;
                break;
            }
        ax_bpe_work_free(&w);
        free_model(&m);
    }
    assert_true(with_cuts >= 10);
}

static void merges_equal_naive(void **state) {
    (void)state;
    compare_with_naive(false);
}

static void scores_equal_naive(void **state) {
    (void)state;
    compare_with_naive(true);
}

/* Cutting changes nothing: the same model with its cuts taken away. */
static void cuts_change_nothing(void **state) {
    (void)state;
    struct text_rng r = {.key = {.seed = 13}};
    for (int round = 0; round < 100; round++) {
        struct model m;
        struct ax_bpe_work w = {0}, plain = {0};
        make_model(&m, &r, false, 5 + below(&r, 3), 25, (enum unknown)(round % UNKNOWN_KINDS));
        struct ax_bpe_cuts *cuts = m.bpe.cuts;
        assert_non_null(cuts);
        for (int k = 0; k < 50; k++) {
            char text[3 * MAX_TEXT];
            struct ax_encoding a = {0}, b = {0};
            size_t len = random_word(&r, text, 1 + below(&r, 300));
            m.bpe.cuts = cuts;
            MUST(ax_bpe_encode(&m.bpe, &w, text, len, false, &a));
            m.bpe.cuts = NULL;
            MUST(ax_bpe_encode(&m.bpe, &plain, text, len, false, &b));
            assert_int_equal(a.n, b.n);
            assert_memory_equal(a.ids, b.ids, a.n * sizeof *a.ids);
            ax_encoding_free(&a);
            ax_encoding_free(&b);
        }
        m.bpe.cuts = cuts;
        ax_bpe_work_free(&w);
        ax_bpe_work_free(&plain);
        free_model(&m);
    }
}

/* One word of n bytes; quadratic merging would take hours for the longest. */
static void long_words_take_n_log_n(void **state) {
    (void)state;
    struct text_rng r = {.key = {.seed = 17}};
    struct model m;
    double seconds[2];
    char *text;
    enum { N = 1 << 20 };
    make_model(&m, &r, false, 4, MAX_TOKENS - 8, VANISH);
    ax_free(m.bpe.cuts);
    m.bpe.cuts = NULL;
    MUST(ax_alloc(&text, 4 * N, 1));
    for (size_t i = 0; i < 4 * N; i++)
        text[i] = (char)('a' + below(&r, 4));
    for (int k = 0; k < 2; k++) {
        struct ax_bpe_work w = {0};
        struct ax_encoding e = {0};
        double t0 = ax_clock_now();
        MUST(ax_bpe_encode(&m.bpe, &w, text, k ? 4 * N : N, false, &e));
        seconds[k] = ax_clock_now() - t0;
        assert_true(e.n > 0);
        ax_encoding_free(&e);
        ax_bpe_work_free(&w);
    }
    printf("words of 1 and 4 MiB: %.2f s, %.2f s\n", seconds[0], seconds[1]);
    assert_true(seconds[1] < 60);
    ax_free(text);
    free_model(&m);
}

/* Scratch whose growth failed serves the next word as it did before. */
static void a_failed_allocation_is_forgotten(void **state) {
    (void)state;
    struct model m;
    struct text_rng r = {.key = {.seed = 19}};
    char text[MAX_TEXT];
    bool fired = true;
    make_model(&m, &r, false, 5, 60, VANISH);
    ax_free(m.bpe.cuts);
    m.bpe.cuts = NULL;
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = "abcd"[below(&r, 4)];
    for (int k = 1; fired; k++) {
        struct ax_bpe_work w = {0};
        struct ax_encoding before = {0}, longer = {0}, after = {0};
        char spec[40];
        MUST(ax_bpe_encode(&m.bpe, &w, text, MAX_TEXT / 2, false, &before));
        snprintf(spec, sizeof spec, "malloc:%d:enomem", k);
        MUST(ax_fault_configure(spec));
        const enum ax_status st = ax_bpe_encode(&m.bpe, &w, text, MAX_TEXT, false, &longer);
        fired = ax_fault_fired();
        MUST(ax_fault_configure(NULL));
        assert_int_equal(st, fired ? AX_ERR_NOMEM : AX_OK);
        MUST(ax_bpe_encode(&m.bpe, &w, text, MAX_TEXT / 2, false, &after));
        assert_int_equal(after.n, before.n);
        assert_memory_equal(after.ids, before.ids, before.n * sizeof *before.ids);
        ax_encoding_free(&before);
        ax_encoding_free(&longer);
        ax_encoding_free(&after);
        ax_bpe_work_free(&w);
        assert_true(fired || k > 3);
    }
    free_model(&m);
}

static void bad_scores_and_merges(void **state) {
    (void)state;
    struct ax_vocab v = {0};
    struct ax_bpe b = {.vocab = &v};
    const float scores[] = {0, 1, __builtin_nanf("")};
    MUST(ax_vocab_add(&v, "a", 1, 0, 3));
    MUST(ax_vocab_add(&v, "b", 1, 1, 3));
    MUST(ax_vocab_add(&v, "ab", 2, 2, 3));
    MUST_FAIL(ax_bpe_set_scores(&b, scores, 3), AX_ERR_DATA, "token 2 is not a number");
    MUST(ax_bpe_add_merge_text(&b, &v, "ab", 2, 1, 0, 1));
    MUST_FAIL(ax_bpe_add_merge_text(&b, &v, "ba", 2, 1, 1, 1), AX_ERR_DATA, "\"ba\" is not in");
    MUST_FAIL(ax_bpe_add_merge_text(&b, &v, "ax", 2, 1, 1, 1), AX_ERR_DATA, "\"x\" is not in");
    MUST_FAIL(ax_bpe_add_merge_text(&b, &v, "ab", 2, 2, 1, 1), AX_ERR_DATA, "is empty");
    ax_bpe_free(&b);
    ax_vocab_free(&v);
}

static void vocabularies_are_checked(void **state) {
    (void)state;
    struct ax_vocab v = {0};
    size_t len;
    MUST(ax_vocab_add(&v, "a", 1, 0, 2));
    MUST(ax_vocab_add(&v, "", 0, 7, 2));
    MUST_FAIL(ax_vocab_add(&v, "a", 1, 1, 2), AX_ERR_DATA, "occurs twice");
    MUST_FAIL(ax_vocab_add(&v, "b", 1, 0, 2), AX_ERR_DATA, "the same id 0");
    MUST_FAIL(ax_vocab_add(&v, "b", 1, -1, 2), AX_ERR_DATA, "out of range");
    MUST_FAIL(ax_vocab_add(&v, "b", 1, (int64_t)1 << 31, 2), AX_ERR_DATA, "id 2147483648");
    MUST_FAIL(ax_vocab_add(&v, "b", 1, 1100000, 2), AX_ERR_DATA, "out of range");
    MUST(ax_vocab_add(&v, "b", 1, 1000000, 2));
    assert_int_equal(ax_vocab_find(&v, "b", 1), 1000000);
    assert_int_equal(ax_vocab_find(&v, "", 0), 7);
    assert_int_equal(ax_vocab_find(&v, "c", 1), AX_NO_TOKEN);
    assert_null(ax_vocab_string(&v, 5, &len));
    assert_null(ax_vocab_string(&v, -1, &len));
    assert_non_null(ax_vocab_string(&v, 7, &len));
    assert_int_equal(len, 0);
    ax_vocab_free(&v);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_equal_naive),
        cmocka_unit_test(scores_equal_naive),
        cmocka_unit_test(cuts_change_nothing),
        cmocka_unit_test(long_words_take_n_log_n),
        cmocka_unit_test(bad_scores_and_merges),
        cmocka_unit_test(vocabularies_are_checked),
        cmocka_unit_test(a_failed_allocation_is_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
