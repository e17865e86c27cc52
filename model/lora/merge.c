/* See merge.h. Computes only the requested rows, several at a time. */
#include "model/lora/merge.h"

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

#define MLP_EXPERTS     "mlp.experts"
#define GRANITE_EXPERTS "block_sparse_moe.experts"

/* transformers' module of the experts that a name of a file is about: theirs, or that of most families. */
static const char *experts_module(const char *name) {
    static const char *const own[] = {"feed_forward.experts", "mixer.experts"};
    const char *found = MLP_EXPERTS;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strstr(name, own[i]))
            found = own[i];
    return found;
}

/* "model.layers.3.block_sparse_moe.experts.5.w1": an expert's matrix, and which part of the stacked
 * weights it is. */
struct expert {
    const char *module; /* of all experts */
    int layer;
    int64_t number;
    enum ax_expert_weight which;
    bool up; /* gate_up_proj's second half */
};
static bool is_expert(const char *module, struct expert *out) {
    static const struct {
        const char *name;
        enum ax_expert_weight which;
        bool up;
    } parts[] = {{"w1", AX_GATE_UP, false},     {"w3", AX_GATE_UP, true},
                 {"w2", AX_DOWN, false},        {"gate_proj", AX_GATE_UP, false},
                 {"up_proj", AX_GATE_UP, true}, {"down_proj", AX_DOWN, false}};
    const char *at = strstr(module, ".experts.");
    char *end;
    if (!at || layer_of(module) < 0)
        return false;
    out->module = experts_module(module);
    out->layer = layer_of(module);
    out->number = strtol(at + strlen(".experts."), &end, 10);
    for (size_t i = 0; *end == '.' && out->number >= 0 && i < sizeof parts / sizeof *parts; i++) {
        out->which = parts[i].which;
        out->up = parts[i].up && !ax_experts_ungated(out->module);
        if (strcmp(end + 1, parts[i].name) == 0)
            return true;
    }
    return false;
}

/* Its rows of B and columns of A, from the tensors of all experts. */
static enum ax_status open_expert(struct ax_merged *t, const struct ax_peft *peft,
                                  const struct expert *e) {
    struct ax_adapter_target target;
    char module[AX_NAME_MAX];
    AX_TRY(ax_adapter_experts_match(&peft->config, e->layer, e->module, e->which, &target, module,
                                    sizeof module));
    if (!target.on)
        return AX_OK;
    const struct ax_st_entry *a = find(peft, module, "lora_A.weight");
    const struct ax_st_entry *b = find(peft, module, "lora_B.weight");
    const int64_t rows = t->base->shape[0], cols = t->base->shape[1], r = target.r;
    const bool half = e->which == AX_GATE_UP && !ax_experts_ungated(e->module);
    const int64_t stacked = half ? 2 * rows : rows;
    const int64_t experts = a && a->ndim == 2 ? a->shape[0] / r : 0;
    double *of_all = NULL; /* its rows of B, of all experts */
    if (!a || !b || e->number >= experts)
        return mismatch(peft, module);
    AX_TRY(take_rows(peft, a, experts * r, cols, e->number * r, r, &t->a));
    enum ax_status st = take_rows(peft, b, stacked, experts * r, e->up ? rows : 0, rows, &of_all);
    if (st == AX_OK)
        st = ax_alloc(&t->b, (size_t)(rows * r), sizeof *t->b);
    for (int64_t i = 0; i < rows * r && st == AX_OK; i++)
        t->b[i] = of_all[i * experts + e->number];
    set_size(t, &target);
    ax_free(of_all);
    return st;
}

/* Which weights of experts a tensor of the file is; NULL: none. */
struct stacked {
    const char *end;
    enum ax_expert_weight which;
    bool out_first; /* [E][out][in], else [E][in][out] */
    const char *experts;
};
static const struct stacked *find_stacked(const struct ax_st_entry *base) {
    static const struct stacked all[] = {
        {".mlp.experts.gate_up_proj", AX_GATE_UP, false, MLP_EXPERTS},
        {".mlp.experts.down_proj", AX_DOWN, false, MLP_EXPERTS},
        {".feed_forward.experts.gate_up_proj", AX_GATE_UP, false, "feed_forward.experts"},
        {".feed_forward.experts.down_proj", AX_DOWN, false, "feed_forward.experts"},
        {".experts.gate_up_proj", AX_GATE_UP, true, "experts"},
        {".experts.down_proj", AX_DOWN, true, "experts"},
        {".block_sparse_moe.input_linear.weight", AX_GATE_UP, true, GRANITE_EXPERTS},
        {".block_sparse_moe.output_linear.weight", AX_DOWN, true, GRANITE_EXPERTS}};
    const size_t n = strlen(base->name);
    for (size_t k = 0; base->ndim == 3 && k < sizeof all / sizeof *all; k++)
        if (n > strlen(all[k].end) && strcmp(base->name + n - strlen(all[k].end), all[k].end) == 0)
            return &all[k];
    return NULL;
}

