/* A layer's weights are first the model's, then rounded to nearest, then those that are written. */
#include "model/quantize/layers.h"

#include <string.h>

#include "base/mem.h"
#include "model/parts/indexer.h"

/* ---- rows of tokens on their way through the layers: one batch and one slot, for one row at a time ---- */

#define WINDOW 128 /* rows of logits at a time */
#define ROUND  16 /* tokens of a row are computed in multiples of it: what is left of a row is not */

static int held_rows(const struct ax_calibration *c) {
    return c->rows->total - c->rows->first_held;
}

/* While planning, one row stands for all. */
static int rows_to_run(const struct ax_calibration *c, int n) {
    return ax_runtime_planning(c->model->rt) && n > 1 ? 1 : n;
}

/* What enters a unit: of a pass the shapes, and where they are unless it has no slot. */
static struct ax_message entering(const struct ax_pass *p, int unit) {
    struct ax_message in = ax_boundary(p->model, AX_CROSS_OUTPUT, unit, p->batch, p->slot);
    if (ax_pass_chooses(p)) {
        AX_ASSERT(in.n < AX_MESSAGE_PARTS);
        in.parts[in.n++] = p->slot ? p->slot->choice : ax_choice_shape(p);
    }
    return in;
}

/* The same, of row i among those in `memory`. */
static struct ax_message kept(const struct ax_pass *p, int unit, const struct ax_tensor *memory,
                              int i) {
    const struct ax_pass shapes = {.model = p->model, .batch = p->batch};
    const struct ax_message in = entering(&shapes, unit);
    return ax_message_at(&in, ax_tensor_rows(memory, i, 1).data);
}

