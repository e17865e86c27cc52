/* Operands: how parts join into runs, what quantization makes of them, and what adapters share. */
#include "model/core/linear_operands.h"

#include "model/core/stash.h"

int64_t ax_linear_in(const struct ax_linear *l) {
    return l->weight[0]->local_shape[1];
}

int64_t ax_linear_out(const struct ax_linear *l) {
    int64_t out = 0;
    for (int i = 0; i < l->n_parts; i++)
        out += l->weight[i]->local_shape[0];
    return out;
}

/* Packed parts are unpacked contiguously; others must be stored contiguously. */
static bool joins(const struct ax_linear *l, int part) {
    const struct ax_param *w = l->weight[part], *before = l->weight[part - 1];
    const bool packed = ax_unit_is_packed(l->unit, w);
    if (packed != ax_unit_is_packed(l->unit, before) || (!packed && !ax_param_follows(before, w)) ||
        w->panels != before->panels)
        return false;
    return !l->bias[0] || ax_param_follows(l->bias[part - 1], l->bias[part]);
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

bool ax_linear_run_begins(const struct ax_linear *l, const struct ax_linear_run *r) {
    bool begins = false;
    for (int i = r->first; i < r->end; i++)
        begins |= ax_unit_grad_begins(l->unit, l->weight[i]);
    return begins;
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
    *out = ax_stack_take(&rt->arena.scratch, "unpacked weights",
                         ax_tensor_2d(ax_linear_compute(l), NULL, r->out, ax_linear_in(l)));
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
        const struct ax_tensor from = ax_linear_grad_part(dy, i - r->first, at, n),
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

/* ---- ranges that ops leave ---- */

static bool reads_ranges(const struct ax_runtime *rt, const struct ax_linear *l,
                         enum ax_linear_split gathered) {
    return ax_linear_quant(l) && ax_fake_quant_of_tensors(l->quant) &&
           (l->split != gathered || rt->mesh.size[AX_ROLE_TP] == 1);
}

void ax_linear_declare_input(const struct ax_runtime *rt, const struct ax_linear *l,
                             struct ax_saved *s) {
    s->ranged = reads_ranges(rt, l, AX_SPLIT_OUTPUTS);
}

struct ax_range_of ax_linear_input_range(const struct ax_runtime *rt, const struct ax_linear *l,
                                         const struct ax_tensor *x) {
    return ax_fake_quant_range(rt, l->quant, ax_linear_share(l, AX_SPLIT_INPUTS), 1, x);
}

struct ax_range_of ax_linear_take_grad_range(struct ax_runtime *rt, const struct ax_linear *l,
                                             struct ax_tensor *dy) {
    dy->range = NULL;
    if (reads_ranges(rt, l, AX_SPLIT_INPUTS))
        dy->range = ax_stack_push(&rt->arena.scratch, "quantization ranges",
                                  2 * (size_t)l->n_parts * sizeof *dy->range);
    return ax_fake_quant_range(rt, l->quant, ax_linear_share(l, AX_SPLIT_OUTPUTS), l->n_parts, dy);
}

/* ---- adapters ---- */

/* Columns of x·Aᵀ of parts [first, end). */
static int64_t rank_of(const struct ax_linear *l, int first, int end) {
    int64_t rank = 0;
    for (int i = first; i < end; i++)
        rank += ax_adapter_rank(&l->adapter[i]);
    return rank;
}

void ax_linear_declare(const struct ax_runtime *rt, const struct ax_linear *l, int64_t T,
                       struct ax_saved *s) {
    const int64_t rows = l->split == AX_SPLIT_NONE ? ax_tp_rows(rt, T) : T;
    if (!ax_linear_merges(l))
        ax_saved_declare(s, "adapter projection", AX_KEEP_COSTLY,
                         ax_tensor_2d(ax_linear_compute(l), NULL, rows, rank_of(l, 0, l->n_parts)));
}

/* Where this pass keeps x·Aᵀ of all parts; NULL: nowhere. */
static struct ax_saved *kept_of(const struct ax_linear *l) {
    for (int i = 0; i < l->n_parts; i++)
        if (l->adapter[i].a && l->adapter[i].run->kept) {
            struct ax_saved *kept = &l->adapter[i].run->kept[l->place];
            return kept->name ? kept : NULL;
        }
    return NULL;
}

bool ax_linear_projects(const struct ax_linear *l) {
    struct ax_saved *kept = kept_of(l);
    return !kept || ax_saved_make(kept);
}

void ax_linear_take_shared(struct ax_runtime *rt, const struct ax_linear *l,
                           const struct ax_linear_run *r, int64_t T, bool backward,
                           struct ax_adapter_shared shared[AX_LINEAR_MAX_PARTS]) {
    const int64_t rank = rank_of(l, r->first, r->end);
    const struct ax_saved *kept = kept_of(l);
    struct ax_tensor low = ax_tensor_2d(ax_linear_compute(l), NULL, T, rank), up = low;
    if (rank == 0)
        return;
    AX_ASSERT(!kept || kept->t.shape[0] == T);
    low = kept ? ax_tensor_cols(&kept->t, rank_of(l, 0, r->first), rank)
               : ax_stack_take(&rt->arena.scratch, "adapter projection", low);
    if (backward)
        up = ax_stack_take(&rt->arena.scratch, "adapter projection", up);
    for (int i = r->first; i < r->end; i++) {
        const struct ax_adapter *a = &l->adapter[i];
        const int64_t at = rank_of(l, r->first, i);
        if (!a->a)
            continue;
        ax_adapter_share(a, low.dtype, &shared[i]);
        shared[i].low = ax_tensor_cols(&low, at, ax_adapter_rank(a));
        if (backward)
            shared[i].up = ax_tensor_cols(&up, at, ax_adapter_rank(a));
    }
}

void ax_linear_list(const struct ax_linear *l, const struct ax_linear_run *r,
                    const struct ax_adapter_part *all,
                    const struct ax_adapter_shared shared[AX_LINEAR_MAX_PARTS],
                    struct ax_adapter_part parts[AX_LINEAR_MAX_PARTS]) {
    int64_t at = 0;
    for (int i = r->first; i < r->end; i++) {
        const int64_t n = l->weight[i]->local_shape[0];
        struct ax_adapter_part *part = &parts[i - r->first];
        *part = (struct ax_adapter_part){.adapter = &l->adapter[i],
                                         .shared = &shared[i],
                                         .y = ax_linear_columns(&all->y, at, n),
                                         .bias = ax_linear_columns(&all->bias, at, n),
                                         .addend = ax_linear_columns(&all->addend, at, n),
                                         .dy = ax_linear_columns(&all->dy, at, n),
                                         .dv = ax_linear_columns(&all->dv, at, n)};
        if (all->w.data)
            part->w = ax_tensor_rows(&all->w, at, n);
        at += n;
    }
}
