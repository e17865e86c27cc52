/* Texts of nodes: names, values and choices. */
#include <stdlib.h>

#include "data/grammar/nodes.h"

enum ax_status ax_grammar_add_text(struct ax_grammar *g, struct ax_grammar_text *to, const char *s,
                                   size_t n) {
    g->text += n + 1;
    if (g->text > AX_GRAMMAR_TEXT)
        return ax_error(AX_ERR_DATA, "names, constants or choices have more than %zu bytes",
                        AX_GRAMMAR_TEXT);
    AX_TRY(ax_strndup(&to->s, s, n));
    to->n = n;
    return AX_OK;
}

static int by_bytes(const void *x, const void *y) {
    const struct ax_grammar_text *a = x, *b = y;
    const size_t n = a->n < b->n ? a->n : b->n;
    const int d = memcmp(a->s, b->s, n);
    return d != 0 ? d : (a->n > b->n) - (a->n < b->n);
}

void ax_grammar_sort_texts(struct ax_node *v) {
    int n = 0;
    if (v->n_texts > 0)
        qsort(v->texts, (size_t)v->n_texts, sizeof *v->texts, by_bytes);
    for (int i = 0; i < v->n_texts; i++)
        if (n > 0 && by_bytes(&v->texts[n - 1], &v->texts[i]) == 0)
            ax_free(v->texts[i].s);
        else
            v->texts[n++] = v->texts[i];
    v->n_texts = n;
}
