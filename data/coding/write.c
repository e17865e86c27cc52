/* A specification in Python and in English. */
#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "data/coding/spec.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

void ax_coding_put(struct ax_coding_text *t, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(t->s + t->n, sizeof t->s - t->n, fmt, ap);
    va_end(ap);
    AX_ASSERT(n >= 0 && (size_t)n < sizeof t->s - t->n);
    t->n += (size_t)n;
}

void ax_coding_put_value(struct ax_coding_text *t, const struct ax_coding_value *v) {
    if (v->type == AX_CODING_TEXT)
        ax_coding_put(t, "'%s'", v->text);
    else if (v->type == AX_CODING_INT)
        ax_coding_put(t, "%" PRId64, v->i);
    else if (v->type == AX_CODING_BOOL)
        ax_coding_put(t, v->i ? "True" : "False");
    for (size_t i = 0; v->type == AX_CODING_LIST && i < v->n; i++)
        ax_coding_put(t, "%s%" PRId64, i > 0 ? ", " : "[", v->items[i]);
    if (v->type == AX_CODING_LIST)
        ax_coding_put(t, v->n > 0 ? "]" : "[]");
}

/* ---- slots ---- */

struct slot {
    const char *name, *text;
};

static void fill(struct ax_coding_text *out, const char *pattern, const struct slot *slots,
                 size_t n) {
    for (const char *open; (open = strchr(pattern, '{')) != NULL;) {
        const char *close = strchr(open, '}');
        size_t i = 0;
        AX_ASSERT(close != NULL);
        const size_t len = (size_t)(close - open) - 1;
        while (strlen(slots[i].name) != len || memcmp(slots[i].name, open + 1, len) != 0)
            AX_ASSERT(++i < n);
        ax_coding_put(out, "%.*s%s", (int)(open - pattern), pattern, slots[i].text);
        pattern = close + 1;
    }
    ax_coding_put(out, "%s", pattern);
}

/* A number, a letter in quotes, or the name of an argument. */
static const char *number_text(const struct ax_coding_number *k,
                               const struct ax_coding_names *names, struct ax_coding_text *out) {
    if (k->arg > 0)
        return names->args[k->arg];
    *out = (struct ax_coding_text){.n = 0};
    ax_coding_put(out, k->kind == AX_CODING_LETTER ? "'%c'" : "%d", (int)k->value);
    return out->s;
}

/* ---- Python ---- */

/* Has an expression a space outside of brackets and strings, or a sign? */
static bool is_atom(const char *s) {
    int depth = 0;
    bool quoted = false;
    if (*s == '-')
        return false;
    for (; *s; s++) {
        quoted ^= *s == '\'';
        depth += quoted ? 0 : (strchr("([", *s) != NULL) - (strchr(")]", *s) != NULL);
        if (*s == ' ' && depth == 0 && !quoted)
            return false;
    }
    return true;
}

static const char *parenthesize(const char *s, bool needed, struct ax_coding_text *out) {
    *out = (struct ax_coding_text){.n = 0};
    ax_coding_put(out, needed ? "(%s)" : "%s", s);
    return out->s;
}

/* A predicate or map of an expression. */
static void put_item(struct ax_coding_text *out, const char *pattern, const char *x,
                     const struct ax_coding_number *k, const struct ax_coding_names *names) {
    struct ax_coding_text number, atom, term;
    const struct slot slots[] = {{"x", parenthesize(x, !is_atom(x), &atom)},
                                 {"t", parenthesize(x, strstr(x, " if ") && !is_atom(x), &term)},
                                 {"e", x},
                                 {"k", number_text(k, names, &number)}};
    fill(out, pattern, slots, COUNT(slots));
}

static void put_step(struct ax_coding_text *out, const struct ax_coding_step *s,
                     const struct ax_coding_names *names, const char *operand, const char *var) {
    struct ax_coding_text k, l, atom, p = {.n = 0}, m = {.n = 0}, other = {.n = 0}, item = {.n = 0};
    const struct slot slots[] = {
        {"0", operand},
        {"(0)", parenthesize(operand, !is_atom(operand), &atom)},
        {"v", var},
        {"k", number_text(&s->k[AX_CODING_K], names, &k)},
        {"l", number_text(&s->k[AX_CODING_L], names, &l)},
        {"p", p.s},
        {"m", m.s},
        {"else", other.s},
    };
    if (s->op->item)
        fill(&item, s->op->item, slots, COUNT(slots));
    if (s->is)
        put_item(&p, s->is->python, item.s, &s->k[AX_CODING_IS_K], names);
    if (s->to)
        put_item(&m, s->to->python, item.s, &s->k[AX_CODING_TO_K], names);
    if (s->otherwise)
        put_item(&other, s->otherwise->python, item.s, &s->k[AX_CODING_ELSE_K], names);
    fill(out, s->op->python, slots, COUNT(slots));
}

