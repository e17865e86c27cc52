/* The loader: rows and their labels, their order in every epoch, its place saved and restored. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/records/pipeline/loader.h"
#include "tests/data/corpus_case.h"

struct run {
    struct ax_corpus corpus;
    struct ax_corpus_source source;
    struct ax_example_source examples;
    struct ax_loader *loader;
};

static void open_run(struct run *r, enum ax_pack_mode mode, bool shuffle) {
    struct ax_corpus_report report = {0};
    struct ax_corpus_options o = corpus_options();
    *r = (struct run){.source = {.chunk = 50, .shuffle = shuffle, .seed = 42}};
    assert_ok(ax_corpus_build(&r->corpus, sets, 2, &o, &report));
    r->source.corpus = &r->corpus;
    ax_corpus_source_init(&r->source, &r->corpus, &r->examples);
    const struct ax_loader_options l = {
        .pack = {.mode = mode, .capacity = 100, .max_docs = 200, .chunk = 50},
        .shuffle = shuffle,
        .seed = 42};
    assert_ok(ax_loader_new(&r->loader, &r->examples, &l));
}

static void close_run(struct run *r) {
    ax_loader_free(r->loader);
    ax_corpus_source_free(&r->source);
    ax_corpus_free(&r->corpus);
}

/* The ids of a row's documents, one number for the row. */
static uint64_t row_hash(const struct ax_packed_sequence *row) {
    uint64_t h = 1469598103934665603U;
    for (int d = 0; d < row->n; d++)
        for (int64_t i = 0; i < row->docs[d].n; i++) {
            h = (h ^ (uint64_t)row->docs[d].tokens[i]) * 1099511628211U;
            h = (h ^ (uint64_t)(uint32_t)row->docs[d].labels[i]) * 1099511628211U;
        }
    return h;
}

static size_t take_rows(struct ax_loader *l, uint64_t *hashes, size_t max) {
    size_t n = 0;
    for (; n < max; n++) {
        struct ax_packed_sequence row;
        bool got;
        assert_ok(ax_loader_next(l, &row, &got));
        if (!got)
            break;
        hashes[n] = row_hash(&row);
    }
    return n;
}

/* Each document once in an epoch, its labels shifted by one, and none across documents. */
static void an_epoch(void **state) {
    (void)state;
    for (int mode = AX_PACK_PLAIN; mode <= AX_PACK_IN_ORDER; mode++) {
        struct run r;
        int seen[2000] = {0};
        int64_t docs = 0;
        int64_t rows = 0;
        int64_t all_trained = 0, counted;
        open_run(&r, (enum ax_pack_mode)mode, true);
        struct ax_loader_count count;
        struct ax_loader_count want = {0};
        assert_ok(ax_loader_count_epoch(r.loader, 0, 64, &count));
        for (;; rows++) {
            struct ax_packed_sequence row;
            bool got;
            int64_t tokens = 0;
            int64_t trained = 0;
            assert_ok(ax_loader_next(r.loader, &row, &got));
            if (!got)
                break;
            assert_int_equal(row.index, rows);
            assert_int_equal(row.n, row.n_pieces);
            for (int d = 0; d < row.n; d++, docs++) {
                const struct ax_document *doc = &row.docs[d];
                seen[doc->tokens[0]]++;
                tokens += doc->n;
                for (int64_t i = 0; i < doc->n; i++) {
                    assert_int_equal(doc->tokens[i], doc->tokens[0]);
                    const bool next_trained = i + 1 < doc->n && (i + 1) % 2 == 1;
                    assert_int_equal(doc->labels[i], next_trained ? doc->tokens[0] : -1);
                    trained += next_trained;
                }
            }
            assert_int_equal(row.n_tokens, tokens);
            assert_int_equal(row.n_trained, trained);
            all_trained += trained;
            want.tokens += tokens;
            want.padded += (tokens + 63) / 64 * 64;
        }
        want.examples = docs;
        want.sequences = rows;
        assert_int_equal(docs, r.corpus.n);
        assert_memory_equal(&count, &want, sizeof count);
        assert_ok(ax_loader_count_trained(r.loader, 0, &counted));
        assert_int_equal(counted, all_trained);
        for (size_t i = 0; i < r.corpus.n; i++)
            assert_int_equal(seen[1000 * r.corpus.refs[i].set + r.corpus.refs[i].index], 1);
        close_run(&r);
    }
}

