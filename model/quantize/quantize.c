/* The folder's tensors, layer by layer; a matrix becomes several, which one job computes when the
 * first of them is written: alone, or with all of its layer. */
#include "model/quantize/quantize.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "ckpt/hf/compressed.h"
#include "ckpt/hf/hf.h"
#include "kernels/cpu/isa.h"
#include "model/arch/classifier.h"
#include "model/quantize/matrix.h"

/* ---- the tensors of a quantized matrix (ckpt/hf/compressed.h) ---- */

#define MATRIX_TENSORS 3 /* at most */

struct matrix_tensor {
    struct matrix_tensors *of;
    int what;
    char *name; /* owned */
};
struct matrix_tensors {
    struct ax_quantized_matrix m; /* made when the first is written, ended after the last */
    const struct ax_compressed_format *format;
    enum ax_status (*make)(struct matrix_tensors *t);
    void *ctx;
    int n;
    struct matrix_tensor list[MATRIX_TENSORS];
};

enum { CODES, SCALES, SHAPE, GLOBAL };

/* Elements [first, first + n) of the codes: integers of pack-quantized are words of several. */
static void put_codes(const struct matrix_tensors *t, int64_t first, int64_t n, void *out) {
    const struct ax_compressed_format *f = t->format;
    const bool packed = f->form == AX_FORM_PACKED || f->form == AX_FORM_NVFP4;
    const int64_t per = !packed ? 1 : (f->form == AX_FORM_PACKED ? 32 : 8) / f->bits;
    ax_compressed_pack(f, t->m.codes + first * per, n * per, out);
}

static enum ax_status fill_matrix(void *ctx, int64_t first, int64_t n, void *out) {
    const struct matrix_tensor *p = ctx;
    struct matrix_tensors *t = p->of;
    struct ax_quantized_matrix *m = &t->m;
    if (!m->x)
        AX_TRY(t->make(t));
    const bool bytes = ax_quant_info(m->format.kind)->scale == AX_U8;
    const int64_t shape[] = {m->rows, m->cols};
    const float global = 1 / m->outer;
    int64_t count = 1;
    switch (p->what) {
    case CODES:
        put_codes(t, first, n, out);
        return AX_OK;
    case SCALES:
        memcpy(out, bytes ? (const void *)(m->bytes + first) : (const void *)(m->scale + first),
               (size_t)n * (bytes ? 1 : sizeof *m->scale));
        count = m->format.block == AX_BLOCK_TENSOR ? 1 : m->e->numel / m->block;
        break;
    case SHAPE:
        memcpy(out, shape + first, (size_t)n * sizeof *shape);
        count = 2;
        break;
    case GLOBAL:
        memcpy(out, &global, sizeof global);
        break;
    }
    if (p == &t->list[t->n - 1] && first + n == count)
        ax_quantized_matrix_end(m);
    return AX_OK;
}

struct tensor_form {
    int what;
    const char *suffix;
    enum ax_dtype dtype;
    bool e4m3;
    int ndim;
    int64_t shape[2];
};

/* In the order in which they are written: codes never last. */
static int list_tensors(const struct matrix_tensors *t, struct tensor_form *list) {
    const struct ax_compressed_format *f = t->format;
    const int64_t rows = t->m.rows, cols = t->m.cols, blocks = cols / t->m.block;
    const bool four = f->form == AX_FORM_NVFP4;
    int n = 0;
    if (f->form == AX_FORM_PACKED)
        list[n++] = (struct tensor_form){CODES, ".weight_packed",           AX_I32, false,
                                         2,     {rows, cols * f->bits / 32}};
    else if (four)
        list[n++] =
            (struct tensor_form){CODES, ".weight_packed", AX_U8, false, 2, {rows, cols / 2}};
    else
        list[n++] = (struct tensor_form){
            CODES, ".weight",   f->form == AX_FORM_INT8 ? AX_I8 : AX_U8, f->form == AX_FORM_FLOAT,
            2,     {rows, cols}};
    if (f->block == AX_BLOCK_TENSOR)
        list[n++] = (struct tensor_form){SCALES, ".weight_scale", AX_F32, false, 1, {1}};
    else
        list[n++] = (struct tensor_form){SCALES, ".weight_scale", four ? AX_U8 : AX_F32, four,
                                         2,      {rows, blocks}};
    if (f->form == AX_FORM_PACKED)
        list[n++] = (struct tensor_form){SHAPE, ".weight_shape", AX_I64, false, 1, {2}};
    if (four)
        list[n++] = (struct tensor_form){GLOBAL, ".weight_global_scale", AX_F32, false, 1, {1}};
    return n;
}

