/* FLOPs and bytes of one call of each op, counted by hand from the op's description. */
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
          .trans_b = true, .alpha = 1, .expected_rows = 6);
    COSTS(grouped_gemm, 2 * 6 * D * N, 2 * 6 * (D + N) + 2 * 4 * G * N * D + 4 * (G + 1),
          .a = matrix(AX_BF16, 9, N), .b = matrix(AX_BF16, 9, D), .c = d_all, .offsets = offsets,
          .trans_a = true, .alpha = 1, .expected_rows = 6);
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
    COSTS(combine_backward, 2 * K * T * D, (1 + K) * 2 * T * D + 4 * T * K, .dout = x, .src = sent,
          .rows = named);
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

static void delta_gates(void **state) {
    (void)state;
    const struct ax_tensor a = matrix(AX_BF16, T, D), f = matrix(AX_F32, T, D);
    const struct ax_tensor of_head = vector(AX_BF16, D), sum = vector(AX_F32, D);
    COSTS(delta_gates_forward, 12 * T * D, 2 * 2 * T * D + 2 * 2 * D + 2 * 4 * T * D, .a = a,
          .b = a, .log = of_head, .bias = of_head, .g = f, .beta = f);
    COSTS(delta_gates_backward, 23 * T * D,
          4 * 2 * T * D + 2 * 2 * D + 2 * 4 * T * D + 2 * 2 * 4 * D, .dg = f, .dbeta = f, .a = a,
          .b = a, .log = of_head, .bias = of_head, .da = a, .db = a, .dlog = sum, .dbias = sum);
}

static void ssd_gates(void **state) {
    (void)state;
    const struct ax_tensor a = matrix(AX_BF16, T, D), f = matrix(AX_F32, T, D);
    const struct ax_tensor of_head = vector(AX_BF16, D), sum = vector(AX_F32, D);
    COSTS(ssd_gates_forward, 9 * T * D, 2 * T * D + 2 * 2 * D + 2 * 4 * T * D, .a = a,
          .log = of_head, .bias = of_head, .g = f, .step = f, .high = 1);
    COSTS(ssd_gates_backward, 18 * T * D, 2 * 2 * T * D + 2 * 2 * D + 3 * 4 * T * D + 3 * 2 * 4 * D,
          .dg = f, .dstep = f, .shares = f, .a = a, .log = of_head, .bias = of_head, .da = a,
          .dlog = sum, .dbias = sum, .dskip = sum, .high = 1);
}

static void convolutions(void **state) {
    (void)state;
    enum { TAPS = 4 };
    const struct ax_tensor x = matrix(AX_BF16, T, D), w = matrix(AX_BF16, D, TAPS);
    struct ax_conv a = {.x = x, .w = w, .cu_q = vector(AX_I32, K + 1)};
    const double inputs = 2 * T * D + 2 * D * TAPS + 4 * (K + 1);
    COSTS(conv_backward, 2 * TAPS * T * D, inputs + 2 * 2 * T * D, .a = a, .dy = x, .dx = x);
    COSTS(conv_backward, 4 * TAPS * T * D, inputs + 2 * 2 * T * D + 2 * 4 * D * TAPS, .a = a,
          .dy = x, .dx = x, .dw = matrix(AX_F32, D, TAPS));
    a.y = x;
    COSTS(conv_forward, 2 * TAPS * T * D, inputs + 2 * T * D, .a = a);
    a.silu = true;
    COSTS(conv_forward, (2 * TAPS + 4) * T * D, inputs + 2 * T * D, .a = a);
}

