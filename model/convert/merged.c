/* See merge.h. Computes only the requested rows, several at a time. */
#include "model/convert/merged.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* The adapter's tensor "PREFIX module.what"; bare files lack "model." before the module. */
static const struct ax_st_entry *find(const struct ax_peft *peft, const char *module,
                                      const char *what) {
    static const char *const before[] = {"", "model."};
    const struct ax_st_entry *e = NULL;
    for (int i = 0; i < 2 && !e; i++) {
        char name[2 * AX_NAME_MAX];
        snprintf(name, sizeof name, AX_PEFT_PREFIX "%s%s.%s", before[i], module, what);
        e = ax_safetensors_find(&peft->weights, name);
    }
    return e;
}

/* Rows [first, first + n) of a matrix. */
static enum ax_status take_rows(const struct ax_peft *peft, const struct ax_st_entry *e,
                                int64_t rows, int64_t cols, int64_t first, int64_t n,
                                double **out) {
    const int64_t got = e->ndim > 1 ? e->shape[1] : 1;
    if (e->ndim > 2 || e->shape[0] != rows || got != cols || !ax_dtype_info(e->dtype)->is_float)
        return ax_error(AX_ERR_DATA,
                        "%s: %s is [%lld, %lld], but the base model needs [%lld, %lld]: the "
                        "adapter is for another model (its config says %s)",
                        peft->dir, e->name, (long long)e->shape[0], (long long)got, (long long)rows,
                        (long long)cols, peft->config.base ? peft->config.base : "none");
    AX_TRY(ax_alloc(out, (size_t)(n * cols), sizeof **out));
    return ax_st_read(e, first * cols, n * cols, AX_F64, *out);
}

static enum ax_status take(const struct ax_peft *peft, const struct ax_st_entry *e, int64_t rows,
                           int64_t cols, double **out) {
    return take_rows(peft, e, rows, cols, 0, rows, out);
}

static enum ax_status mismatch(const struct ax_peft *peft, const char *module) {
    return ax_error(AX_ERR_DATA, "%s: the tensors of %s do not match adapter_config.json",
                    peft->dir, module);
}

static void set_size(struct ax_merged *t, const struct ax_adapter_target *target) {
    t->rows = t->base->shape[0];
    t->cols = t->base->shape[1];
    t->r = target->r;
    t->scale = target->scale;
}

/* The number after "layers.", or −1. */
static int layer_of(const char *module) {
    const char *at = strstr(module, "layers.");
    return at ? (int)strtol(at + strlen("layers."), NULL, 10) : -1;
}

/* Transposes [rows][cols] to [cols][rows]. */
static enum ax_status turn(double **x, int64_t rows, int64_t cols) {
    double *t;
    AX_TRY(ax_alloc(&t, (size_t)(rows * cols), sizeof *t));
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < cols; k++)
            t[k * rows + i] = (*x)[i * cols + k];
    ax_free(*x);
    *x = t;
    return AX_OK;
}

/* For an embedding, whose A and B belong to the transposed matrix. */
static enum ax_status open_embedding(struct ax_merged *t, const struct ax_peft *peft,
                                     const char *module, const struct ax_st_entry *a) {
    const struct ax_st_entry *b = find(peft, module, "lora_embedding_B");
    struct ax_adapter_target target;
    AX_TRY(ax_adapter_match(&peft->config, module, -1, &target));
    if (!b || t->base->ndim != 2)
        return mismatch(peft, module);
    set_size(t, &target);
    AX_TRY(take(peft, a, t->r, t->rows, &t->b));
    AX_TRY(take(peft, b, t->cols, t->r, &t->a));
    AX_TRY(turn(&t->b, t->r, t->rows));
    return turn(&t->a, t->cols, t->r);
}

static enum ax_status open_adapter(struct ax_merged *t, const struct ax_peft *peft,
                                   const char *module, const struct ax_st_entry *a) {
    const struct ax_st_entry *b = find(peft, module, "lora_B.weight");
    const struct ax_st_entry *m = find(peft, module, "lora_magnitude_vector");
    struct ax_adapter_target target;
    AX_TRY(ax_adapter_match(&peft->config, module, layer_of(module), &target));
    if (!b || t->base->ndim != 2 || (m != NULL) != peft->config.dora)
        return mismatch(peft, module);
    set_size(t, &target);
    AX_TRY(take(peft, a, t->r, t->cols, &t->a));
    AX_TRY(take(peft, b, t->rows, t->r, &t->b));
    return m ? take(peft, m, t->rows, 1, &t->magnitude) : AX_OK;
}

