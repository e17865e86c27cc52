/* Attention forward of the cpu backend against the formula in double, on every instruction set this
 * machine has; and that a row's bits depend on nothing but its own document. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/operands.h"
#include "tests/kernels/attention_case.h"
#include "tests/long.h"

static const struct spec SPECS[] = {
    {"one block", 1, {40}, {40}, HEADS(2, 2, 64)},
    {"grouped heads", 1, {200}, {200}, HEADS(9, 3, 64)},
    {"short documents", 7, {1, 0, 2, 65, 7, 64, 0}, {1, 0, 2, 65, 7, 64, 0}, HEADS(6, 2, 16)},
    {"one KV head", 2, {33, 30}, {33, 30}, HEADS(7, 1, 80)},
    {"many heads to one", 1, {5}, {70}, HEADS(200, 1, 16)},
    {"cached", 4, {1, 3, 1, 70}, {130, 64, 1, 131}, HEADS(3, 1, 64)},
    {"more queries than keys", 2, {90, 5}, {20, 0}, HEADS(4, 2, 24)},
    {"window 1", 1, {70}, {70}, HEADS(2, 1, 32), .window = 1},
    {"window 50", 2, {300, 9}, {300, 80}, HEADS(4, 2, 64), .window = 50},
    {"window 128, cached", 2, {2, 65}, {400, 300}, HEADS(2, 2, 48), .window = 128},
    {"all keys", 2, {70, 3}, {90, 130}, HEADS(2, 1, 24), .not_causal = true},
    {"head size 128", 1, {130}, {130}, HEADS(4, 2, 128)},
    {"head size 256", 1, {70}, {70}, HEADS(2, 1, 256)},
    {"odd head size", 1, {70}, {70}, HEADS(2, 1, 33)},
    {"tiny head size", 1, {70}, {70}, HEADS(2, 1, 1)},
    {"small values", 2, {70, 9}, {70, 33}, HEADS(6, 2, 48), .value_dim = 32},
    {"192 and 128", 1, {150}, {150}, HEADS(4, 2, 192), .value_dim = 128, .window = 90},
    {"odd values", 1, {70}, {70}, HEADS(2, 1, 24), .value_dim = 9},
    {"large values", 1, {70}, {70}, HEADS(2, 1, 9), .value_dim = 40},
    {"large logits", 1, {100}, {100}, HEADS(2, 1, 64), .gain = 300},
};
#define N_SPECS (sizeof(SPECS) / sizeof(SPECS[0]))
static const enum ax_dtype DTYPES[] = {AX_F32, AX_BF16};

struct expected {
    struct attention_case c;
    struct naive n;
};

/* F32: rounding of sums, and of logits up to |s|·2⁻²³ in the exponent. BF16: p and out are rounded
 * to 8 bits (AVX512-BF16), each by half an ulp at most. */
static void check_forward(const struct ax_ops *ops, const void *context) {
    const struct expected *e = context;
    run_forward(ops, &e->c, 2);
    double logit = e->c.spec.gain > 0 ? e->c.spec.gain : 1;
    bool bf16 = e->c.args.a.q.dtype == AX_BF16;
    compare(&e->c, "out", &e->c.args.a.out, e->n.out, bf16 ? 0x1p-8 : 1e-6,
            (bf16 ? 0x1p-9 : 0) + 1e-6 * logit);
    compare(&e->c, "lse", &e->c.args.a.lse, e->n.lse, 1e-6, 1e-6);
}

static void forward_follows_the_formula(void **state) {
    (void)state;
    for (size_t i = 0; i < N_SPECS * 2; i++) {
        struct expected e;
        case_open(&e.c, &SPECS[i / 2], DTYPES[i % 2]);
        naive_open(&e.n, &e.c);
        naive_run(&e.n, &e.c, false);
        for_each_isa(check_forward, &e);
        naive_close(&e.n);
        case_close(&e.c);
    }
}

/* What a run wrote, and the memory that has it. */
struct results {
    struct ax_tensor out, lse;
};

