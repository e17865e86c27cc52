/* What the cases of ops promise (kernels/ops): the tests of all ops are as strong as their inputs, so
 * indices reach where they should, padding is some rows and not all, and no code is a NaN. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/quant/scheme.h"
#include "tests/kernels/harness.h"

typedef void see_case(const struct ax_case *c);

/* Every small shape of an op. */
static void each(enum ax_op op, see_case *see) {
    int n;
    const struct ax_shape *shapes = ax_op_shapes(op, &n);
    for (int i = 0; i < n; i++) {
        struct ax_case c;
        if (shapes[i].big)
            continue;
        assert_int_equal(ax_case_create(&c, op, &shapes[i], AX_F32, 11), AX_OK);
        see(&c);
        ax_case_free(&c);
    }
}

static bool is_padded(const struct ax_case *c) {
    return (c->shape->flags & AX_SHAPE_PADDING) != 0;
}

static int32_t i32_at(const struct ax_tensor *t, int64_t i) {
    return ((const int32_t *)t->data)[i];
}

/* Of `around` ids on either side of [first, first + n) all occur, where around is not 0. */
static void check_ids(const struct ax_tensor *ids, int64_t first, int64_t n, int64_t around) {
    bool low = false, high = false;
    for (int64_t i = 0; i < ax_tensor_numel(ids); i++) {
        const int64_t id = i32_at(ids, i) - first;
        assert_true(id >= -around && id < n + around);
        low = low || id < 0;
        high = high || id >= n;
    }
    assert_true(around == 0 || (low && high));
}

/* Of a shard, or of a table of n rows, where tokens from `known` on have no row of their own. */
static void check_tokens(const struct ax_tensor *tokens, int64_t first, int64_t n, int64_t known) {
    bool beyond = known == 0;
    assert_true(known == 0 || (known == n && first == 0));
    for (int64_t i = 0; i < ax_tensor_numel(tokens); i++)
        beyond = beyond || i32_at(tokens, i) > n;
    assert_true(beyond);
    if (known == 0)
        check_ids(tokens, first, n, first > 0);
}

static void see_embedding_forward(const struct ax_case *c) {
    const struct ax_embedding_forward *a = c->args;
    check_tokens(&a->tokens, a->first_row, a->weight.shape[0], a->known);
}

static void see_embedding_backward(const struct ax_case *c) {
    const struct ax_embedding_backward *a = c->args;
    check_tokens(&a->tokens, a->first_row, a->dweight.shape[0], a->known);
}

static void see_group_rows(const struct ax_case *c) {
    const struct ax_group_rows *a = c->args;
    check_ids(&a->keys, a->first, a->counts.shape[0], is_padded(c) ? 2 : 0);
}

static void ids_reach_beyond_a_shard(void **state) {
    (void)state;
    each(AX_OP_embedding_forward, see_embedding_forward);
    each(AX_OP_embedding_backward, see_embedding_backward);
    each(AX_OP_group_rows, see_group_rows);
}

static int padded;

/* The first rows are tokens, a fourth is padding. */
static int64_t tokens_of(const struct ax_case *c, int64_t rows) {
    padded += is_padded(c);
    return is_padded(c) ? rows - rows / 4 : rows;
}

static void see_router_forward(const struct ax_case *c) {
    const struct ax_router_forward *a = c->args;
    const int64_t rows = a->logits.shape[0], tokens = tokens_of(c, rows);
    assert_int_equal(a->valid.data != NULL, is_padded(c));
    if (is_padded(c))
        assert_int_equal(i32_at(&a->valid, 0) - a->first, tokens);
}

/* Distinct experts, all of them used where there are rows enough; none for padding. */
static void see_router_backward(const struct ax_case *c) {
    const struct ax_router_backward *a = c->args;
    const int64_t rows = a->probs.shape[0], n = a->probs.shape[1], k = a->dweights.shape[1];
    const int64_t tokens = tokens_of(c, rows);
    bool used[64] = {false};
    int64_t n_used = 0;
    assert_true(n <= 64);
    for (int64_t t = 0; t < rows; t++)
        for (int64_t i = 0; i < k; i++) {
            const int32_t expert = i32_at(&a->experts, t * k + i);
            if (t >= tokens) {
                assert_int_equal(expert, -1);
                continue;
            }
            assert_in_range(expert, 0, n - 1);
            for (int64_t j = 0; j < i; j++)
                assert_int_not_equal(expert, i32_at(&a->experts, t * k + j));
            n_used += !used[expert];
            used[expert] = true;
        }
    assert_true(n_used > k || tokens == 1 || n == k);
}

