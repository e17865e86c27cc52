/* Texts → tokens. Read make_item first. */
#include "optim/evaluate/tasks/requests.h"

#include <string.h>

#include "base/mem.h"
#include "data/text/tokenizer/encode.h"

struct maker {
    struct ax_task_requests *r;
    const struct ax_task_prompts *p;
};

/* ---- tokens ---- */

static bool begins(const char *s, size_t n, const char *with) {
    return with && *with && n >= strlen(with) && memcmp(s, with, strlen(with)) == 0;
}

/* Appends the tokens of a text and those that the tokenizer adds; without the latter if the text
 * already begins with `given`, the text of one of them. */
static enum ax_status encode(const struct ax_task_requests *r, const char *s, size_t n,
                             const char *given, struct ax_encoding *out) {
    const struct ax_encode_options o = {.add_special_tokens = !begins(s, n, given)};
    return ax_tokenizer_encode(r->tokenizer, s, n, &o, out);
}

static enum ax_status token_text(const struct ax_tokenizer *t, int32_t id, char **out) {
    struct ax_buf text = {0};
    AX_TRY(ax_buf_append(&text, "", 0));
    const enum ax_status st = id >= 0 ? ax_tokenizer_decode(t, &id, 1, false, &text) : AX_OK;
    *out = text.data;
    return st;
}

/* ---- requests ---- */

static enum ax_status add(struct ax_task_requests *r, size_t item, size_t at, size_t n_context) {
    if (r->n == r->cap) {
        const size_t cap = r->cap > 0 ? 2 * r->cap : 256;
        AX_TRY(ax_regrow(&r->list, r->cap, cap, sizeof *r->list));
        r->cap = cap;
    }
    const int64_t n = (int64_t)(r->ids.n - at - n_context);
    r->list[r->n++] = (struct ax_task_request){
        .item = item, .at = at, .n_context = (int64_t)n_context, .n_continuation = n};
    return AX_OK;
}

static enum ax_status push(struct ax_encoding *e, const int32_t *ids, size_t n) {
    AX_TRY(ax_encoding_reserve(e, n, false));
    memcpy(e->ids + e->n, ids, n * sizeof *ids);
    e->n += n;
    return AX_OK;
}

static enum ax_status add_scored(struct ax_task_requests *r, size_t item, size_t at,
                                 size_t n_context) {
    const size_t n = r->ids.n - at - n_context;
    if (n == 0)
        return ax_error(AX_ERR_DATA, "the answer has no tokens of its own to score");
    if ((int64_t)n > r->max_length)
        return ax_error(AX_ERR_DATA,
                        "the answer has %zu tokens, more than the %lld that the model "
                        "can take; raise --max-length, if the model allows",
                        n, (long long)r->max_length);
    return add(r, item, at, n_context);
}

/* A text without context follows the prefix token, which is not repeated if the text begins with
 * it. */
static enum ax_status add_alone(struct ax_task_requests *r, size_t item, const char *s, size_t n) {
    const struct ax_encode_options plain = {0};
    const size_t at = r->ids.n;
    AX_TRY(push(&r->ids, &r->prefix, 1));
    AX_TRY(ax_tokenizer_encode(r->tokenizer, s, n, &plain, &r->ids));
    if (r->ids.n > at + 1 && r->ids.ids[at + 1] == r->prefix) {
        memmove(r->ids.ids + at, r->ids.ids + at + 1, (r->ids.n - at - 1) * sizeof *r->ids.ids);
        r->ids.n--;
    }
    return add_scored(r, item, at, 1);
}

/* Spaces at the end of the context belong to the continuation. Its tokens are those of the joined
 * text beyond as many as the context has. */
static enum ax_status add_pair(struct ax_task_requests *r, size_t item,
                               const struct ax_buf *context, const struct ax_buf *continuation) {
    const size_t n = context->len, kept = ax_python_rstrip(context->data, n), at = r->ids.n;
    struct ax_buf whole = {0};
    struct ax_encoding ids = {0};
    enum ax_status st;
    if (n == 0)
        return add_alone(r, item, continuation->data, continuation->len);
    AX_TRY_GOTO(ax_buf_append(&whole, context->data, n), st, done);
    AX_TRY_GOTO(ax_buf_append(&whole, continuation->data, continuation->len), st, done);
    AX_TRY_GOTO(encode(r, context->data, kept, r->prefix_text, &r->ids), st, done);
    const size_t n_context = r->ids.n - at;
    AX_TRY_GOTO(encode(r, whole.data, whole.len, r->prefix_text, &ids), st, done);
    if (n_context == 0) /* only spaces, and the tokenizer adds no tokens */
        AX_TRY_GOTO(push(&r->ids, &r->prefix, 1), st, done);
    if (ids.n > n_context)
        AX_TRY_GOTO(push(&r->ids, ids.ids + n_context, ids.n - n_context), st, done);
    st = add_scored(r, item, at, n_context > 0 ? n_context : 1);
done:
    ax_buf_free(&whole);
    ax_encoding_free(&ids);
    return st;
}

