/* A JSON schema, and bytes that choose a walk through its grammar: no state is without a next byte, what the walk writes
 * is JSON, and a mask has the tokens that a step takes. */
#include <string.h>

#include "base/text/json.h"
#include "data/grammar/mask.h"
#include "tests/fuzz/byte_tokenizer.h"

#define MOST_STEPS 150

static struct ax_grammar_vocabulary vocabulary;

static void take(const struct ax_grammar *g, struct ax_grammar_state *s,
                 struct ax_grammar_state *next, unsigned char byte) {
    AX_ASSERT(ax_grammar_step(g, s, byte, next) == AX_OK);
    const struct ax_grammar_state old = *s;
    *s = *next;
    *next = old;
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

static void check_text(const char *text, size_t n) {
    json_error_t error;
    json_t *v = json_loadb(text, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
    AX_ASSERT(v || strstr(error.text, "NUL"));
    json_decref(v);
}

static void walk(const struct ax_grammar *g, struct ax_grammar_masks *m, const uint8_t *path,
                 size_t n) {
    struct ax_grammar_state s = {0}, next = {0};
    char text[MOST_STEPS];
    size_t steps = 0;
    AX_ASSERT(ax_grammar_begin(g, &s) == AX_OK && s.n > 0 && s.n <= AX_GRAMMAR_STACKS);
    for (; steps < n && steps < MOST_STEPS && !ax_grammar_must_end(&s); steps++) {
        const uint64_t *bits;
        AX_ASSERT(ax_grammar_mask(m, &s, &bits) == AX_OK);
        const int byte = choose(bits, path[steps]);
        AX_ASSERT(byte >= 0);
        take(g, &s, &next, (unsigned char)byte);
        AX_ASSERT(s.n > 0);
        text[steps] = (char)byte;
        if (ax_grammar_may_end(g, &s))
            check_text(text, steps + 1);
    }
    ax_grammar_state_free(&s);
    ax_grammar_state_free(&next);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct ax_json_first first;
    struct ax_grammar *g;
    struct ax_grammar_masks *m;
    if (!tokenizer) {
        make_tokenizer("{{ messages }}");
        AX_ASSERT(ax_grammar_vocabulary_open(&vocabulary, tokenizer, 258) == AX_OK);
    }
    if (ax_json_first((const char *)data, size, &first) != AX_OK || !first.v)
        return 0;
    const enum ax_status st = ax_grammar_compile(&g, first.v);
    AX_ASSERT(st == AX_OK || st == AX_ERR_DATA || st == AX_ERR_NOMEM);
    json_decref(first.v);
    if (st != AX_OK)
        return 0;
    AX_ASSERT(ax_grammar_masks_create(&m, g, &vocabulary) == AX_OK);
    walk(g, m, data + first.used, size - first.used);
    ax_grammar_masks_free(m);
    ax_grammar_free(g);
    return 0;
}
