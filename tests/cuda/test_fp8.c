/* Products of 8-bit floats: what the stand-in for cuBLASLt refuses, as the library does, which GPUs have them, and what
 * a step multiplies by them. What they compute is test_ops's, and a training test_train's. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "kernels/cuda/find.h"
#include "kernels/cuda/state.h"
#include "kernels/quant/quant_block.h"
#include "kernels/recording.h"
#include "model/core/fake_quant.h"
#include "tests/cuda/device_case.h"
#include "tests/kernels/range_case.h"
#include "tests/tiny.h"

static struct machine cuda;

/* y = x·Wᵀ of 32 rows, 48 inputs and 64 outputs. */
static struct ax_blas_key key_of(void) {
    return (struct ax_blas_key){.m = 32,
                                .n = 64,
                                .k = 48,
                                .stride_a = 48,
                                .stride_b = 48,
                                .stride_c = 64,
                                .stride_addend = 64,
                                .align_a = 16,
                                .align_b = 16,
                                .align_c = 16,
                                .align_addend = 16,
                                .type_a = AX_LT_REAL_8F_E4M3,
                                .type_b = AX_LT_REAL_8F_E4M3,
                                .type_c = AX_LT_REAL_16BF,
                                .trans_b = true,
                                .fp8 = AX_BLAS_ONE_SCALE};
}

static bool takes(const struct ax_blas_key *key) {
    struct ax_blas_plan *plan;
    const bool taken = ax_blas_find(ax_cuda_state(cuda.q)->blas, key, &plan) == AX_OK;
    ax_error_clear();
    return taken;
}
#define TAKES(change)                                                                              \
    ({                                                                                             \
        struct ax_blas_key k = key_of();                                                           \
        change;                                                                                    \
        takes(&k);                                                                                 \
    })

static void only_what_is_documented_is_taken(void **state) {
    (void)state;
    assert_true(TAKES((void)k));
    assert_true(TAKES(k.type_a = AX_LT_REAL_8F_E5M2));
    assert_true(TAKES(k.type_b = AX_LT_REAL_8F_E5M2));
    assert_true(TAKES(k.type_c = AX_LT_REAL_32F));
    assert_true(TAKES(k.m = 33));
    assert_false(TAKES(k.type_a = k.type_b = AX_LT_REAL_8F_E5M2));
    assert_false(TAKES(k.type_b = AX_LT_REAL_16BF));
    assert_false(TAKES(k.fp8 = 0)); /* without scales */
    assert_false(TAKES((k.trans_b = false, k.stride_b = 64)));
    assert_false(TAKES((k.trans_a = true, k.stride_a = 32)));
    assert_false(TAKES(k.k = 40));
    assert_false(TAKES(k.n = 56));
    assert_false(TAKES(k.stride_a = 56));
    assert_false(TAKES(k.stride_c = 68));
    assert_false(TAKES((k.type_c = AX_LT_REAL_32F, k.align_bias = 16)));
}

static void scales_of_rows_are_taken(void **state) {
    (void)state;
    assert_true(TAKES(k.fp8 = AX_BLAS_ROW_SCALES));
    assert_true(TAKES((k.fp8 = AX_BLAS_ROW_SCALES, k.type_a = AX_LT_REAL_8F_E5M2)));
    assert_true(TAKES((k.fp8 = AX_BLAS_ROW_SCALES, k.type_c = AX_LT_REAL_32F, k.m = 33)));
    assert_true(TAKES((k.fp8 = AX_BLAS_ROW_SCALES, k.align_bias = 16)));
    assert_false(TAKES((k.fp8 = AX_BLAS_ROW_SCALES, k.k = 40)));
    assert_false(
        TAKES((k.fp8 = AX_BLAS_ROW_SCALES, k.type_a = k.type_b = AX_LT_REAL_16BF))); /* no codes */
}

/* Products of codes that a queue says there are, of those with one scale for each operand and of rows; both if it
 * runs, and if it plans. */
