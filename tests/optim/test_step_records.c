/* What metrics.jsonl says of each step of a run: its times are parts of the run's, its tokens and its epoch those of the
 * documents, its learning rate the schedule's; on a device whose results come a step late, too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/mem.h"
#include "tests/optim/train_runs.h"

#define EACH   4  /* documents of a step */
#define STEPS  23 /* of an epoch of 90 of them */
#define WARMUP 3

static double number(const json_t *v, const char *key) {
    const json_t *n = json_object_get(v, key);
    if (!json_is_number(n))
        fail_msg("no number %s", key);
    return json_number_value(n);
}

/* Half a period of a cosine after a rise from 0. */
static double rate_at(int step) {
    if (step < WARMUP)
        return 1e-2 * step / WARMUP;
    return 1e-2 * (1 + cos(3.14159265358979323846 * (step - WARMUP) / (STEPS - WARMUP))) / 2;
}

/* Of a device that works late, phases go on after the host's step. */
static void check_times(const json_t *record, bool late, double *sum) {
    static const char *const names[] = {"data", "forward", "backward", "optimizer", "save"};
    const json_t *phases = json_object_get(record, "phase_seconds");
    const double seconds = number(record, "seconds");
    double parts = 0;
    size_t i = 0;
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)phases, key, v) {
        assert_true(i < sizeof names / sizeof *names);
        assert_string_equal(key, names[i++]);
        assert_true(json_number_value(v) >= 0);
        parts += json_number_value(v);
    }
    assert_int_equal(i, sizeof names / sizeof *names);
    assert_true(number(phases, "forward") > 0 && number(phases, "backward") > 0);
    assert_true(number(phases, "data") > 0 && number(phases, "optimizer") > 0);
    assert_true(seconds > 0 && (late || parts <= seconds * 1.001));
    assert_true(fabs(number(record, "tokens_per_second") * seconds / number(record, "tokens") - 1) <
                1e-3);
    *sum += seconds;
}

static json_t *next_record(char **rest) {
    for (char *line; (line = strsep(rest, "\n")) != NULL && *line;) {
        json_t *v = json_loads(line, 0, NULL);
        assert_non_null(v);
        if (json_object_get(v, "loss") && !json_object_get(v, "event"))
            return v;
        json_decref(v);
    }
    return NULL;
}

/* Of a document, what is trained on; nothing says its first token. */
static int trained_of(const struct ax_examples *docs, size_t i) {
    const uint32_t *words = ax_examples_words(docs, i);
    int n = 0;
    for (uint32_t k = 1; k < docs->list[i].n; k++)
        n += (words[k] & AX_WORD_TRAINED) != 0;
    return n;
}

/* An epoch's steps have its documents' tokens, each once. */
static void check_run(const char *backend, bool late) {
    struct train_case c;
    struct ax_train_result r;
    char path[160], *text, *rest;
    size_t n;
    double seconds = 0, tokens = 0, trained = 0, least[3] = {1, 1, 1};
    static const char *const devices[] = {"forward", "backward", "optimizer"};
    int steps = 0;
    open_case(&c, AX_F32, false);
    c.o.runtime.backend = backend;
    c.o.epochs = 1;
    c.o.warmup = WARMUP;
    assert_int_equal((c.docs.n + EACH - 1) / EACH, STEPS);
    const double begin = ax_clock_now();
    run_ok(&c, &r);
    const double took = ax_clock_now() - begin;
    snprintf(path, sizeof path, "%s/metrics.jsonl", c.out);
    assert_int_equal(ax_read_file(path, 1 << 24, &text, &n), AX_OK);
    rest = text;
    for (json_t *v; (v = next_record(&rest)) != NULL; json_decref(v)) {
        assert_int_equal(number(v, "step"), ++steps);
        check_times(v, late, &seconds);
        for (int k = 0; k < 3; k++)
            least[k] = fmin(least[k], number(json_object_get(v, "phase_seconds"), devices[k]));
        const double rate = number(v, "learning_rate"), want = rate_at(steps - 1);
        if (!(fabs(rate - want) <= 1e-5 * want))
            fail_msg("step %d: a rate of %g, expected %g", steps, rate, want);
        const double docs = fmin(EACH * steps, (double)c.docs.n);
        assert_true(fabs(number(v, "epoch") - docs / (double)c.docs.n) < 1e-5);
        assert_true(isfinite(number(v, "loss")) && number(v, "grad_norm") > 0);
        tokens += number(v, "tokens");
        trained += number(v, "trained_tokens");
    }
    assert_int_equal(steps, STEPS);
    for (size_t i = 0; i < c.docs.n; i++) {
        tokens -= c.docs.list[i].n;
        trained -= trained_of(&c.docs, i);
    }
    assert_true(tokens == 0 && trained == 0);
    assert_true(seconds <= took);
    assert_true(least[0] < 2 * least[1]); /* which has twice as many products */
    ax_free(text);
    train_case_close(&c);
}

static void test_records(void **state) {
    (void)state;
    check_run("cpu", false);
    check_run("far", true);
}

/* A checkpoint has the sums of all steps, those before a stop too. */
static void test_sums(void **state) {
    (void)state;
    struct train_case c;
    struct ax_train_result r;
    char path[160], *text, *rest;
    size_t n;
    double tokens = 0, trained = 0, epoch = 0;
    open_case(&c, AX_F32, true);
    c.o.save.when = (struct ax_cadence){AX_EACH_STEPS, 3};
    c.o.save.resume = AX_RESUME_NEWEST;
    for (int steps = 3; steps <= 6; steps += 3) {
        c.o.max_steps = steps;
        run_ok(&c, &r);
    }
    snprintf(path, sizeof path, "%s/metrics.jsonl", c.out);
    assert_int_equal(ax_read_file(path, 1 << 24, &text, &n), AX_OK);
    rest = text;
    for (json_t *v; (v = next_record(&rest)) != NULL; json_decref(v)) {
        tokens += number(v, "tokens");
        trained += number(v, "trained_tokens");
        epoch = number(v, "epoch");
    }
    ax_free(text);
    snprintf(path, sizeof path, "%s/checkpoint-6/state/manifest.json", c.out);
    json_t *manifest = json_load_file(path, 0, NULL), *run = json_object_get(manifest, "run");
    assert_true(number(run, "tokens") == tokens && number(run, "trained_tokens") == trained);
    assert_true(number(run, "step") == 6 && number(run, "updates") == 6);
    assert_true(fabs(number(run, "epoch") - epoch) < 1e-5);
    json_decref(manifest);
    train_case_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_records), cmocka_unit_test(test_sums)};
    return cmocka_run_group_tests(tests, quiet, NULL);
}
