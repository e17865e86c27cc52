/* The cache of prepared sets: found again, keyed by everything that matters, never believed when it
 * is damaged, whole or not there whatever fails while it is written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fault.h"
#include "data/records/pipeline/prepared.h"
#include "data/records/problems/problems.h"
#include "tests/data/scratch.h"
#include "tests/data/format_case.h"

struct set_case {
    struct ax_rows *rows;
    struct ax_format *format;
    struct ax_prepared_options o;
};

static void open_case(struct set_case *c, const char *path, const char *split, int64_t sequence_len,
                      const char *tokenizer) {
    *c = (struct set_case){0};
    assert_ok(ax_rows_open(&c->rows, &(struct ax_rows_options){.path = path, .split = split}));
    const struct ax_format_options o = {.type = "completion",
                                        .tokenizer = bos_tokenizer,
                                        .sequence_len = sequence_len,
                                        .pad = PAD,
                                        .field = "text"};
    assert_ok(ax_format_new(&c->format, &o));
    c->o = (struct ax_prepared_options){.rows = c->rows,
                                        .format = c->format,
                                        .max_bad_rows = 1,
                                        .threads = 2,
                                        .bos = BOS,
                                        .cache = in_scratch("cache"),
                                        .tokenizer = tokenizer};
}

static void close_case(struct set_case *c) {
    ax_format_free(c->format);
    ax_rows_close(c->rows);
}

static const char *put_rows(const char *name, int n) {
    struct ax_buf b = {0};
    for (int i = 0; i < n; i++)
        assert_ok(ax_buf_printf(&b, i == 7 ? "{\"text\": 7}\n" : "{\"text\": \"row %d\"}\n", i));
    const char *path = put_bytes(name, b.data, b.len);
    ax_buf_free(&b);
    return path;
}

/* What the two sets hold is the same. */
static void check_same(const struct ax_examples *a, const struct ax_examples *b) {
    assert_int_equal(a->n, b->n);
    assert_int_equal(a->n_tokens, b->n_tokens);
    assert_int_equal(a->n_trained, b->n_trained);
    assert_int_equal(a->longest, b->longest);
    assert_int_equal(a->info.bad.n, b->info.bad.n);
    assert_int_equal(a->info.ends, b->info.ends);
    assert_int_equal(a->info.ends_trained, b->info.ends_trained);
    assert_int_equal(a->info.double_bos, b->info.double_bos);
    for (int i = 0; i < AX_ODDITIES; i++)
        assert_memory_equal(&a->info.oddities[i], &b->info.oddities[i], sizeof *a->info.oddities);
    for (int64_t i = 0; i < a->info.bad.n; i++)
        assert_string_equal(a->info.bad.texts[i], b->info.bad.texts[i]);
    for (size_t i = 0; i < a->n; i++) {
        char x[256];
        char y[256];
        assert_memory_equal(&a->list[i], &b->list[i], sizeof a->list[i]);
        assert_true(ax_examples_equal(a, i, b, i, a->list[i].n));
        assert_string_equal(ax_examples_where(a, i, x, sizeof x),
                            ax_examples_where(b, i, y, sizeof y));
    }
}

static void open_set(const struct set_case *c, struct ax_examples *s, bool from_cache) {
    assert_ok(ax_prepared_open(s, &c->o));
    assert_int_equal(s->info.from_cache, from_cache);
}

static void found_again(void **state) {
    (void)state;
    struct set_case c;
    struct ax_examples memory;
    struct ax_examples fresh;
    struct ax_examples hit;
    open_case(&c, put_rows("a.jsonl", 500), NULL, 100, "t");
    const char *cache = c.o.cache;
    c.o.cache = NULL;
    open_set(&c, &memory, false);
    assert_int_equal(memory.n, 499);
    assert_int_equal(memory.info.bad.n, 1);
    assert_int_equal(memory.info.ends_trained, 499);
    c.o.cache = cache;
    open_set(&c, &fresh, false);
    open_set(&c, &hit, true);
    check_same(&memory, &fresh);
    check_same(&memory, &hit);
    ax_examples_free(&hit);
    c.o.refresh = true;
    open_set(&c, &hit, false);
    check_same(&memory, &hit);
    ax_examples_free(&hit);
    ax_examples_free(&fresh);
    ax_examples_free(&memory);
    close_case(&c);
    /* a set without a single document */
    open_case(&c, put_text("none.jsonl", ""), NULL, 100, "t");
    for (int i = 0; i < 2; i++) {
        open_set(&c, &hit, i == 1);
        assert_int_equal(hit.n, 0);
        ax_examples_free(&hit);
    }
    close_case(&c);
}

