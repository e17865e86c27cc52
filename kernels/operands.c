/* The tensors of every op's arguments. Rows follow the order of kernels/ops.h. */
#include "kernels/operands.h"

#include <inttypes.h>
#include <stdio.h>

#define IN(type, field)                                                                            \
    { #field, offsetof(struct ax_##type, field), AX_OPERAND_IN }
#define OUT(type, field)                                                                           \
    { #field, offsetof(struct ax_##type, field), AX_OPERAND_OUT }
#define INOUT(type, field)                                                                         \
    { #field, offsetof(struct ax_##type, field), AX_OPERAND_INOUT }
#define END                                                                                        \
    { NULL, 0, AX_OPERAND_IN }

static const struct ax_operand operands_fill[] = {OUT(fill, dst), END};
static const struct ax_operand operands_copy[] = {OUT(copy, dst), IN(copy, src), END};
static const struct ax_operand operands_add[] = {INOUT(add, dst), IN(add, src), END};
static const struct ax_operand operands_gemm[] = {IN(gemm, a),    IN(gemm, b),      OUT(gemm, c),
                                                  IN(gemm, bias), IN(gemm, addend), END};
static const struct ax_operand operands_colsum[] = {IN(colsum, x), INOUT(colsum, out), END};
static const struct ax_operand operands_embedding_forward[] = {
    IN(embedding_forward, weight), IN(embedding_forward, tokens), OUT(embedding_forward, out), END};
static const struct ax_operand operands_embedding_backward[] = {
    IN(embedding_backward, dout), IN(embedding_backward, tokens),
    INOUT(embedding_backward, dweight), END};
static const struct ax_operand operands_neftune[] = {INOUT(neftune, x), IN(neftune, cu), END};
static const struct ax_operand operands_rmsnorm_forward[] = {
    IN(rmsnorm_forward, x), IN(rmsnorm_forward, weight), OUT(rmsnorm_forward, y),
    OUT(rmsnorm_forward, rstd), END};
static const struct ax_operand operands_rmsnorm_backward[] = {IN(rmsnorm_backward, dy),
                                                              IN(rmsnorm_backward, x),
                                                              IN(rmsnorm_backward, weight),
                                                              IN(rmsnorm_backward, rstd),
                                                              OUT(rmsnorm_backward, dx),
                                                              INOUT(rmsnorm_backward, dweight),
                                                              END};
static const struct ax_operand operands_rope[] = {INOUT(rope, x), IN(rope, cos), IN(rope, sin),
                                                  IN(rope, positions), END};
static const struct ax_operand operands_attention_forward[] = {
    IN(attention_forward, a.q),           IN(attention_forward, a.k),
    IN(attention_forward, a.v),           OUT(attention_forward, a.out),
    OUT(attention_forward, a.lse),        IN(attention_forward, a.cu_q),
    IN(attention_forward, a.cu_k),        IN(attention_forward, a.sink),
    IN(attention_forward, a.block_table), END};
static const struct ax_operand operands_attention_backward[] = {
    IN(attention_backward, a.q),      IN(attention_backward, a.k),
    IN(attention_backward, a.v),      IN(attention_backward, a.out),
    IN(attention_backward, a.lse),    IN(attention_backward, a.cu_q),
    IN(attention_backward, a.cu_k),   IN(attention_backward, a.sink),
    IN(attention_backward, dout),     OUT(attention_backward, dq),
    OUT(attention_backward, dk),      OUT(attention_backward, dv),
    INOUT(attention_backward, dsink), END};
static const struct ax_operand operands_scatter_rows[] = {
    OUT(scatter_rows, dst), IN(scatter_rows, src), IN(scatter_rows, rows), END};
static const struct ax_operand operands_swiglu_forward[] = {IN(swiglu_forward, gate_up),
                                                            OUT(swiglu_forward, y), END};
static const struct ax_operand operands_swiglu_backward[] = {
    IN(swiglu_backward, dy), IN(swiglu_backward, gate_up), OUT(swiglu_backward, dgate_up), END};
static const struct ax_operand operands_router_forward[] = {IN(router_forward, logits),
                                                            OUT(router_forward, probs),
                                                            OUT(router_forward, weights),
                                                            OUT(router_forward, experts),
                                                            IN(router_forward, valid),
                                                            INOUT(router_forward, load),
                                                            END};
static const struct ax_operand operands_router_balance[] = {IN(router_balance, load),
                                                            OUT(router_balance, slope), END};
static const struct ax_operand operands_router_backward[] = {
    IN(router_backward, probs), IN(router_backward, experts),  IN(router_backward, dweights),
    IN(router_backward, slope), OUT(router_backward, dlogits), END};
static const struct ax_operand operands_group_rows[] = {
    IN(group_rows, keys), OUT(group_rows, places), OUT(group_rows, offsets),
    OUT(group_rows, counts), END};
static const struct ax_operand operands_combine_forward[] = {
    IN(combine_forward, src),    IN(combine_forward, rows), IN(combine_forward, weights),
    IN(combine_forward, addend), OUT(combine_forward, out), END};
static const struct ax_operand operands_combine_backward[] = {IN(combine_backward, dout),
                                                              IN(combine_backward, src),
                                                              IN(combine_backward, rows),
                                                              IN(combine_backward, weights),
                                                              OUT(combine_backward, dsrc),
                                                              OUT(combine_backward, dweights),
                                                              END};
/* c is written in full but for dW, which adds. */
static const struct ax_operand operands_grouped_gemm[] = {
    IN(grouped_gemm, a), IN(grouped_gemm, b), OUT(grouped_gemm, c), IN(grouped_gemm, offsets), END};
static const struct ax_operand operands_softmax_stats[] = {
    IN(softmax_stats, logits), IN(softmax_stats, labels), OUT(softmax_stats, stats), END};
static const struct ax_operand operands_softmax_merge[] = {IN(softmax_merge, stats),
                                                           IN(softmax_merge, labels),
                                                           OUT(softmax_merge, logprob),
                                                           OUT(softmax_merge, lse),
                                                           OUT(softmax_merge, entropy),
                                                           OUT(softmax_merge, mean_logprob),
                                                           END};
static const struct ax_operand operands_softmax_backward[] = {
    IN(softmax_backward, logits),    IN(softmax_backward, labels),
    IN(softmax_backward, lse),       IN(softmax_backward, entropy),
    IN(softmax_backward, g_logprob), IN(softmax_backward, g_lse),
    IN(softmax_backward, g_entropy), IN(softmax_backward, g_mean),
    OUT(softmax_backward, dlogits),  END};
static const struct ax_operand operands_nll_loss[] = {
    IN(nll_loss, logprob),      IN(nll_loss, labels), IN(nll_loss, weight),
    IN(nll_loss, mean_logprob), IN(nll_loss, lse),    OUT(nll_loss, g_logprob),
    OUT(nll_loss, g_mean),      OUT(nll_loss, g_lse), END};
static const struct ax_operand operands_argmax[] = {IN(argmax, logits), OUT(argmax, index), END};
static const struct ax_operand operands_sumsq[] = {IN(sumsq, x), END};
static const struct ax_operand operands_clip[] = {END};
static const struct ax_operand operands_adamw[] = {INOUT(adamw, master),
                                                   INOUT(adamw, grad),
                                                   INOUT(adamw, exp_avg),
                                                   INOUT(adamw, exp_avg_sq),
                                                   INOUT(adamw, remainder),
                                                   OUT(adamw, copy),
                                                   END};
static const struct ax_operand operands_adamw_8bit[] = {INOUT(adamw_8bit, master),
                                                        INOUT(adamw_8bit, grad),
                                                        INOUT(adamw_8bit, exp_avg),
                                                        INOUT(adamw_8bit, exp_avg_sq),
                                                        INOUT(adamw_8bit, exp_avg_scale),
                                                        INOUT(adamw_8bit, exp_avg_sq_scale),
                                                        INOUT(adamw_8bit, remainder),
                                                        OUT(adamw_8bit, copy),
                                                        END};
static const struct ax_operand operands_sgd[] = {
    INOUT(sgd, master),    INOUT(sgd, grad), INOUT(sgd, momentum_buffer),
    INOUT(sgd, remainder), OUT(sgd, copy),   END};
static const struct ax_operand operands_lion[] = {INOUT(lion, master),  INOUT(lion, grad),
                                                  INOUT(lion, exp_avg), INOUT(lion, remainder),
                                                  OUT(lion, copy),      END};
static const struct ax_operand operands_adafactor[] = {
    INOUT(adafactor, master),     INOUT(adafactor, grad),
    INOUT(adafactor, row),        INOUT(adafactor, col),
    INOUT(adafactor, exp_avg_sq), INOUT(adafactor, remainder),
    OUT(adafactor, copy),         END};
static const struct ax_operand operands_muon_momentum[] = {INOUT(muon_momentum, grad),
                                                           INOUT(muon_momentum, momentum_buffer),
                                                           OUT(muon_momentum, out), END};
static const struct ax_operand operands_muon_apply[] = {
    INOUT(muon_apply, master), INOUT(muon_apply, remainder), IN(muon_apply, update),
    OUT(muon_apply, copy), END};
static const struct ax_operand operands_quantize[] = {
    IN(quantize, x), OUT(quantize, codes), OUT(quantize, scale), IN(quantize, offset), END};
static const struct ax_operand operands_dequantize[] = {OUT(dequantize, out), IN(dequantize, codes),
                                                        IN(dequantize, scale),
                                                        IN(dequantize, offset), END};
static const struct ax_operand operands_dropout[] = {IN(dropout, x), OUT(dropout, y),
                                                     IN(dropout, rows), END};
static const struct ax_operand operands_colscale[] = {IN(colscale, x),    IN(colscale, scale),
                                                      IN(colscale, bias), IN(colscale, addend),
                                                      OUT(colscale, y),   END};
static const struct ax_operand operands_coldot[] = {IN(coldot, a), IN(coldot, b),
                                                    INOUT(coldot, out), END};
static const struct ax_operand operands_dora_norm[] = {IN(dora_norm, weight), IN(dora_norm, b),
                                                       IN(dora_norm, p), OUT(dora_norm, out), END};
static const struct ax_operand operands_dora_scale[] = {
    IN(dora_scale, magnitude), IN(dora_scale, sumsq), OUT(dora_scale, scale),
    OUT(dora_scale, inverse), END};

static const struct {
    const char *name;
    const struct ax_operand *operands;
    size_t args_size;
} OPS[AX_OP_COUNT] = {
#define ROW(op) [AX_OP_##op] = {#op, operands_##op, sizeof(struct ax_##op)},
    AX_OP_LIST(ROW)
#undef ROW
};

#define FITS(op)                                                                                   \
    _Static_assert(sizeof(operands_##op) / sizeof(struct ax_operand) <= AX_MAX_OPERANDS,           \
                   "AX_MAX_OPERANDS holds the operands of " #op " and the end row");
AX_OP_LIST(FITS)
#undef FITS

const char *ax_op_name(enum ax_op op) {
    AX_ASSERT(op < AX_OP_COUNT);
    return OPS[op].name;
}

const struct ax_operand *ax_op_operands(enum ax_op op) {
    AX_ASSERT(op < AX_OP_COUNT);
    return OPS[op].operands;
}

size_t ax_op_args_size(enum ax_op op) {
    AX_ASSERT(op < AX_OP_COUNT);
    return OPS[op].args_size;
}

struct ax_tensor *ax_operand_tensor(const struct ax_operand *operand, void *args) {
    return (struct ax_tensor *)((char *)args + operand->offset);
}

static const struct ax_tensor *tensor_of(const struct ax_operand *operand, const void *args) {
    return (const struct ax_tensor *)((const char *)args + operand->offset);
}

static struct ax_tensor matrix(const struct ax_tensor *t, int64_t group) {
    return ax_tensor_2d(t->dtype, ax_tensor_row(t, group), t->shape[1], t->shape[2]);
}

struct ax_gemm ax_grouped_gemm_of(const struct ax_grouped_gemm *a, int64_t group) {
    const int32_t *offsets = a->offsets.data;
    int64_t first = offsets[group], n = offsets[group + 1] - first;
    AX_ASSERT(first >= 0 && n >= 0 && first + n <= a->a.shape[0]);
    return (struct ax_gemm){
        .a = ax_tensor_rows(&a->a, first, n),
        .b = a->trans_a ? ax_tensor_rows(&a->b, first, n) : matrix(&a->b, group),
        .c = a->trans_a ? matrix(&a->c, group) : ax_tensor_rows(&a->c, first, n),
        .trans_a = a->trans_a,
        .trans_b = a->trans_b,
        .accumulate = a->trans_a,
        .alpha = 1};
}

/* snprintf that goes on behind what is there and stays within size. */
#define APPEND(...)                                                                                \
    do {                                                                                           \
        if (used < size) {                                                                         \
            used += (size_t)snprintf(buf + used, size - used, __VA_ARGS__);                        \
        }                                                                                          \
    } while (0)

const char *ax_op_describe(enum ax_op op, const void *args, char *buf, size_t size) {
    size_t used = 0;
    buf[0] = '\0';
    for (const struct ax_operand *o = ax_op_operands(op); o->name != NULL; o++) {
        const struct ax_tensor *t = tensor_of(o, args);
        if (t->data == NULL) {
            continue;
        }
        APPEND("%s%s %s ", used > 0 ? ", " : "", o->name, ax_dtype_info(t->dtype)->name);
        for (int i = 0; i < t->ndim; i++) {
            APPEND("[%" PRId64 "]", t->shape[i]);
        }
        if (!ax_tensor_is_dense(t)) {
            APPEND(" (row stride %" PRId64 ")", t->row_stride);
        }
    }
    return buf;
}