/* An expert's matrix, or all of them stacked, and which part of the stacked weights it is. */
struct expert {
    int layer;
    int64_t number; /* −1: of all */
    enum ax_expert_weight which;
    bool up; /* gate_up_proj's second half */
};

/* What follows the layer's number in the name of a tensor, or a family's "%d" ("" if nothing does). */
static const char *after_layer(const char *name) {
    const char *at = strstr(name, "layers.");
    if (!at)
        return "";
    at += strlen("layers.");
    return at + strspn(at, "%d0123456789");
}

static bool is_stacked(const struct ax_arch *arch, const struct ax_st_entry *base,
                       struct expert *out) {
    const struct ax_moe_stacked *names = arch->moe.stacked;
    const char *rest = after_layer(base->name);
    const bool gate_up = strcmp(rest, after_layer(names->gate_up)) == 0;
    *out = (struct expert){layer_of(base->name), -1, gate_up ? AX_GATE_UP : AX_DOWN, false};
    return gate_up || strcmp(rest, after_layer(names->down)) == 0;
}

/* `rest`: "EXPERTS.5.w1" after the layer's number, for matrix w1 of expert 5. */
static bool is_numbered(const struct ax_arch *arch, const char *rest, struct expert *out) {
    const struct ax_moe_names *names = arch->moe.names;
    const struct {
        const char *name;
        enum ax_expert_weight which;
        bool up;
    } parts[] = {{names->gate, AX_GATE_UP, false},
                 {names->up, AX_GATE_UP, names->gate != NULL},
                 {names->down, AX_DOWN, false}};
    const char *experts = after_layer(names->experts);
    const size_t n = strlen(experts);
    char *end;
    if (strncmp(rest, experts, n) != 0 || rest[n] != '.')
        return false;
    out->number = strtol(rest + n + 1, &end, 10);
    for (size_t i = 0; *end == '.' && out->number >= 0 && i < sizeof parts / sizeof *parts; i++) {
        out->which = parts[i].which;
        out->up = parts[i].up;
        if (parts[i].name && strcmp(end + 1, parts[i].name) == 0)
            return true;
    }
    return false;
}

static bool is_expert(const struct ax_arch *arch, const struct ax_st_entry *base,
                      const char *module, struct expert *out) {
    if (arch->moe.n_experts == 0 || layer_of(module) < 0)
        return false;
    if (arch->moe.stacked)
        return is_stacked(arch, base, out);
    out->layer = layer_of(module);
    return is_numbered(arch, after_layer(module), out);
}

/* Its rows of B and columns of A, from the tensors of all experts. */
static enum ax_status open_expert(struct ax_merged *t, const struct ax_arch *arch,
                                  const struct ax_peft *peft, const struct expert *e) {
    struct ax_adapter_target target;
    char module[AX_NAME_MAX];
    AX_TRY(ax_adapter_experts_match(&peft->config, e->layer, ax_moe_module(arch), e->which, &target,
                                    module, sizeof module));
    if (!target.on)
        return AX_OK;
    const struct ax_st_entry *a = find(peft, module, "lora_A.weight");
    const struct ax_st_entry *b = find(peft, module, "lora_B.weight");
    const int64_t rows = t->base->shape[0], cols = t->base->shape[1], r = target.r;
    const int64_t E = arch->moe.n_experts;
    const bool half = e->which == AX_GATE_UP && !ax_experts_ungated(ax_moe_module(arch));
    const int64_t stacked = half ? 2 * rows : rows;
    double *of_all = NULL; /* its rows of B, of all experts */
    if (!a || !b || e->number >= E)
        return mismatch(peft, module);
    AX_TRY(take_rows(peft, a, E * r, cols, e->number * r, r, &t->a));
    enum ax_status st = take_rows(peft, b, stacked, E * r, e->up ? rows : 0, rows, &of_all);
    if (st == AX_OK)
        st = ax_alloc(&t->b, (size_t)(rows * r), sizeof *t->b);
    for (int64_t i = 0; i < rows * r && st == AX_OK; i++)
        t->b[i] = of_all[i * E + e->number];
    set_size(t, &target);
    ax_free(of_all);
    return st;
}

