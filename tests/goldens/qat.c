/* quant/: a linear layer, and a model, trained with fake quantization. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/mem.h"
#include "tests/goldens/model.h"
#include "tests/goldens/objectives.h"
#include "tests/goldens/optim.h"
#include "kernels/quant/scheme.h"

#define MAX_JSON         (64u << 20)
#define LINEAR_TOLERANCE 1e-6 /* of the largest number */

/* ---- a linear layer ---- */

struct linear_case {
    struct ax_golden_report *report;
    const struct ax_safetensors *st;
    const char *name;
    enum ax_quant kind;
    int64_t block;
};

static enum ax_status input(const struct linear_case *c, struct ax_runtime *rt, const char *name,
                            struct ax_tensor *out) {
    struct ax_golden_tensor in = {0};
    AX_TRY(ax_golden_read(c->st, name, &in));
    *out = ax_golden_rows(rt, AX_F32, in.shape[0], in.ndim > 1 ? in.shape[1] : 1);
    const enum ax_status st = ax_golden_put(rt, out, in.v);
    if (in.ndim == 1)
        *out = ax_tensor_1d(AX_F32, out->data, in.numel);
    ax_golden_tensor_free(&in);
    return st;
}

/* The values of x, with the range of all of it where the format has one. */
static enum ax_status values(const struct linear_case *c, struct ax_runtime *rt,
                             const struct ax_tensor *x, struct ax_tensor *y) {
    *y = ax_golden_rows(rt, AX_F32, x->shape[0], x->shape[1]);
    struct ax_fake_quantize f = {.x = *x, .y = *y, .block = c->block, .kind = c->kind};
    if (ax_quant_info(c->kind)->outer == AX_BLOCK_TENSOR) {
        f.range = ax_golden_rows(rt, AX_F32, 1, 2);
        AX_TRY(ax_run_quant_range(rt->q, &(struct ax_quant_range){.x = *x, .range = f.range}));
    }
    return ax_run_fake_quantize(rt->q, &f);
}

static enum ax_status compare(const struct linear_case *c, struct ax_runtime *rt, const char *field,
                              const struct ax_tensor *got) {
    struct ax_golden_tensor want = {0};
    double *v = NULL, size = 0;
    char name[64];
    enum ax_status st;
    if (ax_runtime_planning(rt))
        return AX_OK;
    snprintf(name, sizeof name, "%s.%s", c->name, field);
    AX_TRY_GOTO(ax_golden_read(c->st, name, &want), st, done);
    AX_TRY_GOTO(ax_golden_values(rt->q, got, &v), st, done);
    for (int64_t i = 0; i < want.numel; i++)
        size = fmax(size, fabs(want.v[i]));
    ax_golden_note(c->report, c->name, ax_golden_max_abs(v, want.v, want.numel) / size,
                   LINEAR_TOLERANCE, field);
done:
    ax_free(v);
    ax_golden_tensor_free(&want);
    return st;
}

/* y = Q(x)·Q(W)ᵀ + b, dx = dy·Q(W), dW = dyᵀ·Q(x), db = Σ dy. */
static enum ax_status linear_body(struct ax_runtime *rt, void *ctx) {
    const struct linear_case *c = ctx;
    struct ax_tensor x, w, b, dy, qx, qw;
    AX_TRY(input(c, rt, "in.x", &x));
    AX_TRY(input(c, rt, "in.weight", &w));
    AX_TRY(input(c, rt, "in.bias", &b));
    AX_TRY(input(c, rt, "in.grad_output", &dy));
    AX_TRY(values(c, rt, &x, &qx));
    AX_TRY(values(c, rt, &w, &qw));
    const struct ax_tensor y = ax_golden_rows(rt, AX_F32, x.shape[0], w.shape[0]);
    const struct ax_tensor dx = ax_golden_rows(rt, AX_F32, x.shape[0], x.shape[1]);
    const struct ax_tensor dw = ax_golden_rows(rt, AX_F32, w.shape[0], w.shape[1]);
    const struct ax_tensor db = ax_golden_row(rt, AX_F32, w.shape[0]);
    AX_TRY(ax_run_gemm(
        rt->q,
        &(struct ax_gemm){.a = qx, .b = qw, .c = y, .bias = b, .trans_b = true, .alpha = 1}));
    AX_TRY(ax_run_gemm(rt->q, &(struct ax_gemm){.a = dy, .b = qw, .c = dx, .alpha = 1}));
    AX_TRY(ax_run_gemm(rt->q,
                       &(struct ax_gemm){.a = dy, .b = qx, .c = dw, .trans_a = true, .alpha = 1}));
    AX_TRY(ax_run_fill(rt->q, &(struct ax_fill){db, 0}));
    AX_TRY(ax_run_colsum(rt->q, &(struct ax_colsum){.x = dy, .out = db}));
    AX_TRY(compare(c, rt, "y", &y));
    AX_TRY(compare(c, rt, "grad_x", &dx));
    AX_TRY(compare(c, rt, "grad_weight", &dw));
    return compare(c, rt, "grad_bias", &db);
}

