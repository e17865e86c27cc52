/* `axtrain check self` passes, and fails where an op of the backend is broken in a way that its line is
 * about. The backend's table is that of the library with one op replaced. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <dlfcn.h>

#include "cmd/commands.h"
#include "kernels/queue.h"
#include "tests/cmd/command_case.h"
#include "tests/golden_files.h"
#include "tests/long.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

/* ---- ops with a mistake ---- */

static struct ax_ops wrong;
static const struct ax_ops *right, *shown;
static int calls;

static const struct ax_ops *of_library(void) {
    const struct ax_ops *(*next)(void);
    *(void **)&next = dlsym(RTLD_NEXT, "ax_ops_cpu");
    return next();
}

/* Stands before the library's, as this program is searched first. */
const struct ax_ops *ax_ops_cpu(void) {
    return shown ? shown : of_library();
}

static void break_ops(void (*damage)(struct ax_ops *ops)) {
    right = of_library();
    assert_non_null(right);
    wrong = *right;
    damage(&wrong);
    shown = &wrong;
}

static void repair_ops(void) {
    shown = NULL;
}

/* Multiplies element 0. */
static void spoil(const struct ax_tensor *t, double by) {
    ax_store(t->dtype, t->data, 0, ax_load(t->dtype, t->data, 0) * by);
}

static enum ax_status gemm_by_threads(struct ax_queue *q, const struct ax_gemm *a, void *work) {
    AX_TRY(right->gemm(q, a, work));
    if (q->threads > 1)
        spoil(&a->c, 1.01);
    return AX_OK;
}
static void depends_on_threads(struct ax_ops *ops) {
    ops->gemm = gemm_by_threads;
}

static enum ax_status attention_by_documents(struct ax_queue *q,
                                             const struct ax_attention_forward *a, void *work) {
    AX_TRY(right->attention_forward(q, a, work));
    if (a->a.q.shape[0] > 48)
        spoil(&a->a.out, 1.01);
    return AX_OK;
}
static void depends_on_rows(struct ax_ops *ops) {
    ops->attention_forward = attention_by_documents;
}

#define VOCAB 512 /* of the models of check self */

/* By less than bfloat16 shows: logits are compared in float32. */
static enum ax_status logits_by_rows(struct ax_queue *q, const struct ax_gemm *a, void *work) {
    AX_TRY(right->gemm(q, a, work));
    if (a->c.dtype == AX_F32 && a->c.shape[0] > 48 && a->c.shape[1] == VOCAB)
        spoil(&a->c, 1 + 0x1p-14);
    return AX_OK;
}
static void logits_depend_on_rows(struct ax_ops *ops) {
    ops->gemm = logits_by_rows;
}

static enum ax_status gemm_that_adds(struct ax_queue *q, const struct ax_gemm *a, void *work) {
    AX_TRY(right->gemm(q, a, work));
    if (a->accumulate)
        spoil(&a->c, 1.01);
    return AX_OK;
}
static void adds_wrongly(struct ax_ops *ops) {
    ops->gemm = gemm_that_adds;
}

static enum ax_status swiglu_by_call(struct ax_queue *q, const struct ax_swiglu_forward *a,
                                     void *work) {
    AX_TRY(right->swiglu_forward(q, a, work));
    spoil(&a->y, 1 + 0.01 * calls++);
    return AX_OK;
}
static void changes_with_time(struct ax_ops *ops) {
    ops->swiglu_forward = swiglu_by_call;
}

static enum ax_status adamw_by_call(struct ax_queue *q, const struct ax_adamw *a, void *work) {
    AX_TRY(right->adamw(q, a, work));
    spoil(&a->master, 1 + 1e-4 * calls++);
    return AX_OK;
}
static void forgets_when_it_stops(struct ax_ops *ops) {
    ops->adamw = adamw_by_call;
}

static enum ax_status norm_too_large(struct ax_queue *q, const struct ax_rmsnorm_forward *a,
                                     void *work) {
    AX_TRY(right->rmsnorm_forward(q, a, work));
    const int64_t cols = ax_tensor_row_len(&a->y);
    for (int64_t i = 0; i < ax_tensor_numel(&a->y); i++) {
        const int64_t at = i / cols * a->y.row_stride + i % cols;
        ax_store(a->y.dtype, a->y.data, at, ax_load(a->y.dtype, a->y.data, at) * 1.01);
    }
    return AX_OK;
}
static void is_wrong_throughout(struct ax_ops *ops) {
    ops->rmsnorm_forward = norm_too_large;
}

