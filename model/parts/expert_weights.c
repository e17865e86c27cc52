/* With fake quantization (model/core/fake_quant.h), products read values in scratch. */
#include "model/parts/expert_weights.h"

static bool is_stacked(const struct ax_expert_matrices *w) {
    return w->first->ndim == 3;
}

/* The first parameter of a part's experts. */
static const struct ax_param *first_of(const struct ax_expert_matrices *w,
                                       const struct ax_expert_group *g,
                                       const struct ax_expert_part *part) {
    return is_stacked(w) ? w->first : w->first + w->parts * (g->first + part->first);
}

/* The matrices of a part's experts as [n][parts·rows][cols]; weights or gradients. */
static struct ax_tensor
matrices(const struct ax_layer *l, const struct ax_expert_group *g,
         const struct ax_expert_matrices *w, const struct ax_expert_part *part,
         struct ax_tensor (*look_up)(const struct ax_unit *, const struct ax_param *)) {
    const struct ax_param *p = first_of(w, g, part);
    const struct ax_tensor first = look_up(l->unit, p);
    if (is_stacked(w)) /* a frozen parameter has no gradient */
        return first.data ? ax_tensor_rows(&first, part->first, part->n) : first;
    const int64_t rows = w->parts * p->shape[0], cols = p->shape[1];
    struct ax_tensor all = ax_tensor_3d(first.dtype, first.data, part->n, rows, cols);
    if (part->n > 1)
        all.row_stride = p[w->parts].offset - p->offset;
    for (int64_t i = 0; i < w->parts * part->n; i++)
        AX_ASSERT(p[i].segment == p->segment &&
                  p[i].offset == p->offset + i / w->parts * all.row_stride +
                                     i % w->parts * p->shape[0] * cols);
    return all;
}

/* How many of n parameters from p on follow each other without a gap. */
static int64_t run_of(const struct ax_param *p, int64_t n) {
    int64_t run = 1;
    while (run < n && ax_param_follows(&p[run - 1], &p[run]))
        run++;
    return run;
}

/* Their weights; packed ones are unpacked into scratch, as many together as follow each other. */
static enum ax_status weights(const struct ax_layer *l, const struct ax_model *m,
                              const struct ax_expert_matrices *w, const struct ax_expert_part *part,
                              struct ax_tensor *out) {
    const struct ax_expert_group *g = &m->experts;
    const struct ax_param *p = first_of(w, g, part);
    if (!ax_unit_is_packed(l->unit, p)) {
        *out = matrices(l, g, w, part, ax_unit_weight);
        return AX_OK;
    }
    const bool stacked = is_stacked(w); /* then all experts' are unpacked: they are one parameter */
    const int64_t n = stacked ? 1 : w->parts * part->n, experts = stacked ? g->n_local : part->n;
    const int64_t rows = stacked ? g->n_local * p->shape[1] : p->shape[0];
    const int64_t cols = p->shape[stacked ? 2 : 1];
    *out = ax_stack_take(&m->rt->arena.scratch, "unpacked experts",
                         ax_tensor_3d(l->unit->segments[p->segment].compute, NULL, experts,
                                      n * rows / experts, cols));
    const struct ax_tensor all = ax_tensor_2d(out->dtype, out->data, n * rows, cols);
    for (int64_t i = 0, run; i < n; i += run) {
        run = run_of(&p[i], n - i);
        const struct ax_tensor some = ax_tensor_rows(&all, i * rows, run * rows);
        const struct ax_packed packed = ax_unit_packed_run(l->unit, &p[i], run);
        AX_TRY(ax_packed_read(m->rt->q, &packed, &some));
    }
    if (stacked)
        *out = ax_tensor_rows(out, part->first, part->n);
    return AX_OK;
}

/* How many pieces of a part's matrices are quantized, each in a call: one, unless a scale is of all of
 * a matrix, or gaps are between experts. */
static int64_t pieces_of(const struct ax_fake_quant *f, const struct ax_expert_matrices *w,
                         const struct ax_tensor *all) {
    return ax_fake_quant_has_tensor_scale(f) || !ax_tensor_is_dense(all) ? w->parts * all->shape[0]
                                                                         : 1;
}

