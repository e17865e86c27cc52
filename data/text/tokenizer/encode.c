/* Text → ids: added tokens, normalizer, pre-tokenizer, model, surrounding specials. Read
 * ax_tokenizer_encode first. */
#include "data/text/tokenizer/encode.h"

#include "base/text/unicode.h"
#include "data/text/tokenizer/tokenizer_impl.h"

/* ---- the tokens that encoding fills ---- */

void ax_encoding_free(struct ax_encoding *e) {
    ax_free(e->ids);
    ax_free(e->spans);
    *e = (struct ax_encoding){0};
}

size_t ax_encoding_covering(const struct ax_encoding *e, size_t from, size_t at) {
    for (size_t i = from; i < e->n; i++)
        if (e->spans[i].start <= at && at < e->spans[i].end)
            return i;
    return e->n;
}

/* ---- added tokens in a text ---- */

/* Begin with text_from = 0. `plain` leaves special tokens in the text. */
struct added_scan {
    const struct ax_added_tokens *tokens;
    const struct ax_trie *trie;
    bool plain;
    const char *s;
    size_t len;
    size_t search;                      /* start of the search for the next match */
    size_t text_from;                   /* end of the last segment */
    const struct ax_added_token *token; /* a match not yet returned */
    size_t token_start, token_end;      /* the range that the match consumes */
};

/* The longest token that begins at s, and its length. */
static const struct ax_added_token *match_at(const struct added_scan *scan, const char *s,
                                             size_t left, size_t *len) {
    const struct ax_trie *t = scan->trie;
    const struct ax_added_token *found = NULL;
    uint32_t node = t->roots[(unsigned char)s[0]];
    for (size_t i = 1; node != 0; i++) {
        if (t->nodes[node].token != AX_NO_TOKEN) {
            found = &scan->tokens->tokens[t->nodes[node].token];
            *len = i;
        }
        if (i == left)
            break;
        node = ax_trie_child(t, node, (unsigned char)s[i]);
    }
    return found;
}

static bool word_before(const char *s, size_t at) {
    size_t n;
    return at > 0 && ax_unicode_is_word(ax_utf8_decode_before((const unsigned char *)s + at, &n));
}

static bool word_at(const char *s, size_t at, size_t len) {
    size_t n;
    return at < len && ax_unicode_is_word(ax_utf8_decode((const unsigned char *)s + at, &n));
}

/* Start of the white space that ends at `at`, but not before `limit`. */
static size_t blanks_before(const char *s, size_t limit, size_t at) {
    size_t n;
    while (at > limit &&
           ax_unicode_is_space(ax_utf8_decode_before((const unsigned char *)s + at, &n)))
        at -= n;
    return at > limit ? at : limit;
}

static size_t blanks_behind(const char *s, size_t at, size_t len) {
    size_t n;
    while (at < len && ax_unicode_is_space(ax_utf8_decode((const unsigned char *)s + at, &n)))
        at += n;
    return at;
}

static struct added_scan scan_added(const struct ax_added_tokens *a, bool normalized, bool plain,
                                    const char *s, size_t len) {
    return (struct added_scan){.tokens = a,
                               .trie = normalized ? &a->normalized : &a->raw,
                               .plain = plain,
                               .s = s,
                               .len = len};
}

/* Finds the next match that counts. As in HF, a match that does not count is skipped as a whole:
 * the search continues after it. */
static bool find_token(struct added_scan *c) {
    const struct ax_trie *t = c->trie;
    size_t n;
    if (t->n == 0)
        return false;
    while (c->search < c->len) {
        if (t->roots[(unsigned char)c->s[c->search]] == 0) {
            c->search++;
            continue;
        }
        const struct ax_added_token *m = match_at(c, c->s + c->search, c->len - c->search, &n);
        if (m == NULL) {
            c->search++;
            continue;
        }
        size_t start = c->search, end = start + n;
        c->search = end;
        if (c->plain && m->special)
            continue;
        if (m->single_word && (word_before(c->s, start) || word_at(c->s, end, c->len)))
            continue;
        if (m->lstrip)
            start = blanks_before(c->s, c->text_from, start);
        if (m->rstrip)
            end = blanks_behind(c->s, end, c->len);
        if (start >= end) /* all of it is white space that the token before it consumed */
            continue;
        c->token = m;
        c->token_start = start;
        c->token_end = end;
        return true;
    }
    return false;
}

/* The next segment: text (token NULL), or a token with the white space it consumes; false at the end. */
static bool next_segment(struct added_scan *c, size_t *start, size_t *end,
                         const struct ax_added_token **token) {
    *start = c->text_from;
    *token = NULL;
    if (c->token == NULL && !find_token(c)) {
        *end = c->text_from = c->len;
        return *start < *end;
    }
    if (*start < c->token_start) {
        *end = c->text_from = c->token_start;
        return true;
    }
    *start = c->token_start;
    *token = c->token;
    *end = c->text_from = c->token_end;
    c->token = NULL;
    return true;
}

