/* metrics.csv, event files and lines about activities: what a method has beside other runs, and what takes long. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/io.h"
#include "base/log.h"
#include "base/mem.h"
#include "optim/metrics/metrics.h"
#include "optim/metrics/metrics_text.h"

static char dir[64];

static int make_dir(void **state) {
    (void)state;
    snprintf(dir, sizeof dir, "%s/axtrain-metrics-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state) {
    (void)state;
    return ax_remove_tree(dir) == AX_OK ? 0 : -1;
}

static const struct ax_metrics_options usual = {.total_steps = 10,
                                                .logging_steps = 2,
                                                .flops_per_token = 1e9,
                                                .peak_flops = 1e12,
                                                .devices = 1,
                                                .tensorboard = true};

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

static char *read_text(const char *name, size_t *n) {
    char path[128], *text;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (ax_read_file(path, 1 << 20, &text, n) != AX_OK)
        fail_msg("%s", ax_error_text());
    return text;
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

/* ---- metrics.csv ---- */

/* What a method has beside is in columns behind the others; one that comes later is empty before. */
static void columns_of_a_method(void **state) {
    (void)state;
    static const char *const measures[] = {"entropy", "kl", NULL};
    struct ax_figures rewards = {
        .n = 2, .names = {"reward", "rewards/a,\"b\"/mean"}, .values = {0.5, INFINITY}};
    size_t n;
    struct ax_metrics *m = NULL;
    struct ax_metrics_options o = usual;
    o.measures = measures;
    assert_int_equal(ax_metrics_open(&m, dir, &o), AX_OK);
    for (int64_t s = 1; s <= 5; s++) {
        struct ax_step_figures f = figures(s);
        if (s == 4) { /* resumed after step 3, of which the first file had 2 more */
            ax_metrics_close(m);
            o.resume_step = 3;
            assert_int_equal(ax_metrics_open(&m, dir, &o), AX_OK);
        }
        f.measures[0] = (double)s;
        f.measures[1] = NAN; /* never has a value: no column */
        f.skipped = s == 5;
        f.figures = s == 2 || s == 4 ? &rewards : NULL;
        rewards.n = s == 4 ? 1 : 2;
        ax_metrics_step(m, &f);
    }
    ax_metrics_close(m);
    char *csv = read_text("metrics.csv", &n), *rest = csv;
    static const char *const want[] = {",skipped,entropy,reward,rewards/a__b_/mean",
                                       ",0,1,,",
                                       ",0,2,0.5,",
                                       ",0,3,,",
                                       ",0,4,0.5,",
                                       ",1,5,,"};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const char *line = strsep(&rest, "\n");
        const size_t len = strlen(line), end = strlen(want[i]);
        assert_true(len > end);
        assert_string_equal(line + len - end, want[i]);
    }
    assert_string_equal(rest, "");
    ax_free(csv);
}

/* The disk is full, or breaks, while columns are added: the file has what it had, and later lines. */
static void columns_that_cannot_be_added(void **state) {
    (void)state;
    for (int written = 0; written < 2; written++) {
        struct ax_figures more = {0};
        struct ax_metrics *m = NULL;
        size_t n, lines = 0;
        for (int i = 0; i < 40; i++) {
            char name[64];
            snprintf(name, sizeof name, "rewards/a_function_with_a_long_name_%d/mean", i);
            ax_figures_add(&more, name, 1);
        }
        assert_int_equal(ax_metrics_open(&m, dir, &usual), AX_OK);
        struct ax_step_figures f = figures(1);
        ax_metrics_step(m, &f);
        f = figures(2);
        f.figures = &more;
        ax_log_set_level(AX_LOG_ERROR);
        /* the step's record, the columns: nothing of them, or half */
        assert_int_equal(ax_fault_configure(written ? "write:2:short,write:3:eio" : "write:2:eio"),
                         AX_OK);
        ax_metrics_step(m, &f);
        assert_true(ax_fault_fired());
        assert_int_equal(ax_fault_configure(NULL), AX_OK);
        ax_log_set_level(AX_LOG_INFO);
        ax_metrics_close(m);
        char *csv = read_text("metrics.csv", &n);
        for (size_t i = 0; i < n; i++)
            lines += csv[i] == '\n';
        assert_int_equal(lines, 3);
        assert_int_equal(strncmp(csv, "step,epoch,", 11), 0);
        assert_non_null(strstr(csv, ",skipped\n1,0.1,1,"));
        assert_non_null(strstr(csv, "\n2,0.2,0.5,"));
        assert_null(strstr(csv, "rewards/"));
        assert_true(csv[n - 1] == '\n');
        ax_free(csv);
    }
}

