/* The first unit: rows of the embedding, their noise and factor; see embed.h. */
#include "model/parts/embed.h"

#include "base/hash/hash.h"
#include "model/adapter/embed.h"
#include "model/parallel/tensor_parallel.h"
#include "model/parts/per_layer.h"
#include "model/parts/streams.h"

/* Noise on the embeddings of this rank's rows, numbered by the row within the step, run by run. The
 * result is kept for the whole pass, so the noise is drawn only once. */
static enum ax_status add_noise(struct ax_pass *p, const struct ax_tensor *x) {
    if (p->neftune_alpha == 0 || p->recompute == AX_RECOMPUTE_INFERENCE)
        return AX_OK;
    const struct ax_runtime *rt = p->model->rt;
    const struct ax_batch *b = p->batch;
    const int64_t from = ax_tp_first(rt, b->T), length = b->T / b->n_runs;
    for (int64_t at = from, n; at < from + x->shape[0]; at += n) {
        const int64_t run = at / length, left = from + x->shape[0] - at;
        n = (run + 1) * length - at;
        n = n < left ? n : left;
        AX_TRY(ax_run_neftune(rt->q, &(struct ax_neftune){.x = ax_tensor_rows(x, at - from, n),
                                                          .cu = b->cu_seqlens,
                                                          .alpha = p->neftune_alpha,
                                                          .stream = ax_hash32("neftune"),
                                                          .first = b->runs[run].first + at % length,
                                                          .first_token = b->first_token,
                                                          .scalars = p->scalars}));
    }
    return AX_OK;
}

/* Multiplies by the embedding's factor, in place. */
static enum ax_status scale_rows(const struct ax_model *m, const struct ax_tensor *x) {
    double scale = m->arch.embedding_scale, rounded;
    if (scale == 1)
        return AX_OK;
    if (m->arch.embedding_scale_rounded) {
        ax_store(m->dtype, &rounded, 0, scale);
        scale = ax_load(m->dtype, &rounded, 0);
    }
    return ax_run_scale(m->rt->q, &(struct ax_scale){.y = *x, .x = *x, .alpha = scale});
}

/* As in transformers, whose noise is on what the embedding returns: Gemma's has the factor within. */
static enum ax_status finish_rows(struct ax_pass *p, const struct ax_tensor *x) {
    const bool within = p->model->arch.embedding_scale_rounded;
    if (within)
        AX_TRY(scale_rows(p->model, x));
    AX_TRY(add_noise(p, x));
    return within ? AX_OK : scale_rows(p->model, x);
}

static struct ax_tensor weight_of(const struct ax_model *m) {
    return ax_unit_weight(&m->units[m->embed->unit], m->embed);
}

/* out [T][D] = the tokens' rows, 0 for those of other ranks. */
static enum ax_status look_up(const struct ax_pass *p, const struct ax_tensor *tokens,
                              const struct ax_tensor *out) {
    const struct ax_model *m = p->model;
    return ax_run_embedding_forward(
        m->rt->q, &(struct ax_embedding_forward){.weight = weight_of(m),
                                                 .tokens = *tokens,
                                                 .out = *out,
                                                 .first_row = ax_tp_first_row(m->rt, m->embed)});
}

/* ---- of a model that trains for a scheme with an embedding ---- */

static bool quantized(const struct ax_model *m) {
    return m->quant.scheme.embedding;
}

/* The same in the compute dtype, as the matrix has them, in scratch. */
static enum ax_status look_up_rows(const struct ax_pass *p, const struct ax_tensor *tokens,
                                   struct ax_tensor *rows) {
    const struct ax_model *m = p->model;
    *rows = ax_stack_take(&m->rt->arena.scratch, "embedding rows",
                          ax_tensor_2d(m->dtype, NULL, p->batch->T, m->arch.hidden_size));
    return look_up(p, tokens, rows);
}

