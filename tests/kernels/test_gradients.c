/* Backward ops of layers against finite differences (gradients.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "kernels/ops/pointwise.h"
#include "tests/kernels/gradients.h"

struct linear {
    struct ax_gemm y;
    struct ax_tensor dy;
};

static double linear_loss(void *context) {
    struct linear *l = context;
    assert_int_equal(ax_run_gemm(ref.q, &l->y), AX_OK);
    return dot(&l->y.c, &l->dy);
}

static void gemm_is_a_linear_layer(void **state) {
    (void)state;
    struct ax_shape shape = {.name = "linear", .rows = 5, .cols = 7, .inner = 9};
    shape.flags = AX_SHAPE_TRANS_B | AX_SHAPE_BIAS | AX_SHAPE_ADDEND;
    struct ax_case c;
    case_open(&c, AX_OP_gemm, &shape, AX_F64, &ref);
    struct linear l = {.y = *(struct ax_gemm *)c.args};
    struct ax_gemm *y = &l.y;
    y->alpha = 1;
    l.dy = copy_of(&y->addend);
    struct ax_tensor dx = like(&y->a), dw = like(&y->b), db = like(&y->bias);
    zero(&dw);
    zero(&db);
    struct ax_gemm to_x = {.a = l.dy, .b = y->b, .c = dx, .alpha = 1};
    struct ax_gemm to_w = {
        .a = l.dy, .b = y->a, .c = dw, .alpha = 1, .trans_a = true, .accumulate = true};
    assert_int_equal(ax_run_gemm(ref.q, &to_x), AX_OK);
    assert_int_equal(ax_run_gemm(ref.q, &to_w), AX_OK);
    assert_int_equal(ax_run_colsum(ref.q, &(struct ax_colsum){l.dy, db}), AX_OK);
    check("x", &y->a, &dx, linear_loss, &l);
    check("W", &y->b, &dw, linear_loss, &l);
    check("bias", &y->bias, &db, linear_loss, &l);
    check("addend", &y->addend, &l.dy, linear_loss, &l);
    ax_case_free(&c);
}

struct embedding {
    struct ax_embedding_forward f;
    struct ax_tensor dout;
};

static double embedding_loss(void *context) {
    struct embedding *e = context;
    assert_int_equal(ax_run_embedding_forward(ref.q, &e->f), AX_OK);
    return dot(&e->f.out, &e->dout);
}

static void embedding_gradient(void **state) {
    (void)state;
    const struct ax_shape shape = {.name = "shard", .rows = 30, .cols = 5, .inner = 6, .first = 3};
    struct ax_case c;
    case_open(&c, AX_OP_embedding_backward, &shape, AX_F64, &ref);
    struct ax_embedding_backward *b = c.args;
    b->skip_token = -1;
    struct ax_tensor weight = copy_of(&b->dweight);
    struct embedding e = {.f = {weight, b->tokens, like(&b->dout), b->first_row}, .dout = b->dout};
    zero(&b->dweight);
    case_run(&c, &ref);
    check("weight", &weight, &b->dweight, embedding_loss, &e);
    ax_case_free(&c);
}

struct norm {
    struct ax_rmsnorm_forward f;
    struct ax_tensor dy;
};

static double norm_loss(void *context) {
    struct norm *n = context;
    assert_int_equal(ax_run_rmsnorm_forward(ref.q, &n->f), AX_OK);
    return dot(&n->f.y, &n->dy);
}

static void rmsnorm_gradients(void **state) {
    (void)state;
    int count;
    const struct ax_shape *shapes = ax_op_shapes(AX_OP_rmsnorm_backward, &count);
    for (int i = 0; i < count; i++) {
        if (shapes[i].big || (shapes[i].flags & (AX_SHAPE_IN_PLACE | AX_SHAPE_ACCUMULATE)) != 0)
            continue;
        struct ax_case c;
        pool_used = 0;
        case_open(&c, AX_OP_rmsnorm_backward, &shapes[i], AX_F64, &ref);
        struct ax_rmsnorm_backward *b = c.args;
        struct norm n = {.f = {b->x, b->weight, like(&b->x), b->rstd, 1e-2}, .dy = b->dy};
        if (b->dweight.data != NULL)
            zero(&b->dweight);
        norm_loss(&n); /* rstd */
        case_run(&c, &ref);
        check(shapes[i].name, &b->x, &b->dx, norm_loss, &n);
        if (b->dweight.data != NULL) /* else the weight is frozen */
            check(shapes[i].name, &b->weight, &b->dweight, norm_loss, &n);
        ax_case_free(&c);
    }
}

