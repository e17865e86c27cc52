#include "model/adapter/vocabulary_note.h"

#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "ckpt/hf/hf.h"
#include "data/text/tokenizer/tokenizer.h"
#include "model/arch/arch.h"

#define MAX_FILE  ((size_t)64 << 20)
#define MAX_SHOWN 40 /* bytes of a token in a message */

/* Tokens of one kind: how many, and the first. */
struct tokens {
    int64_t n;
    int32_t id;
    char text[MAX_SHOWN + 1], other[MAX_SHOWN + 1];
};

struct comparison {
    const struct ax_peft *peft;
    const struct ax_tokenizer *base;
    int64_t rows;    /* of its own embedding; 0: it has none */
    bool adapts;     /* has an adapter of the embedding */
    const char *pad; /* token of its tokenizer, which no model reads; NULL: none */
    int64_t n;       /* tokens seen */
    struct tokens differing, added, missing;
};

/* Whole characters, without those that a terminal would act on. */
static void show(char out[MAX_SHOWN + 1], const char *text, size_t len) {
    size_t n = len < MAX_SHOWN ? len : MAX_SHOWN;
    while (n < len && n > 0 && ((unsigned char)text[n] & 0xC0U) == 0x80)
        n--;
    for (size_t i = 0; i < n; i++)
        out[i] = (unsigned char)text[i] < ' ' || text[i] == 0x7F ? '?' : text[i];
    out[n] = '\0';
}

static void count(struct tokens *t, int32_t id, const char *text, size_t len, const char *other,
                  size_t n_other) {
    if (t->n++ > 0)
        return;
    t->id = id;
    show(t->text, text, len);
    show(t->other, other ? other : "", other ? n_other : 0);
}

static void see_token(struct comparison *c, int32_t id, const char *text, size_t len) {
    size_t n_other = 0;
    c->n++;
    const char *other = ax_tokenizer_token(c->base, id, &n_other);
    if (id < c->rows || (other && n_other == len && memcmp(text, other, len) == 0))
        return;
    if (other || ax_tokenizer_find(c->base, text, len) != AX_NO_TOKEN)
        count(&c->differing, id, text, len, other, n_other);
    else if (!(c->pad && strlen(c->pad) == len && memcmp(c->pad, text, len) == 0) &&
             (!c->adapts || c->rows > 0))
        count(&c->added, id, text, len, NULL, 0);
}

/* llama.cpp fills vocabularies up with [PAD1], [PAD2] … */
static bool is_filler(const char *text, size_t len) {
    return len > 5 && strncmp(text, "[PAD", 4) == 0 && text[len - 1] == ']' &&
           strspn(text + 4, "0123456789") == len - 5;
}

static void compare_tokenizers(struct comparison *c, const struct ax_tokenizer *own) {
    const size_t n_own = ax_tokenizer_size(own), n_base = ax_tokenizer_size(c->base);
    c->pad = ax_tokenizer_special(own, AX_PAD);
    for (int32_t id = 0; (size_t)id < n_own || (size_t)id < n_base; id++) {
        size_t len = 0;
        const char *text = (size_t)id < n_own ? ax_tokenizer_token(own, id, &len) : NULL;
        if (text) {
            see_token(c, id, text, len);
            continue;
        }
        text = ax_tokenizer_token(c->base, id, &len);
        if (text && c->rows == 0 && !is_filler(text, len) &&
            ax_tokenizer_find(own, text, len) == AX_NO_TOKEN)
            count(&c->missing, id, text, len, NULL, 0);
    }
}

/* {"<tool>": 32000} of added_tokens.json, or {"32000": {"content": "<tool>"}} in tokenizer_config.json:
 * what a slow tokenizer's folder has. */
static void see_list(struct comparison *c, json_t *root) {
    json_t *decoder = json_object_get(root, "added_tokens_decoder"), *value;
    const char *key;
    json_object_foreach(decoder ? decoder : root, key, value) {
        const char *text = decoder ? json_string_value(json_object_get(value, "content")) : key;
        const int64_t id = decoder ? strtoll(key, NULL, 10) : json_integer_value(value);
        if (text && (decoder || json_is_integer(value)) && id >= 0 && id <= INT32_MAX)
            see_token(c, (int32_t)id, text, strlen(text));
    }
}

