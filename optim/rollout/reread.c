/* A teacher with another tokenizer: its tokens of prompts and answers, their log-probs, and these as those of the model's
 * tokens. Read ax_rollout_reread first. */
#include "optim/rollout/reread.h"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/text/unicode.h"
#include "data/records/format/format.h"
#include "optim/rollout/spans.h"

/* A completion as both models' tokens. Its text's bytes end where `own` says, and `other`; the end of an answer is the
 * last token of both. */
struct reading {
    int32_t *ids; /* the teacher's: the prompt, then [m] of the completion */
    int64_t n_prompt, m;
    int64_t *other;   /* [m] */
    int64_t *own, n;  /* [n] tokens of the completion */
    double *logprobs; /* [m] */
};

static void reading_free(struct reading *x) {
    ax_free(x->ids);
    ax_free(x->other);
    ax_free(x->own);
    ax_free(x->logprobs);
}

/* ---- the model's tokens ---- */

static bool ends_answer(const struct ax_rollout_options *o, const struct ax_completion *c,
                        int32_t last) {
    bool ends = false;
    for (int i = 0; i < o->n_stop; i++)
        ends = ends || o->stop[i] == last;
    return ends && !c->truncated;
}

/* Bytes as text, in which U+FFFD is in place of what is no UTF-8. Moves the ends of tokens with their bytes: one within a
 * character, or within what became one, stays within it. */
static enum ax_status repair(const struct ax_buf *bytes, struct reading *x, struct ax_buf *text) {
    const char *s = bytes->data;
    int64_t token = 0;
    for (size_t at = 0, n; at < bytes->len; at += n) {
        const size_t moved = text->len;
        (void)ax_utf8_next((const unsigned char *)s + at, bytes->len - at, &n);
        for (; token < x->n && x->own[token] < (int64_t)(at + n); token++)
            x->own[token] += (int64_t)moved - (int64_t)at;
        AX_TRY(ax_utf8_repair(text, s + at, n));
        for (; token < x->n && x->own[token] == (int64_t)(at + n); token++)
            x->own[token] = (int64_t)text->len;
    }
    return AX_OK;
}

/* The completion's text, and where its tokens end in it; *ends: whether the last of them ends the answer, and is no part
 * of the text. */
static enum ax_status write_text(const struct ax_rollout *r, const struct ax_completion *c,
                                 struct reading *x, struct ax_buf *text, bool *ends) {
    const int32_t *ids = r->ids + c->start + c->n_prompt;
    struct ax_buf bytes = {0};
    x->n = c->n - c->n_prompt;
    *ends = x->n > 0 && ends_answer(r->o, c, ids[x->n - 1]);
    x->n -= *ends;
    enum ax_status st = ax_alloc(&x->own, (size_t)x->n + 1, sizeof *x->own);
    for (int64_t i = 0; i < x->n && st == AX_OK; i++) {
        st = ax_tokenizer_token_bytes(r->o->tokenizer, ids[i], &bytes);
        x->own[i] = (int64_t)bytes.len;
    }
    if (st == AX_OK)
        st = repair(&bytes, x, text);
    ax_buf_free(&bytes);
    return st;
}

/* ---- the teacher's ---- */

/* The tokens that fit: *ends is false if there is no room for the end. */
static enum ax_status take_tokens(const struct ax_rollout *r, const struct ax_example_list *prompt,
                                  const struct ax_encoding *text, struct reading *x, bool *ends) {
    const int64_t n_prompt = (int64_t)prompt->n_tokens, all = (int64_t)text->n;
    const int64_t room = r->o->most_read > n_prompt ? r->o->most_read - n_prompt : 0;
    const int64_t n = all < room ? all : room;
    *ends = *ends && all < room;
    x->n_prompt = n_prompt;
    x->m = n + *ends;
    AX_TRY(ax_alloc(&x->ids, (size_t)(n_prompt + x->m), sizeof *x->ids));
    AX_TRY(ax_alloc(&x->other, (size_t)x->m, sizeof *x->other));
    AX_TRY(ax_alloc(&x->logprobs, (size_t)x->m, sizeof *x->logprobs));
    memcpy(x->ids, prompt->tokens, prompt->n_tokens * sizeof *x->ids);
    if (n > 0)
        memcpy(x->ids + n_prompt, text->ids, (size_t)n * sizeof *x->ids);
    for (int64_t i = 0; i < n; i++)
        x->other[i] = (int64_t)text->spans[i].end;
    return AX_OK;
}

/* An end is one byte after the text. */
static void add_end(const struct ax_rollout *r, struct reading *x, size_t bytes) {
    x->own[x->n++] = (int64_t)bytes + 1;
    x->other[x->m - 1] = (int64_t)bytes + 1;
    x->ids[x->n_prompt + x->m - 1] = r->o->reader->end;
}

