/* The tokenizer object: assembly, vocabulary queries, and changes. */
#include "data/text/tokenizer/tokenizer.h"

#include <string.h>

#include "data/text/tokenizer/byte_level.h"
#include "data/text/tokenizer/tokenizer_impl.h"

/* --- assembly --- */

enum ax_status ax_tokenizer_new(struct ax_tokenizer **out) {
    struct ax_tokenizer *t;
    AX_TRY(ax_alloc(&t, 1, sizeof *t));
    t->bpe.vocab = &t->vocab;
    t->bpe.unk = AX_NO_TOKEN;
    for (size_t i = 0; i < AX_SPECIAL_COUNT; i++)
        t->special_id[i] = AX_NO_TOKEN;
    if (pthread_mutex_init(&t->lock, NULL) != 0) {
        ax_free(t);
        return ax_error(AX_ERR_FAILED, "cannot create a lock for the tokenizer");
    }
    *out = t;
    return AX_OK;
}

void ax_tokenizer_free(struct ax_tokenizer *t) {
    if (t == NULL)
        return;
    while (t->idle != NULL) {
        struct ax_encoder *e = t->idle;
        t->idle = e->next;
        ax_encoder_free(e);
    }
    for (size_t i = 0; i < AX_SPECIAL_COUNT; i++)
        ax_free(t->special_text[i]);
    ax_free(t->before.ids);
    ax_free(t->after.ids);
    ax_decoder_free(&t->decoder);
    ax_added_free(&t->added);
    ax_pretok_free(&t->pretok);
    ax_normalizer_free(&t->normalizer);
    ax_bpe_free(&t->bpe);
    ax_vocab_free(&t->bytes);
    ax_vocab_free(&t->vocab);
    pthread_mutex_destroy(&t->lock);
    ax_free(t);
}

/* A last step that spells bytes as characters is removed if the model can work on bytes: then
 * the vocabulary is converted to bytes instead. With byte_fallback, unknown characters would
 * become the tokens of the bytes of their spelling, so such models work on characters. */
static enum ax_status use_raw_bytes(struct ax_tokenizer *t) {
    struct ax_pretok *p = &t->pretok;
    if (p->n == 0 || p->steps[p->n - 1].kind != AX_PRETOK_BYTES || t->bpe.byte_fallback)
        return AX_OK;
    char *bytes;
    AX_TRY(ax_alloc(&bytes, t->vocab.max_len + 1, 1));
    enum ax_status st = AX_OK;
    for (size_t id = 0; id < t->vocab.n_ids && st == AX_OK; id++) {
        size_t len, n;
        const char *s = ax_vocab_string(&t->vocab, (int32_t)id, &len);
        if (s != NULL && ax_bytes_from_chars(s, len, bytes, &n))
            st = ax_vocab_add(&t->bytes, bytes, n, (int64_t)id, t->vocab.n_tokens);
    }
    ax_free(bytes);
    p->n--;
    t->bpe.raw_bytes = true;
    t->bpe.vocab = &t->bytes;
    return st;
}

enum ax_status ax_tokenizer_finish(struct ax_tokenizer *t) {
    AX_TRY(use_raw_bytes(t));
    AX_TRY(ax_bpe_prepare(&t->bpe));
    t->track = ax_pretok_needs_origin(&t->pretok);
    if (t->decoder.n == 0) {
        struct ax_decode_step *join;
        AX_TRY(ax_decoder_add(&t->decoder, AX_DECODE_JOIN, &join));
    }
    return ax_added_index(&t->added);
}

enum ax_status ax_id_list_set(struct ax_id_list *l, const int32_t *ids, size_t n) {
    int32_t *copy;
    AX_TRY(ax_alloc(&copy, n, sizeof *copy));
    if (n > 0)
        memcpy(copy, ids, n * sizeof *ids);
    ax_free(l->ids);
    *l = (struct ax_id_list){copy, n};
    return AX_OK;
}

/* HF's rule: the largest added id + 1, or the model's number of tokens if that is larger. */
int32_t ax_tokenizer_next_id(const struct ax_tokenizer *t) {
    size_t next = t->offset + t->vocab.n_tokens;
    for (size_t i = 0; i < t->added.n; i++)
        if ((size_t)t->added.tokens[i].id >= next)
            next = (size_t)t->added.tokens[i].id + 1;
    return (int32_t)next;
}

/* Sets a token's normalized form and adds it, or replaces added.tokens[index]. */
static enum ax_status put_with_form(struct ax_tokenizer *t, struct ax_added_token *token,
                                    size_t index) {
    struct ax_norm_work w = {0};
    struct ax_piece in = {token->content, token->content_len, 0, NULL}, out = in;
    enum ax_status st;
    token->form = NULL;
    token->form_len = 0;
    if (token->normalized)
        AX_TRY_GOTO(ax_normalize(&t->normalizer, &w, &in, false, &out), st, done);
    if (out.len != in.len || memcmp(out.s, in.s, in.len) != 0) {
        token->form = (char *)out.s; /* both calls below copy it */
        token->form_len = out.len;
    }
    st = index < t->added.n ? ax_added_replace(&t->added, index, token)
                            : ax_added_put(&t->added, token);
    token->form = NULL;
done:
    ax_norm_work_free(&w);
    return st;
}

