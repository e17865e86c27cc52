/* Packing: every token once, no row too full; first-fit as a slow loop does it; the loader's order,
 * its place saved and restored; filters, duplicates, the evaluation tail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "data/corpus.h"
#include "data/loader.h"
#include "data/pack.h"
#include "tests/data/scratch.h"

#define N_RANDOM 500

static void random_lengths(uint32_t *lengths, size_t n, uint64_t max, uint64_t seed) {
    const struct ax_rng_key key = {.seed = seed};
    for (size_t i = 0; i < n; i++)
        lengths[i] = 1 + (uint32_t)ax_rng_below(key, i, i % 3 == 0 ? max : max / 4 + 1);
}

/* "0 1 | 2": the documents of each row; "2[4+3]" where it is a part. */
static void show(const struct ax_pack *p, const uint32_t *lengths, char *out) {
    *out = '\0';
    for (size_t r = 0; r < p->n_rows; r++) {
        for (size_t i = p->rows[r]; i < p->rows[r + 1]; i++) {
            const struct ax_pack_piece *piece = &p->pieces[i];
            out += sprintf(out, "%s%u", i > p->rows[r] ? " " : r > 0 ? " | " : "", piece->doc);
            if (piece->n != lengths[piece->doc])
                out += sprintf(out, "[%u+%u]", piece->from, piece->n);
        }
    }
}

static void check(enum ax_pack_mode mode, int64_t capacity, int64_t max_docs,
                  const uint32_t *lengths, size_t n, const char *want) {
    const struct ax_pack_options o = {.mode = mode, .capacity = capacity, .max_docs = max_docs};
    struct ax_pack p = {0};
    char got[4096];
    assert_ok(ax_pack_group(&p, &o, lengths, n));
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
    for (int mode = AX_PACK_PLAIN; mode <= AX_PACK_WRAP; mode++)
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
        assert_ok(ax_pack_group(&p, &o, lengths, n));
        const size_t rows = slow_fit(lengths, n, 64, max_docs, row);
        assert_int_equal(p.n_rows, rows);
        for (size_t r = 0; r < p.n_rows; r++)
            for (size_t i = p.rows[r]; i < p.rows[r + 1]; i++)
                of_pack[p.pieces[i].doc] = (uint32_t)r;
        for (size_t i = 0; i < n; i++)
            for (size_t k = 0; k < i; k++)
                assert_int_equal(row[i] == row[k], of_pack[i] == of_pack[k]);
        ax_pack_free(&p);
    }
}

/* Whatever the mode: each token of each document stands in exactly one row, in order. */
static void every_token_once(void **state) {
    (void)state;
    uint32_t lengths[N_RANDOM];
    for (uint64_t seed = 0; seed < 60; seed++) {
        const enum ax_pack_mode mode = (enum ax_pack_mode)(seed % 4);
        const struct ax_pack_options o = {.mode = mode, .capacity = 50, .max_docs = 7};
        uint32_t next[N_RANDOM] = {0};
        struct ax_pack p = {0};
        random_lengths(lengths, N_RANDOM, mode == AX_PACK_WRAP ? 300 : 50, seed);
        assert_ok(ax_pack_group(&p, &o, lengths, N_RANDOM));
        assert_int_equal(p.rows[p.n_rows], p.n_pieces);
        for (size_t r = 0; r < p.n_rows; r++) {
            int64_t used = 0;
            assert_true(p.rows[r + 1] > p.rows[r]);
            assert_true(p.rows[r + 1] - p.rows[r] <= 7);
            for (size_t i = p.rows[r]; i < p.rows[r + 1]; i++) {
                assert_int_equal(p.pieces[i].from, next[p.pieces[i].doc]);
                next[p.pieces[i].doc] += p.pieces[i].n;
                used += p.pieces[i].n;
            }
            assert_true(used <= 50);
        }
        assert_memory_equal(next, lengths, sizeof lengths);
        ax_pack_free(&p);
    }
}

/* ---- documents for the loader ---- */

/* Document d of a set: ids 1000·set + d, so many of them; every other token is trained. */
static void add_document(struct ax_docs *d, int32_t id, size_t n, bool trained) {
    int32_t ids[512];
    int32_t labels[512];
    for (size_t i = 0; i < n; i++) {
        ids[i] = id;
        labels[i] = trained && i % 2 == 1 ? id : AX_NO_LABEL;
    }
    assert_ok(
        ax_docs_add(d, ids, labels, n, (struct ax_origin){.line = (uint64_t)id, .row = id % 1000}));
}

