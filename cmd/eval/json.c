/* The output of eval as JSON: one object, or one line per example. */
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

/* ---- rows ---- */

/* NULL if there is only one turn. */
static const char *turn_name(const struct ax_eval *e, const struct ax_eval_turn *t) {
    return e->n_turns > 1 ? ax_adapters_name(&e->adapters, t->adapter) : NULL;
}

static json_t *row_json(const struct ax_eval *e, const struct ax_eval_turn *t, size_t i) {
    const struct ax_eval_row *r = &e->rows[i];
    const struct ax_eval_document *s = &r->score;
    char where[512];
    json_t *v =
        json_pack("{ss* sI ss* sI sI so sf}", "adapter", turn_name(e, t), "row", (json_int_t)i,
                  "where", ax_eval_where(e, r, where, sizeof where), "tokens",
                  (json_int_t)s->tokens, "trained_tokens", (json_int_t)s->trained, "mean_nll",
                  s->weight > 0 ? ax_json_number(s->nll / s->weight) : json_null(), "accuracy",
                  ax_eval_per((double)s->correct, (double)s->trained));
    if (!v || !e->solve || !r->answer.want[0])
        return v;
    const struct ax_eval_answer *a = &r->answer;
    json_object_set_new(v, "expected", json_string(a->want));
    if (e->pass_options.samples > 0 && e->best.args.n == 0) {
        json_object_set_new(v, "correct", json_integer((json_int_t)a->correct));
        return v;
    }
    json_object_set_new(v, "final_answer", a->got[0] ? json_string(a->got) : json_null());
    json_object_set_new(v, "solved", json_boolean(a->solved));
    json_object_set_new(v, "cut", json_boolean(a->cut));
    json_object_set_new(v, "answer", json_string(a->text));
    if (e->best.args.n > 0)
        ax_eval_best_add_row(e, a, v);
    return v;
}

enum ax_status ax_eval_print_rows(struct ax_eval *e, const struct ax_eval_turn *t) {
    for (size_t i = 0; i < e->n_rows; i++)
        AX_TRY(ax_eval_put_json(&e->row_lines, row_json(e, t, i), JSON_COMPACT));
    return AX_OK;
}

/* ---- all together ---- */

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
    if (e->pass_options.samples > 0)
        json_object_set_new(v, "final_answer", ax_eval_pass_json(e, &t->pass));
    else if (e->solve)
        json_object_set_new(v, "final_answer",
                            json_pack("{sI sI sI sI sf sI}", "solved", (json_int_t)t->n_solved,
                                      "asked", (json_int_t)e->n_answers, "cut",
                                      (json_int_t)t->n_cut, "generated_tokens",
                                      (json_int_t)t->generated, "generated_tokens_per_second",
                                      ax_eval_per((double)t->generated, t->generate_seconds),
                                      "max_new_tokens", (json_int_t)e->max_new_tokens));
}

static const char *turn_folder(const struct ax_eval *e, const struct ax_eval_turn *t) {
    return t->adapter == AX_ADAPTER_NONE ? NULL : e->adapters.pefts[t->adapter].dir;
}

static json_t *turns_json(const struct ax_eval *e) {
    json_t *list = json_array();
    for (int i = 0; i < e->n_turns; i++) {
        const struct ax_eval_turn *t = &e->turns[i];
        json_t *v = json_pack("{ss ss*}", "adapter", turn_name(e, t), "folder", turn_folder(e, t));
        add_turn(v, e, t);
        json_array_append_new(list, v);
    }
    return list;
}

enum ax_status ax_eval_print_json(const struct ax_eval *e, size_t flags, struct ax_buf *out) {
    const struct ax_eval_turn *one = e->n_turns == 1 ? &e->turns[0] : NULL;
    const struct ax_eval_result *r = &e->turns[0].result; /* rows, tokens: equal in all */
    json_t *v =
        json_pack("{ss ss ss* ss ss sI sI sI}", "what", "eval", "model", e->model, "adapter",
                  one ? turn_folder(e, one) : NULL, "dtype", ax_dtype_info(e->dtype)->name, "base",
                  ax_storage_name(e->store), "rows", (json_int_t)r->rows, "tokens",
                  (json_int_t)r->tokens, "trained_tokens", (json_int_t)r->trained);
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
