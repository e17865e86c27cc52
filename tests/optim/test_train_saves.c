/* Saves that fail while training goes on, the last one, and what is kept and published then. Where
 * a fault hits depends on the saver's thread, so the tests put one at every call and judge by what
 * is in the output folder. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>

#include "tests/optim/train_runs.h"

#define EVERY       2   /* steps between saves */
#define ALLOCATIONS 140 /* from an evaluation into the start of the save after it */

static void open_saving(struct train_case *c, int64_t steps) {
    open_case(c, AX_F32, true);
    c->o.max_steps = steps;
    c->o.save.when = (struct ax_cadence){AX_EACH_STEPS, EVERY};
}

static bool is_saved(const struct train_case *c, int64_t step) {
    char name[64];
    snprintf(name, sizeof name, "checkpoint-%lld/state/manifest.json", (long long)step);
    return has(c, name);
}

/* Calls of an operation in a run on which nothing fails. */
static int calls_of(enum ax_fault_op op, void (*open)(struct train_case *c)) {
    struct train_case c;
    struct ax_train_result r;
    open(&c);
    assert_int_equal(ax_fault_configure(NULL), AX_OK);
    run_ok(&c, &r);
    train_case_close(&c);
    return (int)ax_fault_count(op);
}

/* Runs the case once for every call of `op`, which fails, and hands what is left to `check`. */
static void fail_each(enum ax_fault_op op, const char *kind, void (*open)(struct train_case *c),
                      void (*check)(const struct train_case *c, int exit_code, void *tally),
                      void *tally) {
    const int calls = calls_of(op, open);
    for (int k = 1; k <= calls; k++) {
        struct train_case c;
        char fault[64];
        open(&c);
        snprintf(fault, sizeof fault, "%s:%d:%s", ax_fault_op_name(op), k, kind);
        const int status = run_in_child(&c, fault);
        assert_true(WIFEXITED(status));
        check(&c, WEXITSTATUS(status), tally);
        train_case_close(&c);
    }
}

/* ---- the first and the last save ---- */

struct failed_saves {
    int first, last;
};

static void open_two_saves(struct train_case *c) {
    open_saving(c, 2 * EVERY);
}

static void check_two_saves(const struct train_case *c, int exit_code, void *tally) {
    struct failed_saves *n = tally;
    if (!is_saved(c, 2 * EVERY)) {
        assert_int_not_equal(exit_code, 0);
        assert_false(has(c, "config.json"));
        n->last += is_saved(c, EVERY);
    } else if (!is_saved(c, EVERY)) { /* tried again with the next */
        assert_int_equal(exit_code, 0);
        assert_true(has(c, "config.json") && has(c, "model.safetensors"));
        n->first++;
    } else if (exit_code == 0) {
        assert_true(has(c, "config.json") && has(c, "model.safetensors"));
    }
}

/* A failed save is a warning as long as another one comes. When the last one fails, by itself, the
 * run has not done what it was asked to: it says so, and there is no trained model. */
static void test_last_save_fails(void **state) {
    (void)state;
    struct failed_saves syncs = {0}, writes = {0};
    fail_each(AX_FAULT_FSYNC, "eio", open_two_saves, check_two_saves, &syncs);
    fail_each(AX_FAULT_WRITE, "enospc", open_two_saves, check_two_saves, &writes);
    print_message("first and last save failed: %d and %d syncs, %d and %d writes\n", syncs.first,
                  syncs.last, writes.first, writes.last);
    assert_true(syncs.first > 4 && syncs.last > 4);
    assert_true(writes.first > 0 && writes.last > 0);
}

static void test_disk_full(void **state) {
    (void)state;
    struct train_case c;
    open_case(&c, AX_F32, true);
    c.o.max_steps = 6;
    c.o.save.when = (struct ax_cadence){AX_EACH_STEPS, 2};
    /* that sync is one of the first save: it is tried again with the next */
    assert_int_equal(run_in_child(&c, "fsync:2:enospc"), 0);
    assert_false(has(&c, "checkpoint-2/config.json"));
    assert_true(has(&c, "checkpoint-4/state/manifest.json"));
    assert_true(has(&c, "config.json"));
    train_case_close(&c);
    open_case(&c, AX_F32, true);
    c.o.max_steps = 6;
    c.o.save.when = (struct ax_cadence){AX_EACH_STEPS, 2};
    assert_int_equal(WEXITSTATUS(run_in_child(&c, "fsync:2:enospc,fsync:3:enospc")), 7);
    assert_false(has(&c, "config.json"));
    train_case_close(&c);
}

