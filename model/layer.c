/* One layer, two branches of the residual stream:  m = x + mixer(x);  y = m + ffn(m), each
 *
 *   y = x + norm_out(part(norm_in(x)))
 *
 * with the family's norms: on a part's input (Llama), on its output (OLMo 2), or on both; what is
 * added is multiplied by the family's factor, if it has one (Granite). In a parallel layer (Cohere) the ffn reads
 * the mixer's normed input instead: y = m + ffn(norm_in(x)). A layer may have one branch alone (Nemotron-H). Gemma 4 has a
 * third branch, and a factor of the layer's output: z = s·(y + extra(y)); Gemma 3n a factor of m, and of several streams
 * this is done to one: see model/parts/altup.h. Backward runs in reverse; the
 * residual stream's gradient is one buffer that each branch adds to: d +=
 * norm_inᵀ(partᵀ(norm_outᵀ(d))).
 *
 * The residual stream x, m, y and its gradient d are kept in accumulation dtype: they are sums over
 * all layers, and rounding after every layer would erode them. The branches run in compute
 * dtype. */
#include "model/layer.h"

#include "model/adapter/attach.h"
#include "model/core/norm.h"
#include "model/parts/altup.h"
#include "model/parts/index_training.h"
#include "model/parts/streams.h"
#include "model/predict.h"

/* A layer's tensors in its frame: m, and y if a third branch follows; then for each branch its own, followed by its
 * part's; then those of several streams. */
enum { MIDDLE, UPPER, N_LAYER };
enum { H, H_RSTD, MADE, MADE_RSTD, N_BRANCH };

static struct ax_saved *of_mixer(struct ax_frame *f) {
    return f->saved + N_LAYER;
}
static struct ax_saved *of_ffn(const struct ax_layer *l, struct ax_frame *f) {
    return of_mixer(f) + N_BRANCH + l->mixer.type->n_saved;
}

static struct ax_saved *of_extra(const struct ax_layer *l, struct ax_frame *f) {
    return of_ffn(l, f) + N_BRANCH + l->ffn.type->n_saved;
}

static bool has_streams(const struct ax_pass *p) {
    return p->model->arch.streams.n > 0;
}

/* Has the stream a third branch? That of several streams is between them. */
static bool has_third(const struct ax_layer *l, const struct ax_pass *p) {
    return l->extra.type && !has_streams(p);
}

static struct ax_saved *of_streams(const struct ax_layer *l, struct ax_frame *f) {
    return of_extra(l, f);
}

static bool is_there(const struct ax_branch *b) {
    return b->type != &ax_part_none;
}

/* The layer's only branch, or NULL. */
static const struct ax_branch *only_one(const struct ax_layer *l) {
    return !is_there(&l->ffn) ? &l->mixer : !is_there(&l->mixer) ? &l->ffn : NULL;
}

/* The branch whose input it reads: itself, but for the ffn of a parallel layer. */
static struct ax_saved *source_of(const struct ax_layer *l, const struct ax_branch *b,
                                  struct ax_saved *s) {
    return l->spec.parallel && b == &l->ffn ? s - N_BRANCH - l->mixer.type->n_saved : s;
}

static const struct ax_param *add_norm(struct ax_builder *b, const struct ax_layer *l,
                                       const char *name) {
    return name ? ax_builder_add_norm(b, l->index, name, b->arch->hidden_size) : NULL;
}

static void branch_init(struct ax_builder *b, struct ax_layer *l, struct ax_branch *branch,
                        const struct ax_part_type *type, const struct ax_norm_names *norms) {
    branch->type = type;
    branch->norm_in = add_norm(b, l, norms->in);
    type->init(b, l);
    branch->norm_out = add_norm(b, l, norms->out);
}

enum ax_status ax_layer_init(struct ax_builder *b, struct ax_layer *l) {
    branch_init(b, l, &l->mixer, l->spec.mixer, &l->spec.mixer_norms);
    branch_init(b, l, &l->ffn, l->spec.ffn, &l->spec.ffn_norms);
    if (l->spec.extra)
        branch_init(b, l, &l->extra, l->spec.extra, &l->spec.extra_norms);
    if (b->arch->streams.n > 0)
        ax_altup_init(b, l);
    const struct ax_param_decl scale = {.name = b->arch->layer_scale,
                                        .rows = 1,
                                        .tp_dim = -1,
                                        .buffer = true,
                                        .start = 1,
                                        .grad_partial_over = AX_TP_PARTIAL};
    if (scale.name)
        l->scale = ax_builder_add(b, l->index, &scale);
    if (l->spec.predicts)
        ax_predict_init(b, l);
    return ax_adapter_attach(b, l);
}

