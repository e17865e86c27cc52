/* Sequences whose tokens are given: their log-probs, computed in windows of a pass's rows. */
#include "base/mem.h"
#include "model/generate/generate_pass.h"

#define WINDOW 128 /* rows of logits at a time */

static int64_t window_of(const struct ax_generator *d) {
    return d->o.pass_tokens < WINDOW ? d->o.pass_tokens : WINDOW;
}

enum ax_status ax_lane_scores_create(struct ax_generator *d, struct ax_stack *stack) {
    const int64_t T = d->o.pass_tokens, window = window_of(d);
    const size_t passes = AX_SCORE_PASSES, windows = (size_t)((T + window - 1) / window);
    AX_TRY(ax_alloc(&d->scores, 1, sizeof *d->scores));
    struct ax_generate_scores *s = d->scores;
    ax_scorer_create(&s->scorer, d->model, stack, window);
    s->scorer.most_likeliest = d->o.varied ? AX_LIKELIEST_MAX : 0;
    s->rows = ax_tensor_1d(AX_I32, NULL, T);
    s->labels = ax_tensor_1d(AX_I32, NULL, T);
    s->rows = ax_stack_take(stack, "scored tokens", s->rows);
    s->labels = ax_stack_take(stack, "scored tokens", s->labels);
    AX_TRY(ax_alloc(&s->host_rows, (size_t)T, sizeof *s->host_rows));
    AX_TRY(ax_alloc(&s->host_labels, (size_t)T, sizeof *s->host_labels));
    AX_TRY(ax_alloc(&s->pending, passes * (size_t)T, sizeof *s->pending));
    AX_TRY(ax_alloc(&s->windows, passes * windows, sizeof *s->windows));
    return ax_alloc(&s->ended, passes * (size_t)d->o.n_seqs, sizeof(struct ax_sequence *));
}

void ax_lane_scores_free(struct ax_generator *d) {
    struct ax_generate_scores *s = d->scores;
    if (!s)
        return;
    ax_free(s->host_rows);
    ax_free(s->host_labels);
    ax_free(s->pending);
    ax_free(s->windows);
    ax_free(s->ended);
    ax_free(s);
}

void ax_lane_scores_drop(struct ax_generator *d) {
    struct ax_generate_scores *s = d->scores;
    if (s)
        s->n_pending = s->n_windows = s->n_ended = s->n_passes = 0;
}

/* The rows of this pass after which a token is scored. */
static int64_t list_scored(struct ax_generator *d) {
    const struct ax_generate_work *w = d->work;
    struct ax_generate_scores *s = d->scores;
    int64_t n = 0;
    for (int64_t i = 0; i < w->n_docs; i++) {
        struct ax_sequence *seq = d->lanes[w->lane[i]].seq;
        const int64_t start = d->cache.length[w->lane[i]]; /* its first position */
        if (seq->n_scored > 0 && seq->n_best > s->scorer.likeliest)
            s->scorer.likeliest = seq->n_best;
        for (int64_t k = 0; seq->n_scored > 0 && k < w->n[i]; k++) {
            const int64_t at = start + k - (seq->n_prompt - seq->n_scored);
            if (at < 0)
                continue;
            s->host_rows[n] = w->cu[i] + (int32_t)k;
            s->host_labels[n] = seq->scored[at];
            s->pending[s->n_pending + n] =
                (struct ax_pending_score){.seq = seq,
                                          .at = at,
                                          .label = seq->scored[at],
                                          .row = (int32_t)(n % window_of(d)),
                                          .window = s->n_windows + n / window_of(d)};
            n++;
        }
    }
    return n;
}

/* Lists the tokens of the next pass that are to be scored; returns how many windows they take. */
int64_t ax_lane_scores_list(struct ax_generator *d) {
    struct ax_generate_scores *s = d->scores;
    if (!s)
        return 0;
    s->scorer.likeliest = 0;
    if (ax_runtime_planning(d->model->rt)) {
        s->scorer.likeliest = s->scorer.most_likeliest;
        s->n_listed = d->work->n_tokens < window_of(d) ? d->work->n_tokens : window_of(d);
        return 1;
    }
    s->n_listed = list_scored(d);
    return (s->n_listed + window_of(d) - 1) / window_of(d);
}

/* Window k of the pass; if only other ranks have that many, a row without a label. */
static enum ax_status score_window(struct ax_generator *d, struct ax_pass *p, int64_t k) {
    struct ax_generate_scores *s = d->scores;
    const int64_t window = window_of(d), left = s->n_listed - k * window;
    const int64_t from = left > 0 ? k * window : 0, n = left <= 0       ? 1
                                                        : left < window ? left
                                                                        : window;
    const struct ax_tensor rows = ax_tensor_rows(&s->rows, from, n),
                           labels = ax_tensor_rows(&s->labels, from, n);
    return ax_scorer_run(&s->scorer, p, &rows, &labels, &d->results, &s->windows[s->n_windows++]);
}

/* Scores the listed tokens, in `windows` windows (while planning: any number of rows). */
enum ax_status ax_lane_scores_run(struct ax_generator *d, struct ax_pass *p, int64_t windows) {
    struct ax_generate_scores *s = d->scores;
    struct ax_queue *q = d->model->rt->q;
    if (!s)
        return AX_OK;
    s->n_passes += windows > 0 || s->n_passes > 0;
    if (windows > 0 && !ax_runtime_planning(d->model->rt)) {
        const size_t bytes = (size_t)(s->n_listed > 0 ? s->n_listed : 1) * sizeof *s->host_rows;
        if (s->n_listed == 0) {
            s->host_rows[0] = 0;
            s->host_labels[0] = -1;
        }
        AX_TRY(ax_queue_write(q, s->rows.data, s->host_rows, bytes));
        AX_TRY(ax_queue_write(q, s->labels.data, s->host_labels, bytes));
        s->n_pending += s->n_listed;
    }
    for (int64_t k = 0; k < windows && ax_model_has_head(d->model); k++)
        AX_TRY(score_window(d, p, k));
    return AX_OK;
}
