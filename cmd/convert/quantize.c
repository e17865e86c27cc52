/* The folder's tensors in order; a matrix becomes several, which one job computes when the first of
 * them is written. */
#include "cmd/convert/quantize.h"

#include <string.h>

#include "base/mem.h"
#include "ckpt/hf/compressed.h"
#include "ckpt/hf/kept.h"
#include "ckpt/hf/hf.h"
#include "cmd/convert/from_gguf.h"
#include "kernels/queue.h"
#include "model/model.h"

#define MOST_OUTPUTS 3 /* of a matrix */

struct work;

/* One matrix; its arrays exist while its tensors are written. */
struct job {
    struct work *w;
    const struct ax_st_entry *e;
    int layer;
    int64_t cols, block;
    char *stem; /* the name without ".weight" */
    float *x, *scale;
    unsigned char *codes, *bytes; /* bytes: scales that are bytes */
    float range[2], outer;
};

/* One tensor to write of a job. */
struct part {
    struct job *job;
    enum { CODES, SCALES, SHAPE, GLOBAL } what;
    bool last;
    char *name;
};

struct work {
    struct ax_quantize_model *m;
    struct ax_compressed_format format;
    struct ax_arch arch;
    struct ax_hf hf;
    struct ax_arena none; /* the ops need no workspace */
    struct ax_queue *q;
    struct job *jobs; /* [hf's count] */
    int n_jobs, n_parts, n_outputs;
    struct part *parts;
    struct ax_st_output *outputs;
};

/* ---- one matrix ---- */

static void job_end(struct job *j) {
    ax_free(j->x);
    ax_free(j->scale);
    ax_free(j->codes);
    ax_free(j->bytes);
    j->x = j->scale = NULL;
    j->codes = j->bytes = NULL;
}

static struct ax_tensor tensor(enum ax_dtype dtype, void *data, int64_t n) {
    return ax_tensor_1d(dtype, data, n);
}

/* What rounding costs, for the report. */
static enum ax_status measure(struct job *j, const struct ax_quantize *a) {
    struct ax_quantize_layer *layer = &j->w->m->layers[j->layer];
    float *value;
    AX_TRY(ax_alloc(&value, (size_t)j->e->numel, sizeof *value));
    struct ax_dequantize d = {
        .out = a->x, .codes = a->codes, .scale = a->scale, .block = a->block, .kind = a->kind};
    d.out.data = value;
    if (a->kind == AX_QUANT_NVFP4)
        d.outer = a->outer;
    const enum ax_status st = ax_run_dequantize(j->w->q, &d);
    for (int64_t i = 0; i < j->e->numel; i++) {
        const double w = (double)j->x[i], error = (double)value[i] - w;
        layer->squares += w * w;
        layer->errors += error * error;
    }
    ax_free(value);
    return st;
}

static enum ax_status run_job(struct job *j) {
    const struct ax_number_format *f = &j->w->m->scheme.weight;
    const struct ax_quant_info *info = ax_quant_info(f->kind);
    const int64_t n = j->e->numel, blocks = n / j->block, rows = j->e->shape[0];
    AX_TRY(ax_alloc(&j->x, (size_t)n, sizeof *j->x));
    AX_TRY(ax_alloc(&j->codes, (size_t)n, 1));
    AX_TRY(ax_alloc(&j->scale, (size_t)blocks, sizeof *j->scale));
    AX_TRY(ax_alloc(&j->bytes, (size_t)blocks, 1));
    AX_TRY(ax_st_read(j->e, 0, n, AX_F32, j->x));
    const bool bytes = info->scale == AX_U8;
    struct ax_quantize a = {.x = ax_tensor_2d(AX_F32, j->x, rows, j->cols),
                            .codes = tensor(info->codes, j->codes, n),
                            .scale =
                                tensor(info->scale, bytes ? (void *)j->bytes : j->scale, blocks),
                            .block = j->block,
                            .kind = f->kind};
    float *ranges = NULL;
    enum ax_status st = AX_OK;
    if (info->outer != 1 || f->block == AX_BLOCK_TENSOR) {
        const int64_t n_ranges = info->outer == AX_BLOCK_ROW ? rows : 1;
        AX_TRY(ax_alloc(&ranges, 2 * (size_t)n_ranges, sizeof *ranges));
        a.range = ax_tensor_2d(AX_F32, ranges, n_ranges, 2);
        st = ax_run_quant_range(j->w->q, &(struct ax_quant_range){a.x, a.range});
    }
    if (info->outer == AX_BLOCK_TENSOR)
        a.outer = tensor(AX_F32, &j->outer, 1);
    if (st == AX_OK)
        st = ax_run_quantize(j->w->q, &a);
    if (st == AX_OK)
        st = measure(j, &a);
    ax_free(ranges);
    return st;
}

