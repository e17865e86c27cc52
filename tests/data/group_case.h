/* Groups of 1, 2 and 4 examples, for the tests that take them from a record to a micro-batch. A
 * format of the tests' own makes them of records {"id": 7, "n": [3, 5]}: example k of group `id`
 * has n[k] tokens 4·id + k, all but the first of them trained. Include after cmocka.h. */
#ifndef AX_TESTS_DATA_GROUP_CASE_H
#define AX_TESTS_DATA_GROUP_CASE_H

#include "base/rng.h"
#include "data/records/format/impl.h"
#include "data/records/pipeline/prepared.h"
#include "tests/data/scratch.h"

#define N_GROUPS   150
#define GROUP_MAX  4
#define LENGTH_MAX 30

static inline size_t group_size(int64_t id) {
    static const size_t sizes[] = {1, 2, 4};
    return sizes[id % 3];
}

/* Of example k of a group. */
static inline int64_t group_length(int64_t id, size_t k) {
    return 2 + (int64_t)ax_rng_below((struct ax_rng_key){.seed = 9, .step = (uint32_t)id}, k,
                                     LENGTH_MAX - 1);
}

#define WIDTH 2 /* of the last column */

/* What word t of an example's column holds: of token t, or of t / WIDTH; 0 where it is the example's. */
static const struct ax_columns group_columns = {.list = {{"value", true, AX_OF_EXAMPLE, 0},
                                                         {"step", false, AX_OF_TOKEN, 0},
                                                         {"old", true, AX_OF_LABEL, WIDTH}},
                                                .n = 3};

static inline uint32_t column_word(int c, int32_t token, int64_t t) {
    const float f = (float)token + (float)t / 64;
    uint32_t word;
    memcpy(&word, &f, sizeof word);
    return c == 1 ? (uint32_t)(1000 * token + (int32_t)t) : word;
}

static inline void set_columns(struct ax_example_list *l, int32_t token) {
    uint32_t words[512];
    const struct ax_example *x = &l->items[l->n - 1];
    assert_true(WIDTH * x->n <= 512);
    for (int c = 0; c < 3; c++) {
        for (size_t t = 0; t < ax_column_words(&group_columns, c, x->n); t++)
            words[t] = column_word(c, token, (int64_t)t);
        ax_example_list_set(l, l->n - 1, c, words);
    }
}

static inline enum ax_status group_record(const struct ax_format *f, struct ax_format_work *w,
                                          json_t *record, struct ax_origin origin,
                                          struct ax_example_list *out) {
    (void)w;
    const int32_t id = (int32_t)json_integer_value(json_object_get(record, "id"));
    const json_t *lengths = json_object_get(record, "n");
    const size_t first = out->n;
    for (size_t k = 0; k < json_array_size(lengths); k++) {
        const int32_t token = GROUP_MAX * id + (int32_t)k;
        for (json_int_t t = 0; t < json_integer_value(json_array_get(lengths, k)); t++)
            AX_TRY(ax_example_list_add(out, &token, NULL, 1, t > 0));
        AX_TRY(ax_example_list_end(out, origin));
        if (ax_format_columns(f))
            set_columns(out, token);
    }
    ax_example_list_group(out, first);
    return AX_OK;
}

static const struct ax_format_type group_type = {.name = "groups", .record = group_record};
static const struct ax_format group_format = {.type = &group_type};
static const struct ax_format column_format = {.type = &group_type,
                                               .o = {.columns = &group_columns}};

/* A file with groups [first, end). */
static inline const char *put_groups(const char *name, int64_t first, int64_t end) {
    struct ax_buf b = {0};
    for (int64_t id = first; id < end; id++) {
        assert_ok(ax_buf_printf(&b, "{\"id\": %lld, \"n\": [", (long long)id));
        for (size_t k = 0; k < group_size(id); k++)
            assert_ok(ax_buf_printf(&b, "%s%lld", k ? ", " : "", (long long)group_length(id, k)));
        assert_ok(ax_buf_puts(&b, "]}\n"));
    }
    const char *path = put_bytes(name, b.data, b.len);
    ax_buf_free(&b);
    return path;
}

/* The examples of a file, from the cache if there is a folder for it. */
static inline void open_examples(struct ax_examples *out, const struct ax_format *format,
                                 const char *path, const char *cache) {
    struct ax_rows *rows;
    assert_ok(ax_rows_open(&rows, &(struct ax_rows_options){.path = path}));
    assert_ok(ax_prepared_open(out, &(struct ax_prepared_options){.rows = rows,
                                                                  .format = format,
                                                                  .threads = 2,
                                                                  .bos = AX_NO_TOKEN,
                                                                  .cache = cache,
                                                                  .tokenizer = "t"}));
    ax_rows_close(rows);
}

static inline void open_groups(struct ax_examples *out, const char *path, const char *cache) {
    open_examples(out, &group_format, path, cache);
}

/* Group and place in it of a token. */
static inline int64_t group_of(int32_t token) {
    return token / GROUP_MAX;
}
static inline size_t member_of(int32_t token) {
    return (size_t)(token % GROUP_MAX);
}

static inline int32_t ref_token(const struct ax_corpus *c, size_t i) {
    return ax_word_token(ax_examples_words(&c->sets[c->refs[i].set], c->refs[i].index), 0);
}

/* Every group of a corpus is whole and in its order; seen[id] is how often it is there. */
static inline void check_whole(const struct ax_corpus *c, int *seen) {
    memset(seen, 0, N_GROUPS * sizeof *seen);
    for (size_t i = 0; i < c->n;) {
        const int64_t id = group_of(ref_token(c, i));
        const size_t end = ax_corpus_group_end(c, i);
        assert_int_equal(end - i, group_size(id));
        for (size_t k = 0; i < end; i++, k++) {
            assert_int_equal(ref_token(c, i), GROUP_MAX * id + (int64_t)k);
            assert_int_equal(c->refs[i].joined, k > 0);
        }
        seen[id]++;
    }
}

/* A set of all groups with their columns, made and freed by the fixtures of a group of tests. */
static __attribute__((unused)) struct ax_examples column_set;

static inline int make_column_set(void **state) {
    if (scratch_make(state) != 0)
        return -1;
    open_examples(&column_set, &column_format, put_groups("groups.jsonl", 0, N_GROUPS), NULL);
    return 0;
}

static inline int free_column_set(void **state) {
    ax_examples_free(&column_set);
    return scratch_remove(state);
}

#endif
