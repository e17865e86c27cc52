/* Texts that examples carry: in a list, stored, compared, cached, and found from the sequences of a
 * loader and a stream. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/records/pipeline/prepared.h"
#include "data/records/pipeline/loader.h"
#include "data/records/pipeline/stream.h"
#include "tests/data/group_case.h"
#include "tests/data/format_case.h"

/* The text of the tests' example i: none for some, an empty one for others. */
static const char *text_of(size_t i, size_t *n) {
    static char text[64];
    *n = i % 5 < 2 ? 0 : i % 13 + 1;
    memset(text, 'a' + (int)(i % 26), sizeof text);
    return i % 5 == 0 ? NULL : text;
}

static void check_text(size_t i, const char *got, size_t n_got) {
    size_t n;
    const char *want = text_of(i, &n);
    assert_int_equal(got != NULL, want != NULL);
    assert_int_equal(n_got, n);
    if (n > 0)
        assert_memory_equal(got, want, n);
}

static void add_listed(struct ax_example_list *l, size_t i) {
    const int32_t token = (int32_t)i;
    size_t n;
    const char *text = text_of(i, &n);
    for (size_t t = 0; t < 1 + i % 7; t++)
        assert_ok(ax_example_list_add(l, &token, NULL, 1, true));
    assert_ok(ax_example_list_end(l, (struct ax_origin){0}));
    if (l->columns)
        set_columns(l, token);
    if (text)
        assert_ok(ax_example_list_text(l, text, n));
}

static void listed(void **state) {
    (void)state;
    struct ax_example_list l = {0};
    for (size_t i = 0; i < 300; i++)
        add_listed(&l, i);
    ax_example_list_cut(&l, 100);
    for (size_t i = 500; i < 600; i++) /* where the others were */
        add_listed(&l, i);
    assert_int_equal(l.n, 200);
    size_t bytes = 0;
    for (size_t i = 0; i < l.n; bytes += l.items[i++].n_text)
        check_text(i < 100 ? i : i + 400, l.items[i].text, l.items[i].n_text);
    assert_int_equal(l.n_text, bytes); /* those of the cut ones are not kept */
    ax_example_list_free(&l);
}

static void check_stored(const struct ax_examples *e, size_t first) {
    for (size_t i = 0; i < e->n; i++) {
        size_t n;
        const char *text = ax_examples_text(e, i, &n);
        check_text(first + i, text, n);
    }
}

/* After tokens, after labels of their own, after columns; and nothing where there is none. */
static void stored(void **state) {
    (void)state;
    const struct ax_columns *const columns[] = {NULL, &group_columns};
    for (int k = 0; k < 4; k++) {
        struct ax_example_list l = {.columns = columns[k % 2]};
        struct ax_examples e = {.columns = columns[k % 2]};
        uint64_t words = 0;
        for (size_t i = 0; i < 200; i++) {
            add_listed(&l, i);
            if (k >= 2)
                l.labels[l.n_tokens - 1] = 7777;
        }
        for (size_t i = 0; i < l.n; i++) {
            assert_ok(ax_examples_add(&e, &l.items[i]));
            const size_t n = l.items[i].n, n_text = l.items[i].n_text;
            words += n * (k >= 2 ? 2 : 1) + (k % 2 ? 1 + n * (1 + WIDTH) : 0) +
                     (l.items[i].text ? 1 + (n_text + 3) / 4 : 0);
        }
        assert_int_equal(e.n_words, words);
        check_stored(&e, 0);
        ax_examples_cut(&e, 50);
        for (size_t i = 50; i < l.n; i++)
            assert_ok(ax_examples_add(&e, &l.items[i]));
        check_stored(&e, 0);
        ax_example_list_free(&l);
        ax_examples_free(&e);
    }
}

/* Equal only with the same text, however many of the tokens are compared. */
static void compared(void **state) {
    (void)state;
    static const int32_t tokens[] = {5, 6};
    static const struct {
        const char *text;
        size_t n;
    } all[] = {{NULL, 0}, {"", 0}, {"a", 1}, {"b", 1}, {"a\0", 2}, {"a\0\0\0\0", 5}, {"aaaaa", 5}};
    const size_t n = sizeof all / sizeof *all;
    struct ax_examples e[2] = {0};
    /* what was in the memory before makes no difference */
    const struct ax_example before = {.tokens = tokens,
                                      .labels = tokens,
                                      .n = 2,
                                      .text = "................................................",
                                      .n_text = 48};
    for (int i = 0; i < 3; i++)
        assert_ok(ax_examples_add(&e[1], &before));
    ax_examples_clear(&e[1]);
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < n; i++)
            assert_ok(ax_examples_add(&e[k], &(struct ax_example){.tokens = tokens,
                                                                  .labels = tokens,
                                                                  .n = 2,
                                                                  .text = all[i].text,
                                                                  .n_text = all[i].n}));
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++)
            for (uint32_t t = 1; t <= 2; t++) {
                assert_int_equal(ax_examples_equal(&e[0], i, &e[1], j, t), i == j);
                assert_int_equal(ax_examples_hash(&e[0], i, t) == ax_examples_hash(&e[1], j, t),
                                 i == j);
            }
    struct ax_corpus c;
    struct ax_corpus_report r = {0};
    assert_ok(ax_corpus_build(
        &c, e, 2, &(struct ax_corpus_options){.rule = {.max = 1000}, .deduplicate = true}, &r));
    assert_int_equal(c.n, n);
    assert_int_equal(r.duplicates, n);
    ax_corpus_free(&c);
    for (int k = 0; k < 2; k++)
        ax_examples_free(&e[k]);
}

