/* Which files hold which rows: patterns, also on the disk, cards, names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fnmatch.h>

#include "base/rng.h"
#include "data/records/rows/find.h"
#include "data/records/rows/pattern.h"
#include "tests/data/scratch.h"

static void patterns(void **state) {
    (void)state;
    static const struct {
        const char *pattern, *path;
        bool fits;
    } cases[] = {
        {"a.json", "a.json", true},
        {"a.json", "b.json", false},
        {"*.json", "a.json", true},
        {"*.json", "x/a.json", false},
        {"data/train-*", "data/train-00000-of-00001.parquet", true},
        {"data/train-*", "data/test-00000-of-00001.parquet", false},
        {"data/*/x.json", "data/en/x.json", true},
        {"data/*/x.json", "data/en/us/x.json", false},
        {"**", "a/b/c", true},
        {"**/*.json", "a.json", true},
        {"**/*.json", "x/y/a.json", true},
        {"**/b", "a/xb", false},
        {"a/**/b", "a/b", true},
        {"a/**/b", "a/x/y/b", true},
        {"a/**/b", "a/x/y/bc", false},
        {"a/**/*-?.csv", "a/b/c-1.csv", true},
        {"?.json", "/.json", false},
        {"[a-c]1", "b1", true},
        {"[!a-c]1", "b1", false},
        {"[^a-c]1", "d1", true},
        {"[]]1", "]1", true},
        {"[a", "[a", true},
        {"[!a]", "/", false},
        {"*a*b*c", "xxaxxbxxc", true},
        {"*a*b*c", "xxaxxbxx", false},
        {"", "", true},
        {"", "a", false},
        {"*", "", true},
        {"a*", "a", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (ax_path_match(cases[i].pattern, cases[i].path) != cases[i].fits)
            fail_msg("%s and %s", cases[i].pattern, cases[i].path);
    char pattern[601], path[1000]; /* hostile, and still quick */
    for (size_t i = 0; i < sizeof pattern - 1; i++)
        pattern[i] = "*a"[i % 2];
    pattern[sizeof pattern - 1] = '\0';
    memset(path, 'a', sizeof path);
    path[sizeof path - 2] = 'b';
    path[sizeof path - 1] = '\0';
    assert_false(ax_path_match(pattern, path));
}

static void draw_text(char *out, size_t most, const char *of, struct ax_rng_key key) {
    const size_t n = (size_t)ax_rng_below(key, 0, most);
    for (size_t i = 0; i < n; i++)
        out[i] = of[ax_rng_below(key, i + 1, strlen(of))];
    out[n] = '\0';
}

/* In one folder they are the system's. */
static void patterns_are_the_systems(void **state) {
    (void)state;
    int fit = 0;
    for (uint32_t i = 0; i < 40000; i++) {
        char pattern[12], path[8];
        draw_text(pattern, sizeof pattern - 1, "ab[-c]!^*?[b]", (struct ax_rng_key){.seed = i});
        draw_text(path, sizeof path - 1, "abc-![]^", (struct ax_rng_key){.seed = i, .tensor = 1});
        const bool fits = fnmatch(pattern, path, FNM_NOESCAPE) == 0;
        if (ax_path_match(pattern, path) != fits)
            fail_msg("%s and %s: not %d", pattern, path, fits);
        fit += fits;
    }
    assert_true(fit > 1000);
}

/* "PATH:SPLIT …" of what is chosen, or the error. */
static void chooses(const char *card_text, const char *name, const char *const *names,
                    const char *want) {
    const uint64_t live = ax_mem_live_blocks();
    struct ax_card card;
    struct ax_found f = {0};
    struct ax_buf got = {0};
    const struct ax_rows_options o = {.path = "o/n", .name = name};
    size_t n = 0;
    while (names[n])
        n++;
    if (ax_card_parse(&card, "README.md", card_text, strlen(card_text)) != AX_OK)
        fail_msg("%s", ax_error_text());
    if (ax_rows_choose(&f, &o, names, n, &card, true) == AX_OK)
        for (size_t i = 0; i < f.n; i++)
            (void)ax_buf_printf(&got, "%s%s:%s", i ? " " : "", f.files[i].path, f.files[i].split);
    else
        (void)ax_buf_puts(&got, ax_error_text());
    assert_string_equal(got.data ? got.data : "", want);
    ax_buf_free(&got);
    ax_found_free(&f);
    ax_card_free(&card);
    assert_int_equal(ax_mem_live_blocks(), live);
}

