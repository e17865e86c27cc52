/* What a run says of its saves is what is there: each checkpoint has one event "saved", also after a kill
 * and in a run that was resumed, and of a save that failed it says whether the checkpoint is there and
 * whether training goes on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/io.h"
#include "tests/optim/train_runs.h"

enum { EVERY = 2, STEPS = 6 };

static void open_saving(struct train_case *c) {
    open_case(c, AX_F32, true);
    c->o.max_steps = STEPS;
    c->o.save.when = (struct ax_cadence){AX_EACH_STEPS, EVERY};
    c->o.save.resume = AX_RESUME_NEWEST;
}

static bool is_saved(const struct train_case *c, int step) {
    char name[64];
    snprintf(name, sizeof name, "checkpoint-%d/state/manifest.json", step);
    return has(c, name);
}

static bool begins(const char *text, const char *part) {
    return strncmp(text, part, strlen(part)) == 0;
}

/* Events of a kind whose text has this part, from these steps. */
static int events_in(const struct train_case *c, const char *kind, const char *part, int first,
                     int last) {
    char path[160], *text, *rest;
    size_t len;
    int n = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", c->out);
    if (!ax_path_exists(path))
        return 0;
    assert_int_equal(ax_read_file(path, 1 << 20, &text, &len), AX_OK);
    rest = text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        json_t *v = json_loads(line, 0, NULL);
        const char *event = json_string_value(json_object_get(v, "event"));
        const char *said = json_string_value(json_object_get(v, "text"));
        const json_int_t step = json_integer_value(json_object_get(v, "step"));
        n += event && said && strcmp(event, kind) == 0 && strstr(said, part) != NULL &&
             step >= first && step <= last;
        json_decref(v);
    }
    ax_free(text);
    return n;
}

static int events(const struct train_case *c, const char *kind, const char *part) {
    return events_in(c, kind, part, 0, STEPS);
}

static int saved_events(const struct train_case *c, int step) {
    char name[64];
    snprintf(name, sizeof name, "/checkpoint-%d", step);
    return events(c, "saved", name);
}

/* ---- events ---- */

/* Kills the run at this call, and goes on. Returns false if there was none. */
static bool kill_and_go_on(enum ax_fault_op op, int k, int *missing) {
    struct train_case c;
    struct ax_train_result r;
    char fault[64];
    open_saving(&c);
    snprintf(fault, sizeof fault, "%s:%d:kill", ax_fault_op_name(op), k);
    const bool killed = WIFSIGNALED(run_in_child(&c, fault));
    for (int step = EVERY; step <= STEPS; step += EVERY)
        *missing += is_saved(&c, step) && saved_events(&c, step) == 0;
    if (killed) {
        ax_loader_start_epoch(c.loader, 0);
        run_ok(&c, &r);
        for (int step = EVERY; step <= STEPS; step += EVERY)
            if (saved_events(&c, step) != 1)
                fail_msg("%s: %d events that checkpoint-%d is saved", fault, saved_events(&c, step),
                         step);
    }
    train_case_close(&c);
    return killed;
}

static void test_each_save_has_one_event(void **state) {
    (void)state;
    static const enum ax_fault_op ops[] = {AX_FAULT_RENAME, AX_FAULT_FSYNC, AX_FAULT_READ};
    int killed = 0, missing = 0;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        for (int k = 1; kill_and_go_on(ops[i], k, &missing); k++)
            killed++;
    print_message("killed at %d calls, in %d of them after a rename and before its event\n", killed,
                  missing);
    assert_true(killed > 40 && missing > 4);
}

/* A consumer of records that counts the saves it is told of. */
static void count_saves(void *ctx, const char *json, size_t n) {
    int *saves = ctx;
    *saves += memmem(json, n, "\"saved\"", 7) != NULL;
}

static void begin_nothing(void *ctx, int64_t step) {
    (void)ctx;
    (void)step;
}

/* A run that resumes from an older checkpoint removes the records after it, but not that it was saved;
 * who heard of that is not told again. */
static void test_records_that_are_cut(void **state) {
    (void)state;
    struct train_case c;
    struct ax_train_result r;
    char path[160];
    int told = 0;
    open_saving(&c);
    c.o.metrics.sink = (struct ax_metrics_sink){&told, begin_nothing, count_saves};
    run_ok(&c, &r);
    assert_int_equal(told, 3);
    for (int step = 2 * EVERY; step <= STEPS; step += EVERY) {
        snprintf(path, sizeof path, "%s/checkpoint-%d", c.out, step);
        assert_int_equal(ax_remove_tree(path), AX_OK);
    }
    ax_loader_start_epoch(c.loader, 0);
    run_ok(&c, &r);
    assert_int_equal(r.resumed_from, EVERY);
    for (int step = EVERY; step <= STEPS; step += EVERY)
        assert_int_equal(saved_events(&c, step), 1);
    assert_int_equal(told, 3 + 2);
    train_case_close(&c);
}

/* ---- saves that fail ---- */

