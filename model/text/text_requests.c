/* Texts → tokens; text_requests_run.c runs them. Read ax_text_requests_add_pair first. */
#include "model/text/text_requests.h"

#include <string.h>

#include "base/mem.h"
#include "data/text/jinja/unicode.h"
#include "data/text/tokenizer/encode.h"

/* ---- tokens ---- */

static bool begins(const char *s, size_t n, const char *with) {
    return with && *with && n >= strlen(with) && memcmp(s, with, strlen(with)) == 0;
}

/* Appends the tokens of a text and those that the tokenizer adds; without the latter if the text
 * already begins with `given`, the text of one of them. */
static enum ax_status encode(const struct ax_text_requests *r, const char *s, size_t n,
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

static enum ax_status add(struct ax_text_requests *r, size_t item, size_t at, size_t n_context) {
    AX_TRY(ax_grow(&r->list, r->n, &r->cap, sizeof *r->list));
    const int64_t n = (int64_t)(r->ids.n - at - n_context);
    r->list[r->n++] = (struct ax_text_request){
        .item = item, .at = at, .n_context = (int64_t)n_context, .n_continuation = n};
    return AX_OK;
}

static enum ax_status push(struct ax_encoding *e, const int32_t *ids, size_t n) {
    AX_TRY(ax_encoding_reserve(e, n, false));
    memcpy(e->ids + e->n, ids, n * sizeof *ids);
    e->n += n;
    return AX_OK;
}

static enum ax_status add_scored(struct ax_text_requests *r, size_t item, size_t at,
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
static enum ax_status add_alone(struct ax_text_requests *r, size_t item, const char *s, size_t n) {
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

/* The length of a text without the white space at its end, as of Python's rstrip. */
static size_t stripped(const char *s, size_t n) {
    for (size_t at = n; at > 0 && ax_python_is_space(ax_python_prev(s, &at)); n = at)
        ;
    return n;
}

/* Spaces at the end of the context belong to the continuation. Its tokens are those of the joined
 * text beyond as many as the context has. */
enum ax_status ax_text_requests_add_pair(struct ax_text_requests *r, size_t item,
                                         const struct ax_buf *context,
                                         const struct ax_buf *continuation) {
    const size_t n = context->len, kept = stripped(context->data, n), at = r->ids.n;
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
enum ax_status ax_text_requests_add_windows(struct ax_text_requests *r, size_t item, const char *s,
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

enum ax_status ax_text_requests_add_prompt(struct ax_text_requests *r, size_t item, const char *s,
                                           size_t n) {
    const size_t at = r->ids.n;
    AX_TRY(encode(r, s, n, r->bos_text, &r->ids));
    if (r->ids.n == at)
        return ax_error(AX_ERR_DATA, "the prompt has no tokens");
    return add(r, item, at, r->ids.n - at);
}

/* ---- opening, closing ---- */

static enum ax_status find_special(struct ax_text_requests *r) {
    const int32_t bos = ax_tokenizer_special_id(r->tokenizer, AX_BOS),
                  eos = ax_tokenizer_special_id(r->tokenizer, AX_EOS);
    r->prefix = bos >= 0 ? bos : eos;
    AX_TRY(token_text(r->tokenizer, r->prefix, &r->prefix_text));
    return ax_strdup(&r->bos_text, bos >= 0 ? ax_tokenizer_special(r->tokenizer, AX_BOS) : "");
}

static enum ax_status count_until(struct ax_text_requests *r) {
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

/* The stop texts, and the end of sequence if it is not among them. */
static enum ax_status list_until(struct ax_text_requests *r, const struct ax_text_generation *g) {
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
    return count_until(r);
}

enum ax_status ax_text_requests_open(struct ax_text_requests *r, const struct ax_text_side *side,
                                     int64_t max_length, const struct ax_text_generation *g) {
    *r = (struct ax_text_requests){
        .tokenizer = side->tokenizer, .max_length = max_length, .generation = g};
    AX_TRY(find_special(r));
    if (r->prefix < 0 && !g)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "the tokenizer has neither a bos_token nor an eos_token to begin with");
    if (!g)
        return AX_OK;
    if (g->max_tokens >= max_length)
        return ax_error(AX_ERR_CONFIG,
                        "max_gen_toks is %lld, which leaves no tokens for a prompt in the "
                        "model's %lld tokens",
                        (long long)g->max_tokens, (long long)max_length);
    return list_until(r, g);
}

void ax_text_requests_free(struct ax_text_requests *r) {
    for (size_t i = 0; r->answers && i < r->n; i++)
        ax_buf_free(&r->answers[i]);
    for (size_t i = 0; i < r->n_until; i++)
        ax_free(r->until[i]);
    ax_free(r->until);
    ax_free(r->until_tokens);
    ax_free(r->answers);
    ax_free(r->list);
    ax_free(r->prefix_text);
    ax_free(r->bos_text);
    ax_encoding_free(&r->ids);
    *r = (struct ax_text_requests){0};
}

const int32_t *ax_text_requests_fed(const struct ax_text_requests *r,
                                    const struct ax_text_request *q, int64_t *n) {
    const bool scored = q->n_continuation > 0; /* the last token is only predicted */
    const int64_t all = q->n_context + q->n_continuation - scored;
    const int64_t most = scored ? r->max_length : r->max_length - r->generation->max_tokens;
    *n = all < most ? all : most;
    return r->ids.ids + q->at + (all - *n);
}
