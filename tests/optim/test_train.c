/* The training loop on a tiny model: stopping, evaluating, refusing. That a run which was
 * interrupted equals one in one piece: test_interrupted.c. Saves that fail and what is kept:
 * test_train_saves.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/mem.h"
#include "optim/losses/preference.h"
#include "optim/plan/peak.h"
#include "optim/train/run.h"
#include "tests/optim/train_runs.h"

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

static void test_resume_of_a_finished_run(void **state) {
    (void)state;
    struct train_case c;
    struct ax_train_result r;
    const double start = ax_clock_now();
    open_case(&c, AX_F32, true);
    c.o.max_steps = 3;
    c.o.save.when = (struct ax_cadence){AX_EACH_STEPS, 3};
    c.o.save.resume = AX_RESUME_NEWEST;
    run_ok(&c, &r);
    assert_true(r.train_seconds > 0 && r.train_seconds < ax_clock_now() - start);
    const struct outcome once = outcome(&c, 3);
    run_ok(&c, &r);
    assert_int_equal(r.resumed_from, 3);
    assert_same(outcome(&c, 3), once);
    train_case_close(&c);
}

/* What a run says of itself besides its steps, as "event@step …": of one from the start, with an
 * evaluation and without, and of one that goes on, likewise. */
static void events_of(const struct train_case *c, char *out, size_t size) {
    char path[192], *text, *rest;
    size_t n, at = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", c->out);
    assert_int_equal(ax_read_file(path, 1 << 20, &text, &n), AX_OK);
    rest = text;
    *out = '\0';
    for (const char *line; (line = strsep(&rest, "\n")) != NULL;) {
        const char *event = strstr(line, "\"event\": \"");
        if (!event)
            continue;
        event += strlen("\"event\": \"");
        at += (size_t)snprintf(out + at, size - at, "%s%.*s@%ld", at ? " " : "",
                               (int)strcspn(event, "\""), event,
                               strtol(line + strlen("{\"step\": "), NULL, 10));
    }
    ax_free(text);
}

