/* Operands: how parts join into runs, and what quantization makes of them. */
#include "model/core/linear_operands.h"

int64_t ax_linear_in(const struct ax_linear *l) {
    return l->weight[0]->local_shape[1];
}

int64_t ax_linear_out(const struct ax_linear *l) {
    int64_t out = 0;
    for (int i = 0; i < l->n_parts; i++)
        out += l->weight[i]->local_shape[0];
    return out;
}

static bool behind(const struct ax_param *a, const struct ax_param *b) {
    return a->segment == b->segment && b->offset == a->offset + ax_param_local_numel(a);
}

/* Packed parts are unpacked contiguously; others must be stored contiguously. */
static bool joins(const struct ax_linear *l, int part) {
    const struct ax_param *w = l->weight[part], *before = l->weight[part - 1];
    const bool packed = ax_unit_is_packed(l->unit, w);
    if (packed != ax_unit_is_packed(l->unit, before) || (!packed && !behind(before, w)) ||
        w->panels != before->panels)
        return false;
    return !l->bias[0] || behind(l->bias[part - 1], l->bias[part]);
}

bool ax_linear_next_run(const struct ax_linear *l, struct ax_linear_run *r) {
    if (r->end == l->n_parts)
        return false;
    const int first = r->end;
    int end = first + 1;
    int64_t out = l->weight[first]->local_shape[0];
    while (end < l->n_parts && joins(l, end))
        out += l->weight[end++]->local_shape[0];
    *r = (struct ax_linear_run){first, end, r->at + r->out, out};
    return true;
}

struct ax_tensor ax_linear_joined(const struct ax_linear *l, const struct ax_linear_run *r,
                                  struct ax_tensor first, int ndim) {
    if (!first.data)
        return first;
    const int64_t shape[] = {r->out, ax_linear_in(l)};
    struct ax_tensor all = ax_tensor_nd(first.dtype, first.data, ndim, shape);
    all.panels = first.panels;
    return all;
}

const struct ax_fake_quant *ax_linear_quant(const struct ax_linear *l) {
    return l->quant && (l->quant->on || !l->quant->scheme.quantizes_grad) ? l->quant : NULL;
}

static bool is_fp8(const struct ax_linear *l) {
    return ax_linear_quant(l) && l->quant->scheme.quantizes_grad;
}

enum ax_status ax_linear_run_weight(struct ax_runtime *rt, const struct ax_linear *l,
                                    const struct ax_linear_run *r, struct ax_tensor *out) {
    const struct ax_param *first = l->weight[r->first];
    if (!ax_unit_is_packed(l->unit, first)) {
        *out = ax_linear_joined(l, r, ax_unit_weight(l->unit, first), 2);
        return AX_OK;
    }
    AX_ASSERT(!ax_unit_has_codes(l->unit, first) || is_fp8(l));
    *out = ax_stack_take(
        &rt->arena.scratch, "unpacked weights",
        ax_tensor_2d(l->unit->segments[first->segment].compute, NULL, r->out, ax_linear_in(l)));
    int64_t at = 0;
    for (int i = r->first; i < r->end; i++) {
        const int64_t rows = l->weight[i]->local_shape[0];
        const struct ax_tensor part = ax_tensor_rows(out, at, rows);
        const struct ax_packed packed = ax_unit_packed(l->unit, l->weight[i]);
        AX_TRY(ax_packed_read(rt->q, &packed, &part));
        at += rows;
    }
    return AX_OK;
}