/* ---- metrics.jsonl ---- */

/* What only some models and several ranks have, behind all else. */
static void records_of_ranks_and_experts(void **state) {
    (void)state;
    static struct ax_expert_balance experts = {.violation = 4, .entropy = 1.5};
    static const char want[] =
        ", \"waits\": 3, \"indexer_kl\": 0.5, \"mtp_loss\": 0.25, \"moe/aux_loss\": 0.125, "
        "\"moe/seq_aux_loss\": 0.0625, \"moe/max_violation\": 4, \"moe/entropy\": 1.5, "
        "\"moe/max_violation_per_layer\": [2, 4], \"skipped\": true, \"phase_seconds\": "
        "{\"forward\": 0.2, \"backward\": 0.3}, \"ranks\": {\"slowest\": 5, \"slowest_seconds\": "
        "0.75, \"memory_bytes\": 1000, \"peak_memory_bytes\": 2000, \"wait_seconds\": {\"tp\": "
        "0.0625}}}\n";
    struct ax_metrics *m = NULL;
    size_t n;
    for (int i = 0; i < AX_BALANCE_LAYERS; i++)
        experts.layers[i] = i == 1 ? 2 : i == 3 ? 4 : NAN;
    struct ax_step_figures f = figures(1);
    f.experts = &experts;
    f.index_loss = 0.5;
    f.mtp_loss = 0.25;
    f.aux_loss = 0.125;
    f.sequence_loss = 0.0625;
    f.skipped = true;
    f.ranks = (struct ax_rank_figures){.n_waits = 1,
                                       .waits = {{"tp", 0.0625}},
                                       .slowest = 5,
                                       .slowest_seconds = 0.75,
                                       .memory = 1000,
                                       .peak_memory = 2000};
    assert_int_equal(ax_metrics_open(&m, dir, &usual), AX_OK);
    ax_metrics_step(m, &f);
    ax_metrics_close(m);
    char *text = read_text("metrics.jsonl", &n);
    const char *rest = strstr(text, ", \"waits\": ");
    assert_non_null(rest);
    assert_memory_equal(rest, want, strlen(want));
    ax_free(text);
}

/* ---- event files ---- */

static int is_events(const struct dirent *e) {
    return strncmp(e->d_name, "events.out.tfevents.", 20) == 0;
}

/* The one file of the folder. */
static char *read_events(size_t *n) {
    char path[128], name[400];
    struct dirent **names;
    snprintf(path, sizeof path, "%s/runs", dir);
    assert_int_equal(scandir(path, &names, is_events, alphasort), 1);
    snprintf(name, sizeof name, "runs/%s", names[0]->d_name);
    free(names[0]);
    free(names);
    return read_text(name, n);
}

/* A summary's values are each a tag's bytes, and a float in field 2. *value: that of the last one with this tag; how
 * many there are. */
static int scalars(const char *events, size_t n, const char *tag, double *value) {
    const size_t len = strlen(tag);
    int found = 0;
    for (size_t i = 2; i + len + 5 <= n; i++) {
        float v;
        if (events[i - 2] != (1 << 3 | 2) || (size_t)events[i - 1] != len ||
            memcmp(events + i, tag, len) != 0)
            continue;
        assert_int_equal(events[i + len], 2 << 3 | 5);
        memcpy(&v, events + i + len + 1, sizeof v);
        *value = (double)v;
        found++;
    }
    return found;
}

