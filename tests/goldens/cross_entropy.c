/* objectives/cross_entropy: loss and gradients of logits, hidden states and head with weights,
 * label smoothing, z-loss and temperature, on the backend's ops with a sharded vocabulary. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/mem.h"
#include "tests/goldens/objectives.h"
#include "kernels/transfer.h"

#define SHARDS 3

struct cross_entropy {
    struct ax_golden_report *report;
    const struct ax_safetensors *st;
    enum ax_dtype dtype;
    struct ax_golden_tensor hidden, head, labels, weights;
    const char *name;
    bool weighted, sum; /* settings of the case */
    double label_smoothing, z_loss, temperature, loss;
};

struct columns {
    struct ax_tensor labels, weight, logprob, lse, lse_rest, entropy, mean, g_logprob, g_lse,
        g_mean;
};

/* The shard's first column; it ends where the next begins. */
static int64_t first_of(int64_t vocab, int shard) {
    return vocab * shard / SHARDS;
}

static struct columns take_columns(struct ax_runtime *rt, const struct cross_entropy *c) {
    const int64_t T = c->hidden.shape[0];
    struct columns t = {.labels = ax_golden_row(rt, AX_I32, T),
                        .weight = ax_golden_row(rt, AX_F32, T)};
    struct ax_tensor *rest[] = {&t.logprob, &t.lse,       &t.lse_rest, &t.entropy,
                                &t.mean,    &t.g_logprob, &t.g_lse,    &t.g_mean};
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++)
        *rest[i] = ax_golden_row(rt, c->dtype, T);
    return t;
}

/* Writes labels in our form (−1 = none) and weights; *total = Σ weight of the labeled tokens. */
static enum ax_status put_labels(struct ax_runtime *rt, const struct cross_entropy *c,
                                 const struct columns *t, double *total) {
    const int64_t n = c->labels.numel;
    double *both; /* [2][n] */
    AX_TRY(ax_alloc(&both, 2 * (size_t)n, sizeof *both));
    *total = 0;
    for (int64_t i = 0; i < n; i++) {
        const bool labeled = c->labels.v[i] >= 0;
        const double weight = labeled ? c->weighted ? c->weights.v[i] : 1 : 0;
        both[i] = labeled ? c->labels.v[i] : -1;
        both[n + i] = weight;
        *total += weight;
    }
    enum ax_status st = ax_tensor_write(rt->q, &t->labels, AX_F64, both);
    if (st == AX_OK)
        st = ax_tensor_write(rt->q, &t->weight, AX_F64, both + n);
    ax_free(both);
    return st;
}

static enum ax_status values(struct ax_runtime *rt, const struct cross_entropy *c,
                             const struct columns *t, const struct ax_tensor *logits) {
    const int64_t T = logits->shape[0], V = logits->shape[1];
    const struct ax_tensor stats = ax_golden_rows(rt, c->dtype, SHARDS * T, AX_SOFTMAX_STATS);
    for (int s = 0; s < SHARDS; s++) {
        const int64_t first = first_of(V, s);
        AX_TRY(ax_run_softmax_stats(
            rt->q, &(struct ax_softmax_stats){
                       .logits = ax_tensor_cols(logits, first, first_of(V, s + 1) - first),
                       .labels = t->labels,
                       .stats = ax_tensor_rows(&stats, s * T, T),
                       .first_col = first,
                       .inv_temperature = 1 / c->temperature}));
    }
    const struct ax_softmax_merge merge = {
        .stats = ax_tensor_3d(c->dtype, stats.data, SHARDS, T, AX_SOFTMAX_STATS),
        .labels = t->labels,
        .logprob = t->logprob,
        .lse = t->lse,
        .lse_rest = t->lse_rest,
        .entropy = t->entropy,
        .mean_logprob = t->mean,
        .vocab = V,
        .inv_temperature = 1 / c->temperature};
    return ax_run_softmax_merge(rt->q, &merge);
}