/* Windows of max_length tokens, each of which predicts the tokens after those of the previous one.
 * The first begins with the prefix; the last starts earlier, so that it is full. */
static enum ax_status add_windows(struct ax_task_requests *r, size_t item, const char *s,
                                  size_t n) {
    struct ax_encoding ids = {0};
    const size_t most = (size_t)r->max_length;
    enum ax_status st = encode(r, s, n, r->prefix_text, &ids);
    for (size_t done = 0; done < ids.n && st == AX_OK;) {
        const size_t left = ids.n - done, count = left < most ? left : most, end = done + count;
        const size_t from = end > most ? end - most - 1 : 0, at = r->ids.n;
        if (done == 0)
            st = push(&r->ids, &r->prefix, 1);
        if (st == AX_OK)
            st = push(&r->ids, ids.ids + (done == 0 ? 0 : from), end - (done == 0 ? 0 : from));
        if (st == AX_OK)
            st = add(r, item, at, r->ids.n - at - count);
        done = end;
    }
    ax_encoding_free(&ids);
    return st;
}

/* ---- records ---- */

/* The delimiter between a question and its choices: with a chat template none, except after a
 * gen_prefix that does not end in a space. */
static const char *delimiter(const struct ax_task *t, bool chat) {
    const char *begin = t->gen_prefix.text;
    const bool open = begin && *begin && !ax_python_space_last(begin, strlen(begin));
    return !chat || open ? t->target_delimiter : "";
}

enum ax_status ax_task_continuation(const struct ax_task_prompts *p, size_t item, size_t choice,
                                    struct ax_buf *out) {
    const struct ax_task_item *x = &p->items[item];
    AX_TRY(ax_buf_puts(out, delimiter(p->task, p->chat)));
    return ax_python_str(out, p->several ? x->target : json_array_get(x->choices, choice));
}

static bool has_metric(const struct ax_task *t, enum ax_task_metric_kind kind) {
    for (size_t i = 0; i < t->n_metrics; i++)
        if (t->metrics[i].kind == kind)
            return true;
    return false;
}

/* Each choice after its context and, for mutual information, also without context. */
static enum ax_status add_choices(struct maker *m, size_t i) {
    const struct ax_task_item *item = &m->p->items[i];
    const bool alone = has_metric(m->p->task, AX_METRIC_ACC_MUTUAL_INFO);
    const size_t n = json_array_size(item->choices);
    for (size_t k = 0; k < n * (1 + alone); k++) {
        struct ax_buf text = {0};
        enum ax_status st = ax_task_continuation(m->p, i, k % n, &text);
        if (st == AX_OK && k >= n)
            st = add_alone(m->r, i, text.data, text.len);
        else if (st == AX_OK)
            st = add_pair(m->r, i, &item->contexts[m->p->several ? k : 0], &text);
        ax_buf_free(&text);
        AX_TRY(st);
    }
    return AX_OK;
}

static enum ax_status add_target(struct maker *m, size_t i, bool rolling) {
    const struct ax_task_item *item = &m->p->items[i];
    struct ax_buf text = {0};
    AX_TRY(ax_buf_append(&text, "", 0));
    enum ax_status st = item->target ? ax_python_str(&text, item->target) : AX_OK;
    if (st == AX_OK)
        st = rolling ? add_windows(m->r, i, text.data, text.len)
                     : add_pair(m->r, i, &item->contexts[0], &text);
    ax_buf_free(&text);
    return st;
}

static enum ax_status add_prompt(struct maker *m, size_t i) {
    const struct ax_buf *s = &m->p->items[i].contexts[0];
    const size_t at = m->r->ids.n;
    AX_TRY(encode(m->r, s->data, s->len, m->r->bos_text, &m->r->ids));
    if (m->r->ids.n == at)
        return ax_error(AX_ERR_DATA, "the prompt has no tokens");
    return add(m->r, i, at, m->r->ids.n - at);
}

static enum ax_status make_item(struct maker *m, size_t i) {
    switch (m->p->task->output) {
    case AX_TASK_MULTIPLE_CHOICE:
        return add_choices(m, i);
    case AX_TASK_GENERATE:
        return add_prompt(m, i);
    default:
        return add_target(m, i, m->p->task->output == AX_TASK_ROLLING);
    }
}

/* ---- all ---- */

static enum ax_status find_special(struct ax_task_requests *r) {
    const int32_t bos = ax_tokenizer_special_id(r->tokenizer, AX_BOS),
                  eos = ax_tokenizer_special_id(r->tokenizer, AX_EOS);
    r->prefix = bos >= 0 ? bos : eos;
    AX_TRY(token_text(r->tokenizer, r->prefix, &r->prefix_text));
    return ax_strdup(&r->bos_text, bos >= 0 ? ax_tokenizer_special(r->tokenizer, AX_BOS) : "");
}