static struct ax_tensor copy_of(const struct ax_tensor *t) {
    const size_t n = (size_t)(t->shape[0] * t->row_stride) * ax_dtype_size(t->dtype);
    struct ax_tensor copy = *t;
    assert_int_equal(ax_alloc(&copy.data, n, 1), AX_OK);
    memcpy(copy.data, t->data, n);
    return copy;
}

static struct results keep_results(const struct attention_case *c) {
    return (struct results){copy_of(&c->args.a.out), copy_of(&c->args.a.lse)};
}

/* The first n rows are those of now. */
static void assert_same_results(const char *what, const struct attention_case *c,
                                const struct results *r, int64_t n) {
    assert_same_rows(what, &c->args.a.out, 0, &r->out, 0, n);
    assert_same_rows(what, &c->args.a.lse, 0, &r->lse, 0, n);
}

static void free_results(struct results *r) {
    ax_free(r->out.data);
    ax_free(r->lse.data);
}

static void check_threads(const struct ax_ops *ops, const void *context) {
    const struct attention_case *c = context;
    run_forward(ops, c, 1);
    struct results one = keep_results(c);
    for (int threads = 2; threads <= 4; threads += 2) {
        run_forward(ops, c, threads);
        assert_same_results(c->spec.name, c, &one, one.out.shape[0]);
    }
    free_results(&one);
}

static void threads_do_not_show(void **state) {
    (void)state;
    for (size_t i = 0; i < N_SPECS * 2; i++) {
        struct attention_case c;
        case_open(&c, &SPECS[i / 2], DTYPES[i % 2]);
        for_each_isa(check_threads, &c);
        case_close(&c);
    }
}

/* The arguments of queries from … from + n − 1 of one document alone, over the keys up to theirs.
 */
static struct attention_case part(const struct attention_case *c, int doc, int32_t from,
                                  int32_t n) {
    struct attention_case one = *c;
    struct ax_attention *a = &one.args.a;
    int32_t n_k = c->spec.n_k[doc] - (c->spec.n_q[doc] - from - n);
    one.cu_q[1] = n;
    one.cu_k[1] = n_k > 0 ? n_k : 0;
    a->q = ax_tensor_rows(&a->q, c->cu_q[doc] + from, n);
    a->out = ax_tensor_rows(&a->out, c->cu_q[doc] + from, n);
    a->lse = ax_tensor_rows(&a->lse, c->cu_q[doc] + from, n);
    a->k = ax_tensor_rows(&a->k, c->cu_k[doc], one.cu_k[1]);
    a->v = ax_tensor_rows(&a->v, c->cu_k[doc], one.cu_k[1]);
    a->max_q = n;
    a->max_k = one.cu_k[1];
    return one;
}

static void run_part(const struct ax_ops *ops, struct attention_case *one) {
    one->args.a.cu_q = ax_tensor_1d(AX_I32, one->cu_q, 2);
    one->args.a.cu_k = ax_tensor_1d(AX_I32, one->cu_k, 2);
    run_forward(ops, one, 1);
}

static void check_alone(const struct ax_ops *ops, const void *context) {
    const struct attention_case *c = context;
    const int64_t rows = c->cu_q[c->spec.docs];
    run_forward(ops, c, 2);
    struct results packed = keep_results(c);
    for (int d = 0; d < c->spec.docs; d++) {
        struct attention_case one = part(c, d, 0, c->spec.n_q[d]);
        run_part(ops, &one);
    }
    assert_same_results("documents alone", c, &packed, rows);
    /* Query by query, as decoding with a cache does. (Without a mask they would see fewer keys.) */
    for (int d = 0; d < c->spec.docs && !c->spec.not_causal; d++) {
        for (int32_t i = 0; i < c->spec.n_q[d]; i++) {
            struct attention_case one = part(c, d, i, 1);
            run_part(ops, &one);
        }
    }
    assert_same_results("decoded", c, &packed, rows);
    free_results(&packed);
}

static void packed_alone_and_decoded_rows_are_equal(void **state) {
    (void)state;
    for (size_t i = 0; i < N_SPECS * 2; i++) {
        struct attention_case c;
        case_open(&c, &SPECS[i / 2], DTYPES[i % 2]);
        for_each_isa(check_alone, &c);
        case_close(&c);
    }
}

