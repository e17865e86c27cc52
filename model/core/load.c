/* A model's parameter values: from a folder, or random. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "ckpt/hf/hf.h"
#include "model/core/adapters.h"
#include "model/core/model.h"

/* Rows of a table of tokens in the file, if fewer than in the model; else 0. */
static int64_t stored_rows(const struct ax_model *m, const struct ax_param *p) {
    return p == m->embed || p == m->lm_head ? m->arch.vocab_stored
           : p == m->per_layer.table        ? m->arch.per_layer.stored
                                            : 0;
}

static bool grows(const struct ax_model *m, const struct ax_param *p, const struct ax_st_entry *e) {
    const int64_t stored = stored_rows(m, p);
    return stored > 0 && e->shape[0] == stored;
}

/* Fills the rows after the file's with their mean, or with normal(0, init_range), independent of
 * the run's seed. */
static void fill_rows(const struct ax_model *m, const struct ax_param *p, enum ax_dtype dtype,
                      void *all) {
    const int64_t old = stored_rows(m, p), cols = p->shape[1];
    const struct ax_rng_key key = {0, 0, ax_hash32(p->name)};
    for (int64_t k = 0; k < cols; k++) {
        double mean = 0;
        for (int64_t i = 0; m->arch.new_rows_mean && i < old; i++)
            mean += ax_load(dtype, all, i * cols + k) / (double)old;
        for (int64_t i = old; i < p->shape[0]; i++) {
            const double drawn = (double)ax_rng_normal(key, (uint64_t)(i * cols + k));
            ax_store(dtype, all, i * cols + k,
                     m->arch.new_rows_mean ? mean : drawn * m->arch.init_range);
        }
    }
}

static enum ax_status load_grown(struct ax_model *m, const struct ax_param *p,
                                 const struct ax_st_entry *e) {
    char *all;
    AX_TRY(ax_alloc(&all, (size_t)ax_param_numel(p), ax_dtype_size(e->dtype)));
    enum ax_status st = ax_st_read(e, 0, e->numel, e->dtype, all);
    if (st == AX_OK) {
        const struct ax_elements grown = ax_elements_of(e->dtype, all);
        fill_rows(m, p, e->dtype, all);
        st = ax_unit_load(&m->units[p->unit], m->rt, p, &grown);
    }
    ax_free(all);
    return st;
}

/* Where an adapter unties a tied base, its head is a separate matrix that starts as a copy of the
 * embedding. */
static enum ax_status check_tensor(const struct ax_model *m, const struct ax_hf *hf,
                                   const struct ax_param *p, const struct ax_st_entry **found) {
    const struct ax_st_entry *e = ax_hf_find(hf, p->name);
    if (!e && ax_adapter_any_unties(m) && strcmp(p->name, "lm_head.weight") == 0)
        e = ax_hf_find(hf, m->embed->name);
    if (!e)
        return ax_error(AX_ERR_DATA, "%s: tensor %s is missing", hf->dir, p->name);
    bool same = e->ndim == p->ndim && ax_dtype_info(e->dtype)->is_float;
    for (int d = 0; same && d < p->ndim; d++)
        same = e->shape[d] == p->shape[d] || (d == 0 && grows(m, p, e));
    if (!same)
        return ax_error(AX_ERR_DATA,
                        "%s: tensor %s is %s [%lld, %lld] (%d dimensions), but config.json "
                        "requires [%lld, %lld] floats (%d dimensions)",
                        hf->dir, p->name, ax_dtype_info(e->dtype)->name, (long long)e->shape[0],
                        (long long)(e->ndim > 1 ? e->shape[1] : 1), e->ndim, (long long)p->shape[0],
                        (long long)(p->ndim > 1 ? p->shape[1] : 1), p->ndim);
    *found = e;
    return AX_OK;
}

static int by_name(const void *x, const void *y) {
    return strcmp(*(const char *const *)x, *(const char *const *)y);
}

