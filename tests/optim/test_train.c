/* The training loop on a tiny model: resuming, saving, stopping, evaluating, refusing. Runs use one
 * thread and children are forked before any other is started. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/claim.h"
#include "base/log.h"
#include "base/mem.h"
#include "tests/train_case.h"

static void expect_error(const char *part) {
    if (!strstr(ax_error_text(), part))
        fail_msg("expected \"%s\" in: %s", part, ax_error_text());
}

static void open_case(struct train_case *c, enum ax_dtype dtype, bool packed) {
    if (train_case_open(c, dtype, packed) != AX_OK)
        fail_msg("%s", ax_error_text());
}

static void run_ok(struct train_case *c, struct ax_train_result *r) {
    if (train_case_run(c, r) != AX_OK)
        fail_msg("%s (%s)", ax_error_text(), ax_error_trace());
}

static bool has(const struct train_case *c, const char *name) {
    return train_case_hash(c, name) != 0;
}

/* ---- resuming ---- */

/* Weights and state of the last step: of a run in one piece, and of one that was killed. */
struct outcome {
    uint64_t model, state;
};

static struct outcome outcome(const struct train_case *c, int64_t steps) {
    char name[96];
    snprintf(name, sizeof name, "checkpoint-%lld/state/rank-00000.safetensors", (long long)steps);
    const struct outcome o = {train_case_hash(c, "model.safetensors"), train_case_hash(c, name)};
    assert_true(o.model != 0 && o.state != 0);
    return o;
}

static void assert_same(struct outcome a, struct outcome b) {
    assert_true(a.model == b.model);
    assert_true(a.state == b.state);
}

/* Runs in a child; returns wait's status. `fault` may be NULL. */
static int run_in_child(struct train_case *c, const char *fault) {
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct ax_train_result r;
        ax_log_set_level(AX_LOG_ERROR);
        if (ax_fault_configure(fault) != AX_OK)
            _exit(99);
        const enum ax_status st = train_case_run(c, &r);
        _exit(ax_status_info(st)->exit_code);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

/* What differs between the runs that are stopped and gone on with. */
struct variant {
    enum ax_dtype dtype;
    bool packed;
    enum ax_recompute recompute;
    const char *optimizer, *slots; /* NULL: the case's own; names of what it keeps, in order */
    enum ax_moments moments;
    enum ax_masters masters;
};

static void open_variant(struct train_case *c, const struct variant *v) {
    open_case(c, v->dtype, v->packed);
    struct ax_step_options *o = &c->o.step;
    c->o.max_steps = 20;
    o->recompute = v->recompute;
    if (!v->optimizer)
        return;
    assert_int_equal(ax_optimizer_find(v->optimizer, &o->optimizer, &o->opt), AX_OK);
    o->opt.moments = v->moments;
    o->masters = v->masters;
    o->neftune_alpha = 5;
    if (v->moments == AX_MOMENTS_BF16_NEAREST)
        o->opt.beta2 = 0.99;
    if (o->optimizer == &ax_optimizer_sgd)
        o->opt.momentum = 0.9;
}

/* The manifest of the last save knows a slot of each name. */
static void assert_slots(const struct train_case *c, const char *slots) {
    char path[160], list[96], quoted[64], *manifest, *rest = list;
    size_t n;
    snprintf(path, sizeof path, "%s/checkpoint-20/state/manifest.json", c->out);
    assert_int_equal(ax_read_file(path, 1 << 24, &manifest, &n), AX_OK);
    snprintf(list, sizeof list, "%s", slots);
    for (const char *slot = strsep(&rest, " "); slot; slot = strsep(&rest, " ")) {
        snprintf(quoted, sizeof quoted, "\"slot\": \"%s\"", slot);
        if (!strstr(manifest, quoted))
            fail_msg("%s has no %s", path, quoted);
    }
    ax_free(manifest);
}

static void resume_in_parts(const struct variant *v) {
    struct train_case whole, parts;
    struct ax_train_result r;
    open_variant(&whole, v);
    whole.o.save.when = (struct ax_cadence){AX_EACH_STEPS, 20};
    run_ok(&whole, &r);
    assert_int_equal(r.steps, 20);
    const struct outcome straight = outcome(&whole, 20);

    open_variant(&parts, v);
    parts.o.save.when = (struct ax_cadence){AX_EACH_STEPS, 7};
    /* the trained model begins with the 2nd rename after the three saves: at the kill all but the
     * saves of 7 and 14 steps may be lost */
    const int status = run_in_child(&parts, "fsync:16:kill");
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_true(has(&parts, "checkpoint-7/state/manifest.json"));
    assert_false(has(&parts, "checkpoint-20/state/manifest.json"));
    assert_false(has(&parts, "config.json"));
    parts.o.save.resume = AX_RESUME_NEWEST;
    run_ok(&parts, &r);
    assert_true(r.resumed_from == 7 || r.resumed_from == 14);
    assert_int_equal(r.steps, 20);
    assert_same(outcome(&parts, 20), straight);
    if (v->slots)
        assert_slots(&parts, v->slots);
    train_case_close(&parts);
    train_case_close(&whole);
}

static void test_resume_is_bitwise(void **state) {
    (void)state;
    static const struct variant variants[] = {
        {.dtype = AX_F32, .packed = true, .recompute = AX_RECOMPUTE_OFF},
        {.dtype = AX_F32, .packed = false, .recompute = AX_RECOMPUTE_ON},
        {.dtype = AX_BF16, .packed = true, .recompute = AX_RECOMPUTE_SELECTIVE},
    };
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++)
        resume_in_parts(&variants[i]);
}