/* Of a chunk of 64 tokens, a token has 65 pairs with it, and half of them each. */
static void delta_rule(void **state) {
    (void)state;
    enum { KEYS = 2, VALUES = 4, DK = 8, DV = 6 };
    const struct ax_tensor k = ax_tensor_3d(AX_BF16, memory, T, KEYS, DK),
                           v = ax_tensor_3d(AX_BF16, memory, T, VALUES, DV),
                           g = matrix(AX_F32, T, VALUES);
    const struct ax_delta_rule a = {
        .q = k, .k = k, .v = v, .g = g, .beta = g, .cu = vector(AX_I32, K + 1)};
    struct ax_delta_forward f = {.a = a};
    f.a.out = v;
    COSTS(delta_forward, T * VALUES * (65 * 2 * (DK + DV) + 6 * DK * DV),
          2 * 2 * T * (KEYS * DK + VALUES * DV) + 2 * 4 * T * VALUES + 4 * (K + 1), .a = f.a);
    COSTS(delta_backward, T * VALUES * (65 * (7 * DK + 6 * DV) + 18 * DK * DV),
          2 * T * (4 * KEYS * DK + 3 * VALUES * DV) + 4 * 4 * T * VALUES + 4 * (K + 1), .a = a,
          .dout = v, .dq = k, .dk = k, .dv = v, .dg = g, .dbeta = g);
    struct ax_delta_rule m = f.a;
    m.additive = true;
    m.skip = vector(AX_BF16, VALUES);
    COSTS(delta_forward, T * VALUES * (65 * (DK + DV) + 4 * DK * DV),
          2 * 2 * T * (KEYS * DK + VALUES * DV) + 2 * 4 * T * VALUES + 2 * VALUES + 4 * (K + 1),
          .a = m);
    COSTS(delta_backward, T * VALUES * (65 * (3 * DK + 2 * DV) + 10 * DK * DV),
          2 * T * (4 * KEYS * DK + 3 * VALUES * DV) + 5 * 4 * T * VALUES + 2 * VALUES + 4 * (K + 1),
          .a = m, .dout = v, .dq = k, .dk = k, .dv = v, .dg = g, .dbeta = g, .dskip = g);
}

/* FLOPs are those per element that the formula of kernels/ops.h has. */
static void elementwise(void **state) {
    (void)state;
    const struct ax_tensor x = matrix(AX_BF16, T, D), x2 = matrix(AX_BF16, T, 2 * D),
                           f = matrix(AX_F32, T, D), w = vector(AX_F32, D), b = vector(AX_BF16, D);
    COSTS(fill, 0, 2 * T * D, .dst = x);
    COSTS(copy, 0, (2 + 4) * T * D, .dst = x, .src = f);
    COSTS(add, 2 * T * D, (2 * 4 + 2) * T * D, .dst = f, .src = x);
    COSTS(colsum, T * D, 2 * T * D + 2 * 4 * D, .x = x, .out = w);
    COSTS(swiglu_forward, 5 * T * D, 3 * 2 * T * D, .gate_up = x2, .y = x);
    COSTS(swiglu_forward, 5 * T * D, 3 * 2 * T * D, .gate_up = x, .up = x, .y = x);
    COSTS(swiglu_backward, 11 * T * D, 5 * 2 * T * D, .dy = x, .gate_up = x2, .dgate_up = x2);
    COSTS(neftune, 2 * T * D, 2 * 2 * T * D + 4 * (K + 1), .x = x, .cu = vector(AX_I32, K + 1));
    COSTS(sumsq, 2 * D, 4 * D, .x = w);

    const struct ax_tensor rows = vector(AX_I32, T);
    COSTS(dropout, T * D, 2 * 2 * T * D, .x = x, .y = x);
    COSTS(dropout, 2 * T * D, 3 * 2 * T * D + 4 * T, .x = x, .y = x, .rows = rows,
          .accumulate = true);
    COSTS(colscale, T * D, 2 * 2 * T * D + 4 * D, .x = x, .y = x, .scale = w);
    COSTS(colscale, T * D, 2 * 2 * T * D + 2 * D, .x = x, .y = x, .bias = b);
    COSTS(colscale, T * D, 3 * 2 * T * D, .x = x, .y = x, .addend = x);
    COSTS(colscale, 3 * T * D, 3 * 2 * T * D + (4 + 2) * D, .x = x, .y = x, .scale = w, .bias = b,
          .addend = x);
    COSTS(coldot, 2 * T * D, 2 * 2 * T * D + 2 * 4 * D, .a = x, .b = x, .out = w);
    COSTS(dora_norm, 2 * N * D + 2 * N * K, 2 * N * D + (2 + 4) * N * K + 4 * N,
          .weight = matrix(AX_BF16, N, D), .b = matrix(AX_BF16, N, K), .p = matrix(AX_F32, N, K),
          .out = vector(AX_F32, N));
    COSTS(merge_low_rank, 2 * K * T * D, 2 * (2 * T * D + T * K + K * D),
          .weight = matrix(AX_BF16, T, D), .b = matrix(AX_BF16, T, K), .a = matrix(AX_BF16, K, D),
          .out = matrix(AX_BF16, T, D));
    COSTS(merged_squares, (2 * K + 2) * T * D, 2 * (T * D + T * K + K * D) + 8 * T,
          .weight = matrix(AX_BF16, T, D), .b = matrix(AX_BF16, T, K), .a = matrix(AX_BF16, K, D),
          .out = vector(AX_F64, T));
    COSTS(dora_scale, 3 * D, 2 * D + 3 * 4 * D, .magnitude = b, .sumsq = w, .scale = w,
          .inverse = w);
}