struct two_cases {
    struct attention_case packed, paged;
};

static void check_paged(const struct ax_ops *ops, const void *context) {
    const struct two_cases *t = context;
    run_forward(ops, &t->packed, 2);
    run_forward(ops, &t->paged, 2);
    assert_same_rows("paged out", &t->paged.args.a.out, 0, &t->packed.args.a.out, 0,
                     t->packed.args.a.out.shape[0]);
    assert_same_rows("paged lse", &t->paged.args.a.lse, 0, &t->packed.args.a.lse, 0,
                     t->packed.args.a.lse.shape[0]);
}

static void block_tables_move_keys_only(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 16, 100};
    for (size_t i = 0; i < N_SPECS * 2; i++) {
        struct two_cases t;
        struct spec spec = SPECS[i / 2];
        case_open(&t.packed, &spec, DTYPES[i % 2]);
        spec.block_size = sizes[i / 2 % 3];
        case_open(&t.paged, &spec, DTYPES[i % 2]);
        for_each_isa(check_paged, &t);
        case_close(&t.packed);
        case_close(&t.paged);
    }
}

/* Answers to the same prompts: document d has its first SHARED[d] blocks of 16 keys from document FROM[d]. */
static const struct spec ANSWERS[] = {
    {"answers",
     8,
     {1, 1, 2, 1, 1, 1, 1, 1},
     {230, 200, 131, 129, 65, 64, 300, 290},
     HEADS(9, 3, 64)},
    {"answers and a prompt",
     8,
     {1, 3, 0, 70, 1, 1, 5, 9},
     {150, 147, 0, 198, 130, 66, 250, 202},
     HEADS(4, 2, 128)},
    {"answers in latents",
     8,
     {1, 1, 1, 1, 1, 1, 1, 1},
     {150, 147, 140, 130, 129, 66, 250, 202},
     HEADS(16, 1, 192),
     .value_dim = 128},
    {"as many queries as fit", 3, {40, 55, 1}, {200, 210, 190}, HEADS(4, 2, 64)},
    {"answers in windows",
     8,
     {1, 1, 1, 1, 1, 1, 1, 1},
     {150, 147, 140, 130, 129, 66, 250, 202},
     HEADS(2, 2, 48),
     .window = 70},
};
static const int SHARED[MAX_DOCS] = {0, 9, 8, 8, 8, 4, 0, 12};
static const int FROM[][MAX_DOCS] = {{0, 0, 1, 2, 3, 4, 5, 6}, {0, 0, 0, 0, 1, 1, 0, 6}};

static void check_shared(const struct ax_ops *ops, const void *context) {
    const struct attention_case *c = context;
    for (int threads = 1; threads <= 2; threads++) {
        run_forward(ops, c, threads);
        struct results all = keep_results(c);
        for (int d = 0; d < c->spec.docs; d++) {
            struct attention_case one = part(c, d, 0, c->spec.n_q[d]);
            one.args.a.k = c->args.a.k;
            one.args.a.v = c->args.a.v;
            one.args.a.block_table = ax_tensor_rows(&c->args.a.block_table, d, 1);
            run_part(ops, &one);
        }
        assert_same_results("answers alone", c, &all, c->cu_q[c->spec.docs]);
        free_results(&all);
    }
}

static void keys_in_the_same_blocks_do_not_show(void **state) {
    (void)state;
    const size_t n = sizeof ANSWERS / sizeof *ANSWERS;
    for (size_t i = 0; i < n * 8; i++) {
        struct attention_case c;
        struct spec spec = ANSWERS[i / 8];
        float sinks[16];
        spec.block_size = 16;
        case_open(&c, &spec, DTYPES[i % 2]);
        for (int d = 1; d < spec.docs; d++)
            memcpy(ax_tensor_row(&c.args.a.block_table, d),
                   ax_tensor_row(&c.args.a.block_table, FROM[i % 8 / 4][d]),
                   (size_t)SHARED[d] * sizeof(int32_t));
        for (int h = 0; h < spec.q_heads; h++)
            sinks[h] = (float)h / 8 - 1;
        if (i % 4 > 1)
            c.args.a.sink = ax_tensor_1d(AX_F32, sinks, spec.q_heads);
        for_each_isa(check_shared, &c);
        case_close(&c);
    }
}

