/* The tokenizer.ggml.* keys of an open GGUF file → a tokenizer. The building is in vocab_gguf.c. */
#include <string.h>

#include "ckpt/gguf/gguf.h"
#include "data/text/tokenizer/tokenizer.h"

struct arrays {
    struct ax_gguf_text *tokens, *merges;
    int32_t *types;
    float *scores;
    char *model, *pre;
};

static enum ax_status read_string(const struct ax_gguf *g, const char *key, char **out) {
    struct ax_gguf_text s;
    AX_TRY(ax_gguf_string_or_null(g, key, &s));
    if (s.s != NULL && memchr(s.s, '\0', s.len) != NULL)
        return ax_error(AX_ERR_DATA, "%s: %s: contains a NUL", g->path, key);
    return s.s != NULL ? ax_strndup(out, s.s, s.len) : AX_OK;
}

static enum ax_status read_flag(const struct ax_gguf *g, const char *key, int *out) {
    bool flag;
    AX_TRY(ax_gguf_bool_or(g, key, false, &flag));
    *out = ax_gguf_key(g, key) != NULL ? flag : -1;
    return AX_OK;
}

static enum ax_status read_ids(const struct ax_gguf *g, struct ax_gguf_vocab *v) {
    const struct {
        const char *key;
        int64_t *id;
    } ids[] = {{"tokenizer.ggml.bos_token_id", &v->bos},
               {"tokenizer.ggml.eos_token_id", &v->eos},
               {"tokenizer.ggml.unknown_token_id", &v->unk},
               {"tokenizer.ggml.padding_token_id", &v->pad}};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
        AX_TRY(ax_gguf_i64_or(g, ids[i].key, 0, INT32_MAX, -1, ids[i].id));
    AX_TRY(read_flag(g, "tokenizer.ggml.add_bos_token", &v->add_bos));
    AX_TRY(read_flag(g, "tokenizer.ggml.add_eos_token", &v->add_eos));
    return read_flag(g, "tokenizer.ggml.add_space_prefix", &v->add_space_prefix);
}

static enum ax_status check_length(const struct ax_gguf *g, const char *key, const void *array,
                                   size_t n, size_t want) {
    if (array != NULL && n != want)
        return ax_error(AX_ERR_DATA, "%s: %s: %zu elements for %zu tokens", g->path, key, n, want);
    return AX_OK;
}

static enum ax_status read_arrays(const struct ax_gguf *g, struct arrays *a,
                                  struct ax_gguf_vocab *v) {
    size_t n;
    AX_TRY(read_string(g, "tokenizer.ggml.model", &a->model));
    if (a->model == NULL)
        return ax_error(AX_ERR_DATA, "%s: tokenizer.ggml.model: missing; the file has no tokenizer",
                        g->path);
    AX_TRY(read_string(g, "tokenizer.ggml.pre", &a->pre));
    AX_TRY(ax_gguf_strings(g, "tokenizer.ggml.tokens", &a->tokens, &v->n_tokens));
    AX_TRY(ax_gguf_i32s(g, "tokenizer.ggml.token_type", &a->types, &n));
    AX_TRY(check_length(g, "tokenizer.ggml.token_type", a->types, n, v->n_tokens));
    if (strcmp(a->model, "llama") != 0) /* some writers add scores or merges that have no meaning */
        return ax_gguf_strings(g, "tokenizer.ggml.merges", &a->merges, &v->n_merges);
    AX_TRY(ax_gguf_f32s(g, "tokenizer.ggml.scores", &a->scores, &n));
    return check_length(g, "tokenizer.ggml.scores", a->scores, n, v->n_tokens);
}

enum ax_status ax_tokenizer_load_gguf(struct ax_tokenizer **out, const struct ax_gguf *g) {
    struct arrays a = {0};
    struct ax_gguf_vocab v = {.name = g->path};
    enum ax_status st;
    AX_TRY_GOTO(read_arrays(g, &a, &v), st, done);
    AX_TRY_GOTO(read_ids(g, &v), st, done);
    v.model = a.model;
    v.pre = a.pre;
    v.tokens = a.tokens;
    v.types = a.types;
    v.scores = a.scores;
    v.merges = a.merges;
    st = ax_tokenizer_from_gguf(out, &v);
done:
    ax_free(a.tokens);
    ax_free(a.merges);
    ax_free(a.types);
    ax_free(a.scores);
    ax_free(a.model);
    ax_free(a.pre);
    return st;
}