static void heads(void **state) {
    (void)state;
    const struct ax_tensor logits = matrix(AX_BF16, T, V), sums = vector(AX_F32, T),
                           ids = vector(AX_I32, T);
    COSTS(softmax_stats, 8 * T * V, 2 * T * V + 4 * T + 4 * AX_SOFTMAX_STATS * T, .logits = logits,
          .labels = ids, .stats = matrix(AX_F32, T, AX_SOFTMAX_STATS));
    const int64_t shards[] = {G, T, AX_SOFTMAX_STATS};
    COSTS(softmax_merge, 2 * G * T * AX_SOFTMAX_STATS, 4 * G * T * AX_SOFTMAX_STATS + 6 * 4 * T,
          .stats = ax_tensor_nd(AX_F32, memory, 3, shards), .labels = ids, .logprob = sums,
          .lse = sums, .entropy = sums, .mean_logprob = sums, .lse_rest = sums,
          .inv_temperature = 1);
    COSTS(softmax_backward, 5 * T * V, 2 * 2 * T * V + 4 * 4 * T, .logits = logits, .labels = ids,
          .lse = sums, .entropy = sums, .g_logprob = sums, .dlogits = logits);
    COSTS(softmax_backward, 6 * T * V, 2 * 2 * T * V + 7 * 4 * T, .logits = logits, .labels = ids,
          .lse = sums, .entropy = sums, .g_logprob = sums, .g_lse = sums, .g_mean = sums,
          .lse_rest = sums, .dlogits = logits);
    COSTS(softmax_backward, 10 * T * V, (2 + 4) * T * V + 5 * 4 * T, .logits = logits,
          .labels = ids, .lse = sums, .entropy = sums, .g_logprob = sums, .g_entropy = sums,
          .dlogits = matrix(AX_F32, T, V));
    COSTS(nll_loss, 3 * T, 4 * 4 * T, .logprob = sums, .labels = ids, .weight = sums,
          .g_logprob = sums);
    COSTS(nll_loss, 3 * T, 8 * 4 * T, .logprob = sums, .labels = ids, .weight = sums,
          .mean_logprob = sums, .lse = sums, .g_logprob = sums, .g_mean = sums, .g_lse = sums);
    COSTS(nll_loss, 3 * T, 7 * 4 * T, .logprob = sums, .labels = ids, .weight = sums,
          .mean_logprob = sums, .g_logprob = sums, .g_mean = sums, .targets = sums);
    COSTS(scatter_topk, 0, 3 * 4 * T * K, .logits = matrix(AX_F32, T, V),
          .ids = matrix(AX_I32, T, K), .values = matrix(AX_F32, T, K));
    COSTS(divergence, 20 * T * V, 2 * 2 * T * V + 4 * 4 * T, .logits = logits, .teacher = logits,
          .lse = sums, .teacher_lse = sums, .parts = matrix(AX_F32, T, 2));
    const int64_t parts[] = {G, T, 2};
    COSTS(divergence_merge, 2 * 2 * G * T, 4 * 2 * G * T + 2 * 4 * T,
          .parts = ax_tensor_nd(AX_F32, memory, 3, parts), .divergence = sums, .student_kl = sums);
    COSTS(distill_loss, 5 * T, 6 * 4 * T, .logprob = sums, .divergence = sums, .labels = ids,
          .weight = sums, .g_logprob = sums, .g_divergence = sums);
    COSTS(distill_backward, 24 * T * V, 3 * 2 * T * V + 7 * 4 * T, .logits = logits,
          .teacher = logits, .labels = ids, .nll_lse = sums, .lse = sums, .teacher_lse = sums,
          .student_kl = sums, .g_logprob = sums, .g_divergence = sums, .dlogits = logits);
    COSTS(argmax, T * V, 2 * T * V + 4 * T, .logits = logits, .index = ids);
    COSTS(top_entropy, T * V, 2 * T * V + 2 * 4 * T, .logits = logits, .weight = sums, .out = sums);
    COSTS(top_logits, T * V, 2 * T * V + 4 * T * K, .logits = logits, .out = matrix(AX_F32, T, K));
    COSTS(sample, 14 * T * V, 2 * 4 * T * V + 4 * T * (4 + K + 1), .logits = matrix(AX_F32, T, V),
          .keys = matrix(AX_I32, T, 4), .context = matrix(AX_I32, T, K), .index = ids,
          .shares = matrix(AX_F32, T, V));
}

