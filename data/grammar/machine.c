/* One byte after another: every stack becomes none, one or several.
 *
 * A frame's phase says what its next byte may be. Values begin with their first byte: their parent's frame has
 * then already moved to what follows them, so a value that ends is dropped from the stack. Numbers, and texts
 * that begin longer ones, end where a byte is that belongs to their parent. */
#include "data/grammar/nodes.h"
#include "data/grammar/pattern.h"

enum {
    BEGIN,
    FIRST, /* after a bracket */
    KEY,   /* in the key of a property: n, byte lo */
    OTHER, /* in the key of an additional one: byte `at` of keys [lo, hi) that it may be */
    COLON, /* value: lo, as for the next two */
    VALUE,
    AFTER, /* a value */
    NEXT,  /* after a comma */
};
enum { BODY = 1 }; /* of a string */

#define INDENT 22 /* spaces and tabs of a line, and what `flag` counts before them */

struct step {
    const struct ax_grammar *g;
    struct ax_grammar_state *to;
    unsigned char byte;
    enum ax_status st;
};

static void take(struct step *x, struct ax_grammar_stack t);

static struct ax_grammar_frame *top(struct ax_grammar_stack *t) {
    return &t->f[t->n - 1];
}

static bool same(const struct ax_grammar_stack *a, const struct ax_grammar_stack *b) {
    return a->n == b->n && memcmp(a->f, b->f, (size_t)a->n * sizeof *a->f) == 0;
}

/* Adds a stack, unless there is the same, or are too many. */
static void keep(struct step *x, const struct ax_grammar_stack *t) {
    struct ax_grammar_state *s = x->to;
    for (int i = 0; i < s->n; i++)
        if (same(&s->s[i], t))
            return;
    if (s->n == AX_GRAMMAR_STACKS || x->st != AX_OK)
        return;
    if (s->n == s->cap) {
        const int cap = s->cap > 0 ? 4 * s->cap : 2;
        x->st = ax_regrow(&s->s, (size_t)s->cap, (size_t)cap, sizeof *s->s);
        if (x->st != AX_OK)
            return;
        s->cap = cap;
    }
    s->s[s->n++] = *t;
}

static bool fits(const struct ax_grammar *g, const struct ax_grammar_stack *t, int node) {
    return node != AX_NO_NODE && t->n + g->nodes[node].height <= AX_GRAMMAR_DEPTH;
}

/* Begins a value of the node, and takes the step's byte for it, unless it is the first. */
static void begin_value(struct step *x, const struct ax_grammar_stack *t, int node, bool takes) {
    const struct ax_node *v = &x->g->nodes[node];
    if (!fits(x->g, t, node))
        return;
    if (v->kind == AX_NODE_UNION) {
        for (int i = 0; i < v->n_ways; i++)
            begin_value(x, t, v->ways[i], takes);
        return;
    }
    struct ax_grammar_stack own;
    own.n = t->n + 1;
    memcpy(own.f, t->f, (size_t)t->n * sizeof *t->f);
    *top(&own) = (struct ax_grammar_frame){.node = node,
                                           .n = v->pattern ? AX_PATTERN_FIRST : 0,
                                           .hi = v->kind == AX_NODE_TEXTS ? v->n_texts : 0};
    if (takes)
        take(x, own);
    else
        keep(x, &own);
}

/* ---- white space ---- */

/* Between tokens: a space, or a line and its indentation. */
static bool is_blank(struct ax_grammar_frame *f, unsigned char b) {
    const bool line = f->flag > 1 && f->flag < INDENT && (b == ' ' || b == '\t');
    if (f->flag == 0 && (b == ' ' || b == '\n')) {
        f->flag = b == ' ' ? 1 : 2;
        return true;
    }
    f->flag = (int16_t)(f->flag + line);
    return line;
}

/* ---- texts ---- */

