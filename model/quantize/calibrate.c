/* One batch and one slot, for one row at a time. */
#include "model/quantize/calibrate.h"

#include "base/mem.h"

#define WINDOW 128 /* rows of logits at a time */
#define ROUND  16 /* tokens of a row are computed in multiples of it: what is left of a row is not */

static int held(const struct ax_calibration *c) {
    return c->rows->total - c->rows->first_held;
}

/* While planning, one row stands for all. */
static int count(const struct ax_calibration *c, int n) {
    return ax_runtime_planning(c->model->rt) && n > 1 ? 1 : n;
}

static struct ax_tensor take(struct ax_calibration *c, int rows, const char *name) {
    struct ax_tensor t =
        ax_tensor_2d(c->model->accum, NULL, rows * c->batch.cap, c->model->arch.hidden_size);
    t.data = ax_stack_push(&c->model->rt->arena.persistent, name, ax_tensor_bytes(&t));
    return t;
}

/* How the products of a unit round, unless the version is the original: those of the embedding and the head
 * their matrix and its inputs, those of layers only inputs, because their weights are values already. */
static void use_version(struct ax_calibration *c, enum ax_version v, bool layer) {
    c->model->quant.on = v != AX_VERSION_ORIGINAL;
    c->model->quant.stored = layer;
}

static enum ax_status begin_row(struct ax_calibration *c, int row, struct ax_pass *p) {
    struct ax_model *m = c->model;
    const struct ax_calibration_row *r = &c->rows->rows[row];
    *p = (struct ax_pass){.model = m,
                          .batch = &c->batch,
                          .slot = &c->slot,
                          .recompute = AX_RECOMPUTE_INFERENCE,
                          .inv_temperature = 1};
    AX_TRY(ax_batch_fill(&c->batch, m->rt->q, m->arch.vocab_size, r->n, r->docs));
    return ax_pass_begin(p);
}

/* Row i through a unit: x [cap][D] becomes what comes out of it. */
static enum ax_status run_unit(struct ax_calibration *c, int unit, int row,
                               const struct ax_tensor *x) {
    struct ax_queue *q = c->model->rt->q;
    struct ax_pass p;
    AX_TRY(begin_row(c, row, &p));
    const struct ax_tensor used = ax_tensor_rows(x, 0, c->batch.T);
    if (unit > 0)
        AX_TRY(ax_run_copy(q, &(struct ax_copy){.dst = c->slot.residual[unit - 1], .src = used}));
    AX_TRY(ax_pass_forward(&p, unit));
    AX_TRY(ax_run_copy(q, &(struct ax_copy){.dst = used, .src = c->slot.residual[unit]}));
    ax_pass_end(&p);
    return AX_OK;
}

/* n rows, from `first` on. */
static enum ax_status run_rows(struct ax_calibration *c, int unit, int first, int n,
                               const struct ax_tensor *x) {
    const int64_t cap = c->batch.cap;
    for (int i = 0; i < count(c, n); i++) {
        const struct ax_tensor row = ax_tensor_rows(x, i * cap, cap);
        AX_TRY(run_unit(c, unit, first + i, &row));
    }
    return AX_OK;
}

/* Room for what any of two linears reads. */
static void take_seen(struct ax_calibration *c) {
    struct ax_model *m = c->model;
    struct ax_linear *list[AX_LAYER_MAX_LINEARS];
    int64_t most = 0;
    for (int i = 0; i < m->arch.n_layers; i++) {
        const struct ax_branch *branches[] = {&m->layers[i].mixer, &m->layers[i].ffn};
        for (int b = 0; b < 2; b++)
            for (int k = 0; branches[b]->type->two_linears &&
                            k < branches[b]->type->linears(&m->layers[i], list);
                 k++)
                most = ax_linear_in(list[k]) > most ? ax_linear_in(list[k]) : most;
    }
    c->seen = ax_tensor_2d(m->dtype, NULL, c->rows->n * c->batch.cap, most);
    c->seen.data =
        ax_stack_push(&m->rt->arena.persistent, "what linears read", ax_tensor_bytes(&c->seen));
}

