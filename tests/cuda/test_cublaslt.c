/* The stand-in for cuBLASLt refuses what the library's documentation does: each case is a product that it takes, with one
 * thing changed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cuda/gemm/cublaslt.h"
#include "kernels/cuda/libraries.h"
#include "kernels/cuda/state.h"
#include "tests/kernels/harness.h"

#define N     64 /* rows, columns and terms */
#define BYTES ((size_t)2 * N * N * sizeof(float))

static struct ax_cublaslt lt;
static struct machine m;
static char AX_DEVICE *a, *b, *c, *d, *work, *scales;

/* A product, all of it numbers, so that a case is one with some of them changed. */
struct product {
    int64_t unchanged; /* of changes that there are not */
    int64_t compute, type_a, type_b, type_c, type_d, trans_a, trans_b;
    int64_t stride_a, stride_c, stride_d;
    int64_t k, later_k; /* terms for the heuristic, and for the product; 0: k, too */
    int64_t bias, unscaled;
    int64_t mode_a, mode_b, at_scale; /* of scales; bytes behind B's */
    int64_t at_a, at_c; /* bytes behind a, and of C behind D; NOT_D: it is elsewhere */
    int64_t overwrites; /* beta is 0 */
};
#define NOT_D (-1)

static const struct product bf16 = {.compute = AX_LT_COMPUTE_32F,
                                    .type_a = AX_LT_REAL_16BF,
                                    .type_b = AX_LT_REAL_16BF,
                                    .type_c = AX_LT_REAL_16BF,
                                    .type_d = AX_LT_REAL_16BF,
                                    .stride_a = N,
                                    .stride_c = N,
                                    .stride_d = N,
                                    .k = N,
                                    .at_c = NOT_D};
static const struct product fp8 = {.compute = AX_LT_COMPUTE_32F,
                                   .type_a = AX_LT_REAL_8F_E4M3,
                                   .type_b = AX_LT_REAL_8F_E4M3,
                                   .type_c = AX_LT_REAL_16BF,
                                   .type_d = AX_LT_REAL_16BF,
                                   .trans_a = AX_LT_OP_T,
                                   .stride_a = N,
                                   .stride_c = N,
                                   .stride_d = N,
                                   .k = N,
                                   .at_c = NOT_D};

static const struct product rows = {.compute = AX_LT_COMPUTE_32F,
                                    .type_a = AX_LT_REAL_8F_E4M3,
                                    .type_b = AX_LT_REAL_8F_E4M3,
                                    .type_c = AX_LT_REAL_16BF,
                                    .type_d = AX_LT_REAL_16BF,
                                    .trans_a = AX_LT_OP_T,
                                    .stride_a = N,
                                    .stride_c = N,
                                    .stride_d = N,
                                    .k = N,
                                    .mode_a = AX_LT_SCALE_OUTER,
                                    .mode_b = AX_LT_SCALE_OUTER,
                                    .at_c = NOT_D};

static void made(unsigned status) {
    assert_int_equal(status, AX_LT_OK);
}

static void set(ax_lt_desc desc, unsigned attribute, const void *value, size_t bytes) {
    made(lt.MatmulDescSetAttribute(desc, attribute, value, bytes));
}

static void describe(const struct product *p, ax_lt_desc *desc) {
    const uint32_t epilogue = AX_LT_EPILOGUE_BIAS;
    const int32_t trans_a = (int32_t)p->trans_a, trans_b = (int32_t)p->trans_b;
    made(lt.MatmulDescCreate(desc, (unsigned)p->compute, AX_LT_REAL_32F));
    set(*desc, AX_LT_DESC_TRANSA, &trans_a, sizeof trans_a);
    set(*desc, AX_LT_DESC_TRANSB, &trans_b, sizeof trans_b);
    if (p->bias) {
        set(*desc, AX_LT_DESC_EPILOGUE, &epilogue, sizeof epilogue);
        set(*desc, AX_LT_DESC_BIAS_POINTER, &scales, sizeof scales);
    }
    if (!p->unscaled) {
        const char AX_DEVICE *of_b = scales + p->at_scale;
        set(*desc, AX_LT_DESC_A_SCALE, &scales, sizeof scales);
        set(*desc, AX_LT_DESC_B_SCALE, &of_b, sizeof of_b);
    }
    if (p->mode_a || p->mode_b) {
        const int32_t of_a = (int32_t)p->mode_a, of_b = (int32_t)p->mode_b;
        set(*desc, AX_LT_DESC_A_SCALE_MODE, &of_a, sizeof of_a);
        set(*desc, AX_LT_DESC_B_SCALE_MODE, &of_b, sizeof of_b);
    }
}

