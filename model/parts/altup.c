#include "model/parts/altup.h"

#include "model/core/norm.h"
#include "model/parts/streams.h"

/* The three tensors of m(x) come one after the other, and what is made of them. */
enum { ROUTED, ROUTED_RSTD, MODES, COEFS };
enum {
    PREDICTED = AX_ALTUP_PREDICTED,
    MADE = AX_ALTUP_MADE,
    OF_ACTIVE, /* of h_a */
    OF_MADE = OF_ACTIVE + COEFS + 1,
    ACTIVE = OF_MADE + COEFS + 1, /* c_a */
    SCALED,                       /* c_a ∘ scale */
    GIVEN,                        /* of the third branch, before its norm */
    GIVEN_RSTD,
    EXTRA,
    N_SAVED = EXTRA + AX_PER_LAYER_SAVED
};
_Static_assert(N_SAVED == AX_ALTUP_SAVED, "the number is in altup.h, too");

#define NAME(tail) "model.layers.%d.altup." tail

static int64_t streams(const struct ax_pass *p) {
    return p->model->arch.streams.n;
}

/* ---- parameters ---- */

static struct ax_linear add_linear(struct ax_builder *b, const struct ax_layer *l, const char *name,
                                   int64_t rows, int64_t cols) {
    const struct ax_param_decl decl = {
        .name = name, .rows = rows, .cols = cols, .tp_dim = -1, .grad_partial_over = AX_TP_PARTIAL};
    return (struct ax_linear){.unit = l->unit,
                              .split = AX_SPLIT_NONE,
                              .n_parts = 1,
                              .weight = {ax_builder_add(b, l->index, &decl)}};
}

/* Its linears are small: no adapter, packed storage or quantization finds them. */
void ax_altup_init(struct ax_builder *b, struct ax_layer *l) {
    const int64_t n = b->arch->streams.n, D = b->arch->hidden_size;
    struct ax_altup_part *part = &l->altup;
    part->norm = ax_builder_add_norm(b, l->index, NAME("router_norm.weight"), D);
    part->router = add_linear(b, l, NAME("modality_router.weight"), n, D);
    part->predict = add_linear(b, l, NAME("prediction_coefs.weight"), n * n, n);
    part->correct = add_linear(b, l, NAME("correction_coefs.weight"), n, n);
    part->scale = ax_builder_add_norm(b, l->index, NAME("correct_output_scale"), D);
}

static void declare_modes(const struct ax_pass *p, struct ax_saved *s, int64_t coefs) {
    const struct ax_model *m = p->model;
    const int64_t T = ax_tp_rows(m->rt, p->batch->T);
    ax_saved_declare(&s[ROUTED], "norm output", AX_KEEP_CHEAP,
                     ax_tensor_2d(m->dtype, NULL, T, m->arch.hidden_size));
    ax_saved_declare(&s[ROUTED_RSTD], "norm rstd", AX_KEEP_CHEAP, ax_tensor_1d(m->accum, NULL, T));
    ax_saved_declare(&s[MODES], "modes of streams", AX_KEEP_COSTLY,
                     ax_tensor_2d(m->dtype, NULL, T, streams(p)));
    ax_saved_declare(&s[COEFS], "coefficients of streams", AX_KEEP_COSTLY,
                     ax_tensor_2d(m->accum, NULL, T, coefs));
}