/* True for a parameter's name, with or without "model." (see ax_hf_find). */
static bool known(const char *name, const char **names, size_t n) {
    char with[AX_NAME_MAX + 8];
    const char *full = with;
    snprintf(with, sizeof with, "model.%s", name);
    return bsearch(&name, names, n, sizeof *names, by_name) ||
           bsearch(&full, names, n, sizeof *names, by_name);
}

/* True for a new head, which the folder does not have. */
static bool is_new(const struct ax_model *m, const struct ax_param *p) {
    return m->arch.new_head && (p == m->lm_head || p == m->head.bias[0]);
}

/* True for a bias that adds nothing, as AutoGPTQ writes beside every matrix. */
static bool is_zero_bias(const struct ax_st_entry *e) {
    const size_t n = strlen(e->name);
    if (n < 5 || strcmp(e->name + n - 5, ".bias") != 0 || !e->data)
        return false;
    for (int64_t i = 0; i < e->numel; i++)
        if (ax_load(e->dtype, e->data, i) != 0)
            return false;
    return true;
}

/* True for a copy of the embedding or the head. */
static bool is_copy(const struct ax_model *m, const char *name) {
    char own[AX_NAME_MAX];
    bool yes = false;
    for (int i = 0; i < AX_ARCH_COPIES && ax_arch_predicts(&m->arch); i++)
        yes = yes || strcmp(name, ax_arch_copy_name(&m->arch, i, own, sizeof own)) == 0;
    return yes;
}

/* An unused tensor would mean training that silently starts from something else. Known leftovers:
 * rope buffers of old files, biases of zeros, and a head that is not used: the copy of a tied one, or what a
 * classifier's replaces. */
static enum ax_status check_left_over(const struct ax_model *m, const struct ax_hf *hf) {
    const int n = ax_hf_count(hf);
    const size_t n_params = (size_t)m->n_params;
    const struct ax_hf_unused unused = ax_arch_unused(&m->arch);
    const char **names;
    enum ax_status st = AX_OK;
    AX_TRY(ax_alloc(&names, n_params, sizeof *names));
    for (size_t i = 0; i < n_params; i++)
        names[i] = m->params[i].name;
    qsort(names, n_params, sizeof *names, by_name);
    for (int i = 0; i < n && st == AX_OK; i++) {
        const char *name = ax_hf_at(hf, i)->name;
        const bool harmless =
            strstr(name, "rotary_emb.inv_freq") || ax_hf_is_unused(&unused, name) ||
            is_copy(m, name) ||
            ((m->arch.tied || m->arch.new_head) && strcmp(name, "lm_head.weight") == 0);
        if (!harmless && !known(name, names, n_params) && !is_zero_bias(ax_hf_at(hf, i)))
            st = ax_error(AX_ERR_DATA, "%s: unexpected tensor %s in a %s model", hf->dir, name,
                          m->arch.family->model_type);
    }
    ax_free(names);
    return st;
}

enum ax_status ax_model_load_param(struct ax_model *m, const struct ax_hf *hf,
                                   const struct ax_param *p) {
    struct ax_unit *unit = &m->units[p->unit];
    const struct ax_st_entry *e;
    if (is_new(m, p)) /* as new rows: independent of the run's seed */
        return ax_model_draw(m, p, AX_VALUES_NORMAL, p->ndim > 1 ? m->arch.init_range : 0, 0);
    AX_TRY(check_tensor(m, hf, p, &e));
    const struct ax_elements stored = ax_st_elements(e);
    if (e->shape[0] != p->shape[0])
        AX_TRY(load_grown(m, p, e));
    else if (p->storage == AX_STORAGE_PLAIN)
        AX_TRY(ax_unit_load(unit, m->rt, p, &stored));
    else
        AX_TRY(ax_unit_load_packed(unit, m->rt, p, &stored));
    ax_st_drop(e, 0, e->numel);
    return AX_OK;
}