enum ax_status ax_linear_used_weight(struct ax_runtime *rt, const struct ax_linear *l,
                                     const struct ax_linear_run *r, enum ax_fake_sum sum,
                                     const struct ax_tensor *w, struct ax_tensor *out) {
    *out = *w;
    if (!ax_linear_quant(l) || l->quant->stored ||
        ax_unit_has_codes(l->unit, l->weight[r->first])) /* w is the values */
        return AX_OK;
    *out = ax_stack_take(&rt->arena.scratch, "quantized weights",
                         ax_tensor_2d(w->dtype, NULL, r->out, w->shape[1]));
    int64_t at = 0;
    for (int i = r->first; i < r->end; i++) {
        const int64_t n = l->weight[i]->local_shape[0];
        struct ax_tensor from = ax_tensor_rows(w, at, n);
        const struct ax_tensor to = ax_tensor_rows(out, at, n);
        if (ax_linear_merges(l) && ax_adapter_is_on(&l->adapter[i])) {
            AX_TRY(ax_adapter_merge(&l->adapter[i], &from, &to));
            from = to;
        }
        AX_TRY(ax_fake_quant_weight(rt, l->quant, l->weight[i], sum, &from, &to));
        at += n;
    }
    return AX_OK;
}

enum ax_status ax_linear_weights(struct ax_runtime *rt, const struct ax_linear *l,
                                 struct ax_tensor *out) {
    struct ax_linear_run all = {0};
    struct ax_tensor w;
    const bool one = ax_linear_next_run(l, &all) && all.end == l->n_parts;
    AX_ASSERT(one);
    AX_TRY(ax_linear_run_weight(rt, l, &all, &w));
    return ax_linear_used_weight(rt, l, &all, AX_SUM_COLUMNS, &w, out);
}

enum ax_status ax_linear_row_squares(struct ax_runtime *rt, const struct ax_linear *l, int part,
                                     const struct ax_tensor *out) {
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    struct ax_tensor w;
    const struct ax_linear_run alone = {part, part + 1, 0, l->weight[part]->local_shape[0]};
    AX_TRY(ax_linear_run_weight(rt, l, &alone, &w));
    struct ax_tensor zero = ax_tensor_2d(out->dtype, NULL, alone.out, 1), b = zero;
    zero = ax_stack_take(&rt->arena.scratch, "dora norms", zero);
    b.dtype = w.dtype;
    b = ax_stack_take(&rt->arena.scratch, "dora norms", b);
    AX_TRY(ax_run_fill(rt->q, &(struct ax_fill){zero, 0}));
    AX_TRY(ax_run_fill(rt->q, &(struct ax_fill){b, 0}));
    AX_TRY(ax_run_dora_norm(rt->q, &(struct ax_dora_norm){w, b, zero, *out}));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

enum ax_status ax_linear_used_grad(struct ax_runtime *rt, const struct ax_linear *l,
                                   const struct ax_linear_run *r, enum ax_fake_sum sum,
                                   const struct ax_tensor *dy, struct ax_tensor *out) {
    *out = *dy;
    if (!is_fp8(l))
        return AX_OK;
    *out = ax_stack_take(&rt->arena.scratch, "quantized gradients",
                         ax_tensor_2d(dy->dtype, NULL, dy->shape[0], dy->shape[1]));
    int64_t at = 0;
    for (int i = r->first; i < r->end; i++) {
        const int64_t n = l->weight[i]->local_shape[0];
        const struct ax_tensor from = ax_linear_columns(dy, at, n),
                               to = ax_linear_columns(out, at, n);
        AX_TRY(ax_fake_quant_grad(rt, l->quant, ax_linear_share(l, AX_SPLIT_OUTPUTS), sum, &from,
                                  &to));
        at += n;
    }
    return AX_OK;
}

enum ax_status ax_linear_values_grad(struct ax_runtime *rt, const struct ax_linear *l,
                                     const struct ax_linear_run *r, const struct ax_tensor *d,
                                     const struct ax_tensor *dw) {
    struct ax_tensor w;
    AX_TRY(ax_linear_run_weight(rt, l, r, &w));
    int64_t at = 0;
    for (int i = r->first; i < r->end; i++) {
        const int64_t n = l->weight[i]->local_shape[0];
        const struct ax_tensor from = ax_tensor_rows(&w, at, n), part = ax_tensor_rows(d, at, n);
        const struct ax_tensor to = ax_tensor_rows(dw, at, n);
        AX_TRY(ax_fake_quant_weight_grad(rt, l->quant, l->weight[i], &from, &part, &to));
        at += n;
    }
    return AX_OK;
}
