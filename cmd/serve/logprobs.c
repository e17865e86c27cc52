#include "cmd/serve/logprobs.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cmd/serve/json.h"

#define NO_LOGPROB (-9999.0) /* JSON has no −∞ */

/* ---- tokens ---- */

static json_t *logprob_of(double x) {
    return isnan(x) ? json_null() : json_real(x < NO_LOGPROB ? NO_LOGPROB : x);
}

/* A token decoded alone, or "token_id:N". */
static enum ax_status token_text(const struct ax_serve_job *j, int32_t id, struct ax_buf *out) {
    out->len = 0;
    if (j->r.ids_as_text)
        return ax_buf_printf(out, "token_id:%d", id);
    AX_TRY(ax_buf_append(out, "", 0));
    return ax_tokenizer_decode(j->r.model->side->tokenizer, &id, 1, false, out);
}

static int64_t count_characters(const struct ax_buf *b) {
    int64_t n = 0;
    for (size_t i = 0; i < b->len; i++)
        n += ((unsigned char)b->data[i] & 0xC0U) != 0x80U;
    return n;
}

/* Log-probs as they are collected: a list of objects for chats, four lists for completions. */
struct logprobs {
    const struct ax_serve_job *job;
    struct ax_buf text, top, bytes; /* of a token */
    json_t *content;
    json_t *tokens, *values, *tops, *offsets;
    int64_t offset;
    const char *given; /* the prompt's text from the offset on, as far as it was given as text */
    size_t n_given;
};

static void open_logprobs(struct logprobs *l, const struct ax_serve_job *j, int64_t offset) {
    *l = (struct logprobs){.job = j, .offset = offset};
    if (j->r.chat) {
        l->content = json_array();
        return;
    }
    l->tokens = json_array();
    l->values = json_array();
    l->tops = json_array();
    l->offsets = json_array();
}

/* Consumes them. */
static json_t *close_logprobs(struct logprobs *l) {
    ax_buf_free(&l->text);
    ax_buf_free(&l->top);
    ax_buf_free(&l->bytes);
    return l->job->r.chat
               ? json_pack("{so}", "content", l->content)
               : json_pack("{so so so so}", "tokens", l->tokens, "token_logprobs", l->values,
                           "top_logprobs", l->tops, "text_offset", l->offsets);
}

static json_t *named_text(const struct ax_buf *b) {
    return json_stringn(b->data, b->len);
}

/* A token, and the k likeliest ones in its place. */
struct scored {
    int32_t id;
    double logprob; /* NAN: the first of a prompt, which nothing precedes */
    int k;
    const int32_t *best;
    const double *best_logprobs;
};

/* The bytes of a token's text, or where it is a part of a character, its own. */
static enum ax_status bytes_of(struct logprobs *l, int32_t id, const struct ax_buf *text,
                               json_t **out) {
    const struct ax_tokenizer *t = l->job->r.model->side->tokenizer;
    const bool part = text->len > 0 && memmem(text->data, text->len, "\xEF\xBF\xBD", 3);
    const struct ax_buf *b = part || l->job->r.ids_as_text ? &l->bytes : text;
    l->bytes.len = 0;
    if (b != text)
        AX_TRY(ax_tokenizer_token_bytes(t, id, &l->bytes));
    *out = json_array();
    for (size_t i = 0; i < b->len; i++)
        ax_json_append(out, json_integer((unsigned char)b->data[i]));
    return AX_OK;
}

/* The likeliest tokens: a list of objects for chats, else an object, which has the token itself, too. */
static enum ax_status tops_of(struct logprobs *l, const struct scored *s, json_t **out) {
    const bool chat = l->job->r.chat;
    bool has_own = chat;
    *out = chat ? json_array() : json_object();
    for (int i = 0; i < s->k && s->best[i] >= 0; i++) {
        AX_TRY(token_text(l->job, s->best[i], &l->top));
        has_own = has_own || s->best[i] == s->id;
        if (!chat && json_object_getn(*out, l->top.data, l->top.len))
            continue; /* two tokens of one text: the likelier */
        if (chat) {
            json_t *bytes;
            AX_TRY(bytes_of(l, s->best[i], &l->top, &bytes));
            ax_json_append(out, json_pack("{so so so}", "token", named_text(&l->top), "logprob",
                                          logprob_of(s->best_logprobs[i]), "bytes", bytes));
        } else {
            ax_json_set_text(out, &l->top, logprob_of(s->best_logprobs[i]));
        }
    }
    if (!has_own && !json_object_getn(*out, l->text.data, l->text.len))
        ax_json_set_text(out, &l->text, logprob_of(s->logprob));
    return AX_OK;
}

/* The token's characters in the text: special tokens have some only where they were given in the prompt's. */
static int64_t count_in_text(struct logprobs *l, int32_t id) {
    const struct ax_buf *text = &l->text;
    const bool given =
        l->n_given >= text->len && l->n_given > 0 && memcmp(l->given, text->data, text->len) == 0;
    if (!given && ax_tokenizer_is_special(l->job->r.model->side->tokenizer, id))
        return 0;
    const int64_t n = count_characters(text);
    for (int64_t left = n;
         l->n_given > 0 && (((unsigned char)*l->given & 0xC0U) == 0x80U || left-- > 0);
         l->n_given--)
        l->given++;
    return n;
}

