/* Rows → documents by several threads: the same whatever their number; bad records; and streams,
 * whose place can be saved and restored. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/hash/hash.h"
#include "data/records/pipeline/prepare.h"
#include "data/records/pipeline/stream.h"
#include "tests/data/scratch.h"
#include "tests/data/format_case.h"

static const char *put_rows(const char *name, int n, int bad_every) {
    struct ax_buf b = {0};
    for (int i = 0; i < n; i++)
        if (bad_every && i % bad_every == bad_every - 1)
            assert_ok(ax_buf_printf(&b, i % 2 ? "{\"text\": %d}\n" : "{\"text\": \"%d\n", i));
        else
            assert_ok(ax_buf_printf(&b, "{\"text\": \"%d %0*d\"}\n", i, i % 50 + 1, i));
    const char *path = put_bytes(name, b.data, b.len);
    ax_buf_free(&b);
    return path;
}

static void open_format(struct ax_format **f, int64_t sequence_len) {
    const struct ax_format_options o = {.type = "completion",
                                        .tokenizer = bare_tokenizer,
                                        .sequence_len = sequence_len,
                                        .field = "text"};
    assert_ok(ax_format_new(f, &o));
}

/* A hash of all documents and their places. */
static uint64_t run(const char *path, int threads, int64_t allowed, struct ax_bad_records *bad,
                    enum ax_status want, size_t *n_docs) {
    struct ax_rows *rows;
    struct ax_format *f;
    struct ax_prepare *p;
    uint64_t hash = 0;
    enum ax_status st;
    *bad = (struct ax_bad_records){.allowed = allowed};
    *n_docs = 0;
    assert_ok(ax_rows_open(&rows, &(struct ax_rows_options){.path = path}));
    open_format(&f, 20);
    assert_ok(ax_prepare_open(&p, &(struct ax_prepare_options){
                                      .rows = rows, .format = f, .bad = bad, .threads = threads}));
    for (;;) {
        struct ax_example doc;
        bool got;
        st = ax_prepare_next(p, &doc, &got);
        if (st != AX_OK || !got)
            break;
        hash = ax_hash64(doc.tokens, doc.n * sizeof *doc.tokens, hash);
        hash = ax_hash64(doc.labels, doc.n * sizeof *doc.labels, hash + doc.origin.line);
        ++*n_docs;
    }
    assert_int_equal(st, want);
    ax_prepare_close(p);
    ax_format_free(f);
    ax_rows_close(rows);
    return hash;
}

static void any_number_of_threads(void **state) {
    (void)state;
    const char *path = put_rows("many.jsonl", 5000, 0);
    struct ax_bad_records bad;
    size_t n;
    const uint64_t one = run(path, 1, 0, &bad, AX_OK, &n);
    assert_true(n > 5000);
    static const int threads[] = {2, 3, 8};
    for (int i = 0; i < 3; i++) {
        size_t m;
        assert_true(run(path, threads[i], 0, &bad, AX_OK, &m) == one);
        assert_int_equal(m, n);
    }
    ax_bad_records_free(&bad);
    (void)run(put_text("none.jsonl", ""), 4, 0, &bad, AX_OK, &n);
    assert_int_equal(n, 0);
}