static void order(void **state) {
    (void)state;
    static uint64_t a[400];
    static uint64_t b[400];
    struct run r;
    struct run s;
    open_run(&r, AX_PACK_FIT, true);
    open_run(&s, AX_PACK_FIT, true);
    const size_t n = take_rows(r.loader, a, 400);
    assert_int_equal(take_rows(s.loader, b, 400), n);
    assert_memory_equal(a, b, n * sizeof *a); /* the same seed */
    ax_loader_start_epoch(s.loader, 1);
    const size_t m = take_rows(s.loader, b, 400);
    assert_true(m > n - 5 && m < n + 5);
    assert_memory_not_equal(a, b, 10 * sizeof *a); /* another epoch */
    ax_loader_start_epoch(s.loader, 0);
    assert_int_equal(take_rows(s.loader, b, 400), n);
    assert_memory_equal(a, b, n * sizeof *a); /* and back */
    close_run(&s);
    close_run(&r);
    /* without shuffling: documents in their order */
    open_run(&r, AX_PACK_PLAIN, false);
    for (size_t i = 0; i < r.corpus.n; i++) {
        struct ax_packed_sequence row;
        bool got;
        assert_ok(ax_loader_next(r.loader, &row, &got));
        const struct ax_example_ref *d = &row.chunk->refs[row.pieces[0].example];
        assert_memory_equal(d, &r.corpus.refs[i], sizeof *d);
    }
    close_run(&r);
}

#define EVEN 120 /* documents of one length, in three groups, each in a row of its own */

struct even {
    struct ax_examples set;
    struct run run;
};

static void open_even(struct even *e, uint64_t seed, bool shuffle_docs, bool shuffle_rows) {
    struct run *r = &e->run;
    struct ax_corpus_report report = {0};
    *e = (struct even){
        .run = {.source = {.chunk = EVEN / 3, .shuffle = shuffle_docs, .seed = seed}}};
    for (int32_t i = 0; i < EVEN; i++)
        add_document(&e->set, i, 10, 2);
    assert_ok(ax_corpus_build(&r->corpus, &e->set, 1,
                              &(struct ax_corpus_options){.rule = {.max = 10}}, &report));
    r->source.corpus = &r->corpus;
    ax_corpus_source_init(&r->source, &r->corpus, &r->examples);
    assert_ok(ax_loader_new(
        &r->loader, &r->examples,
        &(struct ax_loader_options){.pack = {.mode = AX_PACK_FIT, .capacity = 10, .max_docs = 9},
                                    .shuffle = shuffle_rows,
                                    .seed = seed}));
}

static void close_even(struct even *e) {
    close_run(&e->run);
    ax_examples_free(&e->set);
}

/* The documents of an epoch in their order. The source mixes all of them, the loader the rows of a
 * group. */
static void even_epoch(struct even *e, int64_t epoch, int32_t *order) {
    int seen[EVEN] = {0};
    ax_loader_start_epoch(e->run.loader, epoch);
    for (int i = 0; i < EVEN; i++) {
        struct ax_packed_sequence row;
        bool got;
        assert_ok(ax_loader_next(e->run.loader, &row, &got));
        assert_true(got && row.n == 1);
        assert_int_equal(row.n_trained, 5); /* id 0 is as good a label as any */
        order[i] = row.docs[0].tokens[0];
        assert_int_equal(seen[order[i]]++, 0);
        if (!e->run.source.shuffle)
            assert_int_equal(order[i] / (EVEN / 3), i / (EVEN / 3));
    }
}

/* One of the two hides it when the other forgets its key: so each for itself. */
static void each_shuffle_alone(void **state) {
    (void)state;
    for (int rows = 0; rows < 2; rows++) {
        struct even e;
        int32_t first[EVEN];
        int32_t other[EVEN];
        open_even(&e, 42, !rows, rows);
        even_epoch(&e, 0, first);
        even_epoch(&e, 1, other);
        assert_memory_not_equal(first, other, sizeof first);
        even_epoch(&e, 0, other);
        assert_memory_equal(first, other, sizeof first);
        close_even(&e);
        open_even(&e, 43, !rows, rows);
        even_epoch(&e, 0, other);
        assert_memory_not_equal(first, other, sizeof first);
        close_even(&e);
        for (int i = 0; i < EVEN / 3; i++)
            other[i] = first[EVEN / 3 + i] - EVEN / 3;
        assert_memory_not_equal(first, other, EVEN / 3 * sizeof *first); /* another group */
    }
}