void ax_altup_declare(const struct ax_layer *l, const struct ax_pass *p, struct ax_saved *s) {
    const struct ax_model *m = p->model;
    const int64_t n = streams(p), T = ax_tp_rows(m->rt, p->batch->T), D = m->arch.hidden_size;
    const struct ax_tensor rows = ax_tensor_2d(m->dtype, NULL, T, D);
    ax_saved_declare(&s[PREDICTED], "predicted streams", AX_KEEP_CHEAP,
                     ax_tensor_2d(m->accum, NULL, T, n * D));
    ax_saved_declare(&s[MADE], "layer's stream", AX_KEEP_COSTLY,
                     ax_tensor_2d(m->accum, NULL, T, D));
    declare_modes(p, s + OF_ACTIVE, n * n);
    declare_modes(p, s + OF_MADE, n);
    ax_saved_declare(&s[ACTIVE], "corrected stream", AX_KEEP_CHEAP, rows);
    ax_saved_declare(&s[SCALED], "corrected stream", AX_KEEP_CHEAP, rows);
    ax_saved_declare(&s[GIVEN], "branch output", AX_KEEP_COSTLY, rows);
    ax_saved_declare(&s[GIVEN_RSTD], "norm rstd", AX_KEEP_CHEAP, ax_tensor_1d(m->accum, NULL, T));
    l->extra.type->declare(l, p, s + EXTRA);
}

/* ---- pieces ---- */

static struct ax_tensor take(const struct ax_pass *p, enum ax_dtype dtype, int64_t cols) {
    const struct ax_model *m = p->model;
    return ax_stack_take(&m->rt->arena.scratch, "streams",
                         ax_tensor_2d(dtype, NULL, ax_tp_rows(m->rt, p->batch->T), cols));
}

static enum ax_status copy(const struct ax_pass *p, const struct ax_tensor *to,
                           const struct ax_tensor *from) {
    return ax_run_copy(p->model->rt->q, &(struct ax_copy){*to, *from});
}

static enum ax_status add(const struct ax_pass *p, const struct ax_tensor *to,
                          const struct ax_tensor *what, double alpha) {
    return ax_run_add(p->model->rt->q, &(struct ax_add){*to, *what, alpha});
}

/* The stream that the layer's parts compute. */
static struct ax_tensor active_of(const struct ax_pass *p, const struct ax_tensor *rows) {
    return ax_stream_of(p->model, rows, p->model->arch.streams.active);
}

/* A dense [T][k·w] as [T·k][w]. */
static struct ax_tensor apart(const struct ax_tensor *t, int64_t w) {
    return ax_tensor_2d(t->dtype, t->data, ax_tensor_numel(t) / w, w);
}

/* Streams in the compute dtype, in scratch, as [T·n][D]. */
static enum ax_status rounded(const struct ax_pass *p, const struct ax_tensor *rows,
                              struct ax_tensor *out) {
    const struct ax_tensor all = take(p, p->model->dtype, rows->shape[1]);
    *out = apart(&all, p->model->arch.hidden_size);
    return copy(p, &all, rows);
}

/* to [T·n][D] = addend + Σ_i weights[…][i]·src[rows[…][i]], for k rows of src each. */
static enum ax_status combine(const struct ax_pass *p, const struct ax_tensor *src,
                              const struct ax_tensor *rows, const struct ax_tensor *weights,
                              int64_t k, const struct ax_tensor *addend,
                              const struct ax_tensor *to) {
    const int64_t D = p->model->arch.hidden_size;
    return ax_run_combine_forward(
        p->model->rt->q,
        &(struct ax_combine_forward){.src = *src,
                                     .rows = *rows,
                                     .weights = apart(weights, k),
                                     .addend = addend ? apart(addend, D) : (struct ax_tensor){0},
                                     .out = apart(to, D)});
}

/* The gradient of those weights. */
static enum ax_status combine_backward(const struct ax_pass *p, const struct ax_tensor *dout,
                                       const struct ax_tensor *src, const struct ax_tensor *rows,
                                       const struct ax_tensor *weights, int64_t k,
                                       const struct ax_tensor *dweights) {
    return ax_run_combine_backward(p->model->rt->q,
                                   &(struct ax_combine_backward){.dout = *dout,
                                                                 .src = *src,
                                                                 .rows = *rows,
                                                                 .weights = apart(weights, k),
                                                                 .dweights = apart(dweights, k)});
}