/* Of W [E·in][out]: row (e, i) gets Σ_j A_e[j][i]·B_e[·][j], so A and B change places, and each expert
 * has its own B. Of W [E·out][in] they stay. */
static enum ax_status open_stacked(struct ax_merged *t, const struct ax_arch *arch,
                                   const struct ax_peft *peft, const struct expert *s) {
    const bool out_first = arch->moe.stacked->out_first;
    const int64_t E = t->base->shape[0], in = t->base->shape[out_first ? 2 : 1];
    const int64_t out = t->base->shape[out_first ? 1 : 2];
    struct ax_adapter_target target;
    char module[AX_NAME_MAX];
    AX_TRY(ax_adapter_experts_match(&peft->config, s->layer, ax_moe_module(arch), s->which, &target,
                                    module, sizeof module));
    if (!target.on)
        return AX_OK;
    const struct ax_st_entry *a = find(peft, module, "lora_A.weight");
    const struct ax_st_entry *b = find(peft, module, "lora_B.weight");
    const int64_t r = target.r;
    double *all_a = NULL, *all_b = NULL;
    if (!a || !b)
        return mismatch(peft, module);
    enum ax_status st;
    AX_TRY_GOTO(take(peft, a, E * r, in, &all_a), st, done);
    AX_TRY_GOTO(take(peft, b, out, E * r, &all_b), st, done);
    t->group = out_first ? out : in;
    t->rows = E * t->group;
    t->cols = out_first ? in : out;
    AX_TRY_GOTO(ax_alloc(&t->a, (size_t)(E * r * t->cols), sizeof *t->a), st, done);
    AX_TRY_GOTO(ax_alloc(&t->b, (size_t)(t->rows * r), sizeof *t->b), st, done);
    for (int64_t row = 0; row < E * r; row++) { /* e·r + j */
        const int64_t e = row / r, j = row % r;
        double *const of_in = out_first ? &t->a[row * in] : &t->b[e * in * r + j];
        double *const of_out = out_first ? &t->b[e * out * r + j] : &t->a[row * out];
        for (int64_t i = 0; i < in; i++)
            of_in[i * (out_first ? 1 : r)] = all_a[row * in + i];
        for (int64_t o = 0; o < out; o++)
            of_out[o * (out_first ? r : 1)] = all_b[o * E * r + j * E + e];
    }
    t->r = r;
    t->scale = target.scale;
done:
    ax_free(all_a);
    ax_free(all_b);
    return st;
}

enum ax_status ax_merged_open(struct ax_merged *t, const struct ax_arch *arch,
                              const struct ax_st_entry *base, const struct ax_peft *peft,
                              enum ax_dtype dtype) {
    const bool rounds =
        ax_dtype_info(base->dtype)->is_float && !ax_arch_keeps_dtype(arch, base->name);
    *t = (struct ax_merged){.model = base, .base = base, .dtype = rounds ? dtype : base->dtype};
    char module[AX_NAME_MAX + 64];
    const char *what = strrchr(base->name, '.');
    if (!peft || !what || (size_t)(what - base->name) >= sizeof module)
        return AX_OK;
    ax_adapter_module_of(base->name, module, sizeof module);
    const bool matrix = strcmp(++what, "weight") == 0;
    const struct ax_st_entry *whole = find(peft, module, what);
    if (!whole && matrix)
        whole = find(peft, module, "base_layer.weight");
    const struct ax_st_entry *a = matrix ? find(peft, module, "lora_A.weight") : NULL;
    if (whole && (whole->ndim != base->ndim || whole->shape[1] != base->shape[1] ||
                  whole->shape[0] < base->shape[0]))
        return ax_error(AX_ERR_DATA, "%s: the size of %s differs from the base model's", peft->dir,
                        whole->name);
    if (whole)
        t->base = whole;
    struct expert e = {0};
    const bool of_expert = is_expert(arch, base, module, &e), stacked = of_expert && e.number < 0;
    const struct ax_st_entry *embedding = find(peft, module, "lora_embedding_A");
    if (!matrix && !stacked)
        return AX_OK;
    const enum ax_status st = stacked     ? open_stacked(t, arch, peft, &e)
                              : a         ? open_adapter(t, peft, module, a)
                              : embedding ? open_embedding(t, peft, module, embedding)
                              : of_expert ? open_expert(t, arch, peft, &e)
                                          : AX_OK;
    if (st != AX_OK)
        ax_merged_close(t);
    return st;
}

