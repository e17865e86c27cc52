/* The output of eval: a few lines or a table, one JSON object, or a line of JSON per example. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cmd/eval/eval.h"

enum ax_status ax_eval_put_json(struct ax_buf *out, json_t *v, size_t flags) {
    char *text = v ? json_dumps(v, flags) : NULL;
    json_decref(v);
    if (!text)
        return ax_error(AX_ERR_NOMEM, "out of memory for the result");
    const enum ax_status st = ax_buf_printf(out, "%s\n", text);
    ax_free(text);
    return st;
}

/* ---- a line of JSON per example ---- */

/* NULL if there is only one turn. */
static const char *turn_name(const struct ax_eval *e, const struct ax_eval_turn *t) {
    return e->n_turns > 1 ? ax_adapters_name(&e->adapters, t->adapter) : NULL;
}

static json_t *row_json(const struct ax_eval *e, const struct ax_eval_turn *t, size_t i) {
    const struct ax_question *r = &e->q.list[i];
    const struct ax_eval_document *s = &r->score;
    char where[512];
    json_t *v =
        json_pack("{ss* sI so sI sI so sf}", "adapter", turn_name(e, t), "row", (json_int_t)i,
                  "where", ax_json_repaired(ax_questions_where(&e->q, r, where, sizeof where)),
                  "tokens", (json_int_t)s->tokens, "trained_tokens", (json_int_t)s->trained,
                  "mean_nll", s->weight > 0 ? ax_json_number(s->nll / s->weight) : json_null(),
                  "accuracy", ax_eval_per((double)s->correct, (double)s->trained));
    if (!v || !e->solve || !r->answer.want[0])
        return v;
    const struct ax_answer *a = &r->answer;
    json_object_set_new(v, "expected", json_string(a->want));
    if (e->pass_options.samples > 0 && e->best.args.n == 0) {
        json_object_set_new(v, "correct", json_integer((json_int_t)a->correct));
        return v;
    }
    json_object_set_new(v, "final_answer", a->got[0] ? json_string(a->got) : json_null());
    json_object_set_new(v, "solved", json_boolean(a->solved));
    json_object_set_new(v, "cut", json_boolean(a->cut));
    json_object_set_new(v, "answer", json_stringn(a->text, a->len));
    if (a->messages) {
        json_object_set(v, "messages", a->messages);
        json_object_set(v, "calls", a->log);
    }
    if (e->best.args.n > 0)
        ax_eval_best_add_row(e, a, v);
    return v;
}

enum ax_status ax_eval_print_rows(struct ax_eval *e, const struct ax_eval_turn *t) {
    for (size_t i = 0; i < e->q.n; i++)
        AX_TRY(ax_eval_put_json(&e->row_lines, row_json(e, t, i), JSON_COMPACT));
    return AX_OK;
}

/* ---- everything as one object ---- */

/* Adds to v what differs between turns. */
static void add_turn(json_t *v, const struct ax_eval *e, const struct ax_eval_turn *t) {
    const struct ax_eval_result *r = &t->result;
    json_object_set_new(v, "mean_nll", ax_json_number(r->loss));
    json_object_set_new(v, "perplexity", ax_json_number(r->perplexity));
    json_object_set_new(v, "accuracy", ax_json_number(r->accuracy));
    json_object_set_new(v, "tokens_per_second",
                        ax_json_number(ax_eval_per((double)r->tokens, r->seconds)));
    if (e->best.args.n > 0)
        json_object_set_new(v, "best_of", ax_eval_best_json(e));
    if (e->tools)
        json_object_set_new(
            v, "tools",
            json_pack("{sI sI}", "calls", (json_int_t)t->greedy.calls + (json_int_t)t->pass.calls,
                      "failed", (json_int_t)t->greedy.failed + (json_int_t)t->pass.failed));
    if (e->pass_options.samples > 0)
        json_object_set_new(v, "final_answer", ax_eval_pass_json(e, &t->pass));
    else if (e->solve)
        json_object_set_new(
            v, "final_answer",
            json_pack("{sI sI sI sI sf sI}", "solved", (json_int_t)t->greedy.solved, "asked",
                      (json_int_t)e->q.asked, "cut", (json_int_t)t->greedy.cut, "generated_tokens",
                      (json_int_t)t->greedy.generated, "generated_tokens_per_second",
                      ax_eval_per((double)t->greedy.generated, t->greedy.seconds), "max_new_tokens",
                      (json_int_t)e->q.max_new_tokens));
}

