/* Forward and backward around the layer itself (layer.c). */
#include "model/predict.h"

#include "model/core/builder.h"
#include "model/core/norm.h"
#include "model/layer.h"
#include "model/parts/embed.h"
#include "model/parts/head.h"

/* In the frame, after the layer's: h; the next tokens' embeddings; [norm_e; norm_h]; u. */
enum { STATE, RSTD, ROWS, ROWS_RSTD, STATE_RSTD, JOINED, INPUT, N_PREDICT };

#define NAME(part) "model.layers.%d." part

static void add_state_norm(struct ax_builder *b) {
    b->model->final_norm = ax_builder_add_norm(b, -1, "model.norm.weight", b->arch->hidden_size);
}

static void add_ahead_norm(struct ax_builder *b) {
    b->model->ahead_norm = ax_builder_add_norm(
        b, (int)b->arch->n_layers - 1, NAME("shared_head.norm.weight"), b->arch->hidden_size);
}

void ax_predict_init(struct ax_builder *b, struct ax_layer *l) {
    const int64_t D = b->arch->hidden_size;
    const struct ax_param_decl join = {.name = NAME("eh_proj.weight"),
                                       .rows = D,
                                       .cols = 2 * D,
                                       .tp_dim = -1,
                                       .grad_partial_over = AX_TP_PARTIAL};
    if (b->options->only_predicts)
        add_ahead_norm(b);
    else
        add_state_norm(b);
    l->predict.rows_norm = ax_builder_add_norm(b, l->index, NAME("enorm.weight"), D);
    l->predict.state_norm = ax_builder_add_norm(b, l->index, NAME("hnorm.weight"), D);
    l->predict.join = (struct ax_linear){.unit = l->unit, .split = AX_SPLIT_NONE, .n_parts = 1};
    l->predict.join.weight[0] = ax_builder_add(b, l->index, &join);
}

void ax_predict_init_end(struct ax_builder *b) {
    if (b->options->only_predicts)
        add_state_norm(b);
    else
        add_ahead_norm(b);
}

/* Does the pass compute the layer, or the state alone? */
static bool predicts(const struct ax_pass *p) {
    return p->recompute != AX_RECOMPUTE_INFERENCE;
}

static void declare_state(const struct ax_pass *p, struct ax_saved *s) {
    const struct ax_model *m = p->model;
    const int64_t T = ax_tp_rows(m->rt, p->batch->T), D = m->arch.hidden_size;
    ax_saved_declare(&s[STATE], "norm output", AX_KEEP_CHEAP, ax_tensor_2d(m->dtype, NULL, T, D));
    ax_saved_declare(&s[RSTD], "norm rstd", AX_KEEP_CHEAP, ax_tensor_1d(m->accum, NULL, T));
}

static void declare_rows(const struct ax_pass *p, struct ax_saved *s) {
    const struct ax_model *m = p->model;
    const int64_t T = ax_tp_rows(m->rt, p->batch->T), D = m->arch.hidden_size;
    ax_saved_declare(&s[ROWS], "next embeddings", AX_KEEP_COSTLY,
                     ax_tensor_2d(m->accum, NULL, T, D));
}

/* u, and what is computed on the way from h and the rows. */
static void declare_input(const struct ax_pass *p, struct ax_saved *s) {
    const struct ax_model *m = p->model;
    const int64_t T = ax_tp_rows(m->rt, p->batch->T), D = m->arch.hidden_size;
    const struct ax_tensor per_row = ax_tensor_1d(m->accum, NULL, T);
    ax_saved_declare(&s[ROWS_RSTD], "norm rstd", AX_KEEP_CHEAP, per_row);
    ax_saved_declare(&s[STATE_RSTD], "norm rstd", AX_KEEP_CHEAP, per_row);
    ax_saved_declare(&s[JOINED], "norm output", AX_KEEP_CHEAP,
                     ax_tensor_2d(m->dtype, NULL, T, 2 * D));
    ax_saved_declare(&s[INPUT], "residual", AX_KEEP_COSTLY, ax_tensor_2d(m->accum, NULL, T, D));
}

void ax_predict_declare(const struct ax_layer *l, const struct ax_pass *p, struct ax_frame *f) {
    if (predicts(p))
        ax_layer_declare(l, p, f);
    else
        ax_frame_begin(f, 0);
    struct ax_saved *s = ax_frame_extend(f, N_PREDICT);
    declare_state(p, s);
    if (!predicts(p))
        return;
    declare_rows(p, s);
    declare_input(p, s);
}

static struct ax_saved *own(struct ax_frame *f) {
    return f->saved + f->n - N_PREDICT;
}

static enum ax_status make_state(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s,
                                 const struct ax_tensor *x) {
    if (!ax_saved_make(&s[STATE]))
        return AX_OK;
    return ax_norm_forward(p, l->unit, p->model->final_norm, x, &s[STATE].t, &s[RSTD].t);
}