bool ax_merged_unties(const struct ax_peft *peft) {
    bool unties = ax_adapter_unties(&peft->config) || find(peft, "lm_head", "lora_A.weight");
    for (int i = 0; ax_hf_embeddings[i] && !unties; i++)
        unties = find(peft, ax_hf_embeddings[i], "lora_embedding_A");
    return unties;
}

void ax_merged_close(struct ax_merged *t) {
    ax_free(t->a);
    ax_free(t->b);
    ax_free(t->magnitude);
    *t = (struct ax_merged){0};
}

/* Adds the adapter to a row of the base, which is in v. */
static void merge_row(const struct ax_merged *t, int64_t row, double *v) {
    const double *of_group = t->a + (t->group > 0 ? row / t->group * t->r * t->cols : 0);
    for (int64_t j = 0; j < t->r; j++) {
        const double s = t->scale * t->b[row * t->r + j];
        const double *a = of_group + j * t->cols;
        for (int64_t k = 0; k < t->cols; k++)
            v[k] += s * a[k];
    }
    if (!t->magnitude)
        return;
    double squares = 0;
    for (int64_t k = 0; k < t->cols; k++)
        squares += v[k] * v[k];
    const double g = squares > 0 ? t->magnitude[row] / sqrt(squares) : 0;
    for (int64_t k = 0; k < t->cols; k++)
        v[k] *= g;
}

enum ax_status ax_merged_read(const struct ax_merged *t, int64_t first, int64_t n, double *out) {
    if (t->r == 0)
        return ax_st_read(t->base, first, n, AX_F64, out);
    const int64_t low = first / t->cols, high = (first + n + t->cols - 1) / t->cols;
    double *rows;
    AX_TRY(ax_alloc(&rows, (size_t)((high - low) * t->cols), sizeof *rows));
    const enum ax_status st =
        ax_st_read(t->base, low * t->cols, (high - low) * t->cols, AX_F64, rows);
    if (st == AX_OK) {
#pragma omp parallel for schedule(static)
        for (int64_t row = low; row < high; row++)
            merge_row(t, row, rows + (row - low) * t->cols);
        memcpy(out, rows + (first - low * t->cols), (size_t)n * sizeof *out);
    }
    ax_free(rows);
    return st;
}

bool ax_merged_differs(const struct ax_merged *t) {
    return t->r > 0 || t->base != t->model;
}

/* Counts elements of `merged`, as they were rounded, that the base has otherwise. */
static enum ax_status count_changes(struct ax_merged *t, int64_t first, int64_t n,
                                    const double *merged) {
    const int64_t left = t->model->numel - first; /* rows of new tokens follow */
    const int64_t old = left < 0 ? 0 : left < n ? left : n;
    double *before;
    AX_TRY(ax_alloc(&before, (size_t)n, sizeof *before));
    const enum ax_status st = ax_st_read(t->model, first, old, AX_F64, before);
    for (int64_t i = 0; i < n && st == AX_OK; i++)
        t->changed += i >= old || merged[i] != before[i];
    ax_free(before);
    return st;
}

/* The same rounded; ctx is the struct ax_merged. */
static enum ax_status fill(void *ctx, int64_t first, int64_t n, void *out) {
    struct ax_merged *t = ctx;
    double *merged;
    AX_TRY(ax_alloc(&merged, (size_t)n, sizeof *merged));
    enum ax_status st = ax_merged_read(t, first, n, merged);
    if (st == AX_OK)
        ax_convert(t->dtype, out, AX_F64, merged, n);
    if (st == AX_OK && ax_merged_differs(t)) {
        ax_convert(AX_F64, merged, t->dtype, out, n);
        st = count_changes(t, first, n, merged);
    }
    ax_free(merged);
    return st;
}

struct ax_st_output ax_merged_output(struct ax_merged *t) {
    struct ax_st_output o = {
        .name = t->model->name, .dtype = t->dtype, .ndim = t->model->ndim, .fill = fill, .ctx = t};
    memcpy(o.shape, t->base->shape, sizeof o.shape);
    return o;
}
