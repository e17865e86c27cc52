/* What one call of each op costs: FLOPs (2 per multiply-add, 1 for any other arithmetic or
 * transcendental) and bytes (each operand read or written once, read-modify-write counts twice).
 *
 * Costs come from shapes and arguments alone, never from data, so a plan counts what a run counts.
 */
#include "kernels/operands.h"

static double elements(const struct ax_tensor *t) {
    return t->data == NULL ? 0 : (double)ax_tensor_numel(t);
}

static double bytes_of(const struct ax_tensor *t) {
    return t->data == NULL ? 0 : (double)ax_tensor_bytes(t);
}

/* Every operand once, INOUT twice. */
static double operand_bytes(enum ax_op op, const void *args) {
    double sum = 0;
    for (const struct ax_operand *o = ax_op_operands(op); o->name != NULL; o++) {
        double bytes = bytes_of((const struct ax_tensor *)((const char *)args + o->offset));
        sum += o->use == AX_OPERAND_INOUT ? 2 * bytes : bytes;
    }
    return sum;
}

/* flops_per FLOPs for each element of t, all operands. */
static struct ax_op_cost per_element(enum ax_op op, const void *args, double flops_per,
                                     const struct ax_tensor *t) {
    return (struct ax_op_cost){flops_per * elements(t), operand_bytes(op, args)};
}

static struct ax_op_cost cost_fill(const struct ax_fill *a) {
    return per_element(AX_OP_fill, a, 0, &a->dst);
}

static struct ax_op_cost cost_copy(const struct ax_copy *a) {
    return per_element(AX_OP_copy, a, 0, &a->dst);
}

static struct ax_op_cost cost_add(const struct ax_add *a) {
    return per_element(AX_OP_add, a, 2, &a->dst);
}

static struct ax_op_cost cost_gemm(const struct ax_gemm *a) {
    double k = (double)(a->trans_a ? a->a.shape[0] : a->a.shape[1]);
    struct ax_op_cost cost = per_element(AX_OP_gemm, a, 2 * k, &a->c);
    cost.bytes += a->accumulate ? bytes_of(&a->c) : 0;
    return cost;
}

static struct ax_op_cost cost_colsum(const struct ax_colsum *a) {
    return per_element(AX_OP_colsum, a, 1, &a->x);
}

/* Of the table only the rows of these tokens move. */
static struct ax_op_cost cost_embedding_forward(const struct ax_embedding_forward *a) {
    return (struct ax_op_cost){0, 2 * bytes_of(&a->out) + bytes_of(&a->tokens)};
}

static struct ax_op_cost cost_embedding_backward(const struct ax_embedding_backward *a) {
    double rows = elements(&a->dout) * (double)ax_dtype_size(a->dweight.dtype);
    return (struct ax_op_cost){elements(&a->dout),
                               bytes_of(&a->dout) + bytes_of(&a->tokens) + 2 * rows};
}

static struct ax_op_cost cost_neftune(const struct ax_neftune *a) {
    return per_element(AX_OP_neftune, a, 2, &a->x);
}

static struct ax_op_cost cost_rmsnorm_forward(const struct ax_rmsnorm_forward *a) {
    return per_element(AX_OP_rmsnorm_forward, a, 4, &a->x); /* x², +, ·rstd, ·weight */
}

static struct ax_op_cost cost_rmsnorm_backward(const struct ax_rmsnorm_backward *a) {
    /* x̂, g, Σ g·x̂ (2), x̂·mean, −, ·rstd, dweight (2); += */
    struct ax_op_cost cost = per_element(AX_OP_rmsnorm_backward, a, a->accumulate ? 10 : 9, &a->x);
    cost.bytes += a->accumulate ? bytes_of(&a->dx) : 0;
    return cost;
}

/* Only the rotated part of each head moves, and of the tables one row per token. */
static struct ax_op_cost cost_rope(const struct ax_rope *a) {
    double tokens = (double)a->x.shape[0];
    double half = (double)a->cos.shape[1];
    double pairs = tokens * (double)a->x.shape[1] * half;
    return (struct ax_op_cost){6 * pairs,
                               4 * pairs * (double)ax_dtype_size(a->x.dtype) +
                                   2 * tokens * half * (double)ax_dtype_size(a->cos.dtype) +
                                   bytes_of(&a->positions)};
}

/* Mean number of keys a query sees in a document of max_q queries and max_k keys: query i sees
 * i + 1 + max_k − max_q of them if causal (at most `window`), else all. For rows of full documents
 * this is exact: (n + 1)/2 of n. */
