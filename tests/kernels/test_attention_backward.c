/* Attention backward of the cpu backend: against the formulas and against finite differences of the
 * forward formula, both in double; and that bits depend on a document alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/kernels/attention_case.h"
#include "tests/skip.h"
#include "tests/long.h"

static const struct spec SPECS[] = {
    {"one block", 1, {40}, {40}, HEADS(2, 2, 64)},
    {"grouped heads", 1, {200}, {200}, HEADS(9, 3, 64)},
    {"short documents", 7, {1, 0, 2, 65, 7, 64, 0}, {1, 0, 2, 65, 7, 64, 3}, HEADS(6, 2, 16)},
    {"odd rows", 2, {33, 31}, {33, 31}, HEADS(7, 1, 80)},
    {"many heads to one", 1, {5}, {70}, HEADS(401, 1, 16)},
    {"more keys", 3, {1, 3, 70}, {130, 64, 131}, HEADS(3, 1, 64)},
    {"more queries", 2, {90, 5}, {20, 0}, HEADS(4, 2, 24)},
    {"window 1", 1, {70}, {70}, HEADS(2, 1, 32), .window = 1},
    {"window 50", 2, {300, 9}, {300, 80}, HEADS(4, 2, 64), .window = 50},
    {"all keys", 2, {70, 3}, {90, 130}, HEADS(2, 1, 24), .not_causal = true},
    {"head size 128", 1, {130}, {130}, HEADS(4, 2, 128)},
    {"head size 256", 1, {110}, {110}, HEADS(2, 1, 256)},
    {"odd head size", 1, {70}, {70}, HEADS(2, 1, 33)},
    {"small values", 2, {70, 9}, {70, 33}, HEADS(6, 2, 48), .value_dim = 32},
    {"192 and 128", 1, {150}, {150}, HEADS(4, 2, 192), .value_dim = 128, .window = 90},
    {"odd values", 1, {70}, {70}, HEADS(2, 1, 24), .value_dim = 9},
    {"large values", 1, {70}, {70}, HEADS(2, 1, 9), .value_dim = 40},
    {"two parts, small values", 1, {2100}, {2100}, HEADS(1, 1, 16), .value_dim = 8},
    {"two parts, window", 2, {2050, 10}, {2060, 10}, HEADS(1, 1, 8), .window = 40},
    {"two parts", 1, {2100}, {2100}, HEADS(1, 1, 8)},
};
#define N_SPECS (sizeof(SPECS) / sizeof(SPECS[0]))
static const enum ax_dtype DTYPES[] = {AX_F32, AX_BF16};

/* Stored out and lse are the naive ones, so that this checks backward alone. */
static void store_forward(const struct attention_case *c, const struct naive *n) {
    const struct ax_attention *a = &c->args.a;
    int64_t len = ax_tensor_row_len(&a->out);
    for (int64_t i = 0; i < c->cu_q[c->spec.docs] * len; i++)
        ax_store(a->out.dtype, a->out.data, i / len * a->out.row_stride + i % len, n->out[i]);
    for (int64_t i = 0; i < (int64_t)c->cu_q[c->spec.docs] * c->spec.q_heads; i++) {
        int64_t at = i / c->spec.q_heads * a->lse.row_stride + i % c->spec.q_heads;
        ax_store(AX_F32, a->lse.data, at, n->lse[i]);
    }
}

struct expected {
    struct attention_case c;
    struct naive n;
};

/* BF16: out (in δ), p, ds and the result are rounded to 8 bits, and a sum over m rows has terms
 * larger than itself. */
static void check_backward(const struct ax_ops *ops, const void *context) {
    const struct expected *e = context;
    const struct ax_attention_backward *args = &e->c.args;
    run_backward(ops, &e->c, 2);
    bool bf16 = args->a.q.dtype == AX_BF16;
    double relative = bf16 ? 0x1p-8 : 1e-5;
    double absolute = bf16 ? 0x1p-7 : 2e-6;
    compare(&e->c, "dq", &args->dq, e->n.dq, relative, absolute);
    compare(&e->c, "dk", &args->dk, e->n.dk, relative, absolute);
    compare(&e->c, "dv", &args->dv, e->n.dv, relative, absolute);
}

