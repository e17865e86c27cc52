/* What the op tests share: a queue with scratch memory, the backends that exist on this machine,
 * and comparing what two runs of a case left behind. Include after cmocka.h. */
#ifndef AX_TESTS_KERNELS_HARNESS_H
#define AX_TESTS_KERNELS_HARNESS_H

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/cases.h"
#include "kernels/operands.h"
#include "kernels/queue.h"

static const enum ax_dtype REALS[] = {AX_F64, AX_F32, AX_BF16};

struct machine {
    struct ax_arena arena;
    struct ax_queue *q;
};

/* Workspaces get up to 1 GiB of address space. */
static inline void machine_open(struct machine *m, const char *backend, int threads) {
    struct ax_arena_plan plan = {.scratch[AX_PHASE_TRAIN] = (size_t)1 << 30, .host = AX_QUEUE_RING};
    const struct ax_device *device;
    assert_int_equal(ax_queue_device(strcmp(backend, "meta") == 0 ? "ref" : backend, &device),
                     AX_OK);
    assert_int_equal(ax_arena_create(&m->arena, &plan, device), AX_OK);
    assert_int_equal(ax_queue_create(&m->q, backend, NULL, threads, &m->arena.scratch), AX_OK);
    assert_int_equal(ax_queue_open_ring(m->q), AX_OK);
}

static inline void machine_close(struct machine *m) {
    ax_queue_free(m->q);
    ax_arena_free(&m->arena);
}

static inline bool have_cpu(void) {
    return ax_ops_cpu() != NULL;
}

/* A case whose inputs are complete; `ref` computes those that are results of another op. */
static inline void case_open(struct ax_case *c, enum ax_op op, const struct ax_shape *shape,
                             enum ax_dtype dtype, struct machine *ref) {
    assert_int_equal(ax_case_create(c, op, shape, dtype, 11), AX_OK);
    assert_int_equal(ax_case_prepare(c, ref->q), AX_OK);
}

static inline void case_run(const struct ax_case *c, struct machine *m) {
    if (ax_case_run(c, m->q) != AX_OK) {
        fail_msg("%s \"%s\" %s: %s", ax_op_name(c->op), c->shape->name,
                 ax_dtype_info(c->dtype)->name, ax_error_text());
    }
}

static inline double element(const struct ax_tensor *t, int64_t i) {
    int64_t cols = ax_tensor_row_len(t);
    return ax_load(t->dtype, t->data, i / cols * t->row_stride + i % cols);
}

/* How many terms the longest sum of a case has. */
static inline int64_t terms(const struct ax_shape *s) {
    int64_t n = s->rows > s->cols ? s->rows : s->cols;
    n = s->inner > n ? s->inner : n;
    n = s->groups > n ? s->groups : n;
    return s->head_dim > n ? s->head_dim : n;
}

/* What a backend may differ from the reference in an element, given the largest magnitude `scale`
 * in its tensor (at least 1: cases are made of numbers of that order).
 * - A sum of n rounded terms in any order is off by about √n·eps·scale (rounding errors are as good
 *   as random); 16 covers what goes in and out of it: a few roundings of numbers up to 8, and exp.
 * - Stored in bf16, both sides round: 2 ulps, of at most 2⁻⁷ of the value, where a value near the
 *   middle goes either way, or goes through one more rounding (rmsnorm).
 * - bf16 attention rounds probabilities and their gradients to bf16 (half an ulp is 2⁻⁸) before
 * they enter the next product; sums of them against values of order `scale` are off by that and, in
 *   backward, twice. */
