#include "model/arch/split.h"

#include "base/mem.h"

/* A layer that uses the choice of an indexer before it is where that one is; and the head (`layer` is
 * n_layers) where the layer for multi-token prediction is. */
static bool follows(const struct ax_arch *arch, int64_t layer) {
    if (layer == arch->n_layers)
        return ax_arch_predicts(arch);
    return layer >= 0 && layer < arch->n_layers &&
           arch->layers[layer].mixer == &ax_mixer_dsa_shared;
}

/* Layers at which a range may begin; the one for multi-token prediction counts as the head. */
static int64_t count_beginnings(const struct ax_arch *arch) {
    int64_t n = 0;
    for (int64_t i = 0; i < arch->n_layers; i++)
        n += !follows(arch, i) && !arch->layers[i].predicts;
    return n;
}

static enum ax_status check(const struct ax_arch *arch, int stages, int chunks) {
    const int64_t layers = count_beginnings(arch);
    const char *what = arch->index.top > 0 && layers < arch->n_layers
                           ? "layers with an indexer (the others share its choice)"
                           : "layers";
    if (stages > layers)
        return ax_error(AX_ERR_CONFIG, "mesh: pp %d exceeds the %lld %s. Nearest: pp %lld.", stages,
                        (long long)layers, what, (long long)layers);
    const int64_t most = layers / stages < AX_MAX_CHUNKS ? layers / stages : AX_MAX_CHUNKS;
    if (chunks <= most)
        return AX_OK;
    return ax_error(AX_ERR_CONFIG,
                    "pipeline: %d virtual stages on each of pp %d ranks exceed %s (%lld %s). "
                    "Nearest: %lld.",
                    chunks, stages, most < AX_MAX_CHUNKS ? "the layers" : "what is possible",
                    (long long)layers, what, (long long)most);
}

/* The units' costs, and the bounds of `ranges` ranges of them; freed by the caller, also after an
 * error. */
struct split {
    double *cost;    /* [n_layers + 2] */
    double *grouped; /* the same of units that stay together */
    int *begins;     /* [n_layers + 3]: their first units, and the end */
    int *bounds;     /* [ranges + 1] */
};

static enum ax_status split(struct split *s, const struct ax_arch *arch, const double *times,
                            int64_t seq, int ranges) {
    const int n = (int)arch->n_layers + 2;
    int groups = 0;
    AX_TRY(ax_alloc(&s->cost, (size_t)n, sizeof *s->cost));
    AX_TRY(ax_alloc(&s->grouped, (size_t)n, sizeof *s->grouped));
    AX_TRY(ax_alloc(&s->begins, (size_t)n + 1, sizeof *s->begins));
    AX_TRY(ax_alloc(&s->bounds, (size_t)ranges + 1, sizeof *s->bounds));
    for (int u = 0; u < n; u++) {
        s->cost[u] = times ? times[u] : ax_arch_unit_flops(arch, u, seq);
        if (!follows(arch, u - 1))
            s->begins[groups++] = u;
        s->grouped[groups - 1] += s->cost[u];
    }
    s->begins[groups] = n;
    AX_TRY(ax_chunks_split(s->grouped, groups, ranges, s->bounds));
    for (int k = 0; k <= ranges; k++)
        s->bounds[k] = s->begins[s->bounds[k]];
    return AX_OK;
}

static void split_free(struct split *s) {
    ax_free(s->cost);
    ax_free(s->grouped);
    ax_free(s->begins);
    ax_free(s->bounds);
}

enum ax_status ax_split_units(const struct ax_arch *arch, const double *times, int64_t seq,
                              int stages, int chunks, int stage, struct ax_chunks *out) {
    struct split s = {0};
    AX_TRY(check(arch, stages, chunks));
    const enum ax_status st = split(&s, arch, times, seq, stages * chunks);
    if (st == AX_OK)
        *out = ax_chunks_of(s.bounds, stages, chunks, stage);
    split_free(&s);
    return st;
}

enum ax_status ax_split_idle(const struct ax_arch *arch, const double *times, int64_t seq,
                             const struct ax_pipeline *p, double *idle) {
    const int chunks = ax_pipeline_chunks(p), ranges = p->stages * chunks;
    struct split s = {0};
    double *cost = NULL; /* of ranges */
    enum ax_status st;
    AX_TRY(check(arch, p->stages, chunks));
    AX_TRY_GOTO(split(&s, arch, times, seq, ranges), st, done);
    AX_TRY_GOTO(ax_alloc(&cost, (size_t)ranges, sizeof *cost), st, done);
    for (int k = 0; k < ranges; k++)
        for (int u = s.bounds[k]; u < s.bounds[k + 1]; u++)
            cost[k] += s.cost[u];
    st = ax_order_idle(p, cost, idle);
done:
    split_free(&s);
    ax_free(cost);
    return st;
}

/* ---- over tp ---- */

static enum ax_status check_divides(const char *what, int64_t n, int tp) {
    if (n % tp == 0)
        return AX_OK;
    int near = tp;
    while (n % near != 0)
        near--;
    return ax_error(AX_ERR_CONFIG, "mesh: tp %d does not divide the %lld %s. Nearest: tp %d.", tp,
                    (long long)n, what, near);
}

static enum ax_status check_at_least(const char *what, int64_t n, int tp) {
    if (n >= tp)
        return AX_OK;
    return ax_error(AX_ERR_CONFIG, "mesh: tp %d exceeds the %lld %s. Nearest: tp %lld.", tp,
                    (long long)n, what, (long long)n);
}

static enum ax_status check_kv_heads(int64_t n, int tp) {
    return n <= tp && tp % n == 0 ? AX_OK : check_divides("key and value heads", n, tp);
}

enum ax_status ax_tp_check(const struct ax_arch *arch, const struct ax_mesh *mesh) {
    const int tp = mesh->size[AX_ROLE_TP];
    AX_TRY(check_divides("attention heads", arch->n_heads, tp));
    AX_TRY(check_kv_heads(arch->n_kv_heads, tp));
    for (int64_t i = 0; i < arch->n_layers; i++)
        AX_TRY(check_kv_heads(ax_layer_kv_heads(arch, &arch->layers[i]), tp));
    if (arch->delta.value_heads > 0)
        AX_TRY(check_divides("key heads of the delta rule", arch->delta.key_heads, tp));
    if (arch->ssd.heads > 0) {
        AX_TRY(check_divides("heads of Mamba layers", arch->ssd.heads, tp));
        if (arch->ssd.groups > tp || tp % arch->ssd.groups != 0)
            AX_TRY(check_divides("groups of Mamba layers", arch->ssd.groups, tp));
    }
    AX_TRY(check_at_least("feed-forward columns", arch->intermediate_size, tp));
    if (arch->moe.shared_width > 0)
        AX_TRY(check_at_least("columns of shared experts", arch->moe.shared_width, tp));
    return check_at_least("vocabulary rows", arch->vocab_size, tp);
}
