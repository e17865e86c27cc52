/* Compares gradients of one batch, and AdamW steps on it, with the golden files. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "tests/goldens/digest.h"
#include "tests/goldens/model.h"
#include "optim/step/step.h"

#define ROW_TOLERANCE        1e-4 /* as forward.c */
#define LOSS_TOLERANCE       2e-5
#define LOSS_AFTER_TOLERANCE 1e-4
#define QAT_LOSS_TOLERANCE   2e-3
#define QAT_LATER_TOLERANCE  0.05 /* an ulp of a weight may decide its code; golden.json: noise */
#define GRAD_TOLERANCE       3e-5
#define NORM_TOLERANCE       1e-5 /* relative */
#define STEP_SHARE           1e-3 /* of the parameters may be further off than digest.c's STEP_CLOSE */

struct training {
    const struct ax_golden_case *c;
    struct ax_golden_docs docs;
    struct ax_step_options o;
    /* called on a filled step; must run the same device work while planning */
    enum ax_status (*work)(struct training *t, struct ax_step *s);
    const struct ax_safetensors *grads; /* gradients; NULL: only the loss is compared */
    bool routers_only, indexers_only;   /* the file has only their gradients */
    struct ax_json expect;              /* golden.json: batch | packed | train */
    const char *label;
    int n_steps;
};

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct training *t = ctx;
    struct ax_step s;
    AX_TRY(ax_step_create(&s, rt, &t->c->arch, &t->o));
    enum ax_status st;
    AX_TRY_GOTO(ax_golden_load(t->c, &s.model), st, done);
    AX_TRY_GOTO(
        ax_batch_fill(&s.batches[0], rt->q, s.model.arch.vocab_size, t->docs.n, t->docs.docs), st,
        done);
    AX_TRY_GOTO(t->work(t, &s), st, done);
done:
    ax_step_free(&s);
    return st;
}

/* Loads the batch of `batch_file` and runs `work` on it, planned and for real. */
static enum ax_status train_on(struct training *t, const char *batch_file) {
    char *path = NULL;
    AX_TRY(ax_golden_file(t->c, batch_file, &path));
    if (!path)
        return AX_OK;
    struct ax_safetensors golden;
    enum ax_status st = ax_safetensors_open(&golden, path);
    ax_free(path);
    AX_TRY(st);
    AX_TRY_GOTO(ax_golden_docs_read(&t->docs, &golden), st, done);
    t->o.model.dtype = t->c->dtype;
    t->o.model.adapter = t->c->peft ? &t->c->peft->config : NULL;
    t->o.model.qat = t->c->qat;
    if (!t->o.objective)
        t->o.objective = &ax_objective_sft;
    t->o.n_microbatches = 1;
    t->o.tokens = t->docs.tokens;
    t->o.n_docs = t->docs.n;
    t->o.max_len = t->docs.longest;
    const struct ax_runtime_options ro = {.backend = t->c->o->backend, .threads = t->c->o->threads};
    AX_TRY_GOTO(ax_runtime_run(&ro, body, t, NULL), st, done);
done:
    ax_golden_docs_free(&t->docs);
    ax_safetensors_close(&golden);
    return st;
}

static enum ax_status note_scalar(struct training *t, const char *group, const char *key,
                                  double got, bool relative, double tolerance) {
    double want;
    char name[80];
    AX_TRY(ax_json_f64(ax_json_get(t->expect, key), &want));
    tolerance = fmax(tolerance, relative ? 0 : ax_golden_half_place(want));
    snprintf(name, sizeof name, "%s %s", t->label, group);
    ax_golden_note(t->c->report, name, fabs(got - want) / (relative ? fabs(want) : 1), tolerance,
                   key);
    return AX_OK;
}