/* ---- its tensors ---- */

/* Elements [first, first + n) of the codes: integers of pack-quantized are words of several. */
static void put_codes(const struct job *j, int64_t first, int64_t n, void *out) {
    const struct ax_compressed_format *f = &j->w->format;
    const bool packed = f->form == AX_FORM_PACKED || f->form == AX_FORM_NVFP4;
    const int64_t per = !packed ? 1 : (f->form == AX_FORM_PACKED ? 32 : 8) / f->bits;
    ax_compressed_pack(f, j->codes + first * per, n * per, out);
}

static enum ax_status fill(void *ctx, int64_t first, int64_t n, void *out) {
    const struct part *p = ctx;
    struct job *j = p->job;
    if (!j->x)
        AX_TRY(run_job(j));
    const bool bytes = ax_quant_info(j->w->m->scheme.weight.kind)->scale == AX_U8;
    const int64_t shape[] = {j->e->shape[0], j->cols};
    const float global = 1 / j->outer;
    int64_t count = 1;
    switch (p->what) {
    case CODES:
        put_codes(j, first, n, out);
        return AX_OK;
    case SCALES:
        memcpy(out, bytes ? (const void *)(j->bytes + first) : (const void *)(j->scale + first),
               (size_t)n * (bytes ? 1 : sizeof *j->scale));
        count = j->w->m->scheme.weight.block == AX_BLOCK_TENSOR ? 1 : j->e->numel / j->block;
        break;
    case SHAPE:
        memcpy(out, shape + first, (size_t)n * sizeof *shape);
        count = 2;
        break;
    case GLOBAL:
        memcpy(out, &global, sizeof global);
        break;
    }
    if (p->last && first + n == count)
        job_end(j);
    return AX_OK;
}

static enum ax_status add_part(struct job *j, int what, bool last, const char *suffix,
                               struct ax_st_output o) {
    struct work *w = j->w;
    struct part *p = &w->parts[w->n_parts++];
    *p = (struct part){.job = j, .what = what, .last = last};
    AX_TRY(ax_sprintf(&p->name, "%s%s", j->stem, suffix));
    o.name = p->name;
    o.fill = fill;
    o.ctx = p;
    w->outputs[w->n_outputs++] = o;
    int64_t numel;
    AX_TRY(ax_product(o.shape, o.ndim, &numel));
    w->m->bytes_after += numel * (int64_t)ax_dtype_size(o.dtype);
    return AX_OK;
}

static enum ax_status add_parts(struct job *j) {
    const struct ax_compressed_format *f = &j->w->format;
    const int64_t rows = j->e->shape[0], blocks = j->cols / j->block;
    const struct ax_st_output scales = {.dtype = AX_F32, .ndim = 2, .shape = {rows, blocks}};
    const struct ax_st_output one = {.dtype = AX_F32, .ndim = 1, .shape = {1}};
    switch (f->form) {
    case AX_FORM_PACKED:
        AX_TRY(add_part(j, CODES, false, ".weight_packed",
                        (struct ax_st_output){
                            .dtype = AX_I32, .ndim = 2, .shape = {rows, j->cols * f->bits / 32}}));
        AX_TRY(add_part(j, SCALES, false, ".weight_scale", scales));
        return add_part(j, SHAPE, true, ".weight_shape",
                        (struct ax_st_output){.dtype = AX_I64, .ndim = 1, .shape = {2}});
    case AX_FORM_NVFP4:
        AX_TRY(add_part(
            j, CODES, false, ".weight_packed",
            (struct ax_st_output){.dtype = AX_U8, .ndim = 2, .shape = {rows, j->cols / 2}}));
        AX_TRY(add_part(j, SCALES, false, ".weight_scale",
                        (struct ax_st_output){
                            .dtype = AX_U8, .e4m3 = true, .ndim = 2, .shape = {rows, blocks}}));
        return add_part(j, GLOBAL, true, ".weight_global_scale", one);
    case AX_FORM_INT8:
    case AX_FORM_FLOAT:
        AX_TRY(add_part(j, CODES, false, ".weight",
                        (struct ax_st_output){.dtype = f->form == AX_FORM_INT8 ? AX_I8 : AX_U8,
                                              .e4m3 = f->form == AX_FORM_FLOAT,
                                              .ndim = 2,
                                              .shape = {rows, j->cols}}));
        return add_part(j, SCALES, true, ".weight_scale",
                        f->block == AX_BLOCK_TENSOR ? one : scales);
    case AX_FORM_NONE:
        break;
    }
    return AX_OK;
}