/* Whatever an optimizer keeps, and however the masters are kept. */
static void test_every_optimizer_resumes(void **state) {
    (void)state;
    static const struct {
        const char *optimizer;
        enum ax_moments moments;
        const char *slots;
    } cases[] = {
        {"adamw", AX_MOMENTS_FULL, "exp_avg exp_avg_sq"},
        {"adamw", AX_MOMENTS_BF16, "exp_avg exp_avg_sq"},
        {"adamw", AX_MOMENTS_BF16_NEAREST, "exp_avg exp_avg_sq"},
        {"adamw", AX_MOMENTS_8BIT, "exp_avg exp_avg_sq exp_avg_scale exp_avg_sq_scale"},
        {"sgd", AX_MOMENTS_FULL, "momentum_buffer"},
        {"lion", AX_MOMENTS_FULL, "exp_avg"},
        {"lion", AX_MOMENTS_BF16, "exp_avg"},
        {"adafactor", AX_MOMENTS_FULL, "exp_avg_sq_row exp_avg_sq_col exp_avg_sq"},
        {"muon", AX_MOMENTS_FULL, "momentum_buffer exp_avg exp_avg_sq"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int masters = AX_MASTERS_ACCUM; masters <= AX_MASTERS_STOCHASTIC; masters++) {
            char slots[96];
            snprintf(slots, sizeof slots, "master %s%s",
                     masters == AX_MASTERS_REMAINDER ? "master_remainder " : "", cases[i].slots);
            resume_in_parts(&(struct variant){.dtype = AX_BF16,
                                              .packed = true,
                                              .optimizer = cases[i].optimizer,
                                              .slots = slots,
                                              .moments = cases[i].moments,
                                              .masters = (enum ax_masters)masters});
        }
    }
}

/* Killed at every STRIDE-th call of each kind of a run with two saves: what is left resumes to the
 * same bits, and nothing has to be cleaned by hand. AXTRAIN_SWEEP=1 takes every call. */