static void test_old_checkpoints_go(void **state) {
    (void)state;
    struct train_case c;
    struct ax_train_result r;
    open_case(&c, AX_F32, true);
    c.o.max_steps = 10;
    c.o.save.when = (struct ax_cadence){AX_EACH_STEPS, 2};
    c.o.save.limit = 2;
    c.o.eval.when = (struct ax_cadence){AX_EACH_STEPS, 2};
    c.o.eval.metric = AX_BEST_BY_LOSS;
    c.o.eval.greater_is_better = true; /* the first is best, as the loss falls */
    c.o.eval.keep_best = c.o.eval.load_best = true;
    run_ok(&c, &r);
    assert_int_equal(r.best_step, 2);
    assert_true(has(&c, "checkpoint-2/config.json"));
    assert_false(has(&c, "checkpoint-4/config.json"));
    assert_false(has(&c, "checkpoint-8/config.json"));
    assert_true(has(&c, "checkpoint-10/config.json"));
    assert_true(train_case_hash(&c, "model.safetensors") ==
                train_case_hash(&c, "checkpoint-2/model.safetensors"));
    assert_true(train_case_tells(&c, "{\"step\": 2, \"event\": \"best\", "));
    train_case_close(&c);
}

/* What an interrupted run left goes when it goes on, but for what it goes on from, be newer ones damaged; from a folder
 * that a user names, nothing goes. */
static void test_what_is_resumed_from_stays(void **state) {
    (void)state;
    for (int named = 0; named < 2; named++) {
        struct train_case c;
        struct ax_train_result r;
        char path[192];
        open_saving(&c, 6);
        run_ok(&c, &r);
        snprintf(path, sizeof path, "%s/checkpoint-6/model.safetensors", c.out);
        assert_int_equal(truncate(path, 5000), 0);
        snprintf(path, sizeof path, "%s/checkpoint-4", c.out);
        c.o.max_steps = 8;
        c.o.save.when.when = AX_NEVER;
        c.o.save.limit = 1;
        c.o.save.resume = named ? AX_RESUME_FOLDER : AX_RESUME_NEWEST_GOOD;
        c.o.save.resume_dir = named ? path : NULL;
        run_ok(&c, &r);
        assert_int_equal(r.resumed_from, 4);
        assert_true(is_saved(&c, 4));
        assert_int_equal(is_saved(&c, 2), named);
        assert_int_equal(is_saved(&c, 6), named);
        train_case_close(&c);
    }
}

/* A file that requests the save of a step that is saved anyway does not request another one. */
static void test_request_of_a_save_that_is_due(void **state) {
    (void)state;
    struct train_case c;
    struct ax_train_result r;
    char path[128];
    open_saving(&c, 3 * EVERY);
    snprintf(path, sizeof path, "%s/save", c.dir);
    c.o.save.trigger_file = path;
    c.o.save.trigger_interval = EVERY;
    assert_int_equal(ax_write_file_atomic(path, "", 0), AX_OK);
    run_ok(&c, &r);
    assert_true(is_saved(&c, EVERY));
    assert_false(ax_path_exists(path));
    train_case_close(&c);
}

/* ---- the best one ---- */

/* A run that goes on from another folder's checkpoint, whose best one is not in its own. */
static void test_best_of_another_folder(void **state) {
    (void)state;
    struct train_case c;
    struct ax_train_result r;
    char from[192];
    open_saving(&c, 4);
    c.o.eval.when = c.o.save.when;
    c.o.eval.metric = AX_BEST_BY_LOSS;
    c.o.eval.greater_is_better = true; /* the first is best, as the loss falls */
    c.o.eval.keep_best = c.o.eval.load_best = true;
    run_ok(&c, &r);
    snprintf(from, sizeof from, "%s/checkpoint-4", c.out);
    c.o.max_steps = 8;
    c.o.save.resume = AX_RESUME_FOLDER;
    c.o.save.resume_dir = from;
    snprintf(c.out, sizeof c.out, "%s/there", c.dir);
    run_ok(&c, &r);
    assert_true(is_saved(&c, 6) && is_saved(&c, 8));
    assert_true(train_case_hash(&c, "model.safetensors") ==
                train_case_hash(&c, "checkpoint-6/model.safetensors"));
    assert_true(train_case_hash(&c, "model.safetensors") !=
                train_case_hash(&c, "checkpoint-8/model.safetensors"));
    train_case_close(&c);
}

