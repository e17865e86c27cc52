#include "data/grammar/mask.h"

#include "base/hash/hash.h"
#include "data/grammar/nodes.h"
#include "data/grammar/pattern.h"

struct mask {
    uint64_t hash;
    char *key; /* a normal form of the state; NULL: free */
    size_t n_key;
    uint64_t *bits;
};

struct ax_grammar_masks {
    const struct ax_grammar *g;
    const struct ax_grammar_vocabulary *v;
    struct mask masks[AX_GRAMMAR_MASKS];
    size_t next; /* the oldest */
    struct ax_buf key;
    struct ax_grammar_state levels[AX_GRAMMAR_TOKEN + 1]; /* after each byte of a token */
};

enum ax_status ax_grammar_masks_create(struct ax_grammar_masks **out, const struct ax_grammar *g,
                                       const struct ax_grammar_vocabulary *v) {
    AX_TRY(ax_alloc(out, 1, sizeof **out));
    (*out)->g = g;
    (*out)->v = v;
    return AX_OK;
}

void ax_grammar_masks_free(struct ax_grammar_masks *m) {
    for (size_t i = 0; m && i < AX_GRAMMAR_MASKS; i++) {
        ax_free(m->masks[i].key);
        ax_free(m->masks[i].bits);
    }
    for (int i = 0; m && i <= AX_GRAMMAR_TOKEN; i++)
        ax_grammar_state_free(&m->levels[i]);
    if (m)
        ax_buf_free(&m->key);
    ax_free(m);
}

/* ---- states that allow the same ---- */

static int32_t at_most(int64_t x, int64_t most) {
    return (int32_t)(x < 0 ? 0 : x < most ? x : most);
}

/* Counts matter as far as they reach a limit within a token. */
static struct ax_grammar_frame normal_frame(const struct ax_grammar *g,
                                            const struct ax_grammar_frame *f) {
    const struct ax_node *v = &g->nodes[f->node];
    struct ax_grammar_frame out = *f;
    if (v->kind == AX_NODE_STRING && v->pattern && v->max != AX_NO_LIMIT)
        out.at = at_most(v->max - f->at, AX_GRAMMAR_TOKEN + v->pattern->longest);
    if ((v->kind != AX_NODE_STRING && v->kind != AX_NODE_ARRAY) || v->pattern || v->n_ways > 0)
        return out;
    out.n = at_most(v->min - f->n, AX_GRAMMAR_TOKEN + 1);
    out.hi = v->max == AX_NO_LIMIT ? 0 : at_most(v->max - f->n, AX_GRAMMAR_TOKEN + 1);
    return out;
}

static enum ax_status make_key(struct ax_grammar_masks *m, const struct ax_grammar_state *s) {
    m->key.len = 0;
    for (int i = 0; i < s->n; i++) {
        const struct ax_grammar_stack *t = &s->s[i];
        AX_TRY(ax_buf_append(&m->key, &t->n, sizeof t->n));
        for (int k = 0; k < t->n; k++) {
            const struct ax_grammar_frame f = normal_frame(m->g, &t->f[k]);
            AX_TRY(ax_buf_append(&m->key, &f, sizeof f));
        }
    }
    return AX_OK;
}

/* ---- computing ---- */

/* Within a string that has room for any token: plain ones are allowed, whatever they are. */
static bool takes_plain(const struct ax_grammar *g, const struct ax_grammar_state *s) {
    for (int i = 0; i < s->n; i++) {
        const struct ax_grammar_stack *t = &s->s[i];
        const struct ax_grammar_frame *f = t->n > 0 ? &t->f[t->n - 1] : NULL;
        const struct ax_node *v = f ? &g->nodes[f->node] : NULL;
        if (v && v->kind == AX_NODE_STRING && !v->pattern && f->phase > 0 && f->flag == 0 &&
            (v->max == AX_NO_LIMIT || v->max - f->n >= AX_GRAMMAR_TOKEN))
            return true;
    }
    return false;
}

