/* optim/: optimizers and clipping, step by step, on the backend's ops. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/mem.h"
#include "tests/goldens/optim.h"
#include "optim/optimizers/optimizer.h"

struct optim_case {
    struct ax_golden_report *report;
    const struct ax_safetensors *st;
    enum ax_dtype dtype;
    const struct ax_optimizer *optimizer;
    struct ax_optimizer_options o;
    double lr;
    double allowed, tolerance; /* as in the table, and in units of the parameters */
    const char *name, *tensor;
};

static void plain(struct ax_optimizer_options *o) {
    (void)o;
}

static void nesterov(struct ax_optimizer_options *o) {
    o->nesterov = true;
}

static void match_rms(struct ax_optimizer_options *o) {
    o->match_rms = true;
}

static void torch_rule(struct ax_optimizer_options *o) {
    o->torch_rule = true;
    o->eps = 0x1p-23;
}

/* The optimizer of each case in optim.json, and its settings that the case does not give. For
 * Muon, the file's Newton–Schulz ran in bfloat16, so the tolerance is a share of the adjusted
 * learning rate. */
static const struct {
    const char *name, *optimizer;
    void (*set)(struct ax_optimizer_options *o);
    double tolerance;
} known[] = {
    {"adamw", "adamw", plain, AX_GOLDEN_OPTIM_TOLERANCE},
    {"adam_no_decay", "adamw", plain, AX_GOLDEN_OPTIM_TOLERANCE},
    {"sgd_nesterov", "sgd", nesterov, AX_GOLDEN_OPTIM_TOLERANCE},
    {"lion", "lion", plain, AX_GOLDEN_OPTIM_TOLERANCE},
    {"muon", "muon", nesterov, 0.05},
    {"muon_match_rms", "muon", match_rms, 0.05},
    {"adafactor", "adafactor", torch_rule, AX_GOLDEN_OPTIM_TOLERANCE},
    {"adafactor_hf", "adafactor", plain, AX_GOLDEN_OPTIM_TOLERANCE},
};

static enum ax_status compare(const struct optim_case *c, struct ax_queue *q,
                              const struct ax_tensor *got, const double *want, int step) {
    double worst = 0, *values = NULL;
    const enum ax_status st = ax_golden_values(q, got, &values);
    for (int64_t i = 0; st == AX_OK && i < ax_tensor_numel(got); i++) {
        const double d = fabs(values[i] - want[i]);
        worst = d <= worst ? worst : d;
    }
    ax_free(values);
    AX_TRY(st);
    char where[64];
    snprintf(where, sizeof where, "%s step %d", c->tensor, step);
    ax_golden_note(c->report, c->name, worst, c->tolerance, where);
    return AX_OK;
}

/* The adjusted learning rate of Muon. */
static double muon_rate(const struct optim_case *c, const struct ax_piece *p) {
    const double rows = (double)p->rows, cols = (double)p->cols;
    return c->lr * (c->o.match_rms ? 0.2 * sqrt(fmax(rows, cols)) : sqrt(fmax(1, rows / cols)));
}

static enum ax_status run_steps(struct ax_runtime *rt, struct optim_case *c,
                                const struct ax_golden_tensor *in,
                                const struct ax_golden_tensor *grad,
                                const struct ax_golden_tensor *want) {
    struct ax_update u = {.master = ax_golden_take(rt, c->dtype, in->numel),
                          .grad = ax_golden_take(rt, c->dtype, in->numel),
                          .weight_decay = c->o.weight_decay};
    u.piece = (struct ax_piece){.n = in->numel, .accum = c->dtype, .hidden = in->ndim == 2};
    if (in->ndim == 2) {
        u.piece.rows = in->shape[0];
        u.piece.cols = in->shape[1];
    }
    c->tolerance = c->allowed * (c->optimizer == &ax_optimizer_muon ? muon_rate(c, &u.piece) : 1);
    struct ax_slot_size slots[AX_MAX_STATE];
    const int n = c->optimizer->slots(&c->o, &u.piece, slots);
    for (int k = 0; k < n; k++)
        u.state[k] = ax_golden_take(rt, slots[k].dtype, slots[k].numel);
    struct ax_step_scalars AX_DEVICE *scalars =
        ax_stack_push(&rt->arena.persistent, "optimizer check", sizeof *scalars);
    u.scalars = scalars;
    AX_TRY(ax_golden_put(rt, &u.master, in->v));
    for (int64_t t = 0; t < want->shape[0]; t++) {
        const struct ax_step_scalars now = {.lr = c->lr, .clip = 1, .inv_weight = 1, .step = t + 1};
        AX_TRY(ax_queue_write(rt->q, scalars, &now, sizeof now));
        AX_TRY(ax_golden_put(rt, &u.grad, grad->v + t * in->numel));
        AX_TRY(c->optimizer->update(rt->q, &c->o, &u));
        if (!ax_runtime_planning(rt))
            AX_TRY(compare(c, rt->q, &u.master, want->v + t * in->numel, (int)t + 1));
    }
    return AX_OK;
}