static bool needs_variable(const struct ax_coding_op *op) {
    return strstr(op->python, "{v}") || (op->item && strstr(op->item, "{v}"));
}

static void put_signature(struct ax_coding_text *t, const struct ax_coding_spec *s,
                          const struct ax_coding_names *names) {
    ax_coding_put(t, "%s(", names->function);
    for (int i = 0; i < s->n_args; i++)
        ax_coding_put(t, "%s%s", i > 0 ? ", " : "", names->args[i]);
    ax_coding_put(t, ")");
}

void ax_coding_put_solution(struct ax_coding_text *t, const struct ax_coding_spec *s,
                            const struct ax_coding_names *names) {
    static const char *const variables[] = {
        [AX_CODING_INT] = "v", [AX_CODING_LIST] = "xs", [AX_CODING_TEXT] = "s"};
    struct ax_coding_text value = {.n = 0};
    ax_coding_put(t, "def ");
    put_signature(t, s, names);
    ax_coding_put(t, ":\n");
    ax_coding_put(&value, "%s", names->args[0]);
    for (int i = 0; i < s->level; i++) {
        const struct ax_coding_op *op = s->step[i].op;
        const char *var = op->in == s->type ? names->args[0] : variables[op->in];
        struct ax_coding_text next = {.n = 0};
        if (needs_variable(op) && strcmp(value.s, var) != 0) {
            ax_coding_put(t, "    %s = %s\n", var, value.s);
            value = (struct ax_coding_text){.n = 0};
            ax_coding_put(&value, "%s", var);
        }
        put_step(&next, &s->step[i], names, value.s, var);
        value = next;
    }
    ax_coding_put(t, "    return %s\n", value.s);
}

/* ---- English ---- */

static void put_words(struct ax_coding_text *out, const char *pattern, const char *o,
                      const struct ax_coding_number *k, const struct ax_coding_names *names) {
    struct ax_coding_text number;
    const struct slot slots[] = {{"o", o}, {"k", number_text(k, names, &number)}};
    if (pattern)
        fill(out, pattern, slots, COUNT(slots));
}

/* A step in words: its noun with what it is done to, or its verb if that is NULL. */
static void put_phrase(struct ax_coding_text *out, const struct ax_coding_step *s,
                       const struct ax_coding_names *names, const char *operand) {
    struct ax_coding_text k, l, many = {.n = 0}, is = {.n = 0}, to = {.n = 0}, verb = {.n = 0},
                                other = {.n = 0}, o = {.n = 0};
    const struct ax_coding_number *n = s->k;
    const struct slot slots[] = {
        {"0", operand ? operand : "it"},
        {"k", number_text(&n[AX_CODING_K], names, &k)},
        {"l", number_text(&n[AX_CODING_L], names, &l)},
        {"many", many.s},
        {"is", is.s},
        {"m", to.s},
        {"M", verb.s},
        {"else", other.s},
    };
    if (s->to)
        fill(&o, operand ? s->op->item_noun : s->op->item_verb, slots, COUNT(slots));
    put_words(&many, s->is ? s->is->many : NULL, "", &n[AX_CODING_IS_K], names);
    put_words(&is, s->is ? s->is->is : NULL, "", &n[AX_CODING_IS_K], names);
    put_words(&to, s->to ? s->to->noun : NULL, o.s, &n[AX_CODING_TO_K], names);
    put_words(&verb, s->to ? s->to->verb : NULL, o.s, &n[AX_CODING_TO_K], names);
    put_words(&other, s->otherwise ? s->otherwise->noun : NULL, o.s, &n[AX_CODING_ELSE_K], names);
    fill(out, operand ? s->op->noun : s->op->verb, slots, COUNT(slots));
}

/* "the sum of the even numbers in xs" */
static void put_noun(struct ax_coding_text *out, const struct ax_coding_spec *s,
                     const struct ax_coding_names *names) {
    struct ax_coding_text all = {.n = 0};
    ax_coding_put(&all, "%s", names->args[0]);
    for (int i = 0; i < s->level; i++) {
        struct ax_coding_text next = {.n = 0};
        put_phrase(&next, &s->step[i], names, all.s);
        all = next;
    }
    ax_coding_put(out, "%s", all.s);
}

