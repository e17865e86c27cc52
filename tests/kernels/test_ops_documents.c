/* Attention over the shapes of the op list: a packed document gives the same bits as the document
 * alone; paged keys the same as plain ones; long rows agree with ref in their last queries and
 * keys. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "kernels/ops/attention.h"
#include "tests/kernels/machines.h"
#include "tests/skip.h"

static struct ax_attention *attention_of(const struct ax_case *c) {
    return c->op == AX_OP_attention_forward ? &((struct ax_attention_forward *)c->args)->a
                                            : &((struct ax_attention_backward *)c->args)->a;
}

static void expect_same_rows(const struct ax_case *c, const char *what, const struct ax_tensor *a,
                             const struct ax_tensor *b, const int32_t *bounds, int d) {
    struct ax_tensor rows_a = ax_tensor_rows(a, bounds[d], bounds[d + 1] - bounds[d]);
    struct ax_tensor rows_b = ax_tensor_rows(b, bounds[d], bounds[d + 1] - bounds[d]);
    if (!same_bits(&rows_a, &rows_b)) {
        fail_msg("%s \"%s\" %s: document %d has another %s when it is alone", ax_op_name(c->op),
                 c->shape->name, ax_dtype_info(c->dtype)->name, d, what);
    }
}

/* Runs document d of a fresh case alone and compares its rows with those of `packed`. */
static void check_document(const struct ax_case *packed, struct machine *m, int d) {
    struct ax_case alone;
    case_open(&alone, packed->op, packed->shape, packed->dtype, &ref);
    struct ax_attention *a = attention_of(&alone);
    const struct ax_attention *p = attention_of(packed);
    const int32_t *cu_q = p->cu_q.data, *cu_k = p->cu_k.data;
    a->cu_q = ax_tensor_rows(&a->cu_q, d, 2);
    a->cu_k = ax_tensor_rows(&a->cu_k, d, 2);
    if (a->block_table.data != NULL)
        a->block_table = ax_tensor_rows(&a->block_table, d, 1);
    case_run(&alone, m);
    if (packed->op == AX_OP_attention_forward) {
        expect_same_rows(packed, "out", &p->out, &a->out, cu_q, d);
        expect_same_rows(packed, "lse", &p->lse, &a->lse, cu_q, d);
    } else {
        const struct ax_attention_backward *x = packed->args, *y = alone.args;
        expect_same_rows(packed, "dq", &x->dq, &y->dq, cu_q, d);
        expect_same_rows(packed, "dk", &x->dk, &y->dk, cu_k, d);
        expect_same_rows(packed, "dv", &x->dv, &y->dv, cu_k, d);
    }
    ax_case_free(&alone);
}

static void check_documents(struct machine *m, enum ax_op op, const struct ax_shape *shape,
                            enum ax_dtype dtype) {
    struct ax_case packed;
    case_open(&packed, op, shape, dtype, &ref);
    case_run(&packed, m);
    for (int d = 0; d < shape->n_documents; d++)
        check_document(&packed, m, d);
    ax_case_free(&packed);
}

static void check_documents_everywhere(enum ax_op op, const struct ax_shape *shape,
                                       enum ax_dtype dtype) {
    if (op != AX_OP_attention_forward && op != AX_OP_attention_backward)
        return;
    if (shape->rows < 100)
        check_documents(&ref, op, shape, dtype);
    if (have_cpu())
        check_documents(&cpu, op, shape, dtype);
}

static void packed_documents_are_as_if_alone(void **state) {
    (void)state;
    for_each_case(false, check_documents_everywhere);
}

/* Copies the plain keys and values of p into the blocks that w's table names. */
static void fill_blocks(const struct ax_attention *w, const struct ax_attention *p) {
    const int32_t *cu_k = w->cu_k.data, *table = w->block_table.data;
    for (int64_t d = 0; d < w->block_table.shape[0]; d++) {
        for (int32_t j = 0; j < cu_k[d + 1] - cu_k[d]; j++) {
            int64_t block = table[d * w->block_table.shape[1] + j / w->block_size];
            int64_t row = block * w->block_size + j % w->block_size;
            struct ax_copy k = {ax_tensor_rows(&w->k, row, 1),
                                ax_tensor_rows(&p->k, cu_k[d] + j, 1)};
            struct ax_copy v = {ax_tensor_rows(&w->v, row, 1),
                                ax_tensor_rows(&p->v, cu_k[d] + j, 1)};
            assert_int_equal(ax_run_copy(ref.q, &k), AX_OK);
            assert_int_equal(ax_run_copy(ref.q, &v), AX_OK);
        }
    }
}

