/* Answers by greedy generation. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/term.h"
#include "cmd/eval/eval.h"
#include "model/generate/generate.h"

/* Groups examples of similar length: a batch costs as much as its longest prompt. */
static int by_prompt(const void *x, const void *y) {
    const struct ax_eval_row *a = *(struct ax_eval_row *const *)x,
                             *b = *(struct ax_eval_row *const *)y;
    if (a->answer.prompt != b->answer.prompt)
        return a->answer.prompt < b->answer.prompt ? 1 : -1;
    return a < b ? -1 : a > b; /* compares positions in one array */
}

static enum ax_status note_answer(struct ax_eval *e, struct ax_eval_turn *t,
                                  struct ax_eval_row *row, const struct ax_sequence *s) {
    struct ax_eval_answer *a = &row->answer;
    struct ax_buf text = {0};
    AX_TRY(ax_tokenizer_decode(e->setup.tok.tokenizer, s->tokens, (size_t)s->n_new, true, &text));
    if (!text.data)
        AX_TRY(ax_buf_puts(&text, ""));
    ax_free(a->text); /* from the previous turn */
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
    int32_t *ids; /* prompts, each followed by its answer */
};

/* Answers one batch, whose first prompt is the longest. */
static enum ax_status answer_batch(struct ax_eval *e, struct ax_eval_turn *t, struct ax_model *m,
                                   int n, struct ax_eval_row **rows, const struct batch *b) {
    const int64_t longest = rows[0]->answer.prompt;
    const int ranks = m->rt->mesh.size[AX_ROLE_BATCH]; /* which share them */
    const struct ax_generate_options o = {.max_prompt = longest,
                                          .max_new = e->max_new_tokens,
                                          .n_seqs = (n + ranks - 1) / ranks,
                                          .n_stop = e->stop.n,
                                          .stop = e->stop.ids};
    struct ax_generator g;
    for (int i = 0; i < n; i++) {
        int32_t *prompt = b->ids + (longest + e->max_new_tokens) * i;
        ax_eval_copy_tokens(e, rows[i], 0, rows[i]->answer.prompt, prompt);
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
            ax_term_progress("answers", at + n, e->n_answers);
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
