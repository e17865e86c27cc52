/* tests/bench/bench: every kind on a tiny model gives its figures, and leaves nothing. Nothing here depends on
 * speed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "cmd/bench/result.h"
#include "tests/cmd/program_case.h"
#include "tests/data/scratch.h"

/* Runs it with -o and reads what it wrote. */
static void bench(struct ax_bench_list *out, const char *fmt, ...) {
    char words[2000], file[256], said[8192];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(words, sizeof words, fmt, ap);
    va_end(ap);
    snprintf(file, sizeof file, "%s", in_scratch("now.json"));
    if (run_beside(said, sizeof said, "tests/bench/bench", "%s -o '%s'", words, file) != 0)
        fail_msg("%s", said);
    assert_int_equal(ax_bench_list_load(out, file), AX_OK);
}

static void expect_figures(struct ax_bench_list *l, size_t n, const char *const *names) {
    assert_int_equal(l->n, n);
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(l->list[i].name, names[i]);
        assert_true(l->list[i].figure.value > 0 || strstr(names[i], "holds-up"));
    }
    ax_bench_list_free(l);
}

/* What a kind wrote for a while is gone. */
static void expect_empty(const char *dir) {
    assert_int_equal(rmdir(dir), 0);
}

static void test_pipeline(void **state) {
    (void)state;
    struct ax_bench_list l;
    char work[256];
    static const char *const names[] = {"pipeline/llama-tiny/problems/tokenize",
                                        "pipeline/llama-tiny/problems/pack",
                                        "pipeline/llama-tiny/problems/prepare",
                                        "pipeline/llama-tiny/float32/load",
                                        "pipeline/llama-tiny/float32/save",
                                        "pipeline/llama-tiny/float32/save-holds-up-training"};
    make_folder("work");
    snprintf(work, sizeof work, "%s", in_scratch("work"));
    bench(&l, "pipeline --arch llama-tiny --dtype float32 --work '%s'", work);
    expect_figures(&l, 6, names);
    expect_empty(work);
}

static void test_pipeline_of_own_files(void **state) {
    (void)state;
    struct ax_bench_list l;
    static const char *const names[] = {
        "pipeline/llama/mine.jsonl/tokenize", "pipeline/llama/mine.jsonl/pack",
        "pipeline/llama/mine.jsonl/prepare", "pipeline/llama/float32/load"};
    const char *model = golden_path("models/llama");
    struct stat weights;
    char file[600];
    const char *rows = put_text("mine.jsonl", "{\"question\": \"a b c?\", \"answer\": \"d e f\"}\n"
                                              "{\"question\": \"g h?\", \"answer\": \"i j k\"}\n");
    const double start = ax_clock_now();
    bench(&l, "pipeline --model '%s' --data '%s' --dtype float32 --no-save", model, rows);
    const double seconds = ax_clock_now() - start;
    /* nothing took longer than all of it: 20 bytes of text, and the weights' files but headers */
    snprintf(file, sizeof file, "%s/model.safetensors", model);
    assert_int_equal(stat(file, &weights), 0);
    assert_true(1e6 * l.list[0].figure.value * seconds > 20);
    assert_true(1e6 * l.list[2].figure.value * seconds > 20);
    assert_true(1e9 * l.list[3].figure.value * seconds > 0.9 * (double)weights.st_size);
    expect_figures(&l, 4, names);
}

static void test_startup(void **state) {
    (void)state;
    struct ax_bench_list l;
    char work[256];
    static const char *const names[] = {"startup/help",
                                        "startup/llama-tiny/config",
                                        "startup/llama-tiny/tokenizer",
                                        "startup/llama-tiny/data-and-tokenizer",
                                        "startup/llama-tiny/sft-open",
                                        "startup/llama-tiny/sft-plan",
                                        "startup/llama-tiny/sft-load",
                                        "startup/llama-tiny/sft-to-first-forward"};
    make_folder("starts");
    snprintf(work, sizeof work, "%s", in_scratch("starts"));
    bench(&l, "startup --arch llama-tiny --rounds 1 --work '%s'", work);
    expect_figures(&l, 8, names);
    expect_empty(work);
}

static void test_mistakes(void **state) {
    (void)state;
    static const struct {
        int code;
        const char *words, *part;
    } cases[] = {
        {2, "pipeline --arch llama", "--arch: no shape is called \"llama\""},
        {1, "pipeline --arch llama-tiny --work none/of/these", "cannot create a folder"},
        {2, "pipeline --arch llama-tiny --data nowhere.jsonl", "nowhere.jsonl: No such file"},
        {2, "pipeline --model tests/goldens/models/llama/config.json",
         "expected a folder with weights"},
        {2, "startup --arch llama-tiny --model .", "give either --model DIR or --arch NAME"},
        {2, "startup --arch llama-tiny --threads 2", "unknown option --threads"},
        {2, "", "expected bench pipeline or bench startup"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char said[4096];
        const int code = run_beside(said, sizeof said, "tests/bench/bench", "%s", cases[i].words);
        if (code != cases[i].code || !strstr(said, cases[i].part))
            fail_msg("%s: %d, %s", cases[i].words, code, said);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pipeline),
        cmocka_unit_test(test_pipeline_of_own_files),
        cmocka_unit_test(test_startup),
        cmocka_unit_test(test_mistakes),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
