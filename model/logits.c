/* Logits from final hidden states: of the head's chunks, and of what inference asks for. */
#include "model/head.h"

struct ax_tensor ax_head_weight(const struct ax_model *m) {
    return ax_unit_weight(&m->units[m->lm_head->unit], m->lm_head);
}

enum ax_status ax_head_logits(struct ax_pass *p, const struct ax_tensor *rows,
                              const struct ax_tensor *hidden, const struct ax_tensor *logits) {
    const struct ax_tensor w = ax_head_weight(p->model);
    struct ax_gemm g = {.a = *hidden, .b = w, .c = *logits, .trans_b = true, .alpha = 1};
    const struct ax_linear *head = &p->model->head;
    if (head->bias[0])
        g.bias = ax_unit_weight(head->unit, head->bias[0]);
    AX_TRY(ax_run_gemm(p->model->rt->q, &g));
    AX_TRY(ax_adapter_head_forward(p, rows, hidden, &w, logits));
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

const struct ax_tensor *ax_pass_final_hidden(const struct ax_pass *p) {
    const struct ax_frame *f = &p->slot->frames[p->model->n_units - 1];
    return &f->saved[p->model->rt->mesh.size[AX_ROLE_TP] > 1 ? AX_HEAD_ALL_NORMED : AX_HEAD_NORMED]
                .t;
}

static enum ax_status logits_of(struct ax_pass *p, const struct ax_tensor *hidden,
                                const struct ax_tensor *out) {
    const struct ax_model *m = p->model;
    AX_TRY(ax_model_gather(m, m->n_units - 1));
    AX_TRY(ax_head_logits(p, &(struct ax_tensor){0}, hidden, out));
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
