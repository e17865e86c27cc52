/* `axtrain report`: what is read of a run folder, whole, broken, resumed or hardly begun, and the
 * page that is made of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "cmd/commands.h"
#include "cmd/report/report.h"
#include "tests/data/scratch.h"

static void put_step(struct ax_buf *b, int step, double loss) {
    assert_ok(ax_buf_printf(
        b,
        "{\"step\": %d, \"epoch\": %g, \"loss\": %g, \"grad_norm\": 1.5, \"learning_rate\": 1e-4, "
        "\"tokens\": 100, \"trained_tokens\": 40, \"seconds\": 0.5, \"tokens_per_second\": 200, "
        "\"mfu\": %s, \"memory_bytes\": 50000000, \"peak_memory_bytes\": 60000000, "
        "\"phase_seconds\": {\"data\": 0.1, \"forward\": 0.2}}\n",
        step, step / 10.0, loss, step == 1 ? "null" : "0.25"));
}

static void put_eval(struct ax_buf *b, int step, double loss) {
    assert_ok(ax_buf_printf(b, "{\"step\": %d, \"eval_loss\": %g, \"eval_accuracy\": 0.5}\n", step,
                            loss));
}

static const char about[] =
    "{\"format\": 1, \"started\": \"2026-01-02T03:04:05Z\", \"model\": \"some/<model>\", "
    "\"architecture\": \"llama\", \"method\": \"lora\", \"parameters\": 123456,\n"
    "\"config\": {\"learning_rate\": 1e-4, \"seed\": 42, \"datasets\": [{\"path\": "
    "\"</script><b>\"}]},\n"
    "\"origins\": {\"learning_rate\": \"c.yaml:3:1\", \"seed\": \"default\", "
    "\"datasets.0.path\": \"c.yaml:5:3\"}, \"notes\": [],\n"
    "\"environment\": {\"cpu\": \"A & B\", \"cpus\": 2},\n"
    "\"data\": {\"packing\": true, \"documents\": 50, \"tokens\": 900, \"rows\": 10, "
    "\"row_tokens\": 100, \"rows_per_step\": 1, \"eval_documents\": 5},\n"
    "\"memory\": {\"bytes\": 3000000, \"recompute\": \"off\", \"blocks\": [{\"name\": "
    "\"weights\", \"where\": \"persistent\", \"bytes\": 2000000}]}}\n";

/* The folder SCRATCH/name with these metrics; `with_about`: and a run.json. */
static const char *put_run(const char *name, struct ax_buf *metrics, bool with_about) {
    char path[96];
    make_folder(name);
    snprintf(path, sizeof path, "%s/metrics.jsonl", name);
    put_bytes(path, metrics->data ? metrics->data : "", metrics->len);
    ax_buf_free(metrics);
    if (with_about) {
        snprintf(path, sizeof path, "%s/run.json", name);
        put_text(path, about);
    }
    return in_scratch(name);
}

static const char *put_plain(const char *name, double loss) {
    struct ax_buf b = {0};
    put_eval(&b, 0, loss + 1);
    for (int i = 1; i <= 10; i++)
        put_step(&b, i, loss + 1.0 / i);
    put_eval(&b, 10, loss);
    assert_ok(ax_buf_puts(&b, "{\"step\": 10, \"event\": \"finished\", \"text\": \"out\"}\n"));
    return put_run(name, &b, true);
}

/* ---- reading ---- */

static void a_whole_run(void **state) {
    (void)state;
    struct ax_report_run run;
    assert_ok(ax_report_read(&run, put_plain("whole", 2)));
    assert_int_equal(run.n_steps, 10);
    assert_int_equal(run.n_evals, 2);
    assert_true(run.evals[0].step == 0 && run.evals[0].figures[AX_EVAL_FIGURE_LOSS] == 3);
    assert_true(run.evals[1].step == 10 && run.evals[1].figures[AX_EVAL_FIGURE_LOSS] == 2);
    assert_true(run.evals[1].figures[AX_EVAL_FIGURE_ACCURACY] == 0.5);
    assert_int_equal(run.n_events, 1);
    assert_int_equal(run.n_problems, 0);
    assert_int_equal(run.n_phases, 2);
    assert_true(isnan(run.steps[0].figures[AX_FIGURE_MFU]));
    assert_true(run.steps[9].figures[AX_FIGURE_MFU] == 0.25);
    assert_true(ax_report_number(&run, "data.row_tokens", -1) == 100);
    assert_true(ax_report_number(&run, "data.nothing", -1) == -1);
    ax_report_close(&run);
}

