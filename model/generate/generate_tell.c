/* Ranks whose sequences join while others are generated: after each pass they tell each other what has been chosen
 * and scored, so that all of them know all sequences, and what they decide of one is the same everywhere.
 *
 * A data rank's results are rows of numbers, a block for each rank. The first rank of tp on the stage with the head
 * fills it; the sum over all ranks is everyone's blocks. A rank finds its own sequences by lanes, and those of others
 * among the ones that are away. */
#include <string.h>

#include "base/mem.h"
#include "model/generate/generate_pass.h"
#include "model/generate/generate_share.h"

bool ax_generate_tells(const struct ax_generator *d) {
    const int *size = d->model->rt->mesh.size;
    return d->o.more && !d->o.waits && (size[AX_ROLE_LOSS] > 1 || size[AX_ROLE_PP] > 1);
}

/* ---- which rank computes a sequence ---- */

static int64_t pending_on(const struct ax_generator *d, int rank) {
    const bool own = rank == d->model->rt->mesh.coord[AX_ROLE_LOSS];
    int64_t n = 0;
    for (int i = 0; own && i < d->o.n_seqs; i++)
        n += d->lanes[i].seq != NULL;
    for (const struct ax_sequence *s = d->work->queue.first; own && s; s = s->next)
        n++;
    for (const struct ax_sequence *s = d->work->away; s; s = s->next)
        n += s->rank == rank;
    return n;
}

void ax_generate_join(struct ax_generator *d, struct ax_sequence *s) {
    const struct ax_mesh *mesh = &d->model->rt->mesh;
    int64_t least = INT64_MAX;
    s->n_new = 0;
    s->begun = false;
    s->greedy = true;
    if (d->o.waits) { /* the caller has dealt them to ranks, in an order */
        ax_lanes_enqueue(d, s);
        return;
    }
    s->place = d->work->queue.arrived++;
    for (int r = 0; r < mesh->size[AX_ROLE_LOSS]; r++) {
        const int64_t n = pending_on(d, r);
        s->rank = n < least ? r : s->rank;
        least = n < least ? n : least;
    }
    if (s->rank == mesh->coord[AX_ROLE_LOSS]) {
        ax_lanes_enqueue(d, s);
        return;
    }
    s->next = d->work->away;
    d->work->away = s;
}

/* ---- rows ---- */

/* Columns of a row; the likeliest tokens and their log-probs follow. */
enum { KIND, PLACE, ID, LOGPROB, ENTROPY, SHARED, COLUMNS };
enum kind { NOTHING, CHOICE, SCORE };
/* Of a score, in the columns of what it has not. */
enum { AT = ID, GREEDY = ENTROPY };

struct told {
    struct ax_generator *d;
    const struct ax_generate_rows *r;
    int64_t n_choices;             /* this rank's rows that are choices; its scores follow */
    int64_t ranks, rows, width, k; /* [ranks][rows][width], then the counters */
    double *all;
};

static double *row_of(const struct told *t, int64_t rank, int64_t i) {
    return t->all + (rank * t->rows + i) * t->width;
}

static void put_likeliest(const struct told *t, const struct ax_likeliest *from, int64_t at, int k,
                          double *row) {
    int32_t ids[AX_LIKELIEST_MAX];
    ax_likeliest_get(&t->d->results, from, at, k, ids, row + COLUMNS + t->k);
    for (int i = 0; i < k; i++)
        row[COLUMNS + i] = ids[i];
}

/* Choice i, which is number `at` of its kind. */
static void put_choice(const struct told *t, int64_t i, const struct ax_choice *c, int64_t at,
                       double *row) {
    const struct ax_results *from = &t->d->results;
    const struct ax_sequence *s = t->d->lanes[t->r->lanes[i]].seq;
    row[KIND] = CHOICE;
    row[PLACE] = (double)s->place;
    row[ID] = ax_results_get(from, &c->index, at);
    row[LOGPROB] = s->logprobs ? ax_results_get(from, &c->logprob, at) : 0;
    row[ENTROPY] = s->entropies ? ax_results_get(from, &c->entropy, at) : 0;
    row[SHARED] = (double)s->n_shared;
    if (s->n_best > 0)
        put_likeliest(t, &c->likeliest, at, s->n_best, row);
}

static void put_score(const struct told *t, const struct ax_pending_score *p, double *row) {
    const struct ax_generate_scores *from = t->d->scores;
    const struct ax_scores *w = &from->windows[p->window];
    row[KIND] = SCORE;
    row[PLACE] = (double)p->seq->place;
    row[AT] = (double)p->at;
    row[LOGPROB] = ax_results_get(&t->d->results, &w->logprob, p->row);
    row[GREEDY] = ax_scores_best(&from->scorer, &t->d->results, w, p->row) == p->label;
    row[SHARED] = (double)p->seq->n_shared;
    if (p->seq->n_best > 0)
        put_likeliest(t, &w->likeliest, p->row, p->seq->n_best, row);
}

