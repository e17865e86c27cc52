#include "model/split.h"

#include "base/mem.h"

static enum ax_status check(int64_t layers, int stages, int chunks) {
    if (stages > layers)
        return ax_error(AX_ERR_CONFIG, "mesh: pp %d exceeds the %lld layers. Nearest: pp %lld.",
                        stages, (long long)layers, (long long)layers);
    const int64_t most = layers / stages < AX_MAX_CHUNKS ? layers / stages : AX_MAX_CHUNKS;
    if (chunks <= most)
        return AX_OK;
    return ax_error(AX_ERR_CONFIG,
                    "pipeline: %d virtual stages on each of pp %d ranks exceed %s (%lld layers). "
                    "Nearest: %lld.",
                    chunks, stages, most < AX_MAX_CHUNKS ? "the layers" : "what is possible",
                    (long long)layers, (long long)most);
}

/* The units' costs, and the bounds of `ranges` ranges of them; freed by the caller, also after an
 * error. */
struct split {
    double *cost; /* [n_layers + 2] */
    int *bounds;  /* [ranges + 1] */
};

static enum ax_status split(struct split *s, const struct ax_arch *arch, const double *times,
                            int64_t seq, int ranges) {
    const int n = (int)arch->n_layers + 2;
    AX_TRY(ax_alloc(&s->cost, (size_t)n, sizeof *s->cost));
    AX_TRY(ax_alloc(&s->bounds, (size_t)ranges + 1, sizeof *s->bounds));
    for (int u = 0; u < n; u++)
        s->cost[u] = times ? times[u] : ax_arch_unit_flops(arch, u, seq);
    return ax_chunks_split(s->cost, n, ranges, s->bounds);
}

static void split_free(struct split *s) {
    ax_free(s->cost);
    ax_free(s->bounds);
}

enum ax_status ax_split_units(const struct ax_arch *arch, const double *times, int64_t seq,
                              int stages, int chunks, int stage, struct ax_chunks *out) {
    struct split s = {0};
    AX_TRY(check(arch->n_layers, stages, chunks));
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
    AX_TRY(check(arch->n_layers, p->stages, chunks));
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
