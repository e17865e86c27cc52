#include "model/parts/streams.h"

#include <stdio.h>

#include "model/parallel/tensor_parallel.h"

#define FLOOR 1e-5 /* of mean squares */

struct ax_tensor ax_stream_of(const struct ax_model *m, const struct ax_tensor *rows, int64_t j) {
    const int64_t D = m->arch.hidden_size;
    return m->arch.streams.n > 0 ? ax_tensor_cols(rows, j * D, D) : *rows;
}

static struct ax_linear add_square(struct ax_builder *b, int unit, const char *module, int64_t i) {
    char name[AX_NAME_MAX];
    snprintf(name, sizeof name, "model.%s.%lld.weight", module, (long long)i);
    const int64_t D = b->arch->hidden_size;
    const struct ax_param_decl decl = {
        .name = name, .rows = D, .cols = D, .tp_dim = -1, .grad_partial_over = AX_TP_PARTIAL};
    return (struct ax_linear){.unit = &b->model->units[unit],
                              .split = AX_SPLIT_NONE,
                              .n_parts = 1,
                              .weight = {ax_builder_add(b, -1, &decl)}};
}

void ax_streams_init_begin(struct ax_builder *b) {
    for (int64_t i = 0; i + 1 < b->arch->streams.n; i++)
        b->model->streams.begin[i] = add_square(b, 0, "altup_projections", i);
}

void ax_streams_init_end(struct ax_builder *b) {
    for (int64_t i = 0; i + 1 < b->arch->streams.n; i++)
        b->model->streams.end[i] =
            add_square(b, b->model->n_units - 1, "altup_unembed_projections", i);
}

/* ---- rows ---- */

