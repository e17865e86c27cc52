/* How deep values nest, and unions that are among their own ways. */
#include "data/grammar/nodes.h"

static int height_of(const struct ax_grammar *g, const struct ax_node *v) {
    int height = 0;
    switch (v->kind) {
    case AX_NODE_UNION:
        height = AX_ENDLESS;
        for (int i = 0; i < v->n_ways; i++)
            height = g->nodes[v->ways[i]].height < height ? g->nodes[v->ways[i]].height : height;
        return height;
    case AX_NODE_ARRAY:
        for (int i = 0; i < v->n_ways && i < v->min; i++)
            if (g->nodes[v->ways[i]].height > height)
                height = g->nodes[v->ways[i]].height;
        if (v->min > v->n_ways && g->nodes[v->item].height > height)
            height = g->nodes[v->item].height;
        break;
    case AX_NODE_OBJECT:
        for (int i = 0; i < v->n_properties; i++)
            if (v->properties[i].required && g->nodes[v->properties[i].node].height > height)
                height = g->nodes[v->properties[i].node].height;
        break;
    default:
        break;
    }
    return height >= AX_ENDLESS ? AX_ENDLESS : height + 1;
}

/* From above: heights only fall, and what they fall from is endless. */
void ax_grammar_find_heights(struct ax_grammar *g) {
    for (int i = 0; i < g->n; i++)
        g->nodes[i].height = AX_ENDLESS;
    for (bool falls = true; falls;) {
        falls = false;
        for (int i = g->n; i-- > 0;) {
            const int height = height_of(g, &g->nodes[i]);
            falls = falls || height < g->nodes[i].height;
            g->nodes[i].height = height;
        }
    }
}

/* True if a union is among its own ways. `state`: 1 while a node is looked at, 2 after. */
static bool has_loop(const struct ax_grammar *g, int node, char *state) {
    const struct ax_node *v = &g->nodes[node];
    if (v->kind != AX_NODE_UNION || state[node] == 2)
        return false;
    if (state[node] == 1)
        return true;
    state[node] = 1;
    for (int i = 0; i < v->n_ways; i++)
        if (has_loop(g, v->ways[i], state))
            return true;
    state[node] = 2;
    return false;
}

enum ax_status ax_grammar_find_loop(const struct ax_grammar *g, bool *loop) {
    char *state;
    *loop = false;
    AX_TRY(ax_alloc(&state, (size_t)g->n, 1));
    for (int i = 0; i < g->n && !*loop; i++)
        *loop = has_loop(g, i, state);
    ax_free(state);
    return AX_OK;
}
