/* Weights that are not what they should be: where ranks hold the same, to the bit; and NaN.
 *
 * What several ranks hold in common must stay the same to the bit: parameters of replicas (dp_replicate), and, of
 * ranks of tp, parameters that tp does not split and whose gradients it sums. If memory is damaged, or a rank
 * computes something else, the step, the tensor and the rank are named before anything of it is saved.
 *
 * Compared are hashes of shards, masters with their remainder, and packed codes, of the models that the run trains
 * and of the teacher. Optimizer state shows in the masters after the next update. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/hash/hash.h"
#include "base/mem.h"
#include "kernels/finite.h"
#include "optim/train/run.h"

#define BLOCK    ((size_t)64 << 10) /* bytes that one thread hashes */
#define SHARE    1e-3               /* of the run's time, for comparisons that no key asks for */
#define N_MODELS 3
#define PLACES                                                                                     \
    4 /* doubles of a hash: both halves and their negatives, for a maximum and a minimum */

/* ---- hashes ---- */

/* Changes *hash by the first bytes of a tensor, `most` of them; an absent one changes nothing. */
static enum ax_status add_tensor(struct ax_queue *q, const struct ax_tensor *t, size_t most,
                                 uint64_t *hash) {
    const size_t all_bytes = t->data ? ax_tensor_bytes(t) : 0;
    const size_t bytes = all_bytes < most ? all_bytes : most;
    for (size_t first = 0; first < bytes; first += AX_QUEUE_PIECE) {
        const size_t n = bytes - first < AX_QUEUE_PIECE ? bytes - first : AX_QUEUE_PIECE;
        const void *data;
        uint64_t all = 0;
        AX_TRY(ax_queue_begin_read(q, (const char AX_DEVICE *)t->data + first, n, &data));
#pragma omp parallel for schedule(static) reduction(^ : all) if (n >= 4 * BLOCK)
        for (size_t at = 0; at < n; at += BLOCK)
            all ^= ax_hash64((const char *)data + at, n - at < BLOCK ? n - at : BLOCK, first + at);
        ax_queue_end_read(q, data);
        *hash = ax_hash64(&all, sizeof all, *hash);
    }
    return AX_OK;
}

enum ax_status ax_train_hash_param(const struct ax_model *m, const struct ax_param *p, size_t most,
                                   bool updated, uint64_t *hash) {
    const struct ax_unit *unit = &m->units[p->unit];
    const struct ax_segment *seg = &unit->segments[p->segment];
    int64_t first, n, at;
    *hash = 0;
    if (!ax_unit_present(unit))
        return AX_OK;
    ax_unit_owned(unit, &m->rt->mesh, p, &first, &n, &at);
    if (n == 0)
        return AX_OK;
    const struct ax_tensor flat[] = {seg->shard, seg->master, seg->remainder};
    const size_t from = updated && seg->master.data ? 1 : 0;
    for (size_t i = from; i < sizeof flat / sizeof *flat; i++) {
        if (!flat[i].data || (i > from && flat[i].data == seg->shard.data))
            continue;
        const struct ax_tensor part = ax_tensor_rows(&flat[i], at, n);
        AX_TRY(add_tensor(m->rt->q, &part, most, hash));
    }
    if (seg->packing.store == AX_STORAGE_PLAIN)
        return AX_OK;
    const struct ax_packed packed = ax_packing_view(&seg->packing, seg->packed_shard, at, n);
    AX_TRY(add_tensor(m->rt->q, &packed.codes, most, hash));
    AX_TRY(add_tensor(m->rt->q, &packed.scale, most, hash));
    AX_TRY(add_tensor(m->rt->q, &packed.nested, most, hash));
    return add_tensor(m->rt->q, &packed.offset, most, hash);
}

/* ---- comparing ---- */

static bool has_replicas(const struct ax_train *t) {
    const int *size = t->mesh.size;
    return t->o->replica_check != 0 && (size[AX_ROLE_DP_REPLICATE] > 1 || size[AX_ROLE_TP] > 1);
}