/* m(x), and what a linear makes of it. */
static enum ax_status coefficients(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s,
                                   const struct ax_tensor *x, const struct ax_linear *linear,
                                   double plus) {
    struct ax_runtime *rt = p->model->rt;
    if (ax_saved_make(&s[ROUTED]))
        AX_TRY(ax_norm_forward(p, l->unit, l->altup.norm, x, &s[ROUTED].t, &s[ROUTED_RSTD].t));
    if (ax_saved_make(&s[MODES])) {
        AX_TRY(ax_linear_forward(rt, &l->altup.router, &s[ROUTED].t, NULL, &s[MODES].t));
        AX_TRY(ax_run_scale(rt->q, &(struct ax_scale){.y = s[MODES].t,
                                                      .x = s[MODES].t,
                                                      .alpha = 1 / (double)x->shape[1],
                                                      .softcap = 1}));
    }
    if (!ax_saved_make(&s[COEFS]))
        return AX_OK;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    const struct ax_tensor made = take(p, p->model->dtype, s[COEFS].t.shape[1]);
    AX_TRY(ax_linear_forward(rt, linear, &s[MODES].t, NULL, &made));
    AX_TRY(ax_run_fill(rt->q, &(struct ax_fill){s[COEFS].t, plus}));
    AX_TRY(add(p, &s[COEFS].t, &made, 1));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

/* dx += the gradient of x, from that of the coefficients. */
static enum ax_status coefficients_backward(const struct ax_layer *l, struct ax_pass *p,
                                            struct ax_saved *s, const struct ax_tensor *x,
                                            const struct ax_linear *linear,
                                            const struct ax_tensor *dcoefs,
                                            const struct ax_tensor *dx) {
    struct ax_runtime *rt = p->model->rt;
    const enum ax_dtype dtype = p->model->dtype;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    const struct ax_tensor d = take(p, dtype, dcoefs->shape[1]),
                           d_modes = take(p, dtype, streams(p)),
                           d_routed = take(p, dtype, x->shape[1]);
    AX_TRY(copy(p, &d, dcoefs));
    AX_TRY(ax_linear_backward(rt, linear, &s[MODES].t, &d, &d_modes));
    AX_TRY(ax_run_softcap_backward(rt->q,
                                   &(struct ax_softcap_backward){.dx = d_modes,
                                                                 .dy = d_modes,
                                                                 .y = s[MODES].t,
                                                                 .alpha = 1 / (double)x->shape[1],
                                                                 .softcap = 1}));
    AX_TRY(ax_linear_backward(rt, &l->altup.router, &s[ROUTED].t, &d_modes, &d_routed));
    AX_TRY(ax_norm_backward(p, l->unit, l->altup.norm, &d_routed, x, &s[ROUTED_RSTD].t, dx, true));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

/* ---- predict ---- */

enum ax_status ax_altup_predict(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s,
                                const struct ax_tensor *x) {
    struct ax_stack *scratch = &p->model->rt->arena.scratch;
    const struct ax_tensor active = active_of(p, x), *coefs = &s[OF_ACTIVE + COEFS].t;
    struct ax_tensor src;
    AX_TRY(coefficients(l, p, s + OF_ACTIVE, &active, &l->altup.predict, 0));
    if (!ax_saved_make(&s[PREDICTED]))
        return AX_OK;
    const size_t mark = ax_stack_mark(scratch);
    AX_TRY(rounded(p, x, &src));
    AX_TRY(combine(p, &src, &p->slot->streams.all, coefs, streams(p), x, &s[PREDICTED].t));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

/* Matrices [n][n] of each token. */
static enum ax_status transpose(const struct ax_pass *p, const struct ax_tensor *from,
                                const struct ax_tensor *to) {
    const int64_t n = streams(p);
    for (int64_t i = 0; i < n * n; i++) {
        const struct ax_tensor one = ax_tensor_cols(from, i, 1),
                               other = ax_tensor_cols(to, i % n * n + i / n, 1);
        AX_TRY(copy(p, &other, &one));
    }
    return AX_OK;
}

enum ax_status ax_altup_predict_backward(const struct ax_layer *l, struct ax_pass *p,
                                         struct ax_saved *s, const struct ax_tensor *x,
                                         const struct ax_tensor *d) {
    struct ax_stack *scratch = &p->model->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    const int64_t n = streams(p);
    const enum ax_dtype accum = p->model->accum;
    const struct ax_tensor *coefs = &s[OF_ACTIVE + COEFS].t, *rows = &p->slot->streams.all;
    const struct ax_tensor dcoefs = take(p, accum, n * n), transposed = take(p, accum, n * n);
    const struct ax_tensor active = active_of(p, x), d_active = active_of(p, d);
    struct ax_tensor dout, src;
    AX_TRY(rounded(p, d, &dout));
    AX_TRY(rounded(p, x, &src));
    AX_TRY(combine_backward(p, &dout, &src, rows, coefs, n, &dcoefs));
    AX_TRY(transpose(p, coefs, &transposed));
    AX_TRY(combine(p, &dout, rows, &transposed, n, d, d));
    AX_TRY(
        coefficients_backward(l, p, s + OF_ACTIVE, &active, &l->altup.predict, &dcoefs, &d_active));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

/* ---- correct and give ---- */

/* out [T][D], compute, = t − p_a. */
static enum ax_status innovation(const struct ax_pass *p, const struct ax_saved *s,
                                 const struct ax_tensor *out) {
    struct ax_stack *scratch = &p->model->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    const struct ax_tensor was = active_of(p, &s[PREDICTED].t),
                           difference = take(p, p->model->accum, was.shape[1]);
    AX_TRY(copy(p, &difference, &s[MADE].t));
    AX_TRY(add(p, &difference, &was, -1));
    AX_TRY(copy(p, out, &difference));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

/* y = x times the scale of each column, compute; the scale as a product needs it, in scratch. */
static enum ax_status scale_columns(const struct ax_layer *l, const struct ax_pass *p,
                                    const struct ax_tensor *x, const struct ax_tensor *y) {
    struct ax_runtime *rt = p->model->rt;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    const struct ax_tensor weight = ax_unit_weight(l->unit, l->altup.scale);
    const struct ax_tensor scale =
        ax_stack_take(&rt->arena.scratch, "scale of a stream",
                      ax_tensor_1d(p->model->accum, NULL, weight.shape[0]));
    AX_TRY(copy(p, &scale, &weight));
    AX_TRY(ax_run_colscale(rt->q, &(struct ax_colscale){.x = *x, .scale = scale, .y = *y}));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

/* What the third branch adds to all streams but the first. */
static enum ax_status give(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s,
                           const struct ax_tensor *out) {
    struct ax_stack *scratch = &p->model->rt->arena.scratch;
    AX_TRY(l->extra.type->forward(l, p, s + EXTRA, &s[SCALED].t, NULL,
                                  ax_saved_make(&s[GIVEN]) ? &s[GIVEN].t : NULL));
    if (!ax_saved_make(&s[GIVEN_RSTD]) && !out)
        return AX_OK;
    const size_t mark = ax_stack_mark(scratch);
    const struct ax_tensor y = take(p, p->model->dtype, s[GIVEN].t.shape[1]);
    AX_TRY(ax_norm_forward(p, l->unit, l->extra.norm_out, &s[GIVEN].t, &y, &s[GIVEN_RSTD].t));
    for (int64_t j = 1; out && j < streams(p); j++) {
        const struct ax_tensor other = ax_stream_of(p->model, out, j);
        AX_TRY(add(p, &other, &y, 1));
    }
    ax_stack_release(scratch, mark);
    return AX_OK;
}

enum ax_status ax_altup_correct(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s,
                                const struct ax_tensor *out) {
    struct ax_stack *scratch = &p->model->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    AX_TRY(coefficients(l, p, s + OF_MADE, &s[MADE].t, &l->altup.correct, 1));
    if (out || !s[ACTIVE].ready) {
        const struct ax_tensor news = take(p, p->model->dtype, s[MADE].t.shape[1]);
        const struct ax_tensor corrected =
            out ? *out : take(p, p->model->accum, s[PREDICTED].t.shape[1]);
        const struct ax_tensor active = active_of(p, &corrected);
        AX_TRY(innovation(p, s, &news));
        AX_TRY(combine(p, &news, &p->slot->streams.token, &s[OF_MADE + COEFS].t, 1, &s[PREDICTED].t,
                       &corrected));
        if (ax_saved_make(&s[ACTIVE]))
            AX_TRY(copy(p, &s[ACTIVE].t, &active));
    }
    if (ax_saved_make(&s[SCALED]))
        AX_TRY(scale_columns(l, p, &s[ACTIVE].t, &s[SCALED].t));
    ax_stack_release(scratch, mark);
    return give(l, p, s, out);
}

/* d_a += the gradient of c_a through the third branch. */
static enum ax_status give_backward(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s,
                                    const struct ax_tensor *d) {
    struct ax_runtime *rt = p->model->rt;
    const int64_t D = p->model->arch.hidden_size;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    const struct ax_tensor sum = take(p, p->model->accum, D), d_given = take(p, p->model->dtype, D),
                           d_scaled = take(p, p->model->dtype, D), to = active_of(p, d),
                           d_scale = ax_unit_grad(l->unit, l->altup.scale);
    struct ax_tensor dy;
    AX_TRY(ax_run_fill(rt->q, &(struct ax_fill){sum, 0}));
    for (int64_t j = 1; j < streams(p); j++) {
        const struct ax_tensor other = ax_stream_of(p->model, d, j);
        AX_TRY(add(p, &sum, &other, 1));
    }
    AX_TRY(ax_residual_narrow(p, &sum, &dy));
    AX_TRY(ax_norm_backward(p, l->unit, l->extra.norm_out, &dy, &s[GIVEN].t, &s[GIVEN_RSTD].t,
                            &d_given, false));
    AX_TRY(l->extra.type->backward(l, p, s + EXTRA, &s[SCALED].t, &d_given, &d_scaled));
    if (d_scale.data)
        AX_TRY(ax_run_coldot(rt->q, &(struct ax_coldot){d_scaled, s[ACTIVE].t, d_scale}));
    AX_TRY(scale_columns(l, p, &d_scaled, &d_scaled));
    AX_TRY(add(p, &to, &d_scaled, 1));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

enum ax_status ax_altup_correct_backward(const struct ax_layer *l, struct ax_pass *p,
                                         struct ax_saved *s, const struct ax_tensor *d,
                                         const struct ax_tensor *d_made) {
    struct ax_stack *scratch = &p->model->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    const struct ax_tensor *coefs = &s[OF_MADE + COEFS].t, *rows = &p->slot->streams.own;
    const struct ax_tensor dcoefs = take(p, p->model->accum, streams(p)),
                           news = take(p, p->model->dtype, s[MADE].t.shape[1]),
                           d_was = active_of(p, d);
    struct ax_tensor dout;
    AX_TRY(give_backward(l, p, s, d));
    AX_TRY(rounded(p, d, &dout));
    AX_TRY(innovation(p, s, &news));
    AX_TRY(combine_backward(p, &dout, &news, &p->slot->streams.token, coefs, 1, &dcoefs));
    AX_TRY(combine(p, &dout, rows, coefs, streams(p), NULL, d_made));
    AX_TRY(add(p, &d_was, d_made, -1));
    AX_TRY(
        coefficients_backward(l, p, s + OF_MADE, &s[MADE].t, &l->altup.correct, &dcoefs, d_made));
    ax_stack_release(scratch, mark);
    return AX_OK;
}