/* More words than a block holds: those before the last block are written, and freed, while the set
 * grows, and the last one only as far as it goes. */
static void sets_of_several_blocks(void **state) {
    (void)state;
    enum { DOCS = 6, LENGTH = 1000003 };
    static const struct ax_columns no_columns;
    struct ax_examples memory = {0}, back = {0}, kept = {0};
    struct ax_cache_writer w;
    int32_t *ids;
    char *path;
    bool found = false;
    json_t *description = json_pack("{s:s}", "of", "several blocks");
    assert_ok(ax_alloc(&ids, LENGTH, sizeof *ids));
    make_folder("blocks");
    assert_ok(ax_cache_path(&path, in_scratch("blocks"), description));
    assert_ok(ax_cache_begin(&w, path));
    assert_ok(ax_examples_add_file(&memory, "rows.jsonl"));
    assert_ok(ax_examples_add_file(&kept, "rows.jsonl"));
    for (int d = 0; d < DOCS; d++) {
        for (int i = 0; i < LENGTH; i++)
            ids[i] = (d * 7919 + i * 31) % 50000;
        const struct ax_example x = {.tokens = ids,
                                     .labels = ids,
                                     .n = (size_t)(LENGTH - d),
                                     .origin = {.line = (uint64_t)d + 1}};
        assert_ok(ax_examples_add(&memory, &x));
        assert_ok(ax_examples_add(&kept, &x));
        assert_ok(ax_cache_flush(&w, &memory));
    }
    assert_int_equal(memory.n_blocks, 2);
    assert_null(memory.blocks[0]);
    const uint64_t words = memory.n_words;
    assert_ok(ax_cache_commit(&w, &memory, description));
    char file[256];
    struct ax_mapping map;
    snprintf(file, sizeof file, "%s/words.bin", path);
    assert_ok(ax_map_file(&map, file));
    assert_true(map.len == words * sizeof(uint32_t));
    ax_unmap_file(&map);
    assert_ok(ax_cache_load(&back, path, description, &no_columns, &found));
    assert_true(found);
    assert_int_equal(back.n, DOCS);
    for (size_t d = 0; d < DOCS; d++)
        assert_true(ax_examples_equal(&back, d, &kept, d, (uint32_t)LENGTH - (uint32_t)d));
    ax_examples_free(&back);
    ax_examples_free(&memory);
    ax_examples_free(&kept);
    json_decref(description);
    ax_free(path);
    ax_free(ids);
}

/* Each thing that the documents follow from gives another key. */
static void keys(void **state) {
    (void)state;
    struct set_case c;
    struct ax_examples s;
    open_case(&c, put_rows("k.jsonl", 20), NULL, 100, "t");
    open_set(&c, &s, false);
    ax_examples_free(&s);
    close_case(&c);
    for (int change = 0; change < 5; change++) {
        if (change == 0)
            put_rows("k.jsonl", 21); /* the file */
        open_case(&c, in_scratch("k.jsonl"), change == 1 ? "train[:5]" : NULL,
                  change == 2 ? 99 : 100, change == 3 ? "u" : "t");
        if (change == 4)
            c.o.max_bad_rows = 2;
        open_set(&c, &s, false);
        ax_examples_free(&s);
        open_set(&c, &s, true);
        ax_examples_free(&s);
        close_case(&c);
    }
}

/* The only folder of the cache. */
static void only_folder(char *out, size_t size, const struct set_case *c) {
    json_t *rows;
    json_t *format;
    assert_ok(ax_rows_describe(c->rows, &rows));
    assert_ok(ax_format_describe(c->format, &format));
    json_t *v = json_pack("{s:o, s:o, s:s, s:s, s:I, s:i}", "rows", rows, "format", format,
                          "tokenizer", c->o.tokenizer, "version", AX_VERSION, "max_bad_rows",
                          (json_int_t)c->o.max_bad_rows, "bos", BOS);
    char *path;
    assert_ok(ax_cache_path(&path, c->o.cache, v));
    snprintf(out, size, "%s", path);
    ax_free(path);
    json_decref(v);
}

static void flip_bit(const char *path, size_t byte, int bit) {
    char *data;
    size_t n;
    assert_ok(ax_read_file(path, 1 << 24, &data, &n));
    data[byte] = (char)(data[byte] ^ (1 << bit));
    assert_ok(ax_write_file_atomic(path, data, n));
    ax_free(data);
}

