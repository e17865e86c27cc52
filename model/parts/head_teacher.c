/* The head's comparison with a teacher (model/parts/head.h): its logits, the part of the vocabulary that is
 * compared, and the divergence. */
#include "model/core/sample.h"
#include "model/parallel/tensor_parallel.h"
#include "model/parts/head.h"

static struct ax_tensor take_teacher(struct ax_stack *stack, enum ax_dtype dtype, int64_t rows,
                                     int64_t cols) {
    return ax_stack_take(stack, "rows of the teacher's head",
                         ax_tensor_2d(dtype, NULL, rows, cols));
}

static struct ax_tensor take_teacher_column(struct ax_stack *stack, enum ax_dtype dtype,
                                            int64_t n) {
    return ax_tensor_1d(dtype, take_teacher(stack, dtype, n, 1).data, n);
}

static bool has_support(const struct ax_distill_options *o) {
    return o->top_k > 0 || (o->top_p > 0 && o->top_p < 1);
}

static enum ax_distill_support support_of(const struct ax_distill_options *o) {
    if (o->support != AX_SUPPORT_AUTO)
        return o->support;
    return o->beta == 0 ? AX_SUPPORT_TEACHER : o->beta == 1 ? AX_SUPPORT_STUDENT : AX_SUPPORT_BOTH;
}

static void take_support(struct ax_distill_chunk *c, const struct ax_distill_options *o,
                         struct ax_stack *stack) {
    const int64_t cap = c->logits.shape[0], V = c->logits.shape[1];
    const enum ax_dtype accum = c->logits.dtype;
    c->unlabeled = take_teacher_column(stack, AX_I32, cap);
    c->marks = take_teacher(stack, accum, cap, V);
    if (support_of(o) == AX_SUPPORT_BOTH)
        c->more = take_teacher(stack, accum, cap, V);
    if (!o->tail)
        return;
    c->rest = take_teacher(stack, accum, cap, V);
    c->tail = take_teacher_column(stack, accum, cap);
    c->teacher_tail = take_teacher_column(stack, accum, cap);
}

void ax_distill_take(struct ax_distill_chunk *c, const struct ax_distill_options *o,
                     const struct ax_model *student, const struct ax_teacher_states *teacher,
                     struct ax_stack *stack, int64_t cap) {
    const enum ax_dtype accum = student->accum;
    if (teacher)
        c->hidden =
            take_teacher(stack, student->dtype, cap, teacher->teacher->model.arch.hidden_size);
    c->logits = take_teacher(stack, accum, cap, student->lm_head->local_shape[0]);
    c->stats = take_teacher(stack, accum, cap, AX_SOFTMAX_STATS);
    c->parts = take_teacher(stack, accum, cap, 2);
    c->lse = take_teacher_column(stack, accum, cap);
    c->teacher_lse = take_teacher_column(stack, accum, cap);
    c->divergence = take_teacher_column(stack, accum, cap);
    c->student_kl = take_teacher_column(stack, accum, cap);
    c->logprob = take_teacher_column(stack, accum, cap);
    c->entropy = take_teacher_column(stack, accum, cap);
    if (has_support(o))
        take_support(c, o, stack);
}

struct ax_distill_stored ax_distill_stored_rows(const struct ax_distill_options *o,
                                                const struct ax_batch *batch, int64_t first,
                                                int64_t n) {
    if (o->stored == 0)
        return (struct ax_distill_stored){0};
    struct ax_distill_stored s = {.ids = ax_tensor_rows(&batch->columns[AX_DISTILL_IDS], first, n),
                                  .logits =
                                      ax_tensor_rows(&batch->columns[AX_DISTILL_LOGITS], first, n)};
    if (o->asked && o->tail) {
        s.tail_id = ax_tensor_rows(&batch->columns[AX_DISTILL_TAIL_ID], first, n);
        s.tail = ax_tensor_rows(&batch->columns[AX_DISTILL_TAIL], first, n);
    }
    return s;
}

/* Logits of some tokens, and AX_DISTILL_NEVER of the others. */
static enum ax_status put_logits(const struct ax_distill_rows *r, const struct ax_tensor *ids,
                                 const struct ax_tensor *values, const struct ax_tensor *logits) {
    struct ax_runtime *rt = r->student->rt;
    AX_TRY(ax_run_fill(rt->q, &(struct ax_fill){*logits, AX_DISTILL_NEVER}));
    return ax_run_scatter_topk(
        rt->q, &(struct ax_scatter_topk){.logits = *logits,
                                         .ids = *ids,
                                         .values = *values,
                                         .first_col = ax_tp_first_row(rt, r->student->lm_head)});
}

/* The teacher's logits of the rows. */
static enum ax_status read_logits(const struct ax_distill_chunk *c, const struct ax_distill_rows *r,
                                  int64_t n) {
    if (!r->teacher) {
        const struct ax_tensor all = ax_tensor_rows(&c->logits, 0, n);
        return put_logits(r, &r->stored.ids, &r->stored.logits, &all);
    }
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
                                     .logprob = ax_tensor_rows(&c->logprob, 0, n),
                                     .lse = ax_tensor_rows(lse, 0, n),
                                     .entropy = ax_tensor_rows(&c->entropy, 0, n),
                                     .inv_temperature = 1 / r->o->temperature};
    AX_TRY(ax_tp_gather_stats(rt, head, &stats, &merge.stats));
    AX_TRY(ax_run_softmax_merge(rt->q, &merge));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

