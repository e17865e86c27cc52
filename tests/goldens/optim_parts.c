/* Clipping, Newton–Schulz and 8-bit moments against the optimizer files. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/mem.h"
#include "tests/goldens/optim.h"
#include "kernels/transfer.h"
#include "optim/optimizers/optimizer.h"

struct ax_tensor ax_golden_take(struct ax_runtime *rt, enum ax_dtype dtype, int64_t n) {
    struct ax_tensor t = ax_tensor_1d(dtype, NULL, n);
    t.data = ax_stack_push(&rt->arena.persistent, "optimizer check", ax_tensor_bytes(&t));
    return t;
}

enum ax_status ax_golden_put(struct ax_runtime *rt, const struct ax_tensor *dst, const double *v) {
    if (ax_runtime_planning(rt))
        return AX_OK;
    return ax_tensor_write(rt->q, dst, AX_F64, v);
}

/* Reads one tensor of the case, clip_NAME.in.PART, into *in and adds its squares to the sum. */
static enum ax_status add_part(struct ax_runtime *rt, const struct ax_golden_clip *c,
                               const char *part, struct ax_step_scalars AX_DEVICE *scalars,
                               struct ax_golden_tensor *in, struct ax_golden_tensor *out) {
    char key[128];
    snprintf(key, sizeof key, "clip_%s.in.%s", c->name, part);
    AX_TRY(ax_golden_read(c->st, key, in));
    snprintf(key, sizeof key, "clip_%s.out.%s", c->name, part);
    AX_TRY(ax_golden_read(c->st, key, out));
    if (in->numel != out->numel)
        return ax_error(AX_ERR_DATA, "%s: %s does not match its input", c->st->path, key);
    const struct ax_tensor g = ax_golden_take(rt, c->dtype, in->numel);
    AX_TRY(ax_golden_put(rt, &g, in->v));
    return ax_run_sumsq(rt->q, &(struct ax_sumsq){g, scalars});
}

static enum ax_status clip_body(struct ax_runtime *rt, void *ctx) {
    const struct ax_golden_clip *c = ctx;
    struct ax_step_scalars AX_DEVICE *scalars =
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
                           fabs(in[i].v[k] * now.clip - out[i].v[k]), AX_GOLDEN_OPTIM_TOLERANCE,
                           c->name);
    ax_golden_note(c->report, "clip norm (relative)",
                   fabs(now.grad_norm - c->norm) / fmax(c->norm, 1e-30), 1e-5, c->name);
done:
    for (int i = 0; i < 2; i++) {
        ax_golden_tensor_free(&in[i]);
        ax_golden_tensor_free(&out[i]);
    }
    return st;
}

enum ax_status ax_golden_clip_run(struct ax_golden_clip *c, struct ax_json v,
                                  const struct ax_runtime_options *ro) {
    AX_TRY(ax_json_str(ax_json_get(v, "name"), &c->name));
    AX_TRY(ax_json_f64(ax_json_get(v, "max_norm"), &c->max_norm));
    AX_TRY(ax_json_f64(ax_json_get(v, "norm"), &c->norm));
    return ax_runtime_run(ro, clip_body, c, NULL);
}

struct newton_schulz {
    struct ax_golden_report *report;
    struct ax_golden_tensor in, out;
    enum ax_dtype dtype;
};

/* The file's iteration starts from the matrix divided by its norm. */
static enum ax_status newton_schulz_body(struct ax_runtime *rt, void *ctx) {
    struct newton_schulz *c = ctx;
    struct ax_tensor x = ax_golden_take(rt, c->dtype, c->in.numel);
    const size_t n = (size_t)c->in.numel;
    double sum = 0, *values;
    AX_TRY(ax_alloc(&values, n, sizeof *values));
    for (size_t i = 0; i < n; i++)
        sum += c->in.v[i] * c->in.v[i];
    for (size_t i = 0; i < n; i++)
        values[i] = c->in.v[i] / sqrt(sum);
    enum ax_status st;
    AX_TRY_GOTO(ax_golden_put(rt, &x, values), st, done);
    x = ax_tensor_2d(x.dtype, x.data, c->in.shape[0], c->in.shape[1]);
    AX_TRY_GOTO(ax_muon_orthogonalize(rt->q, 5, &x), st, done);
    AX_TRY_GOTO(ax_tensor_read(rt->q, &x, AX_F64, values), st, done);
    for (size_t i = 0; !ax_runtime_planning(rt) && i < n; i++)
        ax_golden_note(c->report, "newton_schulz_fp32", fabs(values[i] - c->out.v[i]), 1e-5, "");
done:
    ax_free(values);
    return st;
}

