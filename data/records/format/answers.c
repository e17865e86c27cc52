/* A prompt with its answers → examples. Read answers_record first.
 *
 * How a text becomes tokens differs between trainers:
 *
 *                 BOS                EOS                      an answer begins
 *   text          the tokenizer's    its text, if not there   where the prompt's tokens end to agree
 *   messages      the template's     the template's           the same
 *   by ids        if not there       if not there             the same
 *   a type's text the tokenizer's    its text, if not there   after as many tokens as the prompt has
 */
#include "data/records/format/answers.h"

#include <float.h>
#include <string.h>

/* f->own: its row of the types. */
static enum ax_status answers_init(struct ax_format *f) {
    const struct ax_answers_type **own;
    AX_TRY(ax_alloc(&own, 1, sizeof *own));
    f->own = own;
    return ax_answers_find_type(&f->o, own);
}

/* ---- texts ---- */

static bool ends_with(const struct ax_buf *b, const char *text) {
    const size_t n = strlen(text);
    return b->len >= n && memcmp(b->data + b->len - n, text, n) == 0;
}

/* Prompt and answer as one text. */
static enum ax_status join_text(const struct ax_format *f, const struct ax_answers *a, int k,
                                struct ax_buf *out) {
    const char *eos = ax_tokenizer_special(f->tok, AX_EOS);
    AX_TRY(ax_buf_append(out, a->prompt.data, a->prompt.len));
    AX_TRY(ax_buf_append(out, a->texts[k].data, a->texts[k].len));
    if (f->o.answers->framed_by_ids || ends_with(&a->texts[k], eos))
        return AX_OK;
    return ax_buf_puts(out, eos);
}

static enum ax_status join_messages(const struct ax_format *f, struct ax_answers *a, int k,
                                    struct ax_buf *out) {
    json_t *all = json_copy(a->messages);
    const struct ax_answers_text text = {
        .messages = all, .tools = a->tools, .lost = &a->lost, .variables = a->variables};
    const enum ax_status st = all && json_array_extend(all, a->replies[k]) == 0
                                  ? ax_answers_render(f, &text, out)
                                  : ax_answers_no_memory();
    json_decref(all);
    return st;
}

/* Is the prompt alone rendered with the header of an answer? TRL's trainers do that whatever it ends with, but
 * for those that frame by ids. */
static bool with_header(const struct ax_format *f, const json_t *messages) {
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    return !f->o.answers->framed_by_ids || !role || strcmp(role, "assistant") != 0;
}

/* The prompt that the answers begin after, and each answer with it. */
static enum ax_status join(const struct ax_format *f, struct ax_answers *a, struct ax_buf *wholes) {
    for (int k = 0; k < a->n; k++) {
        wholes[k].len = 0;
        AX_TRY(ax_buf_puts(&wholes[k], ""));
        AX_TRY(a->chat ? join_messages(f, a, k, &wholes[k]) : join_text(f, a, k, &wholes[k]));
    }
    if (a->n == 2 && wholes[0].len == wholes[1].len &&
        memcmp(wholes[0].data, wholes[1].data, wholes[0].len) == 0)
        return ax_error(AX_ERR_DATA, "%s and %s give the same text%s; a pair needs two answers",
                        a->names[0], a->names[1],
                        a->lost >> AX_ODD_CALLS & 1U ? ", without the tool calls that the chat "
                                                       "template leaves out"
                                                     : "");
    if (!a->chat)
        return AX_OK;
    const struct ax_answers_text prompt = {.messages = a->messages,
                                           .tools = a->tools,
                                           .variables = a->variables,
                                           .generation_prompt = with_header(f, a->messages)};
    return ax_answers_render(f, &prompt, &a->prompt);
}

/* ---- tokens ---- */

/* A template and the tokenizer may both write BOS. */
static void drop_second_bos(const struct ax_format *f, struct ax_encoding *e) {
    if (f->bos == AX_NO_TOKEN || e->n < 2 || e->ids[0] != f->bos || e->ids[1] != f->bos)
        return;
    memmove(e->ids, e->ids + 1, (e->n - 1) * sizeof *e->ids);
    e->n--;
}

/* One example under construction. */
struct side {
    const struct ax_format *f;
    struct ax_example_list *out;
    size_t left; /* tokens that it may still take */
};

