/* GGUF vocabularies → tokenizers, with the semantics of llama.cpp.
 *
 *   gpt2   byte-level BPE: merges by rank, text split by the rules that tokenizer.ggml.pre names
 *   llama  SentencePiece BPE: merges by score; blanks are ▁, with one before each stretch of text;
 *          characters that are not tokens become the tokens of their bytes
 *   gemma4 the same with merges by rank, and no blank before */
#include <string.h>

#include "ckpt/gguf/gguf.h"
#include "data/text/tokenizer/split_rules.h"
#include "data/text/tokenizer/tokenizer_impl.h"
#include "base/text/unicode.h"

enum token_type { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5, BYTE = 6 };

static const char UNDERLINE[] = "\xe2\x96\x81";

/* --- tokens --- */

/* A name for a token without a usable string. An empty string is named as in llama.cpp. One that
 * is not UTF-8, and so never occurs in text, is named as it would be decoded. */
static enum ax_status stand_in(const struct ax_tokenizer *t, struct ax_gguf_text s, size_t id,
                               struct ax_buf *name) {
    if (s.len == 0)
        return ax_buf_printf(name, "[EMPTY_%zu]", id);
    AX_TRY(ax_utf8_repair(name, s.s, s.len));
    if (ax_vocab_find(&t->vocab, name->data, name->len) == AX_NO_TOKEN)
        return AX_OK;
    name->len = 0;
    return ax_buf_printf(name, "[INVALID_%zu]", id);
}

static enum ax_status add_token(struct ax_tokenizer *t, const struct ax_gguf_vocab *v, size_t id,
                                struct ax_gguf_text s) {
    int type = v->types != NULL ? v->types[id] : NORMAL;
    if (type < NORMAL || type > BYTE)
        return ax_error(AX_ERR_DATA, "%s: tokenizer.ggml.token_type[%zu]: unknown type %d", v->name,
                        id, type);
    enum ax_status st = ax_vocab_add(&t->vocab, s.s, s.len, (int64_t)id, v->n_tokens);
    if (st == AX_OK && (type == UNKNOWN || type == CONTROL || type == USER_DEFINED)) {
        struct ax_added_token added = {.id = (int32_t)id,
                                       .special = type != USER_DEFINED,
                                       .normalized = type == USER_DEFINED && v->late_user_tokens,
                                       .content = (char *)s.s, /* copied */
                                       .content_len = s.len};
        st = ax_added_put(&t->added, &added);
    }
    return st == AX_OK ? st : ax_error_prefix(st, "%s: tokenizer.ggml.tokens", v->name);
}

/* Adds valid strings first, so that a substitute name never takes one of theirs. */
static enum ax_status add_tokens(struct ax_tokenizer *t, const struct ax_gguf_vocab *v) {
    if (v->n_tokens == 0)
        return ax_error(AX_ERR_DATA, "%s: tokenizer.ggml.tokens: missing or empty", v->name);
    enum ax_status st = AX_OK;
    struct ax_buf name = {0};
    for (int pass = 0; pass < 2; pass++) {
        for (size_t id = 0; id < v->n_tokens && st == AX_OK; id++) {
            struct ax_gguf_text s = v->tokens[id];
            bool good = s.len > 0 && ax_utf8_check(s.s, s.len) == s.len;
            if (good != (pass == 0))
                continue;
            name.len = 0;
            if (!good)
                st = stand_in(t, s, id, &name);
            if (st == AX_OK)
                st = add_token(t, v, id, good ? s : (struct ax_gguf_text){name.data, name.len});
        }
    }
    ax_buf_free(&name);
    return st;
}

static enum ax_status name_special(struct ax_tokenizer *t, const struct ax_gguf_vocab *v,
                                   enum ax_special which, int64_t id) {
    size_t len;
    if (id < 0)
        return AX_OK;
    const char *s = id <= INT32_MAX ? ax_tokenizer_token(t, (int32_t)id, &len) : NULL;
    if (s == NULL)
        return ax_error(AX_ERR_DATA, "%s: %s: id %lld is not in the vocabulary of %zu tokens",
                        v->name, ax_special_name(which), (long long)id, v->n_tokens);
    char *text;
    AX_TRY(ax_strndup(&text, s, len));
    const enum ax_status st = ax_tokenizer_name_special(t, which, text); /* it may have a NUL */
    ax_free(text);
    return st == AX_ERR_DATA ? ax_error_prefix(st, "%s", v->name) : st;
}