static void test_killed_anywhere(void **state) {
    (void)state;
    static const char *const ops[] = {"open",  "write", "fsync", "rename",
                                      "close", "mkdir", "unlink"};
    const char *sweep = getenv("AXTRAIN_SWEEP");
    const int stride = sweep && *sweep ? 1 : 4;
    struct train_case whole;
    int points = 0;
    open_case(&whole, AX_F32, true);
    whole.o.max_steps = 4;
    whole.o.save.when = (struct ax_cadence){AX_EACH_STEPS, 2};
    assert_int_equal(run_in_child(&whole, NULL), 0);
    const struct outcome straight = outcome(&whole, 4);
    for (size_t op = 0; op < sizeof ops / sizeof *ops; op++) {
        for (int k = 1;; k += stride) {
            struct train_case c;
            char fault[64];
            open_case(&c, AX_F32, true);
            c.o.max_steps = 4;
            c.o.save.when = (struct ax_cadence){AX_EACH_STEPS, 2};
            c.o.save.resume = AX_RESUME_NEWEST;
            snprintf(fault, sizeof fault, "%s:%d:kill", ops[op], k);
            const int first = run_in_child(&c, fault);
            const bool killed = WIFSIGNALED(first);
            if (killed)
                assert_int_equal(run_in_child(&c, NULL), 0);
            else
                assert_int_equal(first, 0);
            assert_same(outcome(&c, 4), straight);
            train_case_close(&c);
            points += killed;
            if (!killed)
                break;
        }
    }
    print_message("killed at %d calls\n", points);
    assert_true(points >= 12);
    train_case_close(&whole);
}

static void test_resume_of_a_finished_run(void **state) {
    (void)state;
    struct train_case c;
    struct ax_train_result r;
    open_case(&c, AX_F32, true);
    c.o.max_steps = 3;
    c.o.save.when = (struct ax_cadence){AX_EACH_STEPS, 3};
    c.o.save.resume = AX_RESUME_NEWEST;
    run_ok(&c, &r);
    const struct outcome once = outcome(&c, 3);
    run_ok(&c, &r);
    assert_int_equal(r.resumed_from, 3);
    assert_same(outcome(&c, 3), once);
    train_case_close(&c);
}

/* ---- being stopped ---- */

static void test_sigterm_saves_and_requeues(void **state) {
    (void)state;
    struct train_case whole, c;
    struct ax_train_result r;
    open_case(&whole, AX_F32, true);
    whole.o.max_steps = 20;
    whole.o.save.when = (struct ax_cadence){AX_EACH_STEPS, 20};
    assert_int_equal(run_in_child(&whole, NULL), 0);
    open_case(&c, AX_F32, true);
    c.o.max_steps = 20;
    c.o.save.when = (struct ax_cadence){AX_EACH_STEPS, 20};
    c.o.save.resume = AX_RESUME_NEWEST;
    static const int signals[] = {SIGTERM, SIGUSR1, SIGINT};
    int requeued = 0, runs = 0;
    for (bool done = false; !done && runs < 60; runs++) {
        const int sig = signals[runs % 3];
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            ax_log_set_level(AX_LOG_ERROR);
            const enum ax_status st = train_case_run(&c, &r);
            _exit(ax_status_info(st)->exit_code);
        }
        usleep((useconds_t)(4000 + 1500 * runs));
        kill(child, sig);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        /* before it listens the signal simply ends it, which loses nothing either */
        if (WIFSIGNALED(status)) {
            assert_int_equal(WTERMSIG(status), sig);
            continue;
        }
        const int code = WEXITSTATUS(status);
        done = code == 0;
        if (!done)
            assert_int_equal(code, sig == SIGINT ? 130 : 75);
        requeued += !done;
    }
    print_message("stopped %d times in %d runs\n", requeued, runs);
    assert_same(outcome(&c, 20), outcome(&whole, 20));
    train_case_close(&c);
    train_case_close(&whole);
}

/* The source of evaluation rows, which sends a signal with the first row of one evaluation. */
struct signalling {
    struct ax_doc_source source;
    int evaluation, sig; /* from 0; 0: none */
};