static void broken_lines_are_named_and_passed_over(void **state) {
    (void)state;
    struct ax_report_run run;
    struct ax_buf b = {0};
    put_step(&b, 1, 3);
    assert_ok(ax_buf_puts(&b, "\n{\"loss\": 1}\nnot json\n[1]\n{\"step\": 1, \"color\": 2}\n"
                              "{\"step\": -4, \"loss\": 2}\n"));
    put_step(&b, 2, 2);
    assert_ok(ax_buf_puts(&b, "{\"step\": 3, \"lo"));
    assert_ok(ax_report_read(&run, put_run("broken", &b, true)));
    assert_int_equal(run.n_steps, 2);
    static const char *const wanted[] = {
        "metrics.jsonl:3: has no step", "metrics.jsonl:4: is not",
        "metrics.jsonl:5: is not",      "metrics.jsonl:6: is neither",
        "metrics.jsonl:7: has no step", "metrics.jsonl:9: is incomplete"};
    assert_int_equal(run.n_problems, sizeof wanted / sizeof *wanted);
    for (size_t i = 0; i < run.n_problems; i++)
        assert_ptr_equal(strstr(run.problems[i], wanted[i]), run.problems[i]);
    ax_report_close(&run);
    for (int i = 0; i < 100; i++)
        assert_ok(ax_buf_puts(&b, "?\n"));
    assert_ok(ax_report_read(&run, put_run("rubbish", &b, true)));
    assert_int_equal(run.n_problems, 100);
    assert_int_equal(run.n_steps, 0);
    ax_report_close(&run);
}

/* Saved at 5, ended at 8, gone on from 5 to 7: 6 and 7 count as they were the second time, and 8 is
 * no part of the run. */
static void the_last_of_repeated_steps_counts(void **state) {
    (void)state;
    struct ax_report_run run;
    struct ax_buf b = {0};
    for (int i = 1; i <= 8; i++)
        put_step(&b, i, i);
    put_eval(&b, 4, 1);
    put_eval(&b, 8, 2);
    for (int i = 6; i <= 7; i++)
        put_step(&b, i, 10 * i);
    put_eval(&b, 7, 3);
    put_eval(&b, 7, 4);
    assert_ok(ax_report_read(&run, put_run("again", &b, true)));
    assert_int_equal(run.n_steps, 7);
    for (int i = 0; i < 7; i++) {
        assert_int_equal(run.steps[i].step, i + 1);
        assert_true(run.steps[i].figures[AX_FIGURE_LOSS] == (i < 5 ? i + 1 : 10 * (i + 1)));
    }
    assert_int_equal(run.n_evals, 2);
    assert_int_equal(run.evals[1].step, 7);
    assert_true(run.evals[1].figures[AX_EVAL_FIGURE_LOSS] == 4);
    ax_report_close(&run);
}

static void what_is_not_there(void **state) {
    (void)state;
    struct ax_report_run run;
    assert_error(ax_report_read(&run, in_scratch("nowhere")), AX_ERR_CONFIG,
                 "no such folder; give the output_dir");
    ax_report_close(&run);
    make_folder("empty");
    assert_error(ax_report_read(&run, in_scratch("empty")), AX_ERR_CONFIG,
                 "contains no metrics.jsonl; give the output_dir");
    ax_report_close(&run);
    put_text("empty/metrics.jsonl", "");
    assert_ok(ax_report_read(&run, in_scratch("empty")));
    assert_int_equal(run.n_problems, 1);
    assert_non_null(strstr(run.problems[0], "no run.json"));
    ax_report_close(&run);
    put_text("empty/run.json", "{\"config\": ");
    assert_ok(ax_report_read(&run, in_scratch("empty")));
    assert_int_equal(run.n_problems, 1);
    assert_non_null(strstr(run.problems[0], "run.json"));
    ax_report_close(&run);
}

/* ---- the page ---- */

