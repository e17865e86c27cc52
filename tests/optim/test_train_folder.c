/* What a run puts into its output folder: which steps are saved, what a checkpoint says of the run,
 * and how much room it asks for before it begins. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdlib.h>
#include <sys/statvfs.h>

#include "ckpt/state/checkpoint.h"
#include "tests/optim/train_runs.h"
#include "tests/run_readout.h"

/* In place of the C library's: what is free on the disk. */
static uint64_t disk_free;

int statvfs(const char *restrict path, struct statvfs *restrict info) {
    (void)path;
    *info = (struct statvfs){.f_frsize = 1, .f_bavail = disk_free};
    return 0;
}

/* ---- which steps are saved ---- */

static const struct saves {
    struct ax_cadence save, eval;
    bool first_step, greater_is_better;
    int64_t patience;
    const char *steps; /* the checkpoints of a run of 20 steps in 2.5 epochs of 8 */
} saves[] = {
    {.save = {AX_EACH_STEPS, 6}, .steps = "6 12 18 20"},
    {.save = {AX_EACH_STEPS, 5}, .steps = "5 10 15 20"},
    {.save = {AX_EACH_STEPS, 0.3}, .steps = "6 12 18 20"},
    {.save = {AX_EACH_STEPS, 12}, .first_step = true, .steps = "1 12 20"},
    {.save = {.when = AX_EACH_EPOCH}, .steps = "8 16 20"},
    {.save = {.when = AX_NEVER}, .steps = ""},
    {.save = {.when = AX_NEVER}, .first_step = true, .steps = "1"},
    /* the loss falls: each evaluation is the best, or only the first */
    {.save = {.when = AX_WHEN_BEST}, .eval = {AX_EACH_STEPS, 8}, .steps = "8 16 20"},
    {.save = {.when = AX_WHEN_BEST},
     .eval = {AX_EACH_STEPS, 8},
     .greater_is_better = true,
     .steps = "8"},
    {.save = {AX_EACH_STEPS, 7},
     .eval = {AX_EACH_STEPS, 4},
     .greater_is_better = true,
     .patience = 2,
     .steps = "7 12"},
};