/* --- scratch: taken from the tokenizer's pool for one call --- */

static enum ax_status take_encoder(const struct ax_tokenizer *t, struct ax_encoder **out) {
    /* The pool is the only part of a shared tokenizer that changes. It has a lock. */
    struct ax_tokenizer *pool = (struct ax_tokenizer *)t;
    pthread_mutex_lock(&pool->lock);
    struct ax_encoder *e = pool->idle;
    if (e != NULL)
        pool->idle = e->next;
    pthread_mutex_unlock(&pool->lock);
    if (e == NULL) {
        AX_TRY(ax_alloc(&e, 1, sizeof *e));
        e->t = t;
    }
    *out = e;
    return AX_OK;
}

static void give_back(struct ax_encoder *e) {
    struct ax_tokenizer *pool = (struct ax_tokenizer *)e->t;
    pthread_mutex_lock(&pool->lock);
    e->next = pool->idle;
    pool->idle = e;
    pthread_mutex_unlock(&pool->lock);
}

void ax_encoder_free(struct ax_encoder *e) {
    ax_bpe_work_free(&e->bpe);
    ax_pretok_work_free(&e->pretok);
    ax_norm_work_free(&e->norm);
    ax_free(e);
}

/* --- one text --- */

static enum ax_status encode_piece(void *context, const struct ax_piece *piece) {
    struct ax_encoder *e = context;
    struct ax_encoding *out = e->out;
    size_t from = out->n;
    AX_TRY(ax_bpe_encode(&e->t->bpe, &e->bpe, piece->s, piece->len, e->opt.spans, out));
    for (size_t i = from; e->opt.spans && i < out->n; i++)
        out->spans[i] = ax_piece_span(piece, out->spans[i].start, out->spans[i].end);
    return AX_OK;
}

/* Encodes text between raw added tokens: normalizes it, and splits it again at tokens that match
 * normalized text. */
static enum ax_status encode_segment(struct ax_encoder *e, const struct ax_piece *segment) {
    const struct ax_tokenizer *t = e->t;
    bool track = e->opt.spans || t->track;
    struct ax_piece text;
    AX_TRY(ax_normalize(&t->normalizer, &e->norm, segment, track, &text));
    struct added_scan scan = scan_added(&t->added, true, e->opt.plain, text.s, text.len);
    const struct ax_added_token *token;
    size_t start, end;
    while (next_segment(&scan, &start, &end, &token)) {
        struct ax_piece part = ax_piece_part(&text, start, end);
        if (token == NULL) {
            AX_TRY(ax_pretok_run(&t->pretok, &e->pretok, &part, track, encode_piece, e));
            continue;
        }
        struct ax_span span = {0, 0};
        if (e->opt.spans && part.len > 0)
            span = ax_piece_span(&text, start, end);
        AX_TRY(ax_encoding_push(e->out, token->id, e->opt.spans, span.start, span.end));
    }
    return AX_OK;
}

static enum ax_status push_all(struct ax_encoder *e, const struct ax_id_list *ids) {
    for (size_t i = 0; e->opt.add_special_tokens && i < ids->n; i++)
        AX_TRY(ax_encoding_push(e->out, ids->ids[i], e->opt.spans, 0, 0));
    return AX_OK;
}

static enum ax_status encode_text(struct ax_encoder *e, const char *s, size_t len) {
    const struct ax_tokenizer *t = e->t;
    AX_TRY(push_all(e, &t->before));
    struct added_scan scan = scan_added(&t->added, false, e->opt.plain, s, len);
    const struct ax_added_token *token;
    size_t start, end;
    while (next_segment(&scan, &start, &end, &token)) {
        struct ax_piece part = {s + start, end - start, start, NULL};
        if (token == NULL)
            AX_TRY(encode_segment(e, &part));
        else
            AX_TRY(ax_encoding_push(e->out, token->id, e->opt.spans, start, end));
    }
    return push_all(e, &t->after);
}

enum ax_status ax_tokenizer_encode(const struct ax_tokenizer *t, const char *text, size_t len,
                                   const struct ax_encode_options *opt, struct ax_encoding *out) {
    size_t good = ax_utf8_check(text, len);
    if (good != len)
        return ax_error(AX_ERR_DATA, "text is not UTF-8: byte 0x%02x at offset %zu",
                        (unsigned char)text[good], good);
    if (len > INT32_MAX)
        return ax_error(AX_ERR_DATA,
                        "text of %zu bytes; at most 2 GiB can be tokenized in one call", len);
    struct ax_encoder *e;
    AX_TRY(take_encoder(t, &e));
    size_t before = out->n;
    e->opt = *opt;
    e->opt.plain = opt->plain || t->plain;
    e->out = out;
    enum ax_status st = encode_text(e, text, len);
    if (st != AX_OK)
        out->n = before;
    give_back(e);
    return st;
}