/* Passing over rows leads to where taking them does, to the end of the epoch and not beyond. */
static void skipping_is_taking(void **state) {
    (void)state;
    static uint64_t rows[400];
    for (int mode = AX_PACK_PLAIN; mode <= AX_PACK_WRAP; mode++) {
        struct run r;
        open_run(&r, (enum ax_pack_mode)mode, true);
        const size_t n = take_rows(r.loader, rows, 400);
        for (size_t stop = 0; stop < n + 12; stop += 11) {
            struct ax_loader_state taken;
            struct ax_loader_state skipped;
            int64_t passed;
            ax_loader_start_epoch(r.loader, 2);
            const size_t there = take_rows(r.loader, rows, stop);
            ax_loader_save(r.loader, &taken);
            ax_loader_start_epoch(r.loader, 2);
            assert_ok(ax_loader_skip(r.loader, (int64_t)(stop / 2), &passed));
            assert_ok(ax_loader_skip(r.loader, (int64_t)(stop - stop / 2), &passed));
            assert_int_equal(passed + (int64_t)(stop / 2), there);
            ax_loader_save(r.loader, &skipped);
            assert_int_equal(skipped.index, there);
            assert_int_equal(skipped.epoch, 2);
            assert_memory_equal(&taken, &skipped, sizeof taken);
        }
        close_run(&r);
    }
}

/* Stopped anywhere, written as JSON, gone on from there in another process: the same rows. */
static void saved_and_restored(void **state) {
    (void)state;
    static uint64_t all[400];
    static uint64_t rest[400];
    for (int mode = AX_PACK_PLAIN; mode <= AX_PACK_WRAP; mode++) {
        struct run r;
        open_run(&r, (enum ax_pack_mode)mode, true);
        ax_loader_start_epoch(r.loader, 3);
        const size_t n = take_rows(r.loader, all, 400);
        for (size_t stop = 0; stop <= n; stop += 7) {
            struct run s;
            struct run t;
            struct ax_loader_state st;
            struct ax_loader_state back;
            json_t *v;
            int64_t passed;
            open_run(&s, (enum ax_pack_mode)mode, true);
            ax_loader_start_epoch(s.loader, 3);
            assert_ok(ax_loader_skip(s.loader, (int64_t)stop, &passed));
            assert_int_equal(passed, stop);
            ax_loader_save(s.loader, &st);
            assert_ok(ax_loader_state_to_json(&st, &v));
            assert_ok(ax_loader_state_from_json(&back, v));
            assert_int_equal(back.fingerprint, st.fingerprint);
            json_decref(v);
            open_run(&t, (enum ax_pack_mode)mode, true);
            assert_ok(ax_loader_restore(t.loader, &back));
            assert_int_equal(take_rows(t.loader, rest, 400), n - stop);
            assert_memory_equal(all + stop, rest, (n - stop) * sizeof *all);
            close_run(&s);
            close_run(&t);
        }
        close_run(&r);
    }
}

static void foreign_states(void **state) {
    (void)state;
    struct run r;
    struct run s;
    struct ax_loader_state st;
    open_run(&r, AX_PACK_FIT, true);
    open_run(&s, AX_PACK_IN_ORDER, true);
    ax_loader_save(r.loader, &st);
    assert_error(ax_loader_restore(s.loader, &st), AX_ERR_DATA, "cannot resume the data");
    close_run(&s);
    open_run(&s, AX_PACK_FIT, true);
    s.corpus.n--;
    ax_corpus_source_init(&s.source, &s.corpus, &s.examples);
    ax_loader_free(s.loader);
    assert_ok(ax_loader_new(
        &s.loader, &s.examples,
        &(struct ax_loader_options){
            .pack = {.mode = AX_PACK_FIT, .capacity = 100, .max_docs = 200, .chunk = 50},
            .shuffle = true,
            .seed = 42}));
    assert_error(ax_loader_restore(s.loader, &st), AX_ERR_DATA, "cannot resume the data");
    close_run(&s);
    close_run(&r);
    static const char *const bad[] = {
        "{}",
        "[]",
        "{\"epoch\": 1}",
        "{\"epoch\":-1,\"index\":0,\"group\":0,\"in_group\":0,\"set\":0,\"row\":0,"
        "\"fingerprint\":\"0123456789abcdef\"}",
        "{\"epoch\":0,\"index\":0,\"group\":0,\"in_group\":0,\"set\":0,\"row\":0,"
        "\"fingerprint\":\"0x0123456789abcd\"}",
        "{\"epoch\":0,\"index\":\"0\",\"group\":0,\"in_group\":0,\"set\":0,\"row\":0,"
        "\"fingerprint\":\"0123456789abcdef\"}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        json_t *v = json_loads(bad[i], 0, NULL);
        assert_non_null(v);
        assert_error(ax_loader_state_from_json(&st, v), AX_ERR_DATA, "corrupted");
        json_decref(v);
    }
}