enum ax_status ax_golden_newton_schulz(struct ax_golden_report *r, const struct ax_safetensors *st,
                                       const struct ax_runtime_options *ro, enum ax_dtype dtype) {
    struct newton_schulz c = {.report = r, .dtype = dtype};
    enum ax_status status;
    AX_TRY_GOTO(ax_golden_read(st, "newton_schulz_fp32.in", &c.in), status, done);
    AX_TRY_GOTO(ax_golden_read(st, "newton_schulz_fp32.out", &c.out), status, done);
    if (c.in.ndim != 2 || c.out.numel != c.in.numel)
        AX_TRY_GOTO(
            ax_error(AX_ERR_DATA, "%s: newton_schulz_fp32 is not a map of matrices", st->path),
            status, done);
    AX_TRY_GOTO(ax_runtime_run(ro, newton_schulz_body, &c, NULL), status, done);
done:
    ax_golden_tensor_free(&c.in);
    ax_golden_tensor_free(&c.out);
    return status;
}

enum { IN, GRAD, PARAM, M_CODES, V_CODES, M_SCALE, V_SCALE, N_TENSORS };
static const char *const tensor_names[N_TENSORS] = {"in",      "grad",     "param",   "m_codes",
                                                    "v_codes", "m_absmax", "v_absmax"};

struct adamw_8bit {
    struct ax_golden_report *report;
    struct ax_golden_tensor t[N_TENSORS];
    struct ax_optimizer_options o;
    double lr;
    enum ax_dtype dtype;
};

/* Share of elements that are not equal. */
static double unequal(const double *got, const struct ax_golden_tensor *want) {
    int64_t n = 0;
    for (int64_t i = 0; i < want->numel; i++)
        n += got[i] != want->v[i];
    return (double)n / (double)want->numel;
}

/* Codes and scales of both moments. In double, a value may be on the other side of the limit between
 * two codes than in the file's float32, so a few codes may differ. */
static enum ax_status compare_8bit(const struct adamw_8bit *c, struct ax_queue *q,
                                   const struct ax_update *u) {
    const bool exact = c->dtype == AX_F32;
    const double allowed = exact ? 0 : 1e-3;
    static const char *const moments[] = {"m", "v"};
    for (int k = 0; k < 4; k++) {
        const struct ax_golden_tensor *want = &c->t[M_CODES + k];
        double *got = NULL;
        const enum ax_status st = ax_golden_values(q, &u->state[k], &got);
        if (st == AX_OK && k < 2)
            ax_golden_note(c->report, "adamw8bit codes (share unequal)", unequal(got, want),
                           allowed, moments[k]);
        for (int64_t i = 0; st == AX_OK && k >= 2 && i < want->numel; i++)
            ax_golden_note(c->report, "adamw8bit scales (relative)", fabs(got[i] / want->v[i] - 1),
                           allowed, tensor_names[M_CODES + k]);
        ax_free(got);
        AX_TRY(st);
    }
    return AX_OK;
}

/* The file has the first step and the last. */
static enum ax_status compare_masters(const struct adamw_8bit *c, struct ax_queue *q,
                                      const struct ax_tensor *master, bool last) {
    const int64_t n = c->t[IN].numel;
    const double *want = c->t[PARAM].v + (last ? n : 0);
    double *got = NULL;
    const enum ax_status st = ax_golden_values(q, master, &got);
    for (int64_t i = 0; st == AX_OK && i < n; i++)
        ax_golden_note(c->report, "adamw8bit parameters", fabs(got[i] - want[i]),
                       AX_GOLDEN_OPTIM_TOLERANCE, last ? "last step" : "step 1");
    ax_free(got);
    return st;
}