static bool is_void(const char *name, size_t n) {
    static const char *const names[] = {"meta", "br", "!DOCTYPE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == n && strncmp(names[i], name, n) == 0)
            return true;
    return false;
}

/* Every element is closed, in order; the contents of style and script are skipped. */
static void must_be_balanced(const char *html) {
    struct {
        const char *name;
        size_t n;
    } open[64] = {0};
    int depth = 0;
    for (const char *at = strchr(html, '<'); at; at = strchr(at, '<')) {
        const bool close = at[1] == '/';
        const char *name = at + 1 + close;
        const size_t n = strcspn(name, " >/\n");
        const char *end = strchr(name, '>');
        assert_non_null(end);
        at = end;
        if (close) {
            assert_true(depth > 0);
            depth--;
            const char *opened = open[depth].name;
            if (!opened || open[depth].n != n || strncmp(opened, name, n) != 0)
                fail_msg("</%.*s> closes <%.*s>", (int)n, name, (int)open[depth].n,
                         opened ? opened : "");
        } else if (end[-1] != '/' && !is_void(name, n)) {
            assert_true(depth < 64);
            open[depth].name = name;
            open[depth++].n = n;
            if (strncmp(name, "style", 5) == 0 || strncmp(name, "script", 6) == 0)
                at = strstr(end, "</");
        }
    }
    assert_int_equal(depth, 0);
}

static char *page_of(int n, const char *const *folders) {
    struct ax_report_run runs[AX_REPORT_MAX_RUNS] = {0};
    const struct ax_report r = {.runs = runs, .n = n};
    struct ax_buf out = {0};
    for (int i = 0; i < n; i++)
        assert_ok(ax_report_read(&runs[i], folders[i]));
    assert_ok(ax_report_put(&out, &r));
    for (int i = 0; i < n; i++)
        ax_report_close(&runs[i]);
    must_be_balanced(out.data);
    return out.data;
}

static int count(const char *text, const char *part) {
    int n = 0;
    for (const char *at = strstr(text, part); at; at = strstr(at + 1, part))
        n++;
    return n;
}

static void must_have(const char *page, const char *part) {
    if (!strstr(page, part))
        fail_msg("the page has no \"%s\"", part);
}

static void a_generated_text_may_have_any_character(void **state) {
    (void)state;
    struct ax_report_run run;
    struct ax_buf b = {0};
    put_step(&b, 1, 3);
    assert_ok(
        ax_buf_puts(&b, "{\"step\": 1, \"event\": \"sample\", \"text\": \"a\\u0000\\u0007b\"}\n"));
    assert_ok(ax_report_read(&run, put_run("any", &b, true)));
    assert_int_equal(run.n_problems, 0);
    assert_int_equal(run.n_samples, 1);
    ax_report_close(&run);
    /* the newest samples are shown */
    for (int i = 0; i <= AX_REPORT_MAX_SAMPLES; i++)
        assert_ok(
            ax_buf_printf(&b, "{\"step\": 1, \"event\": \"sample\", \"text\": \"s%d\"}\n", i));
    char *page = page_of(1, (const char *const[]){put_run("samples", &b, true)});
    must_have(page, ">s1<");
    must_have(page, ">s24<");
    assert_null(strstr(page, ">s0<"));
    ax_free(page);
}

#define OP(rank, at, dur)                                                                          \
    "{\"ph\": \"X\", \"pid\": " #rank ", \"tid\": 0, \"ts\": " #at ", \"dur\": " #dur              \
    ", \"cat\": \"op\", \"name\": \"gemm\"},\n"
#define WAIT(rank, role, at, dur)                                                                  \
    "{\"ph\": \"X\", \"pid\": " #rank ", \"tid\": 0, \"ts\": " #at ", \"dur\": " #dur              \
    ", \"cat\": \"wait\", \"name\": \"wait\", \"args\": {\"role\": \"" role "\"}},\n"
#define TRANSFER(rank, id, from, to)                                                               \
    "{\"ph\": \"b\", \"pid\": " #rank ", \"ts\": " #from ", \"id\": \"" id "\"},\n"                \
    "{\"ph\": \"e\", \"pid\": " #rank ", \"ts\": " #to ", \"id\": \"" id "\"},\n"

/* 100 µs. Rank 0: a transfer from 10 to 50, of which the ops hide 25; rank 1: half of it waits for a stage. */
static void a_timeline_is_drawn(void **state) {
    (void)state;
    struct ax_report_run run;
    const char *folder = put_plain("lanes", 2);
    put_text("lanes/timeline.json",
             "{\"traceEvents\": [\n" OP(1, 50, 20) OP(1, 70.01, 29.99) OP(0, 0, 10) OP(0, 5, 15)
                 OP(0, 20, 15) TRANSFER(0, "0.1.1", 10, 50) WAIT(0, "fsdp", 40, 10) OP(0, 50, 30)
                     WAIT(1, "pp", 0, 50) "{\"ph\": \"M\", \"pid\": 7}]}");
    assert_ok(ax_report_read(&run, folder));
    assert_int_equal(run.n_problems, 0);
    assert_int_equal(run.timeline.n, 2);
    assert_true(run.timeline.begin == 0 && run.timeline.end == 100);
    const struct ax_rank_shares a = ax_report_rank_shares(&run.timeline, 0),
                                b = ax_report_rank_shares(&run.timeline, 1);
    assert_true(fabs(a.compute - 0.65) < 1e-9 && fabs(a.exposed - 0.1) < 1e-9 && a.bubble == 0);
    assert_true(fabs(a.hidden - 0.25) < 1e-9 && fabs(a.nothing - 0.25) < 1e-9);
    assert_true(fabs(b.compute - 0.4999) < 1e-9 && fabs(b.bubble - 0.5) < 1e-9 && b.hidden == 0);
    ax_report_close(&run);
    char *page = page_of(1, &folder);
    must_have(page, "<h2>Timeline</h2>");
    must_have(page, "<b>rank 0</b> <span>computes 65.0 % of the time, 25.0 % beside transfers; "
                    "waits 10.0 % for transfers");
    must_have(page, "<rect class=\"f0\" x=\"0.0\" y=\"0\" width=\"350.0\" height=\"11\"/>");
    must_have(page, "<rect class=\"f2\" x=\"100.0\" y=\"13\" width=\"400.0\" height=\"11\"/>");
    must_have(page, "<rect class=\"f1\" x=\"400.0\" y=\"13\" width=\"100.0\" height=\"11\"/>");
    must_have(page, "<rect class=\"f3\" x=\"0.0\" y=\"13\" width=\"500.0\" height=\"11\"/>");
    /* a gap of a tenth of a pixel is not drawn */
    must_have(page, "<rect class=\"f0\" x=\"500.0\" y=\"0\" width=\"500.0\" height=\"11\"/>");
    ax_free(page);
    put_text("lanes/timeline.json", "{\"traceEvents\": []}");
    assert_ok(ax_report_read(&run, folder));
    assert_int_equal(run.n_problems, 1);
    assert_non_null(strstr(run.problems[0], "timeline.json: no event of an op"));
    ax_report_close(&run);
}

/* By the loss, not by another figure, and the first of equal ones. */
static void the_best_evaluation_is_told(void **state) {
    (void)state;
    struct ax_buf b = {0};
    for (int i = 1; i <= 10; i++)
        put_step(&b, i, 3);
    put_eval(&b, 2, 2.5);
    put_eval(&b, 4, 1.25);
    put_eval(&b, 6, 1.25);
    put_eval(&b, 8, 2);
    const char *const folders[] = {put_run("best", &b, true)};
    char *page = page_of(1, folders);
    must_have(page, "1.2500 at step 4");
    must_have(page, "2.5000 \xe2\x86\x92 2.0000");
    ax_free(page);
}

/* Sums, medians and last values, each of its own key; a mean or another place in the order is seen. */
static void key_figures_are_those_of_all_steps(void **state) {
    (void)state;
    struct ax_buf b = {0};
    static const struct {
        double epoch, seconds, rate, mfu, hfu, reward, length, clipped, peak;
    } of[] = {{0.5, 20, 500, 0.2, 0.3, 1, 40, 0.5, 1 << 20},
              {1, 30, 100, 0.7, 0.9, 3, 50, 0.25, 2 << 20},
              {1.5, 70, 300, 0.25, 0.5, 2, 60, 0.125, 3 << 20}};
    for (int i = 0; i < 3; i++) {
        assert_ok(ax_buf_printf(
            &b,
            "{\"step\": %d, \"epoch\": %g, \"loss\": 1, \"tokens\": 300, \"trained_tokens\": 200, "
            "\"seconds\": %g, \"tokens_per_second\": %g, \"mfu\": %g, \"hfu\": %g, \"reward\": %g, "
            "\"completions/mean_length\": %g, \"completions/clipped_ratio\": %g, "
            "\"memory_bytes\": 5e7, \"peak_memory_bytes\": %g}\n",
            i + 1, of[i].epoch, of[i].seconds, of[i].rate, of[i].mfu, of[i].hfu, of[i].reward,
            of[i].length, of[i].clipped, of[i].peak));
        assert_ok(ax_buf_printf(&b, "{\"step\": %d, \"eval_loss\": 1, \"eval_reward\": %g}\n",
                                i + 1, of[i].reward));
    }
    const char *folder = put_run("sums", &b, false);
    put_text("sums/run.json", "{\"method\": \"full\", \"config\": {\"rl\": \"grpo\"}}");
    char *page = page_of(1, &folder);
    static const char *const parts[] = {
        "<dt>reward</dt><dd>1 \xe2\x86\x92 2</dd>",
        "<dt>length of answers</dt><dd>40 tokens \xe2\x86\x92 60 tokens</dd>",
        "<dt>cut answers</dt><dd>50 % \xe2\x86\x92 12.5 %</dd>",
        "<dt>evaluation reward</dt><dd>1.0000 \xe2\x86\x92 2.0000</dd>",
        "<dt>best evaluation</dt><dd>3.0000 at step 2</dd>",
        "<dt>steps</dt><dd>3 (1.5 epochs)</dd>",
        "<dt>tokens</dt><dd>900, 600 trained</dd>",
        "<dt>time in steps</dt><dd>2m 00s</dd>",
        "<dt>speed (median)</dt><dd>300 tokens/s</dd>",
        "<dt>MFU, HFU (median)</dt><dd>25.0 %, 50.0 %</dd>",
        "<dt>peak memory</dt><dd>3.00 MiB</dd>",
        "<dt>method</dt><dd>GRPO of all weights</dd>"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        must_have(page, parts[i]);
    ax_free(page);
    /* without HFU */
    page = page_of(1, (const char *const[]){put_plain("mfu", 2)});
    must_have(page, "<dd>25.0 %</dd>");
    ax_free(page);
}

/* The last of the events that begin or end a run. */
static void how_a_run_ended(void **state) {
    (void)state;
    static const struct {
        const char *events[3], *text;
    } runs[] = {{{"finished"}, "finished"},
                {{"resumed", "warning", "stopped"}, "stopped: of stopped"},
                {{"stopped", "resumed"}, "running, or ended without a record of it"},
                {{"stopped", "resumed", "finished"}, "finished"}};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        char name[16], want[96];
        struct ax_buf b = {0};
        snprintf(name, sizeof name, "ended%zu", i);
        put_step(&b, 1, 3);
        for (int k = 0; k < 3 && runs[i].events[k]; k++)
            assert_ok(ax_buf_printf(&b, "{\"step\": 1, \"event\": \"%s\", \"text\": \"of %s\"}\n",
                                    runs[i].events[k], runs[i].events[k]));
        const char *folder = put_run(name, &b, true);
        char *page = page_of(1, &folder);
        snprintf(want, sizeof want, "<dt>state</dt><dd>%s</dd>", runs[i].text);
        must_have(page, want);
        ax_free(page);
    }
}

/* Blocks past those with names are one, with all of their bytes. */
static void rows_and_memory_are_counted(void **state) {
    (void)state;
    struct ax_buf b = {0}, blocks = {0};
    char *page = page_of(1, (const char *const[]){put_plain("rows", 2)});
    must_have(page, "a row contains</th><td>several documents</td>");
    must_have(page, "documents per row</th><td>5.0</td>");
    must_have(page, "tokens per document</th><td>18.0</td>");
    must_have(page, "2.86 MiB planned, process peak 57.2 MiB, recompute off");
    ax_free(page);
    for (int i = 0; i < 17; i++)
        assert_ok(ax_buf_printf(
            &blocks, "%s{\"name\": \"b%d\", \"where\": \"scratch\", \"bytes\": %d}",
            i > 0 ? ", " : "{\"data\": {\"packing\": false}, \"memory\": {\"blocks\": [", i,
            (30 - i) << 20));
    assert_ok(ax_buf_puts(&blocks, "]}}"));
    put_step(&b, 1, 3);
    const char *folder = put_run("many", &b, false);
    put_bytes("many/run.json", blocks.data, blocks.len);
    ax_buf_free(&blocks);
    page = page_of(1, &folder);
    must_have(page, "a row contains</th><td>one document</td>");
    must_have(page, "b13 <small>scratch</small>");
    assert_null(strstr(page, "b14 "));
    must_have(page, "all others <small></small>");
    must_have(page, "<td class=\"num\">45.0 MiB</td>"); /* 16 + 15 + 14 */
    ax_free(page);
}

static void a_page_of_one_run(void **state) {
    (void)state;
    const char *const folders[] = {put_plain("one", 2)};
    char *page = page_of(1, folders);
    static const char *const parts[] = {"Training loss",
                                        "Evaluation loss",
                                        "Evaluation accuracy",
                                        "Learning rate",
                                        "Gradient norm",
                                        "Speed",
                                        "MFU",
                                        "Memory",
                                        "Row fill",
                                        "Time by phase",
                                        "forward <b>40.0 %</b>",
                                        "other <b>40.0 %</b>",
                                        "Memory by name",
                                        "weights <small>persistent</small>",
                                        "Rows and packing",
                                        "<td>90.0 %</td>",
                                        "c.yaml:3:1",
                                        "A &amp; B",
                                        "finished",
                                        "2026-01-02 03:04 UTC",
                                        "some/&lt;model&gt;",
                                        "&lt;/script&gt;&lt;b&gt;"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        must_have(page, parts[i]);
    char header[128];
    snprintf(header, sizeof header, "<header><h1>Training run</h1><p>%s</p>", in_scratch("one"));
    must_have(page, header);
    assert_int_equal(count(page, "<figure>"), 9);
    /* nothing is loaded from anywhere */
    static const char *const none[] = {"http://", "https://", "src=", "href=", "@import", "url("};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        const int namespaces = i == 0 ? 1 : 0; /* of SVG, in the script */
        assert_int_equal(count(page, none[i]), namespaces);
    }
    ax_free(page);
}

/* A chart for each figure that a method has besides. */
static void figures_of_methods(void **state) {
    (void)state;
    static const struct {
        const char *metrics, *title;
        int figures;
    } methods[] = {
        {"\"rewards/accuracies\": 0.75, \"rewards/margins\": 0.5, \"kl\": 0.1",
         "Preferred answers<", 3},
        {"\"accuracy\": 0.75, \"margin\": 0.5", "Margin<", 2},
        {"\"kd_loss\": 0.5, \"ce_loss\": 1", "Divergence from the teacher<", 1},
        {"\"moe/max_violation\": 0.5", "Busiest expert<", 1},
        {"\"moe/entropy\": 0.9", "Entropy of expert loads<", 1},
        {"\"entropy\": 1", "Entropy<", 1},
        {"\"reward\": 0.5, \"completions/mean_length\": 7, \"completions/clipped_ratio\": 0.25, "
         "\"frac_reward_zero_std\": 0.5",
         "Reward<", 4},
    };
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        char name[16];
        struct ax_buf b = {0};
        snprintf(name, sizeof name, "method%zu", i);
        for (int step = 1; step <= 2; step++)
            assert_ok(
                ax_buf_printf(&b, "{\"step\": %d, \"loss\": 1, %s}\n", step, methods[i].metrics));
        assert_ok(
            ax_buf_puts(&b, "{\"step\": 2, \"eval_loss\": 1, \"eval_rewards/accuracies\": 0.5}\n"));
        const char *const folders[] = {put_run(name, &b, false)};
        char *page = page_of(1, folders);
        must_have(page, methods[i].title);
        must_have(page, "Preferred answers in evaluations<");
        assert_int_equal(count(page, "<figure>"), 3 + methods[i].figures); /* two losses */
        ax_free(page);
    }
}

