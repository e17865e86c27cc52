/* A layer's weights are first the model's, then rounded to nearest, then those that are written. */
#include "model/quantize/layers.h"

#include <string.h>

#include "base/mem.h"

/* The matrices that read the same inputs: of a linear, or of one expert. */
struct reader {
    const struct ax_linear *linear; /* NULL: of an expert */
    int n;
    const struct ax_param *weight[AX_LINEAR_MAX_PARTS];
    struct ax_gptq inputs;
};

/* A layer's: its linears, then of each expert gate and up, and down. */
struct state {
    struct ax_quantize_layers *s;
    struct ax_quantize_layer *report;
    struct ax_layer *layer;
    int n, n_linears;
    struct ax_linear *linears[AX_LAYER_MAX_LINEARS];
    struct reader *readers; /* [n] */
    int32_t *offsets;       /* of the experts' rows */
};

static enum ax_status list_readers(struct state *t) {
    const struct ax_moe_part *moe = &t->layer->moe;
    const int experts = moe->gate_up ? (int)t->s->model->arch.moe.n_experts : 0;
    t->n_linears = ax_layer_linears(t->layer, t->linears);
    t->n = t->n_linears + 2 * experts;
    AX_TRY(ax_alloc(&t->readers, (size_t)t->n, sizeof *t->readers));
    AX_TRY(ax_alloc(&t->offsets, (size_t)experts + 1, sizeof *t->offsets));
    for (int i = 0; i < t->n_linears; i++) {
        const struct ax_linear *l = t->linears[i];
        t->readers[i] = (struct reader){.linear = l, .n = l->n_parts};
        memcpy(t->readers[i].weight, l->weight, sizeof l->weight);
    }
    for (int e = 0; e < experts; e++) {
        struct reader *r = &t->readers[t->n_linears + 2 * e];
        r[0] = (struct reader){.n = 2, .weight = {moe->gate_up + 2 * e, moe->gate_up + 2 * e + 1}};
        r[1] = (struct reader){.n = 1, .weight = {moe->down + e}};
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

/* *sum += the squared error of the outputs; values become the differences from x. */
static enum ax_status add_output_error(struct state *t, const struct ax_gptq *g,
                                       const struct ax_quantized_matrix *m, float *values,
                                       double *sum) {
    double error;
    for (int64_t i = 0; i < m->e->numel && !ax_queue_is_meta(t->s->model->rt->q); i++)
        values[i] -= m->x[i];
    AX_TRY(ax_gptq_error(t->s->model->rt->q, g, m->rows, values, &error));
    *sum += error;
    return AX_OK;
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
    double squares;
    AX_TRY(ax_quantized_matrix_values(m, q, values));
    AX_TRY(add_output_error(t, g, m, values, &r->nearest));
    AX_TRY(ax_gptq_error(q, g, m->rows, m->x, &squares));
    r->outputs += squares;
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

/* It stays at nearest, which its codes are. */
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

/* The matrices of a reader, whose codes are at nearest; then its memory is not needed. */
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

/* ---- half a layer ---- */

/* The readers of the mixer or of the ffn: [first, end) of the list. */
static void readers_of(const struct state *t, const struct ax_branch *b, int *first, int *end) {
    struct ax_linear *list[AX_LAYER_MAX_LINEARS];
    const bool mixer = b == &t->layer->mixer;
    const int n = t->layer->mixer.type->linears(t->layer, list);
    *first = mixer ? 0 : n;
    *end = mixer ? n : t->n;
}

static enum ax_status open_inputs(struct state *t, struct reader *r) {
    const struct ax_param *first = r->weight[0];
    if (!first || !matrix_of(t, first))
        return AX_OK;
    return ax_gptq_open(&r->inputs, first->local_shape[1]);
}

/* Each is rounded before what the next one reads is computed with it. */
static enum ax_status round_two(struct state *t, const struct ax_branch *b, int first) {
    struct ax_calibration *c = &t->s->rows;
    for (int i = 0; i < 2; i++) {
        struct reader *r = &t->readers[first + i];
        AX_TRY(open_inputs(t, r));
        AX_TRY(ax_calibration_read(c, t->layer, b, i == 1));
        if (r->inputs.h)
            AX_TRY(ax_gptq_see(t->s->model->rt->q, &r->inputs, &c->seen));
        AX_TRY(round_reader(t, r));
    }
    return AX_OK;
}

/* What readers [first, end) see while their weights are the model's. */
static enum ax_status watch(struct state *t, const struct ax_branch *b, int first, int end) {
    const struct ax_linear_watch w = {see, t};
    const struct ax_expert_watch experts = {see_experts, t};
    for (int i = first; i < end; i++) {
        struct reader *r = &t->readers[i];
        AX_TRY(open_inputs(t, r));
        for (int k = 0; k < r->n && r->inputs.h; k++)
            AX_TRY(use_values(t, r->weight[k], matrix_of(t, r->weight[k])->x));
        if (r->linear)
            t->linears[i]->watch = &w;
    }
    t->layer->moe.watch = &experts;
    const enum ax_status st = ax_calibration_watch(&t->s->rows, t->layer, b);
    for (int i = first; i < end && i < t->n_linears; i++)
        t->linears[i]->watch = NULL;
    t->layer->moe.watch = NULL;
    return st;
}

static enum ax_status round_branch(struct state *t, const struct ax_branch *b) {
    int first, end;
    readers_of(t, b, &first, &end);
    if (b->type->two_linears) {
        AX_TRY(round_two(t, b, first));
    } else {
        AX_TRY(watch(t, b, first, end));
        for (int i = first; i < end; i++)
            AX_TRY(round_reader(t, &t->readers[i]));
    }
    return ax_calibration_advance(&t->s->rows, t->layer, b);
}

static enum ax_status run(struct state *t) {
    struct ax_calibration *c = &t->s->rows;
    const int layer = t->layer->index;
    AX_TRY(ax_calibration_measure(c, layer, AX_VERSION_ORIGINAL));
    AX_TRY(round_all(t));
    AX_TRY(ax_calibration_measure(c, layer, AX_VERSION_NEAREST));
    if (!t->s->gptq)
        return AX_OK;
    AX_TRY(round_branch(t, &t->layer->mixer));
    AX_TRY(round_branch(t, &t->layer->ffn));
    return ax_calibration_measure(c, layer, AX_VERSION_CHOSEN);
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
