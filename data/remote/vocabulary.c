/* Whether a server's tokens are the model's. Ids are all that both exchange, so that other tokens would silently be
 * other words. Checked are how a text is tokenized, if the server has /tokenize, and the texts of tokens all over the
 * vocabulary, which its answers name. */
#include <string.h>

#include "base/mem.h"
#include "data/remote/teacher.h"

#define MAX_BYTES ((uint64_t)4 << 20)
#define PROBES    64

/* What tokenizers split in different ways: words, numbers, blanks, code, other scripts. */
static const char probe[] = "The 3 quick brown foxes can't jump over 12,345.67 lazy dogs!\n"
                            "    if (x != y[0]) { return naïve_café + 東京; }";

/* ---- a text ---- */

static enum ax_status compare_ids(const struct ax_remote_teacher *t, const json_t *list,
                                  const struct ax_encoding *own) {
    size_t i = 0;
    while (i < own->n && i < json_array_size(list) &&
           json_integer_value(json_array_get(list, i)) == own->ids[i])
        i++;
    if (i == own->n && i == json_array_size(list))
        return AX_OK;
    return ax_error(AX_ERR_CONFIG,
                    "%s/tokenize: \"%s\" has another tokenizer than the model that is trained: a "
                    "text of %zu tokens has %zu there, and differs from number %zu on",
                    t->server.root, t->model, own->n, json_array_size(list), i);
}

/* A server without the route is believed. */
static enum ax_status check_text(const struct ax_remote_teacher *t) {
    const struct ax_encode_options plain = {0};
    struct ax_encoding own = {0};
    json_t *v = json_pack("{sO ss sb}", "model", t->name, "prompt", probe, "add_special_tokens", 0);
    char *body = v ? json_dumps(v, 0) : NULL;
    json_decref(v);
    if (!body)
        return ax_error(AX_ERR_NOMEM, "out of memory for a request");
    struct ax_endpoint_request q = {
        .path = "/tokenize", .body = body, .max_bytes = MAX_BYTES, .may_refuse = true};
    enum ax_status st = ax_endpoint_ask(&t->server, 1, &q, NULL);
    const json_t *list = json_object_get(q.answer, "tokens");
    if (st == AX_OK && json_is_array(list))
        st = ax_tokenizer_encode(t->o.tokenizer, probe, strlen(probe), &plain, &own);
    if (st == AX_OK && json_is_array(list))
        st = compare_ids(t, list, &own);
    ax_encoding_free(&own);
    json_decref(q.answer);
    ax_free_hook(body);
    return st;
}

/* ---- tokens ---- */

static bool is_text(const char *s) {
    return *s && !strstr(s, "\xef\xbf\xbd"); /* U+FFFD: a part of a character */
}

/* A token alone may be decoded without the blank that it begins with. */
static const char *without_blank(const char *s) {
    return s + strspn(s, " ");
}

static enum ax_status compare_token(const struct ax_remote_teacher *t, int32_t id,
                                    const json_t *table) {
    char key[16];
    struct ax_buf own = {0};
    snprintf(key, sizeof key, "%d", id);
    const char *text =
        json_string_value(json_object_get(json_object_get(table, key), "decoded_token"));
    enum ax_status st = ax_tokenizer_decode(t->o.tokenizer, &id, 1, true, &own);
    const bool both = st == AX_OK && text && own.len > 0 && is_text(own.data) && is_text(text);
    if (both && strcmp(without_blank(text), without_blank(own.data)) != 0)
        st = ax_error(AX_ERR_CONFIG,
                      "%s: \"%s\" has other tokens than the model that is trained: token %d is "
                      "\"%.40s\" there, and \"%.40s\" here; a teacher needs the model's vocabulary",
                      t->server.root, t->model, id, text, own.data);
    ax_buf_free(&own);
    return st;
}

/* Tokens from all over the vocabulary, as if they were a text. */
static int64_t choose_probes(const struct ax_remote_teacher *t, int32_t *ids) {
    const int64_t size = t->o.tokenizer ? (int64_t)ax_tokenizer_size(t->o.tokenizer) : t->o.vocab,
                  all = size < t->o.vocab ? size : t->o.vocab,
                  n = t->o.longest < PROBES ? t->o.longest : PROBES;
    for (int64_t i = 0; i < n; i++)
        ids[i] = (int32_t)(i * (all - 1) / (n > 1 ? n - 1 : 1));
    return n;
}

/* Asks for the log-probs of a text; *answer NULL: refused. */
static enum ax_status ask(const struct ax_remote_teacher *t, const struct ax_remote_text *text,
                          bool may_refuse, json_t **answer) {
    char *body;
    AX_TRY(ax_remote_teacher_body(t, 1, text, &body));
    struct ax_endpoint_request q = {.path = "/v1/completions",
                                    .body = body,
                                    .max_bytes = MAX_BYTES + (uint64_t)t->o.k * PROBES * 1024,
                                    .may_refuse = may_refuse};
    const enum ax_status st = ax_endpoint_ask(&t->server, 1, &q, NULL);
    ax_free(body);
    *answer = q.answer;
    return st;
}

static enum ax_status check_answer(const struct ax_remote_teacher *t,
                                   const struct ax_remote_text *text, const json_t *answer) {
    const json_t *choice = json_array_get(json_object_get(answer, "choices"), 0),
                 *list = json_object_get(choice, "prompt_logprobs");
    const enum ax_status st = ax_prompt_logprobs_read(answer, t->o.k, t->o.vocab, 1, text);
    if (st != AX_OK)
        return ax_error_prefix(st, "%s/v1/completions", t->server.root);
    for (int64_t i = 1; i < text->n && t->o.tokenizer; i++)
        AX_TRY(compare_token(t, text->ids[i], json_array_get(list, (size_t)i)));
    return AX_OK;
}

/* Servers differ in whether they answer without a new token. */
static enum ax_status check_tokens(struct ax_remote_teacher *t) {
    int32_t ids[PROBES], best[PROBES * AX_REMOTE_LIKELIEST_MAX];
    double logprobs[PROBES], best_logprobs[PROBES * AX_REMOTE_LIKELIEST_MAX];
    const struct ax_remote_text text = {.n = choose_probes(t, ids),
                                        .first = 1,
                                        .ids = ids,
                                        .logprobs = logprobs,
                                        .best = best,
                                        .best_logprobs = best_logprobs};
    json_t *answer;
    AX_TRY(ask(t, &text, true, &answer));
    if (!answer) {
        t->one = true;
        AX_TRY(ask(t, &text, false, &answer));
    }
    const enum ax_status st = check_answer(t, &text, answer);
    json_decref(answer);
    return st;
}

enum ax_status ax_remote_vocabulary_check(struct ax_remote_teacher *t) {
    if (t->o.tokenizer)
        AX_TRY(check_text(t));
    return check_tokens(t);
}
