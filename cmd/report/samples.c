/* The model's answers at evaluations, or those that it trains on: the newest of each run. */
#include <stdio.h>

#include "cmd/report/html.h"
#include "cmd/report/report.h"

#define MAX_SAMPLES 24

static enum ax_status put_run(struct ax_buf *out, const struct ax_report_run *run) {
    const size_t first = run->n_samples > MAX_SAMPLES ? run->n_samples - MAX_SAMPLES : 0;
    if (run->n_samples == 0)
        return AX_OK;
    AX_TRY(ax_html_put(out,
                       "<p><b>%</b></p><div class=\"scroll\"><table><thead><tr><th>step</th>"
                       "<th>end of the prompt</th><th>answer</th>",
                       run->name));
    AX_TRY(ax_buf_puts(out, run->samples[0].worth ? "<th>worth</th></tr></thead>\n"
                                                  : "</tr></thead>\n"));
    for (size_t i = first; i < run->n_samples; i++) {
        const struct ax_report_sample *s = &run->samples[i];
        char step[32];
        snprintf(step, sizeof step, "%lld", (long long)s->step);
        AX_TRY(ax_html_put(out, "<tr><td>%</td><td class=\"text\">%</td><td class=\"text\">%</td>",
                           step, s->prompt, s->text));
        if (s->worth)
            AX_TRY(ax_html_put(out, "<td>%</td>", s->worth));
        AX_TRY(ax_buf_puts(out, "</tr>\n"));
    }
    return ax_buf_puts(out, "</table></div>\n");
}

enum ax_status ax_report_put_samples(struct ax_buf *out, const struct ax_report *r) {
    bool any = false;
    for (int i = 0; i < r->n; i++)
        any = any || r->runs[i].n_samples > 0;
    if (!any)
        return AX_OK;
    AX_TRY(ax_buf_puts(out, "<section class=\"card\"><h2>Samples</h2>\n"));
    for (int i = 0; i < r->n; i++)
        AX_TRY(put_run(out, &r->runs[i]));
    return ax_buf_puts(out, "</section>\n");
}