static enum ax_status group_and_signal(void *ctx, int64_t epoch, int64_t group,
                                       struct ax_source_place place, struct ax_corpus *out,
                                       struct ax_source_place *next) {
    struct signalling *s = ctx;
    /* the first time, rows are counted */
    if (group == 0 && s->evaluation-- == 0)
        raise(s->sig);
    return s->source.group(s->source.ctx, epoch, group, place, out, next);
}

/* One run that evaluates every second step, stops early by it and keeps the best checkpoint. */
static void open_evaluating(struct train_case *c) {
    open_case(c, AX_F32, true);
    c->o.max_steps = 12;
    c->o.eval.when = c->o.save.when = (struct ax_cadence){AX_EACH_STEPS, 2};
    c->o.eval.greater_is_better = true; /* of the loss: never better after the first */
    c->o.eval.patience = 2;
    c->o.eval.keep_best = true;
    c->o.save.limit = 1;
    c->o.save.resume = AX_RESUME_NEWEST;
}

/* An evaluation can be long: it is put down at once, and the run that goes on makes up for it, so
 * that it decides as the run in one piece. */
static void test_stopped_in_an_evaluation(void **state) {
    (void)state;
    for (int evaluation = 1; evaluation <= 4; evaluation++) { /* 1: before the first step */
        struct train_case c;
        struct ax_train_result r;
        open_evaluating(&c);
        struct signalling s = {c.eval_doc_source, evaluation, evaluation % 2 ? SIGTERM : SIGINT};
        c.eval_doc_source.group = group_and_signal;
        c.eval_doc_source.ctx = &s;
        assert_int_equal(train_case_run(&c, &r),
                         s.sig == SIGINT ? AX_INTERRUPTED : AX_SAVED_REQUEUE);
        const int64_t at = 2 * (evaluation - 1);
        assert_int_equal(r.steps, at);
        expect_error(at == 0 ? "nothing to save yet" : "the same command goes on");
        s.evaluation = -1;
        run_ok(&c, &r);
        assert_int_equal(r.resumed_from, at);
        assert_true(r.stopped_early);
        assert_int_equal(r.steps, 6);
        assert_int_equal(r.best_step, at <= 2 ? 2 : 0); /* of this process */
        assert_true(has(&c, "checkpoint-2/model.safetensors"));
        assert_true(has(&c, "checkpoint-6/model.safetensors"));
        assert_false(has(&c, "checkpoint-4/model.safetensors"));
        train_case_close(&c);
    }
}

/* ---- the output folder ---- */

static void test_folders_of_others(void **state) {
    (void)state;
    struct train_case c;
    struct ax_train_result r;
    struct ax_claim lock;
    char path[160];
    open_case(&c, AX_F32, true);
    c.o.max_steps = 2;
    c.o.save.when = (struct ax_cadence){AX_EACH_STEPS, 1};
    assert_int_equal(ax_mkdir(c.out), AX_OK);
    snprintf(path, sizeof path, "%s/.axtrain.lock", c.out);
    assert_int_equal(ax_claim_take(&lock, path), AX_OK);
    assert_int_equal(train_case_run(&c, &r), AX_ERR_FAILED);
    expect_error("in use by process");
    ax_claim_release(&lock);
    run_ok(&c, &r);
    assert_int_equal(train_case_run(&c, &r), AX_ERR_CONFIG);
    expect_error("holds the checkpoints of another run (newest: checkpoint-2)");
    c.o.save.resume = AX_RESUME_NEWEST;
    static const char *const fixed[] = {"base_model", NULL};
    c.o.fixed_keys = fixed;
    json_object_set_new(c.config, "base_model", json_string("another"));
    assert_int_equal(train_case_run(&c, &r), AX_ERR_CONFIG);
    expect_error("base_model was \"tiny\"");
    train_case_close(&c);
}

