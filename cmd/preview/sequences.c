/* The sequences of a step, one piece at a time. */
#include "cmd/preview/preview.h"

#include <string.h>

/* Seeks to the first sequence of the step. */
static enum ax_status seek(const struct ax_preview *p, struct ax_loader **loader) {
    *loader = p->o.eval ? p->data->eval_loader : p->data->train_loader;
    if (!*loader)
        return ax_error(AX_ERR_CONFIG,
                        "--eval: no evaluation records; set val_set_size or test_datasets");
    const int64_t per = p->data->sequences_per_step;
    const struct ax_preview_totals *t = p->o.eval ? &p->eval : &p->train;
    int64_t skip = p->o.step - 1;
    int64_t epoch = 0;
    if (t->known && t->steps > 0) {
        epoch = skip / t->steps; /* epochs differ by few sequences; fine for a preview */
        skip %= t->steps;
    }
    int64_t passed = 0;
    ax_loader_start_epoch(*loader, epoch);
    if (__builtin_mul_overflow(skip, per, &skip))
        skip = INT64_MAX;
    AX_TRY(ax_loader_skip(*loader, skip, &passed));
    if (passed < skip)
        return ax_error(AX_ERR_CONFIG, "--step: the data ends before step %lld",
                        (long long)p->o.step);
    return AX_OK;
}

static enum ax_status nothing_streamed(const struct ax_preview *p) {
    const struct ax_corpus_report *r = ax_stream_report(p->data->stream);
    const struct ax_bad_records *skipped = ax_stream_bad_records(p->data->stream);
    return ax_error(AX_ERR_DATA,
                    "the streamed data sets contain nothing to train on: %lld records are too "
                    "long, %lld too short, %lld without a trained token, %lld empty",
                    (long long)r->too_long, (long long)r->too_short, (long long)r->untrained,
                    (long long)skipped->n_empty);
}

enum ax_status ax_preview_each(const struct ax_preview *p, ax_preview_look *look, void *ctx) {
    struct ax_loader *loader;
    AX_TRY(seek(p, &loader));
    for (int64_t i = 0; i < p->o.rows; i++) {
        struct ax_packed_sequence s;
        bool got;
        AX_TRY(ax_loader_next(loader, &s, &got));
        if (!got)
            return i == 0 && !p->o.eval && p->data->stream ? nothing_streamed(p) : AX_OK;
        AX_TRY(look(ctx, p, &s));
    }
    return AX_OK;
}

/* ---- one piece ---- */

/* Values of an example's column; NULL if there is no such column. */
static const void *column(const struct ax_examples *set, uint32_t index, const char *name) {
    for (int c = 0; c < ax_columns_count(set->columns); c++)
        if (strcmp(set->columns->list[c].name, name) == 0)
            return ax_examples_column(set, index, c);
    return NULL;
}

/* How many tokens two examples begin with alike. */
static size_t shared(const struct ax_examples *set, uint32_t a, uint32_t b) {
    const uint32_t *u = ax_examples_words(set, a), *v = ax_examples_words(set, b);
    const uint32_t n = set->list[a].n < set->list[b].n ? set->list[a].n : set->list[b].n;
    uint32_t i = 0;
    while (i < n && ax_word_token(u, i) == ax_word_token(v, i))
        i++;
    return i;
}

/* What the example is among those of its record, and what it has besides tokens. */
static void describe(struct ax_preview_piece *out, const struct ax_examples *set, uint32_t index) {
    const bool second = set->list[index].joined;
    const uint32_t *desirable = column(set, index, "desirable");
    const float *targets = column(set, index, "target");
    if (out->task == AX_TASK_PAIR || out->task == AX_TASK_REWARD) {
        out->role = second ? "rejected" : "chosen";
        out->shared = shared(set, index, second ? index - 1 : index + 1);
    } else if (out->task == AX_TASK_UNPAIRED && desirable) {
        out->role = *desirable ? "desirable" : "undesirable";
    }
    out->margin = column(set, index, "margin");
    out->targets = targets ? targets + out->from : NULL;
}

/* A prompt's record, as reward functions see it; an answer of its own may follow in the text. */
static enum ax_status read_record(struct ax_preview_piece *out, const struct ax_examples *set,
                                  uint32_t index) {
    size_t n;
    const char *text = ax_examples_text(set, index, &n);
    AX_ASSERT(text != NULL);
    out->record = json_loadb(text, n, JSON_ALLOW_NUL | JSON_DISABLE_EOF_CHECK, NULL);
    return out->record ? AX_OK : ax_error(AX_ERR_NOMEM, "out of memory for a record");
}

enum ax_status ax_preview_piece_open(struct ax_preview_piece *out, const struct ax_preview *p,
                                     const struct ax_packed_sequence *s, int piece) {
    const struct ax_pack_piece *at = &s->pieces[piece];
    const struct ax_examples *set = ax_sequence_set(s, piece);
    const uint32_t index = ax_sequence_ref(s, piece)->index;
    const uint32_t *words = ax_examples_words(set, index);
    *out =
        (struct ax_preview_piece){.n = at->n, .from = at->from, .task = ax_method_of(p->cfg)->task};
    AX_TRY(ax_alloc(&out->ids, at->n, sizeof *out->ids));
    const bool prompt = out->task == AX_TASK_PROMPT;
    const struct ax_loader *loader = p->o.eval ? p->data->eval_loader : p->data->train_loader;
    enum ax_status st = ax_alloc(&out->labels, at->n, sizeof *out->labels);
    if (st == AX_OK && prompt)
        st = read_record(out, set, index);
    if (st != AX_OK) {
        ax_preview_piece_close(out);
        return st;
    }
    for (uint32_t i = 0; i < at->n; i++) {
        out->ids[i] = ax_word_token(words, at->from + i);
        const bool trains = !prompt && (i > 0 || ax_loader_trains_first(loader, piece));
        out->labels[i] =
            trains ? ax_word_label(&set->list[index], words, at->from + i) : AX_NO_LABEL;
        out->n_trained += out->labels[i] != AX_NO_LABEL;
    }
    describe(out, set, index);
    (void)ax_examples_where(set, index, out->where, sizeof out->where);
    return AX_OK;
}

void ax_preview_piece_close(struct ax_preview_piece *p) {
    ax_free(p->ids);
    ax_free(p->labels);
    json_decref(p->record);
    *p = (struct ax_preview_piece){0};
}
