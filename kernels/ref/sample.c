/* Choosing tokens: sample, truncate, in double, with all tokens of a row sorted. */
#include "kernels/sample.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/ref/ref.h"

struct token {
    double p;
    int64_t id;
};

/* Most probable first; ties by later id. */
static int by_probability(const void *x, const void *y) {
    const struct token *a = x, *b = y;
    if (a->p != b->p)
        return a->p > b->p ? -1 : 1;
    return a->id > b->id ? -1 : 1;
}

/* The row's logits after the penalty; returns the first of the largest. */
static int64_t load(const struct ax_sample *a, int64_t t, double *z) {
    const int64_t V = a->logits.shape[1];
    int64_t n, top = 0;
    ax_ref_load_row(&a->logits, t, 0, V, z);
    if (ax_sample_penalises(a)) {
        const int32_t *context = ax_sample_context(a, t, &n);
        for (int64_t i = 0; i < n; i++)
            z[context[i]] = ax_sample_penalised(a, z[context[i]]);
    }
    for (int64_t c = 1; c < V; c++)
        top = z[c] > z[top] ? c : top;
    return top;
}

static void softmax(const struct ax_sample *a, double max, const double *z, struct token *tokens) {
    const int64_t V = a->logits.shape[1];
    double sum = 0;
    for (int64_t c = 0; c < V; c++)
        sum += exp((z[c] - max) / a->temperature);
    for (int64_t c = 0; c < V; c++)
        tokens[c] = (struct token){exp((z[c] - max) / a->temperature) / sum, c};
}

/* How many of the sorted tokens are left. */
static int64_t filter(const struct ax_sample *a, const struct token *tokens) {
    int64_t n = a->logits.shape[1];
    double total = 1, mass = 0;
    if (a->top_k > 0) {
        int64_t k = a->top_k < n ? a->top_k : n;
        while (k < n && tokens[k].p == tokens[a->top_k - 1].p)
            k++;
        n = k;
        total = 0;
        for (int64_t i = 0; i < n; i++)
            total += tokens[i].p;
    }
    if (ax_sample_by_p(a)) {
        int64_t i = 0;
        while (i < n && (i == 0 || mass < a->top_p * total))
            mass += tokens[i++].p;
        n = i;
    }
    while (n > 1 && tokens[n - 1].p < a->min_p * tokens[0].p)
        n--;
    return n;
}

static int64_t draw(const struct ax_sample *a, int64_t t, struct token *tokens) {
    int64_t n = a->logits.shape[1];
    double mass = 0, sum = 0;
    if (ax_sample_filters(a)) {
        qsort(tokens, (size_t)n, sizeof *tokens, by_probability);
        n = filter(a, tokens);
    }
    for (int64_t i = 0; i < n; i++)
        mass += tokens[i].p;
    for (int64_t i = 0; ax_ref_given(&a->shares) && i < n; i++)
        ax_ref_set(&a->shares, t, tokens[i].id, tokens[i].p / mass);
    const double at = ax_sample_uniform(a->seed, ax_tensor_row(&a->keys, t)) * mass;
    for (int64_t i = 0; i + 1 < n; i++) {
        sum += tokens[i].p;
        if (at < sum)
            return tokens[i].id;
    }
    return tokens[n - 1].id;
}

enum ax_status ax_ref_sample(struct ax_queue *q, const struct ax_sample *a, void *work) {
    (void)q;
    double *z = work;
    struct token *tokens = (struct token *)(z + a->logits.shape[1]);
    for (int64_t t = 0; t < a->logits.shape[0]; t++) {
        int64_t id = load(a, t, z);
        for (int64_t c = 0; ax_ref_given(&a->shares) && c < a->logits.shape[1]; c++)
            ax_ref_set(&a->shares, t, c, 0);
        if (a->temperature > 0 && !isnan(z[id])) {
            softmax(a, z[id], z, tokens);
            id = tokens[id].p > 0 ? draw(a, t, tokens) : id;
        }
        ((int32_t *)a->index.data)[t] = (int32_t)id;
    }
    return AX_OK;
}

enum ax_status ax_ref_truncate(struct ax_queue *q, const struct ax_truncate *a, void *work) {
    (void)q;
    const struct ax_sample as = ax_truncate_sample(a);
    const int64_t V = a->all.shape[1];
    double *z = work;
    struct token *tokens = (struct token *)(z + V);
    for (int64_t t = 0; t < a->all.shape[0]; t++) {
        const int64_t top = load(&as, t, z);
        softmax(&as, z[top], z, tokens);
        if (!(tokens[top].p > 0))
            continue;
        qsort(tokens, (size_t)V, sizeof *tokens, by_probability);
        for (int64_t i = filter(&as, tokens); i < V; i++) {
            const int64_t col = tokens[i].id - a->first_col;
            if (tokens[i].id != ((int32_t *)a->labels.data)[t] && col >= 0 &&
                col < a->logits.shape[1])
                ax_ref_set(&a->logits, t, col, AX_TRUNCATED);
        }
    }
    return AX_OK;
}