static uint64_t fingerprint_of(const struct ax_example_source *source,
                               const struct ax_loader_options *o) {
    struct ax_loader *l;
    struct ax_loader_state st;
    assert_ok(ax_loader_new(&l, source, o));
    ax_loader_save(l, &st);
    ax_loader_free(l);
    return st.fingerprint;
}

/* A place fits no other rows: every option that they depend on is in the fingerprint. */
static void options_have_fingerprints(void **state) {
    (void)state;
    struct run r;
    struct ax_loader_options o[9];
    uint64_t prints[9];
    open_run(&r, AX_PACK_FIT, true);
    for (int i = 0; i < 9; i++)
        o[i] = (struct ax_loader_options){
            .pack = {.mode = AX_PACK_FIT, .capacity = 100, .max_docs = 200, .chunk = 50},
            .shuffle = true,
            .seed = 42};
    o[1].pack.mode = AX_PACK_IN_ORDER;
    o[2].pack.capacity = 101;
    o[3].pack.max_docs = 199;
    o[4].pack.chunk = 51;
    o[5].shuffle = false;
    o[6].by_length = 10;
    o[7].mixed = true;
    o[8].seed = 43;
    for (int i = 0; i < 9; i++) {
        prints[i] = fingerprint_of(&r.examples, &o[i]);
        for (int k = 0; k < i; k++)
            assert_true(prints[i] != prints[k]);
    }
    assert_true(fingerprint_of(&r.examples, &o[0]) == prints[0]);
    close_run(&r);
}

/* The same for the documents: which, in which order, how much of each. */
static void corpora_have_fingerprints(void **state) {
    (void)state;
    struct run r;
    uint64_t prints[7];
    open_run(&r, AX_PACK_FIT, true);
    struct ax_example_ref *refs = r.corpus.refs;
    const struct ax_example_ref *lowest = refs; /* no other reads a neighbor's hash in its place */
    for (size_t i = 0; i < r.corpus.n; i++)
        lowest = refs[i].index < lowest->index ? &refs[i] : lowest;
    uint64_t *hash_of_lowest = &sets[lowest->set].list[lowest->index].hash;
    prints[0] = r.examples.fingerprint;
    for (int i = 1; i < 7; i++) {
        struct ax_corpus_source source = {.chunk = 50, .shuffle = i != 1, .seed = i == 2 ? 43 : 42};
        struct ax_corpus corpus = r.corpus;
        struct ax_example_source out;
        const struct ax_example_ref first = refs[0];
        const uint64_t hash = *hash_of_lowest;
        corpus.n -= i == 3;
        refs[0].n -= i == 4;
        if (i == 5) {
            refs[0] = refs[1];
            refs[1] = first;
        }
        *hash_of_lowest += i == 6;
        ax_corpus_source_init(&source, &corpus, &out);
        prints[i] = out.fingerprint;
        for (int k = 0; k < i; k++)
            assert_true(prints[i] != prints[k]);
        *hash_of_lowest = hash;
        if (i == 5)
            refs[1] = refs[0];
        refs[0] = first;
    }
    close_run(&r);
}

/* Every token of which is trained, the first too. */
static void open_trained(struct even *e) {
    static const uint32_t lengths[] = {30, 300, 7, 64, 1, 99, 100, 101, 250, 13};
    struct ax_corpus_report report = {0};
    *e = (struct even){.run = {.source = {.chunk = 4}}};
    for (int32_t i = 0; i < 10; i++)
        add_document(&e->set, i, lengths[i], 1);
    assert_ok(ax_corpus_build(&e->run.corpus, &e->set, 1,
                              &(struct ax_corpus_options){.rule = {.max = INT64_MAX}}, &report));
    e->run.source.corpus = &e->run.corpus;
    ax_corpus_source_init(&e->run.source, &e->run.corpus, &e->run.examples);
}