/* Units, name and key figures are those of the method that run.json names. */
static void words_of_methods(void **state) {
    (void)state;
    static const struct {
        const char *config, *figures, *words[4];
    } methods[] = {
        {"\"rl\": \"dpo\"",
         "\"rewards/accuracies\": 0.75, \"rewards/margins\": 0.5",
         {"Training loss</b> <span>nats per pair<", "<dd>DPO of an adapter (lora)</dd>",
          "<dt>margin</dt><dd>0.5 \xe2\x86\x92 0.5</dd>",
          "<dt>preferred answers</dt><dd>75 % \xe2\x86\x92 75 %</dd>"}},
        {"\"rl\": \"kto\"",
         "\"kl\": 0.25",
         {"<span>per answer, from 0 to its weight<", "KTO of an adapter",
          "<dt>KL</dt><dd>0.25 \xe2\x86\x92 0.25</dd>"}},
        {"\"rl\": null, \"reward_model\": true",
         "\"margin\": -1, \"eval_accuracy\": 0.5",
         {"<span>nats per pair<", "<dd>reward model of", "<dd>-1 \xe2\x86\x92 -1</dd>"}},
        {"\"process_reward_model\": true",
         "\"accuracy\": 0.75",
         {"<span>nats per labeled step<", "<dd>process reward model of",
          "Right judgements</b> <span>%, of labeled steps<",
          "<dt>right judgements</dt><dd>75 % \xe2\x86\x92 75 %</dd>"}},
        {"\"rl\": \"grpo\"",
         "\"reward\": 0.5, \"rewards/a:b/mean\": 0.25, \"rewards/<c>/mean\": 0.75",
         {"<span>the policy&#39;s objective, whose level says little<", "GRPO of an adapter",
          "<b>Reward by a:b</b>", "<b>Reward by &lt;c&gt;</b>"}},
        {"\"rl\": \"ppo\"",
         "\"objective/kl\": 2, \"rewards/one/mean\": 1",
         {"PPO of an", "<dt>KL</dt><dd>2 "}},
        {"\"kd_trainer\": true", "\"kd_loss\": 1", {"<dd>distillation of an adapter"}},
        {"\"qat\": {\"scheme\": \"int8\"}", "\"epoch\": 1", {"<dd>quantization-aware training of"}},
        {"\"rl\": null",
         "\"epoch\": 1",
         {"<span>nats per trained token<", "supervised fine-tuning of"}},
    };
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        char name[16], path[32], record[200];
        struct ax_buf b = {0};
        snprintf(name, sizeof name, "words%zu", i);
        for (int step = 1; step <= 2; step++)
            assert_ok(
                ax_buf_printf(&b, "{\"step\": %d, \"loss\": 1, %s}\n", step, methods[i].figures));
        const char *const folders[] = {put_run(name, &b, false)};
        snprintf(path, sizeof path, "%s/run.json", name);
        snprintf(record, sizeof record, "{\"method\": \"lora\", \"config\": {%s}}",
                 methods[i].config);
        put_text(path, record);
        char *page = page_of(1, folders);
        for (int k = 0; k < 4 && methods[i].words[k]; k++)
            must_have(page, methods[i].words[k]);
        assert_null(strstr(page, "Reward by one"));
        ax_free(page);
    }
}

