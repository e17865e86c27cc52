/* preview as text: sequences with trained tokens in green, then totals and warnings. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/term.h"
#include "cmd/preview/preview.h"

#define COLUMN_SHOWN 100 /* bytes of a prompt's column */

struct look {
    const char *trained, *plain; /* printed before and after tokens that are trained on */
    const char *faint, *warn, *off;
    const char *parting; /* after the first tokens that both sides of a pair have */
};

static const struct look colored = {"\x1b[32m", "\x1b[0m", "\x1b[2m",
                                    "\x1b[33m", "\x1b[0m", "\x1b[2m┊\x1b[0m"};
static const struct look bare = {"⟦", "⟧", "", "", "", "┊"};

/* The class of a labeled step: 1, 0, or a probability. Other labels are tokens, or always the
 * same. */
static enum ax_status put_class(struct ax_buf *out, const struct ax_preview_piece *piece,
                                size_t i) {
    if (piece->task != AX_TASK_STEPS || piece->labels[i] == AX_NO_LABEL)
        return AX_OK;
    if (piece->targets)
        return ax_buf_printf(out, "→%g", (double)piece->targets[i]);
    return ax_buf_printf(out, "→%d", piece->labels[i]);
}

/* Turns the color or mark of trained tokens on or off; marks where the sides of a pair part. */
static enum ax_status put_marks(struct ax_buf *out, const struct ax_preview_piece *piece, size_t i,
                                bool *on, const struct look *look) {
    const bool trained = i < piece->n && piece->labels[i] != AX_NO_LABEL;
    const bool parting = piece->shared > 0 && i == piece->shared;
    if (*on && (!trained || parting))
        AX_TRY(ax_buf_puts(out, look->plain));
    if (parting)
        AX_TRY(ax_buf_puts(out, look->parting));
    if (trained && (!*on || parting))
        AX_TRY(ax_buf_puts(out, look->trained));
    *on = trained;
    return AX_OK;
}

/* Writes the text token by token, as the tokenizer decodes it. */
static enum ax_status put_text(struct ax_buf *out, const struct ax_preview *p,
                               const struct ax_preview_piece *piece, const struct look *look) {
    struct ax_decode_stream *s;
    struct ax_buf text = {0};
    enum ax_status st;
    bool on = false;
    AX_TRY(ax_decode_stream_new(&s, p->data->tok.tokenizer, false));
    for (size_t i = 0; i <= piece->n; i++) {
        text.len = 0;
        AX_TRY_GOTO(put_marks(out, piece, i, &on, look), st, done);
        if (i < piece->n)
            st = ax_decode_stream_step(s, piece->ids[i], &text);
        else
            st = ax_decode_stream_finish(s, &text);
        if (st == AX_OK)
            st = ax_term_safe(out, text.data, text.len);
        if (st == AX_OK && i < piece->n)
            st = put_class(out, piece, i);
        if (st != AX_OK)
            goto done;
    }
    st = ax_buf_puts(out, "\n");
done:
    ax_buf_free(&text);
    ax_decode_stream_free(s);
    return st;
}

static enum ax_status put_ids(struct ax_buf *out, const struct ax_preview_piece *piece,
                              const struct look *look) {
    AX_TRY(ax_buf_puts(out, "ids:"));
    for (size_t i = 0; i < piece->n; i++) {
        const bool trained = piece->labels[i] != AX_NO_LABEL;
        AX_TRY(ax_buf_printf(out, " %s%d", trained ? look->trained : "", piece->ids[i]));
        AX_TRY(put_class(out, piece, i));
        AX_TRY(ax_buf_puts(out, trained ? look->plain : ""));
    }
    return ax_buf_puts(out, "\n");
}

/* The first bytes of a text, whole characters. */
static size_t shortened(const char *s, size_t n, size_t most) {
    if (n <= most)
        return n;
    while (most > 0 && ((unsigned char)s[most] & 0xC0U) == 0x80U)
        most--;
    return most;
}