static void check_paged(struct machine *m, const struct ax_shape *shape, enum ax_dtype dtype) {
    struct ax_attention_options options = *(const struct ax_attention_options *)shape->options;
    options.block_size = 0;
    struct ax_shape plain_shape = *shape;
    plain_shape.options = &options;
    struct ax_case paged, plain;
    case_open(&paged, AX_OP_attention_forward, shape, dtype, &ref);
    case_open(&plain, AX_OP_attention_forward, &plain_shape, dtype, &ref);
    struct ax_attention *w = attention_of(&paged), *p = attention_of(&plain);
    p->q = w->q;
    p->sink = w->sink;
    fill_blocks(w, p);
    case_run(&paged, m);
    case_run(&plain, m);
    assert_true(same_bits(&w->out, &p->out));
    assert_true(same_bits(&w->lse, &p->lse));
    ax_case_free(&paged);
    ax_case_free(&plain);
}

static void paged_keys_are_plain_keys(void **state) {
    (void)state;
    int n, paged = 0;
    const struct ax_shape *shapes = ax_op_shapes(AX_OP_attention_forward, &n);
    for (int i = 0; i < n; i++) {
        const struct ax_attention_options *o = shapes[i].options;
        if (o == NULL || o->block_size == 0)
            continue;
        paged++;
        check_paged(&ref, &shapes[i], AX_F64);
        if (have_cpu()) {
            check_paged(&cpu, &shapes[i], AX_F32);
            check_paged(&cpu, &shapes[i], AX_BF16);
        }
    }
    assert_true(paged > 0);
}

#define LAST 4

/* The last queries of a causal document see all its keys, and its last keys are seen by the last
 * queries only: the reference needs no more than those to say what out, dq, dk and dv are there. */
static void cut_to_last_queries(struct ax_case *c, int32_t *cu_q, int32_t *cu_k) {
    struct ax_attention *a = attention_of(c);
    int64_t rows = a->q.shape[0];
    int64_t n = rows < LAST ? rows : LAST;
    cu_q[0] = 0;
    cu_q[1] = (int32_t)n;
    cu_k[0] = 0;
    cu_k[1] = (int32_t)a->max_k;
    a->q = ax_tensor_rows(&a->q, rows - n, n);
    a->out = ax_tensor_rows(&a->out, rows - n, n);
    a->lse = ax_tensor_rows(&a->lse, rows - n, n);
    a->cu_q = ax_tensor_1d(AX_I32, cu_q, 2);
    a->cu_k = ax_tensor_1d(AX_I32, cu_k, 2);
    if (c->op == AX_OP_attention_backward) {
        struct ax_attention_backward *b = c->args;
        b->dout = ax_tensor_rows(&b->dout, rows - n, n);
        b->dq = ax_tensor_rows(&b->dq, rows - n, n);
    }
}

/* Compares the n rows before row `end` of each. */
static void compare_rows(const struct ax_case *c, const char *name, const struct ax_tensor *got,
                         int64_t got_end, const struct ax_tensor *want, int64_t want_end,
                         int64_t n) {
    struct ax_tensor a = ax_tensor_rows(got, got_end - n, n);
    struct ax_tensor b = ax_tensor_rows(want, want_end - n, n);
    compare(c, name, &a, &b);
}

static void check_long(enum ax_op op, const struct ax_shape *shape, enum ax_dtype dtype) {
    bool attention = op == AX_OP_attention_forward || op == AX_OP_attention_backward;
    if (!attention || dtype == AX_F64)
        return;
    struct ax_case whole, part;
    int32_t cu_q[2], cu_k[2];
    case_open(&whole, op, shape, dtype, &cpu);
    case_open(&part, op, shape, dtype, &cpu);
    case_run(&whole, &cpu);
    cut_to_last_queries(&part, cu_q, cu_k);
    case_run(&part, &ref);
    const struct ax_attention *w = attention_of(&whole), *p = attention_of(&part);
    int64_t n = p->q.shape[0], rows = w->q.shape[0], keys = w->max_k;
    if (op == AX_OP_attention_forward) {
        compare_rows(&whole, "last out", &w->out, rows, &p->out, n, n);
        compare_rows(&whole, "last lse", &w->lse, rows, &p->lse, n, n);
    } else {
        const struct ax_attention_backward *x = whole.args, *y = part.args;
        compare_rows(&whole, "last dq", &x->dq, rows, &y->dq, n, n);
        compare_rows(&whole, "last dk", &x->dk, keys, &y->dk, keys, n);
        compare_rows(&whole, "last dv", &x->dv, keys, &y->dv, keys, n);
    }
    ax_case_free(&whole);
    ax_case_free(&part);
}

static void long_rows_agree_with_ref_at_their_end(void **state) {
    (void)state;
    if (!have_cpu())
        skip_because("hardware, AVX2");
    for_each_case(true, check_long);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_documents_are_as_if_alone),
        cmocka_unit_test(paged_keys_are_plain_keys),
        unit_test_if(!skips_big(), long_rows_agree_with_ref_at_their_end),
    };
    return cmocka_run_group_tests(tests, open_machines, close_machines);
}
