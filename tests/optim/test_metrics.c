/* What a run reports: records, cut back on resume, whatever the disk does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/json.h"
#include "base/log.h"
#include "optim/metrics.h"
#include "optim/tfevents.h"

static char dir[64];

static int make_dir(void **state) {
    (void)state;
    ax_log_set_level(AX_LOG_ERROR); /* the warnings asked for below */
    strcpy(dir, "/tmp/axtrain-metrics-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state) {
    (void)state;
    ax_log_set_level(AX_LOG_INFO);
    return ax_remove_tree(dir) == AX_OK ? 0 : -1;
}

static struct ax_metrics *open_metrics(int64_t resume_step) {
    struct ax_metrics *m = NULL;
    const struct ax_metrics_options o = {.total_steps = 10,
                                         .logging_steps = 2,
                                         .resume_step = resume_step,
                                         .flops_per_token = 1e9,
                                         .peak_flops = 1e12,
                                         .devices = 1,
                                         .tensorboard = true};
    if (ax_metrics_open(&m, dir, &o) != AX_OK)
        fail_msg("%s", ax_error_text());
    return m;
}

static struct ax_step_figures figures(int64_t step) {
    return (struct ax_step_figures){.step = step,
                                    .epoch = 0.1 * (double)step,
                                    .loss = 1.0 / (double)step,
                                    .grad_norm = 2,
                                    .learning_rate = 1e-4,
                                    .tokens = 100,
                                    .trained_tokens = 40,
                                    .seconds = 0.5,
                                    .memory = 1 << 20,
                                    .peak_memory = 2 << 20,
                                    .n_phases = 2,
                                    .phases = {{"forward", 0.2}, {"backward", 0.3}}};
}

static void run_steps(struct ax_metrics *m, int64_t first, int64_t last) {
    for (int64_t s = first; s <= last; s++) {
        const struct ax_step_figures f = figures(s);
        ax_metrics_step(m, &f);
    }
}

static char *read_text(const char *name, size_t *n) {
    char path[128], *text;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (ax_read_file(path, 1 << 20, &text, n) != AX_OK)
        fail_msg("%s", ax_error_text());
    return text;
}

static int lines_of(const char *name) {
    size_t n;
    int lines = 0;
    char *text = read_text(name, &n);
    for (size_t i = 0; i < n; i++)
        lines += text[i] == '\n';
    assert_true(n == 0 || text[n - 1] == '\n');
    ax_free(text);
    return lines;
}

/* Calls `see` for each line, parsed. */
static int each_record(void (*see)(const json_t *v, void *ctx), void *ctx) {
    size_t n;
    char *text = read_text("metrics.jsonl", &n);
    int count = 0;
    for (char *line = text; *line; count++) {
        char *end = strchr(line, '\n');
        assert_non_null(end);
        json_t *v = json_loadb(line, (size_t)(end - line), 0, NULL);
        assert_non_null(v);
        see(v, ctx);
        json_decref(v);
        line = end + 1;
    }
    ax_free(text);
    return count;
}

/* ---- records ---- */

static double number(const json_t *v, const char *key) {
    const json_t *n = json_object_get(v, key);
    if (!json_is_number(n))
        fail_msg("no number \"%s\"", key);
    return json_number_value(n);
}

static void assert_near(double got, double want) {
    if (!(fabs(got - want) <= 1e-9 * (1 + fabs(want))))
        fail_msg("%.17g, expected %.17g", got, want);
}

struct seen {
    int steps, evals, events;
};

static void see_record(const json_t *v, void *ctx) {
    struct seen *s = ctx;
    if (json_object_get(v, "event")) {
        s->events++;
        assert_string_equal(json_string_value(json_object_get(v, "event")), "saved");
        assert_string_equal(json_string_value(json_object_get(v, "text")), "a \"folder\"\n7 %");
    } else if (json_object_get(v, "eval_loss")) {
        s->evals++;
        assert_near(number(v, "eval_accuracy"), 0.25);
    } else {
        const double step = number(v, "step");
        assert_int_equal((int)step, ++s->steps);
        assert_near(number(v, "loss"), 1 / step);
        assert_near(number(v, "epoch"), 0.1 * step);
        assert_near(number(v, "tokens_per_second"), 200);
        assert_near(number(v, "mfu"), 0.2); /* 1e9 · 200 / 1e12 */
        assert_near(number(v, "trained_tokens"), 40);
        assert_near(number(json_object_get(v, "phase_seconds"), "backward"), 0.3);
    }
}

static void records(void **state) {
    (void)state;
    struct ax_metrics *m = open_metrics(0);
    run_steps(m, 1, 4);
    ax_metrics_eval(m, 4, 0.4,
                    &(struct ax_eval_result){.loss = 2, .perplexity = exp(2), .accuracy = 0.25});
    ax_metrics_event(m, AX_EVENT_SAVED, 4, "a \"%s\"\n7 %%", "folder");
    ax_metrics_doing(m, "evaluating", 1, 2);
    run_steps(m, 5, 5);
    ax_metrics_close(m);
    struct seen s = {0};
    assert_int_equal(each_record(see_record, &s), 7);
    assert_int_equal(s.steps, 5);
    assert_int_equal(s.evals, 1);
    assert_int_equal(s.events, 1);
    assert_int_equal(lines_of("metrics.csv"), 6);
}