/* Of what was sampled to train on, the first of each step, with what it was worth. */
static void completions_are_shown(void **state) {
    (void)state;
    struct ax_buf b = {0};
    put_step(&b, 1, 3);
    const char *folder = put_run("sampled", &b, true);
    put_text(
        "sampled/completions.jsonl",
        "{\"step\": 1, \"prompt\": \"2+3\", \"completion\": \"<5>\", \"rewards\": {\"right\": 1.0, "
        "\"short\": null}, \"advantage\": 0.75}\n"
        "{\"step\": 1, \"prompt\": \"2+3\", \"completion\": \"six\", \"rewards\": {}, "
        "\"advantage\": -0.75}\n"
        "not json\n"
        "{\"step\": 2, \"prompt\": \"4+3\", \"completion\": \"7\", \"rewards\": {\"right\": 0.5}, "
        "\"advantage\": 0}\n");
    char *page = page_of(1, &folder);
    must_have(page, "<th>worth</th>");
    must_have(page, "&lt;5&gt;</td><td>right 1, short none, advantage 0.75</td>");
    must_have(page, "<td>right 0.5, advantage 0</td>");
    assert_null(strstr(page, "six"));
    ax_free(page);
}

/* Calls are folded with their results, which tools that run on their own give last. */
static void completions_with_tools_are_shown_by_turns(void **state) {
    (void)state;
    struct ax_buf b = {0};
    put_step(&b, 1, 3);
    const char *folder = put_run("called", &b, true);
    put_text(
        "called/completions.jsonl",
        "{\"step\": 1, \"prompt\": \"2*3\", \"completion\": \"raw\", \"rewards\": {}, "
        "\"advantage\": 0, \"messages\": [{\"role\": \"assistant\", \"content\": \"Let <me>.\", "
        "\"reasoning_content\": \"hm\", \"tool_calls\": [{\"function\": {\"name\": \"slow\", "
        "\"arguments\": {\"a\": 2}}}, {\"function\": {\"name\": \"fast\", \"arguments\": "
        "{\"b\": \"<b>\"}}}]}, {\"role\": \"tool\", \"name\": \"fast\", \"content\": "
        "\"<six>\"}, {\"role\": \"tool\", \"name\": \"slow\", \"content\": \"five\"}, {\"role\": "
        "\"assistant\", \"content\": \"odd\"}, {\"role\": \"tool\", \"name\": \"error\", "
        "\"content\": \"cannot be read\"}, {\"role\": \"assistant\", \"content\": \"Six.\", "
        "\"tool_calls\": [{\"function\": {\"name\": \"fast\", \"arguments\": null}}]}], "
        "\"calls\": [{\"seconds\": 0.25, \"failed\": false}, {\"seconds\": 1, \"failed\": "
        "true}]}\n");
    put_text("called/eval.jsonl",
             "{\"where\": \"a:1\", \"answer\": \"untold\", \"solved\": true, \"messages\": "
             "[{\"role\": \"assistant\", \"content\": \"Solved.\"}], \"calls\": []}\n");
    char *page = page_of(1, &folder);
    must_have(page, "<td class=\"text\"><div>Solved.</div></td></tr>");
    assert_null(strstr(page, "untold"));
    must_have(page, "<summary>thought</summary><pre>hm</pre>");
    must_have(page,
              "<div>Let &lt;me&gt;.</div><details class=\"call\"><summary>slow "
              "<small>{&quot;a&quot;: 2} 0.25 s</small></summary><pre>{&quot;a&quot;: 2}</pre>"
              "<pre>\xe2\x86\x90 five</pre></details>");
    must_have(page, "<summary>fast <small>{&quot;b&quot;: &quot;&lt;b&gt;&quot;} 1 s, "
                    "failed</small></summary><pre>{&quot;b&quot;: &quot;&lt;b&gt;&quot;}</pre>"
                    "<pre>\xe2\x86\x90 &lt;six&gt;</pre>");
    must_have(page,
              "<div>odd</div><details class=\"call\"><summary>unread call</summary><pre>cannot "
              "be read</pre></details><div>Six.</div>");
    must_have(page, "<pre>null</pre><pre>\xe2\x86\x90 no result</pre>");
    assert_null(strstr(page, ">raw<"));
    ax_free(page);
}

