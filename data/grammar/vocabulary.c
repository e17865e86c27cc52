#include "data/grammar/vocabulary.h"

#include <stdlib.h>
#include <string.h>

#include "base/text/unicode.h"

static int by_bytes(const void *x, const void *y) {
    const struct ax_grammar_token *a = x, *b = y;
    const int d = memcmp(a->bytes, b->bytes, a->n < b->n ? a->n : b->n);
    return d != 0 ? d : a->n != b->n ? a->n - b->n : (a->id > b->id) - (a->id < b->id);
}

static void sort(struct ax_grammar_list *l) {
    if (l->n > 0)
        qsort(l->tokens, (size_t)l->n, sizeof *l->tokens, by_bytes);
    for (int32_t i = 1; i < l->n; i++) {
        const struct ax_grammar_token *before = &l->tokens[i - 1];
        struct ax_grammar_token *t = &l->tokens[i];
        while (t->shared < before->n && t->shared < t->n &&
               t->bytes[t->shared] == before->bytes[t->shared])
            t->shared++;
    }
}

/* Whole characters without quotes, backslashes and controls. */
static bool is_plain(const struct ax_grammar_token *t) {
    for (int i = 0; i < t->n; i++)
        if (t->bytes[i] < 0x20 || t->bytes[i] == '"' || t->bytes[i] == '\\')
            return false;
    return ax_utf8_check((const char *)t->bytes, t->n) == t->n;
}

/* The bytes of all tokens that may be chosen, one after the other. */
static enum ax_status read_tokens(struct ax_grammar_vocabulary *v, const struct ax_tokenizer *t,
                                  struct ax_buf *bytes) {
    for (int32_t id = 0; id < v->size; id++) {
        const size_t from = bytes->len;
        if (!ax_tokenizer_is_special(t, id))
            AX_TRY(ax_tokenizer_token_bytes(t, id, bytes));
        const size_t n = bytes->len - from;
        v->from[id] = from;
        if (n > AX_GRAMMAR_TOKEN)
            bytes->len = from;
        else if (n > 0)
            v->all.tokens[v->all.n++] = (struct ax_grammar_token){.id = id, .n = (uint8_t)n};
        v->from[id + 1] = bytes->len;
    }
    return AX_OK;
}

/* Without tokens for all parts of characters, tokens must be whole ones: what begins with a part may come to no
 * end. */
static void drop_parts(struct ax_grammar_vocabulary *v) {
    bool has_parts = true;
    int32_t n = 0;
    for (int b = 0x80; b < 0xC0; b++)
        has_parts = has_parts && v->alone[b];
    for (int32_t i = 0; i < v->all.n; i++) {
        const struct ax_grammar_token *t = &v->all.tokens[i];
        if (has_parts || ax_utf8_check((const char *)t->bytes, t->n) == t->n)
            v->all.tokens[n++] = *t;
    }
    v->all.n = n;
    for (int b = 0x80; b < 0x100; b++)
        v->alone[b] = v->alone[b] && has_parts;
}

static enum ax_status find_singles(struct ax_grammar_vocabulary *v) {
    for (int32_t i = 0; i < v->all.n; i++)
        if (v->all.tokens[i].n == 1)
            v->alone[v->all.tokens[i].bytes[0]] = true;
    for (int b = ' '; b < 0x7F; b++)
        if (!v->alone[b])
            return ax_error(AX_ERR_UNSUPPORTED,
                            "the vocabulary has no token for \"%c\" alone, so answers cannot be "
                            "constrained",
                            b);
    drop_parts(v);
    return AX_OK;
}

static enum ax_status split(struct ax_grammar_vocabulary *v) {
    AX_TRY(ax_alloc(&v->plain, ax_grammar_words(v->size), sizeof *v->plain));
    AX_TRY(ax_alloc(&v->others.tokens, (size_t)v->all.n, sizeof *v->others.tokens));
    for (int32_t i = 0; i < v->all.n; i++) {
        const struct ax_grammar_token *t = &v->all.tokens[i];
        if (is_plain(t))
            v->plain[t->id / 64] |= (uint64_t)1 << (t->id % 64);
        else
            v->others.tokens[v->others.n++] = *t;
    }
    sort(&v->all);
    sort(&v->others);
    return AX_OK;
}

static enum ax_status open_all(struct ax_grammar_vocabulary *v, const struct ax_tokenizer *t,
                               struct ax_buf *bytes) {
    AX_TRY(ax_alloc(&v->all.tokens, (size_t)v->size, sizeof *v->all.tokens));
    AX_TRY(ax_alloc(&v->from, (size_t)v->size + 1, sizeof *v->from));
    AX_TRY(read_tokens(v, t, bytes));
    AX_TRY(ax_alloc(&v->bytes, bytes->len, 1));
    if (bytes->len > 0)
        memcpy(v->bytes, bytes->data, bytes->len);
    for (int32_t i = 0; i < v->all.n; i++)
        v->all.tokens[i].bytes = v->bytes + v->from[v->all.tokens[i].id];
    AX_TRY(find_singles(v));
    return split(v);
}

enum ax_status ax_grammar_vocabulary_open(struct ax_grammar_vocabulary *v,
                                          const struct ax_tokenizer *t, int64_t size) {
    struct ax_buf bytes = {0};
    *v = (struct ax_grammar_vocabulary){.size = size};
    const enum ax_status st = open_all(v, t, &bytes);
    ax_buf_free(&bytes);
    if (st != AX_OK)
        ax_grammar_vocabulary_close(v);
    return st;
}

void ax_grammar_vocabulary_close(struct ax_grammar_vocabulary *v) {
    ax_free(v->all.tokens);
    ax_free(v->others.tokens);
    ax_free(v->plain);
    ax_free(v->bytes);
    ax_free(v->from);
    *v = (struct ax_grammar_vocabulary){0};
}