static enum ax_status adamw_8bit_body(struct ax_runtime *rt, void *ctx) {
    struct adamw_8bit *c = ctx;
    const int64_t n = c->t[IN].numel, steps = c->t[GRAD].shape[0];
    struct ax_update u = {.master = ax_golden_take(rt, c->dtype, n),
                          .grad = ax_golden_take(rt, c->dtype, n),
                          .weight_decay = c->o.weight_decay,
                          .piece = {.n = n, .accum = c->dtype}};
    struct ax_slot_size slots[AX_MAX_STATE];
    const int n_slots = ax_optimizer_adamw.slots(&c->o, &u.piece, slots);
    for (int k = 0; k < n_slots; k++)
        u.state[k] = ax_golden_take(rt, slots[k].dtype, slots[k].numel);
    struct ax_step_scalars AX_DEVICE *scalars =
        ax_stack_push(&rt->arena.persistent, "optimizer check", sizeof *scalars);
    u.scalars = scalars;
    AX_TRY(ax_golden_put(rt, &u.master, c->t[IN].v));
    for (int64_t t = 0; t < steps; t++) {
        const struct ax_step_scalars now = {.lr = c->lr, .clip = 1, .inv_weight = 1, .step = t + 1};
        AX_TRY(ax_queue_write(rt->q, scalars, &now, sizeof now));
        AX_TRY(ax_golden_put(rt, &u.grad, c->t[GRAD].v + t * n));
        AX_TRY(ax_optimizer_adamw.update(rt->q, &c->o, &u));
        if ((t == 0 || t == steps - 1) && !ax_runtime_planning(rt))
            AX_TRY(compare_masters(c, rt->q, &u.master, t > 0));
    }
    return ax_runtime_planning(rt) ? AX_OK : compare_8bit(c, rt->q, &u);
}

static enum ax_status read_8bit(struct adamw_8bit *c, const struct ax_safetensors *st,
                                struct ax_json settings) {
    for (int k = 0; k < N_TENSORS; k++)
        AX_TRY(ax_golden_read(st, tensor_names[k], &c->t[k]));
    const int64_t n = c->t[IN].numel, blocks = n / AX_8BIT_BLOCK;
    if (n % AX_8BIT_BLOCK != 0 || c->t[GRAD].ndim < 1 ||
        c->t[GRAD].numel != n * c->t[GRAD].shape[0] || c->t[PARAM].numel != 2 * n ||
        c->t[M_CODES].numel != n || c->t[V_CODES].numel != n || c->t[M_SCALE].numel != blocks ||
        c->t[V_SCALE].numel != blocks)
        return ax_error(AX_ERR_DATA, "%s: tensor shapes do not match", st->path);
    ax_optimizer_adamw.defaults(&c->o);
    c->o.moments = AX_MOMENTS_8BIT;
    AX_TRY(ax_json_f64(ax_json_get(settings, "lr"), &c->lr));
    AX_TRY(ax_json_f64(ax_json_get(settings, "beta1"), &c->o.beta1));
    AX_TRY(ax_json_f64(ax_json_get(settings, "beta2"), &c->o.beta2));
    AX_TRY(ax_json_f64(ax_json_get(settings, "eps"), &c->o.eps));
    return ax_json_f64(ax_json_get(settings, "weight_decay"), &c->o.weight_decay);
}

enum ax_status ax_golden_adamw_8bit(struct ax_golden_report *r, const char *dir,
                                    struct ax_json settings, const struct ax_runtime_options *ro,
                                    enum ax_dtype dtype) {
    char path[4096];
    snprintf(path, sizeof path, "%s/adamw8bit.safetensors", dir);
    if (!ax_path_exists(path)) {
        ax_golden_absent(r, path, false);
        return AX_OK;
    }
    struct ax_safetensors st;
    AX_TRY(ax_safetensors_open(&st, path));
    struct adamw_8bit c = {.report = r, .dtype = dtype};
    enum ax_status status;
    AX_TRY_GOTO(read_8bit(&c, &st, settings), status, done);
    AX_TRY_GOTO(ax_runtime_run(ro, adamw_8bit_body, &c, NULL), status, done);
done:
    for (int k = 0; k < N_TENSORS; k++)
        ax_golden_tensor_free(&c.t[k]);
    ax_safetensors_close(&st);
    return status;
}
