/* The question of a row is what stands before its last trained stretch, and that stretch is the
 * answer expected: so every data set type that trains on answers can be asked, with exactly the
 * tokens that training saw. */
#include "cmd/eval/eval.h"

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
