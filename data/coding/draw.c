/* Specifications at random, and their values. */
#include <string.h>

#include "data/coding/spec.h"

/* ---- steps ---- */

static bool fits(const struct ax_coding_op *op, enum ax_coding_type in,
                 const struct ax_coding_op *before, bool last) {
    return op->in == in && (last || op->out != AX_CODING_BOOL) &&
           !(before && before->selects && op->counts);
}

/* By weight, among those that fit. */
static const struct ax_coding_op *draw_op(struct ax_coding_draw *d, enum ax_coding_type in,
                                          const struct ax_coding_op *before, bool last) {
    static const struct ax_coding_ops *const tables[] = {
        &ax_coding_ops_of_ints, &ax_coding_ops_of_lists, &ax_coding_ops_of_texts,
        &ax_coding_ops_of_words};
    const struct ax_coding_op *fit[128];
    int64_t n = 0, total = 0;
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (size_t i = 0; i < tables[t]->n; i++)
            if (fits(&tables[t]->all[i], in, before, last)) {
                AX_ASSERT(n < 128);
                fit[n] = &tables[t]->all[i];
                total += fit[n++]->weight;
            }
    int64_t at = ax_coding_below(d, total);
    int64_t i = 0;
    while ((at -= fit[i]->weight) >= 0)
        i++;
    return fit[i];
}

/* A number of the range; where it may be an argument, it often is another one of the function. */
static struct ax_coding_number draw_number(struct ax_coding_draw *d, struct ax_coding_spec *s,
                                           const struct ax_coding_range *r) {
    static const char letters[] = "aeiorstnlm";
    struct ax_coding_number k = {.kind = r->kind};
    if (r->kind == AX_CODING_OPERAND && s->n_args < AX_CODING_MAX_ARGS &&
        ax_coding_below(d, s->type == AX_CODING_INT ? 2 : 4) == 0)
        k.arg = s->n_args++;
    else if (r->kind == AX_CODING_LETTER)
        k.value = (unsigned char)letters[ax_coding_below(d, sizeof letters - 1)];
    else if (r->kind != AX_CODING_NONE)
        k.value = r->low + ax_coding_below(d, r->high - r->low + 1);
    return k;
}

static void draw_step(struct ax_coding_draw *d, struct ax_coding_spec *s,
                      const struct ax_coding_op *op, struct ax_coding_step *out) {
    *out = (struct ax_coding_step){.op = op};
    out->k[AX_CODING_K] = draw_number(d, s, &op->k);
    out->k[AX_CODING_L] = draw_number(d, s, &op->l);
    if (op->predicates) {
        out->is = &op->predicates->all[ax_coding_below(d, (int64_t)op->predicates->n)];
        out->k[AX_CODING_IS_K] = draw_number(d, s, &out->is->k);
    }
    if (op->maps > 0) {
        out->to = &ax_coding_maps[ax_coding_below(d, (int64_t)ax_coding_n_maps)];
        out->k[AX_CODING_TO_K] = draw_number(d, s, &out->to->k);
    }
    if (op->maps > 1) {
        out->otherwise = &ax_coding_maps[ax_coding_below(d, (int64_t)ax_coding_n_maps)];
        out->k[AX_CODING_ELSE_K] = draw_number(d, s, &out->otherwise->k);
    }
}

void ax_coding_draw_spec(struct ax_coding_draw *d, enum ax_coding_type type, int level,
                         struct ax_coding_spec *out) {
    const struct ax_coding_op *before = NULL;
    *out = (struct ax_coding_spec){.type = type, .n_args = 1, .level = level};
    for (int i = 0; i < level; i++) {
        const struct ax_coding_op *op = draw_op(d, type, before, i == level - 1);
        draw_step(d, out, op, &out->step[i]);
        type = op->out;
        before = op;
    }
}

/* ---- values ---- */

static int64_t resolve(const struct ax_coding_number *k, const struct ax_coding_value *args) {
    return k->value + (k->arg > 0 ? args[k->arg].i : 0);
}

static bool is_small(const struct ax_coding_value *v) {
    bool small = v->i <= AX_CODING_MAX_INT && v->i >= -AX_CODING_MAX_INT;
    for (size_t i = 0; v->type == AX_CODING_LIST && i < v->n; i++)
        small = small && v->items[i] <= AX_CODING_MAX_INT && v->items[i] >= -AX_CODING_MAX_INT;
    return small;
}

bool ax_coding_compute(const struct ax_coding_spec *s, const struct ax_coding_value *args,
                       struct ax_coding_value *out) {
    *out = args[0];
    for (int i = 0; i < s->level; i++) {
        const struct ax_coding_step *step = &s->step[i];
        const struct ax_coding_number *k = step->k;
        const struct ax_coding_operands o = {
            .k = resolve(&k[AX_CODING_K], args),
            .l = resolve(&k[AX_CODING_L], args),
            .is = step->is,
            .is_k = resolve(&k[AX_CODING_IS_K], args),
            .to = step->to,
            .to_k = resolve(&k[AX_CODING_TO_K], args),
            .otherwise = step->otherwise,
            .otherwise_k = resolve(&k[AX_CODING_ELSE_K], args),
        };
        if (!step->op->run(out, &o))
            return false;
        out->type = step->op->out;
        if (!is_small(out))
            return false;
    }
    return true;
}

bool ax_coding_same(const struct ax_coding_value *a, const struct ax_coding_value *b) {
    if (a->type != b->type)
        return false;
    if (a->type == AX_CODING_INT || a->type == AX_CODING_BOOL)
        return a->i == b->i;
    return a->n == b->n &&
           (a->type == AX_CODING_TEXT ? memcmp(a->text, b->text, a->n) == 0
                                      : memcmp(a->items, b->items, a->n * sizeof *a->items) == 0);
}