static void bad_rows(void **state) {
    (void)state;
    char path[128];
    struct ax_bad_records bad;
    size_t n;
    snprintf(path, sizeof path, "%s", put_rows("bad.jsonl", 2000, 100));
    /* the first one ends it */
    (void)run(path, 2, 0, &bad, AX_ERR_DATA, &n);
    assert_non_null(strstr(ax_error_text(), "bad.jsonl:100: text: expected text, got a number"));
    ax_bad_records_free(&bad);
    /* up to the limit, bad records are skipped, counted, and the first ones listed in order */
    const uint64_t one = run(path, 1, 20, &bad, AX_OK, &n);
    assert_int_equal(bad.n, 20);
    assert_non_null(strstr(bad.texts[0], "bad.jsonl:100: "));
    assert_non_null(strstr(bad.texts[19], "bad.jsonl:2000: "));
    ax_bad_records_free(&bad);
    assert_true(run(path, 4, 20, &bad, AX_OK, &n) == one);
    ax_bad_records_free(&bad);
    (void)run(path, 4, 19, &bad, AX_ERR_DATA, &n);
    assert_non_null(strstr(ax_error_text(), "20 bad records, but max_bad_rows is 19; the last: "));
    assert_non_null(strstr(ax_error_text(), "bad.jsonl:2000"));
    ax_bad_records_free(&bad);
    /* a file that breaks off is not a bad record */
    (void)run(put_text("cut.json", "[{\"text\": \"a\"}, {\"text\""), 2, 9, &bad, AX_ERR_DATA, &n);
    assert_non_null(strstr(ax_error_text(), "cut.json:1: the file ends inside this record"));
    ax_bad_records_free(&bad);
}

/* ---- streams ---- */

struct streamed {
    struct ax_rows *rows[2];
    struct ax_format *format;
    struct ax_stream_entry entries[2];
    struct ax_stream *stream;
    struct ax_example_source source;
    struct ax_loader *loader;
};

static void open_streamed(struct streamed *s, const char *const *paths, int64_t buffer, int threads,
                          uint64_t seed) {
    *s = (struct streamed){0};
    open_format(&s->format, 20);
    for (int i = 0; i < 2; i++) {
        assert_ok(ax_rows_open(&s->rows[i], &(struct ax_rows_options){.path = paths[i]}));
        s->entries[i] = (struct ax_stream_entry){.rows = s->rows[i], .format = s->format};
    }
    const struct ax_stream_options o = {.entries = s->entries,
                                        .n = 2,
                                        .buffer = buffer,
                                        .shuffle = true,
                                        .seed = seed,
                                        .rule = {.min = 2, .max = 20, .drop_untrained = true},
                                        .max_bad_rows = 10,
                                        .threads = threads};
    assert_ok(ax_stream_open(&s->stream, &o));
    ax_stream_source(s->stream, &s->source);
    assert_ok(ax_loader_new(
        &s->loader, &s->source,
        &(struct ax_loader_options){.pack = {.mode = AX_PACK_FIT, .capacity = 64, .max_docs = 9},
                                    .shuffle = true,
                                    .seed = seed}));
}

static void close_streamed(struct streamed *s) {
    ax_loader_free(s->loader);
    ax_stream_close(s->stream);
    for (int i = 0; i < 2; i++)
        ax_rows_close(s->rows[i]);
    ax_format_free(s->format);
}

static uint64_t hash_row(const struct ax_packed_sequence *row) {
    uint64_t h = 0;
    for (int d = 0; d < row->n; d++) {
        h = ax_hash64(row->docs[d].tokens, (size_t)row->docs[d].n * sizeof(int32_t), h);
        h = ax_hash64(row->docs[d].labels, (size_t)row->docs[d].n * sizeof(int32_t), h);
    }
    return h;
}

static size_t take(struct streamed *s, uint64_t *hashes, size_t max, int64_t *docs) {
    size_t n = 0;
    for (*docs = 0; n < max; n++) {
        struct ax_packed_sequence row;
        bool got;
        assert_ok(ax_loader_next(s->loader, &row, &got));
        if (!got)
            break;
        *docs += row.n;
        hashes[n] = hash_row(&row);
    }
    return n;
}