static double wall_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* The first record's event begins with when it was written: field 1, a double, after length and checksum. */
static void assert_written_since(double begun) {
    size_t len;
    double wall;
    char *events = read_events(&len);
    assert_true(len > 21);
    assert_int_equal(events[12], 1 << 3 | 1);
    memcpy(&wall, events + 13, sizeof wall);
    assert_true(wall >= begun && wall <= wall_now());
    ax_free(events);
}

struct scalar {
    const char *tag;
    int count;
    double value; /* of the last one */
};

static void assert_scalars(const struct scalar *want, size_t n) {
    size_t len;
    char *events = read_events(&len);
    for (size_t i = 0; i < n; i++) {
        double value = 0;
        assert_int_equal(scalars(events, len, want[i].tag, &value), want[i].count);
        if (want[i].count > 0 && value != want[i].value)
            fail_msg("%s: %g", want[i].tag, value);
    }
    ax_free(events);
}

/* What a method has of a step and of an evaluation, under names of their own; what is not known is not there. */
static void event_files_of_a_method(void **state) {
    (void)state;
    static const char *const measures[] = {"entropy", "kl", NULL};
    static const struct scalar want[] = {{"train/loss", 2, 0.5},
                                         {"eval/loss", 1, 3},
                                         {"eval/perplexity", 0, 0}, /* as of pairs */
                                         {"eval/mean_token_accuracy", 0, 0},
                                         {"train/entropy", 2, 2},
                                         {"train/kl", 0, 0},
                                         {"eval/entropy", 1, 0.75},
                                         {"eval/kl", 1, 0.5},
                                         {"train/reward", 1, 0.25},
                                         {"eval/reward", 1, 0.125},
                                         {"train/moe/entropy", 1, 1.5},
                                         {"train/moe/max_violation", 1, 4},
                                         {"train/moe/aux_loss", 1, 0.125},
                                         {"train/moe/seq_aux_loss", 0, 0},
                                         {"train/mtp_loss", 1, 0.25},
                                         {"train/indexer_kl", 1, 0.5},
                                         {"train/memory_gib", 2, 0.125},
                                         {"train/mfu", 0, 0},
                                         {"train/hfu", 0, 0}};
    const struct ax_figures rewards = {.n = 1, .names = {"reward"}, .values = {0.25}};
    const struct ax_expert_balance experts = {.violation = 4, .entropy = 1.5};
    const struct ax_eval_result r = {
        .loss = 3, .perplexity = NAN, .accuracy = 0.5, .documents = 1, .measures = {0.75, 0.5}};
    const struct ax_eval_result worth = {
        .loss = 9, .figures = {.n = 1, .names = {"reward"}, .values = {0.125}}};
    struct ax_metrics *m = NULL;
    struct ax_metrics_options o = usual;
    o.measures = measures;
    o.logging_steps = 1;
    o.peak_flops = 0;
    const double begun = wall_now();
    assert_int_equal(ax_metrics_open(&m, dir, &o), AX_OK);
    for (int64_t s = 1; s <= 2; s++) {
        struct ax_step_figures f = figures(s);
        f.memory = f.peak_memory = 1 << 27;
        f.measures[0] = (double)s;
        f.measures[1] = NAN;
        f.figures = s == 1 ? &rewards : NULL;
        f.experts = s == 1 ? &experts : NULL;
        f.aux_loss = s == 1 ? 0.125 : 0;
        f.mtp_loss = s == 1 ? 0.25 : 0;
        f.index_loss = s == 1 ? 0.5 : 0;
        ax_metrics_step(m, &f);
    }
    ax_metrics_eval(m, 2, 0.2, &r);
    ax_metrics_eval(m, 2, 0.2, &worth); /* has no loss */
    ax_metrics_close(m);
    assert_written_since(begun);
    assert_scalars(want, sizeof want / sizeof *want);
}

