/* The output of eval: a few lines or a table, one JSON object, or a line of JSON per example. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cmd/eval/eval.h"

/* Examples and tokens are the same in every turn. */
static enum ax_status put_data(const struct ax_eval *e, struct ax_buf *out) {
    const struct ax_eval_result *r = &e->turns[0].result;
    char tokens[32], trained[32], rate[32];
    AX_TRY(ax_buf_printf(
        out, "%lld records, %s tokens, %s of them trained on; %s, %s tokens/s\n",
        (long long)r->rows, ax_format_count(tokens, sizeof tokens, (double)r->tokens),
        ax_format_count(trained, sizeof trained, (double)r->trained), ax_dtype_info(e->dtype)->name,
        ax_format_count(rate, sizeof rate, ax_eval_per((double)r->tokens, r->seconds))));
    if (e->left_out->too_long == 0)
        return AX_OK;
    return ax_buf_printf(out, "skipped: %lld records longer than %lld tokens\n",
                         (long long)e->left_out->too_long,
                         (long long)ax_config_i64(&e->cfg, "sequence_len"));
}

static enum ax_status put_one(const struct ax_eval *e, struct ax_buf *out) {
    const struct ax_eval_turn *t = &e->turns[0];
    AX_TRY(ax_buf_printf(out, "mean NLL    %.6f\nperplexity  %.4f\naccuracy    %.2f %%\n",
                         t->result.loss, t->result.perplexity, 100 * t->result.accuracy));
    if (!e->solve)
        return AX_OK;
    if (e->best.args.n > 0)
        AX_TRY(ax_eval_best_put(e, out));
    if (e->pass_options.samples > 0)
        return ax_eval_pass_put(e, &t->pass, out);
    return ax_buf_printf(out, "solved      %lld/%lld (%.1f %%), greedy answers\n",
                         (long long)t->n_solved, (long long)e->n_answers,
                         100 * ax_eval_per((double)t->n_solved, (double)e->n_answers));
}

static enum ax_status put_table(const struct ax_eval *e, struct ax_buf *out) {
    int width = (int)strlen("adapter");
    for (int i = 0; i < e->adapters.n; i++) {
        const int n = (int)strlen(e->adapters.names[i]);
        width = n > width ? n : width;
    }
    AX_TRY(ax_buf_printf(out, "\n%-*s  %10s  %10s  %9s%s\n", width, "adapter", "mean NLL",
                         "perplexity", "accuracy", e->solve ? "  solved" : ""));
    for (int i = 0; i < e->n_turns; i++) {
        const struct ax_eval_turn *t = &e->turns[i];
        AX_TRY(ax_buf_printf(out, "%-*s  %10.6f  %10.4f  %7.2f %%", width,
                             ax_adapters_name(&e->adapters, t->adapter), t->result.loss,
                             t->result.perplexity, 100 * t->result.accuracy));
        if (e->pass_options.samples > 0)
            AX_TRY(ax_eval_pass_put_short(e, &t->pass, out));
        else if (e->solve)
            AX_TRY(ax_buf_printf(out, "  %lld/%lld (%.1f %%)", (long long)t->n_solved,
                                 (long long)e->n_answers,
                                 100 * ax_eval_per((double)t->n_solved, (double)e->n_answers)));
        AX_TRY(ax_buf_puts(out, "\n"));
    }
    return AX_OK;
}

static enum ax_status put_cut(const struct ax_eval *e, struct ax_buf *out) {
    int64_t cut = 0;
    for (int i = 0; i < e->n_turns; i++)
        cut += e->turns[i].n_cut + e->turns[i].pass.cut;
    if (cut == 0)
        return AX_OK;
    return ax_buf_printf(out, "%lld answer%s truncated after %lld token%s (--max-new-tokens)\n",
                         (long long)cut, cut == 1 ? " was" : "s were", (long long)e->max_new_tokens,
                         e->max_new_tokens == 1 ? "" : "s");
}

enum ax_status ax_eval_print(const struct ax_eval *e, struct ax_buf *out) {
    if (e->per_row) {
        AX_TRY(ax_buf_append(out, e->row_lines.data, e->row_lines.len));
        return ax_eval_print_json(e, JSON_COMPACT, out);
    }
    if (e->json)
        return ax_eval_print_json(e, JSON_INDENT(2), out);
    AX_TRY(put_data(e, out));
    AX_TRY(e->n_turns == 1 ? put_one(e, out) : put_table(e, out));
    return put_cut(e, out);
}