/* --- the kinds --- */

static enum ax_status add_merges(struct ax_tokenizer *t, const struct ax_gguf_vocab *v) {
    struct ax_buf text = {0};
    enum ax_status st = AX_OK;
    for (size_t i = 0; i < v->n_merges && st == AX_OK; i++) {
        struct ax_gguf_text m = v->merges[i];
        const char *blank = m.len > 1 ? memchr(m.s + 1, ' ', m.len - 1) : NULL;
        if (blank == NULL) {
            st = ax_error(AX_ERR_DATA, "merge %zu: expected \"left right\"", i);
            break;
        }
        size_t left = (size_t)(blank - m.s);
        text.len = 0;
        st = ax_buf_append(&text, m.s, left);
        if (st == AX_OK)
            st = ax_buf_append(&text, blank + 1, m.len - left - 1);
        if (st == AX_OK)
            st = ax_bpe_add_merge_text(&t->bpe, &t->vocab, text.data, text.len, left, i,
                                       v->n_merges);
    }
    ax_buf_free(&text);
    return st == AX_OK ? st : ax_error_prefix(st, "%s: tokenizer.ggml.merges", v->name);
}

static enum ax_status build_gpt2(struct ax_tokenizer *t, const struct ax_gguf_vocab *v,
                                 bool *add_bos) {
    if (v->pre == NULL)
        return ax_error(AX_ERR_DATA,
                        "%s: tokenizer.ggml.pre is missing, so the rule that splits text is "
                        "unknown; convert the model again with a current llama.cpp",
                        v->name);
    if (v->n_merges == 0)
        return ax_error(AX_ERR_DATA, "%s: tokenizer.ggml.merges: missing or empty", v->name);
    const struct ax_split_rules *rules = ax_split_rules_find(v->pre);
    if (rules == NULL)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "%s: tokenizer.ggml.pre: the split rule \"%s\" is not supported", v->name,
                        v->pre);
    for (size_t i = 0; rules->rules[i] != NULL; i++)
        AX_TRY(ax_pretok_add_regex(&t->pretok, rules->rules[i], strlen(rules->rules[i]), false,
                                   AX_SPLIT_ISOLATED, false));
    AX_TRY(ax_pretok_add_bytes(&t->pretok, false, false));
    t->bpe.ignore_merges = rules->whole_word;
    *add_bos = rules->add_bos;
    AX_TRY(add_merges(t, v));
    struct ax_decode_step *step;
    return ax_decoder_add(&t->decoder, AX_DECODE_BYTES, &step);
}

/* A step that turns every `from` into `to`. */
static enum ax_status set_replace(struct ax_regex **regex, char **text, size_t *text_len,
                                  const char *from, const char *to) {
    AX_TRY(ax_regex_compile(regex, from, strlen(from), true));
    *text_len = strlen(to);
    return ax_strdup(text, to);
}

