/* Ranges over ranks, values and gradients; see fake_quant.h. */
#include "model/core/fake_quant.h"

#include "base/mem.h"
#include "model/parallel/tensor_parallel.h"

enum ax_status ax_fake_quant_begin(struct ax_runtime *rt, struct ax_fake_quant *f,
                                   const struct ax_param *params, int n) {
    f->params = params;
    f->ranges = ax_stack_take(&rt->arena.persistent, "quantization ranges",
                              ax_tensor_2d(AX_F32, NULL, n, 2));
    return ax_alloc(&f->known, (size_t)n, sizeof *f->known);
}

void ax_fake_quant_free(struct ax_fake_quant *f) {
    ax_free(f->known);
    f->known = NULL;
}

static int64_t block_of(const struct ax_number_format *f, int64_t cols) {
    return f->block > 0 ? f->block : cols;
}

enum ax_status ax_fake_quant_check(const struct ax_fake_quant *f, const struct ax_param *w) {
    const int64_t inputs = w->shape[1];
    const struct ax_scheme *s = &f->scheme;
    int64_t block = block_of(&s->weight, inputs);
    if (s->quantizes_input && s->input.block > block)
        block = s->input.block;
    return inputs % block == 0
               ? AX_OK
               : ax_scheme_refuse_inputs(s, "qat", "qat.group_size", block, inputs, w->name);
}

/* How a tensor is quantized: its format, the roles whose ranks share a row, a column and the tensor, rows in
 * use, where scales are not of rows, and columns, where blocks span ranks. */
struct plan {
    const struct ax_number_format *f;
    bool by_column;
    unsigned row, column, tensor;
    int64_t used;
    int64_t n; /* columns that tp splits between blocks' bounds, of all ranks; 0: none */
    /* of a weight whose range is kept; data NULL = it is not */
    struct ax_tensor kept;
    int64_t *known, step;
};

#define OVER(role) (1U << AX_ROLE_##role)

static bool by_column(const struct ax_number_format *f, enum ax_fake_sum sum) {
    return sum == AX_SUM_ROWS && f->block == AX_BLOCK_ROW;
}

/* n if tp cuts n columns inside a block, on any rank; else 0. */
static int64_t cut_columns(const struct ax_runtime *rt, const struct ax_number_format *f,
                           int64_t n) {
    const int size = rt->mesh.size[AX_ROLE_TP];
    for (int r = 0; r < size && f->block > 0; r++) {
        int64_t first, len;
        ax_split_range(n, size, r, &first, &len);
        if (first % f->block != 0)
            return n;
    }
    return 0;
}

static struct plan plan_of_weight(const struct ax_runtime *rt, const struct ax_fake_quant *f,
                                  const struct ax_param *p, enum ax_fake_sum sum,
                                  const struct ax_tensor *w) {
    const struct ax_number_format *format = &f->scheme.weight;
    struct plan plan = {.f = format,
                        .by_column = f->scheme.quantizes_grad && by_column(format, sum),
                        .row = p->tp_dim == 1 ? OVER(TP) : 0,
                        .column = p->tp_dim == 0 ? OVER(TP) : 0,
                        .tensor = p->tp_dim >= 0 ? OVER(TP) : 0,
                        .used = w->shape[0],
                        .n = p->tp_dim == 1 ? cut_columns(rt, format, p->shape[1]) : 0};
    if (f->known && f->step > 0) {
        const int64_t i = p - f->params;
        plan.kept = ax_tensor_rows(&f->ranges, i, 1);
        plan.known = &f->known[i];
        plan.step = f->step;
    }
    return plan;
}

/* Of the rows of this rank, those in use. */
static int64_t used_rows(const struct ax_runtime *rt, const struct ax_fake_quant *f,
                         struct ax_fake_part part, int64_t rows) {
    int64_t used = f->used;
    if (!f->scheme.quantizes_grad)
        return rows;
    if (part.kind == AX_FAKE_ROWS)
        used -= ax_tp_first(rt, rows * rt->mesh.size[AX_ROLE_TP]);
    return used < 0 ? 0 : used < rows ? used : rows;
}