static void see_nothing_finite(const json_t *v, void *ctx) {
    (void)ctx;
    assert_true(json_is_null(json_object_get(v, "loss")));
    assert_true(json_is_null(json_object_get(v, "grad_norm")));
    assert_true(json_is_true(json_object_get(v, "skipped")));
}

static void numbers_that_are_none(void **state) {
    (void)state;
    struct ax_metrics *m = open_metrics(0);
    struct ax_step_figures f = figures(1);
    f.loss = NAN;
    f.grad_norm = INFINITY;
    f.skipped = true;
    ax_metrics_step(m, &f);
    ax_metrics_close(m);
    assert_int_equal(each_record(see_nothing_finite, NULL), 1);
}

/* Ranks that report nothing hold NULL. */
static void nobody_listens(void **state) {
    (void)state;
    const struct ax_step_figures f = figures(1);
    const struct ax_eval_result r = {0};
    ax_metrics_step(NULL, &f);
    ax_metrics_eval(NULL, 1, 0, &r);
    ax_metrics_event(NULL, AX_EVENT_SAVED, 1, "x");
    ax_metrics_doing(NULL, "x", 0, 0);
    ax_metrics_set_peak(NULL, 1);
    ax_metrics_close(NULL);
}

/* ---- event files ---- */

struct event {
    int64_t step;
    size_t len;
};

/* The events of one file, checksums verified; returns their number. */
static int read_events(const char *name, struct event *out, int cap) {
    char path[400];
    struct ax_mapping map;
    int n = 0;
    snprintf(path, sizeof path, "%s/runs/%s", dir, name);
    assert_int_equal(ax_map_file(&map, path), AX_OK);
    for (size_t at = 0; at < map.len;) {
        uint64_t len;
        uint32_t crc;
        assert_true(map.len - at > 16);
        memcpy(&len, map.data + at, 8);
        memcpy(&crc, map.data + at + 8, 4);
        uint32_t want = ax_crc32c(0, map.data + at, 8);
        assert_int_equal(crc, (want >> 15 | want << 17) + 0xa282ead8U);
        assert_true(len < map.len - at - 12);
        const unsigned char *event = map.data + at + 12;
        memcpy(&crc, event + len, 4);
        want = ax_crc32c(0, event, len);
        assert_int_equal(crc, (want >> 15 | want << 17) + 0xa282ead8U);
        assert_true(n < cap);
        out[n++] = (struct event){event[9] == 0x10 ? event[10] : 0, len}; /* steps below 128 */
        at += 16 + len;
    }
    ax_unmap_file(&map);
    return n;
}

static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_events(const struct dirent *e) {
    return strncmp(e->d_name, "events.out.tfevents.", 20) == 0;
}

/* Steps of all events of all files in the order of their names, but the version records. */
static int event_steps(int64_t *steps, int cap) {
    char path[128];
    struct dirent **names;
    int total = 0;
    snprintf(path, sizeof path, "%s/runs", dir);
    const int files = scandir(path, &names, is_events, by_name);
    assert_true(files >= 0);
    for (int i = 0; i < files; i++) {
        struct event e[32];
        const int n = read_events(names[i]->d_name, e, 32);
        assert_true(n >= 1 && e[0].step == 0);
        for (int k = 1; k < n; k++) {
            assert_true(total < cap);
            steps[total++] = e[k].step;
        }
        free(names[i]);
    }
    free(names);
    return total;
}

static void event_files(void **state) {
    (void)state;
    int64_t steps[16];
    struct ax_metrics *m = open_metrics(0);
    run_steps(m, 1, 5);
    ax_metrics_eval(m, 5, 0.5, &(struct ax_eval_result){.loss = 2});
    ax_metrics_close(m);
    assert_int_equal(event_steps(steps, 16), 3); /* steps 2 and 4, and the evaluation */
    assert_int_equal(steps[0], 2);
    assert_int_equal(steps[1], 4);
    assert_int_equal(steps[2], 5);
}

/* ---- resume ---- */

static void last_step(const json_t *v, void *ctx) {
    const int64_t step = (int64_t)number(v, "step");
    assert_true(step >= *(int64_t *)ctx && step <= *(int64_t *)ctx + 1);
    *(int64_t *)ctx = step;
}

/* A run that went to step 7, resumed at 4: nothing is there twice, nothing is missing. */
static void cut_back(void **state) {
    (void)state;
    int64_t steps[16], last = 0;
    struct ax_metrics *m = open_metrics(0);
    run_steps(m, 1, 7);
    ax_metrics_close(m);
    m = open_metrics(4);
    run_steps(m, 5, 8);
    ax_metrics_close(m);
    assert_int_equal(each_record(last_step, &last), 8);
    assert_int_equal(last, 8);
    assert_int_equal(lines_of("metrics.csv"), 9);
    assert_int_equal(event_steps(steps, 16), 5); /* 2, 4; start at 5; 6, 8 */
    assert_int_equal(steps[1], 4);
    assert_int_equal(steps[2], 5);
    assert_int_equal(steps[4], 8);
    m = open_metrics(0); /* anew */
    ax_metrics_close(m);
    assert_int_equal(lines_of("metrics.jsonl"), 0);
    assert_int_equal(lines_of("metrics.csv"), 1);
    assert_int_equal(event_steps(steps, 16), 0);
}

