/* What eval says: a few lines, one JSON object, or a line of JSON for each row. */
#include <stdio.h>

#include "base/clock.h"
#include "cmd/eval.h"

static enum ax_status put_json(struct ax_buf *out, json_t *v, size_t flags) {
    char *text = v ? json_dumps(v, flags) : NULL;
    json_decref(v);
    if (!text)
        return ax_error(AX_ERR_NOMEM, "out of memory for the result");
    const enum ax_status st = ax_buf_printf(out, "%s\n", text);
    ax_free(text);
    return st;
}

/* ---- rows ---- */

static double per(double sum, double n) {
    return n > 0 ? sum / n : 0;
}

static json_t *row_json(const struct ax_eval *e, size_t i) {
    const struct ax_eval_row *r = &e->rows[i];
    const struct ax_eval_document *s = &r->score;
    char where[512];
    json_t *v =
        json_pack("{sI ss* sI sI so sf}", "row", (json_int_t)i, "where",
                  ax_docs_where(e->corpus->sets[r->doc.set], r->doc.doc, where, sizeof where),
                  "tokens", (json_int_t)s->tokens, "trained_tokens", (json_int_t)s->trained,
                  "mean_nll", s->weight > 0 ? json_real(s->nll / s->weight) : json_null(),
                  "accuracy", per((double)s->correct, (double)s->trained));
    if (!v || !e->solve || !r->answer.want[0])
        return v;
    const struct ax_eval_answer *a = &r->answer;
    json_object_set_new(v, "expected", json_string(a->want));
    if (e->pass_options.samples > 0) {
        json_object_set_new(v, "correct", json_integer((json_int_t)a->correct));
        return v;
    }
    json_object_set_new(v, "final_answer", a->got[0] ? json_string(a->got) : json_null());
    json_object_set_new(v, "solved", json_boolean(a->solved));
    json_object_set_new(v, "cut", json_boolean(a->cut));
    json_object_set_new(v, "answer", json_string(a->text));
    return v;
}

/* ---- all together ---- */

static json_t *summary_json(const struct ax_eval *e) {
    const struct ax_eval_result *r = &e->result;
    json_t *v = json_pack(
        "{ss ss ss* ss sI sI sI sf sf sf sf sI}", "what", "eval", "model", e->model, "adapter",
        e->adapter, "dtype", ax_dtype_info(e->dtype)->name, "rows", (json_int_t)r->rows, "tokens",
        (json_int_t)r->tokens, "trained_tokens", (json_int_t)r->trained, "mean_nll", r->loss,
        "perplexity", r->perplexity, "accuracy", r->accuracy, "tokens_per_second",
        per((double)r->tokens, r->seconds), "left_out_too_long", (json_int_t)e->left_out->too_long);
    if (v && e->pass_options.samples > 0)
        json_object_set_new(v, "final_answer", ax_eval_pass_json(e, &e->pass));
    else if (v && e->solve)
        json_object_set_new(v, "final_answer",
                            json_pack("{sI sI sI sI sf sI}", "solved", (json_int_t)e->n_solved,
                                      "asked", (json_int_t)e->n_answers, "cut",
                                      (json_int_t)e->n_cut, "generated_tokens",
                                      (json_int_t)e->generated, "generated_tokens_per_second",
                                      per((double)e->generated, e->generate_seconds),
                                      "max_new_tokens", (json_int_t)e->max_new_tokens));
    if (v) {
        json_object_set_new(v, "peak_rss_bytes", json_integer((json_int_t)ax_mem_peak_rss()));
        json_object_set_new(v, "arena_bytes", json_integer((json_int_t)e->arena_bytes));
    }
    return v;
}

static enum ax_status put_text(const struct ax_eval *e, struct ax_buf *out) {
    const struct ax_eval_result *r = &e->result;
    char tokens[32], trained[32], rate[32];
    AX_TRY(ax_buf_printf(
        out, "%lld rows, %s tokens, %s of them trained; %s, %s tokens/s\n", (long long)r->rows,
        ax_format_count(tokens, sizeof tokens, (double)r->tokens),
        ax_format_count(trained, sizeof trained, (double)r->trained), ax_dtype_info(e->dtype)->name,
        ax_format_count(rate, sizeof rate, per((double)r->tokens, r->seconds))));
    if (e->left_out->too_long > 0)
        AX_TRY(ax_buf_printf(out, "left out: %lld rows longer than %lld tokens\n",
                             (long long)e->left_out->too_long,
                             (long long)ax_config_i64(&e->cfg, "sequence_len")));
    AX_TRY(ax_buf_printf(out, "mean NLL    %.6f\nperplexity  %.4f\naccuracy    %.2f %%\n", r->loss,
                         r->perplexity, 100 * r->accuracy));
    if (!e->solve)
        return AX_OK;
    if (e->pass_options.samples > 0)
        return ax_eval_pass_put(e, &e->pass, out);
    AX_TRY(ax_buf_printf(out, "solved      %lld/%lld (%.1f %%), greedy answers\n",
                         (long long)e->n_solved, (long long)e->n_answers,
                         100 * per((double)e->n_solved, (double)e->n_answers)));
    if (e->n_cut > 0)
        AX_TRY(ax_buf_printf(out,
                             "%lld answers had not ended after %lld tokens (--max-new-tokens)\n",
                             (long long)e->n_cut, (long long)e->max_new_tokens));
    return AX_OK;
}

enum ax_status ax_eval_print(const struct ax_eval *e, struct ax_buf *out) {
    for (size_t i = 0; e->per_row && i < e->n_rows; i++)
        AX_TRY(put_json(out, row_json(e, i), JSON_COMPACT));
    if (e->per_row)
        return put_json(out, summary_json(e), JSON_COMPACT);
    return e->json ? put_json(out, summary_json(e), JSON_INDENT(2)) : put_text(e, out);
}
