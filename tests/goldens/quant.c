/* quant/: number formats against the reference implementations' files, and a linear layer and a
 * model trained with fake quantization. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/mem.h"
#include "tests/goldens/objectives.h"
#include "tests/goldens/optim.h"
#include "kernels/quant/quant_block.h"
#include "kernels/quant/scheme.h"

#define VALUE_TOLERANCE 1e-6 /* relative */

/* A file of the folder: its format, and the names of its scales. */
struct quant_file {
    const char *name;
    struct ax_number_format format;
    const char *scale, *offset, *outer;
};
static const struct quant_file files[] = {
    {"int8_token_asym", {AX_QUANT_INT8_ASYM, AX_BLOCK_ROW}, "scale", "zero_point", NULL},
    {"int8_row_sym", {AX_QUANT_INT8, AX_BLOCK_ROW}, "scale", NULL, NULL},
    {"int4_g32_sym", {AX_QUANT_INT4, 32}, "scale", NULL, NULL},
    {"int4_g128_asym", {AX_QUANT_INT4_ASYM, 128}, "scale", "zero", NULL},
    {"int4_g128_fp8act", {AX_QUANT_INT4_FP8, 128}, "scale", NULL, "row_scale"},
    {"fp8_row", {AX_QUANT_FP8, AX_BLOCK_ROW}, "scale", NULL, NULL},
    {"fp8_tensor", {AX_QUANT_FP8, AX_BLOCK_TENSOR}, "scale", NULL, NULL},
    {"nvfp4", {AX_QUANT_NVFP4, 16}, "block_scale", NULL, "global_scale"},
    {"nvfp4_single", {AX_QUANT_NVFP4_ONE, 16}, "block_scale", NULL, NULL},
    {"mxfp4_floor", {AX_QUANT_MXFP4, 32}, "scale_e8m0", NULL, NULL},
    {"mxfp4_rceil", {AX_QUANT_MXFP4_UP, 32}, "scale_e8m0", NULL, NULL},
    {"mxfp8_floor", {AX_QUANT_MXFP8, 32}, "scale_e8m0", NULL, NULL},
    {"mxfp8_rceil", {AX_QUANT_MXFP8_UP, 32}, "scale_e8m0", NULL, NULL},
    {"nf4", {AX_QUANT_NF4, 64}, "absmax", NULL, NULL},
};

struct quant_case {
    struct ax_golden_report *report;
    const struct quant_file *file;
    const struct ax_safetensors *inputs, *want;
    const char *key; /* of an input */
};

/* Memory for the check; absent if n = 0. */
static struct ax_tensor take(struct ax_runtime *rt, enum ax_dtype dtype, int64_t n) {
    struct ax_tensor t = {0};
    if (n == 0)
        return t;
    t = ax_tensor_1d(dtype, NULL, n);
    t.data = ax_stack_push(&rt->arena.persistent, "format check", ax_tensor_bytes(&t));
    return t;
}

/* |got − want| of each element, relative to it, or the share of the largest for a gradient. */
static enum ax_status compare_values(const struct quant_case *c, const char *field,
                                     const double *got, int64_t n, bool of_largest,
                                     double tolerance) {
    struct ax_golden_tensor want = {0};
    double worst = 0, size = 0;
    char name[64], group[96];
    snprintf(name, sizeof name, "%s.%s", c->key, field);
    if (!ax_safetensors_find(c->want, name))
        return AX_OK;
    AX_TRY(ax_golden_read(c->want, name, &want));
    if (want.numel > n) {
        ax_golden_tensor_free(&want);
        return ax_error(AX_ERR_DATA, "%s: %s has more numbers than expected", c->want->path, name);
    }
    for (int64_t i = 0; i < want.numel; i++)
        size = fmax(size, fabs(want.v[i]));
    for (int64_t i = 0; i < want.numel; i++) {
        const double d = fabs(got[i] - want.v[i]);
        const double e = d == 0 ? 0 : d / (of_largest ? size : fabs(want.v[i]));
        worst = e <= worst ? worst : e;
    }
    snprintf(group, sizeof group, "%s %s", c->file->name, field);
    ax_golden_note(c->report, group, worst, tolerance, name);
    ax_golden_tensor_free(&want);
    return AX_OK;
}