static void test_torn_and_damaged_checkpoints(void **state) {
    (void)state;
    struct train_case c;
    struct ax_train_result r;
    char path[256];
    open_case(&c, AX_F32, true);
    c.o.max_steps = 4;
    c.o.save.when = (struct ax_cadence){AX_EACH_STEPS, 2};
    run_ok(&c, &r);
    const struct outcome straight = outcome(&c, 4);
    c.o.save.resume = AX_RESUME_NEWEST;
    /* torn: passed over */
    snprintf(path, sizeof path, "%s/checkpoint-9", c.out);
    assert_int_equal(ax_mkdir(path), AX_OK);
    /* damaged: a byte of the newest one's weights */
    snprintf(path, sizeof path, "%s/checkpoint-4/model.safetensors", c.out);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    fseek(f, 5000, SEEK_SET);
    fputc(0x55, f);
    fclose(f);
    assert_int_equal(train_case_run(&c, &r), AX_ERR_DATA);
    expect_error("checkpoint-4/model.safetensors: damaged between bytes 0 and");
    c.o.save.resume = AX_RESUME_NEWEST_GOOD;
    run_ok(&c, &r);
    assert_int_equal(r.resumed_from, 2);
    assert_same(outcome(&c, 4), straight);
    train_case_close(&c);
}

static void test_weights_only_cannot_resume(void **state) {
    (void)state;
    struct train_case c;
    struct ax_train_result r;
    open_case(&c, AX_F32, true);
    c.o.max_steps = 2;
    c.o.save.when = (struct ax_cadence){AX_EACH_STEPS, 1};
    c.o.save.only_model = true;
    run_ok(&c, &r);
    assert_false(has(&c, "checkpoint-2/state/rank-00000.safetensors"));
    assert_true(train_case_hash(&c, "checkpoint-2/model.safetensors") ==
                train_case_hash(&c, "model.safetensors"));
    c.o.save.resume = AX_RESUME_NEWEST;
    assert_int_equal(train_case_run(&c, &r), AX_ERR_DATA);
    expect_error("weights only (save_only_model)");
    train_case_close(&c);
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
    assert_int_equal(WEXITSTATUS(run_in_child(&c, "fsync:2:enospc,fsync:3:enospc")), 1);
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
    c.o.eval.metric = AX_METRIC_LOSS;
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
    train_case_close(&c);
}

/* ---- evaluation ---- */

static void test_learns_and_evaluates(void **state) {
    (void)state;
    struct train_case c;
    struct ax_train_result r;
    open_case(&c, AX_F32, true);
    c.o.eval.when = (struct ax_cadence){.when = AX_EACH_EPOCH};
    c.o.save.when = (struct ax_cadence){.when = AX_EACH_EPOCH};
    run_ok(&c, &r);
    assert_true(r.evaluated && r.last_eval.loss < 0.9 * r.first_eval.loss);
    assert_int_equal(r.last_eval.documents, 12);
    assert_int_equal(r.steps, r.total_steps);
    train_case_close(&c);
}

static void test_stops_early(void **state) {
    (void)state;
    struct train_case c;
    struct ax_train_result r;
    open_case(&c, AX_F32, true);
    c.o.max_steps = 20;
    c.o.eval.when = c.o.save.when = (struct ax_cadence){AX_EACH_STEPS, 2};
    c.o.eval.greater_is_better = true; /* of the loss: never better after the first */
    c.o.eval.patience = 2;
    run_ok(&c, &r);
    assert_true(r.stopped_early);
    assert_int_equal(r.steps, 6);
    assert_int_equal(r.best_step, 2);
    train_case_close(&c);
}

/* ---- numbers ---- */

static void test_divergence_names_rows(void **state) {
    (void)state;
    struct train_case c;
    struct ax_train_result r;
    open_case(&c, AX_F32, true);
    c.o.max_steps = 20;
    c.o.lr = (struct ax_lr_schedule){.kind = AX_LR_CONSTANT, .base_lr = 1e30};
    c.o.step.max_norm = 0;
    assert_int_equal(train_case_run(&c, &r), AX_ERR_DIVERGED);
    expect_error("rows.jsonl:");
    expect_error("first bad gradient: model.");
    assert_true(r.steps <= 5);
    train_case_close(&c);
}