/* Has this rank a place of the model's own for a parameter of the base? */
static bool has_place(const struct ax_model *m, const struct ax_param *p) {
    const struct ax_unit *unit = &m->units[p->unit];
    return !p->adapter && ax_unit_present(unit) && !unit->segments[p->segment].lender;
}

enum ax_status ax_model_load_unit(struct ax_model *m, const struct ax_hf *hf, int unit) {
    for (int i = 0; i < m->n_params && !ax_runtime_planning(m->rt); i++)
        if (m->params[i].unit == unit && has_place(m, &m->params[i]))
            AX_TRY(ax_model_load_param(m, hf, &m->params[i]));
    return AX_OK;
}

enum ax_status ax_model_load(struct ax_model *m, const struct ax_hf *hf) {
    if (ax_runtime_planning(m->rt))
        return AX_OK;
    AX_TRY(check_left_over(m, hf));
    for (int i = 0; i < m->n_params; i++) {
        const struct ax_param *p = &m->params[i];
        if (has_place(m, p))
            AX_TRY(ax_model_load_param(m, hf, p));
    }
    return AX_OK;
}

enum ax_status ax_model_load_buffers(struct ax_model *m, const struct ax_hf *hf) {
    for (int i = 0; i < m->n_params && !ax_runtime_planning(m->rt); i++) {
        const struct ax_param *p = &m->params[i];
        if (p->buffer && ax_unit_present(&m->units[p->unit]))
            AX_TRY(ax_model_load_param(m, hf, p));
    }
    return AX_OK;
}

struct drawn {
    enum ax_values kind;
    double size;
    struct ax_rng_key key;
    enum ax_dtype dtype;
};

static enum ax_status read_drawn(void *ctx, int64_t first, int64_t n, void *out) {
    enum { CHUNK = 256 };
    const struct drawn *d = ctx;
    const bool normal = d->size != 0 && d->kind == AX_VALUES_NORMAL;
    const bool uniform = d->size != 0 && d->kind == AX_VALUES_UNIFORM;
    float normals[CHUNK];
    for (int64_t i = 0; i < n; i += CHUNK) {
        const uint64_t at = (uint64_t)(first + i);
        const int64_t m = n - i < CHUNK ? n - i : CHUNK;
        if (normal)
            ax_rng_normals(d->key, at, m, normals);
        for (int64_t k = 0; k < m; k++) {
            const double by = normal    ? (double)normals[k]
                              : uniform ? 2 * (double)ax_rng_uniform(d->key, at + (uint64_t)k) - 1
                                        : 1;
            ax_store(d->dtype, out, i + k, d->size * by);
        }
    }
    return AX_OK;
}

enum ax_status ax_model_draw(const struct ax_model *m, const struct ax_param *p,
                             enum ax_values kind, double size, uint64_t seed) {
    struct drawn d = {kind, size, {seed, 0, ax_hash32(p->name)}, m->accum};
    const struct ax_elements values = {.dtype = d.dtype, .read = read_drawn, .ctx = &d};
    struct ax_unit *unit = &m->units[p->unit];
    return p->storage == AX_STORAGE_PLAIN ? ax_unit_load(unit, m->rt, p, &values)
                                          : ax_unit_load_packed(unit, m->rt, p, &values);
}

enum ax_status ax_model_init_random(struct ax_model *m, uint64_t seed) {
    if (ax_runtime_planning(m->rt))
        return AX_OK;
    for (int i = 0; i < m->n_params; i++) {
        const struct ax_param *p = &m->params[i];
        if (!has_place(m, p))
            continue;
        if (ax_param_is_matrix(p))
            AX_TRY(ax_model_draw(m, p, AX_VALUES_NORMAL, m->arch.init_range, seed));
        else
            AX_TRY(ax_model_draw(m, p, AX_VALUES_EQUAL, p->start, seed));
    }
    return AX_OK;
}