/* fp64_gap was measured on the padded batch; for the packed one, see ax_golden_packed_tolerance. */
static double gap_tolerance(const struct training *t, const char *key, double usual) {
    if (t->c->qat)
        return strcmp(key, "loss") == 0 ? QAT_LOSS_TOLERANCE : AX_GOLDEN_QAT_TOLERANCE;
    return strcmp(t->label, "batch") == 0
               ? ax_golden_recorded_tolerance(t->c, key, ax_golden_tolerance(t->c, key, usual))
               : usual;
}

/* Holds a gradient's norm against that of norms.json, or of golden.json for the long row. */
static enum ax_status compare_norm(struct training *t, const char *name, const double *got,
                                   int64_t n, double tolerance) {
    const char *what = strcmp(t->label, "batch") == 0    ? "grads"
                       : strcmp(t->label, "packed") == 0 ? "grads_packed"
                                                         : t->label;
    const struct ax_json v = ax_json_get(ax_golden_norms(t->c, what), name);
    double want, squares = 0;
    char group[80];
    if (!v.v)
        return AX_OK;
    AX_TRY(ax_json_f64(v, &want));
    for (int64_t i = 0; i < n; i++)
        squares += got[i] * got[i];
    const double off = fabs(sqrt(squares) - want);
    snprintf(group, sizeof group, "%s gradients' norms (relative)", t->label);
    ax_golden_note(t->c->report, group, off == 0 ? 0 : off / want, tolerance, name);
    return AX_OK;
}

static enum ax_status compare_gradients(struct training *t, const struct ax_model *m) {
    const bool row = strcmp(t->label, "packed") == 0 || strcmp(t->label, "long") == 0;
    const double tolerance = row ? ax_golden_packed_tolerance(t->c, GRAD_TOLERANCE)
                                 : gap_tolerance(t, "grads_worst_relative_norm", GRAD_TOLERANCE);
    /* what was measured of the golden itself is no loose bound, of which a digest may use a part */
    const bool measured = tolerance > GRAD_TOLERANCE;
    const double usual = measured ? INFINITY : GRAD_TOLERANCE;
    char group[80];
    snprintf(group, sizeof group, "%s gradients (relative)", t->label);
    for (int i = 0; i < m->n_params; i++) {
        const struct ax_param *p = &m->params[i];
        const struct ax_tensor grad = ax_model_grad(m, p);
        struct ax_golden_tensor want = {0};
        double *got = NULL;
        enum ax_status st;
        const bool router = strstr(p->name, ".gate.weight") || strstr(p->name, ".router.");
        if (!p->trainable || (t->routers_only && !router) ||
            (t->indexers_only && !strstr(p->name, ".indexer.")))
            continue;
        AX_TRY_GOTO(golden_read_form(t->grads, p->name, &want), st, next);
        AX_TRY_GOTO(ax_golden_values(m->rt->q, &grad, &got), st, next);
        if (!golden_fits(&want, ax_tensor_numel(&grad)))
            AX_TRY_GOTO(
                ax_error(AX_ERR_DATA, "%s: %s has a different size", t->grads->path, p->name), st,
                next);
        const struct golden_figure f = golden_relative(&want, got, tolerance, usual);
        ax_golden_note(t->c->report, group, f.figure, f.tolerance, p->name);
        AX_TRY_GOTO(compare_norm(t, p->name, got, want.numel, tolerance), st, next);
    next:
        ax_free(got);
        ax_golden_tensor_free(&want);
        if (st != AX_OK)
            return st;
    }
    return AX_OK;
}

static double norm_tolerance(const struct training *t) {
    return ax_golden_recorded_tolerance(t->c, "grads_worst_relative_norm", NORM_TOLERANCE);
}