static struct plan plan_of_rows(const struct ax_runtime *rt, const struct ax_fake_quant *f,
                                const struct ax_number_format *format, struct ax_fake_part part,
                                enum ax_fake_sum sum, const struct ax_tensor *x) {
    return (struct plan){.f = format,
                         .by_column = f->scheme.quantizes_grad && by_column(format, sum),
                         .row = part.kind == AX_FAKE_COLUMNS ? OVER(TP) : 0,
                         .column = OVER(CP) | (part.kind == AX_FAKE_ROWS ? OVER(TP) : 0),
                         .tensor = OVER(CP) | (part.kind != AX_FAKE_OF_ALL ? OVER(TP) : 0),
                         .used = used_rows(rt, f, part, x->shape[0]),
                         .n = part.kind == AX_FAKE_COLUMNS ? cut_columns(rt, format, part.n) : 0};
}

struct ax_range_of ax_fake_quant_range(const struct ax_runtime *rt, const struct ax_fake_quant *f,
                                       struct ax_fake_part part, int64_t n,
                                       const struct ax_tensor *x) {
    if (!x->range)
        return (struct ax_range_of){0};
    return (struct ax_range_of){ax_tensor_2d(AX_F32, x->range, n, 2),
                                used_rows(rt, f, part, x->shape[0])};
}

static bool is_alone(const struct ax_runtime *rt, unsigned roles) {
    for (int role = 0; role < AX_ROLE_COUNT; role++)
        if ((roles >> role & 1) && rt->mesh.size[role] > 1)
            return false;
    return true;
}

static enum ax_status agree(struct ax_runtime *rt, unsigned over, const struct ax_tensor *range) {
    for (int role = 0; role < AX_ROLE_COUNT; role++)
        if ((over >> role & 1) && rt->mesh.size[role] > 1)
            AX_TRY(
                ax_comm_max(&rt->comms[role], rt->q, AX_F32, range->data, ax_tensor_numel(range)));
    return AX_OK;
}

static bool is_of_tensor(const struct ax_number_format *f) {
    return f->block == AX_BLOCK_TENSOR || ax_quant_info(f->kind)->outer == AX_BLOCK_TENSOR;
}

bool ax_fake_quant_has_tensor_scale(const struct ax_fake_quant *f) {
    return is_of_tensor(&f->scheme.weight);
}

/* The range of all of x: kept, if it is a weight's; or as the op left it that wrote x, of this rank's part; or in
 * scratch. */
static enum ax_status range_of_all(struct ax_runtime *rt, const struct plan *p,
                                   const struct ax_tensor *x, struct ax_tensor *range) {
    struct ax_quant_range a = {.x = ax_tensor_rows(x, 0, p->used), .range = p->kept};
    const bool keeps = p->kept.data != NULL, left = !keeps && x->range != NULL;
    if (left)
        a.range = ax_tensor_2d(AX_F32, x->range, 1, 2);
    else if (!keeps)
        a.range = ax_stack_take(&rt->arena.scratch, "quantization ranges",
                                ax_tensor_2d(AX_F32, NULL, 1, 2));
    *range = a.range;
    if (keeps && *p->known == p->step)
        return AX_OK;
    if (!left)
        AX_TRY(a.x.shape[0] > 0 ? ax_run_quant_range(rt->q, &a)
                                : ax_run_fill(rt->q, &(struct ax_fill){*range, 0}));
    AX_TRY(agree(rt, p->tensor, range));
    if (keeps)
        *p->known = p->step;
    return AX_OK;
}

/* The range that x's format needs beside its blocks: of its rows or columns, in scratch, or of all;
 * absent if none. */
static enum ax_status range_of(struct ax_runtime *rt, const struct plan *p,
                               const struct ax_tensor *x, struct ax_tensor *range) {
    const bool rows = ax_quant_info(p->f->kind)->outer == AX_BLOCK_ROW ||
                      (p->f->block == AX_BLOCK_ROW && !p->by_column && !is_alone(rt, p->row));
    const int64_t n = p->by_column ? x->shape[1] : x->shape[0];
    *range = (struct ax_tensor){0};
    if (is_of_tensor(p->f))
        return range_of_all(rt, p, x, range);
    if (!rows && !p->by_column)
        return AX_OK;
    *range =
        ax_stack_take(&rt->arena.scratch, "quantization ranges", ax_tensor_2d(AX_F32, NULL, n, 2));
    struct ax_quant_range a = {.x = *x, .range = *range, .columns = p->by_column};
    if (p->by_column)
        a.x = ax_tensor_rows(x, 0, p->used);
    AX_TRY(a.x.shape[0] > 0 ? ax_run_quant_range(rt->q, &a)
                            : ax_run_fill(rt->q, &(struct ax_fill){*range, 0}));
    return agree(rt, p->by_column ? p->column : p->row, range);
}