static void test_watchdog(void **state) {
    (void)state;
    struct train_case c;
    struct ax_train_result r;
    open_case(&c, AX_F32, true);
    c.o.max_steps = 9;
    c.o.watchdog = 0.5; /* the loss begins near ln 97 */
    c.o.watchdog_patience = 3;
    assert_int_equal(train_case_run(&c, &r), AX_ERR_DIVERGED);
    expect_error("loss_watchdog_threshold");
    expect_error("rows.jsonl:");
    assert_int_equal(r.steps, 2);
    train_case_close(&c);
}

static void test_nan_in_the_base(void **state) {
    (void)state;
    struct train_case c;
    struct ax_train_result r;
    struct ax_hf hf;
    char path[160];
    open_case(&c, AX_F32, true);
    c.o.max_steps = 1;
    run_ok(&c, &r);
    snprintf(path, sizeof path, "%s/model.safetensors", c.out);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    fseek(f, -4, SEEK_END);
    fwrite("\0\0\xc0\x7f", 1, 4, f);
    fclose(f);
    assert_int_equal(ax_hf_open(&hf, c.out), AX_OK);
    c.o.weights = &hf;
    snprintf(c.out, sizeof c.out, "%s/out2", c.dir);
    assert_int_equal(train_case_run(&c, &r), AX_ERR_DATA);
    expect_error("tensor model.norm.weight, element 47 is nan");
    ax_hf_close(&hf);
    train_case_close(&c);
}

static void test_too_little_memory(void **state) {
    (void)state;
    struct train_case c;
    struct ax_train_result r;
    open_case(&c, AX_F32, false);
    c.o.max_steps = 1;
    c.o.data.rows_per_batch = 1 << 22;
    c.o.data.row_docs = 1;
    c.o.data.drop_last = false;
    c.o.data.eval = NULL;
    assert_int_equal(train_case_run(&c, &r), AX_ERR_NOMEM);
    expect_error("memory: training needs");
    expect_error("Largest:");
    expect_error("micro_batch_size: 2097152");
    expect_error("gradient_checkpointing: true saves");
    train_case_close(&c);
}

/* A save costs the training thread next to nothing. */
static void test_saves_behind_the_steps(void **state) {
    (void)state;
    struct train_case c;
    struct ax_train_result r;
    open_case(&c, AX_F32, true);
    c.o.max_steps = 6;
    c.o.save.when = (struct ax_cadence){AX_EACH_STEPS, 3};
    run_ok(&c, &r);
    assert_true(r.save_waited < r.train_seconds);
    train_case_close(&c);
}

static int quiet(void **state) {
    (void)state;
    ax_log_set_level(AX_LOG_ERROR);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resume_is_bitwise),
        cmocka_unit_test(test_every_optimizer_resumes),
        cmocka_unit_test(test_killed_anywhere),
        cmocka_unit_test(test_resume_of_a_finished_run),
        cmocka_unit_test(test_sigterm_saves_and_requeues),
        cmocka_unit_test(test_stopped_in_an_evaluation),
        cmocka_unit_test(test_folders_of_others),
        cmocka_unit_test(test_torn_and_damaged_checkpoints),
        cmocka_unit_test(test_weights_only_cannot_resume),
        cmocka_unit_test(test_disk_full),
        cmocka_unit_test(test_old_checkpoints_go),
        cmocka_unit_test(test_learns_and_evaluates),
        cmocka_unit_test(test_stops_early),
        cmocka_unit_test(test_divergence_names_rows),
        cmocka_unit_test(test_watchdog),
        cmocka_unit_test(test_nan_in_the_base),
        cmocka_unit_test(test_too_little_memory),
        cmocka_unit_test(test_saves_behind_the_steps),
    };
    return cmocka_run_group_tests(tests, quiet, NULL);
}