static void routers(void **state) {
    (void)state;
    const struct ax_tensor probs = matrix(AX_F32, T, G), chosen = matrix(AX_I32, T, K),
                           weights = matrix(AX_F32, T, K), load = matrix(AX_F32, 2, G),
                           slope = vector(AX_F32, G);
    COSTS(router_forward, 6 * T * G, 2 * 4 * T * G + 2 * 4 * T * K, .logits = probs, .probs = probs,
          .weights = weights, .experts = chosen);
    COSTS(router_forward, 6 * T * G, 2 * 4 * T * G + 2 * 4 * T * K + 4 + 2 * 4 * 2 * G,
          .logits = probs, .probs = probs, .weights = weights, .experts = chosen,
          .valid = vector(AX_I32, 1), .load = load);
    COSTS(router_balance, 4 * G, 4 * 3 * G, .load = load, .slope = slope);
    COSTS(router_backward, 5 * T * G, (4 + 2) * T * G + 2 * 4 * T * K + 4 * G, .probs = probs,
          .experts = chosen, .dweights = weights, .slope = slope, .dlogits = matrix(AX_BF16, T, G));
    COSTS(group_rows, 0, 2 * 4 * T * K + 4 * (G + 1) + 4 * G, .keys = chosen, .places = chosen,
          .offsets = vector(AX_I32, G + 1), .counts = vector(AX_I32, G));
}

