/* Gated short convolution (LFM2, Liquid AI 2025):
 *
 *   B, C, x = h·Winᵀ (+ b);  y = (C ∘ conv(B ∘ x))·Woutᵀ (+ b)
 *
 * conv is causal, of each channel, within the document (convolve.h). B, C and x are parts of one matrix of
 * the file, in this order; tp splits the channels. */
#include "model/core/builder.h"
#include "model/core/own_columns.h"
#include "model/core/pass.h"
#include "model/parts/convolve.h"

enum { BCX, GATED, MIXED, OUT, N_SAVED };

#define NAME(tail) "model.layers.%d.conv." tail

static void shortconv_init(struct ax_builder *b, struct ax_layer *l) {
    const struct ax_arch *a = b->arch;
    const int64_t D = a->hidden_size;
    struct ax_shortconv_part *c = &l->shortconv;
    c->in.unit = c->out.unit = l->unit;
    c->in.n_parts = c->out.n_parts = 1;
    c->in.split = AX_SPLIT_NONE;
    c->out.split = AX_SPLIT_INPUTS;
    c->in.weight[0] = ax_builder_add(b, l->index,
                                     &(struct ax_param_decl){.name = NAME("in_proj.weight"),
                                                             .rows = 3 * D,
                                                             .cols = D,
                                                             .tp_dim = -1,
                                                             .grad_partial_over = AX_TP_PARTIAL});
    c->taps = ax_builder_add(
        b, l->index,
        &(struct ax_param_decl){
            .name = NAME("conv.weight"), .rows = D, .cols = a->conv.taps, .middle = true});
    c->out.weight[0] =
        ax_builder_add(b, l->index,
                       &(struct ax_param_decl){
                           .name = NAME("out_proj.weight"), .rows = D, .cols = D, .tp_dim = 1});
    if (!a->conv.bias)
        return;
    c->in.bias[0] = ax_builder_add(b, l->index,
                                   &(struct ax_param_decl){.name = NAME("in_proj.bias"),
                                                           .rows = 3 * D,
                                                           .tp_dim = -1,
                                                           .grad_partial_over = AX_TP_PARTIAL});
    c->bias =
        ax_builder_add(b, l->index, &(struct ax_param_decl){.name = NAME("conv.bias"), .rows = D});
    c->out.bias[0] = ax_builder_add(b, l->index,
                                    &(struct ax_param_decl){.name = NAME("out_proj.bias"),
                                                            .rows = D,
                                                            .tp_dim = -1,
                                                            .grad_partial_over = AX_TP_PARTIAL});
}

static int shortconv_linears(struct ax_layer *l, struct ax_linear **out) {
    out[0] = &l->shortconv.in;
    out[1] = &l->shortconv.out;
    return 2;
}

static struct ax_part_size shortconv_size(const struct ax_arch *a,
                                          const struct ax_layer_spec *spec) {
    (void)spec;
    const int64_t D = a->hidden_size, matrices = 4 * D * D + D * a->conv.taps;
    return (struct ax_part_size){matrices, matrices, a->conv.bias ? 5 * D : 0};
}

static struct ax_state_size shortconv_state(const struct ax_arch *a, const struct ax_mesh *mesh) {
    int64_t first, channels;
    ax_split_range(a->hidden_size, mesh->size[AX_ROLE_TP], mesh->coord[AX_ROLE_TP], &first,
                   &channels);
    return (struct ax_state_size){.rows = a->conv.taps - 1, .channels = channels};
}

/* Channels of this rank. */
static int64_t channels_of(const struct ax_layer *l) {
    return l->shortconv.taps->local_shape[0];
}

static struct ax_own_columns own_channels(const struct ax_layer *l, const struct ax_pass *p) {
    const struct ax_mesh *mesh = &p->model->rt->mesh;
    const int64_t D = p->model->arch.hidden_size;
    int64_t first, n;
    ax_split_range(D, mesh->size[AX_ROLE_TP], mesh->coord[AX_ROLE_TP], &first, &n);
    AX_ASSERT(n == channels_of(l));
    return (struct ax_own_columns){3, {{first, n}, {D + first, n}, {2 * D + first, n}}};
}

static void shortconv_declare(const struct ax_layer *l, const struct ax_pass *p,
                              struct ax_saved *s) {
    const enum ax_dtype dtype = p->model->dtype;
    const int64_t T = p->batch->T, n = channels_of(l);
    const struct ax_tensor rows = ax_tensor_2d(dtype, NULL, T, n);
    ax_saved_declare(&s[BCX], "convolution's gates and input", AX_KEEP_COSTLY,
                     ax_tensor_2d(dtype, NULL, T, 3 * n));
    ax_saved_declare(&s[GATED], "convolution's gated input", AX_KEEP_CHEAP, rows);
    ax_saved_declare(&s[MIXED], "convolution's output", AX_KEEP_CHEAP, rows);
    ax_saved_declare(&s[OUT], "convolution's gated output", AX_KEEP_CHEAP, rows);
}

