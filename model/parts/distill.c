#include "model/parts/distill.h"

#include "model/parts/head.h"
#include "model/parallel/tensor_parallel.h"

static struct ax_tensor take(struct ax_stack *stack, enum ax_dtype dtype, int64_t rows,
                             int64_t cols) {
    struct ax_tensor t = ax_tensor_2d(dtype, NULL, rows, cols);
    t.data = ax_stack_push(stack, "rows of the teacher's head", ax_tensor_bytes(&t));
    return t;
}

static struct ax_tensor take_column(struct ax_stack *stack, enum ax_dtype dtype, int64_t n) {
    return ax_tensor_1d(dtype, take(stack, dtype, n, 1).data, n);
}

void ax_distill_take(struct ax_distill_chunk *c, const struct ax_model *student,
                     const struct ax_teacher_states *teacher, struct ax_stack *stack, int64_t cap) {
    const enum ax_dtype accum = student->accum;
    if (teacher)
        c->hidden = take(stack, student->dtype, cap, teacher->teacher->model.arch.hidden_size);
    c->logits = take(stack, accum, cap, student->lm_head->local_shape[0]);
    c->stats = take(stack, accum, cap, AX_SOFTMAX_STATS);
    c->parts = take(stack, accum, cap, 2);
    c->lse = take_column(stack, accum, cap);
    c->teacher_lse = take_column(stack, accum, cap);
    c->divergence = take_column(stack, accum, cap);
    c->student_kl = take_column(stack, accum, cap);
    for (int i = 0; i < 2; i++)
        c->unused[i] = take_column(stack, accum, cap);
}

struct ax_distill_stored ax_distill_stored_rows(const struct ax_distill_options *o,
                                                const struct ax_batch *batch, int64_t first,
                                                int64_t n) {
    if (o->stored == 0)
        return (struct ax_distill_stored){0};
    return (struct ax_distill_stored){
        .ids = ax_tensor_rows(&batch->columns[AX_DISTILL_IDS], first, n),
        .logits = ax_tensor_rows(&batch->columns[AX_DISTILL_LOGITS], first, n)};
}

static enum ax_status put_stored(const struct ax_distill_chunk *c, const struct ax_distill_rows *r,
                                 int64_t n) {
    struct ax_runtime *rt = r->student->rt;
    const struct ax_tensor logits = ax_tensor_rows(&c->logits, 0, n);
    AX_TRY(ax_run_fill(rt->q, &(struct ax_fill){logits, AX_DISTILL_NEVER}));
    return ax_run_scatter_topk(
        rt->q, &(struct ax_scatter_topk){.logits = logits,
                                         .ids = r->stored.ids,
                                         .values = r->stored.logits,
                                         .first_col = ax_tp_first_row(rt, r->student->lm_head)});
}

/* The teacher's logits of the rows. */
static enum ax_status read_logits(const struct ax_distill_chunk *c, const struct ax_distill_rows *r,
                                  int64_t n) {
    if (!r->teacher)
        return put_stored(c, r, n);
    struct ax_pass p = {.model = &r->teacher->teacher->model, .inv_temperature = 1};
    const struct ax_tensor hidden = ax_tensor_rows(&c->hidden, 0, n),
                           logits = ax_tensor_rows(&c->logits, 0, n), none = {0};
    struct ax_tensor w;
    AX_TRY(ax_head_weight(p.model, &w)); /* a teacher does not train, so no scratch */
    AX_TRY(ax_run_combine_forward(
        p.model->rt->q,
        &(struct ax_combine_forward){.src = r->teacher->normed, .rows = r->rows, .out = hidden}));
    return ax_head_logits(&p, &w, &none, &hidden, &logits);
}

/* log Σ exp(logits/T) over all shards of the vocabulary. */
static enum ax_status find_lse(const struct ax_distill_chunk *c, const struct ax_distill_rows *r,
                               const struct ax_tensor *logits, const struct ax_tensor *lse) {
    struct ax_runtime *rt = r->student->rt;
    const struct ax_param *head = r->student->lm_head;
    const int64_t n = logits->shape[0];
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    const struct ax_tensor stats = ax_tensor_rows(&c->stats, 0, n);
    AX_TRY(ax_run_softmax_stats(
        rt->q, &(struct ax_softmax_stats){.logits = *logits,
                                          .labels = r->labels,
                                          .stats = stats,
                                          .first_col = ax_tp_first_row(rt, head),
                                          .inv_temperature = 1 / r->o->temperature}));
    struct ax_softmax_merge merge = {.labels = r->labels,
                                     .logprob = ax_tensor_rows(&c->unused[0], 0, n),
                                     .lse = ax_tensor_rows(lse, 0, n),
                                     .entropy = ax_tensor_rows(&c->unused[1], 0, n),
                                     .inv_temperature = 1 / r->o->temperature};
    AX_TRY(ax_tp_gather_stats(rt, head, &stats, &merge.stats));
    AX_TRY(ax_run_softmax_merge(rt->q, &merge));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

enum ax_status ax_distill_compare(struct ax_distill_chunk *c, const struct ax_distill_rows *r) {
    struct ax_runtime *rt = r->student->rt;
    const int64_t n = r->rows.shape[0];
    const struct ax_tensor logits = ax_tensor_rows(&c->logits, 0, n),
                           parts = ax_tensor_rows(&c->parts, 0, n);
    AX_TRY(read_logits(c, r, n));
    AX_TRY(find_lse(c, r, &logits, &c->teacher_lse));
    AX_TRY(find_lse(c, r, &r->logits, &c->lse));
    AX_TRY(ax_run_divergence(
        rt->q, &(struct ax_divergence){.logits = r->logits,
                                       .teacher = logits,
                                       .lse = ax_tensor_rows(&c->lse, 0, n),
                                       .teacher_lse = ax_tensor_rows(&c->teacher_lse, 0, n),
                                       .parts = parts,
                                       .beta = r->o->beta,
                                       .inv_temperature = 1 / r->o->temperature}));
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    struct ax_divergence_merge merge = {.divergence = ax_tensor_rows(&c->divergence, 0, n),
                                        .student_kl = ax_tensor_rows(&c->student_kl, 0, n),
                                        .beta = r->o->beta};
    AX_TRY(ax_tp_gather_stats(rt, r->student->lm_head, &parts, &merge.parts));
    AX_TRY(ax_run_divergence_merge(rt->q, &merge));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

enum ax_status ax_teacher_gather_head(struct ax_teacher *t) {
    return ax_model_gather(&t->model, t->model.n_units - 1);
}

void ax_teacher_release_head(struct ax_teacher *t) {
    ax_model_release(&t->model, t->model.n_units - 1);
}
