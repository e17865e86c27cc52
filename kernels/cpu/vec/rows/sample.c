/* Choosing tokens: the ops of the head compute the rows' probabilities; each row is then filtered
 * and drawn from on its own. */
#include "kernels/sample.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/vec/entries.h"
#include "kernels/cpu/vec/split.h"

/* A filter first considers tokens down to this fraction of the largest probability, and then ever
 * less probable ones until there are enough. */
#define STEP 0x1p-7f
/* Tokens whose probabilities are summed before they are drawn from. */
#define GROUP 64

struct candidate {
    int32_t id;
    float p;
};

/* A thread's workspace, for a row at a time: it stays in the cache from its largest logit to the token drawn. */
struct room {
    float *probs; /* [V]; logits with the penalty, before */
    /* what the ops of the head need */
    float *stats; /* [AX_SOFTMAX_STATS] */
    float *logprob, *lse, *entropy, *nothing, *temperature;
    int32_t *label;               /* none */
    struct candidate *candidates; /* [V] */
    double *groups;               /* [⌈V / GROUP⌉]: their masses, where no filter is set */
    size_t bytes;
};

static void *take(struct room *r, char *work, int64_t n, size_t size) {
    char *at = work == NULL ? NULL : work + r->bytes;
    r->bytes += ((size_t)n * size + 63) / 64 * 64;
    return at;
}

/* work NULL: for the bytes only. */
static struct room carve_room(const struct ax_sample *a, char *work) {
    const int64_t V = a->logits.shape[1];
    const bool drawn = a->temperature > 0;
    struct room r = {0};
    if (drawn || ax_sample_penalises(a))
        r.probs = take(&r, work, V, sizeof *r.probs);
    if (drawn) {
        r.stats = take(&r, work, AX_SOFTMAX_STATS, sizeof *r.stats);
        float **const numbers[] = {&r.logprob, &r.lse, &r.entropy, &r.nothing, &r.temperature};
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
            *numbers[i] = take(&r, work, 1, sizeof(float));
        r.label = take(&r, work, 1, sizeof *r.label);
        if (ax_sample_filters(a))
            r.candidates = take(&r, work, V, sizeof *r.candidates);
        else
            r.groups = take(&r, work, ceil_div(V, GROUP), sizeof *r.groups);
    }
    return r;
}

/* How many threads have a room. */
static int row_threads(const struct ax_queue *q, const struct ax_sample *a) {
    const int64_t T = a->logits.shape[0], V = a->logits.shape[1];
    return T > 0 ? (int)least(team(q, T * V), T) : 1;
}

static struct room own_room(const struct ax_sample *a, void *work) {
    return carve_room(a, (char *)work + (size_t)omp_get_thread_num() * carve_room(a, NULL).bytes);
}

size_t AX_VEC(ax_cpu_sample_workspace)(struct ax_queue *q, const struct ax_sample *a) {
    return carve_room(a, NULL).bytes * (size_t)row_threads(q, a);
}

/* ---- probabilities ---- */

static struct ax_tensor row_of(const struct ax_tensor *x, int64_t t) {
    return ax_tensor_2d(x->dtype, ax_tensor_row(x, t), 1, x->shape[1]);
}

static struct ax_tensor one(float *number) {
    return ax_tensor_1d(AX_F32, number, 1);
}

static void penalise(const struct ax_sample *a, int64_t t, float *z) {
    int64_t n;
    const int32_t *context = ax_sample_context(a, t, &n);
    memcpy(z, ax_tensor_row(&a->logits, t), (size_t)a->logits.shape[1] * sizeof *z);
    for (int64_t i = 0; i < n; i++)
        z[context[i]] = (float)ax_sample_penalised(a, (double)z[context[i]]);
}

/* probs = softmax(z/T) of a row, in place if it lies there: T times the gradient of lse for the logits, which is
 * (1/T)·p. */
static void probabilities(const struct ax_sample *a, const struct room *r,
                          const struct ax_tensor *logits) {
    struct ax_queue own = {.threads = 1};
    const struct ax_tensor none = ax_tensor_1d(AX_I32, r->label, 1);
    *r->label = -1;
    *r->nothing = 0;
    *r->temperature = (float)a->temperature;
    const struct ax_softmax_stats stats = {.logits = *logits,
                                           .labels = none,
                                           .stats =
                                               ax_tensor_2d(AX_F32, r->stats, 1, AX_SOFTMAX_STATS),
                                           .inv_temperature = 1 / a->temperature};
    const struct ax_softmax_merge merge = {
        .stats = ax_tensor_3d(AX_F32, r->stats, 1, 1, AX_SOFTMAX_STATS),
        .labels = none,
        .logprob = one(r->logprob),
        .lse = one(r->lse),
        .entropy = one(r->entropy),
        .inv_temperature = 1 / a->temperature};
    const struct ax_softmax_backward back = {
        .logits = *logits,
        .labels = none,
        .lse = merge.lse,
        .entropy = merge.entropy,
        .g_logprob = one(r->nothing),
        .g_lse = one(r->temperature),
        .dlogits = ax_tensor_2d(AX_F32, r->probs, 1, logits->shape[1]),
        .inv_temperature = 1 / a->temperature};
    AX_VEC(ax_cpu_softmax_stats)(&own, &stats, NULL);
    AX_VEC(ax_cpu_softmax_merge)(&own, &merge, NULL);
    AX_VEC(ax_cpu_softmax_backward)(&own, &back, NULL);
}

