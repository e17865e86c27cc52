/* The steps that answers are held to, and an answer's place in them. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cmd/serve/request.h"

/* ---- making them ---- */

#define MOST_STEPS 8192

/* The text of an error about a grammar is one about the key. */
static enum ax_status about(struct ax_serve_request *r, const char *param, enum ax_status st) {
    char why[400];
    if (st != AX_ERR_DATA && st != AX_ERR_UNSUPPORTED)
        return st;
    snprintf(why, sizeof why, "%.390s", ax_error_text());
    return ax_serve_refuse(r, param, "%s", why);
}

enum ax_status ax_serve_steps_begin(struct ax_serve_request *r, const struct ax_serve_model *m,
                                    const char *param) {
    struct ax_serve_constraint *c = &r->constraint;
    int first;
    if (c->n > 0)
        return ax_serve_refuse(r, param, "the answer is already held to something else");
    c->all = m->grammars;
    AX_TRY(about(r, param, ax_serve_grammars_prepare(c->all, m->side->tokenizer, m->vocab_size)));
    AX_TRY(ax_alloc(&c->bits, ax_grammar_words(m->vocab_size), sizeof *c->bits));
    AX_TRY(ax_serve_steps_add(c, AX_STEP_TEXT, &first));
    AX_ASSERT(first == 0);
    return AX_OK;
}

enum ax_status ax_serve_steps_add(struct ax_serve_constraint *c, enum ax_serve_step_kind kind,
                                  int *step) {
    if (c->n == MOST_STEPS)
        return ax_error(AX_ERR_DATA, "the tools have too many arguments");
    if (c->n == c->cap) {
        const int cap = c->cap > 0 ? 2 * c->cap : 8;
        AX_TRY(ax_regrow(&c->steps, (size_t)c->cap, (size_t)cap, sizeof *c->steps));
        c->cap = cap;
    }
    *step = c->n;
    c->steps[c->n++] = (struct ax_serve_step){.kind = kind};
    return AX_OK;
}

enum ax_status ax_serve_steps_link(struct ax_serve_constraint *c, int from, int to) {
    struct ax_serve_step *s = &c->steps[from];
    const size_t n = (size_t)s->n_next;
    AX_TRY(ax_regrow(&s->next, n, n + 1, sizeof *s->next));
    s->next[s->n_next++] = to;
    return AX_OK;
}

static void set(uint64_t *bits, int32_t id) {
    bits[id / 64] |= (uint64_t)1 << (id % 64);
}

enum ax_status ax_serve_steps_free_text(struct ax_serve_constraint *c, const char *without) {
    const struct ax_grammar_vocabulary *v = &c->all->vocabulary;
    AX_TRY(ax_alloc(&c->free, ax_grammar_words(v->size), sizeof *c->free));
    for (int32_t id = 0; id < v->size; id++) {
        bool fits = v->from[id] < v->from[id + 1];
        for (size_t i = v->from[id]; fits && i < v->from[id + 1]; i++)
            fits = v->bytes[i] != '\0' && !strchr(without, v->bytes[i]);
        if (fits)
            set(c->free, id);
    }
    return AX_OK;
}

enum ax_status ax_serve_steps_value(struct ax_serve_request *r, const char *param,
                                    enum ax_serve_source source, const json_t *given, int *step) {
    struct ax_serve_constraint *c = &r->constraint;
    AX_TRY(ax_serve_steps_add(c, AX_STEP_VALUE, step));
    return about(r, param, ax_serve_grammar_take(c->all, source, given, &c->steps[*step].grammar));
}

void ax_serve_constraint_free(struct ax_serve_constraint *c) {
    for (int i = 0; i < c->n; i++) {
        ax_serve_grammar_release(c->all, c->steps[i].grammar);
        ax_encoding_free(&c->steps[i].ids);
        ax_free(c->steps[i].next);
    }
    ax_free(c->steps);
    ax_free(c->free);
    ax_free(c->bits);
    *c = (struct ax_serve_constraint){0};
}

/* ---- an answer on its way ---- */

/* The step that `at` has led to: a value or a free text is begun. */
static enum ax_status enter(struct ax_serve_place *p, const struct ax_serve_constraint *c, int at) {
    const struct ax_serve_step *s = &c->steps[at];
    p->at = at;
    p->read = 0;
    p->inside = s->n_next == 1 && c->steps[s->next[0]].kind != AX_STEP_TEXT;
    if (!p->inside)
        return AX_OK;
    p->at = s->next[0];
    if (c->steps[p->at].kind == AX_STEP_FREE)
        return AX_OK;
    ax_grammar_state_free(&p->state);
    return ax_grammar_begin(c->steps[p->at].grammar->g, &p->state);
}