static enum ax_status gradient_work(struct training *t, struct ax_step *s) {
    struct ax_step_result r;
    AX_TRY(ax_step_gradients(s, &r));
    if (ax_runtime_planning(s->rt))
        return AX_OK;
    if (t->grads)
        AX_TRY(compare_gradients(t, &s->model));
    if (!t->expect.v)
        return AX_OK;
    AX_TRY(note_scalar(t, "loss", "loss_mean", r.loss, false,
                       gap_tolerance(t, "loss", LOSS_TOLERANCE)));
    if (t->c->peft || t->c->qat) /* the file of the steps has the norm */
        return AX_OK;
    return note_scalar(t, "grad norm (relative)", "grad_norm", r.grad_norm, true,
                       strcmp(t->label, "batch") != 0
                           ? ax_golden_packed_tolerance(t->c, NORM_TOLERANCE)
                           : norm_tolerance(t));
}

enum ax_status ax_golden_gradients(const struct ax_golden_case *c, const char *batch_file,
                                   const char *grads_file, const char *key) {
    char *path = NULL;
    AX_TRY(ax_golden_file(c, grads_file, &path));
    if (!path && !c->peft)
        return AX_OK;
    struct ax_safetensors grads = {0};
    struct training t = {.c = c, .work = gradient_work, .label = key};
    t.o.optimizer = &ax_optimizer_sgd;
    if (c->golden.root)
        t.expect = c->peft || c->qat ? ax_json_root(&c->golden)
                                     : ax_json_get(ax_json_root(&c->golden), key);
    enum ax_status st = AX_OK;
    if (path) {
        st = ax_safetensors_open(&grads, path);
        t.grads = &grads;
    }
    ax_free(path);
    AX_TRY(st);
    st = train_on(&t, batch_file);
    ax_safetensors_close(&grads);
    return st;
}

/* Sets no gradient, so that all gradients come from the balancing loss. */
static enum ax_status no_gradient(void *ctx, struct ax_pass *p, const struct ax_head_chunk *c) {
    (void)ctx;
    return ax_run_fill(p->model->rt->q, &(struct ax_fill){c->g_logprob, 0});
}

static enum ax_status balance_work(struct training *t, struct ax_step *s) {
    struct ax_step_result r;
    AX_TRY(ax_step_gradients(s, &r));
    if (ax_runtime_planning(s->rt))
        return AX_OK;
    if (t->grads)
        AX_TRY(compare_gradients(t, &s->model));
    double want;
    AX_TRY(ax_json_f64(ax_json_get(t->expect, "value"), &want));
    ax_golden_note(t->c->report, "balancing loss", fabs(r.aux_loss - want), LOSS_TOLERANCE,
                   "value");
    return AX_OK;
}

/* transformers' balancing loss takes a softmax of the logits and its largest, even where experts are chosen
 * otherwise. No family here trains that. */
static bool balances_otherwise(const struct ax_arch *a) {
    return a->moe.routing.sigmoid || a->moe.names->bias;
}

enum ax_status ax_golden_balance(const struct ax_golden_case *c) {
    static const struct ax_objective nothing = {
        .name = "nothing", .head = {.linear = true, .token_grad = no_gradient}};
    char *path = NULL;
    if (c->arch.moe.n_experts == 0 || !c->golden.root)
        return AX_OK;
    AX_TRY(ax_golden_file(c, "aux_loss_router_grads.safetensors", &path));
    struct ax_safetensors grads = {0};
    struct training t = {
        .c = c, .work = balance_work, .grads = path ? &grads : NULL, .label = "balancing"};
    t.o.optimizer = &ax_optimizer_sgd;
    t.o.objective = &nothing;
    t.o.balance_coef = 1;
    t.routers_only = true;
    t.expect = ax_json_get(ax_json_root(&c->golden), "aux_loss");
    enum ax_status st = path ? ax_safetensors_open(&grads, path) : AX_OK;
    ax_free(path);
    AX_TRY(st);
    if (t.expect.v && !balances_otherwise(&c->arch))
        st = train_on(&t, "forward.safetensors");
    ax_safetensors_close(&grads);
    return st;
}

/* ---- the loss of indexers ---- */