/* u, and what it is made of. */
static enum ax_status make_input(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s) {
    const struct ax_predict_part *part = &l->predict;
    const int64_t D = p->model->arch.hidden_size;
    const struct ax_tensor of_rows = ax_tensor_cols(&s[JOINED].t, 0, D),
                           of_state = ax_tensor_cols(&s[JOINED].t, D, D);
    if (ax_saved_make(&s[ROWS]))
        AX_TRY(ax_embed_rows(p, &p->batch->ahead.tokens, &s[ROWS].t));
    if (ax_saved_make(&s[JOINED])) {
        AX_TRY(ax_norm_forward(p, l->unit, part->rows_norm, &s[ROWS].t, &of_rows, &s[ROWS_RSTD].t));
        AX_TRY(ax_norm_forward(p, l->unit, part->state_norm, &s[STATE].t, &of_state,
                               &s[STATE_RSTD].t));
    }
    if (!ax_saved_make(&s[INPUT]))
        return AX_OK;
    return ax_linear_forward(p->model->rt, &part->join, &s[JOINED].t, NULL, &s[INPUT].t);
}

enum ax_status ax_predict_forward(const struct ax_layer *l, struct ax_pass *p, struct ax_frame *f,
                                  const struct ax_tensor *x, const struct ax_tensor *out) {
    struct ax_saved *s = own(f);
    AX_TRY(make_state(l, p, s, x));
    if (out)
        AX_TRY(ax_run_copy(p->model->rt->q, &(struct ax_copy){.dst = *out, .src = s[STATE].t}));
    if (!predicts(p))
        return AX_OK;
    AX_TRY(make_input(l, p, s));
    return ax_layer_forward(l, p, f, &s[INPUT].t, out ? &p->slot->ahead : NULL);
}

static struct ax_tensor take(const struct ax_pass *p, enum ax_dtype dtype, int64_t cols) {
    return ax_stack_take(&p->model->rt->arena.scratch, "gradient of the layer for prediction",
                         ax_tensor_2d(dtype, NULL, p->slot->grad.shape[0], cols));
}

/* From d_joined, the gradients of the two norms' inputs: the embedding's rows, and h, which is added. */
static enum ax_status norms_backward(const struct ax_layer *l, struct ax_pass *p,
                                     const struct ax_saved *s, const struct ax_tensor *d_joined) {
    const struct ax_model *m = p->model;
    const int64_t D = m->arch.hidden_size;
    const struct ax_tensor d_rows = take(p, m->accum, D), d_state = take(p, m->dtype, D);
    const struct ax_tensor of_rows = ax_tensor_cols(d_joined, 0, D),
                           of_state = ax_tensor_cols(d_joined, D, D);
    AX_TRY(ax_norm_backward(p, l->unit, l->predict.rows_norm, &of_rows, &s[ROWS].t, &s[ROWS_RSTD].t,
                            &d_rows, false));
    AX_TRY(ax_norm_backward(p, l->unit, l->predict.state_norm, &of_state, &s[STATE].t,
                            &s[STATE_RSTD].t, &d_state, false));
    AX_TRY(ax_run_add(m->rt->q, &(struct ax_add){p->slot->grad, d_state, 1}));
    return ax_embed_rows_backward(p, &p->batch->ahead.tokens, &d_rows);
}

enum ax_status ax_predict_backward(const struct ax_layer *l, struct ax_pass *p, struct ax_frame *f,
                                   const struct ax_tensor *x) {
    struct ax_runtime *rt = p->model->rt;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    const struct ax_saved *s = own(f);
    struct ax_tensor d_input, d_joined;
    AX_TRY(ax_predict_forward(l, p, f, x, NULL));
    AX_TRY(ax_layer_backward(l, p, f, &s[INPUT].t, &p->slot->ahead));
    d_joined = take(p, p->model->dtype, 2 * x->shape[1]);
    AX_TRY(ax_residual_narrow(p, &p->slot->ahead, &d_input));
    AX_TRY(ax_linear_backward(rt, &l->predict.join, &s[JOINED].t, &d_input, &d_joined));
    AX_TRY(norms_backward(l, p, s, &d_joined));
    ax_stack_release(&rt->arena.scratch, mark);
    return ax_residual_norm_backward(p, l->unit, p->model->final_norm, &p->slot->grad, x,
                                     &s[RSTD].t, &p->slot->grad, false,
                                     ax_residual_narrows(p, l->index));
}

/* What has been made already goes into a frame as such. */
static struct ax_saved made(const char *name, const struct ax_tensor *t) {
    return (struct ax_saved){.name = name, .ready = true, .t = *t};
}

enum ax_status ax_predict_of(const struct ax_layer *l, struct ax_pass *p,
                             const struct ax_tensor *state, const struct ax_tensor *rows,
                             const struct ax_tensor *out) {
    struct ax_stack *scratch = &p->model->rt->arena.scratch;
    struct ax_frame f;
    ax_layer_declare(l, p, &f);
    struct ax_saved *s = ax_frame_extend(&f, N_PREDICT);
    declare_input(p, s);
    ax_frame_push(&f, scratch, scratch, p->recompute);
    s[STATE] = made("norm output", state);
    s[ROWS] = made("next embeddings", rows);
    AX_TRY(make_input(l, p, s));
    AX_TRY(ax_layer_forward(l, p, &f, &s[INPUT].t, out));
    ax_frame_pop(&f, scratch);
    return AX_OK;
}
