/* A tokenizer as keys of a GGUF file: which tokenizer.ggml.pre it is, scores and merges, then all. Read
 * ax_gguf_put_tokenizer first. */
#include "data/text/gguf/tokens.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "base/text/json.h"
#include "base/text/unicode.h"
#include "data/text/template/template.h"
#include "data/text/tokenizer/split_rules.h"
#include "data/text/tokenizer/tokenizer.h"
#include "data/text/tokenizer/tokenizer_impl.h"
#include "data/text/vocab/score_merges.h"

/* ---- the tokenizer.ggml.pre of a byte-level tokenizer ---- */

/* The regular expression of a splitting step, or NULL. */
static const char *rule_of(const struct ax_pretok_step *s) {
    size_t len;
    bool literal;
    if (s->kind == AX_PRETOK_CHARS && s->pred == ax_unicode_is_numeric)
        return s->behavior == AX_SPLIT_ISOLATED     ? "\\p{N}"
               : s->behavior == AX_SPLIT_CONTIGUOUS ? "\\p{N}+"
                                                    : NULL;
    if (s->kind != AX_PRETOK_REGEX)
        return NULL;
    const char *pattern = ax_regex_source(s->regex, &len, &literal);
    /* the rules match every part of a text, so keeping only the matches is the same */
    const bool isolated = (s->behavior == AX_SPLIT_ISOLATED && !s->invert) ||
                          (s->behavior == AX_SPLIT_REMOVED && s->invert);
    return isolated && !literal ? pattern : NULL;
}

static bool same_rules(const struct ax_split_rules *r, const struct ax_pretok *p) {
    for (size_t i = 0; i < p->n; i++) {
        const char *rule = rule_of(&p->steps[i]);
        if (i >= AX_SPLIT_RULES_MAX || !r->rules[i] || !rule || strcmp(rule, r->rules[i]) != 0)
            return false;
    }
    return p->n < AX_SPLIT_RULES_MAX && !r->rules[p->n];
}

/* True if merging alone can build every token from its bytes. Then ignore_merges has no effect. */
static enum ax_status merges_reach_all(const struct ax_tokenizer *t, bool *all) {
    struct ax_bpe bpe = t->bpe; /* shares the tables */
    struct ax_bpe_work work = {0};
    struct ax_encoding ids = {0};
    enum ax_status st = AX_OK;
    bpe.ignore_merges = false;
    *all = true;
    for (size_t id = 0; id < t->bytes.n_ids && *all && st == AX_OK; id++) {
        size_t len;
        const char *s = ax_vocab_string(&t->bytes, (int32_t)id, &len);
        if (!s || len == 0 || ax_added_by_id(&t->added, (int32_t)id))
            continue;
        ids.n = 0;
        st = ax_bpe_encode(&bpe, &work, s, len, false, &ids);
        *all = ids.n == 1;
    }
    ax_bpe_work_free(&work);
    ax_encoding_free(&ids);
    return st;
}

static enum ax_status unknown(const struct ax_tokenizer *t, const char *where) {
    const char *shown = "something other than regular expressions";
    for (size_t i = 0; i < t->pretok.n; i++)
        if (rule_of(&t->pretok.steps[i]))
            shown = rule_of(&t->pretok.steps[i]);
    return ax_error(AX_ERR_UNSUPPORTED,
                    "%s: tokenizer.json: pre_tokenizer: no known tokenizer.ggml.pre splits text by "
                    "%.160s%s (%zu steps). With any other value the file would produce wrong "
                    "tokens, so it is not written.",
                    where, shown, strlen(shown) > 160 ? "…" : "", t->pretok.n);
}

/* Sets *name by what the tokenizer does to text, not by its name: the regular expressions of its
 * splits in order, and whether words that are tokens skip merging. AX_ERR_UNSUPPORTED if no name
 * matches: a different one would give wrong ids. `where` is for messages. */