/* out = 0, 1, 2 …: the places of equal keys. */
static enum ax_status count_up(const struct ax_pass *p, const struct ax_tensor *out) {
    const struct ax_runtime *rt = p->model->rt;
    struct ax_stack *scratch = &p->model->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    const struct ax_tensor keys = ax_stack_take(scratch, "equal keys", *out);
    const struct ax_tensor ends =
        ax_stack_take(scratch, "ends of keys", ax_tensor_1d(AX_I32, NULL, 2));
    AX_TRY(ax_run_fill(rt->q, &(struct ax_fill){keys, 0}));
    AX_TRY(ax_run_group_rows(
        rt->q, &(struct ax_group_rows){.keys = keys, .places = *out, .offsets = ends}));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

enum ax_status ax_stream_rows_begin(struct ax_pass *p) {
    const struct ax_model *m = p->model;
    struct ax_stream_rows *r = &p->slot->streams;
    const int64_t n = m->arch.streams.n, T = ax_tp_rows(m->rt, p->batch->T);
    *r = (struct ax_stream_rows){0};
    if (n == 0)
        return AX_OK;
    struct ax_stack *stack = p->slot->stack, *scratch = &m->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    const struct ax_tensor numbers =
        ax_stack_take(scratch, "numbers of tokens", ax_tensor_2d(AX_I32, NULL, T, 1));
    r->own = ax_stack_take(stack, "rows of streams", ax_tensor_2d(AX_I32, NULL, T, n));
    r->all = ax_stack_take(stack, "rows of streams", ax_tensor_2d(AX_I32, NULL, T, n * n));
    r->token = ax_stack_take(stack, "rows of streams", ax_tensor_2d(AX_I32, NULL, T, n));
    AX_TRY(count_up(p, &r->own));
    AX_TRY(count_up(p, &numbers));
    for (int64_t j = 0; j < n; j++) {
        const struct ax_tensor to = ax_tensor_cols(&r->all, j * n, n),
                               one = ax_tensor_cols(&r->token, j, 1);
        AX_TRY(ax_run_copy(m->rt->q, &(struct ax_copy){to, r->own}));
        AX_TRY(ax_run_copy(m->rt->q, &(struct ax_copy){one, numbers}));
    }
    r->all = ax_tensor_2d(AX_I32, r->all.data, T * n, n);
    r->token = ax_tensor_1d(AX_I32, r->token.data, T * n);
    ax_stack_release(scratch, mark);
    return AX_OK;
}

/* ---- pieces of both ends ---- */

static struct ax_tensor take(const struct ax_pass *p, enum ax_dtype dtype) {
    const struct ax_model *m = p->model;
    return ax_stack_take(
        &m->rt->arena.scratch, "stream",
        ax_tensor_2d(dtype, NULL, ax_tp_rows(m->rt, p->batch->T), m->arch.hidden_size));
}

static enum ax_status copy(const struct ax_pass *p, const struct ax_tensor *to,
                           const struct ax_tensor *from) {
    return ax_run_copy(p->model->rt->q, &(struct ax_copy){*to, *from});
}

static enum ax_status add(const struct ax_pass *p, const struct ax_tensor *to,
                          const struct ax_tensor *what) {
    return ax_run_add(p->model->rt->q, &(struct ax_add){*to, *what, 1});
}

/* A stream in the compute dtype, and what a matrix makes of it, both in scratch. */
struct projected {
    struct ax_tensor x, y;
};
static enum ax_status project(struct ax_pass *p, const struct ax_linear *linear,
                              const struct ax_tensor *x, struct projected *to) {
    to->x = take(p, p->model->dtype);
    to->y = take(p, p->model->dtype);
    AX_TRY(copy(p, &to->x, x));
    return ax_linear_forward(p->model->rt, linear, &to->x, NULL, &to->y);
}

/* y = linear(x) as large as `like`. */
static enum ax_status match(struct ax_pass *p, const struct ax_linear *linear,
                            const struct ax_tensor *x, const struct ax_tensor *like,
                            const struct ax_tensor *y) {
    struct ax_stack *scratch = &p->model->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    struct projected made;
    AX_TRY(project(p, linear, x, &made));
    AX_TRY(ax_run_match_rms_forward(
        p->model->rt->q,
        &(struct ax_match_rms_forward){.x = made.y, .like = *like, .y = *y, .floor = FLOOR}));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

/* dx, compute, = the gradient of x; dlike += that of `like`. */
static enum ax_status match_backward(struct ax_pass *p, const struct ax_linear *linear,
                                     const struct ax_tensor *dy, const struct ax_tensor *x,
                                     const struct ax_tensor *like, const struct ax_tensor *dlike,
                                     const struct ax_tensor *dx) {
    struct ax_stack *scratch = &p->model->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    struct projected made;
    const struct ax_tensor d = take(p, p->model->dtype);
    AX_TRY(project(p, linear, x, &made));
    AX_TRY(ax_run_match_rms_backward(
        p->model->rt->q,
        &(struct ax_match_rms_backward){
            .dy = *dy, .x = made.y, .like = *like, .dx = d, .dlike = *dlike, .floor = FLOOR}));
    AX_TRY(ax_linear_backward(p->model->rt, linear, &made.x, &d, dx));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

/* ---- the first unit ---- */

struct ax_tensor ax_streams_take_first(const struct ax_pass *p) {
    return p->model->arch.streams.n > 0 ? take(p, p->model->accum) : p->slot->residual[0];
}

enum ax_status ax_streams_begin_forward(struct ax_pass *p, const struct ax_tensor *first) {
    const struct ax_model *m = p->model;
    for (int64_t j = 0; j < m->arch.streams.n; j++) {
        const struct ax_tensor x = ax_stream_of(m, &p->slot->residual[0], j);
        AX_TRY(j == 0 ? copy(p, &x, first) : match(p, &m->streams.begin[j - 1], first, first, &x));
    }
    return AX_OK;
}

enum ax_status ax_streams_begin_backward(struct ax_pass *p) {
    const struct ax_model *m = p->model;
    struct ax_stack *scratch = &m->rt->arena.scratch;
    if (m->arch.streams.n == 0 || m->lowest_unit > 0)
        return AX_OK;
    const size_t mark = ax_stack_mark(scratch);
    const struct ax_tensor x = ax_stream_of(m, &p->slot->residual[0], 0),
                           d = ax_stream_of(m, &p->slot->grad, 0), dx = take(p, m->dtype);
    for (int64_t j = 1; j < m->arch.streams.n; j++) {
        const struct ax_tensor dy = ax_stream_of(m, &p->slot->grad, j);
        AX_TRY(match_backward(p, &m->streams.begin[j - 1], &dy, &x, &x, &d, &dx));
        AX_TRY(add(p, &d, &dx));
    }
    ax_stack_release(scratch, mark);
    return AX_OK;
}

enum ax_status ax_streams_first_gradient(struct ax_pass *p, struct ax_tensor *d) {
    const struct ax_tensor first = ax_stream_of(p->model, &p->slot->grad, 0);
    *d = first;
    if (ax_tensor_is_dense(&first))
        return AX_OK;
    *d = take(p, p->model->accum);
    return copy(p, d, &first);
}

/* ---- the last unit ---- */

enum ax_status ax_streams_end_forward(struct ax_pass *p, const struct ax_tensor *x,
                                      const struct ax_tensor *out) {
    const struct ax_model *m = p->model;
    struct ax_stack *scratch = &m->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    const struct ax_tensor first = ax_stream_of(m, x, 0), made = take(p, m->accum);
    AX_TRY(copy(p, out, &first));
    for (int64_t j = 1; j < m->arch.streams.n; j++) {
        const struct ax_tensor own = ax_stream_of(m, x, j);
        AX_TRY(match(p, &m->streams.end[j - 1], &own, &first, &made));
        AX_TRY(add(p, out, &made));
    }
    ax_stack_release(scratch, mark);
    return ax_run_scale(
        m->rt->q, &(struct ax_scale){.y = *out, .x = *out, .alpha = 1 / (double)m->arch.streams.n});
}

struct ax_tensor ax_streams_joined_gradient(const struct ax_pass *p) {
    const struct ax_tensor *grad = &p->slot->grad;
    return ax_tensor_2d(grad->dtype, grad->data, grad->shape[0], p->model->arch.hidden_size);
}

enum ax_status ax_streams_end_backward(struct ax_pass *p, const struct ax_tensor *x) {
    const struct ax_model *m = p->model;
    const int64_t n = m->arch.streams.n;
    struct ax_stack *scratch = &m->rt->arena.scratch;
    if (n == 0)
        return AX_OK;
    const size_t mark = ax_stack_mark(scratch);
    const struct ax_tensor joined = ax_streams_joined_gradient(p), dy = take(p, m->accum),
                           dx = take(p, m->dtype), first = ax_stream_of(m, x, 0),
                           d_first = ax_stream_of(m, &p->slot->grad, 0);
    AX_TRY(
        ax_run_scale(m->rt->q, &(struct ax_scale){.y = dy, .x = joined, .alpha = 1 / (double)n}));
    AX_TRY(copy(p, &d_first, &dy));
    for (int64_t j = 1; j < n; j++) {
        const struct ax_tensor own = ax_stream_of(m, x, j), d = ax_stream_of(m, &p->slot->grad, j);
        AX_TRY(match_backward(p, &m->streams.end[j - 1], &dy, &own, &first, &d_first, &dx));
        AX_TRY(copy(p, &d, &dx));
    }
    ax_stack_release(scratch, mark);
    return AX_OK;
}