/* Runs in a child; *code and what the error says. */
static void run_to_end(struct train_case *c, const char *fault, int *code, char *said,
                       size_t size) {
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct ax_train_result r;
        if (ax_fault_configure(fault) != AX_OK)
            _exit(99);
        const enum ax_status st = train_case_run(c, &r);
        const char *text = st == AX_OK ? "" : ax_error_text();
        _exit(write(ends[1], text, strlen(text)) < 0 ? 98 : ax_status_info(st)->exit_code);
    }
    close(ends[1]);
    size_t n = 0;
    for (ssize_t got; (got = read(ends[0], said + n, size - 1 - n)) > 0;)
        n += (size_t)got;
    said[n] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    *code = WEXITSTATUS(status);
}

struct tally {
    int absent, there, ended_absent, ended_there;
};

/* What is said of one save is so. */
static void check_save(const struct train_case *c, const char *fault, int step, int code,
                       const char *error, struct tally *n) {
    char absent[64], there[64];
    snprintf(absent, sizeof absent, "checkpoint-%d was not saved: ", step);
    snprintf(there, sizeof there, "checkpoint-%d was written, but ", step);
    const int said_absent = events(c, "warning", absent), said_there = events(c, "warning", there);
    const bool ended_absent = begins(error, absent), ended_there = begins(error, there);
    /* before the next save, or as it begins */
    assert_int_equal(events_in(c, "warning", absent, step, step + EVERY), said_absent);
    assert_int_equal(events_in(c, "warning", there, step, step + EVERY), said_there);
    if ((said_absent || ended_absent) == is_saved(c, step) && (said_absent || ended_absent))
        fail_msg("%s: \"%s%s\", which is there", fault, absent, error);
    if ((said_there || ended_there) && !is_saved(c, step))
        fail_msg("%s: \"%s%s\", which is not there", fault, there, error);
    if (code == 0 || step < STEPS) /* the step was reached: each save has ended somehow */
        assert_true(saved_events(c, step) + said_absent + said_there <= 1);
    n->absent += said_absent;
    n->there += said_there;
    n->ended_absent += ended_absent;
    n->ended_there += ended_there;
}

static void fail_at_each(enum ax_fault_op op, const char *kind, struct tally *n) {
    struct train_case c;
    struct ax_train_result r;
    char fault[64], error[2048];
    open_saving(&c);
    assert_int_equal(ax_fault_configure(NULL), AX_OK);
    run_ok(&c, &r);
    train_case_close(&c);
    const int calls = (int)ax_fault_count(op);
    for (int k = 1; k <= calls; k++) {
        int code;
        open_saving(&c);
        snprintf(fault, sizeof fault, "%s:%d:%s", ax_fault_op_name(op), k, kind);
        run_to_end(&c, fault, &code, error, sizeof error);
        for (int step = EVERY; step <= STEPS; step += EVERY)
            check_save(&c, fault, step, code, error, n);
        assert_int_equal(events(&c, "warning", "training continues") == 0,
                         events(&c, "warning", "checkpoint-") == 0);
        train_case_close(&c);
    }
}

/* Wherever a save fails, also when it is read again. */
static void test_failed_saves_are_told_as_they_are(void **state) {
    (void)state;
    struct tally n = {0};
    fail_at_each(AX_FAULT_FSYNC, "eio", &n);
    fail_at_each(AX_FAULT_READ, "eio", &n);
    fail_at_each(AX_FAULT_RENAME, "eio", &n);
    print_message("said: %d not saved, %d written; at the end %d and %d\n", n.absent, n.there,
                  n.ended_absent, n.ended_there);
    assert_true(n.absent > 4 && n.there > 1 && n.ended_absent > 2 && n.ended_there > 0);
}

/* Rows to evaluate on, which cannot be read in the evaluation after step 3: the third time, as they are
 * counted and the base is evaluated before. */
static struct ax_example_source eval_source;
static int evaluations;

static enum ax_status chunk_until_step_3(void *ctx, int64_t epoch, int64_t chunk,
                                         struct ax_source_place place, struct ax_corpus *out,
                                         struct ax_source_place *next) {
    if (chunk == 0 && ++evaluations == 3)
        return ax_error(AX_ERR_DATA, "made up");
    return eval_source.chunk(ctx, epoch, chunk, place, out, next);
}

/* A run that ends by another error while a save fails does not say that training continues. */
static void test_save_of_a_run_that_ends(void **state) {
    (void)state;
    struct train_case c;
    char error[2048];
    int code;
    open_saving(&c);
    c.o.eval.when = (struct ax_cadence){AX_EACH_STEPS, 3};
    eval_source = c.eval_doc_source;
    c.eval_doc_source.chunk = chunk_until_step_3;
    evaluations = 0;
    run_to_end(&c, "fsync:1:delay,fsync:2:delay,fsync:3:eio", &code, error, sizeof error);
    assert_int_equal(code, 3);
    assert_string_equal(error, "made up");
    assert_false(is_saved(&c, EVERY));
    assert_int_equal(events(&c, "warning", "checkpoint-2 was not saved: "), 1);
    assert_int_equal(events(&c, "warning", "training continues"), 0);
    train_case_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_save_has_one_event),
        cmocka_unit_test(test_records_that_are_cut),
        cmocka_unit_test(test_failed_saves_are_told_as_they_are),
        cmocka_unit_test(test_save_of_a_run_that_ends),
    };
    return cmocka_run_group_tests(tests, quiet, NULL);
}
