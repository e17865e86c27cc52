#include "model/parts/per_layer.h"

#include <math.h>

#include "model/core/norm.h"
#include "model/parallel/tensor_parallel.h"
#include "model/parts/streams.h"

/* ---- in the first unit: from tokens and x₀ to the inputs of all layers ---- */

void ax_per_layer_init(struct ax_builder *b) {
    const struct ax_per_layer_config *c = &b->arch->per_layer;
    struct ax_per_layer_table *t = &b->model->per_layer;
    const struct ax_param_decl table = {
        .name = AX_PER_LAYER_TABLE, .rows = c->rows, .cols = c->columns};
    const struct ax_param_decl projection = {.name = "model.per_layer_model_projection.weight",
                                             .rows = c->columns,
                                             .cols = b->arch->hidden_size,
                                             .tp_dim = -1,
                                             .grad_partial_over = AX_TP_PARTIAL};
    if (c->width == 0)
        return;
    t->table = ax_builder_add(b, -1, &table);
    t->projection =
        (struct ax_linear){.unit = &b->model->units[0], .split = AX_SPLIT_NONE, .n_parts = 1};
    t->projection.weight[0] = ax_builder_add(b, -1, &projection);
    t->norm = ax_builder_add_norm(b, -1, "model.per_layer_projection_norm.weight", c->width);
}

/* Layers with inputs: more than the model has, where one layer is planned for all of its kind (ax_arch_kinds). */
static int64_t n_inputs(const struct ax_model *m) {
    return m->arch.per_layer.columns / m->arch.per_layer.width;
}

struct ax_tensor ax_per_layer_shape(const struct ax_model *m, int64_t layer, int64_t T) {
    return ax_tensor_2d(m->dtype, NULL, (n_inputs(m) - layer) * T, m->arch.per_layer.width);
}

struct ax_tensor ax_per_layer_from(const struct ax_model *m, const struct ax_tensor *all,
                                   int64_t layer, int64_t T) {
    const int64_t n = (n_inputs(m) - layer) * T;
    return ax_tensor_rows(all, all->shape[0] - n, n);
}

void ax_per_layer_begin(struct ax_pass *p) {
    const struct ax_model *m = p->model;
    const int first = m->chunks.list[p->chunk].first;
    p->slot->per_layer = (struct ax_tensor){0};
    if (m->arch.per_layer.width > 0)
        p->slot->per_layer = ax_stack_take(
            p->slot->stack, "per-layer inputs",
            ax_per_layer_shape(m, first > 0 ? first - 1 : 0, ax_tp_rows(m->rt, p->batch->T)));
}

/* A layer's among those that the pass has: [T][width]. */
static struct ax_tensor of_layer(const struct ax_pass *p, int64_t layer) {
    const int64_t T = ax_tp_rows(p->model->rt, p->batch->T);
    const struct ax_tensor from = ax_per_layer_from(p->model, &p->slot->per_layer, layer, T);
    return ax_tensor_rows(&from, 0, T);
}

/* The same memory while the first unit computes, which has those of all layers: by token, [T][columns]. */
static struct ax_tensor by_token(const struct ax_pass *p) {
    const struct ax_tensor *all = &p->slot->per_layer;
    const int64_t columns = p->model->arch.per_layer.columns;
    return ax_tensor_2d(all->dtype, all->data, ax_tensor_numel(all) / columns, columns);
}

/* [T][columns] as [T][layers][width]. */
static struct ax_tensor by_layer(const struct ax_model *m, const struct ax_tensor *t) {
    return ax_tensor_heads(t, n_inputs(m), m->arch.per_layer.width);
}

static struct ax_tensor take(const struct ax_model *m, const struct ax_tensor *like) {
    return ax_stack_take(&m->rt->arena.scratch, "per-layer inputs",
                         ax_tensor_2d(m->dtype, NULL, like->shape[0], like->shape[1]));
}

static enum ax_status scale(const struct ax_model *m, const struct ax_tensor *x, double alpha) {
    return ax_run_scale(m->rt->q, &(struct ax_scale){.y = *x, .x = *x, .alpha = alpha});
}