/* The linear that reads a branch's input, of a part of two; NULL: it is another part. */
static const struct ax_linear *reader_of(const struct ax_layer *l, const struct ax_branch *b) {
    struct ax_linear *all[AX_LAYER_MAX_LINEARS];
    if (!b->type->two_linears)
        return NULL;
    b->type->linears((struct ax_layer *)(uintptr_t)l, all);
    return all[0];
}

static void branch_declare(const struct ax_layer *l, const struct ax_branch *b,
                           const struct ax_pass *p, struct ax_saved *s) {
    const struct ax_model *m = p->model;
    const int64_t T = ax_tp_rows(m->rt, p->batch->T);
    if (!is_there(b))
        return;
    const struct ax_tensor rows = ax_tensor_2d(m->dtype, NULL, T, m->arch.hidden_size);
    const struct ax_tensor per_row = ax_tensor_1d(m->accum, NULL, T);
    if (b->norm_in) {
        ax_saved_declare(&s[H], "norm output", AX_KEEP_CHEAP, rows);
        ax_saved_declare(&s[H_RSTD], "norm rstd", AX_KEEP_CHEAP, per_row);
        if (reader_of(l, b))
            ax_linear_declare_input(m->rt, reader_of(l, b), &s[H]);
    } else if (m->dtype != m->accum && source_of(l, b, s) == s) {
        ax_saved_declare(&s[H], "branch input", AX_KEEP_CHEAP, rows);
    }
    if (b->norm_out) {
        ax_saved_declare(&s[MADE], "branch output", AX_KEEP_COSTLY, rows);
        ax_saved_declare(&s[MADE_RSTD], "norm rstd", AX_KEEP_CHEAP, per_row);
    }
    b->type->declare(l, p, s + N_BRANCH);
}

/* Are there tensors of adapters, the last of the frame? */
static bool keeps_projections(const struct ax_layer *l, const struct ax_pass *p) {
    return l->n_adapted > 0 && p->recompute != AX_RECOMPUTE_INFERENCE;
}

static void declare_projections(const struct ax_layer *l, const struct ax_pass *p,
                                struct ax_frame *f) {
    if (!keeps_projections(l, p))
        return;
    struct ax_saved *s = ax_frame_extend(f, l->n_adapted);
    for (int i = 0; i < l->n_adapted; i++)
        ax_linear_declare(p->model->rt, l->adapted[i], p->batch->T, &s[i]);
}

/* Tells the layer's adapters where the pass has them. */
static void tell_adapters(const struct ax_layer *l, const struct ax_pass *p, struct ax_frame *f) {
    p->model->adapter_run.kept = keeps_projections(l, p) ? f->saved + f->n - l->n_adapted : NULL;
}

static void declare_branches(const struct ax_layer *l, const struct ax_pass *p,
                             struct ax_frame *f) {
    const struct ax_model *m = p->model;
    const int64_t T = ax_tp_rows(m->rt, p->batch->T);
    const struct ax_tensor rows = ax_tensor_2d(m->accum, NULL, T, m->arch.hidden_size);
    const int extra = has_streams(p)    ? AX_ALTUP_SAVED
                      : has_third(l, p) ? N_BRANCH + l->extra.type->n_saved
                                        : 0;
    ax_frame_begin(f,
                   N_LAYER + 2 * N_BRANCH + l->mixer.type->n_saved + l->ffn.type->n_saved + extra);
    if (!only_one(l))
        ax_saved_declare(&f->saved[MIDDLE], "residual middle", AX_KEEP_COSTLY, rows);
    branch_declare(l, &l->mixer, p, of_mixer(f));
    branch_declare(l, &l->ffn, p, of_ffn(l, f));
    if (has_streams(p))
        ax_altup_declare(l, p, of_streams(l, f));
    if (!has_third(l, p))
        return;
    ax_saved_declare(&f->saved[UPPER], "residual upper", AX_KEEP_COSTLY, rows);
    branch_declare(l, &l->extra, p, of_extra(l, f));
}