static enum ax_status optim_body(struct ax_runtime *rt, void *ctx) {
    struct optim_case *c = ctx;
    struct ax_golden_tensor in = {0}, grad = {0}, want = {0};
    char key[128];
    enum ax_status st;
    snprintf(key, sizeof key, "in.%s", c->tensor);
    AX_TRY_GOTO(ax_golden_read(c->st, key, &in), st, done);
    snprintf(key, sizeof key, "grad.%s", c->tensor);
    AX_TRY_GOTO(ax_golden_read(c->st, key, &grad), st, done);
    snprintf(key, sizeof key, "%s.%s", c->name, c->tensor);
    AX_TRY_GOTO(ax_golden_read(c->st, key, &want), st, done);
    if (want.ndim < 1 || want.numel != want.shape[0] * in.numel || grad.numel != want.numel)
        AX_TRY_GOTO(ax_error(AX_ERR_DATA, "%s: %s does not match its inputs", c->st->path, key), st,
                    done);
    AX_TRY_GOTO(run_steps(rt, c, &in, &grad, &want), st, done);
done:
    ax_golden_tensor_free(&in);
    ax_golden_tensor_free(&grad);
    ax_golden_tensor_free(&want);
    return st;
}

/* Reads the numbers that the case gives; the others keep the optimizer's defaults. */
static enum ax_status read_params(struct optim_case *c, struct ax_json v) {
    const struct ax_json p = ax_json_get(v, "params");
    struct ax_optimizer_options *o = &c->o;
    AX_TRY(ax_json_f64(ax_json_get(p, "lr"), &c->lr));
    AX_TRY(ax_json_f64_or(ax_json_get(p, "beta1"), o->beta1, &o->beta1));
    AX_TRY(ax_json_f64_or(ax_json_get(p, "beta2"), o->beta2, &o->beta2));
    AX_TRY(ax_json_f64_or(ax_json_get(p, "eps2"), o->eps2, &o->eps2));
    AX_TRY(ax_json_f64_or(ax_json_get(p, "d"), o->clip_threshold, &o->clip_threshold));
    AX_TRY(ax_json_f64_or(ax_json_get(p, "momentum"), o->momentum, &o->momentum));
    if (c->optimizer == &ax_optimizer_adamw)
        AX_TRY(ax_json_f64(ax_json_get(p, "eps"), &o->eps));
    return ax_json_f64_or(ax_json_get(p, "weight_decay"), 0, &o->weight_decay);
}

static enum ax_status optimizer_case(struct optim_case *c, struct ax_json v,
                                     const struct ax_runtime_options *ro) {
    AX_TRY(ax_json_str(ax_json_get(v, "name"), &c->name));
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i].name, c->name) != 0)
            continue;
        AX_TRY(ax_optimizer_find(known[i].optimizer, &c->optimizer, &c->o));
        known[i].set(&c->o);
        c->allowed = known[i].tolerance;
        AX_TRY(read_params(c, v));
        const struct ax_json tensors = ax_json_get(v, "tensors");
        for (size_t k = 0; k < ax_json_size(tensors); k++) {
            AX_TRY(ax_json_str(ax_json_at(tensors, k), &c->tensor));
            AX_TRY(ax_runtime_run(ro, optim_body, c, NULL));
        }
        return AX_OK;
    }
    printf("  not checked: optimizer %s is not implemented\n", c->name);
    return AX_OK;
}

static enum ax_status run_all(struct ax_golden_report *r, const char *dir,
                              const struct ax_json_doc *doc, const struct ax_golden_options *o) {
    struct ax_safetensors st;
    char path[4096];
    snprintf(path, sizeof path, "%s/optim.safetensors", dir);
    AX_TRY(ax_safetensors_open(&st, path));
    const struct ax_runtime_options ro = {.backend = o->backend, .threads = o->threads};
    const enum ax_dtype dtype = strcmp(o->backend, "ref") == 0 ? AX_F64 : AX_F32;
    const struct ax_json root = ax_json_root(doc);
    const struct ax_json cases = ax_json_get(root, "cases"), clips = ax_json_get(root, "clip");
    enum ax_status status = AX_OK;
    for (size_t i = 0; i < ax_json_size(cases) && status == AX_OK; i++) {
        struct optim_case c = {.report = r, .st = &st, .dtype = dtype};
        status = optimizer_case(&c, ax_json_at(cases, i), &ro);
    }
    for (size_t i = 0; i < ax_json_size(clips) && status == AX_OK; i++) {
        struct ax_golden_clip c = {.report = r, .st = &st, .dtype = dtype};
        status = ax_golden_clip_run(&c, ax_json_at(clips, i), &ro);
    }
    if (status == AX_OK)
        status = ax_golden_newton_schulz(r, &st, &ro, dtype);
    if (status == AX_OK)
        status = ax_golden_adamw_8bit(r, dir, ax_json_get(root, "adamw8bit"), &ro, dtype);
    ax_safetensors_close(&st);
    return status;
}

bool ax_golden_optim(struct ax_golden_report *r, const char *dir,
                     const struct ax_golden_options *o) {
    char path[4096];
    snprintf(path, sizeof path, "%s/optim.json", dir);
    if (!ax_path_exists(path))
        return false;
    struct ax_json_doc doc = {0};
    snprintf(r->title, sizeof r->title, "%s backend=%s", path, o->backend);
    if (ax_json_load(&doc, path, 16u << 20) != AX_OK || run_all(r, dir, &doc, o) != AX_OK)
        ax_golden_error(r, path);
    ax_golden_flush(r);
    ax_json_free(&doc);
    return true;
}
