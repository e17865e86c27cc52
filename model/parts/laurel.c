/* Attention beside a path of low rank, which read one input (LAuReL, Menghani et al. 2024; Gemma 3n):
 *
 *   y = norm₁(attention(h)) + h + norm₂(h·Lᵀ·Rᵀ) */
#include "model/core/builder.h"
#include "model/core/norm.h"
#include "model/core/pass.h"
#include "model/parts/attend.h"

enum { ATTENTION, MADE = AX_LENDING_SAVED, MADE_RSTD, LEFT, RIGHT, RIGHT_RSTD, N_SAVED };

#define NAME(tail) "model.layers.%d." tail ".weight"

static void laurel_init(struct ax_builder *b, struct ax_layer *l) {
    const int64_t D = b->arch->hidden_size, rank = b->arch->laurel_rank;
    struct ax_laurel_part *part = &l->laurel;
    const struct ax_param_decl left = {.name = NAME("laurel.linear_left"),
                                       .rows = rank,
                                       .cols = D,
                                       .tp_dim = -1,
                                       .grad_partial_over = AX_TP_PARTIAL};
    const struct ax_param_decl right = {.name = NAME("laurel.linear_right"),
                                        .rows = D,
                                        .cols = rank,
                                        .tp_dim = -1,
                                        .grad_partial_over = AX_TP_PARTIAL};
    ax_mixer_lending.init(b, l);
    part->attention_norm = ax_builder_add_norm(b, l->index, NAME("post_attention_layernorm"), D);
    part->left = part->right =
        (struct ax_linear){.unit = l->unit, .split = AX_SPLIT_NONE, .n_parts = 1};
    part->left.weight[0] = ax_builder_add(b, l->index, &left);
    part->right.weight[0] = ax_builder_add(b, l->index, &right);
    part->norm = ax_builder_add_norm(b, l->index, NAME("laurel.post_laurel_norm"), D);
}

static int laurel_linears(struct ax_layer *l, struct ax_linear **out) {
    const int n = ax_mixer_lending.linears(l, out);
    out[n] = &l->laurel.left;
    out[n + 1] = &l->laurel.right;
    return n + 2;
}

static struct ax_part_size laurel_size(const struct ax_arch *a, const struct ax_layer_spec *spec) {
    struct ax_part_size size = ax_mixer_lending.size(a, spec);
    const int64_t matrices = 2 * a->hidden_size * a->laurel_rank;
    size.matrices += matrices;
    size.active += matrices;
    size.vectors += 2 * a->hidden_size;
    return size;
}

static void laurel_declare(const struct ax_layer *l, const struct ax_pass *p, struct ax_saved *s) {
    const struct ax_model *m = p->model;
    const int64_t T = ax_tp_rows(m->rt, p->batch->T);
    const struct ax_tensor rows = ax_tensor_2d(m->dtype, NULL, T, m->arch.hidden_size),
                           per_row = ax_tensor_1d(m->accum, NULL, T);
    ax_mixer_lending.declare(l, p, s + ATTENTION);
    ax_saved_declare(&s[MADE], "attention branch", AX_KEEP_COSTLY, rows);
    ax_saved_declare(&s[MADE_RSTD], "norm rstd", AX_KEEP_CHEAP, per_row);
    ax_saved_declare(&s[LEFT], "low-rank path", AX_KEEP_COSTLY,
                     ax_tensor_2d(m->dtype, NULL, T, m->arch.laurel_rank));
    ax_saved_declare(&s[RIGHT], "low-rank branch", AX_KEEP_COSTLY, rows);
    ax_saved_declare(&s[RIGHT_RSTD], "norm rstd", AX_KEEP_CHEAP, per_row);
}

static struct ax_tensor take(const struct ax_pass *p, const struct ax_tensor *like) {
    return ax_stack_take(&p->model->rt->arena.scratch, "attention and low-rank path",
                         ax_tensor_2d(p->model->dtype, NULL, like->shape[0], like->shape[1]));
}