static bool check_linear(struct ax_golden_report *r, const char *dir,
                         const struct ax_golden_options *o) {
    static const struct {
        const char *name;
        enum ax_quant kind;
        int64_t block;
    } cases[] = {{"mxfp4_rceil", AX_QUANT_MXFP4_UP, 32},
                 {"mxfp8_rceil", AX_QUANT_MXFP8_UP, 32},
                 {"nvfp4", AX_QUANT_NVFP4, 16}};
    char path[4096];
    snprintf(path, sizeof path, "%s/linear.safetensors", dir);
    if (!ax_path_exists(path))
        return false;
    const struct ax_runtime_options ro = {.backend = o->backend, .threads = o->threads};
    struct ax_safetensors tensors;
    snprintf(r->title, sizeof r->title, "%s: a linear layer, backend=%s", dir, o->backend);
    enum ax_status st = ax_safetensors_open(&tensors, path);
    for (size_t i = 0; st == AX_OK && i < sizeof cases / sizeof *cases; i++) {
        struct linear_case c = {r, &tensors, cases[i].name, cases[i].kind, cases[i].block};
        if (ax_runtime_run(&ro, linear_body, &c, NULL) != AX_OK)
            ax_golden_error(r, c.name);
    }
    if (st == AX_OK)
        ax_safetensors_close(&tensors);
    else
        ax_golden_error(r, path);
    ax_golden_flush(r);
    return true;
}

/* ---- a model ---- */

static void attempt(const struct ax_golden_case *c, const char *what, enum ax_status st) {
    if (st != AX_OK)
        ax_golden_error(c->report, what);
}

/* The model is named relative to the folder of all golden files. */
static enum ax_status open_case(struct ax_golden_case *c) {
    char *path = NULL, *base = NULL;
    const char *name;
    enum ax_status st;
    AX_TRY_GOTO(ax_golden_file(c, "golden.json", &path), st, done);
    AX_TRY_GOTO(ax_json_load(&c->golden, path, MAX_JSON), st, done);
    AX_TRY_GOTO(ax_json_str(ax_json_get(ax_json_root(&c->golden), "base"), &name), st, done);
    AX_TRY_GOTO(ax_sprintf(&base, "%s/../../%s", c->dir, name), st, done);
    AX_TRY_GOTO(ax_arch_load(&c->arch, base), st, done);
    AX_TRY_GOTO(ax_hf_open(&c->hf, base), st, done);
done:
    ax_free(path);
    ax_free(base);
    return st;
}

static bool check_model(struct ax_golden_report *r, const char *dir,
                        const struct ax_golden_options *o) {
    char folder[4096];
    snprintf(folder, sizeof folder, "%s/qat_llama_8da4w", dir);
    if (!ax_path_is_dir(folder))
        return false;
    struct ax_scheme scheme;
    AX_ASSERT(ax_scheme_find("scheme", "int4-int8", &scheme) == AX_OK);
    struct ax_golden_case c = {.dir = folder, .o = o, .report = r, .qat = &scheme};
    c.dtype = strcmp(o->backend, "ref") == 0 ? AX_F64 : AX_F32;
    snprintf(r->title, sizeof r->title, "%s backend=%s dtype=%s", folder, o->backend,
             ax_dtype_info(c.dtype)->name);
    if (open_case(&c) != AX_OK) {
        ax_golden_error(r, folder);
    } else {
        attempt(&c, "forward", ax_golden_forward(&c));
        attempt(&c, "gradients",
                ax_golden_gradients(&c, "forward.safetensors", "grads.safetensors", "batch"));
        attempt(&c, "optimizer steps", ax_golden_steps(&c));
    }
    ax_golden_flush(r);
    ax_json_free(&c.golden);
    ax_hf_close(&c.hf);
    ax_arch_free(&c.arch);
    return true;
}

bool ax_golden_qat(struct ax_golden_report *r, const char *dir, const struct ax_golden_options *o) {
    const bool linear = check_linear(r, dir, o);
    return check_model(r, dir, o) || linear;
}