/* Blanks are ▁ in tokens; with `prefix` one is put before the text. Bytes have tokens of their own. */
static enum ax_status add_blanks(struct ax_tokenizer *t, const struct ax_gguf_vocab *v,
                                 bool prefix) {
    struct ax_norm_step *norm;
    struct ax_decode_step *step;
    if (prefix) {
        AX_TRY(ax_normalizer_add(&t->normalizer, AX_NORM_PREPEND, &norm));
        AX_TRY(ax_strdup(&norm->text, UNDERLINE));
        norm->text_len = 3;
    }
    AX_TRY(ax_normalizer_add(&t->normalizer, AX_NORM_REPLACE, &norm));
    AX_TRY(set_replace(&norm->regex, &norm->text, &norm->text_len, " ", UNDERLINE));
    AX_TRY(ax_decoder_add(&t->decoder, AX_DECODE_REPLACE, &step));
    AX_TRY(set_replace(&step->regex, &step->text, &step->text_len, UNDERLINE, " "));
    AX_TRY(ax_decoder_add(&t->decoder, AX_DECODE_BYTE_FALLBACK, &step));
    AX_TRY(ax_decoder_add(&t->decoder, AX_DECODE_FUSE, &step));
    if (prefix) {
        AX_TRY(ax_decoder_add(&t->decoder, AX_DECODE_STRIP, &step));
        step->cp = ' ';
        step->start = 1;
    }
    t->bpe.unk = v->unk >= 0 && v->unk < (int64_t)v->n_tokens ? (int32_t)v->unk : AX_NO_TOKEN;
    return AX_OK;
}

static enum ax_status build_llama(struct ax_tokenizer *t, const struct ax_gguf_vocab *v) {
    if (v->scores == NULL)
        return ax_error(AX_ERR_DATA, "%s: tokenizer.ggml.scores: missing", v->name);
    const enum ax_status st = ax_bpe_set_scores(&t->bpe, v->scores, v->n_tokens);
    if (st != AX_OK)
        return ax_error_prefix(st, "%s: tokenizer.ggml.scores", v->name);
    return add_blanks(t, v, v->add_space_prefix != 0);
}

static enum ax_status build_gemma4(struct ax_tokenizer *t, const struct ax_gguf_vocab *v) {
    if (v->n_merges == 0)
        return ax_error(AX_ERR_DATA, "%s: tokenizer.ggml.merges: missing or empty", v->name);
    t->bpe.byte_fallback = true;
    AX_TRY(add_merges(t, v));
    return add_blanks(t, v, v->add_space_prefix == 1);
}

/* --- all --- */

/* Adds the id before or after the text if the file says so, or else by default. */
static enum ax_status set_side(const struct ax_gguf_vocab *v, struct ax_id_list *l, int wanted,
                               bool def, int64_t id, const char *what) {
    bool add = wanted >= 0 ? wanted != 0 : def && id >= 0;
    if (add && id < 0)
        return ax_error(AX_ERR_DATA,
                        "%s: tokenizer.ggml.add_%s_token is true, but the %s id is missing",
                        v->name, what, what);
    return ax_id_list_set(l, &(int32_t){(int32_t)id}, add ? 1 : 0);
}

static enum ax_status build(struct ax_tokenizer *t, const struct ax_gguf_vocab *v) {
    bool add_bos = true;
    AX_TRY(add_tokens(t, v));
    if (strcmp(v->model, "gpt2") == 0)
        AX_TRY(build_gpt2(t, v, &add_bos));
    else if (strcmp(v->model, "llama") == 0)
        AX_TRY(build_llama(t, v));
    else if (strcmp(v->model, "gemma4") == 0)
        AX_TRY(build_gemma4(t, v));
    else
        return ax_error(AX_ERR_UNSUPPORTED,
                        "%s: tokenizer.ggml.model: model \"%s\" is not supported", v->name,
                        v->model);
    AX_TRY(ax_tokenizer_finish(t));
    AX_TRY(name_special(t, v, AX_BOS, v->bos));
    AX_TRY(name_special(t, v, AX_EOS, v->eos));
    AX_TRY(name_special(t, v, AX_UNK, v->unk));
    AX_TRY(name_special(t, v, AX_PAD, v->pad));
    AX_TRY(set_side(v, &t->before, v->add_bos, add_bos, v->bos, "bos"));
    return set_side(v, &t->after, v->add_eos, false, v->eos, "eos");
}

enum ax_status ax_tokenizer_from_gguf(struct ax_tokenizer **out, const struct ax_gguf_vocab *v) {
    struct ax_tokenizer *t;
    AX_TRY(ax_tokenizer_new(&t));
    enum ax_status st = build(t, v);
    if (st != AX_OK) {
        ax_tokenizer_free(t);
        return st;
    }
    *out = t;
    return AX_OK;
}