static void rope_inverse_is_the_transpose(void **state) {
    (void)state;
    int count;
    const struct ax_shape *shapes = ax_op_shapes(AX_OP_rope, &count);
    for (int i = 0; i < count; i++) {
        if (shapes[i].big)
            continue;
        struct ax_case c;
        pool_used = 0;
        case_open(&c, AX_OP_rope, &shapes[i], AX_F64, &ref);
        struct ax_rope *r = c.args;
        struct ax_tensor x = copy_of(&r->x), y = copy_of(&r->x), back = like(&r->x);
        for (int64_t k = 0; k < ax_tensor_numel(&y); k++)
            *address(&y, k) = direction(0, k);
        case_run(&c, &ref);
        struct ax_tensor rotated = copy_of(&r->x);
        assert_int_equal(ax_run_copy(ref.q, &(struct ax_copy){back, y}), AX_OK);
        struct ax_rope inverse = *r;
        inverse.x = back;
        inverse.inverse = !r->inverse;
        assert_int_equal(ax_run_rope(ref.q, &inverse), AX_OK);
        assert_true(fabs(dot(&rotated, &y) - dot(&x, &back)) < 1e-12 * (1 + dot(&y, &y)));
        /* and, rotating by an angle, it undoes the rotation */
        inverse.x = rotated;
        assert_int_equal(ax_run_rope(ref.q, &inverse), AX_OK);
        for (int64_t k = 0; k < ax_tensor_numel(&x); k++)
            assert_true(fabs(element(&rotated, k) - element(&x, k)) < 1e-14);
        ax_case_free(&c);
    }
}

static double attention_loss(void *context) {
    struct ax_attention_backward *b = context;
    assert_int_equal(ax_run_attention_forward(ref.q, &(struct ax_attention_forward){b->a}), AX_OK);
    return dot(&b->a.out, &b->dout);
}

static void attention_gradients(void **state) {
    (void)state;
    int count;
    const struct ax_shape *shapes = ax_op_shapes(AX_OP_attention_backward, &count);
    for (int i = 0; i < count; i++) {
        if (shapes[i].rows > 100) /* the same code as the small ones, only longer */
            continue;
        struct ax_case c;
        pool_used = 0;
        case_open(&c, AX_OP_attention_backward, &shapes[i], AX_F64, &ref);
        struct ax_attention_backward *b = c.args;
        bool sink = b->a.sink.data != NULL;
        if (sink)
            zero(&b->dsink);
        case_run(&c, &ref);
        check(shapes[i].name, &b->a.q, &b->dq, attention_loss, b);
        check(shapes[i].name, &b->a.k, &b->dk, attention_loss, b);
        check(shapes[i].name, &b->a.v, &b->dv, attention_loss, b);
        if (sink)
            check(shapes[i].name, &b->a.sink, &b->dsink, attention_loss, b);
        ax_case_free(&c);
    }
}

struct swiglu {
    struct ax_swiglu_forward f;
    struct ax_tensor dy;
};

static double swiglu_loss(void *context) {
    struct swiglu *s = context;
    assert_int_equal(ax_run_swiglu_forward(ref.q, &s->f), AX_OK);
    return dot(&s->f.y, &s->dy);
}

static void swiglu_gradient(void **state) {
    (void)state;
    static const struct ax_swiglu_options kinds[] = {
        {{.gate = AX_GATE_SILU}, .apart = false},
        {{.gate = AX_GATE_GELU}, .apart = false},
        {{.gate = AX_GATE_SILU, .interleaved = true}, .apart = false},
        {{.gate = AX_GATE_CLAMPED, .interleaved = true, .alpha = 1.702, .limit = 3},
         .apart = false},
        {{.gate = AX_GATE_SIGMOID}, .apart = true},
        {{.gate = AX_GATE_LINEAR}, .apart = true},
        {{.gate = AX_GATE_SILU}, .apart = true}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const struct ax_shape shape = {
            .name = "swiglu", .rows = 4, .cols = 9, .pad = 3, .options = &kinds[i]};
        struct ax_case c;
        case_open(&c, AX_OP_swiglu_backward, &shape, AX_F64, &ref);
        struct ax_swiglu_backward *b = c.args;
        struct swiglu s = {
            .f = {.gate_up = b->gate_up, .up = b->up, .y = like(&b->dy), .how = b->how},
            .dy = b->dy};
        case_run(&c, &ref);
        check("gate_up", &b->gate_up, &b->dgate_up, swiglu_loss, &s);
        if (kinds[i].apart)
            check("up", &b->up, &b->dup, swiglu_loss, &s);
        ax_case_free(&c);
    }
}

