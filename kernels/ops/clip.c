/* The start of a step, the norm of the gradient, and clipping it. */
#include "kernels/ops/family.h"

static const char *check_begin_step(const struct ax_begin_step *a) {
    NEED(a->scalars != NULL);
    return NULL;
}

static struct ax_op_cost cost_begin_step(const struct ax_begin_step *a) {
    return (struct ax_op_cost){0, (double)sizeof(*a->scalars)};
}

static void build_begin_step(struct ax_case_builder *b, struct ax_begin_step *a) {
    a->scalars = b->scalars;
    a->repeat = b->shape->cols > 1;
}

static const struct ax_shape shapes_begin_step[] = {
    {"next", .cols = 1},
    {"after a skipped one", .cols = 1, .flags = AX_SHAPE_SKIP},
    {"again", .cols = 2},
};

AX_OP_INFO(begin_step, NO_OPERANDS);

static const char *check_sumsq(const struct ax_sumsq *a) {
    NEED(sums(&a->x));
    NEED(is_1d(&a->x, a->x.dtype, a->x.shape[0]));
    NEED(a->scalars != NULL);
    return NULL;
}

PER_ELEMENT(sumsq, 2, x)

static void build_sumsq(struct ax_case_builder *b, struct ax_sumsq *a) {
    a->x = ax_case_in1(b, b->accum, b->shape->cols);
    a->scalars = b->scalars;
}

static const struct ax_shape shapes_sumsq[] = {
    {"one", .cols = 1},
    {"odd", .cols = 1003},
    {"blocks", .cols = 70001},
    {"gate_up", .big = true, .cols = 3072 * 576},
};

AX_OP_INFO(sumsq, IN(x));

static const char *check_clip(const struct ax_clip *a) {
    NEED(a->scalars != NULL);
    return NULL;
}

static struct ax_op_cost cost_clip(const struct ax_clip *a) {
    return (struct ax_op_cost){0, (double)sizeof(*a->scalars)};
}

static void build_clip(struct ax_case_builder *b, struct ax_clip *a) {
    a->scalars = b->scalars;
    if (a->scalars != NULL)
        a->scalars->hold_above = b->shape->cols > 1 ? 0.2 : a->scalars->loss;
}

static const struct ax_shape shapes_clip[] = {
    {"clipped", .cols = 1},
    {"held", .cols = 2},
    {"nothing trained", .cols = 1, .flags = AX_SHAPE_SKIP},
};

AX_OP_INFO(clip, NO_OPERANDS);
