/* The command, and the page from top to bottom. */
#include "cmd/report/report.h"

#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "cmd/args/args.h"
#include "cmd/commands.h"
#include "cmd/report/html.h"

/* ---- the page ---- */

static enum ax_status put_legend(struct ax_buf *out, const struct ax_report *r) {
    if (r->n == 1)
        return AX_OK;
    AX_TRY(ax_buf_puts(out, "<ul class=\"legend\">"));
    for (int i = 0; i < r->n; i++) {
        AX_TRY(ax_buf_printf(out,
                             "<li><svg class=\"key\" viewBox=\"0 0 16 10\" aria-hidden=\"true\">"
                             "<path class=\"line full s%d%s\" d=\"M0 5H16\"/></svg>",
                             i % 6, i / 6 % 2 ? " dashed" : ""));
        AX_TRY(ax_html_put(out, "%</li>", r->runs[i].name));
    }
    return ax_buf_puts(out, "</ul>\n");
}

static enum ax_status put_header(struct ax_buf *out, const struct ax_report *r) {
    char title[64];
    snprintf(title, sizeof title, "%d training runs", r->n);
    const char *name = r->n == 1 ? r->runs[0].name : title;
    AX_TRY(ax_html_put(out,
                       "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                       "<meta name=\"viewport\" content=\"width=device-width, "
                       "initial-scale=1\">\n<title>% \xc2\xb7 axtrain</title>\n<style>\n",
                       name));
    AX_TRY(ax_buf_puts(out, ax_report_css));
    AX_TRY(ax_buf_puts(out, "</style>\n</head>\n<body>\n<main>\n"));
    if (r->n == 1)
        return ax_html_put(out, "<header><h1>Training run</h1><p>%</p></header>\n", name);
    return ax_html_put(out, "<header><h1>%</h1></header>\n", name);
}

enum ax_status ax_report_put(struct ax_buf *out, const struct ax_report *r) {
    AX_TRY(put_header(out, r));
    AX_TRY(ax_report_put_figures(out, r));
    AX_TRY(put_legend(out, r));
    AX_TRY(ax_report_put_charts(out, r));
    AX_TRY(ax_report_put_timelines(out, r));
    AX_TRY(ax_buf_puts(out, "<div class=\"pair\"><div>\n"));
    AX_TRY(ax_report_put_phases(out, r));
    AX_TRY(ax_report_put_events(out, r));
    AX_TRY(ax_buf_puts(out, "</div><div>\n"));
    AX_TRY(ax_report_put_packing(out, r));
    AX_TRY(ax_report_put_environment(out, r));
    AX_TRY(ax_buf_puts(out, "</div></div>\n"));
    AX_TRY(ax_report_put_samples(out, r));
    AX_TRY(ax_report_put_answers(out, r));
    AX_TRY(ax_report_put_memory(out, r));
    AX_TRY(ax_report_put_config(out, r));
    AX_TRY(ax_buf_puts(out, "<footer>Written by axtrain " AX_VERSION
                            ". MFU by the FLOPs that the method needs per token, HFU "
                            "by those executed.</footer>\n"
                            "</main>\n<script>\n"));
    AX_TRY(ax_buf_puts(out, ax_report_script));
    return ax_buf_puts(out, "</script>\n</body>\n</html>\n");
}

/* ---- the command ---- */

/* The report of a single run is written into its folder. */
static enum ax_status choose_file(char **path, const char *given, const char *first, int n) {
    if (given)
        return ax_strdup(path, given);
    return n == 1 ? ax_path_join(path, first, "report.html") : ax_strdup(path, "report.html");
}

static enum ax_status write_page(const struct ax_report *r, const char *given) {
    struct ax_buf page = {0};
    char *path = NULL;
    enum ax_status st;
    AX_TRY_GOTO(ax_report_put(&page, r), st, done);
    AX_TRY_GOTO(choose_file(&path, given, r->runs[0].name, r->n), st, done);
    AX_TRY_GOTO(ax_write_file_atomic(path, page.data, page.len), st, done);
    printf("report: %s\n", path);
done:
    ax_buf_free(&page);
    ax_free(path);
    return st;
}

static void say_problems(const struct ax_report_run *run) {
    const size_t n = run->n_problems, more = n - AX_REPORT_MAX_PROBLEMS;
    for (size_t i = 0; i < n && i < AX_REPORT_MAX_PROBLEMS; i++)
        ax_log_warn("%s: %s", run->name, run->problems[i]);
    if (n > AX_REPORT_MAX_PROBLEMS)
        ax_log_warn("%s: and %zu more such line%s", run->name, more, more == 1 ? "" : "s");
}

enum ax_status ax_cmd_report(int argc, char **argv) {
    struct ax_report_run runs[AX_REPORT_MAX_RUNS] = {0};
    const char *folders[AX_REPORT_MAX_RUNS], *file = NULL;
    const struct ax_arg args[] = {{"-o", AX_ARG_STRING, &file, 0, 0}};
    struct ax_report r = {.runs = runs};
    AX_TRY(ax_args_parse(argc, argv, 1, args, 1, AX_REPORT_MAX_RUNS, folders, &r.n));
    enum ax_status st = AX_OK;
    for (int i = 0; i < r.n && st == AX_OK; i++) {
        st = ax_report_read(&runs[i], folders[i]);
        if (st == AX_OK)
            say_problems(&runs[i]);
    }
    if (st == AX_OK)
        st = write_page(&r, file);
    for (int i = 0; i < r.n; i++)
        ax_report_close(&runs[i]);
    return st;
}
