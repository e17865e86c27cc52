#include "kernels/compare.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/operands.h"

double ax_case_element(const struct ax_tensor *t, int64_t i) {
    const int64_t cols = ax_tensor_row_len(t);
    return ax_load(t->dtype, t->data, i / cols * t->row_stride + i % cols);
}

/* How many terms the longest sum of a case has. */
static int64_t terms(const struct ax_shape *s) {
    int64_t n = s->rows > s->cols ? s->rows : s->cols;
    n = s->inner > n ? s->inner : n;
    n = s->groups > n ? s->groups : n;
    return s->head_dim > n ? s->head_dim : n;
}

/* A moment near the middle between two codes goes either way, as rarely as a drawn element does. */
static bool is_code(const struct ax_case *c, enum ax_dtype stored) {
    return c->op == AX_OP_adamw_8bit && stored == AX_U8;
}

/* What a backend may differ from the reference in an element, given the largest magnitude `scale`
 * in its tensor (at least 1: cases are made of numbers of that order).
 * - A sum of n rounded terms in any order is off by about √n·eps·scale (rounding errors are as good
 *   as random); 16 covers what goes in and out of it: a few roundings of numbers up to 8, and exp.
 * - Stored in bf16, both sides round: 2 ulps, of at most 2⁻⁷ of the value, where a value near the
 *   middle goes either way, or goes through one more rounding (rmsnorm). In float16 likewise, of 2⁻¹⁰.
 * - bf16 attention rounds probabilities and their gradients to bf16 (half an ulp is 2⁻⁸) before
 * they enter the next product; sums of them against values of order `scale` are off by that and, in
 *   backward, twice.
 * - cuBLASLt (13.1's kernels nvjet_…_badd on an H200) rounds a product to bf16 before it adds to it: half an
 *   ulp of the product, which is no larger than the result and what was added, of order `scale`. Hopper's tensor
 *   cores add products of FP8 with 14 bits, as DeepSeek-V3's report (2024, 3.3.2) found, before they are float32. */
static double tolerance(const struct ax_case_difference *d, const struct ax_case *c,
                        enum ax_dtype stored, double value, double scale) {
    scale = scale > 1 ? scale : 1;
    const double eps = ax_dtype_accum(c->dtype) == AX_F64 ? DBL_EPSILON : (double)FLT_EPSILON;
    double allowed = 16 * eps * sqrt((double)terms(c->shape)) * scale;
    if (stored == AX_BF16)
        allowed += 2 * 0x1p-7 * fabs(value);
    if (stored == AX_F16)
        allowed += 2 * 0x1p-10 * fabs(value);
    if (is_code(c, stored))
        allowed += 1;
    const bool attention = c->op == AX_OP_attention_forward || c->op == AX_OP_attention_backward;
    if (attention && c->dtype == AX_BF16)
        allowed += 2 * 0x1p-8 * scale;
    if (d->by_library && stored == AX_BF16 && (c->op == AX_OP_gemm || c->op == AX_OP_grouped_gemm))
        allowed += 0x1p-8 * (fabs(value) + scale);
    if (d->by_library && c->op == AX_OP_fp8_gemm)
        allowed += (0x1p-10 + (stored == AX_BF16 ? 0x1p-8 : 0)) * (fabs(value) + scale);
    return allowed;
}

/* The largest magnitude, except of what `truncate` puts in logits' place. */
static double largest(const struct ax_tensor *t) {
    double max = 0;
    for (int64_t i = 0; i < ax_tensor_numel(t); i++) {
        const double x = fabs(ax_case_element(t, i));
        max = isfinite(x) && x > max && x < -AX_TRUNCATED / 2 ? x : max;
    }
    return max;
}

/* Keeps an element that deviates more than the worst so far, with its values for the message. share: of the
 * tolerance; NaN is beyond any. */
static void note(struct ax_case_difference *d, const struct ax_case *c, const char *name, int64_t i,
                 double got, double want, double share) {
    share = isnan(share) ? INFINITY : share;
    if (share <= d->worst)
        return;
    d->worst = share;
    snprintf(d->where, sizeof d->where,
             "%s \"%s\" %s: %s[%lld] is %.9g, the reference says %.9g (%.3g of the tolerance)",
             ax_op_name(c->op), c->shape->name, ax_dtype_info(c->dtype)->name, name, (long long)i,
             got, want, d->worst);
}

/* Does an update round this operand by drawn words? (kernels/ops.h) */
static bool is_drawn(const struct ax_case *c, const char *name, const struct ax_tensor *t) {
    const bool nearest = c->op == AX_OP_adamw && ((const struct ax_adamw *)c->args)->nearest;
    const bool moment = strncmp(name, "exp_avg", 7) == 0 && !nearest;
    return t->dtype == AX_BF16 &&
           (moment || strcmp(name, "master") == 0 || strcmp(name, "copy") == 0);
}

/* Both sides draw the same word for an element and round what they computed with it. The word has
 * 2¹⁶ values, each of them worth a last place of a float32: numbers that differ by k of those round
 * differently for k words, so of n elements about n·k/65536 do. Other words would round a third of
 * them differently. One in a thousand leaves room for k = 65. */
static void compare_draws(const struct ax_case *c, const char *name, const struct ax_tensor *got,
                          const struct ax_tensor *want, struct ax_case_difference *d) {
    const int64_t n = ax_tensor_numel(want), allowed = 1 + n / 1000;
    int64_t other = 0, last = 0;
    for (int64_t i = 0; i < n; i++) {
        const double g = ax_case_element(got, i), w = ax_case_element(want, i);
        if (g == w || (isnan(g) && isnan(w))) /* NaN: not written, by a skipped step */
            continue;
        other++;
        last = i;
    }
    if (other > allowed)
        note(d, c, name, last, ax_case_element(got, last), ax_case_element(want, last),
             (double)other / (double)allowed);
}