/* Values have rows of their own, and 0 is 0 in every format. */
static enum ax_status look_up_values(const struct ax_pass *p, const struct ax_tensor *tokens,
                                     const struct ax_tensor *out) {
    const struct ax_model *m = p->model;
    const struct ax_tensor w = weight_of(m);
    struct ax_tensor rows;
    AX_TRY(look_up_rows(p, tokens, &rows));
    AX_TRY(ax_fake_quant_rows(m->rt, &m->quant, m->embed, &w, &rows));
    return ax_run_copy(m->rt->q, &(struct ax_copy){*out, rows});
}

/* dout, the gradient of the values, becomes that of the rows. */
static enum ax_status values_gradient(const struct ax_pass *p, const struct ax_tensor *tokens,
                                      const struct ax_tensor *dout) {
    const struct ax_model *m = p->model;
    struct ax_tensor rows;
    if (!ax_fake_quant_clips(&m->quant))
        return AX_OK;
    AX_TRY(look_up_rows(p, tokens, &rows));
    return ax_fake_quant_rows_grad(m->rt, &m->quant, m->embed, &rows, dout);
}

/* ---- the unit ---- */

/* Looks up rows in this rank's part of the vocabulary and sums them over the ranks. */
static enum ax_status sum_rows(struct ax_pass *p, const struct ax_tensor *tokens,
                               const struct ax_tensor *out) {
    struct ax_model *m = p->model;
    struct ax_stack *scratch = &m->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    const struct ax_tensor partial = ax_tp_partial(m->rt, out);
    AX_TRY(quantized(m) ? look_up_values(p, tokens, &partial) : look_up(p, tokens, &partial));
    AX_TRY(ax_adapter_embed_forward(p, tokens, &partial));
    AX_TRY(ax_tp_reduce(m->rt, &partial, NULL, out));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

enum ax_status ax_embed_rows(struct ax_pass *p, const struct ax_tensor *tokens,
                             const struct ax_tensor *out) {
    AX_TRY(sum_rows(p, tokens, out));
    return scale_rows(p->model, out);
}

enum ax_status ax_embed_rows_backward(struct ax_pass *p, const struct ax_tensor *tokens,
                                      const struct ax_tensor *d) {
    struct ax_model *m = p->model;
    struct ax_stack *scratch = &m->rt->arena.scratch;
    const struct ax_unit *unit = &m->units[m->embed->unit];
    const bool begins = ax_unit_grad_begins(unit, m->embed); /* no head has written it */
    struct ax_embedding_backward back = {.tokens = *tokens,
                                         .dweight = ax_unit_grad(unit, m->embed),
                                         .first_row = ax_tp_first_row(m->rt, m->embed),
                                         .skip_token = m->arch.pad_token};
    if (!back.dweight.data && !m->embed_adapter.a)
        return AX_OK;
    const size_t mark = ax_stack_mark(scratch);
    if (begins)
        AX_TRY(ax_run_fill(m->rt->q, &(struct ax_fill){back.dweight, 0}));
    AX_TRY(scale_rows(m, d));
    AX_TRY(ax_tp_gather(m->rt, d, &back.dout));
    if (back.dweight.data && quantized(m))
        AX_TRY(values_gradient(p, tokens, &back.dout));
    if (back.dweight.data)
        AX_TRY(ax_run_embedding_backward(m->rt->q, &back));
    AX_TRY(ax_adapter_embed_backward(p, tokens, &back.dout));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

enum ax_status ax_embed_forward(struct ax_pass *p) {
    struct ax_stack *scratch = &p->model->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    const struct ax_tensor out = ax_streams_take_first(p);
    AX_TRY(sum_rows(p, &p->batch->tokens, &out));
    AX_TRY(finish_rows(p, &out));
    AX_TRY(ax_streams_begin_forward(p, &out));
    ax_stack_release(scratch, mark);
    return ax_per_layer_forward(p);
}

enum ax_status ax_embed_backward(struct ax_pass *p) {
    struct ax_stack *scratch = &p->model->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    struct ax_tensor d;
    AX_TRY(ax_streams_begin_backward(p));
    AX_TRY(ax_per_layer_backward(p));
    AX_TRY(ax_streams_first_gradient(p, &d));
    AX_TRY(ax_embed_rows_backward(p, &p->batch->tokens, &d));
    ax_stack_release(scratch, mark);
    return AX_OK;
}
