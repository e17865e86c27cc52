/* preview as JSON: {"train": totals, "eval": totals or null, "bad_rows", "forms", "warnings", "rows"}, and with tools
 * "turns". */
#include <string.h>

#include "cmd/preview/preview.h"

static enum ax_status no_memory(void) {
    return ax_error(AX_ERR_NOMEM, "out of memory for the preview");
}

static json_t *totals(const struct ax_preview_totals *t) {
    const struct ax_corpus_report *r = &t->dropped;
    if (!t->known)
        return json_null();
    json_t *dropped =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "too_long", (json_int_t)r->too_long,
                  "too_short", (json_int_t)r->too_short, "untrained", (json_int_t)r->untrained,
                  "duplicates", (json_int_t)r->duplicates, "other_shards",
                  (json_int_t)r->other_shards, "for_evaluation", (json_int_t)t->for_evaluation);
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:o}", "documents",
                     (json_int_t)t->documents, "tokens", (json_int_t)t->tokens, "trained",
                     (json_int_t)t->trained, "longest", (json_int_t)t->longest, "rows",
                     (json_int_t)t->rows, "padded_tokens", (json_int_t)t->padded, "efficiency",
                     t->efficiency, "steps", (json_int_t)t->steps, "cut", (json_int_t)r->cut,
                     "dropped", dropped);
}

static json_t *ints(const int32_t *v, size_t n) {
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_integer(v[i]));
    return list;
}

/* What only documents of some tasks have. */
static bool add_rating(json_t *document, const struct ax_preview_piece *p) {
    const bool pair = p->task == AX_TASK_PAIR || p->task == AX_TASK_REWARD;
    json_t *targets = p->targets ? json_array() : NULL;
    for (size_t i = 0; targets && i < p->n; i++)
        json_array_append_new(targets,
                              p->labels[i] == AX_NO_LABEL ? json_null() : json_real(p->targets[i]));
    return (!p->role || json_object_set_new(document, "role", json_string(p->role)) == 0) &&
           (!pair ||
            json_object_set_new(document, "shared", json_integer((json_int_t)p->shared)) == 0) &&
           (!p->margin || json_object_set_new(document, "margin", json_real(*p->margin)) == 0) &&
           (!targets || json_object_set_new(document, "targets", targets) == 0) &&
           (!p->record || json_object_set(document, "record", p->record) == 0);
}

static enum ax_status piece_json(const struct ax_preview *p, const struct ax_preview_piece *piece,
                                 json_t **out) {
    struct ax_buf text = {0};
    enum ax_status st =
        ax_tokenizer_decode(p->data->tok.tokenizer, piece->ids, piece->n, false, &text);
    if (st == AX_OK) {
        *out = json_pack("{s:o, s:i, s:I, s:o, s:o, s:s%}", "where", ax_json_repaired(piece->where),
                         "first_token", (int)piece->from, "trained", (json_int_t)piece->n_trained,
                         "ids", ints(piece->ids, piece->n), "labels", ints(piece->labels, piece->n),
                         "text", text.data ? text.data : "", text.len);
        st = *out && add_rating(*out, piece) ? AX_OK : no_memory();
    }
    ax_buf_free(&text);
    return st;
}

static enum ax_status document(const struct ax_preview *p, const struct ax_packed_sequence *row,
                               int i, json_t **out) {
    struct ax_preview_piece piece;
    AX_TRY(ax_preview_piece_open(&piece, p, row, i));
    const enum ax_status st = piece_json(p, &piece, out);
    ax_preview_piece_close(&piece);
    return st;
}

/* Adds "turns", with tools. */
static enum ax_status add_turns(const struct ax_preview *p, json_t *all) {
    struct ax_preview_piece piece;
    json_t *v = NULL;
    if (!p->chats[0].format)
        return AX_OK;
    AX_TRY(ax_preview_turns_piece(&piece, p));
    enum ax_status st = piece_json(p, &piece, &v);
    if (st == AX_OK && json_object_set_new(all, "turns", v) != 0)
        st = no_memory();
    ax_preview_piece_close(&piece);
    return st;
}

static enum ax_status add_row(void *rows, const struct ax_preview *p,
                              const struct ax_packed_sequence *row) {
    const bool prompts = ax_method_of(p->cfg)->task == AX_TASK_PROMPT;
    json_t *documents = json_array();
    enum ax_status st = AX_OK;
    for (int i = 0; i < row->n_pieces && st == AX_OK; i++) {
        json_t *v;
        st = document(p, row, i, &v);
        if (st == AX_OK && json_array_append_new(documents, v) != 0)
            st = no_memory();
    }
    if (st != AX_OK) {
        json_decref(documents);
        return st;
    }
    json_t *v = json_pack("{s:I, s:I, s:I, s:I, s:o}", "epoch", (json_int_t)row->epoch, "row",
                          (json_int_t)row->index, "tokens", (json_int_t)row->n_tokens, "trained",
                          (json_int_t)(prompts ? 0 : row->n_trained), "documents", documents);
    return json_array_append_new(rows, v) == 0 ? AX_OK : no_memory();
}

static void add_bad(json_t *list, int64_t *n, const struct ax_bad_records *bad) {
    *n += bad->n;
    for (int64_t i = 0; i < bad->n && i < AX_BAD_RECORDS_LISTED; i++)
        json_array_append_new(list, json_string(bad->texts[i]));
}

static json_t *bad_rows(const struct ax_setup_data *d) {
    const struct ax_setup_sets *all[] = {&d->train_sets, &d->eval_sets};
    json_t *list = json_array();
    int64_t n = 0;
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; all[k]->sets && i < all[k]->n; i++)
            add_bad(list, &n, &all[k]->sets[i].info.bad);
    if (d->stream)
        add_bad(list, &n, ax_stream_bad_records(d->stream));
    return json_pack("{s:I, s:o}", "count", (json_int_t)n, "listed", list);
}

static json_t *lines(const struct ax_preview_lines *l) {
    json_t *list = json_array();
    for (size_t i = 0; i < l->n; i++)
        json_array_append_new(list, json_string(l->list[i]));
    return list;
}

enum ax_status ax_preview_json(struct ax_preview *p, struct ax_buf *out) {
    json_t *rows = json_array();
    enum ax_status st = p->o.rows > 0 ? ax_preview_each(p, add_row, rows) : AX_OK;
    json_t *v = json_pack("{s:o, s:o, s:I, s:I, s:o, s:o, s:o, s:o}", "train", totals(&p->train),
                          "eval", totals(&p->eval), "row_tokens",
                          (json_int_t)p->data->sequence_tokens, "rows_per_step",
                          (json_int_t)p->data->sequences_per_step, "bad_rows", bad_rows(p->data),
                          "forms", lines(&p->forms), "warnings", lines(&p->warnings), "rows", rows);
    if (v && st == AX_OK)
        st = add_turns(p, v);
    char *text = v && st == AX_OK ? json_dumps(v, JSON_COMPACT) : NULL;
    if (st == AX_OK)
        st = text ? ax_buf_printf(out, "%s\n", text) : no_memory();
    ax_free(text);
    json_decref(v);
    return st;
}