/* "keep only the even numbers, then take the sum" */
static void put_verbs(struct ax_coding_text *out, const struct ax_coding_spec *s,
                      const struct ax_coding_names *names) {
    for (int i = 0; i < s->level; i++) {
        ax_coding_put(out, i > 0 ? ", then " : "");
        put_phrase(out, &s->step[i], names, NULL);
    }
}

/* "a list of integers xs and an integer n" */
static void put_arguments(struct ax_coding_text *t, const struct ax_coding_spec *s,
                          const struct ax_coding_names *names) {
    static const char *const types[] = {[AX_CODING_INT] = "an integer",
                                        [AX_CODING_LIST] = "a list of integers",
                                        [AX_CODING_TEXT] = "a string"};
    const char *const *a = names->args;
    const int first = s->type == AX_CODING_INT ? 0 : 1, ints = s->n_args - first;
    if (first == 1)
        ax_coding_put(t, "%s %s%s", types[s->type], a[0], ints > 0 ? " and " : "");
    if (ints == 1)
        ax_coding_put(t, "an integer %s", a[first]);
    else if (ints == 2)
        ax_coding_put(t, "two integers %s and %s", a[first], a[first + 1]);
    else if (ints == 3)
        ax_coding_put(t, "three integers %s, %s and %s", a[0], a[1], a[2]);
}

/* As one noun, where that is clear. */
static bool may_be_noun(const struct ax_coding_spec *s) {
    bool loose = false;
    for (int i = 0; i < s->level; i++)
        loose = loose || s->step[i].op->loose;
    return s->level == 1 || !loose;
}

/* {f} the signature, {in} the arguments, {x} the first of them, {what} the noun or the verbs. */
static const char *const nouns[] = {
    "Write a Python function {f} that returns {what}, given {in}.",
    "Write a Python function {f} that takes {in} and returns {what}.",
    "Define {f} in Python. It takes {in} and returns {what}.",
    "Given {in}, return {what}. Write this as a Python function {f}.",
};
static const char *const verbs[] = {
    "Write a Python function {f} that takes {in}. Start with {x}: {what}. Return the result.",
    "Define {f} in Python. It takes {in}. Start with {x}: {what}; return the result.",
    "Given {in}, start with {x}: {what}. Write a Python function {f} that returns the result.",
};

void ax_coding_put_question(struct ax_coding_text *t, struct ax_coding_draw *d,
                            const struct ax_coding_spec *s, const struct ax_coding_names *names,
                            const struct ax_coding_test *example) {
    struct ax_coding_text f = {.n = 0}, in = {.n = 0}, what = {.n = 0};
    const struct slot slots[] = {{"f", f.s}, {"in", in.s}, {"x", names->args[0]}, {"what", what.s}};
    const bool noun = may_be_noun(s) && ax_coding_below(d, 3) > 0;
    put_signature(&f, s, names);
    put_arguments(&in, s, names);
    if (noun)
        put_noun(&what, s, names);
    else
        put_verbs(&what, s, names);
    const char *pattern =
        noun ? nouns[ax_coding_below(d, COUNT(nouns))] : verbs[ax_coding_below(d, COUNT(verbs))];
    fill(t, pattern, slots, COUNT(slots));
    if (example) {
        ax_coding_put(t, " For example, %s(", names->function);
        for (int i = 0; i < s->n_args; i++) {
            ax_coding_put(t, i > 0 ? ", " : "");
            ax_coding_put_value(t, &example->args[i]);
        }
        ax_coding_put(t, ") is ");
        ax_coding_put_value(t, &example->result);
        ax_coding_put(t, ".");
    }
    ax_coding_put(t, " Answer with the function only, in a ```python block.");
}

/* ---- names ---- */

void ax_coding_draw_names(struct ax_coding_draw *d, const struct ax_coding_spec *s,
                          struct ax_coding_names *out) {
    static const char *const functions[] = {"f", "g", "solve", "compute", "apply", "answer"};
    static const char *const ints[][AX_CODING_MAX_ARGS] = {
        {"n", "m", "k"}, {"p", "q", "r"}, {"j", "h", "w"}};
    static const char *const lists[] = {"xs", "nums", "values", "numbers"};
    static const char *const texts[] = {"s", "text", "line"};
    const char *const *others = ints[ax_coding_below(d, COUNT(ints))];
    out->function = functions[ax_coding_below(d, COUNT(functions))];
    for (int i = 0; i < AX_CODING_MAX_ARGS; i++)
        out->args[i] = others[i];
    if (s->type == AX_CODING_INT)
        return;
    out->args[1] = others[0];
    out->args[2] = others[1];
    out->args[0] = s->type == AX_CODING_LIST ? lists[ax_coding_below(d, COUNT(lists))]
                                             : texts[ax_coding_below(d, COUNT(texts))];
}