static struct ax_docs sets[2];
static const struct ax_docs *const set_list[] = {&sets[0], &sets[1]};

static int make_sets(void **state) {
    uint32_t lengths[N_RANDOM];
    for (int32_t s = 0; s < 2; s++) {
        assert_ok(ax_docs_add_file(&sets[s], s == 0 ? "a.jsonl" : "b.jsonl"));
        random_lengths(lengths, 200, 100, (uint64_t)s);
        for (int32_t i = 0; i < 200; i++)
            add_document(&sets[s], 1000 * s + i, lengths[i], i % 10 != 0);
    }
    return scratch_make(state);
}

static int free_sets(void **state) {
    ax_docs_free(&sets[0]);
    ax_docs_free(&sets[1]);
    return scratch_remove(state);
}

static struct ax_corpus_options corpus_options(void) {
    return (struct ax_corpus_options){
        .shuffle = true, .seed = 42, .rule = {.min = 2, .max = 80, .drop_untrained = true}};
}

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
    assert_ok(ax_corpus_build(&c, set_list, 2, &o, &r));
    assert_true(short_ > 0 && long_ > 0 && untrained > 0);
    assert_int_equal(r.too_short, short_);
    assert_int_equal(r.too_long, long_);
    assert_int_equal(r.untrained, untrained);
    assert_int_equal(c.n, 400 - short_ - long_ - untrained);
    /* the tail: a share is rounded up, a number is taken as it is */
    const size_t n = c.n;
    const struct ax_corpus_doc last = c.docs[n - 1];
    assert_ok(ax_corpus_take_tail(&c, 0.01, &tail));
    assert_int_equal(tail.n, (n + 99) / 100);
    assert_memory_equal(&tail.docs[tail.n - 1], &last, sizeof last);
    assert_int_equal(c.n + tail.n, n);
    ax_corpus_free(&tail);
    assert_ok(ax_corpus_take_tail(&c, 5, &tail));
    assert_int_equal(tail.n, 5);
    assert_error(ax_corpus_take_tail(&c, 1000, &tail), AX_ERR_DATA, "leave none");
    ax_corpus_free(&tail);
    ax_corpus_free(&c);
    /* cut instead of dropped; what is cut may have no trained token left */
    o.rule.excess = AX_EXCESS_TRUNCATE;
    o.rule.max = 2;
    r = (struct ax_corpus_report){0};
    assert_ok(ax_corpus_build(&c, set_list, 2, &o, &r));
    assert_int_equal(r.too_long, 0);
    assert_true(r.cut > 300);
    for (size_t i = 0; i < c.n; i++)
        assert_int_equal(c.docs[i].n, 2);
    ax_corpus_free(&c);
    o.rule.excess = AX_EXCESS_RAISE;
    assert_error(ax_corpus_build(&c, set_list, 2, &o, &r), AX_ERR_DATA, "sequence_len allows 2");
    /* in order, without any rule; one of three shards; each set shuffled for itself */
    o = (struct ax_corpus_options){.rule = {.max = INT64_MAX}};
    assert_ok(ax_corpus_build(&c, set_list, 2, &o, &r));
    for (size_t i = 0; i < 400; i++)
        assert_true(c.docs[i].set == i / 200 && c.docs[i].doc == i % 200);
    ax_corpus_free(&c);
    o.n_shards = 3;
    o.shard = 1;
    assert_ok(ax_corpus_build(&c, set_list, 2, &o, &r));
    assert_int_equal(c.n, 133);
    assert_int_equal(c.docs[0].doc, 134);
    ax_corpus_free(&c);
    o.n_shards = 0;
    o.shuffle_each = true;
    assert_ok(ax_corpus_build(&c, set_list, 2, &o, &r));
    int in_place = 0;
    for (size_t i = 0; i < 400; i++) {
        assert_int_equal(c.docs[i].set, i / 200);
        in_place += c.docs[i].doc == i % 200;
    }
    assert_true(in_place < 20);
    ax_corpus_free(&c);
}