void ax_layer_declare(const struct ax_layer *l, const struct ax_pass *p, struct ax_frame *f) {
    declare_branches(l, p, f);
    declare_projections(l, p, f);
}

/* The part's input: the normed or narrowed x, or x itself. */
static const struct ax_tensor *part_input(const struct ax_saved *s, const struct ax_tensor *x) {
    return s[H].name ? &s[H].t : x;
}

/* out = x + factor·made. */
static enum ax_status add_made(const struct ax_pass *p, const struct ax_tensor *made,
                               const struct ax_tensor *x, const struct ax_tensor *out) {
    const struct ax_model *m = p->model;
    AX_TRY(ax_run_copy(m->rt->q, &(struct ax_copy){.dst = *out, .src = *x}));
    return ax_run_add(m->rt->q,
                      &(struct ax_add){.dst = *out, .src = *made, .alpha = m->arch.residual_scale});
}

static void tap_made(const struct ax_layer *l, const struct ax_branch *b, const struct ax_pass *p,
                     const struct ax_tensor *made) {
    if (p->tap && b != &l->extra)
        p->tap(p->tap_ctx, b == &l->mixer ? "mixer_out" : "ffn_out", l->index, made);
}

/* out = x + factor·norm_out(made); out NULL: only the norm's rstd. */
static enum ax_status add_normed(const struct ax_layer *l, const struct ax_branch *b,
                                 struct ax_pass *p, struct ax_saved *s, const struct ax_tensor *x,
                                 const struct ax_tensor *out) {
    struct ax_runtime *rt = p->model->rt;
    if (!ax_saved_make(&s[MADE_RSTD]) && !out)
        return AX_OK;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    struct ax_tensor normed = ax_stack_take(&rt->arena.scratch, "norm output", s[MADE].t);
    AX_TRY(ax_norm_forward(p, l->unit, b->norm_out, &s[MADE].t, &normed, &s[MADE_RSTD].t));
    if (out) {
        tap_made(l, b, p, &s[MADE].t);
        AX_TRY(add_made(p, &normed, x, out));
    }
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

/* out = x + factor·part(h), of which backward needs nothing. */
static enum ax_status forward_scaled(const struct ax_layer *l, const struct ax_branch *b,
                                     struct ax_pass *p, struct ax_saved *s,
                                     const struct ax_tensor *h, const struct ax_tensor *x,
                                     const struct ax_tensor *out) {
    struct ax_stack *scratch = &p->model->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    struct ax_tensor made = ax_stack_take(
        scratch, "branch output", ax_tensor_2d(p->model->dtype, NULL, x->shape[0], x->shape[1]));
    AX_TRY(b->type->forward(l, p, s + N_BRANCH, h, NULL, &made));
    tap_made(l, b, p, &made);
    AX_TRY(add_made(p, &made, x, out));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

static enum ax_status branch_forward(const struct ax_layer *l, const struct ax_branch *b,
                                     struct ax_pass *p, struct ax_saved *s,
                                     const struct ax_tensor *x, const struct ax_tensor *out) {
    struct ax_saved *source = source_of(l, b, s);
    const struct ax_tensor *h = part_input(source, x);
    if (source == s && h != x && ax_saved_make(&s[H]))
        AX_TRY(b->norm_in ? ax_norm_forward(p, l->unit, b->norm_in, x, h, &s[H_RSTD].t)
                          : ax_run_copy(p->model->rt->q, &(struct ax_copy){.dst = *h, .src = *x}));
    if (!b->norm_out)
        return out && p->model->arch.residual_scale != 1
                   ? forward_scaled(l, b, p, s, h, x, out)
                   : b->type->forward(l, p, s + N_BRANCH, h, x, out);
    const struct ax_tensor *made = ax_saved_make(&s[MADE]) ? &s[MADE].t : NULL;
    AX_TRY(b->type->forward(l, p, s + N_BRANCH, h, NULL, made));
    return add_normed(l, b, p, s, x, out);
}

/* x [T][D] times the layer's factor, in place: a row of ones times it is the scale of all columns. */
static enum ax_status scale_rows(const struct ax_layer *l, const struct ax_pass *p,
                                 const struct ax_tensor *x) {
    struct ax_runtime *rt = p->model->rt;
    struct ax_stack *scratch = &rt->arena.scratch;
    const int64_t D = x->shape[1];
    if (!l->scale)
        return AX_OK;
    const size_t mark = ax_stack_mark(scratch);
    const struct ax_tensor scale =
        ax_stack_take(scratch, "factor of layer", ax_tensor_1d(x->dtype, NULL, D));
    const struct ax_tensor column = ax_tensor_2d(x->dtype, scale.data, D, 1);
    AX_TRY(ax_run_fill(rt->q, &(struct ax_fill){scale, 1}));
    AX_TRY(ax_run_colscale(rt->q, &(struct ax_colscale){.x = column,
                                                        .scale = ax_unit_weight(l->unit, l->scale),
                                                        .y = column}));
    AX_TRY(ax_run_colscale(rt->q, &(struct ax_colscale){.x = *x, .scale = scale, .y = *x}));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

static struct ax_saved *of_branch(const struct ax_layer *l, const struct ax_branch *b,
                                  struct ax_frame *f) {
    return b == &l->mixer ? of_mixer(f) : of_ffn(l, f);
}

/* m times the family's factor, in place. */
static enum ax_status scale_middle(const struct ax_pass *p, const struct ax_tensor *x) {
    const struct ax_model *m = p->model;
    return m->arch.middle_scale == 1
               ? AX_OK
               : ax_run_scale(m->rt->q,
                              &(struct ax_scale){.y = *x, .x = *x, .alpha = m->arch.middle_scale});
}

/* The layer's branches, of one stream. */
static enum ax_status branches_forward(const struct ax_layer *l, struct ax_pass *p,
                                       struct ax_frame *f, const struct ax_tensor *x,
                                       const struct ax_tensor *out) {
    const struct ax_branch *only = only_one(l);
    if (only)
        return branch_forward(l, only, p, of_branch(l, only, f), x, out);
    const struct ax_tensor *middle = &f->saved[MIDDLE].t;
    const struct ax_tensor *mixed = ax_saved_make(&f->saved[MIDDLE]) ? middle : NULL;
    AX_TRY(branch_forward(l, &l->mixer, p, of_mixer(f), x, mixed));
    if (mixed)
        AX_TRY(scale_middle(p, middle));
    if (p->tap && mixed)
        p->tap(p->tap_ctx, "middle", l->index, middle);
    if (has_third(l, p)) {
        const struct ax_tensor *upper = &f->saved[UPPER].t;
        AX_TRY(branch_forward(l, &l->ffn, p, of_ffn(l, f), middle,
                              ax_saved_make(&f->saved[UPPER]) ? upper : NULL));
        AX_TRY(branch_forward(l, &l->extra, p, of_extra(l, f), upper, out));
    } else {
        AX_TRY(branch_forward(l, &l->ffn, p, of_ffn(l, f), middle, out));
    }
    return out ? scale_rows(l, p, out) : AX_OK;
}

enum ax_status ax_layer_forward(const struct ax_layer *l, struct ax_pass *p, struct ax_frame *f,
                                const struct ax_tensor *x, const struct ax_tensor *out) {
    tell_adapters(l, p, f);
    if (!has_streams(p))
        return branches_forward(l, p, f, x, out);
    struct ax_saved *s = of_streams(l, f);
    AX_TRY(ax_altup_predict(l, p, s, x));
    const struct ax_tensor active =
        ax_stream_of(p->model, &s[AX_ALTUP_PREDICTED].t, p->model->arch.streams.active);
    AX_TRY(branches_forward(l, p, f, &active,
                            ax_saved_make(&s[AX_ALTUP_MADE]) ? &s[AX_ALTUP_MADE].t : NULL));
    return ax_altup_correct(l, p, s, out);
}

/* ---- by linears ---- */

static void set_ready(struct ax_saved *s, int n) {
    for (int i = 0; i < n; i++)
        s[i].ready = true;
}

enum ax_status ax_branch_read(const struct ax_layer *l, const struct ax_branch *b,
                              struct ax_pass *p, struct ax_frame *f, const struct ax_tensor *x,
                              bool second, struct ax_tensor *out) {
    struct ax_saved *s = of_branch(l, b, f), *part = s + N_BRANCH;
    AX_ASSERT(b->type->two_linears);
    *out = second ? part[b->type->between].t : *part_input(s, x);
    set_ready(&s[MADE], N_BRANCH - MADE); /* the second product, and what is after it */
    if (!second)
        set_ready(part, b->type->n_saved);
    return branch_forward(l, b, p, s, x, NULL);
}

enum ax_status ax_branch_finish(const struct ax_layer *l, const struct ax_branch *b,
                                struct ax_pass *p, struct ax_frame *f, const struct ax_tensor *x,
                                const struct ax_tensor *read, const struct ax_tensor *out) {
    struct ax_saved *s = of_branch(l, b, f), *part = s + N_BRANCH;
    if (read) {
        set_ready(&s[H], MADE - H);
        set_ready(part, b->type->n_saved);
        AX_TRY(ax_run_copy(p->model->rt->q,
                           &(struct ax_copy){.dst = part[b->type->between].t, .src = *read}));
    }
    AX_TRY(branch_forward(l, b, p, s, x, out));
    return b == &l->ffn ? scale_rows(l, p, out) : AX_OK;
}

/* The gradient of what a branch adds, in compute dtype: d, or factor·d. */
static enum ax_status added_gradient(const struct ax_pass *p, const struct ax_tensor *d,
                                     struct ax_tensor *dy) {
    const struct ax_model *m = p->model;
    if (m->arch.residual_scale == 1)
        return ax_residual_narrow(p, d, dy);
    *dy = p->slot->narrow;
    if (!dy->data)
        *dy = ax_stack_take(&m->rt->arena.scratch, "gradient of branch",
                            ax_tensor_2d(m->dtype, NULL, d->shape[0], d->shape[1]));
    return ax_run_scale(m->rt->q,
                        &(struct ax_scale){.y = *dy, .x = *d, .alpha = m->arch.residual_scale});
}

/* Does a branch's backward begin with ax_residual_narrow of d? */
static bool narrows(const struct ax_pass *p) {
    return p->model->arch.residual_scale == 1;
}

/* d: in, the gradient of y; out, that of x if `wanted`. narrow: ax_residual_narrow reads d next. */
static enum ax_status branch_backward(const struct ax_layer *l, const struct ax_branch *b,
                                      struct ax_pass *p, struct ax_saved *s,
                                      const struct ax_tensor *x, const struct ax_tensor *d,
                                      bool wanted, bool narrow) {
    struct ax_runtime *rt = p->model->rt;
    struct ax_stack *scratch = &rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    struct ax_tensor dy,
        dh = ax_stack_take(scratch, "gradient of branch input",
                           ax_tensor_2d(p->model->dtype, NULL, d->shape[0], d->shape[1]));
    const size_t inner = ax_stack_mark(scratch);
    AX_TRY(added_gradient(p, d, &dy));
    if (b->norm_out) {
        struct ax_tensor made = ax_stack_take(scratch, "gradient of branch output", s[MADE].t);
        AX_TRY(ax_norm_backward(p, l->unit, b->norm_out, &dy, &s[MADE].t, &s[MADE_RSTD].t, &made,
                                false));
        dy = made;
    }
    AX_TRY(b->type->backward(l, p, s + N_BRANCH, part_input(s, x), &dy, wanted ? &dh : NULL));
    ax_stack_release(scratch, inner);
    if (wanted)
        AX_TRY(b->norm_in ? ax_residual_norm_backward(p, l->unit, b->norm_in, &dh, x, &s[H_RSTD].t,
                                                      d, true, narrow)
                          : ax_run_add(rt->q, &(struct ax_add){.dst = *d, .src = dh, .alpha = 1}));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

/* Of a parallel layer: both parts have the gradient of y, and their input's is the sum of what they return. */
static enum ax_status parallel_backward(const struct ax_layer *l, struct ax_pass *p,
                                        struct ax_frame *f, const struct ax_tensor *x,
                                        const struct ax_tensor *d, bool wanted, bool narrow) {
    struct ax_runtime *rt = p->model->rt;
    struct ax_stack *scratch = &rt->arena.scratch;
    struct ax_saved *mixer = of_mixer(f), *ffn = of_ffn(l, f);
    const size_t mark = ax_stack_mark(scratch);
    const struct ax_tensor *h = part_input(mixer, x);
    struct ax_tensor dy, dh[2];
    for (int i = 0; i < 2; i++) {
        dh[i] = ax_stack_take(scratch, "gradient of branch input",
                              ax_tensor_2d(p->model->dtype, NULL, d->shape[0], d->shape[1]));
    }
    const size_t inner = ax_stack_mark(scratch);
    AX_TRY(added_gradient(p, d, &dy));
    AX_TRY(l->ffn.type->backward(l, p, ffn + N_BRANCH, h, &dy, wanted ? &dh[0] : NULL));
    AX_TRY(l->mixer.type->backward(l, p, mixer + N_BRANCH, h, &dy, wanted ? &dh[1] : NULL));
    ax_stack_release(scratch, inner);
    if (wanted) {
        AX_TRY(ax_run_add(rt->q, &(struct ax_add){.dst = dh[1], .src = dh[0], .alpha = 1}));
        AX_TRY(ax_residual_norm_backward(p, l->unit, l->mixer.norm_in, &dh[1], x, &mixer[H_RSTD].t,
                                         d, true, narrow));
    }
    ax_stack_release(scratch, mark);
    return AX_OK;
}

static enum ax_status branches_backward(const struct ax_layer *l, struct ax_pass *p,
                                        struct ax_frame *f, const struct ax_tensor *x,
                                        const struct ax_tensor *dx) {
    const struct ax_branch *only = only_one(l);
    const struct ax_param *first = (only ? only : &l->mixer)->norm_in;
    /* below the lowest trainable unit no gradient is needed, but by what predicts streams or tokens */
    const bool wanted = l->index + 1 > p->model->lowest_unit || has_streams(p) ||
                        (first && first->trainable) || l->spec.predicts;
    const bool narrow = l->spec.predicts || ax_residual_narrows(p, l->index);
    if (l->spec.parallel)
        return parallel_backward(l, p, f, x, dx, wanted, narrow);
    if (only)
        /* mixtures make the gradient of their input in any case, as where a mixer is before them */
        return branch_backward(l, only, p, of_branch(l, only, f), x, dx, wanted || only == &l->ffn,
                               narrow);
    AX_TRY(scale_rows(l, p, dx));
    if (has_third(l, p))
        AX_TRY(branch_backward(l, &l->extra, p, of_extra(l, f), &f->saved[UPPER].t, dx, true,
                               narrows(p)));
    AX_TRY(branch_backward(l, &l->ffn, p, of_ffn(l, f), &f->saved[MIDDLE].t, dx, true,
                           narrows(p) && p->model->arch.middle_scale == 1));
    AX_TRY(scale_middle(p, dx));
    return branch_backward(l, &l->mixer, p, of_mixer(f), x, dx, wanted, narrow);
}

enum ax_status ax_layer_backward(const struct ax_layer *l, struct ax_pass *p, struct ax_frame *f,
                                 const struct ax_tensor *x, const struct ax_tensor *dx) {
    tell_adapters(l, p, f);
    if (!has_streams(p))
        return branches_backward(l, p, f, x, dx);
    struct ax_saved *s = of_streams(l, f);
    struct ax_stack *scratch = &p->model->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    const int64_t a = p->model->arch.streams.active;
    const struct ax_tensor active = ax_stream_of(p->model, &s[AX_ALTUP_PREDICTED].t, a),
                           d_active = ax_stream_of(p->model, dx, a);
    const struct ax_tensor d = ax_stack_take(scratch, "gradient of residual", s[AX_ALTUP_MADE].t);
    AX_TRY(ax_altup_correct_backward(l, p, s, dx, &d));
    AX_TRY(branches_backward(l, p, f, &active, &d));
    AX_TRY(ax_run_add(p->model->rt->q, &(struct ax_add){d_active, d, 1}));
    AX_TRY(ax_altup_predict_backward(l, p, s, x, dx));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

enum ax_status ax_layer_warm_up(const struct ax_layer *l, struct ax_pass *p, struct ax_frame *f,
                                const struct ax_tensor *x) {
    struct ax_saved *s = of_mixer(f);
    tell_adapters(l, p, f);
    if (!ax_index_trains(l))
        return AX_OK;
    AX_TRY(branch_forward(l, &l->mixer, p, s, x, NULL));
    return l->mixer.type->backward(l, p, s + N_BRANCH, part_input(s, x), NULL, NULL);
}
