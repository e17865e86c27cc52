/* objectives/dpo, orpo, cpo, kto: the losses of pairs of documents, or of documents rated one by one,
 * and the gradients of their tokens' log-probs. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/mem.h"
#include "tests/goldens/objectives.h"
#include "kernels/transfer.h"
#include "optim/losses/kto.h"
#include "optim/losses/preference.h"

/* A file's tensors, [documents][width]; of pairs all chosen answers, then all rejected ones. */
static const struct family {
    const char *name, *scored, *share; /* masks of tokens; share NULL: as scored */
    bool reference, rated;             /* rated: no pairs, but a label each */
} families[] = {
    {"dpo", "mask", NULL, true, false},
    {"orpo", "all_mask", "completion_mask", false, false},
    {"cpo", "completion_mask", NULL, false, false},
    {"kto", "mask", NULL, true, true},
};

struct documents {
    struct ax_golden_report *report;
    const struct family *family;
    const struct ax_safetensors *st;
    enum ax_dtype dtype;
    struct ax_golden_tensor logps, reference, scored, share, want;
    struct ax_golden_tensor label, kl_logps, kl_reference; /* of rated documents */
    struct ax_preference_options options;                  /* of the case */
    struct ax_kto_options rated;
    double kl;
    const char *name;
    double loss;
    int64_t n_rows; /* scored tokens */
};

/* Row of the file of document d: pairs follow each other in a batch. */
static int64_t row_of(const struct documents *c, int64_t d) {
    return c->family->rated ? d : d % 2 * (c->logps.shape[0] / 2) + d / 2;
}

static bool is_scored(const struct documents *c, int64_t row, int64_t t) {
    return c->scored.v[row * c->logps.shape[1] + t] != 0;
}

/* Documents of one token more than they have labels. */
static enum ax_status fill(const struct documents *c, struct ax_queue *q, struct ax_batch *b) {
    const int64_t n = c->logps.shape[0], width = c->logps.shape[1], each = width + 1;
    struct ax_document *docs;
    int32_t *ids;   /* [2][n][each]: tokens, labels; [n] desirable */
    float *columns; /* [n] reference, [n][each] share */
    AX_TRY(ax_alloc(&docs, (size_t)n, sizeof *docs));
    AX_TRY(ax_alloc(&ids, (size_t)(2 * n * each + n), sizeof *ids));
    AX_TRY(ax_alloc(&columns, (size_t)(n + n * each), sizeof *columns));
    for (int64_t d = 0; d < n; d++) {
        const int64_t row = row_of(c, d);
        int32_t *labels = ids + (n + d) * each;
        int32_t *desirable = ids + 2 * n * each + d;
        float *share = columns + n + d * each;
        *desirable = c->family->rated && c->label.v[d] != 0;
        for (int64_t t = 0; t < each; t++) {
            labels[t] = t < width && is_scored(c, row, t) ? 0 : -1;
            share[t] = t < width ? (float)(c->share.v ? c->share.v[row * width + t] : 1) : 0;
            if (t < width && c->reference.v)
                columns[d] +=
                    (float)(c->reference.v[row * width + t] * c->scored.v[row * width + t]);
        }
        docs[d] = (struct ax_document){
            .n = each,
            .tokens = ids + d * each,
            .labels = labels,
            .columns = {(const uint32_t *)(columns + d),
                        c->family->rated ? (const uint32_t *)desirable : (const uint32_t *)share}};
    }
    const enum ax_status st = ax_batch_fill(b, q, 1, (int)n, docs);
    ax_free(docs);
    ax_free(ids);
    ax_free(columns);
    return st;
}

/* Values of the file's rows where the batch lists them. */
static enum ax_status in_order(const struct documents *c, const double *values, double **out) {
    int64_t k = 0;
    AX_TRY(ax_alloc(out, (size_t)c->logps.numel, sizeof **out));
    for (int64_t d = 0; d < c->logps.shape[0]; d++)
        for (int64_t t = 0; t < c->logps.shape[1]; t++)
            if (is_scored(c, row_of(c, d), t))
                (*out)[k++] = values[row_of(c, d) * c->logps.shape[1] + t];
    return AX_OK;
}