/* Every flipped bit, every cut: found, and the set made anew. */
static void damage(void **state) {
    (void)state;
    static const char *const names[] = {"set.json", "examples.bin", "words.bin"};
    struct set_case c;
    struct ax_examples want;
    struct ax_examples got;
    char folder[200];
    char path[256];
    int states = 0;
    open_case(&c, put_rows("d.jsonl", 30), NULL, 100, "t");
    open_set(&c, &want, false);
    only_folder(folder, sizeof folder, &c);
    for (int f = 0; f < 3; f++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[f]);
        char *whole;
        size_t n;
        assert_ok(ax_read_file(path, 1 << 24, &whole, &n));
        for (size_t i = 0; i < n; i += n / 60 + 1, states += 2) {
            /* set.json is text: a flip in its white space changes nothing that is read */
            const bool blank = f == 0 && (whole[i] == ' ' || whole[i] == '\n');
            if (!blank) {
                flip_bit(path, i, (int)(i % 7));
                open_set(&c, &got, false);
                check_same(&want, &got);
                ax_examples_free(&got);
            }
            if (i > 0) {
                assert_ok(ax_write_file_atomic(path, whole, i));
                open_set(&c, &got, false);
                check_same(&want, &got);
                ax_examples_free(&got);
            }
        }
        ax_free(whole);
    }
    print_message("%d states of damage\n", states);
    assert_true(states > 300);
    /* a file is missing */
    for (int f = 0; f < 3; f++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[f]);
        assert_ok(ax_unlink(path));
        open_set(&c, &got, false);
        check_same(&want, &got);
        ax_examples_free(&got);
    }
    open_set(&c, &got, true);
    ax_examples_free(&got);
    ax_examples_free(&want);
    close_case(&c);
}

/* Another set's folder under this set's name is not taken for it. */
static void another_sets_folder(void **state) {
    (void)state;
    struct set_case c;
    struct ax_examples want;
    struct ax_examples got;
    char mine[200];
    char other[200];
    open_case(&c, put_rows("mine.jsonl", 30), NULL, 100, "t");
    open_set(&c, &want, false);
    only_folder(mine, sizeof mine, &c);
    c.o.tokenizer = "u";
    open_set(&c, &got, false);
    ax_examples_free(&got);
    struct set_case d = c;
    only_folder(other, sizeof other, &d);
    assert_string_not_equal(mine, other);
    assert_ok(ax_remove_tree(mine));
    assert_ok(ax_rename(other, mine));
    c.o.tokenizer = "t";
    open_set(&c, &got, false);
    check_same(&want, &got);
    ax_examples_free(&got);
    ax_examples_free(&want);
    close_case(&c);
}

/* Right checksums and wrong places: a document that is not inside the files is refused. */
static void places_outside_the_files(void **state) {
    (void)state;
    static const int32_t ids[] = {1, 2, 3};
    json_t *description = json_pack("{s:i}", "a", 1);
    static const struct ax_columns column = {.list = {{"value", true, AX_OF_EXAMPLE, 0}}, .n = 1};
    for (int wrong = 0; wrong < 11; wrong++) {
        struct ax_cache_writer w;
        struct ax_examples made = {0};
        struct ax_examples got;
        bool found;
        assert_ok(ax_examples_add_file(&made, "x.jsonl"));
        for (int i = 0; i < 2; i++)
            assert_ok(
                ax_examples_add(&made, &(struct ax_example){.tokens = ids, .labels = ids, .n = 3}));
        struct ax_stored *doc = &made.list[1];
        switch (wrong) {
        case 1:
            doc->file++;
            break;
        case 2:
            doc->start++;
            break;
        case 3:
            doc->n++;
            break;
        case 4:
            doc->own_labels = 1;
            break;
        case 5: /* neither 0 nor 1, and still inside */
            doc->own_labels = 2;
            doc->n = 1;
            break;
        case 6:
            doc->own_labels = 64;
            break;
        case 7: /* whole blocks in front of the first, counted modulo 2^64 */
            doc->start = UINT64_MAX - AX_EXAMPLES_BLOCK + 1;
            break;
        case 8: /* of a group that nothing begins */
            made.list[0].joined = 1;
            break;
        case 9:
            doc->joined = 2;
            break;
        default:
            break;
        }
        const char *path = in_scratch("places");
        assert_ok(ax_cache_begin(&w, path));
        assert_ok(ax_cache_commit(&w, &made, description));
        ax_cache_abort(&w);
        ax_examples_free(&made);
        if (wrong > 0) {
            assert_error(
                ax_cache_load(&got, path, description, wrong == 10 ? &column : NULL, &found),
                AX_ERR_DATA, "outside");
            assert_false(found);
        } else {
            assert_ok(ax_cache_load(&got, path, description, NULL, &found));
            assert_int_equal(got.n, 2);
            ax_examples_free(&got);
        }
        assert_ok(ax_remove_tree(path));
    }
    json_decref(description);
}