static enum ax_status merge_wrongly(struct ax_queue *q, const struct ax_softmax_merge *a,
                                    void *work) {
    AX_TRY(right->softmax_merge(q, a, work));
    for (int64_t i = 0; a->stats.shape[0] > 1 && i < a->logprob.shape[0]; i++)
        ax_store(a->logprob.dtype, a->logprob.data, i, -1);
    return AX_OK;
}
static void splits_wrongly(struct ax_ops *ops) {
    ops->softmax_merge = merge_wrongly;
}

/* ---- the command ---- */

static char output[1 << 16];

static enum ax_status check(int n, const char *const *options) {
    char *argv[16] = {(char *)(uintptr_t) "check", (char *)(uintptr_t) "self"};
    for (int i = 0; i < n; i++)
        argv[2 + i] = (char *)(uintptr_t)options[i];
    char out[64];
    snprintf(out, sizeof out, "/tmp/axtrain-self-out-%d", (int)getpid());
    calls = 0;
    const enum ax_status st =
        run_command(ax_cmd_check, 2 + n, argv, NULL, out, output, sizeof output);
    unlink(out);
    return st;
}

/* The verdict of the line that begins so and has this in it. */
static bool line_says(const char *name, const char *compared, const char *verdict) {
    for (const char *at = output; *at;) {
        const size_t n = strcspn(at, "\n");
        char line[512];
        snprintf(line, sizeof line, "%.*s", (int)n, at);
        if (strncmp(line, name, strlen(name)) == 0 && strstr(line, compared) &&
            strstr(line, verdict))
            return true;
        at += n + (at[n] == '\n');
    }
    return false;
}

static void everything_holds_here(void **state) {
    (void)state;
    if (check(0, NULL) != AX_OK)
        fail_msg("%s\n%s", output, ax_error_text());
    static const char *const names[] = {"threads", "packed",     "accumulation", "recompute",
                                        "resume",  "generation", "mesh",         "kernels"};
    for (int i = 0; i < COUNT(names); i++)
        assert_true(line_says(names[i], "", " ok "));
    assert_null(strstr(output, "FAIL"));
    assert_non_null(strstr(output, ", float32, "));
    assert_non_null(strstr(output, ", bfloat16, "));
    assert_true(strstr(output, "cuda was not checked: ") || strstr(output, "\ncuda, float32"));
    assert_null(strstr(output, " 0 checks passed"));
}

static void the_reference_holds_too(void **state) {
    (void)state;
    static const char *const options[] = {"--backend", "ref",     "--threads", "3",
                                          "--only",    "threads", "--only",    "accumulation",
                                          "--only",    "kernels"};
    assert_int_equal(check(COUNT(options), options), AX_OK);
    assert_true(line_says("threads", "3 threads", " ok "));
    assert_true(line_says("accumulation", "1e-12", " ok "));
    assert_true(line_says("kernels", "", "skipped: ref is the reference"));
    assert_null(strstr(output, "cuda"));
    assert_non_null(strstr(output, "\n2 checks passed, 0 failed, 1 skipped"));
}

struct expectation {
    const char *name, *compared;
};

/* An op's mistake, the lines that notice it, and those that do not. */
struct mistake {
    void (*damage)(struct ax_ops *ops);
    struct expectation fails[3], holds[2];
};

static void expect_failures(const struct mistake *m) {
    const char *options[16] = {"--backend", "cpu", "--dtype", "float32"};
    int n = 4;
    const struct expectation *const all[] = {m->fails, &m->fails[1], &m->fails[2], m->holds,
                                             &m->holds[1]};
    for (int k = 0; k < COUNT(all); k++)
        if (all[k]->name) {
            options[n++] = "--only";
            options[n++] = all[k]->name;
        }
    break_ops(m->damage);
    const enum ax_status st = check(n, options);
    repair_ops();
    assert_int_equal(st, AX_ERR_FAILED);
    assert_non_null(strstr(ax_error_text(), "`axtrain env`"));
    for (int k = 0; k < 3 && m->fails[k].name; k++)
        if (!line_says(m->fails[k].name, m->fails[k].compared, " FAIL "))
            fail_msg("%s does not fail\n%s", m->fails[k].name, output);
    for (int k = 0; k < 2 && m->holds[k].name; k++)
        if (!line_says(m->holds[k].name, m->holds[k].compared, " ok "))
            fail_msg("%s fails\n%s", m->holds[k].name, output);
}