/* A run that goes on with another metric, or evaluates on other data: earlier values mean nothing. */
static void test_best_of_another_kind(void **state) {
    (void)state;
    for (int other = 0; other < 3; other++) {
        struct train_case c;
        struct ax_train_result r;
        open_saving(&c, 4);
        c.o.eval.when = c.o.save.when;
        c.o.eval.metric = AX_BEST_BY_LOSS; /* which falls, and no accuracy is above it */
        c.o.eval.greater_is_better = other == 2;
        c.o.eval.keep_best = c.o.eval.load_best = true;
        run_ok(&c, &r);
        assert_int_equal(r.best_step, other == 2 ? 2 : 4);
        c.o.max_steps = 8;
        c.o.save.resume = AX_RESUME_NEWEST;
        c.o.eval.greater_is_better = true;
        c.o.eval.metric = other == 0 ? AX_BEST_BY_ACCURACY : AX_BEST_BY_LOSS;
        c.eval_doc_source.fingerprint += other == 2;
        run_ok(&c, &r);
        assert_true(r.best_step > 4);
        assert_true(train_case_hash(&c, "model.safetensors") !=
                    train_case_hash(&c, "checkpoint-4/model.safetensors"));
        train_case_close(&c);
    }
}

/* The rows to evaluate on, which ask for a stop when they are read for the nth time. */
static struct {
    struct ax_example_source source;
    int reads;
} stopping;

static enum ax_status chunk_that_stops(void *ctx, int64_t epoch, int64_t chunk,
                                       struct ax_source_place place, struct ax_corpus *out,
                                       struct ax_source_place *next) {
    (void)ctx;
    if (chunk == 0 && --stopping.reads == 0)
        assert_int_equal(raise(SIGTERM), 0);
    return stopping.source.chunk(stopping.source.ctx, epoch, chunk, place, out, next);
}

/* A run that goes on in another folder and is stopped before its first step, in a pending evaluation, says that
 * it is saved: `auto` finds it there. */
static void test_stopped_before_a_step(void **state) {
    (void)state;
    struct train_case c;
    struct ax_train_result r;
    char from[192];
    open_saving(&c, 4);
    c.o.eval.when = c.o.save.when;
    c.o.eval.metric = AX_BEST_BY_LOSS;
    stopping.source = c.eval_doc_source;
    c.eval_doc_source.chunk = chunk_that_stops;
    stopping.reads = 3; /* rows are counted, the base is evaluated, and step 2 */
    assert_int_equal(WEXITSTATUS(run_in_child(&c, NULL)), 75);
    assert_true(is_saved(&c, 2));
    snprintf(from, sizeof from, "%s/checkpoint-2", c.out);
    c.o.save.resume = AX_RESUME_FOLDER;
    c.o.save.resume_dir = from;
    snprintf(c.out, sizeof c.out, "%s/there", c.dir);
    stopping.reads = 2;
    assert_int_equal(WEXITSTATUS(run_in_child(&c, NULL)), 75);
    assert_true(is_saved(&c, 2));
    c.o.save.resume = AX_RESUME_NEWEST;
    c.o.save.resume_dir = NULL;
    stopping.reads = 0;
    run_ok(&c, &r);
    assert_int_equal(r.resumed_from, 2);
    train_case_close(&c);
}

/* The rows to evaluate on, which look at the evaluation that asks for them: what counts as better
 * turns round before that of step `turn`, and `fault` is armed before that of step `arm`. */
static struct {
    struct ax_example_source source;
    struct train_case *c;
    int64_t step; /* of the last evaluation; the rows are counted, and the base evaluated, first */
    int64_t turn, arm;
    char fault[64];
} watched;