/* Files end anywhere when a machine does: every cut resumes with the whole records before it.
 */
static void torn_files(void **state) {
    (void)state;
    size_t n, whole;
    char path[128];
    struct ax_metrics *m = open_metrics(0);
    run_steps(m, 1, 2);
    ax_metrics_close(m);
    char *text = read_text("metrics.jsonl", &n);
    const size_t first = (size_t)(strchr(text, '\n') - text) + 1;
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    for (size_t cut = 0; cut <= n; cut++) {
        assert_int_equal(ax_write_file_atomic(path, text, cut), AX_OK);
        m = open_metrics(5);
        ax_metrics_close(m);
        ax_free(read_text("metrics.jsonl", &whole));
        assert_int_equal(whole, cut < first ? 0 : cut < n ? first : n);
    }
    ax_free(text);
}

static void torn_event_files(void **state) {
    (void)state;
    char path[256], runs[128];
    struct ax_tfevents t;
    size_t n;
    snprintf(runs, sizeof runs, "%s/runs", dir);
    assert_int_equal(ax_tfevents_open(&t, runs, 0), AX_OK);
    for (int64_t s = 1; s <= 3; s++)
        ax_tfevents_write(&t, s, 1, &(struct ax_tf_scalar){"train/loss", 1});
    ax_tfevents_close(&t);
    struct dirent **names;
    assert_int_equal(scandir(runs, &names, is_events, by_name), 1);
    snprintf(path, sizeof path, "runs/%.80s", names[0]->d_name);
    char *bytes = read_text(path, &n);
    snprintf(path, sizeof path, "%s/%.80s", runs, names[0]->d_name);
    int64_t steps[8];
    int last = -1;
    for (size_t cut = 0; cut <= n; cut++) {
        assert_int_equal(ax_remove_tree(runs), AX_OK);
        assert_int_equal(ax_mkdir_parents(runs), AX_OK);
        assert_int_equal(ax_write_file_atomic(path, bytes, cut), AX_OK);
        assert_int_equal(ax_tfevents_open(&t, runs, 5), AX_OK);
        ax_tfevents_close(&t);
        const int got = event_steps(steps, 8); /* the start record too */
        assert_true(got >= 1 && got <= 4 && got >= last);
        last = got;
    }
    assert_int_equal(last, 4);
    free(names[0]);
    free(names);
    ax_free(bytes);
}

/* ---- a full disk ---- */

static void see_steps(const json_t *v, void *ctx) {
    *(unsigned *)ctx |= 1u << (unsigned)number(v, "step");
}

/* Each write in turn fails, whole or half way through: the other records are all there. */
static void full_disk(void **state) {
    (void)state;
    static const char *const kinds[] = {"enospc", "eio", "short"};
    int lost = 0, points = 0;
    for (size_t kind = 0; kind < 3; kind++) {
        for (int k = 1;; k++, points++) {
            char spec[64];
            unsigned seen = 0;
            struct ax_metrics *m = open_metrics(0);
            /* a short write is gone on with: the second half fails too */
            if (kind == 2)
                snprintf(spec, sizeof spec, "write:%d:short,write:%d:enospc", k, k + 1);
            else
                snprintf(spec, sizeof spec, "write:%d:%s", k, kinds[kind]);
            assert_int_equal(ax_fault_configure(spec), AX_OK);
            run_steps(m, 1, 4);
            const bool fired = ax_fault_fired();
            assert_int_equal(ax_fault_configure(NULL), AX_OK);
            ax_metrics_close(m);
            const int n = each_record(see_steps, &seen);
            const int csv = lines_of("metrics.csv");
            assert_true(n >= 3 && csv >= 4);
            lost += (n < 4) + (csv < 5);
            if (n == 4)
                assert_int_equal(seen, 0x1e);
            if (!fired)
                break;
        }
    }
    print_message("%d write points, %d records lost\n", points, lost);
    assert_true(points >= 30 && lost >= 24);
}

static void unwritable_folder(void **state) {
    (void)state;
    struct ax_metrics *m = NULL;
    const struct ax_metrics_options o = {.logging_steps = 1, .devices = 1};
    assert_int_equal(ax_metrics_open(&m, "/nowhere/at/all", &o), AX_ERR_IO);
    assert_null(m);
    assert_non_null(strstr(ax_error_text(), "/nowhere/at/all/metrics.jsonl"));
}

int main(void) {
#define T(name) cmocka_unit_test_setup_teardown(name, make_dir, remove_dir)
    const struct CMUnitTest tests[] = {
        T(records),           T(numbers_that_are_none),
        T(nobody_listens),    T(event_files),
        T(cut_back),          T(torn_files),
        T(torn_event_files),  T(full_disk),
        T(unwritable_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