static enum ax_status indexers_work(struct training *t, struct ax_step *s) {
    struct ax_step_result r;
    AX_TRY(ax_step_gradients(s, &r));
    if (ax_runtime_planning(s->rt))
        return AX_OK;
    AX_TRY(compare_gradients(t, &s->model));
    AX_TRY(note_scalar(t, "divergence", "kl", r.index_loss, false, LOSS_TOLERANCE));
    return note_scalar(t, "grad norm (relative)", "grad_norm", r.grad_norm, true, NORM_TOLERANCE);
}

static enum ax_status train_indexers(const struct ax_golden_case *c, struct ax_json all,
                                     enum ax_indexer_mode mode) {
    static const char *const keys[] = {
        [AX_INDEXERS_WARM_UP] = "warm_up", [AX_INDEXERS_SPARSE] = "sparse"};
    struct ax_safetensors grads;
    char label[40], file[60], *path = NULL;
    snprintf(label, sizeof label, "indexers' %s", keys[mode]);
    snprintf(file, sizeof file, "grads_indexers_%s.safetensors", keys[mode]);
    AX_TRY(ax_golden_file(c, file, &path));
    if (!path)
        return ax_error(AX_ERR_DATA, "%s: %s is missing", c->dir, file);
    enum ax_status st = ax_safetensors_open(&grads, path);
    ax_free(path);
    AX_TRY(st);
    struct training t = {.c = c,
                         .work = indexers_work,
                         .grads = &grads,
                         .indexers_only = true,
                         .expect = ax_json_get(all, keys[mode]),
                         .label = label};
    t.o.optimizer = &ax_optimizer_sgd;
    t.o.index_coef = 1;
    t.o.model.indexers = mode;
    st = train_on(&t, "packed.safetensors");
    ax_safetensors_close(&grads);
    return st;
}

enum ax_status ax_golden_indexers(const struct ax_golden_case *c) {
    const struct ax_json expect =
        c->golden.root ? ax_json_get(ax_json_root(&c->golden), "indexers") : (struct ax_json){0};
    if (!expect.v || c->peft || c->qat)
        return AX_OK;
    AX_TRY(train_indexers(c, expect, AX_INDEXERS_WARM_UP));
    return train_indexers(c, expect, AX_INDEXERS_SPARSE);
}

/* ---- multi-token prediction ---- */

/* The layer's outputs [tokens][D] as the head reads them. */
struct ahead_rows {
    struct ax_queue *q;
    double *values;
    enum ax_status status;
};

static void see_ahead(void *ctx, const char *what, int layer, const struct ax_tensor *t) {
    struct ahead_rows *a = ctx;
    (void)layer;
    if (strcmp(what, "ahead") == 0)
        a->status = ax_golden_values(a->q, t, &a->values);
}

/* The last row of a document has nothing to predict. */
static enum ax_status compare_ahead(const struct training *t, const struct ahead_rows *a) {
    struct ax_safetensors st;
    struct ax_golden_tensor want = {0};
    const int64_t D = t->c->arch.hidden_size;
    double worst = 0;
    char *path = NULL;
    AX_TRY(a->status);
    AX_TRY(ax_golden_file(t->c, "mtp.safetensors", &path));
    if (!path || !a->values)
        return ax_error(AX_ERR_FAILED, "%s: no outputs to compare", t->c->dir);
    enum ax_status status = ax_safetensors_open(&st, path);
    ax_free(path);
    AX_TRY(status);
    AX_TRY_GOTO(ax_golden_read(&st, "hidden_mtp", &want), status, done);
    if (want.numel != t->docs.tokens * D)
        AX_TRY_GOTO(ax_error(AX_ERR_DATA, "%s: hidden_mtp has a different size", st.path), status,
                    done);
    for (int i = 0, row = 0; i < t->docs.n; row += (int)t->docs.docs[i++].n)
        worst = ax_golden_worse(worst,
                                ax_golden_max_abs(a->values + row * D, want.v + t->docs.from[i] * D,
                                                  (t->docs.docs[i].n - 1) * D));
    ax_golden_note(t->c->report, "mtp outputs", worst, ROW_TOLERANCE, "hidden_mtp");
done:
    ax_golden_tensor_free(&want);
    ax_safetensors_close(&st);
    return status;
}