static enum ax_status compare(const struct quant_case *c, struct ax_queue *q, const char *field,
                              const struct ax_tensor *got, bool of_largest, double tolerance) {
    double *values;
    AX_TRY(ax_golden_values(q, got, &values));
    const enum ax_status st =
        compare_values(c, field, values, ax_tensor_numel(got), of_largest, tolerance);
    ax_free(values);
    return st;
}

/* Codes one per byte: NF4 stores two, the even element in the high half. */
static enum ax_status compare_codes(const struct quant_case *c, struct ax_queue *q,
                                    const struct ax_tensor *codes) {
    if (c->file->format.kind != AX_QUANT_NF4)
        return compare(c, q, "codes", codes, false, 0);
    const int64_t n = 2 * codes->shape[0];
    double *pairs = NULL, *apart = NULL;
    enum ax_status st;
    AX_TRY_GOTO(ax_golden_values(q, codes, &pairs), st, done);
    AX_TRY_GOTO(ax_alloc(&apart, (size_t)n, sizeof *apart), st, done);
    for (int64_t i = 0; i < n; i++)
        apart[i] = (double)((unsigned)pairs[i / 2] >> (i % 2 ? 0 : 4) & 15);
    AX_TRY_GOTO(compare_values(c, "codes", apart, n, false, 0), st, done);
done:
    ax_free(pairs);
    ax_free(apart);
    return st;
}

static enum ax_status input_of(const struct quant_case *c, struct ax_runtime *rt,
                               const char *suffix, struct ax_tensor *out) {
    char name[64];
    struct ax_golden_tensor in = {0};
    snprintf(name, sizeof name, "%s%s", c->key, suffix);
    AX_TRY(ax_golden_read(c->inputs, name, &in));
    enum ax_status st = AX_OK;
    if (in.ndim != 2)
        AX_TRY_GOTO(ax_error(AX_ERR_DATA, "%s: %s is no matrix", c->inputs->path, name), st, done);
    *out = ax_golden_rows(rt, AX_F32, in.shape[0], in.shape[1]);
    AX_TRY_GOTO(ax_golden_put(rt, out, in.v), st, done);
done:
    ax_golden_tensor_free(&in);
    return st;
}

/* The range that a format needs, by row or of the tensor; absent if none. */
static enum ax_status range_of(struct ax_runtime *rt, const struct ax_number_format *f,
                               const struct ax_tensor *x, struct ax_tensor *range) {
    const int64_t outer = ax_quant_info(f->kind)->outer;
    *range = (struct ax_tensor){0};
    if (outer == 1 && f->block != AX_BLOCK_TENSOR)
        return AX_OK;
    *range = ax_golden_rows(rt, AX_F32, outer == AX_BLOCK_ROW ? x->shape[0] : 1, 2);
    return ax_run_quant_range(rt->q, &(struct ax_quant_range){.x = *x, .range = *range});
}