static enum ax_status find_pre(const char **name, const struct ax_tokenizer *t, const char *where) {
    const struct ax_split_rules *other = NULL;
    for (size_t i = 0; i < ax_split_rules_count; i++) {
        const struct ax_split_rules *r = &ax_split_rules[i];
        if (!same_rules(r, &t->pretok))
            continue;
        if (r->whole_word == t->bpe.ignore_merges) {
            *name = r->names[0];
            return AX_OK;
        }
        other = other ? other : r;
    }
    if (!other)
        return unknown(t, where);
    bool all;
    AX_TRY(merges_reach_all(t, &all));
    if (!all)
        return ax_error(
            AX_ERR_UNSUPPORTED,
            "%s: tokenizer.json: text is split as by \"%s\", but ignore_merges is %s and merges do "
            "not produce all tokens. The file would produce wrong tokens, so it is not written.",
            where, other->names[0], t->bpe.ignore_merges ? "true" : "false");
    *name = other->names[0];
    return AX_OK;
}

/* ---- ordered merges, and equivalent scores ----
 *
 * SentencePiece has no merge list: any two neighbors that form a token may be merged, highest score
 * first. tokenizer.json lists the pairs in that order instead. So the n-th token that the list
 * forms gets the score −n, and the list derived from these scores must equal the original. */

