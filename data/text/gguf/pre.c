#include "data/text/gguf/pre.h"

#include <string.h>

#include "data/text/tokenizer/split_rules.h"
#include "data/text/tokenizer/tokenizer_impl.h"
#include "base/text/unicode.h"

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

enum ax_status ax_gguf_pre(const char **name, const struct ax_tokenizer *t, const char *where) {
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