struct convolved {
    struct ax_conv_forward f;
    struct ax_tensor dy;
};

static double conv_loss(void *context) {
    struct convolved *s = context;
    assert_int_equal(ax_run_conv_forward(ref.q, &s->f), AX_OK);
    return dot(&s->f.a.y, &s->dy);
}

static void conv_gradients(void **state) {
    (void)state;
    int count;
    const struct ax_shape *shapes = ax_op_shapes(AX_OP_conv_backward, &count);
    for (int i = 0; i < count; i++) {
        if (shapes[i].big)
            continue;
        struct ax_case c;
        pool_used = 0;
        case_open(&c, AX_OP_conv_backward, &shapes[i], AX_F64, &ref);
        struct ax_conv_backward *b = c.args;
        struct convolved s = {.f = {b->a}, .dy = b->dy};
        s.f.a.y = like(&b->a.x);
        if (b->dw.data)
            zero(&b->dw);
        if (b->dbias.data)
            zero(&b->dbias);
        case_run(&c, &ref);
        check(shapes[i].name, &b->a.x, &b->dx, conv_loss, &s);
        if (b->dw.data)
            check(shapes[i].name, &b->a.w, &b->dw, conv_loss, &s);
        if (b->dbias.data)
            check(shapes[i].name, &b->a.bias, &b->dbias, conv_loss, &s);
        ax_case_free(&c);
    }
}

struct gates {
    struct ax_delta_gates_forward f;
    const struct ax_delta_gates_backward *b;
};

static double gates_loss(void *context) {
    struct gates *s = context;
    assert_int_equal(ax_run_delta_gates_forward(ref.q, &s->f), AX_OK);
    return dot(&s->f.g, &s->b->dg) + dot(&s->f.beta, &s->b->dbeta);
}

static void delta_gates_gradients(void **state) {
    (void)state;
    int count;
    const struct ax_shape *shapes = ax_op_shapes(AX_OP_delta_gates_backward, &count);
    for (int i = 0; i < count; i++) {
        if (shapes[i].big)
            continue;
        struct ax_case c;
        pool_used = 0;
        case_open(&c, AX_OP_delta_gates_backward, &shapes[i], AX_F64, &ref);
        struct ax_delta_gates_backward *b = c.args;
        struct gates s = {
            .f = {b->a, b->b, b->log, b->bias, like(&b->dg), like(&b->dbeta), b->scale}, .b = b};
        zero(&b->dlog);
        zero(&b->dbias);
        case_run(&c, &ref);
        check(shapes[i].name, &b->a, &b->da, gates_loss, &s);
        check(shapes[i].name, &b->b, &b->db, gates_loss, &s);
        check(shapes[i].name, &b->log, &b->dlog, gates_loss, &s);
        check(shapes[i].name, &b->bias, &b->dbias, gates_loss, &s);
        ax_case_free(&c);
    }
}

struct capped {
    struct ax_scale f;
    struct ax_tensor dy;
};

static double capped_loss(void *context) {
    struct capped *s = context;
    assert_int_equal(ax_run_scale(ref.q, &s->f), AX_OK);
    return dot(&s->f.y, &s->dy);
}

static void softcap_gradient(void **state) {
    (void)state;
    const struct ax_shape shape = {.name = "softcap", .rows = 4, .cols = 9, .pad = 3};
    struct ax_case c;
    case_open(&c, AX_OP_softcap_backward, &shape, AX_F64, &ref);
    struct ax_softcap_backward *b = c.args;
    struct ax_tensor x = like(&b->dy);
    struct capped s = {.f = {b->y, x, b->alpha, b->softcap}, .dy = b->dy};
    for (int64_t i = 0; i < ax_tensor_numel(&x); i++)
        ((double *)x.data)[i] = 3 * sin((double)i);
    capped_loss(&s);
    case_run(&c, &ref);
    check("x", &x, &b->dx, capped_loss, &s);
    ax_case_free(&c);
}

struct router {
    struct ax_router_forward f;
    struct ax_tensor dweights, slope;
};