static void list_checkpoints(const struct train_case *c, char *out, size_t size) {
    struct ax_checkpoint_list l;
    size_t at = 0;
    *out = '\0';
    assert_int_equal(ax_checkpoint_list(&l, c->out), AX_OK);
    for (size_t i = 0; i < l.n; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%lld", i ? " " : "", (long long)l.steps[i]);
    ax_checkpoint_list_free(&l);
}

static void test_saved_steps(void **state) {
    (void)state;
    disk_free = UINT64_MAX;
    for (size_t i = 0; i < sizeof saves / sizeof *saves; i++) {
        struct train_case c;
        struct ax_train_result r;
        char got[96];
        open_case(&c, AX_F32, true);
        c.o.epochs = 2.5;
        c.o.save.when = saves[i].save;
        c.o.save.first_step = saves[i].first_step;
        c.o.eval.when = saves[i].eval;
        c.o.eval.greater_is_better = saves[i].greater_is_better;
        c.o.eval.patience = saves[i].patience;
        run_ok(&c, &r);
        list_checkpoints(&c, got, sizeof got);
        if (strcmp(got, saves[i].steps) != 0)
            fail_msg("case %zu: saved after steps %s, not %s", i, got, saves[i].steps);
        train_case_close(&c);
    }
}

/* ---- what a checkpoint says of the run ---- */

static double sum_of(const char *text, const char *key) {
    char quoted[64];
    double sum = 0;
    snprintf(quoted, sizeof quoted, "\"%s\": ", key);
    for (const char *at = text; (at = strstr(at, quoted)) != NULL;)
        sum += strtod(at += strlen(quoted), NULL);
    return sum;
}

static void test_tokens_and_waits_are_counted(void **state) {
    (void)state;
    struct train_case c;
    struct ax_train_result r;
    char path[192], *metrics;
    size_t n;
    disk_free = UINT64_MAX;
    open_case(&c, AX_F32, true);
    c.o.max_steps = 5;
    c.o.save.when = (struct ax_cadence){AX_EACH_STEPS, 5};
    run_ok(&c, &r);
    snprintf(path, sizeof path, "%s/metrics.jsonl", c.out);
    assert_int_equal(ax_read_file(path, 1 << 20, &metrics, &n), AX_OK);
    snprintf(path, sizeof path, "%s/checkpoint-5/state/manifest.json", c.out);
    json_t *manifest = json_load_file(path, 0, NULL);
    const json_t *run = json_object_get(manifest, "run");
    const double tokens = sum_of(metrics, "tokens"), trained = sum_of(metrics, "trained_tokens");
    assert_true(tokens > trained && trained > 0);
    assert_true(sum_of(metrics, "waits") == 5); /* once a step */
    assert_true(json_number_value(json_object_get(run, "tokens")) == tokens);
    assert_true(json_number_value(json_object_get(run, "trained_tokens")) == trained);
    json_decref(manifest);
    ax_free(metrics);
    train_case_close(&c);
}

static void expect_dtype(const struct ax_train_save *save, enum ax_dtype want) {
    enum ax_dtype dtype = AX_BF16; /* of a run that resumes from nothing */
    if (ax_train_resumed_dtype(save, &dtype) != AX_OK)
        fail_msg("%s", ax_error_text());
    assert_string_equal(ax_error_text(), "");
    assert_int_equal(dtype, want);
}

/* Of the checkpoint that it would resume from, whichever way it is chosen. */
static void test_the_dtype_is_found_again(void **state) {
    (void)state;
    struct train_case c;
    struct ax_train_result r;
    char first[192], damaged[192];
    disk_free = UINT64_MAX;
    open_case(&c, AX_F32, true);
    struct ax_train_save *save = &c.o.save;
    save->resume = AX_RESUME_NEWEST;
    expect_dtype(save, AX_BF16);
    c.o.max_steps = 2;
    save->when = (struct ax_cadence){AX_EACH_STEPS, 1};
    run_ok(&c, &r);
    snprintf(first, sizeof first, "%s/checkpoint-1", c.out);
    for (enum ax_resume how = AX_RESUME_NO; how <= AX_RESUME_FOLDER; how++) {
        save->resume = how;
        save->resume_dir = how == AX_RESUME_FOLDER ? first : NULL;
        expect_dtype(save, how == AX_RESUME_NO ? AX_BF16 : AX_F32);
    }
    save->resume_dir = "nowhere"; /* the run itself says so */
    expect_dtype(save, AX_BF16);
    snprintf(damaged, sizeof damaged, "%s/checkpoint-2/state/manifest.json", c.out);
    assert_int_equal(ax_write_file_atomic(damaged, "{", 1), AX_OK);
    save->resume_dir = NULL;
    save->resume = AX_RESUME_NEWEST;
    expect_dtype(save, AX_BF16);
    save->resume = AX_RESUME_NEWEST_GOOD;
    expect_dtype(save, AX_F32);
    train_case_close(&c);
}

/* Scalars of a step in TensorBoard's files, with the names that Hugging Face's trainer uses. */
static void test_tensorboard(void **state) {
    (void)state;
    static const char *const tags[] = {
        "eval/loss",    "eval/mean_token_accuracy", "eval/perplexity",
        "eval/runtime", "eval/samples_per_second",  "train/epoch",
        "train/epoch",  "train/grad_norm",          "train/learning_rate",
        "train/loss",   "train/memory_gib",         "train/tokens_per_second"};
    struct train_case c;
    struct ax_train_result r;
    struct run_readout out;
    size_t n = 0;
    disk_free = UINT64_MAX;
    open_case(&c, AX_F32, true);
    c.o.max_steps = 4;
    c.o.metrics.tensorboard = true;
    c.o.metrics.logging_steps = 2;
    c.o.eval.when = (struct ax_cadence){AX_EACH_STEPS, 2};
    run_ok(&c, &r);
    assert_int_equal(run_readout_open(&out, c.out), AX_OK);
    for (size_t i = 0; i < out.n; i++) {
        const char *line = out.lines[i], *step = "tensorboard: 000002 ";
        if (strncmp(line, step, strlen(step)) != 0)
            continue;
        assert_true(n < sizeof tags / sizeof *tags);
        assert_memory_equal(line + strlen(step), tags[n], strlen(tags[n]));
        n++;
    }
    assert_int_equal(n, sizeof tags / sizeof *tags);
    run_readout_close(&out);
    train_case_close(&c);
}

/* ---- room ---- */

static const struct room {
    struct ax_cadence save;
    double epochs;
    int64_t limit, there; /* checkpoints of earlier steps */
    int asked;            /* checkpoints there must be room for */
} rooms[] = {
    {.save = {AX_EACH_STEPS, 6}, .epochs = 2.5, .asked = 4},
    {.save = {AX_EACH_STEPS, 5}, .epochs = 2.5, .asked = 4},
    {.save = {.when = AX_EACH_EPOCH}, .epochs = 2.5, .asked = 3},
    {.save = {.when = AX_EACH_EPOCH}, .epochs = 2, .asked = 2},
    {.save = {.when = AX_NEVER}, .epochs = 2.5, .asked = 0},
    {.save = {AX_EACH_STEPS, 5}, .epochs = 2.5, .limit = 2, .asked = 3}, /* one more for a while */
    {.save = {AX_EACH_STEPS, 5}, .epochs = 2.5, .limit = 4, .asked = 4},
    {.save = {AX_EACH_STEPS, 5}, .epochs = 2.5, .there = 1, .asked = 3},
    {.save = {AX_EACH_STEPS, 5}, .epochs = 2.5, .limit = 1, .there = 2, .asked = 0},
};

static void open_room(struct train_case *c, const struct room *room) {
    struct ax_train_result r;
    open_case(c, AX_F32, true);
    c->o.epochs = room->epochs;
    c->o.save.resume = AX_RESUME_NEWEST;
    if (room->there > 0) {
        disk_free = UINT64_MAX;
        c->o.max_steps = room->there;
        c->o.save.when = (struct ax_cadence){AX_EACH_STEPS, 1};
        run_ok(c, &r);
        c->o.max_steps = 0;
    }
    c->o.save.when = room->save;
    c->o.save.limit = room->limit;
}

static void test_room_on_the_disk(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) {
        struct train_case c;
        struct ax_train_result r;
        char expected[64];
        open_room(&c, &rooms[i]);
        disk_free = 4096;
        assert_int_equal(train_case_run(&c, &r), AX_ERR_STORAGE);
        snprintf(expected, sizeof expected, "has 4.00 KiB free, but %d more checkpoints of ",
                 rooms[i].asked);
        expect_error(expected);
        if (rooms[i].there == 0) { /* a refused run writes nothing */
            assert_false(ax_path_exists(c.out));
            assert_int_equal(ax_mkdir(c.out), AX_OK);
            assert_int_equal(train_case_run(&c, &r), AX_ERR_STORAGE);
            assert_false(has(&c, "run.json") || has(&c, "metrics.jsonl"));
        }
        train_case_close(&c);
    }
}