/* A device that does not say what it executed has no share of its peak of that kind. */
static void shares_of_the_peak_that_are_known(void **state) {
    (void)state;
    static const struct scalar want[] = {{"train/mfu", 1, (double)0.16F}, {"train/hfu", 0, 0}};
    struct ax_metrics *m = NULL;
    struct ax_step_figures f = figures(2);
    struct ax_metrics_options o = usual;
    f.flops = 0;
    o.resume_step = 1;
    assert_int_equal(ax_metrics_open(&m, dir, &o), AX_OK);
    ax_metrics_step(m, &f);
    ax_metrics_close(m);
    assert_scalars(want, sizeof want / sizeof *want);
}

/* A run that resumed from memory may lack the record of the step before. */
static void a_missing_record_is_written(void **state) {
    (void)state;
    struct ax_metrics *m = NULL;
    struct ax_metrics_options o = usual;
    size_t n;
    o.resume_step = 2;
    assert_int_equal(ax_metrics_open(&m, dir, &o), AX_OK);
    for (int64_t s = 2; s <= 4; s++) {
        const struct ax_step_figures f = figures(s);
        ax_metrics_step(m, &f);
    }
    ax_metrics_close(m);
    char *text = read_text("metrics.jsonl", &n);
    for (const char *line = text, *want = "234"; *want; want++, line = strchr(line, '\n') + 1)
        assert_true(strncmp(line, "{\"step\": ", 9) == 0 && line[9] == *want);
    ax_free(text);
}

/* ---- activities ---- */

/* Where no bar can be drawn, lines say how far an activity is and how long it still takes. */
static void activities_on_stderr(void **state) {
    (void)state;
    size_t n;
    char *text, *at;
    struct ax_metrics *m = NULL;
    struct ax_metrics_options o = usual;
    o.progress = true;
    const int old = stderr_to_file();
    assert_int_equal(ax_metrics_open(&m, dir, &o), AX_OK);
    ax_metrics_doing(m, "sampling", 1, 10); /* not for 30 seconds */
    ax_metrics_close(m);
    o.doing_seconds = 1e-9;
    assert_int_equal(ax_metrics_open(&m, dir, &o), AX_OK);
    ax_metrics_doing(m, "reference", 100, 0);
    usleep(20000);
    ax_metrics_doing(m, "reference", 200, 400);
    usleep(1000);
    ax_metrics_doing(m, "reference", 50, 0); /* begins anew */
    usleep(1000);
    ax_metrics_doing(m, "reference", 60, 0);
    usleep(1000);
    ax_metrics_doing(m, "reference", 400, 400);
    ax_metrics_close(m);
    stderr_back(old);
    text = read_text("stderr", &n);
    at = strstr(text, " eta_s=");
    assert_non_null(at);
    assert_in_range(strtol(at + 7, NULL, 10), 0, 60);
    memmove(at, strchr(at, '\n'), strlen(strchr(at, '\n')) + 1);
    assert_string_equal(text,
                        "reference: done=200/400\nreference: done=60\nreference: done=400/400\n");
    ax_free(text);
}

/* As long for each of what is left as for each so far, whatever was done before. */
static void time_left_of_an_activity(void **state) {
    (void)state;
    size_t n;
    struct ax_metrics *m = NULL;
    struct ax_metrics_options o = usual;
    o.progress = true;
    o.doing_seconds = 1e-9;
    const int old = stderr_to_file();
    assert_int_equal(ax_metrics_open(&m, dir, &o), AX_OK);
    const double before = ax_clock_now();
    ax_metrics_doing(m, "reference", 198, 299);
    const double begun = ax_clock_now();
    usleep(200000);
    const double least = ax_clock_now() - begun;
    ax_metrics_doing(m, "reference", 199, 299); /* 100 are left */
    const double most = ax_clock_now() - before;
    ax_metrics_close(m);
    stderr_back(old);
    char *text = read_text("stderr", &n);
    const char *eta = strstr(text, "reference: done=199/299 eta_s=");
    assert_non_null(eta);
    const double left = strtod(strchr(strchr(eta, '=') + 1, '=') + 1, NULL);
    assert_true(left >= 100 * least - 0.5 && left <= 100 * most + 0.5);
    ax_free(text);
}

