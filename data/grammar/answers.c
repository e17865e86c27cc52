/* Grammars of whole answers, which are not JSON: one of some texts, or what an expression matches. */
#include <string.h>

#include "base/mem.h"
#include "data/grammar/nodes.h"
#include "data/grammar/pattern.h"

/* A grammar of one node, which has nothing yet. */
static enum ax_status create(struct ax_grammar **out, enum ax_node_kind kind) {
    struct ax_grammar *g;
    AX_TRY(ax_alloc(&g, 1, sizeof *g));
    const enum ax_status st = ax_alloc(&g->nodes, 1, sizeof *g->nodes);
    if (st != AX_OK) {
        ax_free(g);
        return st;
    }
    g->nodes[0].kind = kind;
    g->n = g->cap = g->nodes[0].height = 1;
    *out = g;
    return AX_OK;
}

static enum ax_status keep_or_free(struct ax_grammar *g, enum ax_status st,
                                   struct ax_grammar **out) {
    if (st != AX_OK)
        ax_grammar_free(g);
    else
        *out = g;
    return st;
}

static enum ax_status check_text(const json_t *text, size_t i, const bool alone[256]) {
    const char *s = json_string_value(text);
    const size_t n = json_string_length(text);
    if (n == 0)
        return ax_error(AX_ERR_DATA, "choice %zu: expected a text, not empty", i);
    for (size_t k = 0; k < n; k++) {
        const unsigned char byte = (unsigned char)s[k];
        if ((byte & 0xC0) != 0x80 && !alone[byte])
            return ax_error(AX_ERR_DATA,
                            "choice %zu: the vocabulary has no token for the character at byte %zu",
                            i, k);
    }
    return AX_OK;
}

static enum ax_status add_choices(struct ax_grammar *g, const json_t *texts,
                                  const bool alone[256]) {
    struct ax_node *v = &g->nodes[0];
    const size_t n = json_array_size(texts);
    AX_TRY(ax_alloc(&v->texts, n, sizeof *v->texts));
    for (size_t i = 0; i < n; i++) {
        const json_t *text = json_array_get(texts, i);
        AX_TRY(check_text(text, i, alone));
        AX_TRY(ax_grammar_add_text(g, &v->texts[i], json_string_value(text),
                                   json_string_length(text)));
        v->n_texts++;
    }
    ax_grammar_sort_texts(v);
    return AX_OK;
}

enum ax_status ax_grammar_compile_choice(struct ax_grammar **out, const json_t *texts,
                                         const bool alone[256]) {
    struct ax_grammar *g;
    *out = NULL;
    if (json_array_size(texts) == 0)
        return ax_error(AX_ERR_DATA, "expected a list of texts");
    AX_TRY(create(&g, AX_NODE_TEXTS));
    return keep_or_free(g, add_choices(g, texts, alone), out);
}

enum ax_status ax_grammar_compile_pattern(struct ax_grammar **out, const char *text, size_t n,
                                          const bool alone[256]) {
    struct ax_grammar *g;
    *out = NULL;
    AX_TRY(create(&g, AX_NODE_PATTERN));
    return keep_or_free(g, ax_pattern_compile(&g->nodes[0].pattern, text, n, true, alone), out);
}