/* What an operand's numbers were rounded to: a range's are those of a result. */
static enum ax_dtype stored_as(const struct ax_case *c, const char *name,
                               const struct ax_tensor *t) {
    return strcmp(name, "range.t") == 0 ? c->dtype : t->dtype;
}

void ax_case_compare_operand(const struct ax_case *c, const char *name, const struct ax_tensor *got,
                             const struct ax_tensor *want, struct ax_case_difference *d) {
    const double scale = largest(want);
    if (is_drawn(c, name, want) || is_code(c, want->dtype))
        compare_draws(c, name, got, want, d);
    for (int64_t i = 0; i < ax_tensor_numel(want); i++) {
        const double g = ax_case_element(got, i), w = ax_case_element(want, i);
        if (g == w || (isnan(g) && isnan(w))) /* NaN: what a skipped step leaves as it was */
            continue;
        const double off = isfinite(w) ? fabs(g - w) : INFINITY;
        note(d, c, name, i, g, w, off / tolerance(d, c, stored_as(c, name, want), w, scale));
    }
}

static void compare_scalars(const struct ax_case *c, const struct ax_case *want,
                            struct ax_case_difference *d) {
    const struct ax_step_scalars *a = &c->step->scalars, *b = &want->step->scalars;
    /* sums of doubles, in another order or of products rounded to F32 first (loss) */
    const struct {
        const char *name;
        double got, want, allowed;
    } list[] = {
        {"sumsq", a->sumsq, b->sumsq, 1e-12 * b->sumsq},
        {"loss", a->loss, b->loss, 1e-6 * (1 + fabs(b->loss))},
        {"index_loss", a->index_loss, b->index_loss, 1e-6 * (1 + fabs(b->index_loss))},
        {"aux_loss", a->aux_loss, b->aux_loss, 1e-6 * (1 + fabs(b->aux_loss))},
        {"sequence_loss", a->sequence_loss, b->sequence_loss, 1e-6 * (1 + fabs(b->sequence_loss))},
        {"grad_norm", a->grad_norm, b->grad_norm, 1e-14 * b->grad_norm},
        {"clip", a->clip, b->clip, 1e-14 * b->clip},
        {"skip", (double)a->skip, (double)b->skip, 0},
        {"step", (double)a->step, (double)b->step, 0},
        {"weight", a->weight, b->weight, 0},
        {"documents", a->documents, b->documents, 0},
        {"lr", a->lr, b->lr, 0},
        {"inv_weight", a->inv_weight, b->inv_weight, 0},
        {"max_norm", a->max_norm, b->max_norm, 0}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i].got != list[i].want)
            note(d, c, list[i].name, 0, list[i].got, list[i].want,
                 fabs(list[i].got - list[i].want) / list[i].allowed);
}

/* As the loss. */
static void compare_measures(const struct ax_case *c, const struct ax_case *want,
                             struct ax_case_difference *d) {
    const struct ax_step_measures *a = &c->step->measures, *b = &want->step->measures;
    for (int i = 0; i < AX_MEASURES; i++) {
        note(d, c, "measures.sum", i, a->sum[i], b->sum[i],
             fabs(a->sum[i] - b->sum[i]) / (1e-6 * (1 + fabs(b->sum[i]))));
        note(d, c, "measures.of", i, a->of[i], b->of[i],
             fabs(a->of[i] - b->of[i]) / (1e-6 * (1 + fabs(b->of[i]))));
    }
}

/* The float32 masters that a BF16 tensor and its remainder are together: halves apart say nothing.
 * Returns false where c has none. */
static bool compare_split(const struct ax_case *c, const struct ax_case *want,
                          struct ax_case_difference *d) {
    const struct ax_tensor *t[4] = {0}; /* master and remainder of c, then of want */
    for (const struct ax_operand *o = ax_op_operands(c->op); o->name != NULL; o++) {
        const int i = strcmp(o->name, "master") == 0      ? 0
                      : strcmp(o->name, "remainder") == 0 ? 1
                                                          : 2;
        if (i < 2) {
            t[i] = ax_operand_tensor(o, c->args);
            t[2 + i] = ax_operand_tensor(o, want->args);
        }
    }
    for (int i = 0; i < 4; i++)
        if (t[i] == NULL || t[i]->data == NULL)
            return false;
    for (int64_t i = 0; i < ax_tensor_numel(t[0]); i++) {
        float x[2];
        for (int side = 0; side < 2; side++) {
            const uint16_t *high = t[2 * side]->data;
            const int16_t *low = t[2 * side + 1]->data;
            x[side] = ax_f32_join(high[i], low[i]);
        }
        note(d, c, "master and remainder", i, (double)x[0], (double)x[1],
             fabs((double)x[0] - (double)x[1]) / tolerance(d, c, AX_F32, (double)x[1], 1));
    }
    return true;
}

void ax_case_compare(const struct ax_case *got, const struct ax_case *want,
                     struct ax_case_difference *d) {
    const bool split = compare_split(got, want, d);
    for (const struct ax_operand *o = ax_op_operands(want->op); o->name != NULL; o++) {
        const struct ax_tensor *t = ax_operand_tensor(o, want->args);
        const bool half = split && (t->dtype == AX_I16 || strcmp(o->name, "master") == 0);
        if ((o->use & AX_OPERAND_OUT) != 0 && t->data != NULL && !half)
            ax_case_compare_operand(got, o->name, ax_operand_tensor(o, got->args), t, d);
    }
    compare_scalars(got, want, d);
    compare_measures(got, want, d);
}