enum ax_status ax_calibration_open(struct ax_calibration *c, struct ax_model *m,
                                   const struct ax_calibration_rows *rows) {
    struct ax_stack *stack = &m->rt->arena.persistent;
    *c = (struct ax_calibration){.rows = rows, .model = m};
    AX_TRY(ax_slot_create(&c->slot, m, &m->rt->arena.slots[0]));
    ax_batch_allocate(&c->batch, stack, rows->capacity, rows->max_docs, rows->capacity, 1, 0);
    c->batch.round = ROUND;
    const int64_t window = rows->capacity < WINDOW ? rows->capacity : WINDOW;
    const bool near = !ax_queue_has_host_tier(m->rt->q);
    ax_scorer_create(&c->scorer, m, stack, window);
    ax_results_create(&c->results, near ? NULL : m->rt->q, stack,
                      ax_scores_bytes(&c->scorer, window));
    c->rows_x = take(c, rows->n > 0 ? rows->n : 1, "calibration rows");
    take_seen(c);
    AX_TRY(ax_unit_gather(&m->units[0], m->rt));
    AX_TRY(run_rows(c, 0, 0, rows->n, &c->rows_x));
    for (int v = 0; v < AX_VERSIONS; v++) {
        use_version(c, (enum ax_version)v, false);
        c->held_x[v] = take(c, held(c), "measured rows");
        AX_TRY(run_rows(c, 0, rows->first_held, held(c), &c->held_x[v]));
    }
    ax_unit_release(&m->units[0]);
    return AX_OK;
}

void ax_calibration_close(struct ax_calibration *c) {
    ax_slot_free(&c->slot);
    ax_results_free(&c->results);
    *c = (struct ax_calibration){0};
}

/* ---- half a layer ---- */

struct half {
    struct ax_calibration *c;
    const struct ax_layer *l;
    const struct ax_branch *b;
};
/* One row in it: x [T][D], its rows of what was seen, room for what leaves it. */
struct half_row {
    struct ax_pass p;
    struct ax_frame *f;
    struct ax_tensor x, seen, out;
};
typedef enum ax_status visit_fn(const struct half *h, struct half_row *row);

static enum ax_status visit_rows(const struct half *h, visit_fn *visit) {
    struct ax_calibration *c = h->c;
    struct ax_stack *scratch = &c->model->rt->arena.scratch;
    const int unit = h->l->index + 1;
    int64_t at = 0;
    use_version(c, AX_VERSION_CHOSEN, true);
    for (int i = 0; i < count(c, c->rows->n); i++) {
        struct half_row row = {.f = &c->slot.frames[unit]};
        AX_TRY(begin_row(c, i, &row.p));
        row.x = ax_tensor_rows(&c->rows_x, i * c->batch.cap, c->batch.T);
        row.seen = ax_tensor_rows(&c->seen, at, c->batch.T);
        at += c->batch.T;
        row.out = c->slot.residual[unit];
        const size_t mark = ax_stack_mark(scratch);
        ax_layer_declare(h->l, &row.p, row.f);
        ax_frame_push(row.f, c->slot.stack, scratch, row.p.recompute);
        AX_TRY(visit(h, &row));
        ax_stack_release(scratch, mark);
        ax_pass_end(&row.p);
    }
    if (!ax_runtime_planning(c->model->rt))
        c->seen.shape[0] = at;
    return AX_OK;
}

static enum ax_status keep_read(const struct half *h, struct half_row *row, bool second) {
    struct ax_calibration *c = h->c;
    struct ax_queue *q = c->model->rt->q;
    const int64_t used = c->batch.n_tokens, T = c->batch.T;
    struct ax_tensor read;
    AX_TRY(ax_branch_read(h->l, h->b, &row->p, row->f, &row->x, second, &read));
    AX_TRY(ax_run_copy(q, &(struct ax_copy){.dst = row->seen, .src = read}));
    if (used >= T)
        return AX_OK;
    return ax_run_fill(q, &(struct ax_fill){ax_tensor_rows(&row->seen, used, T - used), 0});
}

static enum ax_status read_first(const struct half *h, struct half_row *row) {
    return keep_read(h, row, false);
}

static enum ax_status read_second(const struct half *h, struct half_row *row) {
    return keep_read(h, row, true);
}

static enum ax_status watch(const struct half *h, struct half_row *row) {
    return ax_branch_finish(h->l, h->b, &row->p, row->f, &row->x, NULL, &row->out);
}

static enum ax_status advance(const struct half *h, struct half_row *row) {
    const struct ax_tensor *read = h->b->type->two_linears ? &row->seen : NULL;
    AX_TRY(ax_branch_finish(h->l, h->b, &row->p, row->f, &row->x, read, &row->out));
    return ax_run_copy(h->c->model->rt->q, &(struct ax_copy){.dst = row->x, .src = row->out});
}

