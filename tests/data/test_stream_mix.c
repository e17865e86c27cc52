/* Streams mixed in proportions: which record comes next follows from its number alone, so it does
 * not depend on threads, buffers or where reading goes on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "data/records/pipeline/stream.h"
#include "tests/data/group_case.h"

#define N_SETS 3
static const int64_t starts[N_SETS + 1] = {0, 60, 100, 150}; /* groups of each set */
static const double shares[N_SETS] = {3, 2, 1};              /* 1/2, 1/3, 1/6 */
static char paths[N_SETS][128];

struct mixed {
    struct ax_rows *rows[N_SETS];
    struct ax_stream_entry entries[N_SETS];
    struct ax_stream *stream;
    struct ax_example_source source;
};

/* `of`: which records of each set; NULL: all. */
static void open_mixed_of(struct mixed *m, const struct ax_rows_options *of, int64_t buffer,
                          int threads, bool shuffle) {
    *m = (struct mixed){0};
    for (int i = 0; i < N_SETS; i++) {
        struct ax_rows_options o = {0};
        if (of)
            o = of[i];
        o.path = paths[i];
        assert_ok(ax_rows_open(&m->rows[i], &o));
        m->entries[i] = (struct ax_stream_entry){m->rows[i], &group_format, shares[i]};
    }
    const struct ax_stream_options o = {.entries = m->entries,
                                        .n = N_SETS,
                                        .buffer = buffer,
                                        .shuffle = shuffle,
                                        .seed = 5,
                                        .rule = {.max = INT64_MAX},
                                        .max_bad_rows = 9,
                                        .threads = threads};
    assert_ok(ax_stream_open(&m->stream, &o));
    ax_stream_source(m->stream, &m->source);
}

static void open_mixed(struct mixed *m, int64_t buffer, int threads, bool shuffle) {
    open_mixed_of(m, NULL, buffer, threads, shuffle);
}

static void close_mixed(struct mixed *m) {
    ax_stream_close(m->stream);
    for (int i = 0; i < N_SETS; i++)
        ax_rows_close(m->rows[i]);
}

/* A chunk's groups in their order, and where the next one starts; how many. */
static size_t take(struct mixed *m, int64_t epoch, int64_t chunk, struct ax_source_place *place,
                   int64_t *ids) {
    struct ax_corpus c = {0};
    int seen[N_GROUPS];
    size_t n = 0;
    assert_ok(m->source.chunk(m->source.ctx, epoch, chunk, *place, &c, place));
    check_whole(&c, seen);
    for (size_t i = 0; i < c.n; i = ax_corpus_group_end(&c, i))
        ids[n++] = group_of(ref_token(&c, i));
    ax_corpus_free(&c);
    return n;
}

/* An epoch's groups from a chunk on. */
static size_t take_all(struct mixed *m, int64_t epoch, int64_t chunk, struct ax_source_place place,
                       int64_t *ids) {
    size_t n = 0;
    for (size_t got = 1; got > 0; chunk++, n += got)
        got = take(m, epoch, chunk, &place, ids + n);
    return n;
}

static int set_of(int64_t id) {
    int set = 0;
    while (id >= starts[set + 1])
        set++;
    return set;
}

static void proportions(void **state) {
    (void)state;
    static int64_t ids[N_GROUPS], others[N_GROUPS];
    struct mixed m;
    int64_t counts[N_SETS] = {0};
    open_mixed(&m, 7, 1, false);
    const size_t n = take_all(&m, 0, 0, (struct ax_source_place){0}, ids);
    for (size_t i = 0; i < n; i++) {
        const int set = set_of(ids[i]);
        assert_int_equal(ids[i], starts[set] + counts[set]); /* in order, none left out */
        counts[set]++;
        for (int k = 0; k < N_SETS; k++)
            assert_true(fabs((double)counts[k] - shares[k] / 6 * (double)(i + 1)) < 1);
    }
    assert_int_equal(n, 120); /* then the first and the second are used up */
    assert_int_equal(counts[0], 60);
    assert_int_equal(counts[1], 40);
    assert_int_equal(take_all(&m, 1, 0, (struct ax_source_place){0}, others), n);
    assert_memory_equal(ids, others, n * sizeof *ids);
    close_mixed(&m);
    static const int64_t buffers[] = {1, 30, 10000};
    for (int i = 0; i < 3; i++) {
        open_mixed(&m, buffers[i], 3 + i, false);
        assert_int_equal(take_all(&m, 0, 0, (struct ax_source_place){0}, others), n);
        assert_memory_equal(ids, others, n * sizeof *ids);
        close_mixed(&m);
    }
}

/* From any chunk on, another stream gives the same, shuffled or not. */
static void reading_goes_on(void **state) {
    (void)state;
    static int64_t ids[N_GROUPS], rest[N_GROUPS];
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        struct mixed m, t;
        struct ax_source_place place = {0};
        size_t at = 0, got = 1;
        open_mixed(&m, 9, 2, shuffle);
        const size_t n = take_all(&m, 0, 0, place, ids);
        open_mixed(&t, 9, 2, shuffle);
        for (int64_t chunk = 0; got > 0; chunk++) {
            close_mixed(&m);
            open_mixed(&m, 9, 1, shuffle);
            assert_int_equal(take_all(&m, 0, chunk, place, rest), n - at);
            assert_memory_equal(ids + at, rest, (n - at) * sizeof *ids);
            got = take(&t, 0, chunk, &place, rest);
            at += got;
        }
        assert_int_equal(at, n);
        close_mixed(&m);
        close_mixed(&t);
    }
}

