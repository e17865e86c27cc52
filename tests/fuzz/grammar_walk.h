/* Walks through grammars for fuzz targets: no state is without a next byte, a mask has the bytes that a step takes, and
 * what a walk has written where it may end is checked by the target. */
#ifndef AX_TESTS_FUZZ_GRAMMAR_WALK_H
#define AX_TESTS_FUZZ_GRAMMAR_WALK_H

#include <string.h>

#include "data/grammar/mask.h"
#include "tests/fuzz/byte_tokenizer.h"

#define MOST_STEPS 150

static struct ax_grammar_vocabulary vocabulary;

static void open_vocabulary(void) {
    if (tokenizer)
        return;
    make_tokenizer("{{ messages }}");
    AX_ASSERT(ax_grammar_vocabulary_open(&vocabulary, tokenizer, 258) == AX_OK);
}

/* The token of one byte that comes `at` after another one in a circle, of those that may come. */
static int choose(const uint64_t *bits, unsigned char at) {
    for (int i = 0; i < 256; i++) {
        const int id = (at + i) % 256;
        if (bits[id / 64] >> (id % 64) & 1)
            return id;
    }
    return -1;
}

static void take(const struct ax_grammar *g, struct ax_grammar_state *s,
                 struct ax_grammar_state *next, unsigned char byte) {
    AX_ASSERT(ax_grammar_step(g, s, byte, next) == AX_OK && next->n > 0);
    const struct ax_grammar_state old = *s;
    *s = *next;
    *next = old;
}

struct walk_check {
    int stacks; /* the most that a state has */
    void (*text)(const void *ctx, const char *text, size_t n);
    const void *ctx;
};
/* `path` chooses the bytes. */
static void walk(const struct ax_grammar *g, const uint8_t *path, size_t n,
                 const struct walk_check *check) {
    struct ax_grammar_state s = {0}, next = {0};
    struct ax_grammar_masks *m;
    char text[MOST_STEPS];
    AX_ASSERT(ax_grammar_masks_create(&m, g, &vocabulary) == AX_OK);
    AX_ASSERT(ax_grammar_begin(g, &s) == AX_OK && s.n > 0 && s.n <= check->stacks);
    for (size_t i = 0; i < n && i < MOST_STEPS && !ax_grammar_must_end(&s); i++) {
        const uint64_t *bits;
        AX_ASSERT(ax_grammar_mask(m, &s, &bits) == AX_OK);
        const int byte = choose(bits, path[i]);
        AX_ASSERT(byte >= 0);
        take(g, &s, &next, (unsigned char)byte);
        AX_ASSERT(s.n <= check->stacks);
        text[i] = (char)byte;
        if (ax_grammar_may_end(g, &s))
            check->text(check->ctx, text, i + 1);
    }
    ax_grammar_state_free(&s);
    ax_grammar_state_free(&next);
    ax_grammar_masks_free(m);
}

#endif