static void check_case(const struct spec *spec, enum ax_dtype dtype) {
    struct expected e;
    case_open(&e.c, spec, dtype);
    naive_open(&e.n, &e.c);
    naive_run(&e.n, &e.c, true);
    store_forward(&e.c, &e.n);
    for_each_isa(check_backward, &e);
    naive_close(&e.n);
    case_close(&e.c);
}

static void backward_follows_the_formula(void **state) {
    (void)state;
    for (size_t i = 0; i < N_SPECS * 2; i++)
        check_case(&SPECS[i / 2], DTYPES[i % 2]);
}

/* Of keys that are all before the queries, most of these see none: the first by far more than a block of keys. */
static void keys_out_of_sight_have_no_gradient(void **state) {
    (void)state;
    static const struct spec far = {"far keys",   2,          {300, 9}, {20, 40}, HEADS(2, 1, 16),
                                    .window = 30, .ahead = 15};
    for (int i = 0; i < 2; i++)
        check_case(&far, DTYPES[i]);
}

static double loss(struct naive *n, const struct attention_case *c) {
    naive_run(n, c, false);
    return inner(n->out, n->dout,
                 (int64_t)c->cu_q[c->spec.docs] * c->spec.q_heads * c->spec.value_dim);
}

/* (loss(x + h) − loss(x − h)) / 2h of every 7th input is the gradient. */
static void check_slope(struct naive *n, const struct attention_case *c, double *x, int64_t count,
                        const struct ax_tensor *gradient) {
    const double h = 1e-4;
    int64_t len = ax_tensor_row_len(gradient);
    for (int64_t i = 0; i < count; i += 7) {
        double middle = x[i];
        x[i] = middle + h;
        double slope = loss(n, c);
        x[i] = middle - h;
        slope = (slope - loss(n, c)) / (2 * h);
        x[i] = middle;
        double g = ax_load(AX_F32, gradient->data, i / len * gradient->row_stride + i % len);
        assert_true(fabs(g - slope) <= 1e-6 * (1 + fabs(slope)));
    }
}

static void check_differences(const struct ax_ops *ops, const void *context) {
    const struct attention_case *c = context;
    run_forward(ops, c, 1);
    run_backward(ops, c, 1);
    struct naive n;
    naive_open(&n, c);
    int64_t q = (int64_t)c->cu_q[c->spec.docs] * c->spec.q_heads * c->spec.head_dim;
    int64_t k = (int64_t)c->cu_k[c->spec.docs] * c->spec.kv_heads * c->spec.head_dim;
    check_slope(&n, c, n.q, q, &c->args.dq);
    check_slope(&n, c, n.k, k, &c->args.dk);
    check_slope(&n, c, n.v, k / c->spec.head_dim * c->spec.value_dim, &c->args.dv);
    naive_close(&n);
}

static void gradients_are_finite_differences(void **state) {
    (void)state;
    static const struct spec specs[] = {
        {"causal", 2, {9, 4}, {9, 7}, HEADS(4, 2, 10)},
        {"window", 1, {20}, {20}, HEADS(2, 1, 8), .window = 5},
        {"small values", 1, {12}, {14}, HEADS(4, 2, 11), .value_dim = 5},
        {"all keys", 1, {6}, {11}, HEADS(3, 1, 8), .not_causal = true},
    };
    for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++) {
        struct attention_case c;
        case_open(&c, &specs[i], AX_F32);
        for_each_isa(check_differences, &c);
        case_close(&c);
    }
}

/* dq, dk and dv as they are now, in memory of their own. */
struct copies {
    struct ax_tensor dq, dk, dv;
};

static struct ax_tensor copy(const struct ax_tensor *t) {
    struct ax_tensor to = *t;
    size_t bytes = (size_t)(t->shape[0] * t->row_stride) * ax_dtype_size(t->dtype);
    assert_int_equal(ax_alloc(&to.data, bytes, 1), AX_OK);
    memcpy(to.data, t->data, bytes);
    return to;
}

static struct copies copies_of(const struct attention_case *c) {
    return (struct copies){copy(&c->args.dq), copy(&c->args.dk), copy(&c->args.dv)};
}

static void copies_free(struct copies *x) {
    ax_free(x->dq.data);
    ax_free(x->dk.data);
    ax_free(x->dv.data);
}