static enum ax_status backward(struct ax_runtime *rt, const struct cross_entropy *c,
                               const struct columns *t, const struct ax_tensor *logits,
                               const struct ax_tensor *dlogits) {
    const int64_t V = logits->shape[1];
    for (int s = 0; s < SHARDS; s++) {
        const int64_t first = first_of(V, s), n = first_of(V, s + 1) - first;
        struct ax_softmax_backward b = {.logits = ax_tensor_cols(logits, first, n),
                                        .labels = t->labels,
                                        .lse = t->lse,
                                        .lse_rest = t->lse_rest,
                                        .entropy = t->entropy,
                                        .g_logprob = t->g_logprob,
                                        .dlogits = ax_tensor_cols(dlogits, first, n),
                                        .first_col = first,
                                        .inv_temperature = 1 / c->temperature,
                                        .vocab = V};
        if (c->z_loss != 0)
            b.g_lse = t->g_lse;
        if (c->label_smoothing != 0)
            b.g_mean = t->g_mean;
        AX_TRY(ax_run_softmax_backward(rt->q, &b));
    }
    return AX_OK;
}

static enum ax_status loss(struct ax_runtime *rt, const struct cross_entropy *c,
                           const struct columns *t, double total) {
    struct ax_step_scalars AX_DEVICE *scalars =
        ax_stack_push(&rt->arena.persistent, "objective check", sizeof *scalars);
    struct ax_step_scalars now = {.inv_weight = c->sum ? 1 : 1 / total};
    AX_TRY(ax_queue_write(rt->q, scalars, &now, sizeof now));
    const struct ax_nll_loss nll = {.logprob = t->logprob,
                                    .labels = t->labels,
                                    .weight = t->weight,
                                    .g_logprob = t->g_logprob,
                                    .scalars = scalars,
                                    .mean_logprob = t->mean,
                                    .g_mean = t->g_mean,
                                    .lse = t->lse,
                                    .g_lse = t->g_lse,
                                    .label_smoothing = c->label_smoothing,
                                    .z_loss = c->z_loss};
    AX_TRY(ax_run_nll_loss(rt->q, &nll));
    AX_TRY(ax_queue_read(rt->q, scalars, &now, sizeof now, &now));
    if (!ax_runtime_planning(rt))
        ax_golden_note(c->report, "cross_entropy loss (relative)",
                       fabs(now.loss - c->loss) / fabs(c->loss), AX_GOLDEN_OBJECTIVE_TOLERANCE,
                       c->name);
    return AX_OK;
}

static enum ax_status compare(const struct cross_entropy *c, const char *input, struct ax_queue *q,
                              const struct ax_tensor *got) {
    char name[80];
    snprintf(name, sizeof name, "%s.grad.%s", c->name, input);
    return ax_golden_compare(c->report, c->st, name, q, got);
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    const struct cross_entropy *c = ctx;
    const int64_t T = c->hidden.shape[0], D = c->hidden.shape[1], V = c->head.shape[0];
    const bool planning = ax_runtime_planning(rt);
    const struct ax_tensor hidden = ax_golden_rows(rt, c->dtype, T, D),
                           head = ax_golden_rows(rt, c->dtype, V, D),
                           logits = ax_golden_rows(rt, c->dtype, T, V),
                           dlogits = ax_golden_rows(rt, c->dtype, T, V),
                           dhidden = ax_golden_rows(rt, c->dtype, T, D),
                           dhead = ax_golden_rows(rt, c->dtype, V, D);
    const struct columns t = take_columns(rt, c);
    double total = 1;
    if (!planning) {
        AX_TRY(ax_tensor_write(rt->q, &hidden, AX_F64, c->hidden.v));
        AX_TRY(ax_tensor_write(rt->q, &head, AX_F64, c->head.v));
        AX_TRY(put_labels(rt, c, &t, &total));
    }
    AX_TRY(ax_run_gemm(
        rt->q,
        &(struct ax_gemm){.a = hidden, .b = head, .c = logits, .trans_b = true, .alpha = 1}));
    AX_TRY(values(rt, c, &t, &logits));
    AX_TRY(loss(rt, c, &t, total));
    AX_TRY(backward(rt, c, &t, &logits, &dlogits));
    AX_TRY(
        ax_run_gemm(rt->q, &(struct ax_gemm){.a = dlogits, .b = head, .c = dhidden, .alpha = 1}));
    AX_TRY(ax_run_gemm(
        rt->q,
        &(struct ax_gemm){.a = dlogits, .b = hidden, .c = dhead, .trans_a = true, .alpha = 1}));
    if (planning)
        return AX_OK;
    AX_TRY(compare(c, "logits", rt->q, &dlogits));
    AX_TRY(compare(c, "hidden", rt->q, &dhidden));
    return compare(c, "head", rt->q, &dhead);
}