static enum ax_status mtp_work(struct training *t, struct ax_step *s) {
    struct ax_step_result r;
    struct ahead_rows seen = {.q = s->rt->q};
    const bool planning = ax_runtime_planning(s->rt);
    s->passes[0].tap = planning ? NULL : see_ahead;
    s->passes[0].tap_ctx = &seen;
    enum ax_status st = ax_step_gradients(s, &r);
    if (st != AX_OK || planning)
        return st;
    AX_TRY_GOTO(compare_ahead(t, &seen), st, done);
    AX_TRY_GOTO(compare_gradients(t, &s->model), st, done);
    AX_TRY_GOTO(note_scalar(t, "loss", "loss_mean", r.loss, false, LOSS_TOLERANCE), st, done);
    AX_TRY_GOTO(note_scalar(t, "loss ahead", "mtp_loss", r.mtp_loss, false, LOSS_TOLERANCE), st,
                done);
    st = note_scalar(t, "grad norm (relative)", "grad_norm", r.grad_norm, true, NORM_TOLERANCE);
done:
    ax_free(seen.values);
    return st;
}

/* Of the case with another architecture. */
static enum ax_status train_mtp(const struct ax_golden_case *c, struct ax_json expect) {
    struct training t = {.c = c, .work = mtp_work, .expect = expect, .label = "mtp"};
    struct ax_safetensors grads;
    char *path = NULL;
    t.o.optimizer = &ax_optimizer_sgd;
    AX_TRY(ax_json_f64(ax_json_get(expect, "weight"), &t.o.mtp_coef));
    AX_TRY(ax_golden_file(c, "grads_mtp.safetensors", &path));
    if (!path)
        return AX_OK;
    enum ax_status st = ax_safetensors_open(&grads, path);
    ax_free(path);
    AX_TRY(st);
    t.grads = &grads;
    st = train_on(&t, "packed.safetensors");
    ax_safetensors_close(&grads);
    return st;
}

enum ax_status ax_golden_mtp(const struct ax_golden_case *c) {
    const struct ax_json expect =
        c->golden.root ? ax_json_get(ax_json_root(&c->golden), "mtp") : (struct ax_json){0};
    struct ax_golden_case predicts = *c;
    if (!expect.v || c->peft || c->qat)
        return AX_OK;
    AX_TRY(ax_arch_load(&predicts.arch, c->dir));
    enum ax_status st = ax_arch_predict(&predicts.arch, "mtp");
    if (st == AX_OK)
        st = train_mtp(&predicts, expect);
    ax_arch_free(&predicts.arch);
    return st;
}