/* Ends, pads and begins of documents are counted, trained or not; the cache keeps the counts. */
static void counts(void **state) {
    (void)state;
    static const char rows[] =
        "{\"input_ids\": [263, 97, 264], \"labels\": [-100, 97, 264]}\n"        /* an end */
        "{\"input_ids\": [263, 97, 264], \"labels\": [-100, 97, -100]}\n"       /* untrained */
        "{\"input_ids\": [263, 263], \"labels\": [-100, 263]}\n"                /* two begins */
        "{\"input_ids\": [97, 263, 264], \"labels\": [97, -100, -100]}\n"       /* not in front */
        "{\"input_ids\": [263], \"labels\": [263]}\n"                           /* one */
        "{\"input_ids\": [263, 265, 265], \"labels\": [-100, 265, -100]}\n"     /* pads */
        "{\"input_ids\": [97, 263, 263, 265], \"labels\": [97, 263, 1, 265]}\n" /* … */
        "{\"input_ids\": [], \"labels\": []}\n"                                 /* nothing */
        "{\"input_ids\": [97], \"labels\": [97], \"attention_mask\": [0]}\n";
    struct set_case c;
    open_case(&c, put_text("ids.jsonl", rows), NULL, 100, "t");
    ax_format_free(c.format);
    assert_ok(ax_format_new(
        &c.format,
        &(struct ax_format_options){.tokenizer = bos_tokenizer, .sequence_len = 100, .pad = PAD}));
    c.o.format = c.format;
    for (int i = 0; i < 2; i++) {
        struct ax_examples s;
        open_set(&c, &s, i == 1);
        assert_int_equal(s.n, 7);
        assert_int_equal(s.n_tokens, 19);
        assert_int_equal(s.n_trained, 11);
        assert_int_equal(s.longest, 4);
        assert_int_equal(s.info.ends, 3);
        assert_int_equal(s.info.ends_trained, 1);
        assert_int_equal(s.info.double_bos, 1);
        assert_int_equal(s.info.bad.n_empty, 2);
        assert_non_null(
            strstr(s.info.bad.first_empty, "ids.jsonl:8: input_ids: the list of tokens is empty"));
        ax_examples_free(&s);
    }
    close_case(&c);
}

/* Each call of the file system fails in turn: an error, and nothing half written is found later. */
static void failing_disk(void **state) {
    (void)state;
    static const char *const ops[] = {"write", "fsync", "rename", "mkdir", "open"};
    struct set_case c;
    struct ax_examples s;
    int states = 0;
    open_case(&c, put_rows("f.jsonl", 30), NULL, 100, "t");
    c.o.threads = 1;
    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++) {
        for (int k = 1; k < 100; k++) {
            char spec[64];
            snprintf(spec, sizeof spec, "%s:%d:enospc", ops[o], k);
            assert_ok(ax_remove_tree(c.o.cache));
            assert_ok(ax_fault_configure(spec));
            const enum ax_status st = ax_prepared_open(&s, &c.o);
            const bool fired = ax_fault_fired();
            assert_ok(ax_fault_configure(NULL));
            if (st == AX_OK) {
                assert_int_equal(s.n, 29);
                ax_examples_free(&s);
            }
            if (!fired)
                break;
            states++;
            assert_ok(ax_prepared_open(&s, &c.o));
            assert_int_equal(s.n, 29);
            ax_examples_free(&s);
        }
    }
    print_message("%d failing calls\n", states);
    assert_true(states > 10);
    close_case(&c);
}

/* Memory fails at each allocation: an error, no crash, nothing left. */
static void no_memory(void **state) {
    (void)state;
    struct set_case c;
    struct ax_examples s;
    open_case(&c, put_rows("m.jsonl", 12), NULL, 100, "t");
    c.o.threads = 1;
    ax_log_set_level(AX_LOG_ERROR);
    int k = 1;
    for (; k < 2000; k++) {
        char spec[64];
        snprintf(spec, sizeof spec, "malloc:%d:enomem", k);
        assert_ok(ax_remove_tree(c.o.cache));
        const uint64_t live = ax_mem_live_blocks();
        assert_ok(ax_fault_configure(spec));
        const enum ax_status st = ax_prepared_open(&s, &c.o);
        const bool fired = ax_fault_fired();
        assert_ok(ax_fault_configure(NULL));
        if (st == AX_OK)
            ax_examples_free(&s);
        else /* the tokenizer may have kept scratch for its next use */
            assert_true(ax_mem_live_blocks() <= live + 8);
        if (!fired)
            break;
    }
    print_message("%d failing allocations\n", k);
    assert_true(k > 50 && k < 2000);
    close_case(&c);
}

