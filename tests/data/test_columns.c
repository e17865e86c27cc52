/* Columns from a format to the sequences of the loader: kept, compared, cached, packed and cut with
 * their examples; and nothing where there are none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/records/pipeline/loader.h"
#include "data/records/pipeline/stream.h"
#include "tests/data/group_case.h"

/* Example i has the columns that its first token says. */
static void check_stored(const struct ax_examples *e, size_t i) {
    const int32_t token = ax_word_token(ax_examples_words(e, i), 0);
    assert_int_equal(ax_examples_column(e, i, 0)[0], column_word(0, token, 0));
    for (uint32_t t = 0; t < e->list[i].n; t++)
        assert_int_equal(ax_examples_column(e, i, 1)[t], column_word(1, token, t));
    for (uint32_t t = 0; t < WIDTH * e->list[i].n; t++)
        assert_int_equal(ax_examples_column(e, i, 2)[t], column_word(2, token, t));
}

/* ---- a list and a set ---- */

static void add_listed(struct ax_example_list *l, int32_t token) {
    for (int32_t t = 0; t < 1 + token % 7; t++)
        assert_ok(ax_example_list_add(l, &token, NULL, 1, true));
    assert_ok(ax_example_list_end(l, (struct ax_origin){0}));
    const struct ax_example *x = &l->items[l->n - 1];
    assert_int_equal(x->columns[0][0], 0); /* until they are set */
    for (size_t t = 0; t < x->n; t++)
        assert_int_equal(x->columns[1][t], 0);
    set_columns(l, token);
}

/* Examples move as the list grows; their columns go along, and are cut with them. */
static void listed(void **state) {
    (void)state;
    struct ax_example_list l = {.columns = &group_columns};
    for (int32_t token = 0; token < 300; token++)
        add_listed(&l, token);
    ax_example_list_cut(&l, 100);
    for (int32_t token = 500; token < 600; token++) /* where the others were */
        add_listed(&l, token);
    assert_int_equal(l.n, 200);
    for (size_t i = 0; i < l.n; i++) {
        const struct ax_example *x = &l.items[i];
        const int32_t token = (int32_t)(i < 100 ? i : i + 400);
        assert_int_equal(x->columns[0][0], column_word(0, token, 0));
        for (int c = 1; c < 3; c++)
            for (size_t t = 0; t < ax_column_words(&group_columns, c, x->n); t++)
                assert_int_equal(x->columns[c][t], column_word(c, token, (int64_t)t));
    }
    ax_example_list_free(&l);
}

static void stored(void **state) {
    (void)state;
    struct ax_examples plain;
    assert_true(column_set.n > N_GROUPS);
    for (size_t i = 0; i < column_set.n; i++)
        check_stored(&column_set, i);
    open_groups(&plain, in_scratch("groups.jsonl"), NULL);
    assert_int_equal(plain.n_words, plain.n_tokens); /* nothing is kept where there are none */
    assert_int_equal(column_set.n_words, (2 + WIDTH) * column_set.n_tokens + column_set.n);
    for (size_t i = 0; i < column_set.n; i++)
        assert_true(plain.list[i].hash != column_set.list[i].hash);
    ax_examples_free(&plain);
    /* with labels of its own, the columns follow those */
    static const int32_t tokens[] = {7, 7, 7}, labels[] = {AX_NO_LABEL, 3, 7};
    struct ax_example_list l = {.columns = &group_columns};
    struct ax_examples e = {.columns = &group_columns};
    assert_ok(ax_example_list_add(&l, tokens, labels, 3, false));
    assert_ok(ax_example_list_end(&l, (struct ax_origin){0}));
    set_columns(&l, 7);
    for (int i = 0; i < 2; i++) {
        assert_ok(ax_examples_add(&e, &l.items[0]));
        assert_int_equal(e.list[i].own_labels, 1);
        assert_int_equal(ax_word_label(&e.list[i], ax_examples_words(&e, (size_t)i), 1), 3);
        check_stored(&e, (size_t)i);
    }
    ax_example_list_free(&l);
    ax_examples_free(&e);
}

/* Two examples that differ in one value of one column are different, unless that value is
 * truncated. */
static void compared(void **state) {
    (void)state;
    static const int32_t tokens[] = {5, 5, 5, 5};
    for (int c = 0; c < 3; c++)
        for (size_t at = 0; at < ax_column_words(&group_columns, c, 4); at++) {
            struct ax_example_list l = {.columns = &group_columns};
            struct ax_examples e = {.columns = &group_columns};
            for (int i = 0; i < 2; i++) {
                assert_ok(ax_example_list_add(&l, tokens, NULL, 4, true));
                assert_ok(ax_example_list_end(&l, (struct ax_origin){0}));
                set_columns(&l, 5);
            }
            uint32_t words[4 * WIDTH];
            memcpy(words, l.items[1].columns[c],
                   ax_column_words(&group_columns, c, 4) * sizeof *words);
            words[at]++;
            ax_example_list_set(&l, 1, c, words);
            for (int i = 0; i < 2; i++)
                assert_ok(ax_examples_add(&e, &l.items[i]));
            for (uint32_t n = 1; n <= 4; n++) {
                const bool same = c > 0 && n <= at / ax_column_width(&group_columns, c);
                assert_int_equal(ax_examples_equal(&e, 0, &e, 1, n), same);
                assert_int_equal(ax_examples_hash(&e, 0, n) == ax_examples_hash(&e, 1, n), same);
            }
            ax_example_list_free(&l);
            ax_examples_free(&e);
        }
}