/* Lists those of m, of `module`.weight; all but `n` and `list` are set. outputs[MATRIX_TENSORS]. */
static enum ax_status add_matrix_tensors(struct matrix_tensors *t, const char *module,
                                         struct ax_st_output *outputs) {
    struct tensor_form list[MATRIX_TENSORS];
    const int n = list_tensors(t, list);
    for (int i = 0; i < n; i++) {
        struct matrix_tensor *p = &t->list[i];
        *p = (struct matrix_tensor){.of = t, .what = list[i].what};
        AX_TRY(ax_sprintf(&p->name, "%s%s", module, list[i].suffix));
        t->n++;
        outputs[i] = (struct ax_st_output){.name = p->name,
                                           .dtype = list[i].dtype,
                                           .e4m3 = list[i].e4m3,
                                           .ndim = list[i].ndim,
                                           .shape = {list[i].shape[0], list[i].shape[1]},
                                           .fill = fill_matrix,
                                           .ctx = p};
    }
    return AX_OK;
}

static void free_matrix_tensors(struct matrix_tensors *t) {
    ax_quantized_matrix_end(&t->m);
    for (int i = 0; i < t->n; i++)
        ax_free(t->list[i].name);
    t->n = 0;
}

/* ---- the model ---- */

struct work;

/* One matrix, while its tensors are written. */
struct job {
    struct work *w;
    int unit;
    struct matrix_tensors t;
};

struct work {
    struct ax_quantize_model *m;
    struct ax_compressed_format format;
    struct ax_arch arch;
    struct ax_hf hf;
    struct ax_queue *q;
    struct ax_quantize_room room; /* of matrices that are made alone */
    struct job *jobs;             /* [hf's count] */
    int n_jobs, n_outputs;
    struct ax_st_output *outputs;
    struct ax_quantize_layers layers; /* with calibration rows */
    int next_layer;
};

/* ---- making the matrices ---- */

static enum ax_status run_job(struct matrix_tensors *t) {
    struct job *j = t->ctx;
    struct work *w = j->w;
    if (w->m->rows && j->unit > 0 && j->unit <= w->arch.n_layers) {
        AX_ASSERT(j->unit == w->next_layer + 1); /* they are written in this order */
        return ax_quantize_layer_run(&w->layers, w->next_layer++, &w->m->units[j->unit]);
    }
    struct ax_quantize_layer *unit = &w->m->units[j->unit];
    AX_TRY(ax_quantized_matrix_make(&j->t.m, w->q));
    return ax_quantized_matrix_errors(&j->t.m, w->q, &unit->squares, &unit->errors);
}

/* ---- the folder ---- */

static enum ax_status copy(void *ctx, int64_t first, int64_t n, void *out) {
    const struct ax_st_entry *e = ctx;
    return ax_st_read(e, first, n, e->dtype, out);
}