/* Narrows texts [lo, hi), which agree before byte `at`, to those with this byte there. */
static void narrow(const struct ax_node *v, int32_t *lo, int32_t *hi, size_t at, unsigned char b) {
    while (*lo < *hi && (v->texts[*lo].n <= at || (unsigned char)v->texts[*lo].s[at] < b))
        ++*lo;
    while (*hi > *lo && (unsigned char)v->texts[*hi - 1].s[at] > b)
        --*hi;
}

static void take_text(struct step *x, struct ax_grammar_stack *t, const struct ax_node *v) {
    struct ax_grammar_frame *f = top(t);
    narrow(v, &f->lo, &f->hi, (size_t)f->n, x->byte);
    if (f->lo == f->hi)
        return;
    f->n++;
    if (f->hi - f->lo == 1 && v->texts[f->lo].n == (size_t)f->n)
        t->n--;
    keep(x, t);
}

/* ---- what an expression matches ---- */

static void take_pattern(struct step *x, struct ax_grammar_stack *t, const struct ax_node *v) {
    const int state = ax_pattern_step(v->pattern, top(t)->n, x->byte);
    if (state == 0)
        return;
    top(t)->n = state;
    t->n -= !(v->pattern->is[state] & AX_PATTERN_GOES_ON);
    keep(x, t);
}

/* ---- strings ---- */

/* Within a string that an expression matches, which has no escapes. With a most, `at` counts characters. */
static void take_matched(struct step *x, struct ax_grammar_stack *t, const struct ax_node *v) {
    struct ax_grammar_frame *f = top(t);
    const struct ax_pattern *p = v->pattern;
    const int state = x->byte < ' ' || x->byte == '\\' ? 0 : ax_pattern_step(p, f->n, x->byte);
    f->n = state;
    f->at += v->max != AX_NO_LIMIT && (x->byte & 0xC0) != 0x80;
    if (state != 0 && (v->max == AX_NO_LIMIT || f->at + p->least[state] <= v->max))
        keep(x, t);
}

static void take_string(struct step *x, struct ax_grammar_stack *t, const struct ax_node *v) {
    struct ax_grammar_frame *f = top(t);
    if (f->phase == BEGIN) {
        f->phase = BODY;
        if (x->byte == '"')
            keep(x, t);
        return;
    }
    if (f->flag == 0 && x->byte == '"') {
        t->n--;
        if (v->pattern ? v->pattern->is[f->n] & AX_PATTERN_ENDS : f->n >= v->min)
            keep(x, t);
        return;
    }
    if (v->pattern) {
        take_matched(x, t, v);
        return;
    }
    if (f->flag == 0) { /* a character begins; without a most, only those that are missing count */
        if (v->max != AX_NO_LIMIT && f->n >= v->max)
            return;
        f->n += v->max != AX_NO_LIMIT || f->n < v->min;
    }
    const int next = ax_character_step(f->flag, x->byte, true);
    if (next < 0)
        return;
    f->flag = (int16_t)next;
    keep(x, t);
}

/* ---- arrays ---- */

/* The node of the next item; without a most, items are counted as far as it matters. */
static int next_item(const struct ax_node *v, const struct ax_grammar_frame *f) {
    return f->n < v->n_ways ? v->ways[f->n] : v->item;
}

static void take_item(struct step *x, struct ax_grammar_stack *t, const struct ax_node *v) {
    struct ax_grammar_frame *f = top(t);
    const int item = next_item(v, f);
    f->phase = AFTER;
    f->flag = 0;
    f->n += v->max != AX_NO_LIMIT || f->n < v->min || f->n < v->n_ways;
    begin_value(x, t, item, true);
}