/* All parameters of some models, one after the other. */
struct list {
    const struct ax_model *models[N_MODELS];
    int n_models, n;
    uint64_t *hashes; /* [n] */
    double *places;   /* [n][PLACES] */
};

static void add_model(struct list *l, const struct ax_model *m) {
    l->models[l->n_models++] = m;
    l->n += m->n_params;
}

static const struct ax_param *find(const struct list *l, int i, const struct ax_model **m) {
    int k = 0;
    while (i >= l->models[k]->n_params)
        i -= l->models[k++]->n_params;
    *m = l->models[k];
    return &l->models[k]->params[i];
}

/* True if the ranks of a role have the same of a parameter. */
static bool is_common(const struct ax_model *m, const struct ax_param *p, enum ax_role role) {
    const struct ax_segment *seg = &m->units[p->unit].segments[p->segment];
    return role == AX_ROLE_DP_REPLICATE || (seg->reduce_roles >> role & 1);
}

static enum ax_status create_list(struct list *l, struct ax_train *t) {
    const struct ax_teacher *teacher = ax_train_teacher(t);
    *l = (struct list){0};
    add_model(l, &t->step.model);
    if (ax_train_has_value(t->o))
        add_model(l, &t->value.step.model);
    if (teacher)
        add_model(l, &teacher->model);
    AX_TRY(ax_alloc(&l->hashes, (size_t)l->n, sizeof *l->hashes));
    AX_TRY(ax_alloc(&l->places, (size_t)l->n, PLACES * sizeof *l->places));
    for (int i = 0; i < l->n; i++) {
        const struct ax_model *m;
        const struct ax_param *p = find(l, i, &m);
        AX_TRY(ax_train_hash_param(m, p, SIZE_MAX, false, &l->hashes[i]));
    }
    return AX_OK;
}

static void free_list(struct list *l) {
    ax_free(l->hashes);
    ax_free(l->places);
}

static void put(double *place, uint64_t hash) {
    place[0] = (double)(hash >> 32);
    place[1] = (double)(uint32_t)hash;
    place[2] = -place[0];
    place[3] = -place[1];
}

/* *bad = the first parameter of which the ranks of a role have different hashes; −1 if there is none. */
static enum ax_status compare(struct list *l, struct ax_train *t, enum ax_role role, int *bad) {
    *bad = -1;
    if (t->mesh.size[role] == 1)
        return AX_OK;
    for (int i = 0; i < l->n; i++) {
        const struct ax_model *m;
        const struct ax_param *p = find(l, i, &m);
        put(l->places + (size_t)PLACES * (size_t)i, is_common(m, p, role) ? l->hashes[i] : 0);
    }
    AX_TRY(ax_runtime_combine(t->rt, role, AX_MAX, l->places, (int64_t)l->n * PLACES));
    for (int i = 0; i < l->n && *bad < 0; i++) {
        const double *place = l->places + (size_t)PLACES * (size_t)i;
        if (place[0] != -place[2] || place[1] != -place[3])
            *bad = i;
    }
    return AX_OK;
}

/* ---- who is it ---- */

/* What a rank of a role says: its number, and its hash. */
struct said {
    double rank, high, low;
};

/* Number of ranks that say what v[i] says. */
static int agreeing(const struct said *v, int n, int i) {
    int same = 0;
    for (int k = 0; k < n; k++)
        same += v[k].high == v[i].high && v[k].low == v[i].low;
    return same;
}

/* The only rank of n that is not what the others are: its index; −1 if nobody can tell. */
static int find_odd(const struct said *v, int n) {
    for (int i = 0; i < n && n > 2; i++)
        if (agreeing(v, n, i) == 1 && agreeing(v, n, i == 0 ? 1 : 0) == n - 1)
            return i;
    return -1;
}

/* Ranks between which a parameter differs, the only one that differs from the others or −1. */
struct suspects {
    double first, last, odd;
};

