/* Attention and Mamba-2 side by side, which read one input (Falcon-H1):
 *
 *   y = out_a·attention(in_a·h) + out_m·mamba(in_m·h)
 *
 * with the family's factors (struct ax_beside_scale). Neither needs what the other computes. */
#include "model/core/pass.h"

#define N_SAVED (AX_ATTENTION_SAVED + AX_MAMBA_SAVED)

/* One of the two, and its tensors. */
struct side {
    const struct ax_part_type *type;
    struct ax_beside_scale scale;
    struct ax_saved *s;
    const char *tap;
};
struct sides {
    struct side of[2];
};
static struct sides sides_of(const struct ax_pass *p, struct ax_saved *s) {
    const struct ax_arch *a = &p->model->arch;
    return (struct sides){
        {{&ax_mixer_attention, a->beside_attention, s, "attn_out"},
         {&ax_mixer_mamba, a->beside_mamba, s + AX_ATTENTION_SAVED, "mamba_out"}}};
}

static void beside_init(struct ax_builder *b, struct ax_layer *l) {
    ax_mixer_attention.init(b, l);
    ax_mixer_mamba.init(b, l);
}

static int beside_linears(struct ax_layer *l, struct ax_linear **out) {
    const int n = ax_mixer_attention.linears(l, out);
    return n + ax_mixer_mamba.linears(l, out + n);
}

static struct ax_part_size beside_size(const struct ax_arch *a, const struct ax_layer_spec *spec) {
    const struct ax_part_size x = ax_mixer_attention.size(a, spec),
                              y = ax_mixer_mamba.size(a, spec);
    return (struct ax_part_size){x.matrices + y.matrices, x.active + y.active,
                                 x.vectors + y.vectors};
}

static double beside_mixing(const struct ax_arch *a, const struct ax_layer_spec *spec,
                            int64_t seq) {
    return ax_mixer_attention.mixing(a, spec, seq) + ax_mixer_mamba.mixing(a, spec, seq);
}

static struct ax_state_size beside_state(const struct ax_arch *a, const struct ax_mesh *mesh) {
    return ax_mixer_mamba.state(a, mesh);
}

static void beside_declare(const struct ax_layer *l, const struct ax_pass *p, struct ax_saved *s) {
    const struct sides both = sides_of(p, s);
    for (int i = 0; i < 2; i++)
        both.of[i].type->declare(l, p, both.of[i].s);
}

static struct ax_tensor take(const struct ax_pass *p, const char *name,
                             const struct ax_tensor *like) {
    return ax_stack_take(&p->model->rt->arena.scratch, name,
                         ax_tensor_2d(p->model->dtype, NULL, like->shape[0], like->shape[1]));
}

/* *scaled = factor·x: x itself, or in scratch. */
static enum ax_status multiply(const struct ax_pass *p, double factor, const char *name,
                               const struct ax_tensor *x, struct ax_tensor *scaled) {
    *scaled = *x;
    if (factor == 1)
        return AX_OK;
    *scaled = take(p, name, x);
    return ax_run_scale(p->model->rt->q, &(struct ax_scale){*scaled, *x, factor, 0});
}

/* out += the part's output times its factor. */
static enum ax_status side_forward(const struct ax_layer *l, struct ax_pass *p,
                                   const struct side *side, const struct ax_tensor *h,
                                   const struct ax_tensor *out) {
    struct ax_runtime *rt = p->model->rt;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    struct ax_tensor input, made;
    if (out)
        made = take(p, "output of one mixer", out);
    AX_TRY(multiply(p, side->scale.in, "input of one mixer", h, &input));
    AX_TRY(side->type->forward(l, p, side->s, &input, NULL, out ? &made : NULL));
    if (out) {
        if (p->tap)
            p->tap(p->tap_ctx, side->tap, l->index, &made);
        AX_TRY(ax_run_add(rt->q, &(struct ax_add){*out, made, side->scale.out}));
    }
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

static enum ax_status beside_forward(const struct ax_layer *l, struct ax_pass *p,
                                     struct ax_saved *s, const struct ax_tensor *h,
                                     const struct ax_tensor *x, const struct ax_tensor *out) {
    struct ax_queue *q = p->model->rt->q;
    const struct sides both = sides_of(p, s);
    if (out)
        AX_TRY(x ? ax_run_copy(q, &(struct ax_copy){*out, *x})
                 : ax_run_fill(q, &(struct ax_fill){*out, 0}));
    for (int i = 0; i < 2; i++)
        AX_TRY(side_forward(l, p, &both.of[i], h, out));
    return AX_OK;
}

/* dh (NULL: not requested) += the gradient of the input, of this part alone. */
static enum ax_status side_backward(const struct ax_layer *l, struct ax_pass *p,
                                    const struct side *side, const struct ax_tensor *h,
                                    const struct ax_tensor *dy, const struct ax_tensor *dh) {
    struct ax_runtime *rt = p->model->rt;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    struct ax_tensor input, d, dinput;
    if (dh)
        dinput = take(p, "gradient of one mixer's input", dh);
    AX_TRY(multiply(p, side->scale.in, "input of one mixer", h, &input));
    AX_TRY(multiply(p, side->scale.out, "gradient of one mixer's output", dy, &d));
    AX_TRY(side->type->backward(l, p, side->s, &input, &d, dh ? &dinput : NULL));
    if (dh)
        AX_TRY(ax_run_add(rt->q, &(struct ax_add){*dh, dinput, side->scale.in}));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

static enum ax_status beside_backward(const struct ax_layer *l, struct ax_pass *p,
                                      struct ax_saved *s, const struct ax_tensor *h,
                                      const struct ax_tensor *dy, const struct ax_tensor *dh) {
    const struct sides both = sides_of(p, s);
    if (dh)
        AX_TRY(ax_run_fill(p->model->rt->q, &(struct ax_fill){*dh, 0}));
    for (int i = 0; i < 2; i++)
        AX_TRY(side_backward(l, p, &both.of[i], h, dy, dh));
    return AX_OK;
}

const struct ax_part_type ax_mixer_beside = {
    .name = "attention beside mamba",
    .n_saved = N_SAVED,
    .keys = true,
    .init = beside_init,
    .linears = beside_linears,
    .size = beside_size,
    .mixing = beside_mixing,
    .state = beside_state,
    .declare = beside_declare,
    .forward = beside_forward,
    .backward = beside_backward,
};