/* An evaluation's record and its lines on a terminal and in a log. */
static void texts_of_evaluations(void **state) {
    (void)state;
    static const char *const measures[] = {"margin", "gap", "kl", NULL};
    const struct ax_eval_result loss = {.loss = 0.5,
                                        .perplexity = 2,
                                        .accuracy = 0.25,
                                        .documents = 3,
                                        .rows = 7,
                                        .tokens = 40,
                                        .trained = 30,
                                        .weight = 20,
                                        .seconds = 1.5};
    struct ax_eval_result pairs = loss, rewards = {.loss = NAN, .weight = 9, .seconds = 2.5};
    memcpy(pairs.measures, (const double[]){8, NAN, 0.125}, 3 * sizeof(double));
    ax_figures_add(&rewards.figures, "completions/mean_length", 12);
    ax_figures_add(&rewards.figures, "reward", 0.75);
    ax_figures_add(&rewards.figures, "completions/clipped_ratio", 0.5);
    const struct {
        const struct ax_eval_result *r;
        const char *const *measures;
        const char *json, *bar, *line;
    } cases[] = {
        {&loss, NULL,
         "{\"step\": 6, \"epoch\": 0.5, \"eval_loss\": 0.5, \"eval_perplexity\": 2, "
         "\"eval_accuracy\": 0.25, \"eval_rows\": 7, \"eval_tokens\": 40, "
         "\"eval_trained_tokens\": 30, \"eval_seconds\": 1.5}\n",
         "eval at step 6: loss 0.5, accuracy 25.0 %, 1.5 s",
         "eval: step=6 epoch=0.5 loss=0.5 perplexity=2 accuracy=0.2500 seconds=1.5"},
        {&pairs, measures, NULL, "eval at step 6: loss 0.5, margin 8, kl 0.125, 1.5 s",
         "eval: step=6 epoch=0.5 loss=0.5 margin=8 kl=0.125 seconds=1.5"},
        {&rewards, NULL,
         "{\"step\": 6, \"epoch\": 0.5, \"eval_completions/mean_length\": 12, "
         "\"eval_reward\": 0.75, \"eval_completions/clipped_ratio\": 0.5, "
         "\"eval_seconds\": 2.5}\n",
         "eval at step 6: reward 0.75, length 12, cut 0.5, 2.5 s",
         "eval: step=6 epoch=0.5 reward=0.75 length=12 cut=0.5 seconds=2.5"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int k = 0; k < 3; k++) {
            const char *want = k == 0 ? cases[i].json : k == 1 ? cases[i].bar : cases[i].line;
            struct ax_buf b = {0};
            assert_int_equal(k == 0 ? ax_metrics_put_eval(&b, 6, 0.5, cases[i].r, cases[i].measures)
                                    : ax_metrics_put_eval_line(&b, k == 1, 6, 0.5, cases[i].r,
                                                               cases[i].measures),
                             AX_OK);
            if (want)
                assert_string_equal(b.data, want);
            ax_buf_free(&b);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(columns_of_a_method, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(columns_that_cannot_be_added, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(records_of_ranks_and_experts, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(event_files_of_a_method, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_missing_record_is_written, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(shares_of_the_peak_that_are_known, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(activities_on_stderr, make_dir, remove_dir),
        cmocka_unit_test(texts_of_evaluations),
        cmocka_unit_test_setup_teardown(time_left_of_an_activity, make_dir, remove_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