static void duplicates(void **state) {
    (void)state;
    struct ax_docs d = {0};
    struct ax_docs e = {0};
    const struct ax_docs *const one[] = {&d};
    const struct ax_docs *const other[] = {&e};
    add_document(&d, 1, 5, true);
    add_document(&d, 2, 5, true);
    add_document(&d, 1, 5, true);  /* again */
    add_document(&d, 1, 5, false); /* the same ids, other labels */
    add_document(&d, 1, 9, true);  /* the same when cut to 5 */
    add_document(&e, 3, 5, true);
    add_document(&e, 2, 5, true);
    struct ax_corpus c;
    struct ax_corpus eval;
    struct ax_corpus_report r = {0};
    struct ax_corpus_options o = {.rule = {.max = 9}, .deduplicate = true};
    assert_ok(ax_corpus_build(&c, one, 1, &o, &r));
    assert_int_equal(c.n, 4);
    assert_int_equal(r.duplicates, 1);
    assert_int_equal(c.docs[2].doc, 3); /* the first one stays */
    o.also = &c;
    assert_ok(ax_corpus_build(&eval, other, 1, &o, &r));
    assert_int_equal(eval.n, 1);
    assert_int_equal(eval.docs[0].doc, 0);
    ax_corpus_free(&eval);
    ax_corpus_free(&c);
    o = (struct ax_corpus_options){.rule = {.max = 5, .excess = AX_EXCESS_TRUNCATE},
                                   .deduplicate = true};
    assert_ok(ax_corpus_build(&c, one, 1, &o, &r));
    assert_int_equal(c.n, 3);
    ax_corpus_free(&c);
    ax_docs_free(&d);
    ax_docs_free(&e);
}

/* ---- loader ---- */

struct run {
    struct ax_corpus corpus;
    struct ax_corpus_source source;
    struct ax_doc_source docs;
    struct ax_loader *loader;
};

static void open_run(struct run *r, enum ax_pack_mode mode, bool shuffle) {
    struct ax_corpus_report report = {0};
    struct ax_corpus_options o = corpus_options();
    *r = (struct run){.source = {.group = 50, .shuffle = shuffle, .seed = 42}};
    assert_ok(ax_corpus_build(&r->corpus, set_list, 2, &o, &report));
    r->source.corpus = &r->corpus;
    ax_corpus_source_init(&r->source, &r->corpus, &r->docs);
    const struct ax_loader_options l = {
        .pack = {.mode = mode, .capacity = 100, .max_docs = 200, .group = 50},
        .shuffle = shuffle,
        .seed = 42};
    assert_ok(ax_loader_new(&r->loader, &r->docs, &l));
}

static void close_run(struct run *r) {
    ax_loader_free(r->loader);
    ax_corpus_source_free(&r->source);
    ax_corpus_free(&r->corpus);
}

/* The ids of a row's documents, one number for the row. */
static uint64_t row_hash(const struct ax_loaded_row *row) {
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
        struct ax_loaded_row row;
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
        open_run(&r, (enum ax_pack_mode)mode, true);
        struct ax_loader_count count;
        assert_ok(ax_loader_count_epoch(r.loader, 0, 64, &count));
        for (;; rows++) {
            struct ax_loaded_row row;
            bool got;
            assert_ok(ax_loader_next(r.loader, &row, &got));
            if (!got)
                break;
            assert_int_equal(row.index, rows);
            assert_int_equal(row.n, row.n_pieces);
            for (int d = 0; d < row.n; d++, docs++) {
                const struct ax_document *doc = &row.docs[d];
                seen[doc->tokens[0]]++;
                for (int64_t i = 0; i < doc->n; i++) {
                    assert_int_equal(doc->tokens[i], doc->tokens[0]);
                    const bool next_trained = i + 1 < doc->n && (i + 1) % 2 == 1;
                    assert_int_equal(doc->labels[i], next_trained ? doc->tokens[0] : -1);
                }
            }
        }
        assert_int_equal(docs, r.corpus.n);
        assert_int_equal(count.docs, docs);
        assert_int_equal(count.rows, rows);
        for (size_t i = 0; i < r.corpus.n; i++)
            assert_int_equal(seen[1000 * r.corpus.docs[i].set + r.corpus.docs[i].doc], 1);
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
        struct ax_loaded_row row;
        bool got;
        assert_ok(ax_loader_next(r.loader, &row, &got));
        const struct ax_corpus_doc *d = &row.group->docs[row.pieces[0].doc];
        assert_memory_equal(d, &r.corpus.docs[i], sizeof *d);
    }
    close_run(&r);
}

