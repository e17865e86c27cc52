/* Algorithms of products, measured on rank 0 of two: when they take effect, that all ranks have the same,
 * what stays on disk, what a checkpoint brings, and files that cannot be used. The stand-in for cuBLASLt
 * has three, with other bits; AXTRAIN_EMULATED_FASTEST says which is the fastest. */
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/io.h"
#include "base/mem.h"
#include "base/hash/hash.h"
#include "parallel/choices.h"
#include "parallel/fabric/comm_local.h"
#include "parallel/runtime.h"
#include "tests/data/scratch.h"

#define ROWS  6
#define COLS  10
#define INNER 300
#define SIZE  (ROWS * COLS)

struct result {
    float first[SIZE], sum[SIZE], then[SIZE]; /* before and after ranks agree */
    struct ax_queue_counters cold, warm;
    struct ax_buf text;
};
static struct result results[2];
static const char *resumed; /* a checkpoint's, or NULL */

static struct ax_tensor make(struct ax_runtime *rt, const char *name, int64_t rows, int64_t cols) {
    const struct ax_tensor shape = ax_tensor_2d(AX_F32, NULL, rows, cols);
    void *data = ax_stack_push(&rt->arena.scratch, name, ax_tensor_bytes(&shape));
    return ax_tensor_2d(AX_F32, data, rows, cols);
}

static enum ax_status fill(struct ax_runtime *rt, const struct ax_tensor *t, uint64_t seed) {
    float x[ROWS * INNER + COLS * INNER];
    const int64_t n = ax_tensor_numel(t);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)ax_hash64(&i, sizeof i, seed) / 0x1p64f - 0.5f;
    return ax_queue_write(rt->q, t->data, x, (size_t)n * sizeof *x);
}

static enum ax_status multiply(struct ax_runtime *rt, const struct ax_gemm *g, float *out) {
    AX_TRY(ax_run_gemm(rt->q, g));
    return ax_queue_read(rt->q, g->c.data, out, SIZE * sizeof *out, NULL);
}

/* The product three times, then added to 1. */
static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct ax_gemm g = {.a = make(rt, "a", ROWS, INNER),
                        .b = make(rt, "b", COLS, INNER),
                        .c = make(rt, "c", ROWS, COLS),
                        .alpha = 1,
                        .trans_b = true};
    struct result *r = &results[rt->mesh.rank];
    (void)ctx;
    if (ax_runtime_planning(rt))
        return ax_run_gemm(rt->q, &g);
    AX_TRY(fill(rt, &g.a, 1));
    AX_TRY(fill(rt, &g.b, 2));
    if (resumed)
        AX_TRY(ax_choices_resume(rt, resumed));
    struct ax_gemm other = g;
    other.accumulate = true;
    other.b.shape[0] = other.c.shape[1] = COLS / 2; /* another kind */
    AX_TRY(ax_run_fill(rt->q, &(struct ax_fill){g.c, 1}));
    AX_TRY(multiply(rt, &other, r->sum));
    AX_TRY(multiply(rt, &g, r->first));
    AX_TRY(multiply(rt, &g, r->then)); /* not yet another one */
    if (memcmp(r->first, r->then, sizeof r->first) != 0)
        return ax_error(AX_ERR_FAILED, "the choice changes before ranks agree");
    r->cold = rt->q->counters;
    AX_TRY(ax_choices_agree(rt));
    AX_TRY(multiply(rt, &g, r->then));
    const uint64_t asked = rt->q->counters.asked;
    AX_TRY(multiply(rt, &g, r->then));
    r->warm = rt->q->counters;
    if (asked != r->warm.asked)
        return ax_error(AX_ERR_FAILED, "the library is asked in a warm step");
    return ax_queue_choices(rt->q, &r->text);
}

static enum ax_status be_rank(struct ax_fabric *f, void *ctx) {
    const struct ax_runtime_options o = {.backend = "cuda",
                                         .threads = 1,
                                         .may_stay_below = true,
                                         .sizes = {.dp_shard = 2},
                                         .fabric = f,
                                         .choices = ctx};
    return ax_runtime_run(&o, body, NULL, NULL);
}

/* Two ranks, of which both have the same bits. */
static void run(const char *dir, const char *fastest) {
    for (int i = 0; i < 2; i++) {
        ax_buf_free(&results[i].text);
        memset(&results[i], 0, sizeof results[i]);
    }
    setenv("AXTRAIN_EMULATED_FASTEST", fastest, 1);
    if (ax_local_run(2, &(struct ax_local_options){0}, be_rank, (void *)(uintptr_t)dir) != AX_OK)
        fail_msg("%s", ax_error_text());
    unsetenv("AXTRAIN_EMULATED_FASTEST");
    assert_memory_equal(results[0].first, results[1].first, sizeof results[0].first);
    assert_memory_equal(results[0].sum, results[1].sum, sizeof results[0].sum);
    assert_memory_equal(results[0].then, results[1].then, sizeof results[0].then);
    assert_string_equal(results[0].text.data, results[1].text.data);
    assert_int_equal(results[1].warm.measured, 0);
}

