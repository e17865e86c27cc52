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

bool ax_linear_takes_codes(const struct ax_runtime *rt, const struct ax_linear *l, bool *odd) {
    const struct ax_ops *device = rt->q->model;
    const struct ax_fp8_gemm any = {0};
    const struct ax_fake_quant *f = ax_linear_quant(l);
    bool takes = f && ax_fake_quant_of_tensors(f) && device->fp8_products &&
                 device->supports(rt->q, AX_OP_fp8_gemm, &any);
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
    int64_t at = 0;
    for (int i = r->first; i < r->end; i++) {
        const struct ax_tensor part = ax_tensor_cols(dy, at, l->weight[i]->local_shape[0]);
        AX_TRY(ax_fake_quant_grad_codes(rt, l->quant, share, layouts, &part, &to->part[i]));
        at += part.shape[1];
    }
    return AX_OK;
}

enum ax_status ax_linear_outputs_of_codes(struct ax_runtime *rt,
                                          const struct ax_linear_product *p) {
    int64_t at = 0;
    for (int i = p->r->first; i < p->r->end; i++) {
        const struct ax_fake_codes *w = &p->w->part[i];
        const int64_t n = w->rows.shape[0];
        const struct ax_fp8_gemm g = {.a = p->x->rows,
                                      .b = w->rows,
                                      .a_scale = p->x->scale,
                                      .b_scale = w->scale,
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
                                      .a_scale = dy->scale,
                                      .b_scale = w->scale,
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
        const struct ax_fp8_gemm g = {.a = dy->columns,
                                      .b = p->x->columns,
                                      .a_scale = dy->scale,
                                      .b_scale = p->x->scale,
                                      .c = ax_tensor_rows(&p->c, at, n),
                                      .a_kind = dy->kind,
                                      .b_kind = p->x->kind,
                                      .accumulate = true};
        AX_TRY(ax_run_fp8_gemm(rt->q, &g));
        at += n;
    }
    return AX_OK;
}