/* A folder in the place of a pattern is all that is in it, and nothing whose name begins like it or is as long. */
static void folders_of_cards(void **state) {
    (void)state;
    static const char *const names[] = {"README.md",   "en/a.json",    "en/x/b.json", "fr/c.json",
                                        "e/d.json",    "en.json",      "eng/e.json",  "x/en/f.json",
                                        "x/fr/g.json", "xy/en/h.json", NULL};
    chooses("---\nconfigs:\n- config_name: a\n  data_files: en\n---\n", NULL, names,
            "en/a.json:train en/x/b.json:train");
    chooses("---\nconfigs:\n- config_name: a\n  data_files: en/a.json\n---\n", NULL, names,
            "en/a.json:train");
    chooses("---\nconfigs:\n- config_name: a\n  data_dir: x\n  data_files: en\n---\n", NULL, names,
            "x/en/f.json:train");
    chooses("---\nconfigs:\n- config_name: a\n  data_dir: x\n  data_files: '*/*.json'\n---\n", NULL,
            names, "x/en/f.json:train x/fr/g.json:train");
}

static void cards(void **state) {
    (void)state;
    static const char *const names[] = {"README.md",
                                        "main/test-00000-of-00001.parquet",
                                        "main/train-00000-of-00001.parquet",
                                        "socratic/test-00000-of-00001.parquet",
                                        "socratic/train-00000-of-00001.parquet",
                                        "x.py",
                                        NULL};
    static const char two[] = "---\nlicense: mit\nconfigs:\n- config_name: main\n  data_files:\n"
                              "  - split: train\n    path: main/train-*\n  - split: test\n"
                              "    path: main/test-*\n- config_name: socratic\n  data_files:\n"
                              "    train: [socratic/train-*]\n---\n# Title\n---\n";
    chooses(two, "main", names,
            "main/train-00000-of-00001.parquet:train main/test-00000-of-00001.parquet:test");
    chooses(two, "socratic", names, "socratic/train-00000-of-00001.parquet:train");
    chooses(two, NULL, names,
            "o/n: the data set has several configurations; set name: to one of main, socratic");
    chooses(two, "mian", names,
            "o/n: configuration \"mian\" is not available; set name: to one of main, socratic");
    chooses("---\nconfigs:\n- config_name: a\n  data_files: main/test-*\n- config_name: b\n"
            "  default: true\n  data_files:\n  - main/*\n---\n",
            NULL, names,
            "main/test-00000-of-00001.parquet:train main/train-00000-of-00001.parquet:train");
    chooses(
        "---\r\nconfigs:\r\n- config_name: default\r\n  data_dir: socratic\r\n---\r\n", NULL, names,
        "socratic/test-00000-of-00001.parquet:test socratic/train-00000-of-00001.parquet:train");
    chooses("---\nconfigs:\n- config_name: all\n  data_dir: main\n  data_files: ./train-*\n---\n",
            "all", names, "main/train-00000-of-00001.parquet:train");
    chooses("---\nconfigs: nonsense\n---\n", "main", names,
            "main/test-00000-of-00001.parquet:test main/train-00000-of-00001.parquet:train");
    chooses("---\nno end", "main", names,
            "main/test-00000-of-00001.parquet:test main/train-00000-of-00001.parquet:train");
    chooses("", "none", names, "o/n: name: no folder none with data files");
    struct ax_card card;
    static const char bad[] = "---\na: [\n---\n";
    assert_int_equal(ax_card_parse(&card, "README.md", bad, strlen(bad)), AX_ERR_CONFIG);
    static const char nul[] = "---\na: \0\n---\n";
    assert_int_equal(ax_card_parse(&card, "README.md", nul, sizeof nul - 1), AX_ERR_CONFIG);
}