/* Causal: query i of a head sees i + 1 of its keys. */
static void attention(void **state) {
    (void)state;
    enum { HEADS = 2, KV = 1, DIM = 8, VALUES = 4, PAIRS = HEADS * T * (T + 1) / 2 };
    const int64_t q[] = {T, HEADS, DIM}, k[] = {T, KV, DIM}, v[] = {T, KV, VALUES},
                  out[] = {T, HEADS, VALUES};
    const struct ax_attention a = {.q = ax_tensor_nd(AX_BF16, memory, 3, q),
                                   .k = ax_tensor_nd(AX_BF16, memory, 3, k),
                                   .v = ax_tensor_nd(AX_BF16, memory, 3, v),
                                   .out = ax_tensor_nd(AX_BF16, memory, 3, out),
                                   .lse = matrix(AX_F32, T, HEADS),
                                   .cu_q = vector(AX_I32, 2),
                                   .cu_k = vector(AX_I32, 2),
                                   .sink = vector(AX_F32, HEADS),
                                   .max_q = T,
                                   .max_k = T,
                                   .causal = true};
    const int64_t once = 2 * T * (HEADS * DIM + KV * DIM + KV * VALUES), /* q, k, v */
        outs = 2 * T * HEADS * VALUES, rest = 4 * T * HEADS + 2 * 2 * 4 + 4 * HEADS;
    COSTS(attention_forward, 2 * PAIRS * (DIM + VALUES), once + outs + rest, .a = a);
    COSTS(attention_backward, 2 * PAIRS * (3 * DIM + 2 * VALUES),
          2 * (once + outs) + rest + 2 * 4 * HEADS, .a = a, .dout = a.out, .dq = a.q, .dk = a.k,
          .dv = a.v, .dsink = a.sink);
}

/* Of a pair: a product for each head, and max, weight and sum of it. */
static void choices(void **state) {
    (void)state;
    enum { HEADS = 2, DIM = 8, TOP = 2, PAIRS = T * (T + 1) / 2 };
    const int64_t q[] = {T, HEADS, DIM}, k[] = {T, 1, DIM};
    const int64_t once = 2 * T * (HEADS + 1) * DIM + 4 * T * HEADS + 2 * 2 * 4;
    const struct ax_tensor queries = ax_tensor_nd(AX_BF16, memory, 3, q),
                           keys = ax_tensor_nd(AX_BF16, memory, 3, k),
                           weights = matrix(AX_F32, T, HEADS), ends = vector(AX_I32, 2);
    COSTS(top_keys, PAIRS * HEADS * (2 * DIM + 3), once + 4 * T, .q = queries, .k = keys,
          .w = weights, .cu_q = ends, .cu_k = ends, .chosen = matrix(AX_I32, T, 1), .max_q = T,
          .max_k = T, .top = TOP);
    COSTS(top_keys, PAIRS * HEADS * (2 * DIM + 3), once + 4 * T * TOP, .q = queries, .k = keys,
          .w = weights, .cu_q = ends, .cu_k = ends, .rows = matrix(AX_I32, T, TOP), .max_q = T,
          .max_k = T, .top = TOP);
}

/* Of tables of pairs, each read or written once, what is added to twice; and columns and rows of numbers. */
static void training_of_indexers(void **state) {
    (void)state;
    const struct ax_tensor pairs = matrix(AX_F32, T, D), column = matrix(AX_F32, T, 1),
                           ends = vector(AX_I32, 2);
    const int64_t once = 4 * T * D, numbers = 4 * T;
    COSTS(index_target, 4 * T * D, 3 * once + numbers, .p = pairs, .s = pairs, .lse = column);
    COSTS(index_scores, 3 * T * D, 3 * once + numbers, .x = pairs, .z = pairs, .w = column);
    COSTS(index_loss, 9 * T * D, 3 * once + numbers + 2 * 2 * 4 + 4 * T, .p = pairs, .x = pairs,
          .kl = vector(AX_F32, T), .cu_q = ends, .cu_k = ends, .chosen = matrix(AX_I32, T, 1),
          .max_k = T);
    COSTS(index_backward, 4 * T * D, 2 * once + 2 * T * D + 2 * numbers, .dx = pairs, .z = pairs,
          .w = column, .dz = matrix(AX_BF16, T, D), .dw = column);
}