enum ax_status ax_tokenizer_put_added(struct ax_tokenizer *t, struct ax_added_token *token,
                                      int32_t *next) {
    token->id = ax_tokenizer_find(t, token->content, token->content_len);
    if (token->id == AX_NO_TOKEN)
        token->id = (*next)++;
    return put_with_form(t, token, t->added.n);
}

/* --- queries --- */

size_t ax_tokenizer_size(const struct ax_tokenizer *t) {
    return t->added.n_ids > t->vocab.n_ids ? t->added.n_ids : t->vocab.n_ids;
}

int32_t ax_tokenizer_find(const struct ax_tokenizer *t, const char *s, size_t len) {
    const struct ax_added_token *a = ax_added_by_content(&t->added, s, len);
    return a != NULL ? a->id : ax_vocab_find(&t->vocab, s, len);
}

const char *ax_tokenizer_token(const struct ax_tokenizer *t, int32_t id, size_t *len) {
    const struct ax_added_token *a = ax_added_by_id(&t->added, id);
    if (a == NULL)
        return ax_vocab_string(&t->vocab, id, len);
    *len = a->content_len;
    return a->content;
}

bool ax_tokenizer_is_special(const struct ax_tokenizer *t, int32_t id) {
    const struct ax_added_token *a = ax_added_by_id(&t->added, id);
    return a != NULL && a->special;
}

static const char *const special_names[AX_SPECIAL_COUNT] = {
    [AX_BOS] = "bos_token", [AX_EOS] = "eos_token", [AX_UNK] = "unk_token",  [AX_SEP] = "sep_token",
    [AX_PAD] = "pad_token", [AX_CLS] = "cls_token", [AX_MASK] = "mask_token"};

const char *ax_special_name(enum ax_special which) {
    return special_names[which];
}

const char *ax_tokenizer_special(const struct ax_tokenizer *t, enum ax_special which) {
    return t->special_text[which];
}

int32_t ax_tokenizer_special_id(const struct ax_tokenizer *t, enum ax_special which) {
    return t->special_id[which];
}

int32_t ax_tokenizer_pad_id(const struct ax_tokenizer *t) {
    return t->special_id[t->special_id[AX_PAD] == AX_NO_TOKEN ? AX_EOS : AX_PAD];
}

/* --- changes --- */

enum ax_status ax_tokenizer_name_special(struct ax_tokenizer *t, enum ax_special which,
                                         const char *text) {
    int32_t id = ax_tokenizer_find(t, text, strlen(text));
    if (id == AX_NO_TOKEN)
        return ax_error(AX_ERR_DATA, "%s: the vocabulary has no token \"%s\"", special_names[which],
                        text);
    char *copy;
    AX_TRY(ax_strdup(&copy, text));
    ax_free(t->special_text[which]);
    t->special_text[which] = copy;
    t->special_id[which] = id;
    return AX_OK;
}

enum ax_status ax_tokenizer_add(struct ax_tokenizer *t, const char *text, bool special,
                                int32_t *id) {
    size_t len = strlen(text);
    const struct ax_added_token *old = ax_added_by_content(&t->added, text, len);
    struct ax_added_token token = {.special = special, .normalized = !special};
    if (old != NULL) {
        token = *old;
        token.special = token.special || special;
    }
    token.content = (char *)text; /* copied by ax_added_put */
    token.content_len = len;
    int32_t next = ax_tokenizer_next_id(t);
    AX_TRY(ax_tokenizer_put_added(t, &token, &next));
    *id = token.id;
    return ax_added_index(&t->added);
}

enum ax_status ax_tokenizer_set_special(struct ax_tokenizer *t, enum ax_special which,
                                        const char *text) {
    int32_t id;
    AX_TRY(ax_tokenizer_add(t, text, true, &id));
    return ax_tokenizer_name_special(t, which, text);
}

enum ax_status ax_tokenizer_rename(struct ax_tokenizer *t, int32_t id, const char *text) {
    const struct ax_added_token *old = ax_added_by_id(&t->added, id);
    if (old == NULL)
        return ax_error(AX_ERR_CONFIG,
                        "token %d cannot be renamed to \"%s\": it is not an added token", id, text);
    int32_t other = ax_tokenizer_find(t, text, strlen(text));
    if (other != AX_NO_TOKEN && other != id)
        return ax_error(AX_ERR_CONFIG, "token %d cannot be renamed to \"%s\": that is token %d", id,
                        text, other);
    struct ax_added_token token = *old;
    token.content = (char *)text; /* copied */
    token.content_len = strlen(text);
    AX_TRY(put_with_form(t, &token, (size_t)(old - t->added.tokens)));
    return ax_added_index(&t->added);
}
