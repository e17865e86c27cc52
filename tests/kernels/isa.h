/* What the tests of kernels/cpu/vec share: every instruction set's entries, called directly (the op
 * tables hold one set per machine only), and tensors that are laid out awkwardly on purpose.
 * Include after cmocka.h. */
#ifndef AX_TESTS_KERNELS_ISA_H
#define AX_TESTS_KERNELS_ISA_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/queue.h"
#include "tests/skip.h"

#define POINTWISE_OPS(X)                                                                           \
    X(fill)                                                                                        \
    X(copy)                                                                                        \
    X(add)                                                                                         \
    X(transpose)                                                                                   \
    X(colsum)                                                                                      \
    X(embedding_forward)                                                                           \
    X(embedding_backward)                                                                          \
    X(rmsnorm_forward)                                                                             \
    X(rmsnorm_backward)                                                                            \
    X(center)                                                                                      \
    X(match_rms_forward)                                                                           \
    X(match_rms_backward)                                                                          \
    X(sparsify_forward)                                                                            \
    X(sparsify_backward)                                                                           \
    X(rope)                                                                                        \
    X(conv_forward)                                                                                \
    X(conv_backward)                                                                               \
    X(delta_gates_forward)                                                                         \
    X(delta_gates_backward)                                                                        \
    X(delta_forward)                                                                               \
    X(delta_backward)                                                                              \
    X(ssd_gates_forward)                                                                           \
    X(ssd_gates_backward)                                                                          \
    X(scatter_rows)                                                                                \
    X(swiglu_forward)                                                                              \
    X(swiglu_backward)                                                                             \
    X(relu2_forward)                                                                               \
    X(relu2_backward)                                                                              \
    X(softmax_stats)                                                                               \
    X(softmax_merge)                                                                               \
    X(softmax_backward)                                                                            \
    X(nll_loss)                                                                                    \
    X(scatter_topk)                                                                                \
    X(support_logits)                                                                              \
    X(tail_logits)                                                                                 \
    X(divergence)                                                                                  \
    X(divergence_merge)                                                                            \
    X(distill_loss)                                                                                \
    X(distill_backward)                                                                            \
    X(argmax)                                                                                      \
    X(top_entropy)                                                                                 \
    X(top_logits)                                                                                  \
    X(sumsq)                                                                                       \
    X(clip)                                                                                        \
    X(adamw)                                                                                       \
    X(adamw_8bit)                                                                                  \
    X(sgd)                                                                                         \
    X(adafactor)                                                                                   \
    X(lion)                                                                                        \
    X(neftune)
#define POINTWISE_WORKSPACES(X)                                                                    \
    X(colsum)                                                                                      \
    X(rmsnorm_backward)                                                                            \
    X(sumsq)                                                                                       \
    X(conv_forward)                                                                                \
    X(conv_backward)                                                                               \
    X(delta_gates_backward)                                                                        \
    X(delta_forward) X(delta_backward) X(ssd_gates_backward) X(adafactor)

#define DECLARE(op, isa)                                                                           \
    enum ax_status ax_cpu_##op##_##isa(struct ax_queue *q, const struct ax_##op *args, void *work);
#define DECLARE_WORKSPACE(op, isa)                                                                 \
    size_t ax_cpu_##op##_workspace_##isa(struct ax_queue *q, const struct ax_##op *args);
#if defined(__x86_64__)
#define DECLARE_ALL(op) DECLARE(op, avx2) DECLARE(op, avx512) DECLARE(op, avx512bf16)
#define DECLARE_ALL_WORKSPACES(op)                                                                 \
    DECLARE_WORKSPACE(op, avx2) DECLARE_WORKSPACE(op, avx512) DECLARE_WORKSPACE(op, avx512bf16)