static enum ax_status put(struct side *s, const int32_t *ids, size_t n, bool trained) {
    n = n < s->left ? n : s->left;
    s->left -= n;
    return ax_example_list_add(s->out, ids, NULL, n, trained && s->f->o.task != AX_TASK_REWARD);
}

/* How many of n tokens an example has, `added` of which are BOS and EOS. A type of axolotl's drops
 * what is too long without them, so that only they may be truncated; TRL drops only reward pairs. */
static size_t keep(const struct ax_format *f, size_t n, size_t added) {
    const size_t max = (size_t)f->o.sequence_len;
    const bool reward = f->o.task == AX_TASK_REWARD;
    const bool own = ax_answers_type_of(f) == &ax_answers_own;
    const bool cut = own ? !reward : reward || n - added <= max;
    if (n <= max || f->o.long_examples == AX_LONG_KEEP ||
        (f->o.long_examples == AX_LONG_USUAL && !cut))
        return n;
    return max;
}

/* How many tokens of the prompt alone begin the prompt with its answer, too. */
static size_t shared_tokens(const struct ax_encoding *prompt, const struct ax_encoding *whole) {
    size_t same = 0;
    while (same < prompt->n && same < whole->n && prompt->ids[same] == whole->ids[same])
        same++;
    return same;
}

/* The answer in `whole` begins after `same` tokens, or after all of the prompt's. */
static enum ax_status add_side(const struct ax_format *f, const struct ax_encoding *prompt,
                               const struct ax_encoding *whole, size_t same, struct ax_answers *a,
                               struct ax_example_list *out) {
    const bool by_ids = f->o.answers->framed_by_ids;
    const bool framed = !by_ids && !a->chat;
    const bool by_count = framed && ax_answers_type_of(f) != &ax_answers_own;
    const bool bos = by_ids && f->bos != AX_NO_TOKEN && (whole->n == 0 || whole->ids[0] != f->bos);
    const bool eos = by_ids && (whole->n == 0 || whole->ids[whole->n - 1] != f->eos);
    if (framed && same < f->n_before)
        same = f->n_before; /* an empty prompt has no tokens of its own */
    const int32_t *head = by_count ? prompt->ids : whole->ids;
    const size_t at = by_count ? prompt->n : same;
    const size_t tail = whole->n > at ? whole->n - at : 0;
    const size_t added = framed ? f->n_before + f->n_after + 1 : (size_t)bos + (size_t)eos;
    const size_t all = at + tail + bos + eos;
    struct side s = {f, out, keep(f, all, added)};
    a->lost |= s.left < all ? 1U << AX_ODD_END : 0;
    if (bos)
        AX_TRY(put(&s, &f->bos, 1, false));
    AX_TRY(put(&s, head, at, a->trains_prompt));
    AX_TRY(put(&s, whole->ids + at, tail, true));
    if (eos)
        AX_TRY(put(&s, &f->eos, 1, true));
    if (f->o.task == AX_TASK_REWARD && out->n_open > 0) {
        const size_t first = out->n_tokens - out->n_open;
        out->labels[first + ax_score_position(out->tokens + first, out->n_open, f->o.pad)] = 0;
    }
    return AX_OK;
}

static enum ax_status encode(const struct ax_format *f, const struct ax_buf *text, bool framed,
                             struct ax_encoding *e) {
    AX_TRY(ax_format_encode(f, (struct ax_text){text->data, text->len}, framed, e));
    if (framed)
        drop_second_bos(f, e);
    return AX_OK;
}

/* ---- a record ---- */

static size_t trained_tokens(const struct ax_example *x) {
    size_t n = 0;
    for (size_t i = 0; i < x->n; i++)
        n += x->labels[i] != AX_NO_LABEL;
    return n;
}

/* The column `share` of a pair, if there is one (LD-DPO, arXiv 2409.06411). */
static enum ax_status set_shares(const struct ax_format *f, struct ax_example_list *out,
                                 size_t first) {
    const int column = ax_format_find_column(f, "share");
    const struct ax_example *pair = out->items + first;
    if (column < 0)
        return AX_OK;
    AX_ASSERT(out->n == first + 2);
    const size_t counts[2] = {trained_tokens(&pair[0]), trained_tokens(&pair[1])};
    const size_t both = counts[0] < counts[1] ? counts[0] : counts[1];
    /* a token whose share is 0 would not count in an answer's length, by which some losses divide */
    const float tail = f->o.answers->tail_share > 0 ? (float)f->o.answers->tail_share : FLT_MIN;
    float *shares;
    AX_TRY(ax_alloc(&shares, pair[0].n > pair[1].n ? pair[0].n : pair[1].n, sizeof *shares));
    for (int k = 0; k < 2; k++) {
        size_t n = 0;
        for (size_t i = 0; i < pair[k].n; i++) {
            n += pair[k].labels[i] != AX_NO_LABEL;
            shares[i] = n <= both ? 1 : tail;
        }
        ax_example_list_set(out, first + (size_t)k, column, shares);
    }
    ax_free(shares);
    return AX_OK;
}

