/* The contract of kernels/ops.h as conditions: what every backend may rely on. A call that breaks
 * one is our own bug, and the dispatcher says which condition and with which operands. */
#include "kernels/ops_check.h"

#include "kernels/panels.h"

const char *ax_check_fill(const struct ax_fill *a) {
    NEED(given(&a->dst) && rows_apart(&a->dst));
    return NULL;
}

const char *ax_check_copy(const struct ax_copy *a) {
    NEED(same_shape(&a->dst, &a->src));
    NEED(a->dst.dtype == a->src.dtype ||
         (ax_dtype_info(a->dst.dtype)->is_float && ax_dtype_info(a->src.dtype)->is_float));
    return NULL;
}

const char *ax_check_add(const struct ax_add *a) {
    NEED(same_shape(&a->dst, &a->src));
    NEED(real_or_accum(&a->dst, &a->src));
    return NULL;
}

const char *ax_check_gemm(const struct ax_gemm *g) {
    NEED(g->a.ndim == 2 && real(&g->a));
    int64_t m = g->a.shape[g->trans_a ? 1 : 0];
    int64_t k = g->a.shape[g->trans_a ? 0 : 1];
    NEED(g->b.ndim == 2);
    int64_t n = g->b.shape[g->trans_b ? 0 : 1];
    NEED(given(&g->a) && rows_apart(&g->a));
    NEED(is_2d(&g->b, g->a.dtype, g->trans_b ? n : k, g->trans_b ? k : n));
    NEED(g->c.dtype == g->a.dtype || g->c.dtype == accum(&g->a));
    NEED(is_2d(&g->c, g->c.dtype, m, n));
    NEED(!given(&g->bias) || is_1d(&g->bias, g->a.dtype, n));
    NEED(!given(&g->addend) || is_2d(&g->addend, g->c.dtype, m, n));
    NEED(!given(&g->addend) || !g->accumulate);
    return NULL;
}

const char *ax_check_colsum(const struct ax_colsum *a) {
    NEED(a->x.ndim == 2 && real(&a->x) && given(&a->x) && rows_apart(&a->x));
    NEED(is_1d(&a->out, accum(&a->x), a->x.shape[1]));
    return NULL;
}

const char *ax_check_embedding_forward(const struct ax_embedding_forward *a) {
    NEED(a->weight.ndim == 2 && real(&a->weight) && given(&a->weight));
    NEED(is_1d(&a->tokens, AX_I32, a->out.shape[0]));
    NEED(is_stream(&a->out, a->weight.dtype));
    NEED(is_2d(&a->out, a->out.dtype, a->out.shape[0], a->weight.shape[1]));
    return NULL;
}

const char *ax_check_embedding_backward(const struct ax_embedding_backward *a) {
    NEED(a->dweight.ndim == 2 && a->dout.ndim == 2 && real(&a->dout));
    NEED(is_2d(&a->dout, a->dout.dtype, a->dout.shape[0], a->dweight.shape[1]));
    NEED(is_1d(&a->tokens, AX_I32, a->dout.shape[0]));
    NEED(given(&a->dweight) && a->dweight.dtype == accum(&a->dout));
    return NULL;
}

const char *ax_check_neftune(const struct ax_neftune *a) {
    NEED(a->x.ndim == 2 && real(&a->x));
    NEED(is_2d(&a->x, a->x.dtype, a->x.shape[0], a->x.shape[1]));
    NEED(a->cu.shape[0] >= 1 && is_1d(&a->cu, AX_I32, a->cu.shape[0]));
    NEED(a->scalars != NULL);
    return NULL;
}

/* rstd has the dimensions of x without the last. */
static bool is_rstd(tensor rstd, tensor x) {
    bool fits = given(rstd) && rstd->dtype == accum(x) && rstd->ndim == x->ndim - 1 &&
                ax_tensor_is_dense(rstd);
    for (int i = 0; i < rstd->ndim && fits; i++) {
        fits = rstd->shape[i] == x->shape[i];
    }
    return fits;
}