/* The sizes that are asked for are those of the files, but for their headers. */
static void test_room_is_enough(void **state) {
    (void)state;
    struct train_case c;
    struct ax_train_result r;
    struct ax_mapping model, rank;
    char path[192];
    disk_free = UINT64_MAX;
    open_case(&c, AX_F32, true);
    c.o.max_steps = 2;
    c.o.save.when = (struct ax_cadence){AX_EACH_STEPS, 2};
    run_ok(&c, &r);
    snprintf(path, sizeof path, "%s/checkpoint-2/model.safetensors", c.out);
    assert_int_equal(ax_map_file(&model, path), AX_OK);
    snprintf(path, sizeof path, "%s/checkpoint-2/state/rank-00000.safetensors", c.out);
    assert_int_equal(ax_map_file(&rank, path), AX_OK);
    const uint64_t files = 2 * model.len + rank.len, headers = 40000;
    ax_unmap_file(&model);
    ax_unmap_file(&rank);
    snprintf(c.out, sizeof c.out, "%s/out2", c.dir);
    disk_free = files - headers;
    assert_int_equal(train_case_run(&c, &r), AX_ERR_STORAGE);
    disk_free = files;
    run_ok(&c, &r);
    train_case_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_saved_steps),
        cmocka_unit_test(test_tokens_and_waits_are_counted),
        cmocka_unit_test(test_the_dtype_is_found_again),
        cmocka_unit_test(test_tensorboard),
        cmocka_unit_test(test_room_on_the_disk),
        cmocka_unit_test(test_room_is_enough),
    };
    return cmocka_run_group_tests(tests, quiet, NULL);
}