#define EVEN 120 /* documents of one length, in three groups */

/* The documents of an epoch, row by row, where every row holds one. The loader's own shuffle works
 * within a group, the source's over all. */
static void even_epoch(uint64_t seed, bool shuffle_docs, bool shuffle_rows, int64_t epoch,
                       int32_t *order) {
    struct ax_docs d = {0};
    const struct ax_docs *const set[] = {&d};
    struct run r = {.source = {.group = EVEN / 3, .shuffle = shuffle_docs, .seed = seed}};
    struct ax_corpus_report report = {0};
    int seen[EVEN] = {0};
    for (int32_t i = 0; i < EVEN; i++)
        add_document(&d, i, 10, true);
    assert_ok(ax_corpus_build(&r.corpus, set, 1, &(struct ax_corpus_options){.rule = {.max = 10}},
                              &report));
    r.source.corpus = &r.corpus;
    ax_corpus_source_init(&r.source, &r.corpus, &r.docs);
    assert_ok(ax_loader_new(
        &r.loader, &r.docs,
        &(struct ax_loader_options){.pack = {.mode = AX_PACK_FIT, .capacity = 10, .max_docs = 9},
                                    .shuffle = shuffle_rows,
                                    .seed = seed}));
    ax_loader_start_epoch(r.loader, epoch);
    for (int i = 0; i < EVEN; i++) {
        struct ax_loaded_row row;
        bool got;
        assert_ok(ax_loader_next(r.loader, &row, &got));
        assert_true(got && row.n == 1);
        order[i] = row.docs[0].tokens[0];
        seen[order[i]]++;
        if (!shuffle_docs)
            assert_int_equal(order[i] / (EVEN / 3), i / (EVEN / 3));
    }
    for (int i = 0; i < EVEN; i++)
        assert_int_equal(seen[i], 1);
    close_run(&r);
    ax_docs_free(&d);
}

/* One of the two hides it when the other forgets its key: so each for itself. */
static void each_shuffle_alone(void **state) {
    (void)state;
    for (int rows = 0; rows < 2; rows++) {
        int32_t first[EVEN];
        int32_t other[EVEN];
        even_epoch(42, !rows, rows, 0, first);
        even_epoch(42, !rows, rows, 0, other);
        assert_memory_equal(first, other, sizeof first);
        even_epoch(42, !rows, rows, 1, other);
        assert_memory_not_equal(first, other, sizeof first);
        even_epoch(43, !rows, rows, 0, other);
        assert_memory_not_equal(first, other, sizeof first);
        for (int i = 0; i < EVEN / 3; i++)
            other[i] = first[EVEN / 3 + i] - EVEN / 3;
        assert_memory_not_equal(first, other, EVEN / 3 * sizeof *first); /* another group */
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
    assert_error(ax_loader_restore(s.loader, &st), AX_ERR_DATA, "does not fit");
    close_run(&s);
    open_run(&s, AX_PACK_FIT, true);
    s.corpus.n--;
    ax_corpus_source_init(&s.source, &s.corpus, &s.docs);
    ax_loader_free(s.loader);
    assert_ok(ax_loader_new(
        &s.loader, &s.docs,
        &(struct ax_loader_options){
            .pack = {.mode = AX_PACK_FIT, .capacity = 100, .max_docs = 200, .group = 50},
            .shuffle = true,
            .seed = 42}));
    assert_error(ax_loader_restore(s.loader, &st), AX_ERR_DATA, "does not fit");
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
        assert_error(ax_loader_state_from_json(&st, v), AX_ERR_DATA, "damaged");
        json_decref(v);
    }
}

/* Rows of a wrapped stream: full to the last token, documents cut and continued; as one document
 * they predict across their borders, apart they do not. */