static enum ax_status load(struct ax_json_doc *doc, const char *dir, const char *name) {
    char *path;
    AX_TRY(ax_path_join(&path, dir, name));
    const enum ax_status st = ax_path_exists(path) ? ax_json_load(doc, path, MAX_FILE) : AX_OK;
    ax_free(path);
    return st;
}

static enum ax_status compare_lists(struct comparison *c) {
    struct ax_json_doc config = {0}, added = {0};
    enum ax_status st;
    AX_TRY_GOTO(load(&config, c->peft->dir, "tokenizer_config.json"), st, done);
    AX_TRY_GOTO(load(&added, c->peft->dir, "added_tokens.json"), st, done);
    const json_t *pad = json_object_get(config.root, "pad_token");
    c->pad = json_string_value(json_is_object(pad) ? json_object_get(pad, "content") : pad);
    see_list(c, json_object_get(config.root, "added_tokens_decoder") ? config.root : added.root);
    c->pad = NULL;
done:
    ax_json_free(&config);
    ax_json_free(&added);
    return st;
}

static void find_embedding(struct comparison *c) {
    for (int i = 0; i < c->peft->weights.n; i++) {
        const struct ax_st_entry *e = &c->peft->weights.entries[i];
        const char *at = NULL;
        for (int k = 0; ax_hf_embeddings[k] && !at; k++)
            at = strstr(e->name, ax_hf_embeddings[k]);
        if (at && strstr(at, ".lora_"))
            c->adapts = true;
        else if (at && e->ndim == 2)
            c->rows = e->shape[0];
    }
}

static void warn(const struct comparison *c, const char *base) {
    static const char remedy[] = "; give the base that the adapter was trained on";
    const char *dir = c->peft->dir;
    const struct tokens *d = &c->differing, *a = &c->added, *m = &c->missing;
    if (d->n > 0) {
        ax_log_warn(
            "%s: %lld of its tokenizer's %lld tokens differ from those of %s (id %d is \"%s\", "
            "and there \"%s\"): what the adapter means by them, the base does not know%s",
            dir, (long long)d->n, (long long)c->n, base, d->id, d->text, d->other, remedy);
        return;
    }
    if (a->n > 0)
        ax_log_warn(
            "%s: %lld of its tokenizer's %lld tokens are not in %s (id %d is \"%s\"), and the "
            "adapter does not train their embeddings%s",
            dir, (long long)a->n, (long long)c->n, base, a->id, a->text, remedy);
    if (m->n > 0)
        ax_log_warn("%s: its tokenizer lacks %lld of the tokens of %s (there, id %d is \"%s\")%s",
                    dir, (long long)m->n, base, m->id, m->text, remedy);
}

/* Nobody could write the tokens of more embeddings. */
static enum ax_status compare_rows(const struct comparison *c, const char *base) {
    struct ax_arch arch;
    if (c->rows == 0)
        return AX_OK;
    AX_TRY(ax_arch_load(&arch, base));
    if (c->rows > arch.vocab_size)
        ax_log_warn(
            "%s: it has %lld embeddings and %s %lld, but no tokenizer is in its folder; copy "
            "that which it was trained with into it",
            c->peft->dir, (long long)c->rows, base, (long long)arch.vocab_size);
    ax_arch_free(&arch);
    return AX_OK;
}

static enum ax_status compare(struct comparison *c, const char *base) {
    struct ax_tokenizer *own = NULL, *its = NULL;
    enum ax_status st;
    AX_TRY_GOTO(ax_tokenizer_load(&its, base), st, done);
    c->base = its;
    if (!ax_tokenizer_is_in(c->peft->dir)) {
        AX_TRY_GOTO(compare_lists(c), st, done);
    } else {
        AX_TRY_GOTO(ax_tokenizer_load(&own, c->peft->dir), st, done);
        compare_tokenizers(c, own);
    }
    warn(c, base);
done:
    ax_tokenizer_free(own);
    ax_tokenizer_free(its);
    return st;
}

/* What cannot be read is reported where it is needed. */
static enum ax_status ignore_failure(enum ax_status st) {
    if (st == AX_OK || st == AX_ERR_NOMEM)
        return st;
    ax_error_clear();
    return AX_OK;
}

enum ax_status ax_vocabulary_note_check(const char *base, const struct ax_peft *peft) {
    struct comparison c = {.peft = peft};
    find_embedding(&c);
    if (!ax_tokenizer_is_in(peft->dir))
        AX_TRY(ignore_failure(compare_rows(&c, base)));
    return ignore_failure(compare(&c, base));
}
