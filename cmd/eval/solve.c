/* Answers by greedy generation. The question of a row is what stands before its last trained
 * stretch, and that stretch is the answer expected: so every data set type that trains on answers
 * can be asked, with exactly the tokens that training saw. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cmd/eval/eval.h"
#include "model/generate.h"

/* ---- questions ---- */

/* Tokens [from, to) of the last trained stretch; false where nothing is trained. */
static bool last_stretch(const struct ax_docs *set, const struct ax_corpus_doc *d, uint32_t *from,
                         uint32_t *to) {
    const struct ax_doc *doc = &set->list[d->doc];
    const uint32_t *words = ax_docs_words(set, d->doc);
    uint32_t i = d->n;
    while (i > 0 && ax_docs_label(doc, words, i - 1) == AX_NO_LABEL)
        i--;
    *to = i;
    while (i > 0 && ax_docs_label(doc, words, i - 1) != AX_NO_LABEL)
        i--;
    *from = i;
    return *to > *from;
}

void ax_eval_copy_ids(const struct ax_docs *set, size_t doc, uint32_t from, uint32_t to,
                      int32_t *out) {
    const uint32_t *words = ax_docs_words(set, doc);
    for (uint32_t i = from; i < to; i++)
        out[i - from] = ax_docs_id(words, i);
}

static enum ax_status find_question(struct ax_eval *e, struct ax_eval_row *row, int32_t *ids) {
    const struct ax_docs *set = e->corpus->sets[row->doc.set];
    struct ax_eval_answer *a = &row->answer;
    struct ax_buf text = {0};
    if (!last_stretch(set, &row->doc, &a->prompt, &a->end) || a->prompt == 0)
        return AX_OK;
    ax_eval_copy_ids(set, row->doc.doc, a->prompt, a->end, ids);
    enum ax_status st =
        ax_tokenizer_decode(e->run_data.tok.tokenizer, ids, a->end - a->prompt, true, &text);
    if (st == AX_OK && ax_final_answer(text.data ? text.data : "", text.len, a->want))
        e->n_answers++;
    else
        a->want[0] = '\0';
    ax_buf_free(&text);
    return st;
}

enum ax_status ax_eval_questions(struct ax_eval *e) {
    int32_t *ids;
    char where[512];
    AX_TRY(ax_alloc(&ids, (size_t)e->longest, sizeof *ids));
    enum ax_status st = AX_OK;
    for (size_t i = 0; i < e->n_rows && st == AX_OK; i++)
        st = find_question(e, &e->rows[i], ids);
    ax_free(ids);
    AX_TRY(st);
    if (e->n_answers > 0)
        return AX_OK;
    const struct ax_corpus_doc *d = &e->rows[0].doc;
    return ax_error(
        AX_ERR_DATA,
        "%s: no row ends in a trained answer with \"#### \" before its final answer, as "
        "--task final-answer needs it (are prompts trained too?)",
        ax_docs_where(e->corpus->sets[d->set], d->doc, where, sizeof where));
}

int64_t ax_eval_positions(const struct ax_eval *e) {
    int64_t longest = 0;
    for (size_t i = 0; i < e->n_rows; i++)
        if (e->rows[i].answer.want[0] && e->rows[i].answer.prompt > longest)
            longest = e->rows[i].answer.prompt;
    return longest + e->max_new_tokens;
}

/* ---- answers ---- */

/* Rows of like length go together: a batch costs as much as its longest prompt. */
static int by_prompt(const void *x, const void *y) {
    const struct ax_eval_row *a = *(struct ax_eval_row *const *)x,
                             *b = *(struct ax_eval_row *const *)y;
    if (a->answer.prompt != b->answer.prompt)
        return a->answer.prompt < b->answer.prompt ? 1 : -1;
    return a < b ? -1 : a > b; /* places in one array */
}