/* Depends on token and expert, not on the place of the expert among the chosen: that may change. */
static double weight_of_choice(const struct router *r, int64_t i) {
    int64_t token = i / r->f.experts.shape[1];
    return direction(7, token * r->f.probs.shape[1] + (int64_t)element(&r->f.experts, i));
}

/* Σ weights·dweights + Σ probs·slope. */
static double router_loss(void *context) {
    struct router *r = context;
    assert_int_equal(ax_run_router_forward(ref.q, &r->f), AX_OK);
    double sum = 0;
    for (int64_t i = 0; i < ax_tensor_numel(&r->f.weights); i++)
        sum += element(&r->f.weights, i) * weight_of_choice(r, i);
    int64_t experts = r->f.probs.shape[1];
    for (int64_t i = 0; i < ax_tensor_numel(&r->f.probs); i++)
        sum += element(&r->f.probs, i) * element(&r->slope, i % experts);
    return sum;
}

static void router_gradient(void **state) {
    (void)state;
    int count;
    const struct ax_shape *shapes = ax_op_shapes(AX_OP_router_forward, &count);
    for (int i = 0; i < count; i++) {
        if (shapes[i].big || strcmp(shapes[i].name, "ties") == 0) /* a tie has no slope */
            continue;
        struct ax_case c;
        pool_used = 0;
        case_open(&c, AX_OP_router_forward, &shapes[i], AX_F64, &ref);
        struct router r = {.f = *(struct ax_router_forward *)c.args};
        r.f.load = (struct ax_tensor){0};
        r.dweights = like(&r.f.weights);
        r.slope = like(&(struct ax_tensor){.ndim = 1, .shape = {shapes[i].groups}});
        for (int64_t k = 0; k < shapes[i].groups; k++)
            *address(&r.slope, k) = direction(8, k);
        router_loss(&r);
        for (int64_t k = 0; k < ax_tensor_numel(&r.dweights); k++)
            *address(&r.dweights, k) = weight_of_choice(&r, k);
        struct ax_tensor dlogits = like(&r.f.logits);
        const struct ax_router_backward back = {.probs = r.f.probs,
                                                .experts = r.f.experts,
                                                .dweights = r.dweights,
                                                .slope = r.slope,
                                                .dlogits = dlogits,
                                                .routing = r.f.routing};
        assert_int_equal(ax_run_router_backward(ref.q, &back), AX_OK);
        check(shapes[i].name, &r.f.logits, &dlogits, router_loss, &r);
        ax_case_free(&c);
    }
}

struct balance {
    struct ax_tensor probs;
    struct ax_router_balance b;
};

/* The loss as its formula reads, of probabilities that are summed up here. */
static double balance_loss(void *context) {
    struct balance *b = context;
    int64_t experts = b->probs.shape[1];
    for (int64_t e = 0; e < experts; e++) {
        double sum = 0;
        for (int64_t t = 0; t < b->probs.shape[0]; t++)
            sum += element(&b->probs, t * experts + e);
        *address(&b->b.load, experts + e) = sum;
    }
    b->b.scalars->aux_loss = 0;
    assert_int_equal(ax_run_router_balance(ref.q, &b->b), AX_OK);
    return b->b.coef * b->b.scalars->aux_loss;
}

static void balance_slope(void **state) {
    (void)state;
    const struct ax_shape shape = {.name = "balance", .groups = 5, .choices = 2};
    struct ax_case c;
    case_open(&c, AX_OP_router_balance, &shape, AX_F64, &ref);
    struct balance b = {.b = *(struct ax_router_balance *)c.args};
    b.probs = like(&(struct ax_tensor){.ndim = 2, .shape = {9, 5}});
    struct ax_tensor grad = like(&b.probs);
    for (int64_t i = 0; i < 45; i++)
        *address(&b.probs, i) = fabs(direction(3, i));
    balance_loss(&b);
    for (int64_t i = 0; i < 45; i++)
        *address(&grad, i) = element(&b.b.slope, i % 5);
    check("probabilities", &b.probs, &grad, balance_loss, &b);
    ax_case_free(&c);
}

struct combine {
    struct ax_combine_forward f;
    struct ax_tensor dout;
};

static double combine_loss(void *context) {
    struct combine *s = context;
    assert_int_equal(ax_run_combine_forward(ref.q, &s->f), AX_OK);
    return dot(&s->f.out, &s->dout);
}