static void lay_out(const struct product *p, int64_t k, ax_lt_layout *l) {
    const uint64_t terms = (uint64_t)k;
    made(lt.MatrixLayoutCreate(&l[0], (unsigned)p->type_a, p->trans_a ? terms : N,
                               p->trans_a ? N : terms, p->stride_a));
    made(lt.MatrixLayoutCreate(&l[1], (unsigned)p->type_b, p->trans_b ? N : terms,
                               p->trans_b ? terms : N, N));
    made(lt.MatrixLayoutCreate(&l[2], (unsigned)p->type_c, N, N, p->stride_c));
    made(lt.MatrixLayoutCreate(&l[3], (unsigned)p->type_d, N, N, p->stride_d));
}

/* The first status that is not AX_LT_OK: of the heuristic, or of the product. */
static unsigned status_of(const struct product *p) {
    const float one = 1, beta = p->overwrites ? 0 : 1;
    ax_lt_desc desc;
    ax_lt_layout l[4], later[4];
    ax_lt_preference wishes;
    ax_lt_choice found;
    int n;
    describe(p, &desc);
    lay_out(p, p->k, l);
    lay_out(p, p->later_k ? p->later_k : p->k, later);
    made(lt.MatmulPreferenceCreate(&wishes));
    unsigned status =
        lt.MatmulAlgoGetHeuristic(NULL, desc, l[0], l[1], l[2], l[3], wishes, 1, &found, &n);
    if (status == AX_LT_OK)
        status = lt.Matmul(NULL, desc, &one, a + p->at_a, later[0], b, later[1], &beta,
                           p->at_c == NOT_D ? c : d + p->at_c, later[2], d, later[3], &found.algo,
                           work, 0, ax_cuda_stream(m.q));
    made(lt.MatmulPreferenceDestroy(wishes));
    for (int i = 0; i < 4; i++) {
        made(lt.MatrixLayoutDestroy(l[i]));
        made(lt.MatrixLayoutDestroy(later[i]));
    }
    made(lt.MatmulDescDestroy(desc));
    return status;
}

#define CHANGES 3
struct change {
    size_t member;
    int64_t value;
};
#define TO(member, value)                                                                          \
    { offsetof(struct product, member), (value) }