/* Of W [E·in][out]: row (e, i) gets Σ_j A_e[j][i]·B_e[·][j], so A and B change places, and each expert
 * has its own B. Of W [E·out][in] they stay. */
static enum ax_status open_stacked(struct ax_merged *t, const struct ax_peft *peft,
                                   const struct stacked *s) {
    const int64_t E = t->base->shape[0], in = t->base->shape[s->out_first ? 2 : 1];
    const int64_t out = t->base->shape[s->out_first ? 1 : 2];
    struct ax_adapter_target target;
    char module[AX_NAME_MAX];
    AX_TRY(ax_adapter_experts_match(&peft->config, layer_of(t->base->name), s->experts, s->which,
                                    &target, module, sizeof module));
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
    t->group = s->out_first ? out : in;
    t->rows = E * t->group;
    t->cols = s->out_first ? in : out;
    AX_TRY_GOTO(ax_alloc(&t->a, (size_t)(E * r * t->cols), sizeof *t->a), st, done);
    AX_TRY_GOTO(ax_alloc(&t->b, (size_t)(t->rows * r), sizeof *t->b), st, done);
    for (int64_t row = 0; row < E * r; row++) { /* e·r + j */
        const int64_t e = row / r, j = row % r;
        double *const of_in = s->out_first ? &t->a[row * in] : &t->b[e * in * r + j];
        double *const of_out = s->out_first ? &t->b[e * out * r + j] : &t->a[row * out];
        for (int64_t i = 0; i < in; i++)
            of_in[i * (s->out_first ? 1 : r)] = all_a[row * in + i];
        for (int64_t o = 0; o < out; o++)
            of_out[o * (s->out_first ? r : 1)] = all_b[o * E * r + j * E + e];
    }
    t->r = r;
    t->scale = target.scale;
done:
    ax_free(all_a);
    ax_free(all_b);
    return st;
}

enum ax_status ax_merged_open(struct ax_merged *t, const struct ax_st_entry *base,
                              const struct ax_peft *peft, enum ax_dtype dtype) {
    *t = (struct ax_merged){.model = base, .base = base, .dtype = dtype};
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
    struct expert expert;
    const struct stacked *stacked = find_stacked(base);
    const struct ax_st_entry *embedding = find(peft, module, "lora_embedding_A");
    if (!matrix && !stacked)
        return AX_OK;
    const enum ax_status st = stacked     ? open_stacked(t, peft, stacked)
                              : a         ? open_adapter(t, peft, module, a)
                              : embedding ? open_embedding(t, peft, module, embedding)
                              : is_expert(module, &expert) ? open_expert(t, peft, &expert)
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

enum ax_status ax_merged_fill(void *ctx, int64_t first, int64_t n, void *out) {
    struct ax_merged *t = ctx;
    double *merged, *before;
    AX_TRY(ax_alloc(&merged, (size_t)n, 2 * sizeof *merged));
    before = merged + n;
    const int64_t left = t->model->numel - first; /* rows of new tokens follow */
    const int64_t old = left < 0 ? 0 : left < n ? left : n;
    enum ax_status st = ax_merged_read(t, first, n, merged);
    if (st == AX_OK)
        st = ax_st_read(t->model, first, old, AX_F64, before);
    if (st == AX_OK) {
        ax_convert(t->dtype, out, AX_F64, merged, n);
        ax_convert(AX_F64, merged, t->dtype, out, n);
        for (int64_t i = 0; i < n && (t->r > 0 || t->base != t->model); i++)
            t->changed += i >= old || merged[i] != before[i];
    }
    ax_free(merged);
    return st;
}