/* Compares the parameters after step `step` with params_stepN.safetensors. */
static enum ax_status compare_parameters(struct training *t, const struct ax_model *m, int step,
                                         double lr) {
    char name[64], key[64], *path = NULL;
    snprintf(name, sizeof name, "%s_step%d.safetensors", t->c->peft ? "adapter" : "params", step);
    AX_TRY(ax_golden_file(t->c, name, &path));
    if (!path)
        return AX_OK;
    struct ax_safetensors want;
    enum ax_status st = ax_safetensors_open(&want, path);
    ax_free(path);
    AX_TRY(st);
    struct golden_parameters all = {0};
    char where[AX_NAME_MAX] = "", where_projected[AX_NAME_MAX] = "";
    for (int i = 0; i < m->n_params && st == AX_OK; i++) {
        const struct ax_tensor value = ax_model_value(m, &m->params[i]);
        const struct golden_parameters before = all;
        struct ax_golden_tensor w = {0};
        double *got = NULL;
        if (!m->params[i].trainable)
            continue;
        st = golden_read_form(&want, m->params[i].name, &w);
        if (st == AX_OK && !golden_fits(&w, ax_tensor_numel(&value)))
            st = ax_error(AX_ERR_DATA, "%s: %s has a different size", want.path, m->params[i].name);
        if (st == AX_OK)
            st = ax_golden_values(m->rt->q, &value, &got);
        if (st == AX_OK)
            golden_compare_parameters(&all, &w, got);
        if (!(all.worst <= before.worst) && !isnan(before.worst))
            snprintf(where, sizeof where, "%s", m->params[i].name);
        if (!(all.worst_projection <= before.worst_projection) && !isnan(before.worst_projection))
            snprintf(where_projected, sizeof where_projected, "%s", m->params[i].name);
        ax_free(got);
        ax_golden_tensor_free(&w);
    }
    ax_safetensors_close(&want);
    AX_TRY(st);
    const double bound = 2 * lr * step;
    snprintf(name, sizeof name, "parameters after step %d", step);
    snprintf(key, sizeof key, "params_step%d_max", step);
    ax_golden_note(t->c->report, name, all.worst, ax_golden_tolerance(t->c, key, bound), where);
    if (all.digests)
        ax_golden_note(t->c->report, name, all.worst_projection, bound / 2, where_projected);
    snprintf(name, sizeof name, "share > 1e-5 after step %d", step);
    snprintf(key, sizeof key, "params_step%d_share_above_1e_5", step);
    /* ref's own tolerance is of a few elements, which draws do not count that exactly */
    ax_golden_note(t->c->report, name, golden_share_off(&all),
                   all.digests
                       ? STEP_SHARE
                       : ax_golden_share_tolerance(t->c, key, (int64_t)all.total, STEP_SHARE),
                   "");
    return AX_OK;
}

static enum ax_status read_settings(struct training *t, double *lr) {
    const struct ax_json s = ax_json_get(t->expect, "settings");
    t->o.optimizer = &ax_optimizer_adamw;
    AX_TRY(ax_json_f64(ax_json_get(s, "lr"), lr));
    AX_TRY(ax_json_f64(ax_json_get(s, "beta1"), &t->o.opt.beta1));
    AX_TRY(ax_json_f64(ax_json_get(s, "beta2"), &t->o.opt.beta2));
    AX_TRY(ax_json_f64(ax_json_get(s, "eps"), &t->o.opt.eps));
    AX_TRY(ax_json_f64(ax_json_get(s, "weight_decay"), &t->o.opt.weight_decay));
    AX_TRY(ax_json_f64(ax_json_get(s, "max_grad_norm"), &t->o.max_norm));
    int64_t steps;
    AX_TRY(ax_json_i64(ax_json_get(s, "steps"), 1, 1000, &steps));
    t->n_steps = (int)steps;
    return AX_OK;
}

/* Once weights have changed, those of a quantized model may have other codes. */
static double loss_tolerance(const struct training *t, int step) {
    if (t->c->qat)
        return step > 1 ? QAT_LATER_TOLERANCE : QAT_LOSS_TOLERANCE;
    return LOSS_AFTER_TOLERANCE;
}