static void runs_side_by_side(void **state) {
    (void)state;
    char names[AX_REPORT_MAX_RUNS][64];
    const char *folders[AX_REPORT_MAX_RUNS];
    for (int i = 0; i < AX_REPORT_MAX_RUNS; i++) {
        char name[16];
        snprintf(name, sizeof name, "side%d", i);
        snprintf(names[i], sizeof names[i], "%s", put_plain(name, 1 + 0.1 * i));
        folders[i] = names[i];
    }
    char config[64];
    snprintf(config, sizeof config, "side1/run.json");
    put_text(config, "{\"config\": {\"learning_rate\": 2e-4, \"seed\": 42}, \"origins\": "
                     "{\"learning_rate\": \"command line\", \"seed\": \"default\"}}");
    char *page = page_of(3, folders);
    must_have(page, "3 training runs");
    must_have(page, "Different between the runs <small>2</small>");
    must_have(page, "command line");
    assert_int_equal(count(page, "class=\"line full s2\" data-run="), 9);
    ax_free(page);
    page = page_of(AX_REPORT_MAX_RUNS, folders);
    must_have(page, "s5 dashed");
    ax_free(page);
}

/* The words of the command line, as a shell reads them. */
static void the_command_line_is_shown(void **state) {
    (void)state;
    struct ax_buf b = {0};
    put_step(&b, 1, 3);
    const char *folder = put_run("words", &b, false);
    put_text("words/run.json",
             "{\"config\": {}, \"command\": [\"axtrain\", \"sft\", \"my run.yaml\", "
             "\"seed=1\", \"output_dir=it's\", \"\"]}");
    char *page = page_of(1, &folder);
    must_have(page, "<code>axtrain sft &#39;my run.yaml&#39; seed=1 "
                    "&#39;output_dir=it&#39;\\&#39;&#39;s&#39; &#39;&#39;</code>");
    ax_free(page);
}

