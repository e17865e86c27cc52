/* Grammars in tests: texts that they read, masks, and random walks through them, token by token. Include after cmocka.h. */
#ifndef AX_TESTS_DATA_GRAMMAR_CASE_H
#define AX_TESTS_DATA_GRAMMAR_CASE_H

#include "data/grammar/mask.h"
#include "tests/data/scratch.h"
#include "tests/fuzz/byte_tokenizer.h"

/* ---- whole texts ---- */

/* The state after one more byte; of none if it may not come. */
static inline void advance(const struct ax_grammar *g, struct ax_grammar_state *s,
                           struct ax_grammar_state *next, unsigned char byte) {
    assert_ok(ax_grammar_step(g, s, byte, next));
    const struct ax_grammar_state old = *s;
    *s = *next;
    *next = old;
}

/* 2: a value; 1: the beginning of one; 0: neither. */
static inline int try_text(const struct ax_grammar *g, const char *text, size_t n) {
    struct ax_grammar_state s = {0}, next = {0};
    int result = 1;
    assert_ok(ax_grammar_begin(g, &s));
    for (size_t i = 0; i < n && result == 1; i++) {
        advance(g, &s, &next, (unsigned char)text[i]);
        result = s.n > 0;
    }
    result += result == 1 && ax_grammar_may_end(g, &s);
    ax_grammar_state_free(&s);
    ax_grammar_state_free(&next);
    return result;
}

struct grammar_texts {
    const char *source;                 /* a schema, or an expression */
    const char *values[8], *others[12]; /* others: neither values nor their beginnings */
};

static inline void check_texts(const struct ax_grammar *g, const struct grammar_texts *t) {
    for (int k = 0; k < 8 && t->values[k]; k++) {
        const char *text = t->values[k];
        if (try_text(g, text, strlen(text)) != 2)
            fail_msg("%s is no value of %s", text, t->source);
        for (size_t n = 1; n < strlen(text); n++)
            assert_true(try_text(g, text, n) >= 1);
    }
    for (int k = 0; k < 12 && t->others[k]; k++)
        if (try_text(g, t->others[k], strlen(t->others[k])) != 0)
            fail_msg("%s begins a value of %s", t->others[k], t->source);
}

/* ---- masks ---- */

/* After n bytes of a text, a token is in the mask if and only if its bytes can be read, one by one. */
static inline void check_mask(const struct ax_grammar *g, const struct ax_grammar_vocabulary *v,
                              const char *text, size_t n, const uint64_t *bits) {
    char longer[256];
    memcpy(longer, text, n);
    for (int32_t id = 0; id < v->size; id++) {
        const size_t more_bytes = v->from[id + 1] - v->from[id];
        memcpy(longer + n, v->bytes + v->from[id], more_bytes);
        const bool can = more_bytes > 0 && try_text(g, longer, n + more_bytes) > 0;
        assert_int_equal(can, bits[id / 64] >> (id % 64) & 1);
    }
}

/* The mask after each byte of a text. */
static inline void check_masks(struct ax_grammar_masks *m, const struct ax_grammar *g,
                               const struct ax_grammar_vocabulary *v, const char *text) {
    struct ax_grammar_state s = {0}, next = {0};
    assert_ok(ax_grammar_begin(g, &s));
    for (size_t n = 0; text[n]; n++) {
        const uint64_t *bits;
        assert_ok(ax_grammar_mask(m, &s, &bits));
        check_mask(g, v, text, n, bits);
        advance(g, &s, &next, (unsigned char)text[n]);
    }
    ax_grammar_state_free(&s);
    ax_grammar_state_free(&next);
}

/* ---- random walks ---- */

static uint32_t seed;

static inline uint32_t draw(uint32_t n) {
    seed = seed * 1664525U + 1013904223U;
    return (uint32_t)(((uint64_t)(seed >> 4) * n) >> 28);
}

/* A token that may follow; of those that close something more often, so that the text comes to an end. */
static inline int32_t choose(const uint64_t *bits, int64_t size) {
    static const char closing[] = "\"]}";
    int32_t all[512] = {0};
    uint32_t n = 0;
    for (int i = 0; i < 3 && draw(3) == 0; i++)
        if (bits[closing[i] / 64] >> (closing[i] % 64) & 1)
            return closing[i];
    for (int32_t id = 0; id < size; id++)
        if (bits[id / 64] >> (id % 64) & 1)
            all[n++] = id;
    if (n == 0)
        fail_msg("a state has no token");
    return all[draw(n)];
}

/* Tokens of several bytes beside the bytes. */
static const char *const longer_tokens[] = {"\": ",   "{\"",    "\"}", "\", \"", "\":",     "true",
                                            "ull",    "null,",  "123", "0.5",    "\u00e4x", "ab",
                                            "\\\\\"", "\n    ", "}]}", "-1"};

static inline void put_tokenizer(void) {
    make_tokenizer("{{ messages }}");
    for (size_t i = 0; i < sizeof longer_tokens / sizeof *longer_tokens; i++) {
        int32_t id;
        assert_ok(ax_tokenizer_add(tokenizer, longer_tokens[i], false, &id));
    }
}

static inline void drop_tokenizer(void) {
    ax_tokenizer_free(tokenizer);
    ax_template_free(template);
    json_decref(tokens);
}

/* False: the text has become too long. */
static inline bool walk(struct ax_grammar_masks *m, const struct ax_grammar *g,
                        const struct ax_grammar_vocabulary *v, struct ax_buf *text) {
    struct ax_grammar_state s = {0}, next = {0};
    const uint64_t *bits;
    assert_ok(ax_grammar_begin(g, &s));
    text->len = 0;
    while (text->len < 4000 &&
           !(ax_grammar_must_end(&s) || (ax_grammar_may_end(g, &s) && draw(4) == 0))) {
        assert_ok(ax_grammar_mask(m, &s, &bits));
        const int32_t id = choose(bits, v->size);
        assert_true(v->from[id + 1] > v->from[id]);
        for (size_t i = v->from[id]; i < v->from[id + 1]; i++) {
            advance(g, &s, &next, v->bytes[i]);
            assert_true(s.n > 0); /* the mask does not promise too much */
        }
        assert_ok(ax_buf_append(text, v->bytes + v->from[id], v->from[id + 1] - v->from[id]));
    }
    const bool ended = ax_grammar_may_end(g, &s);
    ax_grammar_state_free(&s);
    ax_grammar_state_free(&next);
    return ended;
}

#endif