/* ---- the folder ---- */

static enum ax_status copy(void *ctx, int64_t first, int64_t n, void *out) {
    const struct ax_st_entry *e = ctx;
    return ax_st_read(e, first, n, e->dtype, out);
}

static enum ax_status check_matrix(const struct work *w, const struct ax_st_entry *e) {
    const struct ax_number_format *f = &w->m->scheme.weight;
    int64_t unit = f->block > 0 ? f->block : w->format.form == AX_FORM_PACKED ? 32 : 1;
    const int64_t cols = e->ndim == 2 ? e->shape[1] : 0;
    if (!ax_dtype_info(e->dtype)->is_float || e->ndim != 2)
        return ax_error(AX_ERR_DATA, "%s: %s is no matrix of numbers", w->m->src, e->name);
    if (cols % unit == 0 && (w->format.form != AX_FORM_PACKED || cols % 8 == 0))
        return AX_OK;
    int64_t near = 1;
    while (2 * near <= unit && cols % (2 * near) == 0)
        near *= 2;
    return ax_error(
        AX_ERR_CONFIG,
        "quantize: groups of %lld numbers do not divide the %lld inputs of %s. Nearest: "
        "%lld; or use a scheme by rows, such as int8 or fp8.",
        (long long)unit, (long long)cols, e->name, (long long)near);
}

static enum ax_status add_job(struct work *w, const struct ax_st_entry *e, int layer) {
    struct job *j = &w->jobs[w->n_jobs++];
    AX_TRY(check_matrix(w, e));
    const int64_t block = w->m->scheme.weight.block;
    *j = (struct job){.w = w, .e = e, .layer = layer, .cols = e->shape[1]};
    j->block = block > 0 ? block : j->cols;
    AX_TRY(ax_sprintf(&j->stem, "%.*s", (int)(strlen(e->name) - strlen(".weight")), e->name));
    w->m->matrices++;
    return add_parts(j);
}

/* The layer whose linears the tensor is one of, or −1. */
static int layer_of(struct ax_model *m, const struct ax_hf *hf, const struct ax_st_entry *e) {
    struct ax_linear *linears[AX_LAYER_MAX_LINEARS];
    const int layer = ax_hf_layer_of(e->name);
    if (layer < 0 || layer >= m->arch.n_layers)
        return -1;
    const int n = ax_layer_linears(&m->layers[layer], linears);
    for (int k = 0; k < n; k++)
        for (int part = 0; part < linears[k]->n_parts; part++)
            if (ax_hf_find(hf, linears[k]->weight[part]->name) == e)
                return layer;
    return -1;
}