/* Shares are of the records that are read of a set: 10 of 60, 20 of 40, 25 of 50; from any chunk on, too. */
static void parts_of_sets(void **state) {
    (void)state;
    static const struct ax_rows_options of[N_SETS] = {
        {.skip = 50}, {.split = "train[10:30]"}, {.n_shards = 2, .shard = 1, .seed = 3}};
    static int64_t ids[N_GROUPS], rest[N_GROUPS];
    struct mixed m, t;
    struct ax_source_place place = {0};
    int64_t counts[N_SETS] = {0};
    open_mixed_of(&m, of, 4, 2, false);
    const size_t n = take_all(&m, 0, 0, place, ids);
    for (size_t i = 0; i < n; i++) {
        counts[set_of(ids[i])]++;
        for (int k = 0; k < N_SETS; k++)
            assert_true(fabs((double)counts[k] - shares[k] / 6 * (double)(i + 1)) < 1);
    }
    assert_int_equal(ids[0], 50);
    assert_int_equal(ids[1], starts[1] + 10);
    assert_int_equal(counts[0], 10);
    open_mixed_of(&t, of, 4, 1, false);
    for (size_t at = take(&t, 0, 0, &place, rest), chunk = 1; at < n; chunk++) {
        close_mixed(&m);
        open_mixed_of(&m, of, 4, 1, false);
        assert_int_equal(take_all(&m, 0, (int64_t)chunk, place, rest), n - at);
        assert_memory_equal(ids + at, rest, (n - at) * sizeof *ids);
        at += take(&t, 0, (int64_t)chunk, &place, rest);
    }
    close_mixed(&m);
    close_mixed(&t);
}

/* The second set with lines 1, 11, 21, … of 40 unusable. */
static const char *put_bad(void) {
    char *text;
    size_t len;
    assert_ok(ax_read_file(paths[1], 1 << 20, &text, &len));
    for (size_t i = 0, line = 0; i < len; i++) {
        if (line % 10 == 0 && text[i] == ':')
            text[i] = '!';
        line += text[i] == '\n';
    }
    const char *path = put_bytes("bad.jsonl", text, len);
    ax_free(text);
    return path;
}

/* Unusable records count as their set's share. */
static void bad_records(void **state) {
    (void)state;
    static int64_t ids[N_GROUPS], others[N_GROUPS];
    struct mixed m;
    size_t k = 0;
    open_mixed(&m, 9, 2, false);
    const size_t n = take_all(&m, 0, 0, (struct ax_source_place){0}, ids);
    close_mixed(&m);
    char kept[128];
    snprintf(kept, sizeof kept, "%s", paths[1]);
    snprintf(paths[1], sizeof paths[1], "%s", put_bad());
    open_mixed(&m, 9, 2, false);
    const size_t fewer = take_all(&m, 0, 0, (struct ax_source_place){0}, others);
    assert_int_equal(ax_stream_bad_records(m.stream)->n, 4);
    for (size_t i = 0; i < n; i++)
        if (set_of(ids[i]) != 1 || (ids[i] - starts[1]) % 10 != 0)
            assert_int_equal(others[k++], ids[i]);
    assert_int_equal(k, fewer);
    close_mixed(&m);
    snprintf(paths[1], sizeof paths[1], "%s", kept);
}

/* However often a loader goes back to a place in the epoch, or starts another one in its middle. */
static void bad_records_count_once(void **state) {
    (void)state;
    static int64_t ids[N_GROUPS];
    struct mixed m;
    struct ax_source_place place = {0}, start = {0};
    char kept[128];
    snprintf(kept, sizeof kept, "%s", paths[1]);
    snprintf(paths[1], sizeof paths[1], "%s", put_bad());
    open_mixed(&m, 20, 2, false);
    const size_t first = take(&m, 0, 0, &place, ids);
    const size_t rest = take_all(&m, 0, 1, place, ids);
    assert_true(first > 0 && rest > first);
    assert_int_equal(ax_stream_bad_records(m.stream)->n, 4);
    for (int again = 0; again < 6; again++) {
        assert_int_equal(take_all(&m, 0, 1, place, ids), rest);
        assert_int_equal(ax_stream_bad_records(m.stream)->n, 3); /* line 1 is before the place */
    }
    assert_int_equal(take(&m, 0, 0, &start, ids), first);
    assert_int_equal(take_all(&m, 1, 1, place, ids), rest);
    assert_int_equal(ax_stream_bad_records(m.stream)->n, 3);
    close_mixed(&m);
    snprintf(paths[1], sizeof paths[1], "%s", kept);
}

static void shares_have_fingerprints(void **state) {
    (void)state;
    struct mixed m;
    struct ax_example_source other;
    open_mixed(&m, 9, 2, false);
    m.entries[2].share = 2;
    ax_stream_source(m.stream, &other);
    assert_true(other.fingerprint != m.source.fingerprint);
    close_mixed(&m);
}

static int set_up(void **state) {
    if (scratch_make(state) != 0)
        return -1;
    for (int i = 0; i < N_SETS; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d.jsonl", i);
        snprintf(paths[i], sizeof paths[i], "%s", put_groups(name, starts[i], starts[i + 1]));
    }
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(proportions),
        cmocka_unit_test(reading_goes_on),
        cmocka_unit_test(parts_of_sets),
        cmocka_unit_test(bad_records),
        cmocka_unit_test(bad_records_count_once),
        cmocka_unit_test(shares_have_fingerprints),
    };
    return cmocka_run_group_tests(tests, set_up, scratch_remove);
}