enum ax_status ax_serve_place_open(struct ax_serve_place *p, const struct ax_serve_constraint *c) {
    return c->n > 0 ? enter(p, c, 0) : AX_OK;
}

void ax_serve_place_close(struct ax_serve_place *p) {
    ax_grammar_state_free(&p->state);
    ax_grammar_state_free(&p->next);
}

static bool is_value(const struct ax_serve_place *p, const struct ax_serve_constraint *c) {
    return p->inside && c->steps[p->at].kind == AX_STEP_VALUE;
}

static bool must_leave(const struct ax_serve_place *p, const struct ax_serve_constraint *c) {
    return is_value(p, c) && ax_grammar_must_end(&p->state);
}

static bool may_leave(const struct ax_serve_place *p, const struct ax_serve_constraint *c) {
    return !is_value(p, c) || ax_grammar_may_end(c->steps[p->at].grammar->g, &p->state);
}

/* The next token of a text that may follow, or −1: it began otherwise. */
static int32_t next_of(const struct ax_serve_place *p, const struct ax_serve_constraint *c, int i) {
    const struct ax_encoding *ids = &c->steps[c->steps[p->at].next[i]].ids,
                             *like = &c->steps[p->like].ids;
    if (p->read > 0 &&
        (ids->n <= p->read || memcmp(ids->ids, like->ids, p->read * sizeof *ids->ids) != 0))
        return -1;
    return ids->ids[p->read];
}

enum ax_status ax_serve_place_mask(struct ax_serve_place *p, const struct ax_serve_constraint *c,
                                   const int32_t *ends, int n_ends, const uint64_t **bits) {
    const size_t bytes = ax_grammar_words(c->all->vocabulary.size) * sizeof *c->bits;
    const struct ax_serve_step *s = &c->steps[p->at];
    const uint64_t *inside = NULL;
    if (is_value(p, c) && !must_leave(p, c))
        AX_TRY(ax_grammar_mask(s->grammar->masks, &p->state, &inside));
    else if (p->inside && s->kind == AX_STEP_FREE)
        inside = c->free;
    memset(c->bits, 0, bytes);
    if (inside)
        memcpy(c->bits, inside, bytes);
    for (int i = 0; i < n_ends;
         i++) /* an end that may also be a part of text would cut the value */
        c->bits[ends[i] / 64] &= ~((uint64_t)1 << (ends[i] % 64));
    *bits = c->bits;
    if (p->inside && !may_leave(p, c))
        return AX_OK;
    for (int i = 0; i < s->n_next; i++) {
        const int32_t id = next_of(p, c, i);
        if (id >= 0)
            set(c->bits, id);
    }
    for (int i = 0; s->n_next == 0 && i < n_ends; i++)
        set(c->bits, ends[i]);
    return AX_OK;
}

static enum ax_status read_bytes(struct ax_serve_place *p, const struct ax_serve_constraint *c,
                                 int32_t id) {
    const struct ax_grammar_vocabulary *v = &c->all->vocabulary;
    for (size_t i = v->from[id]; i < v->from[id + 1]; i++) {
        AX_TRY(ax_grammar_step(c->steps[p->at].grammar->g, &p->state, v->bytes[i], &p->next));
        const struct ax_grammar_state old = p->state;
        p->state = p->next;
        p->next = old;
    }
    p->broken = p->state.n == 0;
    return AX_OK;
}

/* Takes the token as the next one of a text; *is: it is. */
static enum ax_status read_text(struct ax_serve_place *p, const struct ax_serve_constraint *c,
                                int32_t id, bool *is) {
    const struct ax_serve_step *s = &c->steps[p->at];
    int i = 0;
    while (i < s->n_next && next_of(p, c, i) != id)
        i++;
    *is = i < s->n_next;
    if (!*is)
        return AX_OK;
    p->like = s->next[i];
    p->inside = false;
    return ++p->read == c->steps[p->like].ids.n ? enter(p, c, p->like) : AX_OK;
}

enum ax_status ax_serve_place_step(struct ax_serve_place *p, const struct ax_serve_constraint *c,
                                   int32_t id, bool *complete) {
    bool is = false;
    if (!p->inside || may_leave(p, c))
        AX_TRY(read_text(p, c, id, &is));
    if (!is && is_value(p, c) && !must_leave(p, c))
        AX_TRY(read_bytes(p, c, id));
    else if (!is)
        p->broken = !p->inside || c->steps[p->at].kind != AX_STEP_FREE ||
                    (c->free[id / 64] >> (id % 64) & 1) == 0;
    const bool last = c->steps[p->at].n_next == 0;
    *complete = p->broken || (last && (p->inside ? must_leave(p, c) : p->read == 0));
    return AX_OK;
}