enum ax_status ax_calibration_read(struct ax_calibration *c, const struct ax_layer *l,
                                   const struct ax_branch *b, bool second) {
    struct ax_linear *linears[AX_LAYER_MAX_LINEARS];
    b->type->linears((struct ax_layer *)(uintptr_t)l, linears);
    c->seen = ax_tensor_2d(c->seen.dtype, c->seen.data, c->seen.shape[0],
                           ax_linear_in(linears[second ? 1 : 0]));
    return visit_rows(&(struct half){c, l, b}, second ? read_second : read_first);
}

enum ax_status ax_calibration_watch(struct ax_calibration *c, const struct ax_layer *l,
                                    const struct ax_branch *b) {
    return visit_rows(&(struct half){c, l, b}, watch);
}

enum ax_status ax_calibration_advance(struct ax_calibration *c, const struct ax_layer *l,
                                      const struct ax_branch *b) {
    return visit_rows(&(struct half){c, l, b}, advance);
}

enum ax_status ax_calibration_measure(struct ax_calibration *c, int layer, enum ax_version v) {
    use_version(c, v, true);
    return run_rows(c, layer + 1, c->rows->first_held, held(c), &c->held_x[v]);
}

/* ---- loss ---- */

struct sums {
    double nll, weight;
    int64_t tokens;
};

static enum ax_status score_window(struct ax_calibration *c, struct ax_pass *p, int64_t first,
                                   int64_t n, struct ax_scores *scores) {
    const struct ax_tensor rows = ax_tensor_rows(&c->batch.rows, first, n),
                           labels = ax_tensor_rows(&c->batch.labels, first, n);
    AX_TRY(ax_scorer_run(&c->scorer, p, &rows, &labels, &c->results, scores));
    if (!ax_runtime_planning(c->model->rt))
        return ax_results_read(&c->results);
    ax_results_drop(&c->results);
    return AX_OK;
}

/* Adds the log-probs of a row's labels, which the batch lists first and in order. */
static enum ax_status add_scores(struct ax_calibration *c, struct ax_pass *p,
                                 const struct ax_calibration_row *r, struct sums *s) {
    int64_t n = 0, first = 0, end = 0;
    struct ax_scores scores;
    if (ax_runtime_planning(c->model->rt))
        return score_window(c, p, 0, c->scorer.window, &scores);
    for (int64_t t = 0; t < r->n_tokens; t++) {
        if (r->labels[t] < 0 || !(r->weight[t] > 0))
            continue;
        if (n == end) {
            const int64_t left = c->batch.n_rows - n;
            first = n;
            end = n + (left < c->scorer.window ? left : c->scorer.window);
            AX_TRY(score_window(c, p, first, end - first, &scores));
        }
        s->nll -= (double)r->weight[t] * ax_results_get(&c->results, &scores.logprob, n++ - first);
        s->weight += (double)r->weight[t];
        s->tokens++;
    }
    return AX_OK;
}

static enum ax_status score_row(struct ax_calibration *c, int row, const struct ax_tensor *x,
                                struct sums *s) {
    struct ax_model *m = c->model;
    const int unit = m->n_units - 1;
    struct ax_pass p;
    AX_TRY(begin_row(c, row, &p));
    const struct ax_tensor used = ax_tensor_rows(x, 0, c->batch.T);
    AX_TRY(ax_run_copy(m->rt->q, &(struct ax_copy){c->slot.residual[unit - 1], used}));
    AX_TRY(ax_pass_forward(&p, unit));
    AX_TRY(add_scores(c, &p, &c->rows->rows[row], s));
    ax_pass_end(&p);
    return AX_OK;
}

enum ax_status ax_calibration_loss(struct ax_calibration *c, enum ax_version v, double *loss,
                                   int64_t *tokens) {
    const struct ax_model *m = c->model;
    const int64_t T = c->batch.cap;
    struct sums s = {0};
    use_version(c, v, false);
    AX_TRY(ax_model_gather(m, m->n_units - 1));
    for (int i = 0; i < count(c, held(c)); i++) {
        const struct ax_tensor row = ax_tensor_rows(&c->held_x[v], i * T, T);
        AX_TRY(score_row(c, c->rows->first_held + i, &row, &s));
    }
    ax_model_release(m, m->n_units - 1);
    *loss = s.weight > 0 ? s.nll / s.weight : 0;
    *tokens = s.tokens;
    return AX_OK;
}