static void packing(void **state) {
    (void)state;
    enum { BLOCKS = 5, SIZE = 64, ALL = BLOCKS * SIZE };
    const struct ax_tensor x = matrix(AX_BF16, BLOCKS, SIZE), scale = vector(AX_F32, BLOCKS),
                           nf4 = vector(AX_U8, ALL / 2), bytes = vector(AX_U8, ALL);
    COSTS(quantize, 4 * ALL, 2 * ALL + ALL / 2 + 4 * BLOCKS, .x = x, .codes = nf4, .scale = scale,
          .block = SIZE, .kind = AX_QUANT_NF4);
    COSTS(quantize, 4 * ALL, 2 * ALL + ALL + 2 * 4 * BLOCKS, .x = x, .codes = bytes, .scale = scale,
          .offset = scale, .block = SIZE, .kind = AX_QUANT_MAP8);
    COSTS(dequantize, ALL, 2 * ALL + ALL / 2 + 4 * BLOCKS, .out = x, .codes = nf4, .scale = scale,
          .block = SIZE, .kind = AX_QUANT_NF4);
    COSTS(dequantize, 2 * ALL, 2 * ALL + ALL + 2 * 4 * BLOCKS, .out = x, .codes = bytes,
          .scale = scale, .offset = scale, .block = SIZE, .kind = AX_QUANT_MAP8);
    COSTS(packed_gemm, 2 * 3 * ALL, 2 * 3 * SIZE + ALL / 2 + 4 * BLOCKS + 2 * 3 * BLOCKS,
          .a = matrix(AX_BF16, 3, SIZE), .c = matrix(AX_BF16, 3, BLOCKS), .codes = nf4,
          .scale = scale, .block = SIZE, .kind = AX_QUANT_NF4);
    const struct ax_tensor range = matrix(AX_F32, 1, 2), d = matrix(AX_F32, BLOCKS, SIZE);
    COSTS(quant_range, 2 * ALL, 2 * ALL + 8, .x = x, .range = range);
    COSTS(fake_quantize, 4 * ALL, 2 * 2 * ALL + 8, .x = x, .y = x, .range = range, .block = 16,
          .kind = AX_QUANT_NVFP4);
    const struct ax_tensor one = vector(AX_F32, 1), codes = matrix(AX_U8, BLOCKS, SIZE);
    COSTS(fp8_codes, 3 * ALL, 2 * ALL + ALL + 16 * SIZE + 8 + 4, .x = x, .range = range,
          .rows = codes, .columns = matrix(AX_U8, SIZE, 16), .scale = one, .kind = AX_QUANT_E5M2);
    COSTS(fp8_gemm, 2 * BLOCKS * 3 * SIZE, ALL + 3 * SIZE + 2 * 4 + 2 * 4 * BLOCKS * 3, .a = codes,
          .b = matrix(AX_U8, 3, SIZE), .a_scale = one, .b_scale = one,
          .c = matrix(AX_F32, BLOCKS, 3), .accumulate = true);
    COSTS(fp8_codes, 3 * ALL, 2 * ALL + ALL + 4 * BLOCKS, .x = x, .rows = codes, .scale = scale,
          .kind = AX_QUANT_FP8);
    COSTS(fp8_gemm, 2 * BLOCKS * 3 * SIZE, ALL + 3 * SIZE + 4 * (BLOCKS + 3) + 4 * BLOCKS * 3,
          .a = codes, .b = matrix(AX_U8, 3, SIZE), .a_scale = scale, .b_scale = vector(AX_F32, 3),
          .c = matrix(AX_F32, BLOCKS, 3));
    COSTS(fake_quantize_backward, 4 * ALL, (2 + 4 + 4) * ALL, .x = x, .dy = d, .dx = d, .block = 32,
          .kind = AX_QUANT_INT4);
}

