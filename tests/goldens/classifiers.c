/* objectives/reward and prm: losses of the logits of a classifier's head, and their gradients, through
 * the head's ops. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/mem.h"
#include "tests/goldens/objectives.h"
#include "kernels/transfer.h"
#include "optim/losses/reward.h"

struct scores {
    struct ax_golden_report *report;
    const struct ax_safetensors *st;
    enum ax_dtype dtype;
    struct ax_golden_tensor logits, values, want; /* values: margins, or probabilities */
    int64_t n, n_labels;                          /* logits: [n][n_labels] */
    const char *name, *input;                     /* of the case; of its logits */
    double loss;
    struct ax_reward reward;
    struct ax_sft_options prm;
    struct ax_objective objective;
    double *rows; /* those with a label, in order [n_rows] */
    int64_t n_rows;
};

/* reward: pairs follow each other in a batch, in the file all chosen scores come first. */
static int64_t row_of(const struct scores *c, int64_t i) {
    return c->n_labels == 1 ? i % 2 * (c->n / 2) + i / 2 : i;
}

static int32_t label_of(const struct scores *c, int64_t row) {
    if (c->n_labels == 1)
        return 0;
    return c->values.v[row] < 0 ? -1 : c->values.v[row] >= 0.5;
}

/* A document of one token for each score, or one of all tokens. */
static enum ax_status fill(struct scores *c, struct ax_queue *q, struct ax_batch *b) {
    struct ax_document *docs;
    int32_t *ids; /* [2][n]: tokens, labels */
    float *values;
    const int64_t each = c->n_labels == 1 ? 1 : c->n;
    AX_TRY(ax_alloc(&docs, (size_t)c->n, sizeof *docs));
    AX_TRY(ax_alloc(&ids, 2 * (size_t)c->n, sizeof *ids));
    AX_TRY(ax_alloc(&values, (size_t)c->n, sizeof *values));
    for (int64_t i = c->n_rows = 0; i < c->n; i++) {
        const int64_t row = row_of(c, i);
        ids[c->n + i] = label_of(c, row);
        if (c->values.v)
            values[i] = (float)c->values.v[c->n_labels == 1 ? i / 2 : row];
        if (ids[c->n + i] >= 0)
            c->rows[c->n_rows++] = (double)row;
    }
    for (int64_t d = 0; d < c->n / each; d++)
        docs[d] = (struct ax_document){.n = each,
                                       .tokens = ids + d * each,
                                       .labels = ids + c->n + d * each,
                                       .columns = {(const uint32_t *)(values + d * each)}};
    b->n_labels = c->n_labels;
    const enum ax_status st = ax_batch_fill(b, q, 1, (int)(c->n / each), docs);
    ax_free(docs);
    ax_free(ids);
    ax_free(values);
    return st;
}

/* The file's logits, or `want`, of the rows that the batch lists. */
static void in_order(const struct scores *c, const double *from, double *out) {
    for (int64_t i = 0; i < c->n_rows * c->n_labels; i++)
        out[i] = from[(int64_t)c->rows[i / c->n_labels] * c->n_labels + i % c->n_labels];
}

/* Rows without a label have no gradient. */
static enum ax_status compare(const struct scores *c, struct ax_queue *q,
                              const struct ax_tensor *dlogits,
                              const struct ax_step_scalars AX_DEVICE *scalars) {
    struct ax_step_scalars now;
    double *got = NULL, *want, largest = 0;
    char group[80];
    AX_TRY(ax_queue_read(q, scalars, &now, sizeof now, NULL));
    snprintf(group, sizeof group, "%s loss (relative)", c->objective.name);
    ax_golden_note(c->report, group, fabs(now.loss - c->loss) / fabs(c->loss),
                   AX_GOLDEN_OBJECTIVE_TOLERANCE, c->name);
    AX_TRY(ax_alloc(&want, (size_t)c->logits.numel, sizeof *want));
    const enum ax_status st = ax_golden_values(q, dlogits, &got);
    in_order(c, c->want.v, want);
    for (int64_t i = 0; i < c->logits.numel; i++)
        largest = fmax(largest, fabs(c->want.v[i]));
    snprintf(group, sizeof group, "%s gradient", c->objective.name);
    if (st == AX_OK)
        ax_golden_note(c->report, group,
                       ax_golden_max_abs(got, want, c->n_rows * c->n_labels) / fmax(largest, 1e-2),
                       AX_GOLDEN_OBJECTIVE_TOLERANCE, c->name);
    ax_free(got);
    ax_free(want);
    return st;
}