#else
#define DECLARE_ALL(op)            DECLARE(op, neon)
#define DECLARE_ALL_WORKSPACES(op) DECLARE_WORKSPACE(op, neon)
#endif
POINTWISE_OPS(DECLARE_ALL)
POINTWISE_WORKSPACES(DECLARE_ALL_WORKSPACES)

struct isa {
    const char *name;
#define MEMBER(op)                                                                                 \
    enum ax_status (*op)(struct ax_queue * q, const struct ax_##op *args, void *work);
#define MEMBER_WORKSPACE(op)                                                                       \
    size_t (*op##_workspace)(struct ax_queue * q, const struct ax_##op *args);
    POINTWISE_OPS(MEMBER)
    POINTWISE_WORKSPACES(MEMBER_WORKSPACE)
};

static const struct isa ISAS[] = {
#if defined(__x86_64__)
#define ENTRY_avx2(op)           .op = ax_cpu_##op##_avx2,
#define ENTRY_avx512(op)         .op = ax_cpu_##op##_avx512,
#define ENTRY_avx512bf16(op)     .op = ax_cpu_##op##_avx512bf16,
#define WORKSPACE_avx2(op)       .op##_workspace = ax_cpu_##op##_workspace_avx2,
#define WORKSPACE_avx512(op)     .op##_workspace = ax_cpu_##op##_workspace_avx512,
#define WORKSPACE_avx512bf16(op) .op##_workspace = ax_cpu_##op##_workspace_avx512bf16,
    {.name = "avx2", POINTWISE_OPS(ENTRY_avx2) POINTWISE_WORKSPACES(WORKSPACE_avx2)},
    {.name = "avx512", POINTWISE_OPS(ENTRY_avx512) POINTWISE_WORKSPACES(WORKSPACE_avx512)},
    {.name = "avx512bf16",
     POINTWISE_OPS(ENTRY_avx512bf16) POINTWISE_WORKSPACES(WORKSPACE_avx512bf16)},
#else
#define ENTRY_neon(op)     .op = ax_cpu_##op##_neon,
#define WORKSPACE_neon(op) .op##_workspace = ax_cpu_##op##_workspace_neon,
    {.name = "neon", POINTWISE_OPS(ENTRY_neon) POINTWISE_WORKSPACES(WORKSPACE_neon)},
#endif
};

/* Instruction sets of this machine: the first n of ISAS. */
static inline int isas_here(void) {
#if !defined(__x86_64__)
    return 1;
#else
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return 0;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl")) {
        return 1;
    }
    return __builtin_cpu_supports("avx512bf16") ? 3 : 2;
#endif
}

/* Memory of the running test, each block of its exact size so that ASan sees what goes past it. */
static void *owned[1024];
static int n_owned;

static inline void *own(size_t bytes) {
    assert_true(n_owned < 1024);
    void *p = calloc(1, bytes > 0 ? bytes : 1);
    assert_non_null(p);
    owned[n_owned++] = p;
    return p;
}

static inline void release(void) {
    while (n_owned > 0)
        free(owned[--n_owned]);
}

static inline void run_ok(const struct isa *isa, const char *op, enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s on %s: %s", op, isa->name, ax_error_text());
}

#define RUN(isa, n_threads, op, ...)                                                               \
    run_ok(isa, #op,                                                                               \
           (isa)->op(&(struct ax_queue){.threads = (n_threads)}, &(struct ax_##op){__VA_ARGS__},   \
                     NULL))

/* The same for ops with workspace, which starts out as NaN. */
#define RUN_WORK(isa, n_threads, op, ...)                                                          \
    do {                                                                                           \
        struct ax_queue queue_ = {.threads = (n_threads)};                                         \
        struct ax_##op args_ = {__VA_ARGS__};                                                      \
        size_t bytes_ = (isa)->op##_workspace(&queue_, &args_);                                    \
        void *work_ = memset(own(bytes_), 0xff, bytes_);                                           \
        run_ok(isa, #op, (isa)->op(&queue_, &args_, work_));                                       \
    } while (0)

/* Rows of `cols` elements that start one element past any alignment and lie pad elements apart. */
static inline struct ax_tensor grid(enum ax_dtype dtype, int64_t rows, int64_t cols, int64_t pad) {
    size_t size = ax_dtype_size(dtype);
    size_t count = (size_t)(rows > 0 ? (rows - 1) * (cols + pad) + cols : 0);
    struct ax_tensor t = ax_tensor_2d(dtype, (char *)own((count + 1) * size) + size, rows, cols);
    t.row_stride = cols + pad;
    return t;
}

static inline struct ax_tensor line(enum ax_dtype dtype, int64_t n) {
    struct ax_tensor t = grid(dtype, 1, n, 0);
    return ax_tensor_1d(dtype, t.data, n);
}

static inline double get(const struct ax_tensor *t, int64_t row, int64_t col) {
    return ax_load(t->dtype, t->data, row * t->row_stride + col);
}

static inline void set(const struct ax_tensor *t, int64_t row, int64_t col, double value) {
    ax_store(t->dtype, t->data, row * t->row_stride + col, value);
}

static uint64_t random_state = 1;

/* In [−1, 1), from the high bits of a linear congruential generator. */
static inline double random_unit(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (double)(random_state >> 33) / 1073741824.0 - 1.0;
}

static inline void randomize(const struct ax_tensor *t, double scale, double offset) {
    for (int64_t r = 0; r < t->shape[0]; r++)
        for (int64_t c = 0; c < ax_tensor_row_len(t); c++)
            set(t, r, c, random_unit() * scale + offset);
}

/* A copy in memory of its own, padding included. */
static inline struct ax_tensor clone(const struct ax_tensor *t) {
    struct ax_tensor copy = *t;
    size_t size = ax_dtype_size(t->dtype), rows = (size_t)t->shape[0];
    size_t count = rows > 0 ? (rows - 1) * (size_t)t->row_stride + (size_t)ax_tensor_row_len(t) : 0;
    copy.data = (char *)own((count + 1) * size) + size;
    memcpy(copy.data, t->data, count * size);
    return copy;
}

/* Padding included: a stray write between the rows shows too. */
static inline void assert_same_bits(const struct ax_tensor *a, const struct ax_tensor *b) {
    size_t size = ax_dtype_size(a->dtype), rows = (size_t)a->shape[0];
    size_t count = rows > 0 ? (rows - 1) * (size_t)a->row_stride + (size_t)ax_tensor_row_len(a) : 0;
    assert_int_equal(a->row_stride, b->row_stride);
    assert_memory_equal(a->data, b->data, count * size);
}

/* got is what `want`, exact but for 1e-6·(size of the terms it was made of), rounds to. */
static inline void assert_near(const struct isa *isa, const char *what, const struct ax_tensor *t,
                               int64_t row, int64_t col, double want, double size) {
    double got = get(t, row, col);
    int exponent;
    frexp(want, &exponent); /* bf16 has 8 bits: half a last place is 2^(exponent − 9) */
    double rounding = t->dtype == AX_BF16 ? ldexp(1, exponent - 9) : 0;
    if (!(fabs(got - want) <= rounding + 1e-6 * size + 1e-40)) {
        fail_msg("%s on %s, %s [%d][%d]: %.9g, expected %.9g", what, isa->name,
                 ax_dtype_info(t->dtype)->name, (int)row, (int)col, got, want);
    }
}

/* Runs f for each instruction set and dtype; a test function's whole body. */
static inline void for_each_isa(void (*f)(const struct isa *isa, enum ax_dtype real)) {
    if (isas_here() == 0)
        skip_because("hardware, AVX2");
    for (int i = 0; i < isas_here(); i++) {
        f(&ISAS[i], AX_F32);
        release();
        f(&ISAS[i], AX_BF16);
        release();
    }
}

static const int THREADS[] = {1, 2, 4};

#endif