static enum ax_status run_case(struct cross_entropy *c, struct ax_json v,
                               const struct ax_runtime_options *ro) {
    const char *reduction;
    AX_TRY(ax_json_str(ax_json_get(v, "name"), &c->name));
    AX_TRY(ax_json_f64(ax_json_get(ax_json_get(v, "expect"), "loss"), &c->loss));
    AX_TRY(ax_json_bool_or(ax_json_get(v, "weights"), false, &c->weighted));
    AX_TRY(ax_json_f64_or(ax_json_get(v, "label_smoothing"), 0, &c->label_smoothing));
    AX_TRY(ax_json_f64_or(ax_json_get(v, "z_loss"), 0, &c->z_loss));
    AX_TRY(ax_json_f64_or(ax_json_get(v, "temperature"), 1, &c->temperature));
    AX_TRY(ax_json_str_or(ax_json_get(v, "reduction"), "mean", &reduction));
    c->sum = strcmp(reduction, "sum") == 0;
    return ax_runtime_run(ro, body, c, NULL);
}

static enum ax_status run(struct ax_golden_report *r, const char *path, struct ax_json root,
                          const struct ax_golden_options *o, const void *ctx) {
    (void)ctx;
    struct ax_safetensors st;
    AX_TRY(ax_safetensors_open(&st, path));
    struct cross_entropy c = {
        .report = r, .st = &st, .dtype = strcmp(o->backend, "ref") == 0 ? AX_F64 : AX_F32};
    const struct ax_runtime_options ro = {.backend = o->backend, .threads = o->threads};
    struct ax_golden_tensor *inputs[] = {&c.hidden, &c.head, &c.labels, &c.weights};
    static const char *const names[] = {"hidden", "head", "labels", "weights"};
    enum ax_status status;
    for (int i = 0; i < 4; i++)
        AX_TRY_GOTO(ax_golden_read(&st, names[i], inputs[i]), status, done);
    if (c.hidden.ndim != 2 || c.head.ndim != 2 || c.head.shape[1] != c.hidden.shape[1] ||
        c.head.shape[0] < SHARDS || c.labels.numel != c.hidden.shape[0] ||
        c.weights.numel != c.labels.numel)
        AX_TRY_GOTO(ax_error(AX_ERR_DATA, "%s: input shapes do not match", path), status, done);
    const struct ax_json cases = ax_json_get(root, "cases");
    for (size_t i = 0; i < ax_json_size(cases); i++)
        AX_TRY_GOTO(run_case(&c, ax_json_at(cases, i), &ro), status, done);
done:
    for (int i = 0; i < 4; i++)
        ax_golden_tensor_free(inputs[i]);
    ax_safetensors_close(&st);
    return status;
}

bool ax_golden_cross_entropy(struct ax_golden_report *r, const char *dir,
                             const struct ax_golden_options *o) {
    return ax_golden_objective(r, dir, "cross_entropy", o, run, NULL);
}