/* ---- filters, on one row of probabilities ---- */

/* Most probable first; ties by later id, like a stable ascending sort read backwards. */
static int by_probability(const void *x, const void *y) {
    const struct candidate *a = x, *b = y;
    if (a->p != b->p)
        return a->p > b->p ? -1 : 1;
    return a->id > b->id ? -1 : 1;
}

/* Collects tokens with p ≥ least as candidates, and their mass. */
static int64_t collect(const float *p, int64_t V, float at_least, struct candidate *c,
                       double *mass) {
    int64_t n = 0;
    *mass = 0;
    for (int64_t i = 0; i < V; i++) {
        if (p[i] >= at_least) {
            c[n++] = (struct candidate){(int32_t)i, p[i]};
            *mass += (double)p[i];
        }
    }
    return n;
}

/* Collects all tokens that top-k and top-p may keep, possibly more; `most` is the largest
 * probability. */
static int64_t gather(const struct ax_sample *a, const float *p, float most, struct candidate *c) {
    const int64_t V = a->logits.shape[1];
    const bool by_k = ax_sample_by_k(a);
    double mass;
    if (!by_k && !ax_sample_by_p(a)) /* min-p alone */
        return collect(p, V, (float)(a->min_p * (double)most), c, &mass);
    for (float at_least = most * STEP;; at_least *= STEP) {
        const int64_t n = collect(p, V, at_least >= FLT_MIN ? at_least : 0, c, &mass);
        if (!(at_least >= FLT_MIN) || (by_k && n >= a->top_k) || (!by_k && mass >= a->top_p))
            return n;
    }
}

/* Applies top-k, top-p and min-p to the sorted candidates; returns how many are left. */
static int64_t keep(const struct ax_sample *a, const struct candidate *c, int64_t n) {
    int64_t kept = n;
    double total = 1, mass = 0;
    if (a->top_k > 0 && a->top_k < n) {
        kept = a->top_k;
        while (kept < n && c[kept].p == c[a->top_k - 1].p)
            kept++;
    }
    if (a->top_k > 0) {
        total = 0;
        for (int64_t i = 0; i < kept; i++)
            total += (double)c[i].p;
    }
    if (ax_sample_by_p(a)) {
        int64_t i = 0;
        while (i < kept && (i == 0 || mass < a->top_p * total))
            mass += (double)c[i++].p;
        kept = i;
    }
    while (kept > 1 && (double)c[kept - 1].p < a->min_p * (double)c[0].p)
        kept--;
    return kept;
}

/* The candidates of a row with their mass; `top` is the most probable token. */
static int64_t filter(const struct ax_sample *a, const float *p, int32_t top, struct candidate *c,
                      double *mass) {
    const int64_t n = gather(a, p, p[top], c);
    qsort(c, (size_t)n, sizeof *c, by_probability);
    const int64_t kept = keep(a, c, n);
    *mass = 0;
    for (int64_t i = 0; i < kept; i++)
        *mass += (double)c[i].p;
    return kept;
}

/* ---- drawing ---- */

static int32_t draw_candidate(const struct candidate *c, int64_t n, double at) {
    double sum = 0;
    for (int64_t i = 0; i + 1 < n; i++) {
        sum += (double)c[i].p;
        if (at < sum)
            return c[i].id;
    }
    return c[n - 1].id;
}

/* Σ of the probabilities of a group: every fourth, then these four. */
static double group_sum(const float *p, int64_t n) {
    typedef float quad __attribute__((vector_size(16)));
    typedef double wide __attribute__((vector_size(32)));
    wide sums = {0};
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        quad x;
        memcpy(&x, p + i, sizeof x);
        sums += __builtin_convertvector(x, wide);
    }
    for (int64_t j = 0; i + j < n; j++)
        sums[j] += (double)p[i + j];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/* Draws from the full row; *total = its mass. */