/* Sets a float column of example i, if the examples have it; an integer column gets its value as an
 * int32_t. */
static void set_column(const struct ax_format *f, struct ax_example_list *out, size_t i,
                       const char *name, double value) {
    const int c = ax_format_find_column(f, name);
    const float as_float = (float)value;
    const int32_t as_int = (int32_t)value;
    if (c >= 0)
        ax_example_list_set(out, i, c,
                            f->o.columns->list[c].is_float ? (const void *)&as_float
                                                           : (const void *)&as_int);
}

static enum ax_status add_all(const struct ax_format *f, struct ax_format_work *w,
                              struct ax_answers *a, const struct ax_buf *wholes,
                              struct ax_origin origin, struct ax_example_list *out) {
    const bool framed = !f->o.answers->framed_by_ids && !a->chat;
    const size_t first = out->n;
    struct ax_encoding *const each[2] = {&w->full, &w->other};
    size_t same[2] = {0};
    AX_ASSERT(a->n <= 2);
    AX_TRY(encode(f, &a->prompt, framed, &w->part));
    for (int k = 0; k < a->n; k++) {
        AX_TRY(encode(f, &wholes[k], framed, each[k]));
        same[k] = shared_tokens(&w->part, each[k]);
    }
    if (f->o.task == AX_TASK_PAIR && !f->o.answers->framed_by_ids) /* as in TRL's DPOTrainer */
        same[0] = same[1] = same[0] < same[1] ? same[0] : same[1];
    for (int k = 0; k < a->n; k++) {
        AX_TRY(add_side(f, &w->part, each[k], same[k], a, out));
        AX_TRY(ax_example_list_end(out, origin));
        if (f->o.task == AX_TASK_UNPAIRED)
            set_column(f, out, out->n - 1, "desirable", a->n == 2 ? k == 0 : a->desirable);
        if (f->o.task == AX_TASK_REWARD)
            set_column(f, out, out->n - 1, "margin", a->margin);
    }
    if (a->n != 2 || f->o.task == AX_TASK_UNPAIRED)
        return AX_OK;
    ax_example_list_group(out, first);
    return set_shares(f, out, first);
}

static enum ax_status check(const struct ax_format *f, const struct ax_answers *a) {
    for (int k = 0; k < a->n && !a->chat; k++)
        AX_TRY(ax_answers_check_text(a->names[k],
                                     (struct ax_text){a->texts[k].data, a->texts[k].len}));
    if (f->eos == AX_NO_TOKEN && (!a->chat || f->o.answers->framed_by_ids))
        return ax_error(AX_ERR_CONFIG, "answers end with EOS, but the tokenizer has no eos_token; "
                                       "set special_tokens.eos_token");
    return AX_OK;
}

static enum ax_status answers_record(const struct ax_format *f, struct ax_format_work *w,
                                     json_t *record, struct ax_origin origin,
                                     struct ax_example_list *out) {
    struct ax_answers a = {0};
    struct ax_buf wholes[2] = {0};
    enum ax_status st;
    ax_record_drop_nulls(record);
    for (int k = 0; k < 2; k++)
        AX_TRY_GOTO(ax_buf_puts(&a.texts[k], ""), st, done);
    AX_TRY_GOTO(ax_buf_puts(&a.prompt, ""), st, done);
    AX_TRY_GOTO(ax_answers_type_of(f)->read(f, record, &a), st, done);
    AX_TRY_GOTO(check(f, &a), st, done);
    AX_TRY_GOTO(join(f, &a, wholes), st, done);
    st = add_all(f, w, &a, wholes, origin, out);
done:
    w->oddities |= a.lost;
    ax_buf_free(&wholes[0]);
    ax_buf_free(&wholes[1]);
    ax_answers_free(&a);
    return st;
}

const struct ax_format_type ax_format_type_answers = {"answers", false, false, answers_init,
                                                      answers_record};