static void take_array(struct step *x, struct ax_grammar_stack *t, const struct ax_node *v) {
    struct ax_grammar_frame *f = top(t);
    const bool more = (v->max == AX_NO_LIMIT || f->n < v->max) && fits(x->g, t, next_item(v, f));
    if (f->phase == BEGIN) {
        f->phase = FIRST;
        if (x->byte == '[')
            keep(x, t);
    } else if (is_blank(f, x->byte)) {
        keep(x, t);
    } else if (x->byte == ']' && f->phase != NEXT) {
        t->n--;
        if (f->n >= v->min)
            keep(x, t);
    } else if (f->phase == AFTER) {
        f->phase = NEXT;
        f->flag = 0;
        if (x->byte == ',' && more)
            keep(x, t);
    } else if (more) {
        take_item(x, t, v);
    }
}

/* ---- objects ---- */

/* Properties that may come next, up to the first required one: the index behind them. *required: there is one. */
static int next_required(const struct ax_node *v, int from, bool *required) {
    int i = from;
    while (i < v->n_properties && !v->properties[i].required)
        i++;
    *required = i < v->n_properties;
    return *required ? i + 1 : i;
}

static bool has_next(const struct ax_grammar *g, const struct ax_grammar_stack *t,
                     const struct ax_node *v, int from) {
    bool required;
    const int end = next_required(v, from, &required);
    for (int i = from; i < end; i++)
        if (fits(g, t, v->properties[i].node))
            return true;
    return !required && fits(g, t, v->other);
}

/* A quote begins the key of any of them. */
static void begin_key(struct step *x, struct ax_grammar_stack *t, const struct ax_node *v) {
    struct ax_grammar_frame *f = top(t);
    const int from = f->n;
    bool required;
    const int end = next_required(v, from, &required);
    f->flag = 0;
    for (int i = from; i < end; i++) {
        f->phase = KEY;
        f->n = i;
        f->lo = 1; /* behind the quote */
        if (fits(x->g, t, v->properties[i].node))
            keep(x, t);
    }
    if (required || !fits(x->g, t, v->other))
        return;
    f->phase = OTHER;
    f->n = v->n_properties;
    f->at = 0;
    f->lo = 0;
    f->hi = v->n_texts;
    keep(x, t);
}

static void take_key(struct step *x, struct ax_grammar_stack *t, const struct ax_node *v) {
    struct ax_grammar_frame *f = top(t);
    const struct ax_grammar_property *p = &v->properties[f->n];
    if ((unsigned char)p->key.s[f->lo] != x->byte)
        return;
    if ((size_t)++f->lo == p->key.n) {
        f->phase = COLON;
        f->lo = p->node;
        f->n++;
    }
    keep(x, t);
}

/* A key that is not one of the properties': without escapes, so that it is spelled in one way. */
static void take_other_key(struct step *x, struct ax_grammar_stack *t, const struct ax_node *v) {
    struct ax_grammar_frame *f = top(t);
    if (f->flag == 0 && x->byte == '"') {
        if (f->lo < f->hi && v->texts[f->lo].n == (size_t)f->at)
            return;
        f->phase = COLON;
        f->lo = v->other;
        f->hi = f->at = 0;
        keep(x, t);
        return;
    }
    const int next = ax_character_step(f->flag, x->byte, false);
    if (next < 0)
        return;
    f->flag = (int16_t)next;
    narrow(v, &f->lo, &f->hi, (size_t)f->at, x->byte);
    f->at++;
    if (f->lo == f->hi)
        f->lo = f->hi = f->at = 0;
    keep(x, t);
}

static void take_value(struct step *x, struct ax_grammar_stack *t) {
    struct ax_grammar_frame *f = top(t);
    const int node = f->lo;
    f->phase = AFTER;
    f->flag = 0;
    f->lo = 0;
    begin_value(x, t, node, true);
}

static void take_between(struct step *x, struct ax_grammar_stack *t, const struct ax_node *v) {
    struct ax_grammar_frame *f = top(t);
    bool required;
    (void)next_required(v, f->n, &required);
    if (is_blank(f, x->byte)) {
        keep(x, t);
    } else if (f->phase == VALUE) {
        take_value(x, t);
    } else if (x->byte == '}' && f->phase != NEXT) {
        t->n--;
        if (!required)
            keep(x, t);
    } else if (x->byte == ',' && f->phase == AFTER) {
        f->phase = NEXT;
        f->flag = 0;
        if (has_next(x->g, t, v, f->n))
            keep(x, t);
    } else if (x->byte == '"' && f->phase != AFTER) {
        begin_key(x, t, v);
    }
}