static enum ax_status note_answer(struct ax_eval *e, struct ax_eval_turn *t,
                                  struct ax_eval_row *row, const struct ax_sequence *s) {
    struct ax_eval_answer *a = &row->answer;
    struct ax_buf text = {0};
    AX_TRY(
        ax_tokenizer_decode(e->run_data.tok.tokenizer, s->tokens, (size_t)s->n_new, true, &text));
    if (!text.data) {
        AX_TRY(ax_buf_puts(&text, ""));
    }
    ax_free(a->text); /* of the turn before */
    a->text = text.data;
    a->tokens = s->n_new;
    a->cut = s->finish == AX_FINISH_LENGTH;
    if (!ax_final_answer(text.data, text.len, a->got))
        a->got[0] = '\0';
    a->solved = strcmp(a->got, a->want) == 0;
    t->n_solved += a->solved;
    t->n_cut += a->cut;
    t->generated += s->n_new;
    return AX_OK;
}

struct batch {
    struct ax_sequence *seqs;
    int32_t *ids; /* prompts behind each other, then answers */
};

/* One batch: the longest prompt is the first. */
static enum ax_status answer_batch(struct ax_eval *e, struct ax_eval_turn *t, struct ax_model *m,
                                   int n, struct ax_eval_row **rows, const struct batch *b) {
    const int64_t longest = rows[0]->answer.prompt;
    const struct ax_generate_options o = {.max_prompt = longest,
                                          .max_new = e->max_new_tokens,
                                          .n_seqs = n,
                                          .n_stop = e->stop.n,
                                          .stop = e->stop.ids};
    struct ax_generator g;
    for (int i = 0; i < n; i++) {
        int32_t *prompt = b->ids + (longest + e->max_new_tokens) * i;
        const struct ax_corpus_doc *d = &rows[i]->doc;
        ax_eval_copy_ids(e->corpus->sets[d->set], d->doc, 0, rows[i]->answer.prompt, prompt);
        b->seqs[i] = (struct ax_sequence){
            .n_prompt = rows[i]->answer.prompt, .prompt = prompt, .tokens = prompt + longest};
    }
    AX_TRY(ax_generator_create(&g, m, &o));
    enum ax_status st = ax_generate(&g, n, b->seqs);
    for (int i = 0; i < n && st == AX_OK && !ax_runtime_planning(m->rt); i++)
        st = note_answer(e, t, rows[i], &b->seqs[i]);
    ax_generator_free(&g);
    return st;
}

static enum ax_status answer_all(struct ax_eval *e, struct ax_eval_turn *t, struct ax_model *m,
                                 struct ax_eval_row **rows, const struct batch *b) {
    const bool planning = ax_runtime_planning(m->rt);
    for (int64_t at = 0; at < e->n_answers; at += e->batch) {
        const int64_t left = e->n_answers - at, n = left < e->batch ? left : e->batch;
        AX_TRY(answer_batch(e, t, m, (int)n, rows + at, b));
        if (!planning)
            ax_eval_progress("answers", at + n, e->n_answers);
    }
    return AX_OK;
}

enum ax_status ax_eval_solve(struct ax_eval *e, struct ax_eval_turn *t, struct ax_model *m) {
    struct ax_eval_row **rows = NULL;
    struct batch b = {0};
    const double start = ax_clock_now();
    const size_t per_seq = (size_t)ax_eval_positions(e), n = (size_t)e->batch;
    size_t k = 0;
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&rows, (size_t)e->n_answers, sizeof(struct ax_eval_row *)), st, done);
    AX_TRY_GOTO(ax_alloc(&b.seqs, n, sizeof *b.seqs), st, done);
    AX_TRY_GOTO(ax_alloc(&b.ids, n * per_seq, sizeof *b.ids), st, done);
    for (size_t i = 0; i < e->n_rows; i++)
        if (e->rows[i].answer.want[0])
            rows[k++] = &e->rows[i];
    qsort(rows, k, sizeof(struct ax_eval_row *), by_prompt);
    st = answer_all(e, t, m, rows, &b);
done:
    t->generate_seconds = ax_clock_now() - start;
    ax_free(rows);
    ax_free(b.seqs);
    ax_free(b.ids);
    return st;
}
