/* Which linears multiply codes, a run's codes, and its products. */
#include "model/core/linear_codes.h"

static bool is_multiple(int64_t n) {
    return n % AX_FP8_STEP == 0;
}

static bool has_even_sizes(const struct ax_linear *l) {
    bool even = is_multiple(ax_linear_in(l));
    for (int i = 0; i < l->n_parts; i++)
        even = even && is_multiple(l->weight[i]->local_shape[0]);
    return even;
}

bool ax_linear_device_takes_codes(const struct ax_queue *q, bool of_tensors) {
    const struct ax_fp8_gemm any = {.b_scale =
                                        ax_tensor_1d(AX_F32, NULL, of_tensors ? 1 : AX_FP8_STEP)};
    return q->model->fp8_products && q->model->supports(q, AX_OP_fp8_gemm, &any);
}

bool ax_linear_takes_codes(const struct ax_runtime *rt, const struct ax_linear *l, bool *odd) {
    const struct ax_fake_quant *f = ax_linear_quant(l);
    bool takes = f && f->scheme.quantizes_grad &&
                 ax_linear_device_takes_codes(rt->q, ax_fake_quant_of_tensors(f));
    for (int i = 0; i < l->n_parts; i++)
        takes = takes && !ax_adapter_scales(&l->adapter[i]) &&
                !ax_unit_has_codes(l->unit, l->weight[i]) &&
                l->unit->segments[l->weight[i]->segment].compute != AX_F64;
    if (odd)
        *odd = takes && !has_even_sizes(l);
    return takes && has_even_sizes(l);
}

enum ax_status ax_linear_weight_codes(struct ax_runtime *rt, const struct ax_linear *l,
                                      const struct ax_linear_run *r, unsigned layouts,
                                      const struct ax_tensor *w, struct ax_linear_codes *to) {
    int64_t at = 0;
    if (layouts == AX_CODES_ROWS && !ax_fake_quant_of_tensors(l->quant))
        return ax_fake_quant_weight_codes(rt, l->quant, l->weight[r->first], layouts, w,
                                          &to->part[r->first]);
    for (int i = r->first; i < r->end; i++) {
        const struct ax_tensor part = ax_tensor_rows(w, at, l->weight[i]->local_shape[0]);
        AX_TRY(
            ax_fake_quant_weight_codes(rt, l->quant, l->weight[i], layouts, &part, &to->part[i]));
        at += part.shape[0];
    }
    return AX_OK;
}

enum ax_status ax_linear_grad_codes(struct ax_runtime *rt, const struct ax_linear *l,
                                    const struct ax_linear_run *r, unsigned layouts,
                                    const struct ax_tensor *dy, struct ax_linear_codes *to) {
    const struct ax_fake_part share = ax_linear_share(l, AX_SPLIT_OUTPUTS);
    const unsigned each =
        ax_fake_quant_of_tensors(l->quant) ? layouts : layouts & (unsigned)AX_CODES_ROWS;
    struct ax_fake_codes all;
    int64_t at = 0;
    AX_TRY(ax_fake_quant_grad_codes(rt, l->quant, share, layouts & ~each, dy, &all));
    for (int i = r->first; i < r->end; i++) {
        const struct ax_tensor part =
            ax_linear_grad_part(dy, i - r->first, at, l->weight[i]->local_shape[0]);
        AX_TRY(ax_fake_quant_grad_codes(rt, l->quant, share, each, &part, &to->part[i]));
        at += part.shape[1];
    }
    if (layouts & ~each) {
        to->part[r->first].columns = all.columns;
        to->part[r->first].column_scale = all.column_scale;
    }
    return AX_OK;
}

enum ax_status ax_linear_outputs_of_codes(struct ax_runtime *rt,
                                          const struct ax_linear_product *p) {
    int64_t at = 0;
    for (int i = p->r->first; i < p->r->end; i++) {
        const struct ax_fake_codes *w = &p->w->part[i];
        const int64_t n = w->rows.shape[0];
        if (!w->rows.data)
            continue;
        const struct ax_fp8_gemm g = {.a = p->x->rows,
                                      .b = w->rows,
                                      .a_scale = p->x->row_scale,
                                      .b_scale = w->row_scale,
                                      .c = ax_linear_columns(&p->c, at, n),
                                      .bias = ax_linear_columns(&p->bias, at, n),
                                      .addend = ax_linear_columns(&p->addend, at, n),
                                      .a_kind = p->x->kind,
                                      .b_kind = w->kind,
                                      .accumulate = p->adds};
        AX_TRY(ax_run_fp8_gemm(rt->q, &g));
        at += n;
    }
    return AX_OK;
}

enum ax_status ax_linear_inputs_of_codes(struct ax_runtime *rt, const struct ax_linear_product *p) {
    for (int i = p->r->first; i < p->r->end; i++) {
        const struct ax_fake_codes *dy = &p->dy->part[i], *w = &p->w->part[i];
        const struct ax_fp8_gemm g = {.a = dy->rows,
                                      .b = w->columns,
                                      .a_scale = dy->row_scale,
                                      .b_scale = w->column_scale,
                                      .c = p->c,
                                      .a_kind = dy->kind,
                                      .b_kind = w->kind,
                                      .accumulate = p->adds || i > p->r->first};
        AX_TRY(ax_run_fp8_gemm(rt->q, &g));
    }
    return AX_OK;
}

enum ax_status ax_linear_gradients_of_codes(struct ax_runtime *rt,
                                            const struct ax_linear_product *p) {
    int64_t at = 0;
    for (int i = p->r->first; i < p->r->end; i++) {
        const struct ax_fake_codes *dy = &p->dy->part[i];
        const int64_t n = dy->columns.shape[0];
        if (!dy->columns.data)
            continue;
        const struct ax_fp8_gemm g = {.a = dy->columns,
                                      .b = p->x->columns,
                                      .a_scale = dy->column_scale,
                                      .b_scale = p->x->column_scale,
                                      .c = ax_tensor_rows(&p->c, at, n),
                                      .a_kind = dy->kind,
                                      .b_kind = p->x->kind,
                                      .accumulate = p->adds};
        AX_TRY(ax_run_fp8_gemm(rt->q, &g));
        at += n;
    }
    return AX_OK;
}