/* Memory for the most that enters a unit, of several rows. */
static struct ax_tensor take(const struct ax_calibration *c, int rows, const char *name) {
    struct ax_batch longest = {.T = c->batch.cap, .max_len = c->batch.cap};
    const struct ax_pass shapes = {.model = c->model, .batch = &longest};
    size_t most = 0;
    for (int unit = 1; unit < c->model->n_units; unit++) {
        const struct ax_message in = entering(&shapes, unit);
        const size_t bytes = ax_message_bytes(&in);
        most = bytes > most ? bytes : most;
    }
    return ax_stack_take(&c->model->rt->arena.persistent, name,
                         ax_tensor_2d(AX_U8, NULL, rows, (int64_t)most));
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

/* What enters a unit comes into the pass from where it is kept. */
static enum ax_status enter(const struct ax_pass *p, int unit, const struct ax_tensor *memory,
                            int i) {
    const struct ax_message from = kept(p, unit, memory, i), to = entering(p, unit);
    return ax_message_copy(p->model->rt->q, &to, &from);
}

/* What enters the next one is kept. */
static enum ax_status leave(const struct ax_pass *p, int unit, const struct ax_tensor *memory,
                            int i) {
    const struct ax_message from = entering(p, unit + 1), to = kept(p, unit + 1, memory, i);
    return ax_message_copy(p->model->rt->q, &to, &from);
}

/* n rows, from `first` on, through a unit; `in` becomes what enters the next one, unless it `stays`. */
static enum ax_status run_rows(struct ax_calibration *c, int unit, int first, int n,
                               const struct ax_tensor *in, bool stays) {
    for (int i = 0; i < rows_to_run(c, n); i++) {
        struct ax_pass p;
        AX_TRY(begin_row(c, first + i, &p));
        if (unit > 0)
            AX_TRY(enter(&p, unit, in, i));
        AX_TRY(ax_pass_forward(&p, unit));
        if (!stays)
            AX_TRY(leave(&p, unit, in, i));
        ax_pass_end(&p);
    }
    return AX_OK;
}

static bool by_halves(const struct ax_arch *a) {
    bool yes = true;
    for (int64_t i = 0; i < a->n_layers; i++) {
        const struct ax_layer_spec *l = &a->layers[i];
        yes = yes && !l->extra && !l->parallel && !l->borrows && l->mixer != &ax_mixer_dsa_shared;
    }
    return yes;
}

/* Room for what any of two linears reads. */
static void take_seen(struct ax_calibration *c) {
    struct ax_model *m = c->model;
    struct ax_linear *list[AX_LAYER_MAX_LINEARS];
    int64_t most = 0;
    for (int i = 0; c->halves && i < m->arch.n_layers; i++) {
        const struct ax_branch *branches[] = {&m->layers[i].mixer, &m->layers[i].ffn};
        for (int b = 0; b < 2; b++)
            for (int k = 0; branches[b]->type->two_linears &&
                            k < branches[b]->type->linears(&m->layers[i], list);
                 k++)
                most = ax_linear_in(list[k]) > most ? ax_linear_in(list[k]) : most;
    }
    c->seen = ax_stack_take(&m->rt->arena.persistent, "what linears read",
                            ax_tensor_2d(m->dtype, NULL, c->rows->n * c->batch.cap, most));
}

enum ax_status ax_calibration_open(struct ax_calibration *c, struct ax_model *m,
                                   const struct ax_calibration_rows *rows) {
    struct ax_stack *stack = &m->rt->arena.persistent;
    *c = (struct ax_calibration){.rows = rows, .model = m, .halves = by_halves(&m->arch)};
    AX_TRY(ax_slot_create(&c->slot, m, &m->rt->arena.slots[0]));
    ax_batch_allocate(&c->batch, stack, rows->capacity, rows->max_docs, rows->capacity, 1, 0);
    ax_batch_cut(&c->batch, stack, m->arch.chunk);
    c->batch.round = ROUND;
    const int64_t window = rows->capacity < WINDOW ? rows->capacity : WINDOW;
    const bool on_host = !ax_queue_has_host_tier(m->rt->q);
    ax_scorer_create(&c->scorer, m, stack, window);
    ax_results_create(&c->results, on_host ? NULL : m->rt->q, stack,
                      ax_scores_bytes(&c->scorer, window));
    c->rows_in = take(c, rows->n > 0 ? rows->n : 1, "calibration rows");
    take_seen(c);
    AX_TRY(ax_unit_gather(&m->units[0], m->rt));
    AX_TRY(run_rows(c, 0, 0, rows->n, &c->rows_in, false));
    /* without calibrating rows nothing but nearest is chosen */
    for (int v = 0; v < (rows->n > 0 ? AX_VERSIONS : AX_VERSION_CHOSEN); v++) {
        use_version(c, (enum ax_version)v, false);
        c->held_in[v] = take(c, held_rows(c), "measured rows");
        AX_TRY(run_rows(c, 0, rows->first_held, held_rows(c), &c->held_in[v], false));
    }
    ax_unit_release(&m->units[0]);
    return AX_OK;
}

void ax_calibration_close(struct ax_calibration *c) {
    ax_slot_free(&c->slot);
    ax_results_free(&c->results);
    *c = (struct ax_calibration){0};
}

/* ---- rows through half a layer ---- */

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
typedef enum ax_status row_visit(const struct half *h, struct half_row *row);

static enum ax_status visit_rows(const struct half *h, row_visit *visit) {
    struct ax_calibration *c = h->c;
    struct ax_stack *scratch = &c->model->rt->arena.scratch;
    const int unit = h->l->index + 1;
    int64_t at = 0;
    use_version(c, AX_VERSION_CHOSEN, true);
    for (int i = 0; i < rows_to_run(c, c->rows->n); i++) {
        struct half_row row = {.f = &c->slot.frames[unit]};
        AX_TRY(begin_row(c, i, &row.p));
        row.x = kept(&row.p, unit, &c->rows_in, i).parts[0];
        row.seen = ax_tensor_rows(&c->seen, at, c->batch.T);
        at += c->batch.T;
        row.out = c->slot.residual[unit];
        const size_t mark = ax_stack_mark(scratch);
        ax_layer_declare(h->l, &row.p, row.f);
        ax_frame_push(row.f, c->slot.stack, scratch, row.p.recompute);
        AX_TRY(visit(h, &row));
        ax_stack_release(scratch, mark);
        ax_frame_pop(row.f, c->slot.stack);
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

static enum ax_status row_reads_first(const struct half *h, struct half_row *row) {
    return keep_read(h, row, false);
}

static enum ax_status row_reads_second(const struct half *h, struct half_row *row) {
    return keep_read(h, row, true);
}

static enum ax_status watch_row(const struct half *h, struct half_row *row) {
    return ax_branch_finish(h->l, h->b, &row->p, row->f, &row->x, NULL, &row->out);
}

static enum ax_status advance_row(const struct half *h, struct half_row *row) {
    const struct ax_tensor *read = h->b->type->two_linears ? &row->seen : NULL;
    AX_TRY(ax_branch_finish(h->l, h->b, &row->p, row->f, &row->x, read, &row->out));
    return ax_run_copy(h->c->model->rt->q, &(struct ax_copy){.dst = row->x, .src = row->out});
}

/* Half of a layer, b its mixer or its ffn, with its weights as they are now, for the rows that calibrate:
 * `seen` becomes what the first or the second of b's two linears reads. */
static enum ax_status calibration_read(struct ax_calibration *c, const struct ax_layer *l,
                                       const struct ax_branch *b, bool second) {
    struct ax_linear *linears[AX_LAYER_MAX_LINEARS];
    b->type->linears((struct ax_layer *)(uintptr_t)l, linears);
    c->seen = ax_tensor_2d(c->seen.dtype, c->seen.data, c->seen.shape[0],
                           ax_linear_in(linears[second ? 1 : 0]));
    return visit_rows(&(struct half){c, l, b}, second ? row_reads_second : row_reads_first);
}

/* The same rows through b, or through the whole layer, whose linears and experts are watched (their `watch`). */
static enum ax_status calibration_watch(struct ax_calibration *c, const struct ax_layer *l,
                                        const struct ax_branch *b) {
    if (c->halves)
        return visit_rows(&(struct half){c, l, b}, watch_row);
    use_version(c, AX_VERSION_CHOSEN, true);
    return run_rows(c, l->index + 1, 0, c->rows->n, &c->rows_in, true);
}

/* The rows that calibrate go on to what leaves the half; of two linears, the second reads `seen`. Of layers as one they
 * wait for calibration_end. */
static enum ax_status calibration_advance(struct ax_calibration *c, const struct ax_layer *l,
                                          const struct ax_branch *b) {
    return c->halves ? visit_rows(&(struct half){c, l, b}, advance_row) : AX_OK;
}

static enum ax_status calibration_end(struct ax_calibration *c, const struct ax_layer *l) {
    use_version(c, AX_VERSION_CHOSEN, true);
    return c->halves ? AX_OK : run_rows(c, l->index + 1, 0, c->rows->n, &c->rows_in, false);
}

/* Runs a layer on the rows that measure. */
static enum ax_status calibration_measure(struct ax_calibration *c, int layer, enum ax_version v) {
    use_version(c, v, true);
    return run_rows(c, layer + 1, c->rows->first_held, held_rows(c), &c->held_in[v], false);
}

/* ---- the loss of rows ---- */

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

static enum ax_status score_row(struct ax_calibration *c, enum ax_version v, int i,
                                struct sums *s) {
    const int unit = c->model->n_units - 1, row = c->rows->first_held + i;
    struct ax_pass p;
    AX_TRY(begin_row(c, row, &p));
    AX_TRY(enter(&p, unit, &c->held_in[v], i));
    AX_TRY(ax_pass_forward(&p, unit));
    AX_TRY(add_scores(c, &p, &c->rows->rows[row], s));
    ax_pass_end(&p);
    return AX_OK;
}

enum ax_status ax_calibration_loss(struct ax_calibration *c, enum ax_version v, double *loss,
                                   int64_t *tokens) {
    const struct ax_model *m = c->model;
    struct sums s = {0};
    use_version(c, v, false);
    AX_TRY(ax_model_gather(m, m->n_units - 1));
    for (int i = 0; i < rows_to_run(c, held_rows(c)); i++)
        AX_TRY(score_row(c, v, i, &s));
    ax_model_release(m, m->n_units - 1);
    *loss = s.weight > 0 ? s.nll / s.weight : 0;
    *tokens = s.tokens;
    return AX_OK;
}

/* ---- the matrices of a layer and what reads them ---- */

/* The matrices that read the same inputs: of a linear, or of one expert. */
struct reader {
    const struct ax_branch *of;
    const struct ax_linear *linear; /* NULL: of an expert */
    int n;
    const struct ax_param *weight[AX_LINEAR_MAX_PARTS];
    struct ax_gptq inputs;
};

/* A layer's readers: its linears, then of each expert gate and up, and down. */
struct state {
    struct ax_quantize_layers *s;
    struct ax_quantize_layer *report;
    struct ax_layer *layer;
    int n, n_linears;
    struct ax_linear *linears[AX_LAYER_MAX_LINEARS];
    struct reader *readers; /* [n] */
    int32_t *offsets;       /* of the experts' rows */
};

/* The branch with the layer's i-th linear. */
static const struct ax_branch *branch_of(struct ax_layer *l, int i) {
    struct ax_linear *list[AX_LAYER_MAX_LINEARS];
    const int mixer = l->mixer.type->linears(l, list), ffn = l->ffn.type->linears(l, list);
    return i < mixer ? &l->mixer : i < mixer + ffn ? &l->ffn : &l->extra;
}

static enum ax_status list_readers(struct state *t) {
    const struct ax_moe_part *moe = &t->layer->moe;
    const int ups = ax_arch_ups(&t->s->model->arch);
    const int experts = moe->gate_up ? (int)t->s->model->arch.moe.n_experts : 0;
    t->n_linears = ax_layer_linears(t->layer, t->linears);
    t->n = t->n_linears + 2 * experts;
    AX_TRY(ax_alloc(&t->readers, (size_t)t->n, sizeof *t->readers));
    AX_TRY(ax_alloc(&t->offsets, (size_t)experts + 1, sizeof *t->offsets));
    for (int i = 0; i < t->n_linears; i++) {
        const struct ax_linear *l = t->linears[i];
        t->readers[i] = (struct reader){.of = branch_of(t->layer, i), .linear = l, .n = l->n_parts};
        memcpy(t->readers[i].weight, l->weight, sizeof l->weight);
    }
    for (int e = 0; e < experts; e++) {
        struct reader *r = &t->readers[t->n_linears + 2 * e];
        r[0] = (struct reader){.of = &t->layer->ffn, .n = ups};
        for (int k = 0; k < ups; k++)
            r[0].weight[k] = moe->gate_up + (int64_t)ups * e + k;
        r[1] = (struct reader){.of = &t->layer->ffn, .n = 1, .weight = {moe->down + e}};
    }
    return AX_OK;
}

/* The matrix that a parameter becomes; NULL: it stays as it is. */
static struct ax_quantized_matrix *matrix_of(const struct state *t, const struct ax_param *p) {
    return t->s->find(t->s->ctx, ax_hf_find(t->s->hf, p->name));
}

static enum ax_status see(void *ctx, const struct ax_linear *l, const struct ax_tensor *x) {
    struct state *t = ctx;
    const int64_t n = ax_calibration_tokens(&t->s->rows);
    const struct ax_tensor used = ax_tensor_rows(x, 0, n < x->shape[0] ? n : x->shape[0]);
    for (int i = 0; i < t->n_linears; i++)
        if (t->readers[i].linear == l && t->readers[i].inputs.h)
            return ax_gptq_see(t->s->model->rt->q, &t->readers[i].inputs, &used);
    return AX_OK;
}

/* While planning, all rows are one expert's. */
static enum ax_status see_experts(void *ctx, bool down, const struct ax_expert_rows *rows) {
    struct state *t = ctx;
    struct ax_queue *q = t->s->model->rt->q;
    struct reader *experts = t->readers + t->n_linears + down;
    if (ax_queue_is_meta(q))
        return ax_gptq_see(q, &experts->inputs, &rows->x);
    AX_TRY(ax_queue_read(q, rows->offsets.data, t->offsets, ax_tensor_bytes(&rows->offsets), NULL));
    for (int64_t e = 0; e < rows->offsets.shape[0] - 1; e++) {
        const int64_t n = t->offsets[e + 1] - t->offsets[e];
        const struct ax_tensor own = ax_tensor_rows(&rows->x, t->offsets[e], n);
        if (n > 0)
            AX_TRY(ax_gptq_see(q, &experts[2 * e].inputs, &own));
    }
    return AX_OK;
}

/* ---- one matrix ---- */

/* Values become the weights of the layer. */
static enum ax_status use_values(struct state *t, const struct ax_param *p, const float *values) {
    AX_ASSERT(p);
    const struct ax_tensor w = ax_unit_weight(&t->s->model->units[p->unit], p);
    const struct ax_tensor from =
        ax_tensor_2d(AX_F32, (void *)(uintptr_t)values, w.shape[0], w.shape[1]);
    return ax_run_copy(t->s->model->rt->q, &(struct ax_copy){.dst = w, .src = from});
}

/* *sum += Σ (e·xᵀ)² over the rows x that g has seen: of experts, each counts with all of its own. */
static enum ax_status add_squares(struct state *t, const struct ax_gptq *g,
                                  const struct ax_quantized_matrix *m, const float *e,
                                  double *sum) {
    double mean = 0;
    AX_TRY(ax_gptq_error(t->s->model->rt->q, g, m->rows, e, &mean));
    *sum += mean * (double)g->tokens / 2;
    return AX_OK;
}

/* *sum += the squared error of the outputs; values become the differences from x. */
static enum ax_status add_output_error(struct state *t, const struct ax_gptq *g,
                                       const struct ax_quantized_matrix *m, float *values,
                                       double *sum) {
    for (int64_t i = 0; i < m->e->numel && !ax_queue_is_meta(t->s->model->rt->q); i++)
        values[i] -= m->x[i];
    return add_squares(t, g, m, values, sum);
}

static enum ax_status add_weight_error(struct state *t, const struct ax_quantized_matrix *m) {
    struct ax_queue *q = t->s->model->rt->q;
    struct ax_quantize_layer *r = t->report;
    return ax_queue_is_meta(q) ? AX_OK : ax_quantized_matrix_errors(m, q, &r->squares, &r->errors);
}

/* Rounded to nearest. */
static enum ax_status round_nearest(struct state *t, const struct ax_param *p,
                                    struct ax_quantized_matrix *m, float *values) {
    struct ax_queue *q = t->s->model->rt->q;
    AX_TRY(ax_quantized_matrix_make(m, q));
    AX_TRY(ax_quantized_matrix_values(m, q, values));
    if (!t->s->gptq)
        AX_TRY(add_weight_error(t, m));
    return use_values(t, p, values);
}

static enum ax_status round_gptq(struct state *t, const struct ax_gptq *g, const struct ax_param *p,
                                 struct ax_quantized_matrix *m, float *values) {
    struct ax_queue *q = t->s->model->rt->q;
    struct ax_quantize_layer *r = t->report;
    const struct ax_gptq_matrix round = {.rows = m->rows,
                                         .block = m->block,
                                         .w = m->x,
                                         .codes = (signed char *)m->codes,
                                         .scale = m->scale,
                                         .value = values,
                                         .threads = t->s->threads};
    AX_TRY(ax_quantized_matrix_values(m, q, values));
    AX_TRY(add_output_error(t, g, m, values, &r->nearest));
    AX_TRY(add_squares(t, g, m, m->x, &r->outputs));
    AX_TRY(ax_gptq_round(q, g, t->s->gptq, &round));
    AX_TRY(add_weight_error(t, m));
    AX_TRY(use_values(t, p, values));
    return add_output_error(t, g, m, values, &r->chosen);
}

/* ---- all of them ---- */

static enum ax_status round_matrix(struct state *t, const struct ax_gptq *g,
                                   const struct ax_param *p) {
    struct ax_quantized_matrix *m = matrix_of(t, p);
    float *values;
    if (!m)
        return AX_OK;
    AX_TRY(ax_alloc(&values, (size_t)m->e->numel, sizeof *values));
    const enum ax_status st = g ? round_gptq(t, g, p, m, values) : round_nearest(t, p, m, values);
    ax_free(values);
    return st;
}

static enum ax_status round_all(struct state *t) {
    for (int i = 0; i < t->n; i++)
        for (int k = 0; k < t->readers[i].n; k++)
            AX_TRY(round_matrix(t, NULL, t->readers[i].weight[k]));
    return AX_OK;
}

/* A matrix of too few rows: its weights become the values of its codes, which are at nearest. */
static enum ax_status keep_nearest(struct state *t, const struct ax_param *p) {
    const struct ax_quantized_matrix *m = matrix_of(t, p);
    float *values;
    AX_TRY(add_weight_error(t, m));
    AX_TRY(ax_alloc(&values, (size_t)m->e->numel, sizeof *values));
    enum ax_status st = ax_quantized_matrix_values(m, t->s->model->rt->q, values);
    if (st == AX_OK)
        st = use_values(t, p, values);
    ax_free(values);
    return st;
}

/* Rounds a reader's matrices, whose codes are at nearest, and frees its inputs. */
static enum ax_status round_reader(struct state *t, struct reader *r) {
    struct ax_queue *q = t->s->model->rt->q;
    if (!r->inputs.h) /* stays as it is */
        return AX_OK;
    if (!r->linear && !ax_queue_is_meta(q) && ax_quantize_too_few(r->inputs.tokens, r->inputs.n)) {
        t->report->few += r->n;
        for (int k = 0; k < r->n; k++)
            AX_TRY(keep_nearest(t, r->weight[k]));
    } else {
        AX_TRY(ax_gptq_factor(q, &r->inputs, t->s->gptq));
        for (int k = 0; k < r->n; k++)
            AX_TRY(round_matrix(t, &r->inputs, r->weight[k]));
    }
    ax_gptq_close(&r->inputs);
    return AX_OK;
}

/* ---- rounding a branch of a layer ---- */

static enum ax_status open_inputs(struct state *t, struct reader *r) {
    const struct ax_param *first = r->weight[0];
    if (!first || !matrix_of(t, first))
        return AX_OK;
    return ax_gptq_open(&r->inputs, first->local_shape[1]);
}

/* True for the readers of a branch, or for one of them alone. */
static bool is_in(const struct state *t, int i, const struct ax_branch *b, int only) {
    return t->readers[i].of == b && (only < 0 || i == only);
}

/* What readers of a branch see while their weights are the model's. */
static enum ax_status watch(struct state *t, const struct ax_branch *b, int only) {
    const struct ax_linear_watch w = {see, t};
    const struct ax_expert_watch experts = {see_experts, t};
    for (int i = 0; i < t->n; i++) {
        struct reader *r = &t->readers[i];
        if (!is_in(t, i, b, only))
            continue;
        AX_TRY(open_inputs(t, r));
        for (int k = 0; k < r->n && r->inputs.h; k++)
            AX_TRY(use_values(t, r->weight[k], matrix_of(t, r->weight[k])->x));
    }
    for (int i = 0; i < t->n; i++)
        if (is_in(t, i, b, only) && t->readers[i].linear)
            t->linears[i]->watch = &w;
    t->layer->moe.watch = b == &t->layer->ffn ? &experts : NULL;
    const enum ax_status st = calibration_watch(&t->s->rows, t->layer, b);
    for (int i = 0; i < t->n_linears; i++)
        t->linears[i]->watch = NULL;
    t->layer->moe.watch = NULL;
    return st;
}

static enum ax_status round_watched(struct state *t, const struct ax_branch *b, int only) {
    AX_TRY(watch(t, b, only));
    for (int i = 0; i < t->n; i++)
        if (is_in(t, i, b, only))
            AX_TRY(round_reader(t, &t->readers[i]));
    return AX_OK;
}

/* Of a branch of two linears the first or second, whose reader is the i-th. */
static enum ax_status round_read(struct state *t, const struct ax_branch *b, int i, bool second) {
    struct ax_calibration *c = &t->s->rows;
    struct reader *r = &t->readers[i];
    if (!c->halves)
        return round_watched(t, b, i);
    AX_TRY(open_inputs(t, r));
    AX_TRY(calibration_read(c, t->layer, b, second));
    if (r->inputs.h)
        AX_TRY(ax_gptq_see(t->s->model->rt->q, &r->inputs, &c->seen));
    return round_reader(t, r);
}

/* Of two linears, each is rounded before what the next one reads is computed with it. */
static enum ax_status round_branch(struct state *t, const struct ax_branch *b) {
    int first = 0;
    if (!b->type || b->type == &ax_part_none)
        return AX_OK;
    while (first < t->n && t->readers[first].of != b)
        first++;
    if (b->type->two_linears) {
        AX_TRY(round_read(t, b, first, false));
        AX_TRY(round_read(t, b, first + 1, true));
    } else {
        AX_TRY(round_watched(t, b, -1));
    }
    return calibration_advance(&t->s->rows, t->layer, b);
}

static enum ax_status run(struct state *t) {
    struct ax_calibration *c = &t->s->rows;
    const int layer = t->layer->index;
    AX_TRY(calibration_measure(c, layer, AX_VERSION_ORIGINAL));
    AX_TRY(round_all(t));
    AX_TRY(calibration_measure(c, layer, AX_VERSION_NEAREST));
    if (!t->s->gptq)
        return AX_OK;
    AX_TRY(round_branch(t, &t->layer->mixer));
    AX_TRY(round_branch(t, &t->layer->ffn));
    AX_TRY(round_branch(t, &t->layer->extra));
    AX_TRY(calibration_end(c, t->layer));
    return calibration_measure(c, layer, AX_VERSION_CHOSEN);
}

enum ax_status ax_quantize_layer_run(struct ax_quantize_layers *s, int layer,
                                     struct ax_quantize_layer *report) {
    struct state t = {.s = s, .report = report, .layer = &s->model->layers[layer]};
    struct ax_unit *unit = &s->model->units[layer + 1];
    AX_TRY(ax_model_load_unit(s->model, s->hf, layer + 1));
    AX_TRY(ax_unit_gather(unit, s->model->rt));
    enum ax_status st = list_readers(&t);
    if (st == AX_OK)
        st = run(&t);
    ax_unit_release(unit);
    for (int i = 0; t.readers && i < t.n; i++)
        ax_gptq_close(&t.readers[i].inputs);
    ax_free(t.readers);
    ax_free(t.offsets);
    return st;
}