static void streams(void **state) {
    (void)state;
    static uint64_t all[4000];
    static uint64_t rest[4000];
    char a[128];
    char b[128];
    const char *paths[] = {a, b};
    snprintf(a, sizeof a, "%s", put_rows("a.jsonl", 900, 300));
    snprintf(b, sizeof b, "%s", put_rows("b.jsonl", 700, 0));
    struct streamed s;
    int64_t docs;
    open_streamed(&s, paths, 100, 2, 7);
    const size_t n = take(&s, all, 4000, &docs);
    assert_true(n > 300);
    /* everything was there: documents of up to 20 tokens, but for those of one token */
    const struct ax_corpus_report *report = ax_stream_report(s.stream);
    assert_int_equal(ax_stream_bad_records(s.stream)->n, 3);
    size_t want;
    struct ax_bad_records bad;
    (void)run(a, 1, 10, &bad, AX_OK, &want);
    ax_bad_records_free(&bad);
    size_t want_b;
    (void)run(b, 1, 0, &bad, AX_OK, &want_b);
    assert_true(report->too_short > 0);
    assert_int_equal(docs + report->too_short, want + want_b);
    assert_error(ax_loader_count_epoch(s.loader, 0, 1, &(struct ax_loader_count){0}),
                 AX_ERR_UNSUPPORTED, "max_steps");
    /* the next epoch is another order of the same; the first one again is the same */
    ax_loader_start_epoch(s.loader, 1);
    int64_t again;
    const size_t m = take(&s, rest, 4000, &again);
    assert_int_equal(again, docs);
    assert_true(m > n - 20 && m < n + 20);
    assert_memory_not_equal(all, rest, 5 * sizeof *all);
    ax_loader_start_epoch(s.loader, 0);
    assert_int_equal(take(&s, rest, 4000, &again), n);
    assert_memory_equal(all, rest, n * sizeof *all);
    assert_int_equal(ax_stream_bad_records(s.stream)->n, 3); /* counted anew in each epoch */
    assert_int_equal(docs + report->too_short, want + want_b);
    /* from its beginning again, in the middle of it */
    ax_loader_start_epoch(s.loader, 0);
    assert_int_equal(take(&s, rest, 100, &again), 100);
    ax_loader_start_epoch(s.loader, 0);
    assert_int_equal(take(&s, rest, 4000, &again), n);
    assert_int_equal(ax_stream_bad_records(s.stream)->n, 3);
    assert_int_equal(docs + report->too_short, want + want_b);
    close_streamed(&s);
    /* stopped anywhere and restored, with another number of threads */
    for (size_t stop = 0; stop <= n; stop += 37) {
        struct ax_loader_state st;
        struct streamed t;
        int64_t passed;
        open_streamed(&s, paths, 100, 2, 7);
        assert_ok(ax_loader_skip(s.loader, (int64_t)stop, &passed));
        ax_loader_save(s.loader, &st);
        open_streamed(&t, paths, 100, 1, 7);
        assert_ok(ax_loader_restore(t.loader, &st));
        assert_int_equal(take(&t, rest, 4000, &docs), n - stop);
        assert_memory_equal(all + stop, rest, (n - stop) * sizeof *all);
        close_streamed(&s);
        close_streamed(&t);
    }
    open_streamed(&s, paths, 50, 2, 7);
    struct streamed t;
    struct ax_loader_state st;
    open_streamed(&t, paths, 100, 2, 7);
    ax_loader_save(t.loader, &st);
    assert_error(ax_loader_restore(s.loader, &st), AX_ERR_DATA, "cannot resume the data");
    close_streamed(&s);
    close_streamed(&t);
}

/* The numbers of a group's documents in the order in which the stream gives them; *place goes on to
 * the next group. */
static size_t group_order(struct streamed *s, int64_t epoch, int64_t group,
                          struct ax_source_place *place, uint32_t *order, size_t max) {
    struct ax_corpus docs = {0};
    assert_ok(s->source.chunk(s->source.ctx, epoch, group, *place, &docs, place));
    assert_true(docs.n <= max);
    const size_t n = docs.n;
    for (size_t i = 0; i < n; i++)
        order[i] = docs.refs[i].index;
    ax_corpus_free(&docs);
    return n;
}

/* The stream's own order, without the loader's: another one in another epoch, in another group and
 * from another seed. */