static enum ax_status add_tensors(struct work *w, struct ax_model *model) {
    const int n = ax_hf_count(&w->hf);
    AX_TRY(ax_alloc(&w->jobs, (size_t)n, sizeof *w->jobs));
    AX_TRY(ax_alloc(&w->parts, (size_t)n * MOST_OUTPUTS, sizeof *w->parts));
    AX_TRY(ax_alloc(&w->outputs, (size_t)n * MOST_OUTPUTS, sizeof *w->outputs));
    w->m->n_layers = (int)w->arch.n_layers;
    AX_TRY(ax_alloc(&w->m->layers, (size_t)w->arch.n_layers, sizeof *w->m->layers));
    for (int i = 0; i < n; i++) {
        const struct ax_st_entry *e = ax_hf_at(&w->hf, i);
        const int layer = layer_of(model, &w->hf, e);
        w->m->bytes_before += (int64_t)e->bytes;
        if (layer >= 0) {
            AX_TRY(add_job(w, e, layer));
            continue;
        }
        struct ax_st_output *o = &w->outputs[w->n_outputs++];
        *o = (struct ax_st_output){.name = e->name,
                                   .dtype = e->dtype,
                                   .ndim = e->ndim,
                                   .fill = copy,
                                   .ctx = (void *)(uintptr_t)e};
        memcpy(o->shape, e->shape, sizeof o->shape);
        w->m->bytes_after += (int64_t)e->bytes;
    }
    return AX_OK;
}

/* A model that is only planned knows its linears. */
static enum ax_status choose(struct work *w) {
    struct ax_runtime rt;
    struct ax_model model;
    const struct ax_runtime_options o = {.backend = "ref", .threads = 1};
    AX_TRY(ax_runtime_open_planning(&rt, &o));
    enum ax_status st = ax_model_create(
        &model, &w->arch, &rt, &(struct ax_model_options){.dtype = AX_F32, .max_positions = 1});
    if (st == AX_OK) {
        st = add_tensors(w, &model);
        ax_model_free(&model);
    }
    ax_runtime_close(&rt);
    return st;
}

static enum ax_status write_folder(struct work *w) {
    json_t *config, *edits = json_object();
    AX_TRY(ax_compressed_config(&w->m->scheme, &config));
    enum ax_status st = AX_OK;
    if (json_object_set_new(edits, "quantization_config", config) != 0)
        st = ax_error(AX_ERR_NOMEM, "out of memory for config.json");
    const struct ax_hf_save save = {.dir = w->m->dst,
                                    .base_dir = w->hf.dir,
                                    .config = edits,
                                    .dtype = w->arch.dtype,
                                    .n = w->n_outputs,
                                    .tensors = w->outputs};
    if (st == AX_OK)
        st = ax_hf_write(&save);
    json_decref(edits);
    return st;
}

static enum ax_status run(struct work *w) {
    struct ax_quantize_model *m = w->m;
    AX_TRY(ax_convert_check_destination(m->dst));
    if (m->scheme.form == AX_FORM_NONE)
        return ax_compressed_config(&m->scheme, NULL);
    AX_TRY(ax_arch_load(&w->arch, m->src));
    if (w->arch.moe.n_experts > 0)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "%s: mixtures of experts are not supported by quantize so far; convert to "
                        "gguf with --quant instead",
                        m->src);
    AX_TRY(ax_hf_open(&w->hf, m->src));
    if (w->hf.wrapped)
        return ax_error(
            AX_ERR_UNSUPPORTED,
            "%s: models that contain a text model are not supported by quantize; convert "
            "the text model to gguf with --quant instead",
            m->src);
    if (w->hf.compressed)
        return ax_error(AX_ERR_CONFIG, "%s: is quantized already; quantize the original", m->src);
    w->format = ax_compressed_of(&m->scheme);
    w->none.scratch.arena = &w->none;
    AX_TRY(
        ax_queue_create(&w->q, ax_ops_cpu() ? "cpu" : "ref", NULL, m->threads, &w->none.scratch));
    AX_TRY(choose(w));
    return write_folder(w);
}

enum ax_status ax_quantize_model(struct ax_quantize_model *m) {
    struct work w = {.m = m};
    const enum ax_status st = run(&w);
    for (int i = 0; i < w.n_jobs; i++) {
        job_end(&w.jobs[i]);
        ax_free(w.jobs[i].stem);
    }
    for (int i = 0; i < w.n_parts; i++)
        ax_free(w.parts[i].name);
    ax_free(w.jobs);
    ax_free(w.parts);
    ax_free(w.outputs);
    ax_queue_free(w.q);
    ax_hf_close(&w.hf);
    ax_arch_free(&w.arch);
    return st;
}

void ax_quantize_model_free(struct ax_quantize_model *m) {
    ax_free(m->layers);
    m->layers = NULL;
}