static int by_rank(const void *a, const void *b) {
    const struct ax_bpe_pair *x = a, *y = b;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

static enum ax_status sorted_merges(struct ax_bpe_pair **pairs, size_t *n,
                                    const struct ax_tokenizer *t) {
    struct ax_bpe_pair *list;
    *n = 0;
    AX_TRY(ax_alloc(&list, t->bpe.n_pairs, sizeof *list));
    for (size_t i = 0; i < t->bpe.n_slots; i++)
        if (t->bpe.pairs[i].ids != UINT64_MAX)
            list[(*n)++] = t->bpe.pairs[i];
    AX_ASSERT(*n == t->bpe.n_pairs);
    qsort(list, *n, sizeof *list, by_rank);
    *pairs = list;
    return AX_OK;
}

/* True if the merges that follow from the scores form the same tokens in the same order. Added
 * tokens do not count. */
static enum ax_status same_merges(const struct ax_tokenizer *t, const float *scores,
                                  const struct ax_bpe_pair *pairs, size_t n, bool *same) {
    struct ax_score_merge *merges;
    size_t n_merges, at = 0;
    AX_TRY(ax_score_merges(&t->vocab, scores, &merges, &n_merges));
    *same = true;
    for (size_t i = 0; i < n_merges && *same; i++) {
        if (ax_added_by_id(&t->added, merges[i].token))
            continue;
        *same = at < n && pairs[at++].merged == merges[i].token;
    }
    ax_free(merges);
    *same = *same && at == n;
    return AX_OK;
}

/* Scores of a SentencePiece vocabulary, [t's ids], with which merging by score equals the
 * tokenizer's merge list; NULL if there are none. Free with ax_free. */
static enum ax_status merge_scores(float **out, const struct ax_tokenizer *t) {
    struct ax_bpe_pair *pairs = NULL;
    float *scores = NULL;
    size_t n = 0, ids = t->vocab.n_ids;
    int32_t before = AX_NO_TOKEN;
    bool same = false;
    enum ax_status st;
    AX_TRY_GOTO(sorted_merges(&pairs, &n, t), st, done);
    AX_TRY_GOTO(ax_alloc(&scores, ids, sizeof *scores), st, done);
    float score = 0;
    for (size_t i = 0; i < n; i++) {
        if (pairs[i].merged != before)
            scores[pairs[i].merged] = --score;
        before = pairs[i].merged;
    }
    for (size_t id = 0; id < ids; id++) /* tokens that no merge forms come last */
        if (scores[id] == 0)
            scores[id] = score - 1;
    AX_TRY_GOTO(same_merges(t, scores, pairs, n, &same), st, done);
    *out = same ? scores : NULL;
    scores = same ? NULL : scores;
done:
    ax_free(pairs);
    ax_free(scores);
    return st;
}

/* ---- the keys ---- */

enum token_type { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5, BYTE = 6 };
enum { MAX_CONFIG = 16 << 20, SHOWN = 60 };

struct writer {
    struct ax_gguf_keys *keys;
    const char *dir;
    const struct ax_tokenizer *t;
    size_t rows;
    bool byte_level;
};

static enum ax_status put_text(struct writer *w, const char *key, const char *text) {
    return ax_gguf_put_string(w->keys, key, text, strlen(text));
}

/* ---- tokens ---- */

static enum token_type type_of(const struct writer *w, int32_t id) {
    const struct ax_added_token *added = ax_added_by_id(&w->t->added, id);
    if (!w->byte_level && id == w->t->bpe.unk)
        return UNKNOWN;
    if (added)
        return added->special ? CONTROL : USER_DEFINED;
    for (int b = 0; b < 256 && !w->byte_level; b++)
        if (w->t->bpe.fallback[b] == id)
            return BYTE;
    return ax_vocab_string(&w->t->vocab, id, &(size_t){0}) ? NORMAL : UNUSED;
}

static enum ax_status put_tokens(struct writer *w) {
    char pad[32];
    AX_TRY(ax_gguf_put_array(w->keys, "tokenizer.ggml.tokens", AX_GGUF_STRING, w->rows));
    for (size_t id = 0; id < w->rows; id++) {
        size_t len;
        const char *s = ax_tokenizer_token(w->t, (int32_t)id, &len);
        if (!s) {
            len = (size_t)snprintf(pad, sizeof pad, "[PAD%zu]", id);
            s = pad;
        }
        AX_TRY(ax_gguf_add_string(w->keys, s, len));
    }
    AX_TRY(ax_gguf_put_array(w->keys, "tokenizer.ggml.token_type", AX_GGUF_I32, w->rows));
    for (size_t id = 0; id < w->rows; id++)
        AX_TRY(ax_gguf_add_i32(w->keys, (int32_t)type_of(w, (int32_t)id)));
    return AX_OK;
}

/* Readers match added tokens exactly and ignore these flags. */
static void warn_of_flags(const struct writer *w) {
    for (size_t i = 0; i < w->t->added.n; i++) {
        const struct ax_added_token *a = &w->t->added.tokens[i];
        if (!a->lstrip && !a->rstrip && !a->single_word)
            continue;
        ax_log_warn("%s: tokenizer.json: token \"%.*s\" is %s, which a GGUF file cannot express; "
                    "text next to it may be tokenized differently",
                    w->dir, (int)(a->content_len < SHOWN ? a->content_len : SHOWN), a->content,
                    a->single_word ? "single_word"
                    : a->lstrip    ? "lstrip"
                                   : "rstrip");
        return;
    }
}

/* ---- the kinds ---- */

static enum ax_status put_merges(struct writer *w) {
    const struct ax_vocab *v = &w->t->vocab;
    struct ax_bpe_pair *pairs;
    struct ax_buf text = {0};
    size_t n, len;
    enum ax_status st;
    AX_TRY(sorted_merges(&pairs, &n, w->t));
    AX_TRY_GOTO(ax_gguf_put_array(w->keys, "tokenizer.ggml.merges", AX_GGUF_STRING, n), st, done);
    for (size_t i = 0; i < n; i++) {
        const char *left = ax_vocab_string(v, (int32_t)(pairs[i].ids >> 32), &len);
        text.len = 0;
        AX_TRY_GOTO(ax_buf_append(&text, left, len), st, done);
        AX_TRY_GOTO(ax_buf_puts(&text, " "), st, done);
        const char *right = ax_vocab_string(v, (int32_t)(uint32_t)pairs[i].ids, &len);
        AX_TRY_GOTO(ax_buf_append(&text, right, len), st, done);
        AX_TRY_GOTO(ax_gguf_add_string(w->keys, text.data, text.len), st, done);
    }
done:
    ax_buf_free(&text);
    ax_free(pairs);
    return st;
}

static enum ax_status refuse(const struct writer *w, const char *what) {
    return ax_error(AX_ERR_UNSUPPORTED,
                    "%s: tokenizer.json: %s, which readers of GGUF files do not support", w->dir,
                    what);
}

static enum ax_status put_gpt2(struct writer *w) {
    const struct ax_normalizer *n = &w->t->normalizer;
    const char *pre;
    /* writers of GGUF files omit NFC, because most text is already in that form */
    if (n->n > 1 ||
        (n->n == 1 && (n->steps[0].kind != AX_NORM_UNICODE || n->steps[0].form != AX_NFC)))
        return refuse(w, "the normalizer does more than NFC");
    AX_TRY(find_pre(&pre, w->t, w->dir));
    AX_TRY(put_text(w, "tokenizer.ggml.model", "gpt2"));
    AX_TRY(put_text(w, "tokenizer.ggml.pre", pre));
    AX_TRY(put_tokens(w));
    return put_merges(w);
}

/* No step, or one that splits at spaces, of which the normalizer has left none. */
static bool never_splits(const struct ax_pretok *p) {
    size_t len;
    bool literal;
    return p->n == 0 ||
           (p->n == 1 && p->steps[0].kind == AX_PRETOK_REGEX &&
            strcmp(ax_regex_source(p->steps[0].regex, &len, &literal), " ") == 0 && literal);
}

/* Spaces become ▁, and one may be added before the text: either by steps of the normalizer, or
 * by the pre-tokenizer's step Metaspace. */
static bool spaces(const struct writer *w, bool *prefix) {
    static const char underline[] = "\xe2\x96\x81";
    const struct ax_normalizer *n = &w->t->normalizer;
    const struct ax_pretok *p = &w->t->pretok;
    size_t at = 0, len;
    bool literal;
    if (n->n == 0 && p->n == 1 && p->steps[0].kind == AX_PRETOK_METASPACE) {
        *prefix = p->steps[0].prepend != AX_PREPEND_NEVER;
        if (p->steps[0].prepend == AX_PREPEND_FIRST)
            ax_log_warn("%s: tokenizer.json: a space is inserted before the first word only, but "
                        "readers of GGUF files also insert one after every special token",
                        w->dir);
        return strcmp(p->steps[0].replacement, underline) == 0;
    }
    *prefix = n->n == 2 && n->steps[at].kind == AX_NORM_PREPEND &&
              strcmp(n->steps[at].text, underline) == 0;
    at += *prefix;
    return never_splits(p) && n->n == at + 1 && n->steps[at].kind == AX_NORM_REPLACE &&
           strcmp(ax_regex_source(n->steps[at].regex, &len, &literal), " ") == 0 &&
           strcmp(n->steps[at].text, underline) == 0;
}

static enum ax_status put_llama(struct writer *w, const float *scores) {
    AX_TRY(put_text(w, "tokenizer.ggml.model", "llama"));
    AX_TRY(put_text(w, "tokenizer.ggml.pre", "default"));
    AX_TRY(put_tokens(w));
    AX_TRY(ax_gguf_put_array(w->keys, "tokenizer.ggml.scores", AX_GGUF_F32, w->rows));
    for (size_t id = 0; id < w->rows; id++)
        AX_TRY(ax_gguf_add_f32(w->keys, id < w->t->vocab.n_ids ? scores[id] : 0));
    return AX_OK;
}

/* Finds a merge of a line's end with something else. */
static bool merges_lines(const struct ax_tokenizer *t) {
    bool found = false;
    for (size_t i = 0; i < t->bpe.n_slots; i++) {
        size_t len = 0, ends = 0;
        const char *s = t->bpe.pairs[i].ids != UINT64_MAX
                            ? ax_vocab_string(&t->vocab, t->bpe.pairs[i].merged, &len)
                            : "";
        for (size_t k = 0; k < len; k++)
            ends += s[k] == '\n';
        found = found || (ends > 0 && ends < len);
    }
    return found;
}

/* Readers of this kind put no blank before the text, and take each line by itself. */
static enum ax_status put_gemma4(struct writer *w, bool prefix) {
    if (merges_lines(w->t))
        return refuse(w,
                      "merges, whose order token scores cannot express, cross the end of a line");
    if (prefix)
        return ax_error(
            AX_ERR_UNSUPPORTED,
            "%s: tokenizer.json: the order of model.merges cannot be expressed as token "
            "scores, and a GGUF file with merges has no space before the text. The file "
            "would produce wrong tokens, so it is not written.",
            w->dir);
    AX_TRY(put_text(w, "tokenizer.ggml.model", "gemma4"));
    AX_TRY(put_text(w, "tokenizer.ggml.pre", "gemma4"));
    AX_TRY(put_tokens(w));
    return put_merges(w);
}

/* With scores if they give the same merges: more readers know them. */
static enum ax_status put_pieces(struct writer *w) {
    float *scores;
    bool prefix;
    if (!w->t->bpe.byte_fallback)
        return refuse(w, "the model is not byte-level and has no byte_fallback");
    if (!spaces(w, &prefix))
        return refuse(w, "the normalizer and pre_tokenizer do more than replace spaces with ▁");
    AX_TRY(merge_scores(&scores, w->t));
    const enum ax_status st = scores ? put_llama(w, scores) : put_gemma4(w, prefix);
    ax_free(scores);
    AX_TRY(st);
    return ax_gguf_put_bool(w->keys, "tokenizer.ggml.add_space_prefix", prefix);
}

/* ---- special tokens ---- */

#define MAX_ENDS 16

struct ids {
    int n;
    int64_t list[MAX_ENDS];
};

/* Each once, and no more than there is room for. */
static void add_id(struct ids *ids, int64_t id) {
    for (int i = 0; i < ids->n; i++)
        if (ids->list[i] == id)
            return;
    if (id >= 0 && ids->n < MAX_ENDS)
        ids->list[ids->n++] = id;
}

/* Adds the id, or the list of them, under a key of a file. */
static enum ax_status file_ids(const struct writer *w, const char *file, const char *key,
                               struct ids *ids) {
    struct ax_json_doc doc = {0};
    char *path;
    int64_t id = -1;
    enum ax_status st = AX_OK;
    AX_TRY(ax_path_join(&path, w->dir, file));
    if (!ax_path_exists(path))
        goto done;
    AX_TRY_GOTO(ax_json_load(&doc, path, MAX_CONFIG), st, done);
    const struct ax_json v = ax_json_get(ax_json_root(&doc), key);
    if (!json_is_array(v.v))
        AX_TRY_GOTO(ax_json_i64_or(v, -1, INT32_MAX, -1, &id), st, done);
    add_id(ids, id);
    for (size_t i = 0; json_is_array(v.v) && i < ax_json_size(v); i++) {
        AX_TRY_GOTO(ax_json_i64(ax_json_at(v, i), 0, INT32_MAX, &id), st, done);
        add_id(ids, id);
    }
done:
    ax_json_free(&doc);
    ax_free(path);
    return st;
}

static enum ax_status put_id(struct writer *w, const char *key, int64_t id) {
    if (id < 0 || (size_t)id >= w->rows)
        return AX_OK;
    return ax_gguf_put_u32(w->keys, key, (uint32_t)id);
}

/* A special token that the tokenizer does not name may be in config.json. */
static enum ax_status special_id(const struct writer *w, enum ax_special which, const char *key,
                                 int64_t *id) {
    struct ids ids = {0};
    *id = ax_tokenizer_special_id(w->t, which);
    if (*id >= 0)
        return AX_OK;
    AX_TRY(file_ids(w, "config.json", key, &ids));
    *id = ids.n > 0 ? ids.list[0] : -1;
    return AX_OK;
}

static enum ax_status put_side(struct writer *w, const char *key, const struct ax_id_list *l,
                               int64_t id, const char *what) {
    if (l->n > 1 || (l->n == 1 && l->ids[0] != id))
        return ax_error(AX_ERR_UNSUPPORTED,
                        "%s: tokenizer.json: post_processor puts tokens other than %s around the "
                        "text, which a GGUF file cannot express",
                        w->dir, what);
    return ax_gguf_put_bool(w->keys, key, l->n == 1);
}

/* Other tokens that end generation are the end of a turn, and that of a message; there are no more keys. */
static enum ax_status put_ends(struct writer *w, int64_t eos) {
    static const char *const keys[] = {"tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    struct ids ends = {0};
    add_id(&ends, eos);
    const int first = ends.n;
    AX_TRY(file_ids(w, "generation_config.json", "eos_token_id", &ends));
    AX_TRY(file_ids(w, "config.json", "eos_token_id", &ends));
    for (int i = first; i < ends.n && i < first + 2; i++)
        AX_TRY(put_id(w, keys[i - first], ends.list[i]));
    for (int i = first + 2; i < ends.n; i++)
        ax_log_warn(
            "%s: token %lld ends generation, which a GGUF file can say of three tokens only; "
            "give it to the reader as a stop text",
            w->dir, (long long)ends.list[i]);
    return AX_OK;
}

static enum ax_status put_special(struct writer *w) {
    int64_t bos, eos, pad, unk;
    AX_TRY(special_id(w, AX_BOS, "bos_token_id", &bos));
    AX_TRY(special_id(w, AX_EOS, "eos_token_id", &eos));
    AX_TRY(special_id(w, AX_PAD, "pad_token_id", &pad));
    unk = ax_tokenizer_special_id(w->t, AX_UNK);
    AX_TRY(put_id(w, "tokenizer.ggml.bos_token_id", bos));
    AX_TRY(put_id(w, "tokenizer.ggml.eos_token_id", eos));
    AX_TRY(put_id(w, "tokenizer.ggml.padding_token_id", pad));
    AX_TRY(put_id(w, "tokenizer.ggml.unknown_token_id", unk >= 0 ? unk : w->t->bpe.unk));
    AX_TRY(put_ends(w, eos));
    AX_TRY(put_side(w, "tokenizer.ggml.add_bos_token", &w->t->before, bos, "bos_token"));
    return put_side(w, "tokenizer.ggml.add_eos_token", &w->t->after, eos, "eos_token");
}

/* ---- templates ---- */

static enum ax_status put_named(struct writer *w, const char *name, const json_t *source) {
    char key[192] = "tokenizer.chat_template";
    if (strcmp(name, "default") != 0)
        snprintf(key, sizeof key, "tokenizer.chat_template.%.128s", name);
    return ax_gguf_put_string(w->keys, key, json_string_value(source), json_string_length(source));
}

static enum ax_status put_templates(struct writer *w) {
    json_t *all, *source;
    const char *name;
    enum ax_status st = AX_OK;
    AX_TRY(ax_template_folder_sources(&all, w->dir));
    const size_t named = json_object_size(all) - (json_object_get(all, "default") != NULL);
    json_object_foreach(all, name, source) {
        AX_TRY_GOTO(put_named(w, name, source), st, done);
    }
    if (named == 0)
        goto done;
    AX_TRY_GOTO(ax_gguf_put_array(w->keys, "tokenizer.chat_templates", AX_GGUF_STRING, named), st,
                done);
    json_object_foreach(all, name, source) {
        if (strcmp(name, "default") != 0)
            AX_TRY_GOTO(ax_gguf_add_string(w->keys, name, strlen(name)), st, done);
    }
done:
    json_decref(all);
    return st;
}

/* ---- all ---- */

enum ax_status ax_gguf_put_tokenizer(struct ax_gguf_keys *keys, const char *dir, int64_t rows) {
    struct ax_tokenizer *t;
    enum ax_status st;
    AX_TRY(ax_tokenizer_load(&t, dir));
    struct writer w = {
        .keys = keys, .dir = dir, .t = t, .rows = (size_t)rows, .byte_level = t->bpe.raw_bytes};
    if (ax_tokenizer_size(t) > w.rows) {
        st = ax_error(AX_ERR_DATA,
                      "%s: the tokenizer has ids up to %zu, but the model has %zu embeddings", dir,
                      ax_tokenizer_size(t) - 1, w.rows);
        goto done;
    }
    AX_TRY_GOTO(w.byte_level ? put_gpt2(&w) : put_pieces(&w), st, done);
    AX_TRY_GOTO(put_special(&w), st, done);
    AX_TRY_GOTO(put_templates(&w), st, done);
    warn_of_flags(&w);
done:
    ax_tokenizer_free(t);
    return st;
}