/* And without weights: scatter_rows of dout is the gradient. */
static void combine_gradients(void **state) {
    (void)state;
    int count;
    const struct ax_shape *shapes = ax_op_shapes(AX_OP_combine_backward, &count);
    for (int i = 0; i < count; i++) {
        if (shapes[i].big)
            continue;
        struct ax_case c;
        pool_used = 0;
        case_open(&c, AX_OP_combine_backward, &shapes[i], AX_F64, &ref);
        struct ax_combine_backward *b = c.args;
        struct ax_tensor src = copy_of(&b->src), dsrc = like(&b->src), weights = b->weights;
        zero(&dsrc); /* rows that no token names have no gradient */
        b->dsrc = dsrc;
        struct combine s = {.f = {src, b->rows, weights, copy_of(&b->dout), like(&b->dout)},
                            .dout = b->dout};
        case_run(&c, &ref);
        check(shapes[i].name, &src, &b->dsrc, combine_loss, &s);
        check(shapes[i].name, &weights, &b->dweights, combine_loss, &s);
        check(shapes[i].name, &s.f.addend, &b->dout, combine_loss, &s);
        s.f.weights.data = NULL;
        zero(&dsrc);
        const struct ax_scatter_rows back = {dsrc, b->dout, b->rows};
        assert_int_equal(ax_run_scatter_rows(ref.q, &back), AX_OK);
        check(shapes[i].name, &src, &dsrc, combine_loss, &s);
        ax_case_free(&c);
    }
}

struct grouped {
    struct ax_grouped_gemm y;
    struct ax_tensor dy;
};

static double grouped_loss(void *context) {
    struct grouped *g = context;
    zero(&g->y.c); /* rows of no group */
    assert_int_equal(ax_run_grouped_gemm(ref.q, &g->y), AX_OK);
    return dot(&g->y.c, &g->dy);
}

static void grouped_gemm_is_a_linear_layer(void **state) {
    (void)state;
    int count;
    const struct ax_shape *shapes = ax_op_shapes(AX_OP_grouped_gemm, &count);
    for (int i = 0; i < count; i++) {
        if ((shapes[i].flags & AX_SHAPE_TRANS_B) == 0 || shapes[i].cols * shapes[i].inner > 2048)
            continue; /* large ones are for tiles: each element gets a difference of its own */
        struct ax_case c;
        pool_used = 0;
        case_open(&c, AX_OP_grouped_gemm, &shapes[i], AX_F64, &ref);
        struct grouped g = {.y = *(struct ax_grouped_gemm *)c.args};
        g.dy = like(&g.y.c);
        for (int64_t k = 0; k < ax_tensor_numel(&g.dy); k++)
            *address(&g.dy, k) = direction(9, k);
        struct ax_tensor dx = like(&g.y.a), dw = like(&g.y.b);
        zero(&dx);
        zero(&dw);
        const struct ax_grouped_gemm to_x = {
            .a = g.dy, .b = g.y.b, .c = dx, .offsets = g.y.offsets, .alpha = g.y.alpha};
        const struct ax_grouped_gemm to_w = {.a = g.dy,
                                             .b = g.y.a,
                                             .c = dw,
                                             .offsets = g.y.offsets,
                                             .trans_a = true,
                                             .alpha = g.y.alpha};
        assert_int_equal(ax_run_grouped_gemm(ref.q, &to_x), AX_OK);
        assert_int_equal(ax_run_grouped_gemm(ref.q, &to_w), AX_OK);
        check(shapes[i].name, &g.y.a, &dx, grouped_loss, &g);
        check(shapes[i].name, &g.y.b, &dw, grouped_loss, &g);
        ax_case_free(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(gemm_is_a_linear_layer, reset_pool),
        cmocka_unit_test_setup(embedding_gradient, reset_pool),
        cmocka_unit_test_setup(rmsnorm_gradients, reset_pool),
        cmocka_unit_test_setup(rope_inverse_is_the_transpose, reset_pool),
        cmocka_unit_test_setup(attention_gradients, reset_pool),
        cmocka_unit_test_setup(swiglu_gradient, reset_pool),
        cmocka_unit_test_setup(conv_gradients, reset_pool),
        cmocka_unit_test_setup(delta_gates_gradients, reset_pool),
        cmocka_unit_test_setup(softcap_gradient, reset_pool),
        cmocka_unit_test_setup(router_gradient, reset_pool),
        cmocka_unit_test_setup(balance_slope, reset_pool),
        cmocka_unit_test_setup(combine_gradients, reset_pool),
        cmocka_unit_test_setup(grouped_gemm_is_a_linear_layer, reset_pool),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