static enum ax_status count_until(struct ax_task_requests *r) {
    const struct ax_encode_options plain = {0};
    struct ax_encoding ids = {0};
    enum ax_status st = ax_alloc(&r->until_tokens, r->n_until, sizeof *r->until_tokens);
    for (size_t i = 0; i < r->n_until && st == AX_OK; i++) {
        ids.n = 0;
        st = ax_tokenizer_encode(r->tokenizer, r->until[i], strlen(r->until[i]), &plain, &ids);
        r->until_tokens[i] = (int64_t)ids.n;
    }
    ax_encoding_free(&ids);
    return st;
}

/* The task's stop texts, and the end of sequence if it is not among them. */
static enum ax_status list_until(struct ax_task_requests *r, const struct ax_task_generation *g) {
    char *eos;
    AX_TRY(token_text(r->tokenizer, ax_tokenizer_special_id(r->tokenizer, AX_EOS), &eos));
    enum ax_status st = ax_alloc(&r->until, g->n_until + 1, sizeof(char *));
    bool known = *eos == '\0';
    for (size_t i = 0; i < g->n_until && st == AX_OK; i++) {
        known = known || strcmp(g->until[i], eos) == 0;
        st = ax_strdup(&r->until[r->n_until++], g->until[i]);
    }
    if (st == AX_OK && !known)
        st = ax_strdup(&r->until[r->n_until++], eos);
    ax_free(eos);
    AX_TRY(st);
    r->samples = g->temperature > 0 ? (size_t)r->prompts->task->repeats : 1;
    return count_until(r);
}

static enum ax_status prepare(struct ax_task_requests *r) {
    const struct ax_task *t = r->prompts->task;
    AX_TRY(find_special(r));
    AX_TRY(ax_alloc(&r->first, r->prompts->docs.n + 1, sizeof *r->first));
    if (r->prefix < 0 && t->output != AX_TASK_GENERATE)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "the tokenizer has neither a bos_token nor an eos_token to begin with");
    if (t->output != AX_TASK_GENERATE)
        return AX_OK;
    if (t->generation.max_tokens >= r->max_length)
        return ax_error(AX_ERR_CONFIG,
                        "%s: max_gen_toks is %lld, which leaves no tokens for a prompt in the "
                        "model's %lld tokens",
                        t->name, (long long)t->generation.max_tokens, (long long)r->max_length);
    return list_until(r, &t->generation);
}

static enum ax_status make_all(struct maker *m) {
    struct ax_task_requests *r = m->r;
    char where[512];
    AX_TRY(prepare(r));
    for (size_t i = 0; i < m->p->docs.n; i++) {
        r->first[i] = r->n;
        const enum ax_status st = make_item(m, i);
        if (st != AX_OK)
            return ax_error_prefix(st, "%s",
                                   ax_task_docs_where(&m->p->docs, i, where, sizeof where));
    }
    r->first[m->p->docs.n] = r->n;
    if (m->p->task->output == AX_TASK_GENERATE)
        AX_TRY(ax_alloc(&r->answers, r->n * r->samples, sizeof *r->answers));
    return AX_OK;
}

enum ax_status ax_task_requests_make(struct ax_task_requests *r, const struct ax_task_prompts *p,
                                     const struct ax_text_side *side, int64_t max_length) {
    *r = (struct ax_task_requests){
        .prompts = p, .tokenizer = side->tokenizer, .max_length = max_length};
    struct maker m = {.r = r, .p = p};
    const enum ax_status st = make_all(&m);
    if (st != AX_OK)
        ax_task_requests_free(r);
    return st;
}

void ax_task_requests_free(struct ax_task_requests *r) {
    for (size_t i = 0; r->answers && i < r->n * r->samples; i++) {
        ax_free(r->answers[i].tokens);
        ax_buf_free(&r->answers[i].text);
    }
    for (size_t i = 0; i < r->n_until; i++)
        ax_free(r->until[i]);
    ax_free(r->until);
    ax_free(r->until_tokens);
    ax_free(r->answers);
    ax_free(r->list);
    ax_free(r->first);
    ax_free(r->prefix_text);
    ax_free(r->bos_text);
    ax_encoding_free(&r->ids);
    *r = (struct ax_task_requests){0};
}

const int32_t *ax_task_request_fed(const struct ax_task_requests *r,
                                   const struct ax_task_request *q, int64_t *n) {
    const bool scored = q->n_continuation > 0; /* the last token is only predicted */
    const int64_t all = q->n_context + q->n_continuation - scored;
    const int64_t most =
        scored ? r->max_length : r->max_length - r->prompts->task->generation.max_tokens;
    *n = all < most ? all : most;
    return r->ids.ids + q->at + (all - *n);
}

int64_t ax_task_requests_longest(const struct ax_task_requests *r) {
    int64_t longest = 1, n;
    for (size_t i = 0; i < r->n; i++) {
        (void)ax_task_request_fed(r, &r->list[i], &n);
        longest = n > longest ? n : longest;
    }
    return longest;
}
