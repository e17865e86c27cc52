/* Adapters of the embedding and the head.
 *
 * Embedding, as in PEFT: e_t = E[id_t] + s·A[:, id_t]ᵀ·Bᵀ with lora_embedding_A [r][V] and
 * lora_embedding_B [D][r], without dropout. Columns are looked up in Aᵀ, built in scratch. With tp,
 * A is split like the vocabulary, so every result is partial over tp.
 *
 * Head: the adapter of a linear, in chunks of tokens. */
#include "model/lora/adapter.h"

#include "model/adapter/embed.h"
#include "model/core/norm.h"
#include "model/parallel/tensor_parallel.h"

static struct ax_tensor take(const struct ax_pass *p, const char *name, enum ax_dtype dtype,
                             int64_t rows, int64_t cols) {
    return ax_stack_take(&p->model->rt->arena.scratch, name, ax_tensor_2d(dtype, NULL, rows, cols));
}

/* Row j of A and column j of its transpose, both as [V][1]. */
static struct ax_tensor row_of(const struct ax_tensor *a, int64_t j) {
    return ax_tensor_2d(a->dtype, ax_tensor_row(a, j), a->shape[1], 1);
}

/* A[:, id_t] of each token, [T][r]; zero if another rank has it. */
static enum ax_status look_up(const struct ax_pass *p, const struct ax_tensor *tokens,
                              struct ax_tensor *low) {
    const struct ax_model *m = p->model;
    const struct ax_adapter *a = &m->embed_adapter;
    const struct ax_tensor A = ax_unit_weight(a->unit, a->a);
    const int64_t r = A.shape[0];
    *low = take(p, "adapter projection", m->dtype, p->batch->T, r);
    const size_t mark = ax_stack_mark(&m->rt->arena.scratch);
    const struct ax_tensor turned = take(p, "adapter transposed", m->dtype, A.shape[1], r);
    for (int64_t j = 0; j < r; j++)
        AX_TRY(
            ax_run_copy(m->rt->q, &(struct ax_copy){ax_tensor_cols(&turned, j, 1), row_of(&A, j)}));
    AX_TRY(ax_run_embedding_forward(
        m->rt->q, &(struct ax_embedding_forward){.weight = turned,
                                                 .tokens = *tokens,
                                                 .out = *low,
                                                 .first_row = ax_tp_first_row(m->rt, m->embed)}));
    ax_stack_release(&m->rt->arena.scratch, mark);
    return AX_OK;
}

enum ax_status ax_adapter_embed_forward(const struct ax_pass *p, const struct ax_tensor *tokens,
                                        const struct ax_tensor *out) {
    const struct ax_model *m = p->model;
    const struct ax_adapter *a = &m->embed_adapter;
    struct ax_tensor low;
    if (!ax_adapter_is_on(a))
        return AX_OK;
    const size_t mark = ax_stack_mark(&m->rt->arena.scratch);
    AX_TRY(look_up(p, tokens, &low));
    AX_TRY(ax_run_gemm(m->rt->q, &(struct ax_gemm){.a = low,
                                                   .b = ax_unit_weight(a->unit, a->b),
                                                   .c = *out,
                                                   .trans_b = true,
                                                   .accumulate = true,
                                                   .alpha = a->scale}));
    ax_stack_release(&m->rt->arena.scratch, mark);
    return AX_OK;
}

/* dA += Σ_t (s·Bᵀ·dout_t) at column id_t. */
static enum ax_status columns_gradient(const struct ax_pass *p, const struct ax_tensor *tokens,
                                       const struct ax_tensor *up) {
    const struct ax_model *m = p->model;
    const struct ax_adapter *a = &m->embed_adapter;
    const struct ax_tensor dA = ax_unit_grad(a->unit, a->a);
    const struct ax_tensor turned =
        take(p, "adapter transposed", dA.dtype, dA.shape[1], dA.shape[0]);
    AX_TRY(ax_run_fill(m->rt->q, &(struct ax_fill){turned, 0}));
    AX_TRY(ax_run_embedding_backward(
        m->rt->q, &(struct ax_embedding_backward){.tokens = *tokens,
                                                  .dout = *up,
                                                  .dweight = turned,
                                                  .first_row = ax_tp_first_row(m->rt, m->embed),
                                                  .skip_token = m->arch.pad_token}));
    for (int64_t j = 0; j < dA.shape[0]; j++)
        AX_TRY(ax_run_add(m->rt->q,
                          &(struct ax_add){row_of(&dA, j), ax_tensor_cols(&turned, j, 1), 1}));
    return AX_OK;
}