/* Rows of a wrapped stream: full to the last token but for a group's last, documents cut and
 * continued. As one document they predict across their borders; apart, within each piece only. */
static void wrapped(void **state) {
    (void)state;
    for (int mixed = 0; mixed < 2; mixed++) {
        struct even e;
        int64_t total = 0;
        int borders = 0;
        open_trained(&e);
        assert_ok(ax_loader_new(
            &e.run.loader, &e.run.examples,
            &(struct ax_loader_options){
                .pack = {.mode = AX_PACK_WRAP, .capacity = 100, .max_docs = 200}, .mixed = mixed}));
        for (;;) {
            struct ax_packed_sequence row;
            bool got;
            assert_ok(ax_loader_next(e.run.loader, &row, &got));
            if (!got)
                break;
            const int32_t *tokens = row.docs[0].tokens;
            const int32_t *labels = row.docs[0].labels;
            int64_t at = 0;
            assert_int_equal(row.n, mixed ? 1 : row.n_pieces);
            assert_int_equal(row.docs[0].n, mixed ? row.n_tokens : row.pieces[0].n);
            for (int p = 0; p < row.n_pieces; p++)
                for (int64_t end = at + row.pieces[p].n; at < end; at++) {
                    const bool last = at + 1 == (mixed ? row.n_tokens : end);
                    assert_int_equal(labels[at], last ? -1 : tokens[at + 1]);
                    borders += at + 1 == end && !last;
                }
            assert_int_equal(at, row.n_tokens);
            assert_int_equal(row.n_trained, row.n_tokens - row.n);
            total += at;
        }
        assert_int_equal(total, 965);
        assert_int_equal(borders, mixed ? 5 : 0);
        close_even(&e);
    }
}

/* Longest first; equal ones in the order of their places. */
static bool is_before(const struct ax_example_ref *a, const struct ax_example_ref *b) {
    if (a->n != b->n)
        return a->n > b->n;
    return a->set != b->set ? a->set < b->set : a->index < b->index;
}

/* Runs of 15 in groups of 50: the last run of a group is shorter, and so is the last group. */
static void by_length(void **state) {
    (void)state;
    enum { GROUP = 50, RUN = 15 };
    struct run r;
    open_run(&r, AX_PACK_PLAIN, true);
    ax_loader_free(r.loader);
    assert_ok(ax_loader_new(
        &r.loader, &r.examples,
        &(struct ax_loader_options){
            .pack = {.mode = AX_PACK_PLAIN, .capacity = 100, .max_docs = 1, .chunk = GROUP},
            .shuffle = true,
            .by_length = RUN}));
    assert_true(r.corpus.n % GROUP > RUN && r.corpus.n % GROUP % RUN > 0);
    for (size_t i = 0; i < r.corpus.n; i++) {
        struct ax_packed_sequence row;
        bool got;
        assert_ok(ax_loader_next(r.loader, &row, &got));
        assert_true(got);
        const size_t start = i / GROUP * GROUP;
        const size_t run = (i - start) / RUN * RUN;
        const size_t left = r.corpus.n - start - run;
        const size_t in_group = left < GROUP - run ? left : GROUP - run;
        const size_t n = in_group < RUN ? in_group : RUN;
        /* as many of the run's documents are longer as came before it */
        const struct ax_example_ref *mine = &row.chunk->refs[row.pieces[0].example];
        size_t before = 0;
        size_t same = 0;
        for (size_t k = 0; k < n; k++) {
            const struct ax_example_ref *d = &r.corpus.refs[r.source.order[start + run + k]];
            before += is_before(d, mine);
            same += d->set == mine->set && d->index == mine->index;
        }
        assert_int_equal(same, 1);
        assert_int_equal(before, i - start - run);
    }
    close_run(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_epoch),
        cmocka_unit_test(order),
        cmocka_unit_test(each_shuffle_alone),
        cmocka_unit_test(saved_and_restored),
        cmocka_unit_test(skipping_is_taking),
        cmocka_unit_test(foreign_states),
        cmocka_unit_test(options_have_fingerprints),
        cmocka_unit_test(corpora_have_fingerprints),
        cmocka_unit_test(wrapped),
        cmocka_unit_test(by_length),
    };
    return cmocka_run_group_tests(tests, make_sets, free_sets);
}