/* Opens the set in a process of its own: 10 + from_cache where it is right, else 1. */
static pid_t open_elsewhere(const char *path, bool refresh) {
    fflush(NULL);
    const pid_t child = fork();
    if (child != 0)
        return child;
    struct set_case c;
    struct ax_examples s;
    open_case(&c, path, NULL, 100, "t");
    c.o.refresh = refresh;
    const bool ok = ax_prepared_open(&s, &c.o) == AX_OK && s.n == 1999 && s.n_tokens == 18883 &&
                    s.info.bad.n == 1;
    if (!ok)
        fprintf(stderr, "%s\n", ax_error_text());
    _exit(ok ? 10 + s.info.from_cache : 1);
}

/* Four processes need a set at the same time: one makes it, the others wait for it. Then they
 * remake it over each other while others load it: each gets a complete set. */
static void several_processes(void **state) {
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s", put_rows("several.jsonl", 2000));
    for (int round = 0; round < 12; round++) {
        const bool refresh = round >= 6;
        pid_t children[4];
        int made = 0;
        if (!refresh)
            assert_ok(ax_remove_tree(in_scratch("cache")));
        for (int i = 0; i < 4; i++)
            children[i] = open_elsewhere(path, refresh && i % 2 == 0);
        for (int i = 0; i < 4; i++) {
            int status;
            assert_int_equal(waitpid(children[i], &status, 0), children[i]);
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) >= 10);
            made += WEXITSTATUS(status) == 10;
        }
        assert_int_equal(made, refresh ? 2 : 1);
    }
}

enum { PROBLEMS = 7473 }; /* as many rows as GSM8K has for training */

static const char *put_problems(void) {
    struct ax_buf b = {0};
    for (uint64_t i = 0; i < PROBLEMS; i++) {
        struct ax_problem p;
        ax_problem_make(&p, 1, i, (struct ax_problem_kind){1, AX_PROBLEM_LEVELS, 1}, NULL);
        assert_ok(ax_buf_printf(&b, "{\"text\": \"%s", p.question.s));
        for (int k = 0; k < p.level; k++)
            assert_ok(ax_buf_printf(&b, "\\n%s", p.steps[k].s));
        assert_ok(ax_buf_puts(&b, "\"}\n"));
    }
    const char *path = put_bytes("problems.jsonl", b.data, b.len);
    ax_buf_free(&b);
    return path;
}

/* The bar: a data set of GSM8K's size from the cache in 0.2 s. */
static void warm_hit(void **state) {
    (void)state;
    const char *path = put_problems();
    struct ax_rows *rows;
    struct ax_format *f;
    struct ax_examples s;
    assert_ok(ax_rows_open(&rows, &(struct ax_rows_options){.path = path}));
    assert_ok(ax_format_new(&f, &(struct ax_format_options){.type = "completion",
                                                            .tokenizer = bare_tokenizer,
                                                            .sequence_len = 4096,
                                                            .field = "text"}));
    const struct ax_prepared_options o = {.rows = rows,
                                          .format = f,
                                          .threads = 2,
                                          .bos = BOS,
                                          .cache = in_scratch("cache"),
                                          .tokenizer = "t"};
    double best = 1e9;
    for (int i = 0; i < 4; i++) {
        const double start = ax_clock_now();
        assert_ok(ax_prepared_open(&s, &o));
        const double took = ax_clock_now() - start;
        assert_int_equal(s.info.from_cache, i > 0);
        assert_int_equal(s.n, PROBLEMS);
        if (i > 0)
            best = took < best ? took : best;
        ax_examples_free(&s);
    }
    print_message("warm hit: %.1f ms\n", best * 1e3);
    assert_true(best < 0.2);
    ax_format_free(f);
    ax_rows_close(rows);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_of_several_blocks),
        cmocka_unit_test(found_again),
        cmocka_unit_test(keys),
        cmocka_unit_test(damage),
        cmocka_unit_test(failing_disk),
        cmocka_unit_test(another_sets_folder),
        cmocka_unit_test(places_outside_the_files),
        cmocka_unit_test(counts),
        cmocka_unit_test(no_memory),
        cmocka_unit_test(several_processes),
        cmocka_unit_test(warm_hit),
    };
    return cmocka_run_group_tests(tests, load_tokenizers, free_tokenizers);
}
