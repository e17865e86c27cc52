#include "model/adapter/experts.h"

#include <stdio.h>
#include <string.h>

#include "model/layer.h"

const char *ax_expert_weight_name(enum ax_expert_weight which) {
    return which == AX_GATE_UP ? "gate_up_proj" : "down_proj";
}

/* ---- which ---- */

static bool is_meant(const struct ax_peft_config *c, int layer, enum ax_expert_weight which,
                     char *key, size_t size) {
    bool found = false;
    const int n =
        snprintf(key, size, "model.layers.%d.mlp.experts.%s", layer, ax_expert_weight_name(which));
    AX_ASSERT(n < (int)size);
    for (int i = 0; i < c->parameters.n && !found; i++)
        found = ax_adapter_ends_in(key, c->parameters.names[i]);
    return found;
}

enum ax_status ax_adapter_experts_match(const struct ax_peft_config *c, int layer,
                                        enum ax_expert_weight which, struct ax_adapter_target *out,
                                        char *module, size_t size) {
    char key[AX_NAME_MAX], other[AX_NAME_MAX];
    const bool on = is_meant(c, layer, which, key, sizeof key);
    const bool inner = which == AX_GATE_UP && is_meant(c, layer, AX_DOWN, other, sizeof other);
    AX_TRY(ax_adapter_match(c, key, layer, out));
    out->on = on;
    snprintf(module, size, "model.layers.%d.mlp.experts%s", layer, inner ? ".base_layer" : "");
    return AX_OK;
}

static enum ax_status check(const struct ax_peft_config *c) {
    const char *why = c->dora                     ? "with DoRA"
                      : c->dropout > 0            ? "with dropout"
                      : c->start == AX_LORA_PISSA ? "with PiSSA"
                                                  : NULL;
    if (!why)
        return AX_OK;
    return ax_error(AX_ERR_UNSUPPORTED,
                    "target_parameters: adapters of experts %s are not implemented", why);
}

static enum ax_status attach(struct ax_builder *b, struct ax_layer *l, enum ax_expert_weight which,
                             int64_t out, int64_t in, struct ax_expert_adapter *a) {
    struct ax_model *m = b->model;
    const int64_t E = b->arch->moe.n_experts;
    struct ax_adapter_target target;
    char module[AX_NAME_MAX];
    AX_TRY(ax_adapter_experts_match(b->adapter, l->index, which, &target, module, sizeof module));
    if (!target.on)
        return AX_OK;
    AX_TRY(check(b->adapter));
    *a = (struct ax_expert_adapter){.rt = m->rt,
                                    .unit = l->unit,
                                    .n_experts = E,
                                    .first = m->experts.first,
                                    .n_local = m->experts.n_local,
                                    .r = target.r,
                                    .scale = target.scale};
    a->a = ax_adapter_add(b, module, "lora_A.weight", E * target.r, in, -1);
    a->b = ax_adapter_add(b, module, "lora_B.weight", out, E * target.r, -1);
    return AX_OK;
}

enum ax_status ax_adapter_attach_experts(struct ax_builder *b, struct ax_layer *l) {
    const int64_t D = b->arch->hidden_size, F = b->arch->moe.width;
    struct ax_model *m = b->model;
    struct ax_moe_part *moe = &l->moe;
    for (int k = 0; ax_builder_next_adapter(b, k); k++)
        AX_TRY(ax_adapter_named(m, k,
                                attach(b, l, AX_GATE_UP, 2 * F, D,
                                       ax_adapter_bank_experts(m, k, &moe->gate_up_adapter))));
    for (int k = 0; ax_builder_next_adapter(b, k); k++)
        AX_TRY(ax_adapter_named(
            m, k, attach(b, l, AX_DOWN, D, F, ax_adapter_bank_experts(m, k, &moe->down_adapter))));
    return AX_OK;
}

/* ---- arithmetic ---- */

static struct ax_tensor take(const struct ax_expert_adapter *a, const char *name,
                             enum ax_dtype dtype, int64_t rows, int64_t cols) {
    struct ax_tensor t = ax_tensor_2d(dtype, NULL, rows, cols);
    t.data = ax_stack_push(&a->rt->arena.scratch, name, ax_tensor_bytes(&t));
    return t;
}

/* [n_local·rows][cols] as [n_local][rows][cols]. */
static struct ax_tensor stacked(const struct ax_expert_adapter *a, const struct ax_tensor *t) {
    return ax_tensor_3d(t->dtype, t->data, a->n_local, t->shape[0] / a->n_local, t->shape[1]);
}

/* The rows of A, or of its gradient, for the experts here. */
static struct ax_tensor here(const struct ax_expert_adapter *a, const struct ax_tensor *t) {
    return ax_tensor_rows(t, a->first * a->r, a->n_local * a->r);
}

/* B's columns of the e-th expert here as [out·r][1]: elements apart by E; and the same of
 * [n_local·out][r]. */