/* Called by the ranks of a role that differ. */
static enum ax_status find_suspects(struct ax_train *t, enum ax_role role, uint64_t hash,
                                    struct suspects *out) {
    const int n = t->mesh.size[role];
    struct said *v;
    AX_TRY(ax_alloc(&v, (size_t)n, sizeof *v));
    for (int i = 0; i < n; i++)
        v[i] = (struct said){-1, -1, -1};
    v[t->mesh.coord[role]] =
        (struct said){t->mesh.rank, (double)(hash >> 32), (double)(uint32_t)hash};
    const enum ax_status st = ax_runtime_combine(
        t->rt, role, AX_MAX, &v[0].rank, (int64_t)n * (int64_t)(sizeof *v / sizeof v->rank));
    const int odd = find_odd(v, n);
    *out = (struct suspects){v[0].rank, v[n - 1].rank, odd < 0 ? -1 : v[odd].rank};
    ax_free(v);
    return st;
}

/* The same error on all ranks; `bad` as of this rank's group, −1 if its ranks agree. */
static enum ax_status name_ranks(struct ax_train *t, const struct list *l, enum ax_role role,
                                 int bad) {
    const int n = t->mesh.size[role];
    struct suspects s = {-1, -1, -1};
    double first = bad < 0 ? -l->n : -bad;
    char who[160], since[64] = "";
    AX_TRY(ax_runtime_combine(t->rt, AX_ROLE_WORLD, AX_MAX, &first, 1));
    if (bad == (int)-first)
        AX_TRY(find_suspects(t, role, l->hashes[bad], &s));
    double group = s.first; /* of several groups, one is named */
    AX_TRY(ax_runtime_combine(t->rt, AX_ROLE_WORLD, AX_MAX, &group, 1));
    if (group != s.first)
        s = (struct suspects){-1, -1, -1};
    AX_TRY(ax_runtime_combine(t->rt, AX_ROLE_WORLD, AX_MAX, &s.first, 3));
    if (s.odd >= 0)
        snprintf(who, sizeof who, "rank %.0f has other weights than the other %d replicas", s.odd,
                 n - 1);
    else
        snprintf(who, sizeof who, "ranks %.0f %s %.0f of %s have different weights", s.first,
                 n == 2 ? "and" : "to", s.last, ax_role_name(role));
    if (t->replicas.compared >= 0)
        snprintf(since, sizeof since, "; after step %lld all had the same",
                 (long long)t->replicas.compared);
    const struct ax_model *m;
    const struct ax_param *p = find(l, (int)-first, &m);
    return ax_error(AX_ERR_PEER,
                    "step %lld: %s: %s%s. A memory or a processor is at fault: test that host, and "
                    "resume without it from the last checkpoint, which was compared before it was "
                    "saved.",
                    (long long)t->done + t->late.pending, p->name, who, since);
}

bool ax_train_replicas_are_due(const struct ax_train *t) {
    const struct ax_train_replicas *r = &t->replicas;
    const int64_t every = t->o->replica_check;
    if (!has_replicas(t))
        return false;
    return every > 0 ? (t->done + t->late.pending) % every == 0
                     : ax_clock_now() - r->end >= r->seconds / SHARE;
}

enum ax_status ax_train_compare_replicas(struct ax_train *t) {
    static const enum ax_role roles[] = {AX_ROLE_DP_REPLICATE, AX_ROLE_TP};
    const int64_t step = t->done + t->late.pending;
    const double start = ax_clock_now();
    struct list l;
    double differs = 0;
    int bad = -1;
    size_t i = 0;
    if (!has_replicas(t) || t->replicas.compared == step)
        return AX_OK;
    enum ax_status st = create_list(&l, t);
    for (; st == AX_OK && i < sizeof roles / sizeof *roles && differs == 0; i += differs == 0) {
        st = compare(&l, t, roles[i], &bad);
        differs = bad >= 0;
        if (st == AX_OK)
            st = ax_runtime_combine(t->rt, AX_ROLE_WORLD, AX_MAX, &differs, 1);
    }
    t->elastic.damaged |= differs > 0;
    if (st == AX_OK && differs > 0)
        st = name_ranks(t, &l, roles[i], bad);
    free_list(&l);
    t->replicas.compared = step;
    t->replicas.end = ax_clock_now();
    t->replicas.seconds = t->replicas.end - start;
    return st;
}

/* ---- NaN ---- */