static inline double tolerance(const struct ax_case *c, enum ax_dtype stored, double value,
                               double scale) {
    scale = scale > 1 ? scale : 1;
    double eps = ax_dtype_accum(c->dtype) == AX_F64 ? DBL_EPSILON : (double)FLT_EPSILON;
    double allowed = 16 * eps * sqrt((double)terms(c->shape)) * scale;
    if (stored == AX_BF16)
        allowed += 2 * 0x1p-7 * fabs(value);
    if (stored == AX_F16)
        allowed += 2 * 0x1p-10 * fabs(value);
    if (stored == AX_U8 && c->op == AX_OP_adamw_8bit)
        allowed += 1; /* a moment near the middle between two codes goes either way */
    bool attention = c->op == AX_OP_attention_forward || c->op == AX_OP_attention_backward;
    if (attention && c->dtype == AX_BF16)
        allowed += 2 * 0x1p-8 * scale;
    return allowed;
}

/* The largest magnitude, but of what `truncate` puts in logits' place. */
static inline double largest(const struct ax_tensor *t) {
    double max = 0;
    for (int64_t i = 0; i < ax_tensor_numel(t); i++) {
        double x = fabs(element(t, i));
        max = isfinite(x) && x > max && x < -AX_TRUNCATED / 2 ? x : max;
    }
    return max;
}

/* Does an update round this operand by drawn words? (kernels/ops.h) */
static inline bool is_drawn(const struct ax_case *c, const char *name, const struct ax_tensor *t) {
    const bool nearest = c->op == AX_OP_adamw && ((const struct ax_adamw *)c->args)->nearest;
    const bool moment = strncmp(name, "exp_avg", 7) == 0 && !nearest;
    return t->dtype == AX_BF16 &&
           (moment || strcmp(name, "master") == 0 || strcmp(name, "copy") == 0);
}

/* Both sides draw the same word for an element and round what they computed with it. The word has
 * 2¹⁶ values, each of them worth a last place of a float32: numbers that differ by k of those round
 * differently for k words, so of n elements about n·k/65536 do. Other words would round a third of
 * them differently. One in a thousand leaves room for k = 65. */
static inline void check_draws(const struct ax_case *c, const char *name,
                               const struct ax_tensor *got, const struct ax_tensor *want) {
    const int64_t n = ax_tensor_numel(want);
    int64_t other = 0;
    for (int64_t i = 0; i < n; i++) {
        const double g = element(got, i), w = element(want, i);
        other += g != w && !(isnan(g) && isnan(w)); /* NaN: not written, by a skipped step */
    }
    if (other > 1 + n / 1000) {
        fail_msg("%s \"%s\" %s: %lld of %lld elements of %s are not rounded as the reference's",
                 ax_op_name(c->op), c->shape->name, ax_dtype_info(c->dtype)->name, (long long)other,
                 (long long)n, name);
    }
}

/* A moment near the middle between two codes goes either way, as rarely as a drawn element does. */
static inline bool is_code(const struct ax_case *c, const struct ax_tensor *t) {
    return c->op == AX_OP_adamw_8bit && t->dtype == AX_U8;
}

/* got and want hold the same elements of one operand of case c. */
static inline void compare(const struct ax_case *c, const char *name, const struct ax_tensor *got,
                           const struct ax_tensor *want) {
    double scale = largest(want);
    if (is_drawn(c, name, want) || is_code(c, want))
        check_draws(c, name, got, want);
    for (int64_t i = 0; i < ax_tensor_numel(want); i++) {
        double g = element(got, i), w = element(want, i);
        bool same = isfinite(w) ? fabs(g - w) <= tolerance(c, want->dtype, w, scale) : g == w;
        same = same || (isnan(g) && isnan(w)); /* what a skipped step leaves as it was */
        if (!same) {
            fail_msg("%s \"%s\" %s: %s[%lld] is %.9g, the reference says %.9g (%.3g apart, scale "
                     "%.3g)",
                     ax_op_name(c->op), c->shape->name, ax_dtype_info(c->dtype)->name, name,
                     (long long)i, g, w, fabs(g - w), scale);
        }
    }
}