static void expect_products(const char *variable, const char *value, bool by_one, bool by_rows) {
    const struct ax_fp8_gemm one = {0}, rows = {.b_scale = ax_tensor_1d(AX_F32, NULL, 16)};
    setenv(variable, value, 1);
    for (int plans = 0; plans < 2; plans++) {
        struct machine m;
        struct ax_queue *q;
        if (plans)
            assert_int_equal(ax_queue_create(&q, "meta", "cuda", 1, cuda.q->scratch), AX_OK);
        else
            machine_open(&m, "cuda", 1);
        const struct ax_queue *asked = plans ? q : m.q;
        assert_int_equal(ax_ops_cuda.supports(asked, AX_OP_fp8_gemm, &one), by_one);
        assert_int_equal(ax_ops_cuda.supports(asked, AX_OP_fp8_gemm, &rows), by_rows);
        if (plans)
            ax_queue_free(q);
        else
            machine_close(&m);
    }
    unsetenv(variable);
}

static void gpus_have_what_is_documented(void **state) {
    (void)state;
    const struct ax_fp8_gemm rows = {.b_scale = ax_tensor_1d(AX_F32, NULL, 16)};
    struct ax_queue *q;
    expect_products("AXTRAIN_EMULATED_CAPABILITY", "8", false, false);
    expect_products("AXTRAIN_EMULATED_CAPABILITY", "9", true, true);
    expect_products("AXTRAIN_EMULATED_CAPABILITY", "10", true, false);
    expect_products("AXTRAIN_EMULATED_ROW_SCALES", "0", true, false); /* the library refuses them */
    setenv("AXTRAIN_EMULATED_GPUS", "0", 1); /* a plan for a GPU that is not here */
    assert_int_equal(ax_queue_create(&q, "meta", "cuda", 1, cuda.q->scratch), AX_OK);
    assert_true(ax_ops_cuda.supports(q, AX_OP_fp8_gemm, &rows));
    ax_queue_free(q);
    unsetenv("AXTRAIN_EMULATED_GPUS");
}

/* The recorder says that a product is one of 8-bit floats, and of which size. */
static void the_recorder_counts_them(void **state) {
    (void)state;
    int n;
    struct ax_case c;
    struct ax_recording r = {0};
    case_open(&c, AX_OP_fp8_gemm, ax_op_shapes(AX_OP_fp8_gemm, &n), AX_BF16, &cuda);
    cuda.q->recording = &r;
    case_run_there(&c, &cuda);
    cuda.q->recording = NULL;
    const struct ax_fp8_gemm *g = c.args;
    assert_int_equal(r.n, 1);
    assert_true(r.events[0].op.fp8);
    assert_int_equal(r.events[0].op.m, g->c.shape[0]);
    assert_int_equal(r.events[0].op.n, g->c.shape[1]);
    assert_int_equal(r.events[0].op.k, g->a.shape[1]);
    assert_true(ax_queue_product_flops(&cuda.q->counters) >= r.events[0].op.flops);
    ax_recording_free(&r);
    ax_case_free(&c);
}

static void ops_leave_ranges(void **state) {
    (void)state;
    struct machine ref;
    machine_open(&ref, "ref", 1);
    check_ranges(&ref, &cuda, case_run_there);
    machine_close(&ref);
}

/* ---- operands ---- */

enum { ROWS = 13, USED = 11, COLS = 48, LONG = 16 };
struct operand {
    struct ax_fake_quant quant;
    float x[ROWS * COLS];
    float rows[ROWS * COLS], columns[ROWS * COLS]; /* values of x, for sums of either */
    unsigned char row_codes[ROWS * COLS], column_codes[COLS * LONG];
    float row_scales[ROWS], column_scales[COLS];
};

