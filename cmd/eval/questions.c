/* The prompt of an example is everything before its last trained span, and that span is the
 * expected answer. So every type of data set that trains on answers can be used, with exactly
 * the tokens of training. */
#include "cmd/eval/eval.h"

/* Tokens [from, to) of the last trained span; false if no token is trained on. */
static bool last_stretch(const struct ax_examples *set, const struct ax_example_ref *ref,
                         uint32_t *from, uint32_t *to) {
    const struct ax_stored *x = &set->list[ref->index];
    const uint32_t *words = ax_examples_words(set, ref->index);
    uint32_t i = ref->n;
    while (i > 0 && ax_word_label(x, words, i - 1) == AX_NO_LABEL)
        i--;
    *to = i;
    while (i > 0 && ax_word_label(x, words, i - 1) != AX_NO_LABEL)
        i--;
    *from = i;
    return *to > *from;
}

void ax_eval_copy_tokens(const struct ax_eval *e, const struct ax_eval_row *row, uint32_t from,
                         uint32_t to, int32_t *out) {
    const uint32_t *words = ax_examples_words(&e->corpus->sets[row->ref.set], row->ref.index);
    for (uint32_t i = from; i < to; i++)
        out[i - from] = ax_word_token(words, i);
}

const char *ax_eval_where(const struct ax_eval *e, const struct ax_eval_row *row, char *buf,
                          size_t size) {
    return ax_examples_where(&e->corpus->sets[row->ref.set], row->ref.index, buf, size);
}

static enum ax_status find_question(struct ax_eval *e, struct ax_eval_row *row, int32_t *ids) {
    struct ax_eval_answer *a = &row->answer;
    struct ax_buf text = {0};
    if (!last_stretch(&e->corpus->sets[row->ref.set], &row->ref, &a->prompt, &a->end) ||
        a->prompt == 0)
        return AX_OK;
    ax_eval_copy_tokens(e, row, a->prompt, a->end, ids);
    enum ax_status st =
        ax_tokenizer_decode(e->setup.tok.tokenizer, ids, a->end - a->prompt, true, &text);
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
    return ax_error(AX_ERR_DATA,
                    "%s: no record ends in a trained answer with \"#### \" before its final "
                    "answer, which --task final-answer needs (is train_on_inputs on?)",
                    ax_eval_where(e, &e->rows[0], where, sizeof where));
}

int64_t ax_eval_positions(const struct ax_eval *e) {
    int64_t longest = 0;
    for (size_t i = 0; i < e->n_rows; i++)
        if (e->rows[i].answer.want[0] && e->rows[i].answer.prompt > longest)
            longest = e->rows[i].answer.prompt;
    return longest + e->max_new_tokens;
}