static void assert_same(const struct attention_case *c, const struct copies *x) {
    assert_same_rows("dq", &c->args.dq, 0, &x->dq, 0, c->cu_q[c->spec.docs]);
    assert_same_rows("dk", &c->args.dk, 0, &x->dk, 0, c->cu_k[c->spec.docs]);
    assert_same_rows("dv", &c->args.dv, 0, &x->dv, 0, c->cu_k[c->spec.docs]);
}

/* Backward of each document in a call of its own. */
static void run_alone(const struct ax_ops *ops, const struct attention_case *c) {
    for (int d = 0; d < c->spec.docs; d++) {
        struct attention_case one = *c;
        struct ax_attention_backward *b = &one.args;
        struct ax_tensor *of_q[] = {&b->a.q, &b->a.out, &b->a.lse, &b->dout, &b->dq};
        struct ax_tensor *of_k[] = {&b->a.k, &b->a.v, &b->dk, &b->dv};
        for (size_t i = 0; i < sizeof(of_q) / sizeof(of_q[0]); i++)
            *of_q[i] = ax_tensor_rows(of_q[i], c->cu_q[d], c->spec.n_q[d]);
        for (size_t i = 0; i < sizeof(of_k) / sizeof(of_k[0]); i++)
            *of_k[i] = ax_tensor_rows(of_k[i], c->cu_k[d], c->spec.n_k[d]);
        one.cu_q[1] = c->spec.n_q[d];
        one.cu_k[1] = c->spec.n_k[d];
        b->a.cu_q = ax_tensor_1d(AX_I32, one.cu_q, 2);
        b->a.cu_k = ax_tensor_1d(AX_I32, one.cu_k, 2);
        b->a.max_q = c->spec.n_q[d];
        b->a.max_k = c->spec.n_k[d];
        run_backward(ops, &one, 1);
    }
}

static void check_bits(const struct ax_ops *ops, const void *context) {
    const struct attention_case *c = context;
    run_forward(ops, c, 2);
    run_backward(ops, c, 1);
    struct copies first = copies_of(c);
    for (int threads = 2; threads <= 4; threads += 2) {
        run_backward(ops, c, threads);
        assert_same(c, &first);
    }
    run_alone(ops, c);
    assert_same(c, &first);
    copies_free(&first);
}

static void bits_depend_on_the_document_alone(void **state) {
    (void)state;
    for (size_t i = 0; i < N_SPECS * 2; i++) {
        struct attention_case c;
        case_open(&c, &SPECS[i / 2], DTYPES[i % 2]);
        for_each_isa(check_bits, &c);
        case_close(&c);
    }
}

/* Tiles of the processor against tiles in plain C, forward and backward. */
static void hardware_tiles_have_the_bits_of_emulated_ones(void **state) {
    (void)state;
    if (!ax_cpu_has(AX_CPU_AMX))
        skip_because("hardware, AMX");
    for (size_t i = 0; i < N_SPECS; i++) {
        struct attention_case c;
        case_open(&c, &SPECS[i], AX_BF16);
        run_forward(ax_cpu_ops(AX_CPU_AMX_EMULATED), &c, 2);
        run_backward(ax_cpu_ops(AX_CPU_AMX_EMULATED), &c, 2);
        struct copies emulated = copies_of(&c);
        struct ax_tensor out = copy(&c.args.a.out);
        run_forward(ax_cpu_ops(AX_CPU_AMX), &c, 2);
        run_backward(ax_cpu_ops(AX_CPU_AMX), &c, 2);
        assert_same_rows("out", &c.args.a.out, 0, &out, 0, c.cu_q[c.spec.docs]);
        assert_same(&c, &emulated);
        copies_free(&emulated);
        ax_free(out.data);
        case_close(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        LONG_TEST(cmocka_unit_test(backward_follows_the_formula)),
        cmocka_unit_test(keys_out_of_sight_have_no_gradient),
        cmocka_unit_test(gradients_are_finite_differences),
        LONG_TEST(cmocka_unit_test(bits_depend_on_the_document_alone)),
        LONG_TEST(cmocka_unit_test(hardware_tiles_have_the_bits_of_emulated_ones)),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