/* Written, mapped and the same; other columns are another column_set. */
static void cached(void **state) {
    (void)state;
    struct ax_examples got;
    static const struct ax_columns renamed = {.list = {{"values", true, AX_OF_EXAMPLE, 0},
                                                       {"step", false, AX_OF_TOKEN, 0},
                                                       {"old", true, AX_OF_LABEL, WIDTH}},
                                              .n = 3};
    const struct ax_format other = {.type = &group_type, .o = {.columns = &renamed}};
    const struct ax_format *const formats[] = {&column_format, &group_format, &other};
    for (int f = 0; f < 3; f++)
        for (int i = 0; i < 2; i++) {
            open_examples(&got, formats[f], in_scratch("groups.jsonl"), in_scratch("cache"));
            assert_int_equal(got.info.from_cache, i == 1);
            assert_int_equal(got.n, column_set.n);
            for (size_t k = 0; k < got.n && f == 0; k++)
                check_stored(&got, k);
            if (f == 0)
                assert_memory_equal(got.list, column_set.list,
                                    column_set.n * sizeof *column_set.list);
            ax_examples_free(&got);
        }
}

/* ---- sequences ---- */

/* Every document has its example's values; from = its first token's place in the example. */
static void check_sequence(const struct ax_packed_sequence *s) {
    for (int d = 0; d < s->n; d++) {
        const struct ax_document *doc = &s->docs[d];
        const int32_t token = doc->tokens[0];
        const int64_t from = s->pieces[d].from;
        assert_int_equal(doc->columns[0][0], column_word(0, token, 0));
        for (int64_t t = 0; t < doc->n; t++) {
            assert_int_equal(doc->columns[1][t], column_word(1, token, from + t));
            /* a label is with its own token, or with the one that predicts it */
            const int64_t at = from + t + !s->labels_in_place;
            const bool trained = at > 0 && t + !s->labels_in_place < doc->n;
            assert_int_equal(doc->labels[t], trained ? token : -1);
            for (int j = 0; j < WIDTH && trained; j++)
                assert_int_equal(doc->columns[2][WIDTH * t + j],
                                 column_word(2, token, WIDTH * at + j));
        }
    }
}

static void packed(void **state) {
    (void)state;
    for (int k = 0; k <= 2 * AX_PACK_WRAP + 1; k++) {
        const int mode = k / 2;
        struct ax_corpus c;
        struct ax_corpus_report r = {0};
        struct ax_corpus_source source = {.chunk = 40, .shuffle = true};
        struct ax_example_source examples;
        struct ax_loader *l;
        int64_t tokens = 0;
        /* the longest are cut; WRAP cuts more, and knows groups of one only */
        assert_ok(ax_corpus_build(
            &c, &column_set, 1,
            &(struct ax_corpus_options){.rule = {.max = 25, .excess = AX_EXCESS_TRUNCATE}}, &r));
        for (size_t i = 0; i < c.n && mode == AX_PACK_WRAP; i++)
            c.refs[i].joined = 0;
        assert_true(r.cut > 10);
        ax_corpus_source_init(&source, &c, &examples);
        assert_ok(
            ax_loader_new(&l, &examples,
                          &(struct ax_loader_options){.pack = {.mode = (enum ax_pack_mode)mode,
                                                               .capacity = 60,
                                                               .max_docs = 9,
                                                               .batch = 4},
                                                      .shuffle = true,
                                                      .labels_in_place = k % 2 == 1}));
        for (bool got = true; got;) {
            struct ax_packed_sequence s;
            assert_ok(ax_loader_next(l, &s, &got));
            if (got) {
                check_sequence(&s);
                tokens += s.n_tokens;
            }
        }
        assert_true(tokens > 3000);
        ax_loader_free(l);
        ax_corpus_source_free(&source);
        ax_corpus_free(&c);
    }
}

static void streamed(void **state) {
    (void)state;
    struct ax_stream_entry entry = {.format = &column_format};
    struct ax_stream *stream;
    struct ax_example_source source;
    struct ax_loader *l;
    int64_t docs = 0;
    assert_ok(
        ax_rows_open(&entry.rows, &(struct ax_rows_options){.path = in_scratch("groups.jsonl")}));
    assert_ok(ax_stream_open(&stream, &(struct ax_stream_options){.entries = &entry,
                                                                  .n = 1,
                                                                  .buffer = 30,
                                                                  .shuffle = true,
                                                                  .rule = {.min = 4, .max = 60},
                                                                  .threads = 2}));
    ax_stream_source(stream, &source);
    assert_ok(ax_loader_new(
        &l, &source,
        &(struct ax_loader_options){
            .pack = {.mode = AX_PACK_FIT, .capacity = 60, .max_docs = 9, .batch = 2}}));
    for (bool got = true; got;) {
        struct ax_packed_sequence s;
        assert_ok(ax_loader_next(l, &s, &got));
        if (got)
            check_sequence(&s);
        docs += got ? s.n : 0;
    }
    assert_true(docs > 200);
    ax_loader_free(l);
    ax_stream_close(stream);
    ax_rows_close(entry.rows);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(listed), cmocka_unit_test(stored), cmocka_unit_test(compared),
        cmocka_unit_test(cached), cmocka_unit_test(packed), cmocka_unit_test(streamed),
    };
    return cmocka_run_group_tests(tests, make_column_set, free_column_set);
}