/* ---- the cache ---- */

/* Texts that fill several blocks, each of them whole. */
static void large(void **state) {
    (void)state;
    enum { N = 40 };
    json_t *description = json_pack("{s:i}", "large", 1);
    struct ax_cache_writer w;
    struct ax_examples made = {0}, got;
    struct ax_buf text = {0};
    bool found;
    assert_ok(ax_examples_add_file(&made, "x.jsonl"));
    assert_ok(ax_cache_begin(&w, in_scratch("large")));
    for (size_t i = 0; i < AX_EXAMPLE_TEXT_MAX; i++)
        assert_ok(ax_buf_puts(&text, "x"));
    for (int32_t i = 0; i < N; i++) {
        text.data[0] = text.data[AX_EXAMPLE_TEXT_MAX - 1 - (size_t)i] = (char)i;
        assert_ok(ax_examples_add(&made, &(struct ax_example){.tokens = &i,
                                                              .labels = &i,
                                                              .n = 1,
                                                              .text = text.data,
                                                              .n_text = text.len - (size_t)i}));
        assert_ok(ax_cache_flush(&w, &made));
    }
    assert_ok(ax_cache_commit(&w, &made, description));
    ax_cache_abort(&w);
    assert_ok(ax_cache_load(&got, in_scratch("large"), description, NULL, &found));
    assert_int_equal(got.n, N);
    assert_int_equal(got.n_blocks, 3);
    for (size_t i = 0; i < N; i++) {
        size_t n;
        const char *at = ax_examples_text(&got, i, &n);
        assert_int_equal(n, AX_EXAMPLE_TEXT_MAX - i);
        assert_int_equal(at[0], i);
        assert_int_equal(at[n - 1], i);
        assert_int_equal(got.list[i].hash, made.list[i].hash);
    }
    ax_examples_free(&got);
    ax_examples_free(&made);
    ax_buf_free(&text);
    json_decref(description);
}

/* Right checksums, and a text that is not inside the file. */
static void places_outside_the_file(void **state) {
    (void)state;
    static const int32_t id = 1;
    json_t *description = json_pack("{s:i}", "a", 1);
    for (int wrong = 0; wrong < 5; wrong++) {
        struct ax_cache_writer w;
        struct ax_examples made = {0}, got;
        bool found;
        assert_ok(ax_examples_add_file(&made, "x.jsonl"));
        for (int i = 0; i < 2; i++)
            assert_ok(ax_examples_add(
                &made, &(struct ax_example){
                           .tokens = &id, .labels = &id, .n = 1, .text = "abcd", .n_text = 4}));
        struct ax_stored *last = &made.list[1];
        uint32_t *n_text =
            (uint32_t *)(uintptr_t)ax_examples_words(&made, 1) + ax_stored_words(&made, last);
        assert_int_equal(*n_text, 4);
        *n_text = wrong == 1 ? 5 : wrong == 2 ? UINT32_MAX : *n_text;
        last->has_text = wrong == 3 ? 2 : 1;
        last->n = wrong == 4 ? 3 : 1; /* the text's first word follows the file */
        const char *path = in_scratch("places");
        assert_ok(ax_cache_begin(&w, path));
        assert_ok(ax_cache_commit(&w, &made, description));
        ax_cache_abort(&w);
        if (wrong > 0) {
            assert_error(ax_cache_load(&got, path, description, NULL, &found), AX_ERR_DATA,
                         "outside");
        } else {
            assert_ok(ax_cache_load(&got, path, description, NULL, &found));
            ax_examples_free(&got);
        }
        ax_examples_free(&made);
        assert_ok(ax_remove_tree(path));
    }
    json_decref(description);
}

/* ---- from records to sequences ---- */

#define N_PROMPTS 700

static const struct ax_format_answers answers = {.field_chosen = "chosen",
                                                 .field_rejected = "rejected"};