static enum ax_status put_column(struct ax_buf *out, const char *key, const json_t *v,
                                 const struct look *look) {
    char *text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    enum ax_status st;
    if (!text)
        return ax_error(AX_ERR_NOMEM, "out of memory for a record");
    const size_t n = strlen(text), shown = shortened(text, n, COLUMN_SHOWN);
    AX_TRY_GOTO(ax_buf_puts(out, look->faint), st, done);
    AX_TRY_GOTO(ax_term_safe(out, key, strlen(key)), st, done);
    AX_TRY_GOTO(ax_buf_printf(out, ":%s ", look->off), st, done);
    AX_TRY_GOTO(ax_term_safe(out, text, shown), st, done);
    st = ax_buf_puts(out, shown < n ? "…\n" : "\n");
done:
    ax_free(text);
    return st;
}

/* The columns that rewards see with a prompt, one a line: "answer: \"5\"". */
static enum ax_status put_columns(struct ax_buf *out, const struct ax_preview_piece *piece,
                                  const struct look *look) {
    const char *key;
    json_t *v;
    json_object_foreach(piece->record, key, v) AX_TRY(put_column(out, key, v, look));
    return AX_OK;
}

/* "rows.jsonl:3, chosen: 9 tokens, 2 trained, first 7 shared" */
static enum ax_status put_heading(struct ax_buf *out, const struct ax_preview_piece *piece,
                                  const struct look *look) {
    if (piece->task == AX_TASK_PROMPT)
        return ax_buf_printf(out, "%s─ %s: %zu tokens%s\n", look->faint, piece->where, piece->n,
                             look->off);
    AX_TRY(ax_buf_printf(out, "%s─ %s%s%s: %zu tokens, %lld trained", look->faint, piece->where,
                         piece->role ? ", " : "", piece->role ? piece->role : "", piece->n,
                         (long long)piece->n_trained));
    if (piece->shared > 0)
        AX_TRY(ax_buf_printf(out, ", first %zu shared", piece->shared));
    if (piece->margin)
        AX_TRY(ax_buf_printf(out, ", margin %g", (double)*piece->margin));
    return ax_buf_printf(out, "%s%s\n", piece->from > 0 ? ", continued" : "", look->off);
}

static enum ax_status put_piece(struct ax_buf *out, const struct ax_preview *p,
                                const struct ax_preview_piece *piece, const struct look *look) {
    AX_TRY(put_heading(out, piece, look));
    AX_TRY(put_text(out, p, piece, look));
    if (p->o.ids)
        AX_TRY(put_ids(out, piece, look));
    return put_columns(out, piece, look);
}

struct target {
    struct ax_buf *out;
    const struct look *look;
};

static enum ax_status put_row(void *ctx, const struct ax_preview *p,
                              const struct ax_packed_sequence *row) {
    const struct target *t = ctx;
    struct ax_buf *out = t->out;
    const struct look *look = t->look;
    if (ax_method_of(p->cfg)->task == AX_TASK_PROMPT)
        AX_TRY(ax_buf_printf(out, "%s── prompt %lld of epoch %lld%s\n", look->faint,
                             (long long)row->index, (long long)row->epoch, look->off));
    else
        AX_TRY(ax_buf_printf(out,
                             "%s── sequence %lld of epoch %lld: %lld tokens, %lld trained, %d "
                             "document%s%s\n",
                             look->faint, (long long)row->index, (long long)row->epoch,
                             (long long)row->n_tokens, (long long)row->n_trained, row->n_pieces,
                             row->n_pieces == 1 ? "" : "s", look->off));
    for (int i = 0; i < row->n_pieces; i++) {
        struct ax_preview_piece piece;
        AX_TRY(ax_preview_piece_open(&piece, p, row, i));
        const enum ax_status st = put_piece(out, p, &piece, look);
        ax_preview_piece_close(&piece);
        AX_TRY(st);
    }
    return AX_OK;
}

static enum ax_status put_turns(struct ax_buf *out, const struct ax_preview *p,
                                const struct look *look) {
    struct ax_preview_piece piece;
    AX_TRY(ax_preview_turns_piece(&piece, p));
    const enum ax_status st = put_piece(out, p, &piece, look);
    ax_preview_piece_close(&piece);
    return st;
}

/* ---- totals ---- */

static const char *plural(int64_t n) {
    return n == 1 ? "" : "s";
}

static enum ax_status put_count(struct ax_buf *out, int64_t n, const char *what) {
    return n > 0 ? ax_buf_printf(out, ", %lld %s", (long long)n, what) : AX_OK;
}