static enum ax_status chunk_of_evaluation(void *ctx, int64_t epoch, int64_t chunk,
                                          struct ax_source_place place, struct ax_corpus *out,
                                          struct ax_source_place *next) {
    (void)ctx;
    if (chunk == 0) {
        watched.step += EVERY;
        if (watched.step == watched.turn)
            watched.c->o.eval.greater_is_better = true;
        if (watched.fault[0] && watched.step == watched.arm)
            AX_TRY(ax_fault_configure(watched.fault));
    }
    return watched.source.chunk(watched.source.ctx, epoch, chunk, place, out, next);
}

static void open_evaluating(struct train_case *c, int64_t steps) {
    open_saving(c, steps);
    c->o.eval.when = c->o.save.when;
    c->o.eval.metric = AX_BEST_BY_LOSS;
    memset(&watched, 0, sizeof watched);
    watched.source = c->eval_doc_source;
    watched.c = c;
    watched.step = -2 * EVERY;
    c->eval_doc_source.chunk = chunk_of_evaluation;
}

/* The loss falls, so that step 4 is better than step 2 and then no other better than either. */
static void open_keeping_best(struct train_case *c) {
    open_evaluating(c, 8);
    watched.turn = 6;
    c->o.eval.keep_best = c->o.eval.load_best = true;
    c->o.save.limit = 1;
}

struct failed_best {
    int first, best, last;
};

/* The best is the best of those that were saved. */
static void check_best(const struct train_case *c, int exit_code, void *tally) {
    struct failed_best *n = tally;
    char weights[64];
    const int64_t best = is_saved(c, 4) ? 4 : 2;
    if (!is_saved(c, 8)) {
        assert_int_not_equal(exit_code, 0);
        n->last += is_saved(c, best);
        return;
    }
    assert_true(is_saved(c, best)); /* whatever save_total_limit says */
    assert_int_equal(is_saved(c, 2) + is_saved(c, 4) + is_saved(c, 6), 1);
    n->best += best == 2;
    n->first += best == 4;
    if (exit_code != 0) /* in the end, when all that was kept is safe */
        return;
    snprintf(weights, sizeof weights, "checkpoint-%lld/model.safetensors", (long long)best);
    assert_true(train_case_hash(c, "model.safetensors") == train_case_hash(c, weights));
}

static void test_best_save_fails(void **state) {
    (void)state;
    struct failed_best n = {0};
    fail_each(AX_FAULT_FSYNC, "enospc", open_keeping_best, check_best, &n);
    print_message("best save failed: %d syncs; another one: %d, the last one: %d\n", n.best,
                  n.first, n.last);
    assert_true(n.best > 4 && n.last > 4);
}

/* A save that says it is good can be gone on from. */
static void check_resumes(struct train_case *c) {
    struct ax_train_result r;
    c->o.save.resume = AX_RESUME_NEWEST;
    run_ok(c, &r);
    assert_int_equal(r.resumed_from, EVERY);
}

/* The same where the last save cannot even begin: no memory at one of the calls from the evaluation
 * before it on. */
static void test_last_save_does_not_start(void **state) {
    (void)state;
    int failed = 0, saved = 0;
    for (int k = 1; k < ALLOCATIONS; k += k < 60 ? 2 : 8) {
        struct train_case c;
        open_evaluating(&c, EVERY);
        watched.arm = EVERY;
        snprintf(watched.fault, sizeof watched.fault, "malloc:%d:enomem", k);
        const int status = run_in_child(&c, NULL);
        assert_true(WIFEXITED(status));
        if (is_saved(&c, EVERY)) {
            check_resumes(&c);
            saved++;
        } else {
            assert_int_not_equal(WEXITSTATUS(status), 0);
            assert_false(has(&c, "config.json"));
            failed++;
        }
        train_case_close(&c);
    }
    print_message("no memory for the last save at %d calls, for what it can do without at %d\n",
                  failed, saved);
    assert_true(failed > 20 && saved > 0);
}

/* ---- the trained model ---- */

static void open_publishing(struct train_case *c) {
    open_case(c, AX_F32, true);
    c->o.max_steps = 1;
    c->o.save.hf.max_shard_bytes = 150000;
}

static void open_publishing_adapter(struct train_case *c) {
    static char *targets[] = {"q_proj", "v_proj"};
    static const struct ax_peft_config lora = {.r = 4, .alpha = 8, .targets = {2, targets}};
    open_publishing(c);
    c->o.step.model.adapter = &lora;
}

