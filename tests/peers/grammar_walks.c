/* What tests/peers/grammar_random.py drives: a line of JSON on stdin has a "schema" or a "pattern", "texts", and a number of
 * "walks". The answer's "texts" say whether each is one of the grammar's; its "walks" are random texts of it, null where
 * one has come to no end in time. Or "error". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/text/json.h"
#include "data/grammar/grammar.h"

#define MOST 2000 /* bytes of a walk */

static bool alone[256];
static uint64_t drawn;

static unsigned draw(unsigned n) {
    static const struct ax_rng_key key = {.seed = 7};
    return (unsigned)ax_rng_below(key, drawn++, n);
}

static void advance(const struct ax_grammar *g, struct ax_grammar_state *s,
                    struct ax_grammar_state *next, unsigned char byte) {
    AX_ASSERT(ax_grammar_step(g, s, byte, next) == AX_OK);
    const struct ax_grammar_state old = *s;
    *s = *next;
    *next = old;
}

static bool has_text(const struct ax_grammar *g, const char *text, size_t n) {
    struct ax_grammar_state s = {0}, next = {0};
    AX_ASSERT(ax_grammar_begin(g, &s) == AX_OK);
    for (size_t i = 0; i < n; i++)
        advance(g, &s, &next, (unsigned char)text[i]);
    const bool has = ax_grammar_may_end(g, &s);
    ax_grammar_state_free(&s);
    ax_grammar_state_free(&next);
    return has;
}

/* A byte that may come: often one that JSON is made of, and late in a walk one that ends something. */
static unsigned char choose(const struct ax_grammar *g, const struct ax_grammar_state *s,
                            struct ax_grammar_state *next, bool late) {
    const char *preferred = late && draw(4) > 0 ? "\"}]"
                            : draw(3) > 0       ? "\",:}]{[0123456789-.etfn "
                                                : "";
    unsigned char all[256], some[32];
    unsigned n = 0, n_some = 0;
    for (int byte = 0; byte < 256; byte++) {
        AX_ASSERT(ax_grammar_step(g, s, (unsigned char)byte, next) == AX_OK);
        if (next->n == 0)
            continue;
        all[n++] = (unsigned char)byte;
        if (byte > 0 && strchr(preferred, byte))
            some[n_some++] = (unsigned char)byte;
    }
    AX_ASSERT(n > 0); /* every beginning can go on */
    return n_some > 0 ? some[draw(n_some)] : all[draw(n)];
}

static json_t *walk(const struct ax_grammar *g) {
    struct ax_grammar_state s = {0}, next = {0};
    char text[MOST];
    const unsigned late = 20 + draw(200);
    size_t n = 0;
    bool ends = false;
    AX_ASSERT(ax_grammar_begin(g, &s) == AX_OK);
    while (n < MOST && !ends) {
        const unsigned char byte = choose(g, &s, &next, n > late);
        advance(g, &s, &next, byte);
        text[n++] = (char)byte;
        ends = ax_grammar_may_end(g, &s) && (ax_grammar_must_end(&s) || n > late || draw(6) == 0);
    }
    ax_grammar_state_free(&s);
    ax_grammar_state_free(&next);
    return ends ? json_stringn(text, n) : json_null();
}

static json_t *answer(const json_t *line) {
    const json_t *schema = json_object_get(line, "schema"),
                 *pattern = json_object_get(line, "pattern");
    struct ax_grammar *g;
    const enum ax_status st = schema
                                  ? ax_grammar_compile(&g, schema, alone)
                                  : ax_grammar_compile_pattern(&g, json_string_value(pattern),
                                                               json_string_length(pattern), alone);
    json_t *out = json_object(), *texts = json_array(), *walks = json_array(), *text;
    size_t i;
    if (st != AX_OK)
        json_object_set_new(out, "error", json_string(ax_error_text()));
    json_array_foreach(json_object_get(line, "texts"), i, text) if (st == AX_OK)
        json_array_append_new(
            texts, json_boolean(has_text(g, json_string_value(text), json_string_length(text))));
    for (json_int_t k = json_integer_value(json_object_get(line, "walks")); st == AX_OK && k > 0;
         k--)
        json_array_append_new(walks, walk(g));
    json_object_set_new(out, "texts", texts);
    json_object_set_new(out, "walks", walks);
    ax_grammar_free(g);
    return out;
}

int main(void) {
    char *line = NULL;
    size_t cap = 0;
    memset(alone, true, sizeof alone);
    while (getline(&line, &cap, stdin) > 0) {
        json_t *given = json_loads(line, JSON_ALLOW_NUL, NULL), *out = answer(given);
        json_dumpf(out, stdout, JSON_COMPACT);
        putchar('\n');
        fflush(stdout);
        json_decref(out);
        json_decref(given);
    }
    free(line);
    return 0;
}
