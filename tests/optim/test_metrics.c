/* What a run reports: records, cut back on resume, whatever the disk does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/hash/hash.h"
#include "base/io.h"
#include "base/text/json.h"
#include "base/log.h"
#include "optim/metrics/metrics.h"
#include "optim/metrics/tfevents.h"
#include "tests/terminal_text.h"
#include "tests/skip.h"

static char dir[64];

static int make_dir(void **state) {
    (void)state;
    ax_log_set_level(AX_LOG_ERROR); /* the warnings asked for below */
    snprintf(dir, sizeof dir, "%s/axtrain-metrics-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state) {
    (void)state;
    ax_log_set_level(AX_LOG_INFO);
    return ax_remove_tree(dir) == AX_OK ? 0 : -1;
}

static const struct ax_metrics_options usual = {.total_steps = 10,
                                                .logging_steps = 2,
                                                .flops_per_token = 1e9,
                                                .peak_flops = 1e12,
                                                .devices = 1,
                                                .tensorboard = true};

static struct ax_metrics *open_metrics(int64_t resume_step) {
    struct ax_metrics *m = NULL;
    struct ax_metrics_options o = usual;
    o.resume_step = resume_step;
    assert_int_equal(ax_metrics_open(&m, dir, &o), AX_OK);
    return m;
}