static const struct {
    const char *name;
    unsigned status;
    const struct product *of;
    struct change changes[CHANGES];
} cases[] = {
    {"bfloat16", AX_LT_OK, &bf16, {{0}}},
    {"a bias", AX_LT_OK, &bf16, {TO(bias, 1)}},
    {"by TF32", AX_LT_INVALID_VALUE, &bf16, {TO(compute, AX_LT_COMPUTE_32F_FAST_TF32)}},
    {"C of another type than D", AX_LT_INVALID_VALUE, &bf16, {TO(type_c, AX_LT_REAL_32F)}},
    {"A of another type than B", AX_LT_INVALID_VALUE, &bf16, {TO(type_a, AX_LT_REAL_32F)}},
    {"rows that overlap", AX_LT_INVALID_VALUE, &bf16, {TO(stride_a, N - 1)}},
    {"in place", AX_LT_OK, &bf16, {TO(at_c, 0)}},
    {"in place, strides differ", AX_LT_INVALID_VALUE, &bf16, {TO(at_c, 0), TO(stride_c, 2 * N)}},
    {"C overlaps D", AX_LT_INVALID_VALUE, &bf16, {TO(at_c, 256)}},
    {"C overlaps D, unread", AX_LT_OK, &bf16, {TO(at_c, 256), TO(overwrites, 1)}},
    {"an address not as promised", AX_LT_INVALID_VALUE, &bf16, {TO(at_a, 16)}},
    {"no memory of the device", AX_LT_INVALID_VALUE, &bf16, {TO(at_a, (int64_t)1 << 40)}},
    {"fewer terms", AX_LT_OK, &bf16, {TO(later_k, N - 8)}},
    {"fewer terms of another class", AX_LT_NOT_SUPPORTED, &bf16, {TO(later_k, N - 1)}},
    {"8 bits", AX_LT_OK, &fp8, {{0}}},
    {"8 bits, a bias", AX_LT_OK, &fp8, {TO(bias, 1)}},
    {"8 bits to float32", AX_LT_OK, &fp8, {TO(type_c, AX_LT_REAL_32F), TO(type_d, AX_LT_REAL_32F)}},
    {"8 bits to float32, a bias",
     AX_LT_INVALID_VALUE,
     &fp8,
     {TO(type_c, AX_LT_REAL_32F), TO(type_d, AX_LT_REAL_32F), TO(bias, 1)}},
    {"E5M2 by E4M3", AX_LT_OK, &fp8, {TO(type_a, AX_LT_REAL_8F_E5M2)}},
    {"E5M2 by E5M2",
     AX_LT_INVALID_VALUE,
     &fp8,
     {TO(type_a, AX_LT_REAL_8F_E5M2), TO(type_b, AX_LT_REAL_8F_E5M2)}},
    {"8 bits by bfloat16", AX_LT_INVALID_VALUE, &fp8, {TO(type_b, AX_LT_REAL_16BF)}},
    {"8 bits, not aᵀ·b", AX_LT_INVALID_VALUE, &fp8, {TO(trans_a, AX_LT_OP_N)}},
    {"8 bits, 56 terms", AX_LT_INVALID_VALUE, &fp8, {TO(k, N - 8)}},
    {"8 bits, a stride of 72", AX_LT_INVALID_VALUE, &fp8, {TO(stride_a, N + 8)}},
    {"8 bits without scales", AX_LT_INVALID_VALUE, &fp8, {TO(unscaled, 1)}},
    {"8 bits by rows", AX_LT_OK, &rows, {{0}}},
    {"8 bits by rows, a bias", AX_LT_OK, &rows, {TO(bias, 1)}},
    {"8 bits by rows to float32",
     AX_LT_OK,
     &rows,
     {TO(type_c, AX_LT_REAL_32F), TO(type_d, AX_LT_REAL_32F)}},
    {"8 bits by rows, E4M3 by E5M2", AX_LT_OK, &rows, {TO(type_b, AX_LT_REAL_8F_E5M2)}},
    {"8 bits by rows of A alone", AX_LT_INVALID_VALUE, &rows, {TO(mode_b, AX_LT_SCALE_ONE)}},
    {"8 bits by rows of B alone", AX_LT_INVALID_VALUE, &rows, {TO(mode_a, AX_LT_SCALE_ONE)}},
    {"8 bits by another mode", AX_LT_INVALID_VALUE, &rows, {TO(mode_a, 4), TO(mode_b, 4)}},
    {"8 bits by rows, 56 terms", AX_LT_INVALID_VALUE, &rows, {TO(k, N - 8)}},
    {"8 bits by rows, not aᵀ·b", AX_LT_INVALID_VALUE, &rows, {TO(trans_a, AX_LT_OP_N)}},
    {"8 bits by rows without scales", AX_LT_INVALID_VALUE, &rows, {TO(unscaled, 1)}},
    {"scales at 4 bytes", AX_LT_INVALID_VALUE, &rows, {TO(at_scale, 4)}},
    {"bfloat16 by rows",
     AX_LT_INVALID_VALUE,
     &bf16,
     {TO(mode_a, AX_LT_SCALE_OUTER), TO(mode_b, AX_LT_SCALE_OUTER)}},
};