static enum ax_status read_completion(const struct ax_rollout *r, const struct ax_completion *c,
                                      const struct ax_example_list *prompt, struct reading *x) {
    const struct ax_reader *by = r->o->reader;
    const struct ax_encode_options plain = {.plain = true, .spans = true};
    struct ax_buf text = {0};
    struct ax_encoding tokens = {0};
    bool ends = false;
    enum ax_status st;
    AX_TRY_GOTO(write_text(r, c, x, &text, &ends), st, done);
    ends = ends && by->end != AX_NO_TOKEN;
    if (text.len > 0)
        AX_TRY_GOTO(ax_tokenizer_encode(by->tokenizer, text.data, text.len, &plain, &tokens), st,
                    done);
    AX_TRY_GOTO(take_tokens(r, prompt, &tokens, x, &ends), st, done);
    if (ends)
        add_end(r, x, text.len);
done:
    ax_buf_free(&text);
    ax_encoding_free(&tokens);
    return st;
}

static enum ax_status read_group(const struct ax_rollout *r, int64_t group, struct reading *list) {
    struct ax_example_list prompt = {0};
    const int64_t first = group * r->o->group;
    enum ax_status st = ax_rollout_render(r, r->o->reader->format, group, NULL, &prompt);
    for (int64_t i = first; i < first + r->o->group && st == AX_OK; i++)
        st = read_completion(r, &r->list[i], &prompt, &list[i]);
    ax_example_list_free(&prompt);
    return st;
}

/* ---- log-probs ---- */

static enum ax_status score(const struct ax_rollout *r, struct ax_model *teacher,
                            const struct reading *list, bool *stopped) {
    struct ax_sequence *seqs;
    int32_t unused;
    int64_t n = 0;
    AX_TRY(ax_alloc(&seqs, (size_t)r->n, sizeof *seqs));
    for (int64_t i = 0; i < r->n; i++)
        if (list[i].m > 0)
            seqs[n++] = (struct ax_sequence){.n_prompt = list[i].n_prompt + list[i].m - 1,
                                             .prompt = list[i].ids,
                                             .n_scored = list[i].m,
                                             .scored = list[i].ids + list[i].n_prompt,
                                             .tokens = &unused,
                                             .logprobs = list[i].logprobs};
    const enum ax_status st = n > 0 ? ax_rollout_score_by_teacher(r, teacher, n, seqs) : AX_OK;
    for (int64_t i = 0; i < n; i++)
        *stopped = *stopped || seqs[i].finish == AX_FINISH_CALLER;
    ax_free(seqs);
    return st;
}

static double sum(int64_t first, int64_t end, const double *values) {
    double s = 0;
    for (int64_t i = first; i < end; i++)
        s += values[i];
    return s;
}

/* Adds to *in_spans how many of the completion's tokens are in one. */
static enum ax_status give(const struct ax_rollout *r, const struct ax_completion *c,
                           const struct reading *x, int64_t *in_spans) {
    const int64_t at = c->start + c->n_prompt;
    const float *own = r->logprobs + at;
    struct ax_text_span *spans;
    AX_TRY(ax_alloc(&spans, (size_t)(x->n < x->m ? x->n : x->m), sizeof *spans));
    const int64_t n = ax_text_spans(x->n, x->own, x->m, x->other, spans);
    for (int64_t i = 0; i < c->n - c->n_prompt; i++)
        r->teacher[at + i] = own[i];
    for (int64_t k = 0; k < n; k++) {
        const struct ax_text_span *s = &spans[k];
        double advantage = sum(s->other, s->other_end, x->logprobs);
        for (int64_t i = s->own; i < s->own_end; i++)
            advantage -= (double)own[i];
        for (int64_t i = s->own; i < s->own_end; i++)
            r->teacher[at + i] = (float)((double)own[i] + advantage);
        *in_spans += s->own_end - s->own;
    }
    ax_free(spans);
    return AX_OK;
}

static enum ax_status give_all(const struct ax_rollout *r, const struct reading *list) {
    int64_t in_spans = 0, all = 0;
    for (int64_t i = 0; i < r->n; i++) {
        AX_TRY(give(r, &r->list[i], &list[i], &in_spans));
        all += r->list[i].n - r->list[i].n_prompt;
    }
    if (2 * in_spans < all)
        ax_log_warn("kd_teacher: it says nothing of %lld of the %lld sampled tokens, which end "
                    "where none of its "
                    "tokens do, or are beyond sequence_len in its own",
                    (long long)(all - in_spans), (long long)all);
    return AX_OK;
}

enum ax_status ax_rollout_reread(struct ax_rollout *r, struct ax_model *teacher, bool *stopped) {
    struct reading *list;
    AX_TRY(ax_alloc(&list, (size_t)r->n, sizeof *list));
    enum ax_status st = AX_OK;
    for (int64_t g = 0; g < r->n / r->o->group && st == AX_OK; g++)
        st = read_group(r, g, list);
    if (st == AX_OK)
        st = score(r, teacher, list, stopped);
    if (st == AX_OK && !*stopped)
        st = give_all(r, list);
    for (int64_t i = 0; i < r->n; i++)
        reading_free(&list[i]);
    ax_free(list);
    return st;
}