static void routers_choose_as_a_model_does(void **state) {
    (void)state;
    padded = 0;
    each(AX_OP_router_forward, see_router_forward);
    each(AX_OP_router_backward, see_router_backward);
    assert_true(padded >= 3);
}

/* Codes of all bits, or of four; in FP8 1111111, with either sign, is a NaN, which equals every
 * other, and so is what is above 1111011 in E5M2. */
static void see_dequantize(const struct ax_case *c) {
    const struct ax_dequantize *a = c->args;
    const unsigned char *codes = a->codes.data;
    const int64_t n = ax_tensor_numel(&a->codes);
    unsigned seen = 0;
    for (int64_t i = 0; i < n; i++) {
        seen |= codes[i];
        assert_true(a->kind != AX_QUANT_FP8 || (codes[i] & 127) != 127);
        assert_true(a->kind != AX_QUANT_E5M2 || (codes[i] & 127) <= 123);
    }
    assert_true(n < 100 || seen == 255 || seen == 15);
}

static bool has_case[AX_QUANT_COUNT];

static void see_quantize(const struct ax_case *c) {
    has_case[((const struct ax_quantize *)c->args)->kind] = true;
}

/* Shapes name formats one by one, and a format that none names would be in no test. */
static void formats_have_cases(void **state) {
    (void)state;
    each(AX_OP_quantize, see_quantize);
    for (int kind = 0; kind < AX_QUANT_COUNT; kind++)
        if (!has_case[kind])
            fail_msg("no shape of quantize has %s", ax_quant_info((enum ax_quant)kind)->name);
}

static void codes_are_numbers(void **state) {
    (void)state;
    each(AX_OP_dequantize, see_dequantize);
}

static void see_adamw(const struct ax_case *c) {
    const struct ax_adamw *a = c->args;
    assert_true(0 < a->beta1 && a->beta1 < a->beta2 && a->beta2 < 1);
}

static void see_lion(const struct ax_case *c) {
    const struct ax_lion *a = c->args;
    assert_true(0 < a->beta1 && a->beta1 < a->beta2 && a->beta2 < 1);
}

static void moments_have_weights_of_their_own(void **state) {
    (void)state;
    each(AX_OP_adamw, see_adamw);
    each(AX_OP_lion, see_lion);
}

/* An operand of a type that no op takes there breaks the op's rules: integers for floats, floats for
 * all else. fill and copy take any. */
static void types_of_operands_are_checked(void **state) {
    (void)state;
    int checked = 0;
    for (int op = 0; op < AX_OP_COUNT; op++) {
        int n;
        const struct ax_shape *shapes = ax_op_shapes((enum ax_op)op, &n);
        for (int i = 0; i < n; i++) {
            struct ax_case c;
            if (shapes[i].big || op == AX_OP_fill || op == AX_OP_copy)
                continue;
            assert_int_equal(ax_case_create(&c, (enum ax_op)op, &shapes[i], AX_F32, 11), AX_OK);
            assert_null(ax_op_broken_rule(c.op, c.args));
            for (const struct ax_operand *o = ax_op_operands(c.op); o->name; o++) {
                struct ax_tensor *t = ax_operand_tensor(o, c.args);
                const enum ax_dtype was = t->dtype;
                if (!t->data)
                    continue;
                t->dtype = was == AX_F32 || was == AX_BF16 || was == AX_F64 ? AX_I32 : AX_F64;
                if (!ax_op_broken_rule(c.op, c.args))
                    fail_msg("%s \"%s\": %s may be %s", ax_op_name(c.op), shapes[i].name, o->name,
                             ax_dtype_info(t->dtype)->name);
                t->dtype = was;
                checked++;
            }
            ax_case_free(&c);
        }
    }
    assert_true(checked > 500);
}

/* Of a fresh case's memory every byte is 0xff; some operands of one number are 0. */
static bool has_values(const struct ax_tensor *t) {
    const unsigned char *bytes = t->data;
    const size_t n = ax_tensor_bytes(t), one = ax_dtype_info(t->dtype)->size;
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != 0xff && (n == one || bytes[i] != bytes[0]))
            return true;
    return false;
}

/* Every operand is in some case, also those that may be missing, and what an op reads has values
 * there. */
