#include "optim/prune.h"

#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "kernels/dynamic_map.h"

/* Reorders so that the k-th smallest value is at k, none before it is larger and none after it is
 * smaller (Hoare 1961). */
static void partition(double *x, int64_t n, int64_t k) {
    for (int64_t low = 0, high = n - 1; low < high;) {
        const double pivot = x[low + (high - low) / 2];
        int64_t i = low, j = high;
        while (i <= j) {
            for (; x[i] < pivot;)
                i++;
            for (; x[j] > pivot;)
                j--;
            if (i <= j) {
                const double swap = x[i];
                x[i++] = x[j];
                x[j--] = swap;
            }
        }
        if (k <= j)
            high = j;
        else if (k >= i)
            low = i;
        else
            return;
    }
}

double ax_quantile(double *values, int64_t n, double ratio) {
    const double at = ratio * (double)(n - 1);
    const int64_t k = (int64_t)at;
    partition(values, n, k);
    if (k + 1 >= n)
        return values[k];
    double next = values[k + 1];
    for (int64_t i = k + 2; i < n; i++)
        next = values[i] < next ? values[i] : next;
    return values[k] + (at - (double)k) * (next - values[k]);
}

/* One moment of one parameter. */
struct moment {
    const struct ax_model *m;
    const struct ax_param *p;
    const struct ax_param_state *state;
    const struct ax_prune *prune;
    struct ax_rng_key key;
    const struct ax_dynamic_map *map;      /* of its codes, if it has scales */
    const struct ax_tensor *value, *scale; /* NULL: nothing here; no scales */
    char *codes, *scales;                  /* their bytes on the host */
    double *size;                          /* [numel] magnitudes of all elements */
    void AX_DEVICE *device;                /* scratch for them */
};

static const struct ax_tensor *find(const struct ax_param_state *s, const char *name) {
    for (int k = 0; k < s->n; k++)
        if (strcmp(s->slots[k].name, name) == 0)
            return &s->slots[k].value;
    return NULL;
}

static int64_t global_index(const struct moment *a, int64_t i) {
    int64_t run;
    return ax_param_global_index(a->p, &a->m->rt->mesh, a->state->first + i, &run);
}

static double value_at(const struct moment *a, int64_t i) {
    if (!a->scale)
        return ax_load(a->value->dtype, a->codes, i);
    const int64_t block = (a->state->piece.phase + i) / AX_8BIT_BLOCK;
    return (double)a->map->value[(unsigned char)a->codes[i]] *
           ax_load(a->scale->dtype, a->scales, block);
}

static enum ax_status read_host(const struct moment *a, const struct ax_tensor *t, char **out) {
    const size_t bytes = ax_tensor_bytes(t);
    AX_TRY(ax_alloc(out, bytes, 1));
    return ax_queue_read(a->m->rt->q, t->data, *out, bytes, NULL);
}

/* Reads the moment, and puts the magnitudes of this rank's elements in their places. */
static enum ax_status read_values(struct moment *a) {
    AX_TRY(ax_alloc(&a->size, (size_t)ax_param_numel(a->p), sizeof *a->size));
    if (!a->value)
        return AX_OK;
    AX_TRY(read_host(a, a->value, &a->codes));
    if (a->scale)
        AX_TRY(read_host(a, a->scale, &a->scales));
    for (int64_t i = 0; i < a->state->piece.n; i++)
        a->size[global_index(a, i)] = fabs(value_at(a, i));
    return AX_OK;
}

/* Over the ranks that share the parameter: each element is on one of them, and 0 on the others. */
static enum ax_status sum(const struct moment *a) {
    struct ax_runtime *rt = a->m->rt;
    const struct ax_segment *seg = &a->m->units[a->p->unit].segments[a->p->segment];
    const int64_t n = ax_param_numel(a->p);
    AX_TRY(ax_comm_sum(&rt->comms[seg->gather], rt->q, AX_F64, a->device, n));
    return a->p->tp_dim < 0 ? AX_OK
                            : ax_comm_sum(&rt->comms[AX_ROLE_TP], rt->q, AX_F64, a->device, n);
}

static enum ax_status share(const struct moment *a) {
    struct ax_queue *q = a->m->rt->q;
    const size_t bytes = (size_t)ax_param_numel(a->p) * sizeof *a->size;
    AX_TRY(ax_queue_write(q, a->device, a->size, bytes));
    AX_TRY(sum(a));
    return ax_queue_read(q, a->device, a->size, bytes, NULL);
}

static enum ax_status drop(const struct moment *a, double threshold) {
    const size_t size = ax_dtype_size(a->value->dtype);
    const int zero = a->scale && a->map == &ax_dynamic_signed ? 127 : 0;
    for (int64_t i = 0; i < a->state->piece.n; i++) {
        const int64_t at = global_index(a, i);
        const bool kept = a->prune->method == AX_PRUNE_RANDOM
                              ? (double)ax_rng_uniform(a->key, (uint64_t)at) > a->prune->ratio
                              : a->size[at] > threshold;
        if (!kept)
            memset(a->codes + (size_t)i * size, zero, size);
    }
    return ax_queue_write(a->m->rt->q, a->value->data, a->codes, ax_tensor_bytes(a->value));
}

static enum ax_status prune(struct moment *a) {
    const size_t n = (size_t)ax_param_numel(a->p);
    double *sorted;
    if (ax_runtime_planning(a->m->rt))
        return sum(a);
    AX_TRY(read_values(a));
    AX_TRY(share(a));
    if (!a->value)
        return AX_OK;
    AX_TRY(ax_alloc(&sorted, n, sizeof *sorted));
    memcpy(sorted, a->size, n * sizeof *sorted);
    const enum ax_status st = drop(a, ax_quantile(sorted, (int64_t)n, a->prune->ratio));
    ax_free(sorted);
    return st;
}

enum ax_status ax_prune_moments(const struct ax_model *m, int index,
                                const struct ax_param_state *state, const struct ax_prune *options,
                                uint64_t seed) {
    static const struct {
        const char *name, *scale;
        const struct ax_dynamic_map *map;
    } moments[] = {{"exp_avg", "exp_avg_scale", &ax_dynamic_signed},
                   {"exp_avg_sq", "exp_avg_sq_scale", &ax_dynamic_unsigned}};
    const struct ax_param *p = &m->params[index];
    struct ax_stack *scratch = &m->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    void AX_DEVICE *device =
        ax_stack_push(scratch, "magnitudes of moments", (size_t)ax_param_numel(p) * sizeof(double));
    enum ax_status st = AX_OK;
    for (uint32_t i = 0; i < 2 && st == AX_OK; i++) {
        struct moment a = {.m = m,
                           .p = p,
                           .state = state,
                           .prune = options,
                           .key = {seed, i, ax_hash32(p->name)},
                           .map = moments[i].map,
                           .value = find(state, moments[i].name),
                           .scale = find(state, moments[i].scale),
                           .device = device};
        st = prune(&a);
        ax_free(a.codes);
        ax_free(a.scales);
        ax_free(a.size);
    }
    ax_stack_release(scratch, mark);
    return st;
}
