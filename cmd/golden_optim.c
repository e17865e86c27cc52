/* optim/: optimizers and clipping, step by step, on the backend's own ops. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/mem.h"
#include "cmd/golden.h"
#include "optim/optimizer.h"

#define DEMAND 1e-6

struct optim_case {
    struct ax_golden_report *report;
    const struct ax_safetensors *st;
    enum ax_dtype dtype;
    const struct ax_optimizer *optimizer;
    struct ax_optimizer_options o;
    double lr;
    const char *name, *tensor;
};

/* Which case of optim.json is which optimizer; the others are noted as not checked. */
static const struct {
    const char *name, *optimizer;
    bool nesterov;
} known[] = {
    {"adamw", "adamw", false}, {"adam_no_decay", "adamw", false}, {"sgd_nesterov", "sgd", true}};

static struct ax_tensor take(struct ax_runtime *rt, enum ax_dtype dtype, int64_t n) {
    struct ax_tensor t = ax_tensor_1d(dtype, NULL, n);
    t.data = ax_stack_push(&rt->arena.persistent, "optimizer check", ax_tensor_bytes(&t));
    return t;
}

static enum ax_status put(struct ax_runtime *rt, const struct ax_tensor *dst, const double *v) {
    if (ax_runtime_planning(rt))
        return AX_OK;
    ax_convert(dst->dtype, dst->data, AX_F64, v, ax_tensor_numel(dst));
    return AX_OK;
}

static void compare(const struct optim_case *c, const struct ax_tensor *got, const double *want,
                    const char *group, int step) {
    double worst = 0;
    for (int64_t i = 0; i < ax_tensor_numel(got); i++) {
        const double d = fabs(ax_load(got->dtype, got->data, i) - want[i]);
        worst = d <= worst ? worst : d;
    }
    char where[64];
    snprintf(where, sizeof where, "%s step %d", c->tensor, step);
    ax_golden_note(c->report, group, worst, DEMAND, where);
}

static enum ax_status run_steps(struct ax_runtime *rt, struct optim_case *c,
                                const struct ax_golden_tensor *in,
                                const struct ax_golden_tensor *grad,
                                const struct ax_golden_tensor *want) {
    struct ax_update u = {.master = take(rt, c->dtype, in->numel),
                          .grad = take(rt, c->dtype, in->numel),
                          .weight_decay = c->o.weight_decay};
    const char *slots[AX_MAX_STATE];
    const int n = c->optimizer->slots(&c->o, slots);
    for (int k = 0; k < n; k++)
        u.state[k] = take(rt, c->dtype, in->numel);
    struct ax_step_scalars *scalars =
        ax_stack_push(&rt->arena.persistent, "optimizer check", sizeof *scalars);
    u.scalars = scalars;
    AX_TRY(put(rt, &u.master, in->v));
    for (int64_t t = 0; t < want->shape[0]; t++) {
        const struct ax_step_scalars now = {.lr = c->lr, .clip = 1, .inv_weight = 1, .step = t + 1};
        AX_TRY(ax_queue_write(rt->q, scalars, &now, sizeof now));
        AX_TRY(put(rt, &u.grad, grad->v + t * in->numel));
        AX_TRY(c->optimizer->update(rt->q, &c->o, &u));
        if (!ax_runtime_planning(rt))
            compare(c, &u.master, want->v + t * in->numel, c->name, (int)t + 1);
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
        AX_TRY_GOTO(ax_error(AX_ERR_DATA, "%s: %s does not fit its inputs", c->st->path, key), st,
                    done);
    AX_TRY_GOTO(run_steps(rt, c, &in, &grad, &want), st, done);
done:
    ax_golden_tensor_free(&in);
    ax_golden_tensor_free(&grad);
    ax_golden_tensor_free(&want);
    return st;
}

static enum ax_status read_params(struct optim_case *c, struct ax_json v, bool nesterov) {
    const struct ax_json p = ax_json_get(v, "params");
    AX_TRY(ax_json_f64(ax_json_get(p, "lr"), &c->lr));
    AX_TRY(ax_json_f64_or(ax_json_get(p, "beta1"), 0, &c->o.beta1));
    AX_TRY(ax_json_f64_or(ax_json_get(p, "beta2"), 0, &c->o.beta2));
    AX_TRY(ax_json_f64_or(ax_json_get(p, "eps"), 0, &c->o.eps));
    AX_TRY(ax_json_f64_or(ax_json_get(p, "momentum"), 0, &c->o.momentum));
    c->o.nesterov = nesterov;
    return ax_json_f64_or(ax_json_get(p, "weight_decay"), 0, &c->o.weight_decay);
}

static enum ax_status optimizer_case(struct optim_case *c, struct ax_json v,
                                     const struct ax_runtime_options *ro) {
    AX_TRY(ax_json_str(ax_json_get(v, "name"), &c->name));
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i].name, c->name) != 0)
            continue;
        AX_TRY(ax_optimizer_find(known[i].optimizer, &c->optimizer));
        AX_TRY(read_params(c, v, known[i].nesterov));
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