/* Files of what is published, the config first, and their hashes where nothing fails. */
struct publishing {
    void (*open)(struct train_case *c);
    int n_files;
    const char *files[4];
    uint64_t hashes[4];
    int failed;
};

static bool in_out(const struct train_case *c, const char *name) {
    char path[160];
    snprintf(path, sizeof path, "%s/%s", c->out, name);
    return ax_path_exists(path);
}

static void check_published(const struct train_case *c, int exit_code, void *tally) {
    struct publishing *p = tally;
    const bool is_there = in_out(c, p->files[0]);
    assert_true(is_there || exit_code != 0);
    for (int i = 0; i < p->n_files && is_there; i++)
        assert_true(train_case_hash(c, p->files[i]) == p->hashes[i]);
    assert_false(in_out(c, ".model.tmp"));
    p->failed += exit_code != 0;
}

static void publish_with_faults(struct publishing *p) {
    static const enum ax_fault_op ops[] = {AX_FAULT_WRITE, AX_FAULT_FSYNC, AX_FAULT_RENAME,
                                           AX_FAULT_CLOSE, AX_FAULT_MKDIR};
    struct train_case c;
    struct ax_train_result r;
    p->open(&c);
    run_ok(&c, &r);
    for (int i = 0; i < p->n_files; i++) {
        p->hashes[i] = train_case_hash(&c, p->files[i]);
        assert_true(p->hashes[i] != 0);
    }
    train_case_close(&c);
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        fail_each(ops[i], "eio", p->open, check_published, p);
    print_message("publishing %s failed at %d calls\n", p->files[1], p->failed);
    assert_true(p->failed > 10);
}

/* Whatever fails, a config has its model beside it, and exit code 0 has a config. */
static void test_publishing_fails(void **state) {
    (void)state;
    struct publishing full = {.open = open_publishing,
                              .n_files = 4,
                              .files = {"config.json", "model.safetensors.index.json",
                                        "model-00001-of-00002.safetensors",
                                        "model-00002-of-00002.safetensors"}};
    struct publishing adapter = {
        .open = open_publishing_adapter, .n_files = 2, .files = {AX_PEFT_CONFIG, AX_PEFT_WEIGHTS}};
    publish_with_faults(&full);
    publish_with_faults(&adapter);
}

static void expect_published(const struct train_case *c, bool shards) {
    struct ax_hf hf;
    assert_int_equal(ax_hf_open(&hf, c->out), AX_OK);
    assert_int_equal(hf.n_files, shards ? 2 : 1);
    assert_int_equal(ax_hf_at(&hf, 0)->dtype, shards ? AX_F32 : AX_BF16);
    ax_hf_close(&hf);
    assert_int_equal(has(c, "model.safetensors"), !shards);
    assert_int_equal(has(c, "model.safetensors.index.json"), shards);
}

/* A model of one file over one of several, and the other way round: what is read is the new one. */
static void test_published_in_another_form(void **state) {
    (void)state;
    struct train_case c;
    struct ax_train_result r;
    open_publishing(&c);
    c.o.save.when = (struct ax_cadence){AX_EACH_STEPS, 1};
    c.o.save.resume = AX_RESUME_NEWEST;
    for (int i = 0; i < 3; i++) {
        const bool shards = i != 1;
        c.o.save.hf.dtype = shards ? AX_F32 : AX_BF16;
        c.o.max_steps++;
        run_ok(&c, &r);
        expect_published(&c, shards);
    }
    train_case_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_last_save_fails),
        cmocka_unit_test(test_disk_full),
        cmocka_unit_test(test_best_of_another_folder),
        cmocka_unit_test(test_best_of_another_kind),
        cmocka_unit_test(test_stopped_before_a_step),
        cmocka_unit_test(test_old_checkpoints_go),
        cmocka_unit_test(test_what_is_resumed_from_stays),
        cmocka_unit_test(test_request_of_a_save_that_is_due),
        cmocka_unit_test(test_best_save_fails),
        cmocka_unit_test(test_last_save_does_not_start),
        cmocka_unit_test(test_publishing_fails),
        cmocka_unit_test(test_published_in_another_form),
    };
    return cmocka_run_group_tests(tests, quiet, NULL);
}
