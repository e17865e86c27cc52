/* Logits from final hidden states: of the head's chunks, and of what inference asks for; and the gradients of what
 * they are made with. */
#include "model/parts/head.h"

#include "model/adapter/embed.h"

#define CLIPPED_ROWS 4096 /* of a gradient that rounding clips */

enum ax_status ax_head_weight(const struct ax_model *m, struct ax_tensor *w) {
    return ax_linear_weights(m->rt, &m->head, w);
}

enum ax_status ax_head_inputs(const struct ax_model *m, struct ax_tensor *hidden) {
    const struct ax_fake_quant *quant = ax_linear_quant(&m->head);
    return quant ? ax_fake_quant_input(m->rt, quant, AX_FAKE_ALL, AX_SUM_COLUMNS, hidden) : AX_OK;
}

enum ax_status ax_head_logits(struct ax_pass *p, const struct ax_tensor *w,
                              const struct ax_tensor *rows, const struct ax_tensor *hidden,
                              const struct ax_tensor *logits) {
    struct ax_runtime *rt = p->model->rt;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    struct ax_gemm g = {.a = *hidden, .b = *w, .c = *logits, .trans_b = true, .alpha = 1};
    const struct ax_linear *head = &p->model->head;
    if (head->bias[0])
        g.bias = ax_unit_weight(head->unit, head->bias[0]);
    AX_TRY(ax_head_inputs(p->model, &g.a));
    AX_TRY(ax_run_gemm(rt->q, &g));
    ax_stack_release(&rt->arena.scratch, mark);
    AX_TRY(ax_adapter_head_forward(p, rows, hidden, w, logits));
    const struct ax_arch *a = &p->model->arch;
    if (a->logit_scale == 1 && a->logit_softcap == 0)
        return AX_OK;
    return ax_run_scale(p->model->rt->q, &(struct ax_scale){.y = *logits,
                                                            .x = *logits,
                                                            .alpha = a->logit_scale,
                                                            .softcap = a->logit_softcap});
}

enum ax_status ax_head_logits_backward(const struct ax_model *m, const struct ax_tensor *logits,
                                       const struct ax_tensor *d) {
    const double scale = m->arch.logit_scale, cap = m->arch.logit_softcap;
    if (cap > 0)
        return ax_run_softcap_backward(
            m->rt->q, &(struct ax_softcap_backward){
                          .dx = *d, .dy = *d, .y = *logits, .alpha = scale, .softcap = cap});
    return scale == 1
               ? AX_OK
               : ax_run_scale(m->rt->q, &(struct ax_scale){.y = *d, .x = *d, .alpha = scale});
}

/* dW += the gradient of W, where rounding clips and so differs from that of the values; some rows at a
 * time, whose gradient of values is in scratch. */
static enum ax_status clipped_gradient(const struct ax_model *m, const struct ax_tensor *dlogits,
                                       const struct ax_tensor *hidden, const struct ax_tensor *dw) {
    const int64_t V = m->lm_head->local_shape[0], most = V < CLIPPED_ROWS ? V : CLIPPED_ROWS;
    const size_t mark = ax_stack_mark(&m->rt->arena.scratch);
    const struct ax_tensor w = ax_unit_weight(m->head.unit, m->lm_head);
    struct ax_tensor all = ax_tensor_2d(dw->dtype, NULL, most, dw->shape[1]);
    all.data = ax_stack_push(&m->rt->arena.scratch, "gradient of values", ax_tensor_bytes(&all));
    for (int64_t at = 0; at < V; at += most) {
        const int64_t n = V - at < most ? V - at : most;
        const struct ax_tensor d = ax_tensor_rows(&all, 0, n), to = ax_tensor_rows(dw, at, n);
        const struct ax_tensor rows = ax_tensor_rows(&w, at, n);
        AX_TRY(ax_run_gemm(m->rt->q, &(struct ax_gemm){.a = ax_tensor_cols(dlogits, at, n),
                                                       .b = *hidden,
                                                       .c = d,
                                                       .trans_a = true,
                                                       .alpha = 1}));
        AX_TRY(ax_fake_quant_weight_grad(m->rt, m->head.quant, m->lm_head, &rows, &d, &to));
    }
    ax_stack_release(&m->rt->arena.scratch, mark);
    return AX_OK;
}

enum ax_status ax_head_weight_gradients(const struct ax_model *m, const struct ax_tensor *dlogits,
                                        const struct ax_tensor *hidden) {
    const struct ax_param *bias = m->head.bias[0];
    const struct ax_tensor dw = ax_unit_grad(m->head.unit, m->lm_head);
    if (dw.data && m->head.quant && ax_fake_quant_clips(m->head.quant))
        AX_TRY(clipped_gradient(m, dlogits, hidden, &dw));
    else if (dw.data)
        AX_TRY(ax_run_gemm(m->rt->q, &(struct ax_gemm){.a = *dlogits,
                                                       .b = *hidden,
                                                       .c = dw,
                                                       .trans_a = true,
                                                       .accumulate = true,
                                                       .alpha = 1}));
    if (!bias)
        return AX_OK;
    const struct ax_tensor db = ax_unit_grad(m->head.unit, bias);
    return db.data ? ax_run_colsum(m->rt->q, &(struct ax_colsum){*dlogits, db}) : AX_OK;
}

const struct ax_tensor *ax_pass_final_hidden(const struct ax_pass *p) {
    const struct ax_frame *f = &p->slot->frames[p->model->n_units - 1];
    return &f->saved[p->model->rt->mesh.size[AX_ROLE_TP] > 1 ? AX_HEAD_ALL_NORMED : AX_HEAD_NORMED]
                .t;
}

static enum ax_status logits_of(struct ax_pass *p, const struct ax_tensor *hidden,
                                const struct ax_tensor *out) {
    const struct ax_model *m = p->model;
    const size_t mark = ax_stack_mark(&m->rt->arena.scratch);
    struct ax_tensor w;
    AX_TRY(ax_model_gather(m, m->n_units - 1));
    AX_TRY(ax_head_weight(m, &w));
    AX_TRY(ax_head_logits(p, &w, &(struct ax_tensor){0}, hidden, out));
    ax_stack_release(&m->rt->arena.scratch, mark);
    ax_model_release(m, m->n_units - 1);
    return AX_OK;
}

enum ax_status ax_pass_logits(struct ax_pass *p, int64_t first, int64_t n, struct ax_tensor *out) {
    const struct ax_tensor hidden = ax_tensor_rows(ax_pass_final_hidden(p), first, n);
    return logits_of(p, &hidden, out);
}

enum ax_status ax_pass_logits_of(struct ax_pass *p, const struct ax_tensor *rows,
                                 const struct ax_tensor *work, const struct ax_tensor *out) {
    const struct ax_tensor hidden = ax_tensor_rows(work, 0, out->shape[0]);
    AX_TRY(ax_run_combine_forward(
        p->model->rt->q, &(struct ax_combine_forward){
                             .src = *ax_pass_final_hidden(p), .rows = *rows, .out = hidden}));
    return logits_of(p, &hidden, out);
}