const char *ax_check_rmsnorm_forward(const struct ax_rmsnorm_forward *a) {
    NEED(real(&a->x) && (a->x.ndim == 2 || a->x.ndim == 3));
    NEED(same_shape(&a->x, &a->y) && a->y.dtype == a->weight.dtype);
    NEED(is_stream(&a->x, a->weight.dtype));
    NEED(is_1d(&a->weight, a->weight.dtype, a->x.shape[a->x.ndim - 1]));
    NEED(is_rstd(&a->rstd, &a->x));
    return NULL;
}

const char *ax_check_rmsnorm_backward(const struct ax_rmsnorm_backward *a) {
    NEED(real(&a->x) && (a->x.ndim == 2 || a->x.ndim == 3));
    NEED(same_shape(&a->x, &a->dy));
    NEED(a->dy.dtype == a->weight.dtype || a->dy.dtype == a->x.dtype);
    NEED(same_shape(&a->x, &a->dx) && a->dx.dtype == a->x.dtype);
    NEED(!a->accumulate || a->dx.data != a->dy.data);
    NEED(a->dx.data != a->dy.data || a->dy.dtype == a->dx.dtype);
    NEED(is_stream(&a->x, a->weight.dtype));
    NEED(is_1d(&a->weight, a->weight.dtype, a->x.shape[a->x.ndim - 1]));
    NEED(!given(&a->dweight) || is_1d(&a->dweight, accum(&a->x), a->x.shape[a->x.ndim - 1]));
    NEED(is_rstd(&a->rstd, &a->x));
    return NULL;
}

const char *ax_check_rope(const struct ax_rope *a) {
    NEED(a->x.ndim == 3 && real(&a->x) && given(&a->x) && rows_apart(&a->x));
    NEED(is_2d(&a->cos, accum(&a->x), a->cos.shape[0], a->cos.shape[1]));
    NEED(is_2d(&a->sin, accum(&a->x), a->cos.shape[0], a->cos.shape[1]));
    NEED(2 * a->cos.shape[1] <= a->x.shape[2]);
    NEED(is_1d(&a->positions, AX_I32, a->x.shape[0]));
    return NULL;
}

static const char *check_attention(const struct ax_attention *a) {
    NEED(a->q.ndim == 3 && a->k.ndim == 3 && real(&a->q));
    int64_t tq = a->q.shape[0], heads = a->q.shape[1], head_dim = a->q.shape[2];
    int64_t tk = a->k.shape[0], kv_heads = a->k.shape[1];
    NEED(is_3d(&a->q, a->q.dtype, tq, heads, head_dim));
    NEED(is_3d(&a->k, a->q.dtype, tk, kv_heads, head_dim));
    NEED(is_3d(&a->v, a->q.dtype, tk, kv_heads, head_dim));
    NEED(is_3d(&a->out, a->q.dtype, tq, heads, head_dim));
    NEED(kv_heads > 0 && heads % kv_heads == 0);
    NEED(is_2d(&a->lse, accum(&a->q), tq, heads));
    NEED(a->cu_q.shape[0] >= 1 && is_1d(&a->cu_q, AX_I32, a->cu_q.shape[0]));
    NEED(is_1d(&a->cu_k, AX_I32, a->cu_q.shape[0]));
    NEED(!given(&a->sink) || is_1d(&a->sink, accum(&a->q), heads));
    NEED(a->max_q >= 0 && a->max_k >= 0 && a->window >= 0);
    NEED(a->window == 0 || a->causal);
    return NULL;
}

const char *ax_check_attention_forward(const struct ax_attention_forward *f) {
    const struct ax_attention *a = &f->a;
    tensor table = &a->block_table;
    NEED(!given(table) || (a->block_size > 0 && a->k.shape[0] % a->block_size == 0));
    NEED(!given(table) || is_2d(table, AX_I32, a->cu_q.shape[0] - 1, table->shape[1]));
    return check_attention(a);
}