static void names(void **state) {
    (void)state;
    static const char *const sharded[] = {".gitattributes",
                                          "README.md",
                                          "data/test_sft-00000-of-00001-3f.parquet",
                                          "data/train_gen-00000-of-00001.parquet",
                                          "data/train_sft-00000-of-00002.parquet",
                                          "data/train_sft-00001-of-00002.parquet",
                                          "dataset_infos.json",
                                          NULL};
    chooses("", NULL, sharded,
            "data/test_sft-00000-of-00001-3f.parquet:test_sft "
            "data/train_gen-00000-of-00001.parquet:train_gen "
            "data/train_sft-00000-of-00002.parquet:train_sft "
            "data/train_sft-00001-of-00002.parquet:train_sft");
    static const char *const both[] = {"train.csv", "train.jsonl", "valid.jsonl", NULL};
    chooses("", NULL, both, "train.jsonl:train valid.jsonl:validation");
    /* as many of each: Parquet, or the kind that is named first above */
    static const char *const converted[] = {"train.jsonl", "train.parquet", NULL};
    chooses("", NULL, converted, "train.parquet:train");
    static const char *const even[] = {"train.csv", "train.jsonl", NULL};
    chooses("", NULL, even, "train.jsonl:train");
    static const char *const folders[] = {"a/test/train.jsonl", "a/train/test.jsonl", NULL};
    chooses("", NULL, folders, "a/test/train.jsonl:test a/train/test.jsonl:train");
    static const char *const none[] = {"Test.jsonl", "test+x.jsonl", "train_2.jsonl", NULL};
    chooses("", NULL, none, "Test.jsonl: test+x.jsonl: train_2.jsonl:train");
    static const char *const plain[] = {"a.jsonl", "b/c.jsonl.gz", "notes.md", NULL};
    chooses("", NULL, plain, "a.jsonl: b/c.jsonl.gz:");
}

/* A name of 63 bytes has room; a longer one is as good as none. */
static void long_split_names(void **state) {
    (void)state;
    for (int n = 62; n <= 66; n++) {
        char split[AX_SPLIT_NAME_MAX + 8];
        char path[128];
        char name[72];
        memset(name, 'q', (size_t)n);
        name[n] = '\0';
        memset(split, '#', sizeof split);
        snprintf(path, sizeof path, "data/%s-00000-of-00001.parquet", name);
        ax_rows_split_of(path, split);
        assert_string_equal(split, n < AX_SPLIT_NAME_MAX ? name : "");
        assert_int_equal(split[AX_SPLIT_NAME_MAX], '#');
    }
}

static void splits_that_are_not_there_are_told(void **state) {
    (void)state;
    struct ax_found f = {0};
    bool in[3];
    assert_int_equal(ax_found_add(&f, "a", AX_ROWS_JSON, ""), AX_OK);
    assert_int_equal(ax_found_in_split(&f, "o/n", "train", true, in), AX_OK);
    assert_true(in[0]);
    assert_int_equal(ax_found_add(&f, "b", AX_ROWS_JSON, "train_sft"), AX_OK);
    assert_int_equal(ax_found_add(&f, "c", AX_ROWS_JSON, "test_sft"), AX_OK);
    assert_error(ax_found_in_split(&f, "o/n", "train", true, in), AX_ERR_DATA,
                 "o/n: split \"train\" is not available; expected one of train_sft, test_sft");
    assert_int_equal(ax_found_in_split(&f, "o/n", "test_sft", true, in), AX_OK);
    assert_true(!in[0] && !in[1] && in[2]);
    ax_found_free(&f);
}