/* Tokens in order: the first `deep` bytes of the last one could be read, and their states are in the levels. */
static enum ax_status read_list(struct ax_grammar_masks *m, const struct ax_grammar_list *list,
                                uint64_t *bits) {
    int deep = 0;
    for (int32_t i = 0; i < list->n; i++) {
        const struct ax_grammar_token *t = &list->tokens[i];
        if (t->shared > deep) /* and with it the byte that could not */
            continue;
        for (deep = t->shared; deep < t->n; deep++) {
            AX_TRY(ax_grammar_step(m->g, &m->levels[deep], t->bytes[deep], &m->levels[deep + 1]));
            if (m->levels[deep + 1].n == 0)
                break;
        }
        if (deep == t->n)
            bits[t->id / 64] |= (uint64_t)1 << (t->id % 64);
    }
    return AX_OK;
}

/* The expression that is all there is to follow, or NULL. */
static const struct ax_pattern *only_pattern(const struct ax_grammar *g,
                                             const struct ax_grammar_state *s) {
    const struct ax_node *v = s->n == 1 && s->s[0].n == 1 ? &g->nodes[s->s[0].f[0].node] : NULL;
    return v && v->kind == AX_NODE_PATTERN ? v->pattern : NULL;
}

/* Does the same as read_list, without stacks. */
static void read_pattern(const struct ax_pattern *p, int state, const struct ax_grammar_list *list,
                         uint64_t *bits) {
    int levels[AX_GRAMMAR_TOKEN + 1] = {state}, deep = 0;
    for (int32_t i = 0; i < list->n; i++) {
        const struct ax_grammar_token *t = &list->tokens[i];
        if (t->shared > deep)
            continue;
        for (deep = t->shared; deep < t->n; deep++) {
            levels[deep + 1] = ax_pattern_step(p, levels[deep], t->bytes[deep]);
            if (levels[deep + 1] == 0)
                break;
        }
        if (deep == t->n)
            bits[t->id / 64] |= (uint64_t)1 << (t->id % 64);
    }
}

static enum ax_status copy_state(const struct ax_grammar_state *from, struct ax_grammar_state *to) {
    if (from->n > to->cap) {
        AX_TRY(ax_regrow(&to->s, (size_t)to->cap, (size_t)from->n, sizeof *to->s));
        to->cap = from->n;
    }
    to->n = from->n;
    if (from->n > 0)
        memcpy(to->s, from->s, (size_t)from->n * sizeof *to->s);
    return AX_OK;
}

static enum ax_status compute(struct ax_grammar_masks *m, const struct ax_grammar_state *s,
                              uint64_t *bits) {
    const size_t bytes = ax_grammar_words(m->v->size) * sizeof *bits;
    const bool plain = takes_plain(m->g, s);
    const struct ax_pattern *pattern = only_pattern(m->g, s);
    if (plain)
        memcpy(bits, m->v->plain, bytes);
    else
        memset(bits, 0, bytes);
    if (pattern) {
        read_pattern(pattern, s->s[0].f[0].n, &m->v->all, bits);
        return AX_OK;
    }
    AX_TRY(copy_state(s, &m->levels[0]));
    return read_list(m, plain ? &m->v->others : &m->v->all, bits);
}

/* ---- keeping ---- */

static struct mask *find(struct ax_grammar_masks *m, uint64_t hash) {
    for (size_t i = 0; i < AX_GRAMMAR_MASKS; i++) {
        struct mask *x = &m->masks[i];
        if (x->key && x->hash == hash && x->n_key == m->key.len &&
            memcmp(x->key, m->key.data, x->n_key) == 0)
            return x;
    }
    return NULL;
}

enum ax_status ax_grammar_mask(struct ax_grammar_masks *m, const struct ax_grammar_state *s,
                               const uint64_t **bits) {
    AX_TRY(make_key(m, s));
    const uint64_t hash = ax_hash64(m->key.data, m->key.len, 0);
    struct mask *x = find(m, hash);
    if (!x) {
        x = &m->masks[m->next];
        m->next = (m->next + 1) % AX_GRAMMAR_MASKS;
        ax_free(x->key);
        x->key = NULL;
        if (!x->bits)
            AX_TRY(ax_alloc(&x->bits, ax_grammar_words(m->v->size), sizeof *x->bits));
        AX_TRY(compute(m, s, x->bits));
        AX_TRY(ax_alloc(&x->key, m->key.len, 1));
        memcpy(x->key, m->key.data, m->key.len);
        x->n_key = m->key.len;
        x->hash = hash;
    }
    *bits = x->bits;
    return AX_OK;
}