/* Of integers packed into words as well, for which no group is a remedy. */
static enum ax_status check_matrix(const struct work *w, const struct ax_st_entry *e) {
    const struct ax_scheme *s = &w->m->scheme;
    const int64_t block = s->weight.block;
    if (!ax_dtype_info(e->dtype)->is_float || e->ndim != 2)
        return ax_error(AX_ERR_DATA, "%s: %s is no matrix of numbers", w->m->src, e->name);
    const int per_word = 32 / w->format.bits;
    if (w->format.form == AX_FORM_PACKED && e->shape[1] % per_word != 0)
        return ax_error(AX_ERR_CONFIG,
                        "quantize: scheme %s has %d codes in a word, which do not divide the %lld "
                        "inputs of %s. Use a scheme whose codes are not packed, such as int8-int8 "
                        "or fp8.",
                        s->name, per_word, (long long)e->shape[1], e->name);
    return block <= 0 || e->shape[1] % block == 0
               ? AX_OK
               : ax_scheme_refuse_inputs(s, "quantize", "--group", block, e->shape[1], e->name);
}

/* The matrix of `module`.weight. */
static enum ax_status add_job(struct work *w, const struct ax_st_entry *e, const char *module,
                              int unit) {
    struct job *j = &w->jobs[w->n_jobs++];
    struct ax_st_output *outputs = w->outputs + w->n_outputs;
    AX_TRY(check_matrix(w, e));
    *j = (struct job){.w = w,
                      .unit = unit,
                      .t = {.m = ax_quantized_matrix_of(e, &w->m->scheme.weight),
                            .format = &w->format,
                            .make = run_job,
                            .ctx = j}};
    if (!w->m->rows)
        j->t.m.room = &w->room;
    const enum ax_status st = add_matrix_tensors(&j->t, module, outputs);
    for (int i = 0; i < j->t.n; i++) {
        int64_t numel;
        AX_TRY(ax_product(outputs[i].shape, outputs[i].ndim, &numel));
        w->m->bytes_after += numel * (int64_t)ax_dtype_size(outputs[i].dtype);
    }
    w->n_outputs += j->t.n;
    w->m->matrices++;
    return st;
}

static enum ax_status add_matrix(struct work *w, const struct ax_st_entry *e, int unit) {
    char *module;
    AX_TRY(ax_strndup(&module, e->name, strlen(e->name) - strlen(".weight")));
    enum ax_status st = add_job(w, e, module, unit);
    ax_free(module);
    if (st == AX_OK && unit == 0 && w->arch.tied)
        st = add_job(w, e, "lm_head", w->m->n_units - 1);
    return st;
}

static enum ax_status add_copy(struct work *w, const struct ax_st_entry *e) {
    struct ax_st_output *o = &w->outputs[w->n_outputs++];
    *o = (struct ax_st_output){.name = e->name,
                               .dtype = e->dtype,
                               .ndim = e->ndim,
                               .fill = copy,
                               .ctx = (void *)(uintptr_t)e};
    memcpy(o->shape, e->shape, sizeof o->shape);
    w->m->bytes_after += (int64_t)e->bytes;
    return AX_OK;
}

static int by_address(const void *a, const void *b) {
    const uintptr_t x = (uintptr_t) * (void *const *)a, y = (uintptr_t) * (void *const *)b;
    return x < y ? -1 : x > y;
}

/* The entries of the matrices that are quantized, in model order, and the unit of each. */
struct matrices {
    int n, *units;
    const struct ax_st_entry **list, **sorted;
};

static enum ax_status find_matrices(const struct work *w, struct ax_model *model,
                                    struct matrices *m) {
    AX_TRY(ax_alloc(&m->units, (size_t)model->n_params, sizeof *m->units));
    AX_TRY(ax_alloc(&m->list, (size_t)model->n_params, sizeof(void *)));
    AX_TRY(ax_alloc(&m->sorted, (size_t)model->n_params, sizeof(void *)));
    for (int i = 0; i < model->n_params; i++) {
        const struct ax_param *p = &model->params[i];
        if (!ax_model_quantizes(model, &w->m->scheme, p))
            continue;
        const struct ax_st_entry *e = ax_hf_find(&w->hf, p->name);
        if (!e)
            return ax_error(AX_ERR_DATA, "%s: %s is missing", w->m->src, p->name);
        m->units[m->n] = p->unit;
        m->list[m->n] = m->sorted[m->n] = e;
        m->n++;
    }
    qsort(m->sorted, (size_t)m->n, sizeof(void *), by_address);
    return AX_OK;
}