static void answers_are_shown(void **state) {
    (void)state;
    struct ax_buf b = {0}, rows = {0};
    put_step(&b, 1, 3);
    const char *folder = put_run("answers", &b, true);
    for (int i = 0; i < 30; i++)
        assert_ok(
            ax_buf_printf(&rows,
                          "{\"row\": %d, \"where\": \"t.jsonl:%d\", \"expected\": \"%d\", "
                          "\"final_answer\": %s, \"solved\": %s, \"answer\": \"<it is> %d\"}\n",
                          i, i + 1, i, i ? "\"7\"" : "null", i == 7 ? "true" : "false", i));
    assert_ok(ax_buf_puts(&rows, "{\"row\": 30, \"where\": \"t.jsonl:31\"}\nnot json\n7\n"
                                 "{\"what\": \"eval\", \"rows\": 31}\n"));
    put_bytes("answers/eval.jsonl", rows.data, rows.len);
    ax_buf_free(&rows);
    char *page = page_of(1, &folder);
    must_have(page, "<span>30 records, 1 of 30 solved; the first 20</span>");
    must_have(page, "<th scope=\"row\">t.jsonl:8</th><td>yes</td><td><code>7</code></td><td><code>7"
                    "</code></td><td><code>&lt;it is&gt; 7</code></td>");
    must_have(page, "t.jsonl:1</th><td>no</td>");
    assert_null(strstr(page, "t.jsonl:21<"));
    ax_free(page);
    put_text("answers/eval.jsonl", "{\"where\": \"a\", \"expected\": \"1\", \"answer\": \"b\"}\n");
    put_text(
        "answers/samples.jsonl",
        "{\"task\": \"gsm\", \"doc_id\": 4, \"target\": \"12\", \"resps\": [[\"so 12\"]], "
        "\"filtered_resps\": [\"12\"], \"metrics\": [\"exact_match\"], \"exact_match\": 1.0}\n"
        "{\"task\": \"arc\", \"doc_id\": 0, \"resps\": [[[-1.5, false]]], \"metrics\": [\"acc\"], "
        "\"acc\": 1.0}\n");
    page = page_of(1, &folder);
    must_have(page, "<span>2 records, 1 of 1 solved</span>");
    must_have(page,
              "gsm 4</th><td>yes</td><td><code>12</code></td><td><code>12</code></td><td><code>so "
              "12</code>");
    ax_free(page);
    put_text("answers/samples.jsonl", "");
    page = page_of(1, &folder);
    must_have(page, "<span>1 record</span>");
    ax_free(page);
    /* a long answer is truncated, also inside a character */
    assert_ok(ax_buf_puts(&rows, "{\"where\": \"long\", \"answer\": \"x"));
    for (int i = 0; i < 2000; i++)
        assert_ok(ax_buf_puts(&rows, "\xc3\xa4"));
    assert_ok(ax_buf_puts(&rows, "\"}\n"));
    put_bytes("answers/eval.jsonl", rows.data, rows.len);
    ax_buf_free(&rows);
    page = page_of(1, &folder);
    must_have(page, " \xe2\x80\xa6</code>");
    assert_true(count(page, "\xc3\xa4") < 610);
    ax_free(page);
}