static enum ax_status add_logprob(struct logprobs *l, const struct scored *s) {
    json_t *tops = NULL, *bytes;
    AX_TRY(token_text(l->job, s->id, &l->text));
    if (!isnan(s->logprob))
        AX_TRY(tops_of(l, s, &tops));
    if (l->job->r.chat) {
        const enum ax_status st = bytes_of(l, s->id, &l->text, &bytes);
        if (st != AX_OK) {
            json_decref(tops);
            return st;
        }
        ax_json_append(&l->content,
                       json_pack("{so so so so}", "token", named_text(&l->text), "logprob",
                                 logprob_of(s->logprob), "bytes", bytes, "top_logprobs", tops));
        return AX_OK;
    }
    ax_json_append(&l->tokens, named_text(&l->text));
    ax_json_append(&l->values, logprob_of(s->logprob));
    ax_json_append(&l->tops, isnan(s->logprob) ? json_null() : tops);
    ax_json_append(&l->offsets, json_integer(l->offset));
    l->offset += count_in_text(l, s->id);
    return AX_OK;
}

/* Token i + 1 of a prompt; `most` of the likeliest. */
static struct scored scored_at(const struct ax_serve_score *s, const int32_t *ids, int64_t i,
                               int64_t most) {
    const int k = (int64_t)s->k < most ? s->k : (int)most;
    return (struct scored){.id = ids[i + 1],
                           .logprob = s->logprobs[i],
                           .k = k,
                           .best = k > 0 ? s->best + i * s->k : NULL,
                           .best_logprobs = k > 0 ? s->best_logprobs + i * s->k : NULL};
}

static enum ax_status add_prompt_logprobs(struct logprobs *l, const struct ax_serve_prompt *p,
                                          const struct ax_serve_score *s) {
    const int32_t *ids = l->job->r.ids.ids + p->first;
    l->given = p->text ? json_string_value(p->text) : NULL;
    l->n_given = json_string_length(p->text);
    AX_TRY(add_logprob(l, &(struct scored){.id = ids[0], .logprob = NAN}));
    for (int64_t i = 0; i + 1 < p->n; i++) {
        const struct scored token = scored_at(s, ids, i, l->job->r.logprobs);
        AX_TRY(add_logprob(l, &token));
    }
    l->n_given = 0;
    return AX_OK;
}

static enum ax_status add_logprobs(struct logprobs *l, const struct ax_serve_choice *c,
                                   int64_t from) {
    const int k = c->k;
    for (int64_t i = from; i < c->n_tokens; i++) {
        const struct scored token = {.id = c->tokens[i],
                                     .logprob = c->logprobs[i],
                                     .k = k,
                                     .best = k > 0 ? c->best + i * k : NULL,
                                     .best_logprobs = k > 0 ? c->best_logprobs + i * k : NULL};
        AX_TRY(add_logprob(l, &token));
    }
    return AX_OK;
}

enum ax_status ax_serve_logprobs(const struct ax_serve_job *j, struct ax_serve_choice *c,
                                 int64_t from, json_t **out) {
    struct logprobs l;
    enum ax_status st = AX_OK;
    *out = json_null();
    if (j->r.logprobs < 0)
        return AX_OK;
    open_logprobs(&l, j, c->offset);
    if (j->r.echo)
        st = add_prompt_logprobs(&l, c->prompt, &j->scores[c->prompt - j->r.prompts]);
    if (st == AX_OK)
        st = add_logprobs(&l, c, from);
    c->offset = l.offset;
    *out = close_logprobs(&l);
    return st;
}

/* ---- prompt_logprobs ---- */

/* Rank 0: not among the likeliest. */
static enum ax_status add_ranked(const struct ax_serve_job *j, json_t **table, int32_t id,
                                 double logprob, int rank, struct ax_buf *text) {
    char key[16];
    snprintf(key, sizeof key, "%d", id);
    AX_TRY(token_text(j, id, text));
    ax_json_set(table, key,
                json_pack("{so so so}", "logprob", logprob_of(logprob), "rank",
                          rank > 0 ? json_integer(rank) : json_null(), "decoded_token",
                          named_text(text)));
    return AX_OK;
}

static enum ax_status ranked(const struct ax_serve_job *j, const struct scored *s,
                             struct ax_buf *text, json_t **table) {
    int own = 0;
    *table = json_object();
    for (int i = 0; i < s->k && s->best[i] >= 0; i++)
        own = s->best[i] == s->id ? i + 1 : own;
    AX_TRY(add_ranked(j, table, s->id, s->logprob, own, text));
    for (int i = 0; i < s->k && s->best[i] >= 0; i++)
        if (i + 1 != own)
            AX_TRY(add_ranked(j, table, s->best[i], s->best_logprobs[i], i + 1, text));
    return AX_OK;
}

enum ax_status ax_serve_prompt_logprobs(const struct ax_serve_job *j,
                                        const struct ax_serve_prompt *p, json_t **out) {
    const struct ax_serve_score *score = &j->scores[p - j->r.prompts];
    struct ax_buf text = {0};
    enum ax_status st = AX_OK;
    *out = json_array();
    ax_json_append(out, json_null());
    for (int64_t i = 0; i + 1 < p->n && st == AX_OK; i++) {
        const struct scored token =
            scored_at(score, j->r.ids.ids + p->first, i, j->r.prompt_logprobs);
        json_t *table;
        st = ranked(j, &token, &text, &table);
        ax_json_append(out, table);
    }
    ax_buf_free(&text);
    return st;
}