static void wrapped(void **state) {
    (void)state;
    for (int mixed = 0; mixed < 2; mixed++) {
        struct run r;
        open_run(&r, AX_PACK_WRAP, false);
        ax_loader_free(r.loader);
        assert_ok(ax_loader_new(
            &r.loader, &r.docs,
            &(struct ax_loader_options){
                .pack = {.mode = AX_PACK_WRAP, .capacity = 100, .max_docs = 200, .group = 50},
                .mixed = mixed}));
        struct ax_loaded_row row;
        bool got;
        int crossing = 0;
        for (int i = 0; i < 5; i++) {
            assert_ok(ax_loader_next(r.loader, &row, &got));
            assert_int_equal(row.n_tokens, 100);
            assert_int_equal(row.n, mixed ? 1 : row.n_pieces);
            int64_t at = 0;
            for (int p = 0; p + 1 < row.n_pieces; p++) {
                at += row.pieces[p].n;
                crossing += row.docs[0].labels[at - 1] >= 0;
            }
            assert_int_equal(row.docs[0].labels[99 * mixed + (1 - mixed) * (row.docs[0].n - 1)],
                             -1);
        }
        /* the first token of a whole document is not trained here, that of a cut one may be */
        assert_true(mixed ? crossing >= 0 : crossing == 0);
        close_run(&r);
    }
}

static void by_length(void **state) {
    (void)state;
    struct run r;
    open_run(&r, AX_PACK_PLAIN, true);
    ax_loader_free(r.loader);
    assert_ok(ax_loader_new(
        &r.loader, &r.docs,
        &(struct ax_loader_options){
            .pack = {.mode = AX_PACK_PLAIN, .capacity = 100, .max_docs = 1, .group = 50},
            .shuffle = true,
            .by_length = 10}));
    int64_t last = 0;
    int rises = 0;
    for (int i = 0; i < 50; i++) {
        struct ax_loaded_row row;
        bool got;
        assert_ok(ax_loader_next(r.loader, &row, &got));
        if (i % 10 != 0)
            assert_true(row.n_tokens <= last);
        else
            rises += row.n_tokens > last;
        last = row.n_tokens;
    }
    assert_int_equal(rises, 5);
    close_run(&r);
}

static void own_labels(void **state) {
    (void)state;
    struct ax_docs d = {0};
    const int32_t ids[] = {5, 6, 7};
    const int32_t labels[] = {AX_NO_LABEL, 9, 7};
    assert_ok(ax_docs_add(&d, ids, labels, 3, (struct ax_origin){0}));
    assert_int_equal(d.list[0].n_trained, 2);
    assert_int_equal(d.n_words, 6);
    const uint32_t *words = ax_docs_words(&d, 0);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(ax_docs_id(words, i), ids[i]);
        assert_int_equal(ax_docs_label(&d.list[0], words, i), labels[i]);
    }
    ax_docs_drop_last(&d);
    assert_int_equal(d.n_words, 0);
    assert_int_equal(d.n_tokens, 0);
    int32_t *many;
    const size_t n = AX_DOCS_BLOCK + 1;
    assert_ok(ax_alloc(&many, n, sizeof *many));
    assert_error(ax_docs_add(&d, many, many, n, (struct ax_origin){0}), AX_ERR_DATA,
                 "the limit is");
    /* a document that does not fit the rest of a block begins the next one */
    assert_ok(ax_docs_add(&d, many, many, 10, (struct ax_origin){0}));
    assert_ok(ax_docs_add(&d, many, many, AX_DOCS_BLOCK, (struct ax_origin){0}));
    assert_ok(ax_docs_add(&d, ids, ids, 3, (struct ax_origin){0}));
    assert_int_equal(d.list[1].start, AX_DOCS_BLOCK);
    assert_int_equal(d.list[2].start, 2 * AX_DOCS_BLOCK);
    assert_int_equal(ax_docs_id(ax_docs_words(&d, 2), 2), 7);
    ax_free(many);
    ax_docs_free(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_hand),
        cmocka_unit_test(fit_as_the_slow_way),
        cmocka_unit_test(every_token_once),
        cmocka_unit_test(corpora),
        cmocka_unit_test(duplicates),
        cmocka_unit_test(an_epoch),
        cmocka_unit_test(order),
        cmocka_unit_test(each_shuffle_alone),
        cmocka_unit_test(saved_and_restored),
        cmocka_unit_test(foreign_states),
        cmocka_unit_test(wrapped),
        cmocka_unit_test(by_length),
        cmocka_unit_test(own_labels),
    };
    return cmocka_run_group_tests(tests, make_sets, free_sets);
}