/* From the order by token to that by layer, or back. */
static enum ax_status reorder(const struct ax_pass *p, bool to_layers) {
    const struct ax_model *m = p->model;
    struct ax_stack *scratch = &m->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    const struct ax_tensor tokens = by_token(p), copy = take(m, &tokens);
    const int64_t width = m->arch.per_layer.width;
    if (to_layers)
        AX_TRY(ax_run_copy(m->rt->q, &(struct ax_copy){copy, tokens}));
    for (int64_t i = 0; i < n_inputs(m); i++) {
        const struct ax_tensor own = of_layer(p, i),
                               columns = ax_tensor_cols(&copy, i * width, width);
        AX_TRY(ax_run_copy(m->rt->q, to_layers ? &(struct ax_copy){own, columns}
                                               : &(struct ax_copy){columns, own}));
    }
    if (!to_layers)
        AX_TRY(ax_run_copy(m->rt->q, &(struct ax_copy){tokens, copy}));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

/* √width in the compute dtype. */
static double table_factor(const struct ax_model *m) {
    double rounded;
    ax_store(m->dtype, &rounded, 0, sqrt((double)m->arch.per_layer.width));
    return ax_load(m->dtype, &rounded, 0);
}

/* For the embedding's ops: where tokens without a row of their own begin. */
static int64_t known(const struct ax_model *m) {
    return m->arch.per_layer.shares_first ? m->arch.per_layer.rows : 0;
}

/* x₀ in the compute dtype, its projection [T][columns], and that normed into y; all but y in scratch. */
struct projected {
    struct ax_tensor x, raw, rstd;
};
static enum ax_status project(struct ax_pass *p, const struct ax_tensor *y, struct projected *to) {
    const struct ax_model *m = p->model;
    const struct ax_tensor x = ax_stream_of(m, &p->slot->residual[0], 0);
    const struct ax_tensor heads = by_layer(m, y);
    to->x = take(m, &x);
    to->raw = take(m, y);
    to->rstd = ax_stack_take(&m->rt->arena.scratch, "norm rstd",
                             ax_tensor_2d(m->accum, NULL, heads.shape[0], heads.shape[1]));
    AX_TRY(ax_run_copy(m->rt->q, &(struct ax_copy){to->x, x}));
    AX_TRY(ax_linear_forward(m->rt, &m->per_layer.projection, &to->x, NULL, &to->raw));
    AX_TRY(scale(m, &to->raw, 1 / sqrt((double)m->arch.hidden_size)));
    const struct ax_tensor raw = by_layer(m, &to->raw);
    return ax_norm_forward(p, &m->units[0], m->per_layer.norm, &raw, &heads, &to->rstd);
}

enum ax_status ax_per_layer_forward(struct ax_pass *p) {
    const struct ax_model *m = p->model;
    struct ax_stack *scratch = &m->rt->arena.scratch;
    struct projected made;
    if (!m->per_layer.table)
        return AX_OK;
    const size_t mark = ax_stack_mark(scratch);
    const struct ax_tensor out = by_token(p);
    AX_TRY(project(p, &out, &made));
    const struct ax_tensor rows = take(m, &out), partial = ax_tp_partial(m->rt, &rows);
    const struct ax_embedding_forward look_up = {
        .weight = ax_unit_weight(&m->units[0], m->per_layer.table),
        .tokens = p->batch->tokens,
        .out = partial,
        .first_row = ax_tp_first_row(m->rt, m->per_layer.table),
        .known = known(m)};
    AX_TRY(ax_run_embedding_forward(m->rt->q, &look_up));
    AX_TRY(ax_tp_reduce(m->rt, &partial, NULL, &rows));
    AX_TRY(ax_run_add(m->rt->q, &(struct ax_add){out, rows, table_factor(m)}));
    AX_TRY(scale(m, &out, sqrt(0.5)));
    ax_stack_release(scratch, mark);
    return reorder(p, true);
}

/* d: the gradient of the sum of table and projection. */
static enum ax_status table_gradient(struct ax_pass *p, const struct ax_tensor *d) {
    const struct ax_model *m = p->model;
    const struct ax_tensor grad = ax_unit_grad(&m->units[0], m->per_layer.table);
    if (!grad.data)
        return AX_OK;
    const struct ax_tensor rows = take(m, d);
    struct ax_embedding_backward back = {.tokens = p->batch->tokens,
                                         .dweight = grad,
                                         .first_row = ax_tp_first_row(m->rt, m->per_layer.table),
                                         .skip_token = m->arch.pad_token,
                                         .known = known(m)};
    AX_TRY(
        ax_run_scale(m->rt->q, &(struct ax_scale){.y = rows, .x = *d, .alpha = table_factor(m)}));
    AX_TRY(ax_tp_gather(m->rt, &rows, &back.dout));
    return ax_run_embedding_backward(m->rt->q, &back);
}

enum ax_status ax_per_layer_backward(struct ax_pass *p) {
    const struct ax_model *m = p->model;
    struct ax_stack *scratch = &m->rt->arena.scratch;
    struct projected made;
    if (!m->per_layer.table || m->lowest_unit > 0)
        return AX_OK;
    const size_t mark = ax_stack_mark(scratch);
    const struct ax_tensor d = by_token(p);
    AX_TRY(reorder(p, false));
    AX_TRY(scale(m, &d, sqrt(0.5)));
    AX_TRY(table_gradient(p, &d));
    const struct ax_tensor normed = take(m, &d);
    AX_TRY(project(p, &normed, &made));
    const struct ax_tensor heads = by_layer(m, &d), raw = by_layer(m, &made.raw);
    AX_TRY(ax_norm_backward(p, &m->units[0], m->per_layer.norm, &heads, &raw, &made.rstd, &heads,
                            false));
    AX_TRY(scale(m, &d, 1 / sqrt((double)m->arch.hidden_size)));
    const struct ax_tensor dx = take(m, &made.x);
    AX_TRY(ax_linear_backward(m->rt, &m->per_layer.projection, &made.x, &d, &dx));
    const struct ax_tensor first = ax_stream_of(m, &p->slot->grad, 0);
    AX_TRY(ax_run_add(m->rt->q, &(struct ax_add){first, dx, 1}));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

/* ---- in a layer: y = (gelu(x·Wgᵀ) ∘ pᵢ)·Woᵀ ---- */

enum { GATE, ACT, N_SAVED };
_Static_assert(N_SAVED == AX_PER_LAYER_SAVED, "the number is in part.h, too");

static void extra_init(struct ax_builder *b, struct ax_layer *l) {
    const int64_t D = b->arch->hidden_size, width = b->arch->per_layer.width;
    const struct ax_param_decl gate = {.name = "model.layers.%d.per_layer_input_gate.weight",
                                       .rows = width,
                                       .cols = D,
                                       .tp_dim = -1,
                                       .grad_partial_over = AX_TP_PARTIAL};
    const struct ax_param_decl out = {.name = "model.layers.%d.per_layer_projection.weight",
                                      .rows = D,
                                      .cols = width,
                                      .tp_dim = -1,
                                      .grad_partial_over = AX_TP_PARTIAL};
    l->per_layer.gate = l->per_layer.out =
        (struct ax_linear){.unit = l->unit, .split = AX_SPLIT_NONE, .n_parts = 1};
    l->per_layer.gate.weight[0] = ax_builder_add(b, l->index, &gate);
    l->per_layer.out.weight[0] = ax_builder_add(b, l->index, &out);
}

static int extra_linears(struct ax_layer *l, struct ax_linear **out) {
    out[0] = &l->per_layer.gate;
    out[1] = &l->per_layer.out;
    return 2;
}

static struct ax_part_size extra_size(const struct ax_arch *a, const struct ax_layer_spec *spec) {
    (void)spec;
    const int64_t matrices = 2 * a->hidden_size * a->per_layer.width;
    return (struct ax_part_size){matrices, matrices, 0};
}

static void extra_declare(const struct ax_layer *l, const struct ax_pass *p, struct ax_saved *s) {
    (void)l;
    const struct ax_model *m = p->model;
    const struct ax_tensor rows =
        ax_tensor_2d(m->dtype, NULL, ax_tp_rows(m->rt, p->batch->T), m->arch.per_layer.width);
    ax_saved_declare(&s[GATE], "per-layer gate", AX_KEEP_COSTLY, rows);
    ax_saved_declare(&s[ACT], "per-layer activation", AX_KEEP_CHEAP, rows);
}

static enum ax_status extra_forward(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s,
                                    const struct ax_tensor *h, const struct ax_tensor *x,
                                    const struct ax_tensor *out) {
    struct ax_runtime *rt = p->model->rt;
    if (ax_saved_make(&s[GATE]))
        AX_TRY(ax_linear_forward(rt, &l->per_layer.gate, h, NULL, &s[GATE].t));
    if (ax_saved_make(&s[ACT]))
        AX_TRY(ax_run_swiglu_forward(rt->q,
                                     &(struct ax_swiglu_forward){.gate_up = s[GATE].t,
                                                                 .up = of_layer(p, l->index),
                                                                 .y = s[ACT].t,
                                                                 .how = p->model->arch.gating}));
    return out ? ax_linear_forward(rt, &l->per_layer.out, &s[ACT].t, x, out) : AX_OK;
}

/* The gradient of the gate overwrites the gate, that of pᵢ overwrites pᵢ. */
static enum ax_status extra_backward(const struct ax_layer *l, struct ax_pass *p,
                                     struct ax_saved *s, const struct ax_tensor *h,
                                     const struct ax_tensor *dy, const struct ax_tensor *dh) {
    struct ax_runtime *rt = p->model->rt;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    const struct ax_tensor own = of_layer(p, l->index);
    const struct ax_tensor d =
        ax_stack_take(&rt->arena.scratch, "gradient of per-layer activation", s[ACT].t);
    AX_TRY(ax_linear_backward(rt, &l->per_layer.out, &s[ACT].t, dy, &d));
    AX_TRY(
        ax_run_swiglu_backward(rt->q, &(struct ax_swiglu_backward){.dy = d,
                                                                   .gate_up = s[GATE].t,
                                                                   .up = own,
                                                                   .dgate_up = s[GATE].t,
                                                                   .dup = own,
                                                                   .how = p->model->arch.gating}));
    AX_TRY(ax_linear_backward(rt, &l->per_layer.gate, h, &s[GATE].t, dh));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

const struct ax_part_type ax_extra_per_layer = {
    .name = "per-layer input",
    .n_saved = N_SAVED,
    .two_linears = true,
    .between = ACT,
    .init = extra_init,
    .linears = extra_linears,
    .size = extra_size,
    .declare = extra_declare,
    .forward = extra_forward,
    .backward = extra_backward,
};