enum ax_status ax_train_first_nonfinite(const struct ax_model *m, int *param,
                                        struct ax_nonfinite *out) {
    for (*param = 0; *param < m->n_params; ++*param) {
        const struct ax_param *p = &m->params[*param];
        const struct ax_tensor value = ax_model_value(m, p);
        int64_t first, n, at, run;
        if (!value.data) /* packed */
            continue;
        AX_TRY(ax_tensor_first_nonfinite(m->rt->q, &value, out));
        if (out->at < 0)
            continue;
        ax_unit_owned(&m->units[p->unit], &m->rt->mesh, p, &first, &n, &at);
        out->at = ax_param_global_index(p, &m->rt->mesh, first + out->at, &run);
        return AX_OK;
    }
    return AX_OK;
}

/* The same error on all ranks. */
static enum ax_status check_model(const struct ax_train *t, const struct ax_model *m) {
    struct ax_nonfinite bad = {.at = -1};
    int param;
    AX_TRY(ax_train_first_nonfinite(m, &param, &bad));
    double first = -param;
    AX_TRY(ax_runtime_combine(t->rt, AX_ROLE_WORLD, AX_MAX, &first, 1));
    if (first == -m->n_params)
        return AX_OK;
    const bool own = param == (int)-first;
    double rank = own ? t->mesh.rank : -1;
    AX_TRY(ax_runtime_combine(t->rt, AX_ROLE_WORLD, AX_MAX, &rank, 1));
    double at = own && rank == t->mesh.rank ? (double)bad.at : -1;
    AX_TRY(ax_runtime_combine(t->rt, AX_ROLE_WORLD, AX_MAX, &at, 1));
    return ax_error(
        AX_ERR_DIVERGED,
        "step %lld: %s: element %.0f on rank %.0f is not finite, after it was at the last "
        "check. Lower learning_rate if it is far too high; else that rank's memory is at "
        "fault. Nothing of it was saved: resume from the last checkpoint.",
        (long long)t->done + t->late.pending, m->params[(int)-first].name, at, rank);
}

enum ax_status ax_train_check_weights(struct ax_train *t) {
    AX_TRY(ax_train_compare_replicas(t));
    AX_TRY(check_model(t, &t->step.model));
    return ax_train_has_value(t->o) ? check_model(t, &t->value.step.model) : AX_OK;
}

/* ---- damage, for tests ---- */

/* A bit of the middle element of this rank's part, or all of its bits, which makes a float NaN. */
static enum ax_status damage(const struct ax_model *m, const struct ax_param *p, bool all) {
    const struct ax_unit *unit = &m->units[p->unit];
    const struct ax_segment *seg = &unit->segments[p->segment];
    unsigned char element[8];
    int64_t first, n, at;
    if (!ax_unit_present(unit))
        return AX_OK;
    ax_unit_owned(unit, &m->rt->mesh, p, &first, &n, &at);
    const struct ax_tensor *flat = seg->master.data ? &seg->master : &seg->shard;
    if (n == 0)
        return AX_OK;
    const struct ax_tensor part =
        seg->packing.store == AX_STORAGE_PLAIN
            ? ax_tensor_rows(flat, at, n)
            : ax_packing_view(&seg->packing, seg->packed_shard, at, n).codes;
    const size_t size = ax_dtype_size(part.dtype);
    char AX_DEVICE *where = (char AX_DEVICE *)part.data + (size_t)(part.shape[0] / 2) * size;
    AX_TRY(ax_queue_read(m->rt->q, where, element, size, NULL));
    element[0] ^= 1;
    if (all)
        memset(element, 0xff, size);
    return ax_queue_write(m->rt->q, where, element, size);
}

enum ax_status ax_train_inject_damage(struct ax_train *t) {
    const struct ax_model *m = &t->step.model;
    for (int i = 0; i < m->n_params; i++) {
        const enum ax_fault_kind kind = ax_fault_point(AX_FAULT_WEIGHTS);
        if (kind == AX_FAULT_FLIP || kind == AX_FAULT_NAN)
            AX_TRY(damage(m, &m->params[i], kind == AX_FAULT_NAN));
    }
    return AX_OK;
}