static bool same(const float *a, const float *b) {
    return memcmp(a, b, SIZE * sizeof *a) == 0;
}

static float favorite[SIZE], second[SIZE]; /* what the first two algorithms compute */
static float favorite_sum[SIZE];

static void nothing_is_measured_unasked(void **state) {
    (void)state;
    run(NULL, "1");
    assert_int_equal(results[0].cold.measured, 0);
    assert_int_equal(results[0].cold.asked, 2);
    assert_true(same(results[0].first, results[0].then));
    memcpy(favorite, results[0].first, sizeof favorite);
    memcpy(favorite_sum, results[0].sum, sizeof favorite_sum);
}

static void rank_0_measures_and_all_change_together(void **state) {
    (void)state;
    run(in_scratch("same"), "0");
    assert_int_equal(results[0].cold.measured, 2);
    assert_true(same(results[0].then, favorite));
    run(in_scratch("kept"), "1");
    assert_int_equal(results[0].cold.measured, 2);
    assert_true(same(results[0].first, favorite));
    assert_true(same(results[0].sum, favorite_sum)); /* added once */
    assert_false(same(results[0].then, favorite));
    memcpy(second, results[0].then, sizeof second);
}

/* The one file of the folder "kept". */
static void kept_file(char *path, size_t size) {
    glob_t found;
    assert_int_equal(glob(in_scratch("kept/products-*.txt"), 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    snprintf(path, size, "%s", found.gl_pathv[0]);
    globfree(&found);
}

static void the_next_run_has_it_from_disk(void **state) {
    (void)state;
    run(in_scratch("kept"), "2");
    assert_int_equal(results[0].warm.measured, 0);
    assert_true(same(results[0].first, second));
    assert_true(same(results[0].then, second));
}

/* Each is ignored: the run has its favorite's bits, and measures again. */
static void ignored(const char *path, const char *text, size_t n) {
    assert_int_equal(ax_write_file_atomic(path, text, n), AX_OK);
    run(in_scratch("kept"), "1");
    assert_true(same(results[0].first, favorite));
    assert_true(same(results[0].then, second));
}

static void files_that_cannot_be_used_are_ignored(void **state) {
    (void)state;
    char path[512], *text, *copy;
    size_t n;
    kept_file(path, sizeof path);
    assert_int_equal(ax_read_file(path, 1 << 20, &text, &n), AX_OK);
    assert_int_equal(ax_alloc(&copy, n + 1, 1), AX_OK);
    for (size_t cut = 0; cut < n; cut += 97)
        if (text[cut > 0 ? cut - 1 : 0] != '\n')
            ignored(path, text, cut);
    memcpy(copy, text, n);
    copy[0] ^= 1; /* of another GPU */
    ignored(path, copy, n);
    memcpy(copy, text, n);
    copy[n - 2] = 'x'; /* no digit */
    ignored(path, copy, n);
    memcpy(copy, text, n);
    copy[n / 2] = '\0';
    ignored(path, copy, n);
    /* The last line's algorithm, all of it ones: the library refuses it, so this kind has its
     * favorite. */
    memcpy(copy, text, n);
    memset(copy + n - 1 - 128, 'f', 128);
    assert_int_equal(ax_write_file_atomic(path, copy, n), AX_OK);
    run(in_scratch("kept"), "1");
    assert_true(same(results[0].first, favorite));
    ax_free(text);
    ax_free(copy);
}

static void a_checkpoints_are_used_unless_of_another_gpu(void **state) {
    (void)state;
    char *text;
    run(in_scratch("other"), "1");
    assert_int_equal(ax_strdup(&text, results[0].text.data), AX_OK);
    resumed = text;
    run(in_scratch("third"), "2");
    assert_true(same(results[0].first, second));
    assert_int_equal(results[0].warm.measured, 0);
    setenv("AXTRAIN_EMULATED_GPU", "another GPU", 1);
    run(in_scratch("third"), "2");
    unsetenv("AXTRAIN_EMULATED_GPU");
    assert_true(same(results[0].first, favorite));
    assert_int_equal(results[0].warm.measured, 2);
    assert_false(
        ax_path_exists(in_scratch("third"))); /* a run that resumed leaves the file alone */
    resumed = NULL;
    ax_free(text);
}

static int end(void **state) {
    for (int i = 0; i < 2; i++)
        ax_buf_free(&results[i].text);
    return scratch_remove(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_measured_unasked),
        cmocka_unit_test(rank_0_measures_and_all_change_together),
        cmocka_unit_test(the_next_run_has_it_from_disk),
        cmocka_unit_test(files_that_cannot_be_used_are_ignored),
        cmocka_unit_test(a_checkpoints_are_used_unless_of_another_gpu),
    };
    return cmocka_run_group_tests_name("cuda choices", tests, scratch_make, end);
}