/* The files on the disk of a path, or of data_files in the folder "deep", by their names. */
static void finds(const char *path, const char *data_files, const char *want) {
    struct ax_found f;
    const struct ax_rows_options o = {
        .path = in_scratch(path), .data_files = &data_files, .n_data_files = data_files ? 1 : 0};
    char got[256] = "";
    assert_int_equal(ax_rows_find(&f, &o), AX_OK);
    for (size_t i = 0; i < f.n; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s ",
                 strstr(f.files[i].path, "deep/") + 5);
    assert_string_equal(got, want);
    ax_found_free(&f);
}

static void patterns_on_the_disk(void **state) {
    (void)state;
    make_folder("deep/x/y");
    put_text("deep/a.json", "{}");
    put_text("deep/x/b.json", "{}");
    put_text("deep/x/y/c.json", "{}");
    put_text("deep/x/y/d.txt", "");
    finds("deep", "**/*.json", "a.json x/b.json x/y/c.json ");
    finds("deep", "x/**", "x/b.json x/y/c.json x/y/d.txt ");
    finds("deep", "*/*.json", "x/b.json ");
    finds("deep/**/*.json", NULL, "a.json x/b.json x/y/c.json ");
    finds("de*/**/y/*", NULL, "x/y/c.json x/y/d.txt ");
    const char *none = "none/**";
    struct ax_found f;
    assert_error(ax_rows_find(&f, &(struct ax_rows_options){.path = in_scratch("deep"),
                                                            .data_files = &none,
                                                            .n_data_files = 1}),
                 AX_ERR_DATA, "data_files: no such file: ");
    const char *some[] = {"a.json", "none.json"}; /* the first one was found */
    assert_error(ax_rows_find(&f, &(struct ax_rows_options){.path = in_scratch("deep"),
                                                            .data_files = some,
                                                            .n_data_files = 2}),
                 AX_ERR_DATA, "none.json");
}

/* Of files that a pattern names, the split is in the file's name, whatever the folder's is. */
static void splits_of_patterns(void **state) {
    (void)state;
    static const char *const patterns[] = {"test/*.jsonl", "test/**/*.jsonl", "te?t/t*"};
    make_folder("test");
    put_text("test/train.jsonl", "{}");
    put_text("test/tests.jsonl", "{}");
    put_text("test/test-00000-of-00001.jsonl", "{}");
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        struct ax_found f;
        const struct ax_rows_options o = {.path = in_scratch(patterns[i])};
        assert_int_equal(ax_rows_find(&f, &o), AX_OK);
        assert_int_equal(f.n, 3);
        for (size_t k = 0; k < f.n; k++) {
            char want[AX_SPLIT_NAME_MAX];
            ax_rows_split_of(strrchr(f.files[k].path, '/') + 1, want);
            assert_string_equal(f.files[k].split, want);
            if (strstr(f.files[k].path, "train.jsonl"))
                assert_string_equal(want, "train");
        }
        ax_found_free(&f);
    }
}

/* A run that writes below its data reads the same files when it resumes. */
static void runs_are_no_data(void **state) {
    (void)state;
    make_folder("deep/out/checkpoint-2");
    put_text("deep/out/run.json", "{}");
    put_text("deep/out/metrics.jsonl", "{}");
    put_text("deep/out/checkpoint-2/trainer.json", "{}");
    finds("deep", "**/*.json", "a.json x/b.json x/y/c.json ");
    finds("deep", NULL, "a.json x/b.json x/y/c.json x/y/d.txt ");
    finds("deep/out", NULL, "out/checkpoint-2/trainer.json out/metrics.jsonl out/run.json ");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns),           cmocka_unit_test(patterns_are_the_systems),
        cmocka_unit_test(splits_of_patterns), cmocka_unit_test(patterns_on_the_disk),
        cmocka_unit_test(runs_are_no_data),   cmocka_unit_test(cards),
        cmocka_unit_test(folders_of_cards),   cmocka_unit_test(names),
        cmocka_unit_test(long_split_names),   cmocka_unit_test(splits_that_are_not_there_are_told),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