/* A row that sees one key returns its value; equal keys give the mean of values; nothing overflows.
 */
static void check_exact(const struct ax_ops *ops, const void *context) {
    const struct attention_case *c = context;
    const struct ax_attention *a = &c->args.a;
    run_forward(ops, c, 1);
    for (int64_t i = 0; i < 64; i++)
        assert_true(ax_load(a->out.dtype, a->out.data, i) == ax_load(a->v.dtype, a->v.data, i));
    for (int64_t t = 0; t < c->cu_q[1]; t++) {
        double lse = ax_load(AX_F32, a->lse.data, t * a->lse.row_stride);
        assert_true(isfinite(lse) && fabs(lse) > 1e20);
    }
}

static void huge_logits_stay_finite(void **state) {
    (void)state;
    struct spec spec = {"huge logits", 1, {90}, {90}, HEADS(1, 1, 64), .gain = 1e30, .scale = 1};
    for (size_t i = 0; i < 2; i++) {
        struct attention_case c;
        case_open(&c, &spec, DTYPES[i]);
        for_each_isa(check_exact, &c);
        case_close(&c);
    }
}

static void check_nan(const struct ax_ops *ops, const void *context) {
    const struct attention_case *c = context;
    const struct ax_attention *a = &c->args.a;
    run_forward(ops, c, 1);
    for (int64_t t = 0; t < c->cu_q[1]; t++) {
        double out = ax_load(a->out.dtype, a->out.data, t * a->out.row_stride);
        double lse = ax_load(AX_F32, a->lse.data, t * a->lse.row_stride);
        assert_true(t < 20 ? !isnan(out) && !isnan(lse) : isnan(out) && isnan(lse));
    }
}

/* A NaN among the keys must reach the rows that see it, or divergence would go unnoticed. */
static void nan_is_not_hidden(void **state) {
    (void)state;
    struct spec spec = {"nan", 1, {40}, {40}, HEADS(1, 1, 16)};
    for (size_t i = 0; i < 2; i++) {
        struct attention_case c;
        case_open(&c, &spec, DTYPES[i]);
        ax_store(DTYPES[i], ax_tensor_row(&c.args.a.k, 20), 3, (double)NAN);
        for_each_isa(check_nan, &c);
        case_close(&c);
    }
}

static void check_declined(const struct ax_ops *ops, const void *context) {
    const struct attention_case *c = context;
    struct ax_queue q = {.ops = ops, .model = ops, .threads = 1};
    struct ax_attention_forward f = {.a = c->args.a};
    struct ax_attention_backward b = {.a = c->args.a};
    assert_true(ops->supports(&q, AX_OP_attention_forward, &f));
    assert_true(ops->supports(&q, AX_OP_attention_backward, &b));
    f.a.q.shape[2] = 577; /* DeepSeek's latents have 576, which only forward attends to */
    assert_false(ops->supports(&q, AX_OP_attention_forward, &f));
    b.a.q.shape[2] = 257;
    assert_false(ops->supports(&q, AX_OP_attention_backward, &b));
    f.a.q.shape[2] = 576;
    assert_true(ops->supports(&q, AX_OP_attention_forward, &f));
    f.a.q.shape[2] = 64;
    f.a.q.dtype = AX_F64;
    assert_false(ops->supports(&q, AX_OP_attention_forward, &f));
}

static void what_it_cannot_do_is_declined(void **state) {
    (void)state;
    struct attention_case c;
    case_open(&c, &SPECS[0], AX_BF16);
    for_each_isa(check_declined, &c);
    case_close(&c);
}