/* logits → what the objective sees → its gradients → dlogits. */
static enum ax_status run_head(struct scores *c, struct ax_pass *p, const struct ax_tensor *logits,
                               const struct ax_tensor *dlogits) {
    struct ax_runtime *rt = p->model->rt;
    const int64_t n = logits->shape[0];
    struct ax_head_chunk h = {.n = n};
    struct ax_tensor *const rows[] = {&h.logprob,      &h.lse,       &h.lse_rest, &h.entropy,
                                      &h.mean_logprob, &h.g_logprob, &h.g_lse,    &h.g_mean};
    const int taken = (int)(sizeof rows / sizeof *rows);
    for (int i = 0; i < taken; i++)
        *rows[i] = ax_golden_row(rt, c->dtype, n);
    if (!c->objective.head.needs_lse)
        h.g_lse.data = NULL;
    if (!c->objective.head.needs_mean)
        h.g_mean.data = NULL;
    const struct ax_tensor stats = ax_golden_rows(rt, c->dtype, n, AX_SOFTMAX_STATS);
    const struct ax_tensor labels = ax_tensor_rows(&p->batch->labels, 0, n);
    AX_TRY(ax_run_softmax_stats(
        rt->q, &(struct ax_softmax_stats){
                   .logits = *logits, .labels = labels, .stats = stats, .inv_temperature = 1}));
    AX_TRY(ax_run_softmax_merge(
        rt->q, &(struct ax_softmax_merge){
                   .stats = ax_tensor_3d(c->dtype, stats.data, 1, n, AX_SOFTMAX_STATS),
                   .labels = labels,
                   .logprob = h.logprob,
                   .lse = h.lse,
                   .lse_rest = h.lse_rest,
                   .entropy = h.entropy,
                   .mean_logprob = h.mean_logprob,
                   .vocab = c->n_labels,
                   .inv_temperature = 1}));
    AX_TRY(c->objective.head.token_grad(c->objective.head.ctx, p, &h));
    return ax_run_softmax_backward(rt->q, &(struct ax_softmax_backward){.logits = *logits,
                                                                        .labels = labels,
                                                                        .lse = h.lse,
                                                                        .lse_rest = h.lse_rest,
                                                                        .entropy = h.entropy,
                                                                        .g_logprob = h.g_logprob,
                                                                        .g_lse = h.g_lse,
                                                                        .g_mean = h.g_mean,
                                                                        .vocab = c->n_labels,
                                                                        .dlogits = *dlogits,
                                                                        .inv_temperature = 1});
}

static enum ax_status write_inputs(const struct scores *c, struct ax_queue *q,
                                   const struct ax_tensor *logits,
                                   struct ax_step_scalars AX_DEVICE *scalars) {
    const struct ax_step_scalars now = {.inv_weight =
                                            (c->n_labels == 1 ? 2 : 1) / (double)c->n_rows};
    double *values;
    AX_TRY(ax_queue_write(q, scalars, &now, sizeof now));
    AX_TRY(ax_alloc(&values, (size_t)c->logits.numel, sizeof *values));
    in_order(c, c->logits.v, values);
    const enum ax_status st = ax_tensor_write(q, logits, AX_F64, values);
    ax_free(values);
    return st;
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct scores *c = ctx;
    struct ax_stack *stack = &rt->arena.persistent;
    const bool planning = ax_runtime_planning(rt);
    struct ax_model model = {.rt = rt};
    struct ax_batch batch;
    ax_batch_allocate(&batch, stack, c->n, c->n, c->n, 1, 0);
    ax_batch_add_columns(&batch, stack, c->objective.columns);
    AX_TRY(fill(c, rt->q, &batch));
    struct ax_step_scalars AX_DEVICE *scalars =
        ax_stack_push(stack, "objective check", sizeof *scalars);
    struct ax_step_measures AX_DEVICE *measures =
        ax_stack_push(stack, "objective check", sizeof *measures);
    const struct ax_step_measures none = {0};
    const struct ax_tensor logits = ax_golden_rows(rt, c->dtype, c->n_rows, c->n_labels),
                           dlogits = ax_golden_rows(rt, c->dtype, c->n_rows, c->n_labels);
    AX_TRY(ax_queue_write(rt->q, measures, &none, sizeof none));
    if (!planning)
        AX_TRY(write_inputs(c, rt->q, &logits, scalars));
    struct ax_pass p = {.model = &model, .batch = &batch, .scalars = scalars, .measures = measures};
    AX_TRY(run_head(c, &p, &logits, &dlogits));
    return planning ? AX_OK : compare(c, rt->q, &dlogits, scalars);
}

