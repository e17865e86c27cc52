/* objectives/: the head's results per row, and the gradients of their sums, on the backend's
 * ops. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/mem.h"
#include "tests/goldens/objectives.h"
#include "kernels/transfer.h"

struct entropy {
    struct ax_golden_report *report;
    const struct ax_safetensors *st;
    enum ax_dtype dtype;
    struct ax_golden_tensor logits, tokens;
};

struct rows {
    struct ax_tensor logits, labels, stats, logprob, lse, lse_rest, entropy, one, zero, dlogits;
};

struct ax_tensor ax_golden_rows(struct ax_runtime *rt, enum ax_dtype dtype, int64_t rows,
                                int64_t cols) {
    struct ax_tensor t = ax_tensor_2d(dtype, NULL, rows, cols);
    t.data = ax_stack_push(&rt->arena.persistent, "objective check", ax_tensor_bytes(&t));
    return t;
}

struct ax_tensor ax_golden_row(struct ax_runtime *rt, enum ax_dtype dtype, int64_t n) {
    const struct ax_tensor t = ax_golden_rows(rt, dtype, n, 1);
    return ax_tensor_1d(dtype, t.data, n);
}

enum ax_status ax_golden_compare(struct ax_golden_report *r, const struct ax_safetensors *st,
                                 const char *name, struct ax_queue *q,
                                 const struct ax_tensor *got) {
    struct ax_golden_tensor want = {0};
    double worst = 0, largest = 0, *values = NULL;
    enum ax_status status;
    AX_TRY(ax_golden_read(st, name, &want));
    AX_TRY_GOTO(ax_golden_values(q, got, &values), status, done);
    for (int64_t i = 0; i < want.numel; i++)
        largest = fmax(largest, fabs(want.v[i]));
    const double allowed = fmax(AX_GOLDEN_TENSOR_TOLERANCE * largest, 1e-7);
    for (int64_t i = 0; i < want.numel; i++) {
        const double d = fabs(values[i] - want.v[i]);
        worst = d / allowed <= worst ? worst : d / allowed;
    }
    ax_golden_note(r, name, worst * AX_GOLDEN_TENSOR_TOLERANCE, AX_GOLDEN_TENSOR_TOLERANCE,
                   "relative to the largest");
done:
    ax_free(values);
    ax_golden_tensor_free(&want);
    return status;
}

static enum ax_status compare(struct entropy *e, const char *name, struct ax_queue *q,
                              const struct ax_tensor *got) {
    return ax_golden_compare(e->report, e->st, name, q, got);
}

/* Gradient of Σ logprob or Σ entropy for the logits. */
static enum ax_status gradient(struct ax_runtime *rt, struct entropy *e, const struct rows *r,
                               bool of_entropy, const char *name) {
    struct ax_softmax_backward b = {.logits = r->logits,
                                    .labels = r->labels,
                                    .lse = r->lse,
                                    .lse_rest = r->lse_rest,
                                    .entropy = r->entropy,
                                    .g_logprob = of_entropy ? r->zero : r->one,
                                    .dlogits = r->dlogits,
                                    .inv_temperature = 1};
    if (of_entropy)
        b.g_entropy = r->one;
    AX_TRY(ax_run_softmax_backward(rt->q, &b));
    return ax_runtime_planning(rt) ? AX_OK : compare(e, name, rt->q, &r->dlogits);
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct entropy *e = ctx;
    const int64_t T = e->logits.shape[0], V = e->logits.shape[1];
    struct rows r = {.logits = ax_golden_rows(rt, e->dtype, T, V),
                     .labels = ax_golden_row(rt, AX_I32, T),
                     .stats = ax_golden_rows(rt, e->dtype, T, AX_SOFTMAX_STATS),
                     .logprob = ax_golden_row(rt, e->dtype, T),
                     .lse = ax_golden_row(rt, e->dtype, T),
                     .lse_rest = ax_golden_row(rt, e->dtype, T),
                     .entropy = ax_golden_row(rt, e->dtype, T),
                     .one = ax_golden_row(rt, e->dtype, T),
                     .zero = ax_golden_row(rt, e->dtype, T),
                     .dlogits = ax_golden_rows(rt, e->dtype, T, V)};
    const bool planning = ax_runtime_planning(rt);
    if (!planning) {
        AX_TRY(ax_tensor_write(rt->q, &r.logits, AX_F64, e->logits.v));
        AX_TRY(ax_tensor_write(rt->q, &r.labels, AX_F64, e->tokens.v));
    }
    AX_TRY(ax_run_fill(rt->q, &(struct ax_fill){r.one, 1}));
    AX_TRY(ax_run_fill(rt->q, &(struct ax_fill){r.zero, 0}));
    AX_TRY(ax_run_softmax_stats(rt->q, &(struct ax_softmax_stats){.logits = r.logits,
                                                                  .labels = r.labels,
                                                                  .stats = r.stats,
                                                                  .inv_temperature = 1}));
    const struct ax_softmax_merge merge = {
        .stats = ax_tensor_3d(e->dtype, r.stats.data, 1, T, AX_SOFTMAX_STATS),
        .labels = r.labels,
        .logprob = r.logprob,
        .lse = r.lse,
        .lse_rest = r.lse_rest,
        .entropy = r.entropy,
        .inv_temperature = 1};
    AX_TRY(ax_run_softmax_merge(rt->q, &merge));
    if (!planning) {
        AX_TRY(compare(e, "entropy.per_row", rt->q, &r.entropy));
        AX_TRY(compare(e, "logprob.per_row", rt->q, &r.logprob));
    }
    AX_TRY(gradient(rt, e, &r, true, "entropy.grad.logits"));
    return gradient(rt, e, &r, false, "logprob.grad.logits");
}