static enum ax_status compare(struct documents *c, struct ax_runtime *rt, const struct ax_tensor *g,
                              const struct ax_step_scalars AX_DEVICE *scalars) {
    struct ax_step_scalars now;
    double *got = NULL, *want = NULL, largest = 0;
    char group[80];
    enum ax_status st;
    AX_TRY(ax_queue_read(rt->q, scalars, &now, sizeof now, NULL));
    snprintf(group, sizeof group, "%s loss (relative)", c->family->name);
    ax_golden_note(c->report, group, fabs(now.loss - c->loss) / fabs(c->loss),
                   AX_GOLDEN_OBJECTIVE_TOLERANCE, c->name);
    AX_TRY_GOTO(ax_golden_values(rt->q, g, &got), st, done);
    AX_TRY_GOTO(in_order(c, c->want.v, &want), st, done);
    for (int64_t i = 0; i < c->n_rows; i++)
        largest = fmax(largest, fabs(want[i]));
    snprintf(group, sizeof group, "%s gradient", c->family->name);
    ax_golden_note(c->report, group, ax_golden_max_abs(got, want, c->n_rows) / fmax(largest, 1e-2),
                   AX_GOLDEN_OBJECTIVE_TOLERANCE, c->name);
done:
    ax_free(got);
    ax_free(want);
    return st;
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct documents *c = ctx;
    const int64_t n = c->logps.shape[0], tokens = n * (c->logps.shape[1] + 1);
    struct ax_model model = {.rt = rt};
    struct ax_batch batch;
    struct ax_preference preference;
    struct ax_kto kto;
    const struct ax_objective o = c->family->rated
                                      ? ax_objective_kto(&kto, &c->rated)
                                      : ax_objective_preference(&preference, c->name, &c->options);
    ax_batch_allocate(&batch, &rt->arena.persistent, tokens, n, tokens, 1, 0);
    ax_batch_add_columns(&batch, &rt->arena.persistent, o.columns);
    AX_TRY(fill(c, rt->q, &batch));
    const int64_t rows = ax_runtime_planning(rt) ? tokens : c->n_rows;
    struct ax_step_scalars AX_DEVICE *scalars =
        ax_stack_push(&rt->arena.persistent, "objective check", sizeof *scalars);
    struct ax_step_measures AX_DEVICE *measures =
        ax_stack_push(&rt->arena.persistent, "objective check", sizeof *measures);
    struct ax_head_chunk chunk = {.n = rows};
    struct ax_tensor *const values[] = {&chunk.logprob, &chunk.lse, &chunk.entropy,
                                        &chunk.mean_logprob, &chunk.g_logprob};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        *values[i] = ax_golden_row(rt, c->dtype, tokens);
        values[i]->shape[0] = rows;
        AX_TRY(ax_run_fill(rt->q, &(struct ax_fill){*values[i], 0}));
    }
    double *logps = NULL;
    enum ax_status st = AX_OK;
    if (!ax_runtime_planning(rt)) {
        const struct ax_step_scalars now = {.inv_weight = (c->family->rated ? 1 : 2) / (double)n};
        const struct ax_step_measures sums = {.tokens = (double)batch.side_trained[0], .kl = c->kl};
        AX_TRY(ax_queue_write(rt->q, scalars, &now, sizeof now));
        AX_TRY(ax_queue_write(rt->q, measures, &sums, sizeof sums));
        AX_TRY(in_order(c, c->logps.v, &logps));
        st = ax_tensor_write(rt->q, &chunk.logprob, AX_F64, logps);
        ax_free(logps);
    }
    struct ax_pass p = {.model = &model, .batch = &batch, .scalars = scalars, .measures = measures};
    if (st == AX_OK)
        st = o.head.token_grad(o.head.ctx, &p, &chunk);
    if (st == AX_OK && !ax_runtime_planning(rt))
        st = compare(c, rt, &chunk.g_logprob, scalars);
    return st;
}

/* ---- cases ---- */

/* The terms of a case: its `loss` and, where the family has one, the mean −log-prob of what was
 * chosen. */
static enum ax_status read_case(struct documents *c, struct ax_json e) {
    struct ax_preference_options *o = &c->options;
    const char *loss;
    double gamma;
    *o = (struct ax_preference_options){.reference = c->family->reference,
                                        .shares = c->family->share != NULL};
    AX_TRY(ax_json_str(ax_json_get(e, "name"), &c->name));
    AX_TRY(ax_json_f64(ax_json_get(ax_json_get(e, "expect"), "loss"), &c->loss));
    AX_TRY(ax_json_f64(ax_json_get(e, "beta"), &o->beta));
    AX_TRY(ax_json_f64_or(ax_json_get(e, "label_smoothing"), 0, &o->label_smoothing));
    AX_TRY(ax_json_f64_or(ax_json_get(e, "gamma"), 0, &gamma));
    AX_TRY(ax_json_str_or(ax_json_get(e, "loss"), "odds_ratio", &loss));
    o->mean = strcmp(loss, "simpo") == 0 || strcmp(loss, "odds_ratio") == 0;
    o->gamma = gamma;
    const int term = ax_preference_term_find(strcmp(loss, "simpo") == 0 ? "sigmoid" : loss);
    if (term < 0)
        return ax_json_error(ax_json_get(e, "loss"), "no loss of pairs is called %s", loss);
    o->weight[term] = 1;
    return ax_json_f64_or(ax_json_get(e, "cpo_alpha"), term == AX_PREFER_ODDS_RATIO,
                          &o->weight[AX_PREFER_SFT]);
}