struct clip_case {
    struct ax_golden_report *report;
    const struct ax_safetensors *st;
    enum ax_dtype dtype;
    const char *name;
    double max_norm, norm; /* norm: what is expected */
};

/* One tensor of the case: clip_NAME.in.PART into *in, and its squares into the sum. */
static enum ax_status add_part(struct ax_runtime *rt, const struct clip_case *c, const char *part,
                               struct ax_step_scalars *scalars, struct ax_golden_tensor *in,
                               struct ax_golden_tensor *out) {
    char key[128];
    snprintf(key, sizeof key, "clip_%s.in.%s", c->name, part);
    AX_TRY(ax_golden_read(c->st, key, in));
    snprintf(key, sizeof key, "clip_%s.out.%s", c->name, part);
    AX_TRY(ax_golden_read(c->st, key, out));
    if (in->numel != out->numel)
        return ax_error(AX_ERR_DATA, "%s: %s does not fit its input", c->st->path, key);
    const struct ax_tensor g = take(rt, c->dtype, in->numel);
    AX_TRY(put(rt, &g, in->v));
    return ax_run_sumsq(rt->q, &(struct ax_sumsq){g, scalars});
}

static enum ax_status clip_body(struct ax_runtime *rt, void *ctx) {
    const struct clip_case *c = ctx;
    struct ax_step_scalars *scalars =
        ax_stack_push(&rt->arena.persistent, "optimizer check", sizeof *scalars);
    struct ax_step_scalars now = {.inv_weight = 1, .max_norm = c->max_norm};
    static const char *const parts[] = {"matrix", "vector"};
    struct ax_golden_tensor in[2] = {0}, out[2] = {0};
    enum ax_status st;
    AX_TRY(ax_queue_write(rt->q, scalars, &now, sizeof now));
    for (int i = 0; i < 2; i++)
        AX_TRY_GOTO(add_part(rt, c, parts[i], scalars, &in[i], &out[i]), st, done);
    AX_TRY_GOTO(ax_run_clip(rt->q, &(struct ax_clip){scalars}), st, done);
    AX_TRY_GOTO(ax_queue_read(rt->q, scalars, &now, sizeof now, &now), st, done);
    if (ax_runtime_planning(rt))
        goto done;
    for (int i = 0; i < 2; i++)
        for (int64_t k = 0; k < in[i].numel; k++)
            ax_golden_note(c->report, "clipped gradients",
                           fabs(in[i].v[k] * now.clip - out[i].v[k]), DEMAND, c->name);
    ax_golden_note(c->report, "clip norm (relative)",
                   fabs(now.grad_norm - c->norm) / fmax(c->norm, 1e-30), 1e-5, c->name);
done:
    for (int i = 0; i < 2; i++) {
        ax_golden_tensor_free(&in[i]);
        ax_golden_tensor_free(&out[i]);
    }
    return st;
}

static enum ax_status run_clip(struct clip_case *c, struct ax_json v,
                               const struct ax_runtime_options *ro) {
    AX_TRY(ax_json_str(ax_json_get(v, "name"), &c->name));
    AX_TRY(ax_json_f64(ax_json_get(v, "max_norm"), &c->max_norm));
    AX_TRY(ax_json_f64(ax_json_get(v, "norm"), &c->norm));
    return ax_runtime_run(ro, clip_body, c, NULL);
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
        struct clip_case c = {.report = r, .st = &st, .dtype = dtype};
        status = run_clip(&c, ax_json_at(clips, i), &ro);
    }
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