static enum ax_status step_work(struct training *t, struct ax_step *s) {
    double lr, want;
    const bool planning = ax_runtime_planning(s->rt);
    AX_TRY(ax_json_f64(ax_json_get(ax_json_get(t->expect, "settings"), "lr"), &lr));
    for (int step = 1; step <= t->n_steps; step++) {
        struct ax_step_result r;
        AX_TRY(ax_step_run(s, lr, &r));
        if (planning)
            continue;
        char where[32];
        snprintf(where, sizeof where, "step %d", step);
        const struct ax_json row = ax_json_at(ax_json_get(t->expect, "steps"), (size_t)(step - 1));
        AX_TRY(ax_json_f64(ax_json_get(row, "loss"), &want));
        const bool later = t->c->qat && step > 1;
        ax_golden_note(t->c->report, later ? "loss of later steps" : "loss of each step",
                       fabs(r.loss - want), loss_tolerance(t, step), where);
        AX_TRY(ax_json_f64(ax_json_get(row, "grad_norm"), &want));
        if (step == 1)
            ax_golden_note(t->c->report, "grad norm (relative)", fabs(r.grad_norm - want) / want,
                           t->c->qat ? AX_GOLDEN_QAT_TOLERANCE : norm_tolerance(t), where);
        if (!t->c->qat && (step == 1 || step == t->n_steps))
            AX_TRY(compare_parameters(t, &s->model, step, lr));
    }
    struct ax_step_result after;
    AX_TRY(ax_step_gradients(s, &after));
    if (planning)
        return AX_OK;
    AX_TRY(ax_json_f64(ax_json_get(t->expect, "loss_after"), &want));
    /* this is the same sum as the first loss, so the larger of the two gaps measures its noise */
    const double first = ax_golden_tolerance(t->c, "loss", 0);
    const double usual = loss_tolerance(t, t->n_steps + 1);
    const double tolerance = ax_golden_tolerance(t->c, "loss_after_step5", usual);
    ax_golden_note(t->c->report, "loss after the steps", fabs(after.loss - want),
                   fmax(fmax(first, tolerance), ax_golden_half_place(want)), "loss_after");
    return AX_OK;
}

enum ax_status ax_golden_steps(const struct ax_golden_case *c) {
    if (!c->golden.root)
        return AX_OK;
    struct training t = {.c = c, .work = step_work};
    t.expect = ax_json_get(ax_json_root(&c->golden), "train");
    if (!t.expect.v)
        return AX_OK;
    double lr;
    AX_TRY(read_settings(&t, &lr));
    return train_on(&t, "forward.safetensors");
}

/* Compares bf16 compute with fp32 masters with the corresponding curve: within 1 % at each step. */
static enum ax_status bf16_work(struct training *t, struct ax_step *s) {
    double lr, want;
    struct ax_json settings =
        ax_json_get(ax_json_get(ax_json_root(&t->c->golden), "train"), "settings");
    AX_TRY(ax_json_f64(ax_json_get(settings, "lr"), &lr));
    const size_t n = ax_json_size(ax_json_get(t->expect, "steps"));
    for (size_t i = 0; i <= n; i++) {
        struct ax_step_result r;
        AX_TRY(i < n ? ax_step_run(s, lr, &r) : ax_step_gradients(s, &r));
        if (ax_runtime_planning(s->rt))
            continue;
        struct ax_json v = ax_json_get(ax_json_at(ax_json_get(t->expect, "steps"), i), "loss");
        if (i == n)
            v = ax_json_get(t->expect, "loss_after");
        AX_TRY(ax_json_f64(v, &want));
        char where[32];
        snprintf(where, sizeof where, i < n ? "step %zu" : "after step %zu", i < n ? i + 1 : n);
        ax_golden_note(t->c->report, "bf16 fp32_master loss (relative)", fabs(r.loss - want) / want,
                       0.01, where);
    }
    return AX_OK;
}

enum ax_status ax_golden_bf16(const struct ax_golden_case *c) {
    char *path = NULL;
    AX_TRY(ax_golden_file(c, "bf16.json", &path));
    if (!path || !c->golden.root) {
        ax_free(path);
        return AX_OK;
    }
    struct ax_json_doc doc = {0};
    struct training t = {.c = c, .work = bf16_work};
    double lr;
    enum ax_status st;
    AX_TRY_GOTO(ax_json_load(&doc, path, 1u << 20), st, done);
    t.expect = ax_json_get(ax_json_root(&c->golden), "train");
    AX_TRY_GOTO(read_settings(&t, &lr), st, done);
    t.expect = ax_json_get(ax_json_root(&doc), "fp32_master");
    AX_TRY_GOTO(train_on(&t, "forward.safetensors"), st, done);
done:
    ax_free(path);
    ax_json_free(&doc);
    return st;
}