/* out += norm(made); out NULL: only the norm's rstd. */
static enum ax_status add_normed(const struct ax_layer *l, struct ax_pass *p,
                                 const struct ax_param *norm, struct ax_saved *made,
                                 const struct ax_tensor *out) {
    struct ax_runtime *rt = p->model->rt;
    if (!ax_saved_make(&made[1]) && !out)
        return AX_OK;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    const struct ax_tensor y = take(p, &made->t);
    AX_TRY(ax_norm_forward(p, l->unit, norm, &made->t, &y, &made[1].t));
    if (out)
        AX_TRY(ax_run_add(rt->q, &(struct ax_add){*out, y, 1}));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

static enum ax_status laurel_forward(const struct ax_layer *l, struct ax_pass *p,
                                     struct ax_saved *s, const struct ax_tensor *h,
                                     const struct ax_tensor *x, const struct ax_tensor *out) {
    struct ax_runtime *rt = p->model->rt;
    AX_TRY(ax_mixer_lending.forward(l, p, s + ATTENTION, h, NULL,
                                    ax_saved_make(&s[MADE]) ? &s[MADE].t : NULL));
    if (ax_saved_make(&s[LEFT]))
        AX_TRY(ax_linear_forward(rt, &l->laurel.left, h, NULL, &s[LEFT].t));
    if (ax_saved_make(&s[RIGHT]))
        AX_TRY(ax_linear_forward(rt, &l->laurel.right, &s[LEFT].t, NULL, &s[RIGHT].t));
    if (out) {
        if (p->tap)
            p->tap(p->tap_ctx, "attn_out", l->index, &s[MADE].t);
        AX_ASSERT(x);
        AX_TRY(ax_run_copy(rt->q, &(struct ax_copy){*out, *x}));
        AX_TRY(ax_run_add(rt->q, &(struct ax_add){*out, *h, 1}));
    }
    AX_TRY(add_normed(l, p, l->laurel.attention_norm, &s[MADE], out));
    return add_normed(l, p, l->laurel.norm, &s[RIGHT], out);
}

static enum ax_status laurel_backward(const struct ax_layer *l, struct ax_pass *p,
                                      struct ax_saved *s, const struct ax_tensor *h,
                                      const struct ax_tensor *dy, const struct ax_tensor *dh) {
    struct ax_runtime *rt = p->model->rt;
    struct ax_stack *scratch = &rt->arena.scratch;
    const struct ax_laurel_part *part = &l->laurel;
    const size_t mark = ax_stack_mark(scratch);
    const struct ax_tensor d = take(p, dy), d_left = take(p, &s[LEFT].t);
    AX_TRY(ax_norm_backward(p, l->unit, part->attention_norm, dy, &s[MADE].t, &s[MADE_RSTD].t, &d,
                            false));
    AX_TRY(ax_mixer_lending.backward(l, p, s + ATTENTION, h, &d, dh));
    AX_TRY(ax_norm_backward(p, l->unit, part->norm, dy, &s[RIGHT].t, &s[RIGHT_RSTD].t, &d, false));
    AX_TRY(ax_linear_backward(rt, &part->right, &s[LEFT].t, &d, &d_left));
    if (dh) {
        AX_TRY(ax_linear_backward_more(rt, &part->left, h, &d_left, dh));
        AX_TRY(ax_run_add(rt->q, &(struct ax_add){*dh, *dy, 1}));
    } else {
        AX_TRY(ax_linear_backward(rt, &part->left, h, &d_left, NULL));
    }
    ax_stack_release(scratch, mark);
    return AX_OK;
}

const struct ax_part_type ax_mixer_laurel = {
    .name = "attention beside a low-rank path",
    .n_saved = N_SAVED,
    .keys = true,
    .init = laurel_init,
    .linears = laurel_linears,
    .size = laurel_size,
    .mixing = ax_attention_flops,
    .declare = laurel_declare,
    .forward = laurel_forward,
    .backward = laurel_backward,
};