/* NULL of the base. */
static json_t *turn_folder(const struct ax_eval *e, const struct ax_eval_turn *t) {
    return t->adapter == AX_ADAPTER_NONE ? NULL
                                         : ax_json_repaired(e->adapters.pefts[t->adapter].dir);
}

static json_t *turns_json(const struct ax_eval *e) {
    json_t *list = json_array();
    for (int i = 0; i < e->n_turns; i++) {
        const struct ax_eval_turn *t = &e->turns[i];
        json_t *v = json_pack("{ss so*}", "adapter", turn_name(e, t), "folder", turn_folder(e, t));
        add_turn(v, e, t);
        json_array_append_new(list, v);
    }
    return list;
}

static enum ax_status print_json(const struct ax_eval *e, size_t flags, struct ax_buf *out) {
    const struct ax_eval_turn *one = e->n_turns == 1 ? &e->turns[0] : NULL;
    const struct ax_eval_result *r = &e->turns[0].result; /* rows, tokens: equal in all */
    json_t *v = json_pack("{ss so so* ss ss sI sI sI}", "what", "eval", "model",
                          ax_json_repaired(e->model), "adapter", one ? turn_folder(e, one) : NULL,
                          "dtype", ax_dtype_info(e->dtype)->name, "base", ax_storage_name(e->store),
                          "rows", (json_int_t)r->rows, "tokens", (json_int_t)r->tokens,
                          "trained_tokens", (json_int_t)r->trained);
    if (v && one)
        add_turn(v, e, one);
    else if (v)
        json_object_set_new(v, "adapters", turns_json(e));
    if (v) {
        json_object_set_new(v, "left_out_too_long",
                            json_integer((json_int_t)e->left_out->too_long));
        json_object_set_new(v, "peak_rss_bytes", json_integer((json_int_t)ax_mem_peak_rss()));
        json_object_set_new(v, "arena_bytes", json_integer((json_int_t)e->arena_bytes));
    }
    return ax_eval_put_json(out, v, flags);
}

/* ---- for a person ---- */

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
                         (long long)t->greedy.solved, (long long)e->q.asked,
                         100 * ax_eval_per((double)t->greedy.solved, (double)e->q.asked));
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
            AX_TRY(ax_buf_printf(out, "  %lld/%lld (%.1f %%)", (long long)t->greedy.solved,
                                 (long long)e->q.asked,
                                 100 * ax_eval_per((double)t->greedy.solved, (double)e->q.asked)));
        AX_TRY(ax_buf_puts(out, "\n"));
    }
    return AX_OK;
}

static enum ax_status put_cut(const struct ax_eval *e, struct ax_buf *out) {
    int64_t cut = 0;
    for (int i = 0; i < e->n_turns; i++)
        cut += e->turns[i].greedy.cut + e->turns[i].pass.cut;
    if (cut == 0)
        return AX_OK;
    return ax_buf_printf(out, "%lld answer%s truncated after %lld token%s (--max-new-tokens)\n",
                         (long long)cut, cut == 1 ? " was" : "s were",
                         (long long)e->q.max_new_tokens, e->q.max_new_tokens == 1 ? "" : "s");
}

static enum ax_status put_calls(const struct ax_eval *e, struct ax_buf *out) {
    int64_t calls = 0, failed = 0;
    for (int i = 0; i < e->n_turns; i++) {
        calls += e->turns[i].greedy.calls + e->turns[i].pass.calls;
        failed += e->turns[i].greedy.failed + e->turns[i].pass.failed;
    }
    return e->tools ? ax_buf_printf(out, "%lld call%s of tools, %lld failed\n", (long long)calls,
                                    calls == 1 ? "" : "s", (long long)failed)
                    : AX_OK;
}

enum ax_status ax_eval_print(const struct ax_eval *e, struct ax_buf *out) {
    if (e->per_row) {
        AX_TRY(ax_buf_append(out, e->row_lines.data, e->row_lines.len));
        return print_json(e, JSON_COMPACT, out);
    }
    if (e->json)
        return print_json(e, JSON_INDENT(2), out);
    AX_TRY(put_data(e, out));
    AX_TRY(e->n_turns == 1 ? put_one(e, out) : put_table(e, out));
    AX_TRY(put_calls(e, out));
    return put_cut(e, out);
}