static enum ax_status run_entropy(struct ax_golden_report *r, const char *path,
                                  const struct ax_golden_options *o) {
    struct ax_safetensors st;
    AX_TRY(ax_safetensors_open(&st, path));
    struct entropy e = {
        .report = r, .st = &st, .dtype = strcmp(o->backend, "ref") == 0 ? AX_F64 : AX_F32};
    const struct ax_runtime_options ro = {.backend = o->backend, .threads = o->threads};
    enum ax_status status;
    AX_TRY_GOTO(ax_golden_read(&st, "logits", &e.logits), status, done);
    AX_TRY_GOTO(ax_golden_read(&st, "tokens", &e.tokens), status, done);
    if (e.logits.ndim != 2 || e.tokens.numel != e.logits.shape[0])
        AX_TRY_GOTO(ax_error(AX_ERR_DATA, "%s: tokens do not match the logits", path), status,
                    done);
    AX_TRY_GOTO(ax_runtime_run(&ro, body, &e, NULL), status, done);
done:
    ax_golden_tensor_free(&e.logits);
    ax_golden_tensor_free(&e.tokens);
    ax_safetensors_close(&st);
    return status;
}

bool ax_golden_objective(struct ax_golden_report *r, const char *dir, const char *name,
                         const struct ax_golden_options *o, ax_golden_cases *run, const void *ctx) {
    char path[4096], tensors[4096];
    struct ax_json_doc doc = {0};
    snprintf(path, sizeof path, "%s/%s.json", dir, name);
    snprintf(tensors, sizeof tensors, "%s/%s.safetensors", dir, name);
    if (!ax_path_exists(path) || !ax_path_exists(tensors))
        return false;
    enum ax_status st = ax_json_load(&doc, path, 16U << 20);
    const struct ax_json cases = ax_json_get(ax_json_root(&doc), "cases");
    const bool is = st != AX_OK || ax_json_size(cases) > 0;
    if (st == AX_OK && is)
        st = run(r, tensors, ax_json_root(&doc), o, ctx);
    snprintf(r->title, sizeof r->title, "%s backend=%s", path, o->backend);
    if (st != AX_OK)
        ax_golden_error(r, path);
    if (is)
        ax_golden_flush(r);
    ax_json_free(&doc);
    return is;
}

static bool check_entropy(struct ax_golden_report *r, const char *dir,
                          const struct ax_golden_options *o) {
    char path[4096];
    snprintf(path, sizeof path, "%s/entropy.safetensors", dir);
    if (!ax_path_exists(path))
        return false;
    snprintf(r->title, sizeof r->title, "%s backend=%s", path, o->backend);
    if (run_entropy(r, path, o) != AX_OK)
        ax_golden_error(r, path);
    ax_golden_flush(r);
    return true;
}

bool ax_golden_objectives(struct ax_golden_report *r, const char *dir,
                          const struct ax_golden_options *o) {
    const bool entropy = check_entropy(r, dir, o);
    const bool documents = ax_golden_documents(r, dir, o);
    const bool classifiers = ax_golden_classifiers(r, dir, o);
    const bool policies = ax_golden_policies(r, dir, o);
    const bool ppo = ax_golden_ppo(r, dir, o);
    return ax_golden_cross_entropy(r, dir, o) || documents || classifiers || policies || ppo ||
           entropy;
}