/* Prompts are not sequences to train on, and steps sample several answers to each. */
static enum ax_status put_counts(struct ax_buf *out, const char *name,
                                 const struct ax_preview_totals *t, bool prompts) {
    if (prompts)
        return ax_buf_printf(out, "%s: %lld prompt%s, %lld tokens, longest %lld\n", name,
                             (long long)t->documents, plural(t->documents), (long long)t->tokens,
                             (long long)t->longest);
    return ax_buf_printf(
        out,
        "%s: %lld document%s, %lld tokens, %lld trained (%.1f %%), longest %lld\n"
        "  sequences: %lld, %.1f %% of their tokens are used; %lld step%s per epoch on "
        "one device\n",
        name, (long long)t->documents, plural(t->documents), (long long)t->tokens,
        (long long)t->trained, t->tokens > 0 ? 100.0 * (double)t->trained / (double)t->tokens : 0.0,
        (long long)t->longest, (long long)t->rows, 100.0 * t->efficiency, (long long)t->steps,
        plural(t->steps));
}

static enum ax_status put_totals(struct ax_buf *out, const char *name,
                                 const struct ax_preview_totals *t, bool prompts) {
    if (!t->known)
        return AX_OK;
    const struct ax_corpus_report *r = &t->dropped;
    AX_TRY(put_counts(out, name, t, prompts));
    const size_t start = out->len;
    AX_TRY(put_count(out, r->too_long, "too long"));
    AX_TRY(put_count(out, r->too_short, "too short"));
    AX_TRY(put_count(out, r->untrained, "without a trained token"));
    AX_TRY(put_count(out, r->duplicates, "duplicates"));
    AX_TRY(put_count(out, r->other_shards, "in other shards"));
    AX_TRY(put_count(out, t->for_evaluation, "held out for evaluation"));
    AX_TRY(put_count(out, r->cut, "truncated (not dropped)"));
    if (out->len == start)
        return AX_OK;
    struct ax_buf list = {0};
    enum ax_status st = ax_buf_append(&list, out->data + start + 2, out->len - start - 2);
    out->len = start;
    if (st == AX_OK)
        st = ax_buf_printf(out, "  skipped: %s\n", list.data);
    ax_buf_free(&list);
    return st;
}

static enum ax_status put_bad(struct ax_buf *out, const struct ax_bad_records *bad,
                              const char *name) {
    if (bad->n == 0)
        return AX_OK;
    AX_TRY(ax_buf_printf(out, "%s: skipped %lld bad record%s:\n", name, (long long)bad->n,
                         plural(bad->n)));
    for (int64_t i = 0; i < bad->n && i < AX_BAD_RECORDS_LISTED; i++)
        AX_TRY(ax_buf_printf(out, "  %s\n", bad->texts[i]));
    return AX_OK;
}

static enum ax_status put_bad_rows(struct ax_buf *out, const struct ax_setup_data *d) {
    const struct ax_setup_sets *all[] = {&d->train_sets, &d->eval_sets};
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; all[k]->sets && i < all[k]->n; i++)
            AX_TRY(put_bad(out, &all[k]->sets[i].info.bad, all[k]->entries[i].path));
    return d->stream ? put_bad(out, ax_stream_bad_records(d->stream), "streamed data") : AX_OK;
}

enum ax_status ax_preview_print(struct ax_preview *p, struct ax_buf *out) {
    const struct look *look = ax_term_use_color(STDOUT_FILENO, p->o.color) ? &colored : &bare;
    AX_TRY(ax_buf_puts(out, ""));
    if (p->o.rows > 0)
        AX_TRY(ax_preview_each(p, put_row, &(struct target){out, look}));
    if (p->o.rows > 0 && p->chats[0].format)
        AX_TRY(put_turns(out, p, look));
    const bool prompts = ax_method_of(p->cfg)->task == AX_TASK_PROMPT;
    AX_TRY(put_totals(out, "training", &p->train, prompts));
    AX_TRY(put_totals(out, "evaluation", &p->eval, prompts));
    if (p->data->stream)
        AX_TRY(ax_buf_puts(out, "training: streamed, so totals are unknown\n"));
    AX_TRY(put_bad_rows(out, p->data));
    for (size_t i = 0; i < p->forms.n; i++)
        AX_TRY(ax_buf_printf(out, "%s\n", p->forms.list[i]));
    for (size_t i = 0; i < p->warnings.n; i++)
        AX_TRY(ax_buf_printf(out, "%swarning:%s %s\n", look->warn, look->off, p->warnings.list[i]));
    return AX_OK;
}
