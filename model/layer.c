/* One layer, pre-norm:  m = x + mixer(norm1(x));  y = m + ffn(norm2(m)).
 *
 * Backward walks it in reverse; the gradient of the residual stream is one buffer that each branch
 * adds to:  d += norm2ᵀ(ffnᵀ(d));  d += norm1ᵀ(mixerᵀ(d)).
 *
 * The residual stream x, m, y and its gradient d are kept in accum: sums over all layers, which
 * rounding after every layer would wear down. The branches compute in the model's dtype. */
#include "model/layer.h"

#include "model/adapter/attach.h"
#include "model/norm.h"

enum { H1, RSTD1, MIDDLE, H2, RSTD2, N_SAVED };

/* Where the parts' tensors are in a frame: behind the layer's own. */
static struct ax_saved *of_mixer(struct ax_frame *f) {
    return f->saved + N_SAVED;
}
static struct ax_saved *of_ffn(const struct ax_layer *l, struct ax_frame *f) {
    return of_mixer(f) + l->spec.mixer->n_saved;
}

enum ax_status ax_layer_init(struct ax_builder *b, struct ax_layer *l) {
    const int64_t D = b->arch->hidden_size;
    l->norm1 = ax_builder_add_norm(b, l->index, "model.layers.%d.input_layernorm.weight", D);
    l->spec.mixer->init(b, l);
    l->norm2 =
        ax_builder_add_norm(b, l->index, "model.layers.%d.post_attention_layernorm.weight", D);
    l->spec.ffn->init(b, l);
    return ax_adapter_attach(b, l);
}

void ax_layer_declare(const struct ax_layer *l, const struct ax_pass *p, struct ax_frame *f) {
    const struct ax_model *m = p->model;
    const int64_t T = ax_tp_rows(m->rt, p->batch->T), D = m->arch.hidden_size;
    const struct ax_tensor rows = ax_tensor_2d(m->dtype, NULL, T, D);
    const struct ax_tensor stream = ax_tensor_2d(m->accum, NULL, T, D);
    const struct ax_tensor per_row = ax_tensor_1d(m->accum, NULL, T);
    ax_frame_begin(f, N_SAVED + l->spec.mixer->n_saved + l->spec.ffn->n_saved);
    ax_saved_declare(&f->saved[H1], "norm output", AX_KEEP_CHEAP, rows);
    ax_saved_declare(&f->saved[RSTD1], "norm rstd", AX_KEEP_CHEAP, per_row);
    ax_saved_declare(&f->saved[MIDDLE], "residual middle", AX_KEEP_COSTLY, stream);
    ax_saved_declare(&f->saved[H2], "norm output", AX_KEEP_CHEAP, rows);
    ax_saved_declare(&f->saved[RSTD2], "norm rstd", AX_KEEP_CHEAP, per_row);
    l->spec.mixer->declare(l, p, of_mixer(f));
    l->spec.ffn->declare(l, p, of_ffn(l, f));
}

enum ax_status ax_layer_forward(const struct ax_layer *l, struct ax_pass *p, struct ax_frame *f,
                                const struct ax_tensor *x, const struct ax_tensor *out) {
    const struct ax_tensor *h1 = &f->saved[H1].t, *h2 = &f->saved[H2].t;
    const struct ax_tensor *middle = &f->saved[MIDDLE].t;
    if (ax_saved_make(&f->saved[H1]))
        AX_TRY(ax_norm_forward(p, l->unit, l->norm1, x, h1, &f->saved[RSTD1].t));
    const struct ax_tensor *mixed = ax_saved_make(&f->saved[MIDDLE]) ? middle : NULL;
    AX_TRY(l->spec.mixer->forward(l, p, of_mixer(f), h1, x, mixed));
    if (p->tap && mixed)
        p->tap(p->tap_ctx, "middle", l->index, middle);
    if (ax_saved_make(&f->saved[H2]))
        AX_TRY(ax_norm_forward(p, l->unit, l->norm2, middle, h2, &f->saved[RSTD2].t));
    return l->spec.ffn->forward(l, p, of_ffn(l, f), h2, middle, out);
}

enum ax_status ax_layer_backward(const struct ax_layer *l, struct ax_pass *p, struct ax_frame *f,
                                 const struct ax_tensor *x, const struct ax_tensor *dx) {
    struct ax_stack *scratch = &p->model->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    struct ax_tensor dy, dh = ax_tensor_2d(p->model->dtype, NULL, dx->shape[0], dx->shape[1]);
    dh.data = ax_stack_push(scratch, "gradient of branch input", ax_tensor_bytes(&dh));

    const size_t branch = ax_stack_mark(scratch);
    AX_TRY(ax_residual_narrow(p, dx, &dy));
    AX_TRY(l->spec.ffn->backward(l, p, of_ffn(l, f), &f->saved[H2].t, &dy, &dh));
    ax_stack_release(scratch, branch);
    AX_TRY(ax_norm_backward(p, l->unit, l->norm2, &dh, &f->saved[MIDDLE].t, &f->saved[RSTD2].t, dx,
                            true));
    /* below the lowest unit that trains nobody reads a gradient */
    const bool needed = l->index + 1 > p->model->lowest_unit || l->norm1->trainable;
    AX_TRY(ax_residual_narrow(p, dx, &dy));
    AX_TRY(l->spec.mixer->backward(l, p, of_mixer(f), &f->saved[H1].t, &dy, needed ? &dh : NULL));
    ax_stack_release(scratch, branch);
    if (needed)
        AX_TRY(ax_norm_backward(p, l->unit, l->norm1, &dh, x, &f->saved[RSTD1].t, dx, true));
    ax_stack_release(scratch, mark);
    return AX_OK;
}