static void a_streams_own_order(void **state) {
    (void)state;
    uint32_t first[50];
    uint32_t other[50];
    struct ax_buf b = {0};
    for (int i = 100; i < 200; i++) /* a document each */
        assert_ok(ax_buf_printf(&b, "{\"text\": \"%d\"}\n", i));
    char path[128];
    snprintf(path, sizeof path, "%s", put_bytes("even.jsonl", b.data, b.len));
    ax_buf_free(&b);
    const char *const paths[] = {path, path};
    for (uint64_t seed = 7; seed < 9; seed++) {
        struct streamed s;
        struct ax_source_place place = {0};
        struct ax_source_place start = {0};
        open_streamed(&s, paths, 50, 2, seed);
        assert_int_equal(group_order(&s, 0, 0, &place, other, 50), 50);
        if (seed > 7)
            assert_memory_not_equal(first, other, sizeof first);
        memcpy(first, other, sizeof first);
        assert_int_equal(group_order(&s, 0, 1, &place, other, 50), 50);
        assert_memory_not_equal(first, other, sizeof first);
        assert_int_equal(group_order(&s, 1, 0, &start, other, 50), 50);
        assert_memory_not_equal(first, other, sizeof first);
        start = (struct ax_source_place){0};
        assert_int_equal(group_order(&s, 0, 0, &start, other, 50), 50);
        assert_memory_equal(first, other, sizeof first);
        close_streamed(&s);
    }
}

/* A document knows its file and line, whichever entry it is from. */
static void streams_know_where(void **state) {
    (void)state;
    char a[128];
    char b[128];
    const char *const paths[] = {a, b};
    snprintf(a, sizeof a, "%s",
             put_text("a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"twenty are of no use\"}\n"));
    snprintf(b, sizeof b, "%s",
             put_text("b.jsonl", "{\"text\": \"six\"}\n\n{\"text\": \"ten\"}\n"));
    struct streamed s;
    struct ax_corpus docs = {0};
    struct ax_source_place next;
    open_streamed(&s, paths, 50, 1, 7);
    assert_ok(s.source.chunk(s.source.ctx, 0, 0, (struct ax_source_place){0}, &docs, &next));
    /* the second has 20 characters, and its end is a document of one token: dropped */
    assert_int_equal(ax_stream_report(s.stream)->too_short, 1);
    assert_int_equal(docs.n, 4);
    assert_int_equal(docs.sets[0].n, 4);
    const struct {
        const char *path;
        int line;
    } places[] = {{a, 1}, {a, 2}, {b, 1}, {b, 3}};
    for (size_t i = 0; i < 4; i++) {
        char want[160];
        char got[160];
        snprintf(want, sizeof want, "%s:%d", places[i].path, places[i].line);
        assert_string_equal(ax_examples_where(&docs.sets[0], i, got, sizeof got), want);
    }
    ax_corpus_free(&docs);
    close_streamed(&s);
}

/* Whatever a stream's documents follow from. */
static void streams_have_fingerprints(void **state) {
    (void)state;
    struct ax_stream_options o[9];
    uint64_t prints[9];
    for (int i = 0; i < 9; i++)
        o[i] = (struct ax_stream_options){
            .buffer = 100, .seed = 7, .rule = {.min = 2, .max = 20}, .options_hash = 5};
    o[1].buffer = 101;
    o[2].shuffle = true;
    o[3].seed = 8;
    o[4].rule.min = 3;
    o[5].rule.max = 21;
    o[6].rule.excess = AX_EXCESS_TRUNCATE;
    o[7].rule.drop_untrained = true;
    o[8].options_hash = 6;
    for (int i = 0; i < 9; i++) {
        struct ax_stream *stream;
        struct ax_example_source source;
        assert_ok(ax_stream_open(&stream, &o[i]));
        ax_stream_source(stream, &source);
        prints[i] = source.fingerprint;
        ax_stream_close(stream);
        for (int k = 0; k < i; k++)
            assert_true(prints[i] != prints[k]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_threads),
        cmocka_unit_test(bad_rows),
        cmocka_unit_test(streams),
        cmocka_unit_test(a_streams_own_order),
        cmocka_unit_test(streams_know_where),
        cmocka_unit_test(streams_have_fingerprints),
    };
    return cmocka_run_group_tests(tests, load_tokenizers, free_tokenizers);
}