/* Other tensors, then those of the first unit's matrices, … */
static enum ax_status add_all(struct work *w, const struct matrices *m) {
    for (int i = 0; i < ax_hf_count(&w->hf); i++) {
        const struct ax_st_entry *e = ax_hf_at(&w->hf, i);
        w->m->bytes_before += (int64_t)e->bytes;
        if (!bsearch(&e, m->sorted, (size_t)m->n, sizeof(void *), by_address))
            AX_TRY(add_copy(w, e));
    }
    for (int i = 0; i < m->n; i++)
        AX_TRY(add_matrix(w, m->list[i], m->units[i]));
    return AX_OK;
}

static enum ax_status add_tensors(struct work *w, struct ax_model *model) {
    const size_t n = (size_t)ax_hf_count(&w->hf) + 1; /* a tied matrix is written twice */
    struct matrices m = {0};
    AX_TRY(ax_alloc(&w->jobs, n, sizeof *w->jobs));
    AX_TRY(ax_alloc(&w->outputs, n * MATRIX_TENSORS, sizeof *w->outputs));
    w->m->n_units = (int)w->arch.n_layers + 2;
    AX_TRY(ax_alloc(&w->m->units, (size_t)w->m->n_units, sizeof *w->m->units));
    enum ax_status st = find_matrices(w, model, &m);
    if (st == AX_OK)
        st = add_all(w, &m);
    ax_free(m.units);
    ax_free(m.list);
    ax_free(m.sorted);
    return st;
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

/* ---- what is not quantized, for other programs ---- */

static enum ax_status add_ignored(json_t *list, const char *name) {
    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(json_string_value(json_array_get(list, i)), name) == 0)
            return AX_OK;
    return json_array_append_new(list, json_string(name)) == 0
               ? AX_OK
               : ax_error(AX_ERR_NOMEM, "out of memory for config.json");
}

/* Programs spell what is before a text model's modules in several ways: an expression for any of them. The name has
 * letters, digits, _ and dots. */
static enum ax_status ignore_ending(json_t *list, const char *name, size_t n) {
    struct ax_buf b = {0};
    enum ax_status st = ax_buf_puts(&b, "re:.*\\.");
    for (size_t i = 0; i < n && st == AX_OK; i++)
        st = name[i] == '.' ? ax_buf_puts(&b, "\\.") : ax_buf_append(&b, name + i, 1);
    if (st == AX_OK)
        st = ax_buf_puts(&b, "$");
    if (st == AX_OK)
        st = add_ignored(list, b.data);
    ax_buf_free(&b);
    return st;
}

/* The module of a matrix that stays as it is. */
static enum ax_status ignore_matrix(const struct work *w, json_t *list, const char *name) {
    const char *body = strncmp(name, "model.", 6) == 0 ? name + 6 : name;
    char *module;
    if (w->hf.wrapped)
        return ignore_ending(list, body, strlen(body) - strlen(".weight"));
    AX_TRY(ax_strndup(&module, name, strlen(name) - strlen(".weight")));
    const enum ax_status st = add_ignored(list, module);
    ax_free(module);
    return st;
}

/* All within a part of the model that is not its text, such as vision_tower. */
static enum ax_status ignore_part(json_t *list, const char *name) {
    char text[160];
    const char *part = strncmp(name, "model.", 6) == 0 ? name + 6 : name;
    snprintf(text, sizeof text, "re:(.*\\.)?%.*s(\\..*)?$",
             (int)(strcspn(part, ".") < 100 ? strcspn(part, ".") : 100), part);
    return add_ignored(list, text);
}