static struct ax_tensor apart(const struct ax_expert_adapter *a, const struct ax_tensor *b,
                              int64_t e) {
    const struct ax_tensor all =
        ax_tensor_2d(b->dtype, b->data, ax_tensor_numel(b) / a->n_experts, a->n_experts);
    return ax_tensor_cols(&all, a->first + e, 1);
}
static struct ax_tensor together(const struct ax_expert_adapter *a, const struct ax_tensor *b,
                                 int64_t e) {
    const int64_t n = ax_tensor_numel(b) / a->n_local;
    const struct ax_tensor all = ax_tensor_2d(b->dtype, b->data, ax_tensor_numel(b), 1);
    return ax_tensor_rows(&all, e * n, n);
}

/* B as [n_local][out][r]. */
static enum ax_status gather_b(const struct ax_expert_adapter *a, struct ax_tensor *out) {
    const struct ax_tensor b = ax_unit_weight(a->unit, a->b);
    const struct ax_tensor t =
        take(a, "adapter of experts", b.dtype, a->n_local * b.shape[0], a->r);
    for (int64_t e = 0; e < a->n_local; e++)
        AX_TRY(ax_run_copy(a->rt->q, &(struct ax_copy){together(a, &t, e), apart(a, &b, e)}));
    *out = stacked(a, &t);
    return AX_OK;
}

static enum ax_status product(const struct ax_expert_adapter *a, const struct ax_expert_rows *rows,
                              const struct ax_tensor *x, const struct ax_tensor *w, bool trans_b,
                              struct ax_tensor *out) {
    *out = take(a, "adapter rows of experts", x->dtype, x->shape[0], w->shape[trans_b ? 1 : 2]);
    return ax_run_grouped_gemm(a->rt->q,
                               &(struct ax_grouped_gemm){.a = *x,
                                                         .b = *w,
                                                         .c = *out,
                                                         .offsets = rows->offsets,
                                                         .trans_b = trans_b,
                                                         .expected_rows = rows->expected});
}

/* Σ dyᵀ·x of each expert's rows, unscaled: [n_local·out][in]. */
static enum ax_status outer(const struct ax_expert_adapter *a, const struct ax_expert_rows *rows,
                            const struct ax_tensor *dy, const struct ax_tensor *x,
                            struct ax_tensor *out) {
    *out = take(a, "adapter gradient of experts", ax_dtype_accum(dy->dtype),
                a->n_local * dy->shape[1], x->shape[1]);
    AX_TRY(ax_run_fill(a->rt->q, &(struct ax_fill){*out, 0}));
    return ax_run_grouped_gemm(a->rt->q,
                               &(struct ax_grouped_gemm){.a = *dy,
                                                         .b = *x,
                                                         .c = stacked(a, out),
                                                         .offsets = rows->offsets,
                                                         .trans_a = true,
                                                         .expected_rows = rows->expected});
}

static enum ax_status project(const struct ax_expert_adapter *a, const struct ax_expert_rows *rows,
                              struct ax_tensor *low) {
    const struct ax_tensor all = ax_unit_weight(a->unit, a->a), A = here(a, &all);
    const struct ax_tensor experts = stacked(a, &A);
    return product(a, rows, &rows->x, &experts, true, low);
}

enum ax_status ax_adapter_experts_forward(const struct ax_expert_adapter *a,
                                          const struct ax_expert_rows *rows) {
    struct ax_tensor low, b, add;
    if (!a->a)
        return AX_OK;
    struct ax_stack *scratch = &a->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    AX_TRY(project(a, rows, &low));
    AX_TRY(gather_b(a, &b));
    AX_TRY(product(a, rows, &low, &b, true, &add));
    AX_TRY(ax_run_add(a->rt->q, &(struct ax_add){rows->y, add, a->scale}));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

enum ax_status ax_adapter_experts_backward(const struct ax_expert_adapter *a,
                                           const struct ax_expert_rows *rows,
                                           const struct ax_tensor *dx) {
    struct ax_tensor low, b, up, add, db, da;
    if (!a->a)
        return AX_OK;
    struct ax_queue *q = a->rt->q;
    struct ax_stack *scratch = &a->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    const struct ax_tensor all = ax_unit_weight(a->unit, a->a), A = here(a, &all);
    const struct ax_tensor d_all = ax_unit_grad(a->unit, a->a), dA = here(a, &d_all);
    const struct ax_tensor experts = stacked(a, &A), dB = ax_unit_grad(a->unit, a->b);
    AX_TRY(project(a, rows, &low));
    AX_TRY(gather_b(a, &b));
    AX_TRY(outer(a, rows, &rows->y, &low, &db));
    for (int64_t e = 0; e < a->n_local; e++)
        AX_TRY(ax_run_add(q, &(struct ax_add){apart(a, &dB, e), together(a, &db, e), a->scale}));
    AX_TRY(product(a, rows, &rows->y, &b, false, &up));
    AX_TRY(outer(a, rows, &up, &rows->x, &da));
    AX_TRY(ax_run_add(q, &(struct ax_add){dA, da, a->scale}));
    AX_TRY(product(a, rows, &up, &experts, false, &add));
    AX_TRY(ax_run_add(q, &(struct ax_add){*dx, add, a->scale}));
    ax_stack_release(scratch, mark);
    return AX_OK;
}