static void one_is_not_several(void **state) {
    (void)state;
    struct ax_buf b = {0};
    for (int i = 1; i <= 10; i++)
        put_step(&b, i, 3);
    for (int i = 0; i < 201; i++)
        assert_ok(
            ax_buf_printf(&b, "{\"step\": 10, \"event\": \"warning\", \"text\": \"w%d\"}\n", i));
    for (int i = 0; i < AX_REPORT_MAX_PROBLEMS + 1; i++)
        assert_ok(ax_buf_puts(&b, "?\n"));
    const char *folder = put_run("single-things", &b, true);
    char *page = page_of(1, &folder);
    must_have(page, "10 (1 epoch)");
    must_have(page, "<li>not shown: 1 earlier event</li>");
    must_have(page, "<li class=\"warn\"><span>step 10</span> <b>warning</b> w200</li>");
    assert_null(strstr(page, " w0<"));
    must_have(page, "and 1 more such line<");
    ax_free(page);
    page = page_of(1, (const char *const[]){put_plain("plural", 2)});
    assert_null(strstr(page, "1 epochs"));
    ax_free(page);
}

static void runs_with_little_to_tell(void **state) {
    (void)state;
    struct ax_buf b = {0};
    make_folder("none");
    const char *folder = put_run("none", &b, false);
    char *page = page_of(1, &folder);
    must_have(page, "No steps or evaluations");
    must_have(page, "no run.json");
    ax_free(page);
    put_step(&b, 1, 3);
    folder = put_run("single", &b, false);
    page = page_of(1, &folder);
    must_have(page, "<circle");
    assert_null(strstr(page, "MFU</b>")); /* the only value is null */
    ax_free(page);
}

static void the_command(void **state) {
    (void)state;
    char folder[64], file[80], path[96];
    snprintf(folder, sizeof folder, "%s", put_plain("cmd", 2));
    snprintf(file, sizeof file, "%s", in_scratch("page.html"));
    char *argv[] = {(char[]){"report"}, folder, (char[]){"-o"}, file};
    assert_ok(ax_cmd_report(4, argv));
    assert_true(ax_path_exists(file));
    assert_ok(ax_cmd_report(2, argv));
    snprintf(path, sizeof path, "%s/report.html", folder);
    char *page;
    size_t n;
    assert_ok(ax_read_file(path, 1 << 22, &page, &n));
    assert_string_equal(page + n - strlen("</html>\n"), "</html>\n");
    ax_free(page);
    assert_int_equal(ax_cmd_report(1, argv), AX_ERR_CONFIG);
    char *many[AX_REPORT_MAX_RUNS + 2] = {argv[0]};
    for (int i = 0; i <= AX_REPORT_MAX_RUNS; i++)
        many[i + 1] = folder;
    assert_error(ax_cmd_report(AX_REPORT_MAX_RUNS + 2, many), AX_ERR_CONFIG, "unexpected argument");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_run),
        cmocka_unit_test(broken_lines_are_named_and_passed_over),
        cmocka_unit_test(a_generated_text_may_have_any_character),
        cmocka_unit_test(the_last_of_repeated_steps_counts),
        cmocka_unit_test(what_is_not_there),
        cmocka_unit_test(the_best_evaluation_is_told),
        cmocka_unit_test(a_timeline_is_drawn),
        cmocka_unit_test(key_figures_are_those_of_all_steps),
        cmocka_unit_test(how_a_run_ended),
        cmocka_unit_test(rows_and_memory_are_counted),
        cmocka_unit_test(a_page_of_one_run),
        cmocka_unit_test(figures_of_methods),
        cmocka_unit_test(words_of_methods),
        cmocka_unit_test(completions_are_shown),
        cmocka_unit_test(completions_with_tools_are_shown_by_turns),
        cmocka_unit_test(runs_side_by_side),
        cmocka_unit_test(the_command_line_is_shown),
        cmocka_unit_test(answers_are_shown),
        cmocka_unit_test(one_is_not_several),
        cmocka_unit_test(runs_with_little_to_tell),
        cmocka_unit_test(the_command),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
