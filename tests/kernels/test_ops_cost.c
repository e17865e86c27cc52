/* FLOPs and bytes of one call of each op whose cost is more than so many per element, counted by
 * hand from the op's description. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/ops.h"

enum { T = 3, D = 5, N = 7, V = 11, K = 2, G = 4 };

static char memory[1]; /* costs never look at data, only whether there is some */

static struct ax_tensor vector(enum ax_dtype dtype, int64_t n) {
    return ax_tensor_1d(dtype, memory, n);
}
static struct ax_tensor matrix(enum ax_dtype dtype, int64_t rows, int64_t cols) {
    return ax_tensor_2d(dtype, memory, rows, cols);
}

#define COSTS(op, flops_, bytes_, ...)                                                             \
    do {                                                                                           \
        const struct ax_##op args_ = {__VA_ARGS__};                                                \
        const struct ax_op_cost cost_ = ax_op_cost(AX_OP_##op, &args_);                            \
        assert_int_equal(cost_.flops, flops_);                                                     \
        assert_int_equal(cost_.bytes, bytes_);                                                     \
    } while (0)

static void products(void **state) {
    (void)state;
    const struct ax_tensor x = matrix(AX_BF16, T, D), w = matrix(AX_BF16, N, D),
                           y = matrix(AX_BF16, T, N), dw = matrix(AX_F32, N, D);
    COSTS(gemm, 2 * T * D * N, 2 * (T * D + N * D + T * N), .a = x, .b = w, .c = y, .trans_b = true,
          .alpha = 1);
    COSTS(gemm, 2 * T * D * N, 2 * (T * D + T * N) + 2 * 4 * N * D, .a = y, .b = x, .c = dw,
          .trans_a = true, .accumulate = true, .alpha = 1);
    const int64_t shape[] = {G, N, D};
    const struct ax_tensor all = ax_tensor_nd(AX_BF16, memory, 3, shape),
                           d_all = ax_tensor_nd(AX_F32, memory, 3, shape),
                           offsets = vector(AX_I32, G + 1);
    COSTS(grouped_gemm, 2 * 6 * D * N, 2 * 6 * (D + N) + 2 * G * N * D + 4 * (G + 1),
          .a = matrix(AX_BF16, 9, D), .b = all, .c = matrix(AX_BF16, 9, N), .offsets = offsets,
          .trans_b = true, .expected_rows = 6);
    COSTS(grouped_gemm, 2 * 6 * D * N, 2 * 6 * (D + N) + 2 * 4 * G * N * D + 4 * (G + 1),
          .a = matrix(AX_BF16, 9, N), .b = matrix(AX_BF16, 9, D), .c = d_all, .offsets = offsets,
          .trans_a = true, .expected_rows = 6);
}

static void rows(void **state) {
    (void)state;
    const struct ax_tensor tokens = vector(AX_I32, T), named = matrix(AX_I32, T, K),
                           weights = matrix(AX_F32, T, K), x = matrix(AX_BF16, T, D),
                           sent = matrix(AX_BF16, N, D), table = matrix(AX_BF16, V, D),
                           d_table = matrix(AX_F32, V, D);
    COSTS(embedding_forward, 0, 2 * 2 * T * D + 4 * T, .weight = table, .tokens = tokens, .out = x);
    COSTS(embedding_backward, T * D, 2 * T * D + 4 * T + 2 * 4 * T * D, .dout = x, .tokens = tokens,
          .dweight = d_table);
    COSTS(scatter_rows, 0, (1 + K) * 2 * T * D + 4 * T * K, .dst = sent, .src = x, .rows = named);
    COSTS(combine_forward, 2 * K * T * D, (2 + K) * 2 * T * D + 2 * 4 * T * K, .src = sent,
          .rows = named, .weights = weights, .addend = x, .out = x);
    COSTS(combine_forward, 2 * K * T * D, (1 + K) * 2 * T * D + 4 * T * K, .src = sent,
          .rows = named, .out = x);
    COSTS(combine_backward, 3 * K * T * D, (1 + 2 * K) * 2 * T * D + 3 * 4 * T * K, .dout = x,
          .src = sent, .rows = named, .weights = weights, .dsrc = sent, .dweights = weights);
    COSTS(combine_backward, 3 * K * T * D, (1 + 2 * K) * 2 * T * D + 4 * T * K, .dout = x,
          .src = sent, .rows = named, .dsrc = sent);
}

static void rotations(void **state) {
    (void)state;
    enum { HEADS = 2, HEAD = 8, HALF = 3 }; /* two elements of each head are not rotated */
    const int64_t shape[] = {T, HEADS, HEAD};
    COSTS(rope, 6 * T * HEADS * HALF, 2 * 2 * T * HEADS * 2 * HALF + 2 * 4 * T * HALF + 4 * T,
          .x = ax_tensor_nd(AX_BF16, memory, 3, shape), .cos = matrix(AX_F32, 100, HALF),
          .sin = matrix(AX_F32, 100, HALF), .positions = vector(AX_I32, T));
}

static void norms(void **state) {
    (void)state;
    const struct ax_tensor x = matrix(AX_F32, T, D), w = vector(AX_F32, D), r = vector(AX_F32, T);
    const int64_t bytes = 4 * (3 * T * D + D + T) + 2 * 4 * D;
    COSTS(rmsnorm_backward, 9 * T * D, bytes, .dy = x, .x = x, .weight = w, .rstd = r, .dx = x,
          .dweight = w);
    COSTS(rmsnorm_backward, 10 * T * D, bytes + 4 * T * D, .dy = x, .x = x, .weight = w, .rstd = r,
          .dx = x, .dweight = w, .accumulate = true);
}

static void updates(void **state) {
    (void)state;
    const struct ax_tensor w = vector(AX_F32, N), copy = vector(AX_BF16, N);
    COSTS(sgd, 5 * N, 4 * 4 * N + 2 * N, .master = w, .grad = w, .copy = copy);
    COSTS(sgd, 7 * N, 6 * 4 * N, .master = w, .grad = w, .momentum_buffer = w);
    COSTS(sgd, 9 * N, 6 * 4 * N, .master = w, .grad = w, .momentum_buffer = w, .nesterov = true);
    COSTS(adafactor, 14 * N, 8 * 4 * N, .master = w, .grad = w, .exp_avg_sq = w);
    COSTS(muon_momentum, 12 * N, (3 + 3) * 4 * N + 2 * N, .grad = w, .momentum_buffer = w,
          .out = copy);
    struct ax_step_scalars scalars;
    COSTS(begin_step, 0, sizeof scalars, .scalars = &scalars);
    COSTS(clip, 0, sizeof scalars, .scalars = &scalars);
}

/* Of a cache of blocks, those that the documents hold: 2 documents of up to 6 rows, of 40. */
static void attention_reads_its_blocks(void **state) {
    (void)state;
    enum { ROWS = 40, BLOCK = 4, HEADS = 2, DIM = 8 };
    const int64_t q[] = {T, HEADS, DIM}, cache[] = {ROWS, HEADS, DIM};
    struct ax_attention_forward f = {.a = {.q = ax_tensor_nd(AX_BF16, memory, 3, q),
                                           .k = ax_tensor_nd(AX_BF16, memory, 3, cache),
                                           .v = ax_tensor_nd(AX_BF16, memory, 3, cache),
                                           .out = ax_tensor_nd(AX_BF16, memory, 3, q),
                                           .lse = matrix(AX_F32, T, HEADS),
                                           .cu_q = vector(AX_I32, 3),
                                           .cu_k = vector(AX_I32, 3),
                                           .block_table = matrix(AX_I32, 2, 2),
                                           .block_size = BLOCK,
                                           .max_q = T,
                                           .causal = true}};
    const int64_t whole = 2 * 2 * ROWS * HEADS * DIM; /* k and v */
    f.a.max_k = ROWS;
    const double all = ax_op_cost(AX_OP_attention_forward, &f).bytes;
    f.a.max_k = 6;
    const double some = ax_op_cost(AX_OP_attention_forward, &f).bytes;
    assert_int_equal(all - some, whole - whole * 12 / ROWS);
    f.a.max_k = ROWS / 2; /* all of it, and not more */
    assert_int_equal(ax_op_cost(AX_OP_attention_forward, &f).bytes, all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products),  cmocka_unit_test(rows),
        cmocka_unit_test(rotations), cmocka_unit_test(norms),
        cmocka_unit_test(updates),   cmocka_unit_test(attention_reads_its_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