static struct ax_step_figures figures(int64_t step) {
    return (struct ax_step_figures){.step = step,
                                    .epoch = 0.1 * (double)step,
                                    .loss = 1.0 / (double)step,
                                    .grad_norm = 2,
                                    .learning_rate = 1e-4,
                                    .tokens = 100,
                                    .computed_tokens = 80,
                                    .trained_tokens = 40,
                                    .flops = 1.25e11,
                                    .seconds = 0.5,
                                    .memory = 1 << 20,
                                    .peak_memory = 2 << 20,
                                    .waits = 3,
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
        assert_near(number(v, "mfu"), 0.16); /* 1e9 · 160 / 1e12 */
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

/* ---- on a terminal ---- */

/* Columns of the widest drawing in what a terminal got: what is between \\r and the end of the line;
 * *n: how many there are. */
static size_t widest(const char *text, int *n) {
    size_t most = 0;
    *n = 0;
    for (const char *at = text, *end; (at = strchr(at, '\r')) && (end = strstr(at, "\x1b[K"));
         at = end) {
        const size_t columns = (size_t)(end - at) - 1;
        most = columns > most ? columns : most;
        *n += columns > 0;
    }
    return most;
}

/* A run's drawings on a terminal with `columns` columns. */
static size_t drawn_on(int tty, int end, unsigned short columns) {
    char text[16384];
    int n;
    struct ax_metrics *m;
    const struct ax_metrics_options o = {
        .total_steps = 4, .logging_steps = 1, .devices = 1, .progress = true};
    const struct winsize size = {.ws_row = 20, .ws_col = columns};
    const int saved = dup(STDERR_FILENO);
    assert_int_equal(ioctl(end, TIOCSWINSZ, &size), 0);
    assert_int_equal(dup2(end, STDERR_FILENO), STDERR_FILENO);
    const enum ax_status st = ax_metrics_open(&m, dir, &o);
    if (st == AX_OK) {
        run_steps(m, 1, 4);
        ax_metrics_close(m);
    }
    assert_int_equal(dup2(saved, STDERR_FILENO), STDERR_FILENO);
    close(saved);
    assert_int_equal(st, AX_OK);
    terminal_text(tty, end, text, sizeof text);
    const size_t most = widest(text, &n);
    assert_true(n >= 2 && strstr(text, "4/4"));
    return most;
}

/* The bar takes what it can of a line, but never its last column, where a terminal would wrap. */
static void a_bar_fills_the_terminal(void **state) {
    (void)state;
    const int tty = posix_openpt(O_RDWR | O_NOCTTY);
    if (tty < 0 || grantpt(tty) != 0 || unlockpt(tty) != 0)
        skip_because("kernel, pseudo-terminals");
    const int end = open(ptsname(tty), O_RDWR | O_NOCTTY);
    int full = 0;
    assert_true(end >= 0);
    setenv("TERM", "xterm", 1);
    setenv("NO_COLOR", "1", 1);
    for (unsigned short columns = 40; columns <= 120; columns++) {
        const size_t most = drawn_on(tty, end, columns);
        assert_in_range(most, 20, columns - 1);
        full += most == columns - 1U;
    }
    assert_true(full > 0);
    assert_int_equal(close(end) | close(tty), 0);
}

/* ---- event files ---- */

struct event {
    int64_t step;
    size_t len;
    unsigned char bytes[512];
};

/* A number of 7 bits a byte, the lowest first. */
static uint64_t read_varint(const unsigned char **p) {
    uint64_t v = 0;
    for (unsigned shift = 0;; shift += 7) {
        const unsigned char c = *(*p)++;
        v |= (uint64_t)(c & 0x7f) << shift;
        if (c < 0x80)
            return v;
    }
}

/* Time of day; the step, where it is not 0. Returns what comes after them. */
static const unsigned char *read_head(struct event *e) {
    const unsigned char *p = e->bytes;
    assert_int_equal(*p, 1 << 3 | 1);
    p += 9;
    if (*p != 2 << 3)
        return p;
    p++;
    e->step = (int64_t)read_varint(&p);
    return p;
}

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
        assert_true(len <= sizeof out[n].bytes);
        out[n] = (struct event){.len = len};
        memcpy(out[n].bytes, event, len);
        (void)read_head(&out[n++]);
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
        static struct event e[32];
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

/* ---- figures ---- */

/* A first step that is slow; no two figures are alike. */
static struct ax_step_figures busy(int64_t step) {
    return (struct ax_step_figures){.step = step,
                                    .epoch = 0.125 * (double)step,
                                    .loss = 1.0 / (double)step,
                                    .grad_norm = 3,
                                    .learning_rate = 1e-4,
                                    .tokens = 100,
                                    .computed_tokens = 100,
                                    .trained_tokens = 40,
                                    .flops = 2.5e11,
                                    .seconds = step == 1 ? 30 : 2,
                                    .memory = (uint64_t)3 << 29,
                                    .peak_memory = (uint64_t)5 << 29,
                                    .n_phases = 1,
                                    .phases = {{"forward", step == 1 ? 9 : 0.5}}};
}

static const struct ax_eval_result scored = {.loss = 2,
                                             .perplexity = 7.5,
                                             .accuracy = 0.25,
                                             .documents = 24,
                                             .rows = 6,
                                             .tokens = 300,
                                             .trained = 200,
                                             .correct = 50,
                                             .seconds = 4};

/* Five steps, an entry after every second and the last; an evaluation. */
static void run_busy(bool progress) {
    struct ax_metrics *m = NULL;
    struct ax_metrics_options o = usual;
    o.total_steps = 5;
    o.progress = progress;
    assert_int_equal(ax_metrics_open(&m, dir, &o), AX_OK);
    for (int64_t step = 1; step <= 5; step++) {
        const struct ax_step_figures f = busy(step);
        ax_metrics_step(m, &f);
    }
    ax_metrics_eval(m, 5, 0.625, &scored);
    ax_metrics_close(m);
}

struct expected {
    const char *name;
    double value;
};

static void assert_numbers(const json_t *v, const struct expected *want, size_t n) {
    for (size_t i = 0; i < n; i++)
        assert_near(number(v, want[i].name), want[i].value);
}

static void see_figures(const json_t *v, void *ctx) {
    static const struct expected step[] = {{"step", 2},
                                           {"epoch", 0.25},
                                           {"loss", 0.5},
                                           {"grad_norm", 3},
                                           {"learning_rate", 1e-4},
                                           {"tokens", 100},
                                           {"trained_tokens", 40},
                                           {"seconds", 2},
                                           {"tokens_per_second", 50},
                                           {"mfu", 0.05},
                                           {"hfu", 0.125},
                                           {"memory_bytes", 3 << 29},
                                           {"peak_memory_bytes", 5.0 * (1 << 29)}};
    static const struct expected eval[] = {{"step", 5},
                                           {"epoch", 0.625},
                                           {"eval_loss", 2},
                                           {"eval_perplexity", 7.5},
                                           {"eval_accuracy", 0.25},
                                           {"eval_rows", 6},
                                           {"eval_tokens", 300},
                                           {"eval_trained_tokens", 200},
                                           {"eval_seconds", 4}};
    (void)ctx;
    if (json_object_get(v, "eval_loss"))
        assert_numbers(v, eval, sizeof eval / sizeof *eval);
    else if (number(v, "step") == 2)
        assert_numbers(v, step, sizeof step / sizeof *step);
}

static void every_figure_of_a_record(void **state) {
    (void)state;
    size_t n;
    run_busy(false);
    assert_int_equal(each_record(see_figures, NULL), 6);
    char *csv = read_text("metrics.csv", &n);
    assert_non_null(
        strstr(csv, "\n2,0.25,0.5,3,0.0001,100,40,2,50,0.05,0.125,1610612736,2684354560,0\n"));
    ax_free(csv);
}

/* The one file of the folder. */
static int read_only_file(struct event *e, int cap) {
    char path[128];
    struct dirent **names;
    snprintf(path, sizeof path, "%s/runs", dir);
    assert_int_equal(scandir(path, &names, is_events, by_name), 1);
    const int n = read_events(names[0]->d_name, e, cap);
    free(names[0]);
    free(names);
    return n;
}

/* Summary (field 5) of values (1): tag (1) and float (2). */
static double scalar_of(const struct event *e, const char *tag) {
    struct event copy = *e;
    const unsigned char *p = read_head(&copy), *end = copy.bytes + copy.len;
    assert_int_equal(*p++, 5 << 3 | 2);
    assert_true(read_varint(&p) == (uint64_t)(end - p));
    while (p < end) {
        float value;
        assert_int_equal(*p++, 1 << 3 | 2);
        const size_t n = read_varint(&p);
        const unsigned char *next = p + n;
        assert_int_equal(*p++, 1 << 3 | 2);
        const size_t len = read_varint(&p);
        assert_int_equal(p[len], 2 << 3 | 5);
        memcpy(&value, p + len + 1, sizeof value);
        if (len == strlen(tag) && memcmp(p, tag, len) == 0)
            return (double)value;
        p = next;
    }
    fail_msg("no %s", tag);
    return 0;
}

/* The loss is the mean since the last entry; everything else is of the step. */
static void every_figure_of_an_entry(void **state) {
    (void)state;
    static struct event e[8];
    static const double loss[] = {(1 + 1 / 2.0) / 2, (1 / 3.0 + 1 / 4.0) / 2, 1 / 5.0};
    static const int64_t steps[] = {2, 4, 5};
    run_busy(false);
    assert_int_equal(read_only_file(e, 8), 5); /* the version; three entries; the evaluation */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(e[1 + i].step, steps[i]);
        assert_true(scalar_of(&e[1 + i], "train/loss") == (double)(float)loss[i]);
        assert_true(scalar_of(&e[1 + i], "train/epoch") == 0.125 * (double)steps[i]);
        assert_true(scalar_of(&e[1 + i], "train/grad_norm") == 3);
        assert_true(scalar_of(&e[1 + i], "train/learning_rate") == (double)1e-4F);
        assert_true(scalar_of(&e[1 + i], "train/tokens_per_second") == 50);
        assert_true(scalar_of(&e[1 + i], "train/memory_gib") == 1.5);
        assert_true(scalar_of(&e[1 + i], "train/mfu") == (double)0.05F);
        assert_true(scalar_of(&e[1 + i], "train/hfu") == (double)0.125F);
    }
    assert_int_equal(e[4].step, 5);
    assert_true(scalar_of(&e[4], "eval/loss") == 2);
    assert_true(scalar_of(&e[4], "eval/perplexity") == 7.5);
    assert_true(scalar_of(&e[4], "eval/mean_token_accuracy") == 0.25);
    assert_true(scalar_of(&e[4], "eval/runtime") == 4);
    assert_true(scalar_of(&e[4], "eval/samples_per_second") == 6);
    assert_true(scalar_of(&e[4], "train/epoch") == 0.625);
}

/* Into the folder's file "stderr"; returns what to give stderr_back. */
static int stderr_to_file(void) {
    char path[128];
    snprintf(path, sizeof path, "%s/stderr", dir);
    const int old = dup(STDERR_FILENO), to = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    assert_true(old >= 0 && to >= 0);
    dup2(to, STDERR_FILENO);
    close(to);
    return old;
}

static void stderr_back(int old) {
    dup2(old, STDERR_FILENO);
    close(old);
}

/* The same for a person without a terminal. Speed forgets the slow first step; nothing is left to
 * do after the last one. */
static void lines_on_stderr(void **state) {
    (void)state;
    size_t n;
    const int old = stderr_to_file();
    run_busy(true);
    stderr_back(old);
    char *text = read_text("stderr", &n);
#define REST "grad_norm=3 learning_rate=0.0001 tokens_per_second=50"
    assert_string_equal(text, "step=2/5 epoch=0.25 loss=0.75 " REST " eta_s=6\n"
                              "step=4/5 epoch=0.5 loss=0.29167 " REST " eta_s=2\n"
                              "step=5/5 epoch=0.625 loss=0.2 " REST "\n"
                              "eval: step=5 epoch=0.625 loss=2 perplexity=7.5 accuracy=0.2500 "
                              "seconds=4.0\n");
    ax_free(text);
}

/* A clock that did not move: speed 0, whatever was done, and no infinity anywhere. What is not
 * known (the speed of the machine) is left out, and is not 0. */
static void a_step_that_took_no_time(void **state) {
    (void)state;
    static const struct {
        double peak_flops;
        const char *json, *csv; /* MFU */
    } cases[] = {{1e12, "0", "0"}, {0, "null", ""}};
    for (int i = 0; i < 2; i++) {
        struct ax_metrics *m = NULL;
        static struct event e[4];
        char want[512];
        size_t n;
        struct ax_metrics_options o = usual;
        o.total_steps = o.logging_steps = 1;
        o.peak_flops = cases[i].peak_flops;
        o.tensorboard = i == 0;
        o.progress = true;
        const int old = stderr_to_file();
        assert_int_equal(ax_metrics_open(&m, dir, &o), AX_OK);
        struct ax_step_figures f = figures(1);
        f.seconds = f.phases[0].seconds = f.phases[1].seconds = 0;
        ax_metrics_step(m, &f);
        ax_metrics_eval(m, 1, 0.1, &(struct ax_eval_result){.documents = 2});
        ax_metrics_close(m);
        stderr_back(old);
        snprintf(want, sizeof want,
                 "{\"step\": 1, \"epoch\": 0.1, \"loss\": 1, \"grad_norm\": 2, \"learning_rate\": "
                 "0.0001, \"tokens\": 100, \"trained_tokens\": 40, \"seconds\": 0, "
                 "\"tokens_per_second\": 0, \"mfu\": %s, \"hfu\": %s, \"memory_bytes\": 1048576, "
                 "\"peak_memory_bytes\": 2097152, \"waits\": 3, "
                 "\"phase_seconds\": {\"forward\": 0, \"backward\": 0}}\n",
                 cases[i].json, cases[i].json);
        char *text = read_text("metrics.jsonl", &n);
        assert_memory_equal(text, want, strlen(want));
        ax_free(text);
        text = read_text("stderr", &n);
        assert_non_null(strstr(text, " tokens_per_second=0\n"));
        ax_free(text);
        text = read_text("metrics.csv", &n);
        snprintf(want, sizeof want, "\n1,0.1,1,2,0.0001,100,40,0,0,%s,%s,1048576,2097152,0\n",
                 cases[i].csv, cases[i].csv);
        assert_string_equal(strchr(text, '\n'), want);
        ax_free(text);
        if (i == 0) {
            assert_int_equal(read_only_file(e, 4), 3);
            assert_true(scalar_of(&e[1], "train/tokens_per_second") == 0);
            assert_true(scalar_of(&e[1], "train/mfu") == 0);
            assert_true(isfinite(scalar_of(&e[2], "eval/samples_per_second")));
        }
    }
}

/* ---- resume ---- */

/* Steps take more than a byte from 128 on. */
static void large_steps_are_cut_back(void **state) {
    (void)state;
    static const int64_t written[] = {100, 128, 16383, 16384, 2097153};
    char runs[128];
    int64_t steps[16];
    snprintf(runs, sizeof runs, "%s/runs", dir);
    for (int keep = 1; keep <= 5; keep++) {
        struct ax_tfevents t;
        assert_int_equal(ax_tfevents_open(&t, runs, 0), AX_OK);
        for (int i = 0; i < 5; i++)
            ax_tfevents_write(&t, written[i], 1, &(struct ax_tf_scalar){"train/loss", 1});
        ax_tfevents_close(&t);
        assert_int_equal(ax_tfevents_open(&t, runs, written[keep - 1]), AX_OK);
        ax_tfevents_close(&t);
        assert_int_equal(event_steps(steps, 16), keep + 1); /* the start record too */
        for (int i = 0; i < keep; i++)
            assert_int_equal(steps[i], written[i]);
        assert_int_equal(steps[keep], written[keep - 1] + 1);
        assert_int_equal(ax_remove_tree(runs), AX_OK);
    }
}

static void last_step(const json_t *v, void *ctx) {
    const int64_t step = (int64_t)number(v, "step");
    assert_true(step >= *(int64_t *)ctx && step <= *(int64_t *)ctx + 1);
    *(int64_t *)ctx = step;
}

/* A run that went to step 7, resumed at 4: nothing appears twice, nothing is missing. */
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
        T(records),
        T(numbers_that_are_none),
        T(nobody_listens),
        T(a_bar_fills_the_terminal),
        T(event_files),
        T(every_figure_of_a_record),
        T(every_figure_of_an_entry),
        T(lines_on_stderr),
        T(large_steps_are_cut_back),
        T(cut_back),
        T(torn_files),
        T(torn_event_files),
        T(full_disk),
        T(unwritable_folder),
        T(a_step_that_took_no_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