/* B, C and x, or their gradients, as views of [T][B | C | x]. */
struct gates {
    struct ax_tensor in, out, x;
};
static struct gates split(const struct ax_tensor *joined) {
    const int64_t n = joined->shape[1] / 3;
    return (struct gates){ax_tensor_cols(joined, 0, n), ax_tensor_cols(joined, n, n),
                          ax_tensor_cols(joined, 2 * n, n)};
}

static const struct ax_gating product = {.gate = AX_GATE_LINEAR};

static enum ax_status multiply(const struct ax_pass *p, const struct ax_tensor *gate,
                               const struct ax_tensor *x, const struct ax_tensor *y) {
    return ax_run_swiglu_forward(
        p->model->rt->q,
        &(struct ax_swiglu_forward){.gate_up = *gate, .up = *x, .y = *y, .how = product});
}

static struct ax_convolution convolution(const struct ax_layer *l) {
    return (struct ax_convolution){
        .taps = l->shortconv.taps, .bias = l->shortconv.bias, .n = channels_of(l)};
}

static enum ax_status shortconv_forward(const struct ax_layer *l, struct ax_pass *p,
                                        struct ax_saved *s, const struct ax_tensor *h,
                                        const struct ax_tensor *x, const struct ax_tensor *out) {
    const struct ax_shortconv_part *c = &l->shortconv;
    const struct ax_own_columns own = own_channels(l, p);
    const struct ax_convolution conv = convolution(l);
    const struct gates g = split(&s[BCX].t);
    if (ax_saved_make(&s[BCX]))
        AX_TRY(ax_own_columns_forward(p->model->rt, &c->in, &own, h, &s[BCX].t));
    if (ax_saved_make(&s[GATED]))
        AX_TRY(multiply(p, &g.in, &g.x, &s[GATED].t));
    if (ax_saved_make(&s[MIXED]))
        AX_TRY(ax_convolve_forward(p, l, &conv, &s[GATED].t, &s[MIXED].t));
    if (ax_saved_make(&s[OUT]))
        AX_TRY(multiply(p, &g.out, &s[MIXED].t, &s[OUT].t));
    return out ? ax_linear_forward(p->model->rt, &c->out, &s[OUT].t, x, out) : AX_OK;
}

/* Of y = gate ∘ x. */
static enum ax_status multiply_backward(const struct ax_pass *p, const struct ax_tensor *dy,
                                        const struct ax_tensor *gate, const struct ax_tensor *x,
                                        const struct ax_tensor *d_gate,
                                        const struct ax_tensor *dx) {
    return ax_run_swiglu_backward(p->model->rt->q, &(struct ax_swiglu_backward){.dy = *dy,
                                                                                .gate_up = *gate,
                                                                                .up = *x,
                                                                                .dgate_up = *d_gate,
                                                                                .dup = *dx,
                                                                                .how = product});
}

static enum ax_status shortconv_backward(const struct ax_layer *l, struct ax_pass *p,
                                         struct ax_saved *s, const struct ax_tensor *h,
                                         const struct ax_tensor *dy, const struct ax_tensor *dh) {
    const struct ax_shortconv_part *c = &l->shortconv;
    const struct ax_own_columns own = own_channels(l, p);
    const struct ax_convolution conv = convolution(l);
    struct ax_stack *scratch = &p->model->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    const struct ax_tensor d_out = ax_stack_take(scratch, "gradient of convolution", s[OUT].t);
    const struct ax_tensor d_mixed = ax_stack_take(scratch, "gradient of convolution", s[MIXED].t);
    const struct ax_tensor d_bcx = ax_stack_take(scratch, "gradient of convolution", s[BCX].t);
    const struct gates g = split(&s[BCX].t), d = split(&d_bcx);
    AX_TRY(ax_linear_backward(p->model->rt, &c->out, &s[OUT].t, dy, &d_out));
    AX_TRY(multiply_backward(p, &d_out, &g.out, &s[MIXED].t, &d.out, &d_mixed));
    AX_TRY(ax_convolve_backward(p, l, &conv, &s[GATED].t, &d_mixed, &d_out)); /* of B ∘ x */
    AX_TRY(multiply_backward(p, &d_out, &g.in, &g.x, &d.in, &d.x));
    AX_TRY(ax_own_columns_backward(p->model->rt, &c->in, &own, h, &d_bcx, dh));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

const struct ax_part_type ax_mixer_shortconv = {
    .name = "short convolution",
    .n_saved = N_SAVED,
    .two_linears = true,
    .between = OUT,
    .init = shortconv_init,
    .linears = shortconv_linears,
    .size = shortconv_size,
    .state = shortconv_state,
    .declare = shortconv_declare,
    .forward = shortconv_forward,
    .backward = shortconv_backward,
};