static void test_events_of_a_run(void **state) {
    (void)state;
    for (int evaluates = 0; evaluates < 2; evaluates++) {
        struct train_case c;
        struct ax_train_result r;
        char got[256];
        open_case(&c, AX_F32, true);
        if (evaluates)
            c.o.eval.when = (struct ax_cadence){AX_EACH_STEPS, 2};
        c.o.max_steps = 2;
        c.o.save.when = (struct ax_cadence){AX_EACH_STEPS, 2};
        c.o.save.resume = AX_RESUME_NEWEST;
        run_ok(&c, &r);
        assert_int_equal(r.evaluated, evaluates);
        events_of(&c, got, sizeof got);
        assert_string_equal(got, "started@0 saved@2 finished@2");
        c.o.max_steps = 4;
        run_ok(&c, &r);
        events_of(&c, got, sizeof got);
        assert_string_equal(got, "started@0 saved@2 finished@2 started@2 resumed@2 saved@4 "
                                 "finished@4");
        train_case_close(&c);
    }
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
    bool done = false;
    for (; !done && runs < 60; runs++) {
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
    if (!done) /* a busy machine may take longer to listen than the last signals wait */
        assert_int_equal(run_in_child(&c, NULL), 0);
    assert_same(outcome(&c, 20), outcome(&whole, 20));
    train_case_close(&c);
    train_case_close(&whole);
}

static bool is_base_model(const char *key) {
    return strcmp(key, "base_model") == 0;
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
    expect_error("contains the checkpoints of another run (newest: checkpoint-2)");
    c.o.save.resume = AX_RESUME_NEWEST;
    c.o.is_fixed = is_base_model;
    json_object_set_new(c.config, "base_model", json_string("another"));
    assert_int_equal(train_case_run(&c, &r), AX_ERR_CONFIG);
    expect_error("base_model was \"tiny\"");
    train_case_close(&c);
}

/* As if the run had been killed before its end: a finished one is left alone. */
static void unpublish(const struct train_case *c) {
    char path[256];
    snprintf(path, sizeof path, "%s/config.json", c->out);
    assert_int_equal(ax_unlink(path), AX_OK);
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
    unpublish(&c);
    /* a torn checkpoint, which is skipped */
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
    expect_error("checkpoint-4/model.safetensors: corrupted between bytes 0 and");
    c.o.save.resume = AX_RESUME_NEWEST_GOOD;
    run_ok(&c, &r);
    assert_int_equal(r.resumed_from, 2);
    assert_same(outcome(&c, 4), straight);
    /* none is intact, and there is no model: not from the beginning in silence */
    unpublish(&c);
    snprintf(path, sizeof path, "%s/model.safetensors", c.out);
    assert_int_equal(ax_unlink(path), AX_OK);
    for (int step = 2; step <= 4; step += 2) {
        snprintf(path, sizeof path, "%s/checkpoint-%d/model.safetensors", c.out, step);
        assert_int_equal(truncate(path, 5000), 0);
    }
    assert_int_equal(train_case_run(&c, &r), AX_ERR_DATA);
    expect_error("is intact (2 damaged); delete the folder to train from the beginning");
    assert_true(has(&c, "checkpoint-4/model.safetensors"));
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
    unpublish(&c);
    assert_int_equal(train_case_run(&c, &r), AX_ERR_DATA);
    expect_error("only weights (save_only_model)");
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

/* A pair is one record: it is named once, whatever its two answers' losses. */
static void test_divergence_names_pairs(void **state) {
    (void)state;
    struct train_case c;
    struct ax_train_result r;
    struct ax_preference preference;
    const struct ax_preference_options o = {.beta = 0.1, .weight = {[AX_PREFER_SIGMOID] = 1}};
    const struct ax_objective dpo = ax_objective_preference(&preference, "dpo", &o);
    if (train_case_open_for(&c, AX_F32, false, &dpo) != AX_OK)
        fail_msg("%s", ax_error_text());
    c.o.max_steps = 20;
    c.o.lr = (struct ax_lr_schedule){.kind = AX_LR_CONSTANT, .base_lr = 1e30};
    c.o.step.max_norm = 0;
    assert_int_equal(train_case_run(&c, &r), AX_ERR_DIVERGED);
    int lines[4], n = 0;
    for (const char *at = ax_error_text(); (at = strstr(at, "rows.jsonl:")) != NULL && n < 4; n++)
        lines[n] = atoi(at += strlen("rows.jsonl:"));
    assert_int_equal(n, 4); /* the step's pairs, and no more */
    assert_null(strstr(ax_error_text(), " more"));
    for (int i = 1; i < n; i++)
        for (int k = 0; k < i; k++)
            assert_int_not_equal(lines[i], lines[k]);
    train_case_close(&c);
}

/* One or two steps that are not finite do not end a run; at its end, they are reported. */
static void test_bad_steps_at_the_end(void **state) {
    (void)state;
    struct train_case c;
    int bad[8] = {0};
    open_case(&c, AX_F32, true);
    c.o.lr = (struct ax_lr_schedule){.kind = AX_LR_CONSTANT, .base_lr = 1e30};
    c.o.step.max_norm = 0;
    for (int steps = 1; steps < 8; steps++) {
        struct ax_train_result r;
        c.o.max_steps = steps;
        snprintf(c.out, sizeof c.out, "%s/out%d", c.dir, steps);
        if (train_case_run(&c, &r) != AX_OK)
            break;
        assert_true(isfinite(r.loss));
        bad[steps] = train_case_tells(&c, "the run ends with 1 skipped step, ")    ? 1
                     : train_case_tells(&c, "the run ends with 2 skipped steps, ") ? 2
                                                                                   : 0;
        assert_int_equal(train_case_tells(&c, "the last finite loss is "), bad[steps] > 0);
        if (bad[steps] > 0)
            assert_int_equal(bad[steps], bad[steps - 1] + 1);
    }
    assert_true(bad[1] == 0);
    assert_true(memchr(bad, 1, sizeof bad) && memchr(bad, 2, sizeof bad));
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

/* In place of the last number of the file, which is F32. */
static void put_last(const char *folder, const char *name, const char number[4]) {
    char path[192];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    fseek(f, -4, SEEK_END);
    fwrite(number, 1, 4, f);
    fclose(f);
}

static const char nan_bytes[4] = {0, 0, (char)0xc0, 0x7f};

static void test_nan_in_the_base(void **state) {
    (void)state;
    struct train_case c;
    struct ax_train_result r;
    struct ax_hf hf;
    open_case(&c, AX_F32, true);
    c.o.max_steps = 1;
    run_ok(&c, &r);
    put_last(c.out, "model.safetensors", nan_bytes);
    assert_int_equal(ax_hf_open(&hf, c.out), AX_OK);
    c.o.weights = &hf;
    snprintf(c.out, sizeof c.out, "%s/out2", c.dir);
    assert_int_equal(train_case_run(&c, &r), AX_ERR_DATA);
    expect_error("tensor model.norm.weight: element 47 is nan");
    ax_hf_close(&hf);
    train_case_close(&c);
}

/* A run of an adapter reads the base, another adapter or a checkpoint: the folder that is named is the tensor's. */
static void test_nan_beside_an_adapter(void **state) {
    (void)state;
    static const struct ax_peft_config lora = {.r = 3, .alpha = 6, .all_linear = true};
    struct train_case c;
    struct ax_train_result r;
    struct ax_peft peft;
    struct ax_hf hf;
    char base[112], named[160];
    setenv("AXTRAIN_NONFINITE", "allow", 1); /* files are read, but not trained */
    open_case(&c, AX_F32, true);
    c.o.max_steps = 1;
    run_ok(&c, &r);
    snprintf(base, sizeof base, "%s", c.out);
    assert_int_equal(ax_hf_open(&hf, base), AX_OK);
    c.o.weights = &hf;
    c.o.step.model.adapter = &lora;
    c.o.save.when = (struct ax_cadence){AX_EACH_STEPS, 1};
    snprintf(c.out, sizeof c.out, "%s/adapter", c.dir);
    run_ok(&c, &r);
    put_last(c.out, "adapter_model.safetensors", nan_bytes);
    assert_int_equal(ax_peft_open(&peft, c.out), AX_OK);
    snprintf(named, sizeof named, "%s: tensor ", c.out);
    c.o.start = &peft;
    snprintf(c.out, sizeof c.out, "%s/out2", c.dir);
    assert_int_equal(train_case_run(&c, &r), AX_ERR_DATA);
    expect_error(named);
    expect_error("is nan");
    ax_peft_close(&peft);
    c.o.start = NULL;
    ax_hf_close(&hf);
    put_last(base, "model.safetensors", nan_bytes);
    assert_int_equal(ax_hf_open(&hf, base), AX_OK);
    c.o.save.resume = AX_RESUME_NEWEST;
    c.o.max_steps = 2;
    snprintf(c.out, sizeof c.out, "%s/adapter", c.dir);
    assert_int_equal(train_case_run(&c, &r), AX_ERR_CONFIG);
    expect_error("are others than in the run that wrote");
    setenv("AXTRAIN_BASE", "any", 1);
    snprintf(named, sizeof named, "%s: tensor model.norm.weight: element 47 is nan", base);
    assert_int_equal(train_case_run(&c, &r), AX_ERR_DATA);
    expect_error(named);
    unsetenv("AXTRAIN_BASE");
    unsetenv("AXTRAIN_NONFINITE");
    ax_hf_close(&hf);
    train_case_close(&c);
}

static double limit_asked;

static enum ax_status no_room(const struct ax_runtime_options *o, double limit,
                              struct ax_peak *peak) {
    (void)o;
    limit_asked = limit;
    peak->flops = 1; /* half measured */
    return ax_error(AX_ERR_NOMEM, "no room for a product");
}

/* What only utilization needs is not a reason to stop, and takes a small share of the run. */
static void test_no_memory_for_the_peak(void **state) {
    (void)state;
    struct train_case c;
    struct ax_train_result r;
    char got[256];
    open_case(&c, AX_F32, true);
    c.o.max_steps = 2;
    c.o.measure_peak = no_room;
    run_ok(&c, &r);
    assert_true(limit_asked > 0 && limit_asked < AX_PEAK_SECONDS);
    events_of(&c, got, sizeof got);
    assert_null(strstr(got, "peak"));
    train_case_close(&c);
}

static void test_too_little_memory(void **state) {
    (void)state;
    struct train_case c;
    struct ax_train_result r;
    open_case(&c, AX_F32, false);
    c.o.max_steps = 1;
    c.o.data.sequences_per_batch = 1 << 22;
    c.o.data.sequence_docs = 1;
    c.o.data.drop_last = false;
    c.o.data.eval = NULL;
    assert_int_equal(train_case_run(&c, &r), AX_ERR_NOMEM);
    expect_error("memory: training needs");
    expect_error("Largest:");
    expect_error("micro_batch_size: 2097152");
    expect_error("gradient_checkpointing: true saves");
    train_case_close(&c);
}

/* A plan has no text: one of more than any host has room for is a plan, too. */
static void test_plan_of_a_huge_evaluation(void **state) {
    (void)state;
    struct train_case c;
    struct ax_train_fit fit;
    open_case(&c, AX_F32, false);
    c.o.data.eval_tokens = (int64_t)1 << 44;
    struct ax_step_options so = ax_train_step_options(&c.o);
    if (ax_train_fit(&c.o, &so, &fit) != AX_OK)
        fail_msg("%s", ax_error_text());
    assert_false(fit.fits);
    train_case_close(&c);
}

/* A prompt is not shared by what counts or draws each of its tokens, which would be once in place of twice. */
static void test_pairs_share_prompts(void **state) {
    (void)state;
    struct train_case c;
    open_case(&c, AX_F32, false);
    const struct ax_objective pairs = {.name = "pairs", .per = AX_PER_PAIR};
    c.o.step.objective = &pairs;
    assert_int_equal(ax_train_step_options(&c.o).alike, 2);
    double *const forbid[] = {&c.o.step.balance_coef, &c.o.step.sequence_coef,
                              &c.o.step.router_bias_speed, &c.o.step.neftune_alpha};
    for (size_t i = 0; i < sizeof forbid / sizeof *forbid; i++) {
        *forbid[i] = 0.5;
        assert_int_equal(ax_train_step_options(&c.o).alike, 0);
        *forbid[i] = 0;
    }
    c.o.runtime.sizes.cp = 2;
    assert_int_equal(ax_train_step_options(&c.o).alike, 0);
    train_case_close(&c);
}

/* What the advice promises to save is what a run with that change needs less. */
static uint64_t bytes_needed(const struct ax_train_options *o) {
    struct ax_step_options so = ax_train_step_options(o);
    struct ax_train_fit fit;
    assert_int_equal(ax_train_fit(o, &so, &fit), AX_OK);
    assert_false(fit.fits);
    return fit.arena;
}

static void test_advice_saves_what_it_says(void **state) {
    (void)state;
    struct train_case c;
    int seen[5] = {0};
    for (int longer = 0; longer < 2; longer++) {
        open_case(&c, AX_F32, false);
        c.o.recompute_auto = false;
        c.o.step.recompute = longer ? AX_RECOMPUTE_ON : AX_RECOMPUTE_SELECTIVE;
        c.o.data.sequence_docs = 1;
        c.o.data.sequences_per_batch = longer ? 1 : 1 << 14;
        c.o.data.sequence_tokens = c.o.data.doc_tokens = longer ? 1 << 27 : 1 << 12;
        c.o.data.eval_tokens = c.o.data.sequence_tokens * c.o.data.sequences_per_batch;
        struct ax_step_options so = ax_train_step_options(&c.o);
        const uint64_t before = bytes_needed(&c.o);
        assert_int_equal(
            ax_train_choose_memory(&(struct ax_train){.o = &c.o, .runtime = c.o.runtime}, &so),
            AX_ERR_NOMEM);
        char *text = strdup(ax_error_text());
        const char *at = strstr(text, "What would help: ");
        uint64_t last = UINT64_MAX;
        assert_non_null(at);
        for (at += strlen("What would help: "); at; at = strstr(at, "; ")) {
            struct ax_train_options o = c.o;
            char want[64], size[32];
            at += 2 * (*at == ';');
            if (strncmp(at, "gradient_checkpointing: true ", 29) == 0) {
                o.step.recompute = AX_RECOMPUTE_ON;
                seen[0]++;
            } else if (strncmp(at, "micro_batch_size: 8192, twice ", 30) == 0) {
                o.data.sequences_per_batch /= 2;
                o.data.eval_tokens /= 2;
                seen[1]++;
            } else if (strncmp(at, "sequence_len: ", 14) == 0) {
                assert_int_equal(atoll(at + 14), c.o.data.sequence_tokens / 2);
                o.data.sequence_tokens /= 2;
                o.data.doc_tokens /= 2;
                o.data.eval_tokens /= 2;
                seen[2]++;
            } else if (strncmp(at, "bf16: true ", 11) == 0) {
                o.step.model.dtype = AX_BF16;
                seen[3]++;
            } else {
                assert_int_equal(strncmp(at, "optimizer: sgd ", 15), 0);
                o.step.optimizer = &ax_optimizer_sgd;
                seen[4]++;
            }
            const uint64_t saves = before - bytes_needed(&o);
            snprintf(want, sizeof want, " saves %s",
                     ax_format_bytes(size, sizeof size, (double)saves));
            assert_ptr_equal(strstr(at, " saves "), strstr(at, want));
            assert_true(saves <= last);
            last = saves;
        }
        free(text);
        train_case_close(&c);
    }
    for (int i = 0; i < 5; i++)
        assert_true(seen[i] > 0);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resume_of_a_finished_run),
        cmocka_unit_test(test_events_of_a_run),
        cmocka_unit_test(test_sigterm_saves_and_requeues),
        cmocka_unit_test(test_folders_of_others),
        cmocka_unit_test(test_torn_and_damaged_checkpoints),
        cmocka_unit_test(test_weights_only_cannot_resume),
        cmocka_unit_test(test_learns_and_evaluates),
        cmocka_unit_test(test_stops_early),
        cmocka_unit_test(test_divergence_names_rows),
        cmocka_unit_test(test_divergence_names_pairs),
        cmocka_unit_test(test_pairs_share_prompts),
        cmocka_unit_test(test_watchdog),
        cmocka_unit_test(test_nan_in_the_base),
        cmocka_unit_test(test_nan_beside_an_adapter),
        cmocka_unit_test(test_bad_steps_at_the_end),
        cmocka_unit_test(test_no_memory_for_the_peak),
        cmocka_unit_test(test_too_little_memory),
        cmocka_unit_test(test_plan_of_a_huge_evaluation),
        cmocka_unit_test(test_advice_saves_what_it_says),
        cmocka_unit_test(test_saves_behind_the_steps),
    };
    return cmocka_run_group_tests(tests, quiet, NULL);
}