static struct product changed(const struct product *of, const struct change *changes) {
    struct product p = *of;
    for (int i = 0; i < CHANGES; i++)
        memcpy((char *)&p + changes[i].member, &changes[i].value, sizeof changes[i].value);
    return p;
}

static void products_are_refused_as_documented(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct product p = changed(cases[i].of, cases[i].changes);
        const unsigned got = status_of(&p);
        assert_int_equal(ax_queue_finish(m.q), AX_OK);
        if (got != cases[i].status)
            fail_msg("%s: %u, expected %u", cases[i].name, got, cases[i].status);
    }
}

/* Scales of rows are documented for compute capability 9.0 alone. */
static void other_gpus_have_one_scale(void **state) {
    (void)state;
    setenv("AXTRAIN_EMULATED_CAPABILITY", "10", 1);
    assert_int_equal(status_of(&rows), AX_LT_NOT_SUPPORTED);
    assert_int_equal(status_of(&fp8), AX_LT_OK);
    unsetenv("AXTRAIN_EMULATED_CAPABILITY");
    assert_int_equal(ax_queue_finish(m.q), AX_OK);
}

/* Each row has one, or none is read. */
static void scales_end_with_the_rows(void **state) {
    (void)state;
    enum { PAGE = 4096 };
    char AX_DEVICE *const whole = scales;
    void *page;
    assert_int_equal(cudaMalloc(&page, PAGE), cudaSuccess);
    scales = (char AX_DEVICE *)page + PAGE - (N - 4) * sizeof(float);
    assert_int_equal(status_of(&rows), AX_LT_INVALID_VALUE);
    assert_int_equal(status_of(&fp8), AX_LT_OK);
    assert_int_equal(ax_queue_finish(m.q), AX_OK);
    scales = whole;
    assert_int_equal(cudaFree(page), cudaSuccess);
}

/* A kernel that this process has not launched is loaded first, which a capture forbids. */
static void captures_launch_what_has_run(void **state) {
    (void)state;
    struct product p = bf16;
    p.trans_a = p.trans_b = AX_LT_OP_T; /* as no other product here */
    cudaGraph_t graph;
    const cudaStream_t stream = ax_cuda_stream(m.q);
    assert_int_equal(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    assert_int_not_equal(status_of(&p), AX_LT_OK);
    assert_int_not_equal(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    assert_int_equal(status_of(&p), AX_LT_OK);
    assert_int_equal(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    assert_int_equal(status_of(&p), AX_LT_OK);
    assert_int_equal(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    assert_int_equal(cudaGraphDestroy(graph), cudaSuccess);
}

static int set_up(void **state) {
    (void)state;
    const struct ax_symbol symbols[] = {
#define ROW(result, name, parameters) {"cublasLt" #name, &lt.name},
        AX_CUBLASLT_FUNCTIONS(ROW)
#undef ROW
    };
    machine_open(&m, "cuda", 1);
    char AX_DEVICE **const all[] = {&a, &b, &c, &d, &work, &scales};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        *all[i] = ax_stack_push(m.q->scratch, "matrix", BYTES);
    return ax_cuda_library_open(AX_CUBLASLT_FILE, "", symbols, sizeof symbols / sizeof *symbols) ==
                   AX_OK
               ? 0
               : -1;
}

static int tear_down(void **state) {
    (void)state;
    machine_close(&m);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_refused_as_documented),
        cmocka_unit_test(other_gpus_have_one_scale),
        cmocka_unit_test(scales_end_with_the_rows),
        cmocka_unit_test(captures_launch_what_has_run),
    };
    return cmocka_run_group_tests_name("cublaslt's stand-in", tests, set_up, tear_down);
}