/* Would a program take a matrix that stays as it is for one of the quantized linears? */
static bool is_like_linears(const struct work *w, const struct ax_hf_unused *unused,
                            const char *name) {
    return ax_hf_layer_of(name) >= 0 || ax_hf_is_unused(unused, name) ||
           w->arch.per_layer.width > 0 || (w->arch.classifier && strcmp(name, "score.weight") == 0);
}

/* Names the matrices that stay as they are: of layers, such as routers, gates of shared experts, unused layers; those
 * of per-layer inputs, before the layers; a classifier's head; and parts beside the text model. */
static enum ax_status ignore_others(const struct work *w, json_t *config) {
    const struct ax_hf_unused unused = ax_arch_unused(&w->arch);
    json_t *list = json_object_get(config, "ignore");
    for (int i = 0; i < w->n_outputs; i++) {
        const struct ax_st_output *o = &w->outputs[i];
        const size_t n = strlen(o->name), suffix = strlen(".weight");
        if (o->fill == copy && o->ndim == 2 && n > suffix &&
            strcmp(o->name + n - suffix, ".weight") == 0 && is_like_linears(w, &unused, o->name))
            AX_TRY(ignore_matrix(w, list, o->name));
    }
    for (int i = 0; w->hf.wrapped && i < w->hf.wrapped->n_others; i++)
        AX_TRY(ignore_part(list, w->hf.wrapped->others[i].name));
    return AX_OK;
}

/* ---- the folder that is written ---- */