static void every_line_can_fail(void **state) {
    (void)state;
    static const struct mistake cases[] = {
        {depends_on_threads, {{"threads", ""}}, {{0}}},
        {depends_on_rows,
         {{"packed", ""}, {"generation", "alone"}, {"generation", "pieces"}},
         {{"threads", ""}}},
        {adds_wrongly, {{"accumulation", ""}}, {{"threads", ""}}},
        {changes_with_time, {{"recompute", "selective"}, {"recompute", "on "}}, {{0}}},
        {forgets_when_it_stops, {{"resume", ""}}, {{"packed", ""}}},
        {splits_wrongly, {{"mesh", "tp=2"}}, {{"mesh", "dp_shard=2"}}},
    };
    for (int i = 0; i < COUNT(cases); i++)
        expect_failures(&cases[i]);
}

/* The line of ops takes long. */
static void ops_can_fail(void **state) {
    (void)state;
    static const struct mistake cases[] = {
        {depends_on_threads, {{"threads", ""}}, {{"kernels", "norm"}}},
        {adds_wrongly, {{"kernels", "gemm"}}, {{"threads", ""}}},
        {forgets_when_it_stops, {{"kernels", "update"}}, {{"packed", ""}}},
        {is_wrong_throughout, {{"kernels", "norm"}}, {{"resume", ""}, {"generation", "alone"}}},
        {splits_wrongly, {{"kernels", "head"}}, {{0}}},
    };
    for (int i = 0; i < COUNT(cases); i++)
        expect_failures(&cases[i]);
}

static void small_differences_of_bfloat16_are_seen(void **state) {
    (void)state;
    static const char *const options[] = {"--backend", "cpu",    "--dtype",
                                          "bfloat16",  "--only", "packed"};
    assert_int_equal(check(COUNT(options), options), AX_OK);
    break_ops(logits_depend_on_rows);
    const enum ax_status st = check(COUNT(options), options);
    repair_ops();
    assert_int_equal(st, AX_ERR_FAILED);
    assert_true(line_says("packed", "", " FAIL "));
}

/* Checks of a mesh are counted by how they end. */
static void checks_of_a_mesh_are_counted(void **state) {
    (void)state;
    char config[512], want[64], out[64];
    int ok = 0, failed = 0;
    snprintf(config, sizeof config, "%s", golden_path("models/llama/config.json"));
    snprintf(out, sizeof out, "/tmp/axtrain-mesh-out-%d", (int)getpid());
    char *argv[] = {"check", "mesh", config, "tp=2", "--backend", "cpu", "--tokens", "16"};
    break_ops(splits_wrongly);
    const enum ax_status st = run_command(ax_cmd_check, 8, argv, NULL, out, output, sizeof output);
    repair_ops();
    unlink(out);
    assert_int_equal(st, AX_ERR_FAILED);
    for (const char *at = output; (at = strstr(at, "\n  ")) != NULL; at += 3) {
        ok += strncmp(at + 3, "ok  ", 4) == 0;
        failed += strncmp(at + 3, "FAIL", 4) == 0;
    }
    assert_true(ok > 0 && failed > 0);
    snprintf(want, sizeof want, "\n%d checks passed, %d failed\n", ok, failed);
    if (!strstr(output, want))
        fail_msg("not %s: %s", want, output);
    snprintf(want, sizeof want, "check mesh: %d of %d checks failed", failed, ok + failed);
    assert_non_null(strstr(ax_error_text(), want));
}

/* A line that ends with an error has failed; the others are computed. */
static enum ax_status no_room(struct ax_queue *q, const struct ax_adamw *a, void *work) {
    (void)q;
    (void)a;
    (void)work;
    return ax_error(AX_ERR_NOMEM, "no room");
}
static void runs_out_of_memory(struct ax_ops *ops) {
    ops->adamw = no_room;
}

static void errors_are_failures(void **state) {
    (void)state;
    static const char *const options[] = {"--dtype", "float32", "--only",
                                          "threads", "--only",  "packed"};
    break_ops(runs_out_of_memory);
    const enum ax_status st = check(COUNT(options), options);
    repair_ops();
    assert_int_equal(st, AX_ERR_FAILED);
    assert_true(line_says("threads", "could not be computed", " FAIL "));
    assert_non_null(strstr(output, "no room"));
    assert_true(line_says("packed", "", " ok "));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        LONG_TEST(cmocka_unit_test(everything_holds_here)),
        LONG_TEST(cmocka_unit_test(the_reference_holds_too)),
        cmocka_unit_test(every_line_can_fail),
        LONG_TEST(cmocka_unit_test(ops_can_fail)),
        cmocka_unit_test(small_differences_of_bfloat16_are_seen),
        cmocka_unit_test(checks_of_a_mesh_are_counted),
        LONG_TEST(cmocka_unit_test(errors_are_failures)),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