enum ax_status ax_adapter_embed_backward(const struct ax_pass *p, const struct ax_tensor *tokens,
                                         const struct ax_tensor *stream) {
    const struct ax_model *m = p->model;
    const struct ax_adapter *a = &m->embed_adapter;
    struct ax_tensor low, dout = *stream;
    if (!a->a)
        return AX_OK;
    const size_t mark = ax_stack_mark(&m->rt->arena.scratch);
    if (dout.dtype != m->dtype) {
        dout = take(p, "gradient of embedding", m->dtype, stream->shape[0], stream->shape[1]);
        AX_TRY(ax_run_copy(m->rt->q, &(struct ax_copy){dout, *stream}));
    }
    AX_TRY(look_up(p, tokens, &low));
    const struct ax_tensor up =
        take(p, "adapter projection", dout.dtype, low.shape[0], low.shape[1]);
    AX_TRY(ax_run_gemm(m->rt->q, &(struct ax_gemm){.a = dout,
                                                   .b = low,
                                                   .c = ax_unit_grad(a->unit, a->b),
                                                   .trans_a = true,
                                                   .accumulate = true,
                                                   .alpha = a->scale}));
    AX_TRY(ax_run_gemm(
        m->rt->q, &(struct ax_gemm){
                      .a = dout, .b = ax_unit_weight(a->unit, a->b), .c = up, .alpha = a->scale}));
    AX_TRY(columns_gradient(p, tokens, &up));
    ax_stack_release(&m->rt->arena.scratch, mark);
    return AX_OK;
}

/* Dropout is numbered by the tokens of the step; these are `rows` of the batch. */
struct chunk_adapter {
    struct ax_adapter_run run;
    struct ax_adapter adapter;
};
static const struct ax_adapter *of_chunk(const struct ax_pass *p, const struct ax_tensor *rows,
                                         struct chunk_adapter *c) {
    c->adapter = p->model->head.adapter[0];
    c->run = p->model->adapter_run;
    c->run.rows = *rows;
    c->adapter.run = &c->run;
    return &c->adapter;
}

enum ax_status ax_adapter_head_forward(const struct ax_pass *p, const struct ax_tensor *rows,
                                       const struct ax_tensor *hidden, const struct ax_tensor *w,
                                       const struct ax_tensor *logits) {
    struct ax_stack *scratch = &p->model->rt->arena.scratch;
    struct chunk_adapter c;
    if (!ax_adapter_is_on(&p->model->head.adapter[0]))
        return AX_OK;
    const struct ax_adapter *a = of_chunk(p, rows, &c);
    const size_t mark = ax_stack_mark(scratch);
    const struct ax_adapter_shared shared = {
        .low = take(p, "adapter projection", hidden->dtype, hidden->shape[0], ax_adapter_rank(a))};
    const struct ax_adapter_part part = {.adapter = a, .shared = &shared, .w = *w, .y = *logits};
    AX_TRY(ax_adapters_forward(
        &(struct ax_adapter_call){.n = 1, .parts = &part, .x = *hidden, .projects = true}));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

enum ax_status ax_adapter_head_backward(const struct ax_pass *p, const struct ax_tensor *rows,
                                        const struct ax_tensor *hidden, const struct ax_tensor *w,
                                        const struct ax_tensor *dlogits,
                                        const struct ax_tensor *dhidden) {
    struct ax_stack *scratch = &p->model->rt->arena.scratch;
    struct chunk_adapter c;
    if (!p->model->head.adapter[0].a)
        return AX_OK;
    const struct ax_adapter *a = of_chunk(p, rows, &c);
    const size_t mark = ax_stack_mark(scratch);
    const int64_t T = dlogits->shape[0], r = ax_adapter_rank(a);
    const struct ax_adapter_shared shared = {
        .low = take(p, "adapter projection", dlogits->dtype, T, r),
        .up = take(p, "adapter projection", dlogits->dtype, T, r)};
    const struct ax_adapter_part part = {
        .adapter = a, .shared = &shared, .w = *w, .dy = *dlogits, .dv = *dlogits};
    const struct ax_adapter_call call = {
        .n = 1, .parts = &part, .x = *hidden, .dx = *dhidden, .projects = true};
    AX_TRY(ax_adapters_backward_inputs(&call));
    AX_TRY(ax_adapters_backward_weights(&call));
    ax_stack_release(scratch, mark);
    return AX_OK;
}