static enum ax_status write_folder(struct work *w) {
    json_t *config, *edits = json_object();
    AX_TRY(ax_compressed_config(&w->m->scheme, &config));
    enum ax_status st = ignore_others(w, config);
    if (json_object_set_new(edits, "quantization_config", config) != 0 ||
        ((w->arch.unties || (w->arch.tied && w->m->scheme.head)) &&
         json_object_set_new(edits, "tie_word_embeddings", json_false()) != 0))
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

/* ---- with and without calibration ---- */

static enum ax_status write_alone(struct work *w) {
    struct ax_arena none = {0}; /* the ops need no workspace */
    none.scratch.arena = &none;
    AX_TRY(
        ax_queue_create(&w->q, ax_ops_cpu() ? "cpu" : "ref", NULL, w->m->threads, &none.scratch));
    const enum ax_status st = write_folder(w);
    ax_queue_free(w->q);
    return st;
}

static struct ax_quantized_matrix *find_matrix(void *ctx, const struct ax_st_entry *e) {
    struct work *w = ctx;
    for (int i = 0; i < w->n_jobs; i++)
        if (w->jobs[i].t.m.e == e)
            return &w->jobs[i].t.m;
    return NULL;
}

/* While planning, what writing would do to the device's memory. */
static enum ax_status plan_layers(struct work *w) {
    struct ax_quantize_layer unused = {0};
    for (int i = 0; i < w->arch.n_layers; i++)
        AX_TRY(ax_quantize_layer_run(&w->layers, i, &unused));
    for (int i = 0; i < w->n_jobs; i++)
        ax_quantized_matrix_end(&w->jobs[i].t.m);
    return AX_OK;
}

static enum ax_status calibrated(struct ax_runtime *rt, void *ctx) {
    struct work *w = ctx;
    struct ax_model model;
    const bool bf16 = w->arch.dtype == AX_BF16 && ax_cpu_prefers_bf16(ax_cpu_isa());
    const struct ax_model_options o = {.dtype = bf16 ? AX_BF16 : AX_F32,
                                       .max_positions = w->m->rows->capacity,
                                       .one_layer = true,
                                       .qat = &w->m->scheme};
    w->q = rt->q;
    w->layers = (struct ax_quantize_layers){.model = &model,
                                            .hf = &w->hf,
                                            .gptq = w->m->gptq,
                                            .threads = w->m->threads,
                                            .find = find_matrix,
                                            .ctx = w};
    AX_TRY(ax_model_create(&model, &w->arch, rt, &o));
    enum ax_status st;
    AX_TRY_GOTO(ax_model_load_unit(&model, &w->hf, 0), st, done);
    AX_TRY_GOTO(ax_model_load_unit(&model, &w->hf, model.n_units - 1), st, done);
    AX_TRY_GOTO(ax_calibration_open(&w->layers.rows, &model, w->m->rows), st, done);
    AX_TRY_GOTO(ax_runtime_planning(rt) ? plan_layers(w) : write_folder(w), st, done);
    for (int v = 0; v < (w->m->gptq ? AX_VERSIONS : AX_VERSION_CHOSEN); v++)
        AX_TRY_GOTO(
            ax_calibration_loss(&w->layers.rows, (enum ax_version)v, &w->m->loss[v], &w->m->tokens),
            st, done);
done:
    ax_calibration_close(&w->layers.rows);
    ax_model_free(&model);
    return st;
}

static enum ax_status write_calibrated(struct work *w) {
    const struct ax_runtime_options o = {.backend = ax_ops_cpu() ? "cpu" : "ref",
                                         .threads = w->m->threads,
                                         .may_stay_below = true}; /* rows may be short */
    AX_TRY(
        ax_classifier_refuse(&w->arch, w->m->src, "predict tokens, on which --calibrate compares"));
    if (w->m->gptq && w->m->scheme.weight.kind != AX_QUANT_INT4)
        return ax_error(AX_ERR_CONFIG,
                        "gptq: rounds int4 in groups, and scheme %s has other weights. Nearest: "
                        "int4.",
                        w->m->scheme.name);
    return ax_runtime_run(&o, calibrated, w, NULL);
}

/* Scales are of matrices: experts that the family stacks are written as one matrix each. */
static enum ax_status take_apart(struct work *w) {
    struct ax_moe_config *moe = &w->arch.moe;
    if (!moe->stacked)
        return AX_OK;
    if (!moe->names->experts)
        return ax_error(
            AX_ERR_UNSUPPORTED,
            "%s: experts of %s models have biases, which quantize does not write; their "
            "published MXFP4 is of 4 bits already; else convert to gguf with "
            "--quant instead",
            w->m->src, w->arch.family->model_type);
    moe->stacked = NULL;
    return ax_hf_split_experts(&w->hf);
}

static enum ax_status run(struct work *w) {
    struct ax_quantize_model *m = w->m;
    AX_TRY(ax_folder_check_new(m->dst));
    if (m->scheme.form == AX_FORM_NONE)
        return ax_compressed_config(&m->scheme, NULL);
    AX_TRY(ax_arch_load(&w->arch, m->src));
    AX_TRY(ax_hf_open(&w->hf, m->src));
    if (w->hf.compressed)
        return ax_error(AX_ERR_CONFIG, "%s: is quantized already; quantize the original", m->src);
    AX_TRY(take_apart(w));
    w->format = ax_compressed_of(&m->scheme);
    m->scheme = ax_scheme_of_model(&m->scheme, w->arch.tied);
    AX_TRY(choose(w));
    return m->rows ? write_calibrated(w) : write_alone(w);
}

enum ax_status ax_quantize_model(struct ax_quantize_model *m) {
    struct work w = {.m = m};
    const enum ax_status st = run(&w);
    for (int i = 0; i < w.n_jobs; i++)
        free_matrix_tensors(&w.jobs[i].t);
    ax_quantize_room_free(&w.room);
    ax_free(w.jobs);
    ax_free(w.outputs);
    ax_hf_close(&w.hf);
    ax_arch_free(&w.arch);
    return st;
}

void ax_quantize_model_free(struct ax_quantize_model *m) {
    ax_free(m->units);
    m->units = NULL;
}