static double keys_per_query(const struct ax_attention *a) {
    double nq = (double)a->max_q;
    double most = (double)a->max_k;
    if (!a->causal || a->max_q <= 0) {
        return most;
    }
    double least = most - nq + 1;
    double empty = least < 1 ? 1 - least : 0; /* queries before the first key */
    least = least < 1 ? 1 : least;
    double limit = a->window > 0 && (double)a->window < most ? (double)a->window : most;
    double rising = limit >= least ? limit - least + 1 : 0; /* queries that see least … limit */
    double full = nq - empty - rising;
    return (rising * (least + limit) / 2 + full * limit) / nq;
}

static double attention_pairs(const struct ax_attention *a) {
    return (double)a->q.shape[0] * (double)a->q.shape[1] * keys_per_query(a);
}

static struct ax_op_cost cost_attention_forward(const struct ax_attention_forward *f) {
    const struct ax_attention *a = &f->a;
    double head_dim = (double)a->q.shape[2];
    double bytes = operand_bytes(AX_OP_attention_forward, f);
    if (a->block_table.data != NULL) { /* of the cache, the blocks these documents hold */
        double rows = (double)a->block_table.shape[0] * (double)a->max_k;
        double most = (double)a->k.shape[0];
        double unread = rows < most ? 1 - rows / most : 0;
        bytes -= unread * (bytes_of(&a->k) + bytes_of(&a->v));
    }
    return (struct ax_op_cost){4 * head_dim * attention_pairs(a), bytes}; /* q·kᵀ, p·v */
}

static struct ax_op_cost cost_attention_backward(const struct ax_attention_backward *b) {
    double head_dim = (double)b->a.q.shape[2]; /* q·kᵀ again, dout·vᵀ, dv, dq, dk */
    return (struct ax_op_cost){10 * head_dim * attention_pairs(&b->a),
                               operand_bytes(AX_OP_attention_backward, b)};
}

static struct ax_op_cost cost_scatter_rows(const struct ax_scatter_rows *a) {
    double copies = (double)ax_tensor_row_len(&a->rows);
    return (struct ax_op_cost){0, (1 + copies) * bytes_of(&a->src) + bytes_of(&a->rows)};
}

static struct ax_op_cost cost_swiglu_forward(const struct ax_swiglu_forward *a) {
    return per_element(AX_OP_swiglu_forward, a, 5, &a->y); /* −, exp, 1+, ÷, · */
}

static struct ax_op_cost cost_swiglu_backward(const struct ax_swiglu_backward *a) {
    return per_element(AX_OP_swiglu_backward, a, 11, &a->dy);
}

static struct ax_op_cost cost_router_forward(const struct ax_router_forward *a) {
    return per_element(AX_OP_router_forward, a, 6, &a->logits); /* max, −, exp, +, ·, choice */
}

static struct ax_op_cost cost_router_balance(const struct ax_router_balance *a) {
    return per_element(AX_OP_router_balance, a, 4, &a->slope);
}

static struct ax_op_cost cost_router_backward(const struct ax_router_backward *a) {
    return per_element(AX_OP_router_backward, a, 5, &a->probs); /* + slope, ·, Σ, −, · */
}

static struct ax_op_cost cost_group_rows(const struct ax_group_rows *a) {
    return per_element(AX_OP_group_rows, a, 0, &a->keys);
}

/* Of src (and dsrc) only the rows that are named move. */
static struct ax_op_cost cost_combine_forward(const struct ax_combine_forward *a) {
    double k = (double)ax_tensor_row_len(&a->rows);
    return (struct ax_op_cost){2 * k * elements(&a->out),
                               (1 + k) * bytes_of(&a->out) + bytes_of(&a->addend) +
                                   bytes_of(&a->rows) + bytes_of(&a->weights)};
}

static struct ax_op_cost cost_combine_backward(const struct ax_combine_backward *a) {
    double k = (double)ax_tensor_row_len(&a->rows);
    return (struct ax_op_cost){3 * k * elements(&a->dout), (1 + 2 * k) * bytes_of(&a->dout) +
                                                               bytes_of(&a->rows) +
                                                               2 * bytes_of(&a->weights)};
}

/* Rows as expected, the matrices of all groups once. */
static struct ax_op_cost cost_grouped_gemm(const struct ax_grouped_gemm *a) {
    const struct ax_tensor *matrices = a->trans_a ? &a->c : &a->b;
    const struct ax_tensor *other = a->trans_a ? &a->b : &a->c;
    double rows = (double)a->expected_rows;
    double widths = (double)a->a.shape[1] + (double)other->shape[1];
    return (struct ax_op_cost){2 * rows * (double)matrices->shape[1] * (double)matrices->shape[2],
                               rows * widths * (double)ax_dtype_size(a->a.dtype) +
                                   (a->trans_a ? 2 : 1) * bytes_of(matrices) +
                                   bytes_of(&a->offsets)};
}

static struct ax_op_cost cost_softmax_stats(const struct ax_softmax_stats *a) {
    return per_element(AX_OP_softmax_stats, a, 8, &a->logits); /* ·t, max, −, exp, +, +, 2 */
}