static enum ax_status check_values(const struct quant_case *c, struct ax_runtime *rt,
                                   const struct ax_quantize *a) {
    struct ax_dequantize d = {.out = ax_golden_rows(rt, AX_F32, a->x.shape[0], a->x.shape[1]),
                              .codes = a->codes,
                              .scale = a->scale,
                              .offset = a->zero,
                              .block = a->block,
                              .kind = a->kind};
    if (a->kind == AX_QUANT_NVFP4)
        d.outer = a->outer;
    AX_TRY(ax_run_dequantize(rt->q, &d));
    if (!ax_runtime_planning(rt)) {
        AX_TRY(compare_codes(c, rt->q, &a->codes));
        AX_TRY(compare(c, rt->q, c->file->scale, &a->scale, false, 0));
        if (c->file->offset)
            AX_TRY(compare(c, rt->q, c->file->offset, &a->zero, false, 0));
        if (c->file->outer)
            AX_TRY(compare(c, rt->q, c->file->outer, &a->outer, false, 0));
        AX_TRY(compare(c, rt->q, "dequant", &d.out, false, VALUE_TOLERANCE));
    }
    if (!ax_quant_info(a->kind)->fakes)
        return AX_OK;
    struct ax_tensor up;
    AX_TRY(input_of(c, rt, ".w", &up));
    const struct ax_fake_quantize f = {.x = a->x,
                                       .y =
                                           ax_golden_rows(rt, AX_F32, a->x.shape[0], a->x.shape[1]),
                                       .range = a->range,
                                       .block = a->block,
                                       .kind = a->kind};
    AX_TRY(ax_run_fake_quantize(rt->q, &f));
    AX_TRY(ax_run_fake_quantize_backward(
        rt->q,
        &(struct ax_fake_quantize_backward){
            .x = a->x, .dy = up, .dx = up, .range = a->range, .block = a->block, .kind = a->kind}));
    if (ax_runtime_planning(rt))
        return AX_OK;
    AX_TRY(compare(c, rt->q, "dequant", &f.y, false, VALUE_TOLERANCE));
    return compare(c, rt->q, "grad", &up, true, VALUE_TOLERANCE);
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    const struct quant_case *c = ctx;
    const struct ax_number_format *f = &c->file->format;
    const struct ax_quant_info *info = ax_quant_info(f->kind);
    struct ax_quantize a = {.kind = f->kind};
    AX_TRY(input_of(c, rt, "", &a.x));
    const int64_t n = ax_tensor_numel(&a.x);
    a.block = f->block > 0 ? f->block : a.x.shape[1];
    AX_TRY(range_of(rt, f, &a.x, &a.range));
    a.codes = take(rt, info->codes, f->kind == AX_QUANT_NF4 ? (n + 1) / 2 : n);
    a.scale = take(rt, info->scale, (n + a.block - 1) / a.block);
    a.zero = take(rt, AX_F32, info->offset ? (n + a.block - 1) / a.block : 0);
    a.outer = take(rt, AX_F32, info->outer == 1 ? 0 : a.range.shape[0]);
    AX_TRY(ax_run_quantize(rt->q, &a));
    return check_values(c, rt, &a);
}

static enum ax_status check_file(struct quant_case *c, const char *path,
                                 const struct ax_golden_options *o) {
    static const char *const keys[] = {"random", "edge", "extreme"};
    const struct ax_runtime_options ro = {.backend = o->backend, .threads = o->threads};
    struct ax_safetensors want;
    AX_TRY(ax_safetensors_open(&want, path));
    c->want = &want;
    enum ax_status st = AX_OK;
    for (size_t i = 0; i < 3 && st == AX_OK; i++) {
        c->key = keys[i];
        st = ax_runtime_run(&ro, body, c, NULL);
    }
    ax_safetensors_close(&want);
    return st;
}

bool ax_golden_formats(struct ax_golden_report *r, const char *dir,
                       const struct ax_golden_options *o) {
    char path[4096];
    snprintf(path, sizeof path, "%s/inputs.safetensors", dir);
    if (!ax_path_exists(path))
        return false;
    struct ax_safetensors inputs;
    snprintf(r->title, sizeof r->title, "%s: number formats, backend=%s", dir, o->backend);
    if (ax_safetensors_open(&inputs, path) != AX_OK) {
        ax_golden_error(r, path);
        return true;
    }
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct quant_case c = {.report = r, .file = &files[i], .inputs = &inputs};
        snprintf(path, sizeof path, "%s/%s.safetensors", dir, files[i].name);
        if (!ax_path_exists(path))
            ax_golden_absent(r, path, false);
        else if (check_file(&c, path, o) != AX_OK)
            ax_golden_error(r, path);
    }
    ax_golden_flush(r);
    ax_safetensors_close(&inputs);
    return true;
}