const char *ax_check_attention_backward(const struct ax_attention_backward *b) {
    const struct ax_attention *a = &b->a;
    NEED(!given(&a->block_table));
    NEED(same_shape(&b->dout, &a->out) && b->dout.dtype == a->q.dtype);
    NEED(same_shape(&b->dq, &a->q) && b->dq.dtype == a->q.dtype);
    NEED(same_shape(&b->dk, &a->k) && b->dk.dtype == a->q.dtype);
    NEED(same_shape(&b->dv, &a->v) && b->dv.dtype == a->q.dtype);
    NEED(!given(&a->sink) || is_1d(&b->dsink, accum(&a->q), a->q.shape[1]));
    return check_attention(a);
}

const char *ax_check_scatter_rows(const struct ax_scatter_rows *a) {
    NEED(given(&a->dst) && given(&a->src) && a->dst.dtype == a->src.dtype);
    NEED(rows_apart(&a->dst) && rows_apart(&a->src));
    NEED(ax_tensor_row_len(&a->dst) == ax_tensor_row_len(&a->src));
    NEED(is_index(&a->rows, a->src.shape[0]));
    return NULL;
}

const char *ax_check_swiglu_forward(const struct ax_swiglu_forward *a) {
    NEED(a->y.ndim == 2 && real(&a->y));
    NEED(is_2d(&a->y, a->y.dtype, a->y.shape[0], a->y.shape[1]));
    NEED(is_2d(&a->gate_up, a->y.dtype, a->y.shape[0], 2 * a->y.shape[1]));
    return NULL;
}

const char *ax_check_swiglu_backward(const struct ax_swiglu_backward *a) {
    NEED(a->dy.ndim == 2 && real(&a->dy));
    NEED(is_2d(&a->dy, a->dy.dtype, a->dy.shape[0], a->dy.shape[1]));
    NEED(is_2d(&a->gate_up, a->dy.dtype, a->dy.shape[0], 2 * a->dy.shape[1]));
    NEED(is_2d(&a->dgate_up, a->dy.dtype, a->dy.shape[0], 2 * a->dy.shape[1]));
    return NULL;
}

const char *ax_check_softmax_stats(const struct ax_softmax_stats *a) {
    NEED(a->logits.ndim == 2 && real(&a->logits) && a->logits.shape[1] >= 1);
    NEED(is_2d(&a->logits, a->logits.dtype, a->logits.shape[0], a->logits.shape[1]));
    NEED(is_1d(&a->labels, AX_I32, a->logits.shape[0]));
    NEED(is_2d(&a->stats, accum(&a->logits), a->logits.shape[0], AX_SOFTMAX_STATS));
    return NULL;
}

const char *ax_check_softmax_merge(const struct ax_softmax_merge *a) {
    NEED(a->stats.ndim == 3 && a->stats.shape[0] >= 1);
    int64_t rows = a->stats.shape[1];
    NEED(a->stats.dtype == AX_F32 || a->stats.dtype == AX_F64);
    NEED(is_3d(&a->stats, a->stats.dtype, a->stats.shape[0], rows, AX_SOFTMAX_STATS));
    NEED(is_1d(&a->labels, AX_I32, rows));
    NEED(is_1d(&a->logprob, a->stats.dtype, rows));
    NEED(is_1d(&a->lse, a->stats.dtype, rows));
    NEED(is_1d(&a->entropy, a->stats.dtype, rows));
    NEED(!given(&a->mean_logprob) ||
         (is_1d(&a->mean_logprob, a->stats.dtype, rows) && a->vocab > 0));
    return NULL;
}