static struct ax_op_cost cost_softmax_merge(const struct ax_softmax_merge *a) {
    return per_element(AX_OP_softmax_merge, a, 2, &a->stats);
}

static struct ax_op_cost cost_softmax_backward(const struct ax_softmax_backward *a) {
    double flops = a->g_entropy.data != NULL ? 10 : a->g_lse.data != NULL ? 6 : 5;
    return per_element(AX_OP_softmax_backward, a, flops, &a->logits);
}

static struct ax_op_cost cost_nll_loss(const struct ax_nll_loss *a) {
    return per_element(AX_OP_nll_loss, a, 3, &a->logprob);
}

static struct ax_op_cost cost_argmax(const struct ax_argmax *a) {
    return per_element(AX_OP_argmax, a, 1, &a->logits);
}

static struct ax_op_cost cost_sumsq(const struct ax_sumsq *a) {
    return per_element(AX_OP_sumsq, a, 2, &a->x);
}

static struct ax_op_cost cost_clip(const struct ax_clip *a) {
    return (struct ax_op_cost){0, (double)sizeof(*a->scalars)};
}

static struct ax_op_cost cost_adamw(const struct ax_adamw *a) {
    return per_element(AX_OP_adamw, a, 16, &a->master);
}

static struct ax_op_cost cost_sgd(const struct ax_sgd *a) {
    double flops = a->momentum_buffer.data == NULL ? 5 : a->nesterov ? 9 : 7;
    return per_element(AX_OP_sgd, a, flops, &a->master);
}

static struct ax_op_cost cost_adamw_8bit(const struct ax_adamw_8bit *a) {
    return per_element(AX_OP_adamw_8bit, a, 22, &a->master); /* and twice ·scale, ÷scale, |x|max */
}

static struct ax_op_cost cost_lion(const struct ax_lion *a) {
    return per_element(AX_OP_lion, a, 11, &a->master);
}

/* g²; rows, columns (4); the update (4); its square (2); weights (3). The gradient is read once for
 * each of: moments, size of the update, update. */
static struct ax_op_cost cost_adafactor(const struct ax_adafactor *a) {
    struct ax_op_cost cost = per_element(AX_OP_adafactor, a, 14, &a->master);
    cost.bytes += 2 * bytes_of(&a->grad);
    return cost;
}

/* The sum of squares and the result are two walks over gradient and buffer. */
static struct ax_op_cost cost_muon_momentum(const struct ax_muon_momentum *a) {
    struct ax_op_cost cost = per_element(AX_OP_muon_momentum, a, 12, &a->grad);
    cost.bytes += bytes_of(&a->grad) + bytes_of(&a->momentum_buffer);
    return cost;
}

static struct ax_op_cost cost_muon_apply(const struct ax_muon_apply *a) {
    return per_element(AX_OP_muon_apply, a, 3, &a->master);
}

static struct ax_op_cost cost_quantize(const struct ax_quantize *a) {
    return per_element(AX_OP_quantize, a, 4, &a->x); /* max, ÷, compare, pack */
}

static struct ax_op_cost cost_dequantize(const struct ax_dequantize *a) {
    return per_element(AX_OP_dequantize, a, a->kind == AX_QUANT_MAP8 ? 2 : 1, &a->out);
}

static struct ax_op_cost cost_dropout(const struct ax_dropout *a) {
    struct ax_op_cost cost = per_element(AX_OP_dropout, a, a->accumulate ? 2 : 1, &a->x);
    cost.bytes += a->accumulate ? bytes_of(&a->y) : 0;
    return cost;
}

static struct ax_op_cost cost_colscale(const struct ax_colscale *a) {
    double flops = (a->scale.data != NULL) + (a->bias.data != NULL) + (a->addend.data != NULL);
    return per_element(AX_OP_colscale, a, flops, &a->x);
}

static struct ax_op_cost cost_coldot(const struct ax_coldot *a) {
    return per_element(AX_OP_coldot, a, 2, &a->a);
}

static struct ax_op_cost cost_dora_norm(const struct ax_dora_norm *a) {
    struct ax_op_cost cost = per_element(AX_OP_dora_norm, a, 2, &a->weight);
    cost.flops += 2 * elements(&a->p);
    return cost;
}

static struct ax_op_cost cost_dora_scale(const struct ax_dora_scale *a) {
    return per_element(AX_OP_dora_scale, a, 3, &a->magnitude);
}

struct ax_op_cost ax_op_cost(enum ax_op op, const void *args) {
    AX_ASSERT(op < AX_OP_COUNT);
    switch (op) {
#define CASE(name)                                                                                 \
    case AX_OP_##name:                                                                             \
        return cost_##name(args);
        AX_OP_LIST(CASE)
#undef CASE
    case AX_OP_COUNT:
        break;
    }
    return (struct ax_op_cost){0, 0};
}