static inline void compare_scalars(const struct ax_case *c, const struct ax_case *want) {
    const struct ax_step_scalars *a = c->scalars, *b = want->scalars;
    /* sums of doubles, in another order or of products rounded to F32 first (loss) */
    assert_true(fabs(a->sumsq - b->sumsq) <= 1e-12 * b->sumsq);
    assert_true(fabs(a->loss - b->loss) <= 1e-6 * (1 + fabs(b->loss)));
    assert_true(fabs(a->aux_loss - b->aux_loss) <= 1e-6 * (1 + fabs(b->aux_loss)));
    assert_true(fabs(a->grad_norm - b->grad_norm) <= 1e-14 * b->grad_norm);
    assert_true(fabs(a->clip - b->clip) <= 1e-14 * b->clip);
    assert_int_equal(a->skip, b->skip);
    assert_int_equal(a->step, b->step);
    assert_true(a->weight == b->weight);
    assert_true(a->lr == b->lr && a->inv_weight == b->inv_weight && a->max_norm == b->max_norm);
}

/* The float32 masters that a BF16 tensor and its remainder are together: halves apart say nothing.
 * Returns false where c has none. */
static inline bool compare_split(const struct ax_case *c, const struct ax_case *want) {
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
    if (t[1] == NULL || t[1]->data == NULL)
        return false;
    for (int64_t i = 0; i < ax_tensor_numel(t[0]); i++) {
        float x[2];
        for (int side = 0; side < 2; side++) {
            const uint16_t *high = t[2 * side]->data;
            const int16_t *low = t[2 * side + 1]->data;
            x[side] = ax_f32_join(high[i], low[i]);
        }
        if (!(fabs((double)x[0] - (double)x[1]) <= tolerance(c, AX_F32, (double)x[1], 1))) {
            fail_msg("%s \"%s\": master %lld is %.9g, the reference says %.9g", ax_op_name(c->op),
                     c->shape->name, (long long)i, (double)x[0], (double)x[1]);
        }
    }
    return true;
}

/* Everything that a case writes, its scalars too. */
static inline void compare_outputs(const struct ax_case *got, const struct ax_case *want) {
    const bool split = compare_split(got, want);
    for (const struct ax_operand *o = ax_op_operands(want->op); o->name != NULL; o++) {
        const struct ax_tensor *t = ax_operand_tensor(o, want->args);
        const bool half = split && (t->dtype == AX_I16 || strcmp(o->name, "master") == 0);
        if ((o->use & AX_OPERAND_OUT) != 0 && t->data != NULL && !half)
            compare(got, o->name, ax_operand_tensor(o, got->args), t);
    }
    compare_scalars(got, want);
}

static inline bool same_bits(const struct ax_tensor *a, const struct ax_tensor *b) {
    size_t row = (size_t)ax_tensor_row_len(a) * ax_dtype_size(a->dtype);
    for (int64_t r = 0; r < a->shape[0]; r++)
        if (memcmp(ax_tensor_row(a, r), ax_tensor_row(b, r), row) != 0)
            return false;
    return true;
}

/* Without big shapes: they take 10 minutes on an emulated processor (tools/test-arm). */
static inline bool skips_big(void) {
    const char *text = getenv("AXTRAIN_SKIP_BIG");
    return text != NULL && *text != '\0';
}

static inline void need_big(void) {
    if (skips_big()) {
        print_message("skipped: big shapes (AXTRAIN_SKIP_BIG is set)\n");
        skip();
    }
}

/* Calls f(op, shape, dtype) for every combination, big shapes only or small ones only. */
static inline void for_each_case(bool big,
                                 void (*f)(enum ax_op, const struct ax_shape *, enum ax_dtype)) {
    for (int op = 0; op < AX_OP_COUNT; op++) {
        int n;
        const struct ax_shape *shapes = ax_op_shapes((enum ax_op)op, &n);
        for (int i = 0; i < n; i++)
            for (size_t d = 0; d < sizeof(REALS) / sizeof(REALS[0]) && shapes[i].big == big; d++)
                f((enum ax_op)op, &shapes[i], REALS[d]);
    }
}

#endif
