/* Products of 8-bit floats: what the stand-in for cuBLASLt refuses, as the library does, which GPUs have them, and what
 * a step multiplies by them. What they compute is test_ops's, and a training test_train's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "kernels/cuda/find.h"
#include "kernels/cuda/state.h"
#include "kernels/recording.h"
#include "tests/cuda/device_case.h"
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
                                .fp8 = true};
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
    assert_false(TAKES(k.fp8 = false)); /* without scales */
    assert_false(TAKES((k.trans_b = false, k.stride_b = 64)));
    assert_false(TAKES((k.trans_a = true, k.stride_a = 32)));
    assert_false(TAKES(k.k = 40));
    assert_false(TAKES(k.n = 56));
    assert_false(TAKES(k.stride_a = 56));
    assert_false(TAKES(k.stride_c = 68));
    assert_false(TAKES((k.type_c = AX_LT_REAL_32F, k.align_bias = 16)));
}

static void older_gpus_have_none(void **state) {
    (void)state;
    const struct ax_fp8_gemm any = {0};
    struct machine old;
    assert_true(ax_ops_cuda.supports(cuda.q, AX_OP_fp8_gemm, &any));
    setenv("AXTRAIN_EMULATED_CAPABILITY", "8", 1);
    machine_open(&old, "cuda", 1);
    assert_false(ax_ops_cuda.supports(old.q, AX_OP_fp8_gemm, &any));
    machine_close(&old);
    unsetenv("AXTRAIN_EMULATED_CAPABILITY");
    setenv("AXTRAIN_EMULATED_GPUS", "0", 1); /* a plan for a GPU that is not here */
    assert_int_equal(ax_cuda_capability(), 0);
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

/* ---- a step ---- */

#define LAYERS 3
#define PARTS  7 /* q, k, v, o, gate, up, down */

struct fp8_step {
    struct ax_arch arch;
    struct ax_scheme scheme;
    uint64_t products; /* of codes */
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
    ax_step_free(&s);
    return st;
}

/* Products of codes in a step of a model whose MLP is `width` wide. */
static uint64_t products_of(const char *backend, const char *recipe, int64_t width) {
    struct fp8_step f = {0};
    const struct ax_runtime_options o = {.backend = backend, .threads = 1};
    assert_int_equal(ax_fp8_recipe(recipe, false, &f.scheme), AX_OK);
    assert_int_equal(tiny_arch(&f.arch, "llama", true, ""), AX_OK);
    f.arch.intermediate_size = width;
    if (ax_runtime_run(&o, take_step, &f, NULL) != AX_OK)
        fail_msg("%s, %s: %s", backend, recipe, ax_error_text());
    ax_arch_free(&f.arch);
    return f.products;
}

/* y, dx and dW of each part of a layer's linears. */
static void steps_multiply_codes(void **state) {
    (void)state;
    assert_int_equal(products_of("cuda", "tensorwise", 80), 3 * LAYERS * PARTS);
    assert_int_equal(products_of("cuda", "tensorwise", 72), 3 * LAYERS * 4); /* q, k, v and o */
    assert_int_equal(products_of("cuda", "rowwise", 80), 0);
    assert_int_equal(products_of("cpu", "tensorwise", 80), 0);
    setenv("AXTRAIN_EMULATED_CAPABILITY", "8", 1);
    assert_int_equal(products_of("cuda", "tensorwise", 80), 0);
    unsetenv("AXTRAIN_EMULATED_CAPABILITY");
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_is_documented_is_taken), cmocka_unit_test(older_gpus_have_none),
        cmocka_unit_test(the_recorder_counts_them), cmocka_unit_test(steps_multiply_codes)};
    return cmocka_run_group_tests_name("cuda fp8", tests, open_machine, close_machine);
}