static void all_operands_occur(void **state) {
    (void)state;
    static const enum ax_dtype dtypes[] = {AX_F32, AX_BF16};
    struct machine ref;
    machine_open(&ref, "ref", 1);
    for (int op = 0; op < AX_OP_COUNT; op++) {
        int n;
        const struct ax_shape *shapes = ax_op_shapes((enum ax_op)op, &n);
        for (const struct ax_operand *o = ax_op_operands((enum ax_op)op); o->name; o++) {
            bool occurs = false;
            for (int i = 0; i < 2 * n && !occurs; i++) {
                struct ax_case c;
                if (shapes[i / 2].big)
                    continue;
                case_open(&c, (enum ax_op)op, &shapes[i / 2], dtypes[i % 2], &ref);
                const struct ax_tensor *t = ax_operand_tensor(o, c.args);
                occurs = t->data && (o->use == AX_OPERAND_OUT || has_values(t));
                ax_case_free(&c);
            }
            if (!occurs)
                fail_msg("%s: no case has values in %s", ax_op_name((enum ax_op)op), o->name);
        }
    }
    machine_close(&ref);
}

/* Tests, and `bench ops` on a cpu, see no huge shape: what ax_op_shapes gives has none. */
static void huge_shapes_are_apart(void **state) {
    (void)state;
    int all = 0;
    for (int op = 0; op < AX_OP_COUNT; op++) {
        int n, n_huge;
        const struct ax_shape *shapes = ax_op_shapes((enum ax_op)op, &n);
        const struct ax_shape *huge = ax_op_huge_shapes((enum ax_op)op, &n_huge);
        assert_true(n > 0);
        for (int i = 0; i < n; i++)
            assert_false(shapes[i].huge);
        for (int i = 0; i < n_huge; i++)
            assert_true(huge[i].huge && !huge[i].big);
        all += n_huge;
    }
    assert_true(all > 0);
}

/* A huge shape itself takes seconds and gigabytes, but its op's rules hold for as few of its rows and
 * columns as well. */
static void huge_shapes_obey_the_rules(void **state) {
    (void)state;
    for (int op = 0; op < AX_OP_COUNT; op++) {
        int n;
        const struct ax_shape *shapes = ax_op_huge_shapes((enum ax_op)op, &n);
        for (int i = 0; i < n; i++) {
            struct ax_shape few = shapes[i];
            struct ax_case c;
            few.rows = few.rows > 16 ? 16 : few.rows;
            few.cols = few.cols > 48 ? 48 : few.cols;
            few.inner = few.inner > 128 ? 128 : few.inner;
            assert_int_equal(ax_case_create(&c, (enum ax_op)op, &few, AX_BF16, 11), AX_OK);
            const char *rule = ax_op_broken_rule(c.op, c.args);
            if (rule)
                fail_msg("%s \"%s\": %s", ax_op_name(c.op), few.name, rule);
            ax_case_free(&c);
        }
    }
}

/* Its numbers are those of the same shape that is not huge, until they repeat, row by row; what lies
 * between rows is as in any case. */
static void huge_operands_repeat_themselves(void **state) {
    (void)state;
    const struct ax_shape plain = {"plain", .rows = 3000, .cols = 700, .pad = 12};
    struct ax_shape huge = plain;
    struct ax_case c, h;
    huge.huge = true;
    assert_int_equal(ax_case_create(&c, AX_OP_copy, &plain, AX_BF16, 11), AX_OK);
    assert_int_equal(ax_case_create(&h, AX_OP_copy, &huge, AX_BF16, 11), AX_OK);
    const struct ax_tensor *drawn = &((struct ax_copy *)c.args)->src;
    const struct ax_tensor *src = &((struct ax_copy *)h.args)->src;
    int64_t period = 1;
    const size_t row = (size_t)drawn->row_stride * ax_dtype_size(drawn->dtype);
    while (period < plain.rows && memcmp(ax_tensor_row(src, period), src->data, row) != 0)
        period++;
    assert_true(period * plain.cols >= 1000000 && period < plain.rows / 2);
    for (int64_t r = 0; r < plain.rows; r++)
        assert_memory_equal(ax_tensor_row(src, r), ax_tensor_row(drawn, r % period), row);
    const size_t end = (size_t)((char *)ax_tensor_row(src, plain.rows) - h.memory);
    assert_memory_equal(h.memory + end, c.memory + end, c.bytes - end);
    ax_case_free(&h);
    ax_case_free(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_reach_beyond_a_shard),
        cmocka_unit_test(routers_choose_as_a_model_does),
        cmocka_unit_test(formats_have_cases),
        cmocka_unit_test(codes_are_numbers),
        cmocka_unit_test(moments_have_weights_of_their_own),
        cmocka_unit_test(types_of_operands_are_checked),
        cmocka_unit_test(all_operands_occur),
        cmocka_unit_test(huge_shapes_are_apart),
        cmocka_unit_test(huge_shapes_obey_the_rules),
        cmocka_unit_test(huge_operands_repeat_themselves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