/* Each part of the contract, broken by itself, is named. */
static void the_contract_is_checked(void **state) {
    (void)state;
    static float sink[4];
    static int32_t table[8];
    static const struct spec spec = {"contract", 2, {5, 3}, {5, 3}, HEADS(4, 2, 16)};
    struct attention_case c;
    case_open(&c, &spec, AX_BF16);
    const struct ax_attention good = c.args.a;
    const int64_t keys = good.k.shape[0];
    struct ax_attention_forward f = {.a = good};
    struct ax_attention *a = &f.a;
#define HOLDS(...)                                                                                 \
    (*a = good, (void)(__VA_ARGS__), assert_null(ax_op_broken_rule(AX_OP_attention_forward, &f)))
#define BREAKS(part, ...)                                                                          \
    do {                                                                                           \
        *a = good;                                                                                 \
        __VA_ARGS__;                                                                               \
        const char *rule = ax_op_broken_rule(AX_OP_attention_forward, &f);                         \
        if (!rule || !strstr(rule, part))                                                          \
            fail_msg("%s: \"%s\"", #__VA_ARGS__, rule ? rule : "no rule");                         \
    } while (0)
    HOLDS((void)0);
    HOLDS(a->max_q = a->max_k = 0);
    HOLDS(a->window = 1);
    HOLDS(a->causal = false);
    HOLDS(a->sink = ax_tensor_1d(AX_F32, sink, 4));
    HOLDS(a->block_table = ax_tensor_2d(AX_I32, table, 2, 4), a->block_size = keys);
    HOLDS(a->q.row_stride = 4 * 16);
    BREAKS("max_q", a->max_q = -1);
    BREAKS("max_k", a->max_k = -1);
    BREAKS("window", a->window = -1);
    BREAKS("causal", a->window = 1, a->causal = false);
    BREAKS("q.ndim", a->q.ndim = 2);
    BREAKS("k.ndim", a->k.ndim = 2);
    BREAKS("real(&a->q)", a->q.dtype = AX_I32);
    BREAKS("&a->q", a->q.row_stride = 4 * 16 - 1);
    BREAKS("&a->k", a->k.dtype = AX_F32);
    BREAKS("&a->k", a->k.shape[2]++);
    BREAKS("&a->v", a->v.shape[0]++);
    BREAKS("&a->v", a->v.shape[1]++);
    BREAKS("&a->v", a->v.data = NULL);
    BREAKS("&a->out", a->out.shape[1]--);
    BREAKS("&a->out", a->out.dtype = AX_F32);
    BREAKS("kv_heads", a->k.shape[1] = a->v.shape[1] = 3);
    BREAKS("kv_heads", a->k.shape[1] = a->v.shape[1] = 0);
    BREAKS("&a->lse", a->lse.dtype = AX_BF16);
    BREAKS("&a->lse", a->lse.shape[1]++);
    BREAKS("&a->cu_q", a->cu_q.shape[0] = 0);
    BREAKS("&a->cu_q", a->cu_q.dtype = AX_F32);
    BREAKS("&a->cu_k", a->cu_k.shape[0]++);
    BREAKS("&a->sink", a->sink = ax_tensor_1d(AX_F32, sink, 3));
    BREAKS("&a->sink", a->sink = ax_tensor_1d(AX_BF16, sink, 4));
    BREAKS("block_size", a->block_table = ax_tensor_2d(AX_I32, table, 2, 4));
    BREAKS("block_size", a->block_table = ax_tensor_2d(AX_I32, table, 2, 4),
           a->block_size = keys - 1);
    BREAKS("table", a->block_table = ax_tensor_2d(AX_I32, table, 3, 1), a->block_size = keys);
#undef HOLDS
#undef BREAKS
    case_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        LONG_TEST(cmocka_unit_test(forward_follows_the_formula)),
        LONG_TEST(cmocka_unit_test(threads_do_not_show)),
        LONG_TEST(cmocka_unit_test(packed_alone_and_decoded_rows_are_equal)),
        LONG_TEST(cmocka_unit_test(block_tables_move_keys_only)),
        LONG_TEST(cmocka_unit_test(keys_in_the_same_blocks_do_not_show)),
        cmocka_unit_test(huge_logits_stay_finite),
        cmocka_unit_test(nan_is_not_hidden),
        cmocka_unit_test(what_it_cannot_do_is_declined),
        cmocka_unit_test(the_contract_is_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