/* Piece i of n, 2-D. */
static struct ax_tensor piece_of(const struct ax_tensor *all, int64_t n, int64_t i) {
    const int64_t experts = n == 1 ? all->shape[0] : 1, parts = n == 1 ? 1 : n / all->shape[0];
    const int64_t rows = experts * all->shape[1] / parts;
    const struct ax_tensor first = ax_tensor_rows(all, i / parts, experts);
    const struct ax_tensor together =
        ax_tensor_2d(all->dtype, first.data, experts * all->shape[1], all->shape[2]);
    return ax_tensor_rows(&together, i % parts * rows, rows);
}

/* The weights as products read them: their values in scratch if the layer trains for a scheme. */
static enum ax_status used_weights(const struct ax_layer *l, const struct ax_model *m,
                                   const struct ax_expert_matrices *w,
                                   const struct ax_expert_part *part, struct ax_tensor *out) {
    const struct ax_fake_quant *quant = l->moe.quant;
    struct ax_tensor raw;
    AX_TRY(weights(l, m, w, part, &raw));
    *out = raw;
    if (!quant || quant->stored)
        return AX_OK;
    *out = ax_stack_take(&m->rt->arena.scratch, "quantized experts",
                         ax_tensor_3d(raw.dtype, NULL, raw.shape[0], raw.shape[1], raw.shape[2]));
    const struct ax_param *p = first_of(w, &m->experts, part); /* as any of them */
    const int64_t n = pieces_of(quant, w, &raw);
    for (int64_t i = 0; i < n; i++) {
        const struct ax_tensor from = piece_of(&raw, n, i), to = piece_of(out, n, i);
        AX_TRY(ax_fake_quant_weight(m->rt, quant, p, AX_SUM_COLUMNS, &from, &to));
    }
    return AX_OK;
}

enum ax_status ax_expert_values(const struct ax_layer *l, struct ax_pass *p,
                                const struct ax_tensor *x, struct ax_tensor *values) {
    *values = *x;
    return l->moe.quant ? ax_fake_quant_input(p->model->rt, l->moe.quant, AX_FAKE_ALL,
                                              AX_SUM_COLUMNS, values)
                        : AX_OK;
}

/* The biases of a part's experts, or their gradient. */
static struct ax_tensor biases(const struct ax_layer *l, const struct ax_expert_matrices *w,
                               const struct ax_expert_part *part,
                               struct ax_tensor (*look_up)(const struct ax_unit *,
                                                           const struct ax_param *)) {
    const struct ax_tensor all = look_up(l->unit, w->bias);
    return all.data ? ax_tensor_rows(&all, part->first, part->n) : all;
}

enum ax_status ax_expert_forward(const struct ax_layer *l, struct ax_pass *p,
                                 const struct ax_expert_matrices *w,
                                 const struct ax_expert_rows *rows) {
    const struct ax_model *m = p->model;
    struct ax_grouped_gemm g = {.c = rows->y,
                                .offsets = rows->offsets,
                                .mirror = rows->mirror,
                                .trans_b = !w->in_first,
                                .alpha = 1,
                                .expected_rows = rows->part.expected};
    if (l->moe.watch) {
        AX_TRY(l->moe.watch->see(l->moe.watch->ctx, w->down, rows));
        if (w->down)
            return AX_OK;
    }
    const size_t mark = ax_stack_mark(&m->rt->arena.scratch);
    AX_TRY(ax_expert_values(l, p, &rows->x, &g.a));
    AX_TRY(used_weights(l, m, w, &rows->part, &g.b));
    if (w->bias)
        g.bias = biases(l, w, &rows->part, ax_unit_weight);
    AX_TRY(ax_run_grouped_gemm(m->rt->q, &g));
    ax_stack_release(&m->rt->arena.scratch, mark);
    return AX_OK;
}