static enum ax_status make_operand(struct ax_runtime *rt, void *ctx) {
    struct operand *o = ctx;
    struct ax_stack *scratch = &rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    struct ax_fake_codes codes;
    const struct ax_tensor x = ax_stack_take(scratch, "x", ax_tensor_2d(AX_F32, NULL, ROWS, COLS));
    struct ax_tensor rows = x, columns = x;
    AX_TRY(ax_queue_write(rt->q, x.data, o->x, sizeof o->x));
    AX_TRY(ax_fake_quant_input(rt, &o->quant, AX_FAKE_ALL, AX_SUM_COLUMNS, &rows));
    AX_TRY(ax_fake_quant_input(rt, &o->quant, AX_FAKE_ALL, AX_SUM_ROWS, &columns));
    AX_TRY(ax_fake_quant_input_codes(rt, &o->quant, AX_FAKE_ALL, AX_CODES_ROWS | AX_CODES_COLUMNS,
                                     &x, &codes));
    const struct {
        const struct ax_tensor *from;
        void *to;
    } all[] = {{&rows, o->rows},
               {&columns, o->columns},
               {&codes.rows, o->row_codes},
               {&codes.columns, o->column_codes},
               {&codes.row_scale, o->row_scales},
               {&codes.column_scale, o->column_scales}};
    for (size_t i = 0; i < sizeof all / sizeof *all && !ax_runtime_planning(rt); i++)
        AX_TRY(
            ax_queue_read(rt->q, all[i].from->data, all[i].to, ax_tensor_bytes(all[i].from), NULL));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

/* A code times its scale is the value that the cpu multiplies, of each number, for either sum. */
static void codes_are_of_the_emulations_values(void **state) {
    (void)state;
    static const char *const recipes[] = {"tensorwise", "rowwise"};
    for (int by_rows = 0; by_rows < 2; by_rows++) {
        static struct operand cpu, gpu;
        assert_int_equal(ax_fp8_recipe(recipes[by_rows], false, &cpu.quant.scheme), AX_OK);
        cpu.quant.on = true;
        cpu.quant.used = USED;
        for (int i = 0; i < ROWS * COLS; i++)
            cpu.x[i] = ldexpf((float)(i * 37 % 101 - 50), -(i * 7 % 11));
        gpu = cpu;
        for (int i = 0; i < 2; i++) {
            const struct ax_runtime_options o = {.backend = i ? "cuda" : "ref", .threads = 1};
            assert_int_equal(ax_runtime_run(&o, make_operand, i ? &gpu : &cpu, NULL), AX_OK);
        }
        for (int i = 0; i < ROWS * COLS; i++) {
            const int r = i / COLS, c = i % COLS;
            const float row =
                ax_fp8_value(AX_QUANT_FP8, gpu.row_codes[i]) * gpu.row_scales[by_rows ? r : 0];
            const float column = ax_fp8_value(AX_QUANT_FP8, gpu.column_codes[c * LONG + r]) *
                                 gpu.column_scales[by_rows ? c : 0];
            assert_memory_equal(&row, &cpu.rows[i], sizeof row);
            assert_memory_equal(&column, &cpu.columns[i], sizeof column);
        }
        assert_memory_equal(gpu.row_codes, cpu.row_codes, sizeof gpu.row_codes);
        assert_memory_equal(gpu.column_codes, cpu.column_codes, sizeof gpu.column_codes);
    }
}

/* ---- a step ---- */

#define LAYERS  3
#define PARTS   7 /* q, k, v, o, gate, up, down */
#define LINEARS 4

struct fp8_step {
    struct ax_arch arch;
    struct ax_scheme scheme;
    uint64_t products; /* of codes */
    uint64_t ranges;   /* that no op left */
};

static enum ax_status take_step(struct ax_runtime *rt, void *ctx) {
    static const int64_t lengths[] = {9, 17, 5, 0};
    struct fp8_step *f = ctx;
    struct ax_step_options o = tiny_options(AX_F32, AX_RECOMPUTE_OFF, 1, lengths);
    struct ax_step s;
    double loss, norm;
    o.model.qat = &f->scheme;
    AX_TRY(ax_step_create(&s, rt, &f->arch, &o));
    enum ax_status st = ax_model_init_random(&s.model, 5);
    if (st == AX_OK)
        st = tiny_take_steps(&s, lengths, 1, &loss, &norm);
    f->products = rt->q->counters.launches[AX_OP_fp8_gemm];
    f->ranges = rt->q->counters.launches[AX_OP_quant_range];
    ax_step_free(&s);
    return st;
}

/* A step of a model whose MLP is `width` wide. */
static struct fp8_step step_of(const char *backend, const char *recipe, int64_t width) {
    struct fp8_step f = {0};
    const struct ax_runtime_options o = {.backend = backend, .threads = 1};
    assert_int_equal(ax_fp8_recipe(recipe, false, &f.scheme), AX_OK);
    assert_int_equal(tiny_arch(&f.arch, "llama", true, ""), AX_OK);
    f.arch.intermediate_size = width;
    if (ax_runtime_run(&o, take_step, &f, NULL) != AX_OK)
        fail_msg("%s, %s: %s", backend, recipe, ax_error_text());
    ax_arch_free(&f.arch);
    return f;
}

static uint64_t products_of(const char *backend, const char *recipe, int64_t width) {
    return step_of(backend, recipe, width).products;
}

/* y, dx and dW of each part of a layer's linears; where rows have scales, y and dW of those that read the same. */
static void steps_multiply_codes(void **state) {
    (void)state;
    assert_int_equal(products_of("cuda", "tensorwise", 80), 3 * LAYERS * PARTS);
    assert_int_equal(products_of("cuda", "tensorwise", 72), 3 * LAYERS * 4); /* q, k, v and o */
    assert_int_equal(products_of("cuda", "rowwise", 80), LAYERS * (LINEARS + PARTS + LINEARS));
    assert_int_equal(products_of("cuda", "rowwise", 72), LAYERS * (2 + 4 + 2));
    assert_int_equal(products_of("cpu", "tensorwise", 80), 0);
    assert_int_equal(products_of("cpu", "rowwise", 80), 0);
    setenv("AXTRAIN_EMULATED_CAPABILITY", "8", 1);
    assert_int_equal(products_of("cuda", "tensorwise", 80), 0);
    setenv("AXTRAIN_EMULATED_CAPABILITY", "10", 1);
    assert_int_equal(products_of("cuda", "tensorwise", 80), 3 * LAYERS * PARTS);
    assert_int_equal(products_of("cuda", "rowwise", 80), 0);
    unsetenv("AXTRAIN_EMULATED_CAPABILITY");
    setenv("AXTRAIN_EMULATED_ROW_SCALES", "0", 1);
    assert_int_equal(products_of("cuda", "rowwise", 80), 0);
    unsetenv("AXTRAIN_EMULATED_ROW_SCALES");
}

/* Of each matrix, of attention's output, and of the gradients of q, k, v and of both branches. */
static void few_ranges_are_found(void **state) {
    (void)state;
    assert_int_equal(step_of("cuda", "tensorwise", 80).ranges, LAYERS * (PARTS + 1 + 3 + 2));
}

static int open_machine(void **state) {
    (void)state;
    machine_open(&cuda, "cuda", 1);
    return 0;
}

static int close_machine(void **state) {
    (void)state;
    machine_close(&cuda);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(only_what_is_documented_is_taken),
                                       cmocka_unit_test(scales_of_rows_are_taken),
                                       cmocka_unit_test(gpus_have_what_is_documented),
                                       cmocka_unit_test(codes_are_of_the_emulations_values),
                                       cmocka_unit_test(the_recorder_counts_them),
                                       cmocka_unit_test(ops_leave_ranges),
                                       cmocka_unit_test(steps_multiply_codes),
                                       cmocka_unit_test(few_ranges_are_found)};
    return cmocka_run_group_tests_name("cuda fp8", tests, open_machine, close_machine);
}