/* ---- part of the vocabulary ---- */

/* Leaves in `marks` what top-k and top-p leave of a model's logits. */
static enum ax_status mark_support(const struct ax_distill_chunk *c,
                                   const struct ax_distill_rows *r, const struct ax_tensor *logits,
                                   const struct ax_tensor *marks) {
    struct ax_runtime *rt = r->student->rt;
    const struct ax_param *head = r->student->lm_head;
    const struct ax_sampling kept = {.temperature = r->o->temperature,
                                     .top_k = r->o->top_k,
                                     .top_p = r->o->top_p,
                                     .truncated = true};
    const struct ax_tensor none = ax_tensor_rows(&c->unlabeled, 0, logits->shape[0]);
    AX_TRY(ax_run_fill(rt->q, &(struct ax_fill){none, AX_NO_LABEL}));
    AX_TRY(ax_run_copy(rt->q, &(struct ax_copy){*marks, *logits}));
    return ax_truncate_logits(rt, &kept, head->shape[0], ax_tp_first_row(rt, head), &none, marks);
}

/* log Σ exp(logits/T) over the tokens outside the support. */
static enum ax_status find_tail(const struct ax_distill_chunk *c, const struct ax_distill_rows *r,
                                struct ax_support_logits *part, const struct ax_tensor *logits,
                                const struct ax_tensor *tail) {
    struct ax_queue *q = r->student->rt->q;
    part->logits = ax_tensor_rows(&c->rest, 0, logits->shape[0]);
    part->inside = false;
    AX_TRY(ax_run_copy(q, &(struct ax_copy){part->logits, *logits}));
    AX_TRY(ax_run_support_logits(q, part));
    return find_lse(c, r, &part->logits, tail);
}

/* The teacher's tail; of log-probs that were asked for, one token has all of it. */
static enum ax_status find_teacher_tail(const struct ax_distill_chunk *c,
                                        const struct ax_distill_rows *r,
                                        struct ax_support_logits *part,
                                        const struct ax_tensor *teacher) {
    const struct ax_tensor rest = ax_tensor_rows(&c->rest, 0, teacher->shape[0]);
    if (!r->o->asked)
        return find_tail(c, r, part, teacher, &c->teacher_tail);
    AX_TRY(put_logits(r, &r->stored.tail_id, &r->stored.tail, &rest));
    return find_lse(c, r, &rest, &c->teacher_tail);
}

/* Both models' logits as those of distributions over the support and, with a tail, one more bucket. */
static enum ax_status keep_support(const struct ax_distill_chunk *c,
                                   const struct ax_distill_rows *r) {
    struct ax_queue *q = r->student->rt->q;
    const int64_t n = r->rows.shape[0];
    const enum ax_distill_support of = support_of(r->o);
    const struct ax_tensor teacher = ax_tensor_rows(&c->logits, 0, n);
    struct ax_support_logits part = {.marks = ax_tensor_rows(&c->marks, 0, n), .inside = true};
    AX_TRY(mark_support(c, r, of == AX_SUPPORT_STUDENT ? &r->logits : &teacher, &part.marks));
    if (of == AX_SUPPORT_BOTH) {
        part.more = ax_tensor_rows(&c->more, 0, n);
        AX_TRY(mark_support(c, r, &r->logits, &part.more));
    }
    if (r->o->tail) {
        AX_TRY(find_tail(c, r, &part, &r->logits, &c->tail));
        AX_TRY(find_teacher_tail(c, r, &part, &teacher));
        return ax_run_tail_logits(
            q, &(struct ax_tail_logits){.marks = part.marks,
                                        .more = part.more,
                                        .logits = r->logits,
                                        .tail = ax_tensor_rows(&c->tail, 0, n),
                                        .teacher_tail = ax_tensor_rows(&c->teacher_tail, 0, n),
                                        .teacher = teacher,
                                        .temperature = r->o->temperature});
    }
    part.logits = teacher;
    AX_TRY(ax_run_support_logits(q, &part));
    part.logits = r->logits;
    return ax_run_support_logits(q, &part);
}

/* ---- the comparison ---- */

enum ax_status ax_distill_compare(struct ax_distill_chunk *c, const struct ax_distill_rows *r) {
    struct ax_runtime *rt = r->student->rt;
    const int64_t n = r->rows.shape[0];
    const struct ax_tensor logits = ax_tensor_rows(&c->logits, 0, n),
                           parts = ax_tensor_rows(&c->parts, 0, n);
    AX_TRY(read_logits(c, r, n));
    if (has_support(r->o))
        AX_TRY(keep_support(c, r));
    AX_TRY(find_lse(c, r, &logits, &c->teacher_lse));
    AX_TRY(find_lse(c, r, &r->logits, &c->lse)); /* last: its entropy stays */
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