/* ---- cases ---- */

/* The tensor that a case has beside the logits; NULL: none. */
static enum ax_status read_case(struct scores *c, struct ax_json e, const char **values) {
    bool margin;
    double center;
    AX_TRY(ax_json_str(ax_json_get(e, "name"), &c->name));
    AX_TRY(ax_json_f64(ax_json_get(ax_json_get(e, "expect"), "loss"), &c->loss));
    AX_TRY(ax_json_bool_or(ax_json_get(e, "margin"), false, &margin));
    AX_TRY(ax_json_f64_or(ax_json_get(e, "center"), 0, &center));
    c->objective =
        c->n_labels == 1 ? ax_objective_reward(&c->reward, center) : ax_objective_prm(&c->prm);
    *values = margin                         ? "margin"
              : c->n_labels == 1             ? NULL
              : strcmp(c->name, "soft") == 0 ? "soft_labels"
                                             : "labels";
    return AX_OK;
}

static enum ax_status run_case(struct scores *c, struct ax_json e,
                               const struct ax_runtime_options *ro) {
    char name[128];
    const char *values;
    enum ax_status st;
    AX_TRY(read_case(c, e, &values));
    snprintf(name, sizeof name, "%s.grad.%s", c->name, c->input);
    AX_TRY_GOTO(ax_golden_read(c->st, name, &c->want), st, done);
    if (values)
        AX_TRY_GOTO(ax_golden_read(c->st, values, &c->values), st, done);
    if (c->want.numel != c->logits.numel ||
        (values && c->values.numel != (c->n_labels == 1 ? c->n / 2 : c->n)))
        AX_TRY_GOTO(ax_error(AX_ERR_DATA, "%s: %s: the shape does not match", c->st->path, name),
                    st, done);
    st = ax_runtime_run(ro, body, c, NULL);
done:
    ax_golden_tensor_free(&c->want);
    ax_golden_tensor_free(&c->values);
    return st;
}

/* ctx: bool, of a reward model. */
static enum ax_status run(struct ax_golden_report *r, const char *path, struct ax_json root,
                          const struct ax_golden_options *o, const void *ctx) {
    const bool reward = *(const bool *)ctx;
    struct ax_safetensors file;
    AX_TRY(ax_safetensors_open(&file, path));
    struct scores c = {.report = r,
                       .st = &file,
                       .dtype = strcmp(o->backend, "ref") == 0 ? AX_F64 : AX_F32,
                       .n_labels = reward ? 1 : 2,
                       .input = reward ? "scores" : "logits"};
    const struct ax_runtime_options ro = {.backend = o->backend, .threads = o->threads};
    enum ax_status st;
    AX_TRY_GOTO(ax_golden_read(&file, c.input, &c.logits), st, done);
    c.n = c.logits.numel / c.n_labels;
    if (c.logits.numel % 2 != 0)
        AX_TRY_GOTO(ax_error(AX_ERR_DATA, "%s: input shapes do not match", path), st, done);
    AX_TRY_GOTO(ax_alloc(&c.rows, (size_t)c.n, sizeof *c.rows), st, done);
    const struct ax_json cases = ax_json_get(root, "cases");
    for (size_t i = 0; i < ax_json_size(cases); i++)
        AX_TRY_GOTO(run_case(&c, ax_json_at(cases, i), &ro), st, done);
done:
    ax_free(c.rows);
    ax_golden_tensor_free(&c.logits);
    ax_safetensors_close(&file);
    return st;
}

bool ax_golden_classifiers(struct ax_golden_report *r, const char *dir,
                           const struct ax_golden_options *o) {
    static const bool reward = true, prm = false;
    const bool found = ax_golden_objective(r, dir, "reward", o, run, &reward);
    return ax_golden_objective(r, dir, "prm", o, run, &prm) || found;
}