static void take_object(struct step *x, struct ax_grammar_stack *t, const struct ax_node *v) {
    struct ax_grammar_frame *f = top(t);
    switch (f->phase) {
    case BEGIN:
        f->phase = FIRST;
        if (x->byte == '{')
            keep(x, t);
        return;
    case KEY:
        take_key(x, t, v);
        return;
    case OTHER:
        take_other_key(x, t, v);
        return;
    case COLON:
        f->phase = VALUE;
        if (x->byte == ':')
            keep(x, t);
        return;
    default:
        take_between(x, t, v);
    }
}

/* ---- stacks ---- */

/* May the value on top end here, though more of it could follow? */
static bool may_end(const struct ax_node *v, const struct ax_grammar_frame *f) {
    switch (v->kind) {
    case AX_NODE_NUMBER:
        return ax_number_may_end(v, f);
    case AX_NODE_TEXTS:
        return v->texts[f->lo].n == (size_t)f->n;
    case AX_NODE_PATTERN:
        return (v->pattern->is[f->n] & AX_PATTERN_ENDS) != 0;
    default:
        return false;
    }
}

static void take(struct step *x, struct ax_grammar_stack t) {
    if (t.n == 0)
        return;
    const struct ax_node *v = &x->g->nodes[top(&t)->node];
    if (may_end(v, top(&t))) {
        t.n--;
        take(x, t);
        t.n++;
    }
    switch (v->kind) {
    case AX_NODE_OBJECT:
        take_object(x, &t, v);
        return;
    case AX_NODE_ARRAY:
        take_array(x, &t, v);
        return;
    case AX_NODE_STRING:
        take_string(x, &t, v);
        return;
    case AX_NODE_NUMBER:
        if (!ax_number_step(v, top(&t), x->byte))
            return;
        t.n -= !ax_number_goes_on(v, top(&t));
        keep(x, &t);
        return;
    case AX_NODE_TEXTS:
        take_text(x, &t, v);
        return;
    case AX_NODE_PATTERN:
        take_pattern(x, &t, v);
        return;
    case AX_NODE_UNION:
        AX_ASSERT(!"unions have no frames");
    }
}

enum ax_status ax_grammar_begin(const struct ax_grammar *g, struct ax_grammar_state *out) {
    struct step x = {.g = g, .to = out, .st = AX_OK};
    const struct ax_grammar_stack none = {.n = 0};
    out->n = 0;
    begin_value(&x, &none, g->root, false);
    return x.st;
}

void ax_grammar_state_free(struct ax_grammar_state *s) {
    ax_free(s->s);
    *s = (struct ax_grammar_state){0};
}

enum ax_status ax_grammar_step(const struct ax_grammar *g, const struct ax_grammar_state *from,
                               unsigned char byte, struct ax_grammar_state *to) {
    struct step x = {.g = g, .to = to, .byte = byte, .st = AX_OK};
    to->n = 0;
    for (int i = 0; i < from->n; i++)
        take(&x, from->s[i]);
    return x.st;
}

bool ax_grammar_may_end(const struct ax_grammar *g, const struct ax_grammar_state *s) {
    for (int i = 0; i < s->n; i++) {
        const struct ax_grammar_stack *t = &s->s[i];
        if (t->n == 0 || (t->n == 1 && may_end(&g->nodes[t->f[0].node], &t->f[0])))
            return true;
    }
    return false;
}

bool ax_grammar_must_end(const struct ax_grammar_state *s) {
    for (int i = 0; i < s->n; i++)
        if (s->s[i].n > 0)
            return false;
    return s->n > 0;
}