/* ---- blocks that span ranks of tp ---- */

/* The plan of all columns, which a rank has gathered. */
static struct plan gathered(const struct plan *p) {
    struct plan whole = *p;
    whole.n = 0;
    whole.row = 0;
    whole.tensor &= ~OVER(TP);
    return whole;
}

/* This rank's of all columns. */
static struct ax_tensor own_columns(const struct ax_runtime *rt, const struct ax_tensor *all) {
    int64_t first, len;
    ax_split_range(all->shape[1], rt->mesh.size[AX_ROLE_TP], rt->mesh.coord[AX_ROLE_TP], &first,
                   &len);
    return ax_tensor_cols(all, first, len);
}

/* ---- values ---- */

static enum ax_status values_of(struct ax_runtime *rt, bool on, const struct plan *p,
                                const struct ax_tensor *x, const struct ax_tensor *y);

static enum ax_status values_of_gathered(struct ax_runtime *rt, bool on, const struct plan *p,
                                         const struct ax_tensor *x, const struct ax_tensor *y) {
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    const struct plan whole = gathered(p);
    struct ax_tensor all;
    AX_TRY(ax_tp_gather_cols(rt, x, p->n, &all));
    AX_TRY(values_of(rt, on, &whole, &all, &all));
    AX_TRY(ax_run_copy(rt->q, &(struct ax_copy){.dst = *y, .src = own_columns(rt, &all)}));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

/* y = the values of x, which is `of`, or rows of it. */
static enum ax_status values_among(struct ax_runtime *rt, bool on, const struct plan *p,
                                   const struct ax_tensor *of, const struct ax_tensor *x,
                                   const struct ax_tensor *y) {
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    struct ax_fake_quantize a = {.x = *x,
                                 .y = *y,
                                 .block = block_of(p->f, x->shape[1]),
                                 .kind = p->f->kind,
                                 .columns = p->by_column};
    AX_TRY(range_of(rt, p, of, &a.range));
    if (on)
        AX_TRY(ax_run_fake_quantize(rt->q, &a));
    else if (y->data != x->data)
        AX_TRY(ax_run_copy(rt->q, &(struct ax_copy){*y, *x}));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

static enum ax_status values_of(struct ax_runtime *rt, bool on, const struct plan *p,
                                const struct ax_tensor *x, const struct ax_tensor *y) {
    return p->n > 0 ? values_of_gathered(rt, on, p, x, y) : values_among(rt, on, p, x, x, y);
}

enum ax_status ax_fake_quant_weight(struct ax_runtime *rt, const struct ax_fake_quant *f,
                                    const struct ax_param *p, enum ax_fake_sum sum,
                                    const struct ax_tensor *w, const struct ax_tensor *to) {
    const struct plan plan = plan_of_weight(rt, f, p, sum, w);
    return values_of(rt, f->on, &plan, w, to);
}

enum ax_status ax_fake_quant_rows(struct ax_runtime *rt, const struct ax_fake_quant *f,
                                  const struct ax_param *p, const struct ax_tensor *w,
                                  const struct ax_tensor *x) {
    const struct plan plan = plan_of_weight(rt, f, p, AX_SUM_COLUMNS, w);
    return values_among(rt, f->on, &plan, is_of_tensor(plan.f) ? w : x, x, x);
}

enum ax_status ax_fake_quant_input(struct ax_runtime *rt, const struct ax_fake_quant *f,
                                   struct ax_fake_part part, enum ax_fake_sum sum,
                                   struct ax_tensor *x) {
    const struct ax_tensor from = *x;
    if (!f->scheme.quantizes_input)
        return AX_OK;
    *x = ax_stack_take(&rt->arena.scratch, "quantized inputs",
                       ax_tensor_2d(from.dtype, NULL, from.shape[0], from.shape[1]));
    const struct plan plan = plan_of_rows(rt, f, &f->scheme.input, part, sum, &from);
    return values_of(rt, f->on, &plan, &from, x);
}

enum ax_status ax_fake_quant_grad(struct ax_runtime *rt, const struct ax_fake_quant *f,
                                  struct ax_fake_part part, enum ax_fake_sum sum,
                                  const struct ax_tensor *dy, const struct ax_tensor *to) {
    const struct plan plan = plan_of_rows(rt, f, &f->scheme.grad, part, sum, dy);
    return values_of(rt, f->on, &plan, dy, to);
}

/* ---- codes ---- */

/* One tensor of codes, and their scales. */
static enum ax_status codes_by(struct ax_runtime *rt, const struct plan *p,
                               const struct ax_tensor *x, struct ax_fp8_codes *a) {
    struct ax_stack *scratch = &rt->arena.scratch;
    a->x = *x;
    a->kind = p->f->kind;
    const int64_t scales = is_of_tensor(p->f) ? 1 : x->shape[p->by_column];
    a->scale = ax_stack_take(scratch, "scales of codes", ax_tensor_1d(AX_F32, NULL, scales));
    const size_t mark = ax_stack_mark(scratch);
    AX_TRY(range_of(rt, p, x, &a->range));
    AX_TRY(ax_run_fp8_codes(rt->q, a));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

/* by: plans of x for sums of columns and of rows, whose codes are the same where scales are of tensors. */
static enum ax_status codes_of(struct ax_runtime *rt, const struct plan by[2], unsigned layouts,
                               const struct ax_tensor *x, struct ax_fake_codes *to) {
    struct ax_stack *scratch = &rt->arena.scratch;
    const int64_t rows = x->shape[0], cols = x->shape[1];
    const bool together = is_of_tensor(by[0].f);
    struct ax_fp8_codes a = {0}, b = {0};
    if (layouts & AX_CODES_ROWS)
        a.rows = ax_stack_take(scratch, "codes by row", ax_tensor_2d(AX_U8, NULL, rows, cols));
    if (layouts & AX_CODES_COLUMNS)
        b.columns = ax_stack_take(scratch, "codes by column",
                                  ax_tensor_2d(AX_U8, NULL, cols, ax_fp8_round_up(rows)));
    if (together)
        a.columns = b.columns;
    if (a.rows.data || a.columns.data)
        AX_TRY(codes_by(rt, &by[0], x, &a));
    if (together)
        b.scale = a.scale;
    else if (b.columns.data)
        AX_TRY(codes_by(rt, &by[1], x, &b));
    *to = (struct ax_fake_codes){.rows = a.rows,
                                 .columns = b.columns,
                                 .row_scale = a.scale,
                                 .column_scale = b.scale,
                                 .kind = by[0].f->kind};
    return AX_OK;
}

enum ax_status ax_fake_quant_weight_codes(struct ax_runtime *rt, const struct ax_fake_quant *f,
                                          const struct ax_param *p, unsigned layouts,
                                          const struct ax_tensor *w, struct ax_fake_codes *to) {
    const struct plan by[] = {plan_of_weight(rt, f, p, AX_SUM_COLUMNS, w),
                              plan_of_weight(rt, f, p, AX_SUM_ROWS, w)};
    return codes_of(rt, by, layouts, w, to);
}

static enum ax_status codes_of_rows(struct ax_runtime *rt, const struct ax_fake_quant *f,
                                    const struct ax_number_format *format, struct ax_fake_part part,
                                    unsigned layouts, const struct ax_tensor *x,
                                    struct ax_fake_codes *to) {
    const struct plan by[] = {plan_of_rows(rt, f, format, part, AX_SUM_COLUMNS, x),
                              plan_of_rows(rt, f, format, part, AX_SUM_ROWS, x)};
    return codes_of(rt, by, layouts, x, to);
}

enum ax_status ax_fake_quant_input_codes(struct ax_runtime *rt, const struct ax_fake_quant *f,
                                         struct ax_fake_part part, unsigned layouts,
                                         const struct ax_tensor *x, struct ax_fake_codes *to) {
    return codes_of_rows(rt, f, &f->scheme.input, part, layouts, x, to);
}

enum ax_status ax_fake_quant_grad_codes(struct ax_runtime *rt, const struct ax_fake_quant *f,
                                        struct ax_fake_part part, unsigned layouts,
                                        const struct ax_tensor *dy, struct ax_fake_codes *to) {
    return codes_of_rows(rt, f, &f->scheme.grad, part, layouts, dy, to);
}

/* ---- gradients ---- */

static bool clips(const struct ax_fake_quant *f, enum ax_quant kind) {
    return !f->straight && ax_quant_info(kind)->clips;
}

bool ax_fake_quant_clips(const struct ax_fake_quant *f) {
    return clips(f, f->scheme.weight.kind);
}

static enum ax_status gradient(struct ax_runtime *rt, bool on, const struct plan *p,
                               struct ax_fake_quantize_backward *a);

static enum ax_status gradient_of_gathered(struct ax_runtime *rt, bool on, const struct plan *p,
                                           const struct ax_fake_quantize_backward *a) {
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    const struct plan whole = gathered(p);
    struct ax_fake_quantize_backward all = {0};
    AX_TRY(ax_tp_gather_cols(rt, &a->x, p->n, &all.x));
    AX_TRY(ax_tp_gather_cols(rt, &a->dy, p->n, &all.dy));
    all.dx = all.dy;
    AX_TRY(gradient(rt, on, &whole, &all));
    const struct ax_tensor own = own_columns(rt, &all.dx);
    AX_TRY(a->accumulate ? ax_run_add(rt->q, &(struct ax_add){.dst = a->dx, .src = own, .alpha = 1})
                         : ax_run_copy(rt->q, &(struct ax_copy){.dst = a->dx, .src = own}));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

/* a->dx from a->dy, or if it is off what dy itself adds. */
static enum ax_status gradient(struct ax_runtime *rt, bool on, const struct plan *p,
                               struct ax_fake_quantize_backward *a) {
    if (p->n > 0)
        return gradient_of_gathered(rt, on, p, a);
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    a->block = block_of(p->f, a->x.shape[1]);
    a->kind = p->f->kind;
    AX_TRY(range_of(rt, p, &a->x, &a->range));
    if (on)
        AX_TRY(ax_run_fake_quantize_backward(rt->q, a));
    else if (a->accumulate)
        AX_TRY(ax_run_add(rt->q, &(struct ax_add){.dst = a->dx, .src = a->dy, .alpha = 1}));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

enum ax_status ax_fake_quant_weight_grad(struct ax_runtime *rt, const struct ax_fake_quant *f,
                                         const struct ax_param *p, const struct ax_tensor *w,
                                         const struct ax_tensor *d, const struct ax_tensor *grad) {
    struct ax_fake_quantize_backward a = {.x = *w, .dy = *d, .dx = *grad, .accumulate = true};
    const struct plan plan = plan_of_weight(rt, f, p, AX_SUM_COLUMNS, w);
    AX_ASSERT(ax_fake_quant_clips(f));
    return gradient(rt, f->on, &plan, &a);
}

enum ax_status ax_fake_quant_input_grad(struct ax_runtime *rt, const struct ax_fake_quant *f,
                                        const struct ax_tensor *x, struct ax_fake_part part,
                                        const struct ax_tensor *dx) {
    struct ax_fake_quantize_backward a = {.x = *x, .dy = *dx, .dx = *dx};
    if (!f->scheme.quantizes_input || !clips(f, f->scheme.input.kind))
        return AX_OK;
    const struct plan plan = plan_of_rows(rt, f, &f->scheme.input, part, AX_SUM_COLUMNS, x);
    return gradient(rt, f->on, &plan, &a);
}

enum ax_status ax_fake_quant_rows_grad(struct ax_runtime *rt, const struct ax_fake_quant *f,
                                       const struct ax_param *p, const struct ax_tensor *x,
                                       const struct ax_tensor *d) {
    struct ax_fake_quantize_backward a = {.x = *x, .dy = *d, .dx = *d};
    const struct plan plan = plan_of_weight(rt, f, p, AX_SUM_COLUMNS, x);
    AX_ASSERT(ax_fake_quant_clips(f) && !is_of_tensor(plan.f));
    return gradient(rt, f->on, &plan, &a);
}