const char *ax_check_softmax_backward(const struct ax_softmax_backward *a) {
    NEED(a->logits.ndim == 2 && real_or_accum(&a->dlogits, &a->logits));
    int64_t rows = a->logits.shape[0];
    enum ax_dtype sums = accum(&a->logits);
    NEED(is_2d(&a->logits, a->logits.dtype, rows, a->logits.shape[1]));
    NEED(is_2d(&a->dlogits, a->dlogits.dtype, rows, a->logits.shape[1]));
    NEED(a->dlogits.data != a->logits.data || a->dlogits.dtype == a->logits.dtype);
    NEED(is_1d(&a->labels, AX_I32, rows));
    NEED(is_1d(&a->lse, sums, rows) && is_1d(&a->entropy, sums, rows));
    NEED(is_1d(&a->g_logprob, sums, rows));
    NEED(!given(&a->g_lse) || is_1d(&a->g_lse, sums, rows));
    NEED(!given(&a->g_entropy) || is_1d(&a->g_entropy, sums, rows));
    NEED(!given(&a->g_mean) || (is_1d(&a->g_mean, sums, rows) && a->vocab > 0));
    return NULL;
}

const char *ax_check_nll_loss(const struct ax_nll_loss *a) {
    int64_t rows = a->logprob.shape[0];
    NEED(a->logprob.dtype == AX_F32 || a->logprob.dtype == AX_F64);
    NEED(is_1d(&a->logprob, a->logprob.dtype, rows));
    NEED(is_1d(&a->g_logprob, a->logprob.dtype, rows));
    NEED(is_1d(&a->labels, AX_I32, rows) && is_1d(&a->weight, AX_F32, rows));
    NEED(a->label_smoothing == 0 || (is_1d(&a->mean_logprob, a->logprob.dtype, rows) &&
                                     is_1d(&a->g_mean, a->logprob.dtype, rows)));
    NEED(a->z_loss == 0 ||
         (is_1d(&a->lse, a->logprob.dtype, rows) && is_1d(&a->g_lse, a->logprob.dtype, rows)));
    NEED(a->scalars != NULL);
    return NULL;
}

const char *ax_check_argmax(const struct ax_argmax *a) {
    NEED(a->logits.ndim == 2 && real(&a->logits) && a->logits.shape[1] >= 1);
    NEED(is_2d(&a->logits, a->logits.dtype, a->logits.shape[0], a->logits.shape[1]));
    NEED(is_1d(&a->index, AX_I32, a->logits.shape[0]));
    return NULL;
}

const char *ax_check_sumsq(const struct ax_sumsq *a) {
    NEED(a->x.dtype == AX_F32 || a->x.dtype == AX_F64);
    NEED(is_1d(&a->x, a->x.dtype, a->x.shape[0]));
    NEED(a->scalars != NULL);
    return NULL;
}

const char *ax_check_clip(const struct ax_clip *a) {
    NEED(a->scalars != NULL);
    return NULL;
}

/* Panels are for products that read a weight along k, and for looking up its rows. */
static const char *check_panels(enum ax_op op, const void *args) {
    for (const struct ax_operand *o = ax_op_operands(op); o->name != NULL; o++) {
        tensor t = (tensor)(const void *)((const char *)args + o->offset);
        if (!given(t) || !t->panels) {
            continue;
        }
        const bool product = op == AX_OP_gemm && o->offset == offsetof(struct ax_gemm, b) &&
                             ((const struct ax_gemm *)args)->trans_b;
        NEED(product || (op == AX_OP_embedding_forward &&
                         o->offset == offsetof(struct ax_embedding_forward, weight)));
        NEED(ax_panels_fit(t) && ax_tensor_is_dense(t));
    }
    return NULL;
}

const char *ax_op_broken_rule(enum ax_op op, const void *args) {
    AX_ASSERT(op < AX_OP_COUNT);
    const char *panels = check_panels(op, args);
    if (panels != NULL) {
        return panels;
    }
    switch (op) {
#define CASE(name)                                                                                 \
    case AX_OP_##name:                                                                             \
        return ax_check_##name(args);
        AX_OP_LIST(CASE)
#undef CASE
    case AX_OP_COUNT:
        break;
    }
    return NULL;
}