static enum ax_status read_rated(struct documents *c, struct ax_json e) {
    struct ax_kto_options *o = &c->rated;
    const char *loss;
    double shift;
    AX_TRY(ax_json_str(ax_json_get(e, "name"), &c->name));
    AX_TRY(ax_json_f64(ax_json_get(ax_json_get(e, "expect"), "loss"), &c->loss));
    AX_TRY(ax_json_f64(ax_json_get(e, "beta"), &o->beta));
    AX_TRY(ax_json_f64(ax_json_get(e, "desirable_weight"), &o->desirable_weight));
    AX_TRY(ax_json_f64(ax_json_get(e, "undesirable_weight"), &o->undesirable_weight));
    AX_TRY(ax_json_f64_or(ax_json_get(e, "kl_shift"), 0, &shift));
    AX_TRY(ax_json_str(ax_json_get(e, "loss"), &loss));
    o->apo_zero_unpaired = strcmp(loss, "apo_zero_unpaired") == 0;
    if (!o->apo_zero_unpaired && strcmp(loss, "kto") != 0)
        return ax_json_error(ax_json_get(e, "loss"), "no loss of rated answers is called %s", loss);
    c->kl = shift;
    for (int64_t i = 0; i < c->kl_logps.numel; i++)
        c->kl += (c->kl_logps.v[i] - c->kl_reference.v[i]) / (double)c->kl_logps.numel;
    return AX_OK;
}

static enum ax_status run_case(struct documents *c, struct ax_json e,
                               const struct ax_runtime_options *ro) {
    char name[128];
    AX_TRY(c->family->rated ? read_rated(c, e) : read_case(c, e));
    snprintf(name, sizeof name, "%s.grad.logps", c->name);
    AX_TRY(ax_golden_read(c->st, name, &c->want));
    if (c->want.numel != c->logps.numel) {
        ax_golden_tensor_free(&c->want);
        return ax_error(AX_ERR_DATA, "%s: %s: the shape does not match", c->st->path, name);
    }
    const enum ax_status st = ax_runtime_run(ro, body, c, NULL);
    ax_golden_tensor_free(&c->want);
    return st;
}

static enum ax_status run(struct ax_golden_report *r, const char *path, struct ax_json root,
                          const struct ax_golden_options *o, const void *ctx) {
    const struct family *f = ctx;
    struct ax_safetensors st;
    AX_TRY(ax_safetensors_open(&st, path));
    struct documents c = {.report = r,
                          .family = f,
                          .st = &st,
                          .dtype = strcmp(o->backend, "ref") == 0 ? AX_F64 : AX_F32};
    const struct ax_runtime_options ro = {.backend = o->backend, .threads = o->threads};
    struct {
        const char *name;
        struct ax_golden_tensor *to;
        bool per_document; /* [n] */
    } const inputs[] = {{"logps", &c.logps, false},
                        {f->scored, &c.scored, false},
                        {f->share, &c.share, false},
                        {f->reference ? "ref_logps" : NULL, &c.reference, false},
                        {f->rated ? "label" : NULL, &c.label, true},
                        {f->rated ? "kl_logps" : NULL, &c.kl_logps, true},
                        {f->rated ? "kl_ref_logps" : NULL, &c.kl_reference, true}};
    enum ax_status status;
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        if (inputs[i].name)
            AX_TRY_GOTO(ax_golden_read(&st, inputs[i].name, inputs[i].to), status, done);
    bool match = c.logps.ndim == 2 && (f->rated || c.logps.shape[0] % 2 == 0);
    for (size_t i = 0; match && i < sizeof inputs / sizeof *inputs; i++)
        match = !inputs[i].name ||
                inputs[i].to->numel == (inputs[i].per_document ? c.logps.shape[0] : c.logps.numel);
    if (!match)
        AX_TRY_GOTO(ax_error(AX_ERR_DATA, "%s: input shapes do not match", path), status, done);
    for (int64_t i = 0; i < c.scored.numel; i++)
        c.n_rows += c.scored.v[i] != 0;
    const struct ax_json cases = ax_json_get(root, "cases");
    for (size_t i = 0; i < ax_json_size(cases); i++)
        AX_TRY_GOTO(run_case(&c, ax_json_at(cases, i), &ro), status, done);
done:
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        ax_golden_tensor_free(inputs[i].to);
    ax_safetensors_close(&st);
    return status;
}

bool ax_golden_documents(struct ax_golden_report *r, const char *dir,
                         const struct ax_golden_options *o) {
    bool found = false;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        found |= ax_golden_objective(r, dir, families[i].name, o, run, &families[i]);
    return found;
}