static void put_own(const struct told *t) {
    const struct ax_generator *d = t->d;
    const int64_t own = d->model->rt->mesh.coord[AX_ROLE_LOSS];
    const struct ax_generate_scores *s = d->scores;
    int64_t i = 0;
    if (!ax_model_has_head(d->model) || d->model->rt->mesh.coord[AX_ROLE_TP] > 0)
        return;
    for (int64_t k = 0; k < t->r->n_choices && i < t->n_choices; k++)
        for (int64_t at = 0; at < t->r->choices[k].logits.shape[0]; at++, i++)
            put_choice(t, i, &t->r->choices[k], at, row_of(t, own, i));
    for (int64_t k = 0; s && k < s->n_pending; k++, i++)
        put_score(t, &s->pending[k], row_of(t, own, i));
    ax_generate_put_counters(&d->counters, &d->work->told, row_of(t, t->ranks, 0));
}

/* ---- what becomes of them ---- */

static enum ax_status done(const struct ax_generator *d, struct ax_sequence *s) {
    return d->o.done ? d->o.done(d->o.ctx, s) : AX_OK;
}

static enum ax_status away_done(struct ax_generator *d, struct ax_sequence *s) {
    struct ax_sequence **at = &d->work->away;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    return done(d, s);
}

static void take_likeliest(const struct told *t, const double *row, struct ax_sequence *s,
                           int64_t at) {
    for (int i = 0; i < s->n_best; i++) {
        s->best[at * s->n_best + i] = (int32_t)row[COLUMNS + i];
        s->best_logprobs[at * s->n_best + i] = row[COLUMNS + t->k + i];
    }
}

/* A token of a sequence, on this rank's lane, or −1. */
static enum ax_status take_choice(const struct told *t, const double *row, struct ax_sequence *s,
                                  int lane) {
    bool ended;
    if (s->logprobs)
        s->logprobs[s->n_new] = row[LOGPROB];
    if (s->entropies)
        s->entropies[s->n_new] = row[ENTROPY];
    take_likeliest(t, row, s, s->n_new);
    if (lane >= 0)
        return ax_lane_hand_out(t->d, lane, (int32_t)row[ID]);
    AX_TRY(ax_sequence_take(t->d, s, (int32_t)row[ID], &ended));
    return ended ? away_done(t->d, s) : AX_OK;
}

static enum ax_status take_score(const struct told *t, const double *row, struct ax_sequence *s,
                                 bool own) {
    const int64_t at = (int64_t)row[AT];
    s->logprobs[at] = row[LOGPROB];
    s->greedy = s->greedy && row[GREEDY] > 0;
    take_likeliest(t, row, s, at);
    if (at + 1 < s->n_scored)
        return AX_OK;
    s->finish = AX_FINISH_LENGTH;
    return own ? done(t->d, s) : away_done(t->d, s);
}

static enum ax_status take_own(const struct told *t, const double *row, int64_t i) {
    struct ax_generator *d = t->d;
    if (row[KIND] == SCORE)
        return take_score(t, row, d->scores->pending[i - t->n_choices].seq, true);
    const int lane = t->r->lanes[i];
    return take_choice(t, row, d->lanes[lane].seq, lane);
}

static enum ax_status take_away(const struct told *t, const double *row) {
    struct ax_sequence *s = t->d->work->away;
    while (s && s->place != (int64_t)row[PLACE])
        s = s->next;
    AX_ASSERT(s);
    s->n_shared = (int64_t)row[SHARED];
    return row[KIND] == SCORE ? take_score(t, row, s, false) : take_choice(t, row, s, -1);
}

static enum ax_status take_all(const struct told *t) {
    const int own = t->d->model->rt->mesh.coord[AX_ROLE_LOSS];
    struct ax_generate_counters *c = &t->d->counters;
    for (int64_t rank = 0; rank < t->ranks; rank++)
        for (int64_t i = 0; i < t->rows && row_of(t, rank, i)[KIND] != NOTHING; i++)
            AX_TRY(rank == own ? take_own(t, row_of(t, rank, i), i)
                               : take_away(t, row_of(t, rank, i)));
    ax_generate_take_counters(c, &t->d->work->told, row_of(t, t->ranks, 0), (int)t->ranks);
    t->d->work->told = *c;
    return AX_OK;
}

enum ax_status ax_generate_tell(struct ax_generator *d, const struct ax_generate_rows *r,
                                int64_t n) {
    struct ax_runtime *rt = d->model->rt;
    struct told t = {.d = d,
                     .r = r,
                     .n_choices = n,
                     .ranks = rt->mesh.size[AX_ROLE_LOSS],
                     .rows = d->work->need.rows,
                     .k = d->work->need.best,
                     .width = COLUMNS + 2 * d->work->need.best};
    const int64_t count = t.ranks * t.rows * t.width + AX_GENERATE_COUNTERS;
    AX_TRY(ax_alloc(&t.all, (size_t)count, sizeof *t.all));
    put_own(&t);
    enum ax_status st = ax_runtime_combine(rt, AX_ROLE_WORLD, AX_SUM, t.all, count);
    if (st == AX_OK)
        st = take_all(&t);
    ax_lane_scores_drop(d);
    ax_free(t.all);
    return st;
}