static void norms(void **state) {
    (void)state;
    COSTS(rmsnorm_forward, 4 * T * D, (2 + 2) * T * D + 2 * D + 4 * T, .x = matrix(AX_BF16, T, D),
          .weight = vector(AX_BF16, D), .y = matrix(AX_BF16, T, D), .rstd = vector(AX_F32, T));
    const struct ax_tensor x = matrix(AX_F32, T, D), w = vector(AX_F32, D), r = vector(AX_F32, T);
    const int64_t bytes = 4 * (3 * T * D + D + T) + 2 * 4 * D;
    COSTS(rmsnorm_backward, 9 * T * D, bytes, .dy = x, .x = x, .weight = w, .rstd = r, .dx = x,
          .dweight = w);
    COSTS(rmsnorm_backward, 10 * T * D, bytes + 4 * T * D, .dy = x, .x = x, .weight = w, .rstd = r,
          .dx = x, .dweight = w, .accumulate = true);
    COSTS(center, 2 * T * D, 2 * 4 * T * D, .x = x, .y = x);
    COSTS(center, 3 * T * D, 3 * 4 * T * D, .x = x, .y = x, .accumulate = true);
    COSTS(match_rms_forward, 5 * T * D, 3 * 4 * T * D, .x = x, .like = x, .y = x, .floor = 1);
    COSTS(match_rms_backward, 11 * T * D, 6 * 4 * T * D, .dy = x, .x = x, .like = x, .dx = x,
          .dlike = x, .floor = 1);
    COSTS(sparsify_forward, 6 * T * D, 2 * 4 * T * D, .x = x, .y = x);
    COSTS(sparsify_backward, 9 * T * D, 3 * 4 * T * D, .dy = x, .x = x, .dx = x);
}

static void updates(void **state) {
    (void)state;
    const struct ax_tensor w = vector(AX_F32, N), copy = vector(AX_BF16, N);
    COSTS(sgd, 5 * N, 3 * 4 * N + 2 * N, .master = w, .grad = w, .copy = copy);
    COSTS(sgd, 7 * N, 5 * 4 * N, .master = w, .grad = w, .momentum_buffer = w);
    COSTS(sgd, 9 * N, 5 * 4 * N, .master = w, .grad = w, .momentum_buffer = w, .nesterov = true);
    COSTS(adafactor, 14 * N, 7 * 4 * N, .master = w, .grad = w, .exp_avg_sq = w);
    COSTS(muon_momentum, 12 * N, (3 + 2) * 4 * N + 2 * N, .grad = w, .momentum_buffer = w,
          .out = copy);
    const struct ax_tensor low = vector(AX_I16, N), master = vector(AX_BF16, N), m = copy;
    COSTS(adamw, 16 * N, 7 * 4 * N + 2 * N, .master = w, .grad = w, .exp_avg = w, .exp_avg_sq = w,
          .copy = copy);
    COSTS(adamw, 16 * N, 2 * (2 + 2 + 2 + 2) * N + 4 * N, .master = master, .remainder = low,
          .grad = w, .exp_avg = m, .exp_avg_sq = m);
    COSTS(adamw_8bit, 22 * N, 2 * (4 + 1 + 1) * N + 4 * N + 2 * 2 * 4 + 2 * N, .master = w,
          .grad = w, .exp_avg = vector(AX_U8, N), .exp_avg_sq = vector(AX_U8, N),
          .exp_avg_scale = vector(AX_F32, 1), .exp_avg_sq_scale = vector(AX_F32, 1), .copy = copy);
    COSTS(lion, 11 * N, 2 * (4 + 2) * N + 4 * N + 2 * N, .master = w, .grad = w, .exp_avg = m,
          .copy = copy);
    COSTS(muon_apply, 3 * N, (2 * 4 + 2 + 2) * N, .master = w, .update = copy, .copy = copy);
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
        cmocka_unit_test(convolutions), cmocka_unit_test(delta_gates),
        cmocka_unit_test(ssd_gates),    cmocka_unit_test(products),
        cmocka_unit_test(rows),         cmocka_unit_test(rotations),
        cmocka_unit_test(norms),        cmocka_unit_test(delta_rule),
        cmocka_unit_test(updates),      cmocka_unit_test(attention_reads_its_blocks),
        cmocka_unit_test(elementwise),  cmocka_unit_test(heads),
        cmocka_unit_test(routers),      cmocka_unit_test(attention),
        cmocka_unit_test(choices),      cmocka_unit_test(training_of_indexers),
        cmocka_unit_test(packing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