/* Records whose prompt says which one they are: "17=", and the text ends with "17}". */
static const char *put_prompts(const char *name) {
    struct ax_buf b = {0};
    for (int i = 0; i < N_PROMPTS; i++)
        assert_ok(ax_buf_printf(&b, "{\"prompt\": \"%d=\", \"note\": \"%.*s\", \"n\": %d}\n", i,
                                i % 9, "........", i));
    const char *path = put_bytes(name, b.data, b.len);
    ax_buf_free(&b);
    return path;
}

static struct ax_format *prompt_format(void) {
    struct ax_format *f;
    assert_ok(ax_format_new(&f, &(struct ax_format_options){.task = AX_TASK_PROMPT,
                                                            .tokenizer = bare_tokenizer,
                                                            .sequence_len = 64,
                                                            .answers = &answers}));
    return f;
}

/* The record that a sequence of one prompt is of. */
static int check_sequence(const struct ax_packed_sequence *s) {
    char want[128], prompt[16];
    size_t n;
    assert_int_equal(s->n_pieces, 1);
    for (int64_t t = 0; t < s->n_tokens; t++)
        prompt[t] = (char)s->docs[0].tokens[t];
    prompt[s->n_tokens] = '\0';
    const int i = atoi(prompt);
    snprintf(want, sizeof want, "{\"prompt\":\"%d=\",\"note\":\"%.*s\",\"n\":%d}", i, i % 9,
             "........", i);
    const char *text = ax_examples_text(ax_sequence_set(s, 0), ax_sequence_ref(s, 0)->index, &n);
    assert_non_null(text);
    assert_int_equal(n, strlen(want));
    assert_memory_equal(text, want, n);
    return i;
}

static void check_loader(const struct ax_example_source *source) {
    struct ax_loader *l;
    int order[2][N_PROMPTS];
    assert_ok(ax_loader_new(
        &l, source,
        &(struct ax_loader_options){.pack = {.mode = AX_PACK_PLAIN, .capacity = 64, .max_docs = 1},
                                    .shuffle = true}));
    for (int epoch = 0; epoch < 2; epoch++) {
        bool seen[N_PROMPTS] = {false};
        ax_loader_start_epoch(l, epoch);
        for (int i = 0; i <= N_PROMPTS; i++) {
            struct ax_packed_sequence s;
            bool got;
            assert_ok(ax_loader_next(l, &s, &got));
            assert_int_equal(got, i < N_PROMPTS);
            if (got)
                seen[order[epoch][i] = check_sequence(&s)] = true;
        }
        for (int i = 0; i < N_PROMPTS; i++)
            assert_true(seen[i]);
    }
    assert_memory_not_equal(order[0], order[1], sizeof order[0]);
    ax_loader_free(l);
}

static void prepared(void **state) {
    (void)state;
    struct ax_format *f = prompt_format();
    const char *cache = in_scratch("cache");
    put_prompts("prompts.jsonl");
    for (int i = 0; i < 3; i++) {
        struct ax_examples set;
        struct ax_corpus c;
        struct ax_corpus_report r = {0};
        struct ax_corpus_source source = {.chunk = 100, .shuffle = true};
        struct ax_example_source examples;
        open_examples(&set, f, in_scratch("prompts.jsonl"), i == 0 ? NULL : cache);
        assert_int_equal(set.info.from_cache, i == 2);
        assert_ok(ax_corpus_build(&c, &set, 1,
                                  &(struct ax_corpus_options){
                                      .shuffle = true, .rule = {.max = 60, .drop_untrained = true}},
                                  &r));
        ax_corpus_source_init(&source, &c, &examples);
        check_loader(&examples);
        ax_corpus_source_free(&source);
        ax_corpus_free(&c);
        ax_examples_free(&set);
    }
    ax_format_free(f);
}

static void streamed(void **state) {
    (void)state;
    struct ax_stream_entry entry = {.format = prompt_format()};
    struct ax_stream *stream;
    struct ax_example_source source;
    assert_ok(
        ax_rows_open(&entry.rows, &(struct ax_rows_options){.path = put_prompts("stream.jsonl")}));
    assert_ok(ax_stream_open(&stream, &(struct ax_stream_options){.entries = &entry,
                                                                  .n = 1,
                                                                  .buffer = 90,
                                                                  .shuffle = true,
                                                                  .rule = {.max = 60},
                                                                  .threads = 2}));
    ax_stream_source(stream, &source);
    check_loader(&source);
    ax_stream_close(stream);
    ax_rows_close(entry.rows);
    ax_format_free((struct ax_format *)(uintptr_t)entry.format);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(listed),   cmocka_unit_test(stored),
        cmocka_unit_test(compared), cmocka_unit_test(large),
        cmocka_unit_test(prepared), cmocka_unit_test(places_outside_the_file),
        cmocka_unit_test(streamed),
    };
    return cmocka_run_group_tests(tests, load_tokenizers, free_tokenizers);
}