static int32_t draw_any(const struct room *r, int64_t V, int32_t top, double u, double *total) {
    const float *p = r->probs;
    double sum = 0;
    *total = 0;
    for (int64_t i = 0; i < V; i += GROUP) {
        r->groups[i / GROUP] = group_sum(p + i, least(GROUP, V - i));
        *total += r->groups[i / GROUP];
    }
    for (int64_t i = 0; i < V; sum += r->groups[i / GROUP], i += GROUP) {
        if (!(u * *total < sum + r->groups[i / GROUP]))
            continue;
        double within = sum;
        for (int64_t j = i; j < least(i + GROUP, V); j++) {
            within += (double)p[j];
            if (u * *total < within)
                return (int32_t)j;
        }
    }
    return top; /* rounding left less than u · total */
}

static void share_out(const struct ax_sample *a, int64_t t, const float *p,
                      const struct candidate *c, int64_t n, double mass) {
    const int64_t V = a->logits.shape[1];
    float *shares = ax_tensor_row(&a->shares, t);
    for (int64_t i = 0; i < V; i++)
        shares[i] = c == NULL && n > 0 ? (float)((double)p[i] / mass) : 0;
    for (int64_t i = 0; c != NULL && i < n; i++)
        shares[c[i].id] = (float)((double)c[i].p / mass);
}

static int32_t draw(const struct ax_sample *a, const struct room *r, int64_t t, int32_t top) {
    const int64_t V = a->logits.shape[1];
    struct candidate *c = r->candidates;
    const float *p = r->probs;
    const double u = ax_sample_uniform(a->seed, ax_tensor_row(&a->keys, t));
    int64_t n = 0;
    double mass = 1;
    int32_t id = top; /* NaN logits: greedy, since there is no distribution */
    if (p[top] > 0 && c == NULL) {
        n = V;
        id = draw_any(r, V, top, u, &mass);
    } else if (p[top] > 0) {
        n = filter(a, p, top, c, &mass);
        id = draw_candidate(c, n, u * mass);
    }
    if (a->shares.data != NULL)
        share_out(a, t, p, c, n, mass);
    return id;
}

static void sample_row(const struct ax_sample *a, const struct room *r, int64_t t) {
    struct ax_queue own = {.threads = 1};
    struct ax_tensor logits = row_of(&a->logits, t);
    int32_t *index = (int32_t *)a->index.data + t;
    if (ax_sample_penalises(a)) {
        penalise(a, t, r->probs);
        logits = ax_tensor_2d(AX_F32, r->probs, 1, logits.shape[1]);
    }
    const struct ax_argmax top = {.logits = logits, .index = ax_tensor_1d(AX_I32, index, 1)};
    AX_VEC(ax_cpu_argmax)(&own, &top, NULL);
    if (a->temperature == 0)
        return;
    probabilities(a, r, &logits);
    *index = draw(a, r, t, *index);
}

enum ax_status AX_VEC(ax_cpu_sample)(struct ax_queue *q, const struct ax_sample *a, void *work) {
    AX_PARALLEL_FOR (row_threads(q, a), t, a->logits.shape[0]) {
        const struct room r = own_room(a, work);
        sample_row(a, &r, t);
    }
    return AX_OK;
}

/* ---- truncation ---- */

size_t AX_VEC(ax_cpu_truncate_workspace)(struct ax_queue *q, const struct ax_truncate *a) {
    const struct ax_sample as = ax_truncate_sample(a);
    return AX_VEC(ax_cpu_sample_workspace)(q, &as);
}

static int64_t largest(const float *p, int64_t V) {
    int64_t top = 0;
    for (int64_t i = 1; i < V; i++)
        top = p[i] > p[top] ? i : top;
    return top;
}

/* What the filters keep of a row begins in their order, so the last of it separates it from the rest. */
static void truncate_row(const struct ax_truncate *a, const struct ax_sample *as,
                         const struct room *r, int64_t t) {
    const struct ax_tensor all = row_of(&a->all, t);
    const float *p = r->probs;
    struct candidate *c = r->candidates;
    probabilities(as, r, &all);
    const int64_t top = largest(p, all.shape[1]), first = a->first_col;
    const int32_t label = ((const int32_t *)a->labels.data)[t];
    float *z = ax_tensor_row(&a->logits, t);
    double mass;
    if (!(p[top] > 0))
        return;
    const struct candidate last = c[filter(as, p, (int32_t)top, c, &mass) - 1];
    for (int64_t i = 0; i < a->logits.shape[1]; i++) {
        const int64_t id = first + i;
        const bool kept = p[id] > last.p || (p[id] == last.p && id >= last.id);
        z[i] = kept || id == label ? z[i] : (float)AX_TRUNCATED;
    }
}

enum ax_status AX_VEC(ax_cpu_truncate)(struct ax_queue *q, const struct ax_truncate *a,
                                       void *work) {
    const struct ax_sample as = ax_truncate_sample(a);
    if (!ax_sample_filters(&as))
        return AX_OK;
    AX_PARALLEL_FOR (row_threads(q, &as), t, a->all.shape[0]) {
        const struct room r = own_room(&as, work);
        truncate_row(a, &as, &r, t);
    }
    return AX_OK;
}