/* dw += the gradient of the matrices, given g's product, that of their values. */
static enum ax_status clipped_gradients(const struct ax_layer *l, const struct ax_model *m,
                                        const struct ax_expert_matrices *w,
                                        const struct ax_expert_part *part,
                                        struct ax_grouped_gemm *g) {
    const struct ax_tensor dw = g->c;
    const struct ax_param *p = first_of(w, &m->experts, part);
    struct ax_tensor raw;
    const size_t mark = ax_stack_mark(&m->rt->arena.scratch);
    g->c = ax_stack_take(&m->rt->arena.scratch, "gradient of values",
                         ax_tensor_3d(dw.dtype, NULL, dw.shape[0], dw.shape[1], dw.shape[2]));
    AX_TRY(ax_run_fill(m->rt->q, &(struct ax_fill){g->c, 0}));
    AX_TRY(ax_run_grouped_gemm(m->rt->q, g));
    AX_TRY(weights(l, m, w, part, &raw));
    const int64_t n = pieces_of(l->moe.quant, w, &dw);
    for (int64_t i = 0; i < n; i++) {
        const struct ax_tensor from = piece_of(&raw, n, i), d = piece_of(&g->c, n, i);
        const struct ax_tensor to = piece_of(&dw, n, i);
        AX_TRY(ax_fake_quant_weight_grad(m->rt, l->moe.quant, p, &from, &d, &to));
    }
    ax_stack_release(&m->rt->arena.scratch, mark);
    return AX_OK;
}

enum ax_status ax_expert_input_gradient(const struct ax_layer *l, struct ax_pass *p,
                                        const struct ax_expert_matrices *w,
                                        const struct ax_expert_rows *rows,
                                        const struct ax_tensor *dx) {
    const struct ax_model *m = p->model;
    const size_t mark = ax_stack_mark(&m->rt->arena.scratch);
    struct ax_grouped_gemm g = {.a = rows->y,
                                .c = *dx,
                                .offsets = rows->offsets,
                                .mirror = rows->mirror,
                                .trans_b = w->in_first,
                                .alpha = 1,
                                .expected_rows = rows->part.expected};
    AX_TRY(used_weights(l, m, w, &rows->part, &g.b));
    AX_TRY(ax_run_grouped_gemm(m->rt->q, &g));
    if (l->moe.quant)
        AX_TRY(ax_fake_quant_input_grad(m->rt, l->moe.quant, &rows->x, AX_FAKE_ALL, dx));
    ax_stack_release(&m->rt->arena.scratch, mark);
    return AX_OK;
}

bool ax_expert_has_gradient(const struct ax_layer *l, const struct ax_pass *p,
                            const struct ax_expert_matrices *w) {
    const struct ax_expert_part all = {.first = 0};
    return ax_unit_trains(l->unit, first_of(w, &p->model->experts, &all));
}

enum ax_status ax_expert_weight_gradient(const struct ax_layer *l, struct ax_pass *p,
                                         const struct ax_expert_matrices *w,
                                         const struct ax_expert_rows *rows,
                                         const struct ax_tensor *values) {
    const struct ax_model *m = p->model;
    const struct ax_expert_part *part = &rows->part;
    struct ax_tensor dw = {0}, db = {0};
    if (!ax_unit_is_packed(l->unit, first_of(w, &m->experts, part)))
        dw = matrices(l, &m->experts, w, part, ax_unit_grad);
    if (w->bias)
        db = biases(l, w, part, ax_unit_grad);
    struct ax_grouped_gemm g = {.a = w->in_first ? *values : rows->y,
                                .b = w->in_first ? rows->y : *values,
                                .c = dw,
                                .offsets = rows->offsets,
                                .mirror = rows->mirror,
                                .trans_a = true,
                                .alpha = 1,
                                .expected_rows = rows->part.expected};
    if (dw.data)
        AX_TRY(l->moe.quant && ax_fake_quant_clips(l->moe.quant)
                   ? clipped_gradients(l, m, w, part, &g)
                   : ax_run_grouped_gemm(m->rt->q, &g));
    if (db.data)
        AX_TRY(ax_run_grouped_colsum(
            m->rt->q,
            &(struct ax_grouped_colsum){.x = rows->y, .offsets = rows->offsets, .out = db}));
    return AX_OK;
}
